//! Facts that a turn ends: facts the player asks to forget, and promises.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use super::{
    DecidedEnd, FlaggedFact, ForgetRequest, JudgeAnswer, PromiseEnd, SpokenTurn, TimelineReplay, is_players_own,
    turn_that_said,
};
use crate::{
    aliases::NameAliases,
    fact::{Fact, InvalidReason, Statement},
    keywords::{self, TermWeights},
    party,
};
use colloquy_core::ids::{PlayerId, TurnId};

/// The number of facts checked for a request to forget.
const MAX_MEANT_FACTS: usize = 8;
/// The share of the request's informative words that the meant fact must have. Forgetting the wrong fact is worse than
/// forgetting none.
const MIN_FORGET_COVERAGE: f64 = 0.5;
/// The share of the informative words of an NPC's statement that a request for it must have.
const MIN_REQUEST_SHARE: f64 = 0.8;

impl<J: FnMut(&Statement, &Statement) -> JudgeAnswer> TimelineReplay<'_, J> {
    /// Ends the one unprotected fact that a request of a turn names. `nth`: the number of the request in the turn.
    pub(super) fn forget_meant_fact(&mut self, request: &ForgetRequest, nth: usize, spoken_turn: &SpokenTurn) {
        let turn = spoken_turn.turn;
        let moment = spoken_turn.committed_at;
        let naming = self.naming.aliases_at(moment);
        let near = self.prepared.meant_facts(turn, nth).iter();
        let candidates = near.map(|(old, _)| *old).filter(|old| self.holds_at(*old, moment));
        let meant_fact = candidates.take(MAX_MEANT_FACTS).find(|old| {
            let known_fact = self.facts[*old].known_fact;
            let (content, keywords) = known_fact.wording_at(moment);
            // All names of the subject count.
            let subject = known_fact.fact.statement.subject.as_str();
            let names = naming
                .other_names(subject)
                .map(|name| party::plain_name(name).into_owned());
            let keywords: Vec<String> = keywords.iter().cloned().chain(names).collect();
            let terms = keywords::document_terms(content, &keywords);
            keywords::query_coverage(&request.terms, &terms) >= MIN_FORGET_COVERAGE
                && (is_players_own(&known_fact.fact, spoken_turn.player.as_ref(), &naming)
                    || covers_nearly_all(content, &with_other_names(&request.terms, &naming)))
                && !self.is_protected(*old, moment)
        });
        if let Some(meant_fact) = meant_fact {
            let fact = self.facts[meant_fact].known_fact.fact.id;
            self.facts[meant_fact].ends.push(DecidedEnd {
                fact,
                reason: InvalidReason::Forgotten,
                ended_by: None,
                turn,
                ended_at: moment,
                restored_at: None,
            });
        }
    }

    /// Ends a promise or a goal that held. A pinned or authored promise is flagged, by a statement of the turn.
    pub(super) fn end_promise(&mut self, ending: PromiseEnd, new: &[usize], turn: TurnId, moment: DateTime<Utc>) {
        let position = self.positions.get(&ending.fact).copied();
        let Some(promise) = position.filter(|fact| !self.facts[*fact].known_fact.foreign) else {
            return self.end_promise_of_other_memory(ending, new, turn, moment);
        };
        if !self.holds_at(promise, moment) {
            return;
        }
        if self.is_protected(promise, moment) {
            let fact = ending.fact;
            let flagged = self.representative_fact(new).map(|cause| FlaggedFact {
                fact,
                statement: cause,
                turn,
            });
            return self.flags.extend(flagged);
        }
        self.facts[promise].ends.push(DecidedEnd {
            fact: ending.fact,
            reason: ending.how,
            ended_by: None,
            turn,
            ended_at: moment,
            restored_at: None,
        });
    }
}

/// True if a fact is an NPC's private statement about the player, such as a sale or advice. Such a statement may reveal
/// what the player wants to have forgotten.
pub(super) fn is_said_of_player(fact: &Fact, player: Option<&PlayerId>) -> bool {
    player.is_some()
        && fact.audience.private_to.as_ref() == player
        && !party::is_player(&fact.statement.speaker)
        && turn_that_said(fact).is_some()
        && party::mentions_player(&fact.statement.content)
}

/// A request, extended by the other names of the people in it.
fn with_other_names(request: &TermWeights, names: &NameAliases) -> TermWeights {
    let mut terms: BTreeMap<u64, f32> = request.0.iter().copied().collect();
    let has = |of_name: &TermWeights| {
        let mut of_name = of_name.0.iter().peekable();
        of_name.peek().is_some()
            && of_name.all(|(term, _)| request.0.binary_search_by_key(term, |entry| entry.0).is_ok())
    };
    for group in names.name_groups() {
        let of_names: Vec<TermWeights> = group
            .map(|name| keywords::query_terms(&party::plain_name(name)))
            .collect();
        if of_names.iter().any(has) {
            terms.extend(of_names.into_iter().flat_map(|of_name| of_name.0));
        }
    }
    TermWeights(terms.into_iter().collect())
}

/// True if a request has nearly all informative words of a sentence.
fn covers_nearly_all(content: &str, request: &TermWeights) -> bool {
    let mut total_weight = 0.0;
    let mut matched_weight = 0.0;
    for (term, weight) in keywords::query_terms(content).0 {
        total_weight += f64::from(weight);
        if request.0.binary_search_by_key(&term, |entry| entry.0).is_ok() {
            matched_weight += f64::from(weight);
        }
    }
    matched_weight > 0.0 && matched_weight >= MIN_REQUEST_SHARE * total_weight
}
