-- One line about each turn of an NPC with a player. The turns caused them: a rewind lifts them, like facts.
CREATE TABLE episodes (
    seq             INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant          TEXT NOT NULL,
    world           TEXT NOT NULL,
    npc             TEXT NOT NULL,
    player          TEXT NOT NULL,
    dialogue        TEXT NOT NULL,
    -- The number of the turn.
    number          INTEGER NOT NULL,
    -- Where the player was, or else the NPC.
    place           TEXT,
    text            TEXT NOT NULL,
    importance      INTEGER NOT NULL,
    -- As in facts.
    locked_by       TEXT NOT NULL,
    -- The commit of the turn.
    at              INTEGER NOT NULL,
    -- Unset: the line is not compared by meaning.
    embedding_model TEXT,
    embedding       BLOB,
    cause_kind      TEXT NOT NULL,
    -- The turn. A turn has one line.
    cause_id        TEXT NOT NULL,
    lifted_at       INTEGER,
    lifted_by       TEXT
) STRICT;
CREATE UNIQUE INDEX episodes_by_cause ON episodes (tenant, cause_id);
CREATE INDEX episodes_of_pair ON episodes (tenant, world, npc, player, at, cause_id) WHERE lifted_at IS NULL;
CREATE INDEX episodes_by_importance ON episodes (tenant, world, npc, player, importance, at, cause_id)
    WHERE lifted_at IS NULL;
CREATE INDEX episodes_in_order ON episodes (tenant, world, npc, player, seq);
