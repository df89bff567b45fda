//! What a pass is shown of the other sessions of its player with the same NPCs: the insights that hold, open findings,
//! notes, the newest sentences of state blocks, and short sessions that no pass has read.
//!
//! A rewind of one dialogue must suffice. So nothing of another dialogue is written anew: an insight or a finding stays
//! a row of its own dialogue, and a pass only decides about it or puts another in its place, which counts while both
//! stand. Notes and unread turns are there to understand the stretch. What a player asked to forget, or a person
//! removed, is left out.
//!
//! [`PassGate`] decides what the pass may read of other dialogues.

use chrono::{DateTime, Utc};
use minijinja::Value;

use super::turn_values::turn_values;
use crate::{
    Services,
    disclosure::{self, PassGate, PreparedRemovals},
    game_time::WorldDays,
    npc_conversation::SceneMember,
    prompt::escape_untrusted,
};
use colloquy_core::{ids::DialogueId, scope::TenantScope};
use colloquy_memory::{
    authored::Npc,
    curation::{CurationPass, Finding},
    insight::EarlierInsight,
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
        let gate = PassGate::load(services, scope, last, &insights, &carried.told_locks).await?;
        insights.retain(|earlier| gate.may_read_insight(&earlier.insight));
        insights.reverse();
        let removed = disclosure::load_removed(services, scope, job_input, services.clock.now()).await?;
        Ok(Self::redact(carried, insights, &gate, &removed))
    }

    /// Leaves out what the pass may not read, and what tells something of `removed`.
    fn redact(
        carried: CarriedCuration,
        insights: Vec<EarlierInsight>,
        gate: &PassGate,
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
            talk_locks.is_some_and(|locks| gate.may_read(locks))
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

fn redact_insight(removals: &PreparedRemovals<'_>, earlier: EarlierInsight) -> Option<EarlierInsight> {
    let EarlierInsight { insight, cause } = earlier;
    let insight = disclosure::redact_insight(removals, insight)?;
    Some(EarlierInsight { insight, cause })
}
