-- The facts from which facts were concluded. A conclusion is valid while all that the model has read is valid, and says the
-- same.
CREATE TABLE fact_premises (
    tenant      TEXT COLLATE "C" NOT NULL,
    conclusion  TEXT COLLATE "C" NOT NULL,
    premise     TEXT COLLATE "C" NOT NULL,
    -- The hash of the premise's sentence, as the model has read it.
    sentence    TEXT COLLATE "C" NOT NULL,
    -- 1: the model has read the fact beside the premises, and the conclusion does not stand for it.
    beside      BIGINT NOT NULL,
    PRIMARY KEY (tenant, conclusion, premise)
);
CREATE INDEX fact_premises_of_fact ON fact_premises (tenant, premise);

-- The groups of facts that were consolidated: the facts of an audience and a week with the same subject and speaker.
CREATE TABLE consolidations (
    tenant      TEXT COLLATE "C" NOT NULL,
    world       TEXT COLLATE "C" NOT NULL,
    audience    TEXT COLLATE "C" NOT NULL,
    -- The Monday (UTC) on which the week begins, in microseconds.
    week        BIGINT NOT NULL,
    -- The subject, in the form for comparisons, and the speaker.
    about       TEXT COLLATE "C" NOT NULL,
    -- The hash of the facts' ids and sentences.
    material    TEXT COLLATE "C" NOT NULL,
    at          BIGINT NOT NULL,
    PRIMARY KEY (tenant, world, audience, week, about)
);

-- When all facts of a world were last looked through for groups.
CREATE TABLE consolidation_scans (
    tenant      TEXT COLLATE "C" NOT NULL,
    world       TEXT COLLATE "C" NOT NULL,
    scanned_at  BIGINT NOT NULL,
    PRIMARY KEY (tenant, world)
);

ALTER TABLE fact_premises ENABLE ROW LEVEL SECURITY;
ALTER TABLE fact_premises FORCE ROW LEVEL SECURITY;
CREATE POLICY of_its_tenant ON fact_premises USING (tenant = (SELECT current_setting('colloquy.tenant', true))
    OR (SELECT current_setting('colloquy.tenant', true)) = '*');
ALTER TABLE fact_premises SET (autovacuum_analyze_scale_factor = 0.5, autovacuum_vacuum_insert_scale_factor = 1);

ALTER TABLE consolidations ENABLE ROW LEVEL SECURITY;
ALTER TABLE consolidations FORCE ROW LEVEL SECURITY;
CREATE POLICY of_its_tenant ON consolidations USING (tenant = (SELECT current_setting('colloquy.tenant', true))
    OR (SELECT current_setting('colloquy.tenant', true)) = '*');
ALTER TABLE consolidations SET (autovacuum_analyze_scale_factor = 0.5, autovacuum_vacuum_insert_scale_factor = 1);

ALTER TABLE consolidation_scans ENABLE ROW LEVEL SECURITY;
ALTER TABLE consolidation_scans FORCE ROW LEVEL SECURITY;
CREATE POLICY of_its_tenant ON consolidation_scans USING (tenant = (SELECT current_setting('colloquy.tenant', true))
    OR (SELECT current_setting('colloquy.tenant', true)) = '*');
ALTER TABLE consolidation_scans SET (autovacuum_analyze_scale_factor = 0.5, autovacuum_vacuum_insert_scale_factor = 1);
