//! What the prompts of a story have shown, by the traces of its lines.

use std::collections::{BTreeMap, BTreeSet};

use colloquy::{
    ids::FactId,
    memory::{
        trace::{CandidateFate, Timings, TurnTrace},
        turn::Intent,
    },
};
use serde_json::json;

/// The items that the prompts of a story's lines have shown.
#[derive(Default)]
pub struct ShownItems {
    lines: usize,
    by_kind: BTreeMap<&'static str, usize>,
    /// Lines with the intent `memory`.
    questions: usize,
    found_for_questions: usize,
    /// The facts that any prompt has shown.
    facts: BTreeSet<FactId>,
}

impl ShownItems {
    /// Adds the items in the prompt of a line.
    pub fn add_line(&mut self, trace: &TurnTrace) {
        self.lines += 1;
        for (kind, shown) in count_items(trace) {
            *self.by_kind.entry(kind).or_default() += shown;
        }
        if trace.intent == Intent::Memory {
            self.questions += 1;
            self.found_for_questions += count_facts(trace, CandidateFate::Used);
        }
        let shown = trace.candidates.iter().filter(|fact| fact.fate.is_in_prompt());
        self.facts.extend(shown.map(|candidate| candidate.fact));
    }

    /// Returns the items shown for a line, on average and rounded to two decimals, by their kind.
    pub fn for_each_line(&self) -> BTreeMap<&'static str, f64> {
        let mean = |(kind, shown): (&&'static str, &usize)| {
            let mean = divide(*shown, self.lines);
            (*kind, (mean * 100.0).round() / 100.0)
        };
        self.by_kind.iter().map(mean).collect()
    }

    /// Returns the found facts shown for a question about memory, on average.
    pub fn facts_per_question(&self) -> f64 {
        divide(self.found_for_questions, self.questions)
    }

    /// Returns the share of the stored facts that no prompt has shown, in [0, 1].
    pub fn never_shown(&self, stored: &BTreeSet<FactId>) -> f64 {
        divide(stored.difference(&self.facts).count(), stored.len())
    }
}

/// Counts the items in the prompt of a line. The overheard lines are those that were read: some may not have fitted.
fn count_items(trace: &TurnTrace) -> [(&'static str, usize); 11] {
    let sources = trace.sources.as_ref();
    let episodes = trace.episodes.iter().filter(|episode| episode.shown_text.is_some());
    let insights = trace.insights.iter().filter(|insight| insight.shown_text.is_some());
    let lore = trace.lore.iter().filter(|entry| entry.shown_text.is_some());
    let scenarios = trace.scenarios.iter().filter(|scenario| scenario.shown_text.is_some());
    let directives = trace.directives.iter();
    let directives = directives.map(|shown| usize::from(shown.text) + shown.instructions + shown.fails_if);
    let overheard = sources.and_then(|sources| sources.overheard);
    let overheard = overheard.map_or(0, |lines| (lines.from..=lines.to).count());
    [
        ("facts", count_facts(trace, CandidateFate::Used)),
        ("state_block", count_facts(trace, CandidateFate::InStateBlock)),
        ("pinned", count_facts(trace, CandidateFate::Pinned)),
        ("summaries", sources.map_or(0, |sources| sources.summaries.len())),
        ("episodes", episodes.count()),
        ("insights", insights.count()),
        ("lore", lore.count()),
        ("scenarios", scenarios.count()),
        ("overheard", overheard),
        ("directives", directives.sum()),
        ("actions", trace.actions.offered.len() + trace.actions.outcomes.len()),
    ]
}

fn count_facts(trace: &TurnTrace, fate: CandidateFate) -> usize {
    let candidates = trace.candidates.iter();
    candidates.filter(|candidate| candidate.fate == fate).count()
}

/// Divides counts. Nothing of nothing is 0.
fn divide(part: usize, whole: usize) -> f64 {
    let number = |count: usize| f64::from(u32::try_from(count).unwrap());
    number(part) / number(whole.max(1))
}

fn fact(number: u128) -> FactId {
    FactId::from_u128(number)
}

/// The trace of a line, with facts and their fates, and with the texts of episodes.
fn trace(intent: &str, facts: &[(u128, &str)], episodes: &[Option<&str>]) -> TurnTrace {
    let score = json!({
        "recency": 0, "importance": 0, "relevance": 0, "keyword": 0, "total": 0, "cosine": 0,
    });
    let candidates = facts.iter().map(|&(number, fate)| {
        json!({ "fact": fact(number), "subject": "player:p", "content": "", "score": score, "fate": fate })
    });
    let episodes = episodes.iter().map(|shown| {
        json!({
            "turn_id": "turn_00000000000000000000000000", "dialogue_id": "ses_00000000000000000000000000",
            "turn": 1, "stage": "recent", "importance": 5, "fate": "used", "shown": shown,
        })
    });
    let trace = json!({
        "at": "2026-01-01T00:00:00Z", "intent": intent, "intent_source": "model", "query": "",
        "candidates": candidates.collect::<Vec<_>>(), "episodes": episodes.collect::<Vec<_>>(),
        "sections": [], "prompt_tokens": 0, "prompt_hash": "", "calls": [], "timings": Timings::default(),
    });
    serde_json::from_value(trace).unwrap()
}

#[test]
fn shown_items_are_counted_by_hand() {
    let mut shown = ShownItems::default();
    assert!(shown.for_each_line().is_empty() && shown.never_shown(&BTreeSet::new()).abs() < 1e-9);
    shown.add_line(&trace(
        "memory",
        &[(1, "used"), (2, "used"), (3, "in_state_block"), (4, "off_topic")],
        &[Some("They met."), None],
    ));
    shown.add_line(&trace("memory", &[(1, "used"), (5, "pinned")], &[]));
    shown.add_line(&trace("chat", &[(1, "used"), (2, "used")], &[]));
    let means = shown.for_each_line();
    for (kind, mean) in [
        ("facts", 1.67),
        ("state_block", 0.33),
        ("pinned", 0.33),
        ("episodes", 0.33),
        ("overheard", 0.0),
    ] {
        assert!((means[kind] - mean).abs() < 1e-9, "{kind}: {means:?}");
    }
    // Three found facts for two questions. The line of small talk does not count.
    assert!((shown.facts_per_question() - 1.5).abs() < 1e-9);
    // A fact that was considered and left out, and a fact that no trace has.
    let stored: BTreeSet<FactId> = (1..=6).map(fact).collect();
    assert!((shown.never_shown(&stored) - 2.0 / 6.0).abs() < 1e-9);
}
