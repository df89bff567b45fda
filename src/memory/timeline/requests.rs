//! What is over by what a turn says of it: what a player asks to forget, and promises.

use chrono::{DateTime, Utc};

use super::{End, Ending, Flagged, Judged, Naming, Request, Run, words_at};
use crate::{
    ids::TurnId,
    memory::{
        fact::{InvalidReason, Statement},
        keywords, party,
    },
};

/// Facts near a request to forget that are looked at.
const MEANT: usize = 8;
/// Share of the request's informative words that a fact must have to be meant. Forgetting the wrong
/// thing is worse than not forgetting.
const MIN_COVERAGE: f64 = 0.5;

impl<J: FnMut(&Statement, &Statement) -> Judged> Run<'_, J> {
    /// Ends the one fact that a request names, if nothing protects it.
    pub(super) fn forget(&mut self, request: &Request, nth: usize, turn: TurnId, at: DateTime<Utc>) {
        let naming = Naming::of(&self.timeline.known).at(at);
        let near = self.prepared.meant(turn, nth).iter();
        let meant = near.map(|(old, _)| *old).filter(|old| self.holds(*old, at));
        let meant = meant.take(MEANT).find(|old| {
            let known = self.facts[*old].known;
            let (content, keywords) = words_at(known, at);
            // By whatever name it goes.
            let subject = known.fact.statement.subject.as_str();
            let names = naming.others(subject).map(|name| party::plain(name).into_owned());
            let keywords: Vec<String> = keywords.iter().cloned().chain(names).collect();
            let terms = keywords::document_terms(content, &keywords);
            keywords::coverage(&request.terms, &terms) >= MIN_COVERAGE && !self.is_protected(*old, at)
        });
        if let Some(meant) = meant {
            let fact = self.facts[meant].known.fact.id;
            self.facts[meant].ends.push(End {
                fact,
                reason: InvalidReason::Forgotten,
                by: None,
                turn,
                at,
                restored_at: None,
            });
        }
    }

    /// Ends a promise or a goal that held. One that is pinned or authored is flagged, by what the turn says.
    pub(super) fn end_promise(&mut self, ending: Ending, new: &[usize], turn: TurnId, at: DateTime<Utc>) {
        let held = self.at.get(&ending.fact).copied().filter(|fact| self.holds(*fact, at));
        let Some(promise) = held else { return };
        if self.is_protected(promise, at) {
            let said = new.iter().map(|fact| &self.facts[*fact].known.fact);
            // The same one wherever it is decided, however the facts came in.
            let first = said.min_by(|a, b| (&a.statement.content, a.id).cmp(&(&b.statement.content, b.id)));
            if let Some(by) = first.map(|fact| fact.id) {
                let fact = ending.fact;
                self.flags.push(Flagged { fact, by, turn });
            }
            return;
        }
        self.facts[promise].ends.push(End {
            fact: ending.fact,
            reason: ending.how,
            by: None,
            turn,
            at,
            restored_at: None,
        });
    }
}
