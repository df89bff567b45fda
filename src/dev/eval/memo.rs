//! An embedder that caches the vectors of another embedder.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use async_trait::async_trait;
use parking_lot::Mutex;

use colloquy_ports::{
    embedder::{EmbedAs, Embedder, EmbedderInfo},
    llm::LlmError,
};

type CachedVectors = HashMap<(EmbedAs, String), Vec<f32>>;

/// Caches every vector, because a set is searched several times.
pub struct MemoEmbedder {
    inner: Arc<dyn Embedder>,
    vectors: Mutex<CachedVectors>,
}

impl MemoEmbedder {
    pub fn new(inner: Arc<dyn Embedder>) -> Self {
        Self {
            inner,
            vectors: Mutex::default(),
        }
    }
}

#[async_trait]
impl Embedder for MemoEmbedder {
    async fn embed_texts(&self, kind: EmbedAs, texts: &[String]) -> Result<Vec<Vec<f32>>, LlmError> {
        let missing: Vec<String> = {
            let vectors = self.vectors.lock();
            let missing = texts
                .iter()
                .filter(|text| !vectors.contains_key(&(kind, (*text).clone())));
            missing.collect::<BTreeSet<_>>().into_iter().cloned().collect()
        };
        if !missing.is_empty() {
            let embedded = self.inner.embed_texts(kind, &missing).await?;
            let keys = missing.into_iter().map(|text| (kind, text));
            self.vectors.lock().extend(keys.zip(embedded));
        }
        let vectors = self.vectors.lock();
        texts
            .iter()
            .map(|text| vectors.get(&(kind, text.clone())).cloned())
            .collect::<Option<_>>()
            .ok_or_else(|| LlmError::Broken("fewer vectors came back than texts were sent".to_owned()))
    }

    fn info(&self) -> &EmbedderInfo {
        self.inner.info()
    }
}
