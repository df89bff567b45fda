-- Lore: what is known of a world, written by authors.
CREATE TABLE lore (
    tenant          TEXT NOT NULL,
    world           TEXT NOT NULL,
    id              TEXT NOT NULL,
    -- All that the author wrote, as JSON.
    body            TEXT NOT NULL,
    embedding_model TEXT NOT NULL,
    embedding       BLOB NOT NULL,
    version         INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    deleted_at      INTEGER,
    PRIMARY KEY (tenant, world, id)
) STRICT;
-- Every change of the world's lore raises the number. Nodes compare it with the lore in their memory.
ALTER TABLE worlds ADD COLUMN lore_version INTEGER NOT NULL DEFAULT 0;
