-- Facts that name their subject, by who knows them: a search by one name of a person brings in the others. Few facts of a
-- memory do, so they are found by an index of their own.
ALTER TABLE fact_knowers ADD COLUMN names_subject INTEGER NOT NULL DEFAULT 0;
UPDATE fact_knowers SET names_subject = 1
WHERE EXISTS (SELECT 1 FROM facts f WHERE f.tenant = fact_knowers.tenant AND f.id = fact_knowers.fact
              AND f.predicate IN ('be named', '이름이다') AND f.polarity = 'positive' AND f.tense <> 'past');
CREATE INDEX knowers_of_names ON fact_knowers (tenant, world, knower, private_to, valid_at, fact)
    WHERE names_subject = TRUE;
