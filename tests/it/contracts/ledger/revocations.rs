use std::time::Duration;

use chrono::{DateTime, Utc};
use colloquy::{
    ports::ledger::{
        PruneBefore,
        revocations::{Revocation, Revoked},
    },
    tenancy::TenantScope,
};

use super::{LedgerSubject, fixture::Fixture};

fn revocation<S: LedgerSubject>(f: &Fixture<S>, scope: &TenantScope, revoked: Revoked, days: u64) -> Revocation {
    Revocation {
        tenant: scope.tenant().clone(),
        revoked,
        matters_until: f.now() + Duration::from_hours(24 * days),
        revoked_at: f.now(),
    }
}

async fn add_revocation<S: LedgerSubject>(f: &Fixture<S>, scope: &TenantScope, revocation: &Revocation) {
    let store = &f.ledger().revocations;
    store
        .add_revocation(scope, revocation, &f.audit_edit("token.revoke"))
        .await
        .unwrap();
}

pub async fn latest_revocation_moment_counts<S: LedgerSubject>(f: &Fixture<S>) {
    // Returns revocations without their time of writing.
    let since = async |at| {
        let found = f.ledger().revocations.list_revocations_since(at).await.unwrap();
        let mut found: Vec<_> = found
            .into_iter()
            .map(|revocation| Revocation {
                revoked_at: f.now(),
                ..revocation
            })
            .collect();
        found.sort_by(|a, b| (&a.tenant, &a.revoked).cmp(&(&b.tenant, &b.revoked)));
        found
    };
    let began = f.now();
    let token = revocation(f, &f.scope, Revoked::Token("t1".to_owned()), 1);
    let subject = revocation(f, &f.scope, Revoked::Subject("studio".to_owned(), began), 9);
    let player = revocation(f, &f.scope, Revoked::Player(f.player.clone(), began), 9);
    // The same names in another tenant.
    let foreign = revocation(f, &f.other, Revoked::Token("t1".to_owned()), 2);
    for one in [&token, &subject, &player] {
        add_revocation(f, &f.scope, one).await;
    }
    add_revocation(f, &f.other, &foreign).await;
    let mut all = vec![token.clone(), subject, player.clone(), foreign];
    all.sort_by(|a, b| (&a.tenant, &a.revoked).cmp(&(&b.tenant, &b.revoked)));
    assert_eq!(since(DateTime::UNIX_EPOCH).await, all);

    let later = ledger_time_after(f, f.ledger().nodes.ledger_time().await.unwrap()).await;
    assert!(since(later).await.is_empty());
    // An earlier moment does not weaken a revocation.
    let earlier = Revoked::Player(f.player.clone(), began - Duration::from_hours(1));
    add_revocation(f, &f.scope, &revocation(f, &f.scope, earlier, 1)).await;
    add_revocation(
        f,
        &f.scope,
        &revocation(f, &f.scope, Revoked::Token("t1".to_owned()), 5),
    )
    .await;
    let mut again = vec![player, revocation(f, &f.scope, token.revoked, 5)];
    again.sort_by(|a, b| a.revoked.cmp(&b.revoked));
    assert_eq!(since(later).await, again);
    let page = colloquy::ports::PageRequest { limit: 9, after: None };
    assert_eq!(
        f.ledger()
            .audit
            .list_audit_rows(&f.scope, &page)
            .await
            .unwrap()
            .items
            .len(),
        5
    );
}

/// Waits until the ledger's clock is past `moment`, and returns its time.
async fn ledger_time_after<S: LedgerSubject>(f: &Fixture<S>, moment: DateTime<Utc>) -> DateTime<Utc> {
    loop {
        let now = f.ledger().nodes.ledger_time().await.unwrap();
        if now > moment {
            return now;
        }
    }
}

/// Clocks of nodes differ. By a fast node's clock, revocations written by other nodes would look old.
pub async fn revocations_are_dated_by_the_ledger_clock<S: LedgerSubject>(f: &Fixture<S>) {
    let before = f.ledger().nodes.ledger_time().await.unwrap();
    for at in [f.now() + Duration::from_hours(9_000), DateTime::UNIX_EPOCH] {
        let revoked = Revoked::Token("t1".to_owned());
        let revocation = revocation(f, &f.scope, revoked, 1);
        add_revocation(
            f,
            &f.scope,
            &Revocation {
                revoked_at: at,
                ..revocation
            },
        )
        .await;
        let found = f.ledger().revocations.list_revocations_since(before).await.unwrap();
        let now = f.ledger().nodes.ledger_time().await.unwrap();
        assert!(found.len() == 1 && found[0].revoked_at <= now, "{found:?} at {now}");
    }
}

pub async fn expired_revocations_are_pruned<S: LedgerSubject>(f: &Fixture<S>) {
    for days in 1..=3 {
        let revoked = Revoked::Token(format!("t{days}"));
        add_revocation(f, &f.scope, &revocation(f, &f.scope, revoked, days)).await;
    }
    let before = PruneBefore {
        revocations: Some(f.now() + Duration::from_hours(60)),
        ..PruneBefore::default()
    };
    let prune = async |scope, limit| {
        f.ledger()
            .maintenance
            .prune_expired(scope, &before, limit)
            .await
            .unwrap()
    };
    assert_eq!(prune(&f.other, 9).await, 0);
    assert_eq!(prune(&f.scope, 1).await, 1);
    assert_eq!(prune(&f.scope, 9).await, 1);
    let left = f
        .ledger()
        .revocations
        .list_revocations_since(DateTime::UNIX_EPOCH)
        .await
        .unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].revoked, Revoked::Token("t3".to_owned()));
}
