-- Model calls of players' sessions, for the share of a player in a daily budget of its tenant. Rows of earlier days are
-- deleted.
CREATE TABLE player_usage (
    tenant      TEXT COLLATE "C" NOT NULL,
    player      TEXT COLLATE "C" NOT NULL,
    -- YYYY-MM-DD
    day         TEXT COLLATE "C" NOT NULL,
    model       TEXT COLLATE "C" NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    cached_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    PRIMARY KEY (tenant, player, day, model)
);
CREATE INDEX player_usage_of_day ON player_usage (tenant, day);

ALTER TABLE player_usage ENABLE ROW LEVEL SECURITY;
ALTER TABLE player_usage FORCE ROW LEVEL SECURITY;
CREATE POLICY of_its_tenant ON player_usage USING (tenant = (SELECT current_setting('colloquy.tenant', true))
    OR (SELECT current_setting('colloquy.tenant', true)) = '*');
ALTER TABLE player_usage SET (autovacuum_analyze_scale_factor = 0.5, autovacuum_vacuum_insert_scale_factor = 1);
