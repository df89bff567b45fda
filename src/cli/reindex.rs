//! `colloquy reindex`: the search index from the ledger, without calling the embedder.

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

/// Facts read at a time.
const PAGE: u32 = 500;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only this tenant.
    #[arg(long)]
    tenant: Option<TenantId>,
    /// Change nothing; only say whether every fact can be searched.
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
    let mut unusable = 0;
    for tenant in tenants {
        let scope = TenantScope::new(tenant.id.clone());
        let ledger = count(services, &scope).await?;
        unusable += ledger.unusable;
        if !args.check {
            jobs::reindex(services, &scope).await?;
        }
        println!(
            "{}: valid facts: {}, of which cannot be searched: {}",
            tenant.id, ledger.facts, ledger.unusable
        );
    }
    // The embedded index keeps nothing: a server reads each part from the ledger on first use.
    println!("the embedded index is read from the ledger on first use; there is nothing else to rebuild");
    if unusable > 0 {
        bail!(
            "{unusable} facts have vectors of another length than the embedder `{}` makes ({}); \
             use the embedder they were made with",
            services.embedder.info().model,
            services.embedder.info().dimensions
        );
    }
    Ok(())
}

#[derive(Default)]
struct Counted {
    facts: u64,
    /// Embedded by a model with vectors of another length.
    unusable: u64,
}

async fn count(services: &Services, scope: &TenantScope) -> anyhow::Result<Counted> {
    let dimensions = services.embedder.info().dimensions;
    let mut counted = Counted::default();
    let mut after = None;
    loop {
        let points = services.ledger.facts.all_points(scope, after, PAGE).await?;
        let Some(last) = points.last() else { return Ok(counted) };
        after = Some(last.fact);
        for point in &points {
            counted.facts += 1;
            counted.unusable += u64::from(point.embedding.len() != dimensions);
        }
    }
}
