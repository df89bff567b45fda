-- Addresses of a tenant's backend that are told of events.
CREATE TABLE webhooks (
    tenant          TEXT NOT NULL,
    id              TEXT NOT NULL,
    url             TEXT NOT NULL,
    description     TEXT NOT NULL,
    -- JSON: types of events, and ids of worlds. Empty: all.
    types           TEXT NOT NULL,
    worlds          TEXT NOT NULL,
    include_text    INTEGER NOT NULL,
    -- `hmac` or `ed25519`.
    signature       TEXT NOT NULL,
    key             TEXT NOT NULL,
    -- JSON: keys before rotations, each with its expiry.
    old_keys        TEXT NOT NULL,
    -- `by_hand`, `gone` or `failing`; NULL: enabled.
    disabled        TEXT,
    disabled_at     INTEGER,
    -- The first failure since the last success.
    failing_since   INTEGER,
    version         INTEGER NOT NULL,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT;
-- The few that events look for.
CREATE INDEX webhooks_enabled ON webhooks (tenant, id) WHERE disabled IS NULL;

-- A message for each webhook and event, written in the transaction of what it tells.
CREATE TABLE webhook_messages (
    -- The order of the messages.
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant      TEXT NOT NULL,
    webhook     TEXT NOT NULL,
    -- The same for all webhooks of the tenant.
    id          TEXT NOT NULL,
    type        TEXT NOT NULL,
    world       TEXT,
    dialogue    TEXT,
    -- Messages of a queue are delivered in order: a dialogue, a world, or the tenant.
    queue       TEXT NOT NULL,
    -- The id of the turn, the action or another object.
    object      TEXT NOT NULL,
    -- JSON: ids, keys and numbers. Never texts.
    data        TEXT NOT NULL,
    -- When the event happened.
    at          INTEGER NOT NULL,
    -- `pending`, `delivered` or `failed`.
    status      TEXT NOT NULL,
    attempts    INTEGER NOT NULL,
    -- The next attempt; while a node has the message, the end of the lease.
    due_at      INTEGER NOT NULL,
    leased_to   TEXT,
    finished_at INTEGER
) STRICT;
CREATE UNIQUE INDEX webhook_messages_by_id ON webhook_messages (tenant, webhook, id);
CREATE INDEX webhook_messages_due ON webhook_messages (tenant, webhook, due_at, seq) WHERE status = 'pending';
CREATE INDEX webhook_messages_of_queue ON webhook_messages (tenant, webhook, queue, seq) WHERE status = 'pending';
CREATE INDEX webhook_messages_leased ON webhook_messages (leased_to) WHERE leased_to IS NOT NULL;
-- For replays and for retention.
CREATE INDEX webhook_messages_by_time ON webhook_messages (tenant, at);

CREATE TABLE webhook_attempts (
    tenant      TEXT NOT NULL,
    id          TEXT NOT NULL,
    webhook     TEXT NOT NULL,
    message     TEXT NOT NULL,
    type        TEXT NOT NULL,
    number      INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    duration_ms INTEGER NOT NULL,
    delivered   INTEGER NOT NULL,
    -- The HTTP status, if there was an answer.
    status      INTEGER,
    -- Why the attempt failed.
    detail      TEXT NOT NULL,
    PRIMARY KEY (tenant, webhook, id)
) STRICT;
CREATE INDEX webhook_attempts_by_id ON webhook_attempts (tenant, id);
