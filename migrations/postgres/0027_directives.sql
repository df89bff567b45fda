-- What authors tell NPCs to do in some dialogues of a world. Deleted with their world.
CREATE TABLE directives (
    tenant       TEXT COLLATE "C" NOT NULL,
    world        TEXT COLLATE "C" NOT NULL,
    id           TEXT COLLATE "C" NOT NULL,
    -- JSON: patterns of the keys of dialogues.
    keys         TEXT COLLATE "C" NOT NULL,
    text         TEXT COLLATE "C" NOT NULL,
    -- JSON: lines.
    instructions TEXT COLLATE "C" NOT NULL,
    fails_if     TEXT COLLATE "C" NOT NULL,
    priority     BIGINT NOT NULL,
    version      BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL,
    PRIMARY KEY (tenant, world, id)
);

ALTER TABLE directives ENABLE ROW LEVEL SECURITY;
ALTER TABLE directives FORCE ROW LEVEL SECURITY;
CREATE POLICY of_its_tenant ON directives USING (tenant = (SELECT current_setting('colloquy.tenant', true))
    OR (SELECT current_setting('colloquy.tenant', true)) = '*');
ALTER TABLE directives SET (autovacuum_analyze_scale_factor = 0.5, autovacuum_vacuum_insert_scale_factor = 1);
