//! A connection that does not wait for ever.
//!
//! `statement_timeout` is kept by the server. One that vanished without a word (its host, or the way to it, is gone)
//! keeps nothing, and a socket waits for it for as long as the kernel's own patience lasts, which for an idle one is for
//! ever. So every statement has a deadline on this side too. A connection that missed it has an answer outstanding
//! that nobody will read: it is not used again.

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

/// What the shared statements run on.
#[derive(Debug)]
pub(crate) struct Connection {
    inner: PgConnection,
    /// How long a statement may take, its way there and back included.
    limit: Duration,
    hung: bool,
}

impl Connection {
    pub(super) fn new(inner: PgConnection, limit: Duration) -> Self {
        Self {
            inner,
            limit,
            hung: false,
        }
    }

    /// Whether a statement was given up on.
    pub(super) fn is_hung(&self) -> bool {
        self.hung
    }

    /// Whether the server answers, within `limit`.
    pub(super) async fn answers(&mut self, limit: Duration) -> bool {
        matches!(timeout(limit, self.inner.ping()).await, Ok(Ok(())))
    }

    /// Says goodbye and closes it.
    pub(super) async fn close(self, limit: Duration) -> Result<(), Error> {
        timeout(limit, self.inner.close()).await.unwrap_or_else(|_| Err(late()))
    }
}

fn late() -> Error {
    Error::Io(io::Error::new(
        io::ErrorKind::TimedOut,
        "the database did not answer in time",
    ))
}

/// One answer, until its deadline.
async fn in_time<T>(
    limit: Duration,
    hung: &mut bool,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    timeout(limit, answer).await.unwrap_or_else(|_| {
        *hung = true;
        Err(late())
    })
}

/// What a statement brings, until its deadline.
struct Answer<'e, T> {
    stream: BoxStream<'e, Result<T, Error>>,
    deadline: Pin<Box<Sleep>>,
    hung: &'e mut bool,
    ended: bool,
}

impl<T> Stream for Answer<'_, T> {
    type Item = Result<T, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if let Poll::Ready(item) = self.stream.poll_next_unpin(context) {
            return Poll::Ready(item);
        }
        ready!(self.deadline.as_mut().poll(context));
        *self.hung = true;
        self.ended = true;
        Poll::Ready(Some(Err(late())))
    }
}

impl<'c> Executor<'c> for &'c mut Connection {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Self::Database>,
    {
        Box::pin(Answer {
            stream: (&mut self.inner).fetch_many(query),
            deadline: Box::pin(sleep(self.limit)),
            hung: &mut self.hung,
            ended: false,
        })
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Self::Database>,
    {
        Box::pin(in_time(
            self.limit,
            &mut self.hung,
            (&mut self.inner).fetch_optional(query),
        ))
    }

    fn prepare_with<'e>(self, sql: SqlStr, parameters: &'e [PgTypeInfo]) -> BoxFuture<'e, Result<PgStatement, Error>>
    where
        'c: 'e,
    {
        Box::pin(in_time(
            self.limit,
            &mut self.hung,
            (&mut self.inner).prepare_with(sql, parameters),
        ))
    }
}
