//! Summaries after an hour of silence, and their rewinds.

use std::{sync::Arc, time::Duration};

use colloquy::{
    dialogue::{
        explain::{TurnExplanation, explain_turn},
        heard::HeardLength,
        rewind::{self, RewindResponse, RewindTarget},
        summarise::{SilenceReport, queue_jobs_after_silence},
    },
    ids::DialogueId,
    memory::{
        authored::{TierSettings, WorldSettings},
        summary::Summary,
        tiers::CurationTuning,
    },
    ports::{PageRequest, clock::Clock as _, ledger::jobs::JobKind, llm::Task},
};

use super::{Stage, TestDialogue};
use crate::support::run;

const HOUR: Duration = Duration::from_hours(1);

impl Stage {
    /// Looks for silent dialogues as a curator does.
    async fn look_for_silence(&self) -> SilenceReport {
        let services = &self.services;
        let mut settings = services.settings.as_ref().clone();
        settings.curation.every_turns = 0;
        let (ledger, ids, now) = (&services.ledger, &services.ids, self.clock.now());
        queue_jobs_after_silence(ledger, ids, &settings, &self.scope, now)
            .await
            .unwrap()
    }

    /// Returns the number of jobs of a kind, whatever became of them.
    async fn jobs_of_kind(&self, kind: JobKind) -> usize {
        let page = PageRequest {
            limit: 100,
            after: None,
        };
        let listed = self.services.ledger.jobs.list_jobs(&self.scope, None, &page).await;
        let jobs = listed.unwrap().items;
        jobs.iter().filter(|job| job.kind == kind).count()
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
fn summary_is_left_out_while_the_history_has_its_turns() {
    run(async {
        let stage = Stage::prepare().await;
        let mut talk = stage.session("p1").await;
        say_lines(&mut talk, 1..=4).await;
        assert_eq!(stage.fall_silent().await, 1);
        say_lines(&mut talk, 5..=5).await;
        let prompt = stage.llm.prompts_of(Task::Reply).pop().unwrap();
        assert!(
            prompt.contains("line 1") && !prompt.contains("They talked."),
            "{prompt}"
        );
        let dialogue = &talk.open.dialogue;
        let explained = explain_turn(&stage.services, &stage.scope, dialogue, 5, true).await;
        let TurnExplanation::Explained(explanation) = explained.unwrap() else {
            panic!("the turn stands")
        };
        let explained = explanation.explained;
        let is_told = |note: &String| note.contains("the summary of turns 1 to 4 was left out");
        assert!(explained.trace.notes.iter().any(is_told), "{:?}", explained.trace.notes);
        let verification = explained.verification.unwrap();
        assert_eq!(verification.same, Some(true), "{verification:?}");
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
        assert_eq!(
            first,
            SilenceReport {
                queued: 32,
                has_more: true
            }
        );
        let second = stage.look_for_silence().await;
        assert_eq!(
            second,
            SilenceReport {
                queued: 8,
                has_more: false
            }
        );
    });
}

/// A stage whose configuration has a pass after `configured` turns, and its world after `own` turns; 0: no passes.
async fn stage_with_passes(configured: u32, own: u32) -> Stage {
    let world = WorldSettings {
        curation: Some(CurationTuning { every_turns: Some(own) }),
        ..WorldSettings::default()
    };
    Stage::prepare_with(|settings| settings.curation.every_turns = configured, world).await
}

#[test]
fn pass_after_a_silence_follows_the_settings_of_the_world() {
    run(async {
        for (configured, own, passes) in [(0, 100, 1), (100, 0, 0)] {
            let stage = stage_with_passes(configured, own).await;
            let mut talk = stage.session("p1").await;
            say_lines(&mut talk, 1..=5).await;
            stage.clock.advance(HOUR);
            let services = &stage.services;
            let (ledger, ids, now) = (&services.ledger, &services.ids, stage.clock.now());
            let report = queue_jobs_after_silence(ledger, ids, &services.settings, &stage.scope, now).await;
            assert_eq!(
                report.unwrap().queued,
                1 + passes,
                "a summary, and a pass if the world has them"
            );
            assert_eq!(stage.jobs_of_kind(JobKind::Curate).await, passes);
        }
    });
}

#[test]
fn jobs_of_a_shortened_turn_follow_the_settings_of_the_tiers() {
    run(async {
        for (configured, own, is_held, session, passes) in [
            (0, 1, false, None, 1),
            (1, 0, false, None, 0),
            (0, 1, true, None, 1),
            (1, 0, true, None, 0),
            (0, 0, true, Some(1), 1),
            (1, 1, false, Some(0), 0),
        ] {
            let stage = stage_with_passes(configured, own).await;
            let mut talk = stage.session("p1").await;
            say_lines(&mut talk, 1..=1).await;
            let target = RewindTarget::Turn {
                number: 1,
                heard: Some(HeardLength::Chars(2)),
            };
            let mut dialogue = talk.owned_dialogue(50);
            if is_held {
                let world = Arc::new(stage.world.clone()).for_npc(&stage.npc);
                dialogue.tiers.worlds = vec![(stage.npc.id.clone(), world)];
            }
            dialogue.tiers.session = session.map(|every_turns| {
                Box::new(TierSettings {
                    curation: Some(CurationTuning {
                        every_turns: Some(every_turns),
                    }),
                    ..TierSettings::default()
                })
            });
            let before = stage.jobs_of_kind(JobKind::Curate).await;
            let done = rewind::rewind_dialogue(
                &stage.services,
                dialogue,
                target,
                stage.requester("session.rewind").into(),
            )
            .await
            .unwrap();
            let RewindResponse::Done(done) = done else {
                panic!("{done:?}")
            };
            assert!(done.replacement.is_some(), "the turn was shortened");
            let made = stage.jobs_of_kind(JobKind::Curate).await - before;
            assert_eq!(made, passes, "{configured} {own} {is_held} {session:?}");
        }
    });
}
