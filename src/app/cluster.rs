//! Membership of this server in a cluster, if configured.

use std::{net::TcpListener, sync::Arc, time::Duration};

use actix_web::{App, HttpServer, web};
use anyhow::Context as _;

use super::stores::FactIndexes;
use crate::config::{BufferSection, Config};
use colloquy_actors::membership::{Membership, Neighbours};
use colloquy_core::ids::NodeId;
use colloquy_dialogue::Services;
use colloquy_http::nodes::{NodeClient, configure_own_url};
use colloquy_ports::{ledger::nodes::LiveNode, owners::OwnerCache, peers::LocalIndex};
use colloquy_stores::in_process::shared_index::{LocalFactIndex, SharedFactIndex};

/// The services that the actors and routes of a cluster node need.
pub(super) struct ClusterNode {
    pub membership: Membership,
    pub nodes: NodeClient,
}

/// The URL for other nodes. The port 0 stands for the port of the listener.
fn reachable_url(url: &str, listener: &TcpListener) -> anyhow::Result<String> {
    Ok(match url.strip_suffix(":0") {
        Some(host) => format!("{host}:{}", listener.local_addr()?.port()),
        None => url.to_owned(),
    })
}

/// Joins the cluster. Returns `None` if this server runs alone. From now on, changes to this node's part of the index
/// are sent to the other nodes.
///
/// # Errors
/// If the ledger or the HTTP client cannot be used, or this node cannot be reached at `node.url`.
pub(super) async fn join_cluster(
    config: &Config,
    services: &mut Services,
    indexes: &FactIndexes,
    listener: &TcpListener,
) -> anyhow::Result<Option<ClusterNode>> {
    let section = &config.node;
    let (Some(url), Some(secret)) = (&section.url, &section.secret) else {
        return Ok(None);
    };
    let url = reachable_url(url, listener)?;
    // A restarted process is a new node. The dialogues and jobs of its predecessor are taken over as from any dead
    // node.
    let own_id: NodeId = services.ids.next_id();
    let neighbours = Arc::new(Neighbours::new(
        own_id,
        services.ledger.nodes.clone(),
        services.clock.clone(),
    ));
    let owners = open_owner_cache(&config.buffer)?;
    let local_index = indexes.local_index.clone();
    let own_index = Arc::new(LocalFactIndex::new(local_index.clone(), services.ledger.facts.clone()));
    let nodes = NodeClient::new(
        neighbours.clone(),
        owners.clone(),
        Some(own_index.clone() as Arc<dyn LocalIndex>),
        secret,
        section.previous_secret.as_ref(),
        services.clock.clone(),
        url.clone(),
    )
    .context("cannot make the HTTP client for other nodes")?;
    let peers = Arc::new(nodes.clone());
    services.index = indexes.with_held_index(Arc::new(SharedFactIndex::new(own_index, peers.clone())));
    let lease = Duration::from_millis(section.lease_ms);
    neighbours.compare_clocks(lease).await?;
    check_own_url(&nodes, listener, &url).await?;
    let now = services.clock.now();
    let row = LiveNode {
        id: own_id,
        url: url.clone(),
        until: now + lease,
    };
    services.ledger.nodes.register_node(&row, now).await?;
    tracing::info!(node = %own_id, %url, "joined the cluster");
    Ok(Some(ClusterNode {
        membership: Membership {
            neighbours,
            url,
            heartbeat: Duration::from_millis(section.heartbeat_ms),
            lease,
            peers,
            owners,
            index: Some(local_index),
        },
        nodes,
    }))
}

/// Checks that this node can be reached at its `url`. Meanwhile the `listener` serves no other requests.
async fn check_own_url(nodes: &NodeClient, listener: &TcpListener, url: &str) -> anyhow::Result<()> {
    let answering = web::Data::new(nodes.clone());
    let server = HttpServer::new(move || App::new().app_data(answering.clone()).configure(configure_own_url))
        .workers(1)
        .disable_signals()
        .listen(listener.try_clone()?)?
        .run();
    let handle = server.handle();
    let serving = actix_web::rt::spawn(server);
    let reached = nodes.verify_own_url().await;
    handle.stop(false).await;
    serving.await??;
    reached.with_context(|| {
        format!(
            "this node is not reached at its node.url ({url}): set it to where the others reach this very node, not a \
             balancer or another node"
        )
    })
}

/// The owners of dialogues, cached in the Redis of `buffer.url`. `None`: there is no Redis, and the ledger is asked.
#[cfg_attr(
    not(feature = "redis"),
    expect(
        unused_variables,
        clippy::unnecessary_wraps,
        reason = "without Redis there is no cache"
    )
)]
fn open_owner_cache(section: &BufferSection) -> anyhow::Result<Option<Arc<dyn OwnerCache>>> {
    #[cfg(feature = "redis")]
    if !section.is_in_process() {
        return super::redis::open_owner_cache(section).map(Some);
    }
    Ok(None)
}
