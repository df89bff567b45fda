-- The actions that wait for an answer, by the NPC that asked and the player.
CREATE INDEX actions_waiting ON actions (tenant, world, npc, COALESCE(player, ''))
    WHERE answer IS NULL AND lifted_at IS NULL;
