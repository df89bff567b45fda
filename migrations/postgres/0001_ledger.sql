-- The ledger, complete. The same tables, columns and names as migrations/sqlite, where each is explained;
-- a test compares them.
--
-- Conventions: ids are TEXT, moments are BIGINT microseconds since 1970 (UTC), lists and free forms are
-- JSON in TEXT, flags are BOOLEAN. Texts compare by their bytes (COLLATE "C"), as on SQLite, whatever the
-- database's own order: ids are read in ranges. Every row belongs to a tenant, and the tenant leads every
-- key.
--
-- No foreign keys: parents are checked where they matter, and most ids arrive from rows already read.

-- People ------------------------------------------------------------------------------------------

CREATE TABLE tenants (
    id          TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    name        TEXT COLLATE "C" NOT NULL,
    enabled     BOOLEAN NOT NULL,
    settings    TEXT COLLATE "C" NOT NULL DEFAULT '{}',
    created_at  BIGINT NOT NULL
);

CREATE TABLE worlds (
    tenant      TEXT COLLATE "C" NOT NULL,
    id          TEXT COLLATE "C" NOT NULL,
    name        TEXT COLLATE "C" NOT NULL,
    premise     TEXT COLLATE "C" NOT NULL,
    language    TEXT COLLATE "C" NOT NULL,
    rules       TEXT COLLATE "C" NOT NULL,
    settings    TEXT COLLATE "C" NOT NULL,
    version     BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    -- Rises when a change of its state is taken back or stands again: a fold of it begins anew.
    state_generation BIGINT NOT NULL DEFAULT 0,
    deleted_at  BIGINT,
    PRIMARY KEY (tenant, id)
);

CREATE TABLE npcs (
    tenant      TEXT COLLATE "C" NOT NULL,
    world       TEXT COLLATE "C" NOT NULL,
    id          TEXT COLLATE "C" NOT NULL,
    name        TEXT COLLATE "C" NOT NULL,
    persona     TEXT COLLATE "C" NOT NULL,
    language    TEXT COLLATE "C" NOT NULL,
    factions    TEXT COLLATE "C" NOT NULL,
    model       TEXT COLLATE "C",
    settings    TEXT COLLATE "C" NOT NULL DEFAULT '{}',
    version     BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    deleted_at  BIGINT,
    PRIMARY KEY (tenant, world, id)
);

-- The row that reconciling locks: rises with every write to what this NPC remembers. Apart from
-- `npcs`, so that an edit of a persona and a write to memory never wait for each other.
CREATE TABLE npc_memories (
    tenant      TEXT COLLATE "C" NOT NULL,
    world       TEXT COLLATE "C" NOT NULL,
    npc         TEXT COLLATE "C" NOT NULL,
    memory_seq  BIGINT NOT NULL,
    PRIMARY KEY (tenant, world, npc)
);

-- What an NPC remembers of its own past. How far a player has come is no row of its own: see state_events.
CREATE TABLE scenarios (
    tenant      TEXT COLLATE "C" NOT NULL,
    world       TEXT COLLATE "C" NOT NULL,
    npc         TEXT COLLATE "C" NOT NULL,
    id          TEXT COLLATE "C" NOT NULL,
    title       TEXT COLLATE "C" NOT NULL,
    content     TEXT COLLATE "C" NOT NULL,
    keywords    TEXT COLLATE "C" NOT NULL,
    synonyms    TEXT COLLATE "C" NOT NULL,
    required_progress BIGINT NOT NULL,
    embedding_model TEXT COLLATE "C" NOT NULL,
    embedding   BYTEA NOT NULL,
    version     BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    deleted_at  BIGINT,
    PRIMARY KEY (tenant, world, npc, id)
);

CREATE TABLE lore (
    tenant      TEXT COLLATE "C" NOT NULL,
    world       TEXT COLLATE "C" NOT NULL,
    id          TEXT COLLATE "C" NOT NULL,
    name        TEXT COLLATE "C" NOT NULL,
    aliases     TEXT COLLATE "C" NOT NULL,
    keywords    TEXT COLLATE "C" NOT NULL,
    content     TEXT COLLATE "C" NOT NULL,
    layer       TEXT COLLATE "C" NOT NULL,
    links       TEXT COLLATE "C" NOT NULL,
    options     TEXT COLLATE "C" NOT NULL DEFAULT '{}',
    embedding_model TEXT COLLATE "C",
    embedding   BYTEA,
    version     BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    deleted_at  BIGINT,
    PRIMARY KEY (tenant, world, id)
);

CREATE TABLE directives (
    tenant      TEXT COLLATE "C" NOT NULL,
    world       TEXT COLLATE "C" NOT NULL,
    id          TEXT COLLATE "C" NOT NULL,
    name        TEXT COLLATE "C" NOT NULL,
    patterns    TEXT COLLATE "C" NOT NULL,
    text        TEXT COLLATE "C" NOT NULL,
    version     BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    deleted_at  BIGINT,
    PRIMARY KEY (tenant, world, id)
);

-- Dialogues ---------------------------------------------------------------------------------------

CREATE TABLE dialogues (
    tenant      TEXT COLLATE "C" NOT NULL,
    id          TEXT COLLATE "C" NOT NULL,
    world       TEXT COLLATE "C" NOT NULL,
    npcs        TEXT COLLATE "C" NOT NULL,
    witnesses   TEXT COLLATE "C" NOT NULL,
    player      TEXT COLLATE "C",
    resume_token_hash BYTEA NOT NULL,
    status      TEXT COLLATE "C" NOT NULL,
    -- Topic, pace and the like: what it was opened with and keeps.
    options     TEXT COLLATE "C" NOT NULL DEFAULT '{}',
    -- What opened it, where that was a turn of another dialogue (a player who joined) or an event.
    cause_kind  TEXT COLLATE "C",
    cause_id    TEXT COLLATE "C",
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    -- One writer at a time: commits are conditional on the epoch.
    owner_node  TEXT COLLATE "C",
    owner_epoch BIGINT NOT NULL DEFAULT 0,
    owner_until BIGINT,
    next_seq    BIGINT NOT NULL DEFAULT 1,
    head_turn   BIGINT NOT NULL DEFAULT 0,
    head_turn_id TEXT COLLATE "C",
    -- The turn that went only to be said anew, until another is committed or the head moves again.
    replacing   TEXT COLLATE "C",
    PRIMARY KEY (tenant, id)
);
CREATE INDEX dialogues_replacing ON dialogues (tenant) WHERE replacing IS NOT NULL;
CREATE INDEX dialogues_newest ON dialogues (tenant, created_at, id);
CREATE INDEX dialogues_of_player ON dialogues (tenant, player, created_at, id) WHERE player IS NOT NULL;
CREATE INDEX dialogues_of_world ON dialogues (tenant, world, created_at, id);
CREATE INDEX dialogues_owned ON dialogues (owner_node) WHERE owner_node IS NOT NULL;
CREATE INDEX dialogues_by_cause ON dialogues (tenant, cause_id) WHERE cause_id IS NOT NULL;

CREATE TABLE participants (
    tenant      TEXT COLLATE "C" NOT NULL,
    world       TEXT COLLATE "C" NOT NULL,
    npc         TEXT COLLATE "C" NOT NULL,
    -- speaker | witness
    part        TEXT COLLATE "C" NOT NULL,
    dialogue    TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, world, npc, part, dialogue)
);

CREATE TABLE turns (
    tenant      TEXT COLLATE "C" NOT NULL,
    id          TEXT COLLATE "C" NOT NULL,
    dialogue    TEXT COLLATE "C" NOT NULL,
    number      BIGINT NOT NULL,
    -- The turn it followed: what stood when it was said is the chain of these, whatever was unsaid since.
    previous    TEXT COLLATE "C",
    -- True while it stands. A turn that does not names what unsaid it, and keeps its key and its id for ever;
    -- one without `unsaid_at` is an empty shell, since what it said is not kept any longer.
    stands      BOOLEAN NOT NULL DEFAULT TRUE,
    unsaid_at   BIGINT,
    unsaid_by   TEXT COLLATE "C",
    -- The turn in whose place it stands, which said more than was heard. It has the same number,
    -- the same line and the same key.
    replaces    TEXT COLLATE "C",
    -- What a cut reply would have said, sealed until then.
    uncut_reply_text TEXT COLLATE "C",
    uncut_until BIGINT,
    text_version BIGINT NOT NULL,
    key         TEXT COLLATE "C",
    status      TEXT COLLATE "C" NOT NULL,
    player      TEXT COLLATE "C",
    player_text TEXT COLLATE "C" NOT NULL,
    npc         TEXT COLLATE "C" NOT NULL,
    reply_text  TEXT COLLATE "C" NOT NULL,
    cues        TEXT COLLATE "C" NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    cached_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    started_at  BIGINT NOT NULL,
    committed_at BIGINT NOT NULL,
    seq_started BIGINT NOT NULL,
    seq_done    BIGINT NOT NULL,
    seq_committed BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE UNIQUE INDEX turns_standing ON turns (tenant, dialogue, number) WHERE stands;
CREATE INDEX turns_by_key ON turns (tenant, dialogue, key) WHERE key IS NOT NULL;
CREATE INDEX turns_sealed ON turns (tenant, uncut_until) WHERE uncut_until IS NOT NULL;
CREATE INDEX turns_unsaid ON turns (tenant, unsaid_by) WHERE unsaid_by IS NOT NULL;
CREATE INDEX turns_unsaid_at ON turns (tenant, unsaid_at) WHERE NOT stands;

CREATE TABLE checkpoints (
    tenant      TEXT COLLATE "C" NOT NULL,
    turn        TEXT COLLATE "C" NOT NULL,
    body        TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, turn)
);

-- Each time a dialogue's head was moved: the event its listeners heard, for those who were away.
CREATE TABLE rewinds (
    tenant      TEXT COLLATE "C" NOT NULL,
    id          TEXT COLLATE "C" NOT NULL,
    dialogue    TEXT COLLATE "C" NOT NULL,
    key         TEXT COLLATE "C",
    seq         BIGINT NOT NULL,
    outcome     TEXT COLLATE "C" NOT NULL,
    at          BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE UNIQUE INDEX rewinds_by_key ON rewinds (tenant, dialogue, key) WHERE key IS NOT NULL;
CREATE INDEX rewinds_of_dialogue ON rewinds (tenant, dialogue, seq);

CREATE TABLE traces (
    tenant      TEXT COLLATE "C" NOT NULL,
    turn        TEXT COLLATE "C" NOT NULL,
    body        TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, turn)
);

-- Facts -------------------------------------------------------------------------------------------

-- With room for what becomes of them: hardly anything that is indexed changes, and so no index does where the row stays on
-- its page.
CREATE TABLE facts (
    tenant      TEXT COLLATE "C" NOT NULL,
    id          TEXT COLLATE "C" NOT NULL,
    world       TEXT COLLATE "C" NOT NULL,
    -- The audience: its fingerprint for exact comparison, its knowers as JSON, its privacy.
    audience    TEXT COLLATE "C" NOT NULL,
    knowers     TEXT COLLATE "C" NOT NULL,
    private_to  TEXT COLLATE "C",
    -- The statement, as extracted or authored. Never changes.
    subject     TEXT COLLATE "C" NOT NULL,
    predicate   TEXT COLLATE "C" NOT NULL,
    object      TEXT COLLATE "C" NOT NULL,
    content     TEXT COLLATE "C" NOT NULL,
    keywords    TEXT COLLATE "C" NOT NULL,
    speaker     TEXT COLLATE "C" NOT NULL,
    kind        TEXT COLLATE "C" NOT NULL,
    importance  BIGINT NOT NULL,
    polarity    TEXT COLLATE "C" NOT NULL,
    tense       TEXT COLLATE "C" NOT NULL,
    pinned      BOOLEAN NOT NULL,
    -- When it was said, or by a person at any time.
    pinned_once BOOLEAN NOT NULL,
    pii         TEXT COLLATE "C" NOT NULL,
    authored    BOOLEAN NOT NULL,
    derived_from TEXT COLLATE "C" NOT NULL,
    valid_at    BIGINT NOT NULL,
    -- From when on the memory has it: what a person writes may have been true for long.
    written_at  BIGINT NOT NULL,
    expires_at  BIGINT,
    cause_kind  TEXT COLLATE "C" NOT NULL,
    cause_id    TEXT COLLATE "C" NOT NULL,
    source_dialogue TEXT COLLATE "C",
    source_turn BIGINT,
    -- Cached: the fold of the statement, the standing duplicates folded into it, and its edits.
    view_content TEXT COLLATE "C" NOT NULL,
    view_keywords TEXT COLLATE "C" NOT NULL,
    view_importance BIGINT NOT NULL,
    view_pinned BOOLEAN NOT NULL,
    -- Cached: the earliest standing invalidation.
    invalid_at  BIGINT,
    invalid_reason TEXT COLLATE "C",
    invalid_by  TEXT COLLATE "C",
    version     BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
) WITH (fillfactor = 85);
CREATE INDEX facts_by_cause ON facts (tenant, cause_id);
CREATE INDEX facts_in_order ON facts (tenant, world, audience, valid_at);
CREATE INDEX facts_pinned_once ON facts (tenant, world, audience, subject) WHERE pinned_once = TRUE;

-- Who knows a fact: one row per search partition. Carries what recall asks of a fact, so that
-- confirming a candidate and ranking the standing ones reads one narrow row and no body.
CREATE TABLE fact_knowers (
    tenant      TEXT COLLATE "C" NOT NULL,
    fact        TEXT COLLATE "C" NOT NULL,
    knower      TEXT COLLATE "C" NOT NULL,
    world       TEXT COLLATE "C" NOT NULL,
    -- '' when private to nobody.
    private_to  TEXT COLLATE "C" NOT NULL,
    valid_at    BIGINT NOT NULL,
    -- 1: a kind that describes how things stand now.
    mutable     BOOLEAN NOT NULL,
    -- Cached from the fact: its view, the earlier of invalid_at and expires_at, its version.
    pinned      BOOLEAN NOT NULL,
    importance  BIGINT NOT NULL,
    ends_at     BIGINT,
    version     BIGINT NOT NULL,
    PRIMARY KEY (tenant, fact, knower)
);
CREATE INDEX knowers_newest ON fact_knowers (tenant, world, knower, valid_at, fact);
-- The same by whom it is private to: what is looked through for words while the index is away.
CREATE INDEX knowers_by_reader ON fact_knowers (tenant, world, knower, private_to, valid_at, fact);
CREATE INDEX knowers_pinned ON fact_knowers
    (tenant, world, knower, private_to, importance DESC, valid_at DESC, fact)
    WHERE pinned AND ends_at IS NULL;
CREATE INDEX knowers_mutable ON fact_knowers
    (tenant, world, knower, private_to, importance DESC, valid_at DESC, fact)
    WHERE mutable AND ends_at IS NULL;
-- Those of both classes that end, for what still stands until then.
CREATE INDEX knowers_ending ON fact_knowers (tenant, world, knower, private_to, ends_at)
    WHERE ends_at IS NOT NULL AND (pinned OR mutable);

-- Unit vectors of the facts' embedded texts, little-endian f32. Reindexing reads these and never
-- asks the embedder again.
CREATE TABLE fact_embeddings (
    tenant      TEXT COLLATE "C" NOT NULL,
    fact        TEXT COLLATE "C" NOT NULL,
    model       TEXT COLLATE "C" NOT NULL,
    vector      BYTEA NOT NULL,
    PRIMARY KEY (tenant, fact)
);

-- The reverse of facts.derived_from: what to look at again when a premise falls.
CREATE TABLE fact_links (
    tenant      TEXT COLLATE "C" NOT NULL,
    premise     TEXT COLLATE "C" NOT NULL,
    fact        TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, premise, fact)
);

-- Why a fact is not valid; many per fact. It is valid when none of them stands.
CREATE TABLE invalidations (
    tenant      TEXT COLLATE "C" NOT NULL,
    id          TEXT COLLATE "C" NOT NULL,
    fact        TEXT COLLATE "C" NOT NULL,
    reason      TEXT COLLATE "C" NOT NULL,
    by_fact     TEXT COLLATE "C",
    cause_kind  TEXT COLLATE "C" NOT NULL,
    cause_id    TEXT COLLATE "C" NOT NULL,
    at          BIGINT NOT NULL,
    lifted_at   BIGINT,
    lifted_by_kind TEXT COLLATE "C",
    lifted_by_id TEXT COLLATE "C",
    PRIMARY KEY (tenant, id)
);
CREATE INDEX invalidations_of_fact ON invalidations (tenant, fact);
CREATE INDEX invalidations_by_fact ON invalidations (tenant, by_fact) WHERE by_fact IS NOT NULL;
CREATE INDEX invalidations_by_cause ON invalidations (tenant, cause_id);
CREATE INDEX invalidations_by_hand ON invalidations (tenant, at) WHERE cause_kind = 'edit';

-- Corrections by people. They live while their fact lives.
CREATE TABLE fact_edits (
    tenant      TEXT COLLATE "C" NOT NULL,
    fact        TEXT COLLATE "C" NOT NULL,
    edit        TEXT COLLATE "C" NOT NULL,
    at          BIGINT NOT NULL,
    patch       TEXT COLLATE "C" NOT NULL,
    -- The vector of the wording before this edit, and its model, where the edit changed it.
    vector_before BYTEA,
    model_before TEXT COLLATE "C",
    PRIMARY KEY (tenant, fact, edit)
);
CREATE INDEX fact_edits_in_order ON fact_edits (tenant, at);

-- Protected facts that something contradicts, for a person to look at.
CREATE TABLE fact_flags (
    tenant      TEXT COLLATE "C" NOT NULL,
    fact        TEXT COLLATE "C" NOT NULL,
    by_fact     TEXT COLLATE "C" NOT NULL,
    cause_kind  TEXT COLLATE "C" NOT NULL,
    cause_id    TEXT COLLATE "C" NOT NULL,
    at          BIGINT NOT NULL,
    lifted_at   BIGINT,
    lifted_by   TEXT COLLATE "C",
    PRIMARY KEY (tenant, fact, by_fact)
);
CREATE INDEX fact_flags_by_cause ON fact_flags (tenant, cause_id);

-- Judged pairs by content hash: the same question is never asked twice.
CREATE TABLE verdicts (
    tenant      TEXT COLLATE "C" NOT NULL,
    -- SHA-256, hexadecimal.
    pair        TEXT COLLATE "C" NOT NULL,
    verdict     TEXT COLLATE "C" NOT NULL,
    model       TEXT COLLATE "C" NOT NULL,
    at          BIGINT NOT NULL,
    PRIMARY KEY (tenant, pair)
);

CREATE INDEX verdicts_by_age ON verdicts (tenant, at);

-- What the extraction of a turn brought beside facts. With it, a memory can be reconciled again in
-- the order in which things were said, without asking the model once more.
CREATE TABLE extractions (
    tenant      TEXT COLLATE "C" NOT NULL,
    turn        TEXT COLLATE "C" NOT NULL,
    dialogue    TEXT COLLATE "C" NOT NULL,
    number      BIGINT NOT NULL,
    world       TEXT COLLATE "C" NOT NULL,
    -- Who replied, and whose prompt it was.
    npc         TEXT COLLATE "C" NOT NULL,
    audience    TEXT COLLATE "C" NOT NULL,
    knowers     TEXT COLLATE "C" NOT NULL,
    private_to  TEXT COLLATE "C",
    said_at     BIGINT NOT NULL,
    player      TEXT COLLATE "C",
    -- What the player asked to forget, in words.
    forget      TEXT COLLATE "C" NOT NULL,
    -- Facts that were in the turn's prompt, but for what one NPC told others from its own memory.
    injected    TEXT COLLATE "C" NOT NULL,
    -- All that were.
    quoted      TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, turn)
);
CREATE INDEX extractions_in_order ON extractions (tenant, world, audience, said_at);
CREATE INDEX extractions_of_world ON extractions (tenant, world, said_at);
CREATE INDEX extractions_of_npc ON extractions (tenant, world, npc, said_at);

-- Memories from which something was unsaid: what was said in them since then is to be reconciled again.
CREATE TABLE unsettled (
    tenant      TEXT COLLATE "C" NOT NULL,
    world       TEXT COLLATE "C" NOT NULL,
    audience    TEXT COLLATE "C" NOT NULL,
    knowers     TEXT COLLATE "C" NOT NULL,
    private_to  TEXT COLLATE "C",
    since       BIGINT NOT NULL,
    -- Rises with every mark, so that one that comes while another is being settled is not lost.
    mark        BIGINT NOT NULL,
    PRIMARY KEY (tenant, world, audience)
);

-- Facts that changed; what they are now is read when the row is handled.
CREATE TABLE outbox (
    seq         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant      TEXT COLLATE "C" NOT NULL,
    fact        TEXT COLLATE "C" NOT NULL,
    -- When it was written, by the database's clock: how far the index lags behind.
    at          BIGINT NOT NULL DEFAULT (EXTRACT(EPOCH FROM statement_timestamp()) * 1000000)::BIGINT
);

-- Summaries, state, jobs --------------------------------------------------------------------------

CREATE TABLE summaries (
    tenant      TEXT COLLATE "C" NOT NULL,
    id          TEXT COLLATE "C" NOT NULL,
    dialogue    TEXT COLLATE "C" NOT NULL,
    from_turn   BIGINT NOT NULL,
    to_turn     BIGINT NOT NULL,
    text        TEXT COLLATE "C" NOT NULL,
    importance  BIGINT NOT NULL,
    cause_kind  TEXT COLLATE "C" NOT NULL,
    cause_id    TEXT COLLATE "C" NOT NULL,
    created_at  BIGINT NOT NULL,
    lifted_at   BIGINT,
    lifted_by   TEXT COLLATE "C",
    PRIMARY KEY (tenant, id)
);
CREATE INDEX summaries_of_dialogue ON summaries (tenant, dialogue, from_turn);
CREATE INDEX summaries_by_cause ON summaries (tenant, cause_id);

-- What the landing of a later summary did to this one: `fade` lowers its importance by 1, `evict`
-- takes it out of the kept ones. Both count while their cause stands.
CREATE TABLE summary_changes (
    tenant      TEXT COLLATE "C" NOT NULL,
    summary     TEXT COLLATE "C" NOT NULL,
    change      TEXT COLLATE "C" NOT NULL,
    by_summary  TEXT COLLATE "C" NOT NULL,
    cause_kind  TEXT COLLATE "C" NOT NULL,
    cause_id    TEXT COLLATE "C" NOT NULL,
    at          BIGINT NOT NULL,
    lifted_at   BIGINT,
    lifted_by   TEXT COLLATE "C",
    PRIMARY KEY (tenant, summary, change, by_summary)
);
CREATE INDEX summary_changes_by_cause ON summary_changes (tenant, cause_id);

CREATE TABLE state_events (
    seq         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant      TEXT COLLATE "C" NOT NULL,
    id          TEXT COLLATE "C" NOT NULL,
    world       TEXT COLLATE "C" NOT NULL,
    dialogue    TEXT COLLATE "C",
    change      TEXT COLLATE "C" NOT NULL,
    cause_kind  TEXT COLLATE "C" NOT NULL,
    cause_id    TEXT COLLATE "C" NOT NULL,
    at          BIGINT NOT NULL,
    lifted_at   BIGINT,
    lifted_by   TEXT COLLATE "C"
);
CREATE INDEX state_events_since ON state_events (tenant, world, seq) WHERE lifted_at IS NULL;
CREATE INDEX state_events_by_cause ON state_events (tenant, cause_id);

CREATE TABLE jobs (
    tenant      TEXT COLLATE "C" NOT NULL,
    id          TEXT COLLATE "C" NOT NULL,
    kind        TEXT COLLATE "C" NOT NULL,
    -- Unset for jobs of a whole tenant, such as consolidation.
    dialogue    TEXT COLLATE "C",
    turn        TEXT COLLATE "C",
    text_version BIGINT NOT NULL,
    -- pending | done | dead
    status      TEXT COLLATE "C" NOT NULL,
    attempts    BIGINT NOT NULL DEFAULT 0,
    -- Of these, those whose model answered and the answer was of no use.
    useless     BIGINT NOT NULL DEFAULT 0,
    due_at      BIGINT NOT NULL,
    leased_to   TEXT COLLATE "C",
    leased_until BIGINT,
    last_error  TEXT COLLATE "C",
    -- What the model answered an attempt that ran out of time; gone when the job is done.
    answer      TEXT COLLATE "C",
    created_at  BIGINT NOT NULL,
    -- When a person had it tried again after it was given up, or its turn stood again.
    retried_at  BIGINT,
    finished_at BIGINT,
    PRIMARY KEY (tenant, id)
);
-- A turn whose text was cut is extracted again: its text version is part of the identity.
CREATE UNIQUE INDEX jobs_once ON jobs (tenant, dialogue, turn, kind, text_version);
CREATE INDEX jobs_due ON jobs (tenant, due_at) WHERE status = 'pending';
CREATE INDEX jobs_open ON jobs (tenant, dialogue) WHERE status = 'pending';
CREATE INDEX jobs_dead ON jobs (tenant, id) WHERE status = 'dead';

-- The curator's notes of a dialogue: a new row per edit, each with its cause; the newest that
-- stands counts.
CREATE TABLE narrative_memory (
    seq         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant      TEXT COLLATE "C" NOT NULL,
    world       TEXT COLLATE "C" NOT NULL,
    dialogue    TEXT COLLATE "C" NOT NULL,
    text        TEXT COLLATE "C" NOT NULL,
    cause_kind  TEXT COLLATE "C" NOT NULL,
    cause_id    TEXT COLLATE "C" NOT NULL,
    at          BIGINT NOT NULL,
    lifted_at   BIGINT,
    lifted_by   TEXT COLLATE "C"
);
CREATE INDEX narrative_memory_of_dialogue ON narrative_memory (tenant, dialogue, seq);
CREATE INDEX narrative_memory_by_cause ON narrative_memory (tenant, cause_id);

CREATE TABLE curation_findings (
    tenant      TEXT COLLATE "C" NOT NULL,
    id          TEXT COLLATE "C" NOT NULL,
    world       TEXT COLLATE "C" NOT NULL,
    dialogue    TEXT COLLATE "C",
    kind        TEXT COLLATE "C" NOT NULL,
    body        TEXT COLLATE "C" NOT NULL,
    -- open | intended | fixed
    decision    TEXT COLLATE "C" NOT NULL,
    cause_kind  TEXT COLLATE "C" NOT NULL,
    cause_id    TEXT COLLATE "C" NOT NULL,
    at          BIGINT NOT NULL,
    lifted_at   BIGINT,
    lifted_by   TEXT COLLATE "C",
    PRIMARY KEY (tenant, id)
);
CREATE INDEX curation_findings_of_world ON curation_findings (tenant, world, at);
CREATE INDEX curation_findings_by_cause ON curation_findings (tenant, cause_id);

-- Saves and governance ----------------------------------------------------------------------------

CREATE TABLE saves (
    tenant      TEXT COLLATE "C" NOT NULL,
    id          TEXT COLLATE "C" NOT NULL,
    world       TEXT COLLATE "C" NOT NULL,
    name        TEXT COLLATE "C" NOT NULL,
    -- How many it has.
    dialogues   BIGINT NOT NULL,
    cause_kind  TEXT COLLATE "C" NOT NULL,
    cause_id    TEXT COLLATE "C" NOT NULL,
    created_at  BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX saves_newest ON saves (tenant, world, created_at, id);

-- Every dialogue of the world at that moment. Rows go with their save.
CREATE TABLE save_items (
    tenant      TEXT COLLATE "C" NOT NULL,
    save        TEXT COLLATE "C" NOT NULL,
    dialogue    TEXT COLLATE "C" NOT NULL,
    -- The head, which pins its branch. Unset: the dialogue had no turn yet.
    turn        TEXT COLLATE "C",
    status      TEXT COLLATE "C" NOT NULL,
    -- JSON: whether its NPCs waited to be told to go on.
    paused      TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, save, dialogue)
);
CREATE INDEX save_items_of_dialogue ON save_items (tenant, dialogue, turn);

-- Each time a save was loaded, for those who ask again.
CREATE TABLE restores (
    tenant      TEXT COLLATE "C" NOT NULL,
    id          TEXT COLLATE "C" NOT NULL,
    world       TEXT COLLATE "C" NOT NULL,
    save        TEXT COLLATE "C" NOT NULL,
    key         TEXT COLLATE "C",
    outcome     TEXT COLLATE "C" NOT NULL,
    at          BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE UNIQUE INDEX restores_by_key ON restores (tenant, world, key) WHERE key IS NOT NULL;

CREATE TABLE erasures (
    tenant      TEXT COLLATE "C" NOT NULL,
    id          TEXT COLLATE "C" NOT NULL,
    -- A hash: the receipt must not keep what it erased.
    player_hash BYTEA NOT NULL,
    status      TEXT COLLATE "C" NOT NULL,
    receipt     TEXT COLLATE "C" NOT NULL,
    requested_at BIGINT NOT NULL,
    finished_at BIGINT,
    PRIMARY KEY (tenant, id)
);

-- Who changed what. Holds ids, never texts, so that erasure need not touch it.
CREATE TABLE audit (
    seq         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant      TEXT COLLATE "C" NOT NULL,
    id          TEXT COLLATE "C" NOT NULL,
    edit        TEXT COLLATE "C" NOT NULL,
    at          BIGINT NOT NULL,
    subject     TEXT COLLATE "C" NOT NULL,
    role        TEXT COLLATE "C" NOT NULL,
    player      TEXT COLLATE "C",
    action      TEXT COLLATE "C" NOT NULL,
    object      TEXT COLLATE "C" NOT NULL
);
CREATE UNIQUE INDEX audit_by_id ON audit (tenant, id);
CREATE INDEX audit_newest ON audit (tenant, seq);
CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is append-only';
END $$;
CREATE TRIGGER audit_keeps_rows BEFORE DELETE OR TRUNCATE ON audit EXECUTE FUNCTION audit_is_append_only();
CREATE TRIGGER audit_keeps_values BEFORE UPDATE ON audit EXECUTE FUNCTION audit_is_append_only();

CREATE TABLE idempotency (
    tenant      TEXT COLLATE "C" NOT NULL,
    key         TEXT COLLATE "C" NOT NULL,
    fingerprint BYTEA NOT NULL,
    reserved_at BIGINT NOT NULL,
    status      BIGINT,
    body        TEXT COLLATE "C",
    PRIMARY KEY (tenant, key)
);
CREATE INDEX idempotency_age ON idempotency (reserved_at);

CREATE TABLE model_usage (
    tenant      TEXT COLLATE "C" NOT NULL,
    -- YYYY-MM-DD
    day         TEXT COLLATE "C" NOT NULL,
    task        TEXT COLLATE "C" NOT NULL,
    model       TEXT COLLATE "C" NOT NULL,
    calls       BIGINT NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    cached_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    PRIMARY KEY (tenant, day, task, model)
);

-- Nodes -------------------------------------------------------------------------------------------
--
-- The processes of a server that is several: no tenant's.

CREATE TABLE nodes (
    id          TEXT COLLATE "C" PRIMARY KEY,
    url         TEXT COLLATE "C" NOT NULL,
    -- Dead from then on, unless it says before that it lives.
    until       BIGINT NOT NULL,
    -- It stopped in good order, or another is where it was: that it is dead needs no more proof than that.
    has_left    BOOLEAN NOT NULL,
    -- Others have taken up what it left behind.
    buried      BOOLEAN NOT NULL
);

-- Row-level security ------------------------------------------------------------------------------
--
-- Every statement names its tenant. This keeps tenants apart once more: a connection sees and writes
-- the rows of the tenant that `colloquy.tenant` is set to, all of them where it is '*' (the server's own
-- work), and none where it is not set. It binds the owner of the tables too, but no superuser.

DO $$
DECLARE
    it record;
BEGIN
    FOR it IN
        SELECT c.relname AS name, CASE c.relname WHEN 'tenants' THEN 'id' ELSE 'tenant' END AS key
        FROM pg_class c
        WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace AND c.relname NOT IN ('_sqlx_migrations', 'nodes')
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', it.name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', it.name);
        EXECUTE format(
            'CREATE POLICY of_its_tenant ON %I USING (%I = (SELECT current_setting(''colloquy.tenant'', true))
                OR (SELECT current_setting(''colloquy.tenant'', true)) = ''*'')', it.name, it.key);
    END LOOP;
END $$;

-- Counting and vacuuming --------------------------------------------------------------------------
--
-- After either of a table, every connection plans anew whatever reads or writes it, which takes longer than
-- the statements. What has been counted once is looked up by its keys from then on, so a table is counted again when half
-- of it has changed, not a tenth, and one that only grows is vacuumed when it is twice as large, not by a fifth. Counting
-- comes first: a vacuum makes the table known to be larger, but not what changed since it was counted less; for the same
-- reason half, and not more: a table that is vacuumed all the time as it grows would never be due. Dead rows are
-- cleared away as usual.

DO $$
DECLARE
    it record;
BEGIN
    FOR it IN
        SELECT c.relname AS name FROM pg_class c
        WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace AND c.relname <> '_sqlx_migrations'
    LOOP
        EXECUTE format('ALTER TABLE %I SET (autovacuum_analyze_scale_factor = 0.5, autovacuum_vacuum_insert_scale_factor = 1)', it.name);
    END LOOP;
END $$;
