-- The ledger, complete.
--
-- Conventions: ids are TEXT, moments are INTEGER microseconds since 1970 (UTC), lists and free
-- forms are JSON TEXT. Every row belongs to a tenant, and the tenant leads every key.
--
-- Every derived row names its cause (cause_kind: turn | edit | event | job, and cause_id), so that
-- any turn can be unsaid: rows keep what was written and never change; what undoes them is a row,
-- or a `lifted_at`, with a cause of its own. Columns marked "cached" are folds over such rows and
-- are computed anew in the transaction that changes the rows.
--
-- WITHOUT ROWID only where rows are narrow and always found by their key: given a second index, the
-- planner would rather walk such a table by `tenant` alone.
--
-- No foreign keys: parents are checked where they matter, and most ids arrive from rows already read.

-- People ------------------------------------------------------------------------------------------

CREATE TABLE tenants (
    id          TEXT NOT NULL PRIMARY KEY,
    name        TEXT NOT NULL,
    enabled     INTEGER NOT NULL,
    settings    TEXT NOT NULL DEFAULT '{}',
    created_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE worlds (
    tenant      TEXT NOT NULL,
    id          TEXT NOT NULL,
    name        TEXT NOT NULL,
    premise     TEXT NOT NULL,
    language    TEXT NOT NULL,
    rules       TEXT NOT NULL,
    settings    TEXT NOT NULL,
    version     INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    -- Rises when a change of its state is taken back or stands again: a fold of it begins anew.
    state_generation INTEGER NOT NULL DEFAULT 0,
    deleted_at  INTEGER,
    PRIMARY KEY (tenant, id)
) STRICT;

CREATE TABLE npcs (
    tenant      TEXT NOT NULL,
    world       TEXT NOT NULL,
    id          TEXT NOT NULL,
    name        TEXT NOT NULL,
    persona     TEXT NOT NULL,
    language    TEXT NOT NULL,
    factions    TEXT NOT NULL,
    model       TEXT,
    settings    TEXT NOT NULL DEFAULT '{}',
    version     INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    deleted_at  INTEGER,
    PRIMARY KEY (tenant, world, id)
) STRICT;

-- The row that reconciling locks: rises with every write to what this NPC remembers. Apart from
-- `npcs`, so that an edit of a persona and a write to memory never wait for each other.
CREATE TABLE npc_memories (
    tenant      TEXT NOT NULL,
    world       TEXT NOT NULL,
    npc         TEXT NOT NULL,
    memory_seq  INTEGER NOT NULL,
    PRIMARY KEY (tenant, world, npc)
) STRICT, WITHOUT ROWID;

-- What an NPC remembers of its own past. How far a player has come is no row of its own: see state_events.
CREATE TABLE scenarios (
    tenant      TEXT NOT NULL,
    world       TEXT NOT NULL,
    npc         TEXT NOT NULL,
    id          TEXT NOT NULL,
    title       TEXT NOT NULL,
    content     TEXT NOT NULL,
    keywords    TEXT NOT NULL,
    synonyms    TEXT NOT NULL,
    required_progress INTEGER NOT NULL,
    embedding_model TEXT NOT NULL,
    embedding   BLOB NOT NULL,
    version     INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    deleted_at  INTEGER,
    PRIMARY KEY (tenant, world, npc, id)
) STRICT;

CREATE TABLE lore (
    tenant      TEXT NOT NULL,
    world       TEXT NOT NULL,
    id          TEXT NOT NULL,
    name        TEXT NOT NULL,
    aliases     TEXT NOT NULL,
    keywords    TEXT NOT NULL,
    content     TEXT NOT NULL,
    layer       TEXT NOT NULL,
    links       TEXT NOT NULL,
    options     TEXT NOT NULL DEFAULT '{}',
    embedding_model TEXT,
    embedding   BLOB,
    version     INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    deleted_at  INTEGER,
    PRIMARY KEY (tenant, world, id)
) STRICT;

CREATE TABLE directives (
    tenant      TEXT NOT NULL,
    world       TEXT NOT NULL,
    id          TEXT NOT NULL,
    name        TEXT NOT NULL,
    patterns    TEXT NOT NULL,
    text        TEXT NOT NULL,
    version     INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    deleted_at  INTEGER,
    PRIMARY KEY (tenant, world, id)
) STRICT;

-- Dialogues ---------------------------------------------------------------------------------------

CREATE TABLE dialogues (
    tenant      TEXT NOT NULL,
    id          TEXT NOT NULL,
    world       TEXT NOT NULL,
    npcs        TEXT NOT NULL,
    witnesses   TEXT NOT NULL,
    player      TEXT,
    resume_token_hash BLOB NOT NULL,
    status      TEXT NOT NULL,
    -- Topic, pace and the like: what it was opened with and keeps.
    options     TEXT NOT NULL DEFAULT '{}',
    -- What opened it, where that was a turn of another dialogue (a player who joined) or an event.
    cause_kind  TEXT,
    cause_id    TEXT,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    -- One writer at a time: commits are conditional on the epoch.
    owner_node  TEXT,
    owner_epoch INTEGER NOT NULL DEFAULT 0,
    owner_until INTEGER,
    next_seq    INTEGER NOT NULL DEFAULT 1,
    head_turn   INTEGER NOT NULL DEFAULT 0,
    head_turn_id TEXT,
    -- The turn that went only to be said anew, until another is committed or the head moves again.
    replacing   TEXT,
    PRIMARY KEY (tenant, id)
) STRICT;
CREATE INDEX dialogues_replacing ON dialogues (tenant) WHERE replacing IS NOT NULL;
CREATE INDEX dialogues_newest ON dialogues (tenant, created_at, id);
CREATE INDEX dialogues_of_player ON dialogues (tenant, player, created_at, id) WHERE player IS NOT NULL;
CREATE INDEX dialogues_of_world ON dialogues (tenant, world, created_at, id);
CREATE INDEX dialogues_owned ON dialogues (owner_node) WHERE owner_node IS NOT NULL;
CREATE INDEX dialogues_by_cause ON dialogues (tenant, cause_id) WHERE cause_id IS NOT NULL;

CREATE TABLE participants (
    tenant      TEXT NOT NULL,
    world       TEXT NOT NULL,
    npc         TEXT NOT NULL,
    -- speaker | witness
    part        TEXT NOT NULL,
    dialogue    TEXT NOT NULL,
    PRIMARY KEY (tenant, world, npc, part, dialogue)
) STRICT, WITHOUT ROWID;

CREATE TABLE turns (
    tenant      TEXT NOT NULL,
    id          TEXT NOT NULL,
    dialogue    TEXT NOT NULL,
    number      INTEGER NOT NULL,
    -- The turn it followed: what stood when it was said is the chain of these, whatever was unsaid since.
    previous    TEXT,
    -- 1 while it stands. A turn that does not names what unsaid it, and keeps its key and its id for ever;
    -- one without `unsaid_at` is an empty shell, since what it said is not kept any longer.
    stands      INTEGER NOT NULL DEFAULT 1,
    unsaid_at   INTEGER,
    unsaid_by   TEXT,
    -- The turn in whose place it stands, which said more than was heard. It has the same number,
    -- the same line and the same key.
    replaces    TEXT,
    -- What a cut reply would have said, sealed until then.
    uncut_reply_text TEXT,
    uncut_until INTEGER,
    text_version INTEGER NOT NULL,
    key         TEXT,
    status      TEXT NOT NULL,
    player      TEXT,
    player_text TEXT NOT NULL,
    npc         TEXT NOT NULL,
    reply_text  TEXT NOT NULL,
    cues        TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    started_at  INTEGER NOT NULL,
    committed_at INTEGER NOT NULL,
    seq_started INTEGER NOT NULL,
    seq_done    INTEGER NOT NULL,
    seq_committed INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT;
CREATE UNIQUE INDEX turns_standing ON turns (tenant, dialogue, number) WHERE stands = TRUE;
CREATE INDEX turns_by_key ON turns (tenant, dialogue, key) WHERE key IS NOT NULL;
CREATE INDEX turns_sealed ON turns (tenant, uncut_until) WHERE uncut_until IS NOT NULL;
CREATE INDEX turns_unsaid ON turns (tenant, unsaid_by) WHERE unsaid_by IS NOT NULL;
CREATE INDEX turns_unsaid_at ON turns (tenant, unsaid_at) WHERE stands = FALSE;

CREATE TABLE checkpoints (
    tenant      TEXT NOT NULL,
    turn        TEXT NOT NULL,
    body        TEXT NOT NULL,
    PRIMARY KEY (tenant, turn)
) STRICT, WITHOUT ROWID;

-- Each time a dialogue's head was moved: the event its listeners heard, for those who were away.
CREATE TABLE rewinds (
    tenant      TEXT NOT NULL,
    id          TEXT NOT NULL,
    dialogue    TEXT NOT NULL,
    key         TEXT,
    seq         INTEGER NOT NULL,
    outcome     TEXT NOT NULL,
    at          INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT;
CREATE UNIQUE INDEX rewinds_by_key ON rewinds (tenant, dialogue, key) WHERE key IS NOT NULL;
CREATE INDEX rewinds_of_dialogue ON rewinds (tenant, dialogue, seq);

CREATE TABLE traces (
    tenant      TEXT NOT NULL,
    turn        TEXT NOT NULL,
    body        TEXT NOT NULL,
    PRIMARY KEY (tenant, turn)
) STRICT;

-- Facts -------------------------------------------------------------------------------------------

CREATE TABLE facts (
    tenant      TEXT NOT NULL,
    id          TEXT NOT NULL,
    world       TEXT NOT NULL,
    -- The audience: its fingerprint for exact comparison, its knowers as JSON, its privacy.
    audience    TEXT NOT NULL,
    knowers     TEXT NOT NULL,
    private_to  TEXT,
    -- The statement, as extracted or authored. Never changes.
    subject     TEXT NOT NULL,
    predicate   TEXT NOT NULL,
    object      TEXT NOT NULL,
    content     TEXT NOT NULL,
    keywords    TEXT NOT NULL,
    speaker     TEXT NOT NULL,
    kind        TEXT NOT NULL,
    importance  INTEGER NOT NULL,
    polarity    TEXT NOT NULL,
    tense       TEXT NOT NULL,
    pinned      INTEGER NOT NULL,
    -- When it was said, or by a person at any time.
    pinned_once INTEGER NOT NULL,
    pii         TEXT NOT NULL,
    authored    INTEGER NOT NULL,
    derived_from TEXT NOT NULL,
    valid_at    INTEGER NOT NULL,
    -- From when on the memory has it: what a person writes may have been true for long.
    written_at  INTEGER NOT NULL,
    expires_at  INTEGER,
    cause_kind  TEXT NOT NULL,
    cause_id    TEXT NOT NULL,
    source_dialogue TEXT,
    source_turn INTEGER,
    -- Cached: the fold of the statement, the standing duplicates folded into it, and its edits.
    view_content TEXT NOT NULL,
    view_keywords TEXT NOT NULL,
    view_importance INTEGER NOT NULL,
    view_pinned INTEGER NOT NULL,
    -- Cached: the earliest standing invalidation.
    invalid_at  INTEGER,
    invalid_reason TEXT,
    invalid_by  TEXT,
    version     INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT;
CREATE INDEX facts_by_cause ON facts (tenant, cause_id);
CREATE INDEX facts_in_order ON facts (tenant, world, audience, valid_at);
CREATE INDEX facts_pinned_once ON facts (tenant, world, audience, subject) WHERE pinned_once = TRUE;

-- Who knows a fact: one row per search partition. Carries what recall asks of a fact, so that
-- confirming a candidate and ranking the standing ones reads one narrow row and no body.
CREATE TABLE fact_knowers (
    tenant      TEXT NOT NULL,
    fact        TEXT NOT NULL,
    knower      TEXT NOT NULL,
    world       TEXT NOT NULL,
    -- '' when private to nobody.
    private_to  TEXT NOT NULL,
    valid_at    INTEGER NOT NULL,
    -- 1: a kind that describes how things stand now.
    mutable     INTEGER NOT NULL,
    -- Cached from the fact: its view, the earlier of invalid_at and expires_at, its version.
    pinned      INTEGER NOT NULL,
    importance  INTEGER NOT NULL,
    ends_at     INTEGER,
    version     INTEGER NOT NULL,
    PRIMARY KEY (tenant, fact, knower)
) STRICT, WITHOUT ROWID;
CREATE INDEX knowers_newest ON fact_knowers (tenant, world, knower, valid_at, fact);
-- The same by whom it is private to: what is looked through for words while the index is away.
CREATE INDEX knowers_by_reader ON fact_knowers (tenant, world, knower, private_to, valid_at, fact);
CREATE INDEX knowers_pinned ON fact_knowers
    (tenant, world, knower, private_to, importance DESC, valid_at DESC, fact)
    WHERE pinned = TRUE AND ends_at IS NULL;
CREATE INDEX knowers_mutable ON fact_knowers
    (tenant, world, knower, private_to, importance DESC, valid_at DESC, fact)
    WHERE mutable = TRUE AND ends_at IS NULL;
-- Those of both classes that end, for what still stands until then.
CREATE INDEX knowers_ending ON fact_knowers (tenant, world, knower, private_to, ends_at)
    WHERE ends_at IS NOT NULL AND (pinned = TRUE OR mutable = TRUE);

-- Unit vectors of the facts' embedded texts, little-endian f32. Reindexing reads these and never
-- asks the embedder again.
CREATE TABLE fact_embeddings (
    tenant      TEXT NOT NULL,
    fact        TEXT NOT NULL,
    model       TEXT NOT NULL,
    vector      BLOB NOT NULL,
    PRIMARY KEY (tenant, fact)
) STRICT;

-- The reverse of facts.derived_from: what to look at again when a premise falls.
CREATE TABLE fact_links (
    tenant      TEXT NOT NULL,
    premise     TEXT NOT NULL,
    fact        TEXT NOT NULL,
    PRIMARY KEY (tenant, premise, fact)
) STRICT, WITHOUT ROWID;

-- Why a fact is not valid; many per fact. It is valid when none of them stands.
CREATE TABLE invalidations (
    tenant      TEXT NOT NULL,
    id          TEXT NOT NULL,
    fact        TEXT NOT NULL,
    reason      TEXT NOT NULL,
    by_fact     TEXT,
    cause_kind  TEXT NOT NULL,
    cause_id    TEXT NOT NULL,
    at          INTEGER NOT NULL,
    lifted_at   INTEGER,
    lifted_by_kind TEXT,
    lifted_by_id TEXT,
    PRIMARY KEY (tenant, id)
) STRICT;
CREATE INDEX invalidations_of_fact ON invalidations (tenant, fact);
CREATE INDEX invalidations_by_fact ON invalidations (tenant, by_fact) WHERE by_fact IS NOT NULL;
CREATE INDEX invalidations_by_cause ON invalidations (tenant, cause_id);
CREATE INDEX invalidations_by_hand ON invalidations (tenant, at) WHERE cause_kind = 'edit';

-- Corrections by people. They live while their fact lives.
CREATE TABLE fact_edits (
    tenant      TEXT NOT NULL,
    fact        TEXT NOT NULL,
    edit        TEXT NOT NULL,
    at          INTEGER NOT NULL,
    patch       TEXT NOT NULL,
    -- The vector of the wording before this edit, and its model, where the edit changed it.
    vector_before BLOB,
    model_before TEXT,
    PRIMARY KEY (tenant, fact, edit)
) STRICT, WITHOUT ROWID;
CREATE INDEX fact_edits_in_order ON fact_edits (tenant, at);

-- Protected facts that something contradicts, for a person to look at.
CREATE TABLE fact_flags (
    tenant      TEXT NOT NULL,
    fact        TEXT NOT NULL,
    by_fact     TEXT NOT NULL,
    cause_kind  TEXT NOT NULL,
    cause_id    TEXT NOT NULL,
    at          INTEGER NOT NULL,
    lifted_at   INTEGER,
    lifted_by   TEXT,
    PRIMARY KEY (tenant, fact, by_fact)
) STRICT, WITHOUT ROWID;
CREATE INDEX fact_flags_by_cause ON fact_flags (tenant, cause_id);

-- Judged pairs by content hash: the same question is never asked twice.
CREATE TABLE verdicts (
    tenant      TEXT NOT NULL,
    -- SHA-256, hexadecimal.
    pair        TEXT NOT NULL,
    verdict     TEXT NOT NULL,
    model       TEXT NOT NULL,
    at          INTEGER NOT NULL,
    PRIMARY KEY (tenant, pair)
) STRICT, WITHOUT ROWID;

CREATE INDEX verdicts_by_age ON verdicts (tenant, at);

-- What the extraction of a turn brought beside facts. With it, a memory can be reconciled again in
-- the order in which things were said, without asking the model once more.
CREATE TABLE extractions (
    tenant      TEXT NOT NULL,
    turn        TEXT NOT NULL,
    dialogue    TEXT NOT NULL,
    number      INTEGER NOT NULL,
    world       TEXT NOT NULL,
    -- Who replied, and whose prompt it was.
    npc         TEXT NOT NULL,
    audience    TEXT NOT NULL,
    knowers     TEXT NOT NULL,
    private_to  TEXT,
    said_at     INTEGER NOT NULL,
    player      TEXT,
    -- What the player asked to forget, in words.
    forget      TEXT NOT NULL,
    -- Facts that were in the turn's prompt, but for what one NPC told others from its own memory.
    injected    TEXT NOT NULL,
    -- All that were.
    quoted      TEXT NOT NULL,
    PRIMARY KEY (tenant, turn)
) STRICT, WITHOUT ROWID;
CREATE INDEX extractions_in_order ON extractions (tenant, world, audience, said_at);
CREATE INDEX extractions_of_world ON extractions (tenant, world, said_at);
CREATE INDEX extractions_of_npc ON extractions (tenant, world, npc, said_at);

-- Memories from which something was unsaid: what was said in them since then is to be reconciled again.
CREATE TABLE unsettled (
    tenant      TEXT NOT NULL,
    world       TEXT NOT NULL,
    audience    TEXT NOT NULL,
    knowers     TEXT NOT NULL,
    private_to  TEXT,
    since       INTEGER NOT NULL,
    -- Rises with every mark, so that one that comes while another is being settled is not lost.
    mark        INTEGER NOT NULL,
    PRIMARY KEY (tenant, world, audience)
) STRICT, WITHOUT ROWID;

-- Facts that changed; what they are now is read when the row is handled.
CREATE TABLE outbox (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant      TEXT NOT NULL,
    fact        TEXT NOT NULL,
    -- When it was written, by the database's clock: how far the index lags behind.
    at          INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER))
) STRICT;

-- Summaries, state, jobs --------------------------------------------------------------------------

CREATE TABLE summaries (
    tenant      TEXT NOT NULL,
    id          TEXT NOT NULL,
    dialogue    TEXT NOT NULL,
    from_turn   INTEGER NOT NULL,
    to_turn     INTEGER NOT NULL,
    text        TEXT NOT NULL,
    importance  INTEGER NOT NULL,
    cause_kind  TEXT NOT NULL,
    cause_id    TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    lifted_at   INTEGER,
    lifted_by   TEXT,
    PRIMARY KEY (tenant, id)
) STRICT;
CREATE INDEX summaries_of_dialogue ON summaries (tenant, dialogue, from_turn);
CREATE INDEX summaries_by_cause ON summaries (tenant, cause_id);

-- What the landing of a later summary did to this one: `fade` lowers its importance by 1, `evict`
-- takes it out of the kept ones. Both count while their cause stands.
CREATE TABLE summary_changes (
    tenant      TEXT NOT NULL,
    summary     TEXT NOT NULL,
    change      TEXT NOT NULL,
    by_summary  TEXT NOT NULL,
    cause_kind  TEXT NOT NULL,
    cause_id    TEXT NOT NULL,
    at          INTEGER NOT NULL,
    lifted_at   INTEGER,
    lifted_by   TEXT,
    PRIMARY KEY (tenant, summary, change, by_summary)
) STRICT, WITHOUT ROWID;
CREATE INDEX summary_changes_by_cause ON summary_changes (tenant, cause_id);

CREATE TABLE state_events (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant      TEXT NOT NULL,
    id          TEXT NOT NULL,
    world       TEXT NOT NULL,
    dialogue    TEXT,
    change      TEXT NOT NULL,
    cause_kind  TEXT NOT NULL,
    cause_id    TEXT NOT NULL,
    at          INTEGER NOT NULL,
    lifted_at   INTEGER,
    lifted_by   TEXT
) STRICT;
CREATE INDEX state_events_since ON state_events (tenant, world, seq) WHERE lifted_at IS NULL;
CREATE INDEX state_events_by_cause ON state_events (tenant, cause_id);

CREATE TABLE jobs (
    tenant      TEXT NOT NULL,
    id          TEXT NOT NULL,
    kind        TEXT NOT NULL,
    -- Unset for jobs of a whole tenant, such as consolidation.
    dialogue    TEXT,
    turn        TEXT,
    text_version INTEGER NOT NULL,
    -- pending | done | dead
    status      TEXT NOT NULL,
    attempts    INTEGER NOT NULL DEFAULT 0,
    -- Of these, those whose model answered and the answer was of no use.
    useless     INTEGER NOT NULL DEFAULT 0,
    due_at      INTEGER NOT NULL,
    leased_to   TEXT,
    leased_until INTEGER,
    last_error  TEXT,
    -- What the model answered an attempt that ran out of time; gone when the job is done.
    answer      TEXT,
    created_at  INTEGER NOT NULL,
    -- When a person had it tried again after it was given up, or its turn stood again.
    retried_at  INTEGER,
    finished_at INTEGER,
    PRIMARY KEY (tenant, id)
) STRICT;
-- A turn whose text was cut is extracted again: its text version is part of the identity.
CREATE UNIQUE INDEX jobs_once ON jobs (tenant, dialogue, turn, kind, text_version);
CREATE INDEX jobs_due ON jobs (tenant, due_at) WHERE status = 'pending';
CREATE INDEX jobs_open ON jobs (tenant, dialogue) WHERE status = 'pending';
CREATE INDEX jobs_dead ON jobs (tenant, id) WHERE status = 'dead';

-- The curator's notes of a dialogue: a new row per edit, each with its cause; the newest that
-- stands counts.
CREATE TABLE narrative_memory (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant      TEXT NOT NULL,
    world       TEXT NOT NULL,
    dialogue    TEXT NOT NULL,
    text        TEXT NOT NULL,
    cause_kind  TEXT NOT NULL,
    cause_id    TEXT NOT NULL,
    at          INTEGER NOT NULL,
    lifted_at   INTEGER,
    lifted_by   TEXT
) STRICT;
CREATE INDEX narrative_memory_of_dialogue ON narrative_memory (tenant, dialogue, seq);
CREATE INDEX narrative_memory_by_cause ON narrative_memory (tenant, cause_id);

CREATE TABLE curation_findings (
    tenant      TEXT NOT NULL,
    id          TEXT NOT NULL,
    world       TEXT NOT NULL,
    dialogue    TEXT,
    kind        TEXT NOT NULL,
    body        TEXT NOT NULL,
    -- open | intended | fixed
    decision    TEXT NOT NULL,
    cause_kind  TEXT NOT NULL,
    cause_id    TEXT NOT NULL,
    at          INTEGER NOT NULL,
    lifted_at   INTEGER,
    lifted_by   TEXT,
    PRIMARY KEY (tenant, id)
) STRICT;
CREATE INDEX curation_findings_of_world ON curation_findings (tenant, world, at);
CREATE INDEX curation_findings_by_cause ON curation_findings (tenant, cause_id);

-- Saves and governance ----------------------------------------------------------------------------

CREATE TABLE saves (
    tenant      TEXT NOT NULL,
    id          TEXT NOT NULL,
    world       TEXT NOT NULL,
    name        TEXT NOT NULL,
    -- How many it has.
    dialogues   INTEGER NOT NULL,
    cause_kind  TEXT NOT NULL,
    cause_id    TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT;
CREATE INDEX saves_newest ON saves (tenant, world, created_at, id);

-- Every dialogue of the world at that moment. Rows go with their save.
CREATE TABLE save_items (
    tenant      TEXT NOT NULL,
    save        TEXT NOT NULL,
    dialogue    TEXT NOT NULL,
    -- The head, which pins its branch. Unset: the dialogue had no turn yet.
    turn        TEXT,
    status      TEXT NOT NULL,
    -- JSON: whether its NPCs waited to be told to go on.
    paused      TEXT NOT NULL,
    PRIMARY KEY (tenant, save, dialogue)
) STRICT;
CREATE INDEX save_items_of_dialogue ON save_items (tenant, dialogue, turn);

-- Each time a save was loaded, for those who ask again.
CREATE TABLE restores (
    tenant      TEXT NOT NULL,
    id          TEXT NOT NULL,
    world       TEXT NOT NULL,
    save        TEXT NOT NULL,
    key         TEXT,
    outcome     TEXT NOT NULL,
    at          INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT;
CREATE UNIQUE INDEX restores_by_key ON restores (tenant, world, key) WHERE key IS NOT NULL;

CREATE TABLE erasures (
    tenant      TEXT NOT NULL,
    id          TEXT NOT NULL,
    -- A hash: the receipt must not keep what it erased.
    player_hash BLOB NOT NULL,
    status      TEXT NOT NULL,
    receipt     TEXT NOT NULL,
    requested_at INTEGER NOT NULL,
    finished_at INTEGER,
    PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;

-- Who changed what. Holds ids, never texts, so that erasure need not touch it.
CREATE TABLE audit (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant      TEXT NOT NULL,
    id          TEXT NOT NULL,
    edit        TEXT NOT NULL,
    at          INTEGER NOT NULL,
    subject     TEXT NOT NULL,
    role        TEXT NOT NULL,
    player      TEXT,
    action      TEXT NOT NULL,
    object      TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX audit_by_id ON audit (tenant, id);
CREATE INDEX audit_newest ON audit (tenant, seq);
CREATE TRIGGER audit_keeps_rows BEFORE DELETE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only');
END;
CREATE TRIGGER audit_keeps_values BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only');
END;

CREATE TABLE idempotency (
    tenant      TEXT NOT NULL,
    key         TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    reserved_at INTEGER NOT NULL,
    status      INTEGER,
    body        TEXT,
    PRIMARY KEY (tenant, key)
) STRICT;
CREATE INDEX idempotency_age ON idempotency (reserved_at);

CREATE TABLE model_usage (
    tenant      TEXT NOT NULL,
    -- YYYY-MM-DD
    day         TEXT NOT NULL,
    task        TEXT NOT NULL,
    model       TEXT NOT NULL,
    calls       INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    PRIMARY KEY (tenant, day, task, model)
) STRICT, WITHOUT ROWID;

-- Nodes -------------------------------------------------------------------------------------------
--
-- The processes of a server that is several: no tenant's.

CREATE TABLE nodes (
    id          TEXT PRIMARY KEY NOT NULL,
    url         TEXT NOT NULL,
    -- Dead from then on, unless it says before that it lives.
    until       INTEGER NOT NULL,
    -- It stopped in good order, or another is where it was: that it is dead needs no more proof than that.
    has_left    INTEGER NOT NULL,
    -- Others have taken up what it left behind.
    buried      INTEGER NOT NULL
) STRICT;
