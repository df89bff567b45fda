//! `/watch`: NPCs talk with each other, and the player cuts in.

use std::{pin::pin, time::Duration};

use anyhow::Context;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    client::ChatClient,
    commands::{Command, HELP, Watch},
    conversation::{Conversation, WatchEnd},
    events::{error_text, event_type},
    input::KeyMode,
    playback::{Playback, SpokenWord},
    turns::{Goal, new_key},
};

/// The first `seq` of a conversation: a watch behind it gets every line.
const CREATED_SEQ: u64 = 1;
/// The pause after a line, in characters.
const PAUSE_CHARS: u32 = 10;

/// What ends the wait while NPCs talk.
enum Happening {
    Event(Value),
    /// The time of the next word has come.
    Word,
    /// Input can be read: a key, a line, or the end of a pipe.
    Input(PeekedInput),
    CtrlC,
}

/// The input that can be read.
enum PeekedInput {
    /// The beginning of a line, or the whole line with its line break.
    Text(String),
    /// A key without a character, such as an arrow.
    Control,
    End,
}

impl PeekedInput {
    fn from_bytes(bytes: &[u8], typed: bool) -> Self {
        match bytes.first() {
            None => Self::End,
            Some(first_byte) if typed && first_byte.is_ascii_control() && *first_byte != b'\n' => Self::Control,
            Some(_) => {
                let line = bytes.split_inclusive(|byte| *byte == b'\n').next().unwrap_or(bytes);
                Self::Text(String::from_utf8_lossy(line).into_owned())
            }
        }
    }
}

impl ChatClient {
    /// Shows a conversation of NPCs until its end, or until the player cuts in or leaves.
    pub(super) async fn watch_npcs(&mut self, watch: &Watch) -> anyhow::Result<WatchEnd> {
        let id = match self.conversation_id(watch).await {
            Ok(id) => id,
            Err(error) => {
                self.screen.show_fault(&format!("{error:#}"))?;
                return Ok(WatchEnd::Failed);
            }
        };
        let last_seq = matches!(watch, Watch::New { .. }).then_some(CREATED_SEQ);
        let Some(mut conversation) = self.begin_watching(id, last_seq).await? else {
            return Ok(WatchEnd::Failed);
        };
        let hint = if self.input.interactive {
            "; type to cut in, an empty line leaves"
        } else {
            ""
        };
        let npcs = conversation.npcs.join(" and ");
        self.screen.show_note(&format!("{npcs} talk with each other{hint}"))?;
        let end = self.show_conversation(&mut conversation).await?;
        let unwatch =
            json!({"type": "npc_conversation.unwatch", "event_id": "unwatch", "conversation_id": conversation.id});
        self.socket.send_event(&unwatch).await?;
        Ok(end)
    }

    /// Returns the id of the conversation; creates a new one if asked to.
    async fn conversation_id(&self, watch: &Watch) -> anyhow::Result<String> {
        let (npcs, topic) = match watch {
            Watch::Existing(id) => return Ok(id.clone()),
            Watch::New { npcs, topic } => (npcs, topic),
        };
        let body = json!({
            "world_id": self.options.world,
            "npc_ids": npcs,
            "topic": topic,
            "watchers": [self.options.player],
            "interrupters": "watchers",
        });
        let created = self.rest_client.post_json("/v1/npc-conversations", &body).await?;
        let id = created["id"]
            .as_str()
            .context("the server sent no id of the conversation")?;
        Ok(id.to_owned())
    }

    async fn begin_watching(&mut self, id: String, last_seq: Option<u64>) -> anyhow::Result<Option<Conversation>> {
        let re = self.next_event_id();
        let watch =
            json!({"type": "npc_conversation.watch", "event_id": re, "conversation_id": id, "last_seq": last_seq});
        self.socket.send_event(&watch).await?;
        let mut watched = Conversation {
            id,
            npcs: Vec::new(),
            playback: Playback::default(),
            is_cut: false,
        };
        loop {
            let event = self.socket.next_event().await?;
            watched.on_event(&event, false);
            match event_type(&event) {
                "npc_conversation.created" if event["re"] == re.as_str() => {
                    watched.npcs = serde_json::from_value(event["npc_ids"].clone()).unwrap_or_default();
                    return Ok(Some(watched));
                }
                "error" if event["re"] == re.as_str() => {
                    self.screen.show_fault(&error_text(&event["error"]))?;
                    return Ok(None);
                }
                _ => {}
            }
        }
    }

    /// Shows the lines word by word.
    async fn show_conversation(&mut self, watched: &mut Conversation) -> anyhow::Result<WatchEnd> {
        let keys = KeyMode::of_input(&self.input);
        keys.read_keys();
        let mut pause = pin!(sleep(Duration::ZERO));
        let mut input_ended = false;
        let mut has_refusal = false;
        let typed = self.input.interactive;
        loop {
            if let Some(end) = watched.playback.end() {
                self.screen.show_note(end)?;
                return Ok(if has_refusal { WatchEnd::Failed } else { WatchEnd::Ended });
            }
            let may_read = !input_ended && (typed || watched.playback.is_under_way());
            let happening = tokio::select! {
                event = self.socket.next_event() => Happening::Event(event?),
                () = &mut pause, if watched.playback.has_word() => Happening::Word,
                bytes = self.input.peek(), if may_read => Happening::Input(PeekedInput::from_bytes(bytes?, typed)),
                pressed = tokio::signal::ctrl_c() => {
                    pressed?;
                    Happening::CtrlC
                }
            };
            match happening {
                Happening::Event(event) => {
                    self.on_watched_event(&event, watched).await?;
                    if let Some(npc) = watched.playback.thinking_npc() {
                        let sign = format!("{npc} thinks …");
                        self.screen.show_sign(&sign)?;
                    }
                }
                Happening::Word => {
                    if let Some(word) = watched.playback.take_word() {
                        self.show_word(&word, &watched.npcs)?;
                        pause.set(sleep(self.speaking_time(&word)));
                    }
                }
                Happening::Input(PeekedInput::Control) => self.input.discard(),
                Happening::Input(PeekedInput::End) => input_ended = true,
                Happening::CtrlC => {
                    self.screen.break_npc_line()?;
                    self.leave_conversation()?;
                    return Ok(WatchEnd::Ended);
                }
                Happening::Input(PeekedInput::Text(line_start)) => {
                    keys.read_lines();
                    self.screen.break_npc_line()?;
                    let Some(line) = self.read_begun_line(&line_start, watched).await? else {
                        return Ok(WatchEnd::Command(Command::Quit));
                    };
                    if let Some(end) = self.follow_line(&line, watched, &mut has_refusal).await? {
                        return Ok(end);
                    }
                    // The NPCs go on, and so does the screen.
                    keys.read_keys();
                }
            }
        }
    }

    /// Follows a typed line. `None`: the NPCs go on. Sets `has_refusal` if the line was not said.
    async fn follow_line(
        &mut self,
        line: &str,
        watched: &mut Conversation,
        has_refusal: &mut bool,
    ) -> anyhow::Result<Option<WatchEnd>> {
        match Command::parse(line) {
            Command::Say(line) => {
                let end = self.cut_in(watched, &line).await?;
                *has_refusal |= end.is_none();
                return Ok(end);
            }
            Command::Nothing | Command::Leave => {
                self.leave_conversation()?;
                return Ok(Some(WatchEnd::Ended));
            }
            Command::Help => self.screen.show_answer(HELP)?,
            Command::Unclear(fault) => {
                self.screen.show_fault(&fault)?;
                *has_refusal = true;
            }
            command => {
                self.leave_conversation()?;
                return Ok(Some(WatchEnd::Command(command)));
            }
        }
        Ok(None)
    }

    fn leave_conversation(&mut self) -> std::io::Result<()> {
        let npcs = self.session().npcs.join(" and ");
        self.screen
            .show_note(&format!("you are with {npcs} again; they go on without you"))
    }

    /// Reads the line that the player has begun. The NPCs' words wait on the screen meanwhile.
    async fn read_begun_line(
        &mut self,
        line_start: &str,
        watched: &mut Conversation,
    ) -> anyhow::Result<Option<String>> {
        if self.input.interactive && line_start != "\n" {
            self.screen.show_prompt()?;
            self.screen.write_text(line_start.trim_end_matches('\n'))?;
        }
        if line_start.ends_with('\n') {
            self.screen.end_line()?;
        }
        loop {
            tokio::select! {
                line = self.input.next_line() => return self.take_line(line?),
                event = self.socket.next_event() => self.on_watched_event(&event?, watched).await?,
                pressed = tokio::signal::ctrl_c() => {
                    pressed?;
                    self.input.discard();
                    self.screen.end_line()?;
                    return Ok(Some(String::new()));
                }
            }
        }
    }

    async fn on_watched_event(&mut self, event: &Value, watched: &mut Conversation) -> anyhow::Result<()> {
        if !watched.on_event(event, false) {
            self.on_idle_event(event).await?;
        }
        Ok(())
    }

    fn show_word(&mut self, word: &SpokenWord, npcs: &[String]) -> std::io::Result<()> {
        if word.begins {
            self.screen.break_npc_line()?;
        }
        self.screen.show_npc_text(&word.npc, npcs, &word.text)?;
        if word.ends {
            self.screen.end_line()?;
        }
        Ok(())
    }

    fn speaking_time(&self, word: &SpokenWord) -> Duration {
        let chars = u32::try_from(word.text.chars().count()).unwrap_or(u32::MAX);
        let pause = if word.ends { PAUSE_CHARS } else { 0 };
        Duration::from_millis(u64::from(self.options.ms_per_char) * u64::from(chars.saturating_add(pause)))
    }

    /// Interrupts the NPCs at the last word that was heard, and says the line to them. `None`: the server refused, and
    /// nothing was cut.
    async fn cut_in(&mut self, watched: &mut Conversation, line: &str) -> anyhow::Result<Option<WatchEnd>> {
        let heard_part = watched.playback.heard_part();
        let interrupt = json!({
            "type": "npc_conversation.interrupt",
            "conversation_id": watched.id,
            "turn": heard_part.map(|(turn, _)| turn),
            "heard_chars": heard_part.and_then(|(_, chars)| chars),
            "key": new_key(),
            "text": line,
        });
        let previous_session = self.session().id.clone();
        let is_answered = self.send_until_done(interrupt, Goal::Join(watched)).await?;
        if self.leaving {
            return Ok(Some(WatchEnd::Ended));
        }
        if self.session().id == previous_session {
            // The server cuts first. The player's session may fail after that.
            let note = if watched.is_cut {
                "your line was not said, and their conversation is paused"
            } else {
                "your line was not said"
            };
            self.screen.show_note(note)?;
            return Ok(watched.is_cut.then_some(WatchEnd::Failed));
        }
        let npcs = watched.npcs.join(" and ");
        self.screen
            .show_note(&format!("you are with {npcs} now; an empty line or /leave goes back"))?;
        Ok(Some(if is_answered { WatchEnd::Ended } else { WatchEnd::Failed }))
    }
}
