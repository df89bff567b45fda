-- Model names of chat programs, of a tenant.
CREATE TABLE chat_models (
    tenant      TEXT PRIMARY KEY NOT NULL,
    -- JSON
    models      TEXT NOT NULL,
    version     INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL
) STRICT;
