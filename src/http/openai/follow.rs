//! The turns of a session become those of a transcript.

use std::sync::Arc;

use super::known_sessions::KnownSessions;
use crate::{AppState, awaited_turn::await_turn, errors::Problem};
use colloquy_actors::{HeardLength, InterruptCommand, OnBusy, PlayerLine};
use colloquy_core::{ids::PlayerId, scope::Principal};
use colloquy_dialogue::turn::ChatRequest;
use colloquy_memory::{
    chat_transcript::{TranscriptAlignment, TranscriptRequest},
    turn::Turn,
};
use colloquy_ports::ledger::dialogues::Dialogue;

/// The longest imported line or reply, in Unicode scalar values.
pub const MAX_IMPORTED_CHARS: usize = 16_000;
/// The latest imported turns whose text is also read for changes of the world's state.
const TURNS_READ_FOR_STATE: usize = 8;

/// Checks that the session would take the line of a request, before the request changes the session.
///
/// # Errors
/// The line is too long, or a budget is spent and the request changes turns.
pub fn check_answer(
    state: &AppState,
    principal: &Principal,
    player: &PlayerId,
    dialogue: &Dialogue,
    alignment: &TranscriptAlignment,
) -> Result<(), Problem> {
    if let TranscriptRequest::Answer(line) = &alignment.request
        && !line.is_empty()
    {
        let checked = state.sessions.check_line(line);
        checked.map_err(|error| Problem::from(error).with_param("messages"))?;
    }
    if takes_turns_back(dialogue, alignment) || !alignment.missing.is_empty() {
        let budgets = state.services.models.budgets();
        budgets.check_turn(&principal.tenant, Some(player))?;
    }
    Ok(())
}

/// True if turns of the session, or parts of them, are not in the transcript. A reply that is asked for again stands until then.
fn takes_turns_back(dialogue: &Dialogue, alignment: &TranscriptAlignment) -> bool {
    let answers_again = matches!(alignment.request, TranscriptRequest::AnswerAgain(_));
    let is_moved = alignment.last_standing < dialogue.head_turn && !answers_again;
    is_moved || alignment.heard_chars.is_some()
}

/// True if a text of a turn that was said elsewhere has more than [`MAX_IMPORTED_CHARS`] characters.
pub fn is_too_long_to_import(player_text: &str, reply_text: &str) -> bool {
    [player_text, reply_text]
        .iter()
        .any(|text| text.chars().count() > MAX_IMPORTED_CHARS)
}

/// Makes the turns of the session those of the transcript: takes turns back, and stores turns that are not known. Returns
/// the last stored turn.
///
/// # Errors
/// As of an imported line or a rewind.
pub async fn follow_transcript(
    state: &AppState,
    principal: &Principal,
    dialogue: &Dialogue,
    alignment: &TranscriptAlignment,
    thread: &mut KnownSessions,
) -> Result<Option<Arc<Turn>>, Problem> {
    for (index, turn) in alignment.missing.iter().enumerate() {
        if is_too_long_to_import(&turn.player_text, &turn.reply_text) {
            let detail = format!(
                "turn {} of the transcript has more than {MAX_IMPORTED_CHARS} characters",
                index + 1
            );
            return Err(Problem::invalid_field("messages", detail));
        }
    }
    if takes_turns_back(dialogue, alignment) {
        let command = InterruptCommand {
            turn: Some(alignment.last_standing),
            heard_length: alignment.heard_chars.map(HeardLength::Chars),
            key: None,
            if_head: Some(dialogue.head_turn),
            who: principal.clone(),
        };
        let sessions = &state.sessions;
        if alignment.heard_chars.is_some() {
            sessions
                .interrupt_dialogue(&principal.scope(), dialogue.id, command)
                .await?;
        } else {
            sessions
                .rewind_dialogue(&principal.scope(), dialogue.id, command)
                .await?;
        }
    }
    let missing_count = alignment.missing.len();
    let mut known_head = alignment.last_standing;
    let mut last_turn = None;
    for (index, turn) in alignment.missing.iter().enumerate() {
        let extract_state = missing_count - index <= TURNS_READ_FOR_STATE;
        let line = PlayerLine {
            text: turn.player_text.clone(),
            to: None,
            key: None,
            on_busy: OnBusy::Queue,
            re: None,
            who: None,
            chat: Some(Arc::new(
                ChatRequest::with_given_reply(turn.reply_text.clone(), extract_state).with_if_head(known_head),
            )),
        };
        let stored_turn = await_turn(state.sessions.say_line(&principal.scope(), dialogue.id, line).await?).await?;
        thread.record_turn(&stored_turn);
        known_head = stored_turn.number;
        last_turn = Some(stored_turn);
    }
    Ok(last_turn)
}
