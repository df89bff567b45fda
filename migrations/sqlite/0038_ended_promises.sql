-- Promises and goals that a line ended are found by who knew them, latest first.
ALTER TABLE fact_knowers ADD COLUMN promise_over INTEGER NOT NULL DEFAULT 0;
UPDATE fact_knowers SET promise_over = TRUE
WHERE ends_at IS NOT NULL AND EXISTS (
    SELECT 1 FROM facts f
    WHERE f.tenant = fact_knowers.tenant AND f.id = fact_knowers.fact
      AND f.invalid_reason IN ('fulfilled', 'given_up', 'overdue')
);
CREATE INDEX knowers_promise_over ON fact_knowers (tenant, world, knower, private_to, ends_at)
    WHERE promise_over = TRUE;
