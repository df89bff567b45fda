//! The HTTP server on watched connections.

use std::{net::TcpListener, sync::Arc, time::Duration};

use actix_http::{HttpService, Protocol, error::DispatchError};
use actix_service::{IntoServiceFactory as _, ServiceFactoryExt as _, fn_service, map_config};
use actix_web::{
    App,
    dev::{AppConfig, Server},
    rt::net::TcpStream,
    web::ServiceConfig,
};

use super::{ConnectionRegistry, watched_stream::WatchedStream};

/// For how long a connection without a request is kept: longer than whoever is in front keeps its own (balancers 60 s as
/// a rule, the pool of another node less), or it would now and then send a request into one that is being closed. Where
/// connections are short, idle ones make room before.
pub const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// Listens with `workers` threads (0: one per core) and serves what `configure` adds to an application. Each request has
/// its [`super::TcpConnection`] as connection data (`HttpRequest::conn_data::<Arc<Connection>>`).
///
/// # Errors
/// If the listener cannot be used.
pub fn start_server(
    listener: TcpListener,
    workers: usize,
    connections: &ConnectionRegistry,
    configure: impl Fn(&mut ServiceConfig) + Clone + Send + 'static,
) -> std::io::Result<Server> {
    let limits = connections.table.limits;
    let mut builder = Server::build()
        // Connections are counted here: one that the accepting thread leaves in the backlog could not be told.
        .max_concurrent_connections(limits.max_open + 3 * limits.reserve)
        // The order of a shutdown is `lifecycle`'s.
        .disable_signals()
        .shutdown_timeout(1);
    if workers > 0 {
        builder = builder.workers(workers);
    }
    let stopping = builder.graceful_shutdown_signal();
    let connections = connections.clone();
    let builder = builder.listen("http", listener, move || {
        let app = App::new().configure(configure.clone());
        let app = map_config(
            app.into_factory()
                .map_err(|error: actix_web::Error| error.error_response()),
            |()| AppConfig::default(),
        );
        let stopping = stopping.clone();
        let http = HttpService::build()
            .keep_alive(KEEP_ALIVE)
            .client_request_timeout(limits.head)
            .graceful_shutdown_signal(move || {
                let stopping = stopping.clone();
                async move { stopping.notified().await }
            })
            .on_connect_ext(|stream: &WatchedStream, data| {
                data.insert(Arc::clone(&stream.connection));
            })
            .finish(app);
        let connections = connections.clone();
        fn_service(move |stream: TcpStream| {
            let connections = connections.clone();
            async move {
                // A delta is a small packet: with Nagle's algorithm it would wait for the last one's acknowledgement,
                // up to 40 ms.
                stream.set_nodelay(true).map_err(DispatchError::Io)?;
                let address = stream.peer_addr().ok();
                let stream = WatchedStream::accept(stream, &connections).map_err(DispatchError::Io)?;
                Ok((stream, Protocol::Http1, address))
            }
        })
        .and_then(http)
    })?;
    Ok(builder.run())
}
