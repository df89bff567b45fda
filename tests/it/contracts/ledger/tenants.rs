use colloquy::{
    ids::TenantId,
    ports::{
        PageRequest,
        ledger::{
            tenants::{Tenant, TenantChange, TenantEdit},
            usage::TenantBudget,
        },
    },
};

use super::{Subject, fixture::Fixture};

pub async fn ensure_adds_once_and_all_lists<S: Subject>(f: &Fixture<S>) {
    let tenants = &f.ledger().tenants;
    let studio = Tenant {
        id: f.scope.tenant().clone(),
        name: "Studio".to_owned(),
        enabled: true,
        budget: None,
        created_at: f.now(),
        version: 1,
    };
    assert!(tenants.ensure(&studio).await.unwrap());
    let renamed = Tenant {
        name: "Renamed".to_owned(),
        ..studio.clone()
    };
    assert!(!tenants.ensure(&renamed).await.unwrap());
    assert_eq!(tenants.get(&studio.id).await.unwrap().as_ref(), Some(&studio));
    assert_eq!(tenants.get(f.other.tenant()).await.unwrap(), None);

    let rival = Tenant {
        id: f.other.tenant().clone(),
        enabled: false,
        ..studio.clone()
    };
    assert!(tenants.ensure(&rival).await.unwrap());
    assert_eq!(tenants.all().await.unwrap(), [rival, studio]);
}

pub async fn a_tenant_is_made_changed_and_listed<S: Subject>(f: &Fixture<S>) {
    let tenants = &f.ledger().tenants;
    let tenant = |id: &TenantId, name: &str| Tenant {
        id: id.clone(),
        name: name.to_owned(),
        enabled: true,
        budget: None,
        created_at: f.now(),
        version: 1,
    };
    let studio = tenant(f.scope.tenant(), "Studio");
    assert!(tenants.create(&studio, &f.edit("tenant.create")).await.unwrap());
    let again = tenant(f.scope.tenant(), "Another");
    assert!(!tenants.create(&again, &f.edit("tenant.create")).await.unwrap());
    assert_eq!(tenants.get(&studio.id).await.unwrap(), Some(studio.clone()));

    let change = |name: Option<&str>, enabled| TenantChange {
        name: name.map(str::to_owned),
        enabled,
        budget: None,
    };
    let renamed = Tenant {
        name: "Workshop".to_owned(),
        version: 2,
        ..studio.clone()
    };
    let edit = f.edit("tenant.edit");
    let done = tenants
        .change(&studio.id, &change(Some("Workshop"), None), Some(1), &edit)
        .await;
    assert_eq!(done.unwrap(), TenantEdit::Done(renamed.clone()));
    let stale = f.edit("tenant.edit");
    let refused = tenants
        .change(&studio.id, &change(None, Some(false)), Some(1), &stale)
        .await;
    assert_eq!(refused.unwrap(), TenantEdit::VersionMismatch { stored: 2 });
    assert!(tenants.disabled().await.unwrap().is_empty());
    let edit = f.edit("tenant.disable");
    let disabled = Tenant {
        enabled: false,
        version: 3,
        ..renamed
    };
    let done = tenants
        .change(&studio.id, &change(None, Some(false)), None, &edit)
        .await;
    assert_eq!(done.unwrap(), TenantEdit::Done(disabled.clone()));
    assert_eq!(tenants.disabled().await.unwrap(), std::slice::from_ref(&studio.id));
    let missing = tenants
        .change(f.other.tenant(), &change(Some("x"), None), None, &stale)
        .await;
    assert_eq!(missing.unwrap(), TenantEdit::NotFound);

    // What was refused left nothing in the log.
    let page = |limit, after| PageRequest { limit, after };
    let log = f.ledger().audit.list(&f.scope, &page(10, None)).await.unwrap().items;
    let actions: Vec<&str> = log.iter().map(|row| row.action.as_str()).collect();
    assert_eq!(actions, ["tenant.disable", "tenant.edit", "tenant.create"]);

    let rival = tenant(f.other.tenant(), "Rival");
    assert!(tenants.create(&rival, &f.edit("tenant.create")).await.unwrap());
    let first = tenants.list(&page(1, None)).await.unwrap();
    assert_eq!(first.items, [rival]);
    let second = tenants.list(&page(1, first.next)).await.unwrap();
    assert_eq!((second.items, second.next), (vec![disabled], None));
}

pub async fn a_tenants_budget_is_kept_found_and_taken_away<S: Subject>(f: &Fixture<S>) {
    let tenants = &f.ledger().tenants;
    let budget = TenantBudget {
        tokens_per_day: Some(1_000_000),
        cost_per_day: Some(2.5),
        turns: Some(0),
        ..TenantBudget::default()
    };
    let studio = Tenant {
        id: f.scope.tenant().clone(),
        name: "Studio".to_owned(),
        enabled: true,
        budget: Some(budget),
        created_at: f.now(),
        version: 1,
    };
    assert!(tenants.create(&studio, &f.edit("tenant.create")).await.unwrap());
    let rival = Tenant {
        id: f.other.tenant().clone(),
        budget: None,
        ..studio.clone()
    };
    assert!(tenants.ensure(&rival).await.unwrap());
    assert_eq!(tenants.get(&studio.id).await.unwrap(), Some(studio.clone()));
    assert_eq!(tenants.with_budgets().await.unwrap(), [(studio.id.clone(), budget)]);

    let edit = f.edit("tenant.edit");
    let renamed = TenantChange {
        name: Some("Workshop".to_owned()),
        ..TenantChange::default()
    };
    let TenantEdit::Done(tenant) = tenants.change(&studio.id, &renamed, None, &edit).await.unwrap() else {
        panic!("it is there");
    };
    assert_eq!(tenant.budget, Some(budget), "what is not named stays");
    let less = TenantBudget {
        dialogues: Some(3),
        ..TenantBudget::default()
    };
    for (given, kept) in [(less, Some(less)), (TenantBudget::default(), None)] {
        let change = TenantChange {
            budget: Some(given),
            ..TenantChange::default()
        };
        let edit = f.edit("tenant.edit");
        let done = tenants.change(&studio.id, &change, None, &edit).await.unwrap();
        assert!(
            matches!(&done, TenantEdit::Done(tenant) if tenant.budget == kept),
            "{done:?}"
        );
    }
    assert!(tenants.with_budgets().await.unwrap().is_empty());
}
