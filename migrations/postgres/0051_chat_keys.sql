-- The name of a chat program's talk: the `chat_key` of the options, for the sessions of a talk.
ALTER TABLE dialogues ADD COLUMN chat_key TEXT COLLATE "C";
UPDATE dialogues SET chat_key = options::json ->> 'chat_key' WHERE options::json ->> 'chat_key' IS NOT NULL;
CREATE INDEX dialogues_of_talk ON dialogues (tenant, player, chat_key, created_at, id) WHERE chat_key IS NOT NULL;
