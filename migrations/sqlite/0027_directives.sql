-- What authors tell NPCs to do in some dialogues of a world. Deleted with their world.
CREATE TABLE directives (
    tenant       TEXT NOT NULL,
    world        TEXT NOT NULL,
    id           TEXT NOT NULL,
    -- JSON: patterns of the keys of dialogues.
    keys         TEXT NOT NULL,
    text         TEXT NOT NULL,
    -- JSON: lines.
    instructions TEXT NOT NULL,
    fails_if     TEXT NOT NULL,
    priority     INTEGER NOT NULL,
    version      INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    PRIMARY KEY (tenant, world, id)
) STRICT;
