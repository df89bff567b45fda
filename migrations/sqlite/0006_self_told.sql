-- A turn may teach two memories: what is private to the player, and what the NPC tells everybody of itself. What its extraction
-- brought has a row for each of them.

CREATE TABLE extractions_of_memories (
    tenant      TEXT NOT NULL,
    turn        TEXT NOT NULL,
    dialogue    TEXT NOT NULL,
    number      INTEGER NOT NULL,
    world       TEXT NOT NULL,
    -- Who replied, and whose prompt it was.
    npc         TEXT NOT NULL,
    audience    TEXT NOT NULL,
    knowers     TEXT NOT NULL,
    private_to  TEXT,
    said_at     INTEGER NOT NULL,
    player      TEXT,
    -- What the player asked to forget, in words.
    forget      TEXT NOT NULL,
    -- Facts that were in the turn's prompt, but for what one NPC told others from its own memory.
    injected    TEXT NOT NULL,
    -- All that were; of a turn that teaches two memories, with the private one.
    quoted      TEXT NOT NULL,
    -- Promises and goals that what was said in the turn ends: facts, and how, as [{"fact": "fact_…", "how": "fulfilled"}].
    ends        TEXT NOT NULL DEFAULT '[]',
    -- The memory's share of what a judge may be asked about the turn, in quarters.
    room        INTEGER NOT NULL DEFAULT 4,
    PRIMARY KEY (tenant, turn, audience)
) STRICT, WITHOUT ROWID;
INSERT INTO extractions_of_memories
    (tenant, turn, dialogue, number, world, npc, audience, knowers, private_to, said_at, player, forget, injected, quoted, ends)
SELECT tenant, turn, dialogue, number, world, npc, audience, knowers, private_to, said_at, player, forget, injected, quoted, ends
FROM extractions;
DROP TABLE extractions;
ALTER TABLE extractions_of_memories RENAME TO extractions;
CREATE INDEX extractions_in_order ON extractions (tenant, world, audience, said_at);
CREATE INDEX extractions_of_world ON extractions (tenant, world, said_at);
CREATE INDEX extractions_of_npc ON extractions (tenant, world, npc, said_at);
