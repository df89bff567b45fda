//! A connection with a deadline for every statement.
//!
//! The server enforces `statement_timeout`. If the server's host or network vanishes silently, the socket waits as long
//! as the kernel does, which for an idle socket is for ever. Therefore every statement also has a client-side deadline.
//! A connection after a missed deadline still has an unread answer. The same holds if a reader stopped midway. In both
//! cases, the connection is not used again.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::{Stream, StreamExt as _, future::BoxFuture, stream::BoxStream};
use sqlx::{
    Connection as _, Either, Error, Execute, Executor, PgConnection, Postgres, SqlStr,
    postgres::{PgQueryResult, PgRow, PgStatement, PgTypeInfo},
};
use tokio::time::{Sleep, sleep, timeout};

/// A connection for the shared statements.
#[derive(Debug)]
pub(crate) struct Connection {
    inner: PgConnection,
    /// The time limit of a statement, including the network.
    limit: Duration,
    /// True if a statement has started and its answer was not read to the end.
    outstanding: bool,
}

impl Connection {
    pub(super) fn new(inner: PgConnection, limit: Duration) -> Self {
        Self {
            inner,
            limit,
            outstanding: false,
        }
    }

    /// Returns whether a statement's answer is still unread.
    pub(super) fn is_outstanding(&self) -> bool {
        self.outstanding
    }

    /// Returns whether the server answers within `limit`.
    pub(super) async fn is_answering(&mut self, limit: Duration) -> bool {
        matches!(timeout(limit, self.inner.ping()).await, Ok(Ok(())))
    }

    /// Closes the connection cleanly.
    pub(super) async fn close(self, limit: Duration) -> Result<(), Error> {
        timeout(limit, self.inner.close())
            .await
            .unwrap_or_else(|_| Err(timeout_error()))
    }
}

fn timeout_error() -> Error {
    Error::Io(io::Error::new(
        io::ErrorKind::TimedOut,
        "the database did not answer in time",
    ))
}

/// Waits for an answer until its deadline.
async fn with_deadline<T>(
    limit: Duration,
    outstanding: &mut bool,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    *outstanding = true;
    let answer = timeout(limit, answer).await.map_err(|_| timeout_error())?;
    *outstanding = false;
    answer
}

/// The results of a statement, until its deadline.
struct DeadlineStream<'e, T> {
    stream: BoxStream<'e, Result<T, Error>>,
    deadline: Pin<Box<Sleep>>,
    outstanding: &'e mut bool,
    has_ended: bool,
}

impl<T> Stream for DeadlineStream<'_, T> {
    type Item = Result<T, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        if let Poll::Ready(item) = self.stream.poll_next_unpin(context) {
            // After an error, only the end follows.
            *self.outstanding = matches!(item, Some(Ok(_)));
            return Poll::Ready(item);
        }
        *self.outstanding = true;
        ready!(self.deadline.as_mut().poll(context));
        self.has_ended = true;
        Poll::Ready(Some(Err(timeout_error())))
    }
}

impl<'c> Executor<'c> for &'c mut Connection {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Self::Database>,
    {
        Box::pin(DeadlineStream {
            stream: (&mut self.inner).fetch_many(query),
            deadline: Box::pin(sleep(self.limit)),
            outstanding: &mut self.outstanding,
            has_ended: false,
        })
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Self::Database>,
    {
        Box::pin(with_deadline(
            self.limit,
            &mut self.outstanding,
            (&mut self.inner).fetch_optional(query),
        ))
    }

    fn prepare_with<'e>(self, sql: SqlStr, parameters: &'e [PgTypeInfo]) -> BoxFuture<'e, Result<PgStatement, Error>>
    where
        'c: 'e,
    {
        Box::pin(with_deadline(
            self.limit,
            &mut self.outstanding,
            (&mut self.inner).prepare_with(sql, parameters),
        ))
    }
}
