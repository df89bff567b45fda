//! Limits of an import.

/// Most entries of one book.
pub const MAX_BOOK_ENTRIES: usize = 10_000;
