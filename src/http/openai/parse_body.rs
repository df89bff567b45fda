//! Bodies of chat programs.

use crate::errors::Problem;

/// A request that is read from its body.
pub trait ParseBody: Sized + 'static {
    /// Reads a body.
    ///
    /// # Errors
    /// Every field that cannot be read, by its name.
    fn parse_body(raw: &[u8]) -> Result<Self, Problem>;
}
