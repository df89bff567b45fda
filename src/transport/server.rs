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

/// How long a connection without a request stays open. Longer than the idle time of the client in front: usually 60 s
/// for load balancers, less for another node's pool. Otherwise the client would sometimes send a request into a closing
/// connection. If connections are scarce, idle connections close earlier to make room.
pub const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// Serves the routes of `configure` on `listener` with `workers` threads (0: one per core). Each request has its
/// [`super::TcpConnection`] as connection data (`HttpRequest::conn_data::<Arc<TcpConnection>>`).
///
/// # Errors
/// The listener cannot be used.
pub fn start_server(
    listener: TcpListener,
    workers: usize,
    connections: &ConnectionRegistry,
    configure: impl Fn(&mut ServiceConfig) + Clone + Send + 'static,
) -> std::io::Result<Server> {
    let limits = connections.table.limits;
    let mut builder = Server::build()
        // `ConnectionRegistry` counts connections: a connection that the accepting thread leaves in the backlog would
        // get no answer.
        .max_concurrent_connections(limits.max_open + 3 * limits.reserve)
        // `lifecycle` controls the order of a shutdown.
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
            // A client that closes its side has hung up: a streamed reply ends there.
            .h1_allow_half_closed(false)
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
                // A delta is a small packet. With Nagle's algorithm, it would wait up to 40 ms for the previous
                // packet's acknowledgement.
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
