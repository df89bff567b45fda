//! The commit of a finished reply. One transaction writes the turn, its checkpoint, its trace, the state changes, the
//! actions and the jobs. The buffer follows.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};

use super::{
    extraction_choice::{is_block_omitted, skips_extraction},
    input::{CommittedTurn, TurnError, TurnFeed, TurnInput},
    job_holds::JobHolds,
    prompt_locks,
    turn_trace::trace_of_turn,
    uncommitted_turn::UncommittedTurn,
};
use crate::{
    Services, actions, episodes,
    jobs::new_jobs,
    prompt::{self},
    requester::Requester,
    scenarios::UnlockTrigger,
    scene::SceneMember,
};
use colloquy_core::{
    ids::{DialogueId, PlayerId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    actions::ActionRule,
    authored::{Npc, World, WorldSettings},
    backend_names::BackendNames,
    fact::Cause,
    game_clock::GameClock,
    keywords::normalise_text,
    party,
    state::{Character, StateChange, WorldState},
    state_block::{ParsedStateBlock, StateBlock, StateBlockError, StateRules},
    summary,
    tokens::TokenCounter,
    turn::{Checkpoint, Turn, TurnSeqs, TurnStatus, has_whole_sentence},
    vocabulary::Vocabulary,
};
use colloquy_ports::{
    StoreResult,
    buffer::{BufferHead, BufferSnapshot, BufferedTurn},
    ledger::{
        dialogues::{CommitOutcome, Dialogue, TurnCommit},
        jobs::{Job, JobKind, NewJob},
        rewinds::LiveCut,
        state::NewStateChange,
    },
};

/// Commits the turn. `turn.committed` may go out after this function returns.
pub(super) async fn commit_reply(
    services: &Services,
    input: &TurnInput,
    feed: &dyn TurnFeed,
    mut spoken: UncommittedTurn,
) -> Result<CommittedTurn, TurnError> {
    failpoint!("turn.said");
    let committed_seq = feed.reserve_committed();
    let turn = turn_of(services, input, &spoken, committed_seq);
    let mut notes = Vec::new();
    let block = spoken.reply.state_block.as_ref();
    let named = spoken.gathered.known_player_names(input);
    let eligible = &spoken.gathered.actions.offered(&spoken.prompt);
    let (block, unreadable) = read_state_changes(services, input, &named, (block, eligible), &mut notes).await?;
    let continued = input.continuation.as_ref();
    let beginning = continued.and_then(|unfinished| unfinished.effects_within(&turn.reply_text));
    let asked_actions = beginning.map_or_else(|| block.actions.clone(), |effects| effects.with_actions(&block.actions));
    let actions = actions::new_actions(services, input, &turn, &asked_actions, &mut notes);
    // A reply without a state block changes nothing, unless its model is known to leave the block out. A cut reply without
    // a block changes nothing either. Otherwise the player would choose when a model looks for state changes.
    let is_cut = turn.status == TurnStatus::Interrupted;
    let cut_block = is_cut && spoken.reply.began_block && has_whole_sentence(&turn.reply_text);
    let omitted = !is_cut && is_block_omitted(services, &turn, &spoken.reply, &mut notes);
    let given = !input.teaches_nothing() && input.given_reply().is_some_and(|given| given.extract_state);
    let unread_beginning = continued.is_some_and(|unfinished| unfinished.effects.changes.is_none());
    let extract_state =
        services.settings.prompt.ask_for_state && (unreadable || cut_block || omitted || given || unread_beginning);
    let checkpoint = checkpoint_of(services, input, &turn, &spoken);
    let summarise = is_summary_due(services, input, &turn, &checkpoint, spoken.gathered.counter);
    let was_cut = is_cut && !spoken.cuts.is_empty();
    // A later cut of the reply looks for no state change in a block without any.
    spoken.reply.began_block &= !block.is_only_nothing_new();
    let extract_facts =
        !input.teaches_nothing() && !skips_extraction(services, input, &block, &spoken.reply, &mut notes);
    // A job that looks for changes reads the whole reply.
    let changes = if extract_state {
        Vec::new()
    } else {
        let earlier = beginning.and_then(|effects| effects.changes.as_deref());
        let earlier = earlier.unwrap_or_default();
        spoken.reply.began_block |= !earlier.is_empty();
        [earlier, &block.changes].concat()
    };
    let jobs = jobs_of(
        services,
        input,
        &turn,
        was_cut,
        (extract_facts, extract_state, summarise),
    );
    let state = new_state_changes(services, &input.world.id, &turn, &changes);
    let seal = services.settings.turn.seal_time();
    let episode = episodes::greeting_episode(services, input, &turn, spoken.gathered.place.clone())?;
    let uncut = spoken.reply.uncut.clone();
    let cuts = cuts_of(services, &turn, &spoken.cuts);
    let commit = TurnCommit {
        epoch: input.epoch,
        expected_head: input.previous,
        replacing: input.replacing,
        key: input.key.clone(),
        key_of: input.continuation.as_ref().map(|unfinished| unfinished.of.id),
        sealed_reply: uncut.map(|text| (text, turn.committed_at + seal)),
        cuts,
        checkpoint: checkpoint.clone(),
        trace: trace_of_turn(services, input, &turn, spoken, notes, &checkpoint),
        state,
        actions,
        episode,
        next_seq: committed_seq + 1,
        turn: turn.clone(),
        jobs,
    };
    match services.ledger.turns.commit_turn(&input.scope, &commit).await? {
        CommitOutcome::Committed => {}
        CommitOutcome::Fenced => return Err(TurnError::Fenced),
        CommitOutcome::Closed => return Err(TurnError::Closed),
        CommitOutcome::KeyTaken => return Err(TurnError::KeyTaken),
    }
    failpoint!("turn.durable");
    append_to_buffer(services, input, &turn, &checkpoint).await;
    failpoint!("turn.buffered");
    Ok(CommittedTurn {
        unlocking: UnlockTrigger::from_turn(input, &changes, turn.committed_at),
        turn,
        checkpoint,
        state: changes,
        jobs: commit
            .jobs
            .iter()
            .filter(|job| job.held_until.is_none())
            .map(Job::from)
            .collect(),
        was_cut,
        cut_keys: commit.cuts.into_iter().filter_map(|cut| cut.key).collect(),
    })
}

/// Returns a row for each change that a turn made.
pub(crate) fn new_state_changes(
    services: &Services,
    world: &WorldId,
    turn: &Turn,
    changes: &[StateChange],
) -> Vec<NewStateChange> {
    let row = |change: &StateChange| NewStateChange {
        id: services.ids.next_id(),
        world: world.clone(),
        dialogue: Some(turn.dialogue),
        change: change.clone(),
        cause: Cause::Turn(turn.id),
        at: turn.committed_at,
    };
    changes.iter().map(row).collect()
}

/// Returns a row for each requester of the cut.
fn cuts_of(services: &Services, turn: &Turn, by: &[Requester]) -> Vec<LiveCut> {
    let cut = |by: &Requester| LiveCut {
        id: services.ids.next_id(),
        key: by.key.clone(),
        edit: by.audit_edit(&services.ids, turn.committed_at, turn.dialogue),
    };
    by.iter().map(cut).collect()
}

fn turn_of(services: &Services, input: &TurnInput, spoken: &UncommittedTurn, committed_seq: u64) -> Turn {
    Turn {
        id: input.id,
        dialogue: input.dialogue.id,
        number: input.number,
        status: spoken.reply.status,
        player: input.player.clone(),
        player_text: input.line.clone(),
        npc: input.npc.id.clone(),
        reply_text: spoken.reply.text.clone(),
        text_version: 1,
        cues: spoken.reply.cues.clone(),
        usage: spoken.reply.usage,
        started_at: input.started_at,
        committed_at: monotonic_commit_time(services.clock.now(), &input.dialogue),
        seqs: TurnSeqs {
            started: input.started_seq,
            done: spoken.done_seq,
            committed: committed_seq,
        },
    }
}

/// Returns `now`, or the moment just after the dialogue's last turn if the clock was set back. Facts of a later turn
/// must be newer than facts of an earlier turn.
fn monotonic_commit_time(now: DateTime<Utc>, dialogue: &Dialogue) -> DateTime<Utc> {
    if dialogue.head_turn == 0 {
        return now;
    }
    now.max(dialogue.updated_at + TimeDelta::microseconds(1))
}

/// Reads the state block within the world's rules. An action must be `eligible`, and must still be so. The flag is true
/// if a job must read the turn, because the block was unreadable.
async fn read_state_changes(
    services: &Services,
    input: &TurnInput,
    named: &[&str],
    (block, eligible): (Option<&StateBlock>, &[ActionRule]),
    notes: &mut Vec<String>,
) -> Result<(ParsedStateBlock, bool), TurnError> {
    let Some(block) = block else {
        return Ok((ParsedStateBlock::default(), false));
    };
    // The backend may have changed the state during the reply.
    let state = services
        .memory_cache
        .world_state(services, &input.scope, &input.world.id)
        .await?;
    let now = actions::actions_of_turn(services, input, &state);
    let still_eligible: Vec<ActionRule> = now.into_iter().filter(|rule| eligible.contains(rule)).collect();
    let by = StateBlockContext {
        dialogue: input.dialogue.id,
        now: input.started_at,
        world: &input.world,
        npc: &input.npc,
        player: input.player.as_ref(),
        cast: input.scene.as_deref().map_or(&[], |scene| &scene.cast),
        named,
        state: &state,
        actions: &still_eligible,
    };
    let parsed = parse_state_block(services, &input.scope, &by, block).await?;
    Ok(match parsed {
        Ok(mut parsed) => {
            notes.extend(parsed.rejected.iter().map(|why| format!("state block: {why}")));
            if let Some(player) = &input.player {
                for change in &mut parsed.changes {
                    prompt::bind_player(change, player);
                }
            }
            (parsed, false)
        }
        Err(error) => {
            let instead = if services.settings.prompt.ask_for_state {
                "it is extracted from the turn instead"
            } else {
                "nothing was asked for, so it changes nothing"
            };
            notes.push(format!("{error}; {instead}"));
            (ParsedStateBlock::default(), true)
        }
    })
}

/// The speaker and the listener of a state block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StateBlockContext<'a> {
    pub dialogue: DialogueId,
    /// When the turn began.
    pub now: DateTime<Utc>,
    pub world: &'a World,
    pub npc: &'a Npc,
    /// `None` in an NPC conversation.
    pub player: Option<&'a PlayerId>,
    /// The NPCs that take part; empty in a session with one NPC.
    pub cast: &'a [SceneMember],
    /// The player's name, as the NPC knows it.
    pub named: &'a [&'a str],
    /// The present state of the world.
    pub state: &'a WorldState,
    /// The actions for which the block may ask.
    pub actions: &'a [ActionRule],
}

impl StateBlockContext<'_> {
    /// Returns the world's limits for what the reply may change here.
    fn state_rules(&self) -> StateRules {
        let Self {
            world,
            npc,
            player,
            cast,
            state,
            actions,
            ..
        } = *self;
        let key = player.map(party::player_key);
        let speaker = state.npc_character(&npc.name, &npc.id);
        let player_character = key.as_deref().and_then(|key| state.characters.get(key));
        let place_of = |character: Option<&'_ Character>| character.and_then(|character| character.location.clone());
        let mut present = BTreeMap::new();
        for place in [speaker, player_character].into_iter().filter_map(place_of) {
            let people = state.people_at(&place).map(|(name, _)| name);
            let people = people.filter(|name| !party::is_player(name));
            present.extend(people.map(|name| (normalise_text(name), name.to_owned())));
        }
        let cast = cast.iter().map(|member| (&member.id, &member.name));
        for (id, name) in cast.chain([(&npc.id, &npc.name)]) {
            present.insert(id.to_string(), name.clone());
            present.insert(normalise_text(name), name.clone());
        }
        let others = present.values().filter(|name| **name != npc.name);
        let clock = GameClock::new(&world.settings, state);
        let known = self.located(others.cloned(), |character| {
            prompt::present_location(character, self.dialogue, clock, self.now)
        });
        let reachable = known.into_iter().filter_map(|(name, place)| {
            let next = world.settings.places_next_to(&place);
            let next: Vec<String> = next.into_iter().map(str::to_owned).collect();
            (!next.is_empty()).then(|| (name, next.into_iter().chain([place]).collect()))
        });
        let dead_player = player_character.is_some_and(Character::is_dead);
        let dead = state.dead_names().chain(dead_player.then_some(party::PLAYER));
        StateRules {
            without_player: player.is_none(),
            reachable: reachable.collect(),
            dead: dead.map(str::to_owned).collect(),
            ghosts_act: world.settings.lets_ghosts_speak(),
            present,
            actions: actions.to_vec(),
            ..state_rules_of(&world.settings)
        }
    }

    /// The places of the speaker, of the player, and of `others`, by the names in a block's changes.
    fn located(
        &self,
        others: impl Iterator<Item = String>,
        place_of: impl Fn(&Character) -> Option<&str>,
    ) -> Vec<(String, String)> {
        let state = self.state;
        let key = self.player.map(party::player_key);
        let player = key.as_deref().and_then(|key| state.characters.get(key));
        let speaker = state.npc_character(&self.npc.name, &self.npc.id);
        let others = others.map(|name| {
            let character = state.characters.get(&name);
            (name, character)
        });
        let all = others.chain([(self.npc.name.clone(), speaker), (party::PLAYER.to_owned(), player)]);
        all.filter_map(|(name, character)| Some((name, place_of(character?)?.to_owned())))
            .collect()
    }

    /// The characters whom only the backend takes away from their places.
    fn held_characters(&self, names: &BackendNames) -> BTreeSet<String> {
        let everybody = self.state.characters.keys().cloned();
        let located = self.located(everybody, |character| character.location.as_deref());
        let held = located.into_iter().filter(|(_, place)| names.holds_people_at(place));
        held.map(|(name, _)| name).collect()
    }
}

/// Reads a state block within the world's rules. A person that the block names as met, left or related must belong to
/// this world: an NPC, or a character in the state.
pub(crate) async fn parse_state_block(
    services: &Services,
    scope: &TenantScope,
    by: &StateBlockContext<'_>,
    block: &StateBlock,
) -> StoreResult<Result<ParsedStateBlock, StateBlockError>> {
    let StateBlockContext {
        world,
        npc,
        named: player_names,
        state,
        ..
    } = *by;
    let mut rules = by.state_rules();
    let anybody = block.parse_changes(&npc.name, &rules);
    let Ok(parsed) = &anybody else {
        return Ok(anybody);
    };
    let needs_names = parsed.changes.iter().any(StateChange::is_of_item_or_place);
    let people = parsed.changes.iter().flat_map(StateChange::related_people);
    let strangers: BTreeSet<String> = people
        .filter(|name| *name != npc.name && !party::means_player(name))
        .map(str::to_owned)
        .collect();
    if strangers.is_empty() && !needs_names {
        return Ok(anybody);
    }
    if needs_names {
        rules.backend_names = backend_names_of(services, scope, world).await?;
        rules.held = by.held_characters(&rules.backend_names);
    }
    if strangers.is_empty() {
        return Ok(block.parse_changes(&npc.name, &rules));
    }
    let strangers: Vec<String> = strangers.into_iter().collect();
    let named = services
        .ledger
        .authored
        .find_npc_names(scope, &world.id, &strangers)
        .await?;
    // The NPC's own name comes first, because an empty list would allow any name.
    rules.known_names.push(npc.name.clone());
    // A person stays under the name or id in the block.
    rules
        .known_names
        .extend(named.into_iter().flat_map(|npc| [npc.name, npc.id.to_string()]));
    let characters = state.characters.keys();
    rules
        .known_names
        .extend(characters.filter(|name| party::owner_id(name).is_none()).cloned());
    // If an NPC or a character has the player's name, the name means that NPC or character.
    let is_somebody_else = |name: &str| {
        rules
            .known_names
            .iter()
            .any(|known| normalise_text(known) == normalise_text(name))
    };
    let own_names = player_names.iter().filter(|name| !is_somebody_else(name));
    let own_names: Vec<String> = own_names.map(|name| (*name).to_owned()).collect();
    rules.player_names.extend(own_names);
    Ok(block.parse_changes(&npc.name, &rules))
}

/// The items and places of a world that replies do not change.
pub(crate) async fn backend_names_of(
    services: &Services,
    scope: &TenantScope,
    world: &World,
) -> StoreResult<BackendNames> {
    let mut names = BackendNames::in_settings(&world.settings);
    let content = services.memory_cache.lore.load_lore(services, scope, world).await?;
    names.extend(&content.backend_names);
    names.apply_settings(&world.settings);
    Ok(names)
}

/// Returns a world's limits for the state changes of one turn.
pub(crate) fn state_rules_of(settings: &WorldSettings) -> StateRules {
    let default = StateRules::default();
    StateRules {
        max_relationship_delta: settings
            .max_relationship_delta
            .unwrap_or(default.max_relationship_delta),
        max_hp_delta: settings.max_hp_delta.unwrap_or(default.max_hp_delta),
        max_item_delta: settings.max_item_delta.unwrap_or(default.max_item_delta),
        vocabulary: Vocabulary::from_settings(settings),
        items: settings.items.clone(),
        places: settings.places.clone(),
        attributes: settings.attribute_rules().to_vec(),
        ..default
    }
}

/// Returns the checkpoint after this turn. Summaries since the last checkpoint move the counters and the start of the
/// buffer. The start moves in blocks, which keeps the prompt's prefix stable.
fn checkpoint_of(services: &Services, input: &TurnInput, turn: &Turn, spoken: &UncommittedTurn) -> Checkpoint {
    let mut checkpoint = input.checkpoint.clone();
    checkpoint.turn = input.number;
    checkpoint.ended = spoken.reply.ends;
    checkpoint.apply_summaries(&input.summaries, services.settings.summaries.buffer_min_turns);
    checkpoint.record_commit(
        input.number,
        turn.committed_at,
        &input.npc.id,
        spoken.prompt.shown_scenarios(),
    );
    checkpoint.record_told_actions(spoken.gathered.actions.told(&spoken.prompt));
    checkpoint.locks = Some(prompt_locks::locks_after_turn(input, &spoken.gathered, &spoken.prompt));
    // A cut reply counts with its unheard part, because a resume may continue the reply.
    let reply = spoken.reply.uncut.as_deref().unwrap_or(&turn.reply_text);
    if turn.status == TurnStatus::Completed {
        let told = prompt_locks::told_scenarios(input, &spoken.gathered, &spoken.prompt, reply);
        checkpoint.record_told_scenarios(&input.npc.id, turn.committed_at, told);
    }
    let said = [reply, turn.player_text.as_str()];
    checkpoint.told_locks = Some(prompt_locks::disclosed_locks(
        input,
        &spoken.gathered,
        &spoken.prompt,
        &said,
    ));
    checkpoint.confided = prompt_locks::confided_in_prompt(input, &spoken.gathered, &spoken.prompt);
    checkpoint
}

fn is_summary_due(
    services: &Services,
    input: &TurnInput,
    turn: &Turn,
    checkpoint: &Checkpoint,
    counter: TokenCounter,
) -> bool {
    let count = |text: &str| services.prompts.count_tokens(counter, text);
    let unsummarised = input
        .history
        .iter()
        .filter(|turn| turn.number > checkpoint.summarised_through);
    let tokens = unsummarised
        .map(|turn| count(&turn.player_text) + count(&turn.reply_text))
        .sum::<u32>()
        + count(&turn.player_text)
        + count(&turn.reply_text);
    let since_last = checkpoint
        .summarised_at
        .and_then(|at| (turn.committed_at - at).to_std().ok());
    summary::is_due(
        &services.settings.summaries.rules(),
        turn.number,
        turn.number.saturating_sub(checkpoint.summarised_through),
        tokens,
        checkpoint.summarised_through,
        since_last,
    )
}

/// `was_cut`: a requester cut the reply.
fn jobs_of(
    services: &Services,
    input: &TurnInput,
    turn: &Turn,
    was_cut: bool,
    (extract_facts, extract_state, summarise): (bool, bool, bool),
) -> Vec<NewJob> {
    let lease = TimeDelta::seconds(i64::try_from(services.settings.jobs.lease_s).unwrap_or(i64::MAX / 1_000));
    let hold = JobHolds::new(&services.settings.turn).hold_after(input.dialogue.options.playback, was_cut);
    let held_until = hold.map(|hold| turn.committed_at + hold);
    let wanted = [
        extract_facts.then_some(JobKind::ExtractFacts),
        extract_state.then_some(JobKind::ExtractState),
        summarise.then_some(JobKind::Summarise),
        services
            .settings
            .curation
            .is_due_after(turn.number)
            .then_some(JobKind::Curate),
    ];
    let at = turn.committed_at;
    let kinds = wanted.into_iter().flatten();
    new_jobs(services, turn, at, (input.node, at + lease), held_until, kinds)
}

/// Appends the turn to the buffer. The buffer is a copy: an error here costs a rebuild from the ledger, not the turn.
async fn append_to_buffer(services: &Services, input: &TurnInput, turn: &Turn, checkpoint: &Checkpoint) {
    let buffered = BufferedTurn::from(turn);
    let head = |turn| BufferHead {
        epoch: input.epoch,
        turn,
    };
    let buffers = &services.buffers;
    let scope = &input.scope;
    let dialogue = input.dialogue.id;
    let kept = match buffers
        .append_turn(scope, dialogue, head(input.previous), &buffered, checkpoint.buffer_from)
        .await
    {
        Ok(true) => Ok(()),
        Ok(false) => {
            let history = input.history.iter().cloned();
            let snapshot = BufferSnapshot {
                head: head(Some(turn.id)),
                turns: history
                    .chain([buffered])
                    .filter(|turn| turn.number >= checkpoint.buffer_from)
                    .collect(),
            };
            buffers.replace_buffer(scope, dialogue, &snapshot).await
        }
        Err(error) => Err(error),
    };
    if let Err(error) = kept {
        tracing::warn!(%dialogue, %error, "the buffer was not written; it is rebuilt when needed");
    }
}
