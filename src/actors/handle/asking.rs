//! Sends requests to the actors of dialogues, with permits.

use std::time::Duration;

use actix::Handler;
use tokio::sync::oneshot;

use super::{
    super::{
        DialogueError,
        dialogue::{actor::DialogueActor, kind::DialogueRequest},
        mailbox::{Mailbox, QueuedMessage},
        messages::ReplyHandle,
        node::send_message,
        registry::RegisteredKind,
    },
    Dialogues,
};
use colloquy_core::{ids::DialogueId, scope::TenantScope};

/// How often a request is sent to a fresh actor when the previous actor stopped before handling the request.
const MAX_ASK_ATTEMPTS: usize = 4;

impl Dialogues {
    /// Sends a request with a permit to a dialogue of the request's kind. Sends the request again to a fresh actor if the
    /// first actor stopped before handling the request.
    pub(in super::super) async fn send_request<R, T>(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        request: impl Fn(ReplyHandle<T>) -> R,
    ) -> Result<T, DialogueError>
    where
        R: DialogueRequest<Kind: RegisteredKind>,
        DialogueActor<R::Kind>: Mailbox + Handler<QueuedMessage<R>>,
    {
        let node = &self.node;
        if id.kind() != R::Kind::KIND {
            return Err(DialogueError::NotFound);
        }
        let key = (scope.clone(), id);
        let is_here = R::Kind::directory(node).find_live(&key).is_some();
        if let Some(node) = node.remote_owner(&key, is_here).await {
            return Err(DialogueError::NotOwner { node });
        }
        for _ in 0..MAX_ASK_ATTEMPTS {
            let permit = node.admission.acquire_share(scope.tenant())?;
            let (reply, answer) = oneshot::channel();
            let span = tracing::Span::current();
            let message = request(ReplyHandle { reply, permit, span });
            let addr = node.get_or_spawn_dialogue(&key, || message.new_kind()).await?;
            if send_message(node, &addr, message).await.is_err() {
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
}
