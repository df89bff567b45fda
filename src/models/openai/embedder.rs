//! The embedder of an OpenAI-compatible endpoint.

use std::{borrow::Cow, time::Duration};

use async_openai::{Client, config::OpenAIConfig};
use async_trait::async_trait;
use tokio::time::{Instant, sleep, timeout};

use super::{
    http::{Answers, CallFailure, Endpoint, HttpClient, InvalidEndpoint, classify_failure, redact_url},
    wire::{EmbeddingRequest, EmbeddingResponse},
};
use colloquy_memory::calibration::Calibration;
use colloquy_ports::{
    embedder::{EmbedAs, Embedder, EmbedderInfo},
    llm::LlmError,
};

/// The largest number of texts per request. Longer lists need several requests.
const BATCH_TEXTS: usize = 64;
/// The largest length of a vector. No known model has longer embeddings.
const MAX_DIMENSIONS: usize = 16_384;
/// The first pause between attempts to learn the vectors' length. Each pause is twice as long, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// How a request separates a query from a passage.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum InputType {
    /// No difference: the model is symmetric.
    #[default]
    None,
    /// A field `input_type` of the request: `query` or `passage`.
    Field,
    /// A prefix of the text, like `query: ` and `passage: `.
    Prefix { query: String, passage: String },
}

/// The options of one endpoint's embedding API.
#[derive(Debug, Clone)]
pub struct OpenAiEmbedderOptions {
    pub endpoint: Endpoint,
    pub model: String,
    pub input_type: InputType,
    /// The meaning of the model's cosines; `None`: the model's preset, if the server has a preset.
    pub calibration: Option<Calibration>,
    /// The time limit of one request with up to 64 texts.
    pub timeout: Duration,
    /// The length of the model's vectors, up to 16,384; 0: the endpoint is asked for the length.
    pub dimensions: usize,
    /// How long the endpoint is asked again for the length while it is away.
    pub patience: Duration,
}

impl OpenAiEmbedderOptions {
    /// Returns options for `model` at `endpoint`: symmetric, preset calibration, 10 s, and one question for the length
    /// of the vectors.
    #[must_use]
    pub fn new(endpoint: Endpoint, model: impl Into<String>) -> Self {
        Self {
            endpoint,
            model: model.into(),
            input_type: InputType::None,
            calibration: None,
            timeout: Duration::from_secs(10),
            dimensions: 0,
            patience: Duration::ZERO,
        }
    }
}

/// The reason why an embedder is unusable.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConnectError {
    #[error(transparent)]
    Endpoint(#[from] InvalidEndpoint),
    /// The first call failed.
    #[error("the embedding endpoint does not answer: {0}")]
    Call(#[from] LlmError),
    /// Without a calibration, the recall score of this model would have another meaning.
    #[error(
        "there is no calibration for the embedding model `{0}`: run `colloquy calibrate` and put its figures into the configuration"
    )]
    NoCalibration(String),
}

/// An embedding model behind an OpenAI-compatible endpoint.
pub struct OpenAiEmbedder {
    client: Client<OpenAIConfig>,
    options: OpenAiEmbedderOptions,
    info: EmbedderInfo,
}

impl OpenAiEmbedder {
    /// Connects, and asks the endpoint for one vector to learn the length, unless the options give the length. While
    /// the endpoint is away or overloaded, asks again for up to `patience`. A permanent refusal is an error at once.
    pub async fn connect(http: &HttpClient, options: OpenAiEmbedderOptions) -> Result<Self, ConnectError> {
        let calibration = options
            .calibration
            .or_else(|| Calibration::preset_for_model(&options.model))
            .ok_or_else(|| ConnectError::NoCalibration(options.model.clone()))?;
        Self::connect_with(http, options, calibration).await
    }

    /// As [`Self::connect`], for a model before the measurement of its calibration. Cosines stay unmapped until then.
    pub async fn connect_uncalibrated(http: &HttpClient, options: OpenAiEmbedderOptions) -> Result<Self, ConnectError> {
        Self::connect_with(http, options, Calibration::IDENTITY).await
    }

    async fn connect_with(
        http: &HttpClient,
        options: OpenAiEmbedderOptions,
        calibration: Calibration,
    ) -> Result<Self, ConnectError> {
        if options.model.trim().is_empty() {
            return Err(InvalidEndpoint::NoModel.into());
        }
        let mut embedder = Self {
            client: options.endpoint.build_client(http, Answers::Embeddings)?,
            info: EmbedderInfo {
                model: options.model.clone(),
                dimensions: options.dimensions,
                calibration,
                offline: false,
            },
            options,
        };
        if embedder.info.dimensions == 0 {
            embedder.info.dimensions = embedder.learn_dimensions().await?;
        }
        Ok(embedder)
    }

    /// Returns the length of one vector, from an endpoint that may not be up yet.
    async fn learn_dimensions(&self) -> Result<usize, LlmError> {
        let started = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let CallFailure { error, permanent } = match self.try_request(EmbedAs::Query, &["hello".to_owned()]).await {
                Ok(vectors) => return Ok(vectors.first().map_or(0, Vec::len)),
                Err(failure) => failure,
            };
            let remaining = self.options.patience.saturating_sub(started.elapsed());
            if permanent || remaining.is_zero() {
                return Err(error);
            }
            let requested_pause = match error {
                LlmError::RateLimited { retry_after } => retry_after,
                _ => None,
            };
            let wait = requested_pause
                .unwrap_or(pause)
                .clamp(FIRST_PAUSE, LONGEST_PAUSE)
                .min(remaining);
            tracing::warn!(
                %error,
                url = redact_url(&self.options.endpoint.base_url),
                again_in_ms = wait.as_millis(),
                "waiting for the embedder, to learn the length of its vectors; `embedder.dimensions` spares it"
            );
            sleep(wait).await;
            pause *= 2;
        }
    }

    /// Makes one request. Returns unit vectors in the order of `texts`, in spite of the order in the answer.
    async fn try_request(&self, kind: EmbedAs, texts: &[String]) -> Result<Vec<Vec<f32>>, CallFailure> {
        let input: Vec<Cow<'_, str>> = texts.iter().map(|text| self.with_prefix(kind, text)).collect();
        let request = EmbeddingRequest {
            model: &self.options.model,
            input: &input,
            encoding_format: "float",
            input_type: (self.options.input_type == InputType::Field).then_some(match kind {
                EmbedAs::Query => "query",
                EmbedAs::Passage => "passage",
            }),
        };
        let embeddings = self.client.embeddings();
        let response: EmbeddingResponse = timeout(self.options.timeout, embeddings.create_byot(request))
            .await
            .map_err(|_| CallFailure {
                error: LlmError::Timeout,
                permanent: false,
            })?
            .map_err(classify_failure)?;
        self.order_vectors(response, texts.len())
            .map_err(|error| CallFailure { error, permanent: true })
    }

    fn order_vectors(&self, response: EmbeddingResponse, texts: usize) -> Result<Vec<Vec<f32>>, LlmError> {
        let mut vectors = vec![Vec::new(); texts];
        if response.data.len() != texts {
            return Err(LlmError::Broken(format!(
                "{} vectors for {texts} texts",
                response.data.len()
            )));
        }
        for (position, row) in response.data.into_iter().enumerate() {
            let index = row.index.unwrap_or(position);
            let place: &mut Vec<f32> = vectors
                .get_mut(index)
                .filter(|place| place.is_empty())
                .ok_or_else(|| LlmError::Broken(format!("vector {index} is given twice or was not asked for")))?;
            *place = self.normalise_vector(row.embedding)?;
        }
        Ok(vectors)
    }

    fn with_prefix<'a>(&self, kind: EmbedAs, text: &'a str) -> Cow<'a, str> {
        match (&self.options.input_type, kind) {
            (InputType::Prefix { query, .. }, EmbedAs::Query) => format!("{query}{text}").into(),
            (InputType::Prefix { passage, .. }, EmbedAs::Passage) => format!("{passage}{text}").into(),
            _ => text.into(),
        }
    }

    /// Returns the vector at length 1.
    fn normalise_vector(&self, mut vector: Vec<f32>) -> Result<Vec<f32>, LlmError> {
        let expected = self.info.dimensions;
        if (expected != 0 && vector.len() != expected) || vector.is_empty() || vector.len() > MAX_DIMENSIONS {
            return Err(LlmError::Broken(format!(
                "a vector of {} where {expected} are usual",
                vector.len()
            )));
        }
        let norm = vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        if !norm.is_finite() || norm < 1e-9 {
            return Err(LlmError::Broken("a vector without a direction".into()));
        }
        #[expect(clippy::cast_possible_truncation, reason = "each is at most 1")]
        for x in &mut vector {
            *x = (f64::from(*x) / norm) as f32;
        }
        Ok(vector)
    }
}

#[async_trait]
impl Embedder for OpenAiEmbedder {
    async fn embed_texts(&self, kind: EmbedAs, texts: &[String]) -> Result<Vec<Vec<f32>>, LlmError> {
        let mut vectors = Vec::with_capacity(texts.len());
        for batch in texts.chunks(BATCH_TEXTS) {
            let of_batch = self.try_request(kind, batch).await;
            vectors.append(&mut of_batch.map_err(|failure| failure.error)?);
        }
        Ok(vectors)
    }
    fn info(&self) -> &EmbedderInfo {
        &self.info
    }
}
