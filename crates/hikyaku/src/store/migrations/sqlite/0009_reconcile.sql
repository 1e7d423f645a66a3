-- How far reconciliations have come, and what their cycles found.
CREATE TABLE reconciles (
    organization TEXT NOT NULL,
    name         TEXT NOT NULL,
    mark         INTEGER,                   -- everything before was compared
    wanted_from  INTEGER,                   -- to be compared beside the schedule
    wanted_to    INTEGER,
    calls        INTEGER NOT NULL,          -- of the provider's API, since calls_since
    calls_since  INTEGER,
    active_at    INTEGER,                   -- when the provider's webhook was last seen to be on
    PRIMARY KEY (organization, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE reconcile_cycles (
    organization TEXT NOT NULL,
    name         TEXT NOT NULL,
    number       INTEGER NOT NULL,
    from_at      INTEGER NOT NULL,
    to_at        INTEGER NOT NULL,
    done_to      INTEGER NOT NULL,          -- everything of the period before this is done
    started_at   INTEGER NOT NULL,
    ended_at     INTEGER,
    listed       INTEGER NOT NULL,
    known        INTEGER NOT NULL,
    missing      INTEGER NOT NULL,
    repaired     INTEGER NOT NULL,
    different    INTEGER NOT NULL,
    unknown      INTEGER NOT NULL,
    calls        INTEGER NOT NULL,
    problem      TEXT NOT NULL,
    PRIMARY KEY (organization, name, number)
) STRICT, WITHOUT ROWID;

-- Which business keys had an effect, whatever the route.
CREATE INDEX applied_key ON applied (organization, provider, lane);
-- Received rows by their own time.
CREATE INDEX inbox_rows_time ON inbox_rows (organization, provider, micros, position);
