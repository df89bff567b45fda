use super::*;

/// The view of an actor at rest.
const AT_REST: ActorView = ActorView {
    activity: Activity::Ready,
    turn_runs: false,
    rewind_wanted: false,
    in_doubt: false,
    has_answerable: false,
    owed: None,
    has_lines: false,
    drain_waits: false,
    closing: Closing::No,
    closed: false,
    draining: false,
};

#[test]
fn next_step_waits_while_a_turn_a_rewind_or_a_read_is_under_way() {
    let busy = ActorView {
        in_doubt: true,
        has_answerable: true,
        owed: Some(TurnId::from_u128(7)),
        has_lines: true,
        drain_waits: true,
        closing: Closing::Wanted,
        ..AT_REST
    };
    for view in [
        ActorView {
            turn_runs: true,
            ..busy
        },
        ActorView {
            rewind_wanted: true,
            ..busy
        },
        ActorView {
            activity: Activity::Reading,
            ..busy
        },
        ActorView {
            activity: Activity::Rewinding,
            ..busy
        },
    ] {
        assert_eq!(next_step(&view), NextStep::Wait, "{view:?}");
    }
}

#[test]
fn next_steps_come_in_their_order_and_each_removes_its_own_reason() {
    let mut view = ActorView {
        in_doubt: true,
        has_answerable: true,
        owed: Some(TurnId::from_u128(7)),
        has_lines: true,
        drain_waits: true,
        closing: Closing::Wanted,
        ..AT_REST
    };
    let mut steps = Vec::new();
    loop {
        let step = next_step(&view);
        steps.push(step);
        match step {
            NextStep::Load => view.in_doubt = false,
            NextStep::AnswerWaiters => view.has_answerable = false,
            NextStep::CancelLines => view.has_lines = false,
            NextStep::Reinstate(_) => view.owed = None,
            NextStep::AnswerDrain => view.drain_waits = false,
            NextStep::WriteClose => view.closing = Closing::BeingWritten,
            NextStep::Wait | NextStep::Serve => break,
        }
    }
    assert_eq!(
        steps,
        [
            NextStep::Load,
            NextStep::AnswerWaiters,
            NextStep::CancelLines,
            NextStep::Reinstate(TurnId::from_u128(7)),
            NextStep::AnswerDrain,
            NextStep::WriteClose,
            NextStep::Wait,
        ]
    );
    assert_eq!(next_step(&AT_REST), NextStep::Serve);
    let lines = ActorView {
        has_lines: true,
        ..AT_REST
    };
    assert_eq!(
        next_step(&lines),
        NextStep::Serve,
        "lines are cancelled only by a drain or a close"
    );
}

#[test]
fn requests_wait_for_reads_and_only_rewind_requests_go_past_a_rewind() {
    use RequestNeeds::{Nothing, Open, OpenAndServing, Rewind};
    for needs in [Nothing, Rewind, Open, OpenAndServing] {
        let reading = ActorView {
            activity: Activity::Reading,
            ..AT_REST
        };
        assert_eq!(route_request(&reading, needs), Route::Defer, "{needs:?}");
        assert_eq!(route_request(&AT_REST, needs), Route::Handle, "{needs:?}");
        let rewinding = ActorView {
            activity: Activity::Rewinding,
            rewind_wanted: true,
            ..AT_REST
        };
        let expected = if needs == Rewind { Route::Handle } else { Route::Defer };
        assert_eq!(route_request(&rewinding, needs), expected, "{needs:?}");
    }
}

#[test]
fn closed_dialogues_refuse_what_needs_an_open_one_and_repeat_stored_outcomes() {
    use RequestNeeds::{Nothing, Open, OpenAndServing, Rewind};
    for view in [
        ActorView {
            closed: true,
            draining: true,
            ..AT_REST
        },
        ActorView {
            closing: Closing::Wanted,
            ..AT_REST
        },
        ActorView {
            closing: Closing::BeingWritten,
            ..AT_REST
        },
    ] {
        assert_eq!(route_request(&view, Open), Route::RefuseClosed);
        assert_eq!(route_request(&view, OpenAndServing), Route::RefuseClosed);
        // The handler of a rewind answers a repeated key before it refuses the rest.
        assert_eq!(route_request(&view, Rewind), Route::Handle);
        assert_eq!(route_request(&view, Nothing), Route::Handle);
    }
    let draining = ActorView {
        draining: true,
        ..AT_REST
    };
    assert_eq!(route_request(&draining, OpenAndServing), Route::RefuseDraining);
    assert_eq!(route_request(&draining, Open), Route::Handle);
}

#[test]
fn rejected_rewind_in_doubt_lets_the_running_turn_end_before_the_load() {
    let doubt = ActorView {
        in_doubt: true,
        ..AT_REST
    };
    assert_eq!(after_rejected_rewind(&doubt, true), AfterRejectedRewind::Load);
    let running = ActorView {
        turn_runs: true,
        ..doubt
    };
    assert_eq!(after_rejected_rewind(&running, false), AfterRejectedRewind::Continue);
    let queued = ActorView {
        rewind_wanted: true,
        ..running
    };
    assert_eq!(after_rejected_rewind(&queued, true), AfterRejectedRewind::NextRewind);
    assert_eq!(after_rejected_rewind(&AT_REST, true), AfterRejectedRewind::Reread);
    assert_eq!(after_rejected_rewind(&AT_REST, false), AfterRejectedRewind::Continue);
    let loading = ActorView {
        activity: Activity::Reading,
        ..doubt
    };
    assert_eq!(after_rejected_rewind(&loading, true), AfterRejectedRewind::AwaitLoad);
}

#[test]
fn restore_notice_waits_for_reads_and_rewinds_and_old_notices_are_ignored() {
    let reading = ActorView {
        activity: Activity::Reading,
        ..AT_REST
    };
    assert_eq!(on_restore_notice(&reading, 5, 0), OnRestoreNotice::Defer);
    assert_eq!(on_restore_notice(&AT_REST, 5, 5), OnRestoreNotice::Ignore);
    assert_eq!(on_restore_notice(&AT_REST, 6, 5), OnRestoreNotice::Apply);
    let rewinding = ActorView {
        activity: Activity::Rewinding,
        rewind_wanted: true,
        ..AT_REST
    };
    assert_eq!(on_restore_notice(&rewinding, 6, 5), OnRestoreNotice::Defer);
    assert_eq!(on_restore_notice(&rewinding, 5, 5), OnRestoreNotice::Ignore);
}

#[test]
fn head_check_accepts_the_head_and_the_running_turn() {
    assert!(matches!(check_head(3, None, None), Ok(3)));
    assert!(matches!(check_head(3, None, Some(3)), Ok(3)));
    assert!(matches!(check_head(3, Some(4), Some(4)), Ok(3)));
    let stale = check_head(3, Some(4), Some(2));
    assert!(matches!(stale, Err(DialogueError::StaleHead { head_turn: 3 })));
}
