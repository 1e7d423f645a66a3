-- API tokens: who may call. What is kept of a token is its SHA-256; revoked ones stay, so that they can be listed.

CREATE TABLE tokens (
    id           TEXT NOT NULL PRIMARY KEY,
    organization TEXT,                      -- NULL: an admin token
    name         TEXT NOT NULL,
    hash         BLOB NOT NULL,
    created_at   INTEGER NOT NULL,
    revoked_at   INTEGER                    -- NULL while it is valid
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX tokens_hash ON tokens (hash);
CREATE INDEX tokens_organization ON tokens (organization, id);
CREATE INDEX tokens_revoked ON tokens (revoked_at);
