-- What waits stands by the time of its event, so that new rows lie side by side whatever their ids are, and so that a list by time
-- needs no tree beside the table's own.
CREATE TABLE waiting_by_time (
    organization       TEXT NOT NULL,
    created_at         INTEGER NOT NULL,    -- the event's
    event              TEXT NOT NULL,
    webhook            TEXT NOT NULL,
    due_at             INTEGER NOT NULL,    -- from when anyone may act on it: while leased, the lease's end
    run                INTEGER NOT NULL,
    attempt            INTEGER NOT NULL,    -- attempts begun so far; while leased, the one under way
    spoiled            INTEGER NOT NULL,    -- ended attempts that failed by our own fault
    owner              TEXT,                -- who holds the lease; NULL: nobody
    attempt_started_at INTEGER,             -- of the attempt under way
    PRIMARY KEY (organization, created_at, event, webhook)
) STRICT, WITHOUT ROWID;

INSERT INTO waiting_by_time
    SELECT organization, created_at, event, webhook, due_at, run, attempt, spoiled, owner, attempt_started_at FROM waiting;
DROP TABLE waiting;
ALTER TABLE waiting_by_time RENAME TO waiting;

CREATE INDEX waiting_due ON waiting (organization, webhook, due_at, event);
CREATE INDEX waiting_leased ON waiting (owner) WHERE owner IS NOT NULL;
