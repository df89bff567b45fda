-- The episodes that were stored while the embedder was away: an empty model waits for a vector. The line of a greeting,
-- a turn without words of the player, has no model and waits for none.
UPDATE episodes SET embedding_model = ''
WHERE embedding_model IS NULL AND EXISTS (
    SELECT 1 FROM turns t WHERE t.tenant = episodes.tenant AND t.id = episodes.cause_id AND t.player_text <> ''
);
