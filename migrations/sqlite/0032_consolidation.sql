-- The facts from which facts were concluded. A conclusion is valid while all that the model has read is valid, and says the
-- same.
CREATE TABLE fact_premises (
    tenant      TEXT NOT NULL,
    conclusion  TEXT NOT NULL,
    premise     TEXT NOT NULL,
    -- The hash of the premise's sentence, as the model has read it.
    sentence    TEXT NOT NULL,
    -- 1: the model has read the fact beside the premises, and the conclusion does not stand for it.
    beside      INTEGER NOT NULL,
    PRIMARY KEY (tenant, conclusion, premise)
) STRICT;
CREATE INDEX fact_premises_of_fact ON fact_premises (tenant, premise);

-- The groups of facts that were consolidated: the facts of an audience and a week with the same subject and speaker.
CREATE TABLE consolidations (
    tenant      TEXT NOT NULL,
    world       TEXT NOT NULL,
    audience    TEXT NOT NULL,
    -- The Monday (UTC) on which the week begins, in microseconds.
    week        INTEGER NOT NULL,
    -- The subject, in the form for comparisons, and the speaker.
    about       TEXT NOT NULL,
    -- The hash of the facts' ids and sentences.
    material    TEXT NOT NULL,
    at          INTEGER NOT NULL,
    PRIMARY KEY (tenant, world, audience, week, about)
) STRICT;

-- When all facts of a world were last looked through for groups.
CREATE TABLE consolidation_scans (
    tenant      TEXT NOT NULL,
    world       TEXT NOT NULL,
    scanned_at  INTEGER NOT NULL,
    PRIMARY KEY (tenant, world)
) STRICT;
