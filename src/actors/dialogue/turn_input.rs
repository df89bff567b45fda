//! The input of a dialogue's next turn, and the updates after a turn or a summary.

use std::sync::Arc;

use crate::{dialogue::load, node::Node, participants::ParticipantRecords};
use colloquy_core::{
    ids::{NpcId, TurnId},
    scope::TenantScope,
};
use colloquy_dialogue::{
    npc_conversation::{self, Scene, SceneMember},
    turn::TurnInput,
};
use colloquy_memory::{
    authored::Npc,
    summary::Summary,
    turn::{Checkpoint, Turn},
};

/// Returns the input of the next turn, spoken by `npc`, with an empty line.
pub(crate) fn next_turn_input(
    node: &Node,
    scope: &TenantScope,
    loaded: &load::LoadedDialogue,
    authored: &ParticipantRecords,
    npc: Arc<Npc>,
    scene: Option<Arc<Scene>>,
) -> TurnInput {
    let ports = &node.ports;
    TurnInput {
        scope: scope.clone(),
        node: node.id,
        world: authored
            .world_of(&npc.id)
            .for_session(loaded.dialogue.options.settings.as_deref()),
        npc,
        directives: Arc::clone(&authored.directives),
        dialogue: Arc::clone(&loaded.dialogue),
        player: loaded.player.clone(),
        charged_player: None,
        scene,
        epoch: loaded.epoch,
        id: ports.ids.next_id(),
        number: loaded.dialogue.head_turn + 1,
        previous: loaded.head,
        replacing: loaded.replacing,
        line: String::new(),
        key: None,
        chat: None,
        continuation: None,
        known_intent: None,
        history: Arc::clone(&loaded.history),
        summaries: Arc::clone(&loaded.summaries),
        checkpoint: loaded.checkpoint.clone(),
        accepted_at: ports.clock.monotonic_now(),
        started_at: ports.clock.now(),
        queue_ms: 0.0,
        memory_wait_ms: 0.0,
        memory_wait: None,
        started_seq: 0,
    }
}

/// The NPCs of a session who can answer a line without an addressee.
#[derive(Debug, Default)]
pub(crate) struct ListeningNpcs {
    pub living: Vec<SceneMember>,
    /// The NPC whom the line addresses by a nickname or a title, if the line names nobody.
    pub nicknamed: Option<NpcId>,
}

/// Returns the NPC that answers a line: the addressed NPC, the living NPC that the line names, or else the last speaker
/// or another one of the living.
pub(crate) fn answering_npc(
    loaded: &load::LoadedDialogue,
    authored: &ParticipantRecords,
    line: &str,
    to: Option<&NpcId>,
    listening: &ListeningNpcs,
) -> Option<Arc<Npc>> {
    if let [npc] = authored.npcs.as_slice() {
        return Some(Arc::clone(npc));
    }
    let living = &listening.living;
    let by_name = || npc_conversation::find_addressed(living.iter(), line).map(|member| member.id.clone());
    let last = || living.iter().find(|member| member.id == loaded.npc);
    let unnamed = || last().or(living.first()).map(|member| member.id.clone());
    let chosen_npc = || by_name().or_else(|| listening.nicknamed.clone()).or_else(unnamed);
    let npc = to.cloned().or_else(chosen_npc).unwrap_or_else(|| loaded.npc.clone());
    authored.npc(&npc).or_else(|| authored.npcs.first().cloned())
}

impl load::LoadedDialogue {
    /// Appends a committed turn with its checkpoint.
    pub(crate) fn append_turn(&mut self, turn: &Turn, checkpoint: Checkpoint) {
        self.head = Some(turn.id);
        self.npc = turn.npc.clone();
        let dialogue = Arc::make_mut(&mut self.dialogue);
        debug_assert!(turn.dialogue == dialogue.id, "a turn is appended to its own dialogue");
        debug_assert!(
            turn.number == dialogue.head_turn + 1,
            "a committed turn follows the head"
        );
        dialogue.head_turn = turn.number;
        dialogue.updated_at = turn.committed_at;
        let summarised = std::mem::replace(&mut self.checkpoint, checkpoint);
        self.merge_summary_progress(&summarised);
        Arc::make_mut(&mut self.history).push(turn.into());
        self.trim_history();
    }

    /// True if the turn of a job has not been unsaid meanwhile.
    pub(crate) fn is_standing(&self, id: TurnId, number: u32) -> bool {
        match self.history.iter().find(|turn| turn.number == number) {
            Some(turn) => turn.id == id,
            // The turn has left the buffer, or the dialogue.
            None => number <= self.dialogue.head_turn,
        }
    }

    /// Applies the rows that were read after a rewind.
    pub(crate) fn apply_reread(&mut self, reread: load::RereadDialogue) {
        if let Some(npc) = reread.npc {
            self.npc = npc;
        }
        self.dialogue = Arc::new(reread.dialogue);
        self.checkpoint = reread.checkpoint;
        self.history = Arc::new(reread.history);
        self.summaries = Arc::new(reread.summaries);
    }

    /// Applies summaries that were read again.
    pub(crate) fn set_summaries(&mut self, summaries: Vec<Summary>, buffer_min: u32) {
        self.checkpoint.apply_summaries(&summaries, buffer_min);
        self.summaries = Arc::new(summaries);
        self.trim_history();
    }
}
