//! Rules for the keys and issuers of tokens.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use secrecy::{ExposeSecret, SecretString};

use super::values::MIN_SECRET_BYTES;
use crate::config::sections::{Config, ListenAddress};
use colloquy_core::ids::TenantId;
use colloquy_tenancy::auth::{ALL_TENANTS, IssuerSettings};

pub(super) fn check_auth(config: &Config, fault: &mut impl FnMut(&str, String)) {
    let beyond_loopback = match config.server.listen.parse::<ListenAddress>() {
        Ok(listen) => !listen.0.ip().is_loopback(),
        Err(demand) => {
            fault("server.listen", demand);
            false
        }
    };
    if beyond_loopback && config.auth.needs_secret() {
        fault(
            "server.listen",
            format!(
                "{} is reachable from other machines, and no key to check tokens with is configured: set \
                 auth.hs256_secret (COLLOQUY__AUTH__HS256_SECRET, at least {MIN_SECRET_BYTES} bytes), auth.jwks_file or \
                 auth.public_key_file, or listen on 127.0.0.1",
                config.server.listen
            ),
        );
    }
    if config
        .auth
        .hs256_secret
        .as_ref()
        .is_some_and(|secret| secret.expose_secret().len() < MIN_SECRET_BYTES)
    {
        fault(
            "auth.hs256_secret",
            format!("must have at least {MIN_SECRET_BYTES} bytes"),
        );
    }
    check_previous_secret(
        "auth",
        config.auth.hs256_secret.as_ref(),
        config.auth.hs256_previous_secret.as_ref(),
        fault,
    );
    check_issuers(config, fault);
    if config.auth.audience.is_empty() {
        fault("auth.audience", "must not be empty".into());
    }
    for (key, path) in [
        ("auth.jwks_file", &config.auth.jwks_file),
        ("auth.public_key_file", &config.auth.public_key_file),
        ("llm.tokenizer_file", &config.llm.tokenizer_file),
    ] {
        if let Some(path) = path.as_ref().filter(|path| !path.is_file()) {
            fault(key, format!("there is no file {}", path.display()));
        }
    }
    if config.auth.default_ttl_s > config.auth.max_ttl_s {
        fault("auth.default_ttl_s", "must not be above auth.max_ttl_s".into());
    }
    if config.socket.silence_s <= config.socket.ping_s {
        fault("socket.silence_s", "must be longer than socket.ping_s".into());
    }
}

pub(super) fn check_previous_secret(
    section: &str,
    secret: Option<&SecretString>,
    previous: Option<&SecretString>,
    fault: &mut impl FnMut(&str, String),
) {
    let Some(previous) = previous.map(SecretString::expose_secret) else {
        return;
    };
    let key = match section {
        "auth" => "auth.hs256_previous_secret",
        _ => "node.previous_secret",
    };
    if previous.len() < MIN_SECRET_BYTES {
        fault(key, format!("must have at least {MIN_SECRET_BYTES} bytes"));
    }
    if secret.is_some_and(|secret| secret.expose_secret() == previous) {
        fault(key, "must differ from the secret in use".into());
    }
}

fn check_issuers(config: &Config, fault: &mut impl FnMut(&str, String)) {
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    let mut files: BTreeMap<PathBuf, String> = BTreeMap::new();
    for (setting, path) in [
        ("auth.jwks_file", &config.auth.jwks_file),
        ("auth.public_key_file", &config.auth.public_key_file),
    ] {
        if let Some(path) = path {
            files.insert(canonical_path(path), setting.to_owned());
        }
    }
    for (name, issuer) in &config.auth.issuers {
        let key = |field: &str| format!("auth.issuers.{name}.{field}");
        if issuer.iss.is_empty() {
            fault(&key("iss"), "must not be empty".into());
        } else if let Some(other) = names.insert(&issuer.iss, name) {
            fault(&key("iss"), format!("is that of auth.issuers.{other}, too"));
        }
        check_issuer_scope(issuer, &key, fault);
        match (&issuer.jwks_file, &issuer.public_key_file) {
            (Some(_), None) | (None, Some(_)) => {}
            _ => fault(
                &format!("auth.issuers.{name}"),
                "needs a jwks_file or a public_key_file, and not both".into(),
            ),
        }
        if issuer.public_key_kid.is_some() && issuer.public_key_file.is_none() {
            fault(&key("public_key_kid"), "is of no use without public_key_file".into());
        }
        for (field, path) in [
            ("jwks_file", &issuer.jwks_file),
            ("public_key_file", &issuer.public_key_file),
        ] {
            let Some(path) = path else { continue };
            if !path.is_file() {
                fault(&key(field), format!("there is no file {}", path.display()));
            } else if let Some(other) = files.insert(canonical_path(path), key(field)) {
                // An owner of shared keys could sign for either issuer.
                fault(
                    &key(field),
                    format!("is the file of {other}, too: each issuer has keys of its own"),
                );
            }
        }
    }
}

fn check_issuer_scope(issuer: &IssuerSettings, key: &impl Fn(&str) -> String, fault: &mut impl FnMut(&str, String)) {
    if issuer.tenants.is_empty() {
        fault(&key("tenants"), format!("must name tenants, or be [\"{ALL_TENANTS}\"]"));
    }
    let all = issuer.tenants.iter().any(|tenant| tenant == ALL_TENANTS);
    if all && issuer.tenants.len() > 1 {
        fault(
            &key("tenants"),
            format!("\"{ALL_TENANTS}\" is all of them: name no other"),
        );
    }
    for tenant in issuer.tenants.iter().filter(|tenant| *tenant != ALL_TENANTS) {
        if tenant.parse::<TenantId>().is_err() {
            fault(&key("tenants"), format!("`{tenant}` is no tenant's id"));
        }
    }
    if issuer.roles.is_empty() {
        fault(&key("roles"), "must name at least one role".into());
    }
}

fn canonical_path(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
