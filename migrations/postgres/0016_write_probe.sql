-- One row that is written again and again, to see whether anything can be written: no tenant's.
CREATE TABLE write_probe (
    id          BIGINT NOT NULL PRIMARY KEY,
    at          BIGINT NOT NULL
);
ALTER TABLE write_probe SET (autovacuum_analyze_scale_factor = 0.5, autovacuum_vacuum_insert_scale_factor = 1);
