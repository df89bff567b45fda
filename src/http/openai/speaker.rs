//! Who answers the messages of a request, and which replies a request may bring in.

use super::{
    characters::{find_character_name, find_or_make_character},
    messages::{SortedMessages, sort_messages},
    nudges::named_speaker,
    request::InputMessage,
    targets::{ChatTarget, may_use_characters, no_such_model},
    threads::FoundThread,
};
use crate::{
    AppState,
    errors::{Code, Problem},
    extract::Authorized,
};
use colloquy_core::{
    ids::{NpcId, PlayerId, WorldId},
    scope::{Principal, Role},
};
use colloquy_dialogue::turn::ToolExchange;
use colloquy_memory::{
    authored::{Npc, Persona},
    chat_transcript::TranscriptTurn,
};
use colloquy_ports::ledger::dialogues::Dialogue;

/// Who answers the messages of a request.
pub struct Speaker {
    pub npc: Npc,
    pub sorted_messages: SortedMessages,
    /// True for a character that the chat program describes.
    pub is_own: bool,
    /// True if the messages name the character.
    pub is_named: bool,
}

/// True if the messages of the chat program describe the NPC that answers in a session. `target`: what the model of the
/// request means, if the request names one.
pub fn is_described_by_program(
    state: &AppState,
    principal: &Principal,
    npc: &Npc,
    dialogue: &Dialogue,
    target: Option<&ChatTarget>,
) -> bool {
    // A persona that an author has written counts.
    let has_no_persona = npc.persona == Persona::default();
    match target {
        Some(ChatTarget::Npc { .. }) => false,
        Some(ChatTarget::Character(_)) => has_no_persona,
        None => has_no_persona && dialogue.options.chat_key.is_some() && may_use_characters(state, principal),
    }
}

/// Returns the NPC that answers, and the messages as that NPC hears them.
///
/// # Errors
/// As of the store. 404 if the model is no NPC.
pub async fn resolve_speaker<A>(
    state: &AppState,
    caller: &Authorized<A>,
    player: &PlayerId,
    target: &ChatTarget,
    messages: &[InputMessage],
) -> Result<Speaker, Problem> {
    let mut speaker = match target {
        ChatTarget::Npc { world, npc } => {
            let npc = find_speaker(state, caller, world, npc, named_speaker(messages)).await?;
            let sorted_messages = sort_messages(messages, Some(&npc.name));
            Speaker {
                npc,
                sorted_messages,
                is_own: false,
                is_named: true,
            }
        }
        ChatTarget::Character(model) => {
            let name = find_character_name(messages);
            let sorted_messages = sort_messages(messages, name.as_deref());
            let npc = find_or_make_character(
                state,
                caller,
                player,
                model.as_deref(),
                name.as_deref(),
                &sorted_messages,
            )
            .await?;
            Speaker {
                // A persona that an author has written counts.
                is_own: npc.persona == Persona::default(),
                npc,
                sorted_messages,
                is_named: name.is_some(),
            }
        }
    };
    if !speaker.trusts_replies(state, &caller.principal) {
        leave_out_unsaid_greeting(&mut speaker.sorted_messages, &speaker.npc);
    }
    Ok(speaker)
}

impl Speaker {
    /// True if the caller may bring in replies that the NPC has not said.
    fn trusts_replies(&self, state: &AppState, principal: &Principal) -> bool {
        self.is_own || principal.role != Role::Player || state.chat.players_import
    }

    /// Returns the calls of tools since the line, for the prompt. Of players, only characters of their own call tools.
    pub fn tool_exchange(&self, principal: &Principal) -> ToolExchange {
        let mut tools = self.sorted_messages.tools.clone().unwrap_or_default();
        // The messages of the chat program have the calls and results already.
        if self.is_own || principal.role == Role::Player {
            tools.messages.clear();
        }
        tools
    }

    /// Refuses replies that the NPC has not said to the same line, if the caller may not bring them in.
    ///
    /// # Errors
    /// 403 for such a reply. The store's.
    pub async fn check_import(
        &self,
        state: &AppState,
        principal: &Principal,
        found_thread: &FoundThread,
    ) -> Result<(), Problem> {
        if self.trusts_replies(state, principal) {
            return Ok(());
        }
        let is_greeting =
            |turn: &TranscriptTurn| turn.player_text.is_empty() && is_greeting_of(&self.npc, &turn.reply_text);
        let new_turns = found_thread.alignment.missing.iter().filter(|turn| !is_greeting(turn));
        let new_turns: Vec<&TranscriptTurn> = new_turns.collect();
        let begins_reply = self
            .sorted_messages
            .tools
            .iter()
            .any(|tools| !tools.begun_reply.is_empty());
        if !begins_reply && found_thread.were_all_spoken(state, principal, &new_turns).await? {
            return Ok(());
        }
        let detail = "a player's program may not bring in replies that the NPC has not said to the same line \
            (setting `chat.players_import`)";
        Err(Problem::new(Code::Forbidden, detail).with_param("messages"))
    }
}

/// Returns the NPC of a model. In a group, the member of the world that shall speak.
async fn find_speaker<A>(
    state: &AppState,
    caller: &Authorized<A>,
    world: &WorldId,
    npc: &NpcId,
    requested_name: Option<&str>,
) -> Result<Npc, Problem> {
    let authored = &state.services.ledger.authored;
    let stored = authored.load_npc(&caller.scope, world, npc).await?;
    let npc = stored.ok_or_else(|| no_such_model(&format!("{world}/{npc}")))?;
    let Some(requested_name) = requested_name.filter(|name| *name != npc.name) else {
        return Ok(npc);
    };
    let members = authored
        .find_npc_names(&caller.scope, world, &[requested_name.to_owned()])
        .await?;
    let member = match members.first() {
        Some(member) => authored.load_npc(&caller.scope, world, &member.id).await?,
        None => None,
    };
    Ok(member.unwrap_or(npc))
}

/// True if the text is the greeting of the NPC's persona.
fn is_greeting_of(npc: &Npc, text: &str) -> bool {
    npc.persona.greeting.split_whitespace().eq(text.split_whitespace())
}

/// Leaves out the first reply of a transcript if no line of the player stands before: a greeting of the chat program, or the
/// end of a turn whose front was cut away. The greeting of the persona stays.
fn leave_out_unsaid_greeting(sorted_messages: &mut SortedMessages, npc: &Npc) {
    let first_turn = sorted_messages.transcript.turns.first();
    if first_turn.is_some_and(|turn| turn.player_text.is_empty() && !is_greeting_of(npc, &turn.reply_text)) {
        sorted_messages.transcript.turns.remove(0);
    }
}
