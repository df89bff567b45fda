//! Summaries after an hour of silence, and their rewinds.

use std::time::Duration;

use colloquy::{
    dialogue::{
        settings::CurationSettings,
        summarise::{SilenceReport, queue_jobs_after_silence},
    },
    ids::DialogueId,
    memory::{authored::WorldSettings, summary::Summary},
    ports::{clock::Clock as _, ledger::jobs::JobKind, llm::Task},
};

use super::{Stage, TestDialogue};
use crate::support::run;

const HOUR: Duration = Duration::from_hours(1);

impl Stage {
    /// Looks for silent dialogues as a curator does.
    async fn look_for_silence(&self) -> SilenceReport {
        let services = &self.services;
        let rules = services.settings.summaries.rules();
        let (ledger, ids, now) = (&services.ledger, &services.ids, self.clock.now());
        let curation = CurationSettings {
            every_turns: 0,
            ..services.settings.curation.clone()
        };
        queue_jobs_after_silence(ledger, ids, (&rules, &curation), &self.scope, now)
            .await
            .unwrap()
    }

    /// Runs all due jobs.
    async fn run_due_jobs(&self) -> usize {
        let (jobs, now) = (&self.services.ledger.jobs, self.clock.now());
        let until = now + Duration::from_mins(2);
        let due = jobs
            .lease_due_jobs(&self.scope, self.node, now, until, 100)
            .await
            .unwrap();
        for job in &due {
            self.run_job(job).await.unwrap();
        }
        due.len()
    }

    async fn summaries_of(&self, dialogue: DialogueId) -> Vec<Summary> {
        let summaries = &self.services.ledger.summaries;
        summaries.load_summaries(&self.scope, dialogue).await.unwrap()
    }

    /// Lets an hour pass, and returns the number of summaries that the silence has queued.
    async fn fall_silent(&self) -> usize {
        self.clock.advance(HOUR);
        let queued = self.look_for_silence().await.queued;
        self.llm
            .queue_text(Task::Summary, r#"{"summary": "They talked.", "importance": 5}"#);
        self.run_due_jobs().await;
        queued
    }
}

async fn say_lines(talk: &mut TestDialogue<'_>, lines: std::ops::RangeInclusive<u32>) -> Vec<JobKind> {
    let mut kinds = Vec::new();
    for number in lines {
        let committed = talk.say_line(&format!("line {number}")).await;
        kinds.extend(committed.jobs.iter().map(|job| job.kind));
        talk.stage.clock.advance(Duration::from_secs(1));
    }
    kinds
}

fn ranges(summaries: &[Summary]) -> Vec<(u32, u32)> {
    summaries
        .iter()
        .map(|summary| (summary.from_turn, summary.to_turn))
        .collect()
}

async fn assert_rewound_silence_is_as_if_never_said(stage: &Stage) {
    let mut talk = stage.session("p1").await;
    let id = talk.open.dialogue.id;
    say_lines(&mut talk, 1..=6).await;
    assert_eq!(stage.fall_silent().await, 1);
    let kept = stage.summaries_of(id).await;
    assert_eq!(ranges(&kept), [(1, 6)]);
    assert_eq!(
        kept[0].created_at, talk.open.dialogue.updated_at,
        "the time of the turn"
    );
    assert_eq!(stage.fall_silent().await, 0, "once only");

    talk.rewind(5, None).await;
    assert!(stage.summaries_of(id).await.is_empty());
    assert_eq!(stage.fall_silent().await, 1);
    assert_eq!(ranges(&stage.summaries_of(id).await), [(1, 5)]);

    // The same in a session in which the sixth line was never said.
    let mut other = stage.session("p2").await;
    say_lines(&mut other, 1..=5).await;
    assert_eq!(stage.fall_silent().await, 1);
    let (left, right) = (
        stage.summaries_of(id).await,
        stage.summaries_of(other.open.dialogue.id).await,
    );
    let shown = |kept: &[Summary]| {
        let shown = kept.iter().map(|summary| (summary.text.clone(), summary.importance));
        (ranges(kept), shown.collect::<Vec<_>>())
    };
    assert_eq!(shown(&left), shown(&right));
}

#[test]
fn summary_after_a_silence_is_rewound_with_its_turns() {
    run(async {
        assert_rewound_silence_is_as_if_never_said(&Stage::prepare().await).await;
    });
}

#[test]
fn summary_after_a_silence_is_rewound_with_its_turns_on_postgres() {
    run(async {
        let stage = Stage::prepare_on_postgres(|_| {}, WorldSettings::default()).await;
        assert_rewound_silence_is_as_if_never_said(&stage).await;
    });
}

#[test]
fn returning_player_is_told_of_the_talk_before_the_silence() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        say_lines(&mut talk, 1..=4).await;
        assert_eq!(stage.fall_silent().await, 1);
        // One turn after the silence is no summary of its own.
        let jobs = say_lines(&mut talk, 5..=5).await;
        assert!(!jobs.contains(&JobKind::Summarise), "{jobs:?}");
        assert_eq!(stage.fall_silent().await, 0);
        let mut again = stage.session("p1").await;
        say_lines(&mut again, 1..=1).await;
        let prompt = stage.llm.prompts_of(Task::Reply).pop().unwrap();
        assert!(prompt.contains("They talked."), "{prompt}");
    });
}

#[test]
fn queued_summary_is_written_though_the_player_has_come_back() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        let id = talk.open.dialogue.id;
        say_lines(&mut talk, 1..=4).await;
        stage.clock.advance(HOUR);
        assert_eq!(stage.look_for_silence().await.queued, 1);
        say_lines(&mut talk, 5..=6).await;
        stage
            .llm
            .queue_text(Task::Summary, r#"{"summary": "They talked.", "importance": 5}"#);
        stage.run_due_jobs().await;
        assert_eq!(ranges(&stage.summaries_of(id).await), [(1, 4)]);
    });
}

#[test]
fn talk_without_a_silence_gets_no_summary() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        let id = talk.open.dialogue.id;
        for number in 1..=8 {
            say_lines(&mut talk, number..=number).await;
            stage.clock.advance(Duration::from_secs(3_598));
            assert_eq!(stage.look_for_silence().await.queued, 0);
        }
        stage.run_due_jobs().await;
        assert!(stage.summaries_of(id).await.is_empty());
        let off = Stage::prepare_with(
            |settings| settings.summaries.after_silence_s = 0,
            WorldSettings::default(),
        )
        .await;
        let mut talk = off.session("p1").await;
        say_lines(&mut talk, 1..=6).await;
        off.clock.advance(100 * HOUR);
        assert_eq!(off.look_for_silence().await, SilenceReport::default());
    });
}

#[test]
fn many_silent_dialogues_are_checked_in_several_looks() {
    run(async {
        let stage = Stage::prepare_with(|settings| settings.summaries.min_turns = 1, WorldSettings::default()).await;
        for number in 0..40 {
            let mut talk = stage.session(&format!("p{number}")).await;
            say_lines(&mut talk, 1..=1).await;
        }
        stage.clock.advance(HOUR);
        let first = stage.look_for_silence().await;
        assert_eq!(first, SilenceReport { queued: 32, more: true });
        let second = stage.look_for_silence().await;
        assert_eq!(second, SilenceReport { queued: 8, more: false });
    });
}
