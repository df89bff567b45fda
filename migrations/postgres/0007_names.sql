-- Facts that name their subject ("The player's sister is called Anna"): whoever is spoken of by one name is known by the other.
CREATE INDEX facts_that_name ON facts (tenant, world, audience) WHERE predicate IN ('be named', '이름이다');
