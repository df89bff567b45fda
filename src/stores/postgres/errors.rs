//! What a failed statement means for a caller, and the loss of connections.

use std::{
    io::ErrorKind,
    sync::atomic::{AtomicU64, Ordering},
};

use colloquy_ports::StoreError;

/// The number of lost connections. An error does not name the connection, so all connections are checked before the
/// next use.
static CONNECTIONS_LOST: AtomicU64 = AtomicU64::new(0);

pub(super) fn connections_lost() -> u64 {
    CONNECTIONS_LOST.load(Ordering::Relaxed)
}

/// Records that a connection was lost.
pub(super) fn record_connection_loss() {
    CONNECTIONS_LOST.fetch_add(1, Ordering::Relaxed);
}

/// Maps a failed statement to the error that a caller acts on.
pub(super) fn store_error(error: sqlx::Error) -> StoreError {
    classify_error(error, StoreError::Disconnected)
}

/// Maps a failed connection attempt as [`store_error`] does. No connection was lost.
pub(super) fn connect_error(error: sqlx::Error) -> StoreError {
    classify_error(error, StoreError::Unavailable)
}

/// Classifies an error. `lost` is the variant for a connection that ended; one that was only silent is unavailable.
fn classify_error(error: sqlx::Error, on_loss: fn(String) -> StoreError) -> StoreError {
    match error {
        sqlx::Error::Database(database) => {
            // SQLSTATE; see "PostgreSQL Error Codes".
            let code = database.code().unwrap_or_default().into_owned();
            match code.as_str() {
                // Serialization failure, deadlock.
                "40001" | "40P01" => StoreError::Collided(database.to_string()),
                "25006" => StoreError::NotWritable("the database is read-only, or in recovery as a standby".to_owned()),
                "53100" => StoreError::NotWritable("the disk of the database is full".to_owned()),
                // Cancelled (a timeout), lock not available.
                "57014" | "55P03" => StoreError::Unavailable(database.to_string()),
                // A transaction that idled or took too long, which ends the session; and the classes connection,
                // authorization, resources, administrator, system.
                code if ["25P03", "25P04"].contains(&code)
                    || ["08", "28", "53", "57", "58"].contains(&code.get(..2).unwrap_or_default()) =>
                {
                    record_connection_loss();
                    on_loss(database.to_string())
                }
                // Data or index corrupted.
                "XX001" | "XX002" => StoreError::Corrupt(database.to_string()),
                _ => StoreError::Rejected(database.to_string()),
            }
        }
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) | sqlx::Error::ColumnNotFound(_) => {
            StoreError::Corrupt(error.to_string())
        }
        sqlx::Error::Encode(_) => StoreError::Rejected(error.to_string()),
        sqlx::Error::Io(silence) if silence.kind() == ErrorKind::TimedOut => {
            record_connection_loss();
            StoreError::Unavailable(silence.to_string())
        }
        other => {
            record_connection_loss();
            on_loss(other.to_string())
        }
    }
}
