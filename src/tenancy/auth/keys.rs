//! Verification keys. Each key allows exactly one algorithm, so a token cannot choose another. The keys of an issuer
//! form a set. A token is checked only with the set of its `iss`.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use jsonwebtoken::{
    Algorithm, DecodingKey, Validation,
    errors::ErrorKind,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyAlgorithm, PublicKeyUse},
};
use parking_lot::RwLock;
use secrecy::ExposeSecret;
use serde::{Deserialize, de::DeserializeOwned};

use super::{AuthError, AuthSettings, issuers::Issuer};

/// Why the configured keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("auth: set one of hs256_secret, public_key_file, jwks_file and issuers")]
    NoKeys,
    #[error("auth.hs256_secret, or the one before it, is shorter than 32 bytes")]
    ShortSecret,
    #[error("auth.issuers.{name}: {why}")]
    BadIssuer { name: String, why: String },
    #[error("auth: {path} cannot be read: {why}")]
    Unreadable { path: PathBuf, why: String },
    #[error("auth: public_key_file: {0} holds no RSA, Ed25519 or P-256 public key in PEM")]
    NotAKey(PathBuf),
    #[error("auth: jwks_file: {path}: {why}")]
    BadJwks { path: PathBuf, why: String },
}

struct VerificationKey {
    kid: Option<String>,
    algorithm: Algorithm,
    decoding: DecodingKey,
    validation: Validation,
}

/// Every key of this server: the operator's own keys, and the keys of each issuer.
pub(super) struct VerificationKeys {
    server_keys: KeySet,
    issuers: Vec<Issuer>,
}

/// The unverified `iss`, which selects the key set for a token. A false `iss` fails with that key set.
#[derive(Deserialize)]
struct UnverifiedIssuer {
    iss: Option<String>,
}

/// The keys of one issuer.
pub(super) struct KeySet {
    fixed: Vec<VerificationKey>,
    jwks: Option<JwksFile>,
}

struct JwksFile {
    path: PathBuf,
    audience: String,
    loaded: RwLock<(Option<SystemTime>, Arc<Vec<VerificationKey>>)>,
}

impl VerificationKeys {
    pub(super) fn load_keys(settings: &AuthSettings) -> Result<Self, KeyError> {
        let secrets = [&settings.hs256_secret, &settings.hs256_previous_secret];
        let secrets: Vec<&[u8]> = secrets
            .into_iter()
            .flatten()
            .map(|secret| secret.expose_secret().as_bytes())
            .collect();
        let audience = &settings.audience;
        let server_keys = KeySet::load_key_set(
            &secrets,
            settings.public_key_file.as_deref(),
            settings.public_key_kid.as_deref(),
            settings.jwks_file.as_deref(),
            audience,
        )?;
        let issuers = settings.issuers.iter();
        let issuers: Vec<Issuer> = issuers
            .map(|(name, issuer)| Issuer::load_issuer(name, issuer, audience))
            .collect::<Result<_, KeyError>>()?;
        if server_keys.is_empty() && issuers.is_empty() {
            return Err(KeyError::NoKeys);
        }
        Ok(Self { server_keys, issuers })
    }

    /// Verifies signature, algorithm and audience. Returns the claims and the issuer of the key; `None`: the operator.
    /// The caller checks the times, because the caller has the clock.
    pub(super) fn verify_token<T: DeserializeOwned>(&self, token: &str) -> Result<(T, Option<&Issuer>), AuthError> {
        if self.issuers.is_empty() {
            return Ok((self.server_keys.verify_token(token)?, None));
        }
        let UnverifiedIssuer { iss } = jsonwebtoken::dangerous::insecure_decode_claims(token)
            .map_err(|_| AuthError::Invalid("its claims cannot be read, or its issuer (iss) is no text"))?;
        let issuer = iss.and_then(|iss| self.issuers.iter().find(|issuer| issuer.iss == iss));
        let keys = issuer.map_or(&self.server_keys, |issuer| &issuer.keys);
        Ok((keys.verify_token(token)?, issuer))
    }
}

impl KeySet {
    pub(super) fn load_key_set(
        secrets: &[&[u8]],
        public_key_file: Option<&Path>,
        public_key_kid: Option<&str>,
        jwks_file: Option<&Path>,
        audience: &str,
    ) -> Result<Self, KeyError> {
        let mut fixed = Vec::new();
        for secret in secrets {
            if secret.len() < 32 {
                return Err(KeyError::ShortSecret);
            }
            let decoding = DecodingKey::from_secret(secret);
            fixed.push(VerificationKey::new(None, Algorithm::HS256, decoding, audience));
        }
        if let Some(path) = public_key_file {
            let (algorithm, decoding) =
                parse_public_key(&read_file(path)?).ok_or_else(|| KeyError::NotAKey(path.to_owned()))?;
            fixed.push(VerificationKey::new(
                public_key_kid.map(str::to_owned),
                algorithm,
                decoding,
                audience,
            ));
        }
        let jwks = jwks_file.map(|path| JwksFile::load_file(path, audience)).transpose()?;
        Ok(Self { fixed, jwks })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fixed.is_empty() && self.jwks.is_none()
    }

    fn verify_token<T: DeserializeOwned>(&self, token: &str) -> Result<T, AuthError> {
        // `none` and unknown algorithm names fail here already.
        let header = jsonwebtoken::decode_header(token)
            .map_err(|_| AuthError::Invalid("it is not a JWT signed with HS256, RS256, ES256 or EdDSA"))?;
        let fixed = |key: &&VerificationKey| key.algorithm == header.alg && key.kid == header.kid;
        let tries = self.fixed.iter().filter(fixed).map(|key| key.decode_claims(token));
        // The current and the previous secret.
        if let Some(claims) = tries.reduce(|first, second| if first.is_ok() { first } else { second.or(first) }) {
            return claims;
        }
        let Some(jwks) = &self.jwks else {
            let algorithm_is_known = self.fixed.iter().any(|key| key.algorithm == header.alg);
            return Err(AuthError::Invalid(if algorithm_is_known {
                "its kid is unknown"
            } else {
                "its algorithm is not accepted here"
            }));
        };
        let Some(kid) = header.kid else {
            return Err(AuthError::Invalid("it names no key (kid)"));
        };
        let keys = jwks.current_keys();
        let key = keys
            .iter()
            .find(|key| key.kid.as_deref() == Some(&kid))
            .ok_or(AuthError::Invalid("its kid is unknown"))?;
        if key.algorithm != header.alg {
            return Err(AuthError::Invalid("its algorithm is not the key's"));
        }
        key.decode_claims(token)
    }
}

impl VerificationKey {
    fn new(kid: Option<String>, algorithm: Algorithm, decoding: DecodingKey, audience: &str) -> Self {
        let mut validation = Validation::new(algorithm);
        validation.set_audience(&[audience]);
        validation.set_required_spec_claims(&["aud", "exp", "sub"]);
        validation.validate_exp = false;
        Self {
            kid,
            algorithm,
            decoding,
            validation,
        }
    }

    fn decode_claims<T: DeserializeOwned>(&self, token: &str) -> Result<T, AuthError> {
        jsonwebtoken::decode(token, &self.decoding, &self.validation)
            .map(|data| data.claims)
            .map_err(|error| {
                AuthError::Invalid(match error.kind() {
                    ErrorKind::InvalidSignature if self.algorithm == Algorithm::HS256 => {
                        "its signature is wrong: it was signed with another secret. A token of `colloquy token` is \
                         signed with the secret in the data_dir of its settings, so the command and the server need \
                         the same data_dir"
                    }
                    ErrorKind::InvalidSignature => "its signature is wrong",
                    ErrorKind::InvalidAudience => "its audience is not this server",
                    ErrorKind::MissingRequiredClaim(_) => "aud, exp and sub are required",
                    ErrorKind::Json(_) => "its claims are not what this server expects (sub, tid, role, exp, aud)",
                    _ => "it cannot be read",
                })
            })
    }
}

impl JwksFile {
    fn load_file(path: &Path, audience: &str) -> Result<Self, KeyError> {
        let file = Self {
            path: path.to_owned(),
            audience: audience.to_owned(),
            loaded: RwLock::new((None, Arc::new(Vec::new()))),
        };
        let keys = file.read_keys()?;
        *file.loaded.write() = (modified_at(path), Arc::new(keys));
        Ok(file)
    }

    fn read_keys(&self) -> Result<Vec<VerificationKey>, KeyError> {
        let jwks_error = |reason: String| KeyError::BadJwks {
            path: self.path.clone(),
            why: reason,
        };
        let jwk_set: JwkSet =
            serde_json::from_slice(&read_file(&self.path)?).map_err(|error| jwks_error(error.to_string()))?;
        let keys: Vec<VerificationKey> = jwk_set
            .keys
            .iter()
            .filter(|jwk| !matches!(jwk.common.public_key_use, Some(PublicKeyUse::Encryption)))
            .map(|jwk| {
                let kid = jwk
                    .common
                    .key_id
                    .clone()
                    .ok_or_else(|| jwks_error("a key has no kid".to_owned()))?;
                let algorithm =
                    algorithm_of(jwk).ok_or_else(|| jwks_error(format!("key {kid} is not RS256, ES256 or EdDSA")))?;
                let decoding = DecodingKey::from_jwk(jwk).map_err(|error| jwks_error(format!("key {kid}: {error}")))?;
                Ok(VerificationKey::new(Some(kid), algorithm, decoding, &self.audience))
            })
            .collect::<Result<_, KeyError>>()?;
        if keys.is_empty() {
            return Err(jwks_error("it has no signing key".to_owned()));
        }
        Ok(keys)
    }

    /// The current keys; a changed file is read again. An unreadable file leaves the old keys in place: a half-written
    /// file must not lock out all callers.
    fn current_keys(&self) -> Arc<Vec<VerificationKey>> {
        let now = modified_at(&self.path);
        {
            let loaded = self.loaded.read();
            if now.is_none() || loaded.0 == now {
                return loaded.1.clone();
            }
        }
        let mut loaded = self.loaded.write();
        if loaded.0 != now {
            loaded.0 = now;
            match self.read_keys() {
                Ok(keys) => {
                    tracing::info!(keys = keys.len(), "read the changed key set");
                    loaded.1 = Arc::new(keys);
                }
                Err(error) => tracing::error!(%error, "the changed key set cannot be used, keeping the old one"),
            }
        }
        loaded.1.clone()
    }
}

fn modified_at(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|meta| meta.modified()).ok()
}

fn read_file(path: &Path) -> Result<Vec<u8>, KeyError> {
    std::fs::read(path).map_err(|error| KeyError::Unreadable {
        path: path.to_owned(),
        why: error.to_string(),
    })
}

fn parse_public_key(pem: &[u8]) -> Option<(Algorithm, DecodingKey)> {
    // Each reader checks the key's own object identifier, so at most one reader accepts the key.
    if let Ok(key) = DecodingKey::from_rsa_pem(pem) {
        return Some((Algorithm::RS256, key));
    }
    if let Ok(key) = DecodingKey::from_ed_pem(pem) {
        return Some((Algorithm::EdDSA, key));
    }
    DecodingKey::from_ec_pem(pem).ok().map(|key| (Algorithm::ES256, key))
}

fn algorithm_of(jwk: &Jwk) -> Option<Algorithm> {
    let by_type = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => Algorithm::RS256,
        AlgorithmParameters::EllipticCurve(ec) if ec.curve == EllipticCurve::P256 => Algorithm::ES256,
        AlgorithmParameters::OctetKeyPair(okp) if okp.curve == EllipticCurve::Ed25519 => Algorithm::EdDSA,
        _ => return None,
    };
    match jwk.common.key_algorithm {
        None => Some(by_type),
        Some(KeyAlgorithm::RS256) if by_type == Algorithm::RS256 => Some(by_type),
        Some(KeyAlgorithm::ES256) if by_type == Algorithm::ES256 => Some(by_type),
        Some(KeyAlgorithm::EdDSA) if by_type == Algorithm::EdDSA => Some(by_type),
        Some(_) => None,
    }
}
