//! Recall (docs/algorithms.md#recall). The index proposes facts, the ledger confirms, and a pure function scores.

mod body_reading;
mod cache;
mod hit;
mod ledger_search;
mod line_owners;
mod names;
mod query;
mod ranking;
mod request;
mod retrieval;
mod search;
mod topic;

pub use self::{
    cache::{MemoryCache, StatePosition},
    search::{SearchHit, search_facts, shown_facts},
};
pub(super) use self::{
    hit::{RecallHit, admit_hits},
    request::{RecallClock, RecallRequest, RecallResult},
    retrieval::recall_facts,
};
pub(super) use body_reading::{MAX_TRACED, diversify_hits, is_same_statement, max_packable, near_duplicate_cosine};
#[cfg(test)]
pub(super) use body_reading::{NEAR_DUPLICATE_COSINE, is_enough};
pub(super) use cache::LatestWrites;
pub(super) use names::{merge_open_names, read_names};
pub(super) use query::SearchQuery;
pub(super) use search::body_of;
pub(super) use topic::{TopicRelevance, gate_for_turn};
