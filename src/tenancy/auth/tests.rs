#![allow(clippy::unwrap_used)]

mod issuers;
mod revoked;

use async_trait::async_trait;
use chrono::TimeZone;
use jsonwebtoken::jwk::Jwk;
use serde_json::{Value, json};

use super::*;
use colloquy_ports::{
    Page, PageRequest, StoreResult,
    clock::ManualClock,
    ledger::{
        audit::Edit,
        tenants::{Tenant, TenantChange, TenantEditOutcome},
        usage::TenantBudget,
    },
};

/// Knows `acme`, and `closed`, which is disabled.
struct FixedTenants;

#[async_trait]
impl TenantStore for FixedTenants {
    async fn ensure_tenant(&self, _: &Tenant) -> StoreResult<bool> {
        Ok(false)
    }
    async fn load_tenant(&self, id: &TenantId) -> StoreResult<Option<Tenant>> {
        let known = matches!(id.as_str(), "acme" | "closed");
        Ok(known.then(|| Tenant {
            id: id.clone(),
            name: id.to_string(),
            enabled: id.as_str() == "acme",
            budget: None,
            created_at: start(),
            version: 1,
        }))
    }
    async fn create_tenant(&self, _: &Tenant, _: &Edit) -> StoreResult<bool> {
        Ok(false)
    }
    async fn change_tenant(
        &self,
        _: &TenantId,
        _: &TenantChange,
        _: Option<u32>,
        _: &Edit,
    ) -> StoreResult<TenantEditOutcome> {
        Ok(TenantEditOutcome::NotFound)
    }
    async fn list_tenants(&self, _: &PageRequest) -> StoreResult<Page<Tenant>> {
        Ok(Page {
            items: Vec::new(),
            next: None,
        })
    }
    async fn list_all(&self) -> StoreResult<Vec<Tenant>> {
        Ok(Vec::new())
    }
    async fn list_disabled(&self) -> StoreResult<Vec<TenantId>> {
        Ok(vec!["closed".parse().unwrap()])
    }
    async fn list_tenant_budgets(&self) -> StoreResult<Vec<(TenantId, TenantBudget)>> {
        Ok(Vec::new())
    }
}

const SECRET: &str = "a secret of at least thirty-two bytes";

fn start() -> DateTime<Utc> {
    Utc.with_ymd_and_hms(2026, 1, 2, 3, 4, 5).unwrap()
}

fn settings() -> AuthSettings {
    AuthSettings {
        hs256_secret: Some(SECRET.to_owned().into()),
        hs256_previous_secret: None,
        public_key_file: None,
        public_key_kid: None,
        jwks_file: None,
        issuers: std::collections::BTreeMap::new(),
        audience: "colloquy".into(),
        leeway_s: 5,
        default_ttl_s: 3_600,
        max_ttl_s: 86_400,
        max_age_d: 3_650,
    }
}

fn authenticator(settings: AuthSettings) -> (Authenticator, Arc<ManualClock>) {
    let clock = ManualClock::starting_at(start());
    let auth = Authenticator::new(settings, clock.clone(), Arc::new(FixedTenants)).unwrap();
    (auth, clock)
}

fn claims(change: impl FnOnce(&mut Value)) -> Value {
    let mut claims = json!({
        "sub": "studio", "tid": "acme", "role": "backend", "aud": "colloquy",
        "exp": start().timestamp() + 60,
    });
    change(&mut claims);
    claims
}

fn sign(claims: &Value, algorithm: Algorithm, key: &EncodingKey, kid: Option<&str>) -> String {
    let mut header = Header::new(algorithm);
    header.kid = kid.map(str::to_owned);
    jsonwebtoken::encode(&header, claims, key).unwrap()
}

fn hs256(claims: &Value) -> String {
    sign(
        claims,
        Algorithm::HS256,
        &EncodingKey::from_secret(SECRET.as_bytes()),
        None,
    )
}

const ED: &[u8] = include_bytes!("../../../tests/data/keys/ed.private.pem");
const EC: &[u8] = include_bytes!("../../../tests/data/keys/ec.private.pem");
const RSA: &[u8] = include_bytes!("../../../tests/data/keys/rsa.private.pem");

fn private(algorithm: Algorithm) -> EncodingKey {
    match algorithm {
        Algorithm::EdDSA => EncodingKey::from_ed_pem(ED),
        Algorithm::ES256 => EncodingKey::from_ec_pem(EC),
        _ => EncodingKey::from_rsa_pem(RSA),
    }
    .unwrap()
}

fn key_file(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/keys")).join(format!("{name}.public.pem"))
}

#[tokio::test]
async fn valid_token_becomes_a_principal() {
    let (auth, _) = authenticator(settings());
    let token = hs256(&claims(|claims| {
        claims["role"] = json!("player");
        claims["pid"] = json!("p7");
        claims["wid"] = json!("vale");
        claims["sub"] = json!("어".repeat(256));
    }));
    let who = auth.verify_token(&token).await.unwrap();
    assert_eq!(who.role, Role::Player);
    assert_eq!(who.tenant.as_str(), "acme");
    assert_eq!(who.player.unwrap().as_str(), "p7");
    assert_eq!(who.world.unwrap().as_str(), "vale");
}

#[tokio::test]
async fn token_with_any_fault_is_rejected() {
    let (auth, _) = authenticator(settings());
    let wrong: Vec<(&str, Value)> = vec![
        ("wrong audience", claims(|c| c["aud"] = json!("other"))),
        (
            "no audience",
            claims(|c| drop(c.as_object_mut().unwrap().remove("aud"))),
        ),
        ("no expiry", claims(|c| drop(c.as_object_mut().unwrap().remove("exp")))),
        ("no subject", claims(|c| drop(c.as_object_mut().unwrap().remove("sub")))),
        ("long subject", claims(|c| c["sub"] = json!("어".repeat(257)))),
        ("subject with a control character", claims(|c| c["sub"] = json!("a\0b"))),
        ("expired", claims(|c| c["exp"] = json!(start().timestamp() - 6))),
        ("not yet valid", claims(|c| c["nbf"] = json!(start().timestamp() + 6))),
        ("unknown role", claims(|c| c["role"] = json!("root"))),
        ("player without pid", claims(|c| c["role"] = json!("player"))),
        ("backend with pid", claims(|c| c["pid"] = json!("p7"))),
        (
            "admin with wid",
            claims(|c| {
                c["role"] = json!("admin");
                c["wid"] = json!("vale");
            }),
        ),
        ("jti that is no text", claims(|c| c["jti"] = json!(7))),
        ("long jti", claims(|c| c["jti"] = json!("j".repeat(257)))),
        ("unknown tenant", claims(|c| c["tid"] = json!("nobody"))),
        ("disabled tenant", claims(|c| c["tid"] = json!("closed"))),
        ("no tenant name", claims(|c| c["tid"] = json!("NOT AN ID"))),
    ];
    for (what, claims) in wrong {
        assert!(auth.verify_token(&hs256(&claims)).await.is_err(), "{what} was accepted");
    }
    assert!(auth.verify_token(&hs256(&claims(|_| {}))).await.is_ok());
    for role in ["backend", "viewer"] {
        let bound = claims(|c| {
            c["role"] = json!(role);
            c["wid"] = json!("vale");
        });
        assert!(auth.verify_token(&hs256(&bound)).await.is_ok(), "{role}");
    }
}

#[tokio::test]
async fn forged_tokens_are_rejected() {
    let (auth, _) = authenticator(settings());
    let good = hs256(&claims(|_| {}));
    let [header, body, signature] = good.split('.').collect::<Vec<_>>()[..] else {
        panic!("a JWT has three parts")
    };
    // {"alg":"none"}
    let none = format!("eyJhbGciOiJub25lIn0.{body}.");
    let other = sign(
        &claims(|_| {}),
        Algorithm::HS256,
        &EncodingKey::from_secret(b"another secret"),
        None,
    );
    let longer = sign(
        &claims(|_| {}),
        Algorithm::HS512,
        &EncodingKey::from_secret(SECRET.as_bytes()),
        None,
    );
    let named = sign(
        &claims(|_| {}),
        Algorithm::HS256,
        &EncodingKey::from_secret(SECRET.as_bytes()),
        Some("k9"),
    );
    let asymmetric = sign(&claims(|_| {}), Algorithm::EdDSA, &private(Algorithm::EdDSA), None);
    let truncated = format!("{header}.{body}.{}", &signature[..signature.len() - 4]);
    for token in [
        none,
        other,
        longer,
        named,
        asymmetric,
        truncated,
        String::new(),
        "a.b.c".into(),
    ] {
        assert!(auth.verify_token(&token).await.is_err(), "{token} was accepted");
    }
}

#[tokio::test]
async fn public_keys_verify_only_their_own_algorithm() {
    for (name, algorithm) in [
        ("ed", Algorithm::EdDSA),
        ("ec", Algorithm::ES256),
        ("rsa", Algorithm::RS256),
    ] {
        let (auth, _) = authenticator(AuthSettings {
            hs256_secret: None,
            public_key_file: Some(key_file(name)),
            ..settings()
        });
        let good = sign(&claims(|_| {}), algorithm, &private(algorithm), None);
        assert!(auth.verify_token(&good).await.is_ok(), "{name}");
        for other in [Algorithm::EdDSA, Algorithm::ES256, Algorithm::RS256] {
            if other != algorithm {
                let token = sign(&claims(|_| {}), other, &private(other), None);
                assert!(auth.verify_token(&token).await.is_err(), "{name} took {other:?}");
            }
        }
        // Algorithm confusion: the public key used as an HMAC secret.
        let pem = std::fs::read(key_file(name)).unwrap();
        let confused = sign(&claims(|_| {}), Algorithm::HS256, &EncodingKey::from_secret(&pem), None);
        assert!(
            auth.verify_token(&confused).await.is_err(),
            "{name} was used as a secret"
        );
        let backend = TokenClaims {
            sub: "s".into(),
            tid: "acme".parse().unwrap(),
            role: Role::Backend,
            pid: None,
            wid: None,
        };
        assert_eq!(
            auth.mint_token(&backend, Duration::from_secs(1)).unwrap_err(),
            MintError::NoSecret
        );
    }
}

fn jwk(algorithm: Algorithm, kid: &str) -> Value {
    let mut jwk = Jwk::from_encoding_key(&private(algorithm), algorithm).unwrap();
    jwk.common.key_id = Some(kid.to_owned());
    let mut value = serde_json::to_value(jwk).unwrap();
    // Key sets hold public halves.
    value
        .as_object_mut()
        .unwrap()
        .retain(|name, _| !matches!(name.as_str(), "d" | "p" | "q" | "dp" | "dq" | "qi"));
    value
}

#[tokio::test]
async fn key_set_is_selected_by_kid_and_reloaded_when_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jwks.json");
    let write = |keys: &[Value], age: u64| {
        std::fs::write(&path, json!({"keys": keys}).to_string()).unwrap();
        // Without an explicit time, two writes within one tick of the file system's clock would look like one.
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + age))
            .unwrap();
    };
    write(&[jwk(Algorithm::EdDSA, "k1"), jwk(Algorithm::RS256, "k2")], 0);
    let (auth, _) = authenticator(AuthSettings {
        hs256_secret: None,
        jwks_file: Some(path.clone()),
        ..settings()
    });
    let token = |algorithm, kid| sign(&claims(|_| {}), algorithm, &private(algorithm), kid);
    assert!(auth.verify_token(&token(Algorithm::EdDSA, Some("k1"))).await.is_ok());
    assert!(auth.verify_token(&token(Algorithm::RS256, Some("k2"))).await.is_ok());
    assert!(auth.verify_token(&token(Algorithm::RS256, Some("k1"))).await.is_err());
    assert!(auth.verify_token(&token(Algorithm::EdDSA, Some("k3"))).await.is_err());
    assert!(auth.verify_token(&token(Algorithm::EdDSA, None)).await.is_err());

    write(&[jwk(Algorithm::ES256, "k3")], 1);
    assert!(auth.verify_token(&token(Algorithm::ES256, Some("k3"))).await.is_ok());
    assert!(auth.verify_token(&token(Algorithm::EdDSA, Some("k1"))).await.is_err());

    std::fs::write(&path, "{ half").unwrap();
    assert!(auth.verify_token(&token(Algorithm::ES256, Some("k3"))).await.is_ok());
}

#[tokio::test]
async fn minted_tokens_verify_until_they_expire() {
    let (auth, clock) = authenticator(settings());
    let player = TokenClaims {
        sub: "player:p7".into(),
        tid: "acme".parse().unwrap(),
        role: Role::Player,
        pid: Some("p7".parse().unwrap()),
        wid: None,
    };
    let token = auth.mint_token(&player, Duration::from_mins(1)).unwrap();
    assert_eq!(token.expires_at, start() + Duration::from_mins(1));
    clock.advance(Duration::from_secs(64));
    assert!(auth.verify_token(&token.text).await.is_ok(), "within the leeway");
    clock.advance(Duration::from_secs(1));
    assert!(matches!(auth.verify_token(&token.text).await, Err(AuthError::Expired)));
    let nobody = TokenClaims { pid: None, ..player };
    assert_eq!(
        auth.mint_token(&nobody, Duration::from_mins(1)).unwrap_err(),
        MintError::PlayerMismatch
    );
}

#[tokio::test]
async fn ticket_works_once_and_briefly() {
    let (auth, clock) = authenticator(settings());
    let who = auth.verify_token(&hs256(&claims(|_| {}))).await.unwrap();
    let (ticket, expires) = auth.issue_ticket(who.clone());
    assert_eq!(expires, start() + Duration::from_secs(30));
    assert_eq!(auth.redeem_ticket(&ticket).await.unwrap(), who);
    assert!(matches!(auth.redeem_ticket(&ticket).await, Err(AuthError::NoTicket)));

    let (ticket, _) = auth.issue_ticket(who.clone());
    clock.advance(Duration::from_secs(30));
    assert!(matches!(auth.redeem_ticket(&ticket).await, Err(AuthError::NoTicket)));

    // A ticket does not outlive the token that paid for the ticket (60 s, leeway 5 s, of which 30 s are over).
    clock.advance(Duration::from_secs(20));
    let (_, expires) = auth.issue_ticket(who.clone());
    assert_eq!(expires, who.expires_at);
}

#[test]
fn unusable_keys_are_named() {
    let new =
        |settings| Authenticator::new(settings, ManualClock::starting_at(start()), Arc::new(FixedTenants)).map(drop);
    let none = AuthSettings {
        hs256_secret: None,
        ..settings()
    };
    assert!(matches!(new(none.clone()), Err(KeyError::NoKeys)));
    let short = AuthSettings {
        hs256_secret: Some("short".to_owned().into()),
        ..none.clone()
    };
    assert!(matches!(new(short), Err(KeyError::ShortSecret)));
    let absent = AuthSettings {
        public_key_file: Some("/nowhere.pem".into()),
        ..none.clone()
    };
    assert!(matches!(new(absent), Err(KeyError::Unreadable { .. })));
    let not_a_key = AuthSettings {
        public_key_file: Some(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml").into()),
        ..none.clone()
    };
    assert!(matches!(new(not_a_key), Err(KeyError::NotAKey(_))));
    let not_jwks = AuthSettings {
        jwks_file: Some(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml").into()),
        ..none
    };
    assert!(matches!(new(not_jwks), Err(KeyError::BadJwks { .. })));
}

#[tokio::test]
async fn previous_secret_verifies_and_signs_no_token() {
    const BEFORE: &str = "the secret before, of thirty-two bytes";
    let (auth, _) = authenticator(AuthSettings {
        hs256_previous_secret: Some(BEFORE.to_owned().into()),
        ..settings()
    });
    let with = |secret: &str| {
        let key = EncodingKey::from_secret(secret.as_bytes());
        sign(&claims(|_| {}), Algorithm::HS256, &key, None)
    };
    for secret in [SECRET, BEFORE] {
        assert!(auth.verify_token(&with(secret)).await.is_ok());
    }
    let other = with("the secret before that one, long ago");
    assert!(auth.verify_token(&other).await.is_err());
    // A server with only the new secret accepts newly minted tokens, and rejects tokens of the previous secret.
    let (after, _) = authenticator(settings());
    let minted = TokenClaims {
        sub: "s".into(),
        tid: "acme".parse().unwrap(),
        role: Role::Backend,
        pid: None,
        wid: None,
    };
    let minted = auth.mint_token(&minted, Duration::from_mins(1)).unwrap();
    assert!(after.verify_token(&minted.text).await.is_ok());
    assert!(after.verify_token(&with(BEFORE)).await.is_err());
    let short = AuthSettings {
        hs256_previous_secret: Some("short".to_owned().into()),
        ..settings()
    };
    let short = Authenticator::new(short, ManualClock::starting_at(start()), Arc::new(FixedTenants)).map(drop);
    assert!(matches!(short, Err(KeyError::ShortSecret)));
}
