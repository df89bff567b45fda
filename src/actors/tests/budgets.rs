//! A tenant with an exhausted budget.

use std::time::Duration;

use super::{
    idle::StoppedClock,
    world::{TestWorld, test_actor_settings, test_dialogue_settings, wait_until},
};
use crate::curator::has_silent_dialogues;
use colloquy_core::{
    ids::{DialogueId, PlayerId},
    scope::Principal,
};
use colloquy_memory::turn::Usage;
use colloquy_ports::{
    PageRequest,
    ledger::{
        audit::Edit,
        jobs::JobStatus,
        tenants::TenantChange,
        usage::{Budgeted, OverBudget, TenantBudget, UsageDelta},
    },
};

impl TestWorld {
    /// Sets the tenant's budget, as another process would.
    async fn set_budget(&self, budget: TenantBudget) {
        let (ports, tenant) = (&self.ports, self.scope.tenant());
        let change = TenantChange {
            budget: Some(budget),
            ..TenantChange::default()
        };
        let edit = Edit::made_by(
            &self.test_principal(),
            &ports.ids,
            ports.clock.now(),
            "tenant.edit",
            tenant,
        );
        ports
            .ledger
            .tenants
            .change_tenant(tenant, &change, None, &edit)
            .await
            .unwrap();
        ports.budgets.refresh_from_ledger(&ports.ledger).await.unwrap();
    }

    /// Lets other nodes use up a budget of tokens.
    async fn exhaust_budget(&self) {
        let ports = &self.ports;
        let elsewhere = UsageDelta {
            owner: None,
            player: None,
            unchanged_tokens: 0,
            day: ports.clock.now().date_naive(),
            task: "reply",
            model: "m".to_owned(),
            calls: 1,
            usage: Usage {
                prompt_tokens: 100,
                ..Usage::default()
            },
        };
        ports.ledger.usage.add_usage(&self.scope, &[elsewhere]).await.unwrap();
        self.set_budget(TenantBudget {
            tokens_per_day: Some(100),
            ..TenantBudget::default()
        })
        .await;
    }
}

#[actix::test]
async fn jobs_wait_while_the_tenant_budget_is_exhausted() {
    let world = TestWorld::new().await;
    *world.fake.with_jobs.lock() = true;
    let (ports, tenant) = (&world.ports, world.scope.tenant());
    world.exhaust_budget().await;
    assert!(!ports.budgets.can_run_jobs(tenant), "what others used counts");
    let id = world.new_session().await;
    world.say_and_wait(id, "1").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(world.fake.jobs.lock().is_empty(), "no job is begun");
    let page = PageRequest { limit: 10, after: None };
    let jobs = &ports.ledger.jobs;
    let dead = jobs
        .list_jobs(&world.scope, Some(JobStatus::Dead), &page)
        .await
        .unwrap();
    assert!(dead.items.is_empty());
    world.set_budget(TenantBudget::default()).await;
    wait_until("the job ran", || !world.fake.jobs.lock().is_empty()).await;
    world.shut_down().await;
}

#[actix::test]
async fn summary_after_a_silence_waits_while_the_tenant_budget_is_exhausted() {
    let clock = StoppedClock::new();
    let world = TestWorld::with_clock(clock.clone(), test_actor_settings(), test_dialogue_settings()).await;
    let id = world.new_session().await;
    for line in ["1", "2", "3", "4"] {
        world.say_and_wait(id, line).await;
    }
    world.exhaust_budget().await;
    clock.advance(Duration::from_hours(1));
    let has_silent = async || {
        let node = world.sessions.node();
        has_silent_dialogues(node, &world.scope).await.unwrap()
    };
    assert!(!has_silent().await, "no curator is woken");
    world.set_budget(TenantBudget::default()).await;
    assert!(has_silent().await, "nothing is lost");
    clock.advance(Duration::from_mins(1));
    wait_until("the summary ran", || !world.fake.jobs.lock().is_empty()).await;
    world.shut_down().await;
}

#[actix::test]
async fn turn_does_not_wait_for_the_share_of_a_known_player() {
    let clock = StoppedClock::new();
    let world = TestWorld::with_clock(clock.clone(), test_actor_settings(), test_dialogue_settings()).await;
    world
        .set_budget(TenantBudget {
            tokens_per_day: Some(1_000),
            ..TenantBudget::default()
        })
        .await;
    let (budgets, ledger, scope) = (&world.ports.budgets, &world.ports.ledger, &world.scope);
    let player: PlayerId = "p1".parse().unwrap();
    let begin_turn = async || {
        let place = budgets.reserve_turn(ledger, scope, Some(&player)).await?;
        place.mark_stored();
        Ok::<_, OverBudget>(())
    };
    begin_turn().await.unwrap();
    let elsewhere = UsageDelta {
        owner: None,
        player: Some(player.clone()),
        unchanged_tokens: 0,
        day: world.ports.clock.now().date_naive(),
        task: "reply",
        model: "m".to_owned(),
        calls: 1,
        usage: Usage {
            prompt_tokens: 200,
            ..Usage::default()
        },
    };
    ledger.usage.add_usage(scope, &[elsewhere]).await.unwrap();
    clock.advance(Duration::from_mins(2));
    begin_turn().await.unwrap();
    wait_until("the share is read", || {
        budgets.check_turn(scope.tenant(), Some(&player)).is_err()
    })
    .await;
    assert!(begin_turn().await.is_err());
    world.shut_down().await;
}

async fn interrupt_conversation(world: &TestWorld, id: DialogueId, turn: Option<u32>) {
    world
        .sessions
        .interrupt_conversation(&world.scope, id, world.conversation_interrupt(turn))
        .await
        .unwrap();
}

/// Resumes a conversation as a player. Returns the player.
async fn resume_as_player(world: &TestWorld, id: DialogueId) -> PlayerId {
    let player: PlayerId = "p1".parse().unwrap();
    let who = Principal {
        player: Some(player.clone()),
        ..world.test_principal()
    };
    world.fake.go.add_permits(10);
    world
        .sessions
        .resume_conversation(&world.scope, id, &who)
        .await
        .unwrap();
    player
}

#[actix::test]
async fn line_with_which_a_player_resumes_a_conversation_is_charged_to_the_player() {
    let world = TestWorld::new().await;
    let id = world.new_conversation("hold", 3, true).await;
    let ear = world.attach_watcher(id, Some(1)).await;
    world.wait_for_begun(1).await;
    interrupt_conversation(&world, id, None).await;
    let player = resume_as_player(&world, id).await;
    ear.wait_for_event("ended 3 max_turns").await;
    let charged = world.fake.charged_players.lock().clone();
    // The line that is cut, its continuation, and two lines that follow by themselves.
    assert_eq!(charged, [None, Some(player), None, None]);
    world.shut_down().await;
}

#[actix::test]
async fn lines_that_a_conversation_says_again_are_charged_to_the_player_who_resumed_it() {
    let world = TestWorld::new().await;
    let id = world.new_conversation("hold", 5, true).await;
    let ear = world.attach_watcher(id, Some(1)).await;
    world.fake.go.add_permits(3);
    world.wait_for_begun(4).await;
    interrupt_conversation(&world, id, Some(1)).await;
    let player = resume_as_player(&world, id).await;
    ear.wait_for_event("ended 5 max_turns").await;
    let charged = world.fake.charged_players.lock().clone();
    // Lines 1 to 3, and line 4, which is cut off. Then lines 2 and 3 again, and two lines that follow by themselves.
    let again = Some(player);
    assert_eq!(charged, [None, None, None, None, again.clone(), again, None, None]);
    world.shut_down().await;
}

#[actix::test]
async fn lines_that_a_conversation_says_again_after_a_restart_are_charged_to_the_player_who_resumed_it() {
    let world = TestWorld::new().await;
    let id = world.new_conversation("hold", 5, true).await;
    world.fake.go.add_permits(3);
    world.wait_for_begun(4).await;
    interrupt_conversation(&world, id, Some(1)).await;
    let world = world.restart_process();
    let ear = world.attach_watcher(id, None).await;
    let player = resume_as_player(&world, id).await;
    ear.wait_for_event("ended 5 max_turns").await;
    let charged = world.fake.charged_players.lock().clone();
    let again = Some(player);
    assert_eq!(charged, [again.clone(), again, None, None]);
    world.shut_down().await;
}

#[actix::test]
async fn self_paced_conversation_resumes_when_the_tenant_budget_allows() {
    let world = TestWorld::new().await;
    *world.fake.fail_turns.lock() = true;
    *world.fake.over_budget.lock() = Some(OverBudget {
        owner: "tenant",
        budget: Budgeted::TokensPerDay,
        retry_after: Duration::from_millis(5),
    });
    let id = world.new_conversation("x", 2, true).await;
    let ear = world.attach_watcher(id, Some(1)).await;
    // More tries than a failing model gets.
    wait_until("it tried often", || world.fake.spoken.lock().len() > 8).await;
    assert!(!ear.event_labels().iter().any(|event| event.starts_with("paused")));
    *world.fake.fail_turns.lock() = false;
    ear.wait_for_event("ended 2 max_turns").await;
    world.shut_down().await;
}
