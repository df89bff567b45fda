-- Actions that NPCs asked the backend for. Their turns caused them: a rewind lifts them, like state_events.
CREATE TABLE actions (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant      TEXT NOT NULL,
    id          TEXT NOT NULL,
    world       TEXT NOT NULL,
    dialogue    TEXT NOT NULL,
    -- The number of the turn.
    number      INTEGER NOT NULL,
    npc         TEXT NOT NULL,
    -- Unset in a conversation of NPCs.
    player      TEXT,
    name        TEXT NOT NULL,
    -- A JSON object.
    arguments   TEXT NOT NULL,
    cause_kind  TEXT NOT NULL,
    cause_id    TEXT NOT NULL,
    at          INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    -- `done` or `refused`; unset: no answer.
    answer      TEXT,
    answer_text TEXT,
    answered_at INTEGER,
    lifted_at   INTEGER,
    lifted_by   TEXT
) STRICT;
CREATE UNIQUE INDEX actions_by_id ON actions (tenant, id);
CREATE INDEX actions_of_world ON actions (tenant, world, seq);
CREATE INDEX actions_of_dialogue ON actions (tenant, dialogue, npc, seq);
CREATE INDEX actions_by_cause ON actions (tenant, cause_id);
