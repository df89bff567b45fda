-- Newer facts that replace a fact for whoever may know both, as their ids with `+` between them: what was told to one player
-- alone may be changed where others hear it, and the other way round. Whether one of them is valid, and known to whoever
-- asks, is decided each time. With the rows of who knows it, so that a candidate is confirmed by one narrow row.

ALTER TABLE facts ADD COLUMN replaced_by TEXT NOT NULL DEFAULT '';
ALTER TABLE fact_knowers ADD COLUMN replaced_by TEXT NOT NULL DEFAULT '';
