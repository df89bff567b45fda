use chrono::NaiveDate;
use colloquy::{
    ids::{PlayerId, TenantId},
    memory::{fact::NewFact, turn::Usage},
    ports::StoreError,
    ports::ledger::{
        PruneBefore,
        facts::FactPatch,
        jobs::JobKind,
        usage::{
            AuthoredLimits, AuthoredSize, Budgeted, DailyModelUsage, OwnerUsageRow, StoredAmounts, UsageDelta,
            UsageOwner, UsageRow,
        },
    },
};

use futures_util::future::join_all;

use super::{
    LedgerSubject,
    fixture::Fixture,
    lore::sample_lore,
    rewind_fixtures::dialogue_with_turns,
    saves::{put_default_world, take_save},
};

pub async fn usage_is_summed_by_day_task_and_model<S: LedgerSubject>(f: &Fixture<S>) {
    let day = |number| NaiveDate::from_ymd_opt(2031, 5, number).unwrap();
    let delta = |number, task, calls, prompt_tokens| UsageDelta {
        player: None,
        owner: None,
        unchanged_tokens: 0,
        day: day(number),
        task,
        model: "m".to_owned(),
        calls,
        usage: Usage {
            prompt_tokens,
            cached_tokens: 1,
            completion_tokens: 2,
        },
    };
    let usage = &f.ledger().usage;
    usage.add_usage(&f.scope, &[]).await.unwrap();
    // The same row occurs twice in one call, and again in another call.
    let deltas = [
        delta(4, "reply", 1, 10),
        delta(4, "reply", 1, 20),
        delta(5, "judge", 3, 7),
    ];
    usage.add_usage(&f.scope, &deltas).await.unwrap();
    usage.add_usage(&f.scope, &deltas[..1]).await.unwrap();
    usage.add_usage(&f.other, &deltas[..1]).await.unwrap();
    let row = |number, task: &str, calls, prompt_tokens, cached_tokens, completion_tokens| UsageRow {
        day: day(number),
        task: task.to_owned(),
        model: "m".to_owned(),
        calls,
        prompt_tokens,
        cached_tokens,
        unchanged_tokens: 0,
        completion_tokens,
    };
    let (fourth, fifth) = (row(4, "reply", 3, 40, 3, 6), row(5, "judge", 3, 7, 1, 2));
    assert_eq!(
        usage.list_usage_between(&f.scope, day(4), day(5)).await.unwrap(),
        [fourth, fifth.clone()]
    );
    assert_eq!(
        usage.list_usage_between(&f.scope, day(5), day(9)).await.unwrap(),
        [fifth]
    );
    let theirs = usage.list_usage_between(&f.other, day(1), day(9)).await.unwrap();
    assert_eq!((theirs.len(), theirs[0].calls), (1, 1));
}

pub async fn usage_of_all_tenants_is_summed_by_day_and_model<S: LedgerSubject>(f: &Fixture<S>) {
    let day = |number| NaiveDate::from_ymd_opt(2031, 5, number).unwrap();
    let delta = |number, task, model: &str, prompt_tokens| UsageDelta {
        player: None,
        owner: None,
        unchanged_tokens: 0,
        day: day(number),
        task,
        model: model.to_owned(),
        calls: 1,
        usage: Usage {
            prompt_tokens,
            cached_tokens: 1,
            completion_tokens: 2,
        },
    };
    let usage = &f.ledger().usage;
    let ours = [
        delta(4, "reply", "a", 10),
        delta(4, "judge", "a", 20),
        delta(4, "reply", "b", 5),
        delta(5, "reply", "a", 7),
    ];
    usage.add_usage(&f.scope, &ours).await.unwrap();
    usage.add_usage(&f.other, &ours[..1]).await.unwrap();
    let mut rows = usage.list_usage_of_day(day(4)).await.unwrap();
    rows.sort_by_key(|row| (row.tenant != *f.scope.tenant(), row.model.clone()));
    let row = |tenant: &TenantId, model: &str, prompt_tokens, cached_tokens, completion_tokens| DailyModelUsage {
        tenant: tenant.clone(),
        model: model.to_owned(),
        prompt_tokens,
        cached_tokens,
        completion_tokens,
    };
    let (mine, theirs) = (f.scope.tenant(), f.other.tenant());
    assert_eq!(
        rows,
        [
            row(mine, "a", 30, 2, 4),
            row(mine, "b", 5, 1, 2),
            row(theirs, "a", 10, 1, 2)
        ]
    );
    assert!(usage.list_usage_of_day(day(6)).await.unwrap().is_empty());
}

pub async fn usage_of_dialogues_is_summed_by_world_and_npc<S: LedgerSubject>(f: &Fixture<S>) {
    let day = |number| NaiveDate::from_ymd_opt(2031, 5, number).unwrap();
    let delta = |number, world: &str, npc: &str, task, prompt_tokens| UsageDelta {
        player: None,
        day: day(number),
        owner: Some(UsageOwner {
            world: world.parse().unwrap(),
            npc: npc.parse().unwrap(),
        }),
        task,
        model: "m".to_owned(),
        calls: 1,
        usage: Usage {
            prompt_tokens,
            cached_tokens: 1,
            completion_tokens: 2,
        },
        unchanged_tokens: 5,
    };
    let of_nobody = UsageDelta {
        owner: None,
        ..delta(4, "vale", "mira", "embedding", 100)
    };
    let deltas = [
        delta(4, "vale", "mira", "reply", 10),
        delta(5, "vale", "mira", "reply", 20),
        delta(5, "vale", "tom", "judge", 3),
        delta(5, "vale", "ann", "reply", 4),
        delta(9, "vale", "tom", "reply", 50),
        delta(4, "dale", "mira", "reply", 7),
        of_nobody,
    ];
    let usage = &f.ledger().usage;
    usage.add_usage(&f.scope, &deltas).await.unwrap();
    usage.add_usage(&f.scope, &deltas[..1]).await.unwrap();
    usage.add_usage(&f.other, &deltas[..1]).await.unwrap();
    // The sums of the tenant have all.
    let all = usage.list_usage_between(&f.scope, day(4), day(4)).await.unwrap();
    let all: Vec<_> = all
        .iter()
        .map(|row| (row.task.as_str(), row.prompt_tokens, row.unchanged_tokens))
        .collect();
    assert_eq!(all, [("embedding", 100, 5), ("reply", 27, 15)]);
    let row = |owner: &str, task: &str, calls, prompt_tokens| OwnerUsageRow {
        owner: owner.to_owned(),
        task: task.to_owned(),
        model: "m".to_owned(),
        calls,
        prompt_tokens,
        cached_tokens: calls,
        unchanged_tokens: 5 * calls,
        completion_tokens: 2 * calls,
    };
    let worlds = usage.sum_usage_of_worlds(&f.scope, day(4), day(5)).await.unwrap();
    let expected = [
        row("dale", "reply", 1, 7),
        row("vale", "judge", 1, 3),
        row("vale", "reply", 4, 44),
    ];
    assert_eq!(worlds, expected);
    let vale = "vale".parse().unwrap();
    let npcs = async |scope, after, limit| {
        let span = (day(4), day(5));
        usage.sum_usage_of_npcs(scope, &vale, span, after, limit).await.unwrap()
    };
    let (ann, mira, tom) = (
        row("ann", "reply", 1, 4),
        row("mira", "reply", 3, 40),
        row("tom", "judge", 1, 3),
    );
    assert_eq!(npcs(&f.scope, None, 2).await, [ann, mira.clone()]);
    assert_eq!(npcs(&f.scope, Some("ann"), 9).await, [mira, tom.clone()]);
    assert_eq!(npcs(&f.scope, Some("mira"), 1).await, [tom]);
    assert_eq!(npcs(&f.other, None, 9).await, [row("mira", "reply", 1, 10)]);
    // The oldest days are deleted, and the sums of the tenant stay.
    let before = PruneBefore {
        npc_usage: Some("2031-05-06T12:00:00Z".parse().unwrap()),
        ..PruneBefore::default()
    };
    let maintenance = &f.ledger().maintenance;
    for expected in [2, 3, 0] {
        assert_eq!(maintenance.prune_expired(&f.scope, &before, 9).await.unwrap(), expected);
    }
    let left = usage.sum_usage_of_worlds(&f.scope, day(1), day(30)).await.unwrap();
    assert_eq!(left, [row("vale", "reply", 1, 50)]);
    assert_eq!(
        usage.list_usage_between(&f.scope, day(4), day(4)).await.unwrap().len(),
        2
    );
}

pub async fn stored_rows_are_counted_up_to_the_requested_limit<S: LedgerSubject>(f: &Fixture<S>) {
    let usage = &f.ledger().usage;
    let stored = |dialogues, turns| StoredAmounts { dialogues, turns };
    assert_eq!(usage.count_stored(&f.scope, stored(9, 9)).await.unwrap(), stored(0, 0));
    for _ in 0..3 {
        f.sample_job_fence(JobKind::ExtractFacts).await;
    }
    f.open_dialogue().await;
    assert_eq!(usage.count_stored(&f.scope, stored(9, 9)).await.unwrap(), stored(4, 3));
    assert_eq!(usage.count_stored(&f.scope, stored(2, 0)).await.unwrap(), stored(2, 0));
    assert_eq!(usage.count_stored(&f.other, stored(9, 9)).await.unwrap(), stored(0, 0));
}

/// What an author put and took back is counted with the texts, whichever statement wrote it.
pub async fn authored_objects_are_counted_as_they_come_and_go<S: LedgerSubject>(f: &Fixture<S>) {
    let ledger = f.ledger();
    let size = async || ledger.usage.load_authored_size(&f.scope).await.unwrap();
    assert_eq!(size().await, AuthoredSize::default());
    put_default_world(f).await;
    let empty = size().await;
    assert_eq!(empty.worlds, 2);
    assert!((2_048..4_096).contains(&empty.bytes), "{empty:?}");

    let put = async |name: &str| {
        let lore = sample_lore(f, "wood", name);
        let edit = f.audit_edit("lore.put");
        ledger.lore.put_lore(&f.scope, &lore, None, &edit).await.unwrap();
        size().await.bytes - empty.bytes
    };
    let short = put("미라").await;
    assert_eq!(put("미라의 숲").await, short + 7, "syllables have three bytes");
    assert_eq!(put("미라").await, short);
    let (id, edit) = ("wood".parse().unwrap(), f.audit_edit("lore.delete"));
    ledger
        .lore
        .delete_lore(&f.scope, &f.world, &id, None, &edit)
        .await
        .unwrap();
    assert_eq!(size().await, empty);

    let learned = f.create_fact(f.sample_fact("the player likes pears")).await;
    assert_eq!(size().await, empty, "{learned} was told by a player");
    let fact = f
        .create_fact(NewFact {
            authored: true,
            ..f.sample_fact("the player likes grapes")
        })
        .await;
    let with_fact = size().await.bytes;
    assert!(with_fact > empty.bytes + 1_024);
    let patch = FactPatch {
        importance: colloquy::memory::fact::Importance::new(9),
        ..FactPatch::default()
    };
    let edit = f.audit_edit("fact.edit");
    ledger
        .facts
        .edit_fact(&f.scope, fact, &patch, None, &edit)
        .await
        .unwrap();
    assert!(size().await.bytes > with_fact + 1_024);
    let before_save = size().await.bytes;
    let save = take_save(f, "autumn").await.id;
    assert_eq!(size().await.bytes, before_save + 1_024 + 6);
    let edit = f.audit_edit("save.delete");
    assert!(ledger.saves.delete_save(&f.scope, &f.world, save, &edit).await.unwrap());
    assert_eq!(size().await.bytes, before_save);

    // What players teach is no author's, and a deleted world no longer counts as one.
    let plan = f.sample_plan().await;
    f.reconcile_plan(&plan).await;
    assert_eq!(size().await.bytes, before_save);
    let edit = f.audit_edit("world.delete");
    ledger
        .authored
        .delete_world(&f.scope, &f.world, None, &edit)
        .await
        .unwrap();
    assert_eq!(size().await.worlds, 1);
    assert_eq!(
        ledger.usage.load_authored_size(&f.other).await.unwrap(),
        AuthoredSize::default()
    );
}

pub async fn authored_objects_written_at_once_keep_the_limit<S: LedgerSubject>(f: &Fixture<S>) {
    let ledger = f.ledger();
    let limits = AuthoredLimits {
        worlds: Some(5),
        bytes: None,
    };
    let put = async |number: usize, limits: AuthoredLimits| {
        let world = f.sample_world(&format!("world-{number}"));
        let edit = f.audit_edit("world.put").within(limits);
        ledger.authored.put_world(&f.scope, &world, None, &edit).await
    };
    let answers = join_all((0..20).map(|number| put(number, limits))).await;
    let stored = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!(stored, 5);
    for answer in answers.iter().filter_map(|answer| answer.as_ref().err()) {
        assert!(matches!(answer, StoreError::OverBudget(Budgeted::Worlds)), "{answer}");
    }
    let size = ledger.usage.load_authored_size(&f.scope).await.unwrap();
    assert_eq!(size.worlds, 5);
    // A tenant over its limits changes what it has, and adds nothing.
    let bytes = AuthoredLimits {
        worlds: Some(1),
        bytes: Some(10),
    };
    let known = answers.iter().position(Result::is_ok).unwrap();
    assert!(put(known, bytes).await.is_ok());
    let refused = ledger
        .authored
        .put_npc(
            &f.scope,
            &f.sample_npc(&format!("world-{known}"), "mira"),
            None,
            &f.audit_edit("npc.put").within(bytes),
        )
        .await;
    assert!(
        matches!(refused, Err(StoreError::OverBudget(Budgeted::AuthoredBytes))),
        "{refused:?}"
    );
    assert_eq!(ledger.usage.load_authored_size(&f.scope).await.unwrap(), size);
}

pub async fn usage_and_turns_of_a_player_are_counted_for_its_share<S: LedgerSubject>(f: &Fixture<S>) {
    let day = |number| NaiveDate::from_ymd_opt(2031, 5, number).unwrap();
    let (one, two): (PlayerId, PlayerId) = ("p1".parse().unwrap(), "p2".parse().unwrap());
    let delta = |number, player: &PlayerId, task, model: &str| UsageDelta {
        day: day(number),
        owner: None,
        player: Some(player.clone()),
        task,
        model: model.to_owned(),
        calls: 1,
        usage: Usage {
            prompt_tokens: 10,
            cached_tokens: 1,
            completion_tokens: 2,
        },
        unchanged_tokens: 0,
    };
    let deltas = [
        delta(5, &one, "reply", "m"),
        delta(5, &one, "judge", "m"),
        delta(5, &one, "reply", "n"),
        delta(4, &one, "reply", "m"),
        delta(5, &two, "reply", "m"),
    ];
    let usage = &f.ledger().usage;
    usage.add_usage(&f.scope, &deltas).await.unwrap();
    usage.add_usage(&f.scope, &deltas[..1]).await.unwrap();
    let of = async |scope, player, number| {
        let mut rows = usage.list_player_usage(scope, player, day(number)).await.unwrap();
        rows.sort_by(|a, b| a.model.cmp(&b.model));
        let row = |row: &DailyModelUsage| {
            (
                row.model.clone(),
                row.prompt_tokens,
                row.cached_tokens,
                row.completion_tokens,
            )
        };
        rows.iter().map(row).collect::<Vec<_>>()
    };
    assert_eq!(
        of(&f.scope, &one, 5).await,
        [("m".to_owned(), 30, 3, 6), ("n".to_owned(), 10, 1, 2)]
    );
    assert_eq!(of(&f.scope, &two, 5).await, [("m".to_owned(), 10, 1, 2)]);
    assert!(of(&f.other, &one, 5).await.is_empty() && of(&f.scope, &one, 6).await.is_empty());
    // Only the present day counts.
    let before = PruneBefore {
        player_usage: Some(day(5).and_hms_opt(12, 0, 0).unwrap().and_utc()),
        ..PruneBefore::default()
    };
    f.ledger()
        .maintenance
        .prune_expired(&f.scope, &before, 10)
        .await
        .unwrap();
    assert!(of(&f.scope, &one, 4).await.is_empty() && !of(&f.scope, &one, 5).await.is_empty());

    let mut told = dialogue_with_turns(f, 3).await;
    let player = told.open.dialogue.player.clone().unwrap();
    let count = async |scope, player, most| usage.count_turns_of(scope, player, most).await.unwrap();
    assert_eq!(count(&f.scope, &player, 10).await, 3);
    told.rewind_to(f, None).await;
    assert_eq!(count(&f.scope, &player, 10).await, 3, "unsaid turns are stored too");
    assert_eq!(count(&f.scope, &player, 2).await, 2);
    let stranger: PlayerId = "nobody-else".parse().unwrap();
    assert_eq!(
        (count(&f.scope, &stranger, 10).await, count(&f.other, &player, 10).await),
        (0, 0)
    );
}
