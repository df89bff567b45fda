//! Conversations between NPCs: the cast, the next speaker, and the cue that asks for a line.
//!
//! A line of a conversation is a turn (`turn.rs`) without a player, with the same steps. This file has the differences.

mod addressing;
mod limits;
mod nicknames;
mod speaker_choice;

use std::time::Duration;

pub use self::{
    addressing::find_addressed,
    limits::{MAX_NPCS, MAX_TOPIC_CHARS, MAX_TURNS, MIN_NPCS},
    nicknames::{ListeningNpc, find_nicknamed_npc},
    speaker_choice::{choose_speaker, next_speaker},
};
pub use super::scene::{END_MARK, Scene, SceneMember};
use super::settings::ConversationSettings;
use colloquy_ports::ledger::dialogues::{Dialogue, DialogueOptions};

/// Returns the maximum number of lines in a conversation.
#[must_use]
pub fn max_turns(options: &DialogueOptions, settings: &ConversationSettings) -> u32 {
    options.max_turns.unwrap_or(settings.max_turns).clamp(1, MAX_TURNS)
}

/// The longest pause with the time for reading, in ms. By the defaults, a line of 173 characters reaches the limit.
const LONGEST_PAUSE_MS: u64 = 6_000;

/// Returns the pause after a line, which gives readers time for the line.
#[must_use]
pub fn pause_after(line: &str, settings: &ConversationSettings) -> Duration {
    let chars = u64::try_from(line.chars().count()).unwrap_or(u64::MAX);
    let reading = settings.reading_ms_per_char.saturating_mul(chars);
    let longest = LONGEST_PAUSE_MS.max(settings.pause_ms);
    Duration::from_millis(settings.pause_ms.saturating_add(reading).min(longest))
}

/// Returns the reason why a conversation has ended, or will end before another line.
#[must_use]
pub fn end_reason(dialogue: &Dialogue, is_concluded: bool, settings: &ConversationSettings) -> Option<&'static str> {
    if is_concluded {
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
    use super::{addressing::find_addressed, speaker_choice::next_speaker, *};
    use colloquy_core::ids::TurnId;
    use colloquy_ports::buffer::BufferedTurn;

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
        };
        assert_eq!(pause_after("", &settings), Duration::from_millis(800));
        assert_eq!(pause_after("물레방앗간", &settings), Duration::from_millis(950));
        assert_eq!(pause_after(&"x".repeat(1_000), &settings), Duration::from_secs(6));
    }
}
