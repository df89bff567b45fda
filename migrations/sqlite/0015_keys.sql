-- Edits of a tenant are counted, as those of worlds are.
ALTER TABLE tenants ADD COLUMN version INTEGER NOT NULL DEFAULT 1;
-- The few that every node looks for.
CREATE INDEX tenants_disabled ON tenants (id) WHERE enabled = FALSE;

-- Tokens that are believed no longer: one by its id, or all of a subject or of a player that were issued up to a moment.
CREATE TABLE revocations (
    tenant        TEXT NOT NULL,
    -- `token`, `subject` or `player`.
    kind          TEXT NOT NULL,
    -- `jti`, `sub` or `pid` of the tokens.
    name          TEXT NOT NULL,
    -- Of a token 0.
    issued_until  INTEGER NOT NULL,
    -- From then on no such token is valid anyway.
    matters_until INTEGER NOT NULL,
    -- When it was last written.
    at            INTEGER NOT NULL,
    PRIMARY KEY (tenant, kind, name)
) STRICT;
-- What is new to a node.
CREATE INDEX revocations_by_time ON revocations (at);
CREATE INDEX revocations_by_end ON revocations (tenant, matters_until);
