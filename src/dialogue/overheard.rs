//! Reads lines for the question "What were you two just talking about?". Only standing lines of the conversation are
//! read, so an unsaid line cannot be told.

use super::{Services, turn::TurnInput};
use colloquy_core::ids::{DialogueId, DialogueKind, NpcId};
use colloquy_memory::{
    fact::{Cause, Watchers},
    locks::DisclosureLocks,
    trace::OverheardTrace,
    turn::{Intent, Turn},
};
use colloquy_ports::{StoreResult, buffer::BufferedTurn};

/// The number of lines read from the end of a conversation.
const MAX_OVERHEARD_LINES: u32 = 12;

/// A line that an NPC said to other NPCs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OverheardLine {
    pub name: String,
    pub text: String,
}

/// The overheard lines, with the players who may hear them.
#[derive(Debug, Default)]
pub(super) struct OverheardLines {
    pub lines: Vec<OverheardLine>,
    pub locks: DisclosureLocks,
    /// Where the lines are from.
    pub source: Option<OverheardTrace>,
}

/// Returns the last lines of the conversation that this turn asks about, oldest first:
/// - If the player joined the session from a conversation: that conversation, always.
/// - If the intent asks for it: the conversation with the newest line that the NPC took part in or witnessed.
///
/// A conversation names the players who may listen. Other players hear no line, unless the world's NPCs gossip.
pub(super) async fn read_overheard_lines(
    services: &Services,
    input: &TurnInput,
    intent: Intent,
) -> StoreResult<OverheardLines> {
    let Some(player) = &input.player else {
        return Ok(OverheardLines::default());
    };
    let dialogues = &services.ledger.dialogues;
    if let Some(Cause::Turn(turn)) = input.dialogue.cause
        && let Some(cause_turn) = dialogues.load_turn(&input.scope, turn).await?
        && cause_turn.turn.dialogue.kind() == DialogueKind::NpcConversation
    {
        // Lines after the player's departure are excluded, because the player left the conversation for this session.
        let joined = cause_turn.turn.dialogue;
        let last = cause_turn.turn.number;
        let (turns, conversation) = tokio::try_join!(
            read_last_turns(services, input, joined, last),
            dialogues.load_dialogue(&input.scope, joined)
        )?;
        let watchers = conversation.map(|conversation| conversation.options.watchers());
        return to_overheard_lines(services, input, turns, &watchers.unwrap_or_default()).await;
    }
    if intent != Intent::Overheard {
        return Ok(OverheardLines::default());
    }
    let gossip = input.world.settings.allows_gossip();
    let player = (!gossip).then_some(player);
    let talk = dialogues.find_last_overheard(&input.scope, &input.world.id, &input.npc.id, player);
    let Some(talk) = talk.await? else {
        return Ok(OverheardLines::default());
    };
    let turns = read_last_turns(services, input, talk.dialogue, talk.last).await?;
    to_overheard_lines(services, input, turns, &talk.watchers).await
}

/// Returns the lines that an earlier turn read, as they stand now.
pub(super) async fn reread_overheard_lines(
    services: &Services,
    input: &TurnInput,
    source: OverheardTrace,
) -> StoreResult<OverheardLines> {
    let dialogues = &services.ledger.dialogues;
    let turns = dialogues.load_turns(&input.scope, source.dialogue, source.from, source.to);
    to_overheard_lines(services, input, turns.await?, &Watchers::default()).await
}

async fn to_overheard_lines(
    services: &Services,
    input: &TurnInput,
    turns: Vec<Turn>,
    watchers: &Watchers,
) -> StoreResult<OverheardLines> {
    let source = turns.first().zip(turns.last()).map(|(first, last)| OverheardTrace {
        dialogue: first.dialogue,
        from: first.number,
        to: last.number,
    });
    let lines = attribute_lines(services, input, turns).await?;
    let locks = watchers.hearers_lock().filter(|_| !lines.is_empty());
    Ok(OverheardLines {
        lines,
        locks: locks.into_iter().collect(),
        source,
    })
}

async fn read_last_turns(
    services: &Services,
    input: &TurnInput,
    dialogue: DialogueId,
    last: u32,
) -> StoreResult<Vec<Turn>> {
    let from = last.saturating_sub(MAX_OVERHEARD_LINES) + 1;
    let dialogues = &services.ledger.dialogues;
    dialogues.load_turns(&input.scope, dialogue, from, last).await
}

/// Adds the names of the speakers.
async fn attribute_lines(services: &Services, input: &TurnInput, turns: Vec<Turn>) -> StoreResult<Vec<OverheardLine>> {
    let mut names: Vec<(NpcId, String)> = vec![(input.npc.id.clone(), input.npc.name.clone())];
    let mut lines = Vec::with_capacity(turns.len());
    for turn in &turns {
        if !names.iter().any(|(id, _)| *id == turn.npc) {
            let authored = &services.ledger.authored;
            let npc = authored.load_npc(&input.scope, &input.world.id, &turn.npc).await?;
            // A deleted NPC appears with its id.
            names.push((
                turn.npc.clone(),
                npc.map_or_else(|| turn.npc.to_string(), |npc| npc.name),
            ));
        }
        let name = names
            .iter()
            .find(|(id, _)| *id == turn.npc)
            .map(|(_, name)| name.clone());
        lines.push(OverheardLine {
            name: name.unwrap_or_default(),
            // Includes the dash at the end of a cut line.
            text: BufferedTurn::from(turn).reply_text,
        });
    }
    Ok(lines)
}
