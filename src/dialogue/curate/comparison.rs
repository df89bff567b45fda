//! What a pass compares its turns with, besides the state of the world: the facts that turns of the dialogue taught,
//! the facts that people wrote, and the lore that the turns name. No call of a model or an embedder is made.
//!
//! The insights of a pass are prompts of every NPC of the dialogue later. Authored texts are therefore shown only if
//! each of the NPCs knows them, and without conditions. Facts of the dialogue have no lock that its last turn does not
//! have.

use std::collections::BTreeSet;

use minijinja::{Value, context};

use super::unread_turns::UnreadTurns;
use crate::{
    Services,
    knowledge::lore::{self, DeadPerson},
    npc_conversation::SceneMember,
    prompt::{attribute_text, escape_untrusted},
};
use colloquy_core::scope::TenantScope;
use colloquy_memory::{
    authored::Npc,
    disclosure::audience::Knower,
    fact::Fact,
    lore::LoreEntry,
    party::{self, PLAYER},
    summary::without_content,
    turn::Turn,
};
use colloquy_ports::{
    StoreResult,
    ledger::{
        curation::{PassFactQuery, PassFacts},
        jobs::JobInput,
    },
    llm::Task,
};

/// The most facts of each kind that a pass considers. Some are left out afterwards.
const MAX_READ_FACTS: u32 = 200;
/// The most facts of the dialogue that a prompt shows, and their tokens.
const MAX_LEARNED: ListLimits = ListLimits {
    count: 60,
    tokens: 2_000,
};
/// The most authored facts that a prompt shows, and their tokens.
const MAX_AUTHORED: ListLimits = ListLimits {
    count: 40,
    tokens: 1_500,
};
/// The most entries of the lore that a prompt shows, and their tokens.
const MAX_LORE: ListLimits = ListLimits {
    count: 12,
    tokens: 2_000,
};
/// The most characters of an entry.
const MAX_LORE_CHARS: usize = 1_000;

/// How much of a list a prompt shows at most.
#[derive(Clone, Copy)]
struct ListLimits {
    count: usize,
    tokens: u32,
}

/// The values of the prompt about facts and lore.
pub(super) struct ComparisonValues {
    /// In the order of the turns that taught them.
    pub learned: Vec<Value>,
    /// Oldest first.
    pub authored: Vec<Value>,
    pub lore: Vec<Value>,
    /// The dead whom the lines name.
    pub named_dead: BTreeSet<String>,
}

/// Returns what the turns of a pass are compared with. `dead` are those who do not take part.
pub(super) async fn load_comparison(
    services: &Services,
    scope: &TenantScope,
    job_input: &JobInput,
    cast: &[(SceneMember, Option<Npc>)],
    unread: &UnreadTurns,
    forgotten: &[String],
    dead: &[DeadPerson<'_>],
) -> StoreResult<ComparisonValues> {
    let npcs: Vec<&Npc> = cast.iter().filter_map(|(_, npc)| npc.as_ref()).collect();
    let PassFacts { learned, authored } = load_facts(services, scope, job_input, &npcs, unread).await?;
    let counter = services.models.counter_for_task(Task::Curation);
    let count = |text: &str| services.prompts.count_tokens(counter, text);

    // The pass may run beside the extraction of its last turn.
    let is_settled = |fact: &Fact| fact.source.is_none_or(|(_, turn)| turn < job_input.turn.number);
    let known_facts = learned.into_iter().filter(is_settled).filter_map(|fact| {
        let text = without_content(&fact.view.content, forgotten)?;
        Some((fact, text))
    });
    let mut learned = take_within(known_facts, MAX_LEARNED, |(_, text)| count(text));
    learned.sort_by_key(|(fact, _)| (fact.source.map(|(_, turn)| turn), fact.id));

    let partitions: Vec<BTreeSet<Knower>> = npcs.iter().map(|npc| knowers_of(npc)).collect();
    let is_known_to_all = |fact: &Fact| {
        partitions
            .iter()
            .all(|knowers| !knowers.is_disjoint(&fact.audience.knowers))
    };
    let shared_facts = authored.into_iter().filter(is_known_to_all);
    let mut authored = take_within(shared_facts, MAX_AUTHORED, |fact| count(&fact.view.content));
    authored.sort_by_key(|fact| fact.id);

    let texts = unread
        .turns
        .iter()
        .map(|turn| [turn.player_text.as_str(), turn.reply_text.as_str()]);
    let entries = lore::named_entries(services, scope, &job_input.world, &npcs, texts, dead).await?;
    let named_dead = find_named_dead(dead, &unread.turns, &entries);
    let entries = entries.into_iter().map(|entry| {
        let content: String = entry.text.content.chars().take(MAX_LORE_CHARS).collect();
        (entry, content)
    });
    let lore = take_within(entries, MAX_LORE, |(_, content)| count(content));
    Ok(ComparisonValues {
        learned: learned.iter().map(|(fact, text)| learned_value(fact, text)).collect(),
        authored: authored
            .iter()
            .map(|fact| context! { text => escape_untrusted(&fact.view.content) })
            .collect(),
        lore: lore.iter().map(|(entry, text)| lore_value(entry, text, dead)).collect(),
        named_dead,
    })
}

/// Returns the names of the dead whom turns name, by a name of the person or of an entry about this person alone.
fn find_named_dead(dead: &[DeadPerson<'_>], turns: &[Turn], entries: &[LoreEntry]) -> BTreeSet<String> {
    let named_people = dead.iter().filter(|person| {
        let in_turn = |turn: &Turn| person.is_named_in(&turn.player_text) || person.is_named_in(&turn.reply_text);
        turns.iter().any(in_turn) || entries.iter().any(|entry| person.is_alone_in(entry))
    });
    named_people.map(|person| person.name.to_owned()).collect()
}

fn lore_value(entry: &LoreEntry, text: &str, dead: &[DeadPerson<'_>]) -> Value {
    let dead = dead.iter().filter(|person| person.is_in(entry));
    context! {
        name => attribute_text(&entry.text.name),
        dead => dead.map(|person| attribute_text(person.name)).collect::<Vec<_>>(),
        text => escape_untrusted(text),
    }
}

async fn load_facts(
    services: &Services,
    scope: &TenantScope,
    job_input: &JobInput,
    npcs: &[&Npc],
    unread: &UnreadTurns,
) -> StoreResult<PassFacts> {
    let Some(last) = unread.turns.last() else {
        return Ok(PassFacts::default());
    };
    // What all NPCs know, the first one knows.
    let knowers = npcs.first().map(|npc| knowers_of(npc)).unwrap_or_default();
    let query = PassFactQuery {
        world: job_input.world.id.clone(),
        dialogue: job_input.dialogue.id,
        turns: (unread.from, last.number),
        player: last.player.clone(),
        knowers: knowers.into_iter().collect(),
        said_at: last.committed_at,
        now: services.clock.now(),
        limit: MAX_READ_FACTS,
    };
    services.ledger.curation.load_pass_facts(scope, &query).await
}

/// Returns the knowers whose facts an NPC has.
fn knowers_of(npc: &Npc) -> BTreeSet<Knower> {
    let factions = npc.factions.iter().cloned().map(Knower::Faction);
    factions.chain([Knower::Npc(npc.id.clone()), Knower::World]).collect()
}

/// Takes items in their order, up to a number of items and tokens. An item that does not fit is skipped.
fn take_within<T>(items: impl IntoIterator<Item = T>, limits: ListLimits, tokens_of: impl Fn(&T) -> u32) -> Vec<T> {
    let mut remaining_tokens = limits.tokens;
    let fits = items
        .into_iter()
        .filter(|item| match remaining_tokens.checked_sub(tokens_of(item)) {
            Some(rest) => {
                remaining_tokens = rest;
                true
            }
            None => false,
        });
    fits.take(limits.count).collect()
}

fn learned_value(fact: &Fact, text: &str) -> Value {
    let speaker = &fact.statement.speaker;
    context! {
        turn => fact.source.map(|(_, turn)| turn),
        by => if party::is_player(speaker) { PLAYER.to_owned() } else { attribute_text(speaker) },
        text => escape_untrusted(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_beyond_the_number_or_the_tokens_are_left_out() {
        let take = |count, tokens| take_within([3_u32, 9, 2, 4, 1], ListLimits { count, tokens }, |tokens| *tokens);
        assert_eq!(take(9, 100), [3, 9, 2, 4, 1]);
        assert_eq!(take(2, 100), [3, 9]);
        assert_eq!(take(9, 6), [3, 2, 1], "a long one leaves room for shorter ones");
        assert!(take(9, 0).is_empty());
    }
}
