//! The gate: what may be told to those who hear a dialogue.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap, HashSet},
};

use chrono::{DateTime, Utc};

use super::disclosable::Disclosable;
use crate::{Services, turn::TurnInput};
use colloquy_core::{
    ids::{FactId, LoreId, NpcId, ScenarioId},
    scope::TenantScope,
};
use colloquy_memory::{
    authored::{Npc, World},
    condition::ConditionContext,
    disclosure::{audience::Viewpoint, locks::DisclosureLocks},
    fact::Fact,
    progress::{self, NpcNames},
};
use colloquy_ports::{
    StoreResult,
    ledger::{
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
        }
    }

    /// Returns the gate of those who hear a turn.
    pub(crate) fn of_turn(services: &'a Services, input: &'a TurnInput) -> Self {
        Self {
            services,
            scope: &input.scope,
            world: &input.world,
            viewpoint: Cow::Owned(input.viewpoint()),
        }
    }

    /// Returns the entries of `locked` whose locks are open, in the same order. Without locks, nothing is read.
    pub(crate) async fn open<T>(&self, locked: Vec<(T, DisclosureLocks)>) -> StoreResult<Vec<Disclosable<T>>> {
        let entries = locked.iter().flat_map(|(_, locks)| locks.lore_keys());
        let entries: HashSet<(NpcId, LoreId)> = entries.map(|(npc, entry)| (npc.clone(), entry.clone())).collect();
        let (unlocked, open) = tokio::try_join!(self.unlocked_scenarios(&locked), self.open_entries(&entries))?;
        let gossip = self.world.settings.allows_gossip();
        let is_unlocked = |(npc, scenario): (&NpcId, &ScenarioId)| unlocked.contains(&(npc.clone(), scenario.clone()));
        let is_open = |locks: &DisclosureLocks| {
            locks.are_open_to(&self.viewpoint, gossip, is_unlocked, |(npc, entry)| {
                open.contains(&(npc.clone(), entry.clone()))
            })
        };
        let open = locked.into_iter().filter(|(_, locks)| is_open(locks));
        Ok(open.map(|(content, _)| Disclosable::new(content)).collect())
    }

    /// True if all locks are open.
    pub(crate) async fn is_open(&self, locks: &DisclosureLocks) -> StoreResult<bool> {
        let open = self.open(vec![((), locks.clone())]).await?;
        Ok(!open.is_empty())
    }

    /// Returns the facts that the viewpoint may know and whose locks are open, in the same order.
    pub(crate) async fn open_facts(&self, facts: Vec<Fact>) -> StoreResult<Vec<Disclosable<Fact>>> {
        let known_facts = facts.into_iter().filter(|fact| self.viewpoint.may_know(&fact.audience));
        let locked = known_facts.map(|fact| {
            let locks = fact.locks.clone();
            (fact, locks)
        });
        self.open(locked.collect()).await
    }

    /// Returns those of the facts `ids` that stand at `moment`, that the viewpoint may know, and whose locks are open; in
    /// no particular order.
    pub(crate) async fn confirm_facts(
        &self,
        ids: &[FactId],
        moment: DateTime<Utc>,
    ) -> StoreResult<Vec<Disclosable<ConfirmedFact>>> {
        let facts = &self.services.ledger.facts;
        let FactConfirmation { open, locked } = facts.confirm_facts(self.scope, &self.viewpoint, ids, moment).await?;
        let mut confirmed: Vec<Disclosable<ConfirmedFact>> = open.into_iter().map(Disclosable::new).collect();
        if !locked.is_empty() {
            confirmed.extend(self.open(locked).await?);
        }
        Ok(confirmed)
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
    async fn unlocked_scenarios<T>(
        &self,
        locked: &[(T, DisclosureLocks)],
    ) -> StoreResult<HashSet<(NpcId, ScenarioId)>> {
        let Self {
            services,
            scope,
            world,
            viewpoint,
        } = self;
        let scenario_keys: BTreeSet<(NpcId, ScenarioId)> = locked
            .iter()
            .flat_map(|(_, locks)| locks.scenario_keys())
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
