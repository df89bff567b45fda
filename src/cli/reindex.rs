//! `colloquy reindex`: rebuilds the search index from the ledger. Only `--embed` embeds facts. Without
//! `embedder.dimensions`, every run asks the embedder for the length of its vectors.

use std::sync::Arc;

use anyhow::bail;

use super::process::block_on;
use crate::{app::open_services, config::Config};
use colloquy_core::{ids::TenantId, scope::TenantScope};
use colloquy_dialogue::{
    Services,
    jobs::{self, IndexDrift},
};
use colloquy_ports::{
    clock::{IdSource, SystemClock},
    ledger::facts::EmbeddingModelCount,
    vectors::PrepareOutcome,
};

#[derive(Debug, clap::Args)]
pub(super) struct ReindexArgs {
    /// Only this tenant's facts.
    #[arg(long)]
    tenant: Option<TenantId>,
    /// Change nothing; only report differences between index and ledger, and facts that cannot be searched.
    #[arg(long)]
    check: bool,
    /// Repair differences between index and ledger. This is the default without --check.
    #[arg(long, conflicts_with = "check")]
    repair: bool,
    /// Also embed facts without a vector of the configured embedder. Use after a change of the embedder.
    #[arg(long, conflicts_with = "check")]
    embed: bool,
}

pub(super) fn run(args: &ReindexArgs, config: &Config) -> anyhow::Result<()> {
    block_on(async {
        let clock = Arc::new(SystemClock);
        let ids = Arc::new(IdSource::from_thread_rng(clock.clone()));
        let services = open_services(config, clock, ids).await?;
        let outcome = reindex_tenants(args, &services).await;
        services.ledger.maintenance.close_connections().await;
        outcome
    })
}

async fn reindex_tenants(args: &ReindexArgs, services: &Services) -> anyhow::Result<()> {
    let tenants = match &args.tenant {
        Some(id) => match services.ledger.tenants.load_tenant(id).await? {
            Some(tenant) => vec![tenant],
            None => bail!("there is no tenant {id}"),
        },
        None => services.ledger.tenants.list_all().await?,
    };
    let index = &services.index;
    if !args.check {
        jobs::activate_index(services).await?;
    } else if index.prepare_index(false).await? == PrepareOutcome::Empty {
        bail!("the index is not in use yet: a server fills it, or `colloquy reindex`");
    }
    let mut waiting = 0;
    let mut drifted = 0;
    for tenant in tenants {
        let scope = TenantScope::new(tenant.id.clone());
        if args.embed {
            let embedded = jobs::embed_missing(services, &scope).await?;
            println!("{}: embedded {embedded} facts", tenant.id);
        }
        let facts = services
            .ledger
            .facts
            .count_by_embedding_model(&scope, services.clock.now())
            .await?;
        println!("{}: {}", tenant.id, describe_embeddings(&facts));
        waiting += count_not_current(&facts);
        let drift = if args.check {
            jobs::find_drift(services, &scope).await?
        } else {
            jobs::reindex_tenant(services, &scope).await?
        };
        if let Some(drift) = drift {
            println!("{}: {}", tenant.id, describe_drift(&drift, args.check));
            drifted += if args.check { drift.point_count() } else { 0 };
        }
    }
    if !index.is_shared() {
        // The embedded index is not persistent: a server reads each part from the ledger on first use.
        println!("the embedded index is read from the ledger on first use; there is nothing else to rebuild");
    }
    if drifted > 0 {
        bail!("{drifted} points of the index differ from the ledger: `colloquy reindex` puts them right");
    }
    if waiting > 0 {
        bail!(
            "{waiting} facts have no vector of the embedder `{}` and are found by words only: \
             `colloquy reindex --embed` gives them one",
            services.embedder.info().model,
        );
    }
    Ok(())
}

fn count_not_current(facts: &[EmbeddingModelCount]) -> u64 {
    facts.iter().filter(|row| !row.current).map(|row| row.facts).sum()
}

/// Returns text such as `the index had 2 facts missing, 1 stale and 0 that are not valid; put right`.
fn describe_drift(drift: &IndexDrift, only_check: bool) -> String {
    if drift.point_count() == 0 {
        return "the index is what the ledger says".to_owned();
    }
    let (verb, end) = if only_check {
        ("has", "")
    } else {
        ("had", "; put right")
    };
    format!(
        "the index {verb} {} facts missing, {} stale and {} that are not valid{end}",
        drift.missing.len(),
        drift.stale.len(),
        drift.surplus.len()
    )
}

/// Returns text such as `valid facts: 12 (10 by e5@384, in use; 2 by older@1024)`.
fn describe_embeddings(facts: &[EmbeddingModelCount]) -> String {
    let fact_count: u64 = facts.iter().map(|row| row.facts).sum();
    if fact_count == 0 {
        return "valid facts: 0".to_owned();
    }
    let by_model: Vec<String> = facts
        .iter()
        .map(|row| {
            let model = row.model.as_deref().unwrap_or("no model");
            format!("{} by {model}{}", row.facts, if row.current { ", in use" } else { "" })
        })
        .collect();
    format!("valid facts: {fact_count} ({})", by_model.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reindex_count_names_each_model() {
        let count_of = |model: Option<&str>, current, facts| EmbeddingModelCount {
            model: model.map(str::to_owned),
            current,
            facts,
        };
        let facts = [
            count_of(None, false, 1),
            count_of(Some("e5@384"), true, 10),
            count_of(Some("old@8"), false, 2),
        ];
        assert_eq!(
            describe_embeddings(&facts),
            "valid facts: 13 (1 by no model; 10 by e5@384, in use; 2 by old@8)"
        );
        assert_eq!(count_not_current(&facts), 3);
        assert_eq!(describe_embeddings(&[]), "valid facts: 0");
    }
}
