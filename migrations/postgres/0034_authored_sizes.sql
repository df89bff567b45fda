-- What people wrote of a tenant: the number of worlds that are not deleted, and the bytes of all objects. An object
-- counts 1,024 bytes and its texts; a save 200 for each dialogue. Triggers keep the sums, so a transaction sees its own
-- part.
CREATE TABLE authored_sizes (
    tenant      TEXT COLLATE "C" PRIMARY KEY NOT NULL,
    worlds      BIGINT NOT NULL,
    bytes       BIGINT NOT NULL
);
ALTER TABLE authored_sizes ENABLE ROW LEVEL SECURITY;
ALTER TABLE authored_sizes FORCE ROW LEVEL SECURITY;
CREATE POLICY of_its_tenant ON authored_sizes USING (tenant = (SELECT current_setting('colloquy.tenant', true))
    OR (SELECT current_setting('colloquy.tenant', true)) = '*');
ALTER TABLE authored_sizes SET (autovacuum_analyze_scale_factor = 0.5, autovacuum_vacuum_insert_scale_factor = 1);
-- Deleted entries and scenarios leave no row from here on.
DELETE FROM lore WHERE deleted_at IS NOT NULL;
DELETE FROM scenarios WHERE deleted_at IS NOT NULL;

-- The bytes of a row: `texts` are its text columns.
CREATE FUNCTION authored_size(object JSONB, texts TEXT[]) RETURNS BIGINT LANGUAGE sql IMMUTABLE AS $$
    SELECT 1024 + COALESCE(SUM(octet_length(object ->> name)), 0) + 200 * COALESCE((object ->> 'dialogues')::BIGINT, 0)
    FROM unnest(texts) name
$$;
-- The arguments are the text columns.
CREATE FUNCTION count_authored() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    of_tenant TEXT;
    more_worlds BIGINT := 0;
    more_bytes BIGINT := 0;
BEGIN
    IF TG_OP <> 'DELETE' THEN
        of_tenant := NEW.tenant;
        more_bytes := authored_size(to_jsonb(NEW), TG_ARGV);
        IF TG_TABLE_NAME = 'worlds' AND to_jsonb(NEW) ->> 'deleted_at' IS NULL THEN
            more_worlds := 1;
        END IF;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        of_tenant := OLD.tenant;
        more_bytes := more_bytes - authored_size(to_jsonb(OLD), TG_ARGV);
        IF TG_TABLE_NAME = 'worlds' AND to_jsonb(OLD) ->> 'deleted_at' IS NULL THEN
            more_worlds := more_worlds - 1;
        END IF;
    END IF;
    INSERT INTO authored_sizes (tenant, worlds, bytes) VALUES (of_tenant, more_worlds, more_bytes)
    ON CONFLICT (tenant) DO UPDATE SET worlds = authored_sizes.worlds + excluded.worlds,
        bytes = authored_sizes.bytes + excluded.bytes;
    RETURN NULL;
END $$;

INSERT INTO authored_sizes (tenant, worlds, bytes)
SELECT tenant, SUM(worlds), SUM(bytes) FROM (
    SELECT tenant, (deleted_at IS NULL)::INT AS worlds,
        authored_size(to_jsonb(x), ARRAY['name', 'premise', 'rules', 'settings']) AS bytes
    FROM worlds x
    UNION ALL
    SELECT tenant, 0 AS worlds,
        authored_size(to_jsonb(x), ARRAY['name', 'persona', 'factions', 'settings', 'model']) AS bytes
    FROM npcs x
    UNION ALL
    SELECT tenant, 0 AS worlds,
        authored_size(to_jsonb(x), ARRAY['body']) AS bytes
    FROM lore x
    UNION ALL
    SELECT tenant, 0 AS worlds,
        authored_size(to_jsonb(x), ARRAY['title', 'content', 'keywords', 'synonyms', 'conditions', 'tell']) AS bytes
    FROM scenarios x
    UNION ALL
    SELECT tenant, 0 AS worlds,
        authored_size(to_jsonb(x), ARRAY['keys', 'text', 'instructions', 'fails_if']) AS bytes
    FROM directives x
    UNION ALL
    SELECT tenant, 0 AS worlds,
        authored_size(to_jsonb(x), ARRAY['name']) AS bytes
    FROM saves x
    UNION ALL
    SELECT tenant, 0 AS worlds,
        authored_size(to_jsonb(x), ARRAY['subject', 'predicate', 'object', 'content', 'keywords']) AS bytes
    FROM facts x WHERE authored
    UNION ALL
    SELECT tenant, 0 AS worlds,
        authored_size(to_jsonb(x), ARRAY['patch']) AS bytes
    FROM fact_edits x) a GROUP BY tenant;
CREATE TRIGGER worlds_sized AFTER INSERT OR DELETE
    OR UPDATE OF name, premise, rules, settings, deleted_at ON worlds FOR EACH ROW
    EXECUTE FUNCTION count_authored('name', 'premise', 'rules', 'settings');
CREATE TRIGGER npcs_sized AFTER INSERT OR DELETE
    OR UPDATE OF name, persona, factions, settings, model ON npcs FOR EACH ROW
    EXECUTE FUNCTION count_authored('name', 'persona', 'factions', 'settings', 'model');
CREATE TRIGGER lore_sized AFTER INSERT OR DELETE
    OR UPDATE OF body ON lore FOR EACH ROW
    EXECUTE FUNCTION count_authored('body');
CREATE TRIGGER scenarios_sized AFTER INSERT OR DELETE
    OR UPDATE OF title, content, keywords, synonyms, conditions, tell ON scenarios FOR EACH ROW
    EXECUTE FUNCTION count_authored('title', 'content', 'keywords', 'synonyms', 'conditions', 'tell');
CREATE TRIGGER directives_sized AFTER INSERT OR DELETE
    OR UPDATE OF keys, text, instructions, fails_if ON directives FOR EACH ROW
    EXECUTE FUNCTION count_authored('keys', 'text', 'instructions', 'fails_if');
CREATE TRIGGER saves_sized AFTER INSERT OR DELETE ON saves FOR EACH ROW
    EXECUTE FUNCTION count_authored('name');
CREATE TRIGGER facts_sized_at_insert AFTER INSERT ON facts FOR EACH ROW WHEN (NEW.authored)
    EXECUTE FUNCTION count_authored('subject', 'predicate', 'object', 'content', 'keywords');
CREATE TRIGGER facts_sized_at_delete AFTER DELETE ON facts FOR EACH ROW WHEN (OLD.authored)
    EXECUTE FUNCTION count_authored('subject', 'predicate', 'object', 'content', 'keywords');
CREATE TRIGGER fact_edits_sized AFTER INSERT OR DELETE ON fact_edits FOR EACH ROW
    EXECUTE FUNCTION count_authored('patch');

-- Lines of the audit log are deleted when they are old (`retention.audit_d`), never within 30 days.
DROP TRIGGER audit_keeps_rows ON audit;
CREATE TRIGGER audit_keeps_rows BEFORE TRUNCATE ON audit EXECUTE FUNCTION audit_is_append_only();
CREATE TRIGGER audit_keeps_new_rows BEFORE DELETE ON audit FOR EACH ROW
    WHEN (OLD.at > (extract(epoch FROM now()) - 2592000) * 1000000) EXECUTE FUNCTION audit_is_append_only();
