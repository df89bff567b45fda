//! `colloquy chat`: a terminal client over the WebSocket for trying a server without other tools. Lines may also come
//! from a pipe.

mod connection;
mod inspect;

use std::{
    io::{IsTerminal, Write},
    time::Duration,
};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};

use self::{connection::ChatSocket, inspect::Inspector};
use super::{banner::DEMO_PLAYER, block_on, token};
use crate::{
    app::demo,
    config::{Config, ListenAddress},
    ids::{NpcId, PlayerId, TenantId, WorldId},
    tenancy::{Role, auth::TokenClaims},
};

/// The `event_id` of interrupts.
const INTERRUPT_EVENT_ID: &str = "cut";
/// The maximum number of attempts for one line. `MAX_WAIT` is the longest pause between attempts.
const MAX_WAITS: usize = 20;
const MAX_WAIT: Duration = Duration::from_mins(1);
const TOKEN_LIFE: Duration = Duration::from_hours(24);

#[derive(Debug, clap::Args)]
pub(super) struct ChatArgs {
    /// The NPC to talk with.
    #[arg(long, default_value = demo::ENGLISH_NPC)]
    npc: NpcId,
    /// The player to speak as.
    #[arg(long, default_value = DEMO_PLAYER)]
    player: PlayerId,
    /// The world the NPC lives in.
    #[arg(long, default_value = demo::WORLD)]
    world: WorldId,
    /// The tenant the world belongs to.
    #[arg(long, default_value = demo::TENANT)]
    tenant: TenantId,
    /// The server's URL, such as http://127.0.0.1:8080. The default is the configured address.
    #[arg(long)]
    url: Option<String>,
    /// A player's token. Needed for a server whose secret is not in this configuration.
    #[arg(long, env = "COLLOQUY_TOKEN", hide_env_values = true)]
    token: Option<String>,
}

pub(super) fn run(args: &ChatArgs, config: &Config) -> anyhow::Result<()> {
    block_on(async {
        let base = base_url(args, config)?;
        let claims = |role, player: Option<PlayerId>| TokenClaims {
            sub: args.player.to_string(),
            tid: args.tenant.clone(),
            role,
            wid: player.as_ref().map(|_| args.world.clone()),
            pid: player,
        };
        let (token, backend) = match &args.token {
            Some(token) => (token.clone(), None),
            None => (
                token::sign_token(config, &claims(Role::Player, Some(args.player.clone())), TOKEN_LIFE)?,
                Some(token::sign_token(config, &claims(Role::Backend, None), TOKEN_LIFE)?),
            ),
        };
        let mut connection = ChatSocket::open_socket(&base, &token).await?;
        let session = create_session(&mut connection, args).await?;
        let inspector = Inspector::new(
            base,
            backend,
            (args.world.clone(), args.npc.clone(), args.player.clone()),
            session.clone(),
        )?;
        let mut chat = ChatClient {
            connection,
            inspector,
            npc: args.npc.to_string(),
            session,
            lines: BufReader::new(tokio::io::stdin()).lines(),
            interactive: std::io::stdin().is_terminal(),
            spoken: 0,
            leaving: false,
        };
        let ended = chat.run_conversation().await;
        if chat.leaving && ended.is_ok() {
            // A terminal read cannot be cancelled, and the runtime would wait for the read.
            std::process::exit(0);
        }
        ended
    })
}

fn base_url(args: &ChatArgs, config: &Config) -> anyhow::Result<String> {
    let base = if let Some(url) = &args.url {
        url.replacen("ws", "http", usize::from(url.starts_with("ws")))
    } else {
        let mut address = config
            .server
            .listen
            .parse::<ListenAddress>()
            .map_err(anyhow::Error::msg)?
            .0;
        if address.ip().is_unspecified() {
            address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
        }
        format!("http://{address}")
    };
    if !base.starts_with("http://") {
        bail!("--url must start with http:// or ws://; for TLS use a client that has it");
    }
    Ok(base.trim_end_matches("/v1/ws").trim_end_matches('/').to_owned())
}

async fn create_session(connection: &mut ChatSocket, args: &ChatArgs) -> anyhow::Result<String> {
    connection
        .send_event(&json!({
            "type": "session.create",
            "event_id": "create",
            "world_id": args.world,
            "npc_id": args.npc,
            "player_id": args.player,
        }))
        .await?;
    loop {
        let event = connection.next_event().await?;
        match event_type(&event) {
            "session.created" => {
                let id = event["session_id"].as_str().context("the server sent no session id")?;
                return Ok(id.to_owned());
            }
            "error" => bail!("{}", error_text(&event["error"])),
            _ => {}
        }
    }
}

/// The outcome of a line.
enum SayOutcome {
    Answered(bool),
    /// The server rejected the line and accepts it after this delay.
    TooSoon(Duration),
}

struct ChatClient {
    connection: ChatSocket,
    inspector: Inspector,
    npc: String,
    session: String,
    lines: Lines<BufReader<Stdin>>,
    interactive: bool,
    /// The number of lines sent.
    spoken: u64,
    /// True if Ctrl-C was pressed again while a reply was being cut.
    leaving: bool,
}

impl ChatClient {
    async fn run_conversation(&mut self) -> anyhow::Result<()> {
        if self.interactive {
            println!("You talk with {}. /help lists the commands, /quit ends.", self.npc);
        }
        let mut failed = false;
        while let Some(line) = self.next_line().await? {
            let line = line.trim();
            match line.split_whitespace().next() {
                None => {}
                Some("/quit" | "/exit") => break,
                Some("/help") => println!(
                    "/trace         why the last reply was what it was\n\
                     /facts [WORDS] what {} remembers, or finds for WORDS\n\
                     /quit          ends the session's conversation here; it can go on later\n\
                     Ctrl-C         cuts the running reply; here, or twice, it ends as /quit does",
                    self.npc
                ),
                Some("/trace") => self.print_inspection(|i| Box::pin(i.describe_last_turn())).await,
                Some("/facts") => {
                    let query = line["/facts".len()..].trim().to_owned();
                    self.print_inspection(move |i| Box::pin(i.describe_facts(query))).await;
                }
                Some(word) if word.starts_with('/') => println!("There is no command {word}; /help lists them."),
                Some(_) => failed = !self.say_with_retries(line).await?,
            }
            if self.leaving {
                break;
            }
        }
        self.connection.close_socket().await;
        if failed && !self.interactive {
            bail!("the last thing said was not answered");
        }
        Ok(())
    }

    /// Returns the next line, or `None` at the end of input or on Ctrl-C. Answers pings while waiting.
    async fn next_line(&mut self) -> anyhow::Result<Option<String>> {
        if self.interactive {
            print!("you> ");
            std::io::stdout().flush()?;
        }
        loop {
            tokio::select! {
                line = self.lines.next_line() => return Ok(line?),
                // After the first reply, the signal handler stays installed: Ctrl-C no longer ends the process by
                // itself.
                pressed = tokio::signal::ctrl_c() => {
                    pressed?;
                    println!();
                    self.leaving = true;
                    return Ok(None);
                }
                event = self.connection.next_event() => {
                    let event = event?;
                    if event_type(&event) == "server.draining" {
                        println!("\n(the server is shutting down)");
                    }
                }
            }
        }
    }

    /// Sends a line, and sends it again when the server asks to wait. Returns true if a reply came.
    async fn say_with_retries(&mut self, line: &str) -> anyhow::Result<bool> {
        for _ in 0..MAX_WAITS {
            match self.say_line(line).await? {
                SayOutcome::Answered(answered) => return Ok(answered),
                SayOutcome::TooSoon(wait) => {
                    println!(
                        "(too fast for this server; saying it again in {:.1} s)",
                        wait.as_secs_f64()
                    );
                    tokio::time::sleep(wait).await;
                }
            }
        }
        println!("(given up after {MAX_WAITS} tries)");
        Ok(false)
    }

    /// Sends a line and shows the reply as it streams, until its commit.
    async fn say_line(&mut self, line: &str) -> anyhow::Result<SayOutcome> {
        self.spoken += 1;
        let re = format!("say-{}", self.spoken);
        self.connection
            .send_event(&json!({
                "type": "player.say",
                "event_id": re,
                "session_id": self.session,
                "key": format!("{:032x}", rand::random::<u128>()),
                "text": line,
            }))
            .await?;
        let mut shown = 0;
        let mut cut = false;
        let mut outcome = None;
        loop {
            let event = tokio::select! {
                event = self.connection.next_event() => event?,
                pressed = tokio::signal::ctrl_c() => {
                    pressed?;
                    if cut {
                        println!();
                        self.leaving = true;
                        return Ok(SayOutcome::Answered(true));
                    }
                    cut = true;
                    self.connection
                        .send_event(&json!({
                            "type": "player.interrupt",
                            "event_id": INTERRUPT_EVENT_ID,
                            "session_id": self.session,
                        }))
                        .await?;
                    continue;
                }
            };
            match event_type(&event) {
                "reply.delta" => {
                    if shown == 0 {
                        print!("{}> ", self.npc);
                    }
                    let text = event["text"].as_str().unwrap_or_default();
                    shown += text.chars().count();
                    print!("{text}");
                    std::io::stdout().flush()?;
                }
                "reply.done" => {
                    let text = event["text"].as_str().unwrap_or_default();
                    if shown == 0 && !text.is_empty() {
                        print!("{}> ", self.npc);
                    }
                    let rest: String = text.chars().skip(shown).collect();
                    match event["status"].as_str() {
                        Some("completed") => println!("{rest}"),
                        Some("failed") => println!("\n(no reply: {})", error_text(&event["error"])),
                        _ => println!("{rest} -"),
                    }
                    outcome = Some(event["status"] == "completed");
                    if will_be_committed(&event) {
                        self.inspector.turn = event["turn"].as_u64();
                    } else {
                        return Ok(SayOutcome::Answered(false));
                    }
                }
                "turn.committed" => return Ok(SayOutcome::Answered(outcome.unwrap_or(true))),
                // No reply was running: either it had ended or it had not begun. The reply continues and may be cut
                // again.
                "error" if event["re"] == INTERRUPT_EVENT_ID => cut = false,
                // An error about an earlier line does not end this line.
                "error" if event["re"].as_str().is_some_and(|of| of != re) => {}
                "error" => {
                    if let Some(wait) = retry_delay(&event["error"]) {
                        return Ok(SayOutcome::TooSoon(wait));
                    }
                    println!("({})", error_text(&event["error"]));
                    return Ok(SayOutcome::Answered(false));
                }
                "session.closed" => bail!("the session was closed: {}", event["reason"]),
                _ => {}
            }
        }
    }

    /// Prints the inspector's result. A failure is printed too, and the conversation continues.
    async fn print_inspection<F>(&self, ask: F)
    where
        F: for<'a> FnOnce(&'a Inspector) -> std::pin::Pin<Box<dyn Future<Output = anyhow::Result<String>> + 'a>>,
    {
        match ask(&self.inspector).await {
            Ok(text) => println!("{}", text.trim_end()),
            Err(error) => println!("({error:#})"),
        }
    }
}

/// True if a `turn.committed` follows this `reply.done`. A turn that failed, or was cut before its first word, is not
/// committed.
fn will_be_committed(done: &Value) -> bool {
    match done["status"].as_str() {
        Some("failed") => false,
        Some("interrupted") => done["text"].as_str().is_some_and(|text| !text.is_empty()),
        _ => true,
    }
}

/// Returns how long to wait before sending the same line again; `None` if waiting does not help.
fn retry_delay(error: &Value) -> Option<Duration> {
    let millis = error["retry_after_ms"]
        .as_u64()
        .filter(|_| error["code"] == "rate_limited")?;
    Some(Duration::from_millis(millis).min(MAX_WAIT))
}

fn event_type(event: &Value) -> &str {
    event["type"].as_str().unwrap_or_default()
}

fn error_text(error: &Value) -> String {
    let message = error["message"].as_str().unwrap_or("unknown error");
    match error["code"].as_str() {
        Some(code) => format!("{message} [{code}]"),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chat_turn_ends_when_a_reply_is_cut_before_its_first_word() {
        assert!(!will_be_committed(&json!({"status": "interrupted", "text": ""})));
        assert!(!will_be_committed(&json!({"status": "failed", "text": ""})));
        assert!(will_be_committed(&json!({"status": "interrupted", "text": "Well"})));
        assert!(will_be_committed(&json!({"status": "completed", "text": ""})));
    }

    #[test]
    fn chat_retries_only_after_a_rate_limit() {
        let cases = [
            (json!({"code": "rate_limited", "retry_after_ms": 250}), Some(250)),
            (json!({"code": "rate_limited", "retry_after_ms": 900_000}), Some(60_000)),
            (json!({"code": "rate_limited"}), None),
            (json!({"code": "overloaded", "retry_after_ms": 250}), None),
        ];
        for (error, millis) in cases {
            assert_eq!(retry_delay(&error), millis.map(Duration::from_millis), "{error}");
        }
    }
}
