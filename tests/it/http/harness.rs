//! A server on a free port, a REST client and a socket client.

use std::{
    net::{SocketAddr, TcpListener},
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use actix_web::web;
use colloquy::{
    actors::{
        ActorSettings,
        handle::Dialogues,
        membership::{Membership, Neighbours},
    },
    adapters::{
        in_process::{
            buffers::{BufferLimits, InProcessBuffers},
            fact_index::{FactIndexOptions, InProcessFactIndex},
        },
        sqlite::{self, SqliteOptions},
    },
    dialogue::{
        Services,
        models::{ModelLimits, ModelMetrics, ModelPrice, ModelRouter, RouteTable},
        prompt::Templates,
        recall::MemoryCache,
        settings::DialogueSettings,
    },
    http::{
        self, AppState, HttpSettings, LedgerProbe, McpSettings, Readiness,
        metrics::HttpMetrics,
        socket::player_socket::{SocketHub, SocketSettings},
    },
    ports::{
        clock::{Clock, IdSource, ManualClock, SystemClock},
        disabled_tenants::DisabledTenants,
        embedder::Embedder,
        ledger::tenants::Tenant,
        llm::Llm,
    },
    tenancy::{
        Role,
        auth::{AuthSettings, Authenticator, TokenClaims},
        limits::{LimitSettings, RateLimits},
    },
    transport::{self, ConnectionLimits, ConnectionRegistry},
    webhooks::{WebhookSettings, Webhooks},
};
use futures_util::{SinkExt, StreamExt};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use tokio::{net::TcpStream, sync::oneshot};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream,
    tungstenite::{self, Message, client::IntoClientRequest, handshake::client::Request},
};

use super::fakes::{FakeEmbedder, FakeTenants, NoPeers, PATIENCE, llm};
use super::openai_schema;

/// The options that a test may change.
#[derive(Clone)]
pub struct HttpTestOptions {
    pub limits: LimitSettings,
    pub auth: AuthSettings,
    pub http: HttpSettings,
    pub chat: http::ChatSettings,
    pub mcp: McpSettings,
    pub sockets: SocketSettings,
    pub connections: ConnectionLimits,
    pub prices: Vec<ModelPrice>,
    /// True: the server is a node of several, and its clock is not the ledger's.
    pub is_clock_off: bool,
    pub webhooks: WebhookSettings,
    /// True: replies are asked for state blocks.
    pub ask_for_state: bool,
    /// The model for all tasks.
    pub llm: Arc<dyn Llm>,
    pub embedder: Arc<dyn Embedder>,
    pub clock: Arc<dyn Clock>,
    pub actors: ActorSettings,
    /// Changes the settings of dialogues.
    pub tune: fn(&mut DialogueSettings),
}

impl Default for HttpTestOptions {
    fn default() -> Self {
        Self {
            prices: Vec::new(),
            is_clock_off: false,
            ask_for_state: false,
            llm: llm(),
            embedder: Arc::new(FakeEmbedder::new()),
            clock: Arc::new(SystemClock),
            actors: ActorSettings {
                arbiters: 1,
                ..ActorSettings::default()
            },
            tune: |_| (),
            webhooks: colloquy::config::Config::embedded_defaults().webhooks,
            limits: LimitSettings {
                tenant_requests_per_s: 0,
                player_requests_per_s: 0,
                player_sockets: 0,
                player_turns_per_min: 0,
                player_cuts_per_min: 0,
                player_sessions_per_min: 0,
                socket_messages_per_s: 0,
                socket_strikes: 3,
                player_in_flight: 0,
                address_in_flight: 0,
                imports: 0,
            },
            auth: AuthSettings {
                hs256_secret: Some("a secret that only these tests know of".to_owned().into()),
                hs256_previous_secret: None,
                public_key_file: None,
                public_key_kid: None,
                jwks_file: None,
                issuers: std::collections::BTreeMap::new(),
                audience: "colloquy".into(),
                leeway_s: 0,
                default_ttl_s: 3_600,
                max_ttl_s: 86_400,
                max_age_d: 3_650,
            },
            chat: http::ChatSettings {
                max_body_bytes: 200_000,
                ..http::ChatSettings::default()
            },
            http: HttpSettings {
                max_connections: 0,
                body_timeout_ms: 10_000,
                trusted_proxies: Vec::new(),
                max_body_bytes: 16_384,
                max_import_bytes: 65_536,
                docs: true,
                max_sessions_per_socket: 2,
            },
            mcp: colloquy::config::Config::embedded_defaults().mcp,
            sockets: colloquy::config::Config::embedded_defaults().socket,
            connections: ConnectionLimits::default(),
        }
    }
}

fn dialogue_settings(options: &HttpTestOptions) -> DialogueSettings {
    let mut settings = colloquy::config::Config::embedded_defaults().dialogue_settings();
    settings.prompt.ask_for_state = options.ask_for_state;
    settings.prompt.fixed.acquaintance_tokens = 150;
    settings.summaries.force_tokens = 6_000;
    settings.summaries.buffer_min_turns = 8;
    settings.curation.consolidate_every_d = 0;
    settings.jobs.concurrency = 8;
    settings.conversation.pause_ms = 0;
    settings.conversation.reading_ms_per_char = 0;
    settings
}

/// A running server, which stops when dropped.
pub struct HttpTestServer {
    pub address: SocketAddr,
    pub state: web::Data<AppState>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HttpTestServer {
    pub fn start() -> Self {
        Self::with(HttpTestOptions::default())
    }
    pub fn with(options: HttpTestOptions) -> Self {
        colloquy::adapters::openai::install_crypto();
        let (started, ready) = mpsc::sync_channel(1);
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            actix_web::rt::System::new().block_on(async move {
                let folder = tempfile::tempdir().unwrap();
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let address = listener.local_addr().unwrap();
                let state = web::Data::new(state(&options, folder.path()).await);
                let shared = state.clone();
                let connections = ConnectionRegistry::start_watching(options.connections, Arc::new(SystemClock));
                let server = transport::start_server(listener, 1, &connections, move |app| {
                    let chat = Arc::clone(&shared.chat);
                    app.app_data(shared.clone())
                        .configure(move |cfg| http::configure(cfg, &chat));
                })
                .unwrap();
                let handle = server.handle();
                let serving = actix_web::rt::spawn(server);
                started.send((address, state.clone())).unwrap();
                let _ = stopped.await;
                state.sockets.close_all(4503, "draining", Duration::from_secs(1)).await;
                state.sessions.drain_node(Duration::from_secs(1)).await;
                handle.stop(true).await;
                serving.await.unwrap().unwrap();
                state.sessions.stop_threads();
                state.services.ledger.maintenance.close_connections().await;
            });
        });
        let (address, state) = ready.recv_timeout(PATIENCE).expect("the server did not start");
        Self {
            address,
            state,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    pub fn token(&self, tenant: &str, role: Role, player: Option<&str>) -> String {
        self.token_for(tenant, role, player, None, Duration::from_mins(10))
    }
    pub fn token_for(
        &self,
        tenant: &str,
        role: Role,
        player: Option<&str>,
        world: Option<&str>,
        ttl: Duration,
    ) -> String {
        let claims = TokenClaims {
            sub: format!("{role:?}"),
            tid: tenant.parse().unwrap(),
            role,
            pid: player.map(|id| id.parse().unwrap()),
            wid: world.map(|id| id.parse().unwrap()),
        };
        self.state.auth.mint_token(&claims, ttl).unwrap().text
    }
    pub fn as_role(&self, role: Role) -> HttpTestClient {
        let player = (role == Role::Player).then_some("p7");
        self.client(self.token("acme", role, player))
    }
    pub fn client(&self, token: String) -> HttpTestClient {
        HttpTestClient {
            http: reqwest::Client::new(),
            base: format!("http://{}", self.address),
            token,
        }
    }
    /// Creates the world `vale` with the NPC `ergen`, and returns a backend's client.
    pub async fn start_demo_world(&self) -> HttpTestClient {
        let backend = self.as_role(Role::Backend);
        backend
            .put(
                "/v1/worlds/vale",
                &json!({"name": "Vale", "premise": "A quiet valley."}),
            )
            .await;
        let npc = json!({"name": "Ergen", "persona": {"description": "An old smith."}});
        backend.put("/v1/worlds/vale/npcs/ergen", &npc).await;
        backend
    }
    /// Returns a socket request with a bearer header, which a test may change.
    pub fn upgrade_request(&self, query: &str) -> Request {
        format!("ws://{}/v1/ws{query}", self.address)
            .into_client_request()
            .unwrap()
    }
    /// Returns a request for a connection of the Realtime API with a bearer header. `query` begins with a question mark.
    pub fn realtime_request(&self, token: &str, query: &str) -> Request {
        let url = format!("ws://{}/v1/realtime{query}", self.address);
        let mut request = url.into_client_request().unwrap();
        let bearer = format!("Bearer {token}").parse().unwrap();
        request.headers_mut().insert("authorization", bearer);
        request
    }
    pub async fn socket(&self, token: &str) -> HttpTestSocket {
        let mut request = self.upgrade_request("");
        let bearer = format!("Bearer {token}").parse().unwrap();
        request.headers_mut().insert("authorization", bearer);
        HttpTestSocket::open(request).await.expect("the socket was refused")
    }
}

impl Drop for HttpTestServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking(), "the server panicked");
        }
    }
}

async fn state(options: &HttpTestOptions, folder: &std::path::Path) -> AppState {
    let clock = options.clock.clone();
    let ids = Arc::new(IdSource::from_thread_rng(clock.clone()));
    let embedder = options.embedder.clone();
    let sqlite = sqlite::open_ledger(
        folder.join("ledger.db").to_str().unwrap(),
        SqliteOptions {
            embedding_model: embedder.info().model.clone(),
            ..SqliteOptions::default()
        },
        clock.clone(),
    )
    .await
    .unwrap();
    let mut settings = dialogue_settings(options);
    (options.tune)(&mut settings);
    let mut services = Services {
        settings: Arc::new(settings),
        ledger: sqlite.ledger(),
        buffers: Arc::new(InProcessBuffers::new(BufferLimits::default())),
        index: Arc::new(InProcessFactIndex::new(
            sqlite.point_source(),
            FactIndexOptions::default(),
        )),
        embedder,
        models: Arc::new(
            ModelRouter::with_metrics(
                RouteTable::with_single_model(&options.llm),
                ModelLimits::default(),
                ModelMetrics::new(0, &options.prices),
                clock.clone(),
            )
            .with_models_of_npcs(&["small".to_owned()]),
        ),
        prompts: Arc::new(Templates::load(None).unwrap()),
        memory_cache: Arc::new(MemoryCache::new(1_000)),
        reconcile_backoff: Arc::default(),
        disabled: DisabledTenants::default(),
        clock: clock.clone(),
        ids: ids.clone(),
    };
    for (id, enabled) in [("acme", true), ("rival", true), ("closed", false)] {
        let tenant = Tenant {
            id: id.parse().unwrap(),
            name: id.to_owned(),
            enabled,
            budget: None,
            created_at: clock.now(),
            version: 1,
        };
        services.ledger.tenants.ensure_tenant(&tenant).await.unwrap();
    }
    let registry = prometheus::Registry::new();
    let tenants = Arc::new(FakeTenants(services.ledger.tenants.clone()));
    let auth = Authenticator::new(options.auth.clone(), clock.clone(), tenants).unwrap();
    services.disabled = auth.disabled_tenants().clone();
    let readiness = Readiness::default();
    readiness.set(true);
    let actors = options.actors.clone();
    let sessions = if options.is_clock_off {
        Dialogues::start_in_cluster(services.clone(), actors, membership_with_clock_off(&services).await)
    } else {
        Dialogues::start(services.clone(), ids.next_id(), actors)
    };
    AppState {
        nodes: None,
        streams: http::open_streams::OpenStreams::default(),
        sessions,
        sockets: SocketHub::start(options.sockets.clone(), clock),
        services,
        auth: Arc::new(auth),
        limits: RateLimits::new(options.limits.clone(), options.connections.max_open),
        settings: Arc::new(options.http.clone()),
        chat: Arc::new(options.chat.clone()),
        threads: http::ChatThreads::default(),
        webhooks: Arc::new(Webhooks::new(options.webhooks.clone())),
        mcp: Arc::new(options.mcp.clone()),
        metrics: Arc::new(HttpMetrics::register(&registry).unwrap()),
        registry,
        readiness,
        ledger_probe: LedgerProbe::default(),
        metrics_here: true,
    }
}

/// Returns the place of a node among several whose clock is ten minutes ahead of the ledger's.
async fn membership_with_clock_off(services: &Services) -> Membership {
    let clock = ManualClock::starting_at(services.clock.now());
    clock.advance(Duration::from_mins(10));
    let neighbours = Neighbours::new(services.ids.next_id(), services.ledger.nodes.clone(), clock);
    let lease = Duration::from_secs(6);
    neighbours.compare_clocks(lease).await.unwrap();
    Membership {
        neighbours: Arc::new(neighbours),
        url: "http://127.0.0.1:1".to_owned(),
        heartbeat: Duration::from_mins(10),
        lease,
        peers: Arc::new(NoPeers),
        owners: None,
        index: None,
    }
}

/// The REST API with one token.
#[derive(Clone)]
pub struct HttpTestClient {
    http: reqwest::Client,
    base: String,
    pub token: String,
}

impl HttpTestClient {
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http
            .request(method, format!("{}{path}", self.base))
            .bearer_auth(&self.token)
            .timeout(PATIENCE)
    }
    pub fn anonymous(&self, method: Method, path: &str) -> RequestBuilder {
        self.http
            .request(method, format!("{}{path}", self.base))
            .timeout(PATIENCE)
    }
    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> (StatusCode, Value) {
        let mut request = self.request(method, path);
        if let Some(body) = body {
            request = request.json(body);
        }
        json_of(request.send().await.unwrap()).await
    }
    pub async fn get(&self, path: &str) -> Value {
        let (status, body) = self.call(Method::GET, path, None).await;
        assert_eq!(status, 200, "GET {path}: {body}");
        body
    }
    pub async fn post(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.call(Method::POST, path, Some(body)).await;
        assert!(status.is_success(), "POST {path}: {status} {answer}");
        answer
    }
    pub async fn put(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.call(Method::PUT, path, Some(body)).await;
        assert!(status.is_success(), "PUT {path}: {status} {answer}");
        answer
    }
    /// Returns the status and code of a failed request.
    pub async fn status_and_code(&self, method: Method, path: &str, body: Option<&Value>) -> (u16, String) {
        let (status, answer) = self.call(method, path, body).await;
        (status.as_u16(), answer["code"].as_str().unwrap_or_default().to_owned())
    }
    /// Creates a session with `ergen`.
    pub async fn session(&self, player: &str) -> Value {
        self.post(
            "/v1/sessions",
            &json!({"world_id": "vale", "npc_id": "ergen", "player_id": player}),
        )
        .await
    }
}

/// Returns the status and the body of an answer. Answers of the OpenAI API are checked by its published schema.
pub async fn json_of(response: Response) -> (StatusCode, Value) {
    let status = response.status();
    let path = response.url().path().to_owned();
    let body = response.json().await.unwrap_or(Value::Null);
    openai_schema::assert_valid_answer(&path, status.as_u16(), &body);
    (status, body)
}

/// A game client's socket.
pub struct HttpTestSocket {
    stream: WebSocketStream<MaybeTlsStream<TcpStream>>,
    pub protocol: Option<String>,
    /// True for a connection of the Realtime API, whose events are checked by the published schema.
    is_realtime: bool,
}

impl HttpTestSocket {
    pub async fn open(request: Request) -> Result<Self, StatusCode> {
        let is_realtime = request.uri().path() == "/v1/realtime";
        match tokio_tungstenite::connect_async(request).await {
            Ok((stream, response)) => Ok(Self {
                stream,
                is_realtime,
                protocol: response
                    .headers()
                    .get("sec-websocket-protocol")
                    .map(|value| value.to_str().unwrap().to_owned()),
            }),
            Err(tungstenite::Error::Http(response)) => Err(StatusCode::from_u16(response.status().as_u16()).unwrap()),
            Err(error) => panic!("cannot connect: {error}"),
        }
    }
    pub async fn send(&mut self, message: Value) {
        self.send_text(&message.to_string()).await;
    }
    pub async fn send_text(&mut self, text: &str) {
        self.stream.send(Message::text(text)).await.unwrap();
    }
    pub async fn send_binary(&mut self, bytes: &'static [u8]) {
        self.stream.send(Message::binary(bytes)).await.unwrap();
    }
    /// Returns the next event, or the code of the closed socket.
    pub async fn next(&mut self) -> Result<Value, u16> {
        let receive = async {
            loop {
                match self.stream.next().await {
                    Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(&text).unwrap()),
                    Some(Ok(Message::Close(frame))) => return Err(frame.map_or(1005, |frame| frame.code.into())),
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return Err(1006),
                }
            }
        };
        let received = tokio::time::timeout(PATIENCE, receive);
        let received = received.await.expect("the server said nothing");
        if let Ok(event) = &received
            && self.is_realtime
        {
            openai_schema::assert_valid_realtime_event(event);
        }
        received
    }
    /// Returns the next event of this type, skipping other events.
    pub async fn until_event(&mut self, kind: &str) -> Value {
        loop {
            let event = self
                .next()
                .await
                .unwrap_or_else(|code| panic!("closed with {code} before {kind}"));
            if event["type"] == kind {
                return event;
            }
            assert_ne!(event["type"], "error", "waiting for {kind}: {event}");
        }
    }
    /// Returns the code of the next error event, skipping other events.
    pub async fn error_code(&mut self) -> String {
        loop {
            let event = self
                .next()
                .await
                .unwrap_or_else(|code| panic!("closed with {code} before an error"));
            if event["type"] == "error" {
                return event["error"]["code"].as_str().unwrap().to_owned();
            }
        }
    }
    /// Returns the code with which the socket closes, skipping earlier events.
    pub async fn close_code(&mut self) -> u16 {
        loop {
            if let Err(code) = self.next().await {
                return code;
            }
        }
    }
    pub async fn session(&mut self) -> String {
        self.send(json!({"type": "session.create", "world_id": "vale", "npc_id": "ergen", "player_id": "p7"}))
            .await;
        self.until_event("session.created").await["session_id"]
            .as_str()
            .unwrap()
            .to_owned()
    }
}
