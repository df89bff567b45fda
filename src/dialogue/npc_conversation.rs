//! Conversations between NPCs: the cast, the next speaker, and the cue that asks for a line.
//!
//! A line of a conversation is a turn (`turn.rs`) without a player, with the same steps. This file has the differences.

mod nicknames;
mod speaker_choice;

use std::time::Duration;

pub use self::{
    nicknames::{ListeningNpc, find_nicknamed_npc},
    speaker_choice::choose_speaker,
};
pub use super::scene::{END_MARK, Scene, SceneMember};
use super::settings::ConversationSettings;
use colloquy_core::ids::NpcId;
use colloquy_memory::keywords::{is_hangul, short_names_of};
use colloquy_ports::{
    buffer::BufferedTurn,
    ledger::dialogues::{Dialogue, DialogueOptions},
};

/// The minimum and the maximum number of NPCs in a conversation, or in a scene with a player.
pub const MIN_NPCS: usize = 2;
pub const MAX_NPCS: usize = 8;
/// The hard limit of lines in one conversation.
pub const MAX_TURNS: u32 = 100;
/// The maximum length of a topic, in Unicode scalar values.
pub const MAX_TOPIC_CHARS: usize = 500;
/// The minimum length of an id that addresses an NPC. A shorter id may be an ordinary word, so only the name counts.
const MIN_ADDRESSED_ID_LENGTH: usize = 3;

/// Returns the next speaker:
/// - Before the first line: the first NPC of the cast.
/// - If the last line names another NPC: that NPC.
/// - Otherwise: the NPC that has been silent for longest.
///
/// `None`: the cast is empty, or has no other NPC.
#[must_use]
pub fn next_speaker(cast: &[SceneMember], history: &[BufferedTurn]) -> Option<NpcId> {
    let Some(last) = history.last() else {
        return cast.first().map(|member| member.id.clone());
    };
    let others = || cast.iter().filter(|member| member.id != last.npc);
    let quietest = || {
        // On a tie `min_by_key` takes the first, which keeps the order of the cast.
        others().min_by_key(|member| history.iter().rposition(|turn| turn.npc == member.id).map(|at| at + 1))
    };
    find_addressed(others(), &last.reply_text)
        .or_else(quietest)
        .map(|member| member.id.clone())
}

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
        placed.min_by_key(|(at, _)| *at).map(|(_, member)| member)
    };
    first_of(&place_of_name).or_else(|| first_of(&place_of_short_name))
}

/// Returns the first position of `name` as a separate word.
fn position_of(name: &str, line: &str) -> Option<usize> {
    positions_of(name, line).next()
}

/// Returns the positions of `name` as a separate word, in order. Korean endings may follow a name directly.
fn positions_of(name: &str, line: &str) -> impl Iterator<Item = usize> {
    let latin = name.ends_with(|c: char| c.is_ascii_alphanumeric());
    let is_separate = move |at: &usize| {
        let before = line[..*at].chars().next_back();
        let after = line[*at + name.len()..].chars().next();
        !name.is_empty()
            && before.is_none_or(|c| !c.is_alphanumeric())
            && after.is_none_or(|c| !(c.is_alphanumeric() && (c.is_ascii() || !latin && !is_hangul(c))))
    };
    line.match_indices(name).map(|(at, _)| at).filter(is_separate)
}

/// Returns the maximum number of lines in a conversation.
#[must_use]
pub fn max_turns(options: &DialogueOptions, settings: &ConversationSettings) -> u32 {
    options.max_turns.unwrap_or(settings.max_turns).clamp(1, MAX_TURNS)
}

/// Returns the pause after a line, which gives readers time for the line.
#[must_use]
pub fn pause_after(line: &str, settings: &ConversationSettings) -> Duration {
    let chars = u64::try_from(line.chars().count()).unwrap_or(u64::MAX);
    let reading = settings.reading_ms_per_char.saturating_mul(chars);
    let longest = settings.longest_pause_ms.max(settings.pause_ms);
    Duration::from_millis(settings.pause_ms.saturating_add(reading).min(longest))
}

/// Returns the reason why a conversation has ended, or will end before another line.
#[must_use]
pub fn end_reason(dialogue: &Dialogue, ended: bool, settings: &ConversationSettings) -> Option<&'static str> {
    if ended {
        Some("concluded")
    } else if dialogue.head_turn >= max_turns(&dialogue.options, settings) {
        Some("max_turns")
    } else {
        None
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use colloquy_core::ids::TurnId;

    fn cast(names: &[(&str, &str)]) -> Vec<SceneMember> {
        let member = |(id, name): &(&str, &str)| SceneMember {
            id: id.parse().unwrap(),
            name: (*name).to_owned(),
            factions: vec![],
        };
        names.iter().map(member).collect()
    }

    fn said(lines: &[(&str, &str)]) -> Vec<BufferedTurn> {
        (1..)
            .zip(lines)
            .map(|(number, (npc, text))| BufferedTurn {
                id: TurnId::from_u128(u128::from(number)),
                number,
                player_text: String::new(),
                npc: npc.parse().unwrap(),
                reply_text: (*text).to_owned(),
                committed_at: None,
            })
            .collect()
    }

    fn next(cast: &[SceneMember], lines: &[(&str, &str)]) -> String {
        next_speaker(cast, &said(lines)).unwrap().to_string()
    }

    #[test]
    fn given_name_of_one_member_addresses_the_member() {
        let cast = cast(&[
            ("duchil", "황두칠"),
            ("seol", "윤설단"),
            ("ottilie", "Ottilie Brandt"),
            ("hans", "Hans Brandt"),
        ]);
        for (line, expected) in [
            ("두칠 아저씨, 배는 언제 떠요?", Some("duchil")),
            ("설단이한테 물어봐", Some("seol")),
            ("What do you say, Ottilie?", Some("ottilie")),
            ("And Brandt, ask Hans Brandt.", Some("hans")),
            ("The Brandts are rich, Mr Brandt.", None),
            ("Who was at the old mill?", None),
        ] {
            let found = find_addressed(cast.iter(), line).map(|member| member.id.as_str());
            assert_eq!(found, expected, "{line}");
        }
    }

    #[test]
    fn speakers_alternate_between_two_npcs() {
        let two = cast(&[("ergen", "에르겐"), ("mira", "Mira")]);
        assert_eq!(next(&two, &[]), "ergen");
        assert_eq!(next(&two, &[("ergen", "Hello.")]), "mira");
        assert_eq!(next(&two, &[("ergen", "Hello."), ("mira", "I am Mira.")]), "ergen");
    }

    #[test]
    fn speaker_silent_for_longest_is_next_among_three() {
        let three = cast(&[("ergen", "에르겐"), ("mira", "Mira"), ("tomas", "Tomas")]);
        assert_eq!(next(&three, &[("ergen", "a")]), "mira");
        assert_eq!(next(&three, &[("ergen", "a"), ("mira", "b")]), "tomas");
        assert_eq!(next(&three, &[("ergen", "a"), ("mira", "b"), ("tomas", "c")]), "ergen");
    }

    #[test]
    fn speaker_named_in_the_line_is_next() {
        let three = cast(&[("ergen", "에르겐"), ("mira", "Mira"), ("tomas", "Tomas")]);
        for (line, speaker) in [
            ("What do you say, Mira?", "mira"),
            ("MIRA! Listen, Tomas is late.", "mira"),
            ("Mirabelle plums are ripe.", "tomas"),
            ("The hamira tree bears fruit.", "tomas"),
            ("mira라면 알 걸세.", "mira"),
            ("Ergen alone knows.", "tomas"),
        ] {
            assert_eq!(next(&three, &[("mira", "Well."), ("ergen", line)]), speaker, "{line}");
        }
        let korean = cast(&[("mira", "미라"), ("tomas", "토마스"), ("ergen", "에르겐")]);
        assert_eq!(next(&korean, &[("mira", "에르겐은 어떻게 생각해?")]), "ergen");
        assert_eq!(next(&korean, &[("mira", "새에르겐이라는 마을이 있어.")]), "tomas");
    }

    #[test]
    fn speaker_prompt_has_the_topic_and_lines_since_its_own() {
        let scene = Scene {
            cast: cast(&[("ergen", "에르겐"), ("mira", "Mira"), ("tomas", "Tomas")]),
            topic: Some("the mill".to_owned()),
            last: false,
            ..Scene::default()
        };
        let history = said(&[("mira", "It burned."), ("ergen", "When?"), ("tomas", "Last night.")]);
        assert_eq!(
            scene.heard_by(&"mira".parse().unwrap(), &history),
            "the mill\nWhen?\nLast night."
        );
        assert_eq!(scene.heard_by(&"tomas".parse().unwrap(), &history), "the mill");
        assert_eq!(scene.other_names(&"mira".parse().unwrap()), ["에르겐", "Tomas"]);
    }

    #[test]
    fn pause_grows_with_the_line_up_to_a_limit() {
        let settings = ConversationSettings {
            max_turns: 20,
            pause_ms: 800,
            reading_ms_per_char: 30,
            longest_pause_ms: 6_000,
        };
        assert_eq!(pause_after("", &settings), Duration::from_millis(800));
        assert_eq!(pause_after("물레방앗간", &settings), Duration::from_millis(950));
        assert_eq!(pause_after(&"x".repeat(1_000), &settings), Duration::from_secs(6));
    }
}
