//! What a curation pass may read of other dialogues, and the locks of what the pass writes.

use std::collections::{BTreeMap, BTreeSet};

use super::locks_by_words::LocksByWords;
use crate::Services;
use colloquy_core::{
    ids::{DialogueId, ScenarioId},
    scope::TenantScope,
};
use colloquy_memory::{
    disclosure::locks::{DisclosureLock, DisclosureLocks},
    insight::{EarlierInsight, Insight},
    trace::TurnTrace,
    turn::Turn,
};
use colloquy_ports::{StoreResult, ledger::jobs::JobInput};

/// The gate before a pass. What the pass writes has the locks of what its dialogue may have told. So the pass reads
/// nothing of another dialogue with further locks: it would tell without them what the NPC must not say.
pub(crate) struct PassGate {
    dialogue: DialogueId,
    /// The locks of what the dialogue may have told.
    disclosed: DisclosureLocks,
}

impl PassGate {
    /// Reads what the dialogue may have told by its turn `last`, if an insight or one of `told_locks` is locked. Without
    /// the trace of the turn, nothing is known to be told.
    pub(crate) async fn load(
        services: &Services,
        scope: &TenantScope,
        last: &Turn,
        insights: &[EarlierInsight],
        told_locks: &BTreeMap<DialogueId, DisclosureLocks>,
    ) -> StoreResult<Self> {
        let dialogue = last.dialogue;
        let insights = insights.iter().map(|earlier| &earlier.insight);
        let other_insights = insights.filter(|insight| insight.dialogue != dialogue);
        let mut other_locks = other_insights.map(|insight| &insight.locks).chain(told_locks.values());
        let trace = if other_locks.any(|locks| !locks.is_empty()) {
            let dialogues = &services.ledger.dialogues;
            dialogues.load_trace(scope, dialogue, last.number).await?
        } else {
            None
        };
        let disclosed = trace.map(|trace| trace.told_locks.unwrap_or(trace.locks));
        Ok(Self {
            dialogue,
            disclosed: disclosed.unwrap_or_default(),
        })
    }

    /// True if the pass may read what another dialogue told with these locks.
    pub(crate) fn may_read(&self, locks: &DisclosureLocks) -> bool {
        locks.are_subset_of(&self.disclosed)
    }

    /// True if the pass may read an insight.
    pub(crate) fn may_read_insight(&self, insight: &Insight) -> bool {
        insight.dialogue == self.dialogue || self.may_read(&insight.locks)
    }
}

impl LocksByWords {
    /// Returns the locks of what a pass up to the turn `last` writes. `trace` is that of the turn, and `past` are the
    /// memories of the NPCs' past that the pass has read, whether or not the dialogue told them. What came up among NPCs
    /// has all locks of the conversation.
    pub(crate) async fn of_pass(
        services: &Services,
        scope: &TenantScope,
        job_input: &JobInput,
        last: &Turn,
        past: &BTreeSet<ScenarioId>,
        trace: TurnTrace,
    ) -> StoreResult<Self> {
        if last.player.is_none() {
            let watchers = job_input.dialogue.options.watchers();
            let hearers: DisclosureLocks = watchers.hearers_lock().into_iter().collect();
            let mut locks = trace.locks;
            locks.extend_with(&hearers);
            return Ok(Self::of_every_text(locks));
        }
        let mut locks = Self::of_told(services, scope, job_input, &trace).await?;
        let is_of_past = |lock: &DisclosureLock| matches!(lock, DisclosureLock::Scenario { scenario, .. } if past.contains(scenario));
        let read_locks = trace.locks.0.into_iter().filter(is_of_past);
        locks.certain.extend_with(&read_locks.collect());
        Ok(locks)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use chrono::DateTime;
    use colloquy_core::ids::{DialogueKind, InsightId};

    #[test]
    fn pass_reads_locked_insights_of_other_dialogues_if_its_dialogue_disclosed_them() {
        let [own, other] = [1, 2].map(|id| DialogueId::new(DialogueKind::Session, ulid::Ulid(id)));
        let insight = |dialogue, locks: &str| Insight {
            id: InsightId::from_u128(1),
            world: "vale".parse().unwrap(),
            npc: "mira".parse().unwrap(),
            player: Some("p7".parse().unwrap()),
            dialogue,
            number: 1,
            entity: "player:p7".to_owned(),
            day: "0212-02-15".to_owned(),
            text: "The player knows of the cave.".to_owned(),
            turns: Vec::new(),
            rests_on: Vec::new(),
            locks: locks.parse().unwrap(),
            last_turn_at: DateTime::UNIX_EPOCH,
        };
        let cave = "scenario:mira/cave";
        let both = "scenario:mira/cave;lore:mira/well";
        for (dialogue, locks, disclosed, is_read) in [
            (other, "", "", true),
            (other, cave, "", false),
            (other, cave, cave, true),
            (other, cave, both, true),
            (other, both, cave, false),
            (own, cave, "", true),
        ] {
            let gate = PassGate {
                dialogue: own,
                disclosed: disclosed.parse().unwrap(),
            };
            assert_eq!(
                gate.may_read_insight(&insight(dialogue, locks)),
                is_read,
                "{locks} / {disclosed}"
            );
        }
    }
}
