//! Token issuers besides the operator. Each issuer has its own keys, and is limited to some tenants and roles.

use std::{collections::BTreeSet, path::PathBuf};

use serde::Deserialize;

use super::{AuthError, KeyError, TokenClaims};
use crate::auth::keys::KeySet;
use colloquy_core::{ids::TenantId, scope::Role};

/// One issuer: a section `[auth.issuers.NAME]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuerSettings {
    /// The exact `iss` of the issuer's tokens.
    pub iss: String,
    /// The issuer's JWKS file; a token names its key by `kid`. Read again when the file changes. Set this file or the
    /// public key.
    pub jwks_file: Option<PathBuf>,
    /// PEM file with the issuer's only public key.
    pub public_key_file: Option<PathBuf>,
    /// `kid` of the public key; unset: tokens signed with this key must have no `kid`.
    pub public_key_kid: Option<String>,
    /// The tenants that the issuer's tokens may be for; `*`: all.
    pub tenants: Vec<String>,
    /// The roles that the issuer's tokens may have.
    pub roles: Vec<Role>,
}

/// Stands for every tenant.
pub const ALL_TENANTS: &str = "*";

/// An issuer with its keys.
pub(super) struct Issuer {
    pub iss: String,
    pub keys: KeySet,
    /// `None`: all tenants.
    tenants: Option<BTreeSet<TenantId>>,
    roles: Vec<Role>,
}

impl Issuer {
    pub(super) fn load_issuer(name: &str, settings: &IssuerSettings, audience: &str) -> Result<Self, KeyError> {
        let issuer_error = |reason: &str| KeyError::BadIssuer {
            name: name.to_owned(),
            why: reason.to_owned(),
        };
        let keys = KeySet::load_key_set(
            &[],
            settings.public_key_file.as_deref(),
            settings.public_key_kid.as_deref(),
            settings.jwks_file.as_deref(),
            audience,
        )?;
        if keys.is_empty() {
            return Err(issuer_error("it has no keys: set jwks_file or public_key_file"));
        }
        let serves_all_tenants = settings.tenants.iter().any(|tenant| tenant == ALL_TENANTS);
        let tenants = settings.tenants.iter().map(|tenant| tenant.parse());
        let tenants = if serves_all_tenants {
            None
        } else {
            Some(
                tenants
                    .collect::<Result<_, _>>()
                    .map_err(|_| issuer_error("one of its tenants is no id"))?,
            )
        };
        Ok(Self {
            iss: settings.iss.clone(),
            keys,
            tenants,
            roles: settings.roles.clone(),
        })
    }

    /// Checks that the issuer may issue tokens for the claims' tenant and role.
    pub(super) fn check_claims(&self, claims: &TokenClaims) -> Result<(), AuthError> {
        if self
            .tenants
            .as_ref()
            .is_some_and(|tenants| !tenants.contains(&claims.tid))
        {
            return Err(AuthError::Invalid(
                "its issuer (iss) does not speak for this tenant (tid)",
            ));
        }
        if !self.roles.contains(&claims.role) {
            return Err(AuthError::Invalid("its issuer (iss) does not give this role"));
        }
        Ok(())
    }
}
