//! The ids of earlier findings and insights in a curation prompt.

/// Returns the id under which a prompt shows an earlier finding: its place, from 1.
pub(super) fn finding_id(index: usize) -> String {
    format!("F{}", index + 1)
}

/// Returns the id under which a prompt shows an insight: its place, from 1.
pub(super) fn insight_id(index: usize) -> String {
    format!("I{}", index + 1)
}

/// The inverse of [`finding_id`] and [`insight_id`]. `letter` is a capital letter.
pub(super) fn index_of_id(id: &str, letter: char) -> Option<usize> {
    let number = id.trim().strip_prefix([letter, letter.to_ascii_lowercase()])?;
    number.parse::<usize>().ok()?.checked_sub(1)
}
