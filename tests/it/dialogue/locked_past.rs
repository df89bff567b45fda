//! An NPC's own past, from the prompt to the facts learned from the turn.

use std::sync::Arc;

use colloquy::{
    dialogue::{
        knowledge::scenarios,
        remember::{ManualFact, write_manual_fact},
        settings::DialogueSettings,
    },
    memory::{
        attributes::AttributeAuthor,
        authored::WorldSettings,
        disclosure::audience::{Audience, Knower},
        fact::{FactKind, Importance},
        progress::{Progress, UnlockRule, UnlockWhen},
        scenario::Scenario,
        trace::CandidateFate,
    },
    ports::{
        clock::Clock as _,
        ledger::authored::{DeleteOutcome, PutOutcome},
        llm::Task,
    },
};
use serde_json::{Value, json};

use super::{
    QueuedAnswer, Stage, TestDialogue, cuts::cut_and_resume, liking_fact, memory::shared_world_settings, statement,
    streamed_answer,
};
use crate::support::run;

const ASKS: &str = "What happened to your brother?";
const TELLS: &str = "My brother Anselm fell into the dry well.";

fn well_scenario(stage: &Stage, content: &str, required: u32) -> Scenario {
    Scenario {
        world: stage.world.id.clone(),
        npc: stage.npc.id.clone(),
        id: "well".parse().unwrap(),
        title: "The dry well".to_owned(),
        content: content.to_owned(),
        keywords: vec!["brother".to_owned()],
        synonyms: vec![],
        required_progress: Progress::new(required).unwrap(),
        when: vec![],
        tell: None,
        version: 0,
        updated_at: stage.clock.now(),
    }
}

async fn put_scenario(stage: &Stage, scenario: &Scenario, version: Option<u32>) -> Result<PutOutcome, String> {
    let edit = stage.edit("scenario.put");
    let written = scenarios::write_scenario(&stage.services, &stage.scope, scenario, version, &edit).await;
    written.map_err(|error| error.to_string())
}

/// Prepares a world that shares players' facts, and an NPC with a past that is open to p1 and p2. A past without
/// conditions would lock nothing.
async fn prepare_past() -> Stage {
    prepare_past_on(Stage::prepare_with(|_| {}, shared_world_settings()).await).await
}

async fn prepare_past_on(mut stage: Stage) -> Stage {
    let written = put_scenario(&stage, &well_scenario(&stage, TELLS, 1), None).await;
    assert_eq!(written, Ok(PutOutcome::Created));
    for player in ["p1", "p2"] {
        set_progress(&stage, player, 1).await;
    }
    stage.npc.has_scenarios = true;
    stage
}

/// Takes the condition of the past away.
async fn open_past_to_everybody(stage: &Stage) {
    let written = put_scenario(stage, &well_scenario(stage, TELLS, 0), Some(1)).await;
    assert_eq!(written, Ok(PutOutcome::Updated { version: 2 }));
}

/// Returns a statement of the NPC, as an extractor writes facts.
fn statement_of_npc(content: &str) -> Value {
    json!({
        "subject": "Mira", "predicate": "tells", "object": "", "content": content, "keywords": ["past"],
        "speaker": "Mira", "kind": "other", "importance": 5, "polarity": "positive", "tense": "past",
    })
}

/// Returns a promise of the NPC, as an extractor writes facts.
fn promise_of_npc(content: &str) -> Value {
    let mut promise = statement_of_npc(content);
    (promise["kind"], promise["tense"]) = (json!("goal"), json!("future"));
    promise
}

async fn set_progress(stage: &Stage, player: &str, to: u32) {
    let (player, to) = (player.parse().unwrap(), Progress::new(to).unwrap());
    let (of, edit) = ((&stage.world, &stage.npc), stage.edit("progress.put"));
    let set = scenarios::set_progress(&stage.services, &stage.scope, of, &player, to, &edit).await;
    assert!(set.unwrap());
}

async fn ask_about_past(talk: &mut TestDialogue<'_>, facts: &Value) {
    talk.stage.llm.queue_text(Task::Intent, "scenario");
    talk.say_and_learn(ASKS, facts).await;
}

#[test]
fn npc_statement_about_its_past_has_the_lock_of_its_scenario() {
    run(async {
        let stage = prepare_past().await;
        let mut talk = stage.session("p1").await;
        // The fact paraphrases the past and concerns another person.
        let paraphrase = statement_of_npc("Anselm drowned when he and Mira were children.");
        ask_about_past(&mut talk, &json!([paraphrase, liking_fact("plums", &["plum"])])).await;
        let later = statement_of_npc("Mira never went near the shaft afterwards.");
        // The question points back at the scenario that was just told.
        talk.say_and_learn("And then?", &json!([later])).await;
        let locks: Vec<String> = stage.facts().await.iter().map(|fact| fact.locks.to_string()).collect();
        assert_eq!(
            locks,
            ["scenario:mira/well", "", "scenario:mira/well"],
            "what players say of themselves is theirs"
        );
        let asks_of_it = "What of Anselm and the shaft, and of plums?";
        let told = async |player: &str| {
            let mut talk = stage.session(player).await;
            talk.say_line(asks_of_it).await;
            let context = stage.llm.last_context();
            ["drowned", "afterwards", "plums"].map(|word| context.contains(word))
        };
        assert_eq!(told("p2").await, [true; 3], "everybody may hear of it");
        // From now on the scenario requires progress.
        let written = put_scenario(&stage, &well_scenario(&stage, TELLS, 2), Some(1)).await;
        assert_eq!(written, Ok(PutOutcome::Updated { version: 2 }));
        assert_eq!(told("p2").await, [false, false, true]);
        let set = async |to| set_progress(&stage, "p2", to).await;
        set(2).await;
        assert_eq!(told("p2").await, [true; 3]);
        assert_eq!(
            told("p1").await,
            [false, false, true],
            "who was told of it lost it again"
        );
        set(1).await;
        assert_eq!(told("p2").await, [false, false, true]);
        // A fact about a deleted scenario stays locked.
        set(9).await;
        let (scenarios, edit) = (&stage.services.ledger.scenarios, stage.edit("scenario.delete"));
        let (npc, id) = (&stage.npc.id, "well".parse().unwrap());
        let gone = scenarios
            .delete_scenario(&stage.scope, &stage.world.id, npc, &id, None, &edit)
            .await;
        assert_eq!(gone.unwrap(), DeleteOutcome::Deleted);
        assert_eq!(told("p2").await, [false, false, true]);
    });
}

/// Returns which words are in a prompt without a search, and the dialogue's locks afterwards.
async fn small_talk_mentions<const N: usize>(stage: &Stage, player: &str, words: [&str; N]) -> ([bool; N], String) {
    stage.llm.queue_text(Task::Intent, "chat");
    let mut talk = stage.session(player).await;
    talk.say_line("Lovely weather.").await;
    let context = stage.llm.last_context();
    (
        words.map(|word| context.contains(word)),
        talk.trace(1).await.locks.to_string(),
    )
}

async fn assert_locked_promise_stands_where_open(stage: Stage) {
    let stage = prepare_past_on(stage).await;
    let mut talk = stage.session("p1").await;
    let promise = promise_of_npc("Mira promised the player a candle of beeswax.");
    ask_about_past(
        &mut talk,
        &json!([statement_of_npc("Anselm drowned long ago."), promise]),
    )
    .await;
    let mut other = stage.session("p2").await;
    // An unrelated promise gets the same lock, because the prompt had the past.
    let unrelated = promise_of_npc("Mira promised the player the corner room.");
    other.say_and_learn("What of Anselm?", &json!([unrelated])).await;
    for fact in stage.facts().await {
        assert_eq!(fact.locks.to_string(), "scenario:mira/well", "{fact:?}");
    }
    let words = ["beeswax", "corner room"];
    let locked = "scenario:mira/well".to_owned();
    assert_eq!(
        small_talk_mentions(&stage, "p1", words).await,
        ([true; 2], locked.clone())
    );
    // From now on the scenario requires progress.
    let written = put_scenario(&stage, &well_scenario(&stage, TELLS, 2), Some(1)).await;
    assert_eq!(written, Ok(PutOutcome::Updated { version: 2 }));
    assert_eq!(
        small_talk_mentions(&stage, "p1", words).await,
        ([false; 2], String::new())
    );
    set_progress(&stage, "p1", 2).await;
    assert_eq!(
        small_talk_mentions(&stage, "p1", words).await,
        ([true; 2], locked.clone())
    );
    assert_eq!(
        small_talk_mentions(&stage, "p2", words).await,
        ([false; 2], String::new())
    );
    // Later extractions still list the promise as open, also in the same dialogue.
    stage.llm.queue_text(Task::Intent, "chat");
    talk.say_and_learn("Lovely weather.", &json!([])).await;
    let asked = stage.llm.prompts_of(Task::Extraction).pop().unwrap();
    assert!(
        asked.contains("<open number=\"1\"") && asked.contains("beeswax"),
        "{asked}"
    );
    set_progress(&stage, "p1", 1).await;
    assert_eq!(
        small_talk_mentions(&stage, "p1", words).await,
        ([false; 2], String::new())
    );
    set_progress(&stage, "p1", 2).await;
    talk.rewind(0, None).await;
    assert_eq!(small_talk_mentions(&stage, "p1", words).await, ([false, true], locked));
}

#[test]
fn promise_made_after_the_past_stands_where_its_lock_is_open() {
    run(async {
        Box::pin(assert_locked_promise_stands_where_open(
            Stage::prepare_with(|_| {}, shared_world_settings()).await,
        ))
        .await;
    });
}

#[test]
fn promise_made_after_the_past_stands_where_its_lock_is_open_on_postgres() {
    run(async {
        Box::pin(assert_locked_promise_stands_where_open(
            Stage::prepare_on_postgres(|_| {}, shared_world_settings()).await,
        ))
        .await;
    });
}

#[test]
fn player_in_a_shared_world_does_not_pass_the_past_on() {
    run(async {
        let stage = prepare_past().await;
        let mut talk = stage.session("p1").await;
        stage
            .llm
            .queue_answer(Task::Reply, streamed_answer(&["Anselm drowned. Plums, you say?"]));
        ask_about_past(&mut talk, &json!([liking_fact("plums", &["plum"])])).await;
        let knows = |content: &str| statement("know", "", content, "positive", &[]);
        let told = [
            ("The player knows what Mira did.", true),
            ("The player thinks of Anselm at night.", true),
            ("The player knows that somebody drowned.", true),
            ("The player fears water.", false),
            ("The player will bring a cake of figs.", false),
        ];
        let facts: Vec<Value> = told.iter().map(|(content, _)| knows(content)).collect();
        stage
            .llm
            .queue_answer(Task::Reply, streamed_answer(&["I thank you for figs."]));
        talk.say_and_learn("I know what you did. I will bring you a cake of figs.", &json!(facts))
            .await;
        let facts = stage.facts().await;
        let locked = |content: &str| {
            let fact = facts.iter().find(|fact| fact.statement.content == content).unwrap();
            fact.locks.to_string()
        };
        for (content, is_locked) in told {
            let locks = if is_locked { "scenario:mira/well" } else { "" };
            assert_eq!(locked(content), locks, "{content}");
        }
        // From now on the scenario requires progress.
        let written = put_scenario(&stage, &well_scenario(&stage, TELLS, 2), Some(1)).await;
        assert_eq!(written, Ok(PutOutcome::Updated { version: 2 }));
        stage
            .session("p2")
            .await
            .say_line("Who knows of Anselm, of water and figs?")
            .await;
        let context = stage.llm.last_context();
        assert!(
            context.contains("fears water") && !context.contains("Anselm at night"),
            "{context}"
        );
    });
}

#[test]
fn lock_of_a_statement_depends_on_the_people_it_names() {
    run(async {
        let stage = prepare_past().await;
        let named = async |subject: &str, name: &str| {
            let fact = ManualFact {
                world: stage.world.id.clone(),
                audience: Audience {
                    knowers: [Knower::Npc(stage.npc.id.clone())].into(),
                    private_to: None,
                },
                subject: subject.to_owned(),
                predicate: "be named".to_owned(),
                object: name.to_owned(),
                content: format!("{subject} is called {name}."),
                keywords: vec![],
                kind: FactKind::Profile,
                importance: Importance::DEFAULT,
                pinned: false,
                valid_at: None,
            };
            let edit = stage.edit("fact.create");
            let written = write_manual_fact(&stage.services, &stage.scope, fact, &edit).await;
            written.unwrap();
        };
        named("Mira", "the Crow").await;
        named("player:p1's friend", "Mira").await;
        named("player:p1's sister", "Anna").await;
        let mut talk = stage.session("p1").await;
        let told = [
            ("Anna", "Anna fears water.", false),
            ("Clara", "Clara fears heights.", true),
            ("the player", "The player admires what the Crow did.", true),
            ("the player's friend", "She hides something.", true),
            ("the player's brother", "He sells figs.", false),
        ];
        let facts = told.map(|(subject, content, _)| {
            let mut fact = statement("tell", "", content, "positive", &[]);
            fact["subject"] = json!(subject);
            fact
        });
        ask_about_past(&mut talk, &json!(facts)).await;
        let facts = stage.facts().await;
        for (_, content, is_locked) in told {
            let fact = facts.iter().find(|fact| fact.statement.content == content).unwrap();
            let locks = if is_locked { "scenario:mira/well" } else { "" };
            assert_eq!(fact.locks.to_string(), locks, "{content}");
        }
    });
}

#[test]
fn greeting_reveals_no_past_unasked() {
    run(async {
        let stage = prepare_past().await;
        let mut talk = stage.session("p1").await;
        let mut promise = statement_of_npc("Mira promised the player to tell of Anselm again.");
        (promise["kind"], promise["tense"], promise["importance"]) = (json!("goal"), json!("future"), json!(9));
        ask_about_past(
            &mut talk,
            &json!([
                statement_of_npc("Anselm drowned when he and Mira were children."),
                promise
            ]),
        )
        .await;
        let greeted = async || {
            let mut talk = stage.session("p1").await;
            talk.say_line("").await;
            let prompt = stage.llm.prompts_of(Task::Reply).pop().unwrap();
            assert!(!prompt.contains("drowned"), "{prompt}");
            let locks = talk.trace(1).await.locks.to_string();
            talk.rewind(0, None).await;
            (prompt.contains("tell of Anselm again"), locks)
        };
        // While the past is open, the promise is in every prompt of the player.
        let open = (true, "scenario:mira/well".to_owned());
        assert_eq!(greeted().await, open);
        let written = put_scenario(&stage, &well_scenario(&stage, TELLS, 2), Some(1)).await;
        assert_eq!(written, Ok(PutOutcome::Updated { version: 2 }));
        assert_eq!(greeted().await, (false, String::new()));
        set_progress(&stage, "p1", 2).await;
        assert_eq!(greeted().await, open);
    });
}

#[test]
fn fact_of_a_note_has_the_lock_of_the_scenario_in_its_prompt() {
    run(async {
        let stage = prepare_past_on(Stage::prepare().await).await;
        let mut talk = stage.session("p1").await;
        // The reply itself tells nothing of the past.
        let block = json!({ "notes": ["I still blame the shaft."] });
        stage
            .llm
            .queue_text(Task::Reply, format!("Not today.\n```state\n{block}\n```"));
        ask_about_past(&mut talk, &json!([statement_of_npc("Mira blames the shaft.")])).await;
        let prompt = stage.llm.prompts_of(Task::Extraction).pop().unwrap();
        assert!(prompt.ends_with("<note>I still blame the shaft.</note>"), "{prompt}");
        let learned = stage.facts().await.pop().unwrap();
        assert_eq!(learned.locks.to_string(), "scenario:mira/well");
        assert!(learned.audience.private_to.is_some());
    });
}

#[test]
fn summary_of_the_past_is_used_where_its_lock_is_open() {
    run(async {
        let summarise = |settings: &mut DialogueSettings| settings.summaries.first_after_turns = 2;
        let stage = prepare_past_on(Stage::prepare_with(summarise, WorldSettings::default()).await).await;
        let digest = |text: &str| {
            let digest = json!({ "summary": text, "importance": 5 });
            stage.llm.queue_text(Task::Summary, digest.to_string());
        };
        let mut first = stage.session("p1").await;
        first.say_and_learn("Lovely weather.", &json!([])).await;
        digest("They spoke of salt.");
        first.say_and_learn("And bread?", &json!([])).await;
        let mut second = stage.session("p1").await;
        ask_about_past(&mut second, &json!([])).await;
        digest("Mira told of her brother in the shaft, on 2026-02-03.");
        second.say_and_learn("Poor Anselm.", &json!([])).await;
        let told = async || {
            let (_, locks) = small_talk_mentions(&stage, "p1", []).await;
            let prompt = stage.llm.prompts_of(Task::Reply).pop().unwrap();
            let words = ["brother in the shaft", "spoke of salt"];
            (words.map(|words| prompt.contains(words)), locks)
        };
        let locked = "scenario:mira/well".to_owned();
        assert_eq!(told().await, ([true, false], locked.clone()));
        // Facts learned in private are locked by their words, and are never told to others.
        let mut third = stage.session("p1").await;
        stage.llm.queue_text(Task::Intent, "chat");
        let facts = ["bakes until 2026-02-09", "dreams of the shaft", "had a brother"];
        let facts = facts.map(|does| statement_of_npc(&format!("Mira {does}.")));
        third.say_and_learn("Lovely weather.", &json!(facts)).await;
        let learned: Vec<(String, bool)> = stage
            .facts()
            .await
            .iter()
            .map(|fact| {
                assert!(fact.audience.private_to.is_some(), "{fact:?}");
                (fact.view.content.clone(), fact.locks.is_empty())
            })
            .collect();
        let is_free = |content: &str| learned.iter().find(|(learned, _)| learned == content).unwrap().1;
        assert!(is_free("Mira bakes until 2026-02-09."));
        assert!(!is_free("Mira dreams of the shaft.") && !is_free("Mira had a brother."));
        // Locked text in the dialogue also locks facts learned later.
        stage.llm.queue_text(Task::Reply, "He fell into the shaft.");
        third.say_and_learn("What of him?", &json!([])).await;
        third
            .say_and_learn("Lovely weather.", &json!([statement_of_npc("Mira sings on Mondays.")]))
            .await;
        let sings = stage
            .facts()
            .await
            .into_iter()
            .find(|fact| fact.view.content.contains("sings"));
        assert_eq!(sings.unwrap().locks.to_string(), locked);
        third.rewind(0, None).await;
        let written = put_scenario(&stage, &well_scenario(&stage, TELLS, 2), Some(1)).await;
        assert_eq!(written, Ok(PutOutcome::Updated { version: 2 }));
        assert_eq!(told().await, ([false, true], String::new()));
        set_progress(&stage, "p1", 2).await;
        assert_eq!(told().await, ([true, false], locked));
    });
}

#[test]
fn fact_that_rests_on_a_locked_fact_is_locked_too() {
    run(async {
        let stage = prepare_past().await;
        let mut talk = stage.session("p1").await;
        ask_about_past(
            &mut talk,
            &json!([statement_of_npc("Anselm drowned when he and Mira were children.")]),
        )
        .await;
        // This session of another player has only a memory that rests on the past.
        let mut other = stage.session("p2").await;
        other
            .say_and_learn(
                "What of Anselm?",
                &json!([statement_of_npc("Mira keeps Anselm's cap under her pillow.")]),
            )
            .await;
        let cap = stage.facts().await.pop().unwrap();
        assert_eq!(cap.locks.to_string(), "scenario:mira/well");
        assert_eq!(other.trace(1).await.locks, cap.locks);
        // A rewind also removes the lock.
        other.rewind(0, None).await;
        let mut again = stage.session("p3").await;
        stage.llm.queue_text(Task::Intent, "chat");
        again
            .say_and_learn("Good day!", &json!([statement_of_npc("Mira bakes on Fridays.")]))
            .await;
        assert!(stage.facts().await.pop().unwrap().locks.is_empty());
    });
}

#[test]
fn continued_reply_has_the_locks_of_its_beginning() {
    run(async {
        let stage = prepare_past().await;
        let mut talk = stage.session("p1").await;
        talk.say_and_learn("I like plums", &json!([liking_fact("plums", &["plum"])]))
            .await;
        stage.llm.queue_text(Task::Intent, "scenario");
        let begins = ["Anselm ", "drowned ", "when we were"].map(str::to_owned);
        stage
            .llm
            .queue_answer(Task::Reply, QueuedAnswer::Silent(begins.to_vec()));
        let unfinished = cut_and_resume(&mut talk, ASKS, 3, None).await;
        // The prompt for the rest has nothing of the past: the line names no scenario any more.
        let mut unnamed = well_scenario(&stage, TELLS, 0);
        unnamed.keywords.clear();
        assert_eq!(
            put_scenario(&stage, &unnamed, Some(1)).await,
            Ok(PutOutcome::Updated { version: 2 })
        );
        stage.llm.queue_text(Task::Intent, "chat");
        stage.llm.queue_answer(Task::Reply, streamed_answer(&["children."]));
        let drowned = statement_of_npc("Anselm drowned when he and Mira were children.");
        let answer = json!({ "facts": [drowned] }).to_string();
        stage.llm.queue_text(Task::Extraction, answer);
        let mut input = talk.turn_input(ASKS).await;
        input.continuation = Some(Arc::new(unfinished));
        let committed = talk.run_turn(input, false).await.unwrap();
        let trace = talk.trace(2).await;
        assert!(trace.scenarios.is_empty(), "{:?}", trace.scenarios);
        for job in &committed.jobs {
            stage.run_job(job).await.unwrap();
        }
        let learned = stage.facts().await.pop().unwrap();
        for locks in [trace.locks, committed.checkpoint.locks.unwrap(), learned.locks] {
            assert_eq!(locks.to_string(), "scenario:mira/well");
        }
        assert!(committed.checkpoint.confided.is_some(), "what was private is known");
    });
}

#[test]
fn dialogue_with_unknown_prompt_contents_has_all_locks() {
    run(async {
        let stage = prepare_past().await;
        open_past_to_everybody(&stage).await;
        let learned = async || {
            let mut talk = stage.session("p1").await;
            stage.llm.queue_text(Task::Intent, "chat");
            talk.say_line("Good day!").await;
            // Older builds wrote checkpoints without locks.
            talk.open.checkpoint.locks = None;
            for content in ["Mira bakes on Fridays.", "Mira sells pies at noon."] {
                stage.llm.queue_text(Task::Intent, "chat");
                talk.say_and_learn("And else?", &json!([statement_of_npc(content)]))
                    .await;
            }
            let facts = stage.facts().await.into_iter().rev().take(2);
            facts.map(|fact| fact.locks.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(learned().await, [""; 2], "everybody may hear of her past");
        let written = put_scenario(&stage, &well_scenario(&stage, TELLS, 2), Some(2)).await;
        assert_eq!(written, Ok(PutOutcome::Updated { version: 3 }));
        assert_eq!(learned().await, ["scenario:mira/well"; 2]);
    });
}

#[test]
fn learned_facts_have_the_locks_of_their_prompt() {
    run(async {
        let stage = prepare_past().await;
        open_past_to_everybody(&stage).await;
        let mut talk = stage.session("p1").await;
        stage.llm.queue_text(Task::Intent, "scenario");
        let committed = talk.say_line(ASKS).await;
        let trace = talk.trace(1).await;
        let traced = &trace.scenarios[0];
        assert_eq!(traced.fate, CandidateFate::Used);
        assert_eq!(traced.shown_text.as_deref(), Some(&*format!("The dry well: {TELLS}")));
        // The scenario is rewritten and locked before the turn's extraction.
        let anew = well_scenario(&stage, "My brother Bertram is a murderer.", 9);
        assert_eq!(
            put_scenario(&stage, &anew, Some(2)).await,
            Ok(PutOutcome::Updated { version: 3 })
        );
        for job in &committed.jobs {
            stage.run_job(job).await.unwrap();
        }
        talk.say_and_learn("And then?", &json!([])).await;
        let asked = stage.llm.prompts_of(Task::Extraction);
        let known = format!("<known>Mira's past: The dry well: {TELLS}</known>");
        assert!(asked[0].contains(&known) && !asked[1].contains("Anselm"), "{asked:?}");
        assert!(asked.iter().all(|prompt| !prompt.contains("Bertram")), "{asked:?}");
    });
}

#[test]
fn rejected_scenario_is_not_embedded() {
    run(async {
        let stage = prepare_past().await;
        stage.break_embedder(true);
        let mut of_nobody = well_scenario(&stage, TELLS, 0);
        of_nobody.npc = "nobody".parse().unwrap();
        assert_eq!(put_scenario(&stage, &of_nobody, None).await, Ok(PutOutcome::NoParent));
        let outdated = put_scenario(&stage, &well_scenario(&stage, TELLS, 0), Some(7)).await;
        assert_eq!(outdated, Ok(PutOutcome::VersionMismatch { stored: 1 }));
        assert!(
            put_scenario(&stage, &well_scenario(&stage, TELLS, 0), None)
                .await
                .is_err()
        );
    });
}

#[test]
fn backend_progress_set_last_counts_whatever_its_clock() {
    run(async {
        let stage = prepare_past().await;
        let player = "p1".parse().unwrap();
        let set = async |to, ago| {
            let mut edit = stage.edit("progress.put");
            edit.made_at -= std::time::Duration::from_secs(ago);
            let (of, to) = ((&stage.world, &stage.npc), Progress::new(to).unwrap());
            let set = scenarios::set_progress(&stage.services, &stage.scope, of, &player, to, &edit).await;
            assert!(set.unwrap());
            let (world, npc) = of;
            let standing = scenarios::player_standing(&stage.services, &stage.scope, world, npc, &player).await;
            standing.unwrap().backend_progress().get()
        };
        assert_eq!(set(3, 0).await, 3);
        assert_eq!(set(1, 5).await, 1, "another node's clock is behind");
        assert_eq!(set(2, 4).await, 2);
    });
}

#[test]
fn rules_of_a_world_hold_for_npcs_with_settings() {
    run(async {
        let mut stage = prepare_past().await;
        let rule = |progress| UnlockRule {
            npc: "mira".parse().unwrap(),
            progress: Progress::new(progress).unwrap(),
            when: UnlockWhen::Item { item: "key".to_owned() },
        };
        stage.world.settings.unlocks = Some(vec![rule(1)]);
        stage.world.settings.changed_by = Some([("key".to_owned(), AttributeAuthor::Replies)].into());
        stage.npc.settings.gossip = Some(true);
        stage.world = Arc::unwrap_or_clone(Arc::new(stage.world.clone()).for_npc(&stage.npc));
        let mut talk = stage.session("p1").await;
        stage
            .llm
            .queue_text(Task::Reply, "Take it.\n~~~state\n{\"items_gained\": [\"key\"]}\n~~~");
        talk.say_line("May I have the key?").await;
        let (player, npc) = ("p1".parse().unwrap(), &stage.npc);
        let standing = scenarios::player_standing(&stage.services, &stage.scope, &stage.world, npc, &player).await;
        assert_eq!(standing.unwrap().progress().get(), 1);
    });
}
