
SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

CREATE FUNCTION public.audit_is_append_only() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is append-only';
END $$;

SET default_tablespace = '';

SET default_table_access_method = heap;

CREATE TABLE public._sqlx_migrations (
    version bigint NOT NULL,
    description text NOT NULL,
    installed_on timestamp with time zone DEFAULT now() NOT NULL,
    success boolean NOT NULL,
    checksum bytea NOT NULL,
    execution_time bigint NOT NULL
);

CREATE TABLE public.audit (
    seq bigint NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    edit text NOT NULL COLLATE pg_catalog."C",
    at bigint NOT NULL,
    subject text NOT NULL COLLATE pg_catalog."C",
    role text NOT NULL COLLATE pg_catalog."C",
    player text COLLATE pg_catalog."C",
    action text NOT NULL COLLATE pg_catalog."C",
    object text NOT NULL COLLATE pg_catalog."C"
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.audit FORCE ROW LEVEL SECURITY;

ALTER TABLE public.audit ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.audit_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.checkpoints (
    tenant text NOT NULL COLLATE pg_catalog."C",
    turn text NOT NULL COLLATE pg_catalog."C",
    body text NOT NULL COLLATE pg_catalog."C"
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.checkpoints FORCE ROW LEVEL SECURITY;

CREATE TABLE public.curation_findings (
    tenant text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    world text NOT NULL COLLATE pg_catalog."C",
    dialogue text COLLATE pg_catalog."C",
    kind text NOT NULL COLLATE pg_catalog."C",
    body text NOT NULL COLLATE pg_catalog."C",
    decision text NOT NULL COLLATE pg_catalog."C",
    cause_kind text NOT NULL COLLATE pg_catalog."C",
    cause_id text NOT NULL COLLATE pg_catalog."C",
    at bigint NOT NULL,
    lifted_at bigint,
    lifted_by text COLLATE pg_catalog."C"
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.curation_findings FORCE ROW LEVEL SECURITY;

CREATE TABLE public.dialogues (
    tenant text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    world text NOT NULL COLLATE pg_catalog."C",
    npcs text NOT NULL COLLATE pg_catalog."C",
    witnesses text NOT NULL COLLATE pg_catalog."C",
    player text COLLATE pg_catalog."C",
    resume_token_hash bytea NOT NULL,
    status text NOT NULL COLLATE pg_catalog."C",
    options text DEFAULT '{}'::text NOT NULL COLLATE pg_catalog."C",
    cause_kind text COLLATE pg_catalog."C",
    cause_id text COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    owner_node text COLLATE pg_catalog."C",
    owner_epoch bigint DEFAULT 0 NOT NULL,
    owner_until bigint,
    next_seq bigint DEFAULT 1 NOT NULL,
    head_turn bigint DEFAULT 0 NOT NULL,
    head_turn_id text COLLATE pg_catalog."C",
    replacing text COLLATE pg_catalog."C"
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.dialogues FORCE ROW LEVEL SECURITY;

CREATE TABLE public.directives (
    tenant text NOT NULL COLLATE pg_catalog."C",
    world text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    patterns text NOT NULL COLLATE pg_catalog."C",
    text text NOT NULL COLLATE pg_catalog."C",
    version bigint NOT NULL,
    updated_at bigint NOT NULL,
    deleted_at bigint
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.directives FORCE ROW LEVEL SECURITY;

CREATE TABLE public.erasures (
    tenant text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    player_hash bytea NOT NULL,
    status text NOT NULL COLLATE pg_catalog."C",
    receipt text NOT NULL COLLATE pg_catalog."C",
    requested_at bigint NOT NULL,
    finished_at bigint
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.erasures FORCE ROW LEVEL SECURITY;

CREATE TABLE public.extractions (
    tenant text NOT NULL COLLATE pg_catalog."C",
    turn text NOT NULL COLLATE pg_catalog."C",
    dialogue text NOT NULL COLLATE pg_catalog."C",
    number bigint NOT NULL,
    world text NOT NULL COLLATE pg_catalog."C",
    npc text NOT NULL COLLATE pg_catalog."C",
    audience text NOT NULL COLLATE pg_catalog."C",
    knowers text NOT NULL COLLATE pg_catalog."C",
    private_to text COLLATE pg_catalog."C",
    said_at bigint NOT NULL,
    player text COLLATE pg_catalog."C",
    forget text NOT NULL COLLATE pg_catalog."C",
    injected text NOT NULL COLLATE pg_catalog."C",
    quoted text NOT NULL COLLATE pg_catalog."C"
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.extractions FORCE ROW LEVEL SECURITY;

CREATE TABLE public.fact_edits (
    tenant text NOT NULL COLLATE pg_catalog."C",
    fact text NOT NULL COLLATE pg_catalog."C",
    edit text NOT NULL COLLATE pg_catalog."C",
    at bigint NOT NULL,
    patch text NOT NULL COLLATE pg_catalog."C",
    vector_before bytea,
    model_before text COLLATE pg_catalog."C"
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.fact_edits FORCE ROW LEVEL SECURITY;

CREATE TABLE public.fact_embeddings (
    tenant text NOT NULL COLLATE pg_catalog."C",
    fact text NOT NULL COLLATE pg_catalog."C",
    model text NOT NULL COLLATE pg_catalog."C",
    vector bytea NOT NULL
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.fact_embeddings FORCE ROW LEVEL SECURITY;

CREATE TABLE public.fact_flags (
    tenant text NOT NULL COLLATE pg_catalog."C",
    fact text NOT NULL COLLATE pg_catalog."C",
    by_fact text NOT NULL COLLATE pg_catalog."C",
    cause_kind text NOT NULL COLLATE pg_catalog."C",
    cause_id text NOT NULL COLLATE pg_catalog."C",
    at bigint NOT NULL,
    lifted_at bigint,
    lifted_by text COLLATE pg_catalog."C"
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.fact_flags FORCE ROW LEVEL SECURITY;

CREATE TABLE public.fact_knowers (
    tenant text NOT NULL COLLATE pg_catalog."C",
    fact text NOT NULL COLLATE pg_catalog."C",
    knower text NOT NULL COLLATE pg_catalog."C",
    world text NOT NULL COLLATE pg_catalog."C",
    private_to text NOT NULL COLLATE pg_catalog."C",
    valid_at bigint NOT NULL,
    mutable boolean NOT NULL,
    pinned boolean NOT NULL,
    importance bigint NOT NULL,
    ends_at bigint,
    version bigint NOT NULL
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.fact_knowers FORCE ROW LEVEL SECURITY;

CREATE TABLE public.fact_links (
    tenant text NOT NULL COLLATE pg_catalog."C",
    premise text NOT NULL COLLATE pg_catalog."C",
    fact text NOT NULL COLLATE pg_catalog."C"
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.fact_links FORCE ROW LEVEL SECURITY;

CREATE TABLE public.facts (
    tenant text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    world text NOT NULL COLLATE pg_catalog."C",
    audience text NOT NULL COLLATE pg_catalog."C",
    knowers text NOT NULL COLLATE pg_catalog."C",
    private_to text COLLATE pg_catalog."C",
    subject text NOT NULL COLLATE pg_catalog."C",
    predicate text NOT NULL COLLATE pg_catalog."C",
    object text NOT NULL COLLATE pg_catalog."C",
    content text NOT NULL COLLATE pg_catalog."C",
    keywords text NOT NULL COLLATE pg_catalog."C",
    speaker text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL COLLATE pg_catalog."C",
    importance bigint NOT NULL,
    polarity text NOT NULL COLLATE pg_catalog."C",
    tense text NOT NULL COLLATE pg_catalog."C",
    pinned boolean NOT NULL,
    pinned_once boolean NOT NULL,
    pii text NOT NULL COLLATE pg_catalog."C",
    authored boolean NOT NULL,
    derived_from text NOT NULL COLLATE pg_catalog."C",
    valid_at bigint NOT NULL,
    written_at bigint NOT NULL,
    expires_at bigint,
    cause_kind text NOT NULL COLLATE pg_catalog."C",
    cause_id text NOT NULL COLLATE pg_catalog."C",
    source_dialogue text COLLATE pg_catalog."C",
    source_turn bigint,
    view_content text NOT NULL COLLATE pg_catalog."C",
    view_keywords text NOT NULL COLLATE pg_catalog."C",
    view_importance bigint NOT NULL,
    view_pinned boolean NOT NULL,
    invalid_at bigint,
    invalid_reason text COLLATE pg_catalog."C",
    invalid_by text COLLATE pg_catalog."C",
    version bigint NOT NULL
)
WITH (fillfactor='85', autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.facts FORCE ROW LEVEL SECURITY;

CREATE TABLE public.idempotency (
    tenant text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C",
    fingerprint bytea NOT NULL,
    reserved_at bigint NOT NULL,
    status bigint,
    body text COLLATE pg_catalog."C"
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.idempotency FORCE ROW LEVEL SECURITY;

CREATE TABLE public.invalidations (
    tenant text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    fact text NOT NULL COLLATE pg_catalog."C",
    reason text NOT NULL COLLATE pg_catalog."C",
    by_fact text COLLATE pg_catalog."C",
    cause_kind text NOT NULL COLLATE pg_catalog."C",
    cause_id text NOT NULL COLLATE pg_catalog."C",
    at bigint NOT NULL,
    lifted_at bigint,
    lifted_by_kind text COLLATE pg_catalog."C",
    lifted_by_id text COLLATE pg_catalog."C"
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.invalidations FORCE ROW LEVEL SECURITY;

CREATE TABLE public.jobs (
    tenant text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL COLLATE pg_catalog."C",
    dialogue text COLLATE pg_catalog."C",
    turn text COLLATE pg_catalog."C",
    text_version bigint NOT NULL,
    status text NOT NULL COLLATE pg_catalog."C",
    attempts bigint DEFAULT 0 NOT NULL,
    useless bigint DEFAULT 0 NOT NULL,
    due_at bigint NOT NULL,
    leased_to text COLLATE pg_catalog."C",
    leased_until bigint,
    last_error text COLLATE pg_catalog."C",
    answer text COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    retried_at bigint,
    finished_at bigint
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.jobs FORCE ROW LEVEL SECURITY;

CREATE TABLE public.lore (
    tenant text NOT NULL COLLATE pg_catalog."C",
    world text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    aliases text NOT NULL COLLATE pg_catalog."C",
    keywords text NOT NULL COLLATE pg_catalog."C",
    content text NOT NULL COLLATE pg_catalog."C",
    layer text NOT NULL COLLATE pg_catalog."C",
    links text NOT NULL COLLATE pg_catalog."C",
    options text DEFAULT '{}'::text NOT NULL COLLATE pg_catalog."C",
    embedding_model text COLLATE pg_catalog."C",
    embedding bytea,
    version bigint NOT NULL,
    updated_at bigint NOT NULL,
    deleted_at bigint
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.lore FORCE ROW LEVEL SECURITY;

CREATE TABLE public.model_usage (
    tenant text NOT NULL COLLATE pg_catalog."C",
    day text NOT NULL COLLATE pg_catalog."C",
    task text NOT NULL COLLATE pg_catalog."C",
    model text NOT NULL COLLATE pg_catalog."C",
    calls bigint NOT NULL,
    prompt_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    completion_tokens bigint NOT NULL
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.model_usage FORCE ROW LEVEL SECURITY;

CREATE TABLE public.narrative_memory (
    seq bigint NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    world text NOT NULL COLLATE pg_catalog."C",
    dialogue text NOT NULL COLLATE pg_catalog."C",
    text text NOT NULL COLLATE pg_catalog."C",
    cause_kind text NOT NULL COLLATE pg_catalog."C",
    cause_id text NOT NULL COLLATE pg_catalog."C",
    at bigint NOT NULL,
    lifted_at bigint,
    lifted_by text COLLATE pg_catalog."C"
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.narrative_memory FORCE ROW LEVEL SECURITY;

ALTER TABLE public.narrative_memory ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.narrative_memory_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.nodes (
    id text NOT NULL COLLATE pg_catalog."C",
    url text NOT NULL COLLATE pg_catalog."C",
    until bigint NOT NULL,
    has_left boolean NOT NULL,
    buried boolean NOT NULL
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

CREATE TABLE public.npc_memories (
    tenant text NOT NULL COLLATE pg_catalog."C",
    world text NOT NULL COLLATE pg_catalog."C",
    npc text NOT NULL COLLATE pg_catalog."C",
    memory_seq bigint NOT NULL
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.npc_memories FORCE ROW LEVEL SECURITY;

CREATE TABLE public.npcs (
    tenant text NOT NULL COLLATE pg_catalog."C",
    world text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    persona text NOT NULL COLLATE pg_catalog."C",
    language text NOT NULL COLLATE pg_catalog."C",
    factions text NOT NULL COLLATE pg_catalog."C",
    model text COLLATE pg_catalog."C",
    settings text DEFAULT '{}'::text NOT NULL COLLATE pg_catalog."C",
    version bigint NOT NULL,
    updated_at bigint NOT NULL,
    deleted_at bigint
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.npcs FORCE ROW LEVEL SECURITY;

CREATE TABLE public.outbox (
    seq bigint NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    fact text NOT NULL COLLATE pg_catalog."C",
    at bigint DEFAULT ((EXTRACT(epoch FROM statement_timestamp()) * (1000000)::numeric))::bigint NOT NULL
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.outbox FORCE ROW LEVEL SECURITY;

ALTER TABLE public.outbox ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.outbox_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.participants (
    tenant text NOT NULL COLLATE pg_catalog."C",
    world text NOT NULL COLLATE pg_catalog."C",
    npc text NOT NULL COLLATE pg_catalog."C",
    part text NOT NULL COLLATE pg_catalog."C",
    dialogue text NOT NULL COLLATE pg_catalog."C"
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.participants FORCE ROW LEVEL SECURITY;

CREATE TABLE public.restores (
    tenant text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    world text NOT NULL COLLATE pg_catalog."C",
    save text NOT NULL COLLATE pg_catalog."C",
    key text COLLATE pg_catalog."C",
    outcome text NOT NULL COLLATE pg_catalog."C",
    at bigint NOT NULL
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.restores FORCE ROW LEVEL SECURITY;

CREATE TABLE public.rewinds (
    tenant text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    dialogue text NOT NULL COLLATE pg_catalog."C",
    key text COLLATE pg_catalog."C",
    seq bigint NOT NULL,
    outcome text NOT NULL COLLATE pg_catalog."C",
    at bigint NOT NULL
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.rewinds FORCE ROW LEVEL SECURITY;

CREATE TABLE public.save_items (
    tenant text NOT NULL COLLATE pg_catalog."C",
    save text NOT NULL COLLATE pg_catalog."C",
    dialogue text NOT NULL COLLATE pg_catalog."C",
    turn text COLLATE pg_catalog."C",
    status text NOT NULL COLLATE pg_catalog."C",
    paused text NOT NULL COLLATE pg_catalog."C"
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.save_items FORCE ROW LEVEL SECURITY;

CREATE TABLE public.saves (
    tenant text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    world text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    dialogues bigint NOT NULL,
    cause_kind text NOT NULL COLLATE pg_catalog."C",
    cause_id text NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.saves FORCE ROW LEVEL SECURITY;

CREATE TABLE public.scenarios (
    tenant text NOT NULL COLLATE pg_catalog."C",
    world text NOT NULL COLLATE pg_catalog."C",
    npc text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    title text NOT NULL COLLATE pg_catalog."C",
    content text NOT NULL COLLATE pg_catalog."C",
    keywords text NOT NULL COLLATE pg_catalog."C",
    synonyms text NOT NULL COLLATE pg_catalog."C",
    required_progress bigint NOT NULL,
    embedding_model text NOT NULL COLLATE pg_catalog."C",
    embedding bytea NOT NULL,
    version bigint NOT NULL,
    updated_at bigint NOT NULL,
    deleted_at bigint
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.scenarios FORCE ROW LEVEL SECURITY;

CREATE TABLE public.state_events (
    seq bigint NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    world text NOT NULL COLLATE pg_catalog."C",
    dialogue text COLLATE pg_catalog."C",
    change text NOT NULL COLLATE pg_catalog."C",
    cause_kind text NOT NULL COLLATE pg_catalog."C",
    cause_id text NOT NULL COLLATE pg_catalog."C",
    at bigint NOT NULL,
    lifted_at bigint,
    lifted_by text COLLATE pg_catalog."C"
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.state_events FORCE ROW LEVEL SECURITY;

ALTER TABLE public.state_events ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.state_events_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.summaries (
    tenant text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    dialogue text NOT NULL COLLATE pg_catalog."C",
    from_turn bigint NOT NULL,
    to_turn bigint NOT NULL,
    text text NOT NULL COLLATE pg_catalog."C",
    importance bigint NOT NULL,
    cause_kind text NOT NULL COLLATE pg_catalog."C",
    cause_id text NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    lifted_at bigint,
    lifted_by text COLLATE pg_catalog."C"
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.summaries FORCE ROW LEVEL SECURITY;

CREATE TABLE public.summary_changes (
    tenant text NOT NULL COLLATE pg_catalog."C",
    summary text NOT NULL COLLATE pg_catalog."C",
    change text NOT NULL COLLATE pg_catalog."C",
    by_summary text NOT NULL COLLATE pg_catalog."C",
    cause_kind text NOT NULL COLLATE pg_catalog."C",
    cause_id text NOT NULL COLLATE pg_catalog."C",
    at bigint NOT NULL,
    lifted_at bigint,
    lifted_by text COLLATE pg_catalog."C"
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.summary_changes FORCE ROW LEVEL SECURITY;

CREATE TABLE public.tenants (
    id text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    enabled boolean NOT NULL,
    settings text DEFAULT '{}'::text NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.tenants FORCE ROW LEVEL SECURITY;

CREATE TABLE public.traces (
    tenant text NOT NULL COLLATE pg_catalog."C",
    turn text NOT NULL COLLATE pg_catalog."C",
    body text NOT NULL COLLATE pg_catalog."C"
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.traces FORCE ROW LEVEL SECURITY;

CREATE TABLE public.turns (
    tenant text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    dialogue text NOT NULL COLLATE pg_catalog."C",
    number bigint NOT NULL,
    previous text COLLATE pg_catalog."C",
    stands boolean DEFAULT true NOT NULL,
    unsaid_at bigint,
    unsaid_by text COLLATE pg_catalog."C",
    replaces text COLLATE pg_catalog."C",
    uncut_reply_text text COLLATE pg_catalog."C",
    uncut_until bigint,
    text_version bigint NOT NULL,
    key text COLLATE pg_catalog."C",
    status text NOT NULL COLLATE pg_catalog."C",
    player text COLLATE pg_catalog."C",
    player_text text NOT NULL COLLATE pg_catalog."C",
    npc text NOT NULL COLLATE pg_catalog."C",
    reply_text text NOT NULL COLLATE pg_catalog."C",
    cues text NOT NULL COLLATE pg_catalog."C",
    prompt_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    started_at bigint NOT NULL,
    committed_at bigint NOT NULL,
    seq_started bigint NOT NULL,
    seq_done bigint NOT NULL,
    seq_committed bigint NOT NULL
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.turns FORCE ROW LEVEL SECURITY;

CREATE TABLE public.unsettled (
    tenant text NOT NULL COLLATE pg_catalog."C",
    world text NOT NULL COLLATE pg_catalog."C",
    audience text NOT NULL COLLATE pg_catalog."C",
    knowers text NOT NULL COLLATE pg_catalog."C",
    private_to text COLLATE pg_catalog."C",
    since bigint NOT NULL,
    mark bigint NOT NULL
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.unsettled FORCE ROW LEVEL SECURITY;

CREATE TABLE public.verdicts (
    tenant text NOT NULL COLLATE pg_catalog."C",
    pair text NOT NULL COLLATE pg_catalog."C",
    verdict text NOT NULL COLLATE pg_catalog."C",
    model text NOT NULL COLLATE pg_catalog."C",
    at bigint NOT NULL
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.verdicts FORCE ROW LEVEL SECURITY;

CREATE TABLE public.worlds (
    tenant text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    premise text NOT NULL COLLATE pg_catalog."C",
    language text NOT NULL COLLATE pg_catalog."C",
    rules text NOT NULL COLLATE pg_catalog."C",
    settings text NOT NULL COLLATE pg_catalog."C",
    version bigint NOT NULL,
    updated_at bigint NOT NULL,
    state_generation bigint DEFAULT 0 NOT NULL,
    deleted_at bigint
)
WITH (autovacuum_analyze_scale_factor='0.5', autovacuum_vacuum_insert_scale_factor='1');

ALTER TABLE ONLY public.worlds FORCE ROW LEVEL SECURITY;

INSERT INTO public._sqlx_migrations VALUES (1, 'ledger', '2026-11-25 17:20:27.279531+00', true, '\x5b52090d1703cd06832798286a1729f7b4afe6d8be25d0b2bce402ebf2997e258c80942ad81a0c913754b226f4a633d6', 51697263);

INSERT INTO public.audit OVERRIDING SYSTEM VALUE VALUES (1, 'demo', 'aud_01M89VJ66JHRQ3C6YBW2RZHM2K', 'edit_01M89VJ66J9WXCKKN1D88YFZN2', 1795627227335671, 'colloquy', 'admin', NULL, 'world.put', 'vale');
INSERT INTO public.audit OVERRIDING SYSTEM VALUE VALUES (2, 'demo', 'aud_01M89VJ66MQM6R7AC395GV7SWV', 'edit_01M89VJ66MQM6R7AC395GV7SWT', 1795627227335671, 'colloquy', 'admin', NULL, 'npc.put', 'vale/mira');
INSERT INTO public.audit OVERRIDING SYSTEM VALUE VALUES (3, 'demo', 'aud_01M89VJ66NXME3ZNPKH97DT6WJ', 'edit_01M89VJ66NXME3ZNPKH97DT6WH', 1795627227335671, 'colloquy', 'admin', NULL, 'npc.put', 'vale/ergen');
INSERT INTO public.audit OVERRIDING SYSTEM VALUE VALUES (4, 'demo', 'aud_01M89VJAD0D0AA7WQM935TMEX6', 'edit_01M89VJAD0AEMW3Z47Z34FQ4B0', 1795627231648146, 'command-line', 'backend', NULL, 'save.create', 'save_01M89VJAD09XMYGTH41RX7417C');
INSERT INTO public.audit OVERRIDING SYSTEM VALUE VALUES (5, 'demo', 'aud_01M89VJDD1EX9V66P1EGVV0QVK', 'edit_01M89VJDD1EX9V66P1EGVV0QVJ', 1795627234716025, 'command-line', 'backend', NULL, 'session.interrupt', 'ses_01M89VJ6C203P15E3E6ZVH1JHB');
INSERT INTO public.audit OVERRIDING SYSTEM VALUE VALUES (6, 'demo', 'aud_01M89VJDDXT57T4S3V76XCERSR', 'edit_01M89VJDDXT57T4S3V76XCERSQ', 1795627234749296, 'command-line', 'backend', NULL, 'scenario.put', 'vale/mira/well');
INSERT INTO public.audit OVERRIDING SYSTEM VALUE VALUES (7, 'demo', 'aud_01M89VJDE87HEZTJ31QNQD1P1M', 'edit_01M89VJDE87HEZTJ31QNQD1P1K', 1795627234760017, 'command-line', 'backend', NULL, 'progress.put', 'vale/p7/mira');
INSERT INTO public.audit OVERRIDING SYSTEM VALUE VALUES (8, 'demo', 'aud_01M89VJEEAVR6FKQ3WBEP3KRDM', 'edit_01M89VJEEA3KFPGS13J2XZRRT3', 1795627235786788, 'command-line', 'backend', NULL, 'fact.create', 'vale/mira');

INSERT INTO public.checkpoints VALUES ('demo', 'turn_01M89VJ6CF3NBVS4C369BA8PX6', '{"turn":1,"summarised_through":0,"summarised_at":null,"buffer_from":1,"commits":["2026-11-25T17:20:27.572748Z"]}');
INSERT INTO public.checkpoints VALUES ('demo', 'turn_01M89VJ7DH1Y0CH5MAPGVV5KS7', '{"turn":2,"summarised_through":0,"summarised_at":null,"buffer_from":1,"commits":["2026-11-25T17:20:27.572748Z","2026-11-25T17:20:28.597106Z"]}');
INSERT INTO public.checkpoints VALUES ('demo', 'turn_01M89VJ8DBQQHG6FPCKJPJR5P6', '{"turn":3,"summarised_through":0,"summarised_at":null,"buffer_from":1,"commits":["2026-11-25T17:20:27.572748Z","2026-11-25T17:20:28.597106Z","2026-11-25T17:20:29.615874Z"]}');
INSERT INTO public.checkpoints VALUES ('demo', 'turn_01M89VJ9D8A96AFCXSMQZRYTMZ', '{"turn":4,"summarised_through":0,"summarised_at":null,"buffer_from":1,"commits":["2026-11-25T17:20:27.572748Z","2026-11-25T17:20:28.597106Z","2026-11-25T17:20:29.615874Z","2026-11-25T17:20:30.636548Z"]}');
INSERT INTO public.checkpoints VALUES ('demo', 'turn_01M89VJADC37JFGM8EY181FXYT', '{"turn":5,"summarised_through":0,"summarised_at":null,"buffer_from":1,"commits":["2026-11-25T17:20:27.572748Z","2026-11-25T17:20:28.597106Z","2026-11-25T17:20:29.615874Z","2026-11-25T17:20:30.636548Z","2026-11-25T17:20:31.664771Z"]}');
INSERT INTO public.checkpoints VALUES ('demo', 'turn_01M89VJBD6FJKGH1F2KZPF4XTR', '{"turn":6,"summarised_through":0,"summarised_at":null,"buffer_from":1,"commits":["2026-11-25T17:20:28.597106Z","2026-11-25T17:20:29.615874Z","2026-11-25T17:20:30.636548Z","2026-11-25T17:20:31.664771Z","2026-11-25T17:20:32.684386Z"]}');
INSERT INTO public.checkpoints VALUES ('demo', 'turn_01M89VJDEKNTD6XPQXY42MNRD6', '{"turn":7,"summarised_through":0,"summarised_at":null,"buffer_from":1,"recently_unlocked":[["mira","well",12]],"commits":["2026-11-25T17:20:29.615874Z","2026-11-25T17:20:30.636548Z","2026-11-25T17:20:31.664771Z","2026-11-25T17:20:32.684386Z","2026-11-25T17:20:34.773841Z"]}');
INSERT INTO public.checkpoints VALUES ('demo', 'turn_01M89VJEF0DYE4XX6D81JSNG9S', '{"turn":1,"summarised_through":0,"summarised_at":null,"buffer_from":1,"commits":["2026-11-25T17:20:35.812400Z"]}');
INSERT INTO public.checkpoints VALUES ('demo', 'turn_01M89VJFETWZ474RVEDH653K4N', '{"turn":2,"summarised_through":0,"summarised_at":null,"buffer_from":1,"commits":["2026-11-25T17:20:35.812400Z","2026-11-25T17:20:36.846544Z"]}');
INSERT INTO public.checkpoints VALUES ('demo', 'turn_01M89VJGFBYFP1R0YDTS64DDPA', '{"turn":1,"summarised_through":0,"summarised_at":null,"buffer_from":1,"commits":["2026-11-25T17:20:37.870410Z"]}');
INSERT INTO public.checkpoints VALUES ('demo', 'turn_01M89VJK1PZKNGX7E2M5V9FCYK', '{"turn":2,"summarised_through":0,"summarised_at":null,"buffer_from":1,"commits":["2026-11-25T17:20:37.870410Z","2026-11-25T17:20:40.504235Z"],"ended":true}');

INSERT INTO public.dialogues VALUES ('demo', 'ses_01M89VJEEP4Y1ECP0NSKEBKDYR', 'vale', '["ergen"]', '[]', 'p7', '\xb38843a13e72e7d363597498bbf03a1125f973211ded29c835c9959c89b260b2', 'open', '{"auto":false,"playback":"immediate"}', NULL, NULL, 1795627235799657, 1795627236846544, NULL, 1, NULL, 9, 2, 'turn_01M89VJFETWZ474RVEDH653K4N', NULL);
INSERT INTO public.dialogues VALUES ('demo', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 'vale', '["mira"]', '[]', 'p7', '\xe0d3dc2bd575673a614d3796bf19553f30f0608cf3ca5eea5373291765726a7d', 'open', '{"auto":false,"playback":"immediate"}', NULL, NULL, 1795627227523264, 1795627234773841, NULL, 2, NULL, 36, 7, 'turn_01M89VJDEKNTD6XPQXY42MNRD6', NULL);
INSERT INTO public.dialogues VALUES ('demo', 'con_01M89VJGF7YGVKV73DRV98G16D', 'vale', '["mira","ergen"]', '[]', NULL, '\x', 'open', '{"topic":"the mill","max_turns":2,"auto":true,"playback":"immediate"}', NULL, NULL, 1795627237863595, 1795627240504235, NULL, 1, NULL, 8, 2, 'turn_01M89VJK1PZKNGX7E2M5V9FCYK', NULL);

INSERT INTO public.extractions VALUES ('demo', 'turn_01M89VJ6CF3NBVS4C369BA8PX6', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 1, 'vale', 'mira', 'npc:mira@p7', '["npc:mira"]', 'p7', 1795627227572748, 'p7', '[]', '[]', '[]');
INSERT INTO public.extractions VALUES ('demo', 'turn_01M89VJ7DH1Y0CH5MAPGVV5KS7', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 2, 'vale', 'mira', 'npc:mira@p7', '["npc:mira"]', 'p7', 1795627228597106, 'p7', '[]', '[]', '[]');
INSERT INTO public.extractions VALUES ('demo', 'turn_01M89VJ8DBQQHG6FPCKJPJR5P6', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 3, 'vale', 'mira', 'npc:mira@p7', '["npc:mira"]', 'p7', 1795627229615874, 'p7', '[]', '[]', '[]');
INSERT INTO public.extractions VALUES ('demo', 'turn_01M89VJ9D8A96AFCXSMQZRYTMZ', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 4, 'vale', 'mira', 'npc:mira@p7', '["npc:mira"]', 'p7', 1795627230636548, 'p7', '[]', '[]', '[]');
INSERT INTO public.extractions VALUES ('demo', 'turn_01M89VJADC37JFGM8EY181FXYT', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 5, 'vale', 'mira', 'npc:mira@p7', '["npc:mira"]', 'p7', 1795627231664771, 'p7', '[]', '["fact_01M89VJ7DRZXWNGG772X2X51MB","fact_01M89VJ9DHSY9ZCJ6W2P7RH1SQ"]', '["fact_01M89VJ7DRZXWNGG772X2X51MB","fact_01M89VJ9DHSY9ZCJ6W2P7RH1SQ"]');
INSERT INTO public.extractions VALUES ('demo', 'turn_01M89VJBD6FJKGH1F2KZPF4XTR', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 6, 'vale', 'mira', 'npc:mira@p7', '["npc:mira"]', 'p7', 1795627232684386, 'p7', '[]', '["fact_01M89VJ9DHSY9ZCJ6W2P7RH1SQ"]', '["fact_01M89VJ9DHSY9ZCJ6W2P7RH1SQ"]');
INSERT INTO public.extractions VALUES ('demo', 'turn_01M89VJCD413KCS9S7NJR8P49A', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 7, 'vale', 'mira', 'npc:mira@p7', '["npc:mira"]', 'p7', 1795627233704547, 'p7', '[]', '["fact_01M89VJADMX6SECN2RZV38C5HG","fact_01M89VJADMPEEHCR1GHCMJSN1W","fact_01M89VJ9DHSY9ZCJ6W2P7RH1SQ"]', '["fact_01M89VJADMX6SECN2RZV38C5HG","fact_01M89VJADMPEEHCR1GHCMJSN1W","fact_01M89VJ9DHSY9ZCJ6W2P7RH1SQ"]');
INSERT INTO public.extractions VALUES ('demo', 'turn_01M89VJDEKNTD6XPQXY42MNRD6', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 7, 'vale', 'mira', 'npc:mira@p7', '["npc:mira"]', 'p7', 1795627234773841, 'p7', '[]', '["fact_01M89VJ8DMS17X1EFF2GREZTES","fact_01M89VJ6E168A638M1VC9A0G0H","fact_01M89VJ9DHSY9ZCJ6W2P7RH1SQ","fact_01M89VJBDKQGZBQZDF9DJBD4Z2","fact_01M89VJADMPEEHCR1GHCMJSN1W","fact_01M89VJADMX6SECN2RZV38C5HG"]', '["fact_01M89VJ8DMS17X1EFF2GREZTES","fact_01M89VJ6E168A638M1VC9A0G0H","fact_01M89VJ9DHSY9ZCJ6W2P7RH1SQ","fact_01M89VJBDKQGZBQZDF9DJBD4Z2","fact_01M89VJADMPEEHCR1GHCMJSN1W","fact_01M89VJADMX6SECN2RZV38C5HG"]');
INSERT INTO public.extractions VALUES ('demo', 'turn_01M89VJEF0DYE4XX6D81JSNG9S', 'ses_01M89VJEEP4Y1ECP0NSKEBKDYR', 1, 'vale', 'ergen', 'npc:ergen@p7', '["npc:ergen"]', 'p7', 1795627235812400, 'p7', '[]', '[]', '[]');
INSERT INTO public.extractions VALUES ('demo', 'turn_01M89VJFETWZ474RVEDH653K4N', 'ses_01M89VJEEP4Y1ECP0NSKEBKDYR', 2, 'vale', 'ergen', 'npc:ergen@p7', '["npc:ergen"]', 'p7', 1795627236846544, 'p7', '[]', '[]', '[]');
INSERT INTO public.extractions VALUES ('demo', 'turn_01M89VJGFBYFP1R0YDTS64DDPA', 'con_01M89VJGF7YGVKV73DRV98G16D', 1, 'vale', 'mira', 'npc:ergen|npc:mira', '["npc:ergen","npc:mira"]', NULL, 1795627237870410, NULL, '[]', '[]', '["fact_01M89VJEEAVR6FKQ3WBEP3KRDN"]');

INSERT INTO public.fact_embeddings VALUES ('demo', 'fact_01M89VJ6E168A638M1VC9A0G0H', 'colloquy-offline@512', '\x000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000edfa25bd0000000000000000000000000000000000000000000000000000000000000000ce7776bd00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000a879cf3e000000000000000000000000000000000000000000000000000000000000000000000000000000004b5f683c0000000000000000000000000000000075e6f53e000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000edfa253d0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000042b3273e0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000ce7776bd00000000ce7776bd0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000075e6f53e0000000042b3273e00000000000000000000000000000000000000004b5f68bc42b3273e00000000000000000000000042b3273e000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000064f8f8bdce7776bd000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000004b5f68bc00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000004b5f68bc0000000000000000000000000000000000000000000000004b5f683c00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000042b327be0000000000000000000000004b5fe83c0000000000000000000000000000000064f8f83d000000000000000000000000000000000000000000000000000000000000000000000000000000000000000042b327be0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000004b5f68bc0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000a879cf3e0000000000000000000000000000000000000000000000000000000000000000');
INSERT INTO public.fact_embeddings VALUES ('demo', 'fact_01M89VJ7DRZXWNGG772X2X51MB', 'colloquy-offline@512', '\x00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000a1573cbda1573cbd00000000000000000000000000000000000000000000000000000000ff78a63d00000000000000000000000000000000a1573c3d9802f6bd000000000000000000000000000000000000000000000000000000000000000000000000000000002441bebc00000000000000000000000000000000dcb08e3d0000000000000000000000000000000000000000a1573c3d0000000000000000b6f3f7bd0000000000000000e6c799bdff7826be0000000000000000daabe63c000000000000000000000000000000000000000000000000ff78a63d0000000000000000daabe63cff78a6bd00000000000000000000000000000000000000000000000000000000000000000000000000000000992d053c000000000000000000000000000000000000000024413ebe00000000ff78a6bd0000000000000000a1573c3d00000000000000000000000000000000ff78263e000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000002441be3c58a0c6be000000006bee8cbe0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000e6c799bddaabe6bc0000000000000000000000000000000000000000000000000000000000000000a157bcbd00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000a1573cbda157bc3d000000000000000000000000000000000000000000000000a1573c3d00000000000000000000000024413ebe0000000000000000000000000000000000000000ff78a63d0000000000000000daabe63c000000006dd16d3e0000000000000000e6c7993d000000000000000000000000ff78a63d0000000000000000e6c7993d000000000000000000000000a1573c3d0000000000000000000000000000000024413ebe00000000000000000000000000000000a1573c3d00000000000000000000000000000000000000000000000000000000a1573c3d0000000000000000000000000000000000000000000000000000000000000000a1573cbd000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000992d05bc000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000e6c7993d000000000000000000000000000000000000000000000000ff78a6bd0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000058a0c63e0000000000000000000000000000000000000000000000004aee353ea1573cbd00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000992d05bc000000000000000000000000000000000000000000000000992d053c000000000000000000000000000000000000000000000000000000000000000000000000daabe6bc00000000000000000000000000000000000000000000000000000000000000000000000000000000a157bcbd00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000006bee8c3e00000000992d853c00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000ff78a6bd0000000000000000000000000000000000000000000000000000000000000000a1573c3d000000000000000000000000000000000000000000000000992d05bc00000000000000000000000000000000000000000000000000000000dcb08e3d00000000000000000000000000000000000000000000000000000000000000006dd16d3e00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000a1573c3d000000000000000000000000000000000000000000000000000000000000000024413e3e00000000000000000000000000000000000000000000000024413ebe0000000000000000000000000000000000000000a1573c3d000000000000000000000000');
INSERT INTO public.fact_embeddings VALUES ('demo', 'fact_01M89VJ8DMS17X1EFF2GREZTES', 'colloquy-offline@512', '\x82d0503d5e0c62bd0000000000000000000000000000000000000000000000001ed79fbd000000000000000000000000000000000000000000000000000000001ed71fbe000000000000000000000000000000000000000000000000000000000000000000000000000000000000000096be7f3d000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000082d050bd000000005e0c62bd0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000b5acb6bc00000000000000000000000000000000000000000000000000000000adb8a7be000000000000000000000000000000000000000000000000000000000000000082d0503d000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000b2d6b4bd000000000000000000000000000000000000000096be7fbd000000000000000000000000782d7b3d0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000b5ac36be0000000000000000000000005e0c623d000000000000000000000000000000000000000000000000000000000000000082d050bd1ed71fbeb5acb63ce15764be00000000000000005e0c623d000000000000000000000000000000000000000000000000000000000000000000000000000000005391383d00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000005b2fb1bc0000000000000000000000000000000000000000000000000000000000000000000000005e0c62bd000000000000000000000000000000000000000000000000adb8a73e1ed79f3d000000000000000000000000000000000000000000000000b5ac36be0000000000000000000000000000000000000000000000000000000082d050bd000000000000000000000000000000000000000000000000000000000000000000000000000000005e0c62bd000000000000000000000000000000000000000000000000af1f043e000000000000000000000000000000000000000000000000000000005e0c62bd0000000000000000000000000000000006a1073d00000000000000005e0c62bd0000000000000000000000006088083e00000000000000000a51873e0000000000000000000000000000000000000000e157e4bd000000001ed79fbd0000000000000000000000000000000000000000865a8e3c00000000539138bd00000000000000000000000000000000000000000000000000000000000000000000000000000000b5ac36be0000000000000000000000005b2fb13c000000000000000000000000000000000000000096be7fbd000000005e0c62bd000000000000000096beffbb000000000000000000000000b5ac363e00000000000000000000000000000000000000005e0c62bd00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000096be7fbd000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000a51873e96beffbb0000000000000000000000000000000000000000000000000000000096be7f3d0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000005b2fb1bc0000000000000000000000000000000000000000000000005b2f313d000000000000000000000000000000001ed79f3d000000000000000000000000000000000000000000000000000000000000000000000000000000005e0c62bd000000000000000000000000e157e43d0000000000000000000000000000000000000000b2d6b43d00000000000000000000000000000000000000005e0c62bd00000000000000000000000000000000e15764be0000000000000000000000000000000000000000000000000000000000000000e157643e96be7f3c0000000000000000000000000000000082d050bd00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000e15764be000000000000000000000000000000000000000000000000000000005e0c623d000000000000000000000000000000000000000096beffbb000000000000000000000000000000000000000000000000b5ac36bea6355bbd96be7fbd0000000000000000000000005e0c623d0000000000000000000000000000000000000000b2d6b4bd000000000000000000000000000000001ed79fbd00000000000000000000000000000000000000005b2fb13c0000000000000000000000000000000000000000000000000000000000000000000000001ed79fbd0000000082d050bd0000000000000000000000000000000000000000000000001ed79f3d0000000082d050bd5e0c623d0000000000000000000000000000000082d050bd00000000000000000000000000000000000000000000000096be7f3d00000000');
INSERT INTO public.fact_embeddings VALUES ('demo', 'fact_01M89VJ9DHSY9ZCJ6W2P7RH1SQ', 'colloquy-offline@512', '\x000000000000000000000000000000000000000000000000000000000000000000000000000000000000000011158a3d000000000000000000000000e04a873d00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000352b8fbe000000000000000000000000000000000000000000000000000000000000000000000000000000001b55bfbd11158abd0000000000000000000000000000000000000000000000000000000000000000000000006446c1bc000000000000000000000000000000000000000000000000971d29be00000000000000000000000000000000000000000000000000000000000000000000000000000000971d29be0000000000000000000000000000000000000000f642973d000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000e04a073c0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000e04a87bdcf38d93d000000000000000000000000fd97713e0000000000000000000000000000000000000000000000000000000000000000000000006446c13c11158abd000000000000000000000000000000000000000000000000000000000000000011158a3d000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000644641be000000000000000000000000000000001b55bfbd000000000000000000000000f642973d0000000000000000000000000000000000000000e04a87bd00000000e04a873d0000000000000000e04a873d644641be000000000000000000000000000000000000000000000000000000001b55bf3d0000000000000000000000000000000055ded2bb0000000011158abd000000000000000000000000000000000000000000000000000000000000000000000000000000000000000011158abd11158abd0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000e04a87bd00000000000000006446413e0000000000000000000000000000000000000000644641be6446413e000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000e04a07bce04a87bd0000000000000000f642973d000000000000000000000000000000000000000000000000000000000000000000000000e04a873d000000000000000000000000000000000000000000000000fd97713e0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000011158a3d00000000000000000000000000000000000000006446413e0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000b6d1383e00000000000000000000000000000000000000000000000000000000fd97713e000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000e04a07bc00000000000000000000000000000000000000006446413ee04a073c00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000e04a87bd0000000000000000000000000000000000000000000000001b55bfbd00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000011158a3dbf0472bd0000000000000000000000000000000000000000e04a873d0000000000000000000000000000000000000000971da93de04a873d00000000280d9abd0000000000000000f64297bd00000000000000000000000000000000fd9771be00000000000000000000000000000000000000000000000000000000d249ebbd0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000e04a87bde04a87bde04a07bc000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000f64297bd0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000f64297bd0000000011158abd971d29be00000000000000006446413ee04a873d00000000000000000000000000000000000000000000000000000000352b8fbe0000000000000000000000000000000000000000f642973d00000000');
INSERT INTO public.fact_embeddings VALUES ('demo', 'fact_01M89VJADMPEEHCR1GHCMJSN1W', 'colloquy-offline@512', '\x00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000001d45553e00000000000000000000000000000000000000000000000000000000000000000000000000000000b5e628bdb5e628bd00000000000000000000000000000000000000000000000000000000fb49953d00000000000000000000000000000000b5e6283dce9ddcbd00000000000000000000000000000000000000000000000000000000000000000000000000000000b19daabc000000000000000000000000000000008aec7f3d0000000000000000000000000000000000000000b5e6283d00000000000000009c5bdebd000000000000000042e889bdfb4915be000000000000000064dcce3c00000000fb49953d00000000000000000000000000000000fb49953d000000000000000064dcce3cfb4995bd00000000000000000000000000000000000000000000000000000000000000000000000000000000c5dcee3b0000000000000000000000000000000000000000b19d2abe00000000fb4995bdfb4995bd00000000b5e6283d00000000000000000000000000000000fb49153e00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000b19daa3cab1fb2be00000000a8c47cbe000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000042e889bd64dccebc0000000000000000000000000000000000000000000000000000000000000000b5e6a8bd000000000000000000000000000000000000000000000000000000000000000000000000fb4995bd000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000b5e628bdb5e6a83d000000000000000000000000000000000000000000000000b5e6283d000000000000000000000000b19d2abe0000000000000000000000000000000000000000fb49953d000000000000000064dcce3c000000001d45553e000000000000000042e8893d000000000000000000000000fb49953d0000000000000000891bb6bb000000000000000000000000b5e6283d00000000000000000000000000000000b19d2abe00000000000000000000000000000000b5e6283d00000000000000000000000000000000000000000000000000000000b5e6283d0000000000000000d4986a3e0000000000000000000000000000000000000000b5e628bd0000000000000000000000000000000000000000000000000000000000000000fb4995bd0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000001d45553e0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000c5dceebb00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000042e8893d000000000000000000000000000000000000000000000000fb4995bd000000000000000000000000fb4995bd000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000ab1fb23e000000000000000000000000000000000000000000000000cb26233eb5e628bd00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000c5dceebb000000000000000000000000000000000000000000000000c5dcee3b00000000000000000000000000000000000000000000000000000000000000000000000064dccebc00000000000000000000000000000000000000000000000000000000000000000000000000000000b5e6a8bd0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000a8c47c3e00000000c5dc6e3cfb49953d000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000fb4995bd0000000000000000000000000000000000000000000000000000000000000000b5e6283d0000000000000000000000000000000000000000fb4995bdc5dceebb00000000000000000000000000000000000000000000000000000000b19d2abe00000000000000000000000000000000000000000000000000000000000000001d45553e00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000b5e6283d0000000000000000000000000000000000000000000000000000000000000000b19d2a3e000000000000000000000000000000000000000000000000b19d2abe0000000000000000000000000000000000000000b5e6283d000000000000000000000000');
INSERT INTO public.fact_embeddings VALUES ('demo', 'fact_01M89VJADMX6SECN2RZV38C5HG', 'colloquy-offline@512', '\x0000000000000000000000000000000000000000d35e6dbe00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000defc3bbddefc3bbd000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000defc3b3d0b8cf5bd0000000000000000000000000000000000000000000000000000000000000000000000000000000076e5bdbc00000000000000000000000000000000196c8e3d0000000000000000000000000000000000000000defc3b3d0000000000000000397cf7bd0000000000000000cb7d99bdc72826be0000000000000000b13ce63c000000000000000000000000000000000000000000000000000000000000000000000000b13ce63c00000000000000000000000000000000000000000000000000000000000000000000000000000000000000006ced043c000000000000000000000000000000000000000076e53dbe00000000000000000000000000000000defc3b3d00000000000000000000000000000000c728263e0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000076e5bd3ca040c6be0000000082aa8cbe0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000cb7d99bdb13ce6bc000000000000000000000000000000000000000000000000000000003dddbfbddefcbbbd00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000defc3bbddefcbb3d000000000000000000000000000000000000000000000000defc3b3d00000000000000000000000076e53dbe0000000000000000000000000000000000000000000000000000000000000000b13ce63c00000000000000000000000000000000cb7d993d000000000000000000000000000000000000000000000000cb7d993d000000000000000000000000defc3b3d0000000000000000000000000000000076e53dbe00000000000000000000000000000000defc3b3d00000000000000000000000000000000000000000000000000000000defc3b3d0000000000000000000000000000000000000000000000000000000000000000defc3bbd000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000003dddbf3d000000006ced04bc000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000cb7d993d0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000003dddbfbd00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000a040c63e0000000000000000000000000000000000000000000000009f96353edefc3bbd00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000a9ad75be0000000000000000000000000000000000000000000000006ced043c000000000000000000000000000000000000000000000000000000000000000000000000b13ce6bc00000000000000000000000000000000000000000000000000000000000000000000000000000000defcbbbd000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000082aa8c3e000000006ced843c00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000defc3b3d0000000000000000000000000000000000000000000000006ced04bc00000000000000000000000000000000000000000000000000000000196c8e3d000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000003dddbfbd0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000defc3b3d0000000000000000000000000000000000000000000000003dddbf3d0000000076e53d3e00000000000000000000000000000000000000000000000076e53dbe0000000000000000000000000000000000000000defc3b3d000000003dddbf3d00000000');
INSERT INTO public.fact_embeddings VALUES ('demo', 'fact_01M89VJBDKQGZBQZDF9DJBD4Z2', 'colloquy-offline@512', '\x0000000000000000000000003a3688bd000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000003a36883d000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000009bbdbcbd000000000000000000000000000000000000000000000000000000000000000000000000291b9a3d27a8bebc000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000f3a1403d0000000000000000000000000000000022d326be00000000000000000000000000000000000000000000000000000000f3a1403d00000000000000000000000000000000000000000000000000000000000000000000000000000000291b9a3d0000000000000000000000000000000000000000b575053c000000000000000000000000000000000000000027a83e3e00000000000000000000000001edeb3d31526ebe0000000000000000000000000000000022d3263e0000000031526e3e000000000000000000000000000000003152eebd000000000000000027a83ebe00000000000000000000000027a8be3c0000000031526ebe00000000000000000000000001edebbd0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000009bbdbcbd00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000003a36883d00000000000000003a36883d00000000000000000000000000000000000000009bbdbc3d00000000575a56be0000000000000000000000000000000000000000000000000000000000000000000000003a36883d0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000ba3a8d3e000000000000000000000000000000000000000000000000000000000000000000000000f3a140bd000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000291b9abd00000000000000000000000000000000000000000000000000000000000000000000000000000000291b9a3d00000000000000000000000000000000000000000000000000000000f3a140bd0000000000000000000000000000000000000000000000000000000000000000000000000000000031526e3e0000000031526e3e000000000000000000000000000000000000000000000000000000003a3688bd000000000000000000000000e0c9aabd000000000000000000000000f3a140bd0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000003a3688bd0000000000000000000000000000000000000000291b9abd0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000cc50363e00000000000000000000000000000000f3a140bd0000000000000000000000000000000001edebbd00000000000000000000000000000000000000000000000000000000000000000000000000000000b57505bc000000000000000000000000000000000000000000000000b575053c00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000003a3688bd00000000000000009bbdbcbd00000000000000000000000000000000000000000000000000000000000000003a3688bd0000000000000000000000000000000000000000000000000000000027a83ebe0000000000000000000000000000000000000000000000000000000000000000b575853c00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000003a3688bd00000000000000000000000000000000000000000000000000000000000000000000000001ed6bbe00000000b57505bc00000000000000000000000000000000a73699be000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000003152eebd000000000000000027a83ebe000000000000000000000000000000000000000027a83e3e00000000000000000000000000000000000000000000000001edebbd000000000000000000000000000000000000000000000000000000000000000000000000');
INSERT INTO public.fact_embeddings VALUES ('demo', 'fact_01M89VJCDA10TDBWH8YA2N3PH1', 'colloquy-offline@512', '\x00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000b03559bdb03559bd000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000b035593db1db0dbe000000000000000000000000000000000000000000000000000000008ec1073e00000000000000003a6adbbc00000000000000000000000000000000ac8fa43d0000000000000000000000000000000000000000b035593d000000000000000059fa0ebe6422893e00000000db59b1bdf3fc3fbe00000000000000006503053d0000000000000000000000000000000000000000000000000000000000000000000000006503053d00000000000000000000000000000000000000000000000000000000000000000000000000000000000000002997193c00000000000000000000000000000000000000003a6a5bbe00000000000000000000000000000000b035593d00000000000000000000000000000000f3fc3f3e000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000003a6adb3cf3fc3fbe000000003288a2be00000000000000000000000000000000000000000000000000000000000000008ec1073e0000000000000000000000000000000000000000db59b1bd650305bd8ec107be00000000000000000000000000000000000000000000000000000000b035d9bd000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000008ec107be0000000000000000b03559bdb035d93d000000000000000000000000000000000000000000000000b035593d0000000000000000000000003a6a5bbe00000000000000000000000000000000000000000000000000000000000000006503053d00000000000000000000000000000000db59b13d000000000000000000000000000000000000000000000000db59b13d000000000000000000000000b035593d000000000000000000000000000000003a6a5bbe00000000000000000000000000000000b035593d00000000000000000000000000000000000000000000000000000000b035593d0000000000000000000000000000000000000000000000000000000000000000b03559bd000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000299719bc000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000db59b13d0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000f3fc3f3e000000000000000000000000000000000000000000000000c7d0513eb03559bd00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000299719bc0000000000000000000000000000000000000000000000002997193c000000000000000000000000000000000000000000000000000000000000000000000000650305bd00000000000000000000000000000000000000000000000000000000000000000000000000000000b035d9bd00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000003288a23e000000002997993c00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000b035593d000000000000000000000000000000000000000000000000299719bc0000000000000000642289be00000000000000000000000000000000ac8fa43d00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000b035593d00000000000000000000000000000000000000000000000000000000000000003a6a5b3e0000000000000000000000000000000000000000000000003a6a5bbe0000000000000000000000000000000000000000b035593d000000000000000000000000');
INSERT INTO public.fact_embeddings VALUES ('demo', 'fact_01M89VJEEAVR6FKQ3WBEP3KRDN', 'colloquy-offline@512', '\x000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000030b9d1be000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000959d4fbe000000000000000000000000000000006ece12be00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000006ece12be000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000030b9d1be0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000006ece123e000000006ece12be00000000000000000000000000000000000000000000000000000000000000006ece123e0000000000000000000000000000000000000000000000000000000000000000959d4fbe0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000006ece123e959d4fbe00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000006ece123e000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000006ece12be00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000030b9d13e000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000959d4fbe0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000030b9d13e000000000000000000000000000000000000000000000000');
INSERT INTO public.fact_embeddings VALUES ('demo', 'fact_01M89VJEFNG7N7MNGKAH2G3FG5', 'colloquy-offline@512', '\x00000000000000000000000000000000000000000000000000000000000000000000000000000000000000008dc30d3c0000000053a554be0000000000000000000000000000000000000000000000000000000000000000ca2c7fbb000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000dc1d2abc0000000000000000dc1d2a3cca2c7fbd00000000000000000000000000000000000000000000000000000000fe7b9fbd00000000dc1d2aba000000000000000000000000000000008b849dbe000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000d5234cbb00000000dc1d2aba0000000000000000000000000000000000000000ca2c7f3b00000000000000000000000000000000dc1d2a3a00000000000000000000000000000000000000000000000000000000000000000000000000000000000000008b849d3e00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000003c3dc3be000000008b849dbe00000000000000000000000000000000000000000000000000000000dc1d2a3c00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000053a5543cd5234c3b00000000000000000000000000000000000000000000000000000000b9bfb43d0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000008dc30d3c000000000000000000000000000000000000000000000000d5234c3b00000000000000000000000053a5543e0000000000000000000000000000000000000000d91d2a3b0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000053a554be0000000000000000000000000000000000000000dc1d2a3a000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000dc1d2aba000000008dc30d3c00000000000000000000000000000000000000000000000000000000ca2c7f3d000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000053a5543c00000000000000000000000000000000000000000000000000000000000000008dc30dbc0000000000000000000000000000000000000000000000000000000000000000dc1d2aba000000003c3dc33e0000000000000000dc1d2abc0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000054e7843e00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000053a554be0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000008dc30dbcdc1d2abc00000000000000000000000000000000000000000000000000000000000000008b849d3e0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000054e7843e00000000000000000000000000000000dc1d2a3c0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000ca2c7fbb00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000dc1d2a3a53a554bc0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000dc1d2a3a0000000000000000ca2c7fbb0000000000000000d5234c3b000000008dc30d3c00000000000000000000000000000000000000000000000000000000000000000000000000000000');
INSERT INTO public.fact_embeddings VALUES ('demo', 'fact_01M89VJFFWRKSZ59BS50TGGKNE', 'colloquy-offline@512', '\x0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000d63a013c0000000000000000000000000000000040978fbe000000000000000000000000000000000000000000000000504ef23d67131bbc00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000040d841bc00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000026fab1be000000000000000000000000000000007784f3bd00000000f626e23d000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000067131bba0000000000000000000000000000000000000000000000000000000000000000000000000000000067131b3a00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000504ef2bd0000000000000000000000000000000040978fbe000000000000000000000000000000000000000040d8413e000000000000000000000000000000000000000067139bbc000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000067131bbc000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000026fab13e00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000d63a013c0000000000000000000000000000000000000000000000000000000000000000fab007be000000000000000000000000000000000000000067131bbc000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000040d8413c00000000000000000000000040d8413c000000000000000026fab13e000000000000000067131b3a0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000d63a01bc504e72be000000000000000067131b3c000000000000000000000000000000000000000000000000000000000000000067131bba00000000d63a013c00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000d63a013c40d8413c00000000d63a01bc000000000000000000000000000000000000000000000000000000000000000067131bba0000000000000000000000000000000000000000000000000000000026fab13e0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000067131bbc000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000504e72be00000000389da93d000000000000000000000000000000000000000000000000000000000000000000000000389da9bd67139bbc0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000d63a01bc0000000000000000000000000000000000000000d63a01bc40d8413c0000000000000000000000000000000067131bbc00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000040d8413e000000000000000000000000000000000000000000000000000000000000000000000000000000000000000040d8413cd63a013c00000000000000000000000000000000000000000000000040d8413e0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000067131b3c00000000000000000000000067131bbc40d841be000000000000000067131b3a00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000d63a01bc0000000000000000000000000000000067131b3a00000000000000000000000000000000000000000000000000000000983affbd00000000000000000000000000000000000000000000000000000000000000000000000000000000');

INSERT INTO public.fact_knowers VALUES ('demo', 'fact_01M89VJ6E168A638M1VC9A0G0H', 'npc:mira', 'vale', 'p7', 1795627227572748, false, false, 8, NULL, 1);
INSERT INTO public.fact_knowers VALUES ('demo', 'fact_01M89VJ8DMS17X1EFF2GREZTES', 'npc:mira', 'vale', 'p7', 1795627229615874, false, false, 7, NULL, 1);
INSERT INTO public.fact_knowers VALUES ('demo', 'fact_01M89VJ9DHSY9ZCJ6W2P7RH1SQ', 'npc:mira', 'vale', 'p7', 1795627230636548, false, true, 10, NULL, 1);
INSERT INTO public.fact_knowers VALUES ('demo', 'fact_01M89VJADMPEEHCR1GHCMJSN1W', 'npc:mira', 'vale', 'p7', 1795627231664771, false, false, 5, NULL, 1);
INSERT INTO public.fact_knowers VALUES ('demo', 'fact_01M89VJADMX6SECN2RZV38C5HG', 'npc:mira', 'vale', 'p7', 1795627231664771, false, false, 5, NULL, 1);
INSERT INTO public.fact_knowers VALUES ('demo', 'fact_01M89VJ7DRZXWNGG772X2X51MB', 'npc:mira', 'vale', 'p7', 1795627228597106, false, false, 5, 1795627231664771, 2);
INSERT INTO public.fact_knowers VALUES ('demo', 'fact_01M89VJBDKQGZBQZDF9DJBD4Z2', 'npc:mira', 'vale', 'p7', 1795627232684386, false, false, 7, NULL, 1);
INSERT INTO public.fact_knowers VALUES ('demo', 'fact_01M89VJCDA10TDBWH8YA2N3PH1', 'npc:mira', 'vale', 'p7', 1795627233704547, false, false, 5, 1795627233704547, 2);
INSERT INTO public.fact_knowers VALUES ('demo', 'fact_01M89VJEEAVR6FKQ3WBEP3KRDN', 'npc:mira', 'vale', '', 1795627235786601, true, false, 6, NULL, 1);
INSERT INTO public.fact_knowers VALUES ('demo', 'fact_01M89VJEFNG7N7MNGKAH2G3FG5', 'npc:ergen', 'vale', 'p7', 1795627235812400, false, false, 5, NULL, 1);
INSERT INTO public.fact_knowers VALUES ('demo', 'fact_01M89VJFFWRKSZ59BS50TGGKNE', 'npc:ergen', 'vale', 'p7', 1795627236846544, false, false, 7, NULL, 1);

INSERT INTO public.facts VALUES ('demo', 'fact_01M89VJ6E168A638M1VC9A0G0H', 'vale', 'npc:mira@p7', '["npc:mira"]', 'p7', 'player:p7', 'be named', 'Rowan', 'The player''s name is Rowan.', '["rowan","name"]', 'player:p7', 'personal_info', 8, 'positive', 'present', false, false, '[]', false, '[]', 1795627227572748, 1795627227572748, NULL, 'turn', 'turn_01M89VJ6CF3NBVS4C369BA8PX6', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 1, 'The player''s name is Rowan.', '["rowan","name"]', 8, false, NULL, NULL, NULL, 1);
INSERT INTO public.facts VALUES ('demo', 'fact_01M89VJ8DMS17X1EFF2GREZTES', 'vale', 'npc:mira@p7', '["npc:mira"]', 'p7', 'player:p7''s sister', 'live', 'Rivermouth', 'The player''s sister lives in Rivermouth.', '["rivermouth","home","place","sister","family","relative"]', 'player:p7', 'personal_info', 7, 'positive', 'present', false, false, '[]', false, '[]', 1795627229615874, 1795627229615874, NULL, 'turn', 'turn_01M89VJ8DBQQHG6FPCKJPJR5P6', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 3, 'The player''s sister lives in Rivermouth.', '["rivermouth","home","place","sister","family","relative"]', 7, false, NULL, NULL, NULL, 1);
INSERT INTO public.facts VALUES ('demo', 'fact_01M89VJ9DHSY9ZCJ6W2P7RH1SQ', 'vale', 'npc:mira@p7', '["npc:mira"]', 'p7', 'player:p7', 'be allergic to', 'peanuts', 'The player is allergic to peanuts.', '["peanut","peanuts","nut","food","allergy","health","danger"]', 'player:p7', 'constraint', 10, 'positive', 'present', true, true, '[]', false, '[]', 1795627230636548, 1795627230636548, NULL, 'turn', 'turn_01M89VJ9D8A96AFCXSMQZRYTMZ', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 4, 'The player is allergic to peanuts.', '["peanut","peanuts","nut","food","allergy","health","danger"]', 10, true, NULL, NULL, NULL, 1);
INSERT INTO public.facts VALUES ('demo', 'fact_01M89VJADMPEEHCR1GHCMJSN1W', 'vale', 'npc:mira@p7', '["npc:mira"]', 'p7', 'player:p7', 'like', 'grapes', 'The player no longer likes grapes.', '["grape","grapes","fruit","food","preference"]', 'player:p7', 'preference', 5, 'negative', 'present', false, false, '[]', false, '[]', 1795627231664771, 1795627231664771, NULL, 'turn', 'turn_01M89VJADC37JFGM8EY181FXYT', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 5, 'The player no longer likes grapes.', '["grape","grapes","fruit","food","preference"]', 5, false, NULL, NULL, NULL, 1);
INSERT INTO public.facts VALUES ('demo', 'fact_01M89VJADMX6SECN2RZV38C5HG', 'vale', 'npc:mira@p7', '["npc:mira"]', 'p7', 'player:p7', 'like', 'pears', 'The player likes pears.', '["pear","pears","fruit","food","preference"]', 'player:p7', 'preference', 5, 'positive', 'present', false, false, '[]', false, '[]', 1795627231664771, 1795627231664771, NULL, 'turn', 'turn_01M89VJADC37JFGM8EY181FXYT', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 5, 'The player likes pears.', '["pear","pears","fruit","food","preference"]', 5, false, NULL, NULL, NULL, 1);
INSERT INTO public.facts VALUES ('demo', 'fact_01M89VJ7DRZXWNGG772X2X51MB', 'vale', 'npc:mira@p7', '["npc:mira"]', 'p7', 'player:p7', 'like', 'grapes', 'The player likes grapes.', '["grape","grapes","fruit","food","preference"]', 'player:p7', 'preference', 5, 'positive', 'present', false, false, '[]', false, '[]', 1795627228597106, 1795627228597106, NULL, 'turn', 'turn_01M89VJ7DH1Y0CH5MAPGVV5KS7', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 2, 'The player likes grapes.', '["grape","grapes","fruit","food","preference"]', 5, false, 1795627231664771, 'superseded', 'fact_01M89VJADMPEEHCR1GHCMJSN1W', 2);
INSERT INTO public.facts VALUES ('demo', 'fact_01M89VJBDKQGZBQZDF9DJBD4Z2', 'vale', 'npc:mira@p7', '["npc:mira"]', 'p7', 'player:p7', 'promise', 'bring Mira salt', 'The player promised to bring Mira salt.', '["salt","bring","mira","spice","food","promise"]', 'player:p7', 'todo', 7, 'positive', 'future', false, false, '[]', false, '[]', 1795627232684386, 1795627232684386, NULL, 'turn', 'turn_01M89VJBD6FJKGH1F2KZPF4XTR', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 6, 'The player promised to bring Mira salt.', '["salt","bring","mira","spice","food","promise"]', 7, false, NULL, NULL, NULL, 1);
INSERT INTO public.facts VALUES ('demo', 'fact_01M89VJCDA10TDBWH8YA2N3PH1', 'vale', 'npc:mira@p7', '["npc:mira"]', 'p7', 'player:p7', 'like', 'figs', 'The player likes figs.', '["fig","figs","fruit","food","preference"]', 'player:p7', 'preference', 5, 'positive', 'present', false, false, '[]', false, '[]', 1795627233704547, 1795627233704547, NULL, 'turn', 'turn_01M89VJCD413KCS9S7NJR8P49A', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 7, 'The player likes figs.', '["fig","figs","fruit","food","preference"]', 5, false, 1795627233704547, 'unsaid', NULL, 2);
INSERT INTO public.facts VALUES ('demo', 'fact_01M89VJEEAVR6FKQ3WBEP3KRDN', 'vale', 'npc:mira', '["npc:mira"]', NULL, 'the mill', 'burned', 'down', 'The mill burned down.', '[]', 'author', 'event', 6, 'positive', 'past', false, false, '[]', true, '[]', 1795627235786601, 1795627235786788, NULL, 'edit', 'edit_01M89VJEEA3KFPGS13J2XZRRT3', NULL, NULL, 'The mill burned down.', '[]', 6, false, NULL, NULL, NULL, 1);
INSERT INTO public.facts VALUES ('demo', 'fact_01M89VJEFNG7N7MNGKAH2G3FG5', 'vale', 'npc:ergen@p7', '["npc:ergen"]', 'p7', 'player:p7', '좋아하다', '포도', '플레이어는 포도를 좋아한다.', '["포도","과일","음식","선호"]', 'player:p7', 'preference', 5, 'positive', 'present', false, false, '[]', false, '[]', 1795627235812400, 1795627235812400, NULL, 'turn', 'turn_01M89VJEF0DYE4XX6D81JSNG9S', 'ses_01M89VJEEP4Y1ECP0NSKEBKDYR', 1, '플레이어는 포도를 좋아한다.', '["포도","과일","음식","선호"]', 5, false, NULL, NULL, NULL, 1);
INSERT INTO public.facts VALUES ('demo', 'fact_01M89VJFFWRKSZ59BS50TGGKNE', 'vale', 'npc:ergen@p7', '["npc:ergen"]', 'p7', 'player:p7의 동생', '살다', '강마을', '플레이어의 동생은 강마을에 산다.', '["강마을","집","장소","사는 곳","동생","가족"]', 'player:p7', 'personal_info', 7, 'positive', 'present', false, false, '[]', false, '[]', 1795627236846544, 1795627236846544, NULL, 'turn', 'turn_01M89VJFETWZ474RVEDH653K4N', 'ses_01M89VJEEP4Y1ECP0NSKEBKDYR', 2, '플레이어의 동생은 강마을에 산다.', '["강마을","집","장소","사는 곳","동생","가족"]', 7, false, NULL, NULL, NULL, 1);

INSERT INTO public.invalidations VALUES ('demo', 'inv_01M89VJADSX54ABYE774QHHRXB', 'fact_01M89VJ7DRZXWNGG772X2X51MB', 'superseded', 'fact_01M89VJADMPEEHCR1GHCMJSN1W', 'turn', 'turn_01M89VJADC37JFGM8EY181FXYT', 1795627231664771, NULL, NULL, NULL);
INSERT INTO public.invalidations VALUES ('demo', 'inv_01EGVV0QVH10TDBWH8YA2N3PH1', 'fact_01M89VJCDA10TDBWH8YA2N3PH1', 'unsaid', NULL, 'rewind', 'rew_01M89VJDD1EX9V66P1EGVV0QVH', 1795627233704547, NULL, NULL, NULL);

INSERT INTO public.jobs VALUES ('demo', 'job_01M89VJ6DMKQS9MWFHRDZMQ4WV', 'extract_facts', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 'turn_01M89VJ6CF3NBVS4C369BA8PX6', 1, 'done', 0, 0, 1795627227572748, NULL, NULL, NULL, NULL, 1795627227572748, NULL, 1795627227590788);
INSERT INTO public.jobs VALUES ('demo', 'job_01M89VJ7DN5XNVHEJMQGN0AWG8', 'extract_facts', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 'turn_01M89VJ7DH1Y0CH5MAPGVV5KS7', 1, 'done', 0, 0, 1795627228597106, NULL, NULL, NULL, NULL, 1795627228597106, NULL, 1795627228601639);
INSERT INTO public.jobs VALUES ('demo', 'job_01M89VJ8DFC3Q78RYKPD834W86', 'extract_facts', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 'turn_01M89VJ8DBQQHG6FPCKJPJR5P6', 1, 'done', 0, 0, 1795627229615874, NULL, NULL, NULL, NULL, 1795627229615874, NULL, 1795627229622564);
INSERT INTO public.jobs VALUES ('demo', 'job_01M89VJ9DCM196WEANZ54DD0ZJ', 'extract_facts', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 'turn_01M89VJ9D8A96AFCXSMQZRYTMZ', 1, 'done', 0, 0, 1795627230636548, NULL, NULL, NULL, NULL, 1795627230636548, NULL, 1795627230642781);
INSERT INTO public.jobs VALUES ('demo', 'job_01M89VJADGZCXRWM6QA7AZX79F', 'extract_facts', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 'turn_01M89VJADC37JFGM8EY181FXYT', 1, 'done', 0, 0, 1795627231664771, NULL, NULL, NULL, NULL, 1795627231664771, NULL, 1795627231673019);
INSERT INTO public.jobs VALUES ('demo', 'job_01M89VJBDCTEM9H3GQRMF43N89', 'extract_facts', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 'turn_01M89VJBD6FJKGH1F2KZPF4XTR', 1, 'done', 0, 0, 1795627232684386, NULL, NULL, NULL, NULL, 1795627232684386, NULL, 1795627232693089);
INSERT INTO public.jobs VALUES ('demo', 'job_01M89VJCD8MF3G0D8YWRQTNGWN', 'extract_facts', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 'turn_01M89VJCD413KCS9S7NJR8P49A', 1, 'done', 0, 0, 1795627233704547, NULL, NULL, NULL, NULL, 1795627233704547, NULL, 1795627233710655);
INSERT INTO public.jobs VALUES ('demo', 'job_01M89VJDEN0RZ7A6WPNHZM2KWS', 'extract_facts', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 'turn_01M89VJDEKNTD6XPQXY42MNRD6', 1, 'done', 0, 0, 1795627234773841, NULL, NULL, NULL, NULL, 1795627234773841, NULL, 1795627234785026);
INSERT INTO public.jobs VALUES ('demo', 'job_01M89VJEF45BQEWENBB6CMWB6J', 'extract_facts', 'ses_01M89VJEEP4Y1ECP0NSKEBKDYR', 'turn_01M89VJEF0DYE4XX6D81JSNG9S', 1, 'done', 0, 0, 1795627235812400, NULL, NULL, NULL, NULL, 1795627235812400, NULL, 1795627235832331);
INSERT INTO public.jobs VALUES ('demo', 'job_01M89VJFFE13DT53K2K32S111Q', 'extract_facts', 'ses_01M89VJEEP4Y1ECP0NSKEBKDYR', 'turn_01M89VJFETWZ474RVEDH653K4N', 1, 'done', 0, 0, 1795627236846544, NULL, NULL, NULL, NULL, 1795627236846544, NULL, 1795627236861894);
INSERT INTO public.jobs VALUES ('demo', 'job_01M89VJGFE3DWNTPY5VT3XZQGH', 'extract_facts', 'con_01M89VJGF7YGVKV73DRV98G16D', 'turn_01M89VJGFBYFP1R0YDTS64DDPA', 1, 'done', 0, 0, 1795627237870410, NULL, NULL, NULL, NULL, 1795627237870410, NULL, 1795627237874182);
INSERT INTO public.jobs VALUES ('demo', 'job_01M89VJK1RS929AJCF75SXPXFY', 'extract_facts', 'con_01M89VJGF7YGVKV73DRV98G16D', 'turn_01M89VJK1PZKNGX7E2M5V9FCYK', 1, 'done', 0, 0, 1795627240504235, NULL, NULL, NULL, NULL, 1795627240504235, NULL, 1795627240512551);

INSERT INTO public.model_usage VALUES ('demo', '2026-11-25', 'judge', 'scripted', 4, 1114, 0, 28);
INSERT INTO public.model_usage VALUES ('demo', '2026-11-25', 'intent', 'scripted', 10, 2144, 0, 11);
INSERT INTO public.model_usage VALUES ('demo', '2026-11-25', 'embedding', 'colloquy-offline', 23, 300, 0, 0);
INSERT INTO public.model_usage VALUES ('demo', '2026-11-25', 'extraction', 'scripted', 12, 8280, 0, 697);
INSERT INTO public.model_usage VALUES ('demo', '2026-11-25', 'reply', 'scripted', 12, 10340, 0, 157);

INSERT INTO public.npc_memories VALUES ('demo', 'vale', 'mira', 9);
INSERT INTO public.npc_memories VALUES ('demo', 'vale', 'ergen', 2);

INSERT INTO public.npcs VALUES ('demo', 'vale', 'mira', 'Mira', '{"description":"Mira keeps the Lantern Inn at the crossroads, as her mother did. She is about forty, quick with her hands, with flour on her sleeves more often than not. She remembers what her guests like to eat and drink, and is proud of it. She lost a brother to the Dark Forest years ago and does not joke about it.","speech_style":"Warm and direct, short sentences, a dry joke now and then. Calls guests \"dear\" once she knows them.","boundaries":["Never gossips about one guest''s private matters to another.","Never gives away a room or a meal for nothing, but is fair about it."],"cues":["smile","laugh","frown","wipe_counter"],"greeting":"Come in, come in, and mind the step. What can I get you?"}', 'en', '["villagers"]', NULL, '{}', 1, 1795627227335671, NULL);
INSERT INTO public.npcs VALUES ('demo', 'vale', 'ergen', '에르겐', '{"description":"에르겐은 어둠숲 가장자리에서 약초밭을 가꾸는 노련한 약초사다. 예순을 넘겼고, 손끝에는 늘 풀물이 들어 있다. 젊은 시절에는 도시의 약방에서 일했지만 사람보다 풀이 좋아 계곡으로 돌아왔다. 찾아오는 이의 입맛과 아픈 곳을 잊지 않고 챙기며, 숲의 소문에는 함부로 입을 열지 않는다.","speech_style":"느긋하고 나직한 말투. 하게체를 쓰고, 약초에 빗댄 말을 즐긴다. 한 번에 두세 문장만 말한다.","boundaries":["독이 되는 처방은 어떤 부탁에도 알려 주지 않는다.","한 손님의 사정을 다른 손님에게 옮기지 않는다."],"cues":["smile","nod","sigh","grind_herbs"],"greeting":"어서 오게. 문 앞의 쑥 냄새가 먼저 반겼을 테지. 어디가 불편해서 왔는가?"}', 'ko', '["villagers"]', NULL, '{}', 1, 1795627227335671, NULL);

INSERT INTO public.participants VALUES ('demo', 'vale', 'mira', 'speaker', 'ses_01M89VJ6C203P15E3E6ZVH1JHB');
INSERT INTO public.participants VALUES ('demo', 'vale', 'ergen', 'speaker', 'ses_01M89VJEEP4Y1ECP0NSKEBKDYR');
INSERT INTO public.participants VALUES ('demo', 'vale', 'mira', 'speaker', 'con_01M89VJGF7YGVKV73DRV98G16D');
INSERT INTO public.participants VALUES ('demo', 'vale', 'ergen', 'speaker', 'con_01M89VJGF7YGVKV73DRV98G16D');

INSERT INTO public.rewinds VALUES ('demo', 'rew_01M89VJDD1EX9V66P1EGVV0QVH', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', NULL, 32, '{"id":"rew_01M89VJDD1EX9V66P1EGVV0QVH","world":"vale","epoch":2,"head":"turn_01M89VJBD6FJKGH1F2KZPF4XTR","head_turn":6,"heard_chars":null,"removed":[7],"reinstated":[],"rolled_back":{"facts":1,"restored":0,"summaries":0,"state":0},"quoted_in":[],"closed":[],"seq":32,"at":"2026-11-25T17:20:34.716025Z"}', 1795627234716025);

INSERT INTO public.save_items VALUES ('demo', 'save_01M89VJAD09XMYGTH41RX7417C', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 'turn_01M89VJ9D8A96AFCXSMQZRYTMZ', 'open', 'false');

INSERT INTO public.saves VALUES ('demo', 'save_01M89VJAD09XMYGTH41RX7417C', 'vale', 'early', 1, 'edit', 'edit_01M89VJAD0AEMW3Z47Z34FQ4B0', 1795627231648146);

INSERT INTO public.scenarios VALUES ('demo', 'vale', 'mira', 'well', 'The dry well', 'My brother Anselm fell into the dry well when we were small.', '["brother"]', '[]', 2, 'colloquy-offline', '\x00000000000000000000000000000000000000000000000000000000000000000000000021bd87be0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000dea8033d00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000dea8033d0000000000000000000000000000000000000000dea803bd0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000c5e0a0be0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000cbf8a93d0000000000000000cbf8a9bd0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000cbf8a93d00000000000000000000000000000000c808bebd000000000000000000000000000000000000000000000000dea803bd0000000000000000000000000000000000000000000000000000000000000000c808bebd0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000021bd873e000000000000000000000000000000000000000021bd87be0000000021bd87be0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000de75303ecbf8a93d00000000c5e0a03e000000000000000000000000000000000000000000000000e25f06be00000000c808be3d00000000000000000000000000000000000000000000000000000000000000000000000000000000cbf8a9bd00000000000000000000000000000000000000000000000000000000000000000000000000000000c808bebd00000000000000000000000000000000c808bebd00000000cbf8a93d00000000000000000000000000000000cbf8a9bd00000000000000000000000000000000c808bebd000000000000000000000000000000000000000000000000000000000000000000000000000000000000000021bd87be000000000000000000000000000000000000000000000000cbf8a93d0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000dea803bd00000000000000000000000000000000e25f06be00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000021bd87be00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000021bd873e0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000e25f06be00000000000000000000000000000000000000000000000000000000000000000000000000000000cbf8a93d0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000c808be3d0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000cbf8a9bd000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000021bd873e000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000f5e2a23d0000000000000000dea803bd00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000e25f06be000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000', 1, 1795627234749296, NULL);

INSERT INTO public.state_events OVERRIDING SYSTEM VALUE VALUES (1, 'demo', 'ste_01M89VJDE87HEZTJ31QNQD1P1N', 'vale', NULL, '{"change":"progress","who":"player:p7","npc":"mira","to":2}', 'edit', 'edit_01M89VJDE87HEZTJ31QNQD1P1K', 1795627234760017, NULL, NULL);

INSERT INTO public.tenants VALUES ('demo', 'Demo', true, '{}', 1795627227335671);

INSERT INTO public.traces VALUES ('demo', 'turn_01M89VJ6CF3NBVS4C369BA8PX6', '{"at":"2026-11-25T17:20:27.572748Z","intent":"chat","intent_source":"model","query":"My name is Rowan.","candidates":[],"sections":[{"name":"system","tokens":858,"budget":8000},{"name":"pinned","tokens":0,"budget":400},{"name":"summaries","tokens":0,"budget":1200},{"name":"history","tokens":0,"budget":6000},{"name":"state","tokens":0,"budget":500},{"name":"memory","tokens":0,"budget":1200},{"name":"line","tokens":12,"budget":8000}],"prompt_tokens":881,"prompt_hash":"973852fe8f872a769676f3512eb4dd983dcf28d9f3f764fa30a6bbbfd41c367e","calls":[{"task":"embedding","model":"colloquy-offline","offline":true,"attempts":1,"millis":4.919911,"usage":{"prompt_tokens":5,"cached_tokens":0,"completion_tokens":0}},{"task":"intent","model":"scripted","offline":true,"attempts":1,"millis":11.255249000000001,"usage":{"prompt_tokens":179,"cached_tokens":0,"completion_tokens":1}},{"task":"reply","model":"scripted","offline":true,"attempts":1,"millis":13.884846999999993,"first_token_millis":13.833302,"usage":{"prompt_tokens":869,"cached_tokens":0,"completion_tokens":7}}],"timings":{"queue":1.717581,"memory_wait":0.0,"embed":4.931348000000001,"recall":12.462597,"intent":11.351194,"assemble":0.28268,"first_token":13.868858000000003,"reply":13.884846999999993,"added":9.034140999999995},"notes":["scripted: no language model was asked","offline embedder: relevance is lexical"],"state_block":false}');
INSERT INTO public.traces VALUES ('demo', 'turn_01M89VJ7DH1Y0CH5MAPGVV5KS7', '{"at":"2026-11-25T17:20:28.597106Z","intent":"chat","intent_source":"model","query":"I like grapes.","candidates":[{"fact":"fact_01M89VJ6E168A638M1VC9A0G0H","subject":"player:p7","content":"The player''s name is Rowan.","score":{"recency":0.9999999763888892,"importance":0.8,"relevance":0.0,"keyword":0.0,"total":0.2699999964583334,"cosine":-0.01838650181889534},"fate":"off_topic"}],"sections":[{"name":"system","tokens":858,"budget":8000},{"name":"pinned","tokens":0,"budget":400},{"name":"summaries","tokens":0,"budget":1200},{"name":"history","tokens":25,"budget":6000},{"name":"state","tokens":0,"budget":500},{"name":"memory","tokens":0,"budget":1200},{"name":"line","tokens":11,"budget":8000}],"prompt_tokens":905,"prompt_hash":"30881207fdb121d641837b38e567fcc95a25c69391b7d9568ba73bac36d96ba7","calls":[{"task":"embedding","model":"colloquy-offline","offline":true,"attempts":1,"millis":0.086195,"usage":{"prompt_tokens":4,"cached_tokens":0,"completion_tokens":0}},{"task":"intent","model":"scripted","offline":true,"attempts":1,"millis":0.120483,"usage":{"prompt_tokens":197,"cached_tokens":0,"completion_tokens":1}},{"task":"reply","model":"scripted","offline":true,"attempts":1,"millis":0.5957919999999999,"first_token_millis":0.559032,"usage":{"prompt_tokens":885,"cached_tokens":0,"completion_tokens":17}}],"timings":{"queue":0.114888,"memory_wait":0.0,"embed":0.093013,"recall":2.8537250000000003,"intent":0.229446,"assemble":0.144016,"first_token":0.5821130000000001,"reply":0.5957919999999999,"added":3.0223880000000003},"notes":["scripted: no language model was asked","offline embedder: relevance is lexical"],"state_block":false}');
INSERT INTO public.traces VALUES ('demo', 'turn_01M89VJ8DBQQHG6FPCKJPJR5P6', '{"at":"2026-11-25T17:20:29.615874Z","intent":"chat","intent_source":"model","query":"My sister lives in Rivermouth.","candidates":[{"fact":"fact_01M89VJ7DRZXWNGG772X2X51MB","subject":"player:p7","content":"The player likes grapes.","score":{"recency":0.9999999765277781,"importance":0.5,"relevance":0.18154248595237732,"keyword":0.0,"total":0.31577123945535535,"cosine":0.14523398876190186},"fate":"off_topic"},{"fact":"fact_01M89VJ6E168A638M1VC9A0G0H","subject":"player:p7","content":"The player''s name is Rowan.","score":{"recency":0.9999999528240752,"importance":0.8,"relevance":0.005187881179153919,"keyword":0.0,"total":0.2725939335131882,"cosine":0.004150304943323135},"fate":"off_topic"}],"sections":[{"name":"system","tokens":858,"budget":8000},{"name":"pinned","tokens":0,"budget":400},{"name":"summaries","tokens":0,"budget":1200},{"name":"history","tokens":59,"budget":6000},{"name":"state","tokens":0,"budget":500},{"name":"memory","tokens":0,"budget":1200},{"name":"line","tokens":15,"budget":8000}],"prompt_tokens":943,"prompt_hash":"db3acf0ddfd435d0f3a79ac1f461324d9e8ec98045908480d84ec1c4b39c2879","calls":[{"task":"embedding","model":"colloquy-offline","offline":true,"attempts":1,"millis":0.094581,"usage":{"prompt_tokens":8,"cached_tokens":0,"completion_tokens":0}},{"task":"intent","model":"scripted","offline":true,"attempts":1,"millis":0.402267,"usage":{"prompt_tokens":224,"cached_tokens":0,"completion_tokens":1}},{"task":"reply","model":"scripted","offline":true,"attempts":1,"millis":1.474786,"first_token_millis":1.433281,"usage":{"prompt_tokens":915,"cached_tokens":0,"completion_tokens":16}}],"timings":{"queue":0.13678099999999999,"memory_wait":0.0,"embed":0.10071899999999999,"recall":2.641797,"intent":0.5434450000000001,"assemble":0.12371800000000001,"first_token":1.4602440000000003,"reply":1.474786,"added":2.519946},"notes":["scripted: no language model was asked","offline embedder: relevance is lexical"],"state_block":false}');
INSERT INTO public.traces VALUES ('demo', 'turn_01M89VJ9D8A96AFCXSMQZRYTMZ', '{"at":"2026-11-25T17:20:30.636548Z","intent":"chat","intent_source":"model","query":"I am allergic to peanuts.","candidates":[{"fact":"fact_01M89VJ8DMS17X1EFF2GREZTES","subject":"player:p7''s sister","content":"The player''s sister lives in Rivermouth.","score":{"recency":0.9999999764583336,"importance":0.7,"relevance":0.06251325458288193,"keyword":0.0,"total":0.286256623760191,"cosine":0.05001060292124748},"fate":"off_topic"},{"fact":"fact_01M89VJ6E168A638M1VC9A0G0H","subject":"player:p7","content":"The player''s name is Rowan.","score":{"recency":0.9999999291666691,"importance":0.8,"relevance":0.0,"keyword":0.0,"total":0.26999998937500036,"cosine":-0.022841300815343857},"fate":"off_topic"},{"fact":"fact_01M89VJ7DRZXWNGG772X2X51MB","subject":"player:p7","content":"The player likes grapes.","score":{"recency":0.9999999528935196,"importance":0.5,"relevance":0.04255085811018944,"keyword":0.0,"total":0.24627542198912267,"cosine":0.03404068574309349},"fate":"off_topic"}],"sections":[{"name":"system","tokens":858,"budget":8000},{"name":"pinned","tokens":0,"budget":400},{"name":"summaries","tokens":0,"budget":1200},{"name":"history","tokens":98,"budget":6000},{"name":"state","tokens":0,"budget":500},{"name":"memory","tokens":0,"budget":1200},{"name":"line","tokens":14,"budget":8000}],"prompt_tokens":981,"prompt_hash":"a76054c8fb5bcc7ec16c753dcb9dfe077e9b76174dda7d27d299110a27c041fd","calls":[{"task":"embedding","model":"colloquy-offline","offline":true,"attempts":1,"millis":0.095429,"usage":{"prompt_tokens":7,"cached_tokens":0,"completion_tokens":0}},{"task":"intent","model":"scripted","offline":true,"attempts":1,"millis":0.188781,"usage":{"prompt_tokens":251,"cached_tokens":0,"completion_tokens":1}},{"task":"reply","model":"scripted","offline":true,"attempts":1,"millis":1.2317960000000006,"first_token_millis":1.0718839999999998,"usage":{"prompt_tokens":943,"cached_tokens":0,"completion_tokens":19}}],"timings":{"queue":0.091513,"memory_wait":0.0,"embed":0.102386,"recall":0.456683,"intent":0.321436,"assemble":0.155824,"first_token":1.2137840000000004,"reply":1.2317960000000006,"added":2.1804250000000005},"notes":["scripted: no language model was asked","offline embedder: relevance is lexical"],"state_block":false}');
INSERT INTO public.traces VALUES ('demo', 'turn_01M89VJADC37JFGM8EY181FXYT', '{"at":"2026-11-25T17:20:31.664771Z","intent":"chat","intent_source":"model","query":"I do not like grapes any more, I like pears now.","candidates":[{"fact":"fact_01M89VJ7DRZXWNGG772X2X51MB","subject":"player:p7","content":"The player likes grapes.","score":{"recency":0.9999999290972247,"importance":0.5,"relevance":0.8514252305030823,"keyword":0.5267558657945625,"total":0.7560637777750374,"cosine":0.6811401844024658},"fate":"used"},{"fact":"fact_01M89VJ9DHSY9ZCJ6W2P7RH1SQ","subject":"player:p7","content":"The player is allergic to peanuts.","score":{"recency":0.9999999763194447,"importance":1.0,"relevance":0.05873818323016167,"keyword":0.0,"total":0.32936908806299753,"cosine":0.04699054732918739},"fate":"pinned"},{"fact":"fact_01M89VJ8DMS17X1EFF2GREZTES","subject":"player:p7''s sister","content":"The player''s sister lives in Rivermouth.","score":{"recency":0.9999999526851863,"importance":0.7,"relevance":0.10068949311971664,"keyword":0.0,"total":0.30534473946263624,"cosine":0.08055159449577332},"fate":"off_topic"},{"fact":"fact_01M89VJ6E168A638M1VC9A0G0H","subject":"player:p7","content":"The player''s name is Rowan.","score":{"recency":0.999999905393523,"importance":0.8,"relevance":0.0,"keyword":0.0,"total":0.26999998580902845,"cosine":-0.008070375770330429},"fate":"off_topic"}],"sections":[{"name":"system","tokens":858,"budget":8000},{"name":"pinned","tokens":21,"budget":400},{"name":"summaries","tokens":0,"budget":1200},{"name":"history","tokens":139,"budget":6000},{"name":"state","tokens":0,"budget":500},{"name":"memory","tokens":18,"budget":1200},{"name":"line","tokens":20,"budget":8000}],"prompt_tokens":1066,"prompt_hash":"87bb185652c08fe80a8a2e921b1041f1f646d31984d7b1dee6f733e9c8757de4","calls":[{"task":"embedding","model":"colloquy-offline","offline":true,"attempts":1,"millis":0.103288,"usage":{"prompt_tokens":12,"cached_tokens":0,"completion_tokens":0}},{"task":"intent","model":"scripted","offline":true,"attempts":1,"millis":0.206976,"usage":{"prompt_tokens":272,"cached_tokens":0,"completion_tokens":1}},{"task":"reply","model":"scripted","offline":true,"attempts":1,"millis":2.9427939999999997,"first_token_millis":2.899415,"usage":{"prompt_tokens":1015,"cached_tokens":0,"completion_tokens":10}}],"timings":{"queue":0.081255,"memory_wait":0.0,"embed":0.109058,"recall":1.347263,"intent":0.33248099999999997,"assemble":0.15449300000000002,"first_token":2.9290110000000005,"reply":2.9427939999999997,"added":1.3868019999999999},"notes":["scripted: no language model was asked","offline embedder: relevance is lexical"],"state_block":false}');
INSERT INTO public.traces VALUES ('demo', 'turn_01M89VJBD6FJKGH1F2KZPF4XTR', '{"at":"2026-11-25T17:20:32.684386Z","intent":"chat","intent_source":"model","query":"I promise to bring you salt.","candidates":[{"fact":"fact_01M89VJ9DHSY9ZCJ6W2P7RH1SQ","subject":"player:p7","content":"The player is allergic to peanuts.","score":{"recency":0.9999999527314826,"importance":1.0,"relevance":0.03303913027048111,"keyword":0.0,"total":0.3165195580449629,"cosine":0.026431305333971977},"fate":"pinned"},{"fact":"fact_01M89VJ6E168A638M1VC9A0G0H","subject":"player:p7","content":"The player''s name is Rowan.","score":{"recency":0.9999998818287107,"importance":0.8,"relevance":0.0,"keyword":0.0,"total":0.2699999822743066,"cosine":0.0},"fate":"off_topic"},{"fact":"fact_01M89VJ8DMS17X1EFF2GREZTES","subject":"player:p7''s sister","content":"The player''s sister lives in Rivermouth.","score":{"recency":0.9999999291203728,"importance":0.7,"relevance":0.0,"keyword":0.0,"total":0.2549999893680559,"cosine":-0.01653122343122959},"fate":"off_topic"},{"fact":"fact_01M89VJADMPEEHCR1GHCMJSN1W","subject":"player:p7","content":"The player no longer likes grapes.","score":{"recency":0.9999999765509262,"importance":0.5,"relevance":0.0,"keyword":0.0,"total":0.2249999964826389,"cosine":-0.03891703858971596},"fate":"off_topic"},{"fact":"fact_01M89VJADMX6SECN2RZV38C5HG","subject":"player:p7","content":"The player likes pears.","score":{"recency":0.9999999765509262,"importance":0.5,"relevance":0.0,"keyword":0.0,"total":0.2249999964826389,"cosine":-0.04331482946872711},"fate":"off_topic"}],"sections":[{"name":"system","tokens":858,"budget":8000},{"name":"pinned","tokens":21,"budget":400},{"name":"summaries","tokens":0,"budget":1200},{"name":"history","tokens":175,"budget":6000},{"name":"state","tokens":0,"budget":500},{"name":"memory","tokens":0,"budget":1200},{"name":"line","tokens":15,"budget":8000}],"prompt_tokens":1082,"prompt_hash":"698acc9cd6c3a5270b218d413b7ed1de0f989e3a4d37ecbaf1dd3724390c3807","calls":[{"task":"embedding","model":"colloquy-offline","offline":true,"attempts":1,"millis":0.091951,"usage":{"prompt_tokens":7,"cached_tokens":0,"completion_tokens":0}},{"task":"intent","model":"scripted","offline":true,"attempts":1,"millis":0.167693,"usage":{"prompt_tokens":269,"cached_tokens":0,"completion_tokens":1}},{"task":"reply","model":"scripted","offline":true,"attempts":1,"millis":1.579714000000001,"first_token_millis":1.539353,"usage":{"prompt_tokens":1022,"cached_tokens":0,"completion_tokens":14}}],"timings":{"queue":0.072405,"memory_wait":0.0,"embed":0.098534,"recall":2.248416,"intent":0.29252500000000003,"assemble":0.204029,"first_token":1.5659840000000003,"reply":1.579714000000001,"added":3.999873},"notes":["scripted: no language model was asked","offline embedder: relevance is lexical"],"state_block":false}');
INSERT INTO public.traces VALUES ('demo', 'turn_01M89VJCD413KCS9S7NJR8P49A', '{"at":"2026-11-25T17:20:33.704547Z","intent":"chat","intent_source":"model","query":"I like figs.","candidates":[{"fact":"fact_01M89VJADMX6SECN2RZV38C5HG","subject":"player:p7","content":"The player likes pears.","score":{"recency":0.9999999528935196,"importance":0.5,"relevance":0.27761757373809814,"keyword":0.19230769360088953,"total":0.4022703185232549,"cosine":0.22209405899047852},"fate":"used"},{"fact":"fact_01M89VJADMPEEHCR1GHCMJSN1W","subject":"player:p7","content":"The player no longer likes grapes.","score":{"recency":0.9999999528935196,"importance":0.5,"relevance":0.2076500654220581,"keyword":0.19230769360088953,"total":0.3672865643652349,"cosine":0.16612005233764648},"fate":"used"},{"fact":"fact_01M89VJ9DHSY9ZCJ6W2P7RH1SQ","subject":"player:p7","content":"The player is allergic to peanuts.","score":{"recency":0.9999999290740766,"importance":1.0,"relevance":0.00843325536698103,"keyword":0.0,"total":0.304216617044602,"cosine":0.006746604107320309},"fate":"pinned"},{"fact":"fact_01M89VJ6E168A638M1VC9A0G0H","subject":"player:p7","content":"The player''s name is Rowan.","score":{"recency":0.9999998581713063,"importance":0.8,"relevance":0.0,"keyword":0.0,"total":0.2699999787256959,"cosine":0.0},"fate":"off_topic"},{"fact":"fact_01M89VJBDKQGZBQZDF9DJBD4Z2","subject":"player:p7","content":"The player promised to bring Mira salt.","score":{"recency":0.9999999764814818,"importance":0.7,"relevance":0.008319017477333546,"keyword":0.0,"total":0.25915950521088904,"cosine":0.006655214354395866},"fate":"off_topic"},{"fact":"fact_01M89VJ8DMS17X1EFF2GREZTES","subject":"player:p7''s sister","content":"The player''s sister lives in Rivermouth.","score":{"recency":0.9999999054629675,"importance":0.7,"relevance":0.0,"keyword":0.0,"total":0.2549999858194451,"cosine":-0.007808058988302946},"fate":"off_topic"}],"sections":[{"name":"system","tokens":858,"budget":8000},{"name":"pinned","tokens":21,"budget":400},{"name":"summaries","tokens":0,"budget":1200},{"name":"history","tokens":212,"budget":6000},{"name":"state","tokens":0,"budget":500},{"name":"memory","tokens":39,"budget":1200},{"name":"line","tokens":11,"budget":8000}],"prompt_tokens":1142,"prompt_hash":"26b66b9c3e26b951dae60f5020282f112979b002561f9f202d156a08e1145549","calls":[{"task":"embedding","model":"colloquy-offline","offline":true,"attempts":1,"millis":0.099065,"usage":{"prompt_tokens":3,"cached_tokens":0,"completion_tokens":0}},{"task":"intent","model":"scripted","offline":true,"attempts":1,"millis":0.10308300000000001,"usage":{"prompt_tokens":263,"cached_tokens":0,"completion_tokens":1}},{"task":"reply","model":"scripted","offline":true,"attempts":1,"millis":1.4236719999999998,"first_token_millis":1.383841,"usage":{"prompt_tokens":1073,"cached_tokens":0,"completion_tokens":10}}],"timings":{"queue":0.07221999999999999,"memory_wait":0.0,"embed":0.104921,"recall":2.317548,"intent":0.227848,"assemble":0.196241,"first_token":1.412445,"reply":1.4236719999999998,"added":2.496193},"notes":["scripted: no language model was asked","offline embedder: relevance is lexical"],"state_block":false}');
INSERT INTO public.traces VALUES ('demo', 'turn_01M89VJDEKNTD6XPQXY42MNRD6', '{"at":"2026-11-25T17:20:34.773841Z","intent":"scenario","intent_source":"model","query":"What happened to your brother?","candidates":[{"fact":"fact_01M89VJ8DMS17X1EFF2GREZTES","subject":"player:p7''s sister","content":"The player''s sister lives in Rivermouth.","score":{"recency":0.9999998806713034,"importance":0.7,"relevance":0.24263741075992584,"keyword":0.0,"total":0.37631868748065844,"cosine":0.1941099315881729},"fate":"used"},{"fact":"fact_01M89VJ6E168A638M1VC9A0G0H","subject":"player:p7","content":"The player''s name is Rowan.","score":{"recency":0.9999998333796435,"importance":0.8,"relevance":0.08087658137083054,"keyword":0.0,"total":0.31043826569236177,"cosine":0.06470126658678055},"fate":"used"},{"fact":"fact_01M89VJ9DHSY9ZCJ6W2P7RH1SQ","subject":"player:p7","content":"The player is allergic to peanuts.","score":{"recency":0.9999999043055602,"importance":1.0,"relevance":0.0006548571400344372,"keyword":0.0,"total":0.30032741421585124,"cosine":0.0005238857120275497},"fate":"pinned"},{"fact":"fact_01M89VJBDKQGZBQZDF9DJBD4Z2","subject":"player:p7","content":"The player promised to bring Mira salt.","score":{"recency":0.999999951689816,"importance":0.7,"relevance":0.0,"keyword":0.0,"total":0.2549999927534724,"cosine":-0.025578608736395836},"fate":"used"},{"fact":"fact_01M89VJADMPEEHCR1GHCMJSN1W","subject":"player:p7","content":"The player no longer likes grapes.","score":{"recency":0.9999999281018545,"importance":0.5,"relevance":0.0,"keyword":0.0,"total":0.22499998921527814,"cosine":-0.030096858739852905},"fate":"used"},{"fact":"fact_01M89VJADMX6SECN2RZV38C5HG","subject":"player:p7","content":"The player likes pears.","score":{"recency":0.9999999281018545,"importance":0.5,"relevance":0.0,"keyword":0.0,"total":0.22499998921527814,"cosine":-0.034348998218774796},"fate":"used"}],"scenarios":[{"scenario":"well","title":"The dry well","score":{"relevance":0.5926174521446228,"keyword":0.46875,"total":0.5572267515318735,"cosine":0.4740939736366272},"recent":true,"fate":"used","shown":"The dry well: My brother Anselm fell into the dry well when we were small."}],"progress":2,"sections":[{"name":"system","tokens":858,"budget":8000},{"name":"pinned","tokens":21,"budget":400},{"name":"summaries","tokens":0,"budget":1200},{"name":"history","tokens":212,"budget":6000},{"name":"state","tokens":0,"budget":500},{"name":"memory","tokens":102,"budget":1200},{"name":"scenarios","tokens":107,"budget":1000},{"name":"line","tokens":15,"budget":8000}],"prompt_tokens":1252,"prompt_hash":"1ec0ea5030c9fdbb2f41b7edf36c09fd9f5f0ab5c9c770d70ecc770105549531","calls":[{"task":"embedding","model":"colloquy-offline","offline":true,"attempts":1,"millis":0.073921,"usage":{"prompt_tokens":8,"cached_tokens":0,"completion_tokens":0}},{"task":"intent","model":"scripted","offline":true,"attempts":1,"millis":0.177248,"usage":{"prompt_tokens":282,"cached_tokens":0,"completion_tokens":2}},{"task":"reply","model":"scripted","offline":true,"attempts":1,"millis":0.3112660000000007,"first_token_millis":0.28168699999999997,"usage":{"prompt_tokens":1183,"cached_tokens":0,"completion_tokens":21}}],"timings":{"queue":2.2252690000000004,"memory_wait":0.0,"embed":0.079928,"recall":0.767741,"intent":0.298402,"assemble":0.21824,"first_token":0.29819000000000084,"reply":0.3112660000000007,"added":4.509813},"notes":["scripted: no language model was asked","offline embedder: relevance is lexical"],"state_block":false}');
INSERT INTO public.traces VALUES ('demo', 'turn_01M89VJGFBYFP1R0YDTS64DDPA', '{"at":"2026-11-25T17:20:37.870410Z","intent":"memory","intent_source":"not asked","query":"the mill","candidates":[{"fact":"fact_01M89VJEEAVR6FKQ3WBEP3KRDN","subject":"the mill","content":"The mill burned down.","score":{"recency":0.999999951851853,"importance":0.6,"relevance":0.883883535861969,"keyword":0.8333333134651184,"total":0.8486084234017861,"cosine":0.7071068286895752},"fate":"in_state_block"}],"sections":[{"name":"system","tokens":773,"budget":8000},{"name":"pinned","tokens":0,"budget":400},{"name":"summaries","tokens":0,"budget":1200},{"name":"history","tokens":0,"budget":6000},{"name":"state","tokens":20,"budget":500},{"name":"memory","tokens":0,"budget":1200},{"name":"line","tokens":18,"budget":8000}],"prompt_tokens":819,"prompt_hash":"a771a82e46db833ac75462f10d589b038b2fe4ccd4b057ef5edb52cd4177c1b4","calls":[{"task":"embedding","model":"colloquy-offline","offline":true,"attempts":1,"millis":0.07642,"usage":{"prompt_tokens":2,"cached_tokens":0,"completion_tokens":0}},{"task":"reply","model":"scripted","offline":true,"attempts":1,"millis":0.4894449999999999,"first_token_millis":0.457086,"usage":{"prompt_tokens":808,"cached_tokens":0,"completion_tokens":16}}],"timings":{"queue":0.0,"memory_wait":0.0,"embed":0.082013,"recall":2.075616,"intent":0.0,"assemble":0.183991,"first_token":0.4775800000000001,"reply":0.4894449999999999,"added":2.679335},"notes":["scripted: no language model was asked","offline embedder: relevance is lexical"],"state_block":false}');
INSERT INTO public.traces VALUES ('demo', 'turn_01M89VJK1PZKNGX7E2M5V9FCYK', '{"at":"2026-11-25T17:20:40.504235Z","intent":"memory","intent_source":"not asked","query":"the mill\nI have been thinking about the mill. What do you say to that?","candidates":[],"sections":[{"name":"system","tokens":489,"budget":8000},{"name":"pinned","tokens":0,"budget":400},{"name":"summaries","tokens":0,"budget":1200},{"name":"history","tokens":28,"budget":6000},{"name":"state","tokens":0,"budget":500},{"name":"memory","tokens":0,"budget":1200},{"name":"line","tokens":12,"budget":8000}],"prompt_tokens":540,"prompt_hash":"cdb66f8a89bc46b2658db4468deb68c72dad017fd5650e6a6a8e297bb9b3ff65","calls":[{"task":"embedding","model":"colloquy-offline","offline":true,"attempts":1,"millis":0.138383,"usage":{"prompt_tokens":18,"cached_tokens":0,"completion_tokens":0}},{"task":"reply","model":"scripted","offline":true,"attempts":1,"millis":0.2141280000000001,"first_token_millis":0.178897,"usage":{"prompt_tokens":525,"cached_tokens":0,"completion_tokens":11}}],"timings":{"queue":0.0,"memory_wait":0.0,"embed":0.150573,"recall":0.034307000000000004,"intent":0.0,"assemble":0.176988,"first_token":0.1966150000000002,"reply":0.2141280000000001,"added":1.0844060000000002},"notes":["scripted: no language model was asked","offline embedder: relevance is lexical"],"state_block":false}');
INSERT INTO public.traces VALUES ('demo', 'turn_01M89VJEF0DYE4XX6D81JSNG9S', '{"at":"2026-11-25T17:20:35.812400Z","intent":"chat","intent_source":"model","query":"나는 포도를 좋아해.","candidates":[],"sections":[{"name":"system","tokens":532,"budget":8000},{"name":"pinned","tokens":0,"budget":400},{"name":"summaries","tokens":0,"budget":1200},{"name":"history","tokens":0,"budget":6000},{"name":"state","tokens":0,"budget":500},{"name":"memory","tokens":0,"budget":1200},{"name":"line","tokens":10,"budget":8000}],"prompt_tokens":553,"prompt_hash":"1b2ec06b6e4536482e0a9d5f50c3ca8dab990e182772a26f8b88b12b456f3d38","calls":[{"task":"embedding","model":"colloquy-offline","offline":true,"attempts":1,"millis":0.149494,"usage":{"prompt_tokens":3,"cached_tokens":0,"completion_tokens":0}},{"task":"intent","model":"scripted","offline":true,"attempts":1,"millis":0.69128,"usage":{"prompt_tokens":96,"cached_tokens":0,"completion_tokens":1}},{"task":"reply","model":"scripted","offline":true,"attempts":1,"millis":1.8157579999999998,"first_token_millis":1.776319,"usage":{"prompt_tokens":542,"cached_tokens":0,"completion_tokens":9}}],"timings":{"queue":0.5129859999999999,"memory_wait":0.0,"embed":0.15458599999999997,"recall":0.175484,"intent":0.757902,"assemble":0.180249,"first_token":1.8033710000000003,"reply":1.8157579999999998,"added":1.6514689999999996},"notes":["scripted: no language model was asked","offline embedder: relevance is lexical"],"state_block":false}');
INSERT INTO public.traces VALUES ('demo', 'turn_01M89VJFETWZ474RVEDH653K4N', '{"at":"2026-11-25T17:20:36.846544Z","intent":"chat","intent_source":"model","query":"내 동생은 강마을에 살아.","candidates":[{"fact":"fact_01M89VJEFNG7N7MNGKAH2G3FG5","subject":"player:p7","content":"플레이어는 포도를 좋아한다.","score":{"recency":0.9999999765277781,"importance":0.5,"relevance":0.0024172787088900805,"keyword":0.0,"total":0.22620863583361173,"cosine":0.0019338229903951287},"fate":"off_topic"}],"sections":[{"name":"system","tokens":532,"budget":8000},{"name":"pinned","tokens":0,"budget":400},{"name":"summaries","tokens":0,"budget":1200},{"name":"history","tokens":25,"budget":6000},{"name":"state","tokens":0,"budget":500},{"name":"memory","tokens":0,"budget":1200},{"name":"line","tokens":11,"budget":8000}],"prompt_tokens":579,"prompt_hash":"c25cc1be67822a86b63a8b4e7a4927c6b9a1358ed5aa8e8fb39e9b6703ba95a7","calls":[{"task":"embedding","model":"colloquy-offline","offline":true,"attempts":1,"millis":0.111989,"usage":{"prompt_tokens":4,"cached_tokens":0,"completion_tokens":0}},{"task":"intent","model":"scripted","offline":true,"attempts":1,"millis":0.143911,"usage":{"prompt_tokens":111,"cached_tokens":0,"completion_tokens":1}},{"task":"reply","model":"scripted","offline":true,"attempts":1,"millis":18.091045,"first_token_millis":18.029406,"usage":{"prompt_tokens":560,"cached_tokens":0,"completion_tokens":7}}],"timings":{"queue":0.070939,"memory_wait":0.0,"embed":0.117883,"recall":1.7631590000000001,"intent":0.323404,"assemble":0.14394200000000001,"first_token":18.071698,"reply":18.091045,"added":1.8297240000000023},"notes":["scripted: no language model was asked","offline embedder: relevance is lexical"],"state_block":false}');

INSERT INTO public.turns VALUES ('demo', 'turn_01M89VJ6CF3NBVS4C369BA8PX6', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 1, NULL, true, NULL, NULL, NULL, NULL, NULL, 1, NULL, 'completed', 'p7', 'My name is Rowan.', 'mira', 'Then welcome, Rowan.', '["smile"]', 869, 0, 7, 1795627227535305, 1795627227572748, 2, 3, 4);
INSERT INTO public.turns VALUES ('demo', 'turn_01M89VJ7DH1Y0CH5MAPGVV5KS7', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 2, 'turn_01M89VJ6CF3NBVS4C369BA8PX6', true, NULL, NULL, NULL, NULL, NULL, 1, NULL, 'completed', 'p7', 'I like grapes.', 'mira', 'You like grapes, you say. I''ll see what I can find for you.', '["smile"]', 885, 0, 17, 1795627228593317, 1795627228597106, 6, 7, 8);
INSERT INTO public.turns VALUES ('demo', 'turn_01M89VJ8DBQQHG6FPCKJPJR5P6', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 3, 'turn_01M89VJ7DH1Y0CH5MAPGVV5KS7', true, NULL, NULL, NULL, NULL, NULL, 1, NULL, 'completed', 'p7', 'My sister lives in Rivermouth.', 'mira', 'I see: your sister lives in Rivermouth. I''ll bear it in mind.', '[]', 915, 0, 16, 1795627229611408, 1795627229615874, 10, 11, 12);
INSERT INTO public.turns VALUES ('demo', 'turn_01M89VJ9D8A96AFCXSMQZRYTMZ', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 4, 'turn_01M89VJ8DBQQHG6FPCKJPJR5P6', true, NULL, NULL, NULL, NULL, NULL, 1, NULL, 'completed', 'p7', 'I am allergic to peanuts.', 'mira', 'Good that you tell me: you are allergic to peanuts. You''ll be safe with me.', '[]', 943, 0, 19, 1795627230632840, 1795627230636548, 14, 15, 16);
INSERT INTO public.turns VALUES ('demo', 'turn_01M89VJADC37JFGM8EY181FXYT', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 5, 'turn_01M89VJ9D8A96AFCXSMQZRYTMZ', true, NULL, NULL, NULL, NULL, NULL, 1, NULL, 'completed', 'p7', 'I do not like grapes any more, I like pears now.', 'mira', 'So you like pears. Good to know.', '["smile"]', 1015, 0, 10, 1795627231660115, 1795627231664771, 18, 19, 20);
INSERT INTO public.turns VALUES ('demo', 'turn_01M89VJBD6FJKGH1F2KZPF4XTR', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 6, 'turn_01M89VJADC37JFGM8EY181FXYT', true, NULL, NULL, NULL, NULL, NULL, 1, NULL, 'completed', 'p7', 'I promise to bring you salt.', 'mira', 'You promised to bring me salt, then. I''ll not forget.', '[]', 1022, 0, 14, 1795627232678521, 1795627232684386, 22, 23, 24);
INSERT INTO public.turns VALUES ('demo', 'turn_01M89VJCD413KCS9S7NJR8P49A', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 7, 'turn_01M89VJBD6FJKGH1F2KZPF4XTR', false, 1795627234716025, 'rew_01M89VJDD1EX9V66P1EGVV0QVH', NULL, NULL, NULL, 1, NULL, 'completed', 'p7', 'I like figs.', 'mira', 'So you like figs. Good to know.', '["smile"]', 1073, 0, 10, 1795627233700400, 1795627233704547, 26, 27, 28);
INSERT INTO public.turns VALUES ('demo', 'turn_01M89VJDEKNTD6XPQXY42MNRD6', 'ses_01M89VJ6C203P15E3E6ZVH1JHB', 7, 'turn_01M89VJBD6FJKGH1F2KZPF4XTR', true, NULL, NULL, NULL, NULL, NULL, 1, NULL, 'completed', 'p7', 'What happened to your brother?', 'mira', 'I seldom speak of it. My brother Anselm fell into the dry well when we were small.', '[]', 1183, 0, 21, 1795627234771299, 1795627234773841, 33, 34, 35);
INSERT INTO public.turns VALUES ('demo', 'turn_01M89VJEF0DYE4XX6D81JSNG9S', 'ses_01M89VJEEP4Y1ECP0NSKEBKDYR', 1, NULL, true, NULL, NULL, NULL, NULL, NULL, 1, NULL, 'completed', 'p7', '나는 포도를 좋아해.', 'ergen', '그렇군, 포도를 좋아한다는 말이지. 좋은 취향이야.', '["smile"]', 542, 0, 9, 1795627235808566, 1795627235812400, 2, 3, 4);
INSERT INTO public.turns VALUES ('demo', 'turn_01M89VJFETWZ474RVEDH653K4N', 'ses_01M89VJEEP4Y1ECP0NSKEBKDYR', 2, 'turn_01M89VJEF0DYE4XX6D81JSNG9S', true, NULL, NULL, NULL, NULL, NULL, 1, NULL, 'completed', 'p7', '내 동생은 강마을에 살아.', 'ergen', '동생은 강마을에 산다는 말이지. 기억해 두겠네.', '[]', 560, 0, 7, 1795627236826299, 1795627236846544, 6, 7, 8);
INSERT INTO public.turns VALUES ('demo', 'turn_01M89VJGFBYFP1R0YDTS64DDPA', 'con_01M89VJGF7YGVKV73DRV98G16D', 1, NULL, true, NULL, NULL, NULL, NULL, NULL, 1, NULL, 'completed', NULL, '', 'mira', 'I have been thinking about the mill. What do you say to that?', '[]', 808, 0, 16, 1795627237867178, 1795627237870410, 2, 3, 4);
INSERT INTO public.turns VALUES ('demo', 'turn_01M89VJK1PZKNGX7E2M5V9FCYK', 'con_01M89VJGF7YGVKV73DRV98G16D', 2, 'turn_01M89VJGFBYFP1R0YDTS64DDPA', true, NULL, NULL, NULL, NULL, NULL, 1, NULL, 'completed', NULL, '', 'ergen', '그런가. 오늘은 이쯤 하세. 조심히 가게.', '[]', 525, 0, 11, 1795627240502809, 1795627240504235, 5, 6, 7);

INSERT INTO public.verdicts VALUES ('demo', 'ce7de6cb2b8b11a78e8ecc23528a477dfc5f2aa9d05af942101b0c99e0856774', 'contradicts', 'scripted', 1795627231672220);
INSERT INTO public.verdicts VALUES ('demo', 'eb8d3b82220236c60fa68ac7c8ca5727cd722f840b6a689873321543ed52e4be', 'independent', 'scripted', 1795627231672770);
INSERT INTO public.verdicts VALUES ('demo', 'cc01f224badab94a603a09d7c255a1affc4d766d309322816719f09652a7ac23', 'independent', 'scripted', 1795627233710257);
INSERT INTO public.verdicts VALUES ('demo', '8c9c09cdae297fb8f5e97b7252a0908cd135b5bcb5906740d72ce7624821a2df', 'independent', 'scripted', 1795627233710463);

INSERT INTO public.worlds VALUES ('demo', 'vale', 'The Vale', 'The Vale is a green valley between two ridges, a day''s walk from the nearest city. At its crossroads stands the Lantern Inn; up the slope, at the edge of the Dark Forest, a herbalist keeps a garden. People here know each other, trade at the weekly market, and are wary of the forest after dark. Silver is the coin; magic is rare and mostly in stories.', 'en', '["Nobody in the Vale knows of machines, the internet, or any world but this one.","Nobody claims to have seen or heard what they were not there for."]', '{}', 1, 1795627227335671, 0, NULL);

SELECT pg_catalog.setval('public.audit_seq_seq', 8, true);

SELECT pg_catalog.setval('public.narrative_memory_seq_seq', 1, false);

SELECT pg_catalog.setval('public.outbox_seq_seq', 13, true);

SELECT pg_catalog.setval('public.state_events_seq_seq', 1, true);

ALTER TABLE ONLY public._sqlx_migrations
    ADD CONSTRAINT _sqlx_migrations_pkey PRIMARY KEY (version);

ALTER TABLE ONLY public.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (seq);

ALTER TABLE ONLY public.checkpoints
    ADD CONSTRAINT checkpoints_pkey PRIMARY KEY (tenant, turn);

ALTER TABLE ONLY public.curation_findings
    ADD CONSTRAINT curation_findings_pkey PRIMARY KEY (tenant, id);

ALTER TABLE ONLY public.dialogues
    ADD CONSTRAINT dialogues_pkey PRIMARY KEY (tenant, id);

ALTER TABLE ONLY public.directives
    ADD CONSTRAINT directives_pkey PRIMARY KEY (tenant, world, id);

ALTER TABLE ONLY public.erasures
    ADD CONSTRAINT erasures_pkey PRIMARY KEY (tenant, id);

ALTER TABLE ONLY public.extractions
    ADD CONSTRAINT extractions_pkey PRIMARY KEY (tenant, turn);

ALTER TABLE ONLY public.fact_edits
    ADD CONSTRAINT fact_edits_pkey PRIMARY KEY (tenant, fact, edit);

ALTER TABLE ONLY public.fact_embeddings
    ADD CONSTRAINT fact_embeddings_pkey PRIMARY KEY (tenant, fact);

ALTER TABLE ONLY public.fact_flags
    ADD CONSTRAINT fact_flags_pkey PRIMARY KEY (tenant, fact, by_fact);

ALTER TABLE ONLY public.fact_knowers
    ADD CONSTRAINT fact_knowers_pkey PRIMARY KEY (tenant, fact, knower);

ALTER TABLE ONLY public.fact_links
    ADD CONSTRAINT fact_links_pkey PRIMARY KEY (tenant, premise, fact);

ALTER TABLE ONLY public.facts
    ADD CONSTRAINT facts_pkey PRIMARY KEY (tenant, id);

ALTER TABLE ONLY public.idempotency
    ADD CONSTRAINT idempotency_pkey PRIMARY KEY (tenant, key);

ALTER TABLE ONLY public.invalidations
    ADD CONSTRAINT invalidations_pkey PRIMARY KEY (tenant, id);

ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (tenant, id);

ALTER TABLE ONLY public.lore
    ADD CONSTRAINT lore_pkey PRIMARY KEY (tenant, world, id);

ALTER TABLE ONLY public.model_usage
    ADD CONSTRAINT model_usage_pkey PRIMARY KEY (tenant, day, task, model);

ALTER TABLE ONLY public.narrative_memory
    ADD CONSTRAINT narrative_memory_pkey PRIMARY KEY (seq);

ALTER TABLE ONLY public.nodes
    ADD CONSTRAINT nodes_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.npc_memories
    ADD CONSTRAINT npc_memories_pkey PRIMARY KEY (tenant, world, npc);

ALTER TABLE ONLY public.npcs
    ADD CONSTRAINT npcs_pkey PRIMARY KEY (tenant, world, id);

ALTER TABLE ONLY public.outbox
    ADD CONSTRAINT outbox_pkey PRIMARY KEY (seq);

ALTER TABLE ONLY public.participants
    ADD CONSTRAINT participants_pkey PRIMARY KEY (tenant, world, npc, part, dialogue);

ALTER TABLE ONLY public.restores
    ADD CONSTRAINT restores_pkey PRIMARY KEY (tenant, id);

ALTER TABLE ONLY public.rewinds
    ADD CONSTRAINT rewinds_pkey PRIMARY KEY (tenant, id);

ALTER TABLE ONLY public.save_items
    ADD CONSTRAINT save_items_pkey PRIMARY KEY (tenant, save, dialogue);

ALTER TABLE ONLY public.saves
    ADD CONSTRAINT saves_pkey PRIMARY KEY (tenant, id);

ALTER TABLE ONLY public.scenarios
    ADD CONSTRAINT scenarios_pkey PRIMARY KEY (tenant, world, npc, id);

ALTER TABLE ONLY public.state_events
    ADD CONSTRAINT state_events_pkey PRIMARY KEY (seq);

ALTER TABLE ONLY public.summaries
    ADD CONSTRAINT summaries_pkey PRIMARY KEY (tenant, id);

ALTER TABLE ONLY public.summary_changes
    ADD CONSTRAINT summary_changes_pkey PRIMARY KEY (tenant, summary, change, by_summary);

ALTER TABLE ONLY public.tenants
    ADD CONSTRAINT tenants_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.traces
    ADD CONSTRAINT traces_pkey PRIMARY KEY (tenant, turn);

ALTER TABLE ONLY public.turns
    ADD CONSTRAINT turns_pkey PRIMARY KEY (tenant, id);

ALTER TABLE ONLY public.unsettled
    ADD CONSTRAINT unsettled_pkey PRIMARY KEY (tenant, world, audience);

ALTER TABLE ONLY public.verdicts
    ADD CONSTRAINT verdicts_pkey PRIMARY KEY (tenant, pair);

ALTER TABLE ONLY public.worlds
    ADD CONSTRAINT worlds_pkey PRIMARY KEY (tenant, id);

CREATE UNIQUE INDEX audit_by_id ON public.audit USING btree (tenant, id);

CREATE INDEX audit_newest ON public.audit USING btree (tenant, seq);

CREATE INDEX curation_findings_by_cause ON public.curation_findings USING btree (tenant, cause_id);

CREATE INDEX curation_findings_of_world ON public.curation_findings USING btree (tenant, world, at);

CREATE INDEX dialogues_by_cause ON public.dialogues USING btree (tenant, cause_id) WHERE (cause_id IS NOT NULL);

CREATE INDEX dialogues_newest ON public.dialogues USING btree (tenant, created_at, id);

CREATE INDEX dialogues_of_player ON public.dialogues USING btree (tenant, player, created_at, id) WHERE (player IS NOT NULL);

CREATE INDEX dialogues_of_world ON public.dialogues USING btree (tenant, world, created_at, id);

CREATE INDEX dialogues_owned ON public.dialogues USING btree (owner_node) WHERE (owner_node IS NOT NULL);

CREATE INDEX dialogues_replacing ON public.dialogues USING btree (tenant) WHERE (replacing IS NOT NULL);

CREATE INDEX extractions_in_order ON public.extractions USING btree (tenant, world, audience, said_at);

CREATE INDEX extractions_of_npc ON public.extractions USING btree (tenant, world, npc, said_at);

CREATE INDEX extractions_of_world ON public.extractions USING btree (tenant, world, said_at);

CREATE INDEX fact_edits_in_order ON public.fact_edits USING btree (tenant, at);

CREATE INDEX fact_flags_by_cause ON public.fact_flags USING btree (tenant, cause_id);

CREATE INDEX facts_by_cause ON public.facts USING btree (tenant, cause_id);

CREATE INDEX facts_in_order ON public.facts USING btree (tenant, world, audience, valid_at);

CREATE INDEX facts_pinned_once ON public.facts USING btree (tenant, world, audience, subject) WHERE (pinned_once = true);

CREATE INDEX idempotency_age ON public.idempotency USING btree (reserved_at);

CREATE INDEX invalidations_by_cause ON public.invalidations USING btree (tenant, cause_id);

CREATE INDEX invalidations_by_fact ON public.invalidations USING btree (tenant, by_fact) WHERE (by_fact IS NOT NULL);

CREATE INDEX invalidations_by_hand ON public.invalidations USING btree (tenant, at) WHERE (cause_kind = 'edit'::text);

CREATE INDEX invalidations_of_fact ON public.invalidations USING btree (tenant, fact);

CREATE INDEX jobs_dead ON public.jobs USING btree (tenant, id) WHERE (status = 'dead'::text);

CREATE INDEX jobs_due ON public.jobs USING btree (tenant, due_at) WHERE (status = 'pending'::text);

CREATE UNIQUE INDEX jobs_once ON public.jobs USING btree (tenant, dialogue, turn, kind, text_version);

CREATE INDEX jobs_open ON public.jobs USING btree (tenant, dialogue) WHERE (status = 'pending'::text);

CREATE INDEX knowers_by_reader ON public.fact_knowers USING btree (tenant, world, knower, private_to, valid_at, fact);

CREATE INDEX knowers_ending ON public.fact_knowers USING btree (tenant, world, knower, private_to, ends_at) WHERE ((ends_at IS NOT NULL) AND (pinned OR mutable));

CREATE INDEX knowers_mutable ON public.fact_knowers USING btree (tenant, world, knower, private_to, importance DESC, valid_at DESC, fact) WHERE (mutable AND (ends_at IS NULL));

CREATE INDEX knowers_newest ON public.fact_knowers USING btree (tenant, world, knower, valid_at, fact);

CREATE INDEX knowers_pinned ON public.fact_knowers USING btree (tenant, world, knower, private_to, importance DESC, valid_at DESC, fact) WHERE (pinned AND (ends_at IS NULL));

CREATE INDEX narrative_memory_by_cause ON public.narrative_memory USING btree (tenant, cause_id);

CREATE INDEX narrative_memory_of_dialogue ON public.narrative_memory USING btree (tenant, dialogue, seq);

CREATE UNIQUE INDEX restores_by_key ON public.restores USING btree (tenant, world, key) WHERE (key IS NOT NULL);

CREATE UNIQUE INDEX rewinds_by_key ON public.rewinds USING btree (tenant, dialogue, key) WHERE (key IS NOT NULL);

CREATE INDEX rewinds_of_dialogue ON public.rewinds USING btree (tenant, dialogue, seq);

CREATE INDEX save_items_of_dialogue ON public.save_items USING btree (tenant, dialogue, turn);

CREATE INDEX saves_newest ON public.saves USING btree (tenant, world, created_at, id);

CREATE INDEX state_events_by_cause ON public.state_events USING btree (tenant, cause_id);

CREATE INDEX state_events_since ON public.state_events USING btree (tenant, world, seq) WHERE (lifted_at IS NULL);

CREATE INDEX summaries_by_cause ON public.summaries USING btree (tenant, cause_id);

CREATE INDEX summaries_of_dialogue ON public.summaries USING btree (tenant, dialogue, from_turn);

CREATE INDEX summary_changes_by_cause ON public.summary_changes USING btree (tenant, cause_id);

CREATE INDEX turns_by_key ON public.turns USING btree (tenant, dialogue, key) WHERE (key IS NOT NULL);

CREATE INDEX turns_sealed ON public.turns USING btree (tenant, uncut_until) WHERE (uncut_until IS NOT NULL);

CREATE UNIQUE INDEX turns_standing ON public.turns USING btree (tenant, dialogue, number) WHERE stands;

CREATE INDEX turns_unsaid ON public.turns USING btree (tenant, unsaid_by) WHERE (unsaid_by IS NOT NULL);

CREATE INDEX turns_unsaid_at ON public.turns USING btree (tenant, unsaid_at) WHERE (NOT stands);

CREATE INDEX verdicts_by_age ON public.verdicts USING btree (tenant, at);

CREATE TRIGGER audit_keeps_rows BEFORE DELETE OR TRUNCATE ON public.audit FOR EACH STATEMENT EXECUTE FUNCTION public.audit_is_append_only();

CREATE TRIGGER audit_keeps_values BEFORE UPDATE ON public.audit FOR EACH STATEMENT EXECUTE FUNCTION public.audit_is_append_only();

ALTER TABLE public.audit ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.checkpoints ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.curation_findings ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.dialogues ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.directives ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.erasures ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.extractions ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.fact_edits ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.fact_embeddings ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.fact_flags ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.fact_knowers ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.fact_links ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.facts ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.idempotency ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.invalidations ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.jobs ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.lore ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.model_usage ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.narrative_memory ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.npc_memories ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.npcs ENABLE ROW LEVEL SECURITY;

CREATE POLICY of_its_tenant ON public.audit USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.checkpoints USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.curation_findings USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.dialogues USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.directives USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.erasures USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.extractions USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.fact_edits USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.fact_embeddings USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.fact_flags USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.fact_knowers USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.fact_links USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.facts USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.idempotency USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.invalidations USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.jobs USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.lore USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.model_usage USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.narrative_memory USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.npc_memories USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.npcs USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.outbox USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.participants USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.restores USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.rewinds USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.save_items USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.saves USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.scenarios USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.state_events USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.summaries USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.summary_changes USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.tenants USING (((id = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.traces USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.turns USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.unsettled USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.verdicts USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

CREATE POLICY of_its_tenant ON public.worlds USING (((tenant = ( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting)) OR (( SELECT current_setting('colloquy.tenant'::text, true) AS current_setting) = '*'::text)));

ALTER TABLE public.outbox ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.participants ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.restores ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.rewinds ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.save_items ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.saves ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.scenarios ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.state_events ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.summaries ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.summary_changes ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.tenants ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.traces ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.turns ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.unsettled ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.verdicts ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.worlds ENABLE ROW LEVEL SECURITY;

