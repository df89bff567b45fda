-- Addresses of a tenant's backend that are told of events.
CREATE TABLE webhooks (
    tenant          TEXT COLLATE "C" NOT NULL,
    id              TEXT COLLATE "C" NOT NULL,
    url             TEXT COLLATE "C" NOT NULL,
    description     TEXT COLLATE "C" NOT NULL,
    -- JSON: types of events, and ids of worlds. Empty: all.
    types           TEXT COLLATE "C" NOT NULL,
    worlds          TEXT COLLATE "C" NOT NULL,
    include_text    BOOLEAN NOT NULL,
    -- `hmac` or `ed25519`.
    signature       TEXT COLLATE "C" NOT NULL,
    key             TEXT COLLATE "C" NOT NULL,
    -- JSON: keys before rotations, each with its expiry.
    old_keys        TEXT COLLATE "C" NOT NULL,
    -- `by_hand`, `gone` or `failing`; NULL: enabled.
    disabled        TEXT COLLATE "C",
    disabled_at     BIGINT,
    -- The first failure since the last success.
    failing_since   BIGINT,
    version         BIGINT NOT NULL,
    created_at      BIGINT NOT NULL,
    updated_at      BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
);
-- The few that events look for.
CREATE INDEX webhooks_enabled ON webhooks (tenant, id) WHERE disabled IS NULL;

-- A message for each webhook and event, written in the transaction of what it tells.
CREATE TABLE webhook_messages (
    -- The order of the messages.
    seq         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant      TEXT COLLATE "C" NOT NULL,
    webhook     TEXT COLLATE "C" NOT NULL,
    -- The same for all webhooks of the tenant.
    id          TEXT COLLATE "C" NOT NULL,
    type        TEXT COLLATE "C" NOT NULL,
    world       TEXT COLLATE "C",
    dialogue    TEXT COLLATE "C",
    -- Messages of a queue are delivered in order: a dialogue, a world, or the tenant.
    queue       TEXT COLLATE "C" NOT NULL,
    -- The id of the turn, the action or another object.
    object      TEXT COLLATE "C" NOT NULL,
    -- JSON: ids, keys and numbers. Never texts.
    data        TEXT COLLATE "C" NOT NULL,
    -- When the event happened.
    at          BIGINT NOT NULL,
    -- `pending`, `delivered` or `failed`.
    status      TEXT COLLATE "C" NOT NULL,
    attempts    BIGINT NOT NULL,
    -- The next attempt; while a node has the message, the end of the lease.
    due_at      BIGINT NOT NULL,
    leased_to   TEXT COLLATE "C",
    finished_at BIGINT
);
CREATE UNIQUE INDEX webhook_messages_by_id ON webhook_messages (tenant, webhook, id);
CREATE INDEX webhook_messages_due ON webhook_messages (tenant, webhook, due_at, seq) WHERE status = 'pending';
CREATE INDEX webhook_messages_of_queue ON webhook_messages (tenant, webhook, queue, seq) WHERE status = 'pending';
CREATE INDEX webhook_messages_leased ON webhook_messages (leased_to) WHERE leased_to IS NOT NULL;
-- For replays and for retention.
CREATE INDEX webhook_messages_by_time ON webhook_messages (tenant, at);

CREATE TABLE webhook_attempts (
    tenant      TEXT COLLATE "C" NOT NULL,
    id          TEXT COLLATE "C" NOT NULL,
    webhook     TEXT COLLATE "C" NOT NULL,
    message     TEXT COLLATE "C" NOT NULL,
    type        TEXT COLLATE "C" NOT NULL,
    number      BIGINT NOT NULL,
    at          BIGINT NOT NULL,
    duration_ms BIGINT NOT NULL,
    delivered   BOOLEAN NOT NULL,
    -- The HTTP status, if there was an answer.
    status      BIGINT,
    -- Why the attempt failed.
    detail      TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, webhook, id)
);
CREATE INDEX webhook_attempts_by_id ON webhook_attempts (tenant, id);

ALTER TABLE webhooks ENABLE ROW LEVEL SECURITY;
ALTER TABLE webhooks FORCE ROW LEVEL SECURITY;
CREATE POLICY of_its_tenant ON webhooks USING (tenant = (SELECT current_setting('colloquy.tenant', true))
    OR (SELECT current_setting('colloquy.tenant', true)) = '*');
ALTER TABLE webhooks SET (autovacuum_analyze_scale_factor = 0.5, autovacuum_vacuum_insert_scale_factor = 1);

ALTER TABLE webhook_messages ENABLE ROW LEVEL SECURITY;
ALTER TABLE webhook_messages FORCE ROW LEVEL SECURITY;
CREATE POLICY of_its_tenant ON webhook_messages USING (tenant = (SELECT current_setting('colloquy.tenant', true))
    OR (SELECT current_setting('colloquy.tenant', true)) = '*');
ALTER TABLE webhook_messages SET (autovacuum_analyze_scale_factor = 0.5, autovacuum_vacuum_insert_scale_factor = 1);

ALTER TABLE webhook_attempts ENABLE ROW LEVEL SECURITY;
ALTER TABLE webhook_attempts FORCE ROW LEVEL SECURITY;
CREATE POLICY of_its_tenant ON webhook_attempts USING (tenant = (SELECT current_setting('colloquy.tenant', true))
    OR (SELECT current_setting('colloquy.tenant', true)) = '*');
ALTER TABLE webhook_attempts SET (autovacuum_analyze_scale_factor = 0.5, autovacuum_vacuum_insert_scale_factor = 1);
