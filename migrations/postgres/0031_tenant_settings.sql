-- Settings of a tenant for all its worlds.
CREATE TABLE tenant_settings (
    tenant      TEXT COLLATE "C" PRIMARY KEY NOT NULL,
    -- JSON
    settings    TEXT COLLATE "C" NOT NULL,
    version     BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL
);

ALTER TABLE tenant_settings ENABLE ROW LEVEL SECURITY;
ALTER TABLE tenant_settings FORCE ROW LEVEL SECURITY;
CREATE POLICY of_its_tenant ON tenant_settings USING (tenant = (SELECT current_setting('colloquy.tenant', true))
    OR (SELECT current_setting('colloquy.tenant', true)) = '*');
ALTER TABLE tenant_settings SET (autovacuum_analyze_scale_factor = 0.5, autovacuum_vacuum_insert_scale_factor = 1);
