//! An NPC in use on this node: its authored rows, read once for all its sessions.

use std::{sync::Arc, time::Duration};

use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, WrapFuture};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{SessionError, registry::Node};
use crate::{
    ids::{NpcId, WorldId},
    memory::authored,
    tenancy::TenantScope,
};

pub(super) type NpcKey = (TenantScope, WorldId, NpcId);

/// An NPC, and its world with the NPC's settings over it.
#[derive(Debug, Clone)]
pub(super) struct Authored {
    pub world: Arc<authored::World>,
    pub npc: Arc<authored::Npc>,
}

/// Where sessions read the rows without asking the actor. Empty after an edit.
#[derive(Debug, Default)]
pub(super) struct NpcCell {
    inner: Mutex<CellInner>,
}

#[derive(Debug, Default)]
struct CellInner {
    rows: Option<Authored>,
    /// Rises with every `forget`, so that rows read before an edit are not kept after it.
    edits: u64,
}

impl NpcCell {
    pub fn get(&self) -> Option<Authored> {
        self.inner.lock().rows.clone()
    }
    pub fn forget(&self) {
        let mut inner = self.inner.lock();
        inner.rows = None;
        inner.edits += 1;
    }
    fn edits(&self) -> u64 {
        self.inner.lock().edits
    }
    /// `false`: they were edited since they were read.
    fn keep(&self, rows: Authored, edits: u64) -> bool {
        let mut inner = self.inner.lock();
        let current = inner.edits == edits;
        if current {
            inner.rows = Some(rows);
        }
        current
    }
}

/// Reads the NPC and its world, or hands out what is kept.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Fetch {
    pub reply: oneshot::Sender<Result<Authored, SessionError>>,
}

pub(super) struct Npc {
    node: Arc<Node>,
    key: NpcKey,
    generation: u64,
    cell: Arc<NpcCell>,
    /// Who waits for the rows that are being read.
    fetching: Vec<oneshot::Sender<Result<Authored, SessionError>>>,
    used: std::time::Instant,
}

impl Npc {
    pub fn new(node: Arc<Node>, key: NpcKey, generation: u64, cell: Arc<NpcCell>) -> Self {
        let used = node.ports.clock.instant();
        Self {
            node,
            key,
            generation,
            cell,
            fetching: Vec::new(),
            used,
        }
    }

    fn fetch(&mut self, ctx: &mut Context<Self>) {
        let (ports, (scope, world, npc)) = (self.node.ports.clone(), self.key.clone());
        let edits = self.cell.edits();
        let read = async move {
            let authored = &ports.ledger.authored;
            let (found_world, found_npc) =
                tokio::try_join!(authored.world(&scope, &world), authored.npc(&scope, &world, &npc))?;
            let world = found_world.ok_or(SessionError::NoWorld(world))?;
            let npc = found_npc.ok_or(SessionError::NoNpc(npc))?;
            Ok(Authored {
                world: Arc::new(world.for_npc(&npc)),
                npc: Arc::new(npc),
            })
        };
        ctx.spawn(
            read.into_actor(self)
                .map(move |rows: Result<Authored, SessionError>, npc, ctx| {
                    if let Ok(rows) = &rows
                        && !npc.cell.keep(rows.clone(), edits)
                    {
                        return npc.fetch(ctx);
                    }
                    let unknown = matches!(rows, Err(SessionError::NoWorld(_) | SessionError::NoNpc(_)));
                    if unknown {
                        // Names that nobody wrote would otherwise fill the memory until they are idle.
                        npc.node.npc_unknown(&npc.key, npc.generation);
                    }
                    for reply in npc.fetching.drain(..) {
                        // Whoever asked may have gone away.
                        let _ = reply.send(rows.clone());
                    }
                    if unknown {
                        ctx.stop();
                    }
                }),
        );
    }

    fn rest(&mut self, ctx: &mut Context<Self>) {
        let idle = Duration::from_secs(self.node.settings.idle_s);
        let rested = self.node.ports.clock.instant().saturating_duration_since(self.used) >= idle;
        if rested && self.fetching.is_empty() && self.node.npc_ends(&self.key, self.generation) {
            return ctx.stop();
        }
        ctx.run_later(idle.max(Duration::from_millis(20)), Self::rest);
    }
}

impl Actor for Npc {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.rest(ctx);
    }
}

impl Handler<Fetch> for Npc {
    type Result = ();

    fn handle(&mut self, Fetch { reply }: Fetch, ctx: &mut Self::Context) {
        self.used = self.node.ports.clock.instant();
        if let Some(rows) = self.cell.get() {
            // Whoever asked may have gone away.
            let _ = reply.send(Ok(rows));
            return;
        }
        self.fetching.push(reply);
        if self.fetching.len() == 1 {
            self.fetch(ctx);
        }
    }
}
