//! A found fact, and which found facts a prompt may have.

use std::{collections::HashSet, sync::Arc};

use super::topic::TopicRelevance;
use crate::disclosure::Disclosable;
use colloquy_memory::{
    party,
    trace::{CandidateFate, ScoreParts, TopicGate},
};
use colloquy_ports::ledger::facts::RecallBody;

/// The number of best facts that a question about memory gets before worse facts.
const BEST_OF_ASKED: usize = 4;

/// A confirmed and scored fact, with its body.
#[derive(Debug, Clone)]
pub(crate) struct RecallHit {
    pub body: Disclosable<Arc<RecallBody>>,
    pub score: ScoreParts,
    pub topic: TopicRelevance,
}

impl RecallHit {
    /// Why the hit is too weak for a prompt, if it is. `is_admitted` is of [`admit_hits`].
    pub(crate) fn weakness(&self, is_admitted: bool, gate: TopicGate, min_score: f64) -> Option<CandidateFate> {
        if self.score.total < min_score {
            Some(CandidateFate::TooWeak)
        } else if !is_admitted {
            Some(CandidateFate::OffTopic)
        } else {
            (gate != TopicGate::Open && self.topic.matter < min_score).then_some(CandidateFate::TooWeak)
        }
    }
}

/// Decides for each hit, best first, whether it may be in the prompt of a line with this gate.
///
/// For a question about memory, a fact that is weakly on topic is compared with the best fact down to it, so that
/// later hits change nothing. The question also gets two kinds of facts that are off topic by themselves. A fact among
/// the best four comes before a worse fact that is on topic. A fact about a person or thing comes with a better fact
/// about the same: "How old is she, and what does she do?" needs both. Facts that have a place of their own in the prompt
/// (`is_standing`) do not count among the four. Facts about the NPC `npc_name` bring no others: they have nothing in common.
pub(crate) fn admit_hits(
    hits: &[RecallHit],
    gate: TopicGate,
    npc_name: &str,
    is_standing: &dyn Fn(&RecallHit) -> bool,
) -> Vec<bool> {
    if gate == TopicGate::Open {
        return vec![true; hits.len()];
    }
    if gate == TopicGate::Strict {
        let on_topic = |best: &mut f64, hit: &RecallHit| {
            if hit.topic.is_on_topic(TopicGate::Strict) {
                *best = best.max(hit.topic.matter);
            }
            Some(hit.topic.bears_on_line(*best))
        };
        return hits.iter().scan(0.0_f64, on_topic).collect();
    }
    let best_matters: Vec<f64> = hits
        .iter()
        .scan(0.0_f64, |best, hit| {
            *best = best.max(hit.topic.matter);
            Some(*best)
        })
        .collect();
    let with_best = || hits.iter().zip(&best_matters);
    let on_topic: Vec<bool> = with_best().map(|(hit, best)| hit.topic.answers_beside(*best)).collect();
    let mut admitted = on_topic.clone();
    if let Some(last) = on_topic.iter().rposition(|is_on_topic| *is_on_topic) {
        let searched = (0..last).filter(|index| !is_standing(&hits[*index]));
        for index in searched.take(BEST_OF_ASKED) {
            admitted[index] = true;
        }
    }
    let npc = party::subject_key(npc_name);
    let mut subjects = HashSet::new();
    for (((hit, best_matter), is_on_topic), is_admitted) in with_best().zip(on_topic).zip(&mut admitted) {
        let subject = &hit.body.subject;
        // Most facts are about the player, which connects nothing. The player's brother is not "your brother".
        if !party::is_player(subject) && !hit.topic.is_of_other {
            let key = party::subject_key(subject);
            if is_on_topic && key != npc {
                subjects.insert(key);
            } else if subjects.contains(&key) && hit.topic.is_strong_beside(*best_matter) {
                *is_admitted = true;
            }
        }
        *is_admitted &= hit.topic.has_enough_when_asked(*best_matter);
    }
    admitted
}
