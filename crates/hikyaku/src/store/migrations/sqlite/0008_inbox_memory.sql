-- What the inbox remembers beyond its rows: ids of rows that are gone, when versions took effect, when somebody was
-- there to receive.

-- Ids of received deliveries that are still known as duplicates although their rows are dropped.
CREATE TABLE known_ids (
    organization TEXT NOT NULL,
    provider     TEXT NOT NULL,
    delivery     TEXT NOT NULL,
    due_since    INTEGER NOT NULL,          -- when it was received, by the schedule clock
    PRIMARY KEY (organization, provider, delivery)
) STRICT, WITHOUT ROWID;

CREATE INDEX known_ids_age ON known_ids (due_since);

-- When a version took effect. Of those that are here already it is not known, and the present is the safe guess: they
-- are kept for the whole time from now on.
ALTER TABLE applied ADD COLUMN applied_at INTEGER NOT NULL DEFAULT 0;
UPDATE applied SET applied_at = CAST(unixepoch('subsec') * 1000 AS INTEGER);

CREATE INDEX applied_age ON applied (applied_at, organization, route, provider, lane);

-- The last time that somebody who could receive was there: one row, by the wall clock.
CREATE TABLE heartbeat (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    at INTEGER NOT NULL
) STRICT;

-- When nobody was there for longer than providers repeat.
CREATE TABLE outages (
    from_at INTEGER PRIMARY KEY,            -- the last sign of life before
    to_at   INTEGER NOT NULL                -- the first after
) STRICT;

-- When the row of waiting work was received, by the schedule clock: how old the oldest is, is asked often.
ALTER TABLE work ADD COLUMN due_since INTEGER;
UPDATE work SET due_since = (SELECT r.due_since FROM inbox_rows r
    WHERE r.organization = work.organization AND r.provider = work.provider AND r.delivery = work.delivery);
