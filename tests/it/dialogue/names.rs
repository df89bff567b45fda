//! A person is found by every name. A question about "Anna" finds facts about "the player's sister", and the reverse.

use std::collections::BTreeSet;

use colloquy::{
    dialogue::recall,
    memory::{
        disclosure::audience::{Audience, Knower, Viewpoint},
        fact::{Cause, FactKind, Importance, NewFact, Polarity, Statement, Tense},
        trace::CandidateTrace,
    },
    ports::{clock::Clock as _, embedder::EmbedAs, llm::Task},
};
use serde_json::{Value, json};

use super::{Stage, statement, verdicts};
use crate::support::run;

/// Returns a statement of the player about another person.
fn fact_about(subject: &str, predicate: &str, object: &str, content: &str) -> Value {
    let mut fact = statement(predicate, object, content, "positive", &[]);
    fact["subject"] = json!(subject);
    fact["kind"] = json!("personal_info");
    fact
}

fn english_facts() -> Value {
    json!([
        fact_about(
            "the player's sister",
            "be named",
            "Anna",
            "The player's sister is called Anna."
        ),
        fact_about(
            "the player's sister",
            "keep",
            "bakery",
            "The player's sister keeps a bakery in Thornwick."
        ),
        fact_about("Anna", "move", "Oakford", "Anna has moved to Oakford."),
    ])
}

fn korean_facts() -> Value {
    json!([
        fact_about(
            "플레이어의 동생",
            "이름이다",
            "서연",
            "플레이어의 동생의 이름은 서연이다."
        ),
        fact_about(
            "플레이어의 동생",
            "운영하다",
            "빵집",
            "플레이어의 동생은 빵집을 운영한다."
        ),
        fact_about("서연", "이사하다", "부산", "서연은 부산으로 이사했다."),
    ])
}

/// Returns the candidate for a fact in a new session's first prompt; `None` if the fact was not considered.
async fn found_candidate(stage: &Stage, player: &str, line: &str, content: &str) -> Option<CandidateTrace> {
    let mut talk = stage.session(player).await;
    talk.say_line(line).await;
    let candidates = talk.trace(1).await.candidates;
    talk.rewind(0, None).await;
    candidates.into_iter().find(|candidate| candidate.content == content)
}

async fn is_found_by_words(stage: &Stage, player: &str, line: &str, content: &str) -> bool {
    let found = found_candidate(stage, player, line, content).await;
    found.is_some_and(|found| found.score.keyword > 0.2 && found.fate.is_in_prompt())
}

#[test]
fn person_is_found_by_any_name() {
    run(async {
        for (facts, cases) in [
            (
                english_facts(),
                [
                    (
                        "What do you know of Anna?",
                        "The player's sister keeps a bakery in Thornwick.",
                    ),
                    ("How is my sister?", "Anna has moved to Oakford."),
                ],
            ),
            (
                korean_facts(),
                [
                    ("서연이 요즘 뭐 하는지 알아?", "플레이어의 동생은 빵집을 운영한다."),
                    ("내 동생은 어떻게 지내?", "서연은 부산으로 이사했다."),
                ],
            ),
        ] {
            let stage = Stage::prepare().await;
            let mut talk = stage.session("p1").await;
            talk.say_and_learn("Listen.", &facts).await;
            for (line, content) in cases {
                assert!(is_found_by_words(&stage, "p1", line, content).await, "{line}");
            }
            // Here the NPC never learned the name.
            let stage = Stage::prepare().await;
            let mut talk = stage.session("p1").await;
            let unnamed = json!(facts.as_array().unwrap()[1..]);
            talk.say_and_learn("Listen.", &unnamed).await;
            for (line, content) in cases {
                assert!(!is_found_by_words(&stage, "p1", line, content).await, "{line}");
            }
        }
    });
}

#[test]
fn unsaid_name_finds_nothing() {
    run(async {
        let stage = Stage::prepare().await;
        let [name, bakery] = [0, 1].map(|nth| english_facts()[nth].clone());
        let mut talk = stage.session("p1").await;
        talk.say_and_learn("My sister keeps a bakery", &json!([bakery])).await;
        let mut other = stage.session("p1").await;
        other.say_and_learn("My sister is called Anna", &json!([name])).await;
        let (line, content) = (
            "What do you know of Anna?",
            "The player's sister keeps a bakery in Thornwick.",
        );
        assert!(is_found_by_words(&stage, "p1", line, content).await);
        other.rewind(0, None).await;
        assert!(!is_found_by_words(&stage, "p1", line, content).await);
    });
}

/// Writes a manual fact: "the crow" is Captain Vale.
async fn write_name(stage: &Stage, private_to: Option<&str>, locks: &str) {
    let statement = Statement {
        subject: "Captain Vale".to_owned(),
        predicate: "be named".to_owned(),
        object: "the crow".to_owned(),
        content: "Captain Vale is known as the crow.".to_owned(),
        keywords: vec![],
        speaker: "author".to_owned(),
        kind: FactKind::Profile,
        importance: Importance::DEFAULT,
        polarity: Polarity::Positive,
        tense: Tense::Present,
        pinned: false,
    };
    let text = statement.embedded_text();
    let embedding = stage
        .services
        .embedder
        .embed_texts(EmbedAs::Passage, &[text])
        .await
        .unwrap()
        .remove(0);
    let fact = NewFact {
        id: stage.services.ids.next_id(),
        world: stage.world.id.clone(),
        audience: Audience {
            knowers: BTreeSet::from([Knower::Npc(stage.npc.id.clone())]),
            private_to: private_to.map(|player| player.parse().unwrap()),
        },
        statement,
        valid_at: stage.clock.now(),
        locks: locks.parse().unwrap(),
        expires_at: None,
        cause: Cause::Edit(stage.services.ids.next_id()),
        source: None,
        derived_from: vec![],
        pii: vec![],
        authored: true,
        embedding,
    };
    let facts = &stage.services.ledger.facts;
    facts
        .create_fact(&stage.scope, &fact, false, &stage.edit("fact.create"))
        .await
        .unwrap();
}

const ASKS: &str = "Have you seen Captain Vale?";
const STOLE: &str = "The crow stole a silver ring.";

async fn learn_crow_facts(stage: &Stage) {
    let mut talk = stage.session("p1").await;
    talk.say_and_learn(
        "The crow stole a ring",
        &json!([fact_about("the crow", "steal", "silver ring", STOLE)]),
    )
    .await;
}

#[test]
fn name_hidden_from_a_player_neither_helps_nor_shows() {
    run(async {
        let untold = Stage::prepare().await;
        learn_crow_facts(&untold).await;
        let alone = found_candidate(&untold, "p1", ASKS, STOLE).await.unwrap();
        assert!(alone.score.keyword < 0.01, "{alone:?}");
        for (private_to, locks, helps) in [
            (None, "", true),
            (Some("p1"), "", true),
            (Some("p2"), "", false),
            (None, "scenario:mira/gone", false),
            (None, "hearers:p2", false),
        ] {
            let stage = Stage::prepare().await;
            learn_crow_facts(&stage).await;
            write_name(&stage, private_to, locks).await;
            let mut talk = stage.session("p1").await;
            talk.say_line(ASKS).await;
            let trace = talk.trace(1).await;
            let stole = trace
                .candidates
                .iter()
                .find(|candidate| candidate.content == STOLE)
                .unwrap();
            assert_eq!(stole.score.keyword > 0.2, helps, "{private_to:?} {locks}");
            if !helps {
                assert_eq!(stole.score.keyword.to_bits(), alone.score.keyword.to_bits());
                let shown = serde_json::to_string(&trace).unwrap();
                assert!(!shown.contains("known as the crow"), "{shown}");
            }
        }
    });
}

#[test]
fn designer_search_follows_the_person_too() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        talk.say_and_learn("Listen.", &english_facts()).await;
        let then = stage.clock.now();
        stage.clock.advance(std::time::Duration::from_hours(1));
        let mut other = stage.session("p2").await;
        let dog = fact_about("the player's dog", "be named", "Rex", "The player's dog is called Rex.");
        other.say_and_learn("My dog is called Rex", &json!([dog])).await;
        stage.clock.advance(std::time::Duration::from_hours(1));
        let all = stage.viewpoint();
        let as_p1 = Viewpoint {
            player: Some("p1".parse().unwrap()),
            sees_all_players: false,
            ..stage.viewpoint()
        };
        let (bakery, oakford) = (
            "The player's sister keeps a bakery in Thornwick.",
            "Anna has moved to Oakford.",
        );
        for (viewpoint, query, content, helps) in [
            (&all, "Anna", bakery, true),
            (&as_p1, "Anna", bakery, true),
            (&as_p1, "my sister", oakford, true),
            (&all, "my sister", oakford, false),
            (&as_p1, "Rex", bakery, false),
        ] {
            for at in [then, stage.clock.now()] {
                let searched =
                    recall::search_facts(&stage.services, &stage.scope, &stage.world, viewpoint, query, at, 20);
                let (hits, _) = searched.await.unwrap();
                let hit = hits.iter().find(|hit| hit.fact().view.content == content).unwrap();
                assert_eq!(hit.score.keyword > 0.2, helps, "{query} {at}");
            }
        }
    });
}

#[test]
fn move_reported_under_another_name_ends_the_old_home() {
    run(async {
        for (sister, name, home, moved, another) in [
            (
                "the player's sister",
                fact_about(
                    "the player's sister",
                    "be named",
                    "Anna",
                    "The player's sister is called Anna.",
                ),
                fact_about(
                    "the player's sister",
                    "live in",
                    "Oakford",
                    "The player's sister lives in Oakford.",
                ),
                fact_about("Anna", "move", "Greystone", "Anna has moved to Greystone."),
                fact_about("Anna", "work", "mill", "Anna works at the mill."),
            ),
            (
                "플레이어의 동생",
                fact_about(
                    "플레이어의 동생",
                    "이름이다",
                    "서연",
                    "플레이어의 동생의 이름은 서연이다.",
                ),
                fact_about("플레이어의 동생", "살다", "강마을", "플레이어의 동생은 강마을에 산다."),
                fact_about("서연", "이사하다", "부산", "서연이 부산으로 이사했다."),
                fact_about("서연", "일하다", "방앗간", "서연이 방앗간에서 일한다."),
            ),
        ] {
            for told_first in [json!([home, name]), json!([name, home])] {
                let stage = Stage::prepare().await;
                let mut talk = stage.session("p1").await;
                talk.say_and_learn("Of my family.", &told_first).await;
                talk.say_and_learn("She has work.", &json!([another])).await;
                assert!(stage.llm.prompts_of(Task::Judge).is_empty(), "{sister} works");
                stage.llm.queue_text(Task::Judge, verdicts("contradicts"));
                talk.say_and_learn("And a new home.", &json!([moved])).await;
                assert_eq!(stage.llm.prompts_of(Task::Judge).len(), 1);
                let home = home["content"].as_str().unwrap();
                assert!(!stage.valid_contents().await.contains(&home.to_owned()), "{home}");
                talk.rewind(2, None).await;
                assert!(stage.valid_contents().await.contains(&home.to_owned()), "{home}");
            }
        }
    });
}
