-- What NPCs have learned from their dialogues, by curation passes. The last turn that a pass read caused the row: a rewind
-- lifts the row, like a finding. Of the standing rows of an NPC, a player, an entity and a day, the newest counts.
CREATE TABLE insights (
    tenant      TEXT NOT NULL,
    id          TEXT NOT NULL,
    world       TEXT NOT NULL,
    -- Each NPC of the dialogue has its own row.
    npc         TEXT NOT NULL,
    -- The player of the session. Empty: from an NPC conversation.
    player      TEXT NOT NULL,
    dialogue    TEXT NOT NULL,
    -- The last turn that the pass read.
    number      INTEGER NOT NULL,
    -- player:<id>, or the name of an NPC, a place or another thing; and the form for comparisons.
    entity      TEXT NOT NULL,
    entity_key  TEXT NOT NULL,
    -- The day (UTC) of the last turn, as 2026-11-28.
    day         TEXT NOT NULL,
    -- Empty: a person has deleted the insight.
    text        TEXT NOT NULL,
    locked_by   TEXT NOT NULL,
    cause_kind  TEXT NOT NULL,
    cause_id    TEXT NOT NULL,
    at          INTEGER NOT NULL,
    lifted_at   INTEGER,
    lifted_by   TEXT,
    PRIMARY KEY (tenant, id)
) STRICT;
CREATE INDEX insights_newest ON insights (tenant, world, npc, player, at, id) WHERE lifted_at IS NULL;
CREATE INDEX insights_of_npc ON insights (tenant, world, npc, at, id) WHERE lifted_at IS NULL;
CREATE INDEX insights_of_day ON insights (tenant, world, npc, player, entity_key, day, at, id) WHERE lifted_at IS NULL;
CREATE INDEX insights_by_cause ON insights (tenant, cause_id);
