//! Revoked tokens.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{
    audit,
    context::Engine,
    rows::{Columns, parse_text, to_micros, without_nul},
    scope::RowScope,
    statements::execute,
};
use colloquy_core::scope::TenantScope;
use colloquy_ports::{
    StoreError, StoreResult,
    ledger::{
        audit::Edit,
        revocations::{Revocation, RevocationStore, Revoked},
    },
};

pub(super) struct SqlRevocationStore(pub(super) Arc<Engine>);

/// Keeps the later moments. Rows are dated by the ledger's clock, because readers of new rows compare with that clock
/// and nodes' clocks differ.
const UPSERT_REVOCATION: &str = concat!(
    "INSERT INTO revocations (tenant, kind, name, issued_until, matters_until, at)
    VALUES ($1, $2, $3, $4, $5, ",
    database_now!(),
    ")
    ON CONFLICT (tenant, kind, name) DO UPDATE SET at = excluded.at,
        issued_until = CASE WHEN excluded.issued_until > revocations.issued_until
            THEN excluded.issued_until ELSE revocations.issued_until END,
        matters_until = CASE WHEN excluded.matters_until > revocations.matters_until
            THEN excluded.matters_until ELSE revocations.matters_until END"
);
/// A row from a clock that ran ahead counts as dated now.
const REVOCATIONS_SINCE: &str = concat!(
    "SELECT tenant, kind, name, issued_until, matters_until, CASE WHEN at > ",
    database_now!(),
    " THEN ",
    database_now!(),
    " ELSE at END FROM revocations WHERE at >= $1"
);

fn read_revocation(columns: &mut Columns<'_>) -> StoreResult<Revocation> {
    let tenant = columns.id()?;
    let kind: &str = columns.next()?;
    let name: &str = columns.next()?;
    let until = columns.time()?;
    let revoked = match kind {
        "token" => Revoked::Token(name.to_owned()),
        "subject" => Revoked::Subject(name.to_owned(), until),
        "player" => Revoked::Player(parse_text(name)?, until),
        _ => return Err(StoreError::Corrupt(format!("unknown name `{kind}`"))),
    };
    Ok(Revocation {
        tenant,
        revoked,
        matters_until: columns.time()?,
        revoked_at: columns.time()?,
    })
}

#[async_trait]
impl RevocationStore for SqlRevocationStore {
    async fn add_revocation(&self, scope: &TenantScope, revocation: &Revocation, edit: &Edit) -> StoreResult<()> {
        let tenant = scope.tenant().clone();
        let revocation = revocation.clone();
        let edit = edit.clone();
        write_transaction!(self.0, scope, |connection| {
            let (kind, name, issued_until) = match &revocation.revoked {
                Revoked::Token(id) => ("token", id.as_str(), 0),
                Revoked::Subject(subject, until) => ("subject", subject.as_str(), to_micros(*until)),
                Revoked::Player(player, until) => ("player", player.as_str(), to_micros(*until)),
            };
            execute!(
                connection, UPSERT_REVOCATION;
                tenant, kind, without_nul(name), issued_until, to_micros(revocation.matters_until)
            )
            .await?;
            audit::record_audit(connection, &tenant, &edit).await
        })
        .await
    }
    async fn list_revocations_since(&self, since: DateTime<Utc>) -> StoreResult<Vec<Revocation>> {
        let query = bind!(REVOCATIONS_SINCE; to_micros(since));
        self.0.fetch_all(RowScope::All, query, read_revocation).await
    }
}
