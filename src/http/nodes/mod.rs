//! Traffic between the nodes of one cluster. A request that reached the wrong node goes to the right node, once.
//!
//! - `client`: requests to another node.
//! - `node_auth`, `node_keys`: the signed header by which a node trusts another node.
//! - `forward`: REST requests and their streams.
//! - `tunnel`: the messages of a socket.
//! - `notices`: announcements of one node to the others.
//! - `own_url`: the check that a node makes before it joins the cluster.
//!
//! All traffic uses the public API of the other node, with a forward token in place of the caller's token. Only
//! notices, tickets and the self-check have paths of their own. This module does not decide who owns a dialogue. The
//! first node handles each request, and forwards it only if the dialogue belongs to another node.

mod client;
mod forward;
mod node_auth;
mod node_keys;
mod notices;
mod own_url;
mod tunnel;

#[cfg(feature = "fuzzing")]
pub use self::node_keys::decode_forward_token;
pub use self::{
    client::NodeClient,
    node_keys::ForwardToken,
    own_url::{OwnUrlError, configure_own_url},
};
pub(super) use self::{
    forward::{DialogueOfRequest, RawBody, add_owner_header, dialogue_of, forward_if_remote},
    node_auth::{check_body_hash, forward_token},
    notices::{configure_internal_routes, redeem_any_ticket},
    tunnel::{Tunnel, TunnelEnd, Tunnels},
};
