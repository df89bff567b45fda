-- What insights rest on. `day` is the day of the world's clock from now on, or the day in UTC if the world has no clock. Of a
-- dialogue, an entity and a day, the newest insight counts.
-- JSON: the numbers of the turns of the dialogue that the insight rests on. Empty: they are unknown.
ALTER TABLE insights ADD COLUMN turns TEXT NOT NULL DEFAULT '[]';
-- The turn that caused the insight about the same entity in whose place this one stands. Empty: none.
ALTER TABLE insights ADD COLUMN replaces TEXT NOT NULL DEFAULT '';
-- JSON: that turn, and the turns on which the replaced insight rested. The insight counts while all of them stand.
ALTER TABLE insights ADD COLUMN rests_on TEXT NOT NULL DEFAULT '[]';
CREATE INDEX insights_replacing ON insights (tenant, world, npc, player, replaces, entity_key)
    WHERE lifted_at IS NULL AND replaces <> '';

-- The player of the pass, for the player's share. Empty: an NPC conversation.
ALTER TABLE curation_passes ADD COLUMN player TEXT NOT NULL DEFAULT '';
CREATE INDEX curation_passes_of_player ON curation_passes (tenant, player, at) WHERE player <> '';
