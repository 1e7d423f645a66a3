-- Deliveries whose signature did not verify, by their place in the inbox: what they take of the room that their source
-- has for them, and the headers by which they are verified again.
CREATE TABLE quarantine (
    organization TEXT NOT NULL,
    source       TEXT NOT NULL,
    position     INTEGER NOT NULL,
    bytes        INTEGER NOT NULL,
    headers      BLOB NOT NULL,
    PRIMARY KEY (organization, source, position)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX quarantine_row ON quarantine (position);
