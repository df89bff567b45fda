//! Keys and signatures of the Standard Webhooks specification.
//!
//! A signature covers `<id>.<timestamp>.<body>`. An HMAC key is `whsec_` and 32 bytes in base64, its signature `v1,…`. An
//! Ed25519 key pair is `whsk_` and `whpk_`, its signature `v1a,…`.

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use ed25519_dalek::{Signer as _, SigningKey as EdKey};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use colloquy_core::ids::MessageId;
use colloquy_ports::ledger::webhooks::{SignatureKind, SigningKey, SigningKeys};

const HMAC_PREFIX: &str = "whsec_";
const PRIVATE_PREFIX: &str = "whsk_";
const PUBLIC_PREFIX: &str = "whpk_";

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// The stored key cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the stored key of the webhook cannot be read; rotate it")]
pub struct UnreadableKey;

/// Returns a new key from random bytes.
#[must_use]
pub fn new_key(kind: SignatureKind, random: [u8; KEY_BYTES]) -> SigningKey {
    let prefix = match kind {
        SignatureKind::Hmac => HMAC_PREFIX,
        SignatureKind::Ed25519 => PRIVATE_PREFIX,
    };
    SigningKey::new(format!("{prefix}{}", BASE64.encode(random)))
}

/// Returns the public key (`whpk_…`) of an Ed25519 key; `None` for an HMAC key, which has none.
#[must_use]
pub fn public_key(key: &SigningKey) -> Option<String> {
    let private = read_bytes(key, PRIVATE_PREFIX)?;
    let public = EdKey::from_bytes(&private).verifying_key();
    Some(format!("{PUBLIC_PREFIX}{}", BASE64.encode(public.as_bytes())))
}

fn read_bytes(key: &SigningKey, prefix: &str) -> Option<[u8; KEY_BYTES]> {
    let text = key.expose().strip_prefix(prefix)?;
    BASE64.decode(text).ok()?.try_into().ok()
}

/// A message to sign.
#[derive(Debug, Clone, Copy)]
pub struct SignedContent<'a> {
    pub id: MessageId,
    /// The time of the attempt, in seconds since 1970.
    pub timestamp: i64,
    pub body: &'a str,
}

/// Returns the value of the header `webhook-signature`: a signature of each key, separated by spaces.
///
/// # Errors
/// A key is not of its kind.
pub fn sign_message(
    keys: &SigningKeys,
    now: chrono::DateTime<chrono::Utc>,
    content: SignedContent<'_>,
) -> Result<String, UnreadableKey> {
    let SignedContent { id, timestamp, body } = content;
    let signed = format!("{id}.{timestamp}.{body}");
    let signatures: Result<Vec<String>, UnreadableKey> = keys
        .valid_at(now)
        .map(|key| sign_with(key, signed.as_bytes()))
        .collect();
    Ok(signatures?.join(" "))
}

fn sign_with(key: &SigningKey, signed: &[u8]) -> Result<String, UnreadableKey> {
    if let Some(secret) = read_bytes(key, HMAC_PREFIX) {
        let mut mac = Hmac::<Sha256>::new_from_slice(&secret).map_err(|_| UnreadableKey)?;
        mac.update(signed);
        return Ok(format!("v1,{}", BASE64.encode(mac.finalize().into_bytes())));
    }
    let private = read_bytes(key, PRIVATE_PREFIX).ok_or(UnreadableKey)?;
    let signature = EdKey::from_bytes(&private).sign(signed);
    Ok(format!("v1a,{}", BASE64.encode(signature.to_bytes())))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use chrono::DateTime;
    use ed25519_dalek::{Signature, Verifier as _, VerifyingKey};

    use super::*;

    fn keys(current: SigningKey) -> SigningKeys {
        SigningKeys {
            current,
            previous: Vec::new(),
        }
    }

    #[test]
    fn hmac_signature_is_that_of_the_specification() {
        // The message and the key of the specification's reference libraries.
        let key = SigningKey::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned());
        let text = key.expose().strip_prefix("whsec_").unwrap();
        let secret = BASE64.decode(text).unwrap();
        let mut mac = Hmac::<Sha256>::new_from_slice(&secret).unwrap();
        mac.update(br#"msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{"test": 2432232314}"#);
        let signature = BASE64.encode(mac.finalize().into_bytes());
        assert_eq!(signature, "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn ed25519_signature_is_verified_by_the_public_key() {
        let key = new_key(SignatureKind::Ed25519, [7; KEY_BYTES]);
        let public = public_key(&key).unwrap();
        let public: [u8; 32] = BASE64
            .decode(public.strip_prefix("whpk_").unwrap())
            .unwrap()
            .try_into()
            .unwrap();
        let content = SignedContent {
            id: MessageId::from_u128(1),
            timestamp: 1_800_000_000,
            body: "{}",
        };
        let header = sign_message(&keys(key), DateTime::UNIX_EPOCH, content).unwrap();
        let bytes = BASE64.decode(header.strip_prefix("v1a,").unwrap()).unwrap();
        let signature = Signature::from_slice(&bytes).unwrap();
        let signed = format!("{}.1800000000.{{}}", content.id);
        let verifier = VerifyingKey::from_bytes(&public).unwrap();
        verifier.verify(signed.as_bytes(), &signature).unwrap();
        assert!(verifier.verify(b"other", &signature).is_err());
    }

    #[test]
    fn rotated_key_signs_until_its_end() {
        let until = DateTime::from_timestamp(1_000, 0).unwrap();
        let rotated = SigningKeys {
            current: new_key(SignatureKind::Hmac, [1; KEY_BYTES]),
            previous: vec![(new_key(SignatureKind::Hmac, [2; KEY_BYTES]), until)],
        };
        let content = SignedContent {
            id: MessageId::from_u128(1),
            timestamp: 1,
            body: "{}",
        };
        let before = DateTime::from_timestamp(999, 0).unwrap();
        let both = sign_message(&rotated, before, content).unwrap();
        let parts: Vec<&str> = both.split(' ').collect();
        assert_eq!(parts.len(), 2);
        assert!(parts.iter().all(|part| part.starts_with("v1,")) && parts[0] != parts[1]);
        assert_eq!(sign_message(&rotated, until, content).unwrap(), parts[0]);
    }

    #[test]
    fn repeated_rotation_leaves_the_keys_that_are_in_use() {
        let key = |byte| new_key(SignatureKind::Hmac, [byte; KEY_BYTES]);
        let at = |seconds| DateTime::from_timestamp(seconds, 0).unwrap();
        let mut rotated = keys(key(0));
        for step in 1..=6 {
            rotated.rotate(key(step), at(step.into()), at(100));
        }
        let valid: Vec<_> = rotated.valid_at(at(99)).cloned().collect();
        assert_eq!(valid, [key(6), key(5), key(4), key(3), key(2)]);
        rotated.rotate(key(7), at(100), at(200));
        assert_eq!(rotated.previous, [(key(6), at(200))]);
    }

    #[test]
    fn keys_do_not_print() {
        let key = new_key(SignatureKind::Hmac, [1; KEY_BYTES]);
        assert!(key.expose().starts_with("whsec_"));
        assert!(!format!("{key:?}").contains("whsec"));
        assert_eq!(public_key(&key), None);
        let broken = keys(SigningKey::new("whsec_?".to_owned()));
        let content = SignedContent {
            id: MessageId::from_u128(1),
            timestamp: 1,
            body: "{}",
        };
        assert_eq!(sign_message(&broken, DateTime::UNIX_EPOCH, content), Err(UnreadableKey));
    }
}
