//! What players have forgotten, whose it was, and what lands late.

use std::time::Duration;

use colloquy::{
    dialogue::{jobs, prompt, settings::DialogueSettings},
    memory::{
        authored::{Language, WorldSettings},
        fact::InvalidReason,
    },
    ports::{
        clock::Clock as _,
        ledger::jobs::{JobFailure, JobRetry},
        llm::Task,
    },
};
use serde_json::json;

use super::{
    Stage, Talk, likes,
    memory::{hates, sharing},
    statement, verdicts,
};
use crate::support::run;

#[test]
fn in_a_world_that_shares_each_player_speaks_for_itself() {
    run(async {
        let stage = Stage::set_with(|_| {}, sharing()).await;
        let sister = |content: &str| {
            let mut fact = statement("like", "tea", content, "positive", &["drink"]);
            fact["subject"] = json!("the player's sister");
            fact
        };
        let facts = json!([likes("grapes", &["fruit"]), sister("The player's sister likes tea.")]);
        stage.session("p1").await.teach("I like grapes", &facts).await;

        // The same words of another player are not the same fact, nor do they end the first one's.
        let mut second = stage.session("p2").await;
        second.teach("So do I", &facts).await;
        assert_eq!(stage.valid().await.len(), 4);
        second.teach("No more grapes", &json!([hates()])).await;
        assert!(
            stage
                .llm
                .asked(Task::Judge)
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

        // "Forget that" is about the one who says it.
        let committed = second.say("Forget that I like grapes").await;
        stage.llm.tell_text(
            Task::Extraction,
            json!({ "facts": [], "forget": ["The player likes grapes."] }).to_string(),
        );
        stage.run(&committed.jobs[0]).await.unwrap();
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

        // Who is spoken with reads as the player, anybody else by name.
        stage.session("p1").await.say("Which fruit do I like?").await;
        let context = stage.llm.last_context();
        assert!(
            context.contains("] The player says: The player likes grapes."),
            "{context}"
        );
        stage.session("p3").await.say("Which fruit do I like?").await;
        let context = stage.llm.last_context();
        assert!(
            context.contains("] Player p1 says: (about another player, p1) The player likes grapes."),
            "{context}"
        );
        assert!(!context.contains("] The player says: "), "{context}");
    });
}

#[test]
fn a_player_may_have_something_forgotten() {
    run(async {
        let stage = Stage::set().await;
        let mut talk = stage.session("p1").await;
        let facts = json!([likes("grapes", &["fruit"]), likes("tea", &["drink"])]);
        talk.teach("I like grapes and tea", &facts).await;
        let committed = talk.say("Forget that I like grapes").await;
        stage.llm.tell_text(
            Task::Extraction,
            json!({ "facts": [], "forget": ["The player likes grapes."] }).to_string(),
        );
        stage.run(&committed.jobs[0]).await.unwrap();
        assert_eq!(stage.valid().await, ["The player likes tea."]);
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
fn what_an_npc_said_of_it_is_forgotten_with_it() {
    run(async {
        let stage = Stage::set().await;
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
        other.teach("My knee aches", &told).await;
        let mut talk = stage.session("p1").await;
        talk.teach("My knee aches", &told).await;
        let committed = talk.say("Forget what I told you about my knee").await;
        let forget = json!({ "facts": [], "forget": [knee, sale] }).to_string();
        stage.llm.tell_text(Task::Extraction, forget);
        stage.run(&committed.jobs[0]).await.unwrap();
        let mut valid = stage.valid().await;
        valid.sort();
        assert_eq!(valid, [sale, bread, bread, knee], "the other player's stay");
        talk.say("Which of my legs hurts?").await;
        let context = stage.llm.last_context();
        assert!(!context.contains("knee"), "{context}");
    });
}

#[test]
fn what_was_asked_to_be_forgotten_does_not_land_later() {
    run(async {
        let stage = Stage::set().await;
        let mut talk = stage.session("p1").await;
        let first = talk.say("I like grapes and tea").await;
        stage.clock.advance(Duration::from_mins(1));
        let second = talk.say("Forget that I like grapes").await;
        stage.clock.advance(Duration::from_mins(1));
        // Cut short twice, in the facts: the request is whole.
        let broken = r#"{"facts": [{"subject": "player", "content": "The pl, "forget": ["The player likes grapes."]"#;
        for _ in 0..2 {
            stage.llm.tell_text(Task::Extraction, broken);
        }
        stage.run(&second.jobs[0]).await.unwrap();
        talk.teach("I like grapes after all", &json!([likes("grapes", &["fruit"])]))
            .await;
        let facts = json!({ "facts": [likes("grapes", &["fruit"]), likes("tea", &["drink"])] });
        stage.llm.tell_text(Task::Extraction, facts.to_string());
        let report = stage.run(&first.jobs[0]).await.unwrap();
        let told: Vec<&str> = report.memory.iter().map(|change| change.content.as_str()).collect();
        assert_eq!(told, ["The player likes tea."]);
        let mut valid = stage.valid().await;
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
        assert!(late.valid_at < late.invalid.as_ref().unwrap().at);
    });
}

#[test]
fn a_job_that_was_given_up_works_when_it_is_tried_again() {
    run(async {
        let stage = Stage::set().await;
        let mut talk = stage.session("p1").await;
        let first = talk.say("I like grapes and tea").await;
        for _ in 0..2 {
            stage.llm.tell_text(Task::Extraction, "Of course! What a nice turn.");
        }
        let error = stage.run(&first.jobs[0]).await.unwrap_err();
        assert!(matches!(error, jobs::JobError::Unusable(_)), "{error}");
        let queue = &stage.services.ledger.jobs;
        queue
            .fail(
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
        talk.teach("No more grapes", &json!([hates()])).await;

        let edit = stage.edit("job.retry");
        let retried = queue.retry(&stage.scope, first.jobs[0].id, &edit).await.unwrap();
        assert!(matches!(retried, JobRetry::Done(_)), "{retried:?}");
        let (now, node) = (stage.clock.now(), stage.services.ids.next());
        let leased = queue
            .lease(&stage.scope, node, now, now + Duration::from_mins(1), 9)
            .await
            .unwrap();
        assert_eq!(leased.iter().map(|job| job.turn).collect::<Vec<_>>(), [first.turn.id]);
        stage.llm.tell_text(Task::Judge, verdicts("contradicts"));
        // Of another kind, so that the judge is asked about the grapes alone.
        let mut tea = likes("tea", &["drink"]);
        tea["kind"] = json!("note");
        let facts = json!({ "facts": [likes("grapes", &["fruit"]), tea] });
        stage.llm.tell_text(Task::Extraction, facts.to_string());
        stage.run(&leased[0]).await.unwrap();
        let mut valid = stage.valid().await;
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
fn a_request_to_forget_reaches_what_lands_later_and_nothing_else() {
    run(async {
        let stage = Stage::set().await;
        let (mut talk, mut other) = (stage.session("p1").await, stage.session("p2").await);
        let (first, theirs) = (talk.say("I like grapes").await, other.say("I like grapes").await);
        stage.clock.advance(Duration::from_mins(1));
        let second = talk.say("Forget that I like grapes").await;
        let forget = json!({ "forget": ["The player likes grapes."], "facts": [] }).to_string();
        stage.llm.tell_text(Task::Extraction, forget);
        stage.run(&second.jobs[0]).await.unwrap();
        for (job, stands) in [(&first.jobs[0], 0), (&theirs.jobs[0], 1)] {
            let facts = json!({ "facts": [likes("grapes", &["fruit"])] }).to_string();
            stage.llm.tell_text(Task::Extraction, facts);
            assert_eq!(stage.run(job).await.unwrap().memory.len(), stands);
        }
        let forgotten = stage.facts().await.remove(0).invalid.unwrap();
        assert_eq!(
            (forgotten.reason, forgotten.at),
            (InvalidReason::Forgotten, second.turn.committed_at)
        );
    });
}

async fn a_summary_does_not_tell_what_was_forgotten(on: impl AsyncFn(fn(&mut DialogueSettings)) -> Stage) {
    let stage = on(|settings| {
        settings.summaries.first_after_turns = 1;
        settings.summaries.then_every_turns = 3;
    })
    .await;
    let knee = "The player broke a knee at the mill.";
    let digest = "The player told of a knee broken at the mill. They agreed to meet on Friday.";
    let digest = json!({ "summary": digest, "importance": 5 }).to_string();
    stage.llm.tell_text(Task::Summary, digest);
    let mut talk = stage.session("p1").await;
    let broken = statement("break", "a knee", knee, "positive", &["knee"]);
    talk.teach("I broke a knee at the mill.", &json!([broken])).await;
    let told = async |talk: &mut Talk<'_>| {
        stage.llm.tell_text(Task::Intent, "chat");
        talk.teach("Lovely weather.", &json!([])).await;
        let prompt = stage.llm.asked(Task::Reply).pop().unwrap();
        let (_, earlier) = prompt
            .rsplit_once("[Earlier in this conversation, in short]\n")
            .unwrap();
        let earlier = earlier.lines().next().unwrap();
        ["told of a knee", "meet on Friday"].map(|words| earlier.contains(words))
    };
    assert_eq!(told(&mut talk).await, [true; 2]);
    let committed = talk.say("Forget that I broke a knee at the mill.").await;
    let answer = json!({ "facts": [], "forget": [knee] }).to_string();
    stage.llm.tell_text(Task::Extraction, answer);
    stage.run(&committed.jobs[0]).await.unwrap();
    assert_eq!(stage.valid().await, [""; 0]);
    // Nor does the prompt of the next summary, which comes after this turn.
    stage.llm.take_asked();
    assert_eq!(told(&mut talk).await, [false, true]);
    let summarised = stage.llm.asked(Task::Summary).pop().unwrap();
    assert!(
        !summarised.contains("told of a knee") && summarised.contains("meet on Friday"),
        "{summarised}"
    );
    // What takes the request back, too.
    talk.rewind(2, None).await;
    let preview = prompt::preview(&stage.services, &talk.input("Lovely weather.").await).await;
    let messages = preview.unwrap().messages;
    assert!(
        messages
            .iter()
            .any(|message| message.content.contains("] The player told of a knee")),
        "{messages:?}"
    );
}

#[test]
fn what_was_forgotten_is_not_told_by_a_summary() {
    run(async {
        let on = async |change: fn(&mut DialogueSettings)| Stage::set_with(change, WorldSettings::default()).await;
        Box::pin(a_summary_does_not_tell_what_was_forgotten(on)).await;
    });
}

#[test]
fn what_was_forgotten_is_not_told_by_a_summary_on_postgres() {
    run(async {
        let on =
            async |change: fn(&mut DialogueSettings)| Stage::set_on_postgres(change, WorldSettings::default()).await;
        Box::pin(a_summary_does_not_tell_what_was_forgotten(on)).await;
    });
}

#[test]
fn a_later_summary_does_not_tell_what_was_forgotten_either() {
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
            let mut stage = Stage::set_with(settings, WorldSettings::default()).await;
            stage.npc.language = language;
            let edit = stage.edit("npc.put");
            let authored = &stage.services.ledger.authored;
            authored.put_npc(&stage.scope, &stage.npc, None, &edit).await.unwrap();
            let asks = async |talk: &mut Talk<'_>| {
                let committed = talk.say(request).await;
                let answer = json!({ "facts": [], "forget": [knee] }).to_string();
                stage.llm.tell_text(Task::Extraction, answer);
                stage.run(&committed.jobs[0]).await.unwrap();
                stage.clock.advance(Duration::from_mins(1));
            };
            // What the summary comes to, and whether its prompt says what to leave out.
            let ends = async |talk: &mut Talk<'_>, answer: &str| {
                let answer = json!({ "summary": answer, "importance": 5 });
                stage.llm.tell_text(Task::Summary, answer.to_string());
                talk.teach("Lovely weather.", &json!([])).await;
                let summaries = &stage.services.ledger.summaries;
                let kept = summaries.kept(&stage.scope, talk.open.dialogue.id).await.unwrap();
                let prompt = stage.llm.asked(Task::Summary).pop().unwrap();
                let is_told = prompt.contains(&format!("<forgotten>{knee}</forgotten>"));
                assert_eq!(prompt.contains("<forgotten>"), is_told, "{prompt}");
                (kept.last().unwrap().text.clone(), is_told)
            };
            let broken = json!([statement("break", "a knee", knee, "positive", &["knee"])]);
            let mut talk = stage.session("p1").await;
            talk.teach(knee, &broken).await;
            asks(&mut talk).await;
            assert_eq!(ends(&mut talk, digest).await, (left.to_owned(), true));
            // Nothing may be left.
            let mut empty = stage.session("p1").await;
            empty.teach(knee, &broken).await;
            asks(&mut empty).await;
            assert_eq!(ends(&mut empty, knee).await, (String::new(), true));
            // Who takes the request back takes the summary back.
            talk.rewind(1, None).await;
            let kept = stage
                .services
                .ledger
                .summaries
                .kept(&stage.scope, talk.open.dialogue.id);
            assert_eq!(kept.await.unwrap(), []);
            // A request of another session is one of which the summary of this one may be rid by a rewind there.
            let mut other = stage.session("p1").await;
            other.teach(knee, &broken).await;
            other.teach("Fine bread.", &json!([])).await;
            asks(&mut stage.session("p1").await).await;
            assert_eq!(ends(&mut other, digest).await, (digest.to_owned(), false));
        }
    });
}
