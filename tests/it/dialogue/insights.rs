//! Insights: what a pass learns reaches later sessions with the same player, and nobody else.

use std::time::Duration;

use colloquy::{
    dialogue::{
        curate::make_dry_run,
        jobs::JobError,
        knowledge::scenarios,
        settings::{CurationSettings, DialogueSettings},
        summarise::queue_jobs_after_silence,
    },
    ids::DialogueId,
    memory::{
        authored::WorldSettings,
        curation::Decision,
        insight::{Insight, MAX_INSIGHT_CHARS, MAX_INSIGHTS_PER_PASS},
        progress::Progress,
        scenario::Scenario,
        trace::InsightFate,
    },
    ports::{
        PageRequest,
        clock::Clock as _,
        ledger::{
            curation::PassCommit,
            insights::InsightFilter,
            jobs::{Job, JobKind},
        },
        llm::Task,
    },
};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Row as _, sqlite::SqliteConnectOptions};

use super::{Stage, TestDialogue};
use crate::support::run;

/// The heading in a prompt.
const HEADING: &str = "[What earlier talks have taught you]";

async fn stage_with(change: impl FnOnce(&mut CurationSettings)) -> Stage {
    let change = |settings: &mut DialogueSettings| change(&mut settings.curation);
    Stage::prepare_with(change, WorldSettings::default()).await
}

fn insight(entity: &str, text: &str) -> Value {
    json!({ "about": "", "entity": entity, "text": text, "turns": [] })
}

/// An insight in the place of the one with this id in the prompt.
fn insight_about(id: &str, text: &str, turns: &[u32]) -> Value {
    json!({ "about": id, "entity": "", "text": text, "turns": turns })
}

impl Stage {
    fn queue_insights(&self, insights: &[Value]) {
        let answer = json!({ "findings": [], "edits": [], "insights": insights, "done": true });
        self.llm.queue_text(Task::Curation, answer.to_string());
    }

    /// Runs a pass over the unread turns of a dialogue, with these insights.
    async fn run_pass(&self, dialogue: DialogueId, insights: &[Value]) {
        self.queue_insights(insights);
        self.run_queued_pass(dialogue).await;
    }

    /// Runs a pass over the unread turns of a dialogue, with the queued answer.
    async fn run_queued_pass(&self, dialogue: DialogueId) {
        let (curation, now) = (&self.services.ledger.curation, self.clock.now());
        let job = self.services.ids.next_id();
        assert!(curation.queue_pass(&self.scope, dialogue, job, now).await.unwrap());
        assert_eq!(self.run_due_passes().await, 1);
    }

    /// Gives the NPC a past that p1 may hear with some progress.
    pub(super) async fn author_well(&mut self) {
        let well = Scenario {
            world: self.world.id.clone(),
            npc: self.npc.id.clone(),
            id: "well".parse().unwrap(),
            title: "The dry well".to_owned(),
            content: "My brother Anselm fell into the dry well.".to_owned(),
            keywords: vec!["brother".to_owned()],
            synonyms: vec![],
            required_progress: Progress::new(1).unwrap(),
            when: vec![],
            tell: None,
            version: 0,
            updated_at: self.clock.now(),
        };
        let edit = self.edit("scenario.put");
        scenarios::write_scenario(&self.services, &self.scope, &well, None, &edit)
            .await
            .unwrap();
        self.npc.has_scenarios = true;
    }

    /// Sets the progress of p1 with the NPC.
    pub(super) async fn set_progress(&self, to: u32) {
        let (player, to) = ("p1".parse().unwrap(), Progress::new(to).unwrap());
        let (of, edit) = ((&self.world, &self.npc), self.edit("progress.put"));
        let set = scenarios::set_progress(&self.services, &self.scope, of, &player, to, &edit).await;
        assert!(set.unwrap());
    }

    /// Says another line, and runs a pass over it.
    async fn run_pass_again(&self, talk: &mut TestDialogue<'_>, insights: &[Value]) {
        say(talk, "And more.").await;
        self.run_pass(talk.open.dialogue.id, insights).await;
    }

    /// Runs the due passes, and returns their number.
    async fn run_due_passes(&self) -> usize {
        let (jobs, now) = (&self.services.ledger.jobs, self.clock.now());
        let until = now + Duration::from_mins(2);
        let due = jobs
            .lease_due_jobs(&self.scope, self.node, now, until, 100)
            .await
            .unwrap();
        let passes: Vec<Job> = due.into_iter().filter(|job| job.kind == JobKind::Curate).collect();
        for job in &passes {
            self.run_job(job).await.unwrap();
        }
        passes.len()
    }

    async fn insights(&self) -> Vec<Insight> {
        let page = PageRequest {
            limit: 200,
            after: None,
        };
        let (store, filter) = (&self.services.ledger.insights, InsightFilter::default());
        let found = store
            .list_insights(&self.scope, &self.world.id, &self.npc.id, filter, &page)
            .await;
        found.unwrap().items
    }

    /// Returns the texts of the insights, newest first.
    async fn insight_texts(&self) -> Vec<String> {
        self.insights().await.into_iter().map(|insight| insight.text).collect()
    }

    /// Returns the lines about earlier talks in the last prompt of a reply.
    fn taught_lines(&self) -> Vec<String> {
        let context = self.llm.last_context();
        let Some((_, rest)) = context.split_once(HEADING) else {
            return Vec::new();
        };
        let lines = rest.lines().skip(1).take_while(|line| line.starts_with("- "));
        lines
            .map(|line| line.rsplit(" | ").next().unwrap_or_default().to_owned())
            .collect()
    }

    /// Looks for dialogues that have ended, and returns the number of queued jobs.
    async fn look_for_ends(&self) -> usize {
        let (services, now) = (&self.services, self.clock.now());
        let settings = &services.settings;
        let report = queue_jobs_after_silence(&services.ledger, &services.ids, settings, &self.scope, now).await;
        report.unwrap().queued
    }

    /// Returns all rows of the database, by table, without the counts of model usage.
    async fn dump_tables(&self) -> Vec<(String, Vec<String>)> {
        let path = self.folder.path().join("colloquy.db");
        let options = SqliteConnectOptions::new().filename(path).read_only(true);
        let mut database = options.connect().await.unwrap();
        let tables = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name";
        let tables = sqlx::query(tables).fetch_all(&mut database).await.unwrap();
        let mut dump = Vec::new();
        for table in tables {
            let table: String = table.get(0);
            let columns =
                format!("SELECT group_concat('quote(\"' || name || '\")', '||') FROM pragma_table_info('{table}')");
            let columns = sqlx::query(AssertSqlSafe(columns))
                .fetch_one(&mut database)
                .await
                .unwrap();
            let columns: String = columns.get(0);
            let rows = format!("SELECT {columns} FROM \"{table}\" ORDER BY 1");
            let rows = sqlx::query(AssertSqlSafe(rows)).fetch_all(&mut database).await.unwrap();
            dump.push((table, rows.iter().map(|row| row.get(0)).collect()));
        }
        sqlx::Connection::close(database).await.unwrap();
        dump.retain(|(table, _)| table != "model_usage");
        dump
    }
}

async fn say(talk: &mut TestDialogue<'_>, line: &str) {
    talk.say_line(line).await;
    talk.stage.clock.advance(Duration::from_secs(1));
}

/// The player asks for the past of [`Stage::author_well`].
pub(super) async fn ask_of_the_well(talk: &mut TestDialogue<'_>) {
    talk.stage.llm.queue_text(Task::Intent, "scenario");
    say(talk, "What happened to your brother?").await;
}

async fn assert_insights_reach_the_same_pair_alone(stage: Stage) {
    let mut talk = stage.session("p1").await;
    let id = talk.open.dialogue.id;
    say(&mut talk, "I always pay my debts.").await;
    let about_player = insight("the player", "The player pays every debt.");
    stage
        .run_pass(
            id,
            &[
                about_player,
                insight("the player's sister", "Her sister trusts those who <pay>."),
                insight("Mira", "One should not speak to Mira of her debts."),
                insight("the ferry", "The price of the ferry is a sore point."),
            ],
        )
        .await;
    let stored = stage.insights().await;
    let entities: Vec<&str> = stored.iter().map(|insight| insight.entity.as_str()).collect();
    assert_eq!(
        entities,
        ["the ferry", "player:p1's sister", "player:p1"],
        "Mira gets none about herself"
    );
    assert_eq!((stored[0].number, stored[0].dialogue), (1, id));

    say(&mut talk, "Is the ferry dear?").await;
    assert!(stage.taught_lines().is_empty(), "the prompt has the lines themselves");
    assert_eq!(talk.trace(2).await.insights[0].fate, InsightFate::InHistory);

    let mut again = stage.session("p1").await;
    say(&mut again, "Hello.").await;
    let expected = [
        "The player pays every debt.",
        "Her sister trusts those who \u{2039}pay\u{203a}.",
    ];
    assert_eq!(stage.taught_lines(), expected);
    let trace = again.trace(1).await;
    let shown: Vec<_> = trace
        .insights
        .iter()
        .map(|traced| (traced.fate, traced.entity.as_str()))
        .collect();
    assert_eq!(
        shown,
        [
            (InsightFate::Used, "player:p1's sister"),
            (InsightFate::Used, "player:p1")
        ],
        "the newest first"
    );
    let section = trace
        .sections
        .iter()
        .find(|section| section.name == "insights")
        .unwrap();
    assert!(section.tokens > 0 && section.budget == 200, "{section:?}");
    say(&mut again, "What does the ferry cost?").await;
    assert_eq!(stage.taught_lines()[2], "The price of the ferry is a sore point.");
    assert_eq!(
        again.trace(2).await.insights[0].entity,
        "the ferry",
        "named by the line"
    );

    let mut other = stage.session("p2").await;
    say(&mut other, "What does the ferry cost Mira?").await;
    assert!(stage.taught_lines().is_empty());
    assert!(other.trace(1).await.insights.is_empty());

    talk.rewind(0, None).await;
    let mut later = stage.session("p1").await;
    say(&mut later, "Hello.").await;
    assert!(stage.taught_lines().is_empty(), "taken back with their turns");
}

#[test]
fn insights_reach_later_sessions_of_the_same_npc_and_player_alone() {
    run(async {
        Box::pin(assert_insights_reach_the_same_pair_alone(stage_with(|_| {}).await)).await;
    });
}

#[test]
fn insights_reach_later_sessions_of_the_same_npc_and_player_alone_on_postgres() {
    run(async {
        let stage = Stage::prepare_on_postgres(|_| {}, WorldSettings::default()).await;
        Box::pin(assert_insights_reach_the_same_pair_alone(stage)).await;
    });
}

#[test]
fn later_insight_of_the_day_replaces_the_earlier_until_it_is_taken_back() {
    run(async {
        let stage = stage_with(|_| {}).await;
        let mut talk = stage.session("p1").await;
        let id = talk.open.dialogue.id;
        say(&mut talk, "I hate bells.").await;
        stage
            .run_pass(id, &[insight("player", "The player hates bells.")])
            .await;
        say(&mut talk, "Bells are fine.").await;
        let twice = [
            insight("player", "The player hears bells."),
            insight("Player", "The player likes bells."),
        ];
        stage.run_pass(id, &twice).await;
        assert_eq!(stage.insight_texts().await, ["The player likes bells."]);
        stage.clock.advance(Duration::from_hours(24));
        say(&mut talk, "And drums.").await;
        stage
            .run_pass(id, &[insight("player", "The player likes drums.")])
            .await;
        assert_eq!(
            stage.insight_texts().await,
            ["The player likes drums.", "The player likes bells."]
        );
        talk.rewind(1, None).await;
        assert_eq!(stage.insight_texts().await, ["The player hates bells."]);
    });
}

#[test]
fn pass_takes_back_an_insight_that_was_untrue() {
    run(async {
        let stage = stage_with(|_| {}).await;
        let mut talk = stage.session("p1").await;
        let id = talk.open.dialogue.id;
        say(&mut talk, "Were you ill at the feast?").await;
        let untrue = "The feast reminds Mira of her fever.";
        stage
            .run_pass(id, &[insight("the feast", untrue), insight("", "Nobody.")])
            .await;
        stage.clock.advance(Duration::from_hours(24));
        say(&mut talk, "You were not ill at all.").await;
        stage
            .run_pass(id, &[insight("feast", ""), insight("the ferry", "")])
            .await;
        let prompts = stage.llm.prompts_of(Task::Curation);
        let shown = format!("<insight id=\"I1\" entity=\"the feast\" day=\"2026-03-01\">{untrue}</insight>");
        assert!(!prompts[0].contains("<insight "), "{}", prompts[0]);
        let second = prompts.iter().find(|prompt| prompt.contains(&shown));
        assert!(second.is_some(), "{prompts:?}");
        let outcomes = prompts.join("\n");
        for told in [
            "insight 2: not noted, the entity is empty",
            "insight 2: not done, the text is empty",
        ] {
            assert!(outcomes.contains(told), "{outcomes}");
        }
        assert!(stage.insight_texts().await.is_empty());
        let mut later = stage.session("p1").await;
        say(&mut later, "How was the feast?").await;
        assert!(stage.taught_lines().is_empty());

        talk.rewind(1, None).await;
        let mut again = stage.session("p1").await;
        say(&mut again, "How was the feast?").await;
        assert_eq!(stage.taught_lines(), [untrue], "the turn that showed it does not stand");
    });
}

#[test]
fn prompt_has_the_named_thing_before_many_days_of_the_player() {
    run(async {
        let stage = Stage::prepare_with(|settings| settings.prompt.insight_tokens = 50, WorldSettings::default()).await;
        let mut talk = stage.session("p1").await;
        let id = talk.open.dialogue.id;
        for day in 1..4 {
            say(&mut talk, "Hello.").await;
            let of_day = [
                insight(
                    "player",
                    &format!("The player came by on day {day} and asked for bread."),
                ),
                insight("the weather", &format!("Rain is a sore point since day {day}.")),
            ];
            stage.run_pass(id, &of_day).await;
            if day == 1 {
                stage
                    .run_pass_again(&mut talk, &[insight("the ferry", "The ferry is a sore point.")])
                    .await;
            }
            stage.clock.advance(Duration::from_hours(24));
        }
        let mut later = stage.session("p1").await;
        say(&mut later, "What of the ferry?").await;
        let expected = [
            "The ferry is a sore point.",
            "The player came by on day 3 and asked for bread.",
        ];
        assert_eq!(
            stage.taught_lines(),
            expected,
            "first the named thing, then the newest, as far as the budget goes"
        );
    });
}

#[test]
fn answer_of_a_pass_is_bounded() {
    run(async {
        let stage = stage_with(|settings| settings.limits.max_steps = 1).await;
        let mut talk = stage.session("p1").await;
        let id = talk.open.dialogue.id;
        say(&mut talk, "Hello.").await;
        let mut all = vec![
            json!({ "entity": "ferry" }),
            insight("ferry", " "),
            insight("", "Nothing."),
        ];
        all.extend((0..9).map(|number| insight(&format!("thing {number}"), &"long ".repeat(100))));
        stage.run_pass(id, &all).await;
        let stored = stage.insights().await;
        assert_eq!((stored.len(), MAX_INSIGHTS_PER_PASS), (5, 5));
        for insight in stored {
            assert!(insight.text.chars().count() <= MAX_INSIGHT_CHARS && MAX_INSIGHT_CHARS == 200);
        }
    });
}

#[test]
fn insight_of_a_forgotten_matter_is_not_stored_and_not_shown() {
    run(async {
        let stage = stage_with(|_| {}).await;
        let mut talk = stage.session("p1").await;
        let id = talk.open.dialogue.id;
        let buried = json!([{
            "subject": "player", "predicate": "bury", "object": "Anna", "content": "The player has buried Anna.",
            "keywords": [], "speaker": "player", "kind": "event", "importance": 5, "polarity": "positive", "tense": "past",
        }]);
        talk.say_and_learn("I have buried Anna.", &buried).await;
        let of_anna = insight("player", "The player has buried Anna.");
        stage.run_pass(id, std::slice::from_ref(&of_anna)).await;
        say(&mut talk, "Take your time.").await;
        stage
            .run_pass(
                id,
                &[insight("the player's brother", "The player's brother is patient.")],
            )
            .await;
        let mut again = stage.session("p1").await;
        say(&mut again, "Hello.").await;
        assert_eq!(stage.taught_lines().len(), 2);

        let forget = json!({ "forget": ["The player has buried Anna."], "ends": [], "facts": [] });
        stage.llm.queue_text(Task::Extraction, forget.to_string());
        let committed = talk.say_line("Forget that I have buried Anna.").await;
        for job in committed.jobs.iter().filter(|job| job.kind == JobKind::ExtractFacts) {
            stage.run_job(job).await.unwrap();
        }
        stage.clock.advance(Duration::from_secs(1));
        let mut later = stage.session("p1").await;
        say(&mut later, "Hello.").await;
        assert_eq!(stage.taught_lines(), ["The player's brother is patient."]);
        stage
            .run_pass(id, &[of_anna, insight("ferry", "The ferry is late.")])
            .await;
        let of_pass: Vec<String> = stage
            .insights()
            .await
            .into_iter()
            .filter(|insight| insight.number == 3)
            .map(|insight| insight.text)
            .collect();
        assert_eq!(of_pass, ["The ferry is late."]);
    });
}

#[test]
fn insight_from_a_told_secret_is_locked_with_it() {
    run(async {
        let mut stage = stage_with(|_| {}).await;
        stage.author_well().await;
        stage.set_progress(1).await;
        let mut talk = stage.session("p1").await;
        ask_of_the_well(&mut talk).await;
        stage
            .run_pass(
                talk.open.dialogue.id,
                &[insight("player", "The player asked kindly of her brother Anselm.")],
            )
            .await;
        assert_eq!(stage.insights().await[0].locks.to_string(), "scenario:mira/well");
        let shows = async || {
            let mut talk = stage.session("p1").await;
            say(&mut talk, "Good evening.").await;
            (stage.taught_lines().len(), talk.trace(1).await.locks.to_string())
        };
        assert_eq!(shows().await, (1, "scenario:mira/well".to_owned()), "the lock spreads");
        stage.set_progress(0).await;
        assert_eq!(shows().await, (0, String::new()));
        stage.set_progress(1).await;
        assert_eq!(shows().await.0, 1);
    });
}

#[test]
fn replaced_insight_is_shown_only_to_players_who_may_not_hear_the_new_one() {
    run(async {
        let mut stage = stage_with(|_| {}).await;
        stage.author_well().await;
        stage.set_progress(1).await;
        let mut first = stage.session("p1").await;
        say(&mut first, "I hate bells.").await;
        let (old, new) = ("Bells annoy the player.", "Bells make the player think of Anselm.");
        stage.run_pass(first.open.dialogue.id, &[insight("bells", old)]).await;
        let mut second = stage.session("p1").await;
        ask_of_the_well(&mut second).await;
        stage
            .run_pass(second.open.dialogue.id, &[insight_about("I1", new, &[])])
            .await;
        assert_eq!(stage.insight_texts().await, [new, old], "both count");
        let taught = async || {
            let mut talk = stage.session("p1").await;
            say(&mut talk, "What of the bells?").await;
            stage.taught_lines()
        };
        assert_eq!(taught().await, [new]);
        stage.set_progress(0).await;
        assert_eq!(taught().await, [old]);
        stage.set_progress(1).await;
        second.rewind(0, None).await;
        assert_eq!(taught().await, [old], "the turn of the new one is taken back");
    });
}

#[test]
fn dialogue_that_ends_gets_a_pass_over_its_unread_turns() {
    run(async {
        for summaries_after_silence in [3_600, 0] {
            let change = |settings: &mut DialogueSettings| settings.summaries.after_silence_s = summaries_after_silence;
            let stage = Stage::prepare_with(change, WorldSettings::default()).await;
            let mut talk = stage.session("p1").await;
            let mut silent = stage.session("p2").await;
            let empty = stage.session("p3").await;
            for line in ["Good morning.", "I hate bells.", "They are loud.", "Good night."] {
                say(&mut talk, line).await;
            }
            for line in ["I hate bells.", "Bells, I say.", "Good night."] {
                say(&mut silent, line).await;
            }
            let turns = &stage.services.ledger.dialogues;
            for open in [&talk.open, &silent.open, &empty.open] {
                let now = stage.clock.now();
                turns
                    .close_dialogue(&stage.scope, open.dialogue.id, open.epoch, now)
                    .await
                    .unwrap();
            }
            let queued = stage.look_for_ends().await;
            assert_eq!(
                queued,
                1 + usize::from(summaries_after_silence > 0),
                "a pass over four turns, and a summary of them; three turns wait"
            );
            stage.queue_insights(&[insight("player", "The player hates bells.")]);
            assert_eq!(stage.run_due_passes().await, 1);
            let curation = &stage.services.ledger.curation;
            for (open, turns) in [(&talk.open, Some((1, 4))), (&silent.open, None), (&empty.open, None)] {
                let stored = curation.load_dialogue_curation(&stage.scope, open.dialogue.id, 1);
                let pass = stored.await.unwrap().last_pass;
                assert_eq!(pass.map(|pass| (pass.from_turn, pass.to_turn)), turns);
            }
            assert_eq!(stage.insight_texts().await, ["The player hates bells."]);
            assert_eq!(stage.look_for_ends().await, 0, "once");
        }
    });
}

async fn dry_run(stage: &Stage, talk: &TestDialogue<'_>) -> Result<Option<PassCommit>, JobError> {
    let dialogue = &talk.open.dialogue;
    let limit = Duration::from_secs(40);
    Box::pin(make_dry_run(&stage.services, &stage.scope, dialogue, limit)).await
}

#[test]
fn dry_run_returns_a_pass_and_writes_nothing() {
    run(async {
        let stage = stage_with(|settings| settings.calls_per_day = 2).await;
        let mut talk = stage.session("p1").await;
        assert_eq!(dry_run(&stage, &talk).await.unwrap(), None, "no turn stands");
        say(&mut talk, "I hate bells.").await;
        say(&mut talk, "I said so.").await;
        let finding = json!({ "about": "", "kind": "event", "text": "A bell rings.", "turns": [1], "decision": "open", "reason": "" });
        let answer = json!({
            "findings": [finding], "edits": [{ "edit": "append", "text": "Bells.", "by": "" }],
            "insights": [insight("player", "The player hates bells.")], "done": true,
        });
        stage.llm.queue_text(Task::Curation, answer.to_string());
        let before = stage.dump_tables().await;
        assert!(before.iter().any(|(table, rows)| table == "turns" && rows.len() == 2));
        let made = dry_run(&stage, &talk).await.unwrap().unwrap();
        assert_eq!(
            (made.pass.from_turn, made.pass.to_turn, made.pass.memory.as_str()),
            (1, 2, "Bells.")
        );
        assert_eq!(
            (made.findings.len(), made.insights[0].text.as_str()),
            (1, "The player hates bells.")
        );
        assert_eq!(stage.dump_tables().await, before);

        // The same pass as a job.
        stage.llm.queue_text(Task::Curation, answer.to_string());
        let (id, curation) = (stage.services.ids.next_id(), &stage.services.ledger.curation);
        let (dialogue, now) = (talk.open.dialogue.id, stage.clock.now());
        assert!(curation.queue_pass(&stage.scope, dialogue, id, now).await.unwrap());
        assert_eq!(stage.run_due_passes().await, 1);
        assert_ne!(stage.dump_tables().await, before);
        assert_eq!(stage.insight_texts().await, ["The player hates bells."]);
        assert_eq!(dry_run(&stage, &talk).await.unwrap(), None, "all turns have been read");

        // Its calls count for the budget of the day.
        for (scope, delta) in stage.services.models.take_usage() {
            stage.services.ledger.usage.add_usage(&scope, &[delta]).await.unwrap();
        }
        say(&mut talk, "Again.").await;
        let refused = dry_run(&stage, &talk).await;
        assert!(
            matches!(refused, Err(JobError::OverCurationBudget { .. })),
            "{refused:?}"
        );
    });
}

/// Closes a session.
async fn close(stage: &Stage, talk: &TestDialogue<'_>) {
    let (store, now) = (&stage.services.ledger.dialogues, stage.clock.now());
    let (id, epoch) = (talk.open.dialogue.id, talk.open.epoch);
    store.close_dialogue(&stage.scope, id, epoch, now).await.unwrap();
}

/// Returns the prompt of the last pass.
fn last_pass_prompt(stage: &Stage) -> String {
    stage.llm.prompts_of(Task::Curation).pop().unwrap()
}

#[test]
fn insights_of_several_sessions_hold_together_and_are_shown_to_each_pass() {
    run(async {
        let stage = stage_with(|_| {}).await;
        let texts = [
            "The player values silence.",
            "The player jokes about Piet.",
            "The player wants straight answers.",
        ];
        for (number, text) in texts.iter().enumerate() {
            let mut talk = stage.session("p1").await;
            say(&mut talk, "Good evening.").await;
            stage.run_pass(talk.open.dialogue.id, &[insight("player", text)]).await;
            let prompt = last_pass_prompt(&stage);
            for (earlier, text) in texts[..number].iter().enumerate() {
                let shown = format!(
                    "<insight id=\"I{}\" entity=\"player\" day=\"2026-03-01\">{text}</insight>",
                    earlier + 1
                );
                assert!(prompt.contains(&shown), "{prompt}");
            }
        }
        assert_eq!(
            stage.insight_texts().await.len(),
            3,
            "one talk does not wipe another, on one day"
        );
        let mut later = stage.session("p1").await;
        say(&mut later, "Good morning.").await;
        assert_eq!(stage.taught_lines(), texts);
        let mut other = stage.session("p2").await;
        say(&mut other, "Good morning.").await;
        stage.run_pass(other.open.dialogue.id, &[]).await;
        assert!(!last_pass_prompt(&stage).contains("<insight "), "of another player");
    });
}

const MOST: &str = "The player hates bells and likes drums and flutes.";

/// Three sessions: the insights of the second and the third each stand in the place of the one before.
async fn three_sessions(stage: &Stage) -> [TestDialogue<'_>; 3] {
    let mut first = stage.session("p1").await;
    say(&mut first, "I hate bells.").await;
    let bells = insight("player", "The player hates bells.");
    stage.run_pass(first.open.dialogue.id, &[bells]).await;
    let mut second = stage.session("p1").await;
    say(&mut second, "Drums are fine, bells are not.").await;
    let more = insight_about("I1", "The player hates bells and likes drums.", &[1]);
    stage.run_pass(second.open.dialogue.id, &[more]).await;
    let mut third = stage.session("p1").await;
    say(&mut third, "And flutes.").await;
    let unknown = insight_about("I7", "Nothing.", &[]);
    let pass = [insight_about("i1", MOST, &[1]), unknown];
    stage.run_pass(third.open.dialogue.id, &pass).await;
    [first, second, third]
}

async fn assert_replacement_stands_while_all_turns_stand(stage: Stage) {
    let [mut first, _, mut third] = three_sessions(&stage).await;
    third.rewind(0, None).await;
    assert_eq!(stage.insight_texts().await, ["The player hates bells and likes drums."]);
    first.rewind(0, None).await;
    assert!(
        stage.insight_texts().await.is_empty(),
        "what rests on the first falls with it"
    );
}

#[test]
fn insight_in_the_place_of_another_stands_while_all_turns_stand() {
    run(async {
        Box::pin(assert_replacement_stands_while_all_turns_stand(
            stage_with(|_| {}).await,
        ))
        .await;
    });
}

#[test]
fn insight_in_the_place_of_another_stands_while_all_turns_stand_on_postgres() {
    run(async {
        let stage = Stage::prepare_on_postgres(|_| {}, WorldSettings::default()).await;
        Box::pin(assert_replacement_stands_while_all_turns_stand(stage)).await;
    });
}

#[test]
fn insight_that_was_replaced_holds_again_and_an_edit_is_for_good() {
    run(async {
        let stage = stage_with(|_| {}).await;
        let [_, mut second, _] = three_sessions(&stage).await;
        second.rewind(0, None).await;
        assert_eq!(stage.insight_texts().await, ["The player hates bells."]);

        let stage = stage_with(|_| {}).await;
        let _sessions = three_sessions(&stage).await;
        assert_eq!(stage.insight_texts().await, [MOST]);
        let (last, edit) = (stage.insights().await.remove(0), stage.edit("insight.delete"));
        let store = &stage.services.ledger.insights;
        let deleted = store
            .delete_insight(&stage.scope, &stage.world.id, &stage.npc.id, last.id, &edit)
            .await;
        assert!(deleted.unwrap());
        assert!(stage.insight_texts().await.is_empty());
    });
}

#[test]
fn insight_is_forgotten_with_the_turn_that_it_rests_on_in_any_words() {
    run(async {
        let stage = stage_with(|_| {}).await;
        let mut talk = stage.session("p1").await;
        let id = talk.open.dialogue.id;
        let knee = json!([{
            "subject": "player", "predicate": "have", "object": "an aching knee", "content": "The player's knee aches.",
            "keywords": [], "speaker": "player", "kind": "personal_info", "importance": 5, "polarity": "positive",
            "tense": "present",
        }]);
        talk.say_and_learn("My knee aches.", &knee).await;
        say(&mut talk, "I like plums.").await;
        let shame = json!({ "about": "", "entity": "player", "text": "One should let them sit down.", "turns": [1] });
        let plums = json!({ "about": "", "entity": "plums", "text": "Plums please the player.", "turns": [2, 99] });
        let answer = json!({
            "findings": [], "edits": [{ "edit": "append", "text": "They need a chair.", "by": "" }],
            "insights": [shame, plums], "done": true,
        });
        stage.llm.queue_text(Task::Curation, answer.to_string());
        let (curation, job) = (&stage.services.ledger.curation, stage.services.ids.next_id());
        assert!(
            curation
                .queue_pass(&stage.scope, id, job, stage.clock.now())
                .await
                .unwrap()
        );
        assert_eq!(stage.run_due_passes().await, 1);
        let turns: Vec<Vec<u32>> = stage
            .insights()
            .await
            .into_iter()
            .map(|insight| insight.turns)
            .collect();
        assert_eq!(turns, [vec![2], vec![1]]);
        let mut again = stage.session("p1").await;
        say(&mut again, "Plums?").await;
        assert_eq!(stage.taught_lines().len(), 2);

        let forget = json!({ "forget": ["The player's knee aches."], "ends": [], "facts": [] });
        stage.llm.queue_text(Task::Extraction, forget.to_string());
        let committed = talk.say_line("Forget what I said of my knee.").await;
        for job in committed.jobs.iter().filter(|job| job.kind == JobKind::ExtractFacts) {
            stage.run_job(job).await.unwrap();
        }
        stage.clock.advance(Duration::from_secs(1));
        let mut later = stage.session("p1").await;
        say(&mut later, "Plums?").await;
        assert_eq!(stage.taught_lines(), ["Plums please the player."]);
        say(&mut later, "Good night.").await;
        stage.run_pass(later.open.dialogue.id, &[]).await;
        let prompt = last_pass_prompt(&stage);
        assert!(
            !prompt.contains("sit down") && prompt.contains("Plums please"),
            "{prompt}"
        );
        assert!(!prompt.contains("a chair"), "the notes of that session: {prompt}");

        talk.rewind(2, None).await;
        let mut last = stage.session("p1").await;
        say(&mut last, "Plums?").await;
        assert_eq!(stage.taught_lines().len(), 2, "nobody asked to forget it");
    });
}

#[test]
fn pass_sees_neither_the_words_of_a_request_to_forget_nor_the_turn_that_taught_them() {
    run(async {
        let stage = stage_with(|_| {}).await;
        let mut talk = stage.session("p1").await;
        let knee = json!([{
            "subject": "player", "predicate": "have", "object": "an aching knee", "content": "The player's knee aches.",
            "keywords": [], "speaker": "player", "kind": "personal_info", "importance": 5, "polarity": "positive",
            "tense": "present",
        }]);
        talk.say_and_learn("It hurts when I climb.", &knee).await;
        let forget = json!({ "forget": ["The player's knee aches."], "ends": [], "facts": [] });
        stage.llm.queue_text(Task::Extraction, forget.to_string());
        let committed = talk.say_line("Let us forget my aching knee. The bells are loud.").await;
        for job in committed.jobs.iter().filter(|job| job.kind == JobKind::ExtractFacts) {
            stage.run_job(job).await.unwrap();
        }
        stage.run_pass(talk.open.dialogue.id, &[]).await;
        let prompt = last_pass_prompt(&stage);
        assert!(
            prompt.contains("<forgotten>The player's knee aches.</forgotten>"),
            "{prompt}"
        );
        assert!(prompt.contains("<player>…</player>"), "{prompt}");
        assert_eq!(prompt.matches("<player>…</player>").count(), 2, "{prompt}");
        assert!(!prompt.contains("climb"), "{prompt}");
    });
}

#[test]
fn short_sessions_and_open_findings_are_carried_into_the_next_session() {
    run(async {
        let stage = stage_with(|_| {}).await;
        let mut first = stage.session("p1").await;
        let block = json!({ "notes": ["The ledger has a torn page."] });
        let reply = format!("On Monday, then.\n```state\n{block}\n```");
        stage.llm.queue_text(Task::Reply, reply);
        say(&mut first, "I will bring the ledger back on Monday.").await;
        let finding = json!({
            "about": "", "kind": "foreshadowing", "text": "The player owes Mira the ledger.", "turns": [1],
            "decision": "open", "reason": "A promise.",
        });
        let answer = json!({
            "findings": [finding], "edits": [{ "edit": "append", "text": "The player borrowed the ledger.", "by": "" }],
            "insights": [], "done": true,
        });
        stage.llm.queue_text(Task::Curation, answer.to_string());
        let (curation, now) = (&stage.services.ledger.curation, stage.clock.now());
        let job = stage.services.ids.next_id();
        assert!(
            curation
                .queue_pass(&stage.scope, first.open.dialogue.id, job, now)
                .await
                .unwrap()
        );
        assert_eq!(stage.run_due_passes().await, 1);

        let mut short = stage.session("p1").await;
        say(&mut short, "The ledger is at home.").await;
        close(&stage, &short).await;
        assert_eq!(stage.look_for_ends().await, 0, "a single turn waits");

        let mut other = stage.session("p2").await;
        say(&mut other, "Hello.").await;
        stage.run_pass(other.open.dialogue.id, &[]).await;
        let prompt = last_pass_prompt(&stage);
        assert!(!prompt.contains("ledger"), "of another player: {prompt}");

        let mut next = stage.session("p1").await;
        say(&mut next, "Here it is.").await;
        let fixed = json!({ "about": "F1", "decision": "fixed", "reason": "The player brought it." });
        let answer = json!({ "findings": [fixed], "edits": [], "insights": [], "done": true });
        stage.llm.queue_text(Task::Curation, answer.to_string());
        let (id, job) = (next.open.dialogue.id, stage.services.ids.next_id());
        assert!(
            curation
                .queue_pass(&stage.scope, id, job, stage.clock.now())
                .await
                .unwrap()
        );
        assert_eq!(stage.run_due_passes().await, 1);
        let prompt = last_pass_prompt(&stage);
        for part in [
            "<finding id=\"F1\" kind=\"foreshadowing\" decision=\"open\" earlier=\"yes\">The player owes Mira the ledger. (A promise.)",
            "<earlier_notes>\nThe player borrowed the ledger.\nThe ledger has a torn page.\n</earlier_notes>",
            "The ledger is at home.</earlier_line>",
        ] {
            assert!(prompt.contains(part), "{part}\n{prompt}");
        }
        let decision = async || {
            let found = curation
                .load_dialogue_curation(&stage.scope, first.open.dialogue.id, 9)
                .await
                .unwrap();
            found.findings[0].decided.decision
        };
        assert_eq!(decision().await, Decision::Fixed);
        next.rewind(0, None).await;
        assert_eq!(
            decision().await,
            Decision::Open,
            "the decision goes with the turn that made it"
        );

        let mut last = stage.session("p1").await;
        say(&mut last, "Good evening.").await;
        stage.run_pass(last.open.dialogue.id, &[]).await;
        let prompt = last_pass_prompt(&stage);
        assert!(
            prompt.contains("<finding id=\"F1\"") && prompt.contains("at home"),
            "{prompt}"
        );
        say(&mut last, "Good night.").await;
        stage.run_pass(last.open.dialogue.id, &[]).await;
        assert!(
            !last_pass_prompt(&stage).contains("at home"),
            "the short session was read"
        );
    });
}

#[test]
fn pass_reads_nothing_of_a_session_that_told_more_than_its_own() {
    run(async {
        let mut stage = stage_with(|_| {}).await;
        stage.author_well().await;
        stage.set_progress(1).await;
        let mut short = stage.session("p1").await;
        ask_of_the_well(&mut short).await;
        close(&stage, &short).await;
        stage.set_progress(0).await;
        let mut next = stage.session("p1").await;
        say(&mut next, "Good evening.").await;
        stage.run_pass(next.open.dialogue.id, &[]).await;
        let prompt = last_pass_prompt(&stage);
        assert!(!prompt.contains("<earlier_line"), "{prompt}");
        next.rewind(0, None).await;

        stage.set_progress(1).await;
        let mut told = stage.session("p1").await;
        ask_of_the_well(&mut told).await;
        let finding = json!({
            "about": "", "kind": "foreshadowing", "text": "The well is deep.", "turns": [1], "decision": "open", "reason": "",
        });
        let note = json!({ "edit": "append", "text": "Mira mourns Anselm.", "by": "" });
        let answer = json!({ "findings": [finding], "edits": [note], "insights": [], "done": true });
        stage.llm.queue_text(Task::Curation, answer.to_string());
        stage.run_queued_pass(told.open.dialogue.id).await;
        let prompt = last_pass_prompt(&stage);
        assert!(
            prompt.contains("your brother?</earlier_line>"),
            "both told the same: {prompt}"
        );

        stage.set_progress(0).await;
        let mut last = stage.session("p1").await;
        say(&mut last, "Good evening.").await;
        stage.run_pass(last.open.dialogue.id, &[]).await;
        let prompt = last_pass_prompt(&stage);
        assert!(
            !prompt.contains("<finding ") && !prompt.contains("mourns"),
            "of a session that told more: {prompt}"
        );
    });
}

#[test]
fn closing_a_session_after_each_line_costs_no_pass() {
    run(async {
        let stage = stage_with(|_| {}).await;
        for _ in 0..20 {
            let mut talk = stage.session("p1").await;
            say(&mut talk, "Good morning.").await;
            close(&stage, &talk).await;
        }
        assert_eq!(stage.look_for_ends().await, 0);
        assert_eq!(stage.run_due_passes().await, 0);
        assert!(stage.llm.prompts_of(Task::Curation).is_empty());
    });
}

#[test]
fn passes_of_a_player_are_limited_in_an_hour() {
    run(async {
        let stage = stage_with(|settings| settings.player_passes_per_hour = 2).await;
        let mut talk = stage.session("p1").await;
        for _ in 0..2 {
            stage.run_pass_again(&mut talk, &[]).await;
        }
        say(&mut talk, "And more.").await;
        stage.clock.advance(Duration::from_mins(10));
        let refused = dry_run(&stage, &talk).await;
        let waits =
            |retry_after: &Duration| *retry_after > Duration::from_mins(49) && *retry_after <= Duration::from_mins(50);
        assert!(
            matches!(&refused, Err(JobError::OverCurationBudget { retry_after }) if waits(retry_after)),
            "{refused:?}"
        );
        let mut other = stage.session("p2").await;
        stage.run_pass_again(&mut other, &[]).await;
        stage.clock.advance(Duration::from_mins(51));
        stage.queue_insights(&[]);
        assert!(dry_run(&stage, &talk).await.unwrap().is_some());
    });
}
