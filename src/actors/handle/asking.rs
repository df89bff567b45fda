//! Sends requests to actors, with permits.

use std::time::Duration;

use actix::{Addr, Handler};
use tokio::sync::oneshot;

use super::super::{
    DialogueError,
    mailbox::{Mailbox, QueuedMessage},
    messages::ReplyHandle,
    node::send_message,
    registry::Registry,
};
use colloquy_core::ids::TenantId;

/// How often a request is sent to a fresh actor when the previous actor stopped before handling the request.
const MAX_ASK_ATTEMPTS: usize = 4;

/// Sends a request with a permit to a dialogue's actor. Sends the request again to a fresh actor if the first actor
/// stopped before handling the request.
pub(in super::super) async fn ask_actor<A, M, T>(
    node: &Registry,
    tenant: &TenantId,
    actor: impl AsyncFn() -> Result<Addr<A>, DialogueError>,
    request: impl Fn(ReplyHandle<T>) -> M,
) -> Result<T, DialogueError>
where
    A: Mailbox + Handler<QueuedMessage<M>>,
    M: Send + 'static,
{
    for _ in 0..MAX_ASK_ATTEMPTS {
        let permit = node.admission.acquire_share(tenant)?;
        let addr = actor().await?;
        let (reply, answer) = oneshot::channel();
        let span = tracing::Span::current();
        if send_message(node, &addr, request(ReplyHandle { reply, permit, span }))
            .await
            .is_err()
        {
            continue;
        }
        if let Ok(answer) = answer.await {
            return answer;
        }
    }
    Err(DialogueError::Overloaded {
        retry_after: Duration::from_secs(1),
    })
}
