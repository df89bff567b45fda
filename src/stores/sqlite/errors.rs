//! What a failed statement means for a caller.

use colloquy_ports::StoreError;

/// Maps a failed statement to the error that a caller acts on.
pub(super) fn store_error(error: sqlx::Error) -> StoreError {
    match error {
        sqlx::Error::Database(database) => {
            // The low byte is the primary result code; codes as in sqlite3.h.
            let code = database.code().and_then(|code| code.parse::<i32>().ok()).unwrap_or(0);
            match (code & 0xff, code) {
                // FULL
                (13, _) => StoreError::NotWritable("the disk of the ledger is full".to_owned()),
                // READONLY
                (8, _) => StoreError::NotWritable("the ledger's file or its file system is read-only".to_owned()),
                // IOERR_WRITE, _FSYNC, _DIR_FSYNC, _TRUNCATE, _SHMSIZE: a quota, or a file system that turned read-only
                (_, 778 | 1034 | 1290 | 1546 | 4874) => {
                    StoreError::NotWritable(format!("writing to the ledger's file failed ({database})"))
                }
                // BUSY, LOCKED, NOMEM, IOERR, CANTOPEN
                (5 | 6 | 7 | 10 | 14, _) => StoreError::Unavailable(database.to_string()),
                // CORRUPT, NOTADB
                (11 | 26, _) => StoreError::Corrupt(database.to_string()),
                _ => StoreError::Rejected(database.to_string()),
            }
        }
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) | sqlx::Error::ColumnNotFound(_) => {
            StoreError::Corrupt(error.to_string())
        }
        other => StoreError::Unavailable(other.to_string()),
    }
}
