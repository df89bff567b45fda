//! One statement of the prompt.

use super::{
    claim::{self, ParsedClaim, Party, lower_case_words},
    lexicon::{self, Lexicon},
};
use colloquy_memory::authored::Language;

/// One statement of the prompt.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PromptMemory {
    pub content: String,
    pub claim: Option<ParsedClaim>,
    pub terms: Vec<String>,
    /// True for a statement of the NPC's persona.
    pub of_persona: bool,
}

impl PromptMemory {
    pub fn new(content: &str, claim: Option<ParsedClaim>) -> Self {
        let lexicon = lexicon::lexicon_of(lexicon::language_of(content));
        let mut terms: Vec<String> = lower_case_words(content)
            .iter()
            .map(|word| listed_form(lexicon, word))
            .collect();
        if let Some(claim) = &claim {
            terms.extend(claim.keywords.iter().map(|word| lexicon.listed_form(word).to_owned()));
        } else {
            for term in lexicon.terms_in(&terms.clone()) {
                terms.extend(lexicon.categories_of(term).iter().cloned());
            }
        }
        Self {
            content: content.to_owned(),
            claim,
            terms,
            of_persona: false,
        }
    }

    /// Returns the memory of a new claim.
    pub fn from_claim(claim: &ParsedClaim) -> Self {
        Self::new(&claim.content, Some(claim.clone()))
    }

    pub(super) fn is_about(&self, subject: &Party) -> bool {
        match (&self.claim, subject) {
            (Some(claim), Party::Other(name)) => match &claim.subject {
                Party::Other(other) => same_name(other, name) || is_relation_of(other, name),
                // "My dog is called Rex" and "I have a dog" both answer a question about the dog.
                _ => self.terms.iter().any(|term| same_name(term, name)),
            },
            (Some(claim), subject) => claim.subject == *subject,
            (None, Party::Other(name)) => self.content.to_lowercase().contains(&name.to_lowercase()),
            (None, _) => true,
        }
    }
}

/// True if "my wife" means "the player's wife Clara".
fn is_relation_of(name: &str, relation: &str) -> bool {
    let mut parts = name.rsplit(' ');
    parts.next().is_some_and(|last| last.starts_with(char::is_uppercase)) && parts.next() == Some(relation)
}

pub(super) fn same_name(a: &str, b: &str) -> bool {
    let last = |name: &str| name.rsplit(' ').next().unwrap_or_default().to_lowercase();
    last(a) == last(b)
}

/// Returns a word in its listed form.
pub(super) fn listed_form(lexicon: &Lexicon, word: &str) -> String {
    if lexicon.language == Language::Ko {
        lexicon.listed_form(claim::strip_particle(lexicon, word)).to_owned()
    } else {
        let base = lexicon.listed_form(word.trim_end_matches("'s"));
        // "owes" answers "owe".
        let is_plural = base.len() > 3 && base.ends_with('s') && !base.ends_with("ss") && !lexicon.knows_word(base);
        base.strip_suffix('s').filter(|_| is_plural).unwrap_or(base).to_owned()
    }
}
