-- What models were asked for by the attempts at a job, and what that used: a JSON list of tasks for each attempt, one a line.
ALTER TABLE jobs ADD COLUMN calls TEXT;
