//! The WebSocket of the terminal client.

use anyhow::{Context, bail};
use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream,
    tungstenite::{Error, Message, client::IntoClientRequest, http::HeaderValue},
};

pub(super) struct ChatSocket(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl ChatSocket {
    pub(super) async fn open_socket(base: &str, token: &str) -> anyhow::Result<Self> {
        let url = format!("{}/v1/ws", base.replacen("http", "ws", 1));
        let mut request = url
            .as_str()
            .into_client_request()
            .with_context(|| format!("{url} is not a URL"))?;
        let bearer =
            HeaderValue::from_str(&format!("Bearer {token}")).context("the token has characters no token has")?;
        request.headers_mut().insert("Authorization", bearer);
        match tokio_tungstenite::connect_async(request).await {
            Ok((stream, _)) => Ok(Self(stream)),
            Err(Error::Http(response)) => {
                let body = response.body().as_deref().unwrap_or_default();
                let problem: Value = serde_json::from_slice(body).unwrap_or_default();
                let hint = if response.status().as_u16() == 401 {
                    " (is this the same data folder, and so the same secret, as the server's?)"
                } else {
                    ""
                };
                bail!(
                    "the server refused the connection: {} {}{hint}",
                    response.status(),
                    problem["detail"].as_str().unwrap_or_default()
                )
            }
            Err(error) => Err(error).with_context(|| format!("cannot reach {url}; is the server running?")),
        }
    }

    pub(super) async fn send_event(&mut self, message: &Value) -> anyhow::Result<()> {
        self.0
            .send(Message::text(message.to_string()))
            .await
            .context("the connection to the server broke")
    }

    /// Returns the next event. The WebSocket library answers pings.
    pub(super) async fn next_event(&mut self) -> anyhow::Result<Value> {
        loop {
            match self.0.next().await {
                Some(Ok(Message::Text(text))) => {
                    return serde_json::from_str(&text).context("the server sent something that is not JSON");
                }
                Some(Ok(Message::Close(Some(frame)))) => {
                    bail!(
                        "the server closed the connection: {} {}",
                        u16::from(frame.code),
                        frame.reason
                    )
                }
                Some(Ok(Message::Close(None))) | None => bail!("the server closed the connection"),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error).context("the connection to the server broke"),
            }
        }
    }

    /// Sends a close frame. The session stays open.
    pub(super) async fn close_socket(&mut self) {
        // The server may already be gone.
        let _ = self.0.close(None).await;
    }
}
