//! Consolidation: older facts of a topic become one fact.

use std::time::Duration;

use colloquy::{
    dialogue::{
        jobs::JobError,
        remember::{queue_consolidations, queue_due_consolidations},
        settings::{CurationSettings, DialogueSettings},
    },
    memory::{
        authored::WorldSettings,
        fact::{Fact, InvalidReason},
    },
    ports::{
        clock::Clock as _,
        ledger::jobs::{Job, JobKind},
        llm::Task,
    },
};
use serde_json::{Value, json};

use super::{Stage, TestDialogue, liking_fact, statement};
use crate::support::run;

/// A stage that consolidates facts of any age.
async fn stage_with(change: impl FnOnce(&mut CurationSettings)) -> Stage {
    let change = |settings: &mut DialogueSettings| {
        settings.curation.consolidate_after_d = 0;
        change(&mut settings.curation);
    };
    Stage::prepare_with(change, WorldSettings::default()).await
}

fn conclusion(of: &[usize], content: &str) -> Value {
    json!({ "of": of, "predicate": "like", "object": "fruit", "content": content, "keywords": ["fruit", "Fruit", "taste"] })
}

/// Says that the player likes three fruits, each in a turn.
async fn tell_three_tastes(talk: &mut TestDialogue<'_>) {
    for fruit in ["figs", "plums", "pears"] {
        talk.say_and_learn(&format!("I like {fruit}."), &json!([liking_fact(fruit, &[])]))
            .await;
    }
}

impl Stage {
    async fn queue_consolidations(&self) -> u32 {
        queue_consolidations(&self.services, &self.scope, &self.world.id)
            .await
            .unwrap()
    }

    /// Leases the due jobs of consolidation.
    async fn due_consolidations(&self) -> Vec<Job> {
        let (jobs, now) = (&self.services.ledger.jobs, self.clock.now());
        let until = now + Duration::from_mins(2);
        let due = jobs
            .lease_due_jobs(&self.scope, self.node, now, until, 100)
            .await
            .unwrap();
        due.into_iter().filter(|job| job.kind == JobKind::Consolidate).collect()
    }

    /// Consolidates the facts with an answer of the model.
    async fn consolidate(&self, conclusions: &[Value]) -> Result<(), JobError> {
        let answer = json!({ "conclusions": conclusions });
        self.llm.queue_text(Task::Curation, answer.to_string());
        assert_eq!(self.queue_consolidations().await, 1);
        for job in self.due_consolidations().await {
            self.run_job(&job).await?;
        }
        Ok(())
    }

    async fn conclusions(&self) -> Vec<Fact> {
        let facts = self.facts().await.into_iter();
        facts
            .filter(|fact| fact.is_conclusion() && fact.invalid.is_none())
            .collect()
    }
}

#[test]
fn facts_of_a_topic_become_one_fact() {
    run(async {
        let stage = stage_with(|_| {}).await;
        let mut talk = stage.session("p1").await;
        tell_three_tastes(&mut talk).await;
        assert_eq!(stage.due_consolidations().await.len(), 0);
        let merged = "The player likes figs and pears.";
        stage.consolidate(&[conclusion(&[1, 3], merged)]).await.unwrap();

        let prompts = stage.llm.prompts_of(Task::Curation);
        assert_eq!(prompts.len(), 1);
        let line = |number: u32, fruit: &str| {
            format!("{number}. <memory about=\"player\" from=\"player\" day=\"")
                + prompts[0]
                    .lines()
                    .find(|line| line.starts_with(&format!("{number}. ")) && line.contains(fruit))
                    .and_then(|line| line.split_once("day=\"").map(|(_, rest)| rest))
                    .unwrap_or_else(|| panic!("no {fruit} in {}", prompts[0]))
        };
        for (number, fruit) in [(1, "figs"), (2, "plums"), (3, "pears")] {
            assert!(prompts[0].contains(&line(number, fruit)), "{}", prompts[0]);
        }

        let found = stage.conclusions().await;
        assert_eq!(found.len(), 1);
        let made = &found[0];
        assert_eq!((made.view.content.as_str(), made.derived_from.len()), (merged, 2));
        assert_eq!(made.view.keywords, ["fruit", "taste"]);
        assert_eq!(made.statement.subject, "player:p1");
        let premises: Vec<Fact> = stage
            .facts()
            .await
            .into_iter()
            .filter(|fact| !fact.is_conclusion())
            .collect();
        let newest = premises.iter().map(|fact| fact.valid_at).max().unwrap();
        assert_eq!(made.valid_at, newest);
        let weights = premises
            .iter()
            .map(|fact| (fact.view.content.clone(), fact.view.importance.get()));
        let mut weights: Vec<_> = weights.collect();
        weights.sort();
        let likes = |fruit: &str, weight| (format!("The player likes {fruit}."), weight);
        assert_eq!(weights, [likes("figs", 3), likes("pears", 3), likes("plums", 5)]);

        assert_eq!(stage.queue_consolidations().await, 0, "nothing has changed");
        talk.say_line("What do you know of my taste for fruit?").await;
        assert!(
            stage.llm.last_context().contains(merged),
            "{}",
            stage.llm.last_context()
        );
    });
}

#[test]
fn conclusion_without_a_common_topic_is_refused() {
    run(async {
        let stage = stage_with(|_| {}).await;
        let mut talk = stage.session("p1").await;
        tell_three_tastes(&mut talk).await;
        let mut of_npc = statement("like", "rain", "Ergen likes rain.", "positive", &[]);
        of_npc["subject"] = json!(stage.npc.name);
        of_npc["speaker"] = json!(stage.npc.name);
        talk.say_and_learn("And you?", &json!([of_npc])).await;
        let refused = [
            conclusion(&[1], "The player likes a fruit."),
            conclusion(&[1, 9], "The player likes fruit."),
            conclusion(&[0, 1], "The player likes fruit."),
            conclusion(&[1, 4], "The player and Ergen like things."),
            conclusion(&[1, 2], "The player likes figs"),
            conclusion(&[1, 2], "The player likes 40 fruits."),
            conclusion(&[1, 2], ""),
            conclusion(&[1, 2], &"x".repeat(301)),
            json!("The player likes fruit."),
            conclusion(&[1, 2], "The player likes figs and plums."),
            conclusion(&[2, 3], "The player likes plums and pears."),
        ];
        stage.consolidate(&refused).await.unwrap();
        let found = stage.conclusions().await;
        let texts: Vec<&str> = found.iter().map(|fact| fact.view.content.as_str()).collect();
        assert_eq!(texts, ["The player likes figs and plums."]);
    });
}

#[test]
fn unsaid_premise_takes_its_conclusion_along() {
    run(async {
        let stage = stage_with(|_| {}).await;
        let mut talk = stage.session("p1").await;
        tell_three_tastes(&mut talk).await;
        stage
            .consolidate(&[conclusion(&[1, 2, 3], "The player likes fruit.")])
            .await
            .unwrap();
        talk.rewind(2, None).await;
        assert!(stage.conclusions().await.is_empty());
        let ended = stage
            .facts()
            .await
            .into_iter()
            .find(Fact::is_conclusion)
            .unwrap()
            .invalid
            .unwrap();
        assert_eq!(ended.reason, InvalidReason::PremiseGone);
        assert_eq!(stage.valid_contents().await.len(), 2);
        assert_eq!(stage.queue_consolidations().await, 0, "two facts are too few");
    });
}

#[test]
fn facts_wait_until_their_week_is_old() {
    run(async {
        let stage = stage_with(|settings| {
            settings.consolidate_after_d = 7;
            settings.consolidate_every_d = 7;
        })
        .await;
        let mut talk = stage.session("p1").await;
        tell_three_tastes(&mut talk).await;
        let due = async || queue_due_consolidations(&stage.services, &stage.scope).await.unwrap();
        assert_eq!(due().await, 0);
        stage.clock.advance(Duration::from_hours(24 * 6));
        assert_eq!(due().await, 0, "looked through six days ago");
        stage.clock.advance(Duration::from_hours(24 * 8));
        assert_eq!(due().await, 1);
        stage
            .llm
            .queue_text(Task::Curation, json!({ "conclusions": [] }).to_string());
        for job in stage.due_consolidations().await {
            stage.run_job(&job).await.unwrap();
        }
        stage.clock.advance(Duration::from_hours(24 * 8));
        assert_eq!(due().await, 0, "read already, though nothing was concluded");
    });
}

#[test]
fn consolidation_over_budget_waits() {
    run(async {
        let stage = stage_with(|settings| settings.calls_per_day = 1).await;
        let mut talk = stage.session("p1").await;
        tell_three_tastes(&mut talk).await;
        stage.consolidate(&[]).await.unwrap();
        for (scope, delta) in stage.services.models.take_usage() {
            stage.services.ledger.usage.add_usage(&scope, &[delta]).await.unwrap();
        }
        talk.say_and_learn("I like nuts.", &json!([liking_fact("nuts", &[])]))
            .await;
        let refused = stage.consolidate(&[]).await;
        assert!(
            matches!(refused, Err(JobError::OverCurationBudget { .. })),
            "{refused:?}"
        );
    });
}
