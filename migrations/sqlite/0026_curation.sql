-- Passes of the curation model over a dialogue. The last turn that a pass read caused it: a rewind lifts the pass, its
-- findings and its decisions, like facts.
CREATE TABLE curation_passes (
    tenant      TEXT NOT NULL,
    id          TEXT NOT NULL,
    world       TEXT NOT NULL,
    dialogue    TEXT NOT NULL,
    -- The turns that the pass read.
    from_turn   INTEGER NOT NULL,
    to_turn     INTEGER NOT NULL,
    -- edits: the model edited the narrative memory step by step; direct: it wrote the whole in one answer.
    method      TEXT NOT NULL,
    -- The model's answers.
    steps       INTEGER NOT NULL,
    -- The whole narrative memory after the pass.
    memory      TEXT NOT NULL,
    cause_kind  TEXT NOT NULL,
    cause_id    TEXT NOT NULL,
    at          INTEGER NOT NULL,
    lifted_at   INTEGER,
    lifted_by   TEXT,
    PRIMARY KEY (tenant, id)
) STRICT;
CREATE INDEX curation_passes_of_dialogue ON curation_passes (tenant, dialogue, to_turn) WHERE lifted_at IS NULL;
CREATE INDEX curation_passes_of_world ON curation_passes (tenant, world, id) WHERE lifted_at IS NULL;
CREATE INDEX curation_passes_by_cause ON curation_passes (tenant, cause_id);

CREATE TABLE curation_findings (
    tenant      TEXT NOT NULL,
    id          TEXT NOT NULL,
    world       TEXT NOT NULL,
    dialogue    TEXT NOT NULL,
    -- contradiction | foreshadowing | event
    kind        TEXT NOT NULL,
    text        TEXT NOT NULL,
    -- JSON: the numbers of the turns that it is about.
    turns       TEXT NOT NULL,
    cause_kind  TEXT NOT NULL,
    cause_id    TEXT NOT NULL,
    at          INTEGER NOT NULL,
    lifted_at   INTEGER,
    lifted_by   TEXT,
    PRIMARY KEY (tenant, id)
) STRICT;
CREATE INDEX curation_findings_of_dialogue ON curation_findings (tenant, dialogue, id) WHERE lifted_at IS NULL;
CREATE INDEX curation_findings_of_world ON curation_findings (tenant, world, id) WHERE lifted_at IS NULL;
CREATE INDEX curation_findings_by_cause ON curation_findings (tenant, cause_id);

-- A person's decision counts before the model's; otherwise the newest that stands counts.
CREATE TABLE curation_decisions (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant      TEXT NOT NULL,
    finding     TEXT NOT NULL,
    -- intended | fixed | open
    decision    TEXT NOT NULL,
    reason      TEXT NOT NULL,
    -- The subject of the person's token. Unset: the model decided.
    decided_by  TEXT,
    cause_kind  TEXT NOT NULL,
    cause_id    TEXT NOT NULL,
    at          INTEGER NOT NULL,
    lifted_at   INTEGER,
    lifted_by   TEXT
) STRICT;
CREATE INDEX curation_decisions_of_finding ON curation_decisions (tenant, finding, seq);
CREATE INDEX curation_decisions_by_cause ON curation_decisions (tenant, cause_id);

-- The changes that a pass over a dialogue reads: those of the dialogue, and those of no dialogue.
CREATE INDEX state_events_of_dialogue ON state_events (tenant, world, dialogue, at) WHERE lifted_at IS NULL;
