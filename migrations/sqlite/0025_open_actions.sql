-- The actions that wait for an answer.
CREATE INDEX actions_open ON actions (tenant, world, seq) WHERE answer IS NULL AND lifted_at IS NULL;
