-- Conditions of scenarios, and what an NPC shows of a scenario that it keeps to itself: both JSON.
ALTER TABLE scenarios ADD COLUMN conditions TEXT NOT NULL DEFAULT '[]';
ALTER TABLE scenarios ADD COLUMN tell TEXT;
