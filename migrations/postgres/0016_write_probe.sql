-- One row that is written again and again, to see whether anything can be written: no tenant's.
CREATE TABLE write_probe (
    id          BIGINT NOT NULL PRIMARY KEY,
    at          BIGINT NOT NULL
);
