//! The permits of a running call.

use super::gate::CallPermit;

/// The permits that a call holds until its end.
#[derive(Debug)]
pub(super) struct HeldPermits {
    pub(super) _tenant: CallPermit,
    pub(super) _endpoint: Option<CallPermit>,
}
