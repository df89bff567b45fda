//! An NPC in use on the node: its authored rows, read once for all sessions.

use std::{sync::Arc, time::Duration};

use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, WrapFuture};
use tokio::sync::oneshot;

use super::{
    DialogueError,
    authored_npc::{AuthoredNpc, NpcCell, NpcKey},
    mailbox::mailbox,
    metrics::ActorKind,
    node::Node,
};

/// Reads the NPC and its world, or returns the cached rows.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct FetchAuthored {
    pub reply: oneshot::Sender<Result<AuthoredNpc, DialogueError>>,
}

/// How long rows are used without a new look at the ledger. Edits reach a node at once, unless a notice was lost.
const LONGEST_USE: Duration = Duration::from_hours(1);

pub(super) struct NpcActor {
    node: Arc<Node>,
    key: NpcKey,
    generation: u64,
    cell: Arc<NpcCell>,
    /// Callers that wait for the rows being read.
    fetching: Vec<oneshot::Sender<Result<AuthoredNpc, DialogueError>>>,
    last_used_at: std::time::Instant,
}

impl NpcActor {
    pub fn new(node: Arc<Node>, key: NpcKey, generation: u64, cell: Arc<NpcCell>) -> Self {
        let last_used_at = node.ports.clock.monotonic_now();
        Self {
            node,
            key,
            generation,
            cell,
            fetching: Vec::new(),
            last_used_at,
        }
    }

    fn fetch_rows(&mut self, ctx: &mut Context<Self>) {
        let (ports, (scope, world, npc)) = (self.node.ports.clone(), self.key.clone());
        let edits = self.cell.edit_count();
        let reading = async move {
            let authored = &ports.ledger.authored;
            let (found_world, found_npc, directives) = tokio::try_join!(
                authored.load_world(&scope, &world),
                authored.load_npc(&scope, &world, &npc),
                ports.ledger.directives.load_all_directives(&scope, &world)
            )?;
            let world = found_world.ok_or(DialogueError::NoWorld(world))?;
            let npc = found_npc.ok_or(DialogueError::NoNpc(npc))?;
            Ok(AuthoredNpc {
                world: Arc::new(world).for_npc(&npc),
                npc: Arc::new(npc),
                directives: directives.into(),
            })
        };
        ctx.spawn(
            reading
                .into_actor(self)
                .map(move |rows: Result<AuthoredNpc, DialogueError>, npc, ctx| {
                    if let Ok(rows) = &rows {
                        if !npc.cell.store_if_current(rows.clone(), edits) {
                            return npc.fetch_rows(ctx);
                        }
                        ctx.run_later(LONGEST_USE, |npc, _| npc.cell.clear_rows());
                    }
                    let unknown = matches!(rows, Err(DialogueError::NoWorld(_) | DialogueError::NoNpc(_)));
                    if unknown {
                        // Names without an authored NPC would otherwise fill the memory until idle.
                        if let Some(actors) = npc.node.actors() {
                            actors.remove_unknown_npc(&npc.key, npc.generation);
                        }
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

    /// Leaves the directory, unless a session uses the NPC. `true`: left.
    fn leave_directory(&self) -> bool {
        let actors = self.node.actors();
        actors.is_none_or(|actors| actors.remove_npc_if_unused(&self.key, self.generation))
    }

    fn stop_when_idle(&mut self, ctx: &mut Context<Self>) {
        let idle = Duration::from_secs(self.node.settings.idle_s);
        let rested = self
            .node
            .ports
            .clock
            .monotonic_now()
            .saturating_duration_since(self.last_used_at)
            >= idle;
        if rested && self.fetching.is_empty() && self.leave_directory() {
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
        self.last_used_at = self.node.ports.clock.monotonic_now();
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
