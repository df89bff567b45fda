//! Qdrant is killed in mid-load and comes back empty: turns go on, and in the end nothing is lost and nothing
//! is back that was taken back.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::{Data, QdrantProcess, Reply, Rest, Server, Socket, eventually, run};

const PLAYERS: [&str; 3] = ["p1", "p2", "p3"];
const BEFORE: [&str; 2] = ["grapes", "peaches"];
const DURING: [&str; 3] = ["apples", "cherries", "plums"];

struct Talk {
    player: &'static str,
    session: String,
    socket: Socket,
}

impl Talk {
    async fn begin(server: &Server, player: &'static str) -> Self {
        let mut socket = server.player(player).await;
        let session = socket.session("mira", player).await;
        Self {
            player,
            session,
            socket,
        }
    }

    async fn say(&mut self, line: &str) -> Reply {
        let reply = self.socket.say(&self.session, line).await;
        assert_eq!(reply.status, "completed", "{reply:?}");
        reply
    }

    async fn tells(&mut self, fruits: &[&str]) {
        for fruit in fruits {
            self.say(&format!("I like {fruit}.")).await;
        }
    }

    /// Asks, and says whether the answer was looked for in the ledger, and what was considered.
    async fn asks(&mut self, rest: &Rest) -> (bool, Vec<Value>) {
        let turn = self.say("What fruit do I like?").await.turn;
        let trace = rest
            .get(&format!("/v1/sessions/{}/turns/{turn}/trace", self.session))
            .await;
        let notes = trace["notes"].to_string();
        (
            notes.contains("by words alone, in the ledger"),
            trace["candidates"].as_array().unwrap().clone(),
        )
    }
}

async fn index_of(rest: &Rest) -> String {
    rest.get("/readyz").await["index"].as_str().unwrap().to_owned()
}

/// What a player likes, by what is valid in the ledger.
async fn likes(rest: &Rest, player: &str) -> Vec<&'static str> {
    let facts = rest.facts("mira").await;
    let own: Vec<&Value> = facts
        .iter()
        .filter(|fact| fact["invalid_at"].is_null() && fact.to_string().contains(&format!("player:{player}")))
        .collect();
    let all = BEFORE.into_iter().chain(DURING);
    all.filter(|fruit| own.iter().any(|fact| fact["content"].as_str().unwrap().contains(fruit)))
        .collect()
}

#[test]
fn nothing_is_lost_and_nothing_comes_back() {
    run(async {
        let mut qdrant = QdrantProcess::start();
        let data = Data::new(&[
            ("COLLOQUY__VECTORS__URL", &qdrant.url()),
            ("COLLOQUY__VECTORS__TIMEOUT_MS", "5000"),
            ("COLLOQUY__JOBS__POLL_S", "1"),
            ("COLLOQUY__JOBS__RETRY_BASE_S", "1"),
            ("COLLOQUY__ACTORS__SWEEP_S", "1"),
        ]);
        let server = data.spawn();
        let rest = server.backend();
        eventually("the index is ready", async || {
            (index_of(&rest).await == "ready").then_some(())
        })
        .await;
        let mut talks = join_all(PLAYERS.map(|player| Talk::begin(&server, player))).await;
        join_all(talks.iter_mut().map(|talk| talk.tells(&BEFORE))).await;
        for player in PLAYERS {
            eventually("it is learned", async || {
                (likes(&rest, player).await == BEFORE).then_some(())
            })
            .await;
        }

        // All at once.
        let load = join_all(talks.iter_mut().map(|talk| talk.tells(&DURING)));
        tokio::join!(load, async { qdrant.kill() });
        let (without_index, candidates) = talks[0].asks(&rest).await;
        assert!(without_index);
        assert!(
            candidates
                .iter()
                .any(|fact| fact["content"].to_string().contains("grapes")),
            "{candidates:?}"
        );
        assert_eq!(index_of(&rest).await, "away");
        // One of them takes back all but the first line.
        let path = format!("/v1/sessions/{}:rewind", talks[2].session);
        rest.post(&path, &json!({ "turn": 1, "key": "back" })).await;

        qdrant.restart();
        eventually("the index is ready again", async || {
            (index_of(&rest).await == "ready").then_some(())
        })
        .await;
        let all: Vec<&str> = BEFORE.into_iter().chain(DURING).collect();
        for (player, wanted) in [("p1", &all[..]), ("p2", &all[..]), ("p3", &BEFORE[..1])] {
            eventually(&format!("what {player} said is learned"), async || {
                (likes(&rest, player).await == wanted).then_some(())
            })
            .await;
        }
        let talk = &mut talks[1];
        assert_eq!(talk.player, "p2");
        let (without_index, candidates) = talk.asks(&rest).await;
        assert!(!without_index);
        assert!(
            candidates
                .iter()
                .any(|fact| fact["score"]["cosine"].as_f64() > Some(0.0)),
            "{candidates:?}"
        );
        server.stop();

        // Each fact is a point, and each point a fact.
        let checked = data.command().args(["reindex", "--check"]).output().unwrap();
        let said = String::from_utf8_lossy(&checked.stdout);
        assert!(checked.status.success(), "{checked:?}");
        assert!(said.contains("the index is what the ledger says"), "{said}");
    });
}
