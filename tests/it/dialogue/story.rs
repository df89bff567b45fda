//! The story: open findings and notes of curation passes reach the prompts of the NPC and the player that talked.

use std::time::Duration;

use colloquy::{
    dialogue::{
        explain::{self, TurnExplanation},
        settings::DialogueSettings,
    },
    ids::DialogueId,
    memory::{
        authored::WorldSettings,
        curation::{Decision, Finding},
        trace::{CandidateFate, StoryPart},
    },
    ports::{
        clock::Clock as _,
        ledger::{curation::PersonDecision, jobs::JobKind},
        llm::Task,
    },
};
use serde_json::{Value, json};

use super::{Stage, TestDialogue, insights::ask_of_the_well, statement};
use crate::support::run;

/// The heading in a prompt.
const HEADING: &str = "[What is still open]";

/// The lines of the story in the prompt of a pass with a hint and a note.
const LINES: [&str; 2] = [
    "(not yet answered) The bell rang by itself.",
    "Anna wants the key from Mira.",
];

fn finding(about: &str, kind: &str, text: &str, decision: &str) -> Value {
    json!({ "about": about, "kind": kind, "text": text, "turns": [1], "decision": decision, "reason": "" })
}

/// A hint that waits for a later scene.
fn open_hint() -> Value {
    finding("", "foreshadowing", "The bell rang by itself.", "open")
}

fn note(text: &str) -> Value {
    json!({ "edit": "append", "text": text, "by": "" })
}

/// A stage whose passes come when a test asks for them.
async fn stage_with_passes() -> Stage {
    let change = |settings: &mut DialogueSettings| {
        settings.curation.every_turns = 50;
        settings.curation.min_turns = 1;
    };
    Stage::prepare_with(change, WorldSettings::default()).await
}

impl Stage {
    /// Runs a pass over the unread turns of a dialogue.
    async fn run_story_pass(&self, dialogue: DialogueId, findings: &[Value], notes: &[Value]) {
        let answer = json!({ "findings": findings, "edits": notes, "done": true });
        self.llm.queue_text(Task::Curation, answer.to_string());
        let now = self.clock.now();
        let curation = &self.services.ledger.curation;
        let job = self.services.ids.next_id();
        assert!(curation.queue_pass(&self.scope, dialogue, job, now).await.unwrap());
        let until = now + Duration::from_mins(2);
        let jobs = &self.services.ledger.jobs;
        let due = jobs
            .lease_due_jobs(&self.scope, self.node, now, until, 100)
            .await
            .unwrap();
        for job in due.iter().filter(|job| job.kind == JobKind::Curate) {
            self.run_job(job).await.unwrap();
        }
    }

    /// Returns the lines of the story in the last prompt of a reply.
    fn story_lines(&self) -> Vec<String> {
        let prompt = self.llm.prompts_of(Task::Reply).pop().unwrap();
        let Some((_, story)) = prompt.split_once(HEADING) else {
            return Vec::new();
        };
        let lines = story.lines().skip_while(|line| !line.starts_with("- "));
        let lines = lines.map_while(|line| line.strip_prefix("- "));
        lines.map(str::to_owned).collect()
    }

    async fn first_finding(&self, dialogue: DialogueId) -> Finding {
        let curation = &self.services.ledger.curation;
        let mut stored = curation.load_dialogue_curation(&self.scope, dialogue, 1).await.unwrap();
        stored.findings.remove(0)
    }
}

/// Says lines in a new session, and runs a pass with a hint and a note over them.
async fn talk_with_pass<'s>(stage: &'s Stage, player: &str) -> TestDialogue<'s> {
    let mut talk = stage.session(player).await;
    for line in ["The bell rang by itself.", "Anna wants your key."] {
        talk.say_line(line).await;
        stage.clock.advance(Duration::from_secs(1));
    }
    let notes = [note("Anna wants the key from Mira.")];
    stage
        .run_story_pass(talk.open.dialogue.id, &[open_hint()], &notes)
        .await;
    talk
}

#[test]
fn story_reaches_the_npc_in_talks_with_the_same_player_alone() {
    run(async {
        let stage = stage_with_passes().await;
        let mut talk = talk_with_pass(&stage, "p1").await;
        assert_eq!(stage.story_lines(), Vec::<String>::new(), "before the pass");
        talk.say_line("How is the bell?").await;
        assert_eq!(stage.story_lines(), LINES);
        let traced = talk.trace(3).await.story;
        let parts: Vec<_> = traced.iter().map(|line| (line.part, line.fate)).collect();
        let used = CandidateFate::Used;
        assert_eq!(parts, [(StoryPart::Foreshadowing, used), (StoryPart::Note, used)]);

        let mut later = stage.session("p1").await;
        later.say_line("Good evening.").await;
        assert_eq!(stage.story_lines(), LINES, "a later session of the player");
        let mut other = stage.session("p2").await;
        for line in ["Good evening.", "How is the bell?", "And the key?"] {
            other.say_line(line).await;
            assert_eq!(stage.story_lines(), Vec::<String>::new(), "another player");
        }
    });
}

#[test]
fn story_goes_with_its_turns_and_with_decisions_about_it() {
    run(async {
        let stage = stage_with_passes().await;
        let mut talk = talk_with_pass(&stage, "p1").await;
        let id = talk.open.dialogue.id;
        let finding = stage.first_finding(id).await;
        let decision = PersonDecision {
            decision: Decision::Fixed,
            reason: "",
        };
        let edit = stage.edit("finding.decide");
        let curation = &stage.services.ledger.curation;
        let decided = curation.decide_finding(&stage.scope, &stage.world.id, finding.id, decision, &edit);
        assert!(decided.await.unwrap().is_some());
        talk.say_line("How is the bell?").await;
        assert_eq!(stage.story_lines(), LINES[1..], "the finding is settled");
        talk.rewind(1, None).await;
        let mut later = stage.session("p1").await;
        later.say_line("What now?").await;
        assert_eq!(stage.story_lines(), Vec::<String>::new(), "the pass is taken back");
    });
}

#[test]
fn story_with_a_told_secret_is_locked_with_it() {
    run(async {
        let mut stage = stage_with_passes().await;
        stage.author_well().await;
        stage.set_progress(1).await;
        let mut talk = stage.session("p1").await;
        ask_of_the_well(&mut talk).await;
        let notes = [note("The player asked kindly of Anselm.")];
        stage.run_story_pass(talk.open.dialogue.id, &[], &notes).await;
        let shown_lines = async || {
            let mut later = stage.session("p1").await;
            later.say_line("Good evening.").await;
            (stage.story_lines().len(), later.trace(1).await.locks.to_string())
        };
        assert_eq!(
            shown_lines().await,
            (1, "scenario:mira/well".to_owned()),
            "the lock spreads"
        );
        stage.set_progress(0).await;
        assert_eq!(shown_lines().await, (0, String::new()));
    });
}

#[test]
fn story_of_a_forgotten_turn_is_left_out_in_any_words() {
    run(async {
        let stage = stage_with_passes().await;
        let mut talk = stage.session("p1").await;
        let content = "The player's brother deserted.";
        let fact = statement("desert", "the army", content, "positive", &["brother"]);
        talk.say_and_learn("My brother deserted.", &json!([fact])).await;
        talk.say_line("It rains.").await;
        let shielded = finding("", "foreshadowing", "A runaway soldier is near.", "open");
        let notes = [note("The player shields somebody.")];
        stage.run_story_pass(talk.open.dialogue.id, &[shielded], &notes).await;
        talk.say_line("Is it late?").await;
        assert_eq!(stage.story_lines().len(), 2);
        let forget = json!({ "forget": [content], "ends": [], "facts": [] });
        stage.llm.queue_text(Task::Extraction, forget.to_string());
        let committed = talk.say_line("Forget what I said of my brother.").await;
        for job in committed.jobs.iter().filter(|job| job.kind == JobKind::ExtractFacts) {
            stage.run_job(job).await.unwrap();
        }
        stage.clock.advance(Duration::from_secs(1));
        talk.say_line("What now?").await;
        assert_eq!(stage.story_lines(), Vec::<String>::new());
    });
}

#[test]
fn several_npcs_share_no_story() {
    run(async {
        let stage = stage_with_passes().await;
        let tom = colloquy::memory::authored::Npc {
            id: "tom".parse().unwrap(),
            name: "Tom".to_owned(),
            ..stage.npc.clone()
        };
        let authored = &stage.services.ledger.authored;
        let edit = stage.edit("npc.put");
        authored.put_npc(&stage.scope, &tom, None, &edit).await.unwrap();
        let mut talk = stage.session_with("p1", &[&tom], &[]).await;
        for line in ["The bell rang by itself.", "Anna wants your key."] {
            talk.say_line(line).await;
        }
        let notes = [note("Anna wants the key from Mira.")];
        stage
            .run_story_pass(talk.open.dialogue.id, &[open_hint()], &notes)
            .await;
        talk.say_line("How is the bell?").await;
        assert_eq!(stage.story_lines(), Vec::<String>::new());
    });
}

#[test]
fn prompt_with_a_story_is_verified_from_its_trace() {
    run(async {
        let stage = stage_with_passes().await;
        let mut talk = talk_with_pass(&stage, "p1").await;
        talk.say_line("How is the bell?").await;
        assert_eq!(stage.story_lines(), LINES);
        // A later pass changes the notes, and settles the hint.
        let settled = finding("F1", "foreshadowing", "", "fixed");
        stage
            .run_story_pass(talk.open.dialogue.id, &[settled], &[note("The key is lost.")])
            .await;
        let explained = explain::explain_turn(&stage.services, &stage.scope, &talk.open.dialogue, 3, true)
            .await
            .unwrap();
        let TurnExplanation::Explained(explanation) = explained else {
            panic!("{explained:?}")
        };
        let verification = explanation.explained.verification.unwrap();
        assert_eq!(verification.same, Some(true), "{verification:?}");
    });
}
