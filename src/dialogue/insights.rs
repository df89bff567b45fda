//! Insights: what an NPC has learned from earlier dialogues, by curation passes. A turn gets those about its player
//! and about what the line names (docs/algorithms.md#insights).

use super::{
    Services, locks,
    redaction::{self, PreparedRemovals},
    turn::TurnInput,
};
use colloquy_memory::insight::{Insight, TurnSubjects};
use colloquy_ports::StoreResult;

/// Reads the NPC's insights from its sessions with the player and from NPC conversations, newest first.
pub(crate) async fn read_insights(services: &Services, input: &TurnInput) -> StoreResult<Vec<Insight>> {
    if services.settings.prompt.insight_tokens == 0 {
        return Ok(Vec::new());
    }
    let (store, player) = (&services.ledger.insights, input.player.as_ref());
    store
        .load_insights(&input.scope, &input.world.id, &input.npc.id, player)
        .await
}

/// Returns the insights that the prompt of a turn may have: those about the turn that are open to its hearers. First
/// what the line names, then the player; the newest first. `gone` was taken out of memory.
pub(crate) async fn find_usable(
    services: &Services,
    input: &TurnInput,
    read: Vec<Insight>,
    gone: &PreparedRemovals<'_>,
) -> StoreResult<Vec<Insight>> {
    let line = input.heard_text();
    let npc = (&input.npc.id, input.npc.name.as_str());
    let entities = read.iter().map(|insight| insight.entity.as_str());
    let subjects = TurnSubjects::new(input.player.as_ref(), npc, &line, entities);
    // As for episodes, a greeting has no locked insight.
    let is_usable = |insight: &Insight| !insight.text.is_empty() && (insight.locks.is_empty() || !input.is_greeting());
    let about = read.into_iter().filter(is_usable).filter_map(|insight| {
        let closeness = subjects.closeness_of(&insight.entity)?;
        Some((closeness, insight))
    });
    let mut about: Vec<_> = about.collect();
    // The sort is stable: of equally close insights, the newest stay first.
    about.sort_by_key(|(closeness, _)| *closeness);
    let locked = about.into_iter().map(|(_, insight)| {
        let locks = insight.locks.clone();
        (insight, locks)
    });
    let locked: Vec<_> = locked.collect();
    let open = locks::filter_open(services, &input.scope, &input.world, &input.viewpoint(), locked).await?;
    Ok(redaction::redact_insights(gone, open))
}
