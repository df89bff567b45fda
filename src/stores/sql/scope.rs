//! The rows open to an operation, and the data that an operation locks.

use colloquy_core::{
    ids::{DialogueId, NpcId, TenantId, TurnId, WorldId},
    scope::TenantScope,
};

/// The rows open to an operation. Every statement names its tenant; on Postgres, row-level security enforces the tenant
/// again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum RowScope<'a> {
    Tenant(&'a TenantId),
    /// The server's own work over all tenants.
    All,
}

impl<'a> From<&'a TenantId> for RowScope<'a> {
    fn from(tenant: &'a TenantId) -> Self {
        Self::Tenant(tenant)
    }
}

impl<'a> From<&'a TenantScope> for RowScope<'a> {
    fn from(scope: &'a TenantScope) -> Self {
        Self::Tenant(scope.tenant())
    }
}

/// Data that one writer at a time may read and then write. Callers take several locks in the order of the variants.
#[derive(Debug, Clone, Copy)]
#[allow(dead_code, reason = "SQLite has one writer and asks of none of them what it is")]
pub(in super::super) enum LedgerLock<'a> {
    /// The settings of the tenant.
    TenantSettings,
    /// The authored content of a world: the world's row and the rows of its NPCs.
    Authored(&'a WorldId),
    /// All memories of a world, and which turns of the world stand.
    Memory(&'a WorldId),
    /// Memories of these NPCs, alone or shared. Other NPCs' memories may be written meanwhile.
    MemoryOf(&'a WorldId, &'a [NpcId]),
    /// The memories of a dialogue's listeners, as [`Self::MemoryOf`]. If factions remember the dialogue, common
    /// knowledge is locked too.
    MemoryIn(&'a WorldId, DialogueId),
    /// The dialogues of a world: blocks commits of turns and new dialogues.
    Dialogues(&'a WorldId),
    /// A new dialogue of a world. New dialogues do not block each other.
    NewDialogue(&'a WorldId),
    /// A turn, against dialogues that would join at the turn.
    Turn(TurnId),
    /// The summaries of a dialogue.
    Summaries(DialogueId),
    /// The curation passes of a dialogue.
    Curation(DialogueId),
    /// The order of a world's state changes: a reader of a change has seen all earlier changes.
    State(&'a WorldId),
}
