-- Since when a dialogue has turns, cuts or rewinds after which nobody checked for a silence; unset: none.
ALTER TABLE dialogues ADD COLUMN silence_check_from BIGINT;
CREATE INDEX dialogues_silence ON dialogues (tenant, silence_check_from) WHERE silence_check_from IS NOT NULL;
-- When the last failed attempt ended. Of jobs that were given up before, the last attempt was due then.
ALTER TABLE jobs ADD COLUMN failed_at BIGINT;
UPDATE jobs SET failed_at = due_at WHERE status = 'dead';
CREATE INDEX jobs_failed ON jobs (tenant, failed_at) WHERE failed_at IS NOT NULL;
-- The last ended jobs of each kind.
CREATE INDEX jobs_ended ON jobs (tenant, kind, finished_at) WHERE finished_at IS NOT NULL;
