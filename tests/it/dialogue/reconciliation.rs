//! The cost of a slow or failing model for a memory being written or reconciled.

use std::{sync::Arc, time::Duration};

use colloquy::{
    dialogue::{
        models::{ModelRouter, RouteTable},
        remember::{self, ManualFact},
    },
    ids::PlayerId,
    memory::{
        disclosure::audience::{Audience, Knower},
        fact::{FactKind, Importance},
        reconcile::pair_hash,
        timeline,
        tokens::TokenCounter,
    },
    ports::{
        clock::Clock as _,
        ledger::jobs::{Job, JobFailure},
        llm::{Llm, LlmError, Task},
    },
};
use prometheus::{Registry, TextEncoder};
use serde_json::json;

use super::{QueuedAnswer, Stage, statement, verdicts};
use crate::support::run;

impl Stage {
    /// Says a fact, asks in a second session to forget the fact, and rewinds the first session. The request is then
    /// reconciled again.
    async fn mark_dirty_by_forget_request(&self, player: &str) {
        let mut first = self.session(player).await;
        first
            .say_and_learn("I like grapes", &json!([preference_fact("grapes", &["fruit"])]))
            .await;
        let mut second = self.session(player).await;
        let committed = second.say_line("Forget that I like grapes").await;
        let forget = json!({ "facts": [], "forget": ["The player prefers grapes."] });
        self.llm.queue_text(Task::Extraction, forget.to_string());
        self.run_job(&committed.jobs[0]).await.unwrap();
        self.clock.advance(Duration::from_mins(1));
        first.rewind(0, None).await;
    }

    async fn dirty_marks(&self) -> Vec<Option<PlayerId>> {
        let marks = self
            .services
            .ledger
            .rewinds
            .list_dirty_memories(&self.scope, 99)
            .await
            .unwrap();
        marks.into_iter().map(|mark| mark.audience.private_to).collect()
    }

    /// Leases the job again after an attempt that ran out of time.
    async fn retried_job(&self, job: &Job) -> Job {
        let (jobs, now) = (&self.services.ledger.jobs, self.clock.now());
        jobs.fail_job(&self.scope, job.id, self.node, "slow", JobFailure::RetryAt(now), &[])
            .await
            .unwrap();
        let until = now + Duration::from_mins(1);
        let leased = jobs
            .lease_due_jobs(&self.scope, self.node, now, until, 99)
            .await
            .unwrap();
        leased.into_iter().find(|leased| leased.id == job.id).unwrap()
    }
}

/// Returns the metrics of the model calls.
fn model_metrics_text(stage: &Stage) -> String {
    let registry = Registry::new();
    stage.services.models.metrics().register(&registry).unwrap();
    TextEncoder::new().encode_to_string(&registry.gather()).unwrap()
}

#[test]
fn hung_embedder_blocks_no_memory() {
    run(async {
        let stage = Stage::prepare().await;
        Box::pin(stage.mark_dirty_by_forget_request("p1")).await;
        stage.embedder.holds.send_replace(Some("prefers grapes"));
        let mut other = stage.session("p2").await;
        let tea = json!([preference_fact("tea", &["drink"])]);
        tokio::select! {
            biased;
            settled = remember::reconcile_dirty_memories(&stage.services, &stage.scope) => panic!("{settled:?}"),
            reports = other.say_and_learn("I like tea", &tea) => assert_eq!(reports[0].memory.len(), 1),
        }
    });
}

#[test]
fn unreconcilable_memory_blocks_no_other() {
    run(async {
        let stage = Stage::prepare().await;
        Box::pin(stage.mark_dirty_by_forget_request("p1")).await;
        let mut other = stage.session("p2").await;
        other
            .say_and_learn("I like tea", &json!([preference_fact("tea", &["drink"])]))
            .await;
        other.rewind(0, None).await;
        let player = |id: &str| Some(id.parse::<PlayerId>().unwrap());
        assert_eq!(stage.dirty_marks().await, [player("p1"), player("p2")]);
        stage.break_embedder(true);
        let settled = remember::reconcile_dirty_memories(&stage.services, &stage.scope)
            .await
            .unwrap();
        assert_eq!((settled, stage.dirty_marks().await), (1, vec![player("p1")]));
        assert_eq!(
            remember::reconcile_dirty_memories(&stage.services, &stage.scope)
                .await
                .unwrap(),
            0
        );
        stage.break_embedder(false);
        stage.clock.advance(Duration::from_hours(1));
        assert_eq!(
            remember::reconcile_dirty_memories(&stage.services, &stage.scope)
                .await
                .unwrap(),
            1
        );
        assert_eq!(stage.dirty_marks().await, []);
    });
}

/// Returns a preference, which may exclude another preference.
fn preference_fact(object: &str, keywords: &[&str]) -> serde_json::Value {
    let content = format!("The player prefers {object}.");
    statement("prefer", object, &content, "positive", keywords)
}

/// Returns a note, which is near no preference.
fn note_fact(object: &str) -> serde_json::Value {
    let mut note = preference_fact(object, &[]);
    note["kind"] = json!("note");
    note
}

/// Teaches three contradicting facts in three sessions, and rewinds the second. The judge must then judge the first
/// fact.
async fn teach_contradicting_facts(stage: &Stage) {
    let mut sessions = Vec::new();
    for fruit in ["grapes", "plums", "pears"] {
        let mut session = stage.session("p1").await;
        if !sessions.is_empty() {
            stage.llm.queue_text(Task::Judge, verdicts("contradicts"));
        }
        session
            .say_and_learn(&format!("I like {fruit}"), &json!([preference_fact(fruit, &[])]))
            .await;
        stage.clock.advance(Duration::from_mins(1));
        sessions.push(session);
    }
    // The first fact needed no judge.
    assert_eq!(stage.llm.prompts_of(Task::Judge).len(), 2);
    assert_eq!(stage.valid_contents().await, ["The player prefers pears."]);
    sessions[1].rewind(0, None).await;
}

#[test]
fn judge_is_asked_again_after_an_outage() {
    run(async {
        let stage = Stage::prepare().await;
        teach_contradicting_facts(&stage).await;
        for away in [
            LlmError::Timeout,
            LlmError::Unavailable("gone".to_owned()),
            LlmError::RateLimited { retry_after: None },
        ] {
            stage.llm.queue_answer(Task::Judge, QueuedAnswer::Fails(away));
            assert_eq!(
                remember::reconcile_dirty_memories(&stage.services, &stage.scope)
                    .await
                    .unwrap(),
                0
            );
            assert_eq!(stage.dirty_marks().await.len(), 1);
            // The dirty memory waits before the next attempt.
            let asked = stage.llm.prompts_of(Task::Judge).len();
            assert_eq!(
                remember::reconcile_dirty_memories(&stage.services, &stage.scope)
                    .await
                    .unwrap(),
                0
            );
            assert_eq!(stage.llm.prompts_of(Task::Judge).len(), asked);
            stage.clock.advance(Duration::from_mins(13));
        }
        stage.llm.queue_text(Task::Judge, verdicts("contradicts"));
        assert_eq!(
            remember::reconcile_dirty_memories(&stage.services, &stage.scope)
                .await
                .unwrap(),
            1
        );
        assert_eq!(stage.valid_contents().await, ["The player prefers pears."]);
        assert_eq!(stage.dirty_marks().await, []);
    });
}

#[test]
fn judge_that_never_answers_counts_as_silent_finally() {
    run(async {
        let stage = Stage::prepare().await;
        teach_contradicting_facts(&stage).await;
        for _ in 0..2 {
            let empty = LlmError::Broken("the answer is empty".to_owned());
            stage.llm.queue_answer(Task::Judge, QueuedAnswer::Fails(empty));
            assert_eq!(
                (
                    remember::reconcile_dirty_memories(&stage.services, &stage.scope)
                        .await
                        .unwrap(),
                    stage.dirty_marks().await.len()
                ),
                (0, 1)
            );
            stage.clock.advance(Duration::from_hours(12));
        }
        stage
            .llm
            .queue_answer(Task::Judge, QueuedAnswer::Fails(LlmError::Timeout));
        assert_eq!(
            remember::reconcile_dirty_memories(&stage.services, &stage.scope)
                .await
                .unwrap(),
            1
        );
        assert_eq!(stage.valid_contents().await.len(), 2);
        assert_eq!(stage.dirty_marks().await, []);
    });
}

#[test]
fn reconciliation_without_a_judge_continues_during_its_outage() {
    run(async {
        let stage = Stage::prepare().await;
        let (mut sessions, fruit) = (Vec::new(), &["fruit"]);
        let mut echo = preference_fact("plums", fruit);
        echo["speaker"] = json!("Mira");
        let says = [
            (
                "I like grapes",
                json!([preference_fact("grapes", fruit), note_fact("rain")]),
            ),
            ("No, plums", json!([preference_fact("plums", fruit), note_fact("snow")])),
            ("What fruit do I like?", json!([echo])),
            ("No, pears", json!([preference_fact("pears", fruit), note_fact("hail")])),
        ];
        for (nth, (line, facts)) in says.iter().enumerate() {
            let mut session = stage.session("p1").await;
            for _ in 0..nth % 2 {
                stage.llm.queue_text(Task::Judge, verdicts("contradicts"));
            }
            session.say_and_learn(line, facts).await;
            sessions.push(session);
        }
        let last = ["The player prefers pears.", "The player prefers hail."];
        assert_eq!(stage.valid_contents().await, last);
        sessions[1].rewind(0, None).await;
        // "Plums" is now a new statement, and ends "grapes" as the unsaid fact did. Rain and hail have no verdict.
        let rain = ["The player prefers rain.", last[0], last[1]];
        stage.llm.queue_answer(Task::Judge, QueuedAnswer::Silent(vec![]));
        let before = stage.llm.prompts_of(Task::Judge).len();
        let shows = async {
            while stage.valid_contents().await != rain || stage.llm.prompts_of(Task::Judge).len() == before {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            settled = remember::reconcile_dirty_memories(&stage.services, &stage.scope) => panic!("{settled:?}"),
            () = shows => {}
        }
        stage
            .llm
            .queue_answer(Task::Judge, QueuedAnswer::Fails(LlmError::Timeout));
        assert_eq!(
            remember::reconcile_dirty_memories(&stage.services, &stage.scope)
                .await
                .unwrap(),
            0
        );
        assert_eq!(
            (stage.valid_contents().await, stage.dirty_marks().await.len()),
            (rain.map(str::to_owned).into(), 1)
        );
        stage.clock.advance(Duration::from_mins(1));
        stage.llm.queue_text(Task::Judge, verdicts("contradicts"));
        assert_eq!(
            remember::reconcile_dirty_memories(&stage.services, &stage.scope)
                .await
                .unwrap(),
            1
        );
        assert_eq!(
            (stage.valid_contents().await, stage.dirty_marks().await.len()),
            (last.map(str::to_owned).into(), 0)
        );
    });
}

#[test]
fn refusing_judge_blocks_nothing() {
    run(async {
        let stage = Stage::prepare().await;
        teach_contradicting_facts(&stage).await;
        stage
            .llm
            .queue_answer(Task::Judge, QueuedAnswer::Fails(LlmError::Refused("no".to_owned())));
        assert_eq!(
            remember::reconcile_dirty_memories(&stage.services, &stage.scope)
                .await
                .unwrap(),
            1
        );
        assert_eq!(stage.valid_contents().await.len(), 2);
    });
}

#[test]
fn slow_judge_verdicts_are_not_requested_again() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        // Two facts that are near the next line's facts, but of two kinds and not near each other.
        talk.say_and_learn(
            "I like grapes and rain",
            &json!([preference_fact("grapes", &[]), note_fact("rain")]),
        )
        .await;
        assert_eq!(stage.llm.prompts_of(Task::Judge).len(), 0);

        let facts = json!({ "facts": [preference_fact("plums", &[]), note_fact("snow")] });
        stage.llm.queue_text(Task::Extraction, facts.to_string());
        stage.llm.queue_answer(Task::Judge, QueuedAnswer::Silent(vec![]));
        let committed = talk.say_line("No, plums and snow").await;
        let job = &committed.jobs[0];
        // The lease ends while the judge is asked about both pairs.
        let both = async {
            while stage.llm.prompts_of(Task::Judge).is_empty() {
                tokio::task::yield_now().await;
            }
            // By then the extraction's answer is stored.
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        };
        tokio::select! {
            report = stage.run_job(job) => panic!("{report:?}"),
            () = both => {}
        }
        stage.llm.queue_text(
            Task::Judge,
            r#"{"verdicts": [{"pair": 1, "verdict": "contradicts"}, {"pair": 2"#,
        );
        stage.llm.queue_text(
            Task::Judge,
            r#"{"verdicts": [{"pair": 1, "verdict": "contradicts"}, {"pair": 2"#,
        );
        let again = stage.retried_job(job).await;
        let report = stage.run_job(&again).await.unwrap();
        assert_eq!(report.memory.len(), 3, "{:?}", report.memory);
        assert_eq!(
            stage.llm.prompts_of(Task::Judge).len(),
            3,
            "an answer that breaks off is asked for once more"
        );
        assert_eq!(stage.llm.prompts_of(Task::Extraction).len(), 2, "the answer was kept");
        assert_eq!(stage.valid_contents().await.len(), 3);
        // Verdicts are stored by the contents of the pair, independent of the turn.
        let pairs = [("grapes", "plums"), ("rain", "snow")].map(|(older, newer)| {
            pair_hash(
                &format!("The player prefers {older}."),
                &format!("The player prefers {newer}."),
            )
        });
        let facts = &stage.services.ledger.facts;
        assert_eq!(facts.load_verdicts(&stage.scope, &pairs).await.unwrap().len(), 1);
    });
}

#[test]
fn learning_turn_costs_one_judge_call_however_large_the_memory() {
    run(async {
        let mut stage = Stage::prepare().await;
        // The usage is counted with a vocabulary, because this model reports no usage.
        let told: Arc<dyn Llm> = stage.llm.clone();
        let models = ModelRouter::new(RouteTable::with_single_model(&told), stage.clock.clone());
        stage.services.models = Arc::new(models.with_fallback_counter(TokenCounter::O200k));
        for number in 0..200 {
            let object = format!("fruit{number}");
            let fact = ManualFact {
                world: stage.world.id.clone(),
                audience: Audience {
                    knowers: [Knower::Npc(stage.npc.id.clone())].into(),
                    private_to: Some("p1".parse().unwrap()),
                },
                subject: "player:p1".to_owned(),
                predicate: "like".to_owned(),
                content: format!("The player prefers {object}."),
                object,
                keywords: vec![],
                kind: FactKind::Preference,
                importance: Importance::DEFAULT,
                pinned: false,
                valid_at: None,
            };
            let edit = stage.edit("fact.create");
            remember::write_manual_fact(&stage.services, &stage.scope, fact, &edit)
                .await
                .unwrap();
        }
        stage.clock.advance(Duration::from_mins(1));
        let mut talk = stage.session("p1").await;
        talk.say_and_learn(
            "I prefer plums and pears. And you?",
            &json!([preference_fact("plums", &[]), preference_fact("pears", &[])]),
        )
        .await;
        assert_eq!(stage.llm.prompts_of(Task::Extraction).len(), 1);
        let asked = stage.llm.prompts_of(Task::Judge);
        assert_eq!(asked.len(), 1, "one call, however much is known");
        let pairs = asked[0].matches("<newer>").count();
        assert!((8..=2 * timeline::MAX_NEAREST).contains(&pairs), "{pairs}");
        assert_eq!(stage.valid_contents().await.len(), 200, "a page of them; both stay");

        // The turn's trace and the metrics show the calls.
        let explained = talk.explain_turn(1).await;
        let made: Vec<(&str, u32)> = explained
            .tasks
            .iter()
            .map(|sum| (sum.task.as_str(), sum.calls))
            .collect();
        let ought = [
            ("embedding", 2),
            ("intent", 1),
            ("reply", 1),
            ("extraction", 1),
            ("judge", 1),
        ];
        assert_eq!(made, ought);
        let [job] = &explained.jobs[..] else {
            panic!("{:?}", explained.jobs)
        };
        assert_eq!(
            (job.kind.as_str(), job.status.as_str(), job.failed_attempts),
            ("extract_facts", "done", 0)
        );
        assert!(job.calls.iter().all(|sum| sum.task != "reply"), "{job:?}");
        let metrics = model_metrics_text(&stage);
        for sum in &explained.tasks {
            let (asked_for, usage) = (&sum.task, sum.usage);
            if asked_for == "embedding" {
                // Manual facts were embedded, too.
                continue;
            }
            for line in [
                format!(
                    r#"colloquy_model_attempts_total{{model="told",outcome="ok",task="{asked_for}"}} {}"#,
                    sum.calls
                ),
                format!(
                    r#"colloquy_model_tokens_total{{kind="prompt",task="{asked_for}",tenant="other"}} {}"#,
                    usage.prompt_tokens
                ),
                format!(
                    r#"colloquy_model_tokens_total{{kind="completion",task="{asked_for}",tenant="other"}} {}"#,
                    usage.completion_tokens
                ),
            ] {
                assert!(
                    metrics.lines().any(|shown| shown == line),
                    "{line} is not in\n{metrics}"
                );
            }
        }
        let judge = explained.tasks.iter().find(|sum| sum.task == "judge").unwrap().usage;
        let used = judge.prompt_tokens + judge.completion_tokens;
        assert!((400..=800).contains(&used), "{used} tokens for {pairs} pairs");
    });
}
