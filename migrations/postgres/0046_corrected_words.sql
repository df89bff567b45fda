-- The sentences of a fact that people have replaced in place: pairs of a sentence and the time of its end, as JSON.
ALTER TABLE facts ADD COLUMN earlier_wordings TEXT NOT NULL DEFAULT '[]';
-- Corrected facts are found by who knew them, as removed facts are: by when their words ceased to hold.
ALTER TABLE fact_knowers ADD COLUMN taken_out_at BIGINT;
UPDATE fact_knowers SET taken_out_at = ends_at WHERE taken_out = TRUE;
UPDATE fact_knowers SET taken_out_at = ends_at
WHERE ends_at IS NOT NULL AND EXISTS (
    SELECT 1 FROM facts f JOIN facts n ON n.tenant = f.tenant AND n.id = f.invalid_by
    WHERE f.tenant = fact_knowers.tenant AND f.id = fact_knowers.fact AND f.invalid_reason = 'superseded'
      AND (n.authored = TRUE OR n.corrects = f.id)
);
DROP INDEX knowers_taken_out;
ALTER TABLE fact_knowers DROP COLUMN taken_out;
CREATE INDEX knowers_taken_out ON fact_knowers (tenant, world, knower, private_to, taken_out_at)
    WHERE taken_out_at IS NOT NULL;
