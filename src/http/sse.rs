//! A turn as server-sent events: the same events as on the socket, until the turn is committed.

use std::sync::Arc;

use actix_web::{HttpResponse, http::header, web};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use tokio::sync::mpsc;

use super::{
    AppState,
    awaited_turn::completed_turn,
    errors::{Code, Problem},
    open_streams::ClosableStream,
    settings::STREAM_QUEUE,
};
use colloquy_actors::{
    AcceptedLine, DialogueError, Listener, ListenerGone, PublishedEvent, VisibleEvent, events_of_turn,
};
use colloquy_core::{
    ids::DialogueId,
    scope::{Principal, Role, TenantScope},
};
use colloquy_dialogue::{disclosure::EventViewer, events::EventBody};
use colloquy_memory::turn::{Turn, TurnStatus};

/// Puts a session's events into a bounded queue.
pub(super) struct SseListener {
    events: mpsc::Sender<VisibleEvent>,
    viewer: EventViewer,
}

impl SseListener {
    /// The learned facts come after the commit, when the response has ended: no optional events are delivered.
    pub(super) fn new(events: mpsc::Sender<VisibleEvent>, role: Role) -> Self {
        let viewer = EventViewer::of_role(role);
        Self { events, viewer }
    }
}

impl Listener for SseListener {
    fn viewer(&self) -> EventViewer {
        self.viewer
    }
    fn deliver_event(&self, event: &VisibleEvent) -> Result<(), ListenerGone> {
        self.events.try_send(event.clone()).map_err(|_| ListenerGone)
    }
    fn is_gone(&self) -> bool {
        self.events.is_closed()
    }
}

/// Detaches the listener when the client hangs up.
pub(super) struct ListenerGuard {
    state: web::Data<AppState>,
    scope: TenantScope,
    id: DialogueId,
    listener: u64,
}

impl ListenerGuard {
    pub(super) fn new(state: &web::Data<AppState>, scope: TenantScope, id: DialogueId, listener: u64) -> Self {
        Self {
            state: state.clone(),
            scope,
            id,
            listener,
        }
    }
}

impl Drop for ListenerGuard {
    fn drop(&mut self) {
        self.state.sessions.detach_listener(&self.scope, self.id, self.listener);
    }
}

/// The response as an open stream of its caller.
pub(super) struct SseStream {
    principal: Principal,
    shutdown: mpsc::Sender<Problem>,
}

impl SseStream {
    /// Returns the stream and the channel for its shutdown.
    pub(super) fn with_shutdown(principal: Principal) -> (Arc<dyn ClosableStream>, mpsc::Receiver<Problem>) {
        let (sender, receiver) = mpsc::channel(1);
        (
            Arc::new(Self {
                principal,
                shutdown: sender,
            }),
            receiver,
        )
    }
}

impl ClosableStream for SseStream {
    fn principal(&self) -> Principal {
        self.principal.clone()
    }
    fn close_with_reason(&self, problem: &Problem) {
        // One message is enough.
        let _ = self.shutdown.try_send(problem.clone());
    }
}

/// Streams the turn of a line. `say` speaks the line with the given mark. The listener is attached before the line is
/// said, so no event is missed.
pub async fn stream_turn<F>(
    state: &web::Data<AppState>,
    principal: &Principal,
    id: DialogueId,
    say: impl FnOnce(Arc<str>) -> F,
) -> Result<HttpResponse, Problem>
where
    F: Future<Output = Result<AcceptedLine, DialogueError>>,
{
    let (feed, events) = mpsc::channel(STREAM_QUEUE);
    let scope = principal.scope();
    let role = principal.role;
    let listener = SseListener::new(feed, role);
    let attached = state
        .sessions
        .attach_listener(&scope, id, Arc::new(listener), None)
        .await?;
    let attachment = ListenerGuard::new(state, scope, id, attached.listener);
    // Other lines of the session may be running; the mark identifies this line.
    let mark: Arc<str> = format!("sse_{:032x}", rand::random::<u128>()).into();
    let accepted = say(mark.clone()).await?;

    let (sender, mut lines) = mpsc::channel(16);
    let lines = stream::poll_fn(move |cx| lines.poll_recv(cx));
    let state = state.clone();
    let principal = principal.clone();
    actix_web::rt::spawn(async move {
        let (caller, mut shutdown) = SseStream::with_shutdown(principal);
        let place = state.streams.add_stream(&state.auth, &caller);
        let answer = async {
            match accepted {
                AcceptedLine::Repeated(turn) => replay_turn(&turn, role, &sender).await,
                AcceptedLine::Turn { done: turn_receiver } => {
                    relay_events(events, turn_receiver, &mark, role, &sender).await;
                }
            }
        };
        tokio::select! {
            biased;
            Some(problem) = shutdown.recv() => drop(sender.send(error_frame(&problem)).await),
            () = answer => {}
        }
        drop((attachment, place, caller));
    });
    Ok(HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "no-cache"))
        // Buffering proxies would hold the deltas back.
        .insert_header(("x-accel-buffering", "no"))
        .content_type("text/event-stream")
        .streaming(lines.map(Ok::<_, Problem>)))
}

type TurnReceiver = tokio::sync::oneshot::Receiver<Result<Arc<Turn>, Arc<colloquy_dialogue::turn::TurnError>>>;

/// Relays the events of the marked turn until the turn has ended or failed.
async fn relay_events(
    mut events: mpsc::Receiver<VisibleEvent>,
    mut turn_receiver: TurnReceiver,
    mark: &str,
    role: Role,
    sender: &mpsc::Sender<Bytes>,
) {
    let mut own_turn = None;
    let mut is_committed = false;
    loop {
        let event = tokio::select! {
            biased;
            event = events.recv() => event,
            // Events come first, so no event has reported a failure seen here.
            result = &mut turn_receiver, if !is_committed => match completed_turn(result) {
                Ok(_) if own_turn.is_some() => {
                    is_committed = true;
                    continue;
                }
                // A repeated line joined a running turn, whose events carry the mark of the first request.
                Ok(turn) => return replay_turn(&turn, role, sender).await,
                Err(problem) => {
                    let _ = sender.send(error_frame(&problem)).await;
                    return;
                }
            },
            () = sender.closed() => return,
        };
        let Some(event) = event else {
            let problem = Problem::new(
                Code::SlowConsumer,
                "the client does not keep up; read the turn from /turns",
            );
            let _ = sender.send(error_frame(&problem)).await;
            return;
        };
        let Some((kind, is_last)) = match_turn_event(&event, mark, &mut own_turn) else {
            continue;
        };
        if sender.send(event_frame(kind, event.text())).await.is_err() || is_last {
            return;
        }
    }
}

/// Sends the events of a committed turn, except the deltas.
async fn replay_turn(turn: &Turn, role: Role, sender: &mpsc::Sender<Bytes>) {
    for event in events_of_turn(turn, None) {
        let Some(kind) = event_name(&event.body) else { continue };
        let Some(visible_event) = VisibleEvent::of_event(event, &EventViewer::of_role(role)) else {
            continue;
        };
        if sender.send(event_frame(kind, visible_event.text())).await.is_err() {
            // The client is gone.
            return;
        }
    }
}

/// The names of a turn's events.
fn event_name(body: &EventBody) -> Option<&'static str> {
    Some(match body {
        EventBody::TurnStarted { .. } => "turn.started",
        EventBody::ReplyDelta { .. } => "reply.delta",
        EventBody::ReplyDone(_) => "reply.done",
        EventBody::TurnCommitted { .. } => "turn.committed",
        EventBody::Error { .. } => "error",
        EventBody::SessionClosed { .. } => "session.closed",
        _ => return None,
    })
}

/// Returns the event's name if the event belongs to the marked turn, and true if the event is the turn's last.
fn match_turn_event(event: &PublishedEvent, mark: &str, own_turn: &mut Option<u32>) -> Option<(&'static str, bool)> {
    let is_marked = event.re.as_deref() == Some(mark);
    let is_last = match &event.body {
        EventBody::TurnStarted { turn } if is_marked => {
            *own_turn = Some(*turn);
            false
        }
        EventBody::ReplyDelta { turn, .. } if *own_turn == Some(*turn) => false,
        EventBody::ReplyDone(reply) if *own_turn == Some(reply.turn) => reply.status == TurnStatus::Failed,
        EventBody::TurnCommitted { turn, .. } if *own_turn == Some(*turn) => true,
        EventBody::Error { turn, .. } if is_marked || (turn.is_some() && *turn == *own_turn) => true,
        EventBody::SessionClosed { .. } => true,
        _ => return None,
    };
    Some((event_name(&event.body)?, is_last))
}

fn event_frame(kind: &str, json: &str) -> Bytes {
    // JSON has no raw line breaks, so one `data` line is enough.
    Bytes::from(format!("event: {kind}\ndata: {json}\n\n"))
}

fn error_frame(problem: &Problem) -> Bytes {
    let text = super::socket::events::error_event(problem, None, None);
    event_frame("error", &text)
}
