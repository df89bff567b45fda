//! The open streams of callers, and how they close after a tenant was disabled or a token revoked.
//!
//! Owns the list of open sockets and streams of this node. Does not own the refusals: the authenticator does.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

use super::errors::Problem;
use colloquy_core::scope::Principal;
use colloquy_tenancy::auth::Authenticator;

/// A stream that stays open for a caller after the request.
pub trait ClosableStream: Send + Sync {
    /// The current caller of the stream.
    fn principal(&self) -> Principal;
    /// Sends the reason, and closes the stream.
    fn close_with_reason(&self, problem: &Problem);
}

/// The open streams of this node. Cheap to clone.
#[derive(Clone, Default)]
pub struct OpenStreams(Arc<StreamTable>);

#[derive(Default)]
struct StreamTable {
    next_id: AtomicU64,
    streams: Mutex<HashMap<u64, Weak<dyn ClosableStream>>>,
}

/// An entry of the list, until dropped.
pub struct OpenStreamGuard {
    table: Arc<StreamTable>,
    id: u64,
}

impl Drop for OpenStreamGuard {
    fn drop(&mut self) {
        self.table.streams.lock().remove(&self.id);
    }
}

impl OpenStreams {
    /// Adds a stream. If the caller is already refused, the stream closes at once.
    #[must_use]
    pub fn add_stream(&self, auth: &Authenticator, stream: &Arc<dyn ClosableStream>) -> OpenStreamGuard {
        let id = self.0.next_id.fetch_add(1, Relaxed);
        self.0.streams.lock().insert(id, Arc::downgrade(stream));
        close_if_refused(auth, &**stream);
        OpenStreamGuard {
            table: self.0.clone(),
            id,
        }
    }

    /// Closes the streams of refused callers.
    pub(super) fn close_refused(&self, auth: &Authenticator) {
        let streams: Vec<_> = self.0.streams.lock().values().filter_map(Weak::upgrade).collect();
        for stream in streams {
            close_if_refused(auth, &*stream);
        }
    }
}

fn close_if_refused(auth: &Authenticator, stream: &dyn ClosableStream) {
    if let Err(refusal) = auth.check_not_refused(&stream.principal()) {
        stream.close_with_reason(&refusal.into());
    }
}
