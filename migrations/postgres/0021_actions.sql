-- Actions that NPCs asked the backend for. Their turns caused them: a rewind lifts them, like state_events.
CREATE TABLE actions (
    seq         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant      TEXT COLLATE "C" NOT NULL,
    id          TEXT COLLATE "C" NOT NULL,
    world       TEXT COLLATE "C" NOT NULL,
    dialogue    TEXT COLLATE "C" NOT NULL,
    -- The number of the turn.
    number      BIGINT NOT NULL,
    npc         TEXT COLLATE "C" NOT NULL,
    -- Unset in a conversation of NPCs.
    player      TEXT COLLATE "C",
    name        TEXT COLLATE "C" NOT NULL,
    -- A JSON object.
    arguments   TEXT COLLATE "C" NOT NULL,
    cause_kind  TEXT COLLATE "C" NOT NULL,
    cause_id    TEXT COLLATE "C" NOT NULL,
    at          BIGINT NOT NULL,
    expires_at  BIGINT NOT NULL,
    -- `done` or `refused`; unset: no answer.
    answer      TEXT COLLATE "C",
    answer_text TEXT COLLATE "C",
    answered_at BIGINT,
    lifted_at   BIGINT,
    lifted_by   TEXT COLLATE "C"
);
CREATE UNIQUE INDEX actions_by_id ON actions (tenant, id);
CREATE INDEX actions_of_world ON actions (tenant, world, seq);
CREATE INDEX actions_of_dialogue ON actions (tenant, dialogue, npc, seq);
CREATE INDEX actions_by_cause ON actions (tenant, cause_id);

ALTER TABLE actions ENABLE ROW LEVEL SECURITY;
ALTER TABLE actions FORCE ROW LEVEL SECURITY;
CREATE POLICY of_its_tenant ON actions USING (tenant = (SELECT current_setting('colloquy.tenant', true))
    OR (SELECT current_setting('colloquy.tenant', true)) = '*');
ALTER TABLE actions SET (autovacuum_analyze_scale_factor = 0.5, autovacuum_vacuum_insert_scale_factor = 1);
