use std::time::Duration;

use colloquy::{
    ids::{DialogueId, DialogueKind, NodeId, NpcId, PlayerId, WorldId},
    memory::{
        disclosure::{private_terms::PrivateTerms, secrecy::Secrecy},
        scenario::ScenarioScore,
        trace::{CandidateFate, ScenarioTrace},
        turn::Checkpoint,
    },
    ports::ledger::{
        dialogues::{
            CommitOutcome, Dialogue, DialogueFilter, DialogueStatus, KeyedTurn, OpenDialogue, OwnerWriteOutcome,
            OwnershipClaim,
        },
        jobs::JobKind,
        rewinds::{RewindCommit, RewindOrigin},
    },
    tenancy::TenantScope,
};

use super::{
    LedgerSubject,
    fixture::{Fixture, page},
};

pub async fn dialogue_round_trips_and_closes_once<S: LedgerSubject>(f: &Fixture<S>) {
    let dialogues = &f.ledger().dialogues;
    let dialogue = f.sample_dialogue();
    dialogues.create_dialogue(&f.scope, &dialogue).await.unwrap();
    assert_eq!(
        dialogues.load_dialogue(&f.scope, dialogue.id).await.unwrap().as_ref(),
        Some(&dialogue)
    );
    assert!(dialogues.create_dialogue(&f.scope, &dialogue).await.is_err());
    assert_eq!(
        dialogues.load_checkpoint(&f.scope, dialogue.id).await.unwrap(),
        Some(Checkpoint::default())
    );
    let fresh = vec![7; 32];
    assert!(dialogues.set_resume_token(&f.scope, dialogue.id, &fresh).await.unwrap());
    assert!(
        !dialogues
            .set_resume_token(&f.other, dialogue.id, &[8; 32])
            .await
            .unwrap()
    );
    f.advance_clock();
    f.close_dialogue(dialogue.id, 0).await;
    let again = dialogues
        .close_dialogue(&f.scope, dialogue.id, 0, f.now())
        .await
        .unwrap();
    assert_eq!(again, OwnerWriteOutcome::NotOpen);
    let closed = Dialogue {
        status: DialogueStatus::Closed,
        updated_at: f.now(),
        resume_token_hash: fresh,
        ..dialogue
    };
    assert_eq!(
        dialogues.load_dialogue(&f.scope, closed.id).await.unwrap(),
        Some(closed)
    );
}

pub async fn conversation_can_be_paused_only_while_open<S: LedgerSubject>(f: &Fixture<S>) {
    let dialogues = &f.ledger().dialogues;
    let mut dialogue = f.sample_dialogue();
    dialogue.options.topic = Some("the \"mill\"".to_owned());
    dialogues.create_dialogue(&f.scope, &dialogue).await.unwrap();
    for paused in [true, true, false, true] {
        let written = dialogues.set_paused(&f.scope, dialogue.id, 0, paused).await.unwrap();
        assert_eq!(written, OwnerWriteOutcome::Done);
        dialogue.options.paused = paused;
        let stored = dialogues.load_dialogue(&f.scope, dialogue.id).await.unwrap().unwrap();
        assert_eq!(stored.options, dialogue.options, "and nothing else changes");
    }
    let others = dialogues.set_paused(&f.other, dialogue.id, 0, false).await.unwrap();
    assert_eq!(others, OwnerWriteOutcome::NotOpen);
    f.close_dialogue(dialogue.id, 0).await;
    let late = dialogues.set_paused(&f.scope, dialogue.id, 0, false).await.unwrap();
    assert_eq!(late, OwnerWriteOutcome::NotOpen);
}

pub async fn dialogue_is_paused_and_closed_only_by_its_owner<S: LedgerSubject>(f: &Fixture<S>) {
    let open = f.open_dialogue().await;
    let (id, dialogues) = (open.dialogue.id, &f.ledger().dialogues);
    // Another claim has taken the dialogue since.
    let epoch = f.claim_dialogue(id).await.epoch;
    let before = dialogues.load_dialogue(&f.scope, id).await.unwrap();
    for stale in [open.epoch, epoch + 1] {
        let paused = dialogues.set_paused(&f.scope, id, stale, true).await.unwrap();
        let closed = dialogues.close_dialogue(&f.scope, id, stale, f.now()).await.unwrap();
        assert_eq!((paused, closed), (OwnerWriteOutcome::Fenced, OwnerWriteOutcome::Fenced));
    }
    assert_eq!(dialogues.load_dialogue(&f.scope, id).await.unwrap(), before);
    let paused = dialogues.set_paused(&f.scope, id, epoch, true).await.unwrap();
    assert_eq!(paused, OwnerWriteOutcome::Done);
    f.close_dialogue(id, epoch).await;
}

pub async fn dialogues_are_listed_newest_first_and_filtered<S: LedgerSubject>(f: &Fixture<S>) {
    let dialogues = &f.ledger().dialogues;
    let mut all: Vec<Dialogue> = Vec::new();
    for number in 0..4 {
        let mut dialogue = f.sample_dialogue();
        if number == 1 {
            dialogue.player = Some("somebody-else".parse().unwrap());
        }
        if number == 2 {
            dialogue.world = "elsewhere".parse().unwrap();
            dialogue.npcs = vec!["ergen".parse().unwrap()];
        }
        if number == 3 {
            dialogue.id = f.ids.next_dialogue_id(DialogueKind::NpcConversation);
            dialogue.player = None;
        }
        // Two dialogues are created at the same moment. The order must still be total.
        if number != 2 {
            f.advance_clock();
        }
        dialogues.create_dialogue(&f.scope, &dialogue).await.unwrap();
        all.insert(0, dialogue);
    }
    all.sort_by_key(|dialogue| std::cmp::Reverse((dialogue.created_at, dialogue.id.to_string())));
    let ids = |items: &[Dialogue]| items.iter().map(|dialogue| dialogue.id).collect::<Vec<DialogueId>>();

    let none = DialogueFilter::default();
    let mut listed = Vec::new();
    let mut after = None;
    loop {
        let got = dialogues
            .list_dialogues(&f.scope, &none, &page(1, after))
            .await
            .unwrap();
        listed.extend(got.items);
        after = got.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(ids(&listed), ids(&all));

    let matching = |filter: DialogueFilter| async move {
        ids(&dialogues
            .list_dialogues(&f.scope, &filter, &page(9, None))
            .await
            .unwrap()
            .items)
    };
    let wanted = |keep: &dyn Fn(&Dialogue) -> bool| {
        let kept: Vec<Dialogue> = all.iter().filter(|dialogue| keep(dialogue)).cloned().collect();
        ids(&kept)
    };
    let by_player = DialogueFilter {
        player: Some(f.player.clone()),
        ..none.clone()
    };
    assert_eq!(
        matching(by_player).await,
        wanted(&|dialogue| dialogue.player.as_ref() == Some(&f.player))
    );
    let by_world = DialogueFilter {
        world: Some(f.world.clone()),
        ..none.clone()
    };
    assert_eq!(matching(by_world).await, wanted(&|dialogue| dialogue.world == f.world));
    // A witness does not speak in a dialogue.
    let by_npc = DialogueFilter {
        npc: Some("ergen".parse().unwrap()),
        ..none.clone()
    };
    assert_eq!(
        matching(by_npc.clone()).await,
        wanted(&|dialogue| dialogue.npcs == ["ergen".parse().unwrap()])
    );
    // But a witness hears the dialogue.
    let heard_by = DialogueFilter {
        heard_by: Some("ergen".parse().unwrap()),
        ..none.clone()
    };
    let ergen = "ergen".parse().unwrap();
    assert_eq!(
        matching(heard_by).await,
        wanted(&|dialogue| dialogue.npcs.contains(&ergen) || dialogue.witnesses.contains(&ergen))
    );
    for kind in [DialogueKind::Session, DialogueKind::NpcConversation] {
        let of_kind = DialogueFilter {
            kind: Some(kind),
            ..none.clone()
        };
        assert_eq!(matching(of_kind).await, wanted(&|dialogue| dialogue.id.kind() == kind));
    }
    let by_both = DialogueFilter {
        world: Some(f.world.clone()),
        ..by_npc
    };
    assert!(matching(by_both).await.is_empty());
    f.close_dialogue(all[0].id, 0).await;
    let open = DialogueFilter {
        status: Some(DialogueStatus::Open),
        ..none
    };
    assert_eq!(matching(open).await, wanted(&|dialogue| dialogue.id != all[0].id));
}

pub async fn dialogues_are_filtered_by_the_name_of_their_talk<S: LedgerSubject>(f: &Fixture<S>) {
    let dialogues = &f.ledger().dialogues;
    let mut named = Vec::new();
    for chat_key in [Some("night"), Some(""), None] {
        let mut dialogue = f.sample_dialogue();
        dialogue.options.chat_key = chat_key.map(str::to_owned);
        dialogues.create_dialogue(&f.scope, &dialogue).await.unwrap();
        named.push((chat_key, dialogue.id));
    }
    for chat_key in ["night", "", "day"] {
        let of_talk = DialogueFilter {
            chat_key: Some(chat_key.to_owned()),
            ..DialogueFilter::default()
        };
        let found = dialogues.list_dialogues(&f.scope, &of_talk, &page(9, None)).await;
        let found: Vec<DialogueId> = found.unwrap().items.iter().map(|dialogue| dialogue.id).collect();
        let expected = named.iter().filter(|(name, _)| *name == Some(chat_key));
        assert_eq!(found, expected.map(|(_, id)| *id).collect::<Vec<_>>(), "{chat_key}");
    }
}

pub async fn dialogues_are_filtered_by_key_pattern<S: LedgerSubject>(f: &Fixture<S>) {
    let dialogues = &f.ledger().dialogues;
    let (mira, ergen) = (f.sample_dialogue(), {
        let mut dialogue = f.sample_dialogue();
        dialogue.world = "elsewhere".parse().unwrap();
        dialogue.npcs = vec!["er_gen".parse().unwrap()];
        dialogue
    });
    let mut talk = f.sample_dialogue();
    talk.id = f.ids.next_dialogue_id(DialogueKind::NpcConversation);
    talk.player = None;
    let [mira, ergen, talk] = [mira, ergen, talk].map(|mut dialogue| {
        f.advance_clock();
        dialogue.created_at = f.now();
        dialogue
    });
    for dialogue in [&mira, &ergen, &talk] {
        dialogues.create_dialogue(&f.scope, dialogue).await.unwrap();
    }
    let of_mira = format!("world:*:npc:{}:session:{}", f.npc, mira.id);
    for (key, expected) in [
        ("world:*", vec![talk.id, ergen.id, mira.id]),
        ("world:else?here", vec![ergen.id]),
        ("world:*:npc:er_*", vec![ergen.id]),
        ("world:*:npc:*:conversation:con_*", vec![talk.id]),
        ("world:*:npc:*:session:con_*", vec![]),
        (of_mira.as_str(), vec![mira.id]),
        // Only `*` and `?` stand for other characters.
        ("world:*:npc:e__gen", vec![]),
        ("world:else_here", vec![]),
    ] {
        let filter = DialogueFilter {
            key: Some(key.parse().unwrap()),
            ..DialogueFilter::default()
        };
        let found = dialogues
            .list_dialogues(&f.scope, &filter, &page(9, None))
            .await
            .unwrap();
        let found: Vec<DialogueId> = found.items.iter().map(|dialogue| dialogue.id).collect();
        assert_eq!(found, expected, "{key}");
    }
}

pub async fn conversation_heard_last_is_found<S: LedgerSubject>(f: &Fixture<S>) {
    let (mira, ergen): (NpcId, NpcId) = ("mira".parse().unwrap(), "ergen".parse().unwrap());
    let dialogues = &f.ledger().dialogues;
    let conversation = async |npcs: &[&NpcId], witnesses: &[&NpcId]| {
        f.advance_clock();
        let mut dialogue = f.sample_dialogue();
        dialogue.id = f.ids.next_dialogue_id(DialogueKind::NpcConversation);
        dialogue.player = None;
        dialogue.npcs = npcs.iter().copied().cloned().collect();
        dialogue.witnesses = witnesses.iter().copied().cloned().collect();
        dialogues.create_dialogue(&f.scope, &dialogue).await.unwrap();
        f.claim_dialogue(dialogue.id).await
    };
    let said = async |open: &OpenDialogue, number, head| {
        f.advance_clock();
        let commit = f.sample_commit(open, number, head);
        f.commit_turn(&commit).await;
        commit.turn.id
    };
    let heard = async |scope: &TenantScope, world: &WorldId, npc: &NpcId, player: Option<&PlayerId>| {
        let heard = dialogues.find_last_overheard(scope, world, npc, player).await.unwrap();
        heard.map(|heard| (heard.dialogue, heard.last))
    };
    let latest = async |npc: &NpcId| heard(&f.scope, &f.world, npc, None).await;

    let first = conversation(&[&mira, &ergen], &[]).await;
    let second = conversation(&[&mira], &[&ergen]).await;
    let others = conversation(&[&mira], &[]).await;
    assert_eq!(latest(&mira).await, None);
    let second_head = said(&second, 1, None).await;
    said(&first, 1, None).await;
    let session = f.open_dialogue().await;
    said(&session, 1, None).await;
    // These dialogues are new, but have no turns.
    for _ in 0..5 {
        conversation(&[&mira, &ergen], &[]).await;
    }
    assert_eq!(
        latest(&ergen).await,
        Some((first.dialogue.id, 1)),
        "the one spoken in last"
    );
    said(&second, 2, Some(second_head)).await;
    assert_eq!(
        latest(&ergen).await,
        Some((second.dialogue.id, 2)),
        "a witness heard it"
    );
    said(&others, 1, None).await;
    assert_eq!(latest(&ergen).await, Some((second.dialogue.id, 2)));
    assert_eq!(latest(&mira).await, Some((others.dialogue.id, 1)));
    // Closing a dialogue does not count as speech.
    f.advance_clock();
    f.close_dialogue(first.dialogue.id, first.epoch).await;
    assert_eq!(latest(&ergen).await, Some((second.dialogue.id, 2)));
    let elsewhere = "elsewhere".parse().unwrap();
    assert_eq!(heard(&f.scope, &elsewhere, &mira, None).await, None);
    assert_eq!(heard(&f.other, &f.world, &mira, None).await, None);

    // Unsaid turns were not heard.
    for (open, to) in [(&second, Some(second_head)), (&others, None)] {
        let rewind = RewindCommit {
            id: f.id(),
            rewound_at: f.now(),
            dialogue: open.dialogue.id,
            world: open.dialogue.world.clone(),
            epoch: open.epoch,
            origin: RewindOrigin::Request,
            to,
            replacement: None,
            replacing: None,
            paused: None,
            held_until: None,
            key: None,
            other_keys: Vec::new(),
            seq: 100,
            edits: vec![f.audit_edit("conversation.interrupt")],
        };
        f.ledger().rewinds.commit_rewind(&f.scope, &rewind).await.unwrap();
    }
    for npc in [&mira, &ergen] {
        assert_eq!(latest(npc).await, Some((first.dialogue.id, 1)));
    }
}

pub async fn conversation_counts_as_heard_by_its_allowed_listeners<S: LedgerSubject>(f: &Fixture<S>) {
    let (mira, p7, p8): (NpcId, PlayerId, PlayerId) =
        ("mira".parse().unwrap(), f.player.clone(), "p8".parse().unwrap());
    let dialogues = &f.ledger().dialogues;
    let mut heard = Vec::new();
    for (open, watchers) in [(true, vec![]), (false, vec![p7.clone()]), (false, vec![])] {
        f.advance_clock();
        let mut dialogue = f.sample_dialogue();
        dialogue.id = f.ids.next_dialogue_id(DialogueKind::NpcConversation);
        dialogue.player = None;
        dialogue.npcs = vec![mira.clone()];
        dialogue.options.open = open;
        dialogue.options.watchers = watchers;
        dialogues.create_dialogue(&f.scope, &dialogue).await.unwrap();
        let open = f.claim_dialogue(dialogue.id).await;
        f.commit_turn(&f.sample_commit(&open, 1, None)).await;
        heard.push((dialogue.id, dialogue.options.watchers()));
    }
    for (player, nth) in [(None, 2), (Some(&p7), 1), (Some(&p8), 0)] {
        let last = dialogues
            .find_last_overheard(&f.scope, &f.world, &mira, player)
            .await
            .unwrap()
            .unwrap();
        assert_eq!((last.dialogue, last.watchers), heard[nth], "{player:?}");
        assert_eq!(last.last, 1);
    }
}

pub async fn claim_holds_ownership_until_it_expires<S: LedgerSubject>(f: &Fixture<S>) {
    let dialogues = &f.ledger().dialogues;
    let id = f.open_dialogue().await.dialogue.id;
    let rival: NodeId = f.id();
    let until = f.now() + chrono::Duration::seconds(30);
    let steal = || async {
        let until = f.now() + chrono::Duration::seconds(30);
        dialogues
            .claim_ownership(&f.scope, id, rival, f.now(), until)
            .await
            .unwrap()
    };
    assert_eq!(steal().await, OwnershipClaim::OwnedBy { node: f.node, until });
    // The same node may claim the dialogue again after a restart, with a new epoch.
    let again = f.claim_dialogue(id).await;
    assert_eq!((again.epoch, again.taken_from), (2, None));
    f.clock.advance(Duration::from_secs(29));
    assert!(matches!(steal().await, OwnershipClaim::OwnedBy { .. }));
    f.clock.advance(Duration::from_secs(1));
    let OwnershipClaim::Owned(open) = steal().await else {
        panic!("it had run out")
    };
    assert_eq!((open.epoch, open.taken_from), (3, Some(f.node)));
    assert!(matches!(
        dialogues.claim_ownership(&f.scope, id, f.node, f.now(), until).await.unwrap(),
        OwnershipClaim::OwnedBy { node, .. } if node == rival
    ));
    let unknown = f.sample_dialogue().id;
    assert_eq!(
        dialogues
            .claim_ownership(&f.scope, unknown, f.node, f.now(), until)
            .await
            .unwrap(),
        OwnershipClaim::NotFound
    );
}

pub async fn released_dialogue_may_be_claimed_by_any_node<S: LedgerSubject>(f: &Fixture<S>) {
    let dialogues = &f.ledger().dialogues;
    let (one, two) = (f.open_dialogue().await, f.open_dialogue().await);
    let rival: NodeId = f.id();
    let until = f.now() + chrono::Duration::seconds(30);
    let claim = async |node, id| {
        dialogues
            .claim_ownership(&f.scope, id, node, f.now(), until)
            .await
            .unwrap()
    };
    let release = async |scope, epoch, next_seq| {
        dialogues
            .release_ownership(scope, one.dialogue.id, epoch, next_seq)
            .await
            .unwrap();
    };
    release(&f.other, one.epoch, 9).await;
    release(&f.scope, one.epoch + 1, 9).await;
    assert!(matches!(
        claim(rival, one.dialogue.id).await,
        OwnershipClaim::OwnedBy { .. }
    ));
    release(&f.scope, one.epoch, 7).await;
    let OwnershipClaim::Owned(taken) = claim(rival, one.dialogue.id).await else {
        panic!("it was given up")
    };
    assert_eq!((taken.epoch, taken.taken_from), (one.epoch + 1, None));
    assert_eq!(
        taken.next_seq, 7,
        "numbers of events that were told after the last commit do not come again"
    );
    // A late release by the former owner does not release another node's dialogue.
    release(&f.scope, one.epoch, 11).await;
    dialogues.release_all_ownership(f.node).await.unwrap();
    assert!(matches!(claim(f.node, one.dialogue.id).await, OwnershipClaim::OwnedBy { node, .. } if node == rival));
    assert!(matches!(claim(rival, two.dialogue.id).await, OwnershipClaim::Owned(_)));
    // A release without the published event numbers does not lower the counter.
    release(&f.scope, taken.epoch, 0).await;
    let OwnershipClaim::Owned(again) = claim(rival, one.dialogue.id).await else {
        panic!("it was given up")
    };
    assert_eq!(again.next_seq, 7);
}

pub async fn claim_reads_the_state_to_continue_from<S: LedgerSubject>(f: &Fixture<S>) {
    let open = f.open_dialogue().await;
    assert_eq!((open.epoch, open.head, open.next_seq), (1, None, 1));
    assert_eq!(open.checkpoint, Checkpoint::default());
    let commit = f.sample_commit(&open, 1, None);
    f.commit_turn(&commit).await;
    let again = f.claim_dialogue(open.dialogue.id).await;
    assert_eq!(again.epoch, 2);
    assert_eq!(again.head, Some(commit.turn.id));
    assert_eq!(again.checkpoint, commit.checkpoint);
    assert_eq!(again.next_seq, commit.next_seq);
    assert_eq!(again.dialogue.head_turn, 1);
    assert_eq!(again.dialogue.updated_at, commit.turn.committed_at);
}

pub async fn renewal_requires_the_current_epoch<S: LedgerSubject>(f: &Fixture<S>) {
    let dialogues = &f.ledger().dialogues;
    let open = f.open_dialogue().await;
    let later = f.now() + chrono::Duration::seconds(300);
    assert!(
        dialogues
            .renew_ownership(&f.scope, open.dialogue.id, open.epoch, later)
            .await
            .unwrap()
    );
    f.clock.advance(Duration::from_secs(200));
    let rival = dialogues
        .claim_ownership(&f.scope, open.dialogue.id, f.id(), f.now(), later)
        .await
        .unwrap();
    assert_eq!(
        rival,
        OwnershipClaim::OwnedBy {
            node: f.node,
            until: later
        }
    );
    f.claim_dialogue(open.dialogue.id).await;
    assert!(
        !dialogues
            .renew_ownership(&f.scope, open.dialogue.id, open.epoch, later)
            .await
            .unwrap()
    );
}

pub async fn turn_round_trips_whole<S: LedgerSubject>(f: &Fixture<S>) {
    let open = f.open_dialogue().await;
    let mut commit = f.sample_commit(&open, 1, None);
    commit.key = Some("k1".to_owned());
    commit.trace.scenarios.push(ScenarioTrace {
        scenario: "well".parse().unwrap(),
        title: "The well".to_owned(),
        secrecy: Secrecy::Open,
        score: ScenarioScore::default(),
        recent: false,
        news: None,
        fate: CandidateFate::Used,
        shown_text: Some("I fell into the well.".to_owned()),
    });
    f.commit_turn(&commit).await;
    let (dialogues, id) = (&f.ledger().dialogues, open.dialogue.id);
    assert_eq!(
        dialogues.load_turns(&f.scope, id, 1, 1).await.unwrap(),
        [commit.turn.clone()]
    );
    let scenarios = async |from, to| dialogues.load_traced_scenarios(&f.scope, id, from, to).await.unwrap();
    assert_eq!(scenarios(1, 9).await, commit.trace.scenarios);
    assert_eq!(scenarios(2, 9).await, []);
    assert_eq!(dialogues.load_trace(&f.scope, id, 1).await.unwrap(), Some(commit.trace));
    assert_eq!(dialogues.load_trace(&f.scope, id, 2).await.unwrap(), None);
    assert_eq!(
        dialogues.load_checkpoint(&f.scope, id).await.unwrap(),
        Some(commit.checkpoint)
    );
    let keyed = dialogues.load_turn_by_key(&f.scope, id, "k1").await.unwrap();
    assert_eq!(
        keyed,
        Some(KeyedTurn {
            turn: commit.turn,
            stands: true
        })
    );
    for (scope, most, keys) in [(&f.scope, 9, 1), (&f.scope, 0, 0), (&f.other, 9, 0)] {
        assert_eq!(
            dialogues.list_turn_keys(scope, id, most).await.unwrap(),
            ["k1"; 1][..keys]
        );
    }
}

pub async fn stale_epoch_is_fenced<S: LedgerSubject>(f: &Fixture<S>) {
    let stale = f.open_dialogue().await;
    let fresh = f.claim_dialogue(stale.dialogue.id).await;
    let dialogues = &f.ledger().dialogues;
    let mut commit = f.sample_commit(&stale, 1, None);
    commit.jobs = vec![f.sample_job(&commit, JobKind::ExtractFacts)];
    assert_eq!(
        f.ledger().turns.commit_turn(&f.scope, &commit).await.unwrap(),
        CommitOutcome::Fenced
    );
    assert!(
        dialogues
            .load_turns(&f.scope, stale.dialogue.id, 0, 9)
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(
        f.ledger()
            .jobs
            .count_pending_jobs(&f.scope, stale.dialogue.id)
            .await
            .unwrap(),
        0
    );
    let unchanged = dialogues.load_dialogue(&f.scope, stale.dialogue.id).await.unwrap();
    assert_eq!(unchanged, Some(stale.dialogue));
    // The same holds if the current owner has answered the very same line.
    commit.key = Some("k".to_owned());
    let mut answered = f.sample_commit(&fresh, 1, None);
    answered.key.clone_from(&commit.key);
    f.commit_turn(&answered).await;
    assert_eq!(
        f.ledger().turns.commit_turn(&f.scope, &commit).await.unwrap(),
        CommitOutcome::Fenced
    );
}

pub async fn stale_head_is_fenced<S: LedgerSubject>(f: &Fixture<S>) {
    let open = f.open_dialogue().await;
    let first = f.sample_commit(&open, 1, None);
    f.commit_turn(&first).await;
    for head in [None, Some(f.id())] {
        let commit = f.sample_commit(&open, 2, head);
        assert_eq!(
            f.ledger().turns.commit_turn(&f.scope, &commit).await.unwrap(),
            CommitOutcome::Fenced
        );
    }
    f.commit_turn(&f.sample_commit(&open, 2, Some(first.turn.id))).await;
}

pub async fn closed_dialogue_accepts_no_turns<S: LedgerSubject>(f: &Fixture<S>) {
    let open = f.open_dialogue().await;
    let first = f.sample_commit(&open, 1, None);
    f.commit_turn(&first).await;
    let dialogues = &f.ledger().dialogues;
    f.close_dialogue(open.dialogue.id, open.epoch).await;
    let mut late = f.sample_commit(&open, 2, Some(first.turn.id));
    late.jobs.push(f.sample_job(&late, JobKind::ExtractFacts));
    assert_eq!(
        f.ledger().turns.commit_turn(&f.scope, &late).await.unwrap(),
        CommitOutcome::Closed
    );
    let turns = dialogues.load_turns(&f.scope, open.dialogue.id, 1, 9).await.unwrap();
    assert_eq!(turns.len(), 1);
}

pub async fn used_idempotency_key_is_rejected<S: LedgerSubject>(f: &Fixture<S>) {
    let open = f.open_dialogue().await;
    let mut first = f.sample_commit(&open, 1, None);
    first.key = Some("k".to_owned());
    f.commit_turn(&first).await;
    let mut second = f.sample_commit(&open, 2, Some(first.turn.id));
    second.key = Some("k".to_owned());
    let dialogues = &f.ledger().dialogues;
    assert_eq!(
        f.ledger().turns.commit_turn(&f.scope, &second).await.unwrap(),
        CommitOutcome::KeyTaken
    );
    assert_eq!(
        dialogues
            .load_turns(&f.scope, open.dialogue.id, 1, 9)
            .await
            .unwrap()
            .len(),
        1
    );
    // In another dialogue the key is free.
    let mut elsewhere = f.sample_commit(&f.open_dialogue().await, 1, None);
    elsewhere.key = Some("k".to_owned());
    f.commit_turn(&elsewhere).await;
}

pub async fn concurrent_commits_on_one_head_have_one_winner<S: LedgerSubject>(f: &Fixture<S>) {
    let open = f.open_dialogue().await;
    let (one, two) = (f.sample_commit(&open, 1, None), f.sample_commit(&open, 1, None));
    let dialogues = &f.ledger().dialogues;
    let (first, second) = tokio::join!(
        f.ledger().turns.commit_turn(&f.scope, &one),
        f.ledger().turns.commit_turn(&f.scope, &two)
    );
    let mut outcomes = [first.unwrap(), second.unwrap()];
    outcomes.sort_by_key(|outcome| *outcome != CommitOutcome::Committed);
    assert_eq!(outcomes, [CommitOutcome::Committed, CommitOutcome::Fenced]);
    assert_eq!(
        dialogues
            .load_turns(&f.scope, open.dialogue.id, 1, 9)
            .await
            .unwrap()
            .len(),
        1
    );
}

pub async fn turns_are_read_by_range_id_and_key<S: LedgerSubject>(f: &Fixture<S>) {
    let open = f.open_dialogue().await;
    let mut commits = Vec::new();
    let mut head = None;
    for number in 1..=4 {
        let mut commit = f.sample_commit(&open, number, head);
        commit.key = Some(format!("k{number}"));
        f.commit_turn(&commit).await;
        head = Some(commit.turn.id);
        commits.push(commit);
    }
    let (dialogues, id) = (&f.ledger().dialogues, open.dialogue.id);
    let numbers = |from, to| async move {
        let turns = dialogues.load_turns(&f.scope, id, from, to).await.unwrap();
        turns.iter().map(|turn| turn.number).collect::<Vec<_>>()
    };
    assert_eq!(numbers(2, 3).await, [2, 3]);
    assert_eq!(numbers(0, u32::MAX).await, [1, 2, 3, 4]);
    assert!(numbers(3, 2).await.is_empty());
    let third = dialogues
        .load_turn(&f.scope, commits[2].turn.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(third.turn, commits[2].turn);
    let second = dialogues.load_turn_by_key(&f.scope, id, "k2").await.unwrap().unwrap();
    assert_eq!(second.turn, commits[1].turn);
    assert_eq!(dialogues.load_turn_by_key(&f.scope, id, "k9").await.unwrap(), None);
    assert_eq!(dialogues.load_turn(&f.scope, f.id()).await.unwrap(), None);
}

pub async fn dialogues_of_another_tenant_are_not_found<S: LedgerSubject>(f: &Fixture<S>) {
    let open = f.open_dialogue().await;
    let mut commit = f.sample_commit(&open, 1, None);
    commit.key = Some("k".to_owned());
    let (dialogues, id) = (&f.ledger().dialogues, open.dialogue.id);
    assert_eq!(
        f.ledger().turns.commit_turn(&f.other, &commit).await.unwrap(),
        CommitOutcome::Fenced
    );
    f.commit_turn(&commit).await;
    assert_eq!(dialogues.load_dialogue(&f.other, id).await.unwrap(), None);
    let all = dialogues
        .list_dialogues(&f.other, &DialogueFilter::default(), &page(9, None))
        .await
        .unwrap();
    assert!(all.items.is_empty());
    let until = f.now() + chrono::Duration::seconds(600);
    assert_eq!(
        dialogues
            .claim_ownership(&f.other, id, f.node, f.now(), until)
            .await
            .unwrap(),
        OwnershipClaim::NotFound
    );
    assert!(
        !dialogues
            .renew_ownership(&f.other, id, open.epoch, until)
            .await
            .unwrap()
    );
    let closed = dialogues
        .close_dialogue(&f.other, id, open.epoch, f.now())
        .await
        .unwrap();
    assert_eq!(closed, OwnerWriteOutcome::NotOpen);
    assert!(dialogues.load_turns(&f.other, id, 0, 9).await.unwrap().is_empty());
    assert_eq!(dialogues.load_turn(&f.other, commit.turn.id).await.unwrap(), None);
    assert_eq!(dialogues.load_turn_by_key(&f.other, id, "k").await.unwrap(), None);
    assert_eq!(dialogues.load_trace(&f.other, id, 1).await.unwrap(), None);
    assert_eq!(dialogues.load_checkpoint(&f.other, id).await.unwrap(), None);
    let here = dialogues.load_dialogue(&f.scope, id).await.unwrap().unwrap();
    assert_eq!(here.status, DialogueStatus::Open);
}

pub async fn confided_words_of_a_dialogue_are_those_of_its_turns<S: LedgerSubject>(f: &Fixture<S>) {
    let open = f.open_dialogue().await;
    let of = |text: &str| Some(PrivateTerms::default().with_lines([text]));
    let confided = [of("a silver key"), of(""), of("Anna's knee"), None];
    let mut head = None;
    for (number, of_turn) in (1..).zip(&confided) {
        let mut commit = f.sample_commit(&open, number, head);
        commit.checkpoint.confided.clone_from(of_turn);
        f.commit_turn(&commit).await;
        head = Some(commit.turn.id);
    }
    let dialogues = &f.ledger().dialogues;
    for (last, all) in [
        (0, of("")),
        (1, of("a silver key")),
        (2, of("a silver key")),
        (3, of("a silver key, and Anna's knee")),
        (4, None),
    ] {
        let found = dialogues.load_confided(&f.scope, open.dialogue.id, last).await.unwrap();
        assert_eq!(found, all, "{last}");
        let foreign = dialogues.load_confided(&f.other, open.dialogue.id, last).await.unwrap();
        assert_eq!(foreign, of(""));
    }
}
