-- A delivery has runs: the publish begins the first, and every resend or recovery another, with attempts of its own.
ALTER TABLE waiting ADD COLUMN run INTEGER NOT NULL DEFAULT 1;
ALTER TABLE deliveries ADD COLUMN run INTEGER NOT NULL DEFAULT 1;

CREATE TABLE attempts_of_runs (
    organization    TEXT NOT NULL,
    event           TEXT NOT NULL,
    webhook         TEXT NOT NULL,
    run             INTEGER NOT NULL,
    number          INTEGER NOT NULL,
    started_at      INTEGER NOT NULL,
    duration_micros INTEGER NOT NULL,
    http_status     INTEGER NOT NULL,       -- 0 where none came
    failure         TEXT,                   -- why none came
    error           TEXT NOT NULL,
    response_body   BLOB NOT NULL,
    PRIMARY KEY (organization, event, webhook, run, number)
) STRICT, WITHOUT ROWID;

INSERT INTO attempts_of_runs
    SELECT organization, event, webhook, 1, number, started_at, duration_micros, http_status, failure, error,
        response_body
    FROM attempts;
DROP TABLE attempts;
ALTER TABLE attempts_of_runs RENAME TO attempts;

-- The log of a webhook, read backwards: newest first.
CREATE INDEX attempts_log ON attempts (organization, webhook, started_at, event, run, number);

-- What a webhook subscribes to and has not got, for as long as it can be made due: missed while it was off, exhausted,
-- or held. A delivery that waits never stands here.
CREATE TABLE undelivered (
    organization TEXT NOT NULL,
    event        TEXT NOT NULL,
    webhook      TEXT NOT NULL,
    kind         TEXT NOT NULL,
    timestamp    INTEGER NOT NULL,          -- the event's
    off_since    INTEGER,                   -- since when the webhook was off; NULL of an exhausted one
    off_event    TEXT,                      -- the event whose failures had switched it off; NULL: somebody had
    PRIMARY KEY (organization, event, webhook)
) STRICT, WITHOUT ROWID;

CREATE INDEX undelivered_oldest ON undelivered (organization, webhook, kind, timestamp, event);

INSERT INTO undelivered (organization, event, webhook, kind, timestamp)
    SELECT d.organization, d.event, d.webhook, 'exhausted', e.timestamp
    FROM deliveries d
    JOIN events e ON e.organization = d.organization AND e.id = d.event
    JOIN webhooks w ON w.organization = d.organization AND w.id = d.webhook
    WHERE d.state = 'exhausted';

CREATE TABLE recoveries (
    organization   TEXT NOT NULL,
    webhook        TEXT NOT NULL,
    id             TEXT NOT NULL,
    which          TEXT NOT NULL,
    from_at        INTEGER,                 -- of events from then on; NULL: of all
    to_at          INTEGER,                 -- of events before then; NULL: of all
    total          INTEGER NOT NULL,
    recovered      INTEGER NOT NULL,
    position_at    INTEGER NOT NULL,        -- the last event that was made due: its timestamp and its id
    position_event TEXT NOT NULL,
    state          TEXT NOT NULL,
    created_at     INTEGER NOT NULL,
    PRIMARY KEY (organization, webhook, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX recoveries_running ON recoveries (organization, webhook, id) WHERE state = 'running';
