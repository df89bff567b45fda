-- Model calls of dialogues, by NPC. All calls of a tenant are in model_usage.
CREATE TABLE npc_usage (
    tenant      TEXT COLLATE "C" NOT NULL,
    world       TEXT COLLATE "C" NOT NULL,
    npc         TEXT COLLATE "C" NOT NULL,
    -- YYYY-MM-DD
    day         TEXT COLLATE "C" NOT NULL,
    task        TEXT COLLATE "C" NOT NULL,
    model       TEXT COLLATE "C" NOT NULL,
    calls       BIGINT NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    cached_tokens BIGINT NOT NULL,
    -- Prompt tokens that the NPC's previous prompt in the dialogue shares.
    unchanged_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    PRIMARY KEY (tenant, world, npc, day, task, model)
);
CREATE INDEX npc_usage_of_day ON npc_usage (tenant, day);

ALTER TABLE npc_usage ENABLE ROW LEVEL SECURITY;
ALTER TABLE npc_usage FORCE ROW LEVEL SECURITY;
CREATE POLICY of_its_tenant ON npc_usage USING (tenant = (SELECT current_setting('colloquy.tenant', true))
    OR (SELECT current_setting('colloquy.tenant', true)) = '*');
ALTER TABLE npc_usage SET (autovacuum_analyze_scale_factor = 0.5, autovacuum_vacuum_insert_scale_factor = 1);

ALTER TABLE model_usage ADD COLUMN unchanged_tokens BIGINT NOT NULL DEFAULT 0;
