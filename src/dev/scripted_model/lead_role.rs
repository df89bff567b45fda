//! The role of the words in front of an object.

/// The role of the words in front of an object.
#[derive(Debug, PartialEq)]
pub(super) enum LeadRole<'t> {
    /// Part of the object.
    Object,
    /// The subject, and the object without the subject.
    Subject(&'t str, &'t str),
    /// A person, but unknown or uncertain.
    Unclear,
}
