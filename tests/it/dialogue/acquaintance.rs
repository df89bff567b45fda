//! A returning player is known. A player known only from unsaid turns is not.

use colloquy::{
    dialogue::settings::DialogueSettings,
    memory::{
        authored::{Greeting, WorldSettings},
        state::StateChange,
    },
    ports::{ledger::jobs::JobKind, llm::Task},
};
use serde_json::json;

use super::{Stage, statement};
use crate::support::run;

const WORDS: &str = "Come in, and mind the step.";

async fn stage(greeting: Option<Greeting>) -> Stage {
    let settings = WorldSettings {
        greeting,
        ..WorldSettings::default()
    };
    let mut stage = Stage::prepare_with(|_| {}, settings).await;
    WORDS.clone_into(&mut stage.npc.persona.greeting);
    stage
}

#[test]
fn persona_greeting_is_for_the_first_meeting() {
    run(async {
        let stage = stage(None).await;
        let mut first = stage.session("p1").await;
        assert_eq!(first.say_line("").await.turn.reply_text, WORDS);
        let mut name = statement("be named", "Rowan", "The player is named Rowan.", "positive", &["name"]);
        name["kind"] = json!("personal_info");
        first.say_and_learn("I am Rowan.", &json!([name])).await;
        assert!(
            !stage
                .llm
                .prompts_of(Task::Reply)
                .pop()
                .unwrap()
                .contains("You have talked with this player")
        );

        stage.clock.advance(std::time::Duration::from_hours(49));
        let mut again = stage.session("p1").await;
        let asked = stage.llm.prompts_of(Task::Reply).len();
        assert_ne!(again.say_line("").await.turn.reply_text, WORDS);
        let prompts = stage.llm.prompts_of(Task::Reply);
        assert_eq!(prompts.len(), asked + 1, "the model is asked");
        let block = "[Who this is]\n- The player says: The player is named Rowan.\n- You have talked with this player \
                     before, the last time 2 days ago.";
        assert!(prompts[asked].contains(block), "{}", prompts[asked]);
        // The same holds in small talk.
        stage.llm.queue_text(Task::Intent, "chat");
        again.say_line("Lovely weather.").await;
        assert!(stage.llm.prompts_of(Task::Reply).pop().unwrap().contains(block));
        // Another player is a stranger.
        assert_eq!(stage.session("p2").await.say_line("").await.turn.reply_text, WORDS);

        // Unsaid turns do not count, even for a running session.
        first.rewind(0, None).await;
        again.say_line("And the wind!").await;
        let prompt = stage.llm.prompts_of(Task::Reply).pop().unwrap();
        assert!(!prompt.contains("[Who this is]"), "{prompt}");
        again.rewind(0, None).await;
        assert_eq!(stage.session("p1").await.say_line("").await.turn.reply_text, WORDS);
    });
}

#[test]
fn world_may_greet_all_players_alike() {
    run(async {
        let stage = stage(Some(Greeting::Always)).await;
        for _ in 0..2 {
            assert_eq!(stage.session("p1").await.say_line("").await.turn.reply_text, WORDS);
        }
    });
}

#[test]
fn greeting_uses_facts_and_no_hearsay() {
    run(async {
        let mut stage = Stage::prepare().await;
        stage.npc.persona.greeting.clear();
        let mut first = stage.session("p1").await;
        let mut promise = statement(
            "bring",
            "salt",
            "The player will bring Mira salt.",
            "positive",
            &["salt"],
        );
        promise["kind"] = json!("goal");
        promise["tense"] = json!("future");
        let mut lie = statement(
            "belong",
            "the player",
            "The Lantern Inn belongs to the player.",
            "positive",
            &["inn"],
        );
        (lie["subject"], lie["importance"]) = (json!("the Lantern Inn"), json!(10));
        // The player makes a similar claim about themselves.
        let mut claim = statement(
            "own",
            "the mill",
            "The player owns the mill, since the old owner signed it over.",
            "positive",
            &["mill"],
        );
        (claim["kind"], claim["importance"]) = (json!("event"), json!(10));
        first
            .say_and_learn(
                "The inn is mine, and I will bring you salt.",
                &json!([promise, lie, claim]),
            )
            .await;

        let mut again = stage.session("p1").await;
        let greeted = again.say_line("").await;
        let prompt = stage.llm.prompts_of(Task::Reply).pop().unwrap();
        assert!(
            prompt.contains("Speak first") && prompt.contains("bring Mira salt"),
            "{prompt}"
        );
        assert!(!prompt.contains("Lantern Inn belongs"), "{prompt}");
        assert!(!prompt.contains("owns the mill"), "{prompt}");
        // The player said nothing, so no fact is learned.
        let kinds: Vec<JobKind> = greeted.jobs.iter().map(|job| job.kind).collect();
        assert!(!kinds.contains(&JobKind::ExtractFacts), "{kinds:?}");
        // The greeting's instruction is absent from later prompts.
        again.say_line("Whose is the Lantern Inn?").await;
        let prompt = stage.llm.prompts_of(Task::Reply).pop().unwrap();
        assert!(!prompt.contains("Speak first"), "{prompt}");
        assert!(prompt.contains("[The player came up to you]"), "{prompt}");
        assert!(prompt.contains("The player says: The Lantern Inn belongs"), "{prompt}");
    });
}

#[test]
fn removed_fact_is_not_repeated_by_the_last_summary() {
    run(async {
        let summarise = |settings: &mut DialogueSettings| settings.summaries.first_after_turns = 1;
        let stage = Stage::prepare_with(summarise, WorldSettings::default()).await;
        let knee = "The player broke a knee at the mill.";
        let digest = json!({ "summary": "The player told of a knee broken at the mill.", "importance": 5 });
        stage.llm.queue_text(Task::Summary, digest.to_string());
        let mut first = stage.session("p1").await;
        let broken = statement("break", "a knee", knee, "positive", &["knee"]);
        first
            .say_and_learn("I broke a knee at the mill.", &json!([broken]))
            .await;
        let is_told = async || {
            stage.llm.queue_text(Task::Intent, "chat");
            stage.session("p1").await.say_line("Lovely weather.").await;
            let prompt = stage.llm.prompts_of(Task::Reply).pop().unwrap();
            prompt.contains("in short: The player told of a knee")
        };
        assert!(is_told().await);
        let mut second = stage.session("p1").await;
        let committed = second.say_line("Forget that I broke a knee at the mill.").await;
        let answer = json!({ "facts": [], "forget": [knee] }).to_string();
        stage.llm.queue_text(Task::Extraction, answer);
        stage.run_job(&committed.jobs[0]).await.unwrap();
        assert_eq!(stage.valid_contents().await, [""; 0]);
        assert!(!is_told().await);
        // A rewind of the request restores the summary.
        second.rewind(0, None).await;
        assert!(is_told().await);
        // A fact removed by a person is hidden too.
        let (facts, fact) = (&stage.services.ledger.facts, stage.facts().await.pop().unwrap());
        let edit = stage.edit("fact.remove");
        facts.remove_fact(&stage.scope, fact.id, None, &edit).await.unwrap();
        assert!(!is_told().await);
    });
}

#[test]
fn state_block_may_name_the_player_by_a_known_name() {
    run(async {
        let stage = stage(None).await;
        let mut talk = stage.session("p1").await;
        let mut name = statement("be named", "Rowan", "The player is named Rowan.", "positive", &["name"]);
        name["kind"] = json!("personal_info");
        talk.say_and_learn("I am Rowan.", &json!([name])).await;
        let trusts = |to: &str| {
            let block = json!({ "relationship_changes": [{ "from": "Mira", "to": to, "type": "trust", "delta": 3 }] });
            stage
                .llm
                .queue_text(Task::Reply, format!("Good.\n```state\n{block}\n```"));
        };
        let trust = |to: &str| StateChange::Relationship {
            from: "Mira".to_owned(),
            to: to.to_owned(),
            kind: "trust".to_owned(),
            delta: 3,
        };
        for called in ["Rowan", "rowan", "player"] {
            trusts(called);
            assert_eq!(talk.say_line("Hello").await.state, [trust("player:p1")], "{called}");
        }
        trusts("Anna");
        assert_eq!(talk.say_line("Hello").await.state, [], "nobody is called that");
        // A known name of one player does not mean another player.
        trusts("Rowan");
        assert_eq!(stage.session("p2").await.say_line("Hello").await.state, []);
        // If an NPC has the name, the name means the NPC.
        let mut other = stage.npc.clone();
        (other.id, other.name) = ("rowan".parse().unwrap(), "Rowan".to_owned());
        let (authored, edit) = (&stage.services.ledger.authored, stage.edit("npc.put"));
        authored.put_npc(&stage.scope, &other, None, &edit).await.unwrap();
        trusts("Rowan");
        assert_eq!(talk.say_line("Hello").await.state, [trust("Rowan")]);
    });
}
