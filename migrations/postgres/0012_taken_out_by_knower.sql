-- What was taken out of memory is found by who knew it, as what stands is.
ALTER TABLE fact_knowers ADD COLUMN taken_out BOOLEAN NOT NULL DEFAULT FALSE;
UPDATE fact_knowers SET taken_out = TRUE FROM facts f
WHERE f.tenant = fact_knowers.tenant AND f.id = fact_knowers.fact AND f.invalid_reason IN ('forgotten', 'removed');
DROP INDEX facts_taken_out;
CREATE INDEX knowers_taken_out ON fact_knowers (tenant, world, knower, private_to, ends_at)
    WHERE taken_out;
