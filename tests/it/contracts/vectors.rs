//! The contract of the vectors port.
