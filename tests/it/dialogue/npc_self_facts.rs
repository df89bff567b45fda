//! An NPC's statements to one player about itself, and the other players who hear these facts.

use colloquy::{
    dialogue::knowledge::scenarios,
    memory::{
        authored::{SelfTold, WorldSettings},
        fact::Fact,
        progress::Progress,
        scenario::Scenario,
    },
    ports::{clock::Clock as _, llm::Task},
};
use serde_json::{Value, json};

use super::{Stage, liking_fact, verdicts};
use crate::support::run;

const ASKS: &str = "What is your favourite song?";
const SONG: &str = "Mira's favourite song is the Miller's Grey Mare.";

/// Returns a statement of the NPC about itself, as an extractor writes facts.
fn self_fact(object: &str, content: &str) -> Value {
    json!({
        "subject": "Mira", "predicate": "favourite song", "object": object, "content": content, "keywords": ["song"],
        "speaker": "Mira", "kind": "preference", "importance": 5, "polarity": "positive", "tense": "present",
    })
}

/// Prepares a world whose NPCs tell all players the same about themselves.
async fn sharing_stage() -> Stage {
    let settings = WorldSettings {
        self_told: Some(SelfTold::Shared),
        ..WorldSettings::default()
    };
    Stage::prepare_with(|_| {}, settings).await
}

fn song_fact() -> Value {
    self_fact("the Miller's Grey Mare", SONG)
}

/// Returns the fact with `what` in its content, and the player to whom the fact is private.
async fn found_fact(stage: &Stage, what: &str) -> (Fact, Option<String>) {
    let facts = stage.facts().await;
    let mut found = facts.into_iter().filter(|fact| fact.statement.content.contains(what));
    let fact = found.next().unwrap_or_else(|| panic!("nobody told of {what}"));
    assert!(found.next().is_none(), "it was learned once");
    let player = fact.audience.private_to.as_ref().map(ToString::to_string);
    (fact, player)
}

/// True if a prompt in the player's session has `what`.
async fn is_in_prompt(stage: &Stage, player: &str, line: &str, what: &str) -> bool {
    stage.session(player).await.say_line(line).await;
    stage.llm.last_context().contains(what)
}

#[test]
fn npc_statement_about_itself_is_known_with_all_players() {
    run(async {
        let stage = sharing_stage().await;
        let mut talk = stage.session("rowan").await;
        talk.say_and_learn(ASKS, &json!([song_fact(), liking_fact("plums", &["plum"])]))
            .await;
        assert_eq!(found_fact(&stage, "Grey Mare").await.1, None);
        assert_eq!(found_fact(&stage, "plums").await.1.as_deref(), Some("rowan"));

        stage.session("lark").await.say_line(ASKS).await;
        let context = stage.llm.prompts_of(Task::Reply).pop().unwrap();
        let place = |text: &str| context.find(text).unwrap_or_else(|| panic!("no {text} in {context}"));
        let told = context.lines().find(|line| line.contains("Grey Mare")).unwrap();
        assert!(told.contains("You said"), "it is her own word: {told}");
        assert!(
            place(&stage.npc.persona.description) < place(told),
            "the persona comes first: {context}"
        );
        assert!(!context.contains("plums"), "{context}");
    });
}

/// Nobody said a note, and a fact may come from it.
#[test]
fn self_facts_of_a_turn_with_notes_stay_with_the_player() {
    run(async {
        let stage = sharing_stage().await;
        let reply = "Well.\n```state\n{\"notes\": [\"I hum the Miller's Grey Mare to myself.\"]}\n```";
        stage.llm.queue_text(Task::Reply, reply);
        stage
            .session("rowan")
            .await
            .say_and_learn(ASKS, &json!([song_fact()]))
            .await;
        assert_eq!(found_fact(&stage, "Grey Mare").await.1.as_deref(), Some("rowan"));
    });
}

#[test]
fn npc_self_facts_stay_with_one_player_by_default() {
    run(async {
        let stage = Stage::prepare().await;
        stage
            .session("rowan")
            .await
            .say_and_learn(ASKS, &json!([song_fact()]))
            .await;
        assert_eq!(found_fact(&stage, "Grey Mare").await.1.as_deref(), Some("rowan"));
        assert!(!is_in_prompt(&stage, "lark", ASKS, "Grey Mare").await);
        assert!(is_in_prompt(&stage, "rowan", ASKS, "Grey Mare").await);
    });
}

/// A confidence in other words: no word of the statement is the player's.
#[test]
fn answer_to_a_confidence_in_other_words_reaches_no_other_player() {
    run(async {
        let stage = Stage::prepare().await;
        let swaddling = json!([self_fact("swaddling clothes", "Mira sews swaddling clothes at night.")]);
        let line = "I am pregnant by the duke. Nobody may know.";
        stage.session("rowan").await.say_and_learn(line, &swaddling).await;
        assert_eq!(found_fact(&stage, "swaddling").await.1.as_deref(), Some("rowan"));
        assert!(!is_in_prompt(&stage, "lark", "What do you sew at night?", "swaddling").await);
        assert!(is_in_prompt(&stage, "rowan", "What do you sew at night?", "swaddling").await);
    });
}

#[test]
fn self_fact_that_rests_on_a_player_statement_stays_with_the_player() {
    run(async {
        let stage = sharing_stage().await;
        let mut talk = stage.session("rowan").await;
        talk.say_and_learn(
            "Nobody knows that I am pregnant",
            &json!([liking_fact("pregnancy", &["pregnant"])]),
        )
        .await;
        let told = [
            ("Mira was pregnant once and knows how it is.", Some("rowan")),
            ("Mira thinks of names for babies with rowan.", Some("rowan")),
            ("Mira was born in Rivermouth.", None),
        ];
        let facts: Vec<Value> = told.iter().map(|(content, _)| self_fact("", content)).collect();
        talk.say_and_learn("What do you say?", &json!(facts)).await;
        for (content, private) in told {
            assert_eq!(found_fact(&stage, content).await.1.as_deref(), private, "{content}");
        }
        // The fact also stays private in another session, where the secret comes from memory alone.
        let mut later = stage.session("rowan").await;
        later
            .say_and_learn("And me?", &json!([self_fact("", "Mira knits for pregnant friends.")]))
            .await;
        assert_eq!(found_fact(&stage, "knits").await.1.as_deref(), Some("rowan"));
        // The next line has the secret only in its history, and its fact stays private, too.
        later
            .say_and_learn(
                "And what else?",
                &json!([self_fact("", "Mira hopes for a pregnancy herself.")]),
            )
            .await;
        assert_eq!(found_fact(&stage, "hopes").await.1.as_deref(), Some("rowan"));
    });
}

#[test]
fn turn_records_the_private_content_of_its_own_prompt() {
    run(async {
        let stage = sharing_stage().await;
        let mut talk = stage.session("rowan").await;
        let secrets = [
            "plums", "brambles", "quinces", "medlars", "damsons", "sloes", "figs", "dates",
        ];
        let mut sizes = Vec::new();
        for secret in secrets {
            // Hearsay is in no prompt without a search.
            let mut fact = liking_fact(secret, &[]);
            (fact["subject"], fact["content"]) = (json!("Dorran"), json!(format!("Dorran likes {secret}.")));
            talk.say_and_learn(&format!("Dorran likes {secret}"), &json!([fact]))
                .await;
            stage.llm.queue_text(Task::Intent, "memory");
            let committed = talk.say_line(&format!("What of {secret}?")).await;
            assert!(stage.llm.last_context().contains(secret));
            let kept = serde_json::to_value(committed.checkpoint.confided).unwrap();
            sizes.push(kept.as_array().unwrap().len());
        }
        let (number, dialogues) = (talk.open.dialogue.head_turn, &stage.services.ledger.dialogues);
        let all = dialogues
            .load_confided(&stage.scope, talk.open.dialogue.id, number)
            .await;
        let all = serde_json::to_value(all.unwrap()).unwrap().as_array().unwrap().len();
        assert!(all >= secrets.len(), "{all}");
        stage.llm.queue_text(Task::Intent, "chat");
        let greeted = talk.say_line("Good day!").await.checkpoint.confided;
        assert!(
            serde_json::to_value(greeted).unwrap().as_array().unwrap().len() < all,
            "{sizes:?}"
        );
    });
}

#[test]
fn self_fact_that_rests_on_a_locked_past_is_not_shared() {
    run(async {
        let mut stage = sharing_stage().await;
        let scenario = Scenario {
            world: stage.world.id.clone(),
            npc: stage.npc.id.clone(),
            id: "well".parse().unwrap(),
            title: "The dry well".to_owned(),
            content: "My brother Anselm fell into the dry well.".to_owned(),
            keywords: vec!["brother".to_owned()],
            synonyms: vec![],
            required_progress: Progress::new(1).unwrap(),
            when: vec![],
            tell: None,
            version: 0,
            updated_at: stage.clock.now(),
        };
        let edit = stage.edit("scenario.put");
        scenarios::write_scenario(&stage.services, &stage.scope, &scenario, None, &edit)
            .await
            .unwrap();
        stage.npc.has_scenarios = true;
        let (player, to) = ("rowan".parse().unwrap(), Progress::new(1).unwrap());
        let (of, edit) = ((&stage.world, &stage.npc), stage.edit("progress.put"));
        let set = scenarios::set_progress(&stage.services, &stage.scope, of, &player, to, &edit).await;
        assert!(set.unwrap());
        let mut talk = stage.session("rowan").await;
        stage.llm.queue_text(Task::Intent, "scenario");
        talk.say_and_learn(
            "What happened to your brother?",
            &json!([self_fact("", "Mira fears deep water.")]),
        )
        .await;
        let (fact, private) = found_fact(&stage, "deep water").await;
        assert_eq!(
            (fact.locks.to_string().as_str(), private.as_deref()),
            ("scenario:mira/well", Some("rowan"))
        );
    });
}

#[test]
fn turn_memories_of_both_kinds_are_unsaid_and_reinstated_together() {
    run(async {
        let stage = sharing_stage().await;
        let mut first = stage.session("rowan").await;
        first
            .say_and_learn(ASKS, &json!([song_fact(), liking_fact("plums", &["plum"])]))
            .await;
        // Her statement to another player changes the fact for both players.
        stage.llm.queue_text(Task::Judge, verdicts("contradicts"));
        let now = self_fact("Harvest Home", "Mira's favourite song is Harvest Home.");
        let mut second = stage.session("lark").await;
        second
            .say_and_learn(ASKS, &json!([now, liking_fact("pears", &["pear"])]))
            .await;
        assert_eq!(
            stage.llm.prompts_of(Task::Judge).len(),
            1,
            "about both memories at once"
        );
        let plums = "The player likes plums.";
        let valid = async || {
            let mut valid = stage.valid_contents().await;
            valid.sort();
            valid
        };
        assert_eq!(
            valid().await,
            [
                "Mira's favourite song is Harvest Home.",
                "The player likes pears.",
                plums
            ]
        );
        second.rewind(0, None).await;
        assert_eq!(valid().await, [SONG, plums], "what it had ended is back");
        first.rewind(0, None).await;
        assert_eq!(valid().await, [""; 0]);
    });
}
