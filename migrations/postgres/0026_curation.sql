-- Passes of the curation model over a dialogue. The last turn that a pass read caused it: a rewind lifts the pass, its
-- findings and its decisions, like facts.
CREATE TABLE curation_passes (
    tenant      TEXT COLLATE "C" NOT NULL,
    id          TEXT COLLATE "C" NOT NULL,
    world       TEXT COLLATE "C" NOT NULL,
    dialogue    TEXT COLLATE "C" NOT NULL,
    -- The turns that the pass read.
    from_turn   BIGINT NOT NULL,
    to_turn     BIGINT NOT NULL,
    -- edits: the model edited the narrative memory step by step; direct: it wrote the whole in one answer.
    method      TEXT COLLATE "C" NOT NULL,
    -- The model's answers.
    steps       BIGINT NOT NULL,
    -- The whole narrative memory after the pass.
    memory      TEXT COLLATE "C" NOT NULL,
    cause_kind  TEXT COLLATE "C" NOT NULL,
    cause_id    TEXT COLLATE "C" NOT NULL,
    at          BIGINT NOT NULL,
    lifted_at   BIGINT,
    lifted_by   TEXT COLLATE "C",
    PRIMARY KEY (tenant, id)
);
CREATE INDEX curation_passes_of_dialogue ON curation_passes (tenant, dialogue, to_turn) WHERE lifted_at IS NULL;
CREATE INDEX curation_passes_of_world ON curation_passes (tenant, world, id) WHERE lifted_at IS NULL;
CREATE INDEX curation_passes_by_cause ON curation_passes (tenant, cause_id);

CREATE TABLE curation_findings (
    tenant      TEXT COLLATE "C" NOT NULL,
    id          TEXT COLLATE "C" NOT NULL,
    world       TEXT COLLATE "C" NOT NULL,
    dialogue    TEXT COLLATE "C" NOT NULL,
    -- contradiction | foreshadowing | event
    kind        TEXT COLLATE "C" NOT NULL,
    text        TEXT COLLATE "C" NOT NULL,
    -- JSON: the numbers of the turns that it is about.
    turns       TEXT COLLATE "C" NOT NULL,
    cause_kind  TEXT COLLATE "C" NOT NULL,
    cause_id    TEXT COLLATE "C" NOT NULL,
    at          BIGINT NOT NULL,
    lifted_at   BIGINT,
    lifted_by   TEXT COLLATE "C",
    PRIMARY KEY (tenant, id)
);
CREATE INDEX curation_findings_of_dialogue ON curation_findings (tenant, dialogue, id) WHERE lifted_at IS NULL;
CREATE INDEX curation_findings_of_world ON curation_findings (tenant, world, id) WHERE lifted_at IS NULL;
CREATE INDEX curation_findings_by_cause ON curation_findings (tenant, cause_id);

-- A person's decision counts before the model's; otherwise the newest that stands counts.
CREATE TABLE curation_decisions (
    seq         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant      TEXT COLLATE "C" NOT NULL,
    finding     TEXT COLLATE "C" NOT NULL,
    -- intended | fixed | open
    decision    TEXT COLLATE "C" NOT NULL,
    reason      TEXT COLLATE "C" NOT NULL,
    -- The subject of the person's token. Unset: the model decided.
    decided_by  TEXT COLLATE "C",
    cause_kind  TEXT COLLATE "C" NOT NULL,
    cause_id    TEXT COLLATE "C" NOT NULL,
    at          BIGINT NOT NULL,
    lifted_at   BIGINT,
    lifted_by   TEXT COLLATE "C"
);
CREATE INDEX curation_decisions_of_finding ON curation_decisions (tenant, finding, seq);
CREATE INDEX curation_decisions_by_cause ON curation_decisions (tenant, cause_id);

ALTER TABLE curation_passes ENABLE ROW LEVEL SECURITY;
ALTER TABLE curation_passes FORCE ROW LEVEL SECURITY;
CREATE POLICY of_its_tenant ON curation_passes USING (tenant = (SELECT current_setting('colloquy.tenant', true))
    OR (SELECT current_setting('colloquy.tenant', true)) = '*');
ALTER TABLE curation_passes SET (autovacuum_analyze_scale_factor = 0.5, autovacuum_vacuum_insert_scale_factor = 1);

ALTER TABLE curation_findings ENABLE ROW LEVEL SECURITY;
ALTER TABLE curation_findings FORCE ROW LEVEL SECURITY;
CREATE POLICY of_its_tenant ON curation_findings USING (tenant = (SELECT current_setting('colloquy.tenant', true))
    OR (SELECT current_setting('colloquy.tenant', true)) = '*');
ALTER TABLE curation_findings SET (autovacuum_analyze_scale_factor = 0.5, autovacuum_vacuum_insert_scale_factor = 1);

ALTER TABLE curation_decisions ENABLE ROW LEVEL SECURITY;
ALTER TABLE curation_decisions FORCE ROW LEVEL SECURITY;
CREATE POLICY of_its_tenant ON curation_decisions USING (tenant = (SELECT current_setting('colloquy.tenant', true))
    OR (SELECT current_setting('colloquy.tenant', true)) = '*');
ALTER TABLE curation_decisions SET (autovacuum_analyze_scale_factor = 0.5, autovacuum_vacuum_insert_scale_factor = 1);

-- The changes that a pass over a dialogue reads: those of the dialogue, and those of no dialogue.
CREATE INDEX state_events_of_dialogue ON state_events (tenant, world, dialogue, at) WHERE lifted_at IS NULL;
