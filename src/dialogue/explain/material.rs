//! What the prompt of a turn was assembled from, read again from the ledger as it was for the turn.
//!
//! The trace names the rows. What authors write keeps no earlier form, and is read as it is now. Of all else, what came later
//! does not count.

mod removed_statements;

use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::{
    Services,
    disclosure::{self, PreparedRemovals, Unlocked, unlocked_before},
    intent::ClassifiedIntent,
    knowledge::{GatheredKnowledge, Rereading},
    recall::StatePosition,
    scene::{Scene, SceneMember},
    settings::DialogueSettings,
    turn::{
        ChatRequest, PartialReply, TurnError, TurnInput,
        gather::{self},
        gathered_context::GatheredContext,
        living_scene::{load_witnesses, scene_of_the_living},
    },
    world_events::CausedState,
};
use colloquy_core::{ids::NodeId, scope::TenantScope};
use colloquy_memory::{
    authored::{Npc, World},
    directive::Directive,
    disclosure::locks::DisclosureLocks,
    state::WorldState,
    summary::{Meeting, MeetingRecap, Summary},
    trace::{PromptSources, Timings, TurnTrace},
    turn::{Checkpoint, Turn},
};
use colloquy_ports::{StoreResult, buffer::BufferedTurn, ledger::dialogues::Dialogue};

/// A turn's input and gathered context, as far as its prompt depends on them.
pub(super) struct RereadTurn {
    pub input: TurnInput,
    pub gathered: GatheredContext,
}

/// A turn with its dialogue and its trace.
#[derive(Clone, Copy)]
pub(super) struct TracedTurn<'a> {
    pub dialogue: &'a Dialogue,
    pub turn: &'a Turn,
    pub trace: &'a TurnTrace,
    pub sources: &'a PromptSources,
}

/// Reads what the prompt was assembled from. `None`: the world or the NPC is gone, or the NPC could not speak. `reasons` gets
/// what has changed since the turn.
///
/// # Errors
/// The store's, or a template that cannot be rendered any more.
pub(super) async fn reread_turn(
    services: &Services,
    scope: &TenantScope,
    traced: TracedTurn<'_>,
    reasons: &mut Vec<String>,
) -> Result<Option<RereadTurn>, TurnError> {
    let TracedTurn { dialogue, turn, .. } = traced;
    let Some((world, npcs)) = read_authored(services, scope, dialogue, turn, reasons).await? else {
        return Ok(None);
    };
    let Some(npc) = npcs.iter().find(|npc| npc.id == turn.npc).cloned() else {
        reasons.push(format!("the NPC `{}` was deleted", turn.npc));
        return Ok(None);
    };
    let services = &*services.tuned_by(&world.settings);
    let reader = Reader {
        services,
        scope,
        trace: traced.trace,
        sources: traced.sources,
        started_at: turn.started_at,
    };
    let state = reader.read_state(&world, reasons).await?;
    let scene = scene_of(&services.settings, dialogue, turn, &npcs);
    let input = TurnInput {
        scene,
        ..reader.read_input(traced, world, npc, reasons).await?
    };
    let scene = match scene_of_the_living(&input, &state) {
        Ok(scene) => scene,
        Err(error) => {
            reasons.push(format!("the turn could not be spoken any more: {error}"));
            return Ok(None);
        }
    };
    let gathered = reader.read_context(&input, scene, state, reasons).await?;
    Ok(Some(RereadTurn { input, gathered }))
}

/// Reads the world, with the settings of the speaker, and the NPCs of the dialogue. `None`: the world was deleted.
async fn read_authored(
    services: &Services,
    scope: &TenantScope,
    dialogue: &Dialogue,
    turn: &Turn,
    reasons: &mut Vec<String>,
) -> StoreResult<Option<(Arc<World>, Vec<Arc<Npc>>)>> {
    let authored = &services.ledger.authored;
    let Some(world) = authored.load_world(scope, &dialogue.world).await? else {
        reasons.push(format!("the world `{}` was deleted", dialogue.world));
        return Ok(None);
    };
    let mut npcs = Vec::with_capacity(dialogue.npcs.len());
    for id in &dialogue.npcs {
        match authored.load_npc(scope, &dialogue.world, id).await? {
            Some(npc) => {
                if npc.id != turn.npc && npc.updated_at > turn.started_at {
                    reasons.push(format!("the NPC `{id}`, who is present, was edited"));
                }
                npcs.push(Arc::new(npc));
            }
            None if *id == turn.npc => {}
            None => reasons.push(format!("the NPC `{id}`, who is present, was deleted")),
        }
    }
    let world = match npcs.iter().find(|npc| npc.id == turn.npc) {
        Some(speaker) => Arc::new(world).for_npc(speaker),
        None => Arc::new(world),
    };
    let world = world.for_session(dialogue.options.settings.as_deref());
    Ok(Some((world, npcs)))
}

/// Returns the scene of a dialogue with several NPCs.
fn scene_of(settings: &DialogueSettings, dialogue: &Dialogue, turn: &Turn, npcs: &[Arc<Npc>]) -> Option<Arc<Scene>> {
    if dialogue.npcs.len() < 2 {
        return None;
    }
    let is_conversation = turn.player.is_none();
    let max_turns = crate::npc_conversation::max_turns(&dialogue.options, &settings.conversation);
    Some(Arc::new(Scene {
        cast: npcs.iter().map(|npc| SceneMember::of_npc(npc)).collect(),
        topic: dialogue.options.topic.clone().filter(|_| is_conversation),
        last: is_conversation && turn.number >= max_turns,
        ..Scene::default()
    }))
}

/// Returns the beginning of a reply that was cut and taken up again.
fn continued_reply(turn: &Turn, sources: &PromptSources, reasons: &mut Vec<String>) -> Option<Arc<PartialReply>> {
    let continued_chars = usize::try_from(sources.continued_chars?).unwrap_or(usize::MAX);
    let beginning: String = turn.reply_text.chars().take(continued_chars).collect();
    let is_shorter = beginning.chars().count() < continued_chars;
    reasons.extend(is_shorter.then(|| "the reply was cut to less than the part that it took up again".to_owned()));
    // After a space, no word counts as cut in two.
    let continued = PartialReply::from_text(turn.clone(), format!("{beginning} "));
    Some(Arc::new(PartialReply {
        is_whole: sources.continued_whole,
        ..continued
    }))
}

/// Reads the rows that one trace names.
struct Reader<'a> {
    services: &'a Services,
    scope: &'a TenantScope,
    trace: &'a TurnTrace,
    sources: &'a PromptSources,
    started_at: DateTime<Utc>,
}

impl Reader<'_> {
    /// Reads the input of the turn, without its scene.
    async fn read_input(
        &self,
        traced: TracedTurn<'_>,
        world: Arc<World>,
        npc: Arc<Npc>,
        reasons: &mut Vec<String>,
    ) -> StoreResult<TurnInput> {
        let TracedTurn {
            dialogue,
            turn,
            sources,
            ..
        } = traced;
        Ok(TurnInput {
            scope: self.scope.clone(),
            node: NodeId::from_u128(0),
            directives: self.read_directives(&world, reasons).await?,
            npc,
            dialogue: Arc::new(dialogue.clone()),
            player: turn.player.clone(),
            charged_player: None,
            scene: None,
            epoch: 0,
            id: turn.id,
            number: turn.number,
            previous: None,
            replacing: None,
            line: turn.player_text.clone(),
            key: None,
            chat: (!sources.scene_notes.is_empty())
                .then(|| Arc::new(ChatRequest::with_scene_notes(sources.scene_notes.clone()))),
            continuation: continued_reply(turn, sources, reasons),
            known_intent: None,
            history: Arc::new(self.read_history(dialogue, turn, reasons).await?),
            summaries: Arc::new(self.read_summaries(reasons).await?),
            checkpoint: Checkpoint::default(),
            accepted_at: self.services.clock.monotonic_now(),
            started_at: turn.started_at,
            queue_ms: 0.0,
            memory_wait_ms: 0.0,
            memory_wait: None,
            started_seq: 0,
            world,
        })
    }

    /// Reads the state of the world at the recorded position.
    async fn read_state(&self, world: &World, reasons: &mut Vec<String>) -> StoreResult<Arc<WorldState>> {
        let store = &self.services.ledger.state;
        let latest = store.load_changes_since(self.scope, &world.id, i64::MAX).await?;
        let is_moved = latest.generation != self.sources.state_generation;
        let lifted_after = is_moved.then_some(self.started_at);
        let changes = store
            .load_changes_until(self.scope, &world.id, self.sources.state_seq, lifted_after)
            .await?;
        if is_moved {
            reasons.push("changes of the world's state were taken back, or stand again, after the turn".to_owned());
        }
        Ok(Arc::new(CausedState::from_changes(changes.iter()).state))
    }

    /// Reads the directives of the trace. Later directives do not count.
    async fn read_directives(&self, world: &World, reasons: &mut Vec<String>) -> StoreResult<Arc<[Directive]>> {
        if self.trace.directives.is_empty() {
            return Ok(Arc::new([]));
        }
        let store = &self.services.ledger.directives;
        let mut directives = store.load_all_directives(self.scope, &world.id).await?;
        for traced in &self.trace.directives {
            match directives.iter().find(|directive| directive.id == traced.directive) {
                None => reasons.push(format!("the directive `{}` was deleted", traced.directive)),
                Some(directive) if directive.updated_at > self.started_at => {
                    reasons.push(format!("the directive `{}` was edited", traced.directive));
                }
                Some(_) => {}
            }
        }
        directives.retain(|directive| {
            let mut traced = self.trace.directives.iter();
            traced.any(|traced| traced.directive == directive.id)
        });
        Ok(directives.into())
    }

    /// Reads the turns of the dialogue before the turn, from the first one that the turn read.
    async fn read_history(
        &self,
        dialogue: &Dialogue,
        turn: &Turn,
        reasons: &mut Vec<String>,
    ) -> StoreResult<Vec<BufferedTurn>> {
        let from = self.sources.history_from;
        let number = turn.number;
        if from >= number {
            return Ok(Vec::new());
        }
        let store = &self.services.ledger.dialogues;
        let turns = store.load_turns(self.scope, dialogue.id, from, number - 1).await?;
        if u32::try_from(turns.len()).ok() != Some(number - from) {
            reasons.push(format!("some of the turns {from} to {} are gone", number - 1));
        }
        Ok(turns.iter().map(BufferedTurn::from).collect())
    }

    /// Reads the summaries of the dialogue that the prompt has.
    async fn read_summaries(&self, reasons: &mut Vec<String>) -> StoreResult<Vec<Summary>> {
        let store = &self.services.ledger.summaries;
        let ids = &self.sources.summaries;
        let summaries = store.load_summaries_by_id(self.scope, ids).await?;
        if summaries.len() < ids.len() {
            reasons.push("a summary of the dialogue is gone".to_owned());
        }
        Ok(summaries)
    }

    /// Reads the last meeting with its summary, as stored.
    async fn read_meeting(&self, reasons: &mut Vec<String>) -> StoreResult<Option<Unlocked<Meeting>>> {
        let Some(met) = &self.sources.meeting else {
            return Ok(None);
        };
        let store = &self.services.ledger.summaries;
        let ids: Vec<_> = met.summary.into_iter().collect();
        let summary = store.load_summaries_by_id(self.scope, &ids).await?.pop();
        if summary.is_none() && met.summary.is_some() {
            reasons.push("the summary of the last meeting is gone".to_owned());
        }
        let recap = summary.map(|summary| MeetingRecap {
            summary: summary.id,
            text: summary.text,
            since: met.summary_since.unwrap_or(met.since),
            last_turn_at: summary.created_at,
            locks: DisclosureLocks::default(),
        });
        let meeting = Meeting {
            last_turn_at: met.last_turn_at,
            since: met.since,
            summary: recap,
        };
        Ok(unlocked_before(self.trace, meeting))
    }

    /// Reads the rest of the turn's context.
    async fn read_context(
        &self,
        input: &TurnInput,
        scene: Option<Scene>,
        state: Arc<WorldState>,
        reasons: &mut Vec<String>,
    ) -> Result<GatheredContext, TurnError> {
        let services = self.services;
        let trace = self.trace;
        let removed = self.read_removed_statements().await?;
        let removals = PreparedRemovals::new(&removed);
        let meeting = self.read_meeting(reasons).await?;
        let dialogue = &input.dialogue;
        let told_texts =
            disclosure::redact_texts(&removals, dialogue, &input.history, &input.summaries, meeting.as_ref());
        let rereading = Rereading {
            services,
            scope: self.scope,
            trace,
            sources: self.sources,
            started_at: self.started_at,
            input,
            state: &state,
            removals: &removals,
            told_texts: &told_texts,
        };
        let knowledge = GatheredKnowledge::reread_all(&rereading, reasons).await?;
        Ok(GatheredContext {
            scene,
            witnesses: load_witnesses(self.services, input, &state).await?,
            intent: ClassifiedIntent {
                intent: trace.intent,
                source: trace.intent_source.clone(),
                in_full: false,
                call: None,
            },
            not_searched: Vec::new(),
            query: trace.query.clone(),
            knowledge,
            state_position: StatePosition::default(),
            redacted: Vec::new(),
            locks_before: DisclosureLocks::default(),
            place: trace.place.clone(),
            counter: gather::reply_counter(services, &input.npc),
            calls: Vec::new(),
            notes: Vec::new(),
            timings: Timings::default(),
            state,
        })
    }
}
