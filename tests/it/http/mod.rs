//! The HTTP surface over real sockets: a real ledger, real actors, and a model, an embedder and an
//! index that tests hold in their hands.

#![allow(clippy::unwrap_used)]

mod attacks;
mod budgets;
mod docs;
mod fakes;
mod harness;
mod interrupters;
mod requests;
mod resources;
mod revocations;
mod roles;
mod saves;
mod scenarios;
mod sessions;
mod socket;
mod token_bounds;
mod wire_edge_cases;
