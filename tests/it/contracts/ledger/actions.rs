//! Actions of NPCs: written with their turn, answered once, and unsaid with their turn.

use std::time::Duration;

use colloquy::{
    ids::{ActionId, PlayerId},
    memory::{fact::Cause, state::StateChange},
    ports::ledger::{
        PruneBefore,
        actions::{Action, ActionAnswer, ActionFilter, ActionStatus, AnswerKind, AnswerOutcome, NewAction},
        dialogues::{CommitOutcome, TurnCommit},
        state::NewStateChange,
    },
};
use serde_json::json;

use super::{
    LedgerSubject,
    fixture::{Fixture, page},
    rewind_fixtures::{RewindFixture, dialogue_with_turns},
    saves::{put_default_world, restore_save, take_save},
};

/// Returns an action of the commit's turn, for which an answer may take a minute.
fn sample_action<S: LedgerSubject>(f: &Fixture<S>, commit: &TurnCommit, name: &str) -> NewAction {
    let turn = &commit.turn;
    NewAction {
        id: f.id(),
        world: f.world.clone(),
        dialogue: turn.dialogue,
        turn: turn.id,
        number: turn.number,
        npc: turn.npc.clone(),
        player: turn.player.clone(),
        name: name.to_owned(),
        arguments: serde_json::from_value(json!({"gate": "the \"북\" gate", "count": 2})).unwrap(),
        requested_at: turn.committed_at,
        expires_at: turn.committed_at + Duration::from_mins(1),
    }
}

/// Commits a turn that asks for one action.
async fn ask<S: LedgerSubject>(f: &Fixture<S>, told: &mut RewindFixture, number: u32) -> NewAction {
    f.advance_clock();
    let mut commit = told.turn_commit(f, number);
    let action = sample_action(f, &commit, "open_gate");
    commit.actions = vec![action.clone()];
    f.commit_turn(&commit).await;
    told.extractions.push(commit.jobs[0].clone());
    told.turns.push(commit.turn);
    action
}

async fn load<S: LedgerSubject>(f: &Fixture<S>, id: ActionId) -> Action {
    let found = f.ledger().actions.load_action(&f.scope, id).await.unwrap();
    found.unwrap()
}

async fn status<S: LedgerSubject>(f: &Fixture<S>, id: ActionId) -> ActionStatus {
    load(f, id).await.status(f.now())
}

async fn answer<S: LedgerSubject>(f: &Fixture<S>, action: &NewAction, kind: AnswerKind) -> AnswerOutcome {
    let answer = ActionAnswer {
        kind,
        text: "\"네\"".to_owned(),
        answered_at: f.now(),
    };
    let event = NewStateChange {
        id: f.id(),
        world: f.world.clone(),
        dialogue: Some(action.dialogue),
        change: StateChange::Happened {
            text: "The gate opened.".to_owned(),
        },
        cause: Cause::Action(action.id),
        changed_at: f.now(),
    };
    let edit = f.audit_edit("action.done");
    let actions = &f.ledger().actions;
    actions
        .answer_action(&f.scope, action.id, &answer, &event, &edit)
        .await
        .unwrap()
}

/// Returns how many events of answers stand.
async fn answers_in_state<S: LedgerSubject>(f: &Fixture<S>) -> usize {
    let state = &f.ledger().state;
    let since = state.load_changes_since(&f.scope, &f.world, 0).await.unwrap();
    let of_actions = since.changes.iter();
    of_actions
        .filter(|stored| matches!(stored.cause, Cause::Action(_)))
        .count()
}

pub async fn actions_are_committed_with_their_turn_in_order<S: LedgerSubject>(f: &Fixture<S>) {
    let told = dialogue_with_turns(f, 1).await;
    let mut commit = told.turn_commit(f, 2);
    commit.actions = ["open_gate", "wave"].map(|name| sample_action(f, &commit, name)).into();
    let mut stale = commit.clone();
    stale.epoch += 1;
    let (ledger, actions) = (f.ledger(), &f.ledger().actions);
    let outcome = ledger.turns.commit_turn(&f.scope, &stale).await.unwrap();
    assert_eq!(outcome, CommitOutcome::Fenced);
    let since = actions.load_actions_since(&f.scope, &f.world, 0).await.unwrap();
    assert!(since.is_empty(), "a fenced commit writes nothing: {since:?}");

    f.commit_turn(&commit).await;
    let since = actions.load_actions_since(&f.scope, &f.world, 0).await.unwrap();
    let asked: Vec<&NewAction> = since.iter().map(|action| &action.request).collect();
    assert_eq!(asked, commit.actions.iter().collect::<Vec<_>>());
    assert!(since.iter().all(|action| action.stands && action.answer.is_none()));
    let later = actions.load_actions_since(&f.scope, &f.world, since[0].seq).await;
    assert_eq!(later.unwrap(), since[1..]);
    let changes = ledger.state.load_changes_since(&f.scope, &f.world, 0).await.unwrap();
    assert_eq!(changes.last_action, since[1].seq);
    let elsewhere = "elsewhere".parse().unwrap();
    let since = actions.load_actions_since(&f.scope, &elsewhere, 0).await.unwrap();
    assert!(since.is_empty());
}

pub async fn action_is_answered_once<S: LedgerSubject>(f: &Fixture<S>) {
    put_default_world(f).await;
    let mut told = dialogue_with_turns(f, 1).await;
    let first = ask(f, &mut told, 2).await;
    let second = ask(f, &mut told, 3).await;
    let AnswerOutcome::Stored(stored) = answer(f, &first, AnswerKind::Done).await else {
        panic!("not stored");
    };
    assert_eq!(stored, load(f, first.id).await);
    assert_eq!(stored.answer.unwrap().text, "\"네\"");
    for kind in AnswerKind::ALL {
        let again = answer(f, &first, kind).await;
        assert!(
            matches!(again, AnswerOutcome::NotOpen(known) if known.answer.as_ref().unwrap().kind == AnswerKind::Done)
        );
    }
    assert_eq!(
        (status(f, first.id).await, answers_in_state(f).await),
        (ActionStatus::Done, 1)
    );

    f.clock.advance(Duration::from_mins(1));
    assert_eq!(status(f, second.id).await, ActionStatus::Requested, "to the very end");
    f.advance_clock();
    assert_eq!(status(f, second.id).await, ActionStatus::Expired);
    assert!(matches!(
        answer(f, &second, AnswerKind::Done).await,
        AnswerOutcome::NotOpen(_)
    ));
    assert_eq!(answers_in_state(f).await, 1, "nothing was written");
    let unknown = NewAction { id: f.id(), ..second };
    assert_eq!(answer(f, &unknown, AnswerKind::Done).await, AnswerOutcome::NotFound);
}

pub async fn action_is_unsaid_and_stands_again_with_its_turn<S: LedgerSubject>(f: &mut Fixture<S>) {
    put_default_world(f).await;
    let mut told = dialogue_with_turns(f, 1).await;
    let done = ask(f, &mut told, 2).await;
    let open = ask(f, &mut told, 3).await;
    answer(f, &done, AnswerKind::Done).await;
    let generation = async |f: &Fixture<S>| {
        let state = &f.ledger().state;
        let since = state.load_changes_since(&f.scope, &f.world, 0).await.unwrap();
        since.generation
    };
    let saved = take_save(f, "with both").await;
    let before = generation(f).await;
    let first = told.turn(1);
    told.rewind_to(f, Some(first)).await;
    assert!(generation(f).await > before, "readers compare anew");
    for id in [done.id, open.id] {
        assert_eq!(status(f, id).await, ActionStatus::Undone);
    }
    assert_eq!(answers_in_state(f).await, 0, "the answer goes with the action");
    assert!(matches!(
        answer(f, &open, AnswerKind::Done).await,
        AnswerOutcome::NotOpen(_)
    ));
    let actions = &f.ledger().actions;
    let since = actions.load_actions_since(&f.scope, &f.world, 0).await.unwrap();
    assert!(
        since.len() == 2 && since.iter().all(|action| !action.stands),
        "{since:?}"
    );
    let standing = async || actions.list_standing_actions(&f.scope, &f.world).await.unwrap();
    let waiting = async || actions.load_open_actions(&f.scope, &f.world, f.now()).await.unwrap();
    assert!(standing().await.is_empty() && waiting().await.is_empty());
    let both = actions
        .load_actions(&f.scope, &[open.id, done.id, f.id()])
        .await
        .unwrap();
    let both: Vec<ActionId> = both.iter().map(|action| action.request.id).collect();
    assert_eq!(both, [done.id, open.id], "in the order of their writes");

    let before = generation(f).await;
    restore_save(f, saved.id).await;
    assert!(generation(f).await > before);
    assert_eq!(
        (status(f, done.id).await, status(f, open.id).await),
        (ActionStatus::Done, ActionStatus::Requested)
    );
    assert_eq!(answers_in_state(f).await, 1);
    let actions = &f.ledger().actions;
    let standing = actions.list_standing_actions(&f.scope, &f.world).await.unwrap();
    let standing: Vec<ActionId> = standing.into_iter().map(|(_, id)| id).collect();
    assert_eq!(standing, [done.id, open.id]);
    let waiting = async |at| {
        let found = actions.load_open_actions(&f.scope, &f.world, at).await.unwrap();
        found.into_iter().map(|action| action.request.id).collect::<Vec<_>>()
    };
    assert_eq!(waiting(f.now()).await, [open.id]);
    assert_eq!(waiting(open.expires_at + chrono::TimeDelta::seconds(1)).await, []);
}

pub async fn actions_are_listed_by_status_and_dialogue<S: LedgerSubject>(f: &Fixture<S>) {
    put_default_world(f).await;
    let (mut one, mut other) = (dialogue_with_turns(f, 1).await, dialogue_with_turns(f, 1).await);
    let expired = ask(f, &mut one, 2).await;
    f.clock.advance(Duration::from_mins(2));
    let done = ask(f, &mut one, 3).await;
    let refused = ask(f, &mut other, 2).await;
    let undone = ask(f, &mut other, 3).await;
    let open = ask(f, &mut one, 4).await;
    answer(f, &done, AnswerKind::Done).await;
    answer(f, &refused, AnswerKind::Refused).await;
    let second = other.turn(2);
    other.rewind_to(f, Some(second)).await;

    let list = async |status, dialogue, limit, after| {
        let filter = ActionFilter { status, dialogue };
        let actions = &f.ledger().actions;
        let page = page(limit, after);
        let listing = actions.list_actions(&f.scope, &f.world, filter, &page, f.now());
        let found = listing.await.unwrap();
        let ids: Vec<ActionId> = found.items.iter().map(|action| action.request.id).collect();
        (ids, found.next)
    };
    for (status, id) in [
        (ActionStatus::Expired, expired.id),
        (ActionStatus::Done, done.id),
        (ActionStatus::Refused, refused.id),
        (ActionStatus::Undone, undone.id),
        (ActionStatus::Requested, open.id),
    ] {
        assert_eq!(list(Some(status), None, 9, None).await, (vec![id], None), "{status:?}");
    }
    let of_other = list(None, Some(other.id()), 9, None).await;
    assert_eq!(of_other, (vec![refused.id, undone.id], None));
    let (first, next) = list(None, None, 2, None).await;
    assert_eq!(first, [expired.id, done.id]);
    let (rest, next) = list(None, None, 9, next).await;
    assert_eq!((rest, next), (vec![refused.id, undone.id, open.id], None));
}

pub async fn latest_actions_of_a_dialogue_are_found<S: LedgerSubject>(f: &Fixture<S>) {
    put_default_world(f).await;
    let mut told = dialogue_with_turns(f, 1).await;
    let expiring = ask(f, &mut told, 2).await;
    let done = ask(f, &mut told, 3).await;
    let actions = &f.ledger().actions;
    let asked = actions.load_actions_of_turn(&f.scope, done.turn).await.unwrap();
    assert_eq!(
        asked.iter().map(|action| action.request.id).collect::<Vec<_>>(),
        [done.id]
    );
    assert_eq!(actions.load_actions_of_turn(&f.other, done.turn).await.unwrap(), []);
    let latest = async |until| {
        let actions = &f.ledger().actions;
        let found = actions
            .load_latest_actions(&f.scope, done.dialogue, &f.npc, until)
            .await
            .unwrap();
        let status = |action: &Action| (action.request.id, action.status(until));
        found.iter().map(status).collect::<Vec<_>>()
    };
    let (requested, refused, expired) = (ActionStatus::Requested, ActionStatus::Refused, ActionStatus::Expired);
    assert_eq!(latest(f.now()).await, [(done.id, requested), (expiring.id, requested)]);
    let before = f.now();
    f.advance_clock();
    answer(f, &done, AnswerKind::Refused).await;
    assert_eq!(latest(before).await, [(expiring.id, requested)], "the answer is later");
    assert_eq!(latest(f.now()).await, [(done.id, refused), (expiring.id, requested)]);
    f.clock.advance(Duration::from_mins(2));
    assert_eq!(latest(f.now()).await, [(expiring.id, expired), (done.id, refused)]);
    let second = told.turn(2);
    told.rewind_to(f, Some(second)).await;
    assert_eq!(latest(f.now()).await, [(expiring.id, expired)], "turn 3 is unsaid");
}

pub async fn actions_that_wait_in_other_dialogues_are_found<S: LedgerSubject>(f: &Fixture<S>) {
    put_default_world(f).await;
    let (mut one, mut other) = (dialogue_with_turns(f, 1).await, dialogue_with_turns(f, 1).await);
    let answered = ask(f, &mut one, 2).await;
    let early = ask(f, &mut one, 3).await;
    let late = ask(f, &mut one, 4).await;
    let here = ask(f, &mut other, 2).await;
    answer(f, &answered, AnswerKind::Done).await;
    let player = here.player.as_ref();
    let found = async |scope, player: Option<&PlayerId>, now| {
        let actions = &f.ledger().actions;
        let found = actions.load_actions_waiting_elsewhere(scope, (&f.world, here.dialogue), &f.npc, player, now);
        let found = found.await.unwrap();
        found.iter().map(|action| action.request.id).collect::<Vec<ActionId>>()
    };
    assert_eq!(
        found(&f.scope, player, f.now()).await,
        [late.id, early.id],
        "latest first"
    );
    assert_eq!(found(&f.scope, None, f.now()).await, [], "without the player");
    assert_eq!(found(&f.other, player, f.now()).await, [], "another tenant");
    let expired = late.expires_at + chrono::TimeDelta::seconds(1);
    assert_eq!(found(&f.scope, player, expired).await, []);
    let third = one.turn(3);
    one.rewind_to(f, Some(third)).await;
    assert_eq!(found(&f.scope, player, f.now()).await, [early.id], "turn 4 is unsaid");
}

pub async fn done_actions_are_named_until_their_turn_is_unsaid<S: LedgerSubject>(f: &Fixture<S>) {
    put_default_world(f).await;
    let mut told = dialogue_with_turns(f, 1).await;
    let refused = ask(f, &mut told, 2).await;
    let done = ask(f, &mut told, 3).await;
    let names = async |scope, player: Option<&PlayerId>, until| {
        let actions = &f.ledger().actions;
        let asked = ["another", done.name.as_str()];
        let found = actions.list_done_action_names(scope, &f.world, &f.npc, player, &asked, until);
        found.await.unwrap().into_iter().collect::<Vec<String>>()
    };
    answer(f, &refused, AnswerKind::Refused).await;
    let player = done.player.as_ref();
    assert_eq!(
        names(&f.scope, player, f.now()).await,
        [""; 0],
        "no answer, and a refusal"
    );
    let before = f.now();
    f.advance_clock();
    answer(f, &done, AnswerKind::Done).await;
    assert_eq!(names(&f.scope, player, f.now()).await, [done.name.as_str()]);
    let others = f
        .ledger()
        .actions
        .list_done_action_names(&f.scope, &f.world, &f.npc, player, &["another"], f.now());
    assert!(others.await.unwrap().is_empty(), "another name");
    assert_eq!(names(&f.scope, player, before).await, [""; 0], "the answer is later");
    assert_eq!(names(&f.scope, None, f.now()).await, [""; 0], "without the player");
    assert_eq!(names(&f.other, player, f.now()).await, [""; 0], "another tenant");
    let second = told.turn(2);
    told.rewind_to(f, Some(second)).await;
    assert_eq!(names(&f.scope, player, f.now()).await, [""; 0], "the turn is unsaid");
}

pub async fn actions_of_unsaid_turns_are_pruned<S: LedgerSubject>(f: &mut Fixture<S>) {
    put_default_world(f).await;
    let mut told = dialogue_with_turns(f, 1).await;
    let gone = ask(f, &mut told, 2).await;
    answer(f, &gone, AnswerKind::Done).await;
    let first = told.turn(1);
    told.rewind_to(f, Some(first)).await;
    let kept = ask_again(f, &mut told).await;
    f.clock.advance(Duration::from_hours(48));
    let before = PruneBefore {
        unsaid: Some(f.now() - chrono::Duration::hours(24)),
        ..PruneBefore::default()
    };
    f.ledger()
        .maintenance
        .prune_expired(&f.scope, &before, 9)
        .await
        .unwrap();
    let actions = &f.ledger().actions;
    let all = actions.load_actions(&f.scope, &[gone.id, kept.id]).await.unwrap();
    let all: Vec<ActionId> = all.iter().map(|action| action.request.id).collect();
    assert_eq!(all, [kept.id]);
    assert_eq!(answers_in_state(f).await, 0);
}

/// Commits another turn 2 after the first one.
async fn ask_again<S: LedgerSubject>(f: &Fixture<S>, told: &mut RewindFixture) -> NewAction {
    told.turns.truncate(1);
    f.advance_clock();
    let mut commit = told.turn_commit(f, 2);
    commit.key = None;
    let action = sample_action(f, &commit, "open_gate");
    commit.actions = vec![action.clone()];
    f.commit_turn(&commit).await;
    action
}

pub async fn actions_of_another_tenant_are_not_found<S: LedgerSubject>(f: &Fixture<S>) {
    let mut told = dialogue_with_turns(f, 1).await;
    let action = ask(f, &mut told, 2).await;
    let actions = &f.ledger().actions;
    assert_eq!(actions.load_action(&f.other, action.id).await.unwrap(), None);
    let listed = actions.load_actions(&f.other, &[action.id]).await.unwrap();
    let since = actions.load_actions_since(&f.other, &f.world, 0).await.unwrap();
    assert!(listed.is_empty() && since.is_empty());
    let answer = ActionAnswer {
        kind: AnswerKind::Done,
        text: String::new(),
        answered_at: f.now(),
    };
    let event = NewStateChange {
        id: f.id(),
        world: f.world.clone(),
        dialogue: None,
        change: StateChange::Happened { text: "x".to_owned() },
        cause: Cause::Action(action.id),
        changed_at: f.now(),
    };
    let edit = f.audit_edit("action.done");
    let answered = actions.answer_action(&f.other, action.id, &answer, &event, &edit);
    assert_eq!(answered.await.unwrap(), AnswerOutcome::NotFound);
    assert_eq!(status(f, action.id).await, ActionStatus::Requested);
}
