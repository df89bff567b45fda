//! The chat: its sessions, and the lines of the player in order.

use anyhow::bail;
use serde_json::{Value, json};

use super::{
    ChatOptions,
    commands::{Command, HELP},
    connection::ChatSocket,
    conversation::WatchEnd,
    events::{error_text, event_type},
    input::Input,
    inspect,
    render::Screen,
    rest::RestClient,
    session::Session,
};

pub(super) struct ChatClient {
    pub options: ChatOptions,
    pub socket: ChatSocket,
    pub rest_client: RestClient,
    pub input: Input,
    pub screen: Screen,
    /// The session with the NPC of the command line.
    pub home: Session,
    /// The session with the NPCs whose conversation the player cut in on.
    pub joined: Option<Session>,
    /// The dialogue and `seq` of the last rewind that was shown. An event may come twice.
    pub last_rewind: (String, u64),
    /// The number of messages sent.
    sent_count: u64,
    /// True if Ctrl-C ends the chat.
    pub leaving: bool,
}

impl ChatClient {
    pub(super) async fn open_session(
        options: ChatOptions,
        mut socket: ChatSocket,
        rest_client: RestClient,
    ) -> anyhow::Result<Self> {
        let home = create_session(&mut socket, &options).await?;
        Ok(Self {
            options,
            socket,
            rest_client,
            input: Input::from_stdin(),
            screen: Screen::on_stdout(),
            home,
            joined: None,
            last_rewind: Default::default(),
            sent_count: 0,
            leaving: false,
        })
    }

    /// The session that the player speaks in.
    pub(super) fn session(&self) -> &Session {
        self.joined.as_ref().unwrap_or(&self.home)
    }

    pub(super) fn session_mut(&mut self) -> &mut Session {
        self.joined.as_mut().unwrap_or(&mut self.home)
    }

    pub(super) fn sessions_mut(&mut self) -> impl Iterator<Item = &mut Session> {
        self.joined.iter_mut().chain([&mut self.home])
    }

    /// Returns an `event_id` that no earlier message has.
    pub(super) fn next_event_id(&mut self) -> String {
        self.sent_count += 1;
        format!("chat-{}", self.sent_count)
    }

    pub(super) async fn run_conversation(&mut self) -> anyhow::Result<()> {
        if self.input.interactive {
            let npc = &self.home.npcs[0];
            self.screen
                .show_answer(&format!("You talk with {npc}. /help lists the commands, /quit ends."))?;
        }
        let mut has_failure = false;
        'chat: while !self.leaving
            && let Some(line) = self.next_line().await?
        {
            let mut next_command = Some(Command::parse(&line));
            while let Some(command) = next_command.take() {
                match command {
                    Command::Quit => break 'chat,
                    Command::Watch(watch) => match self.watch_npcs(&watch).await? {
                        WatchEnd::Command(command) => next_command = Some(command),
                        WatchEnd::Ended => {}
                        WatchEnd::Failed => has_failure = true,
                    },
                    command => has_failure |= !self.perform_command(command).await?,
                }
            }
        }
        self.socket.close_socket().await;
        if has_failure && !self.input.interactive {
            bail!("not every line was answered");
        }
        Ok(())
    }

    /// Performs a command of a session. Returns false if the server did not do what the player asked for.
    async fn perform_command(&mut self, command: Command) -> anyhow::Result<bool> {
        match command {
            Command::Say(line) => return self.say_line(&line).await,
            Command::Again => return self.regenerate_reply().await,
            Command::Rewind(turn) => return self.rewind_session(turn).await,
            Command::Save(name) => return self.take_save(name).await,
            Command::Load(name) => return self.load_save(name).await,
            Command::Trace => {
                let description = inspect::describe_last_turn(&self.rest_client, self.session()).await;
                return self.show_result(&description);
            }
            Command::Facts(query) => {
                let description = inspect::describe_facts(
                    &self.rest_client,
                    self.session(),
                    &self.options.world,
                    &self.options.player,
                    &query,
                )
                .await;
                return self.show_result(&description);
            }
            Command::Help => self.screen.show_answer(HELP)?,
            Command::Leave if self.joined.is_none() => {
                let npc = &self.home.npcs[0];
                self.screen
                    .show_note(&format!("you are in your session with {npc}; /quit ends the chat"))?;
            }
            Command::Leave | Command::Nothing => self.leave_joined_session().await?,
            Command::Unclear(fault) => {
                self.screen.show_fault(&fault)?;
                return Ok(false);
            }
            Command::Watch(_) | Command::Quit => {}
        }
        Ok(true)
    }

    /// Shows an answer or a failure. Returns true for an answer.
    pub(super) fn show_result(&mut self, result: &anyhow::Result<String>) -> anyhow::Result<bool> {
        match result {
            Ok(text) => self.screen.show_answer(text)?,
            Err(error) => self.screen.show_fault(&format!("{error:#}"))?,
        }
        Ok(result.is_ok())
    }

    /// Returns the next line, or `None` at the end of input or on Ctrl-C. Answers pings while waiting.
    async fn next_line(&mut self) -> anyhow::Result<Option<String>> {
        if self.input.interactive {
            self.screen.show_prompt()?;
        }
        loop {
            tokio::select! {
                line = self.input.next_line() => return self.take_line(line?),
                // After the first reply, the signal handler stays installed: Ctrl-C no longer ends the process by
                // itself.
                pressed = tokio::signal::ctrl_c() => {
                    pressed?;
                    self.screen.end_line()?;
                    self.leaving = true;
                    return Ok(None);
                }
                event = self.socket.next_event() => {
                    if self.on_idle_event(&event?).await? && self.input.interactive {
                        self.screen.show_prompt()?;
                    }
                }
            }
        }
    }

    /// Brings the screen to the state after a line of input.
    pub(super) fn take_line(&mut self, line: Option<String>) -> anyhow::Result<Option<String>> {
        if self.input.interactive {
            self.screen.on_line_typed();
        } else if let Some(line) = line.as_deref().map(str::trim)
            && !line.is_empty()
        {
            self.screen.show_player_line(line)?;
        }
        Ok(line)
    }

    /// Handles an event that no line of the player caused. Returns true if something was shown.
    pub(super) async fn on_idle_event(&mut self, event: &Value) -> anyhow::Result<bool> {
        match event_type(event) {
            "server.draining" => {
                self.screen.show_note("the server is shutting down")?;
                Ok(true)
            }
            "dialogue.rewound" => self.on_rewound(event),
            "session.closed" => self.on_session_closed(event).await,
            _ => Ok(false),
        }
    }

    /// Leaves a session that the server closed. Returns false if the player is in no such session.
    pub(super) async fn on_session_closed(&mut self, event: &Value) -> anyhow::Result<bool> {
        let id = event["dialogue_id"].as_str().unwrap_or_default();
        let reason = event["reason"].as_str().unwrap_or_default();
        if self.joined.as_ref().is_some_and(|joined| joined.id == id) {
            self.joined = None;
            let npc = &self.home.npcs[0];
            self.screen
                .show_note(&format!("this session is closed ({reason}); you are with {npc} again"))?;
        } else if self.home.id == id {
            self.home = create_session(&mut self.socket, &self.options).await?;
            let npc = &self.home.npcs[0];
            self.screen.show_note(&format!(
                "the session with {npc} is closed ({reason}); a new one begins"
            ))?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Enters the session of a player who cut in on NPCs.
    pub(super) async fn enter_joined_session(&mut self, session: Session) -> anyhow::Result<()> {
        self.close_joined_session().await?;
        self.joined = Some(session);
        Ok(())
    }

    async fn leave_joined_session(&mut self) -> anyhow::Result<()> {
        if self.close_joined_session().await? {
            let npc = &self.home.npcs[0];
            self.screen.show_note(&format!("you are with {npc} again"))?;
        }
        Ok(())
    }

    /// Closes the joined session. Its turns and memories stay.
    async fn close_joined_session(&mut self) -> anyhow::Result<bool> {
        let Some(joined) = self.joined.take() else {
            return Ok(false);
        };
        let close = json!({"type": "session.close", "event_id": "close", "session_id": joined.id});
        self.socket.send_event(&close).await?;
        Ok(true)
    }
}

async fn create_session(socket: &mut ChatSocket, options: &ChatOptions) -> anyhow::Result<Session> {
    socket
        .send_event(&json!({
            "type": "session.create",
            "event_id": "create",
            "world_id": options.world,
            "npc_id": options.npc,
            "player_id": options.player,
        }))
        .await?;
    loop {
        let event = socket.next_event().await?;
        match event_type(&event) {
            "session.created" => return Session::from_event(&event, vec![options.npc.to_string()]),
            "error" if event["re"] == "create" => bail!("{}", error_text(&event["error"])),
            _ => {}
        }
    }
}
