//! The commit of a finished reply. One transaction writes the turn, its checkpoint, its trace, the state changes, the
//! actions and the jobs. The buffer follows.

use chrono::{DateTime, TimeDelta, Utc};

use super::{
    continuation::ReplyEffects,
    extraction_choice::{is_block_omitted, skips_extraction},
    input::{CommittedTurn, TurnError, TurnFeed, TurnInput},
    job_holds::JobHolds,
    speak::Reply,
    state_block::{StateBlockContext, parse_state_block},
    turn_trace::trace_of_turn,
    uncommitted_turn::UncommittedTurn,
};
use crate::{
    Services,
    disclosure::{TurnDisclosures, told_scenarios},
    jobs::new_jobs,
    knowledge::{actions, greeting_episode, scenarios::UnlockTrigger},
    prompt::{self},
    requester::Requester,
};
use colloquy_core::ids::WorldId;
use colloquy_memory::{
    actions::ActionRule,
    fact::Cause,
    state::StateChange,
    state_block::ParsedStateBlock,
    summary,
    tokens::TokenCounter,
    turn::{Checkpoint, Turn, TurnSeqs, TurnStatus, has_whole_sentence},
};
use colloquy_ports::{
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
    mut uncommitted: UncommittedTurn,
) -> Result<CommittedTurn, TurnError> {
    failpoint!("turn.said");
    let committed_seq = feed.reserve_committed();
    let turn = turn_of(services, input, &uncommitted, committed_seq);
    let mut notes = Vec::new();
    let (block, is_unreadable) = read_state_changes(services, input, &uncommitted, &mut notes).await?;
    let continued = input.continuation.as_ref();
    let beginning = continued.and_then(|unfinished| unfinished.effects_within(&turn.reply_text));
    let requested = beginning.map_or_else(|| block.actions.clone(), |effects| effects.with_actions(&block.actions));
    let actions = actions::new_actions(services, input, &turn, &requested, &mut notes);
    let needs_extraction = needs_state_extraction(services, input, &turn, &uncommitted.reply, &mut notes);
    let extract_state = services.settings.prompt.ask_for_state && (is_unreadable || needs_extraction);
    let disclosures = disclosures_of(input, &turn, &uncommitted);
    let checkpoint = checkpoint_of(services, input, &turn, &uncommitted, &disclosures);
    let summarise = is_summary_due(services, input, &turn, &checkpoint, uncommitted.gathered.counter);
    let was_cut = turn.status == TurnStatus::Interrupted && !uncommitted.cuts.is_empty();
    // A later cut of the reply looks for no state change in a block without any.
    uncommitted.reply.began_block &= !block.is_only_nothing_new();
    let extract_facts =
        !input.teaches_nothing() && !skips_extraction(services, input, &block, &uncommitted.reply, &mut notes);
    let changes = if extract_state {
        // The job reads the whole reply.
        Vec::new()
    } else {
        let earlier_changes = beginning.map(ReplyEffects::known_changes).unwrap_or_default();
        uncommitted.reply.began_block |= !earlier_changes.is_empty();
        [earlier_changes, &block.changes].concat()
    };
    let kinds = [
        extract_facts.then_some(JobKind::ExtractFacts),
        extract_state.then_some(JobKind::ExtractState),
        summarise.then_some(JobKind::Summarise),
    ];
    let jobs = jobs_of(services, input, &turn, was_cut, kinds.into_iter().flatten());
    let seal = services.settings.turn.seal_time();
    let uncut = uncommitted.reply.uncut.clone();
    let commit = TurnCommit {
        epoch: input.epoch,
        expected_head: input.previous,
        replacing: input.replacing,
        key: input.key.clone(),
        key_of: input.continuation.as_ref().map(|unfinished| unfinished.turn.id),
        state: new_state_changes(services, &input.world.id, &turn, &changes),
        episode: greeting_episode(services, input, &turn, uncommitted.gathered.place.clone())?,
        sealed_reply: uncut.map(|text| (text, turn.committed_at + seal)),
        cuts: cuts_of(services, &turn, &uncommitted.cuts),
        checkpoint,
        trace: trace_of_turn(services, input, &turn, uncommitted, notes, disclosures),
        actions,
        next_seq: committed_seq + 1,
        turn,
        jobs,
    };
    write_commit(services, input, commit, changes, was_cut).await
}

/// Writes a turn to the ledger, and then to the buffer. `changes`: the turn's own changes of state.
async fn write_commit(
    services: &Services,
    input: &TurnInput,
    commit: TurnCommit,
    changes: Vec<StateChange>,
    was_cut: bool,
) -> Result<CommittedTurn, TurnError> {
    commit_turn(services, input, &commit).await?;
    failpoint!("turn.durable");
    append_to_buffer(services, input, &commit.turn, &commit.checkpoint).await;
    failpoint!("turn.buffered");
    Ok(CommittedTurn {
        unlocking: UnlockTrigger::from_turn(input, &changes, commit.turn.committed_at),
        jobs: jobs_to_run(&commit),
        turn: commit.turn,
        checkpoint: commit.checkpoint,
        state: changes,
        was_cut,
        cut_keys: commit.cuts.into_iter().filter_map(|cut| cut.key).collect(),
    })
}

/// Returns the jobs that nothing holds back.
fn jobs_to_run(commit: &TurnCommit) -> Vec<Job> {
    let jobs = commit.jobs.iter().filter(|job| job.held_until.is_none());
    jobs.map(Job::from).collect()
}

async fn commit_turn(services: &Services, input: &TurnInput, commit: &TurnCommit) -> Result<(), TurnError> {
    debug_assert!(
        commit.jobs.iter().all(|job| job.turn == commit.turn.id),
        "a turn commits only its own jobs"
    );
    debug_assert!(
        commit.state.iter().all(|row| row.cause == Cause::Turn(commit.turn.id)),
        "a turn is the cause of the changes that it commits"
    );
    match services.ledger.turns.commit_turn(&input.scope, commit).await? {
        CommitOutcome::Committed => Ok(()),
        CommitOutcome::Fenced => Err(TurnError::Fenced),
        CommitOutcome::Closed => Err(TurnError::Closed),
        CommitOutcome::KeyTaken => Err(TurnError::KeyTaken),
    }
}

/// True if a job must look for state changes that the reply has no readable block about.
///
/// A reply without a state block changes nothing, unless its model is known to leave the block out. A cut reply without
/// a block changes nothing either. Otherwise the player would choose when a model looks for state changes.
fn needs_state_extraction(
    services: &Services,
    input: &TurnInput,
    turn: &Turn,
    reply: &Reply,
    notes: &mut Vec<String>,
) -> bool {
    let is_cut = turn.status == TurnStatus::Interrupted;
    let has_cut_block = is_cut && reply.began_block && has_whole_sentence(&turn.reply_text);
    let is_omitted = !is_cut && is_block_omitted(services, turn, reply, notes);
    let is_asked_for = !input.teaches_nothing() && input.given_reply().is_some_and(|given| given.extract_state);
    let continued = input.continuation.as_ref();
    let has_unread_beginning = continued.is_some_and(|unfinished| unfinished.effects.changes.is_none());
    has_cut_block || is_omitted || is_asked_for || has_unread_beginning
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
        changed_at: turn.committed_at,
    };
    changes.iter().map(row).collect()
}

/// Returns a row for each requester of the cut.
fn cuts_of(services: &Services, turn: &Turn, requesters: &[Requester]) -> Vec<LiveCut> {
    let live_cut = |requesters: &Requester| LiveCut {
        id: services.ids.next_id(),
        key: requesters.key.clone(),
        edit: requesters.audit_edit(&services.ids, turn.committed_at, turn.dialogue),
    };
    requesters.iter().map(live_cut).collect()
}

fn turn_of(services: &Services, input: &TurnInput, uncommitted: &UncommittedTurn, committed_seq: u64) -> Turn {
    Turn {
        id: input.id,
        dialogue: input.dialogue.id,
        number: input.number,
        status: uncommitted.reply.status,
        player: input.player.clone(),
        player_text: input.line.clone(),
        npc: input.npc.id.clone(),
        reply_text: uncommitted.reply.text.clone(),
        text_version: 1,
        cues: uncommitted.reply.cues.clone(),
        usage: uncommitted.reply.usage,
        started_at: input.started_at,
        committed_at: monotonic_commit_time(services.clock.now(), &input.dialogue),
        seqs: TurnSeqs {
            started: input.started_seq,
            done: uncommitted.done_seq,
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

/// Reads the state block within the world's rules. An action must be offered by the prompt, and must still be eligible.
/// The flag is true if a job must read the turn, because the block was unreadable.
async fn read_state_changes(
    services: &Services,
    input: &TurnInput,
    uncommitted: &UncommittedTurn,
    notes: &mut Vec<String>,
) -> Result<(ParsedStateBlock, bool), TurnError> {
    let Some(block) = &uncommitted.reply.state_block else {
        return Ok((ParsedStateBlock::default(), false));
    };
    let known_actions = &uncommitted.gathered.knowledge.actions;
    let offered = known_actions.offered(&uncommitted.prompt.trace.actions);
    // The backend may have changed the state during the reply.
    let state = services
        .memory_cache
        .world_state(services, &input.scope, &input.world.id)
        .await?;
    let eligible_now = actions::actions_of_turn(services, input, &state);
    let still_eligible: Vec<ActionRule> = eligible_now.into_iter().filter(|rule| offered.contains(rule)).collect();
    let block_context = StateBlockContext {
        dialogue: input.dialogue.id,
        now: input.started_at,
        world: &input.world,
        npc: &input.npc,
        player: input.player.as_ref(),
        cast: input.scene.as_deref().map_or(&[], |scene| &scene.cast),
        player_names: &uncommitted.gathered.known_player_names(input),
        state: &state,
        actions: &still_eligible,
    };
    let parsed = parse_state_block(services, &input.scope, &block_context, block).await?;
    Ok(match parsed {
        Ok(mut parsed) => {
            notes.extend(parsed.rejected.iter().map(|reason| format!("state block: {reason}")));
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

/// Returns what the turn may disclose. A cut reply counts with its unheard part, because a resume may continue the reply.
fn disclosures_of(input: &TurnInput, turn: &Turn, uncommitted: &UncommittedTurn) -> TurnDisclosures {
    let reply = uncommitted.reply.uncut.as_deref().unwrap_or(&turn.reply_text);
    let spoken_texts = [reply, turn.player_text.as_str()];
    TurnDisclosures::of_turn(input, &uncommitted.gathered, &uncommitted.prompt, &spoken_texts)
}

/// Returns the checkpoint after this turn. Summaries since the last checkpoint move the counters and the start of the
/// buffer. The start moves in blocks, which keeps the prompt's prefix stable.
fn checkpoint_of(
    services: &Services,
    input: &TurnInput,
    turn: &Turn,
    uncommitted: &UncommittedTurn,
    disclosures: &TurnDisclosures,
) -> Checkpoint {
    let mut checkpoint = input.checkpoint.clone();
    checkpoint.turn = input.number;
    checkpoint.has_ended = uncommitted.reply.ends;
    checkpoint.apply_summaries(&input.summaries, services.settings.summaries.buffer_min_turns);
    checkpoint.record_commit(
        input.number,
        turn.committed_at,
        &input.npc.id,
        uncommitted.prompt.shown_scenarios(),
    );
    checkpoint.record_told_actions(actions::told_actions(&uncommitted.prompt.trace.actions));
    // A cut reply counts with its unheard part, because a resume may continue the reply.
    let reply = uncommitted.reply.uncut.as_deref().unwrap_or(&turn.reply_text);
    if turn.status == TurnStatus::Completed {
        let told_ids = told_scenarios(input, &uncommitted.gathered, &uncommitted.prompt, reply);
        checkpoint.record_told_scenarios(&input.npc.id, turn.committed_at, told_ids);
    }
    checkpoint.locks = Some(disclosures.locks.clone());
    checkpoint.told_locks = Some(disclosures.told_locks.clone());
    checkpoint.confided.clone_from(&disclosures.confided);
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
        .and_then(|summarised_at| (turn.committed_at - summarised_at).to_std().ok());
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
    kinds: impl Iterator<Item = JobKind>,
) -> Vec<NewJob> {
    let lease = TimeDelta::seconds(i64::try_from(services.settings.jobs.lease_s).unwrap_or(i64::MAX / 1_000));
    let hold = JobHolds::new(&services.settings.turn).hold_after(input.dialogue.options.playback, was_cut);
    let held_until = hold.map(|hold| turn.committed_at + hold);
    let is_curated = services.settings.curation.is_due_after(turn.number);
    let kinds = kinds.chain(is_curated.then_some(JobKind::Curate));
    let created_at = turn.committed_at;
    let leased_until = created_at + lease;
    new_jobs(services, turn, created_at, input.node, leased_until, held_until, kinds)
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
    let outcome = match buffers
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
    if let Err(error) = outcome {
        tracing::warn!(%dialogue, %error, "the buffer was not written; it is rebuilt when needed");
    }
}
