-- What NPCs have learned from their dialogues, by curation passes. The last turn that a pass read caused the row: a rewind
-- lifts the row, like a finding. Of the standing rows of an NPC, a player, an entity and a day, the newest counts.
CREATE TABLE insights (
    tenant      TEXT COLLATE "C" NOT NULL,
    id          TEXT COLLATE "C" NOT NULL,
    world       TEXT COLLATE "C" NOT NULL,
    -- Each NPC of the dialogue has its own row.
    npc         TEXT COLLATE "C" NOT NULL,
    -- The player of the session. Empty: from an NPC conversation.
    player      TEXT COLLATE "C" NOT NULL,
    dialogue    TEXT COLLATE "C" NOT NULL,
    -- The last turn that the pass read.
    number      BIGINT NOT NULL,
    -- player:<id>, or the name of an NPC, a place or another thing; and the form for comparisons.
    entity      TEXT COLLATE "C" NOT NULL,
    entity_key  TEXT COLLATE "C" NOT NULL,
    -- The day (UTC) of the last turn, as 2026-11-28.
    day         TEXT COLLATE "C" NOT NULL,
    -- Empty: a person has deleted the insight.
    text        TEXT COLLATE "C" NOT NULL,
    locked_by   TEXT COLLATE "C" NOT NULL,
    cause_kind  TEXT COLLATE "C" NOT NULL,
    cause_id    TEXT COLLATE "C" NOT NULL,
    at          BIGINT NOT NULL,
    lifted_at   BIGINT,
    lifted_by   TEXT COLLATE "C",
    PRIMARY KEY (tenant, id)
);
CREATE INDEX insights_newest ON insights (tenant, world, npc, player, at, id) WHERE lifted_at IS NULL;
CREATE INDEX insights_of_npc ON insights (tenant, world, npc, at, id) WHERE lifted_at IS NULL;
CREATE INDEX insights_of_day ON insights (tenant, world, npc, player, entity_key, day, at, id) WHERE lifted_at IS NULL;
CREATE INDEX insights_by_cause ON insights (tenant, cause_id);

ALTER TABLE insights ENABLE ROW LEVEL SECURITY;
ALTER TABLE insights FORCE ROW LEVEL SECURITY;
CREATE POLICY of_its_tenant ON insights USING (tenant = (SELECT current_setting('colloquy.tenant', true))
    OR (SELECT current_setting('colloquy.tenant', true)) = '*');
ALTER TABLE insights SET (autovacuum_analyze_scale_factor = 0.5, autovacuum_vacuum_insert_scale_factor = 1);
