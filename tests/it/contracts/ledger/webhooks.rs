//! Webhooks: messages are written with what they tell, claimed in the order of their dialogue, and delivered or given up.

use std::{collections::BTreeSet, time::Duration};

use chrono::TimeDelta;
use colloquy::{
    ids::{MessageId, WebhookId},
    memory::{fact::Cause, state::StateChange},
    ports::ledger::{
        PruneBefore,
        actions::NewAction,
        authored::DeleteOutcome,
        state::NewStateChange,
        tenants::{Tenant, TenantChange},
        usage::Budgeted,
        webhooks::{
            AfterAttempt, Attempt, AttemptRecord, BudgetWarning, BusyOwners, ClaimedMessages, DisabledReason,
            DueMessage, MessageClaim, Replay, SignatureKind, SigningKey, SigningKeys, Webhook, WebhookChange,
            WebhookEditOutcome, WebhookEventType,
        },
    },
};
use serde_json::{Map, Value, json};

use super::{
    LedgerSubject,
    fixture::{Fixture, page},
    rewind_fixtures::dialogue_with_turns,
    saves::{put_default_world, restore_save, take_save},
};

fn sample_webhook<S: LedgerSubject>(f: &Fixture<S>, types: &[WebhookEventType]) -> Webhook {
    Webhook {
        id: f.id(),
        url: "https://game.example/hook".to_owned(),
        description: "the \"game\"".to_owned(),
        types: types.iter().copied().collect(),
        worlds: BTreeSet::new(),
        include_text: false,
        signature: SignatureKind::Hmac,
        keys: SigningKeys {
            current: SigningKey::new("whsec_first".to_owned()),
            previous: Vec::new(),
        },
        disabled: None,
        disabled_at: None,
        failing_since: None,
        version: 1,
        created_at: f.now(),
        updated_at: f.now(),
    }
}

async fn put<S: LedgerSubject>(f: &Fixture<S>, webhook: &Webhook) {
    let edit = f.audit_edit("webhook.create");
    let store = &f.ledger().webhooks;
    assert!(store.create_webhook(&f.scope, webhook, 3, &edit).await.unwrap());
}

async fn add<S: LedgerSubject>(f: &Fixture<S>, types: &[WebhookEventType]) -> WebhookId {
    let webhook = sample_webhook(f, types);
    put(f, &webhook).await;
    webhook.id
}

async fn load<S: LedgerSubject>(f: &Fixture<S>, id: WebhookId) -> Webhook {
    f.ledger().webhooks.load_webhook(&f.scope, id).await.unwrap().unwrap()
}

async fn change<S: LedgerSubject>(f: &Fixture<S>, id: WebhookId, change: WebhookChange) -> Webhook {
    let edit = f.audit_edit("webhook.edit");
    let store = &f.ledger().webhooks;
    match store.change_webhook(&f.scope, id, &change, None, &edit).await.unwrap() {
        WebhookEditOutcome::Done(webhook) => *webhook,
        other => panic!("not changed: {other:?}"),
    }
}

async fn set_enabled<S: LedgerSubject>(f: &Fixture<S>, id: WebhookId, enabled: bool) -> Webhook {
    let wanted = WebhookChange {
        enabled: Some(enabled),
        ..WebhookChange::default()
    };
    change(f, id, wanted).await
}

async fn try_claim<S: LedgerSubject>(f: &Fixture<S>, id: WebhookId, limit: u32) -> Option<ClaimedMessages> {
    let claim = MessageClaim {
        webhook: id,
        node: f.node,
        now: f.now(),
        until: f.now() + TimeDelta::seconds(45),
        limit,
    };
    f.ledger().webhooks.claim_messages(&f.scope, &claim).await.unwrap()
}

async fn claim<S: LedgerSubject>(f: &Fixture<S>, id: WebhookId) -> Vec<DueMessage> {
    try_claim(f, id, 10).await.unwrap().messages
}

async fn record<S: LedgerSubject>(
    f: &Fixture<S>,
    message: &DueMessage,
    after: AfterAttempt,
    disable: Option<DisabledReason>,
) {
    let delivered = after == AfterAttempt::Delivered;
    let record = AttemptRecord {
        attempt: Attempt {
            id: f.id(),
            webhook: message.webhook,
            message: message.id,
            event: message.event,
            number: message.attempts + 1,
            sent_at: f.now(),
            duration_ms: 12,
            delivered,
            status: Some(if delivered { 204 } else { 500 }),
            detail: if delivered {
                String::new()
            } else {
                "answered 500".to_owned()
            },
        },
        seq: message.seq,
        node: f.node,
        after,
        disable,
        now: f.now(),
    };
    f.ledger().webhooks.record_attempt(&f.scope, &record).await.unwrap();
}

/// Delivers every due message, and returns them in the order of their delivery.
async fn deliver_all<S: LedgerSubject>(f: &Fixture<S>, id: WebhookId) -> Vec<DueMessage> {
    let mut all = Vec::new();
    loop {
        let claimed = claim(f, id).await;
        if claimed.is_empty() {
            return all;
        }
        for message in claimed {
            record(f, &message, AfterAttempt::Delivered, None).await;
            all.push(message);
        }
    }
}

fn types_of(messages: &[DueMessage]) -> Vec<&'static str> {
    messages.iter().map(|message| message.event.as_str()).collect()
}

async fn content<S: LedgerSubject>(f: &Fixture<S>, message: &DueMessage, include_text: bool) -> Map<String, Value> {
    let store = &f.ledger().webhooks;
    store
        .load_message_content(&f.scope, message, include_text)
        .await
        .unwrap()
}

pub async fn webhooks_are_created_read_changed_and_deleted<S: LedgerSubject>(f: &mut Fixture<S>) {
    let store = &f.ledger().webhooks;
    let webhook = sample_webhook(f, &[WebhookEventType::TurnCommitted]);
    put(f, &webhook).await;
    assert_eq!(load(f, webhook.id).await, webhook);
    for _ in 0..2 {
        add(f, &[]).await;
    }
    let (fourth, edit) = (sample_webhook(f, &[]), f.audit_edit("webhook.create"));
    assert!(!store.create_webhook(&f.scope, &fourth, 3, &edit).await.unwrap());
    let first = store.list_webhooks(&f.scope, &page(2, None)).await.unwrap();
    assert_eq!(first.items.len(), 2);
    let rest = store.list_webhooks(&f.scope, &page(2, first.next)).await.unwrap();
    assert_eq!((rest.items.len(), rest.next), (1, None));

    f.advance_clock();
    let until = f.now() + TimeDelta::hours(24);
    let changed = change(
        f,
        webhook.id,
        WebhookChange {
            url: Some("https://game.example/other".to_owned()),
            worlds: Some(BTreeSet::from([f.world.clone()])),
            include_text: Some(true),
            rotation: Some((SigningKey::new("whsec_second".to_owned()), until)),
            ..WebhookChange::default()
        },
    )
    .await;
    assert_eq!(changed, load(f, webhook.id).await);
    assert_eq!((changed.version, changed.updated_at), (2, f.now()));
    assert_eq!(changed.keys.current.expose(), "whsec_second");
    assert_eq!(
        changed.keys.previous,
        [(SigningKey::new("whsec_first".to_owned()), until)]
    );
    assert_eq!(changed.types, webhook.types);

    let edit = f.audit_edit("webhook.edit");
    let nothing = WebhookChange::default();
    let stale = store
        .change_webhook(&f.scope, webhook.id, &nothing, Some(1), &edit)
        .await;
    assert_eq!(stale.unwrap(), WebhookEditOutcome::VersionMismatch { stored: 2 });
    let foreign = store.change_webhook(&f.other, webhook.id, &nothing, None, &edit).await;
    assert_eq!(foreign.unwrap(), WebhookEditOutcome::NotFound);
    assert_eq!(store.load_webhook(&f.other, webhook.id).await.unwrap(), None);
    let delete = |version| store.delete_webhook(&f.scope, webhook.id, version, &edit);
    assert_eq!(
        delete(Some(1)).await.unwrap(),
        DeleteOutcome::VersionMismatch { stored: 2 }
    );
    assert_eq!(delete(Some(2)).await.unwrap(), DeleteOutcome::Deleted);
    assert_eq!(delete(None).await.unwrap(), DeleteOutcome::NotFound);
}

pub async fn turn_writes_its_messages_in_order<S: LedgerSubject>(f: &mut Fixture<S>) {
    let all = add(f, &[]).await;
    let actions = add(f, &[WebhookEventType::ActionRequested, WebhookEventType::ActionUndone]).await;
    let told = dialogue_with_turns(f, 1).await;
    let mut commit = told.turn_commit(f, 2);
    let action = NewAction {
        id: f.id(),
        world: f.world.clone(),
        dialogue: told.id(),
        turn: commit.turn.id,
        number: 2,
        npc: f.npc.clone(),
        player: Some(f.player.clone()),
        name: "open_gate".to_owned(),
        arguments: serde_json::from_value(json!({"gate": "북"})).unwrap(),
        requested_at: commit.turn.committed_at,
        expires_at: commit.turn.committed_at + Duration::from_mins(1),
    };
    commit.actions = vec![action.clone()];
    f.commit_turn(&commit).await;
    // A plain turn takes another statement.
    let mut plain = f.sample_commit(&told.open, 3, Some(commit.turn.id));
    plain.jobs = Vec::new();
    f.commit_turn(&plain).await;

    let messages = deliver_all(f, all).await;
    assert_eq!(
        types_of(&messages),
        [
            "turn.committed",
            "state.changed",
            "turn.committed",
            "action.requested",
            "state.changed",
            "turn.committed",
        ]
    );
    let turn = &messages[2];
    assert_eq!(turn.object, commit.turn.id.to_string());
    assert_eq!((turn.world.as_ref(), turn.dialogue), (Some(&f.world), Some(told.id())));
    assert_eq!(
        (&turn.data["turn"], &turn.data["reinstated"]),
        (&json!(2), &json!(false))
    );
    assert_eq!(turn.occurred_at, commit.turn.committed_at);
    assert!(!format!("{messages:?}").contains("line 2"), "no message has a text");
    let bare = content(f, turn, false).await;
    assert!(bare.get("player_text").is_none() && bare["npc_id"] == json!(f.npc));
    let whole = content(f, turn, true).await;
    assert_eq!(whole["player_text"], "line 2");
    assert_eq!(whole["reply_text"], json!(commit.turn.reply_text));
    assert!(content(f, &messages[3], false).await.get("arguments").is_none());
    assert_eq!(content(f, &messages[3], true).await["arguments"], json!({"gate": "북"}));
    let state = content(f, &messages[4], true).await;
    assert_eq!(
        (&state["change_type"], &state["change"]["to"]),
        (&json!("location"), &json!("place 2"))
    );

    let asked = deliver_all(f, actions).await;
    assert_eq!(types_of(&asked), ["action.requested"]);
    assert_eq!(asked[0].id, messages[3].id, "all webhooks get the same id");
    assert_eq!(asked[0].object, action.id.to_string());
}

pub async fn rejected_commit_writes_no_message<S: LedgerSubject>(f: &mut Fixture<S>) {
    let all = add(f, &[]).await;
    let open = f.open_dialogue().await;
    let mut commit = f.sample_commit(&open, 1, None);
    commit.epoch += 1;
    let turns = &f.ledger().turns;
    turns.commit_turn(&f.scope, &commit).await.unwrap();
    assert_eq!(claim(f, all).await, []);
    commit.epoch -= 1;
    f.commit_turn(&commit).await;
    // The answer to the first attempt was lost.
    f.commit_turn(&commit).await;
    assert_eq!(types_of(&deliver_all(f, all).await), ["turn.committed"]);
}

pub async fn webhook_gets_its_types_and_worlds_alone<S: LedgerSubject>(f: &mut Fixture<S>) {
    let elsewhere = Webhook {
        worlds: BTreeSet::from(["moor".parse().unwrap()]),
        ..sample_webhook(f, &[])
    };
    put(f, &elsewhere).await;
    let here = Webhook {
        worlds: BTreeSet::from([f.world.clone()]),
        ..sample_webhook(
            f,
            &[WebhookEventType::ConversationEnded, WebhookEventType::BudgetWarning],
        )
    };
    put(f, &here).await;
    let disabled = add(f, &[]).await;
    set_enabled(f, disabled, false).await;
    let told = dialogue_with_turns(f, 1).await;
    f.close_dialogue(told.id(), told.open.epoch).await;
    let warning = BudgetWarning {
        budget: Budgeted::TokensPerDay,
        spent: false,
        used: 80.0,
        limit: 100.0,
        reached_at: f.now(),
    };
    let store = &f.ledger().webhooks;
    store.queue_budget_warnings(&f.scope, &[warning]).await.unwrap();
    assert_eq!(claim(f, elsewhere.id).await, []);
    let ended = deliver_all(f, here.id).await;
    assert_eq!(types_of(&ended), ["conversation.ended"], "a budget belongs to no world");
    assert_eq!(ended[0].data["reason"], "closed");
    set_enabled(f, disabled, true).await;
    assert_eq!(
        claim(f, disabled).await,
        [],
        "no message is written for a disabled webhook"
    );
}

pub async fn rewind_writes_retractions_after_their_events<S: LedgerSubject>(f: &mut Fixture<S>) {
    let all = add(f, &[WebhookEventType::TurnCommitted, WebhookEventType::TurnTakenBack]).await;
    let state = add(f, &[WebhookEventType::StateChanged]).await;
    let mut told = dialogue_with_turns(f, 3).await;
    let rewound = told.rewind_to(f, Some(told.turn(1))).await;
    let messages = deliver_all(f, all).await;
    assert_eq!(
        types_of(&messages),
        ["turn.committed", "turn.committed", "turn.committed", "turn.taken_back"]
    );
    let retraction = messages.last().unwrap();
    assert_eq!(retraction.object, rewound.id.to_string());
    assert_eq!(
        retraction.data["turns"],
        json!([{"turn_id": told.turn(2), "turn": 2}, {"turn_id": told.turn(3), "turn": 3}])
    );
    let changes = deliver_all(f, state).await;
    assert_eq!(changes.len(), 5);
    assert!(changes[3..].iter().all(|change| change.data["undone"] == true));
    assert_eq!(content(f, &changes[3], false).await["change_type"], "location");

    // The turns stand again.
    told.rewind_to(f, Some(told.turn(3))).await;
    let again = deliver_all(f, all).await;
    assert_eq!(types_of(&again), ["turn.committed", "turn.committed"]);
    assert!(again.iter().all(|turn| turn.data["reinstated"] == true));
    assert_ne!(again[0].id, messages[1].id, "another event");
    assert_eq!(again[0].object, told.turn(2).to_string());
    assert_eq!(content(f, &again[0], true).await["player_text"], "line 2");

    // A shortened turn takes the place of the whole turn.
    let whole = told.turns[2].clone();
    let cut = told.cut_turn(f, &whole, "reply").await;
    let shortened = deliver_all(f, all).await;
    assert_eq!(types_of(&shortened), ["turn.taken_back", "turn.committed"]);
    assert_eq!(shortened[0].data["turns"], json!([{"turn_id": whole.id, "turn": 3}]));
    assert_eq!(shortened[1].object, cut.to_string());
    assert_eq!(shortened[1].data["replaces"], json!(whole.id));
}

pub async fn restored_save_takes_turns_back_and_tells_of_ends<S: LedgerSubject>(f: &mut Fixture<S>) {
    put_default_world(f).await;
    let mut told = dialogue_with_turns(f, 1).await;
    let save = take_save(f, "before").await;
    told.commit_turn(f, 2).await;
    let later = dialogue_with_turns(f, 1).await;
    let types = [WebhookEventType::TurnTakenBack, WebhookEventType::ConversationEnded];
    let webhook = add(f, &types).await;
    restore_save(f, save.id).await;
    let messages = deliver_all(f, webhook).await;
    let of = |kind: WebhookEventType, dialogue| {
        let mut all = messages.iter();
        all.any(|message| message.event == kind && message.dialogue == Some(dialogue))
    };
    assert!(of(WebhookEventType::TurnTakenBack, told.id()));
    assert!(of(WebhookEventType::TurnTakenBack, later.id()));
    assert!(of(WebhookEventType::ConversationEnded, later.id()));
    assert_eq!(messages.len(), 3, "{messages:?}");
}

pub async fn message_holds_back_later_ones_of_its_dialogue_alone<S: LedgerSubject>(f: &mut Fixture<S>) {
    let webhook = add(f, &[WebhookEventType::TurnCommitted]).await;
    let one = dialogue_with_turns(f, 3).await;
    let other = dialogue_with_turns(f, 1).await;
    let first = claim(f, webhook).await;
    assert_eq!(first.len(), 2, "the oldest of each dialogue");
    assert_eq!(claim(f, webhook).await, [], "the rest waits for the oldest");
    assert_eq!(first[1].dialogue, Some(other.id()));
    let later = f.now() + TimeDelta::minutes(5);
    record(f, &first[0], AfterAttempt::RetryAt(later), None).await;
    record(f, &first[1], AfterAttempt::Delivered, None).await;
    f.clock.advance(Duration::from_mins(1));
    assert_eq!(claim(f, webhook).await, []);
    let mut new = other;
    new.commit_turn(f, 2).await;
    assert_eq!(
        claim(f, webhook).await[0].dialogue,
        Some(new.id()),
        "another dialogue goes on"
    );
    f.clock.advance(Duration::from_mins(5));
    let again = claim(f, webhook).await;
    let retried = again.iter().find(|message| message.dialogue == Some(one.id())).unwrap();
    assert_eq!((retried.id, retried.attempts), (first[0].id, 1));
    record(f, retried, AfterAttempt::GiveUp, None).await;
    let next = claim(f, webhook).await;
    assert_eq!(next.len(), 1);
    assert_eq!(
        next[0].object,
        one.turn(2).to_string(),
        "a message that is given up holds nothing back"
    );
    record(f, &next[0], AfterAttempt::Delivered, None).await;
    assert_eq!(claim(f, webhook).await[0].object, one.turn(3).to_string());
}

pub async fn claim_of_a_dead_node_runs_out<S: LedgerSubject>(f: &mut Fixture<S>) {
    let webhook = add(f, &[WebhookEventType::TurnCommitted]).await;
    dialogue_with_turns(f, 2).await;
    let store = &f.ledger().webhooks;
    let due = store.list_due_webhooks(f.now(), &BusyOwners::default(), 10).await;
    assert_eq!(due.unwrap(), [(f.scope.clone(), webhook)]);
    let busy = BusyOwners {
        webhooks: vec![webhook],
        tenants: Vec::new(),
    };
    assert_eq!(store.list_due_webhooks(f.now(), &busy, 10).await.unwrap(), []);
    let claimed = claim(f, webhook).await;
    f.clock.advance(Duration::from_secs(46));
    let again = claim(f, webhook).await;
    assert_eq!((again.len(), again[0].id), (1, claimed[0].id));
    // The node starts again.
    store.release_message_leases(f.node, f.now()).await.unwrap();
    let released = claim(f, webhook).await;
    assert_eq!(released[0].id, claimed[0].id);
    // Another node has the message by now, so its end is not that of this attempt.
    store.release_message_leases(f.node, f.now()).await.unwrap();
    record(f, &released[0], AfterAttempt::Delivered, None).await;
    assert_eq!(claim(f, webhook).await[0].id, claimed[0].id);
}

pub async fn due_webhooks_of_a_busy_tenant_are_passed_over<S: LedgerSubject>(f: &mut Fixture<S>) {
    let own = [add(f, &[]).await, add(f, &[]).await];
    let of_other = sample_webhook(f, &[]);
    let store = &f.ledger().webhooks;
    let edit = f.audit_edit("webhook.create");
    assert!(store.create_webhook(&f.other, &of_other, 3, &edit).await.unwrap());
    for (scope, webhook) in [(&f.scope, own[0]), (&f.scope, own[1]), (&f.other, of_other.id)] {
        let queued = store
            .queue_test_message(scope, webhook, &f.audit_edit("webhook.test"))
            .await;
        assert!(queued.unwrap().is_some());
    }
    let due = store.list_due_webhooks(f.now(), &BusyOwners::default(), 10).await;
    assert_eq!(due.unwrap().len(), 3);
    let busy = BusyOwners {
        webhooks: Vec::new(),
        tenants: vec![f.scope.tenant().clone()],
    };
    let due = store.list_due_webhooks(f.now(), &busy, 1).await;
    assert_eq!(due.unwrap(), [(f.other.clone(), of_other.id)]);
}

pub async fn disabled_webhook_keeps_its_messages<S: LedgerSubject>(f: &mut Fixture<S>) {
    let webhook = add(f, &[WebhookEventType::TurnCommitted]).await;
    dialogue_with_turns(f, 2).await;
    let claimed = claim(f, webhook).await;
    let later = AfterAttempt::RetryAt(f.now() + TimeDelta::hours(1));
    record(f, &claimed[0], later, Some(DisabledReason::Gone)).await;
    let stored = load(f, webhook).await;
    assert_eq!(
        (stored.disabled, stored.disabled_at),
        (Some(DisabledReason::Gone), Some(f.now()))
    );
    assert_eq!(stored.failing_since, Some(f.now()));
    assert_eq!(try_claim(f, webhook, 10).await, None);
    let store = &f.ledger().webhooks;
    assert_eq!(store.load_webhook_backlog().await.unwrap().messages, 0);
    let test = store
        .queue_test_message(&f.scope, webhook, &f.audit_edit("webhook.test"))
        .await;
    assert_eq!(test.unwrap(), None);

    let enabled = set_enabled(f, webhook, true).await;
    assert_eq!((enabled.disabled, enabled.failing_since), (None, None));
    let backlog = store.load_webhook_backlog().await.unwrap();
    assert_eq!((backlog.messages, backlog.oldest), (2, Some(claimed[0].occurred_at)));
    assert_eq!(
        deliver_all(f, webhook).await.len(),
        2,
        "at once, with all attempts ahead"
    );
    assert_eq!(load(f, webhook).await.failing_since, None);
}

pub async fn messages_of_a_disabled_tenant_wait<S: LedgerSubject>(f: &mut Fixture<S>) {
    let tenant = Tenant {
        id: f.scope.tenant().clone(),
        name: "Studio".to_owned(),
        enabled: true,
        budget: None,
        created_at: f.now(),
        version: 1,
    };
    let tenants = &f.ledger().tenants;
    tenants.ensure_tenant(&tenant).await.unwrap();
    add(f, &[]).await;
    dialogue_with_turns(f, 1).await;
    let store = &f.ledger().webhooks;
    let due = async || {
        let due = store.list_due_webhooks(f.now(), &BusyOwners::default(), 10).await;
        due.unwrap().len()
    };
    assert_eq!(due().await, 1);
    let disable = TenantChange {
        enabled: Some(false),
        ..TenantChange::default()
    };
    let edit = f.audit_edit("tenant.disable");
    tenants.change_tenant(&tenant.id, &disable, None, &edit).await.unwrap();
    assert_eq!(due().await, 0);
}

pub async fn attempts_are_listed_and_messages_replayed<S: LedgerSubject>(f: &mut Fixture<S>) {
    let webhook = add(f, &[WebhookEventType::TurnCommitted]).await;
    let told = dialogue_with_turns(f, 3).await;
    let messages = deliver_all(f, webhook).await;
    let store = &f.ledger().webhooks;
    let first = store.list_attempts(&f.scope, webhook, &page(2, None)).await.unwrap();
    let newest: Vec<MessageId> = first.items.iter().map(|attempt| attempt.message).collect();
    assert_eq!(newest, [messages[2].id, messages[1].id]);
    assert!(first.items[0].delivered && first.items[0].status == Some(204));
    let rest = store
        .list_attempts(&f.scope, webhook, &page(2, first.next))
        .await
        .unwrap();
    assert_eq!((rest.items.len(), rest.next), (1, None));
    assert_eq!(
        store
            .list_attempts(&f.other, webhook, &page(2, None))
            .await
            .unwrap()
            .items,
        []
    );

    let replay = async |replay: Replay| {
        let edit = f.audit_edit("webhook.replay");
        store
            .replay_messages(&f.scope, webhook, &replay, f.now(), &edit)
            .await
            .unwrap()
    };
    assert_eq!(replay(Replay::From(messages[1].id)).await, Some(2));
    let again = deliver_all(f, webhook).await;
    let objects: Vec<&str> = again.iter().map(|message| message.object.as_str()).collect();
    assert_eq!(
        objects,
        [told.turn(2).to_string(), told.turn(3).to_string()],
        "in their old order"
    );
    assert_eq!(again[0].id, messages[1].id);
    assert_eq!(replay(Replay::Message(messages[0].id)).await, Some(1));
    assert_eq!(deliver_all(f, webhook).await.len(), 1);
    assert_eq!(replay(Replay::Since(messages[2].occurred_at)).await, Some(1));
    assert_eq!(replay(Replay::Since(f.now() + TimeDelta::hours(1))).await, Some(0));
    assert_eq!(replay(Replay::Message(f.id())).await, None);
    let edit = f.audit_edit("webhook.replay");
    let since = Replay::Since(f.now());
    let foreign = store.replay_messages(&f.other, webhook, &since, f.now(), &edit).await;
    assert_eq!(foreign.unwrap(), None);
}

pub async fn tests_and_budgets_have_queues_of_their_own<S: LedgerSubject>(f: &mut Fixture<S>) {
    let webhook = add(f, &[WebhookEventType::BudgetWarning]).await;
    let store = &f.ledger().webhooks;
    let warning = |budget, spent| BudgetWarning {
        budget,
        spent,
        used: 80.0,
        limit: 100.0,
        reached_at: f.now(),
    };
    let near = warning(Budgeted::TokensPerDay, false);
    let all = [near.clone(), near.clone(), warning(Budgeted::TokensPerDay, true)];
    store.queue_budget_warnings(&f.scope, &all).await.unwrap();
    // Another node notices it too.
    store.queue_budget_warnings(&f.scope, &[near]).await.unwrap();
    let edit = f.audit_edit("webhook.test");
    let test = store.queue_test_message(&f.scope, webhook, &edit).await.unwrap();
    let messages = deliver_all(f, webhook).await;
    assert_eq!(messages.len(), 3, "{messages:?}");
    let levels: BTreeSet<&str> = messages
        .iter()
        .filter_map(|message| message.data.get("level")?.as_str())
        .collect();
    assert_eq!(levels, BTreeSet::from(["near", "spent"]));
    let queued = messages.iter().find(|message| message.event == WebhookEventType::Test);
    assert_eq!(queued.map(|message| message.id), test);
    f.clock.advance(Duration::from_hours(24));
    let tomorrow = warning(Budgeted::TokensPerDay, false);
    store.queue_budget_warnings(&f.scope, &[tomorrow]).await.unwrap();
    assert_eq!(deliver_all(f, webhook).await.len(), 1);
}

pub async fn events_of_a_world_are_told<S: LedgerSubject>(f: &mut Fixture<S>) {
    let webhook = add(f, &[WebhookEventType::StateChanged]).await;
    let event = NewStateChange {
        id: f.id(),
        world: f.world.clone(),
        dialogue: None,
        change: StateChange::Happened {
            text: "It rains.".to_owned(),
        },
        cause: Cause::Event(f.id()),
        changed_at: f.now(),
    };
    let edit = f.audit_edit("world.event");
    let state = &f.ledger().state;
    let recorded = state.record_changes(&f.scope, &f.world, std::slice::from_ref(&event), &edit);
    recorded.await.unwrap();
    let messages = deliver_all(f, webhook).await;
    assert_eq!(messages.len(), 1);
    assert_eq!(
        (messages[0].world.as_ref(), messages[0].dialogue),
        (Some(&f.world), None)
    );
    assert_eq!(messages[0].data["cause_id"], json!(event.cause.to_columns().1));
    assert_eq!(content(f, &messages[0], true).await["change"]["text"], "It rains.");
}

pub async fn old_messages_and_attempts_are_pruned<S: LedgerSubject>(f: &mut Fixture<S>) {
    let webhook = add(f, &[WebhookEventType::TurnCommitted]).await;
    let mut told = dialogue_with_turns(f, 1).await;
    deliver_all(f, webhook).await;
    told.commit_turn(f, 2).await;
    f.clock.advance(Duration::from_hours(24));
    let before = PruneBefore {
        webhook_messages: Some(f.now()),
        ..PruneBefore::default()
    };
    let maintenance = &f.ledger().maintenance;
    let prune = async || maintenance.prune_expired(&f.scope, &before, 100).await.unwrap();
    assert_eq!(prune().await, 2, "a delivered message and its attempt");
    assert_eq!(prune().await, 0, "a message that waits stays");
    set_enabled(f, webhook, false).await;
    assert_eq!(prune().await, 1);
}
