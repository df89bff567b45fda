-- Edits of a tenant are counted, as those of worlds are.
ALTER TABLE tenants ADD COLUMN version BIGINT NOT NULL DEFAULT 1;
-- The few that every node looks for.
CREATE INDEX tenants_disabled ON tenants (id) WHERE enabled = FALSE;

-- Tokens that are believed no longer: one by its id, or all of a subject or of a player that were issued up to a moment.
CREATE TABLE revocations (
    tenant        TEXT COLLATE "C" NOT NULL,
    -- `token`, `subject` or `player`.
    kind          TEXT COLLATE "C" NOT NULL,
    -- `jti`, `sub` or `pid` of the tokens.
    name          TEXT COLLATE "C" NOT NULL,
    -- Of a token 0.
    issued_until  BIGINT NOT NULL,
    -- From then on no such token is valid anyway.
    matters_until BIGINT NOT NULL,
    -- When it was last written.
    at            BIGINT NOT NULL,
    PRIMARY KEY (tenant, kind, name)
);
-- What is new to a node.
CREATE INDEX revocations_by_time ON revocations (at);
CREATE INDEX revocations_by_end ON revocations (tenant, matters_until);

ALTER TABLE revocations ENABLE ROW LEVEL SECURITY;
ALTER TABLE revocations FORCE ROW LEVEL SECURITY;
CREATE POLICY of_its_tenant ON revocations USING (tenant = (SELECT current_setting('colloquy.tenant', true))
    OR (SELECT current_setting('colloquy.tenant', true)) = '*');
ALTER TABLE revocations SET (autovacuum_analyze_scale_factor = 0.5, autovacuum_vacuum_insert_scale_factor = 1);
