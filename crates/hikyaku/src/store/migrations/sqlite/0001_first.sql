-- Points in time are integers of milliseconds since 1970, but for versions and durations, which are microseconds.
-- Text is compared by its bytes. Keys begin with the organization. "Hot" tables hold what waits and stay small.

-- Tells our files from other programs' ("Hkyk").
PRAGMA application_id = 1215002987;

CREATE TABLE webhooks (
    organization TEXT NOT NULL,
    id           TEXT NOT NULL,
    url          TEXT NOT NULL,
    events       TEXT NOT NULL,             -- the patterns, a JSON array of texts
    description  TEXT NOT NULL,
    secret       TEXT NOT NULL,
    off_since    INTEGER,                   -- NULL while it is active
    off_event    TEXT,                      -- the event whose failures switched it off; NULL: somebody did
    created_at   INTEGER NOT NULL,
    PRIMARY KEY (organization, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX webhooks_off ON webhooks (off_since) WHERE off_since IS NOT NULL;

-- With a rowid, because bodies make rows too long for the inner pages of a table without one.
CREATE TABLE events (
    organization TEXT NOT NULL,
    id           TEXT NOT NULL,
    type         TEXT NOT NULL,
    timestamp    INTEGER NOT NULL,
    content_hash BLOB NOT NULL,
    deliveries   INTEGER NOT NULL,
    body         BLOB NOT NULL,
    UNIQUE (organization, id)
) STRICT;

-- Hot: deliveries that wait, those under way included.
CREATE TABLE waiting (
    organization       TEXT NOT NULL,
    event              TEXT NOT NULL,
    webhook            TEXT NOT NULL,
    due_at             INTEGER NOT NULL,    -- from when anyone may act on it: while leased, the lease's end
    attempt            INTEGER NOT NULL,    -- attempts begun so far; while leased, the one under way
    spoiled            INTEGER NOT NULL,    -- ended attempts that failed by our own fault
    owner              TEXT,                -- who holds the lease; NULL: nobody
    attempt_started_at INTEGER,             -- of the attempt under way
    PRIMARY KEY (organization, event, webhook)
) STRICT, WITHOUT ROWID;

CREATE INDEX waiting_due ON waiting (organization, webhook, due_at);
CREATE INDEX waiting_leased ON waiting (owner) WHERE owner IS NOT NULL;

-- History: deliveries that have ended.
CREATE TABLE deliveries (
    organization TEXT NOT NULL,
    event        TEXT NOT NULL,
    webhook      TEXT NOT NULL,
    state        TEXT NOT NULL,
    reason       TEXT NOT NULL,
    ended_at     INTEGER NOT NULL,
    PRIMARY KEY (organization, event, webhook)
) STRICT, WITHOUT ROWID;

CREATE TABLE attempts (
    organization    TEXT NOT NULL,
    event           TEXT NOT NULL,
    webhook         TEXT NOT NULL,
    number          INTEGER NOT NULL,
    started_at      INTEGER NOT NULL,
    duration_micros INTEGER NOT NULL,
    http_status     INTEGER NOT NULL,       -- 0 where none came
    failure         TEXT,                   -- why none came
    error           TEXT NOT NULL,
    response_body   BLOB NOT NULL,
    PRIMARY KEY (organization, event, webhook, number)
) STRICT, WITHOUT ROWID;

-- The log of a webhook, read backwards: newest first.
CREATE INDEX attempts_log ON attempts (organization, webhook, started_at, event, number);

-- Received deliveries: deduplication record and saved work in one. Their bodies stand apart, so that a change of state
-- does not write them again.
CREATE TABLE inbox_rows (
    position      INTEGER PRIMARY KEY,
    organization  TEXT NOT NULL,
    provider      TEXT NOT NULL,
    delivery      TEXT NOT NULL,
    source        TEXT NOT NULL,
    type          TEXT NOT NULL,
    key           TEXT NOT NULL,
    micros        INTEGER NOT NULL,         -- the version: timestamp, rank and event
    rank          INTEGER NOT NULL,
    event         TEXT NOT NULL,
    received_at   INTEGER NOT NULL,
    due_since     INTEGER NOT NULL,         -- when it was received, by the schedule clock
    state         TEXT NOT NULL,
    reason        TEXT NOT NULL,
    UNIQUE (organization, provider, delivery)
) STRICT;

CREATE INDEX inbox_rows_all ON inbox_rows (organization, position);
CREATE INDEX inbox_rows_source ON inbox_rows (organization, source, position);
CREATE INDEX inbox_rows_state ON inbox_rows (organization, state, position);
CREATE INDEX inbox_rows_key ON inbox_rows (organization, key, position);

CREATE TABLE inbox_bodies (
    position INTEGER PRIMARY KEY,
    body     BLOB NOT NULL
) STRICT;

-- Hot: a row's effects that wait, in the order in which they take effect within their lane.
CREATE TABLE work (
    organization TEXT NOT NULL,
    route        TEXT NOT NULL,
    provider     TEXT NOT NULL,
    lane         TEXT NOT NULL,
    micros       INTEGER NOT NULL,          -- the version
    rank         INTEGER NOT NULL,
    event        TEXT NOT NULL,
    delivery     TEXT NOT NULL,
    failures     INTEGER NOT NULL,
    error        TEXT NOT NULL,
    PRIMARY KEY (organization, route, provider, lane, micros, rank, event, delivery)
) STRICT, WITHOUT ROWID;

CREATE INDEX work_row ON work (organization, provider, delivery, route);

-- Hot: the lanes that have work.
CREATE TABLE lanes (
    organization TEXT NOT NULL,
    route        TEXT NOT NULL,
    provider     TEXT NOT NULL,
    lane         TEXT NOT NULL,
    due_at       INTEGER NOT NULL,          -- from when anyone may act on it: while leased, the lease's end
    owner        TEXT,                      -- who holds the lease; NULL: nobody
    claim        INTEGER NOT NULL,          -- the last claim's number
    PRIMARY KEY (organization, route, provider, lane)
) STRICT, WITHOUT ROWID;

CREATE INDEX lanes_due ON lanes (organization, route, due_at);
CREATE INDEX lanes_leased ON lanes (owner) WHERE owner IS NOT NULL;

-- History: effects that have ended.
CREATE TABLE effects (
    organization TEXT NOT NULL,
    provider     TEXT NOT NULL,
    delivery     TEXT NOT NULL,
    route        TEXT NOT NULL,
    state        TEXT NOT NULL,
    failures     INTEGER NOT NULL,
    detail       TEXT NOT NULL,
    ended_at     INTEGER NOT NULL,
    PRIMARY KEY (organization, provider, delivery, route)
) STRICT, WITHOUT ROWID;

-- The newest version of a key that took effect through a route.
CREATE TABLE applied (
    organization TEXT NOT NULL,
    route        TEXT NOT NULL,
    provider     TEXT NOT NULL,
    lane         TEXT NOT NULL,
    micros       INTEGER NOT NULL,
    rank         INTEGER NOT NULL,
    event        TEXT NOT NULL,
    PRIMARY KEY (organization, route, provider, lane)
) STRICT, WITHOUT ROWID;

-- What a ping writes.
CREATE TABLE pings (
    id    INTEGER PRIMARY KEY,
    count INTEGER NOT NULL
) STRICT;
