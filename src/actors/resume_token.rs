//! The secret with which a client takes its session up again. It is given out once and never kept:
//! the ledger has its hash.

use sha2::{Digest, Sha256};

use crate::memory::text::hexadecimal;

/// A new token: 256 random bits, so that knowing one says nothing about another.
pub(super) fn generate() -> String {
    let bits: [u8; 32] = rand::random();
    format!("rt_{}", hexadecimal(&bits))
}

/// SHA-256 of a token, as it is stored.
pub(super) fn hash(token: &str) -> Vec<u8> {
    Sha256::digest(token.as_bytes()).to_vec()
}

/// Whether `token` has this hash; takes the same time whatever the answer.
#[must_use]
pub fn matches(token: &str, stored: &[u8]) -> bool {
    let given = hash(token);
    given.len() == stored.len() && given.iter().zip(stored).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_itself_matches() {
        let token = generate();
        let stored = hash(&token);
        assert!(matches(&token, &stored));
        for wrong in ["", "rt_", &token[..token.len() - 1], &token.to_uppercase(), &generate()] {
            assert!(!matches(wrong, &stored), "{wrong}");
        }
        assert!(!matches("", &[]), "no hash is nobody's");
    }
}
