-- Secrets whose overlap has ended are forgotten then, so somebody looks for them every minute.

CREATE INDEX webhooks_previous ON webhooks (previous_until) WHERE previous_until IS NOT NULL;
