-- Model calls of players' sessions, for the share of a player in a daily budget of its tenant. Rows of earlier days are
-- deleted.
CREATE TABLE player_usage (
    tenant      TEXT NOT NULL,
    player      TEXT NOT NULL,
    -- YYYY-MM-DD
    day         TEXT NOT NULL,
    model       TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    PRIMARY KEY (tenant, player, day, model)
) STRICT, WITHOUT ROWID;
CREATE INDEX player_usage_of_day ON player_usage (tenant, day);
