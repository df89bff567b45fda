-- What people wrote of a tenant: the number of worlds that are not deleted, and the bytes of all objects. An object
-- counts 1,024 bytes and its texts; a save 200 for each dialogue. Triggers keep the sums, so a transaction sees its own
-- part.
CREATE TABLE authored_sizes (
    tenant      TEXT PRIMARY KEY NOT NULL,
    worlds      INTEGER NOT NULL,
    bytes       INTEGER NOT NULL
) STRICT;
-- Deleted entries and scenarios leave no row from here on.
DELETE FROM lore WHERE deleted_at IS NOT NULL;
DELETE FROM scenarios WHERE deleted_at IS NOT NULL;
INSERT INTO authored_sizes (tenant, worlds, bytes)
SELECT tenant, SUM(worlds), SUM(bytes) FROM (
    SELECT tenant, deleted_at IS NULL AS worlds,
        1024 + length(CAST(name || premise || rules || settings AS BLOB)) AS bytes
    FROM worlds
    UNION ALL
    SELECT tenant, 0 AS worlds,
        1024 + length(CAST(name || persona || factions || settings || COALESCE(model, '') AS BLOB)) AS bytes
    FROM npcs
    UNION ALL
    SELECT tenant, 0 AS worlds,
        1024 + length(CAST(body AS BLOB)) AS bytes
    FROM lore
    UNION ALL
    SELECT tenant, 0 AS worlds,
        1024 + length(CAST(title || content || keywords || synonyms || conditions || COALESCE(tell, '') AS BLOB)) AS bytes
    FROM scenarios
    UNION ALL
    SELECT tenant, 0 AS worlds,
        1024 + length(CAST(keys || text || instructions || fails_if AS BLOB)) AS bytes
    FROM directives
    UNION ALL
    SELECT tenant, 0 AS worlds,
        1024 + length(CAST(name AS BLOB)) + 200 * dialogues AS bytes
    FROM saves
    UNION ALL
    SELECT tenant, 0 AS worlds,
        1024 + length(CAST(subject || predicate || object || content || keywords AS BLOB)) AS bytes
    FROM facts WHERE authored
    UNION ALL
    SELECT tenant, 0 AS worlds,
        1024 + length(CAST(patch AS BLOB)) AS bytes
    FROM fact_edits) GROUP BY tenant;
CREATE TRIGGER worlds_sized_at_insert AFTER INSERT ON worlds
BEGIN
    INSERT INTO authored_sizes (tenant, worlds, bytes) VALUES (
        NEW.tenant, (NEW.deleted_at IS NULL),
        1024 + length(CAST(NEW.name || NEW.premise || NEW.rules || NEW.settings AS BLOB)))
    ON CONFLICT (tenant) DO UPDATE SET worlds = worlds + excluded.worlds, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER worlds_sized_at_delete AFTER DELETE ON worlds
BEGIN
    INSERT INTO authored_sizes (tenant, worlds, bytes) VALUES (
        OLD.tenant, - (OLD.deleted_at IS NULL),
        - (1024 + length(CAST(OLD.name || OLD.premise || OLD.rules || OLD.settings AS BLOB))))
    ON CONFLICT (tenant) DO UPDATE SET worlds = worlds + excluded.worlds, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER worlds_sized_at_update AFTER UPDATE OF name, premise, rules, settings, deleted_at ON worlds
BEGIN
    INSERT INTO authored_sizes (tenant, worlds, bytes) VALUES (
        NEW.tenant, (NEW.deleted_at IS NULL) - (OLD.deleted_at IS NULL),
        1024 + length(CAST(NEW.name || NEW.premise || NEW.rules || NEW.settings AS BLOB))
        - (1024 + length(CAST(OLD.name || OLD.premise || OLD.rules || OLD.settings AS BLOB))))
    ON CONFLICT (tenant) DO UPDATE SET worlds = worlds + excluded.worlds, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER npcs_sized_at_insert AFTER INSERT ON npcs
BEGIN
    INSERT INTO authored_sizes (tenant, worlds, bytes) VALUES (
        NEW.tenant, 0,
        1024 + length(CAST(NEW.name || NEW.persona || NEW.factions
            || NEW.settings || COALESCE(NEW.model, '') AS BLOB)))
    ON CONFLICT (tenant) DO UPDATE SET worlds = worlds + excluded.worlds, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER npcs_sized_at_delete AFTER DELETE ON npcs
BEGIN
    INSERT INTO authored_sizes (tenant, worlds, bytes) VALUES (
        OLD.tenant, 0,
        - (1024 + length(CAST(OLD.name || OLD.persona || OLD.factions
            || OLD.settings || COALESCE(OLD.model, '') AS BLOB))))
    ON CONFLICT (tenant) DO UPDATE SET worlds = worlds + excluded.worlds, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER npcs_sized_at_update AFTER UPDATE OF name, persona, factions, settings, model ON npcs
BEGIN
    INSERT INTO authored_sizes (tenant, worlds, bytes) VALUES (
        NEW.tenant, 0,
        1024 + length(CAST(NEW.name || NEW.persona || NEW.factions
            || NEW.settings || COALESCE(NEW.model, '') AS BLOB))
        - (1024 + length(CAST(OLD.name || OLD.persona || OLD.factions
            || OLD.settings || COALESCE(OLD.model, '') AS BLOB))))
    ON CONFLICT (tenant) DO UPDATE SET worlds = worlds + excluded.worlds, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER lore_sized_at_insert AFTER INSERT ON lore
BEGIN
    INSERT INTO authored_sizes (tenant, worlds, bytes) VALUES (
        NEW.tenant, 0,
        1024 + length(CAST(NEW.body AS BLOB)))
    ON CONFLICT (tenant) DO UPDATE SET worlds = worlds + excluded.worlds, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER lore_sized_at_delete AFTER DELETE ON lore
BEGIN
    INSERT INTO authored_sizes (tenant, worlds, bytes) VALUES (
        OLD.tenant, 0,
        - (1024 + length(CAST(OLD.body AS BLOB))))
    ON CONFLICT (tenant) DO UPDATE SET worlds = worlds + excluded.worlds, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER lore_sized_at_update AFTER UPDATE OF body ON lore
BEGIN
    INSERT INTO authored_sizes (tenant, worlds, bytes) VALUES (
        NEW.tenant, 0,
        1024 + length(CAST(NEW.body AS BLOB))
        - (1024 + length(CAST(OLD.body AS BLOB))))
    ON CONFLICT (tenant) DO UPDATE SET worlds = worlds + excluded.worlds, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER scenarios_sized_at_insert AFTER INSERT ON scenarios
BEGIN
    INSERT INTO authored_sizes (tenant, worlds, bytes) VALUES (
        NEW.tenant, 0,
        1024 + length(CAST(NEW.title || NEW.content || NEW.keywords || NEW.synonyms
            || NEW.conditions || COALESCE(NEW.tell, '') AS BLOB)))
    ON CONFLICT (tenant) DO UPDATE SET worlds = worlds + excluded.worlds, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER scenarios_sized_at_delete AFTER DELETE ON scenarios
BEGIN
    INSERT INTO authored_sizes (tenant, worlds, bytes) VALUES (
        OLD.tenant, 0,
        - (1024 + length(CAST(OLD.title || OLD.content || OLD.keywords || OLD.synonyms
            || OLD.conditions || COALESCE(OLD.tell, '') AS BLOB))))
    ON CONFLICT (tenant) DO UPDATE SET worlds = worlds + excluded.worlds, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER scenarios_sized_at_update AFTER UPDATE OF title, content, keywords, synonyms, conditions, tell
    ON scenarios
BEGIN
    INSERT INTO authored_sizes (tenant, worlds, bytes) VALUES (
        NEW.tenant, 0,
        1024 + length(CAST(NEW.title || NEW.content || NEW.keywords || NEW.synonyms
            || NEW.conditions || COALESCE(NEW.tell, '') AS BLOB))
        - (1024 + length(CAST(OLD.title || OLD.content || OLD.keywords || OLD.synonyms
            || OLD.conditions || COALESCE(OLD.tell, '') AS BLOB))))
    ON CONFLICT (tenant) DO UPDATE SET worlds = worlds + excluded.worlds, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER directives_sized_at_insert AFTER INSERT ON directives
BEGIN
    INSERT INTO authored_sizes (tenant, worlds, bytes) VALUES (
        NEW.tenant, 0,
        1024 + length(CAST(NEW.keys || NEW.text || NEW.instructions || NEW.fails_if AS BLOB)))
    ON CONFLICT (tenant) DO UPDATE SET worlds = worlds + excluded.worlds, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER directives_sized_at_delete AFTER DELETE ON directives
BEGIN
    INSERT INTO authored_sizes (tenant, worlds, bytes) VALUES (
        OLD.tenant, 0,
        - (1024 + length(CAST(OLD.keys || OLD.text || OLD.instructions || OLD.fails_if AS BLOB))))
    ON CONFLICT (tenant) DO UPDATE SET worlds = worlds + excluded.worlds, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER directives_sized_at_update AFTER UPDATE OF keys, text, instructions, fails_if ON directives
BEGIN
    INSERT INTO authored_sizes (tenant, worlds, bytes) VALUES (
        NEW.tenant, 0,
        1024 + length(CAST(NEW.keys || NEW.text || NEW.instructions || NEW.fails_if AS BLOB))
        - (1024 + length(CAST(OLD.keys || OLD.text || OLD.instructions || OLD.fails_if AS BLOB))))
    ON CONFLICT (tenant) DO UPDATE SET worlds = worlds + excluded.worlds, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER saves_sized_at_insert AFTER INSERT ON saves
BEGIN
    INSERT INTO authored_sizes (tenant, worlds, bytes) VALUES (
        NEW.tenant, 0,
        1024 + length(CAST(NEW.name AS BLOB)) + 200 * NEW.dialogues)
    ON CONFLICT (tenant) DO UPDATE SET worlds = worlds + excluded.worlds, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER saves_sized_at_delete AFTER DELETE ON saves
BEGIN
    INSERT INTO authored_sizes (tenant, worlds, bytes) VALUES (
        OLD.tenant, 0,
        - (1024 + length(CAST(OLD.name AS BLOB)) + 200 * OLD.dialogues))
    ON CONFLICT (tenant) DO UPDATE SET worlds = worlds + excluded.worlds, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER facts_sized_at_insert AFTER INSERT ON facts
WHEN NEW.authored
BEGIN
    INSERT INTO authored_sizes (tenant, worlds, bytes) VALUES (
        NEW.tenant, 0,
        1024 + length(CAST(NEW.subject || NEW.predicate || NEW.object || NEW.content || NEW.keywords AS BLOB)))
    ON CONFLICT (tenant) DO UPDATE SET worlds = worlds + excluded.worlds, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER facts_sized_at_delete AFTER DELETE ON facts
WHEN OLD.authored
BEGIN
    INSERT INTO authored_sizes (tenant, worlds, bytes) VALUES (
        OLD.tenant, 0,
        - (1024 + length(CAST(OLD.subject || OLD.predicate || OLD.object || OLD.content || OLD.keywords AS BLOB))))
    ON CONFLICT (tenant) DO UPDATE SET worlds = worlds + excluded.worlds, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER fact_edits_sized_at_insert AFTER INSERT ON fact_edits
BEGIN
    INSERT INTO authored_sizes (tenant, worlds, bytes) VALUES (
        NEW.tenant, 0,
        1024 + length(CAST(NEW.patch AS BLOB)))
    ON CONFLICT (tenant) DO UPDATE SET worlds = worlds + excluded.worlds, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER fact_edits_sized_at_delete AFTER DELETE ON fact_edits
BEGIN
    INSERT INTO authored_sizes (tenant, worlds, bytes) VALUES (
        OLD.tenant, 0,
        - (1024 + length(CAST(OLD.patch AS BLOB))))
    ON CONFLICT (tenant) DO UPDATE SET worlds = worlds + excluded.worlds, bytes = bytes + excluded.bytes;
END;

-- Lines of the audit log are deleted when they are old (`retention.audit_d`), never within 30 days.
DROP TRIGGER audit_keeps_rows;
CREATE TRIGGER audit_keeps_rows BEFORE DELETE ON audit
WHEN OLD.at > (CAST(strftime('%s', 'now') AS INTEGER) - 2592000) * 1000000
BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only');
END;
