-- One row that is written again and again, to see whether anything can be written: no tenant's.
CREATE TABLE write_probe (
    id          INTEGER NOT NULL PRIMARY KEY,
    at          INTEGER NOT NULL
);
