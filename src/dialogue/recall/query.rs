//! Builds the search query: the line without the listener's name. If the line points back or says too little alone, the
//! last raw turns are added.

use colloquy_memory::{
    aliases::{NameAliases, SpeakerAndListener},
    keywords::{self, TermWeights},
    summary::Summary,
};
use colloquy_ports::buffer::BufferedTurn;

/// The minimum total weight of a line's words. Lighter lines say too little alone: "and then?", "why?", "그래서?".
const MIN_QUERY_WEIGHT: f32 = 0.5;
/// A line with more words than this weight has a topic of its own, even if it points back.
const MAX_POINTING_WEIGHT: f32 = 4.0;
/// The number of characters of context in a query, counted from the end.
const CONTEXT_CHARS: usize = 300;
/// The number of turns of context.
const CONTEXT_TURNS: usize = 2;
/// The weight of context words, relative to words of the line.
const CONTEXT_WEIGHT: f32 = 0.5;

/// A line as it was said, with its listener's name in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpokenLine<'a> {
    pub text: &'a str,
    /// The name of the NPC to which the line was said. `None`: a search text.
    pub listener: Option<&'a str>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SearchQuery {
    /// The text to embed. Empty if the line is empty.
    pub text: String,
    /// The words to search for, with their general weights.
    pub terms: TermWeights,
    /// The words of the line alone, without phrases.
    pub words: TermWeights,
    /// True if neither the line nor its context has an informative word.
    pub says_nothing: bool,
    /// The line as it was said, with the listener's name.
    line: String,
    /// The name of the listener.
    listener: Option<String>,
    /// The earlier lines, if the query includes them.
    context: String,
}

impl SearchQuery {
    /// Builds a query for this text alone.
    pub(crate) fn from_text(line: &str) -> Self {
        Self {
            text: line.to_owned(),
            terms: keywords::search_terms(line),
            words: keywords::query_terms(line),
            says_nothing: false,
            line: line.to_owned(),
            listener: None,
            context: String::new(),
        }
    }

    /// Builds a query for a text to the named NPC alone. The NPC's name is in every line to the NPC and is no evidence.
    pub(crate) fn to_listener(text: &str, npc: &str) -> Self {
        let mut query = Self {
            line: text.to_owned(),
            listener: Some(npc.to_owned()),
            ..Self::from_text(&keywords::without_listener_name(text, npc))
        };
        let npc_terms = keywords::query_terms(npc);
        let is_own = |term: u64| npc_terms.0.binary_search_by_key(&term, |entry| entry.0).is_ok();
        query.terms.0.retain(|(term, _)| !is_own(*term));
        query.words.0.retain(|(term, _)| !is_own(*term));
        query
    }

    /// The line as it was said.
    pub(crate) fn line(&self) -> SpokenLine<'_> {
        SpokenLine {
            text: &self.line,
            listener: self.listener.as_deref(),
        }
    }

    /// Builds a query for a line to the named NPC, after these turns.
    pub(crate) fn for_line(line: &str, npc: &str, history: &[BufferedTurn], summaries: &[Summary]) -> Self {
        let mut query = Self::to_listener(line, npc);
        let npc_terms = keywords::query_terms(npc);
        let is_own = |term: u64| npc_terms.0.binary_search_by_key(&term, |entry| entry.0).is_ok();
        let line = keywords::without_listener_name(line, npc);
        let points = keywords::refers_back(&line);
        let weight: f32 = query.words.0.iter().map(|(_, weight)| weight).sum();
        query.says_nothing = weight < MIN_QUERY_WEIGHT && !points;
        let needs_context = query.says_nothing || points && weight <= MAX_POINTING_WEIGHT;
        if line.trim().is_empty() || !needs_context {
            return query;
        }
        let context = recent_context(history, summaries);
        if !context.is_empty() {
            query.text.push('\n');
            query.text.push_str(&context);
            let terms = keywords::search_terms(&keywords::without_listener_name(&context, npc));
            query.add_terms(&terms, CONTEXT_WEIGHT, &is_own);
            query.context = context;
        }
        query
    }

    /// Adds the other names of the persons in the query. The names are words to search for, and change neither the
    /// embedded text nor the line's own words.
    pub(crate) fn add_names(&mut self, names: &NameAliases, speakers: SpeakerAndListener<'_>) {
        let listener_terms = speakers.listener.map(keywords::query_terms).unwrap_or_default();
        let is_own = |term: u64| listener_terms.0.binary_search_by_key(&term, |entry| entry.0).is_ok();
        let in_line = names.names_mentioned(&self.line, speakers);
        // The speaker of "my sister" in an earlier line is unknown.
        let unowned = SpeakerAndListener {
            speaker: None,
            ..speakers
        };
        let in_context = names.names_mentioned(&self.context, unowned);
        for (mentioned, weight) in [(in_line, 1.0), (in_context, CONTEXT_WEIGHT)] {
            for name in mentioned {
                self.add_terms(&keywords::search_terms(&name), weight, &is_own);
            }
        }
    }

    /// Adds terms that the line does not have.
    fn add_terms(&mut self, new_terms: &TermWeights, weight: f32, is_own: &dyn Fn(u64) -> bool) {
        let mut weights: std::collections::BTreeMap<u64, f32> = self.terms.0.iter().copied().collect();
        for (term, of_term) in new_terms.0.iter().filter(|(term, _)| !is_own(*term)) {
            weights.entry(*term).or_insert(of_term * weight);
        }
        self.terms = TermWeights(weights.into_iter().collect());
    }
}

/// Returns the end of the last raw turns, or of the last summary if no raw turn exists.
fn recent_context(history: &[BufferedTurn], summaries: &[Summary]) -> String {
    let from = history.len().saturating_sub(CONTEXT_TURNS);
    let turns = history[from..].iter();
    let mut texts: Vec<&str> = turns
        .flat_map(|turn| [turn.player_text.as_str(), turn.reply_text.as_str()])
        .filter(|text| !text.is_empty())
        .collect();
    if texts.is_empty() {
        texts.extend(summaries.last().map(|summary| summary.text.as_str()));
    }
    let context = texts.join("\n");
    let skipped = context.chars().count().saturating_sub(CONTEXT_CHARS);
    context.chars().skip(skipped).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use chrono::DateTime;

    use super::*;
    use colloquy_core::ids::{DialogueId, SummaryId, TurnId};
    use colloquy_memory::{aliases::NameAssertion, fact::Importance};

    fn turn(number: u32, player: &str, reply: &str) -> BufferedTurn {
        BufferedTurn {
            id: TurnId::from_u128(number.into()),
            number,
            player_text: player.to_owned(),
            npc: "mira".parse().unwrap(),
            reply_text: reply.to_owned(),
            committed_at: None,
        }
    }
    fn summary(text: &str) -> Summary {
        Summary {
            id: SummaryId::from_u128(1),
            dialogue: DialogueId::new(colloquy_core::ids::DialogueKind::Session, ulid::Ulid(1)),
            from_turn: 1,
            to_turn: 10,
            text: text.to_owned(),
            importance: Importance::DEFAULT,
            created_at: DateTime::UNIX_EPOCH,
        }
    }
    fn has(query: &SearchQuery, word: &str) -> bool {
        let terms = keywords::query_terms(word);
        terms
            .0
            .iter()
            .all(|(term, _)| query.terms.0.iter().any(|entry| entry.0 == *term))
    }

    #[test]
    fn own_name_of_the_npc_is_no_evidence() {
        let query = SearchQuery::for_line("I'm off to bed. Night, Mira.", "Mira", &[], &[]);
        assert_eq!(query.text, "I'm off to bed. Night.");
        assert!(!has(&query, "Mira") && has(&query, "bed"));
        let query = SearchQuery::for_line("Mira?", "Mira", &[], &[]);
        assert!(query.terms.0.is_empty() && query.says_nothing);
    }

    #[test]
    fn name_of_the_listener_is_no_evidence_among_npcs() {
        for (line, name) in [("하람아, 들었어?", "하람"), ("Wren, have you heard?", "Wren")] {
            let query = SearchQuery::to_listener(line, name);
            assert!(!has(&query, name) && query.line().text == line, "{line} {}", query.text);
            assert!(!query.text.contains(name), "{}", query.text);
        }
    }

    #[test]
    fn names_of_others_stay_in_the_query() {
        let line = "Anna's moved, by the way. She's in Oakford now.";
        let query = SearchQuery::for_line(line, "Mira", &[], &[]);
        assert_eq!(query.text, line);
        assert!(has(&query, "Anna") && !query.says_nothing);
    }

    #[test]
    fn aliases_are_searched_as_the_spoken_name() {
        let told = |subject, name| NameAssertion::from_speaker("player:p7", false, subject, name);
        let names = NameAliases::from_assertions(&[told("player:p7's sister", "Anna"), told("the inn", "Mira's Rest")]);
        let spoken = SpeakerAndListener {
            speaker: Some("player:p7"),
            listener: Some("Mira"),
        };
        let asked = |line: &str, history: &[BufferedTurn]| {
            let mut query = SearchQuery::for_line(line, "Mira", history, &[]);
            let before = query.clone();
            query.add_names(&names, spoken);
            assert_eq!((&query.text, &query.words), (&before.text, &before.words), "{line}");
            query
        };
        let weight = |query: &SearchQuery, word: &str| {
            let term = keywords::query_terms(word).0[0].0;
            query.terms.0.iter().find(|entry| entry.0 == term).map(|entry| entry.1)
        };
        let query = asked("How is my sister?", &[]);
        assert!(weight(&query, "Anna").is_some() && weight(&query, "Anna") == weight(&query, "sister"));
        assert!(has(&asked("Where is Anna, Mira?", &[]), "sister"));
        assert!(!has(&asked("How is your sister?", &[]), "Anna"));
        assert!(has(&asked("Is the inn full?", &[]), "rest"));
        assert!(
            !has(&asked("Is the inn full?", &[]), "Mira"),
            "the own name is no evidence"
        );
        // Only names count from earlier lines.
        let history = [turn(1, "I met Anna", "She is nice")];
        let context = asked("Tell me more about that", &history);
        assert!(weight(&context, "sister") < weight(&query, "sister") && has(&context, "sister"));
        let history = [turn(1, "I met my sister", "She is nice")];
        assert!(!has(&asked("Tell me more about that", &history), "Anna"));
    }

    #[test]
    fn referring_line_is_searched_with_the_last_turns() {
        let history = [
            turn(1, "무릎이 아파", "옛날이야기부터 하자"),
            turn(2, "무릎이 시큰거려", "이 고약을 발라 봐"),
            turn(3, "고마워", "아침저녁으로 바르게"),
        ];
        let summaries = [summary("They met at the gate.")];
        let query = SearchQuery::for_line("아까 그거 다 쓰면 어떻게 해?", "에르겐", &history, &summaries);
        assert!(
            query
                .text
                .ends_with("\n무릎이 시큰거려\n이 고약을 발라 봐\n고마워\n아침저녁으로 바르게"),
            "{}",
            query.text
        );
        assert!(has(&query, "고약") && !has(&query, "옛날이야기") && !query.says_nothing);
        // A new session has only the summary.
        let query = SearchQuery::for_line("Tell me more about that", "Mira", &[], &summaries);
        assert!(query.text.ends_with("\nThey met at the gate."));
        let long = [turn(1, "", &format!("{} the well", "far away ".repeat(60)))];
        let query = SearchQuery::for_line("why?", "Mira", &long, &[]);
        assert!(query.text.ends_with("the well") && query.text.chars().count() <= CONTEXT_CHARS + 5);
    }

    #[test]
    fn self_contained_line_is_searched_alone() {
        let history = [turn(1, "Try the ale", "That is our best ale")];
        for line in [
            "That's strong stuff! Is it market day again?",
            "Good night",
            "What fruit do I like?",
            "오늘 날씨 좋네",
            "I think that big dog by the harbour bridge stole the sausages of Mrs Teague, the baker, on market day",
        ] {
            let query = SearchQuery::for_line(line, "Mira", &history, &[]);
            assert_eq!(query.text, line);
            assert!(!has(&query, "ale"));
        }
        for line in [
            "What do you know about me?",
            "나에 대해 뭘 알아?",
            "Do you remember me?",
        ] {
            assert!(SearchQuery::for_line(line, "Mira", &[], &[]).says_nothing, "{line}");
        }
        for line in ["What fruit do I like?", "내 누나 어디 살아?", "Good morning, friend!"] {
            assert!(!SearchQuery::for_line(line, "Mira", &[], &[]).says_nothing, "{line}");
        }
        assert_eq!(SearchQuery::for_line("", "Mira", &history, &[]).text, "");
    }
}
