//! Parses the facts in the answer of the extraction model.

use serde_json::Value;

use super::{
    block_sentences::BlockSentences,
    text_limits::{
        MAX_CONTENT_CHARS, MAX_KEYWORD_CHARS, MAX_PART_CHARS, bounded_text, distinct_keywords, parse_number,
    },
};
use colloquy_core::ids::PlayerId;
use colloquy_memory::{
    agreement, aliases,
    authored::{Npc, Persona},
    fact::{FactKind, Importance, Polarity, Statement, Tense},
    keywords::informative_words,
    party::{self, PLAYER},
};
use colloquy_ports::ledger::jobs::JobInput;

/// The predicate of a name that a player gives an NPC.
const CALL_PREDICATE: &str = "call";

/// The lines of a turn, and who spoke.
#[derive(Debug, Clone)]
pub(super) struct SpokenLines<'a> {
    npc: &'a Npc,
    /// `None` in an NPC conversation.
    player: Option<&'a PlayerId>,
    player_line: &'a str,
    reply: &'a str,
    /// The events and notes that the NPC reported beside its reply.
    block_sentences: Vec<&'a str>,
    /// The names of others whose words the line has: in groups of chat programs, the NPC hears the other members too.
    other_speakers: Vec<&'a str>,
}

impl<'a> SpokenLines<'a> {
    pub(super) fn of_turn(job_input: &'a JobInput) -> Self {
        Self {
            npc: &job_input.npc,
            player: job_input.turn.player.as_ref(),
            player_line: &job_input.turn.player_text,
            reply: &job_input.turn.reply_text,
            block_sentences: BlockSentences::of_turn(job_input).texts().collect(),
            other_speakers: job_input
                .dialogue
                .options
                .other_speakers(&job_input.turn.player_text)
                .collect(),
        }
    }

    /// Parses a fact and binds `player` to the participating player. `None`: a required part is missing or too long, or
    /// another member of a group said it to an NPC with its own persona, and only the chat program tells so.
    pub(super) fn parse_statement(&self, value: &Value) -> Option<Statement> {
        let npc = self.npc;
        let player = self.player;
        let text = |key: &str, max| bounded_text(value.get(key).and_then(Value::as_str), max);
        let bind_name = |name: String| match name.to_lowercase() {
            lower_case if lower_case == npc.id.as_str() || lower_case == npc.name.to_lowercase() => npc.name.clone(),
            // The prompt's name for the NPC, which is the same for all NPCs.
            lower_case if ["character", "the character", "인물"].contains(&lower_case.as_str()) => npc.name.clone(),
            _ => party::bind_to_player(&name, player),
        };
        let content = text("content", MAX_CONTENT_CHARS)?;
        let named_speaker = text("speaker", MAX_PART_CHARS).map(bind_name).unwrap_or_default();
        let is_of_another = self.is_other_speaker(&named_speaker);
        if is_of_another && npc.persona != Persona::default() {
            return None;
        }
        let mut statement = Statement {
            subject: bind_name(text("subject", MAX_PART_CHARS)?),
            predicate: aliases::canonical_predicate(text("predicate", MAX_PART_CHARS)?),
            // "The player sings" has no object.
            object: text("object", MAX_PART_CHARS).unwrap_or_default(),
            keywords: distinct_keywords(parse_keywords(value.get("keywords"))),
            speaker: if is_of_another {
                named_speaker
            } else {
                self.speaker_of(&content, &named_speaker)
            },
            kind: text("kind", MAX_PART_CHARS)
                .map_or(FactKind::Other, |kind| FactKind::parse_lenient(&kind.to_lowercase())),
            importance: value
                .get("importance")
                .and_then(parse_number)
                .map_or(Importance::DEFAULT, Importance::from_clamped),
            polarity: match text("polarity", MAX_PART_CHARS).as_deref() {
                Some("positive") => Polarity::Positive,
                Some("negative") => Polarity::Negative,
                _ => agreement::polarity_of(&content),
            },
            tense: match text("tense", MAX_PART_CHARS).as_deref() {
                Some("past") => Tense::Past,
                Some("present") => Tense::Present,
                Some("future") => Tense::Future,
                _ => agreement::tense_of(&content),
            },
            // Only safety-critical facts are pinned on extraction, and `boost_if_vital` selects them.
            pinned: false,
            content,
        };
        // A player cannot decide who the NPC is. The statement stays on record as `call`, and makes no person the NPC.
        let of_npc = statement.subject == npc.name || statement.object.to_lowercase() == npc.name.to_lowercase();
        if of_npc && party::is_player(&statement.speaker) && aliases::states_name(&statement) {
            CALL_PREDICATE.clone_into(&mut statement.predicate);
        }
        Some(statement)
    }

    /// True if the line has words of somebody with this name, who is neither the NPC nor the player.
    fn is_other_speaker(&self, name: &str) -> bool {
        let is_taken = name == self.npc.name || name == party::AUTHOR || party::is_player(name);
        !is_taken
            && self
                .other_speakers
                .iter()
                .any(|other| other.to_lowercase() == name.to_lowercase())
    }

    /// Returns who said a statement. A turn has two speakers, or one in an NPC conversation. A model may name somebody
    /// else, whom a speaker quoted. Then the NPC said it if only the reply has words of the statement. What only the
    /// events and notes have is the NPC's, whomever the model names. `named_speaker` may be empty.
    fn speaker_of(&self, content: &str, named_speaker: &str) -> String {
        let is_another = !named_speaker.is_empty() && !party::is_player(named_speaker);
        let is_of_npc = self.player.is_none()
            || named_speaker == self.npc.name
            || self.is_beside_line(content, named_speaker, self.block_sentences.iter().copied())
            || is_another && self.is_beside_line(content, named_speaker, [self.reply]);
        if is_of_npc {
            self.npc.name.clone()
        } else {
            party::bind_to_player(PLAYER, self.player)
        }
    }

    /// True if some texts have words of a statement, and the player's line has none. Names of speakers do not count.
    fn is_beside_line<'t>(&self, content: &str, named_speaker: &str, texts: impl IntoIterator<Item = &'t str>) -> bool {
        let mut words = informative_words(content);
        for name in [self.npc.name.as_str(), named_speaker] {
            let name_words = informative_words(name);
            words.retain(|word| !name_words.contains(word));
        }
        let has_words = |text: &str| !informative_words(text).is_disjoint(&words);
        texts.into_iter().any(has_words) && !has_words(self.player_line)
    }
}

fn parse_keywords(value: Option<&Value>) -> Vec<String> {
    let keyword = |word: Option<&str>| bounded_text(word, MAX_KEYWORD_CHARS);
    match value {
        Some(Value::Array(list)) => list.iter().filter_map(|word| keyword(word.as_str())).collect(),
        Some(Value::String(list)) => list.split(',').filter_map(|word| keyword(Some(word))).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use colloquy_memory::authored::{Language, TierSettings};

    fn read(value: &Value) -> Option<Statement> {
        read_of_turn(value, "", "")
    }

    fn read_of_turn(value: &Value, player_line: &str, reply: &str) -> Option<Statement> {
        let ergen = ergen(Persona::default());
        let player = "p7".parse().unwrap();
        let lines = SpokenLines {
            npc: &ergen,
            player: Some(&player),
            player_line,
            reply,
            block_sentences: vec!["The player seems to hide a wound."],
            other_speakers: Vec::new(),
        };
        lines.parse_statement(value)
    }

    fn ergen(persona: Persona) -> Npc {
        Npc {
            world: "vale".parse().unwrap(),
            id: "ergen".parse().unwrap(),
            name: "Ergen".to_owned(),
            persona,
            language: Language::En,
            factions: vec![],
            model: None,
            settings: TierSettings::default(),
            has_scenarios: false,
            has_tells: false,
            version: 1,
            updated_at: chrono::DateTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn words_of_another_member_are_never_the_players() {
        let line = "Hello. / Tom: I hate geese. / Mira, what am I afraid of?";
        let value = |speaker: &str| json!({ "subject": "Tom", "predicate": "hate", "object": "geese", "content": "Tom hates geese.", "speaker": speaker });
        let player = "p7".parse().unwrap();
        let authored = Persona {
            description: "A herbalist.".to_owned(),
            ..Persona::default()
        };
        for (persona, speaker, wanted) in [
            (Persona::default(), "tom", Some("tom")),
            (Persona::default(), "player", Some("player:p7")),
            (Persona::default(), "Ann", Some("player:p7")),
            (authored.clone(), "Tom", None),
            (authored, "player", Some("player:p7")),
        ] {
            let npc = ergen(persona);
            let lines = SpokenLines {
                npc: &npc,
                player: Some(&player),
                player_line: line,
                reply: "Hm.",
                block_sentences: Vec::new(),
                other_speakers: colloquy_memory::joined_lines::other_speakers(line).collect(),
            };
            let statement = lines.parse_statement(&value(speaker));
            assert_eq!(statement.map(|said| said.speaker).as_deref(), wanted, "{speaker}");
        }
    }

    #[test]
    fn what_only_a_note_tells_is_the_npcs_statement() {
        for speaker in ["", "player", "Bram"] {
            let value = json!({
                "subject": "player", "predicate": "hide", "object": "a wound", "speaker": speaker,
                "content": "The player hides a wound.",
            });
            let statement = read_of_turn(&value, "Good evening.", "Good evening.").unwrap();
            assert_eq!(statement.speaker, "Ergen", "{speaker}");
            let statement = read_of_turn(&value, "I hide a wound.", "Sit down.").unwrap();
            assert_eq!(statement.speaker, "player:p7", "{speaker}");
        }
    }

    #[test]
    fn missing_fields_are_derived_from_the_sentence() {
        let statement = read(&json!({
            "subject": "The Player", "predicate": "hate", "object": "apples",
            "content": "The player used to hate apples.", "keywords": "apple, fruit, Apple", "importance": "7.6",
            "kind": "taste",
        }))
        .unwrap();
        assert_eq!(statement.subject, "player:p7");
        assert_eq!(statement.speaker, "player:p7");
        assert_eq!(statement.keywords, ["apple", "fruit"]);
        assert_eq!(statement.importance.get(), 8);
        assert_eq!(statement.kind, FactKind::Other);
        assert_eq!((statement.polarity, statement.tense), (Polarity::Negative, Tense::Past));
    }

    #[test]
    fn invisible_characters_are_removed() {
        let statement = read(&json!({
            "subject": "An\u{200b}na", "predicate": "be named", "object": "An\u{fe0f}na\u{e0101}", "content": "She is An\u{ad}na.",
            "keywords": ["na\u{2060}me", "\u{3164}"],
        }))
        .unwrap();
        assert_eq!(
            (statement.subject.as_str(), statement.object.as_str()),
            ("Anna", "Anna")
        );
        assert_eq!(
            (statement.content.as_str(), &*statement.keywords),
            ("She is Anna.", &["name".to_owned()][..])
        );
    }

    #[test]
    fn subject_and_speaker_are_distinct() {
        for (subject, speaker, wanted) in [
            ("ergen", "player", ("Ergen", "player:p7")),
            ("플레이어", "Ergen", ("player:p7", "Ergen")),
            ("the player's sister", "the player", ("player:p7's sister", "player:p7")),
            ("player:p8", "player:p8", ("player p8", "player:p7")),
            ("Mira", "Mira", ("Mira", "player:p7")),
        ] {
            let statement = read(&json!({
                "subject": subject, "speaker": speaker, "predicate": "like", "object": "tea", "content": "x likes tea",
            }))
            .unwrap();
            assert_eq!((statement.subject.as_str(), statement.speaker.as_str()), wanted);
        }
    }

    #[test]
    fn quoted_person_is_no_speaker() {
        let told = "Corvin told me that the fund lies in the powder house.";
        let asked = "What did Corvin tell you?";
        let fund = "Corvin keeps the fund in the powder house.";
        for (speaker, content, player_line, reply, wanted) in [
            ("Corvin", fund, told, "Did he now?", "player:p7"),
            ("Corvin", fund, told, "The fund in the powder house?", "player:p7"),
            ("Corvin", fund, asked, "The fund lies in the powder house.", "Ergen"),
            ("Corvin", fund, asked, "Nothing.", "player:p7"),
            ("player", fund, asked, "The fund lies in the powder house.", "player:p7"),
            (
                "최덕수",
                "최덕수는 고양이를 돌본다.",
                "아저씨가 뭐라셨어요?",
                "고양이를 돌보신대.",
                "Ergen",
            ),
        ] {
            let value = json!({
                "subject": "Corvin", "speaker": speaker, "predicate": "keep", "object": "it", "content": content,
            });
            let statement = read_of_turn(&value, player_line, reply).unwrap();
            assert_eq!(statement.speaker, wanted, "{speaker}: {player_line} / {reply}");
        }
    }

    #[test]
    fn non_facts_are_dropped() {
        for value in [
            json!("grapes"),
            json!({}),
            json!({ "subject": "player", "predicate": "like", "object": "x", "content": " " }),
            json!({ "subject": "", "predicate": "like", "object": "x", "content": "y" }),
            json!({ "subject": "player", "predicate": "like", "content": "y".repeat(501) }),
            json!({ "subject": 7, "predicate": "like", "content": "y" }),
        ] {
            assert!(read(&value).is_none(), "{value}");
        }
    }
}
