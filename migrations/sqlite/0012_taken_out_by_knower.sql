-- What was taken out of memory is found by who knew it, as what stands is.
ALTER TABLE fact_knowers ADD COLUMN taken_out INTEGER NOT NULL DEFAULT 0;
UPDATE fact_knowers SET taken_out = TRUE
WHERE ends_at IS NOT NULL AND EXISTS (
    SELECT 1 FROM facts f
    WHERE f.tenant = fact_knowers.tenant AND f.id = fact_knowers.fact AND f.invalid_reason IN ('forgotten', 'removed')
);
DROP INDEX facts_taken_out;
CREATE INDEX knowers_taken_out ON fact_knowers (tenant, world, knower, private_to, ends_at)
    WHERE taken_out = TRUE;
