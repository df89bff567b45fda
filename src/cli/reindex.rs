//! `colloquy reindex`: the search index from the ledger. The embedder is called only for `--embed`.

use std::sync::Arc;

use anyhow::bail;

use super::block_on;
use crate::{
    app::open_services,
    config::Config,
    dialogue::{Services, jobs},
    ids::TenantId,
    ports::{
        clock::{IdSource, SystemClock},
        ledger::facts::EmbeddedBy,
    },
    tenancy::TenantScope,
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only this tenant.
    #[arg(long)]
    tenant: Option<TenantId>,
    /// Change nothing; only say whether every fact can be searched.
    #[arg(long)]
    check: bool,
    /// Also embed the facts that the configured embedder has not embedded, after it was changed.
    #[arg(long, conflicts_with = "check")]
    embed: bool,
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
    let mut waiting = 0;
    for tenant in tenants {
        let scope = TenantScope::new(tenant.id.clone());
        if args.embed {
            let embedded = jobs::embed_missing(services, &scope).await?;
            println!("{}: embedded {embedded} facts", tenant.id);
        }
        if !args.check {
            jobs::reindex(services, &scope).await?;
        }
        let facts = services.ledger.facts.embedded_by(&scope, services.clock.now()).await?;
        println!("{}: {}", tenant.id, described(&facts));
        waiting += not_current(&facts);
    }
    // The embedded index keeps nothing: a server reads each part from the ledger on first use.
    println!("the embedded index is read from the ledger on first use; there is nothing else to rebuild");
    if waiting > 0 {
        bail!(
            "{waiting} facts have no vector of the embedder `{}` and are found by words only: \
             `colloquy reindex --embed` gives them one",
            services.embedder.info().model,
        );
    }
    Ok(())
}

fn not_current(facts: &[EmbeddedBy]) -> u64 {
    facts.iter().filter(|row| !row.current).map(|row| row.facts).sum()
}

/// `valid facts: 12 (10 by e5@384, in use; 2 by older@1024)`
fn described(facts: &[EmbeddedBy]) -> String {
    let all: u64 = facts.iter().map(|row| row.facts).sum();
    if all == 0 {
        return "valid facts: 0".to_owned();
    }
    let by: Vec<String> = facts
        .iter()
        .map(|row| {
            let model = row.model.as_deref().unwrap_or("no model");
            format!("{} by {model}{}", row.facts, if row.current { ", in use" } else { "" })
        })
        .collect();
    format!("valid facts: {all} ({})", by.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_names_each_model() {
        let by = |model: Option<&str>, current, facts| EmbeddedBy {
            model: model.map(str::to_owned),
            current,
            facts,
        };
        let facts = [
            by(None, false, 1),
            by(Some("e5@384"), true, 10),
            by(Some("old@8"), false, 2),
        ];
        assert_eq!(
            described(&facts),
            "valid facts: 13 (1 by no model; 10 by e5@384, in use; 2 by old@8)"
        );
        assert_eq!(not_current(&facts), 3);
        assert_eq!(described(&[]), "valid facts: 0");
    }
}
