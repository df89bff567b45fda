//! Insights: what an NPC has learned from earlier dialogues, by curation passes. A turn gets those about its player
//! and about what the line names (docs/algorithms.md#insights).

use super::{
    Services, locks,
    redaction::{self, PreparedRemovals},
    turn::TurnInput,
};
use colloquy_memory::insight::{EarlierInsight, Insight, TurnSubjects, without_replaced};
use colloquy_ports::StoreResult;

/// Reads the NPC's insights from its sessions with the player and from NPC conversations, newest first.
pub(crate) async fn read_insights(services: &Services, input: &TurnInput) -> StoreResult<Vec<EarlierInsight>> {
    if services.settings.prompt.insight_tokens == 0 {
        return Ok(Vec::new());
    }
    let store = &services.ledger.insights;
    let player = input.player.as_ref();
    store
        .load_insights(&input.scope, &input.world.id, &input.npc.id, player)
        .await
}

/// Returns the insights that the prompt of a turn may have: those about the turn that are open to its hearers. First
/// what the line names, then the player; the newest first. An insight in whose place another of them stands is left
/// out. `removals` were taken out of memory.
pub(crate) async fn find_usable(
    services: &Services,
    input: &TurnInput,
    earlier_insights: Vec<EarlierInsight>,
    removals: &PreparedRemovals<'_>,
) -> StoreResult<Vec<Insight>> {
    let line = input.heard_text();
    let npc = &input.npc;
    let entities = earlier_insights.iter().map(|earlier| earlier.insight.entity.as_str());
    let subjects = TurnSubjects::new(input.player.as_ref(), &npc.id, &npc.name, &line, entities);
    // As for episodes, a greeting has no locked insight.
    let is_usable = |insight: &Insight| !insight.text.is_empty() && (insight.locks.is_empty() || !input.is_greeting());
    let usable = earlier_insights
        .into_iter()
        .filter(|earlier| is_usable(&earlier.insight));
    let ranked = usable.filter_map(|earlier| {
        let closeness = subjects.closeness_of(&earlier.insight.entity)?;
        Some((closeness, earlier))
    });
    let mut ranked: Vec<_> = ranked.collect();
    // The sort is stable: of equally close insights, the newest stay first.
    ranked.sort_by_key(|(closeness, _)| *closeness);
    let locked = ranked.into_iter().map(|(_, earlier)| {
        let locks = earlier.insight.locks.clone();
        (earlier, locks)
    });
    let locked: Vec<_> = locked.collect();
    let open = locks::filter_open(services, &input.scope, &input.world, &input.viewpoint(), locked).await?;
    let standing = without_replaced(open).into_iter().map(|earlier| earlier.insight);
    Ok(redaction::redact_insights(removals, standing.collect()))
}
