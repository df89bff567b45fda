//! The gate: what may be told to those who hear a dialogue.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap, HashSet},
};

use chrono::{DateTime, Utc};

use super::{
    disclosable::{Disclosable, Unlocked},
    locked_row::LockedRow,
};
use crate::{Services, turn::TurnInput};
use colloquy_core::{
    ids::{DialogueId, FactId, LoreId, NpcId, ScenarioId},
    scope::TenantScope,
};
use colloquy_memory::{
    authored::{Npc, World},
    condition::ConditionContext,
    disclosure::{audience::Viewpoint, locks::DisclosureLocks},
    fact::Fact,
    insight::{EarlierInsight, Insight, without_replaced},
    progress::{self, NpcNames},
};
use colloquy_ports::{
    StoreResult,
    ledger::{
        curation::StoryRow,
        facts::{ConfirmedFact, FactConfirmation},
        scenarios::RequiredProgress,
    },
};

/// Decides what may be told to those who hear a dialogue.
pub(crate) struct Gate<'a> {
    services: &'a Services,
    scope: &'a TenantScope,
    world: &'a World,
    viewpoint: Cow<'a, Viewpoint>,
    /// True for a greeting. The player has asked for nothing, and locked content would lock what the session teaches.
    is_greeting: bool,
}

/// How a player comes to hear lines of a conversation between NPCs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hearing {
    /// The player left the conversation for this session, and has heard the lines.
    Joined,
    /// The NPC repeats the lines.
    Told,
}

impl<'a> Gate<'a> {
    pub(crate) const fn new(
        services: &'a Services,
        scope: &'a TenantScope,
        world: &'a World,
        viewpoint: &'a Viewpoint,
    ) -> Self {
        Self {
            services,
            scope,
            world,
            viewpoint: Cow::Borrowed(viewpoint),
            is_greeting: false,
        }
    }

    /// Returns the gate of those who hear a turn.
    pub(crate) fn of_turn(services: &'a Services, input: &'a TurnInput) -> Self {
        Self {
            services,
            scope: &input.scope,
            world: &input.world,
            viewpoint: Cow::Owned(input.viewpoint()),
            is_greeting: input.is_greeting(),
        }
    }

    /// Returns whether each of several sets of locks is open. Without locks, nothing is read.
    async fn are_open(&self, lock_sets: &[&DisclosureLocks]) -> StoreResult<Vec<bool>> {
        let entries = lock_sets.iter().flat_map(|locks| locks.lore_keys());
        let entries: HashSet<(NpcId, LoreId)> = entries.map(|(npc, entry)| (npc.clone(), entry.clone())).collect();
        let (unlocked, open) = tokio::try_join!(self.unlocked_scenarios(lock_sets), self.open_entries(&entries))?;
        let gossip = self.world.settings.allows_gossip();
        let is_unlocked = |(npc, scenario): (&NpcId, &ScenarioId)| unlocked.contains(&(npc.clone(), scenario.clone()));
        let is_open = |locks: &&DisclosureLocks| {
            locks.are_open_to(&self.viewpoint, gossip, is_unlocked, |(npc, entry)| {
                open.contains(&(npc.clone(), entry.clone()))
            })
        };
        Ok(lock_sets.iter().map(is_open).collect())
    }

    async fn is_open(&self, locks: &DisclosureLocks) -> StoreResult<bool> {
        Ok(self.are_open(&[locks]).await?.iter().all(|is_open| *is_open))
    }

    /// Returns the items whose locks are open, in the same order.
    async fn keep_open<T>(&self, items: Vec<T>, locks_of: impl Fn(&T) -> &DisclosureLocks) -> StoreResult<Vec<T>> {
        let lock_sets: Vec<&DisclosureLocks> = items.iter().map(locks_of).collect();
        let are_open = self.are_open(&lock_sets).await?;
        debug_assert_eq!(are_open.len(), items.len(), "each item has a verdict");
        let open = items.into_iter().zip(are_open).filter(|(_, is_open)| *is_open);
        Ok(open.map(|(item, _)| item).collect())
    }

    /// Returns the rows whose locks are open, in the same order.
    pub(crate) async fn open<R: LockedRow>(&self, mut rows: Vec<R>) -> StoreResult<Vec<Unlocked<R>>> {
        if self.is_greeting && !R::IS_FOR_GREETINGS {
            rows.retain(|row| row.locks().is_empty());
        }
        let open = self.keep_open(rows, LockedRow::locks).await?;
        Ok(open.into_iter().map(Unlocked::new).collect())
    }

    /// Returns a row whose locks are open, or the row as it was.
    pub(crate) async fn open_one<R: LockedRow>(&self, row: R) -> StoreResult<Result<Unlocked<R>, R>> {
        Ok(if self.is_open(row.locks()).await? {
            Ok(Unlocked::new(row))
        } else {
            Err(row)
        })
    }

    /// Returns the insights whose locks are open, without those in whose place another of them stands.
    pub(crate) async fn open_insights(&self, insights: Vec<EarlierInsight>) -> StoreResult<Vec<Unlocked<Insight>>> {
        let open = self.open(insights).await?.into_iter().map(Unlocked::into_inner);
        let standing = without_replaced(open.collect()).into_iter();
        Ok(standing.map(|earlier| Unlocked::new(earlier.insight)).collect())
    }

    /// Returns the rows of the story that the hearers of `dialogue` may hear. The turns of the dialogue were said to them.
    /// Of another session, all that its prompts had must be open: a pass also reads what a reply reported without a word.
    pub(crate) async fn open_story(
        &self,
        dialogue: DialogueId,
        rows: Vec<StoryRow>,
    ) -> StoreResult<Vec<Unlocked<StoryRow>>> {
        let locks_of = |row: &StoryRow| -> Option<DisclosureLocks> {
            if row.dialogue == dialogue {
                Some(DisclosureLocks::default())
            } else {
                row.locks.clone()
            }
        };
        let known_rows = rows.into_iter().filter_map(|row| Some((locks_of(&row)?, row)));
        let usable_rows = known_rows.filter(|(locks, _)| locks.is_empty() || !self.is_greeting);
        let open = self.keep_open(usable_rows.collect(), |(locks, _)| locks).await?;
        Ok(open.into_iter().map(|(_, row)| Unlocked::new(row)).collect())
    }

    /// Returns lines of a conversation between NPCs that only its hearers could hear. `locks` have these hearers. Lines are
    /// shown whole, as the history is.
    pub(crate) async fn open_heard_lines<L>(
        &self,
        lines: Vec<L>,
        locks: &DisclosureLocks,
        hearing: Hearing,
    ) -> StoreResult<Vec<Disclosable<L>>> {
        let is_open = hearing == Hearing::Joined || self.is_open(locks).await?;
        let open_lines = lines.into_iter().filter(|_| is_open);
        Ok(open_lines.map(Disclosable::new).collect())
    }

    /// Returns the facts that the viewpoint may know and whose locks are open, in the same order.
    pub(crate) async fn open_facts(&self, mut facts: Vec<Fact>) -> StoreResult<Vec<Disclosable<Fact>>> {
        facts.retain(|fact| fact.world == self.viewpoint.world && self.viewpoint.may_know(&fact.audience));
        let open = self.open(facts).await?.into_iter();
        Ok(open.map(|fact| Disclosable::new(fact.into_inner())).collect())
    }

    /// Returns those of the facts `ids` that stand at `moment`, that the viewpoint may know, and whose locks are open; in
    /// no particular order.
    pub(crate) async fn confirm_facts(
        &self,
        ids: &[FactId],
        moment: DateTime<Utc>,
    ) -> StoreResult<Vec<Disclosable<ConfirmedFact>>> {
        let facts = &self.services.ledger.facts;
        let FactConfirmation { mut open, locked } =
            facts.confirm_facts(self.scope, &self.viewpoint, ids, moment).await?;
        let unlocked = self.keep_open(locked, |(_, locks)| locks).await?;
        open.extend(unlocked.into_iter().map(|(fact, _)| fact));
        debug_assert!(
            open.len() <= ids.len(),
            "the gate confirms only facts that were asked for"
        );
        Ok(open.into_iter().map(Disclosable::new).collect())
    }

    /// Returns the NPCs whose scenarios have conditions.
    async fn load_tellers(&self, required: &[RequiredProgress]) -> StoreResult<HashMap<NpcId, Npc>> {
        let mut tellers: HashMap<NpcId, Npc> = HashMap::new();
        for requirement in required.iter().filter(|requirement| !requirement.when.is_empty()) {
            let id = &requirement.npc;
            if !tellers.contains_key(id) {
                let npc = self
                    .services
                    .ledger
                    .authored
                    .load_npc(self.scope, &self.world.id, id)
                    .await?;
                tellers.extend(npc.map(|npc| (id.clone(), npc)));
            }
        }
        Ok(tellers)
    }

    /// Returns the scenarios among the locks that the player may hear.
    async fn unlocked_scenarios(&self, lock_sets: &[&DisclosureLocks]) -> StoreResult<HashSet<(NpcId, ScenarioId)>> {
        let Self {
            services,
            scope,
            world,
            viewpoint,
            ..
        } = self;
        let scenario_keys: BTreeSet<(NpcId, ScenarioId)> = lock_sets
            .iter()
            .flat_map(|locks| locks.scenario_keys())
            .map(|(npc, scenario)| (npc.clone(), scenario.clone()))
            .collect();
        if scenario_keys.is_empty() || viewpoint.sees_all_players {
            return Ok(HashSet::new());
        }
        let scenario_keys: Vec<(NpcId, ScenarioId)> = scenario_keys.into_iter().collect();
        let scenarios = &services.ledger.scenarios;
        let (required, state) = tokio::try_join!(
            scenarios.load_required_progress(scope, &world.id, &scenario_keys),
            services.memory_cache.world_state(services, scope, &world.id),
        )?;
        let rules = world.settings.unlock_rules();
        let tellers = self.load_tellers(&required).await?;
        let conditions_hold = |requirement: &RequiredProgress| {
            requirement.when.is_empty()
                || tellers.get(&requirement.npc).is_some_and(|npc| {
                    let settings = &world.settings;
                    let player = viewpoint.player.as_ref();
                    let context = ConditionContext::new(&state, settings, npc, player, services.clock.now());
                    context.all_hold(&requirement.when)
                })
        };
        // Without a player, or at no progress, only scenarios that need no progress are open.
        let progress_with = |npc: &NpcId, name: &str| {
            progress::progress_state(
                &state.milestones,
                rules,
                &NpcNames::new(npc, name),
                viewpoint.player.as_ref(),
            )
            .progress()
        };
        Ok(required
            .into_iter()
            .filter(|requirement| {
                progress_with(&requirement.npc, &requirement.npc_name) >= requirement.progress
                    && conditions_hold(requirement)
            })
            .map(|requirement| (requirement.npc, requirement.scenario))
            .collect())
    }

    /// Returns those of `entry_keys` (an entry, and the NPC that told of it) that the player at `viewpoint` may hear.
    async fn open_entries(&self, entry_keys: &HashSet<(NpcId, LoreId)>) -> StoreResult<HashSet<(NpcId, LoreId)>> {
        let Self {
            services,
            scope,
            world,
            viewpoint,
            ..
        } = self;
        if entry_keys.is_empty() || viewpoint.sees_all_players {
            return Ok(HashSet::new());
        }
        let (lore, state) = tokio::try_join!(
            services.memory_cache.lore.load_lore(services, scope, world),
            services.memory_cache.world_state(services, scope, &world.id),
        )?;
        let tellers: HashSet<&NpcId> = entry_keys.iter().map(|(npc, _)| npc).collect();
        let mut open = HashSet::new();
        for teller in tellers {
            let Some(npc) = services.ledger.authored.load_npc(scope, &world.id, teller).await? else {
                continue;
            };
            let settings = &world.settings;
            let player = viewpoint.player.as_ref();
            let context = ConditionContext::new(&state, settings, &npc, player, services.clock.now());
            let is_open = |id: &LoreId| lore.entry(id).is_some_and(|entry| context.all_hold(&entry.text.when));
            let of_teller = entry_keys.iter().filter(|(npc, entry)| npc == teller && is_open(entry));
            open.extend(of_teller.cloned());
        }
        Ok(open)
    }
}
