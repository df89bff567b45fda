//! Embeds what a turn taught, before it is written.

use super::{
    learned::{FreshEpisode, FreshFact, LearnedFacts},
    pii::detect_pii,
};
use crate::{Services, jobs::JobError};
use colloquy_core::scope::TenantScope;
use colloquy_memory::{
    agreement,
    fact::{Importance, Statement},
    party,
    scoring::dot_product,
};
use colloquy_ports::llm::LlmError;

impl LearnedFacts {
    /// True if the embedder was away: something new has no vector.
    pub(super) fn lacks_vectors(&self) -> bool {
        let mut vectors = self.facts.iter().map(|fact| &fact.embedding);
        vectors.any(Vec::is_empty)
            || self
                .episode
                .as_ref()
                .is_some_and(|episode| episode.embedding.is_empty())
    }
}

/// Embeds statements and the text of an episode in one call. Of two statements that say the same, the first stays. While
/// the embedder is away, all stay, without vectors.
pub(super) async fn embed_learned(
    services: &Services,
    scope: &TenantScope,
    statements: Vec<Statement>,
    episode: Option<(String, Importance)>,
) -> Result<(Vec<FreshFact>, Option<FreshEpisode>), JobError> {
    let episode_text = episode.iter().map(|(text, _)| text.clone());
    let texts: Vec<String> = statements
        .iter()
        .map(Statement::embedded_text)
        .chain(episode_text)
        .collect();
    if texts.is_empty() {
        return Ok((Vec::new(), None));
    }
    let mut vectors = match services.embed_passages(scope, &texts).await {
        Err(error) if is_embedder_away(&error) => {
            tracing::warn!(%error, "facts are stored without vectors, and embedded when the embedder is back");
            vec![Vec::new(); texts.len()]
        }
        answer => answer?,
    };
    if vectors.len() != texts.len() {
        let message = format!("{} vectors came back for {} texts", vectors.len(), texts.len());
        return Err(LlmError::Broken(message).into());
    }
    let episode = episode.and_then(|(text, importance)| {
        let embedding = vectors.pop()?;
        Some(FreshEpisode {
            text,
            importance,
            embedding,
        })
    });
    let calibration = services.embedder.info().calibration;
    let mut fresh_facts: Vec<FreshFact> = Vec::new();
    for (statement, embedding) in statements.into_iter().zip(vectors) {
        let key = party::subject_key(&statement.subject);
        let is_repeated = |other: &FreshFact| {
            party::subject_key(&other.statement.subject) == key
                && calibration.similarity_of(dot_product(&other.embedding, &embedding)) >= f64::from(calibration.same)
                && agreement::statements_agree(&other.statement, &statement)
        };
        if fresh_facts.iter().any(is_repeated) {
            continue;
        }
        fresh_facts.push(FreshFact {
            id: services.ids.next_id(),
            pii: detect_pii(&statement),
            statement,
            embedding,
        });
    }
    Ok((fresh_facts, episode))
}

/// True if the embedder gives no vectors for now. A limit of requests or of a budget is none of this: the job waits.
pub(super) const fn is_embedder_away(error: &LlmError) -> bool {
    matches!(
        error,
        LlmError::Timeout | LlmError::Unavailable(_) | LlmError::Broken(_)
    )
}
