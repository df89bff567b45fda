//! A tenant that has used up what it may use.

use std::time::Duration;

use super::world::{World, until};
use crate::{
    memory::turn::Usage,
    ports::{
        PageRequest,
        ledger::{
            audit::Edit,
            jobs::JobStatus,
            tenants::TenantChange,
            usage::{Budgeted, OverBudget, TenantBudget, UsageDelta},
        },
    },
};

impl World {
    /// Another process gave the tenant this budget.
    async fn give(&self, budget: TenantBudget) {
        let (ports, tenant) = (&self.ports, self.scope.tenant());
        let change = TenantChange {
            budget: Some(budget),
            ..TenantChange::default()
        };
        let edit = Edit::by(&self.who(), &ports.ids, ports.clock.now(), "tenant.edit", tenant);
        ports.ledger.tenants.change(tenant, &change, None, &edit).await.unwrap();
        ports.budgets.refresh(&ports.ledger).await.unwrap();
    }
}

#[actix::test]
async fn jobs_wait_while_the_tenant_may_call_no_model() {
    let world = World::new().await;
    *world.fake.with_jobs.lock() = true;
    let (ports, tenant) = (&world.ports, world.scope.tenant());
    let elsewhere = UsageDelta {
        day: ports.clock.now().date_naive(),
        task: "reply",
        model: "m".to_owned(),
        calls: 1,
        usage: Usage {
            prompt_tokens: 100,
            ..Usage::default()
        },
    };
    ports.ledger.usage.add(&world.scope, &[elsewhere]).await.unwrap();
    world
        .give(TenantBudget {
            tokens_per_day: Some(100),
            ..TenantBudget::default()
        })
        .await;
    assert!(!ports.budgets.may_do_jobs(tenant), "what others used counts");
    let id = world.session().await;
    world.turn(id, "1").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(world.fake.jobs.lock().is_empty(), "no job is begun");
    let page = PageRequest { limit: 10, after: None };
    let jobs = &ports.ledger.jobs;
    let dead = jobs.list(&world.scope, Some(JobStatus::Dead), &page).await.unwrap();
    assert!(dead.items.is_empty());
    world.give(TenantBudget::default()).await;
    until("the job ran", || !world.fake.jobs.lock().is_empty()).await;
    world.end().await;
}

#[actix::test]
async fn a_conversation_that_paces_itself_goes_on_once_its_tenant_may() {
    let world = World::new().await;
    *world.fake.fail_turns.lock() = true;
    *world.fake.over_budget.lock() = Some(OverBudget {
        whose: "tenant",
        of: Budgeted::TokensPerDay,
        retry_after: Duration::from_millis(5),
    });
    let id = world.talk("x", 2, true).await;
    let ear = world.watch(id, Some(1)).await;
    // More tries than a model has that fails.
    until("it tried often", || world.fake.spoken.lock().len() > 8).await;
    assert!(!ear.story().iter().any(|event| event.starts_with("paused")));
    *world.fake.fail_turns.lock() = false;
    ear.hears("ended 2 max_turns").await;
    world.end().await;
}
