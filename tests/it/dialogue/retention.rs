//! Retention of facts by kind: facts expire, and pinned facts stay.

use std::{collections::BTreeMap, time::Duration};

use colloquy::{
    dialogue::remember::{self, FactCorrection},
    memory::{authored::WorldSettings, fact::FactKind, tiers::RetentionTuning},
    ports::llm::Task,
};
use serde_json::json;

use super::{Stage, liking_fact, statement};
use crate::support::run;

const DAY: Duration = Duration::from_hours(24);

fn two_days_of_preferences() -> WorldSettings {
    WorldSettings {
        retention: Some(RetentionTuning {
            facts_d: BTreeMap::from([(FactKind::Preference, 2), (FactKind::Constraint, 2)]),
        }),
        ..WorldSettings::default()
    }
}

#[test]
fn facts_expire_by_their_kind_and_pinned_facts_stay() {
    run(async {
        let stage = Stage::prepare_with(|_| {}, two_days_of_preferences()).await;
        let mut talk = stage.session("p1").await;
        talk.say_and_learn("I like grapes", &json!([liking_fact("grapes", &["fruit"])]))
            .await;
        talk.say_and_learn("I like figs", &json!([liking_fact("figs", &["fruit"])]))
            .await;
        let mut allergy = statement(
            "be allergic to",
            "nuts",
            "The player is allergic to nuts.",
            "positive",
            &["allergy"],
        );
        allergy["kind"] = json!("constraint");
        talk.say_and_learn("I am allergic to nuts", &json!([allergy])).await;
        let mut home = statement(
            "live in",
            "Oakford",
            "The player lives in Oakford.",
            "positive",
            &["home"],
        );
        home["kind"] = json!("profile");
        talk.say_and_learn("I live in Oakford", &json!([home])).await;
        // A person pins a fact that would expire.
        let facts = stage.facts().await;
        let figs = facts.iter().find(|fact| fact.statement.object == "figs").unwrap();
        assert_eq!(figs.expires_at, Some(figs.valid_at + chrono::Duration::days(2)));
        let pin = FactCorrection {
            pinned: Some(true),
            ..FactCorrection::default()
        };
        remember::correct_fact(
            &stage.services,
            &stage.scope,
            figs.id,
            pin,
            None,
            &stage.edit("fact.edit"),
        )
        .await
        .unwrap();

        stage.clock.advance(DAY);
        assert_eq!(stage.valid_contents().await.len(), 4);
        stage.clock.advance(DAY);
        let left = stage.valid_contents().await;
        let expected = [
            "The player likes figs.",
            "The player is allergic to nuts.",
            "The player lives in Oakford.",
        ];
        assert_eq!(left, expected);
        stage.llm.clear_queue();
        talk.say_line("Do you remember what fruit I like?").await;
        let prompt = stage.llm.prompts_of(Task::Reply).pop().unwrap();
        assert!(
            prompt.contains("The player likes figs.") && !prompt.contains("The player likes grapes."),
            "{prompt}"
        );
        // What expired is learned anew when it is said again.
        talk.say_and_learn("I like grapes", &json!([liking_fact("grapes", &["fruit"])]))
            .await;
        assert!(
            stage
                .valid_contents()
                .await
                .contains(&"The player likes grapes.".to_owned())
        );
    });
}
