-- Lore: what is known of a world, written by authors.
CREATE TABLE lore (
    tenant          TEXT COLLATE "C" NOT NULL,
    world           TEXT COLLATE "C" NOT NULL,
    id              TEXT COLLATE "C" NOT NULL,
    -- All that the author wrote, as JSON.
    body            TEXT COLLATE "C" NOT NULL,
    embedding_model TEXT COLLATE "C" NOT NULL,
    embedding       BYTEA NOT NULL,
    version         BIGINT NOT NULL,
    updated_at      BIGINT NOT NULL,
    deleted_at      BIGINT,
    PRIMARY KEY (tenant, world, id)
);
-- Every change of the world's lore raises the number. Nodes compare it with the lore in their memory.
ALTER TABLE worlds ADD COLUMN lore_version BIGINT NOT NULL DEFAULT 0;

ALTER TABLE lore ENABLE ROW LEVEL SECURITY;
ALTER TABLE lore FORCE ROW LEVEL SECURITY;
CREATE POLICY of_its_tenant ON lore USING (tenant = (SELECT current_setting('colloquy.tenant', true))
    OR (SELECT current_setting('colloquy.tenant', true)) = '*');
ALTER TABLE lore SET (autovacuum_analyze_scale_factor = 0.5, autovacuum_vacuum_insert_scale_factor = 1);
