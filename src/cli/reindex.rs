//! `colloquy reindex`: the search index from the ledger.

use std::sync::Arc;

use anyhow::bail;

use super::block_on;
use crate::{
    app::open_services,
    config::Config,
    dialogue::{Services, jobs},
    ids::TenantId,
    ports::clock::{IdSource, SystemClock},
    tenancy::TenantScope,
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only this tenant.
    #[arg(long)]
    tenant: Option<TenantId>,
    /// Change nothing; fail if the index lacks points or has too many.
    #[arg(long)]
    check: bool,
}

pub(super) fn run(args: &Args, config: &Config) -> anyhow::Result<()> {
    block_on(async {
        let clock = Arc::new(SystemClock);
        let ids = Arc::new(IdSource::random(clock.clone()));
        let services = open_services(config, clock, ids).await?;
        let outcome = reindex(args, &services).await;
        services.ledger.maintenance.close().await;
        outcome
    })
}

async fn reindex(args: &Args, services: &Services) -> anyhow::Result<()> {
    let tenants = match &args.tenant {
        Some(id) => match services.ledger.tenants.get(id).await? {
            Some(tenant) => vec![tenant],
            None => bail!("there is no tenant {id}"),
        },
        None => services.ledger.tenants.all().await?,
    };
    let mut wrong = 0_usize;
    for tenant in tenants {
        let scope = TenantScope::new(tenant.id.clone());
        if args.check {
            let (indexed, expected) = (services.index.count(&scope).await?, jobs::expected_points(services, &scope).await?);
            let verdict = if indexed == expected { "complete" } else { "incomplete" };
            println!("{}: {indexed} of {expected} facts in the index, {verdict}", tenant.id);
            wrong += usize::from(indexed != expected);
        } else {
            let points = jobs::reindex(services, &scope).await?;
            println!("{}: {points} facts in the index", tenant.id);
        }
    }
    if wrong > 0 {
        bail!("the index of {wrong} tenants is not complete; run `colloquy reindex`");
    }
    Ok(())
}
