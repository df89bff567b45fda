-- Settings of a tenant for all its worlds.
CREATE TABLE tenant_settings (
    tenant      TEXT PRIMARY KEY NOT NULL,
    -- JSON
    settings    TEXT NOT NULL,
    version     INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL
) STRICT;
