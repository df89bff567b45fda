//! What an extraction prompt shows of the turn's memory, so that nothing known comes back as a new fact.
//!
//! A turn seldom touches more than a few of the known facts. The facts with the most words of the turn are shown. A
//! request to forget may mean any of them. Lore and the NPC's past only help against retelling, so only their sentences
//! with words of the turn are shown.

use std::{cmp::Reverse, collections::BTreeSet};

use super::{block_sentences::BlockSentences, injected_memory::InjectedMemory};
use crate::disclosure::silent_terms;
use colloquy_memory::{keywords, sentences::split_sentences};
use colloquy_ports::ledger::jobs::JobInput;

/// The most known facts with words of the turn.
const MAX_TOUCHED: usize = 8;
/// The least number of known facts, for a turn whose words touch few.
const MIN_KNOWN: usize = 4;
/// The most texts about the world and the NPC's past.
const MAX_WORLD_TEXTS: usize = 3;
/// The longest text about the world, in characters.
const MAX_WORLD_CHARS: usize = 240;
/// The longest earlier line, in characters. The end of a line says more about the answer to the line.
const MAX_EARLIER_CHARS: usize = 160;

/// The words of a turn, of its events and notes, and of the lines before it.
pub(super) struct TurnWords {
    /// The informative terms, without the names and words that most known facts share.
    terms: BTreeSet<u32>,
    asks_to_forget: bool,
}

impl TurnWords {
    pub(super) fn of_turn(job_input: &JobInput) -> Self {
        let earlier_turns = job_input.before.iter();
        let lines = earlier_turns
            .flat_map(|turn| [&turn.player_text, &turn.reply_text])
            .chain([&job_input.turn.player_text, &job_input.turn.reply_text])
            .map(String::as_str);
        let sentences = BlockSentences::of_turn(job_input);
        Self::of_lines(
            &job_input.npc.name,
            lines.chain(sentences.texts()),
            &job_input.turn.player_text,
        )
    }

    fn of_lines<'l>(npc_name: &str, lines: impl IntoIterator<Item = &'l str>, player_line: &str) -> Self {
        let silent = silent_terms([npc_name]);
        let mut terms: BTreeSet<u32> = lines.into_iter().flat_map(keywords::informative_terms).collect();
        terms.retain(|term| !silent.contains(term));
        Self {
            terms,
            asks_to_forget: keywords::asks_to_forget(player_line),
        }
    }

    /// The number of terms that a text shares with the turn.
    fn shared_count(&self, text: &str) -> usize {
        keywords::informative_terms(text).intersection(&self.terms).count()
    }
}

impl InjectedMemory {
    /// Returns the known facts that the turn may touch, in the order of the prompt: those with the most words of the
    /// turn, or all if the player asks to forget something.
    pub(super) fn known_for(&self, words: &TurnWords) -> Vec<String> {
        if words.asks_to_forget {
            return self.texts.clone();
        }
        let mut ranked: Vec<(Reverse<usize>, usize)> = self
            .texts
            .iter()
            .map(|text| Reverse(words.shared_count(text)))
            .zip(0..)
            .collect();
        ranked.sort_unstable();
        let related_count = ranked.iter().filter(|(shared, _)| shared.0 > 0).count();
        let mut indexes: Vec<usize> = ranked.into_iter().map(|(_, index)| index).collect();
        indexes.truncate(related_count.clamp(MIN_KNOWN, MAX_TOUCHED));
        indexes.sort_unstable();
        indexes.into_iter().map(|index| self.texts[index].clone()).collect()
    }

    /// Returns what the turn may retell of the lore and of the NPC's past: the sentences with words of the turn.
    pub(super) fn world_for(&self, words: &TurnWords) -> Vec<String> {
        let texts = self.world.iter().filter_map(|text| sentences_with(text, words));
        texts.take(MAX_WORLD_TEXTS).collect()
    }
}

fn sentences_with(text: &str, words: &TurnWords) -> Option<String> {
    if text.chars().count() <= MAX_WORLD_CHARS {
        return (words.shared_count(text) > 0).then(|| text.to_owned());
    }
    let mut excerpt = String::new();
    for sentence in split_sentences(text) {
        let fits = excerpt.chars().count() + sentence.chars().count() <= MAX_WORLD_CHARS;
        if fits && words.shared_count(sentence) > 0 {
            excerpt.push_str(sentence);
        }
    }
    let excerpt = excerpt.trim();
    (!excerpt.is_empty()).then(|| excerpt.to_owned())
}

/// Returns the end of an earlier line, in whole words.
pub(super) fn end_of_line(line: &str) -> String {
    let chars = line.chars().count();
    if chars <= MAX_EARLIER_CHARS {
        return line.to_owned();
    }
    let end: String = line.chars().skip(chars - MAX_EARLIER_CHARS).collect();
    let whole_words = end
        .find(char::is_whitespace)
        .map_or(end.as_str(), |index| end[index..].trim_start());
    format!("…{whole_words}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> TurnWords {
        TurnWords::of_lines("Mira", [text], text)
    }

    fn known(texts: &[&str]) -> InjectedMemory {
        InjectedMemory {
            texts: texts.iter().map(|text| (*text).to_owned()).collect(),
            world: texts.iter().map(|text| (*text).to_owned()).collect(),
            ..InjectedMemory::default()
        }
    }

    #[test]
    fn facts_with_words_of_the_turn_are_shown_and_a_few_others() {
        let mut texts = vec!["The player likes grapes."; 3];
        texts.extend(["The player's sister Anna lives in Oakford.", "The player fears boats."]);
        texts.extend(["The player owns a mule."; 4]);
        let shown = known(&texts);
        let of = |text| shown.known_for(&words(text)).len();
        assert_eq!(of("Hm."), MIN_KNOWN);
        let shown = shown.known_for(&words("Anna came by boat."));
        assert_eq!(shown.len(), MIN_KNOWN);
        for text in [texts[3], texts[4]] {
            assert!(shown.iter().any(|known| known == text), "{shown:?}");
        }
        let many = known(&["The player likes plums."; 20]);
        assert_eq!(many.known_for(&words("plums")).len(), MAX_TOUCHED);
    }

    #[test]
    fn facts_with_the_most_words_of_the_turn_are_shown_and_all_for_a_request_to_forget() {
        let mut texts = vec!["Voss said: Voss sails to Morrow."; 10];
        texts.extend(["The player's sister Anna sails to Morrow.", "Anna sails as a nurse."]);
        let known = known(&texts);
        let shown = known.known_for(&words("My sister Anna sails."));
        assert_eq!(shown.len(), MAX_TOUCHED);
        assert_eq!(shown[MAX_TOUCHED - 2..], texts[10..], "in the order of the prompt");
        let shown = known.known_for(&words("Voss, forget all I told you of my sister."));
        assert_eq!(shown, texts);
    }

    #[test]
    fn name_of_the_npc_touches_no_fact() {
        let words = TurnWords::of_lines("Captain Voss", ["Captain Voss, my mule is ill."], "");
        assert_eq!(words.shared_count("Captain Voss said: Captain Voss fears cats."), 0);
        assert_eq!(words.shared_count("The player owns a mule."), 1);
    }

    #[test]
    fn long_lore_is_cut_to_the_sentences_that_may_be_retold() {
        let filler = "Nothing of note happened in the valley for many years. ".repeat(6);
        let text = format!("{filler}The mill burned down. {filler}");
        let shown = known(&[&text]);
        assert_eq!(
            shown.world_for(&words("They say the mill burned.")),
            ["The mill burned down."]
        );
        assert!(shown.world_for(&words("Good bread!")).is_empty());
    }

    #[test]
    fn earlier_line_keeps_its_end() {
        assert_eq!(end_of_line("Smoked or pickled?"), "Smoked or pickled?");
        let long = format!("{}smoked or pickled?", "word ".repeat(60));
        let end = end_of_line(&long);
        assert!(end.starts_with("…word") && end.ends_with("smoked or pickled?"), "{end}");
        assert!(end.chars().count() <= MAX_EARLIER_CHARS + 1);
    }
}
