//! The contract of the ledger port.
