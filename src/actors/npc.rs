//! An NPC in use on the node: its authored rows, read once for all sessions.

use std::{sync::Arc, time::Duration};

use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, WrapFuture};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{
    DialogueError,
    mailbox::{ActorKind, mailbox},
    registry::Node,
};
use crate::{
    ids::{NpcId, WorldId},
    memory::authored,
    tenancy::TenantScope,
};

pub(super) type NpcKey = (TenantScope, WorldId, NpcId);

/// An NPC, and its world with the NPC's settings applied.
#[derive(Debug, Clone)]
pub(super) struct AuthoredNpc {
    pub world: Arc<authored::World>,
    pub npc: Arc<authored::Npc>,
}

/// The rows for sessions, without a message to the actor. Empty after an edit.
#[derive(Debug, Default)]
pub(super) struct NpcCell {
    inner: Mutex<CellInner>,
}

#[derive(Debug, Default)]
struct CellInner {
    rows: Option<AuthoredNpc>,
    /// Rises with every [`NpcCell::clear_rows`], so that rows read before an edit are not stored after the edit.
    edits: u64,
}

impl NpcCell {
    pub fn get(&self) -> Option<AuthoredNpc> {
        self.inner.lock().rows.clone()
    }
    pub fn clear_rows(&self) {
        let mut inner = self.inner.lock();
        inner.rows = None;
        inner.edits += 1;
    }
    fn edit_count(&self) -> u64 {
        self.inner.lock().edits
    }
    /// Stores the rows. `false`: the rows were edited after the read.
    fn store_if_current(&self, rows: AuthoredNpc, edits: u64) -> bool {
        let mut inner = self.inner.lock();
        let current = inner.edits == edits;
        if current {
            inner.rows = Some(rows);
        }
        current
    }
}

/// Reads the NPC and its world, or returns the cached rows.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct FetchAuthored {
    pub reply: oneshot::Sender<Result<AuthoredNpc, DialogueError>>,
}

pub(super) struct NpcActor {
    node: Arc<Node>,
    key: NpcKey,
    generation: u64,
    cell: Arc<NpcCell>,
    /// Callers that wait for the rows being read.
    fetching: Vec<oneshot::Sender<Result<AuthoredNpc, DialogueError>>>,
    used: std::time::Instant,
}

impl NpcActor {
    pub fn new(node: Arc<Node>, key: NpcKey, generation: u64, cell: Arc<NpcCell>) -> Self {
        let used = node.ports.clock.monotonic_now();
        Self {
            node,
            key,
            generation,
            cell,
            fetching: Vec::new(),
            used,
        }
    }

    fn fetch_rows(&mut self, ctx: &mut Context<Self>) {
        let (ports, (scope, world, npc)) = (self.node.ports.clone(), self.key.clone());
        let edits = self.cell.edit_count();
        let read = async move {
            let authored = &ports.ledger.authored;
            let (found_world, found_npc) = tokio::try_join!(
                authored.load_world(&scope, &world),
                authored.load_npc(&scope, &world, &npc)
            )?;
            let world = found_world.ok_or(DialogueError::NoWorld(world))?;
            let npc = found_npc.ok_or(DialogueError::NoNpc(npc))?;
            Ok(AuthoredNpc {
                world: Arc::new(world.for_npc(&npc)),
                npc: Arc::new(npc),
            })
        };
        ctx.spawn(
            read.into_actor(self)
                .map(move |rows: Result<AuthoredNpc, DialogueError>, npc, ctx| {
                    if let Ok(rows) = &rows
                        && !npc.cell.store_if_current(rows.clone(), edits)
                    {
                        return npc.fetch_rows(ctx);
                    }
                    let unknown = matches!(rows, Err(DialogueError::NoWorld(_) | DialogueError::NoNpc(_)));
                    if unknown {
                        // Names without an authored NPC would otherwise fill the memory until idle.
                        npc.node.remove_unknown_npc(&npc.key, npc.generation);
                    }
                    for reply in npc.fetching.drain(..) {
                        // The caller may have gone away.
                        let _ = reply.send(rows.clone());
                    }
                    if unknown {
                        ctx.stop();
                    }
                }),
        );
    }

    fn stop_when_idle(&mut self, ctx: &mut Context<Self>) {
        let idle = Duration::from_secs(self.node.settings.idle_s);
        let rested = self
            .node
            .ports
            .clock
            .monotonic_now()
            .saturating_duration_since(self.used)
            >= idle;
        if rested && self.fetching.is_empty() && self.node.remove_npc_if_unused(&self.key, self.generation) {
            return ctx.stop();
        }
        ctx.run_later(idle.max(Duration::from_millis(20)), Self::stop_when_idle);
    }
}

impl Actor for NpcActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.stop_when_idle(ctx);
    }
}

impl Handler<FetchAuthored> for NpcActor {
    type Result = ();

    fn handle(&mut self, FetchAuthored { reply }: FetchAuthored, ctx: &mut Self::Context) {
        self.used = self.node.ports.clock.monotonic_now();
        if let Some(rows) = self.cell.get() {
            // The caller may have gone away.
            let _ = reply.send(Ok(rows));
            return;
        }
        self.fetching.push(reply);
        if self.fetching.len() == 1 {
            self.fetch_rows(ctx);
        }
    }
}

mailbox!(NpcActor, ActorKind::Npc, [FetchAuthored]);
