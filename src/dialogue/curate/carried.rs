//! What a pass is shown of the other sessions of its player with the same NPCs: the insights that hold, open findings,
//! notes, the newest sentences of state blocks, and short sessions that no pass has read.
//!
//! A rewind of one dialogue must suffice. So nothing of another dialogue is written anew: an insight or a finding stays
//! a row of its own dialogue, and a pass only decides about it or puts another in its place, which counts while both
//! stand. Notes and unread turns are there to understand the stretch. What a player asked to forget, or a person
//! removed, is left out.
//!
//! What the pass writes has the locks of what its dialogue may have told by its last turn ([`super::insights`]). So the
//! pass reads nothing of another dialogue with further locks: it would tell without them what the NPC must not say.

use chrono::{DateTime, Utc};
use minijinja::Value;

use super::turn_values::turn_values;
use crate::{
    Services,
    disclosure::{self, PreparedRemovals},
    game_time::WorldDays,
    npc_conversation::SceneMember,
    prompt::escape_untrusted,
};
use colloquy_core::{ids::DialogueId, scope::TenantScope};
use colloquy_memory::{
    authored::Npc,
    curation::{CurationPass, Finding},
    disclosure::locks::DisclosureLocks,
    insight::{EarlierInsight, Insight},
    turn::Turn,
};
use colloquy_ports::{
    StoreResult,
    ledger::{curation::CarriedCuration, facts::RemovedStatement, jobs::JobInput},
};

/// The newest insights that a prompt shows.
const MAX_SHOWN_INSIGHTS: u32 = 30;

/// The material from other sessions.
pub(super) struct CarriedMaterial {
    /// Findings that wait for a decision, oldest first.
    pub findings: Vec<Finding>,
    /// Insights that hold, also those of the dialogue itself, oldest first.
    pub insights: Vec<EarlierInsight>,
    /// The lines of the notes, and then the events and notes of state blocks.
    pub notes: Vec<String>,
    /// Unread turns, in order.
    turns: Vec<Turn>,
}

impl CarriedMaterial {
    /// Reads what was left up to the last turn of a pass.
    pub(super) async fn load(
        services: &Services,
        scope: &TenantScope,
        job_input: &JobInput,
        last: &Turn,
        last_pass: Option<DateTime<Utc>>,
    ) -> StoreResult<Self> {
        let ledger = &services.ledger;
        let dialogue = &job_input.dialogue;
        let carried = ledger
            .curation
            .load_carried_curation(scope, dialogue, last.committed_at, last_pass)
            .await?;
        let mut insights = ledger
            .insights
            .load_earlier_insights(scope, dialogue, last.committed_at, MAX_SHOWN_INSIGHTS)
            .await?;
        let disclosed = if is_locked(&insights, &carried, dialogue.id) {
            load_disclosed(services, scope, dialogue.id, last).await?
        } else {
            DisclosureLocks::default()
        };
        insights.retain(|earlier| may_be_read(&earlier.insight, dialogue.id, &disclosed));
        insights.reverse();
        let removed = disclosure::load_removed(services, scope, job_input, services.clock.now()).await?;
        Ok(Self::redact(carried, insights, &disclosed, &removed))
    }

    /// Leaves out what has further locks than `disclosed`, and what tells something of `removed`.
    fn redact(
        carried: CarriedCuration,
        insights: Vec<EarlierInsight>,
        disclosed: &DisclosureLocks,
        removed: &[RemovedStatement],
    ) -> Self {
        let removals = PreparedRemovals::new(removed);
        let redact = |text: &str| disclosure::redact_text(&removals, text);
        let insights = insights
            .into_iter()
            .filter_map(|earlier| redact_insight(&removals, earlier));
        let CarriedCuration {
            findings,
            passes,
            turns,
            sentences,
            told_locks,
        } = carried;
        let is_disclosed = |dialogue: DialogueId| {
            let talk_locks = told_locks.get(&dialogue);
            talk_locks.is_some_and(|locks| locks.are_subset_of(disclosed))
        };
        let is_forgotten =
            |dialogue: DialogueId, turn: u32| removals.removed_turns(dialogue).any(|removed| removed == turn);
        let findings = findings.into_iter().filter(|finding| is_disclosed(finding.dialogue));
        let findings = findings.filter_map(|finding| {
            if finding.turns.iter().any(|turn| is_forgotten(finding.dialogue, *turn)) {
                return None;
            }
            let text = redact(&finding.text)?;
            Some(Finding { text, ..finding })
        });
        // Notes name no turns, and may tell what was forgotten in any words.
        let is_whole = |pass: &&CurationPass| removals.removed_turns(pass.dialogue).next().is_none();
        let passes = passes.iter().filter(|pass| is_disclosed(pass.dialogue));
        let lines = passes.filter(is_whole).flat_map(|pass| pass.memory.lines());
        let sentences = sentences
            .iter()
            .filter(|sentence| is_disclosed(sentence.dialogue) && !is_forgotten(sentence.dialogue, sentence.turn));
        let lines = lines.chain(sentences.map(|sentence| sentence.text.as_str()));
        let turns = turns
            .into_iter()
            .filter(|turn| is_disclosed(turn.dialogue) && !is_forgotten(turn.dialogue, turn.number));
        let turns = turns.map(|turn| Turn {
            player_text: redact(&turn.player_text).unwrap_or_default(),
            reply_text: redact(&turn.reply_text).unwrap_or_default(),
            ..turn
        });
        Self {
            findings: findings.collect(),
            insights: insights.collect(),
            notes: lines.filter_map(redact).map(|line| escape_untrusted(&line)).collect(),
            turns: turns
                .filter(|turn| !turn.player_text.is_empty() || !turn.reply_text.is_empty())
                .collect(),
        }
    }

    /// Returns the unread turns for a prompt.
    pub(super) fn turn_values(
        &self,
        job_input: &JobInput,
        cast: &[(SceneMember, Option<Npc>)],
        days: &WorldDays<'_>,
    ) -> Vec<Value> {
        let turns = self.turns.iter();
        turns.map(|turn| turn_values(job_input, cast, days, turn)).collect()
    }
}

/// True if something of another dialogue has locks.
fn is_locked(insights: &[EarlierInsight], carried: &CarriedCuration, dialogue: DialogueId) -> bool {
    let insights = insights.iter().map(|earlier| &earlier.insight);
    let other_insights = insights.filter(|insight| insight.dialogue != dialogue);
    let locks = other_insights.map(|insight| &insight.locks);
    locks.chain(carried.told_locks.values()).any(|locks| !locks.is_empty())
}

/// Returns the locks of what the dialogue may have told by its turn `last`. Without the trace of the turn, nothing is
/// known to be told.
async fn load_disclosed(
    services: &Services,
    scope: &TenantScope,
    dialogue: DialogueId,
    last: &Turn,
) -> StoreResult<DisclosureLocks> {
    let dialogues = &services.ledger.dialogues;
    let trace = dialogues.load_trace(scope, dialogue, last.number).await?;
    let disclosed = trace.map(|trace| trace.told_locks.unwrap_or(trace.locks));
    Ok(disclosed.unwrap_or_default())
}

/// True if a pass over the dialogue may read an insight.
fn may_be_read(insight: &Insight, dialogue: DialogueId, disclosed: &DisclosureLocks) -> bool {
    insight.dialogue == dialogue || insight.locks.are_subset_of(disclosed)
}

fn redact_insight(removals: &PreparedRemovals<'_>, earlier: EarlierInsight) -> Option<EarlierInsight> {
    let EarlierInsight { insight, cause } = earlier;
    let insight = disclosure::redact_insight(removals, insight)?;
    Some(EarlierInsight { insight, cause })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
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
            let found = may_be_read(&insight(dialogue, locks), own, &disclosed.parse().unwrap());
            assert_eq!(found, is_read, "{locks} / {disclosed}");
        }
    }
}
