//! A model controlled by the line, and an embedder that counts letters.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use colloquy::{
    ids::TenantId,
    memory::{calibration::Calibration, turn::Usage},
    ports::{
        Page, PageRequest, StoreResult,
        embedder::{EmbedAs, Embedder, EmbedderInfo},
        ledger::{
            audit::Edit,
            tenants::{Tenant, TenantChange, TenantEditOutcome, TenantStore},
            usage::TenantBudget,
        },
        llm::{Chunk, Completion, Llm, LlmError, LlmRequest, Task},
        peers::{Notice, Peers},
    },
};
use futures_util::{StreamExt, stream, stream::BoxStream};
use parking_lot::Mutex;

/// Streams [`REPLY`] in pieces. For a line with `STALL`, the stream stops after the first piece for ever. A line with
/// `REFUSE` is refused. Extractions have no facts. The extraction of a turn with `DULL` is refused, and with `OUTAGE`
/// nobody answers.
pub struct FakeLlm;

pub const PIECES: [&str; 3] = ["Well 😀, ", "hello there, ", "traveller."];
pub const REPLY: &str = "Well 😀, hello there, traveller.";

const USAGE: Usage = Usage {
    prompt_tokens: 10,
    cached_tokens: 0,
    completion_tokens: 5,
};

fn last_line(request: &LlmRequest) -> &str {
    request.messages.last().map_or("", |message| &message.content)
}

#[async_trait]
impl Llm for FakeLlm {
    async fn complete_chat(&self, request: &LlmRequest) -> Result<Completion, LlmError> {
        if request.task == Task::Extraction && last_line(request).contains("DULL") {
            return Err(LlmError::Refused("too dull".into()));
        }
        if request.task == Task::Extraction && last_line(request).contains("OUTAGE") {
            return Err(LlmError::Unavailable("nobody answers".into()));
        }
        let text = match request.task {
            Task::Intent => "memory".to_owned(),
            Task::Reply => REPLY.to_owned(),
            _ => r#"{"facts":[]}"#.to_owned(),
        };
        Ok(Completion {
            text,
            usage: USAGE,
            model: "fake".into(),
            at_cap: false,
            tool_calls: Vec::new(),
        })
    }
    async fn stream_chat(&self, request: &LlmRequest) -> Result<BoxStream<'static, Result<Chunk, LlmError>>, LlmError> {
        let line = last_line(request);
        if line.contains("REFUSE") {
            return Err(LlmError::Refused("secret of the endpoint".into()));
        }
        if line.contains("STALL") {
            let first = stream::iter([Ok(Chunk::Text(PIECES[0].to_owned()))]);
            return Ok(first.chain(stream::pending()).boxed());
        }
        let pieces = PIECES.map(|piece| Ok(Chunk::Text(piece.to_owned())));
        Ok(stream::iter(pieces.into_iter().chain([Ok(Chunk::Usage(USAGE))])).boxed())
    }
    fn model(&self) -> &'static str {
        "fake"
    }
}

/// Streams replies with a running number, so that no two replies are the same. Other tasks are those of [`FakeLlm`].
#[derive(Default)]
pub struct NumberedLlm {
    replies: AtomicU32,
    pieces_before_stall: Mutex<Option<usize>>,
}

impl NumberedLlm {
    /// The next streamed reply comes whole, also after a stall that no stream has met.
    pub fn answer_next_stream(&self) {
        *self.pieces_before_stall.lock() = None;
    }
    /// The next stream stops for ever after so many of its three pieces. The first two have 37 characters or more.
    pub fn stall_next_stream(&self, pieces: usize) {
        *self.pieces_before_stall.lock() = Some(pieces);
    }
    fn next_pieces(&self) -> [String; 3] {
        let number = self.replies.fetch_add(1, Ordering::Relaxed) + 1;
        [
            format!("Answer {number} 😀, "),
            "said slowly by the fire, ".to_owned(),
            "traveller.".to_owned(),
        ]
    }
}

#[async_trait]
impl Llm for NumberedLlm {
    async fn complete_chat(&self, request: &LlmRequest) -> Result<Completion, LlmError> {
        if request.task != Task::Reply {
            return FakeLlm.complete_chat(request).await;
        }
        Ok(Completion {
            text: self.next_pieces().concat(),
            usage: USAGE,
            model: "fake".into(),
            at_cap: false,
            tool_calls: Vec::new(),
        })
    }
    async fn stream_chat(&self, _: &LlmRequest) -> Result<BoxStream<'static, Result<Chunk, LlmError>>, LlmError> {
        let stall = self.pieces_before_stall.lock().take();
        let pieces = self.next_pieces().into_iter().map(|piece| Ok(Chunk::Text(piece)));
        Ok(match stall {
            Some(count) => stream::iter(pieces.take(count)).chain(stream::pending()).boxed(),
            None => stream::iter(pieces.chain([Ok(Chunk::Usage(USAGE))])).boxed(),
        })
    }
    fn model(&self) -> &'static str {
        "fake"
    }
}

/// Counts letters, one dimension per letter.
pub struct FakeEmbedder(EmbedderInfo);

impl FakeEmbedder {
    pub fn new() -> Self {
        Self(EmbedderInfo {
            model: "letters".into(),
            dimensions: 27,
            calibration: Calibration::IDENTITY,
            offline: true,
        })
    }
}

#[async_trait]
impl Embedder for FakeEmbedder {
    async fn embed_texts(&self, _: EmbedAs, texts: &[String]) -> Result<Vec<Vec<f32>>, LlmError> {
        Ok(texts
            .iter()
            .map(|text| {
                let mut counts = vec![0.1_f32; 27];
                for byte in text.bytes().map(|byte| byte.to_ascii_lowercase()) {
                    let slot = if byte.is_ascii_lowercase() {
                        usize::from(byte - b'a')
                    } else {
                        26
                    };
                    counts[slot] += 1.0;
                }
                let norm = counts.iter().map(|x| x * x).sum::<f32>().sqrt();
                counts.into_iter().map(|x| x / norm).collect()
            })
            .collect())
    }
    fn info(&self) -> &EmbedderInfo {
        &self.0
    }
}

/// The ledger's tenants. A look-up of the tenant `panic` panics like a defect.
pub struct FakeTenants(pub Arc<dyn TenantStore>);

#[async_trait]
impl TenantStore for FakeTenants {
    async fn ensure_tenant(&self, tenant: &Tenant) -> StoreResult<bool> {
        self.0.ensure_tenant(tenant).await
    }
    async fn load_tenant(&self, id: &TenantId) -> StoreResult<Option<Tenant>> {
        assert_ne!(id.as_str(), "panic", "a test asked for it");
        self.0.load_tenant(id).await
    }
    async fn create_tenant(&self, tenant: &Tenant, edit: &Edit) -> StoreResult<bool> {
        self.0.create_tenant(tenant, edit).await
    }
    async fn change_tenant(
        &self,
        id: &TenantId,
        change: &TenantChange,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<TenantEditOutcome> {
        self.0.change_tenant(id, change, if_version, edit).await
    }
    async fn list_tenants(&self, page: &PageRequest) -> StoreResult<Page<Tenant>> {
        self.0.list_tenants(page).await
    }
    async fn list_all(&self) -> StoreResult<Vec<Tenant>> {
        self.0.list_all().await
    }
    async fn list_disabled(&self) -> StoreResult<Vec<TenantId>> {
        self.0.list_disabled().await
    }
    async fn list_tenant_budgets(&self) -> StoreResult<Vec<(TenantId, TenantBudget)>> {
        self.0.list_tenant_budgets().await
    }
}

/// No other nodes.
pub struct NoPeers;

#[async_trait]
impl Peers for NoPeers {
    async fn notify_peers(&self, _: &Notice) -> StoreResult<()> {
        Ok(())
    }
}

/// The maximum wait for an event that should come at once.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn llm() -> Arc<dyn Llm> {
    Arc::new(FakeLlm)
}
