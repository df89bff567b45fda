-- A turn may teach two memories: what is private to the player, and what the NPC tells everybody of itself. What its extraction
-- brought has a row for each of them; what its prompt had (`quoted`) is with the private one.

ALTER TABLE extractions DROP CONSTRAINT extractions_pkey;
ALTER TABLE extractions ADD PRIMARY KEY (tenant, turn, audience);
-- The memory's share of what a judge may be asked about the turn, in quarters.
ALTER TABLE extractions ADD COLUMN room BIGINT NOT NULL DEFAULT 4;
