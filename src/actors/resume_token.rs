//! The secret with which a client resumes a session. The token is shown once and never stored; the ledger has its hash.

use sha2::{Digest, Sha256};

use colloquy_memory::text::to_hexadecimal;

/// Returns a new token of 256 random bits, so that no token reveals another.
pub(super) fn generate_token() -> String {
    let bits: [u8; 32] = rand::random();
    format!("rt_{}", to_hexadecimal(&bits))
}

/// Returns the SHA-256 of a token, as the ledger stores it.
pub(super) fn hash_token(token: &str) -> Vec<u8> {
    Sha256::digest(token.as_bytes()).to_vec()
}

/// True if `token` has the stored hash. Equal and unequal hashes take the same time to compare.
#[must_use]
pub fn token_matches(token: &str, stored: &[u8]) -> bool {
    let hash = hash_token(token);
    hash.len() == stored.len() && hash.iter().zip(stored).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resume_token_matches_only_itself() {
        let token = generate_token();
        let stored = hash_token(&token);
        assert!(token_matches(&token, &stored));
        for wrong in [
            "",
            "rt_",
            &token[..token.len() - 1],
            &token.to_uppercase(),
            &generate_token(),
        ] {
            assert!(!token_matches(wrong, &stored), "{wrong}");
        }
        assert!(!token_matches("", &[]), "no hash is nobody's");
    }
}
