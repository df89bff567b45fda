-- Of what is locked only promises and aims stand.
UPDATE fact_knowers SET mutable = FALSE
WHERE locked_by <> '' AND mutable = TRUE AND NOT EXISTS (
    SELECT 1 FROM facts f
    WHERE f.tenant = fact_knowers.tenant AND f.id = fact_knowers.fact
      AND (f.subject = f.speaker OR f.authored = TRUE)
      AND (f.kind IN ('goal', 'todo') AND f.tense <> 'past' OR f.kind IN ('decision', 'event') AND f.tense = 'future')
);
