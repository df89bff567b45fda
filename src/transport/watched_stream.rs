//! A TCP connection that the server can cut at any time.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use actix_web::rt::net::TcpStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{ConnectionRegistry, TcpConnection, network_of};

/// The bytes of one connection. Leaves the table on drop.
pub(super) struct WatchedStream {
    stream: TcpStream,
    connections: ConnectionRegistry,
    pub(super) connection: Arc<TcpConnection>,
}

impl WatchedStream {
    /// Finds a place for the connection.
    ///
    /// # Errors
    /// No place is free, or the connection is already closed.
    pub(super) fn accept(stream: TcpStream, connections: &ConnectionRegistry) -> io::Result<Self> {
        let address = network_of(stream.peer_addr()?.ip());
        Ok(Self {
            connection: connections.admit_connection(Some(address))?,
            connections: connections.clone(),
            stream,
        })
    }

    /// Registers the polling task. Fails if the connection was cut.
    fn register_waker(&self, cx: &Context<'_>) -> io::Result<()> {
        self.connection.task.register(cx.waker());
        if self.connection.is_cut.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }

    fn record_write_outcome<T>(&self, outcome: &Poll<io::Result<T>>) {
        match outcome {
            Poll::Pending => self.connection.on_write_blocked(),
            Poll::Ready(_) => self.connection.on_write_progress(),
        }
    }
}

impl Drop for WatchedStream {
    fn drop(&mut self) {
        self.connections.remove_connection(&self.connection);
    }
}

impl AsyncRead for WatchedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.register_waker(cx)?;
        let before = buffer.filled().len();
        let outcome = Pin::new(&mut this.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            this.connection.on_bytes_read();
        }
        outcome
    }
}

impl AsyncWrite for WatchedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.register_waker(cx)?;
        let outcome = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.record_write_outcome(&outcome);
        outcome
    }
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.register_waker(cx)?;
        let outcome = Pin::new(&mut this.stream).poll_write_vectored(cx, parts);
        this.record_write_outcome(&outcome);
        outcome
    }
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.register_waker(cx)?;
        Pin::new(&mut this.stream).poll_flush(cx)
    }
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
