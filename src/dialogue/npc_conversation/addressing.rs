//! Whom of the others a line names.

use crate::scene::SceneMember;
use colloquy_memory::keywords::{is_hangul, short_names_of};

/// The minimum length of an id that addresses an NPC. A shorter id may be an ordinary word, so only the name counts.
const MIN_ADDRESSED_ID_LENGTH: usize = 3;

/// Returns the member that a line names first, by name or id. A line without a whole name may have a given name or a
/// surname that a single member has.
pub fn find_addressed<'a>(members: impl Iterator<Item = &'a SceneMember>, line: &str) -> Option<&'a SceneMember> {
    let members: Vec<&SceneMember> = members.collect();
    let lower_case = line.to_lowercase();
    let place_of_name = |member: &SceneMember| {
        let id = Some(member.id.as_str()).filter(|id| id.len() >= MIN_ADDRESSED_ID_LENGTH);
        [Some(member.name.to_lowercase().as_str()), id]
            .into_iter()
            .flatten()
            .filter_map(|name| position_of(name, &lower_case))
            .min()
    };
    let is_of_one = |name: &str| {
        let having = members
            .iter()
            .filter(|member| short_names_of(&member.name).any(|short| short == name));
        having.count() == 1
    };
    let place_of_short_name = |member: &SceneMember| {
        let names = short_names_of(&member.name).filter(|name| is_of_one(name));
        names.filter_map(|name| position_of(name, line)).min()
    };
    let first_of = |place: &dyn Fn(&SceneMember) -> Option<usize>| {
        let placed = members.iter().filter_map(|member| Some((place(member)?, *member)));
        placed.min_by_key(|(position, _)| *position).map(|(_, member)| member)
    };
    first_of(&place_of_name).or_else(|| first_of(&place_of_short_name))
}

/// Returns the first position of `name` as a separate word.
fn position_of(name: &str, line: &str) -> Option<usize> {
    positions_of(name, line).next()
}

/// Returns the positions of `name` as a separate word, in order. Korean endings may follow a name directly.
pub(super) fn positions_of(name: &str, line: &str) -> impl Iterator<Item = usize> {
    let latin = name.ends_with(|c: char| c.is_ascii_alphanumeric());
    let is_separate = move |position: &usize| {
        let previous = line[..*position].chars().next_back();
        let next = line[*position + name.len()..].chars().next();
        !name.is_empty()
            && previous.is_none_or(|c| !c.is_alphanumeric())
            && next.is_none_or(|c| !(c.is_alphanumeric() && (c.is_ascii() || !latin && !is_hangul(c))))
    };
    line.match_indices(name)
        .map(|(position, _)| position)
        .filter(is_separate)
}
