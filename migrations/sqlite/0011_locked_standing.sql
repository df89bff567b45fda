-- Facts that are locked stand in prompts as well, where what they rest on is open: open promises, what an NPC is after, and the
-- like. They have an index of their own, so that those for others do not crowd out what everybody may hear of.
UPDATE fact_knowers SET mutable = TRUE
WHERE locked_by <> '' AND EXISTS (
    SELECT 1 FROM facts f
    WHERE f.tenant = fact_knowers.tenant AND f.id = fact_knowers.fact
      AND (f.subject = f.speaker OR f.authored = TRUE)
      AND f.kind IN ('relationship', 'goal', 'event', 'habit', 'opinion', 'todo', 'decision')
);
DROP INDEX knowers_mutable;
CREATE INDEX knowers_mutable ON fact_knowers
    (tenant, world, knower, private_to, importance DESC, valid_at DESC, fact)
    WHERE mutable = TRUE AND ends_at IS NULL AND locked_by = '';
CREATE INDEX knowers_locked ON fact_knowers
    (tenant, world, knower, private_to, importance DESC, valid_at DESC, fact)
    WHERE mutable = TRUE AND ends_at IS NULL AND locked_by <> '';
