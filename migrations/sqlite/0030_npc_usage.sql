-- Model calls of dialogues, by NPC. All calls of a tenant are in model_usage.
CREATE TABLE npc_usage (
    tenant      TEXT NOT NULL,
    world       TEXT NOT NULL,
    npc         TEXT NOT NULL,
    -- YYYY-MM-DD
    day         TEXT NOT NULL,
    task        TEXT NOT NULL,
    model       TEXT NOT NULL,
    calls       INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    -- Prompt tokens that the NPC's previous prompt in the dialogue shares.
    unchanged_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    PRIMARY KEY (tenant, world, npc, day, task, model)
) STRICT, WITHOUT ROWID;
CREATE INDEX npc_usage_of_day ON npc_usage (tenant, day);

ALTER TABLE model_usage ADD COLUMN unchanged_tokens INTEGER NOT NULL DEFAULT 0;
