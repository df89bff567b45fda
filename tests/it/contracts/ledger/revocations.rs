use std::time::Duration;

use colloquy::{
    ports::ledger::{
        PruneBefore,
        revocations::{Revocation, Revoked},
    },
    tenancy::TenantScope,
};

use super::{Subject, fixture::Fixture};

fn revocation<S: Subject>(f: &Fixture<S>, scope: &TenantScope, revoked: Revoked, days: u64) -> Revocation {
    Revocation {
        tenant: scope.tenant().clone(),
        revoked,
        matters_until: f.now() + Duration::from_hours(24 * days),
        at: f.now(),
    }
}

async fn add<S: Subject>(f: &Fixture<S>, scope: &TenantScope, revocation: &Revocation) {
    let store = &f.ledger().revocations;
    store.add(scope, revocation, &f.edit("token.revoke")).await.unwrap();
}

pub async fn the_latest_moments_count<S: Subject>(f: &Fixture<S>) {
    let since = async |at| {
        let mut found = f.ledger().revocations.since(at).await.unwrap();
        found.sort_by(|a, b| (&a.tenant, &a.revoked).cmp(&(&b.tenant, &b.revoked)));
        found
    };
    let began = f.now();
    let token = revocation(f, &f.scope, Revoked::Token("t1".to_owned()), 1);
    let subject = revocation(f, &f.scope, Revoked::Subject("studio".to_owned(), began), 9);
    let player = revocation(f, &f.scope, Revoked::Player(f.player.clone(), began), 9);
    // The same names, of another tenant.
    let foreign = revocation(f, &f.other, Revoked::Token("t1".to_owned()), 2);
    for one in [&token, &subject, &player] {
        add(f, &f.scope, one).await;
    }
    add(f, &f.other, &foreign).await;
    let mut all = vec![token.clone(), subject, player.clone(), foreign];
    all.sort_by(|a, b| (&a.tenant, &a.revoked).cmp(&(&b.tenant, &b.revoked)));
    assert_eq!(since(began).await, all);

    f.clock.advance(Duration::from_mins(1));
    let later = f.now();
    assert!(since(later).await.is_empty());
    // Earlier moments take nothing back.
    let earlier = Revoked::Player(f.player.clone(), began - Duration::from_hours(1));
    add(f, &f.scope, &revocation(f, &f.scope, earlier, 1)).await;
    add(
        f,
        &f.scope,
        &revocation(f, &f.scope, Revoked::Token("t1".to_owned()), 5),
    )
    .await;
    let mut again = vec![
        Revocation { at: later, ..player },
        revocation(f, &f.scope, token.revoked, 5),
    ];
    again.sort_by(|a, b| a.revoked.cmp(&b.revoked));
    assert_eq!(since(later).await, again);
    let page = colloquy::ports::PageRequest { limit: 9, after: None };
    assert_eq!(f.ledger().audit.list(&f.scope, &page).await.unwrap().items.len(), 5);
}

pub async fn what_no_longer_matters_is_pruned<S: Subject>(f: &Fixture<S>) {
    for days in 1..=3 {
        let revoked = Revoked::Token(format!("t{days}"));
        add(f, &f.scope, &revocation(f, &f.scope, revoked, days)).await;
    }
    let before = PruneBefore {
        revocations: Some(f.now() + Duration::from_hours(60)),
        ..PruneBefore::default()
    };
    let prune = async |scope, limit| f.ledger().maintenance.prune(scope, &before, limit).await.unwrap();
    assert_eq!(prune(&f.other, 9).await, 0);
    assert_eq!(prune(&f.scope, 1).await, 1);
    assert_eq!(prune(&f.scope, 9).await, 1);
    let left = f.ledger().revocations.since(f.now()).await.unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].revoked, Revoked::Token("t3".to_owned()));
}
