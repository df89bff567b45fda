//! The insights of a pass: each NPC of the dialogue gets its own row, with the locks of the dialogue.

use super::material::PassMaterial;
use crate::{Services, disclosure::LocksByWords};
use colloquy_core::{
    ids::{DialogueId, TurnId},
    scope::TenantScope,
};
use colloquy_memory::{
    disclosure::locks::DisclosureLocks, insight::Insight, party::subject_key, summary::without_content,
};
use colloquy_ports::{StoreResult, ledger::jobs::JobInput};

/// An insight of a pass before the write.
pub(super) struct NewInsight {
    /// The stored name of the entity.
    pub entity: String,
    /// Empty: what the replaced insight told does not hold.
    pub text: String,
    /// As [`Insight::turns`] and [`Insight::rests_on`].
    pub turns: Vec<u32>,
    pub rests_on: Vec<TurnId>,
    /// The locks of the insight in whose place this one stands: the same may be told in other words.
    pub inherited_locks: DisclosureLocks,
}

/// Returns the insights of a pass for all NPCs of the dialogue, without anything that the player asked to forget. An
/// NPC gets none about itself.
///
/// An insight has the locks of what the dialogue may have told by its last turn, as private facts do, and those of the
/// insight in whose place it stands. The pass reads no insight of another dialogue with further locks. What came up among
/// NPCs has all locks of the conversation, and is known only to the players who could listen. Without the trace of the
/// last turn, the locks are unknown, and nothing is stored.
pub(super) async fn insights_for_npcs(
    services: &Services,
    scope: &TenantScope,
    job_input: &JobInput,
    material: &PassMaterial,
    new_insights: Vec<NewInsight>,
) -> StoreResult<Vec<Insight>> {
    let last = &material.last;
    let dialogue = &job_input.dialogue;
    if new_insights.is_empty() {
        return Ok(Vec::new());
    }
    let Some(trace) = services
        .ledger
        .dialogues
        .load_trace(scope, dialogue.id, last.number)
        .await?
    else {
        return Ok(Vec::new());
    };
    let locks = LocksByWords::of_pass(services, scope, job_input, last, &material.past, trace).await?;
    let mut insights = Vec::new();
    let cast = dialogue.npcs.iter().zip(&material.participants.npc_names);
    for new in new_insights {
        let NewInsight {
            entity,
            text,
            turns,
            rests_on,
            inherited_locks,
        } = new;
        let Some(text) = usable_text(material, dialogue.id, text) else {
            continue;
        };
        let mut locks = locks.locks_of(&[&text, &entity]);
        locks.extend_with(&inherited_locks);
        let key = subject_key(&entity);
        let other_npcs = cast.clone().filter(|(_, name)| subject_key(name) != key);
        insights.extend(other_npcs.map(|(npc, _)| Insight {
            id: services.ids.next_id(),
            world: dialogue.world.clone(),
            npc: npc.clone(),
            player: last.player.clone(),
            dialogue: dialogue.id,
            number: last.number,
            entity: entity.clone(),
            day: material.day.clone(),
            text: text.clone(),
            turns: turns.clone(),
            rests_on: rests_on.clone(),
            locks: locks.clone(),
            // As all times of a pass: those of the turn, not those of the write.
            last_turn_at: last.committed_at,
        }));
    }
    Ok(insights)
}

/// Returns the text of an insight without what was forgotten. An empty text takes an earlier insight back.
fn usable_text(material: &PassMaterial, dialogue: DialogueId, text: String) -> Option<String> {
    if material.hidden.are_told_by(&text) {
        tracing::info!(%dialogue, "an insight told what the pass had not read");
        return None;
    }
    if text.is_empty() {
        return Some(text);
    }
    without_content(&text, &material.forgotten)
}
