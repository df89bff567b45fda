//! Short hashes of parts of a prompt, by which two assemblies of the same prompt are compared.

use chrono::{DateTime, Utc};
use sha2::{Digest as _, Sha256};

use colloquy_memory::text::to_hexadecimal;

/// The bytes of a short hash.
const HASH_BYTES: usize = 4;

/// The hash of texts and times, in their order.
#[derive(Default)]
pub(crate) struct ContentHash {
    hash: Sha256,
    has_content: bool,
}

impl ContentHash {
    pub(crate) fn add_text(&mut self, text: &str) {
        self.has_content = true;
        self.hash.update((text.len() as u64).to_le_bytes());
        self.hash.update(text);
    }
    pub(crate) fn add_time(&mut self, moment: DateTime<Utc>) {
        self.has_content = true;
        self.hash.update(moment.timestamp_micros().to_le_bytes());
    }
    pub(crate) fn add_number(&mut self, number: u32) {
        self.has_content = true;
        self.hash.update(number.to_le_bytes());
    }
    /// Adds the JSON of a value.
    pub(crate) fn add_json(&mut self, value: &impl serde::Serialize) {
        // Settings always have a JSON.
        self.add_text(&serde_json::to_string(value).unwrap_or_default());
    }
    /// Returns the first 8 hexadecimal digits of the SHA-256. Empty if nothing was added.
    pub(crate) fn finish(self) -> String {
        if !self.has_content {
            return String::new();
        }
        to_hexadecimal(&self.hash.finalize()[..HASH_BYTES])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(texts: &[&str]) -> String {
        let mut hash = ContentHash::default();
        for text in texts {
            hash.add_text(text);
        }
        hash.finish()
    }

    #[test]
    fn hash_depends_on_texts_and_their_order() {
        assert_eq!(hash(&[]), "");
        assert_eq!(hash(&["a"]).len(), 2 * HASH_BYTES);
        assert_eq!(hash(&["a", "b"]), hash(&["a", "b"]));
        assert_ne!(hash(&["a", "b"]), hash(&["b", "a"]));
        assert_ne!(hash(&["ab"]), hash(&["a", "b"]));
    }
}
