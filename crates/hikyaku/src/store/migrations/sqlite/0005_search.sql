-- Searching deliveries, and dropping what is old. A delivery's place in a search is that of its event, so the event's
-- time stands with it, wherever it stands.

ALTER TABLE events ADD COLUMN created_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE events ADD COLUMN key TEXT;                 -- the business key, where the data has one
ALTER TABLE waiting ADD COLUMN created_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE deliveries ADD COLUMN created_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE undelivered ADD COLUMN created_at INTEGER;  -- of what is held only: it is a delivery, and the rest is not

-- Of what is here already, the time of publishing is not known, and the event's own is the best guess.
UPDATE events SET created_at = timestamp;
UPDATE waiting SET created_at =
    (SELECT e.created_at FROM events e WHERE e.organization = waiting.organization AND e.id = waiting.event);
UPDATE deliveries SET created_at =
    (SELECT e.created_at FROM events e WHERE e.organization = deliveries.organization AND e.id = deliveries.event);
UPDATE undelivered SET created_at =
    (SELECT e.created_at FROM events e WHERE e.organization = undelivered.organization AND e.id = undelivered.event)
    WHERE kind = 'held';

-- The type stands in it so that a search by type need not fetch the events it passes over.
CREATE INDEX events_time ON events (organization, created_at, id, type);
CREATE INDEX events_key ON events (organization, key, created_at, id) WHERE key IS NOT NULL;

CREATE INDEX waiting_time ON waiting (organization, created_at, event, webhook);

-- Nearly all deliveries end as delivered, and nearly all attempts as a success: those are in no index of these.
CREATE INDEX deliveries_failed ON deliveries (organization, state, created_at, event, webhook)
    WHERE state <> 'delivered';
CREATE INDEX undelivered_held ON undelivered (organization, created_at, event, webhook) WHERE kind = 'held';
CREATE INDEX attempts_failed ON attempts (organization, webhook, started_at, event, run, number)
    WHERE http_status NOT BETWEEN 200 AND 299;

CREATE INDEX inbox_rows_age ON inbox_rows (due_since);
