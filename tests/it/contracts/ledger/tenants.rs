use colloquy::{
    ids::TenantId,
    ports::{
        PageRequest,
        ledger::{
            tenants::{Tenant, TenantChange, TenantEditOutcome},
            usage::TenantBudget,
        },
    },
};

use super::{LedgerSubject, fixture::Fixture};

pub async fn tenants_are_ensured_once_and_all_listed<S: LedgerSubject>(f: &Fixture<S>) {
    let tenants = &f.ledger().tenants;
    let studio = Tenant {
        id: f.scope.tenant().clone(),
        name: "Studio".to_owned(),
        enabled: true,
        budget: None,
        created_at: f.now(),
        version: 1,
    };
    assert!(tenants.ensure_tenant(&studio).await.unwrap());
    let renamed = Tenant {
        name: "Renamed".to_owned(),
        ..studio.clone()
    };
    assert!(!tenants.ensure_tenant(&renamed).await.unwrap());
    assert_eq!(tenants.load_tenant(&studio.id).await.unwrap().as_ref(), Some(&studio));
    assert_eq!(tenants.load_tenant(f.other.tenant()).await.unwrap(), None);

    let rival = Tenant {
        id: f.other.tenant().clone(),
        enabled: false,
        ..studio.clone()
    };
    assert!(tenants.ensure_tenant(&rival).await.unwrap());
    assert_eq!(tenants.list_all().await.unwrap(), [rival, studio]);
}

pub async fn tenant_is_created_changed_and_listed<S: LedgerSubject>(f: &Fixture<S>) {
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
    assert!(
        tenants
            .create_tenant(&studio, &f.audit_edit("tenant.create"))
            .await
            .unwrap()
    );
    let again = tenant(f.scope.tenant(), "Another");
    assert!(
        !tenants
            .create_tenant(&again, &f.audit_edit("tenant.create"))
            .await
            .unwrap()
    );
    assert_eq!(tenants.load_tenant(&studio.id).await.unwrap(), Some(studio.clone()));

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
    let edit = f.audit_edit("tenant.edit");
    let done = tenants
        .change_tenant(&studio.id, &change(Some("Workshop"), None), Some(1), &edit)
        .await;
    assert_eq!(done.unwrap(), TenantEditOutcome::Done(renamed.clone()));
    let stale = f.audit_edit("tenant.edit");
    let refused = tenants
        .change_tenant(&studio.id, &change(None, Some(false)), Some(1), &stale)
        .await;
    assert_eq!(refused.unwrap(), TenantEditOutcome::VersionMismatch { stored: 2 });
    assert!(tenants.list_disabled().await.unwrap().is_empty());
    let edit = f.audit_edit("tenant.disable");
    let disabled = Tenant {
        enabled: false,
        version: 3,
        ..renamed
    };
    let done = tenants
        .change_tenant(&studio.id, &change(None, Some(false)), None, &edit)
        .await;
    assert_eq!(done.unwrap(), TenantEditOutcome::Done(disabled.clone()));
    assert_eq!(tenants.list_disabled().await.unwrap(), std::slice::from_ref(&studio.id));
    let missing = tenants
        .change_tenant(f.other.tenant(), &change(Some("x"), None), None, &stale)
        .await;
    assert_eq!(missing.unwrap(), TenantEditOutcome::NotFound);

    // Refused edits left no audit rows.
    let page = |limit, after| PageRequest { limit, after };
    let log = f
        .ledger()
        .audit
        .list_audit_rows(&f.scope, &page(10, None))
        .await
        .unwrap()
        .items;
    let actions: Vec<&str> = log.iter().map(|row| row.action.as_str()).collect();
    assert_eq!(actions, ["tenant.disable", "tenant.edit", "tenant.create"]);

    let rival = tenant(f.other.tenant(), "Rival");
    assert!(
        tenants
            .create_tenant(&rival, &f.audit_edit("tenant.create"))
            .await
            .unwrap()
    );
    let first = tenants.list_tenants(&page(1, None)).await.unwrap();
    assert_eq!(first.items, [rival]);
    let second = tenants.list_tenants(&page(1, first.next)).await.unwrap();
    assert_eq!((second.items, second.next), (vec![disabled], None));
}

pub async fn tenant_budget_is_stored_read_and_removed<S: LedgerSubject>(f: &Fixture<S>) {
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
    assert!(
        tenants
            .create_tenant(&studio, &f.audit_edit("tenant.create"))
            .await
            .unwrap()
    );
    let rival = Tenant {
        id: f.other.tenant().clone(),
        budget: None,
        ..studio.clone()
    };
    assert!(tenants.ensure_tenant(&rival).await.unwrap());
    assert_eq!(tenants.load_tenant(&studio.id).await.unwrap(), Some(studio.clone()));
    assert_eq!(
        tenants.list_tenant_budgets().await.unwrap(),
        [(studio.id.clone(), budget)]
    );

    let edit = f.audit_edit("tenant.edit");
    let renamed = TenantChange {
        name: Some("Workshop".to_owned()),
        ..TenantChange::default()
    };
    let TenantEditOutcome::Done(tenant) = tenants.change_tenant(&studio.id, &renamed, None, &edit).await.unwrap()
    else {
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
        let edit = f.audit_edit("tenant.edit");
        let done = tenants.change_tenant(&studio.id, &change, None, &edit).await.unwrap();
        assert!(
            matches!(&done, TenantEditOutcome::Done(tenant) if tenant.budget == kept),
            "{done:?}"
        );
    }
    assert!(tenants.list_tenant_budgets().await.unwrap().is_empty());
}
