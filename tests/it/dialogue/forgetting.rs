//! Requests to forget: which facts end, whose facts, and the fate of late jobs.

use std::time::Duration;

use colloquy::{
    dialogue::{
        jobs, preview,
        remember::{self, FactCorrection},
        settings::DialogueSettings,
    },
    memory::{
        authored::{Language, WorldSettings},
        fact::InvalidReason,
    },
    ports::{
        clock::Clock as _,
        ledger::{
            facts::FactEditOutcome,
            jobs::{JobFailure, JobRetry},
        },
        llm::Task,
    },
};
use serde_json::json;

use super::{
    Stage, TestDialogue,
    episodes::stored_episodes,
    liking_fact,
    memory::{hating_fact, shared_world_settings},
    statement, verdicts,
};
use crate::support::run;

#[test]
fn player_in_a_shared_world_speaks_only_for_itself() {
    run(async {
        let stage = Stage::prepare_with(|_| {}, shared_world_settings()).await;
        let sister = |content: &str| {
            let mut fact = statement("like", "tea", content, "positive", &["drink"]);
            fact["subject"] = json!("the player's sister");
            fact
        };
        let facts = json!([
            liking_fact("grapes", &["fruit"]),
            sister("The player's sister likes tea.")
        ]);
        stage.session("p1").await.say_and_learn("I like grapes", &facts).await;

        // The same words of another player are another fact, and do not end the first player's facts.
        let mut second = stage.session("p2").await;
        second.say_and_learn("So do I", &facts).await;
        assert_eq!(stage.valid_contents().await.len(), 4);
        second.say_and_learn("No more grapes", &json!([hating_fact()])).await;
        assert!(
            stage
                .llm
                .prompts_of(Task::Judge)
                .iter()
                .all(|prompt| !prompt.contains("player:")),
            "models read plain words"
        );
        let subjects = |facts: Vec<colloquy::memory::fact::Fact>| {
            let mut subjects: Vec<String> = facts.into_iter().map(|fact| fact.statement.subject).collect();
            subjects.sort();
            subjects.dedup();
            subjects
        };
        assert_eq!(
            subjects(stage.facts().await),
            ["player:p1", "player:p1's sister", "player:p2", "player:p2's sister"]
        );

        // "Forget that" concerns only the speaker's facts.
        let committed = second.say_line("Forget that I like grapes").await;
        stage.llm.queue_text(
            Task::Extraction,
            json!({ "facts": [], "forget": ["The player likes grapes."] }).to_string(),
        );
        stage.run_job(&committed.jobs[0]).await.unwrap();
        let valid = |facts: Vec<colloquy::memory::fact::Fact>, subject: &str| {
            facts
                .into_iter()
                .filter(|fact| fact.invalid.is_none() && fact.statement.subject == subject)
                .count()
        };
        assert_eq!(valid(stage.facts().await, "player:p1"), 1, "another's stays");
        assert!(
            stage.facts().await.iter().any(|fact| {
                fact.statement.subject == "player:p2"
                    && fact
                        .invalid
                        .as_ref()
                        .is_some_and(|invalid| invalid.reason == InvalidReason::Forgotten)
            }),
            "the speaker's own goes"
        );

        // The session's player reads as "the player", and other players by name.
        stage.session("p1").await.say_line("Which fruit do I like?").await;
        let context = stage.llm.last_context();
        assert!(
            context.contains("] The player says: The player likes grapes."),
            "{context}"
        );
        stage.session("p3").await.say_line("Which fruit do I like?").await;
        let context = stage.llm.last_context();
        assert!(
            context.contains("] Player p1 says: (about another player, p1) The player likes grapes."),
            "{context}"
        );
        assert!(!context.contains("] The player says: "), "{context}");
    });
}

#[test]
fn player_may_have_a_fact_forgotten() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        let facts = json!([liking_fact("grapes", &["fruit"]), liking_fact("tea", &["drink"])]);
        talk.say_and_learn("I like grapes and tea", &facts).await;
        let committed = talk.say_line("Forget that I like grapes").await;
        let episode = json!({ "text": "The player asked Mira to forget something.", "importance": 8 });
        let learned = json!({ "facts": [], "forget": ["The player likes grapes."], "episode": episode });
        stage.llm.queue_text(Task::Extraction, learned.to_string());
        stage.run_job(&committed.jobs[0]).await.unwrap();
        assert_eq!(stage.valid_contents().await, ["The player likes tea."]);
        let episodes = stored_episodes(&stage, committed.turn.id).await;
        let rated: Vec<u8> = episodes.iter().map(|episode| episode.importance.get()).collect();
        assert_eq!(rated, [2], "the request is no event");
        let forgotten = stage
            .facts()
            .await
            .into_iter()
            .find(|fact| fact.invalid.is_some())
            .unwrap();
        assert_eq!(forgotten.invalid.unwrap().reason, InvalidReason::Forgotten);
    });
}

#[test]
fn npc_statement_of_a_forgotten_fact_is_forgotten_too() {
    run(async {
        let stage = Stage::prepare().await;
        let knee = "The player's left knee aches.";
        let sale = "Mira sold the player a jar of comfrey salve for the player's knee.";
        let bread = "Mira sold the player a loaf of dark bread.";
        let by_mira = |object: &str, content: &str| {
            let mut fact = statement("sell", object, content, "positive", &["sale"]);
            for part in ["subject", "speaker"] {
                fact[part] = json!("Mira");
            }
            fact["kind"] = json!("event");
            fact
        };
        let told = json!([
            statement("ache", "left knee", knee, "positive", &["health"]),
            by_mira("comfrey salve", sale),
            by_mira("dark bread", bread),
        ]);
        let mut other = stage.session("p2").await;
        other.say_and_learn("My knee aches", &told).await;
        let mut talk = stage.session("p1").await;
        talk.say_and_learn("My knee aches", &told).await;
        let committed = talk.say_line("Forget what I told you about my knee").await;
        let forget = json!({ "facts": [], "forget": [knee, sale] }).to_string();
        stage.llm.queue_text(Task::Extraction, forget);
        stage.run_job(&committed.jobs[0]).await.unwrap();
        let mut valid = stage.valid_contents().await;
        valid.sort();
        assert_eq!(valid, [sale, bread, bread, knee], "the other player's stay");
        talk.say_line("Which of my legs hurts?").await;
        let context = stage.llm.last_context();
        assert!(!context.contains("knee"), "{context}");
    });
}

#[test]
fn forgotten_fact_does_not_return_with_a_late_job() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        let first = talk.say_line("I like grapes and tea").await;
        stage.clock.advance(Duration::from_mins(1));
        let second = talk.say_line("Forget that I like grapes").await;
        stage.clock.advance(Duration::from_mins(1));
        // The answer breaks off twice within the facts. The request to forget is complete.
        let broken = r#"{"facts": [{"subject": "player", "content": "The pl, "forget": ["The player likes grapes."]"#;
        for _ in 0..2 {
            stage.llm.queue_text(Task::Extraction, broken);
        }
        stage.run_job(&second.jobs[0]).await.unwrap();
        talk.say_and_learn("I like grapes after all", &json!([liking_fact("grapes", &["fruit"])]))
            .await;
        let facts = json!({ "facts": [liking_fact("grapes", &["fruit"]), liking_fact("tea", &["drink"])] });
        stage.llm.queue_text(Task::Extraction, facts.to_string());
        let report = stage.run_job(&first.jobs[0]).await.unwrap();
        let told: Vec<&str> = report.memory.iter().map(|change| change.content.as_str()).collect();
        assert_eq!(told, ["The player likes tea."]);
        let mut valid = stage.valid_contents().await;
        valid.sort();
        assert_eq!(
            valid,
            ["The player likes grapes.", "The player likes tea."],
            "what was said after the request stands"
        );
        let late = stage.facts().await;
        let late = late
            .iter()
            .find(|fact| fact.source.unwrap().1 == 1 && fact.invalid.is_some())
            .unwrap();
        assert!(late.valid_at < late.invalid.as_ref().unwrap().ended_at);
    });
}

#[test]
fn dead_job_succeeds_on_retry() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        let first = talk.say_line("I like grapes and tea").await;
        for _ in 0..2 {
            stage.llm.queue_text(Task::Extraction, "Of course! What a nice turn.");
        }
        let error = stage.run_job(&first.jobs[0]).await.unwrap_err();
        assert!(matches!(error, jobs::JobError::Unusable(_)), "{error}");
        let queue = &stage.services.ledger.jobs;
        queue
            .fail_job(
                &stage.scope,
                first.jobs[0].id,
                stage.node,
                "prose",
                JobFailure::Dead,
                &[],
            )
            .await
            .unwrap();
        stage.clock.advance(Duration::from_hours(30));
        talk.say_and_learn("No more grapes", &json!([hating_fact()])).await;

        let edit = stage.edit("job.retry");
        let retried = queue
            .retry_dead_job(&stage.scope, first.jobs[0].id, &edit)
            .await
            .unwrap();
        assert!(matches!(retried, JobRetry::Done(_)), "{retried:?}");
        let (now, node) = (stage.clock.now(), stage.services.ids.next_id());
        let leased = queue
            .lease_due_jobs(&stage.scope, node, now, now + Duration::from_mins(1), 9)
            .await
            .unwrap();
        assert_eq!(leased.iter().map(|job| job.turn).collect::<Vec<_>>(), [first.turn.id]);
        stage.llm.queue_text(Task::Judge, verdicts("contradicts"));
        // The tea has another kind, so that the judge is asked about the grapes alone.
        let mut tea = liking_fact("tea", &["drink"]);
        tea["kind"] = json!("note");
        let facts = json!({ "facts": [liking_fact("grapes", &["fruit"]), tea] });
        stage.llm.queue_text(Task::Extraction, facts.to_string());
        stage.run_job(&leased[0]).await.unwrap();
        let mut valid = stage.valid_contents().await;
        valid.sort();
        assert_eq!(
            valid,
            [
                "The player likes grapes no longer, since the harvest.",
                "The player likes tea."
            ]
        );
    });
}

#[test]
fn forget_request_reaches_late_facts_and_no_others() {
    run(async {
        let stage = Stage::prepare().await;
        let (mut talk, mut other) = (stage.session("p1").await, stage.session("p2").await);
        let (first, theirs) = (
            talk.say_line("I like grapes").await,
            other.say_line("I like grapes").await,
        );
        stage.clock.advance(Duration::from_mins(1));
        let second = talk.say_line("Forget that I like grapes").await;
        let forget = json!({ "forget": ["The player likes grapes."], "facts": [] }).to_string();
        stage.llm.queue_text(Task::Extraction, forget);
        stage.run_job(&second.jobs[0]).await.unwrap();
        for (job, stands) in [(&first.jobs[0], 0), (&theirs.jobs[0], 1)] {
            let facts = json!({ "facts": [liking_fact("grapes", &["fruit"])] }).to_string();
            stage.llm.queue_text(Task::Extraction, facts);
            assert_eq!(stage.run_job(job).await.unwrap().memory.len(), stands);
        }
        let forgotten = stage.facts().await.remove(0).invalid.unwrap();
        assert_eq!(
            (forgotten.reason, forgotten.ended_at),
            (InvalidReason::Forgotten, second.turn.committed_at)
        );
    });
}

async fn assert_summary_omits_forgotten_fact(on: impl AsyncFn(fn(&mut DialogueSettings)) -> Stage) {
    let stage = on(|settings| {
        settings.summaries.first_after_turns = 2;
        settings.summaries.then_every_turns = 3;
        // The history no longer has the first turn of the summary.
        settings.summaries.buffer_min_turns = 1;
    })
    .await;
    let knee = "The player broke a knee at the mill.";
    let digest = "The player told of a knee broken at the mill. They agreed to meet on Friday.";
    let digest = json!({ "summary": digest, "importance": 5 }).to_string();
    stage.llm.queue_text(Task::Summary, digest);
    let mut talk = stage.session("p1").await;
    let broken = statement("break", "a knee", knee, "positive", &["knee"]);
    talk.say_and_learn("I broke a knee at the mill.", &json!([broken]))
        .await;
    talk.say_and_learn("Fine bread.", &json!([])).await;
    let told = async |talk: &mut TestDialogue<'_>| {
        stage.llm.queue_text(Task::Intent, "chat");
        talk.say_and_learn("Lovely weather.", &json!([])).await;
        let prompt = stage.llm.prompts_of(Task::Reply).pop().unwrap();
        let (_, earlier) = prompt
            .rsplit_once("[Earlier in this conversation, in short]\n")
            .unwrap();
        let earlier = earlier.lines().next().unwrap();
        ["told of a knee", "meet on Friday"].map(|words| earlier.contains(words))
    };
    assert_eq!(told(&mut talk).await, [true; 2]);
    let committed = talk.say_line("Forget that I broke a knee at the mill.").await;
    let answer = json!({ "facts": [], "forget": [knee] }).to_string();
    stage.llm.queue_text(Task::Extraction, answer);
    stage.run_job(&committed.jobs[0]).await.unwrap();
    assert_eq!(stage.valid_contents().await, [""; 0]);
    // The prompt of the next summary, made after this turn, omits the fact as well.
    stage.llm.take_requests();
    assert_eq!(told(&mut talk).await, [false, true]);
    let summarised = stage.llm.prompts_of(Task::Summary).pop().unwrap();
    assert!(
        !summarised.contains("told of a knee") && summarised.contains("meet on Friday"),
        "{summarised}"
    );
    // A rewind of the request restores the summary's text.
    talk.rewind(3, None).await;
    let preview = preview::preview_prompt(
        &stage.services,
        &talk.turn_input("Lovely weather.").await,
        preview::IntentSource::Assumed,
    )
    .await;
    let messages = preview.unwrap().messages;
    assert!(
        messages
            .iter()
            .any(|message| message.content.contains("] The player told of a knee")),
        "{messages:?}"
    );
}

#[test]
fn forgotten_fact_is_omitted_by_a_summary() {
    run(async {
        let on = async |change: fn(&mut DialogueSettings)| Stage::prepare_with(change, WorldSettings::default()).await;
        Box::pin(assert_summary_omits_forgotten_fact(on)).await;
    });
}

#[test]
fn forgotten_fact_is_omitted_by_a_summary_on_postgres() {
    run(async {
        let on = async |change: fn(&mut DialogueSettings)| {
            Stage::prepare_on_postgres(change, WorldSettings::default()).await
        };
        Box::pin(assert_summary_omits_forgotten_fact(on)).await;
    });
}

#[test]
fn old_words_of_a_corrected_fact_are_masked_for_a_later_summary() {
    run(async {
        let settings = |settings: &mut DialogueSettings| settings.summaries.first_after_turns = 3;
        let stage = Stage::prepare_with(settings, WorldSettings::default()).await;
        let mut talk = stage.session("p1").await;
        let mut lives = statement(
            "live in",
            "Oakford",
            "The player's sister lives in Oakford.",
            "positive",
            &["home"],
        );
        lives["subject"] = json!("the player's sister");
        talk.say_and_learn("My sister lives in Oakford.", &json!([lives])).await;
        let correction = FactCorrection {
            content: Some("The player's sister lives in Greystone.".to_owned()),
            ..FactCorrection::default()
        };
        let (fact, edit) = (stage.facts().await.remove(0), stage.edit("fact.edit"));
        let done = remember::correct_fact(&stage.services, &stage.scope, fact.id, correction, None, &edit).await;
        assert!(matches!(done.unwrap(), FactEditOutcome::Done(_)));
        stage.clock.advance(Duration::from_mins(1));
        talk.say_and_learn("Fine bread.", &json!([])).await;
        let answer = json!({ "summary": "They spoke of bread.", "importance": 5 });
        stage.llm.queue_text(Task::Summary, answer.to_string());
        talk.say_and_learn("Lovely weather.", &json!([])).await;
        let prompt = stage.llm.prompts_of(Task::Summary).pop().unwrap();
        assert!(
            !prompt.contains("Oakford") && prompt.contains("<player>…</player>"),
            "{prompt}"
        );
        assert!(prompt.contains("<player>Fine bread.</player>"), "{prompt}");
    });
}

#[test]
fn forgotten_fact_is_omitted_by_a_later_summary() {
    run(async {
        for (language, knee, request, digest, left) in [
            (
                Language::En,
                "The player broke a knee at the mill.",
                "Forget that I broke a knee at the mill.",
                "The player broke a knee at the mill, and asked to have that forgotten. They spoke of the weather.",
                "They spoke of the weather.",
            ),
            (
                Language::Ko,
                "플레이어는 방앗간에서 무릎을 다쳤다.",
                "방앗간에서 무릎을 다쳤다는 건 잊어 줘.",
                "플레이어는 방앗간에서 무릎을 다쳤다고 했다. 둘은 날씨 이야기를 했다.",
                "둘은 날씨 이야기를 했다.",
            ),
        ] {
            let settings = |settings: &mut DialogueSettings| settings.summaries.first_after_turns = 3;
            let mut stage = Stage::prepare_with(settings, WorldSettings::default()).await;
            stage.npc.language = language;
            let edit = stage.edit("npc.put");
            let authored = &stage.services.ledger.authored;
            authored.put_npc(&stage.scope, &stage.npc, None, &edit).await.unwrap();
            let asks = async |talk: &mut TestDialogue<'_>| {
                let committed = talk.say_line(request).await;
                let answer = json!({ "facts": [], "forget": [knee] }).to_string();
                stage.llm.queue_text(Task::Extraction, answer);
                stage.run_job(&committed.jobs[0]).await.unwrap();
                stage.clock.advance(Duration::from_mins(1));
            };
            // Returns the summary's text, and whether its prompt names the forgotten fact.
            let ends = async |talk: &mut TestDialogue<'_>, answer: &str| {
                let answer = json!({ "summary": answer, "importance": 5 });
                stage.llm.queue_text(Task::Summary, answer.to_string());
                talk.say_and_learn("Lovely weather.", &json!([])).await;
                let summaries = &stage.services.ledger.summaries;
                let kept = summaries
                    .load_summaries(&stage.scope, talk.open.dialogue.id)
                    .await
                    .unwrap();
                let prompt = stage.llm.prompts_of(Task::Summary).pop().unwrap();
                let is_told = prompt.contains(&format!("<forgotten>{knee}</forgotten>"));
                assert_eq!(prompt.contains("<forgotten>"), is_told, "{prompt}");
                (kept.last().unwrap().text.clone(), is_told)
            };
            let broken = json!([statement("break", "a knee", knee, "positive", &["knee"])]);
            let mut talk = stage.session("p1").await;
            talk.say_and_learn(knee, &broken).await;
            asks(&mut talk).await;
            assert_eq!(ends(&mut talk, digest).await, (left.to_owned(), true));
            // The summary may become empty.
            let mut empty = stage.session("p1").await;
            empty.say_and_learn(knee, &broken).await;
            asks(&mut empty).await;
            assert_eq!(ends(&mut empty, knee).await, (String::new(), true));
            // Rewinding the request also removes the summary made after the request.
            talk.rewind(1, None).await;
            let kept = stage
                .services
                .ledger
                .summaries
                .load_summaries(&stage.scope, talk.open.dialogue.id);
            assert_eq!(kept.await.unwrap(), []);
            // Another session's request does not change the summary here, as a rewind there could undo the request.
            let mut other = stage.session("p1").await;
            other.say_and_learn(knee, &broken).await;
            other.say_and_learn("Fine bread.", &json!([])).await;
            asks(&mut stage.session("p1").await).await;
            assert_eq!(ends(&mut other, digest).await, (digest.to_owned(), false));
        }
    });
}
