-- Webhooks that were deleted while so much waited for them that it is cancelled in steps. None of it is sent any more.
CREATE TABLE removals (
    organization TEXT NOT NULL,
    webhook      TEXT NOT NULL,
    removed_at   INTEGER NOT NULL,
    PRIMARY KEY (organization, webhook)
) STRICT, WITHOUT ROWID;
