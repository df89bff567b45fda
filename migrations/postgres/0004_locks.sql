-- What a fact rests on that not every player may hear of: `scenario:<npc>/<scenario>;hearers:<player>+<player>`; empty:
-- nothing. With the rows of who knows it, so that a candidate is confirmed by one narrow row.

ALTER TABLE facts ADD COLUMN locked_by TEXT NOT NULL DEFAULT '';
ALTER TABLE fact_knowers ADD COLUMN locked_by TEXT NOT NULL DEFAULT '';
