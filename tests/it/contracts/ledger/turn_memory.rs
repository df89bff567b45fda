//! The memory of a turn: its parts are those of their own reads.

use colloquy::{
    memory::{curation::Decision, disclosure::audience::Viewpoint},
    ports::ledger::{
        jobs::JobKind,
        turn_memory::{StandingRequest, TurnMemory, TurnMemoryRequest},
    },
    tenancy::TenantScope,
};

use super::{
    LedgerSubject, curation,
    episodes::{self, request},
    fixture::Fixture,
    insights::add_insight,
    rewind_fixtures::dialogue_with_turns,
    saves::put_default_world,
    summaries::landing_summary,
};

/// Reads the requested parts one by one.
async fn load_part_by_part<S: LedgerSubject>(
    f: &Fixture<S>,
    scope: &TenantScope,
    wanted: &TurnMemoryRequest<'_>,
) -> TurnMemory {
    let ledger = f.ledger();
    let world = &f.world;
    let mut memory = TurnMemory::default();
    if let Some(player) = wanted.player {
        let meeting = ledger
            .dialogues
            .find_last_meeting(scope, world, wanted.npc, player, wanted.dialogue.id, false);
        memory.meeting = meeting.await.unwrap();
    }
    if wanted.insights {
        let insights = ledger.insights.load_insights(scope, world, wanted.npc, wanted.player);
        memory.insights = insights.await.unwrap();
    }
    if let Some(until) = wanted.story_until {
        memory.story = ledger.curation.load_story(scope, wanted.dialogue, until).await.unwrap();
    }
    if let Some(episodes) = &wanted.episodes {
        memory.episodes = ledger.episodes.find_episodes(scope, episodes).await.unwrap();
    }
    if let Some(standing) = wanted.standing {
        let StandingRequest {
            viewpoint,
            gossip,
            as_of,
            limit,
        } = standing;
        let standing = ledger.facts.load_standing(scope, viewpoint, gossip, as_of, limit);
        memory.standing = standing.await.unwrap();
    }
    memory
}

/// Fills every part: sessions with episodes, with a pass, and with a summary, and facts.
async fn fill_memory<S: LedgerSubject>(f: &Fixture<S>) {
    put_default_world(f).await;
    let told = dialogue_with_turns(f, 3).await;
    for number in 1..=3 {
        episodes::learn(f, &told, number, 4).await;
    }
    f.advance_clock();
    let told = dialogue_with_turns(f, 2).await;
    let mut pass = curation::pass_with(f, &told, (1, 2), &[(1, Decision::Open), (2, Decision::Open)]);
    add_insight(f, &mut pass, Some("p7"), "The Ferry", "It is \"late\".");
    add_insight(f, &mut pass, None, "The Mill", "It is old.");
    assert!(f.commit_pass(&pass).await);
    f.advance_clock();
    let (dialogue, fence) = f.sample_job_fence(JobKind::Summarise).await;
    let summary = landing_summary(f, fence, dialogue, (1, 1));
    assert!(f.ledger().summaries.commit_summary(&f.scope, &summary).await.unwrap());
    for is_removed in [false, true] {
        let mut fact = f.sample_fact(if is_removed { "removed" } else { "pinned" });
        fact.statement.pinned = true;
        let id = f.create_fact(fact).await;
        f.advance_clock();
        if is_removed {
            let edit = f.audit_edit("fact.remove");
            f.ledger().facts.remove_fact(&f.scope, id, None, &edit).await.unwrap();
        }
    }
}

pub async fn turn_memory_has_the_parts_of_their_own_reads<S: LedgerSubject>(f: &Fixture<S>) {
    fill_memory(f).await;
    let next = dialogue_with_turns(f, 1).await;
    let viewpoint = f.viewpoint();
    let standing = StandingRequest {
        viewpoint: &viewpoint,
        gossip: false,
        as_of: f.now(),
        limit: 9,
    };
    let whole = TurnMemoryRequest {
        dialogue: &next.open.dialogue,
        npc: &f.npc,
        player: Some(&f.player),
        insights: true,
        story_until: Some(f.now()),
        episodes: Some(request(f.pair(), 2, 2, 0)),
        standing: Some(standing),
    };
    let designer = Viewpoint {
        sees_all_players: true,
        ..f.viewpoint()
    };
    let stranger = "nobody".parse().unwrap();
    let nothing = TurnMemoryRequest {
        player: None,
        insights: false,
        story_until: None,
        episodes: None,
        standing: None,
        ..whole
    };
    let cases = [
        whole,
        nothing,
        TurnMemoryRequest {
            player: whole.player,
            ..nothing
        },
        TurnMemoryRequest {
            insights: true,
            standing: whole.standing,
            ..nothing
        },
        TurnMemoryRequest {
            story_until: whole.story_until,
            ..nothing
        },
        TurnMemoryRequest {
            episodes: whole.episodes,
            ..nothing
        },
        // Some parts have no rows.
        TurnMemoryRequest {
            player: Some(&stranger),
            episodes: Some(request(f.pair(), 0, 0, i64::MAX)),
            standing: Some(StandingRequest {
                viewpoint: &designer,
                ..standing
            }),
            ..whole
        },
    ];
    let store = &f.ledger().turn_memory;
    for wanted in &cases {
        let memory = store.load_turn_memory(&f.scope, wanted).await.unwrap();
        assert_eq!(memory, load_part_by_part(f, &f.scope, wanted).await, "{wanted:?}");
    }

    let memory = store.load_turn_memory(&f.scope, &whole).await.unwrap();
    assert!(memory.meeting.is_some_and(|meeting| meeting.summary.is_some()));
    assert_eq!(memory.insights.len(), 2);
    assert_eq!(memory.story.len(), 3, "two findings and the notes");
    assert_eq!(memory.episodes.rows.len(), 3);
    assert!(!memory.standing.facts.is_empty() && !memory.standing.taken_out.is_empty());
    let nothing_read = store.load_turn_memory(&f.scope, &nothing).await.unwrap();
    assert_eq!(nothing_read, TurnMemory::default());
    let of_other = store.load_turn_memory(&f.other, &whole).await.unwrap();
    assert_eq!(of_other, TurnMemory::default());
}
