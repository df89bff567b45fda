-- One line about each turn of an NPC with a player. The turns caused them: a rewind lifts them, like facts.
CREATE TABLE episodes (
    seq             BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant          TEXT COLLATE "C" NOT NULL,
    world           TEXT COLLATE "C" NOT NULL,
    npc             TEXT COLLATE "C" NOT NULL,
    player          TEXT COLLATE "C" NOT NULL,
    dialogue        TEXT COLLATE "C" NOT NULL,
    -- The number of the turn.
    number          BIGINT NOT NULL,
    -- Where the player was, or else the NPC.
    place           TEXT COLLATE "C",
    text            TEXT COLLATE "C" NOT NULL,
    importance      BIGINT NOT NULL,
    -- As in facts.
    locked_by       TEXT COLLATE "C" NOT NULL,
    -- The commit of the turn.
    at              BIGINT NOT NULL,
    -- Unset: the line is not compared by meaning.
    embedding_model TEXT COLLATE "C",
    embedding       BYTEA,
    cause_kind      TEXT COLLATE "C" NOT NULL,
    -- The turn. A turn has one line.
    cause_id        TEXT COLLATE "C" NOT NULL,
    lifted_at       BIGINT,
    lifted_by       TEXT COLLATE "C"
);
CREATE UNIQUE INDEX episodes_by_cause ON episodes (tenant, cause_id);
CREATE INDEX episodes_of_pair ON episodes (tenant, world, npc, player, at, cause_id) WHERE lifted_at IS NULL;
CREATE INDEX episodes_by_importance ON episodes (tenant, world, npc, player, importance, at, cause_id)
    WHERE lifted_at IS NULL;
CREATE INDEX episodes_in_order ON episodes (tenant, world, npc, player, seq);

ALTER TABLE episodes ENABLE ROW LEVEL SECURITY;
ALTER TABLE episodes FORCE ROW LEVEL SECURITY;
CREATE POLICY of_its_tenant ON episodes USING (tenant = (SELECT current_setting('colloquy.tenant', true))
    OR (SELECT current_setting('colloquy.tenant', true)) = '*');
ALTER TABLE episodes SET (autovacuum_analyze_scale_factor = 0.5, autovacuum_vacuum_insert_scale_factor = 1);
