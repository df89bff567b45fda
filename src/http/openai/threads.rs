//! Which session a transcript belongs to. Chat programs send no id of a talk, so the session is found by its lines.

use std::cmp::Reverse;

use super::{
    known_sessions::{KnownSession, KnownSessions, LastRequest, ThreadKey},
    messages::SortedMessages,
    nudges::{SpokenText, names_speaker},
};
use crate::{AppState, errors::Problem, reachable_sessions::reachable_open_session};
use colloquy_core::{
    ids::{DialogueId, DialogueKind},
    scope::Principal,
};
use colloquy_memory::{
    chat_transcript::{
        ComparedTranscript, SpokenTurns, StoredTurn, TextPrint, Transcript, TranscriptAlignment, TranscriptEnd,
        TranscriptTurn, align_transcript,
    },
    turn::Turn,
};
use colloquy_ports::{
    PageRequest,
    ledger::dialogues::{Dialogue, DialogueFilter, DialogueStatus},
};

/// The latest sessions among which a transcript is looked for.
const MAX_COMPARED_SESSIONS: u32 = 20;
/// The latest turns of a session that are compared.
const MAX_COMPARED_TURNS: u32 = 4_000;
/// The latest replaced turns of a session that a player's program may show again.
const MAX_UNSAID_TURNS: usize = 2_000;
/// The latest turns of which the text is kept, for replies that a program shows in part.
const TURNS_WITH_TEXT: usize = 4;

/// The session of a transcript, and how its turns become those of the transcript.
#[derive(Debug)]
pub struct FoundThread {
    pub dialogue: Dialogue,
    pub alignment: TranscriptAlignment,
}

impl KnownSessions {
    /// True if the request asks for something beside the talk: a system message after the last reply that no request for a
    /// turn had.
    pub fn is_aside(&self, sorted_messages: &SortedMessages) -> bool {
        let known_notes = self.last_request.as_ref().map(|request| &request.notes);
        let turns = &sorted_messages.transcript.turns;
        let is_greeting_alone = turns.len() == 1 && turns[0].player_text.is_empty();
        // After a greeting alone there is nothing to ask about, unless in brackets: the program's rules for each reply.
        let is_rule = |text: &String| known_notes.is_none() && is_greeting_alone && !text.starts_with('[');
        let is_known =
            |text: &String| is_rule(text) || known_notes.is_some_and(|notes| notes.contains(&TextPrint::of_text(text)));
        sorted_messages.transcript.end != TranscriptEnd::Reply
            && sorted_messages
                .trailing
                .iter()
                .any(|text| !is_known(text) && !names_speaker(text))
    }

    /// True if the request, whose transcript belongs to no session, asks for something about another talk, such as its
    /// title: one text without a stream, where turns are streamed, which quotes the last turn of the talk.
    pub fn is_aside_of_other_talks(&self, sorted_messages: &SortedMessages, is_streamed: bool) -> bool {
        let turns_are_streamed = self.last_request.as_ref().is_some_and(|request| request.was_streamed);
        let may_be_aside = turns_are_streamed && !is_streamed && sorted_messages.transcript.turns.is_empty();
        let Some(last_turn) = self.last_turn.as_ref().filter(|_| may_be_aside) else {
            return false;
        };
        // Joined lines stand apart in the quote, perhaps with names before them.
        let last_line = SpokenText::new(last_turn.player_text.rsplit("\n\n").next().unwrap_or_default());
        let last_reply = SpokenText::new(&last_turn.reply_text);
        let quotes_turn = |text: &str| {
            !last_turn.reply_text.is_empty() && last_line.is_quoted_in(text) && last_reply.is_quoted_in(text)
        };
        let line = match &sorted_messages.transcript.end {
            TranscriptEnd::Line(line) => line.as_str(),
            TranscriptEnd::Reply => "",
        };
        let head = sorted_messages.head.iter().map(|message| message.content.as_str());
        let mut texts = head
            .chain(sorted_messages.notes.iter().map(String::as_str))
            .chain([line]);
        texts.any(quotes_turn)
    }

    /// Notes the marks of a request for a turn.
    pub fn note_request(&mut self, sorted_messages: &SortedMessages, is_streamed: bool) {
        self.last_request = Some(LastRequest {
            notes: sorted_messages
                .notes
                .iter()
                .map(|note| TextPrint::of_text(note))
                .collect(),
            was_streamed: is_streamed,
        });
    }

    /// Notes that the reply of a session's line called tools.
    pub fn note_tool_calls(&mut self, session: DialogueId) {
        self.awaits_results = Some(session);
    }

    /// Finds the session of a request: the one that has most turns in common with the transcript, or else the one whose
    /// first line awaits the results of tools. `None`: the request begins a talk.
    ///
    /// # Errors
    /// As of [`Self::find_session`].
    pub async fn find_talk(
        &mut self,
        state: &AppState,
        principal: &Principal,
        key: &ThreadKey,
        sorted_messages: &SortedMessages,
    ) -> Result<Option<FoundThread>, Problem> {
        match self
            .find_session(state, principal, key, &sorted_messages.transcript)
            .await?
        {
            Some(thread) => Ok(Some(thread)),
            None => self.take_session_without_turns(state, principal, sorted_messages).await,
        }
    }

    /// Returns the session whose first line awaits the results of tools, if the session still has no turn.
    async fn take_session_without_turns(
        &mut self,
        state: &AppState,
        principal: &Principal,
        sorted_messages: &SortedMessages,
    ) -> Result<Option<FoundThread>, Problem> {
        let Some(session) = self.awaits_results.take() else {
            return Ok(None);
        };
        let dialogues = &state.services.ledger.dialogues;
        let dialogue = dialogues.load_dialogue(&principal.scope(), session).await?;
        let dialogue = dialogue.filter(|dialogue| dialogue.status == DialogueStatus::Open && dialogue.head_turn == 0);
        Ok(dialogue.map(|dialogue| FoundThread {
            dialogue,
            alignment: align_transcript(&ComparedTranscript::new(&sorted_messages.transcript), &[]),
        }))
    }

    /// Finds the session that has most turns in common with the transcript. `None`: the transcript is a talk of its own.
    ///
    /// # Errors
    /// The store's. 404 if the request names a session that the caller does not reach, or that has another NPC.
    pub async fn find_session(
        &mut self,
        state: &AppState,
        principal: &Principal,
        key: &ThreadKey,
        transcript: &Transcript,
    ) -> Result<Option<FoundThread>, Problem> {
        let compared = ComparedTranscript::new(transcript);
        if let Ok(id) = key.name.parse::<DialogueId>() {
            let named_session = self.find_named_session(state, principal, key, id, &compared);
            return named_session.await.map(Some);
        }
        let is_its_talk = |dialogue: &Dialogue, alignment: &TranscriptAlignment| {
            !key.name.is_empty() || !alignment.may_be_another_talk(dialogue.head_turn)
        };
        // Most requests go on with the session of the request before.
        if let Some(last_session) = self.sessions.last().map(|session| session.id)
            && let Some(dialogue) = state
                .services
                .ledger
                .dialogues
                .load_dialogue(&principal.scope(), last_session)
                .await?
            && dialogue.status == DialogueStatus::Open
        {
            let alignment = align_transcript(&compared, self.read_turns(state, principal, &dialogue).await?);
            if alignment.shared_turns > 0 && alignment.missing.is_empty() && is_its_talk(&dialogue, &alignment) {
                return Ok(Some(FoundThread { dialogue, alignment }));
            }
        }
        // Of two sessions with as many turns in common, the one is meant whose replies are those of the transcript.
        let rank = |alignment: &TranscriptAlignment| (alignment.shared_turns, Reverse(alignment.missing.len()));
        let mut best: Option<FoundThread> = None;
        let mut newest = None;
        for dialogue in latest_sessions_of(state, principal, key).await? {
            let alignment = align_transcript(&compared, self.read_turns(state, principal, &dialogue).await?);
            if newest.is_none() && !key.name.is_empty() {
                newest = Some((dialogue.clone(), alignment.clone()));
            }
            let is_better = best
                .as_ref()
                .is_none_or(|best| rank(&alignment) > rank(&best.alignment));
            if alignment.shared_turns > 0 && is_better && is_its_talk(&dialogue, &alignment) {
                best = Some(FoundThread { dialogue, alignment });
            }
        }
        // A program that names the talk may send its last line alone.
        let has_line = matches!(&transcript.end, TranscriptEnd::Line(line) if !line.is_empty());
        let lone = newest.filter(|_| transcript.turns.is_empty() && has_line);
        Ok(best.or_else(|| lone.map(|(dialogue, alignment)| continue_lone_line(dialogue, alignment, transcript))))
    }

    /// Returns the session whose id is the name of the talk.
    async fn find_named_session(
        &mut self,
        state: &AppState,
        principal: &Principal,
        key: &ThreadKey,
        id: DialogueId,
        compared: &ComparedTranscript<'_>,
    ) -> Result<FoundThread, Problem> {
        let transcript = compared.transcript;
        let dialogue = reachable_open_session(state, principal, id).await?;
        let is_of_player = dialogue.player.as_ref() == Some(&key.player);
        if dialogue.world != key.world || !dialogue.npcs.contains(&key.npc) || !is_of_player {
            return Err(Problem::not_found("session of this model"));
        }
        let turns = self.read_turns(state, principal, &dialogue).await?;
        if transcript.turns.is_empty() && transcript.end == TranscriptEnd::Line(String::new()) && !turns.is_empty() {
            return Err(Problem::invalid_field(
                "messages",
                "have no line for the session that the request names",
            ));
        }
        let alignment = align_transcript(compared, turns);
        if alignment.shared_turns == 0 && !transcript.turns.is_empty() && !turns.is_empty() {
            let detail = "have no line in common with the session that the request names";
            return Err(Problem::invalid_field("messages", detail));
        }
        Ok(continue_lone_line(dialogue, alignment, transcript))
    }

    /// Returns the turns of a session, read again if the session has changed. The session becomes the last one.
    async fn read_turns(
        &mut self,
        state: &AppState,
        principal: &Principal,
        dialogue: &Dialogue,
    ) -> Result<&[StoredTurn], Problem> {
        let mut session = self.take_session(dialogue.id);
        if !session.is_current(dialogue) {
            let first_number = dialogue.head_turn.saturating_sub(MAX_COMPARED_TURNS).saturating_add(1);
            let dialogues = &state.services.ledger.dialogues;
            let turns = dialogues
                .load_turns(&principal.scope(), dialogue.id, first_number, dialogue.head_turn)
                .await?;
            session.turns.clear();
            for turn in &turns {
                session.append(turn);
            }
            session.head_turn = dialogue.head_turn;
            session.updated_at = dialogue.updated_at;
        }
        if self.sessions.len() >= MAX_COMPARED_SESSIONS as usize {
            self.sessions.remove(0);
        }
        self.sessions.push(session);
        Ok(self.sessions.last().map_or(&[], |session| &session.turns))
    }

    /// Records a turn that was just committed.
    pub fn record_turn(&mut self, turn: &Turn) {
        let mut session = self.take_session(turn.dialogue);
        session.turns.retain(|stored| stored.number < turn.number);
        session.append(turn);
        session.head_turn = turn.number;
        session.updated_at = turn.committed_at;
        self.sessions.push(session);
        self.last_turn = Some(TranscriptTurn {
            player_text: turn.player_text.clone(),
            reply_text: turn.reply_text.clone(),
        });
    }

    /// Takes a session out of the list; without its turns, if the session is not known.
    fn take_session(&mut self, id: DialogueId) -> KnownSession {
        let index = self.sessions.iter().position(|session| session.id == id);
        index.map_or_else(|| KnownSession::new(id), |index| self.sessions.remove(index))
    }
}

impl KnownSession {
    fn append(&mut self, turn: &Turn) {
        self.turns.push(to_stored_turn(turn));
        if let Some(index) = self.turns.len().checked_sub(TURNS_WITH_TEXT + 1) {
            self.turns[index].forget_text();
        }
    }
}

fn to_stored_turn(turn: &Turn) -> StoredTurn {
    StoredTurn::new(turn.number, &turn.player_text, &turn.reply_text)
}

impl FoundThread {
    /// True if each of these missing turns was really spoken in the session.
    ///
    /// # Errors
    /// The store's.
    pub async fn were_all_spoken(
        &self,
        state: &AppState,
        principal: &Principal,
        turns: &[&TranscriptTurn],
    ) -> Result<bool, Problem> {
        if turns.is_empty() {
            return Ok(true);
        }
        let Dialogue { id, head_turn, .. } = self.dialogue;
        let first_number = head_turn.saturating_sub(MAX_COMPARED_TURNS).saturating_add(1);
        let store = &state.services.ledger.dialogues;
        let scope = principal.scope();
        let standing = store.load_turns(&scope, id, first_number, head_turn).await?;
        let unsaid = store.list_unsaid_turns(&scope, id, MAX_UNSAID_TURNS).await?;
        let standing: Vec<StoredTurn> = standing.iter().map(to_stored_turn).collect();
        let unsaid: Vec<StoredTurn> = unsaid.iter().map(to_stored_turn).collect();
        let mut spoken_turns = SpokenTurns::new(&standing, &unsaid, self.alignment.last_standing);
        Ok(turns.iter().all(|turn| spoken_turns.take(turn)))
    }
}

/// Returns the latest open sessions of a talk, newest first.
async fn latest_sessions_of(
    state: &AppState,
    principal: &Principal,
    key: &ThreadKey,
) -> Result<impl Iterator<Item = Dialogue> + use<>, Problem> {
    let filter = DialogueFilter {
        kind: Some(DialogueKind::Session),
        world: Some(key.world.clone()),
        npc: Some(key.npc.clone()),
        player: Some(key.player.clone()),
        status: Some(DialogueStatus::Open),
        chat_key: Some(key.name.clone()),
        ..DialogueFilter::default()
    };
    let page = PageRequest {
        limit: MAX_COMPARED_SESSIONS,
        after: None,
    };
    let dialogues = &state.services.ledger.dialogues;
    let page_of_dialogues = dialogues.list_dialogues(&principal.scope(), &filter, &page).await?;
    Ok(page_of_dialogues
        .items
        .into_iter()
        .filter(|dialogue| dialogue.npcs.len() == 1))
}

/// Returns the newest open session of a talk.
///
/// # Errors
/// The store's.
pub async fn newest_session_of(
    state: &AppState,
    principal: &Principal,
    key: &ThreadKey,
) -> Result<Option<Dialogue>, Problem> {
    Ok(latest_sessions_of(state, principal, key).await?.next())
}

/// A line without earlier turns follows the last turn of a session that the request names.
fn continue_lone_line(dialogue: Dialogue, alignment: TranscriptAlignment, transcript: &Transcript) -> FoundThread {
    let is_lone_line = transcript.turns.is_empty() && matches!(transcript.end, TranscriptEnd::Line(_));
    let alignment = if is_lone_line && alignment.shared_turns == 0 {
        TranscriptAlignment::after_turn(dialogue.head_turn, transcript)
    } else {
        alignment
    };
    FoundThread { dialogue, alignment }
}
