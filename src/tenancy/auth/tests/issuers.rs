//! The limits of an issuer: claims, tenants and roles.

use super::*;

const STUDIO: &str = "https://login.studio.example";
const PARTNER: &str = "https://partner.example/";

/// A key set with the key of one algorithm, under the name `k1`. All issuers of these tests use the same key name.
fn key_set(folder: &tempfile::TempDir, name: &str, algorithm: Algorithm) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, json!({"keys": [jwk(algorithm, "k1")]}).to_string()).unwrap();
    path
}

fn issuer(iss: &str, jwks_file: PathBuf, tenants: &[&str], roles: &[Role]) -> IssuerSettings {
    IssuerSettings {
        iss: iss.to_owned(),
        jwks_file: Some(jwks_file),
        public_key_file: None,
        public_key_kid: None,
        tenants: tenants.iter().map(|tenant| (*tenant).to_owned()).collect(),
        roles: roles.to_vec(),
    }
}

/// The operator has the secret and an RSA key, the studio an Ed25519 key, the partner a P-256 key.
fn three(folder: &tempfile::TempDir) -> Authenticator {
    let studio = key_set(folder, "studio.json", Algorithm::EdDSA);
    let partner = key_set(folder, "partner.json", Algorithm::ES256);
    let issuers = [
        (
            "studio".to_owned(),
            issuer(STUDIO, studio, &["acme"], &[Role::Backend, Role::Player]),
        ),
        ("partner".to_owned(), issuer(PARTNER, partner, &["*"], &[Role::Player])),
    ];
    authenticator(AuthSettings {
        jwks_file: Some(key_set(folder, "own.json", Algorithm::RS256)),
        issuers: issuers.into(),
        ..settings()
    })
    .0
}

fn signed(algorithm: Algorithm, change: impl FnOnce(&mut Value)) -> String {
    sign(&claims(change), algorithm, &private(algorithm), Some("k1"))
}

fn of(iss: &str, role: &str, tenant: &str) -> impl FnOnce(&mut Value) {
    move |claims| {
        claims["iss"] = json!(iss);
        claims["role"] = json!(role);
        claims["tid"] = json!(tenant);
        if role == "player" {
            claims["pid"] = json!("p7");
        }
    }
}

#[tokio::test]
async fn issuer_signs_only_for_its_tenants_and_roles_with_its_own_keys() {
    use Algorithm::{ES256, EdDSA, RS256};
    let folder = tempfile::tempdir().unwrap();
    let auth = three(&folder);
    let good = [
        ("the studio's backend", signed(EdDSA, of(STUDIO, "backend", "acme"))),
        ("the studio's player", signed(EdDSA, of(STUDIO, "player", "acme"))),
        ("the partner's player", signed(ES256, of(PARTNER, "player", "acme"))),
        ("the operator's, by its key", signed(RS256, |_| {})),
        ("the operator's admin", signed(RS256, |c| c["role"] = json!("admin"))),
        (
            "the operator's, who names itself",
            signed(RS256, of("us", "admin", "acme")),
        ),
        ("the operator's, by its secret", hs256(&claims(|_| {}))),
    ];
    for (what, token) in good {
        assert!(auth.verify_token(&token).await.is_ok(), "{what} was refused");
    }
    let as_secret = |iss: &str, file: &str| {
        let public = std::fs::read(key_file(file)).unwrap();
        let key = EncodingKey::from_secret(&public);
        sign(&claims(of(iss, "player", "acme")), Algorithm::HS256, &key, Some("k1"))
    };
    let bad = [
        ("a role it does not give", signed(EdDSA, of(STUDIO, "admin", "acme"))),
        ("the operator's role", signed(EdDSA, of(STUDIO, "operator", "acme"))),
        ("another tenant", signed(EdDSA, of(STUDIO, "backend", "rival"))),
        ("a disabled tenant", signed(ES256, of(PARTNER, "player", "closed"))),
        (
            "a backend of the partner",
            signed(ES256, of(PARTNER, "backend", "acme")),
        ),
        ("a key of the partner", signed(ES256, of(STUDIO, "backend", "acme"))),
        ("a key of the studio", signed(EdDSA, of(PARTNER, "player", "acme"))),
        ("the operator's key", signed(RS256, of(STUDIO, "backend", "acme"))),
        ("the operator's secret", hs256(&claims(of(STUDIO, "backend", "acme")))),
        ("an issuer without a name", signed(EdDSA, |_| {})),
        (
            "an unknown issuer",
            signed(EdDSA, of("https://nobody.example", "backend", "acme")),
        ),
        (
            "no issuer's case",
            signed(EdDSA, of("HTTPS://LOGIN.STUDIO.EXAMPLE", "backend", "acme")),
        ),
        (
            "a name that goes on",
            signed(EdDSA, of("https://login.studio.example/", "backend", "acme")),
        ),
        (
            "two names in a list",
            signed(EdDSA, |c| c["iss"] = json!([STUDIO, PARTNER])),
        ),
        ("a list of one", signed(EdDSA, |c| c["iss"] = json!([STUDIO]))),
        ("a public key as the secret", as_secret(PARTNER, "ec")),
        (
            "a key it does not have",
            sign(
                &claims(of(STUDIO, "backend", "acme")),
                EdDSA,
                &private(EdDSA),
                Some("k2"),
            ),
        ),
        (
            "no key named",
            sign(&claims(of(STUDIO, "backend", "acme")), EdDSA, &private(EdDSA), None),
        ),
    ];
    for (what, token) in bad {
        let refused = auth.verify_token(&token).await;
        assert!(
            matches!(refused, Err(AuthError::Invalid(_) | AuthError::NoTenant)),
            "{what}: {refused:?}"
        );
    }
}

#[tokio::test]
async fn issuer_alone_is_enough_and_needs_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let mut studio = issuer(
        STUDIO,
        key_set(&folder, "studio.json", Algorithm::EdDSA),
        &["acme"],
        &[Role::Backend],
    );
    let alone = |studio: &IssuerSettings| AuthSettings {
        hs256_secret: None,
        issuers: [("studio".to_owned(), studio.clone())].into(),
        ..settings()
    };
    let (auth, _) = authenticator(alone(&studio));
    assert!(
        auth.verify_token(&signed(Algorithm::EdDSA, of(STUDIO, "backend", "acme")))
            .await
            .is_ok()
    );
    assert!(auth.verify_token(&signed(Algorithm::EdDSA, |_| {})).await.is_err());
    let new =
        |settings| Authenticator::new(settings, ManualClock::starting_at(start()), Arc::new(FixedTenants)).map(drop);
    studio.jwks_file = None;
    assert!(matches!(new(alone(&studio)), Err(KeyError::BadIssuer { .. })));
    studio.public_key_file = Some(key_file("ed"));
    assert!(new(alone(&studio)).is_ok());
    studio.tenants.push("NOT AN ID".to_owned());
    assert!(matches!(new(alone(&studio)), Err(KeyError::BadIssuer { .. })));
}
