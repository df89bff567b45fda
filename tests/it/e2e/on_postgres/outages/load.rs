//! Concurrent players. Each says one line after another, and repeats a line until acknowledged.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{sync::watch, task::JoinHandle};

use super::{LineRejection, eventually_after_outage, say, say_over_socket, session, standing_lines};
use crate::support::{RestClient, TestServer, TestSocket};

/// Every second player speaks over a socket, and the others over REST.
pub const PLAYERS: [&str; 4] = ["p1", "p2", "p3", "p4"];
/// The fruits that players like, one per line. Later lines teach no facts.
const FRUITS: [&str; 12] = [
    "grapes", "peaches", "apples", "cherries", "plums", "figs", "melons", "lemons", "mangoes", "papayas", "quinces",
    "olives",
];
/// The number of lines per player after the recovery.
pub const LINES: usize = 3;

pub struct Load {
    /// True after the recovery. The players then say a few more lines and stop.
    over: watch::Sender<bool>,
    talks: Vec<RunningTalk>,
}

struct RunningTalk {
    player: &'static str,
    session: String,
    counts: Arc<LineCounts>,
    /// The acknowledged lines.
    lines: JoinHandle<Vec<String>>,
}

#[derive(Default)]
struct LineCounts {
    acknowledged: AtomicUsize,
    refused: AtomicUsize,
}

/// The result of one player.
pub struct FinishedTalk {
    pub player: &'static str,
    pub session: String,
    /// The acknowledged lines, in order.
    pub acknowledged: Vec<String>,
    /// The number of refused attempts.
    pub refused: usize,
}

impl Load {
    /// Starts the load. `codes` are the allowed errors of a line.
    pub async fn start(server: &TestServer, codes: &'static [&'static str]) -> Self {
        let (over, is_over) = watch::channel(false);
        let mut talks = Vec::new();
        for (at, player) in PLAYERS.into_iter().enumerate() {
            let (session, mouth) = if at % 2 == 0 {
                let mut socket = server.player(player).await;
                let session = socket.session("mira", player).await;
                (session, SpeakingChannel::Socket(Box::new(socket)))
            } else {
                let rest = server.backend();
                (session(&rest, player).await, SpeakingChannel::Rest(rest))
            };
            let counts = Arc::new(LineCounts::default());
            let speaker = LoadSpeaker {
                player,
                session: session.clone(),
                mouth,
                codes,
                counts: counts.clone(),
            };
            talks.push(RunningTalk {
                player,
                session,
                counts,
                lines: tokio::spawn(speaker.talk(is_over.clone())),
            });
        }
        Self { over, talks }
    }

    /// Waits until every player has `lines` more acknowledged lines.
    pub async fn wait_for_lines(&self, lines: usize) {
        self.wait_for_each(lines, |counts| &counts.acknowledged).await;
    }

    /// Waits until every player has `times` more refusals.
    pub async fn wait_for_rejections(&self, times: usize) {
        self.wait_for_each(times, |counts| &counts.refused).await;
    }

    async fn wait_for_each(&self, more: usize, count: impl Fn(&LineCounts) -> &AtomicUsize) {
        let count = |talk: &RunningTalk| count(&talk.counts).load(Relaxed);
        let before: Vec<usize> = self.talks.iter().map(count).collect();
        eventually_after_outage("the load to go on", async || {
            let reached = self.talks.iter().zip(&before);
            let reached = reached.into_iter().all(|(talk, before)| count(talk) >= before + more);
            // A player who has stopped has failed. The error appears at the end.
            let failed = self.talks.iter().any(|talk| talk.lines.is_finished());
            (reached || failed).then_some(())
        })
        .await;
    }

    /// Lets every player say a few more lines, and returns the results.
    pub async fn end(self) -> Vec<FinishedTalk> {
        self.over.send_replace(true);
        let mut all = Vec::new();
        for talk in self.talks {
            all.push(FinishedTalk {
                player: talk.player,
                session: talk.session,
                acknowledged: talk.lines.await.unwrap(),
                refused: talk.counts.refused.load(Relaxed),
            });
        }
        all
    }
}

impl FinishedTalk {
    /// Asserts that exactly the acknowledged lines stand, once and in order.
    pub async fn assert_lines_stand(&self, rest: &RestClient) {
        assert_eq!(
            standing_lines(rest, &self.session).await,
            self.acknowledged,
            "{}",
            self.player
        );
    }

    /// Returns the fruits that can be learned from the lines.
    pub fn fruits(&self) -> &'static [&'static str] {
        &FRUITS[..self.acknowledged.len().min(FRUITS.len())]
    }
}

enum SpeakingChannel {
    Socket(Box<TestSocket>),
    Rest(RestClient),
}

struct LoadSpeaker {
    player: &'static str,
    session: String,
    mouth: SpeakingChannel,
    codes: &'static [&'static str],
    counts: Arc<LineCounts>,
}

impl LoadSpeaker {
    async fn talk(mut self, is_over: watch::Receiver<bool>) -> Vec<String> {
        let (mut acknowledged, mut after) = (Vec::new(), 0);
        while after < LINES {
            let number = acknowledged.len();
            let line = match FRUITS.get(number) {
                Some(fruit) => format!("I like {fruit}."),
                None => format!("This is line {number}."),
            };
            let over = *is_over.borrow();
            self.say_until_accepted(&format!("{}-{number}", self.player), &line)
                .await;
            acknowledged.push(line);
            after += usize::from(over);
        }
        acknowledged
    }

    /// Repeats the same line with the same key while refused, like a client.
    async fn say_until_accepted(&mut self, key: &str, line: &str) {
        let trying = async {
            while let Err(LineRejection { code, retry_after }) = self.say(key, line).await {
                assert!(self.codes.contains(&code.as_str()), "{key} was refused with {code}");
                let longest = Duration::from_secs(10);
                let told = retry_after.is_some_and(|wait| !wait.is_zero() && wait <= longest);
                // A retry of a broken reply may succeed at once.
                assert!(told || code == "model_failed", "{code}: {retry_after:?}");
                self.counts.refused.fetch_add(1, Relaxed);
                // Waits less than requested, so that requests never cease.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let said = tokio::time::timeout(Duration::from_mins(2), trying).await;
        said.unwrap_or_else(|_| panic!("{key} was never acknowledged"));
        self.counts.acknowledged.fetch_add(1, Relaxed);
    }

    async fn say(&mut self, key: &str, line: &str) -> Result<(), LineRejection> {
        match &mut self.mouth {
            SpeakingChannel::Socket(socket) => say_over_socket(socket, &self.session, key, line).await,
            SpeakingChannel::Rest(rest) => say(rest, &self.session, key, line).await,
        }
    }
}
