-- Points in time are milliseconds since 1970, but for versions and durations, which are microseconds. Text is compared by its
-- bytes. Keys begin with the organization, and no statement joins two of them. "Hot" tables hold what waits and stay small;
-- history is partitioned by day, of an event's publish or a delivery's arrival, and dropped by the day.
--
-- The rows of a hot table are found by its key. PostgreSQL takes such a table for empty when it was drained, and would read
-- any other index whole that begins with a part of the key, over all that has ended and is not cleaned up yet. So those are in
-- another collation, "POSIX", which compares text by its bytes as well: only a statement that names it can use them.
-- One more is of an expression for the same reason.

-- Every change of an organization's webhooks raises its version: what nodes keep in memory is good while it is the same.
CREATE TABLE organizations (
    organization TEXT COLLATE "C" NOT NULL,
    version      BIGINT NOT NULL,
    PRIMARY KEY (organization)
) WITH (fillfactor = 70);

CREATE TABLE webhooks (
    organization    TEXT COLLATE "C" NOT NULL,
    id              TEXT COLLATE "C" NOT NULL,
    url             TEXT COLLATE "C" NOT NULL,
    events          TEXT COLLATE "C" NOT NULL,          -- the patterns, a JSON array of texts
    description     TEXT COLLATE "C" NOT NULL,
    secret          TEXT COLLATE "C" NOT NULL,
    off_since       BIGINT,                             -- NULL while it is active
    off_event       TEXT COLLATE "C",                   -- the event whose failures switched it off; NULL: somebody did
    created_at      BIGINT NOT NULL,
    settings        TEXT COLLATE "C" NOT NULL,          -- JSON; sealed like the secrets, for its headers may be credentials
    exhausted       BIGINT NOT NULL,                    -- events since the last success, or since it was switched on
    previous_secret TEXT COLLATE "C",                   -- while it is still good; all three or none
    rotated_at      BIGINT,
    previous_until  BIGINT,
    PRIMARY KEY (organization, id)
) WITH (fillfactor = 70);

CREATE INDEX webhooks_off ON webhooks (off_since) WHERE off_since IS NOT NULL;
CREATE INDEX webhooks_previous ON webhooks (previous_until) WHERE previous_until IS NOT NULL;

-- Which event ids are taken, and on which day the event is.
CREATE TABLE event_ids (
    organization TEXT COLLATE "C" NOT NULL,
    id           TEXT COLLATE "C" NOT NULL,
    created_at   BIGINT NOT NULL,
    PRIMARY KEY (organization, id)
);

CREATE INDEX event_ids_age ON event_ids (created_at, organization, id);

CREATE TABLE events (
    organization TEXT COLLATE "C" NOT NULL,
    id           TEXT COLLATE "C" NOT NULL,
    created_at   BIGINT NOT NULL,                       -- when it was published, by the wall clock
    type         TEXT COLLATE "C" NOT NULL,
    timestamp    BIGINT NOT NULL,
    key          TEXT COLLATE "C",                      -- the business key, where the data has one
    content_hash BYTEA NOT NULL,
    deliveries   BIGINT NOT NULL,
    body         BYTEA NOT NULL,
    PRIMARY KEY (organization, created_at, id) INCLUDE (type) -- searches look at the types of many
) PARTITION BY RANGE (created_at);

CREATE INDEX events_key ON events (organization, key, created_at, id) WHERE key IS NOT NULL;

-- Hot: deliveries that wait, those under way included.
CREATE TABLE waiting (
    organization       TEXT COLLATE "C" NOT NULL,
    webhook            TEXT COLLATE "C" NOT NULL,
    event              TEXT COLLATE "C" NOT NULL,
    created_at         BIGINT NOT NULL,                 -- the event's
    due_at             BIGINT NOT NULL,                 -- from when anyone may act on it: while leased, the lease's end
    run                BIGINT NOT NULL,
    attempt            BIGINT NOT NULL,                 -- attempts begun so far; while leased, the one under way
    spoiled            BIGINT NOT NULL,                 -- ended attempts that failed by our own fault
    owner              TEXT COLLATE "C",                -- who holds the lease; NULL: nobody
    attempt_started_at BIGINT,                          -- of the attempt under way
    -- By the event's time, so that new rows lie side by side whatever their ids are, and a list by time needs no other index.
    PRIMARY KEY (organization, created_at, event, webhook)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.2);

CREATE INDEX waiting_due ON waiting (organization COLLATE "POSIX", webhook COLLATE "POSIX", due_at, event COLLATE "POSIX");
CREATE INDEX waiting_next ON waiting ((due_at + 0));

-- What a webhook subscribes to and has not got, for as long as it can be made due: missed while it was off, exhausted,
-- or held. A delivery that waits never stands here.
CREATE TABLE undelivered (
    organization TEXT COLLATE "C" NOT NULL,
    event        TEXT COLLATE "C" NOT NULL,
    webhook      TEXT COLLATE "C" NOT NULL,
    kind         TEXT COLLATE "C" NOT NULL,
    timestamp    BIGINT NOT NULL,                       -- the event's
    created_at   BIGINT NOT NULL,                       -- the event's
    type         TEXT COLLATE "C" NOT NULL,             -- the event's
    off_since    BIGINT,                                -- since when the webhook was off; NULL of an exhausted one
    off_event    TEXT COLLATE "C",                      -- the event whose failures had switched it off; NULL: somebody had
    PRIMARY KEY (organization, event, webhook)
);

CREATE INDEX undelivered_oldest ON undelivered (organization, webhook, kind, timestamp, event);
CREATE INDEX undelivered_held ON undelivered (organization, created_at, event, webhook) WHERE kind = 'held';
CREATE INDEX undelivered_held_age ON undelivered (created_at) WHERE kind = 'held';

-- History: deliveries that have ended, by the day of their event.
CREATE TABLE deliveries (
    organization TEXT COLLATE "C" NOT NULL,
    event        TEXT COLLATE "C" NOT NULL,
    webhook      TEXT COLLATE "C" NOT NULL,
    created_at   BIGINT NOT NULL,                       -- the event's
    state        TEXT COLLATE "C" NOT NULL,
    reason       TEXT COLLATE "C" NOT NULL,
    ended_at     BIGINT NOT NULL,
    run          BIGINT NOT NULL,
    PRIMARY KEY (organization, created_at, event, webhook)
) PARTITION BY RANGE (created_at);

-- Nearly all deliveries end as delivered, and nearly all attempts as a success: those are in no index of these.
CREATE INDEX deliveries_failed ON deliveries (organization, state, created_at, event, webhook) WHERE state <> 'delivered';

-- History: attempts, by the day of their event.
CREATE TABLE attempts (
    organization    TEXT COLLATE "C" NOT NULL,
    event           TEXT COLLATE "C" NOT NULL,
    webhook         TEXT COLLATE "C" NOT NULL,
    created_at      BIGINT NOT NULL,                    -- the event's
    run             BIGINT NOT NULL,
    number          BIGINT NOT NULL,
    started_at      BIGINT NOT NULL,
    duration_micros BIGINT NOT NULL,
    http_status     BIGINT NOT NULL,                    -- 0 where none came
    failure         TEXT COLLATE "C",                   -- why none came
    error           TEXT COLLATE "C" NOT NULL,
    response_body   BYTEA NOT NULL,
    PRIMARY KEY (organization, created_at, event, webhook, run, number)
) PARTITION BY RANGE (created_at);

-- The log of a webhook, read backwards: newest first.
CREATE INDEX attempts_log ON attempts (organization, webhook, started_at, event, run, number);
CREATE INDEX attempts_failed ON attempts (organization, webhook, started_at, event, run, number)
    WHERE http_status NOT BETWEEN 200 AND 299;

CREATE TABLE recoveries (
    organization   TEXT COLLATE "C" NOT NULL,
    webhook        TEXT COLLATE "C" NOT NULL,
    id             TEXT COLLATE "C" NOT NULL,
    which          TEXT COLLATE "C" NOT NULL,
    from_at        BIGINT,                              -- of events from then on; NULL: of all
    to_at          BIGINT,                              -- of events before then; NULL: of all
    total          BIGINT NOT NULL,
    recovered      BIGINT NOT NULL,
    position_at    BIGINT NOT NULL,                     -- the last event that was made due: its timestamp and its id
    position_event TEXT COLLATE "C" NOT NULL,
    state          TEXT COLLATE "C" NOT NULL,
    created_at     BIGINT NOT NULL,
    PRIMARY KEY (organization, webhook, id)
) WITH (fillfactor = 70);

CREATE INDEX recoveries_running ON recoveries (organization, webhook, id) WHERE state = 'running';

-- Webhooks that were deleted while so much waited for them that it is cancelled in steps. None of it is sent any more.
CREATE TABLE removals (
    organization TEXT COLLATE "C" NOT NULL,
    webhook      TEXT COLLATE "C" NOT NULL,
    removed_at   BIGINT NOT NULL,
    PRIMARY KEY (organization, webhook)
);

-- Which ids of received deliveries are taken (C6, C9), and on which day the row is, if it is still there.
CREATE TABLE inbox_ids (
    organization TEXT COLLATE "C" NOT NULL,
    provider     TEXT COLLATE "C" NOT NULL,
    delivery     TEXT COLLATE "C" NOT NULL,
    due_since    BIGINT NOT NULL,                       -- when it was received, by the schedule clock
    position     BIGINT,                                -- the row's; NULL: it was dropped, and the id is remembered
    PRIMARY KEY (organization, provider, delivery)
);

CREATE INDEX inbox_ids_age ON inbox_ids (due_since, position) WHERE position IS NOT NULL;
CREATE INDEX inbox_ids_remembered ON inbox_ids (due_since) WHERE position IS NULL;

CREATE SEQUENCE inbox_positions CACHE 1;

-- Received deliveries, by the day of their arrival. Their bodies stand apart, so that a change of state does not write
-- them again.
CREATE TABLE inbox_rows (
    organization TEXT COLLATE "C" NOT NULL,
    position     BIGINT NOT NULL,
    due_since    BIGINT NOT NULL,                       -- when it was received, or was given another beginning, by the schedule clock
    provider     TEXT COLLATE "C" NOT NULL,
    delivery     TEXT COLLATE "C" NOT NULL,
    source       TEXT COLLATE "C" NOT NULL,
    type         TEXT COLLATE "C" NOT NULL,
    key          TEXT COLLATE "C" NOT NULL,
    micros       BIGINT NOT NULL,                       -- the version: timestamp, rank and event
    rank         BIGINT NOT NULL,
    event        TEXT COLLATE "C" NOT NULL,
    received_at  BIGINT NOT NULL,
    state        TEXT COLLATE "C" NOT NULL,
    reason       TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (organization, due_since, position)
) PARTITION BY RANGE (due_since);

CREATE INDEX inbox_rows_all ON inbox_rows (organization, position);
CREATE INDEX inbox_rows_source ON inbox_rows (organization, source, position);
CREATE INDEX inbox_rows_state ON inbox_rows (organization, state, position);
CREATE INDEX inbox_rows_key ON inbox_rows (organization, key, position);
CREATE INDEX inbox_rows_time ON inbox_rows (organization, provider, micros, position);

CREATE TABLE inbox_bodies (
    organization TEXT COLLATE "C" NOT NULL,
    position     BIGINT NOT NULL,
    due_since    BIGINT NOT NULL,                       -- the row's
    body         BYTEA NOT NULL,
    PRIMARY KEY (organization, due_since, position)
) PARTITION BY RANGE (due_since);

-- Deliveries whose signature did not verify, by their place in the inbox: what they take of the room that their source
-- has for them, and the headers by which they are verified again.
CREATE TABLE quarantine (
    organization TEXT COLLATE "C" NOT NULL,
    source       TEXT COLLATE "C" NOT NULL,
    position     BIGINT NOT NULL,
    bytes        BIGINT NOT NULL,
    headers      BYTEA NOT NULL,
    PRIMARY KEY (organization, source, position)
);

CREATE UNIQUE INDEX quarantine_row ON quarantine (organization, position);

-- Hot: a row's effects that wait, in the order in which they take effect within their lane.
CREATE TABLE work (
    organization TEXT COLLATE "C" NOT NULL,
    route        TEXT COLLATE "C" NOT NULL,
    provider     TEXT COLLATE "C" NOT NULL,
    lane         TEXT COLLATE "C" NOT NULL,
    micros       BIGINT NOT NULL,                       -- the version
    rank         BIGINT NOT NULL,
    event        TEXT COLLATE "C" NOT NULL,
    delivery     TEXT COLLATE "C" NOT NULL,
    due_since    BIGINT NOT NULL,                       -- the row's
    position     BIGINT NOT NULL,                       -- the row's
    failures     BIGINT NOT NULL,
    error        TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (organization, route, provider, lane, micros, rank, event, delivery)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.2);

CREATE INDEX work_row
    ON work (organization COLLATE "POSIX", provider COLLATE "POSIX", delivery COLLATE "POSIX", route COLLATE "POSIX");
CREATE INDEX work_age ON work (due_since);

-- Hot: the lanes that have work.
CREATE TABLE lanes (
    organization TEXT COLLATE "C" NOT NULL,
    route        TEXT COLLATE "C" NOT NULL,
    provider     TEXT COLLATE "C" NOT NULL,
    lane         TEXT COLLATE "C" NOT NULL,
    due_at       BIGINT NOT NULL,                       -- from when anyone may act on it: while leased, the lease's end
    owner        TEXT COLLATE "C",                      -- who holds the lease; NULL: nobody
    claim        BIGINT NOT NULL,                       -- the last claim's number
    begun        TEXT COLLATE "C",                      -- the delivery that was first when the lane was taken; NULL: it was finished
    taken_to     TEXT COLLATE "C",                      -- the last delivery taken; NULL: the lane is not leased
    PRIMARY KEY (organization, route, provider, lane)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.2);

CREATE INDEX lanes_due ON lanes (organization COLLATE "POSIX", route COLLATE "POSIX", due_at);

-- Another number at every claim of a lane, on whatever node.
CREATE SEQUENCE lane_claims CACHE 1;

-- History: effects that have ended, by the day of their row.
CREATE TABLE effects (
    organization TEXT COLLATE "C" NOT NULL,
    position     BIGINT NOT NULL,                       -- the row's
    due_since    BIGINT NOT NULL,                       -- the row's
    route        TEXT COLLATE "C" NOT NULL,
    state        TEXT COLLATE "C" NOT NULL,
    failures     BIGINT NOT NULL,
    detail       TEXT COLLATE "C" NOT NULL,
    ended_at     BIGINT NOT NULL,
    PRIMARY KEY (organization, due_since, position, route)
) PARTITION BY RANGE (due_since);

-- The newest version of a key that took effect through a route.
CREATE TABLE applied (
    organization TEXT COLLATE "C" NOT NULL,
    route        TEXT COLLATE "C" NOT NULL,
    provider     TEXT COLLATE "C" NOT NULL,
    lane         TEXT COLLATE "C" NOT NULL,
    micros       BIGINT NOT NULL,
    rank         BIGINT NOT NULL,
    event        TEXT COLLATE "C" NOT NULL,
    applied_at   BIGINT NOT NULL,
    PRIMARY KEY (organization, route, provider, lane)
) WITH (fillfactor = 80);

CREATE INDEX applied_age ON applied (applied_at, organization, route, provider, lane);
CREATE INDEX applied_key ON applied (organization, provider, lane);

CREATE TABLE tokens (
    id           TEXT COLLATE "C" NOT NULL,
    organization TEXT COLLATE "C",                      -- NULL: an admin token
    name         TEXT COLLATE "C" NOT NULL,
    hash         BYTEA NOT NULL,
    created_at   BIGINT NOT NULL,
    revoked_at   BIGINT,                                -- NULL while it is valid
    PRIMARY KEY (id)
);

CREATE UNIQUE INDEX tokens_hash ON tokens (hash);
CREATE INDEX tokens_organization ON tokens (organization, id);
CREATE INDEX tokens_valid ON tokens (id) WHERE revoked_at IS NULL;

-- How far reconciliations have come, and what their cycles found.
CREATE TABLE reconciles (
    organization TEXT COLLATE "C" NOT NULL,
    name         TEXT COLLATE "C" NOT NULL,
    mark         BIGINT,                                -- everything before was compared
    wanted_from  BIGINT,                                -- to be compared beside the schedule
    wanted_to    BIGINT,
    calls        BIGINT NOT NULL,                       -- of the provider's API, since calls_since
    calls_since  BIGINT,
    active_at    BIGINT,                                -- when the provider's webhook was last seen to be on
    PRIMARY KEY (organization, name)
);

CREATE TABLE reconcile_cycles (
    organization TEXT COLLATE "C" NOT NULL,
    name         TEXT COLLATE "C" NOT NULL,
    number       BIGINT NOT NULL,
    from_at      BIGINT NOT NULL,
    to_at        BIGINT NOT NULL,
    done_to      BIGINT NOT NULL,                       -- everything of the period before this is done
    started_at   BIGINT NOT NULL,
    ended_at     BIGINT,
    listed       BIGINT NOT NULL,
    known        BIGINT NOT NULL,
    missing      BIGINT NOT NULL,
    repaired     BIGINT NOT NULL,
    different    BIGINT NOT NULL,
    unknown      BIGINT NOT NULL,
    calls        BIGINT NOT NULL,
    problem      TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (organization, name, number)
);

-- The last time that somebody who could receive was there: one row, by the wall clock.
CREATE TABLE heartbeat (
    id BIGINT PRIMARY KEY CHECK (id = 1),
    at BIGINT NOT NULL
) WITH (fillfactor = 50);

-- When nobody was there for longer than providers repeat.
CREATE TABLE outages (
    from_at BIGINT PRIMARY KEY,                         -- the last sign of life before
    to_at   BIGINT NOT NULL                             -- the first after
);

-- What only one node does at a time, and until when it is the one.
CREATE TABLE duties (
    name   TEXT COLLATE "C" NOT NULL,
    owner  TEXT COLLATE "C" NOT NULL,
    until  BIGINT NOT NULL,                             -- by the schedule clock
    PRIMARY KEY (name)
) WITH (fillfactor = 50);

-- The last transaction of each of a node's writers. Where the answer to a COMMIT is lost, this tells what became of it.
CREATE TABLE commits (
    node   TEXT COLLATE "C" NOT NULL,
    writer BIGINT NOT NULL,
    number BIGINT NOT NULL,
    at     BIGINT NOT NULL,                             -- when the node began, by the schedule clock
    PRIMARY KEY (node, writer)
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
