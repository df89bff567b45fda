-- Set: a person corrected the statement or the dates of that fact, and this fact replaced it. It has the cause of the
-- corrected fact, and is unsaid with the same turn.
ALTER TABLE facts ADD COLUMN corrects TEXT;

-- Decisions of persons about flagged facts: one row per statement that the decision covers. The last decision counts.
CREATE TABLE flag_decisions (
    tenant      TEXT NOT NULL,
    world       TEXT NOT NULL,
    fact        TEXT NOT NULL,
    -- contradicted | pii | over_merged
    flag        TEXT NOT NULL,
    -- The id of a contradicting or merged fact; for pii, the kinds of personal data.
    statement   TEXT NOT NULL,
    -- accepted | corrected | dismissed
    decision    TEXT NOT NULL,
    reason      TEXT NOT NULL,
    -- The subject and the role of the person's token.
    decided_by  TEXT NOT NULL,
    role        TEXT NOT NULL,
    edit        TEXT NOT NULL,
    at          INTEGER NOT NULL,
    PRIMARY KEY (tenant, fact, flag, statement)
) STRICT, WITHOUT ROWID;
CREATE INDEX flag_decisions_of_world ON flag_decisions (tenant, world, flag, fact);
CREATE INDEX flag_decisions_of_statement ON flag_decisions (tenant, statement);

-- Valid facts with personal data, for a person to look at.
CREATE INDEX facts_with_pii ON facts (tenant, world, id) WHERE pii <> '[]' AND invalid_at IS NULL;
