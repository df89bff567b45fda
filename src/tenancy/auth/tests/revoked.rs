//! Revoked tokens and disabled tenants.

use super::*;
use colloquy_ports::ledger::revocations::Revoked;

fn of(change: impl FnOnce(&mut Value)) -> String {
    hs256(&claims(|claims| {
        claims["iat"] = json!(start().timestamp());
        claims["jti"] = json!("t1");
        change(claims);
    }))
}

fn player(id: &str) -> impl FnOnce(&mut Value) {
    move |claims| {
        claims["role"] = json!("player");
        claims["pid"] = json!(id);
        claims["sub"] = json!(format!("player:{id}"));
    }
}

fn revocation(tenant: &str, revoked: Revoked) -> Revocation {
    Revocation {
        tenant: tenant.parse().unwrap(),
        revoked,
        matters_until: start() + Duration::from_hours(1),
        revoked_at: start(),
    }
}

/// The revocations in the ledger.
struct StoredRevocations(Vec<Revocation>);

#[async_trait]
impl RevocationStore for StoredRevocations {
    async fn add_revocation(&self, _: &colloquy_core::scope::TenantScope, _: &Revocation, _: &Edit) -> StoreResult<()> {
        Ok(())
    }
    async fn list_revocations_since(&self, at: DateTime<Utc>) -> StoreResult<Vec<Revocation>> {
        Ok(self.0.iter().filter(|one| one.revoked_at >= at).cloned().collect())
    }
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table of tokens, and which of them are refused")]
async fn revoked_tokens_are_rejected_and_others_are_not() {
    let before = start() - Duration::from_secs(1);
    let subject = |until| Revoked::Subject("studio".to_owned(), until);
    let p7 = |until| Revoked::Player("p7".parse().unwrap(), until);
    let without_iat = |claims: &mut Value| drop(claims.as_object_mut().unwrap().remove("iat"));
    let cases: Vec<(&str, Revocation, String, bool)> = vec![
        (
            "by its id",
            revocation("acme", Revoked::Token("t1".into())),
            of(|_| {}),
            true,
        ),
        (
            "another id",
            revocation("acme", Revoked::Token("t2".into())),
            of(|_| {}),
            false,
        ),
        (
            "the same id elsewhere",
            revocation("rival", Revoked::Token("t1".into())),
            of(|_| {}),
            false,
        ),
        (
            "one without an id",
            revocation("acme", Revoked::Token("t1".into())),
            of(|c| drop(c.as_object_mut().unwrap().remove("jti"))),
            false,
        ),
        (
            "an operator's, whatever tenant it names",
            revocation("acme", subject(start())),
            of(|c| {
                c["role"] = json!("operator");
                drop(c.as_object_mut().unwrap().remove("pid"));
            }),
            false,
        ),
        (
            "issued at that moment",
            revocation("acme", subject(start())),
            of(|_| {}),
            true,
        ),
        ("issued later", revocation("acme", subject(before)), of(|_| {}), false),
        (
            "issued a moment later",
            revocation("acme", subject(start())),
            of(|c| c["iat"] = json!(1_767_323_045.002)),
            false,
        ),
        (
            "issued nobody knows when",
            revocation("acme", subject(before)),
            of(without_iat),
            true,
        ),
        (
            "issued in the future",
            revocation("acme", subject(before)),
            of(|c| c["iat"] = json!(start().timestamp() + 1_000)),
            true,
        ),
        (
            "another subject",
            revocation("acme", subject(start())),
            of(player("p7")),
            false,
        ),
        ("the player's", revocation("acme", p7(start())), of(player("p7")), true),
        (
            "the player's, later",
            revocation("acme", p7(before)),
            of(player("p7")),
            false,
        ),
        (
            "another player's",
            revocation("acme", p7(start())),
            of(player("p8")),
            false,
        ),
    ];
    for (what, revocation, token, refused) in cases {
        let (auth, _) = authenticator(settings());
        let who = auth.verify_token(&token).await.unwrap();
        let (ticket, _) = auth.issue_ticket(who.clone());
        assert!(auth.on_revoked(&revocation), "{what}");
        assert!(!auth.on_revoked(&revocation), "{what}: twice");
        let outcomes = [
            auth.verify_token(&token).await.err(),
            auth.check_not_refused(&who).err(),
            auth.redeem_ticket(&ticket).await.err(),
        ];
        for outcome in outcomes {
            assert_eq!(
                matches!(outcome, Some(AuthError::Revoked)),
                refused,
                "{what}: {outcome:?}"
            );
            assert_eq!(outcome.is_some(), refused, "{what}");
        }
    }
}

#[tokio::test]
async fn tokens_minted_after_a_revocation_are_accepted() {
    let (auth, clock) = authenticator(settings());
    let studio = TokenClaims {
        sub: "studio".into(),
        tid: "acme".parse().unwrap(),
        role: Role::Backend,
        pid: None,
        wid: None,
    };
    let mint = || auth.mint_token(&studio, Duration::from_mins(1)).unwrap().text;
    let (first, twin) = (mint(), mint());
    let id = auth.verify_token(&first).await.unwrap().issued.id.unwrap();
    auth.on_revoked(&revocation("acme", Revoked::Token(id)));
    assert!(matches!(auth.verify_token(&first).await, Err(AuthError::Revoked)));
    assert!(auth.verify_token(&twin).await.is_ok(), "each has an id of its own");
    let now = clock.now();
    auth.on_revoked(&revocation("acme", Revoked::Subject("studio".into(), now)));
    clock.advance(Duration::from_millis(1));
    assert!(matches!(auth.verify_token(&twin).await, Err(AuthError::Revoked)));
    assert!(auth.verify_token(&mint()).await.is_ok());
}

#[tokio::test]
async fn node_catches_up_with_revocations_of_other_nodes() {
    let (auth, clock) = authenticator(settings());
    let token = of(|claims| claims["exp"] = json!(start().timestamp() + 100_000));
    let mut stored = StoredRevocations(Vec::new());
    // The first read finds the disabled tenant `closed`.
    assert!(auth.catch_up(&stored).await.unwrap());
    assert!(!auth.catch_up(&stored).await.unwrap());
    stored.0.push(revocation("acme", Revoked::Token("t1".into())));
    // A revocation that appears late, with another clock's time.
    stored.0.push(Revocation {
        revoked_at: start() + Duration::from_mins(1),
        ..revocation("acme", Revoked::Token("t2".into()))
    });
    assert!(auth.catch_up(&stored).await.unwrap());
    assert!(auth.verify_token(&token).await.is_err());
    stored.0.push(revocation("acme", Revoked::Token("t3".into())));
    assert!(auth.catch_up(&stored).await.unwrap());
    assert!(!auth.catch_up(&stored).await.unwrap());
    // Once the revoked token must have expired, its revocation is dropped.
    stored.0.clear();
    clock.advance(Duration::from_hours(2));
    auth.catch_up(&stored).await.unwrap();
    assert!(auth.verify_token(&token).await.is_ok());
}

#[tokio::test]
async fn tenant_is_disabled_and_enabled_at_once() {
    let (auth, _) = authenticator(settings());
    let token = of(|_| {});
    let acme: TenantId = "acme".parse().unwrap();
    let who = auth.verify_token(&token).await.unwrap();
    for enabled in [false, true] {
        auth.on_tenant_changed(&acme, enabled).await;
        assert_eq!(auth.verify_token(&token).await.is_ok(), enabled);
        assert_eq!(auth.check_not_refused(&who).is_ok(), enabled);
    }
}

#[tokio::test]
async fn token_lifetime_is_capped_whatever_its_expiry() {
    let day = 24 * 3_600;
    let (auth, _) = authenticator(AuthSettings {
        max_age_d: 30,
        ..settings()
    });
    let now = start().timestamp();
    let long = |iat: Option<i64>, exp: i64| {
        of(|claims| {
            claims["exp"] = json!(exp);
            match iat {
                Some(iat) => claims["iat"] = json!(iat),
                None => drop(claims.as_object_mut().unwrap().remove("iat")),
            }
        })
    };
    assert!(
        auth.verify_token(&long(Some(now - 29 * day), now + 900 * day))
            .await
            .is_ok()
    );
    assert!(auth.verify_token(&long(Some(now - 31 * day), now + day)).await.is_err());
    assert!(auth.verify_token(&long(None, now + 29 * day)).await.is_ok());
    assert!(auth.verify_token(&long(None, now + 31 * day)).await.is_err());
    // Revocations are kept at least until then.
    assert!(auth.max_revocation_end(start()) >= start() + Duration::from_hours(24 * 30));
}
