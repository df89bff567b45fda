-- Promises and goals that what was said in a turn ends: facts, and how, as [{"fact": "fact_…", "how": "fulfilled"}].
ALTER TABLE extractions ADD COLUMN ends TEXT COLLATE "C" NOT NULL DEFAULT '[]';
