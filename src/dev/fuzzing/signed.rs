//! Signed input: tokens, and the forward tokens between nodes.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use futures_util::FutureExt as _;
use jsonwebtoken::{EncodingKey, Header};
use serde_json::{Value, json};

use colloquy_core::ids::TenantId;
use colloquy_http::nodes::decode_forward_token;
use colloquy_ports::{
    Page, PageRequest, StoreResult,
    clock::ManualClock,
    ledger::{
        audit::Edit,
        tenants::{Tenant, TenantChange, TenantEditOutcome, TenantStore},
        usage::TenantBudget,
    },
};
use colloquy_tenancy::auth::{AuthSettings, Authenticator};

/// 2026-01-02 03:04:05 UTC.
const NOW_S: i64 = 1_767_323_045;
const SECRET: &str = "a secret that a fuzzer may know, too";

fn fixed_now() -> DateTime<Utc> {
    DateTime::from_timestamp(NOW_S, 0).unwrap_or_default()
}

/// A token. Input that begins with `{` is the claims of a correctly signed token.
pub fn tokens(data: &[u8]) {
    let Some(text) = text_or_signed_claims(data, SECRET.as_bytes()) else {
        return;
    };
    let settings = json!({
        "hs256_secret": SECRET, "audience": "colloquy", "leeway_s": 5, "default_ttl_s": 3_600, "max_ttl_s": 86_400,
        "max_age_d": 3_650,
    });
    let Ok(settings) = serde_json::from_value::<AuthSettings>(settings) else {
        unreachable!("the settings are whole");
    };
    let Ok(authenticator) = Authenticator::new(
        settings,
        ManualClock::starting_at(fixed_now()),
        Arc::new(AnyTenantStore),
    ) else {
        unreachable!("the secret is long enough");
    };
    let verification = authenticator.verify_token(&text).now_or_never();
    if let Some(Ok(principal)) = verification {
        assert!(principal.expires_at > fixed_now(), "{principal:?}");
    }
}

/// A forward token between nodes, in the form of [`tokens`].
pub fn hop_headers(data: &[u8]) {
    if let Some(text) = text_or_signed_claims(data, SECRET.as_bytes()) {
        let _ = decode_forward_token(&text, SECRET.as_bytes(), fixed_now());
    }
}

fn text_or_signed_claims(data: &[u8], secret: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(data).ok()?;
    if !text.starts_with('{') {
        return Some(text.to_owned());
    }
    let claims: Value = serde_json::from_str(text).ok()?;
    jsonwebtoken::encode(&Header::default(), &claims, &EncodingKey::from_secret(secret)).ok()
}

/// Knows every tenant.
struct AnyTenantStore;

#[async_trait]
impl TenantStore for AnyTenantStore {
    async fn ensure_tenant(&self, _: &Tenant) -> StoreResult<bool> {
        Ok(false)
    }
    async fn load_tenant(&self, id: &TenantId) -> StoreResult<Option<Tenant>> {
        Ok(Some(Tenant {
            id: id.clone(),
            name: id.to_string(),
            enabled: true,
            budget: None,
            created_at: fixed_now(),
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
        Ok(Vec::new())
    }
    async fn list_tenant_budgets(&self) -> StoreResult<Vec<(TenantId, TenantBudget)>> {
        Ok(Vec::new())
    }
}
