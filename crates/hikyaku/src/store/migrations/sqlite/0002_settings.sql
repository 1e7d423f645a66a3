-- What is set per webhook, as JSON; what is not in it has its default. Where there is a sealing key, it stands here
-- sealed, as the secrets do: its headers may be credentials.
ALTER TABLE webhooks ADD COLUMN settings TEXT NOT NULL DEFAULT '{}';

-- Exhausted events since the last success, or since the webhook was switched on.
ALTER TABLE webhooks ADD COLUMN exhausted INTEGER NOT NULL DEFAULT 0;

-- The secret before the last rotation, while it is still good; all three or none.
ALTER TABLE webhooks ADD COLUMN previous_secret TEXT;
ALTER TABLE webhooks ADD COLUMN rotated_at INTEGER;
ALTER TABLE webhooks ADD COLUMN previous_until INTEGER;
