-- Facts that a player asked to forget or a person removed, by when: a summary that was made before may tell of them.
CREATE INDEX facts_taken_out ON facts (tenant, world, private_to, invalid_at)
    WHERE invalid_reason IN ('forgotten', 'removed');
