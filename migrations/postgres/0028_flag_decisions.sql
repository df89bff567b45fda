-- Set: a person corrected the statement or the dates of that fact, and this fact replaced it. It has the cause of the
-- corrected fact, and is unsaid with the same turn.
ALTER TABLE facts ADD COLUMN corrects TEXT COLLATE "C";

-- Decisions of persons about flagged facts: one row per statement that the decision covers. The last decision counts.
CREATE TABLE flag_decisions (
    tenant      TEXT COLLATE "C" NOT NULL,
    world       TEXT COLLATE "C" NOT NULL,
    fact        TEXT COLLATE "C" NOT NULL,
    -- contradicted | pii | over_merged
    flag        TEXT COLLATE "C" NOT NULL,
    -- The id of a contradicting or merged fact; for pii, the kinds of personal data.
    statement   TEXT COLLATE "C" NOT NULL,
    -- accepted | corrected | dismissed
    decision    TEXT COLLATE "C" NOT NULL,
    reason      TEXT COLLATE "C" NOT NULL,
    -- The subject and the role of the person's token.
    decided_by  TEXT COLLATE "C" NOT NULL,
    role        TEXT COLLATE "C" NOT NULL,
    edit        TEXT COLLATE "C" NOT NULL,
    at          BIGINT NOT NULL,
    PRIMARY KEY (tenant, fact, flag, statement)
);
CREATE INDEX flag_decisions_of_world ON flag_decisions (tenant, world, flag, fact);
CREATE INDEX flag_decisions_of_statement ON flag_decisions (tenant, statement);

-- Valid facts with personal data, for a person to look at.
CREATE INDEX facts_with_pii ON facts (tenant, world, id) WHERE pii <> '[]' AND invalid_at IS NULL;

ALTER TABLE flag_decisions ENABLE ROW LEVEL SECURITY;
ALTER TABLE flag_decisions FORCE ROW LEVEL SECURITY;
CREATE POLICY of_its_tenant ON flag_decisions USING (tenant = (SELECT current_setting('colloquy.tenant', true))
    OR (SELECT current_setting('colloquy.tenant', true)) = '*');
ALTER TABLE flag_decisions SET (autovacuum_analyze_scale_factor = 0.5, autovacuum_vacuum_insert_scale_factor = 1);
