-- The actions that were done, which an NPC does not ask a player's game for again.
CREATE INDEX actions_done ON actions (tenant, world, npc, COALESCE(player, ''), name)
    WHERE answer = 'done' AND lifted_at IS NULL;
