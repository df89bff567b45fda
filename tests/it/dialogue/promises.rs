//! Promises from the line to the prompt: renewed and dated promises, duties, claims, and ended promises; and the names
//! of a player.

use colloquy::{memory::fact::InvalidReason, ports::llm::Task};
use serde_json::{Value, json};

use super::{Stage, TestDialogue, statement, verdicts};
use crate::support::run;

/// Returns a goal that `speaker` states about `subject`.
fn goal(subject: &str, speaker: &str, predicate: &str, object: &str, content: &str) -> Value {
    let mut goal = statement(predicate, object, content, "positive", &[]);
    (goal["subject"], goal["speaker"]) = (json!(subject), json!(speaker));
    (goal["kind"], goal["tense"]) = (json!("goal"), json!("future"));
    goal
}

fn name(predicate: &str, object: &str, content: &str) -> Value {
    let mut name = statement(predicate, object, content, "positive", &["name"]);
    name["kind"] = json!("personal_info");
    name
}

fn last_prompt(stage: &Stage, task: Task) -> String {
    stage.llm.prompts_of(task).pop().unwrap()
}

async fn end_promise(talk: &mut TestDialogue<'_>, line: &str, how: &str) {
    let answer = json!({ "facts": [], "forget": [], "ends": [{"number": 1, "how": how}] });
    talk.stage.llm.queue_text(Task::Extraction, answer.to_string());
    let committed = talk.say_line(line).await;
    for job in &committed.jobs {
        talk.stage.run_job(job).await.unwrap();
    }
}

#[test]
fn dated_promise_of_the_npc_replaces_the_vaguer_one_whatever_the_judge_says() {
    run(async {
        for verdict in ["same", "contradicts"] {
            let stage = Stage::prepare().await;
            let mut talk = stage.session("p1").await;
            let vague = "Mira takes the player to Morrow on the day the fever lifts.";
            let dated = "Mira takes the player to Morrow at first light on 2030-02-25.";
            // Prompts have days in words.
            let shown = "You said: Mira takes the player to Morrow at first light on Monday, 25 February, 2030";
            let of = |content| json!([goal("Mira", "Mira", "take", "the player to Morrow", content)]);
            talk.say_and_learn("When do we sail?", &of(vague)).await;
            stage.llm.queue_text(Task::Judge, verdicts(verdict));
            talk.say_and_learn("Name a day.", &of(dated)).await;
            assert_eq!(stage.valid_contents().await, [dated], "{verdict}");
            talk.say_and_learn("So when do we sail?", &json!([])).await;
            let prompt = last_prompt(&stage, Task::Reply);
            assert!(prompt.contains(shown) && !prompt.contains(vague), "{prompt}");
            // The judge may call a vaguer repetition the same, and the day stays.
            stage.llm.queue_text(Task::Judge, verdicts("same"));
            let repeated = "Mira will take the player to Morrow.";
            talk.say_and_learn("You will?", &of(repeated)).await;
            talk.say_and_learn("And the day was?", &json!([])).await;
            let prompt = last_prompt(&stage, Task::Reply);
            assert!(prompt.contains(shown) && !prompt.contains(repeated), "{prompt}");
        }
    });
}

#[test]
fn duty_is_shown_until_it_is_done_and_a_claim_is_no_promise() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        let duty = "The player returns the book to Mira by 2030-04-25.";
        let claim = "Mira gives the player her boat.";
        let facts = json!([
            goal("player", "Mira", "return", "the book", duty),
            goal("Mira", "player", "give", "her boat", claim),
        ]);
        talk.say_and_learn("You promised me your boat. When is the book due?", &facts)
            .await;
        talk.say_and_learn("Well then.", &json!([])).await;
        let prompt = last_prompt(&stage, Task::Reply);
        assert!(prompt.contains("[What you told the player to do]"), "{prompt}");
        assert!(!prompt.contains("[Open promises and goals]"), "{prompt}");
        end_promise(&mut talk, "Here is your book.", "fulfilled").await;
        let extraction = last_prompt(&stage, Task::Extraction);
        let open: Vec<&str> = extraction.lines().filter(|line| line.starts_with("<open ")).collect();
        assert!(open.len() == 1 && open[0].contains(duty), "{open:?}");
        assert_eq!(stage.valid_contents().await, [claim]);
    });
}

#[test]
fn ended_promise_is_shown_with_its_end_until_that_is_unsaid() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        let promise = "The player will bring Mira salt.";
        let facts = json!([goal("player", "player", "bring", "salt", promise)]);
        talk.say_and_learn("I will bring you salt.", &facts).await;
        end_promise(&mut talk, "Here it is.", "fulfilled").await;
        assert_eq!(
            stage.facts().await[0].invalid.as_ref().unwrap().reason,
            InvalidReason::Fulfilled
        );
        let shown = format!("[Promises and goals that are over]\n- [earlier today, kept] The player says: {promise}");
        talk.say_and_learn("Did I keep my word?", &json!([])).await;
        let prompt = last_prompt(&stage, Task::Reply);
        assert!(prompt.contains(&shown), "{prompt}");
        // The same promise made again is another promise.
        talk.say_and_learn("I will bring you salt again.", &facts).await;
        assert_eq!(stage.valid_contents().await, [promise]);
        talk.rewind(1, None).await;
        let mut again = stage.session("p1").await;
        again.say_line("Where was I?").await;
        let prompt = last_prompt(&stage, Task::Reply);
        assert!(
            !prompt.contains("that are over") && prompt.contains("[Open promises and goals]"),
            "{prompt}"
        );
    });
}

#[test]
fn all_names_of_a_player_stand_and_no_judge_compares_them() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        let (first, nick) = ("The player's name is Ida Marrable.", "Friends call the player Wren.");
        talk.say_and_learn("I am Ida Marrable.", &json!([name("be named", "Ida Marrable", first)]))
            .await;
        talk.say_and_learn("Friends call me Wren.", &json!([name("be nicknamed", "Wren", nick)]))
            .await;
        talk.say_and_learn("What is my real name?", &json!([])).await;
        let block = format!("[Who this is]\n- The player says: {first}\n- The player says: {nick}\n");
        let prompt = last_prompt(&stage, Task::Reply);
        assert!(prompt.contains(&block), "{prompt}");
        let extraction = last_prompt(&stage, Task::Extraction);
        for known in [first, nick] {
            assert!(
                extraction.contains(&format!("<known>The player says: {known}</known>")),
                "{extraction}"
            );
        }
        assert_eq!(stage.llm.prompts_of(Task::Judge), [""; 0]);
        // A correction ends the wrong name alone.
        let corrected = "The player's name is Ada Marrable.";
        let mut wrong = name("be named", "Ida Marrable", "The player's name is not Ida Marrable.");
        wrong["polarity"] = json!("negative");
        talk.say_and_learn(
            "Not Ida Marrable: Ada.",
            &json!([wrong, name("be named", "Ada Marrable", corrected)]),
        )
        .await;
        talk.say_and_learn("So?", &json!([])).await;
        let block = format!("[Who this is]\n- The player says: {corrected}\n- The player says: {nick}\n");
        let prompt = last_prompt(&stage, Task::Reply);
        assert!(prompt.contains(&block), "{prompt}");
    });
}
