-- Model names of chat programs, of a tenant.
CREATE TABLE chat_models (
    tenant      TEXT COLLATE "C" PRIMARY KEY NOT NULL,
    -- JSON
    models      TEXT COLLATE "C" NOT NULL,
    version     BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL
);

ALTER TABLE chat_models ENABLE ROW LEVEL SECURITY;
ALTER TABLE chat_models FORCE ROW LEVEL SECURITY;
CREATE POLICY of_its_tenant ON chat_models USING (tenant = (SELECT current_setting('colloquy.tenant', true))
    OR (SELECT current_setting('colloquy.tenant', true)) = '*');
ALTER TABLE chat_models SET (autovacuum_analyze_scale_factor = 0.5, autovacuum_vacuum_insert_scale_factor = 1);
