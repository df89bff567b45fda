//! The aliases of persons, as a viewpoint knows them. A line with one name also finds facts under the other names.

use chrono::{DateTime, Utc};

use crate::{
    Services,
    disclosure::{Gate, Unlocked},
};
use colloquy_core::scope::TenantScope;
use colloquy_memory::{
    aliases::{NameAliases, NameAssertion},
    authored::World,
    disclosure::audience::Viewpoint,
};
use colloquy_ports::{StoreResult, ledger::facts::NamingFact};

/// The maximum number of names read per knower and privacy, newest first.
const MAX_NAMES_READ: u32 = 200;

/// Returns the names of persons that the viewpoint may know at `moment`.
///
/// # Errors
/// If the ledger does not answer.
pub(crate) async fn read_names(
    services: &Services,
    scope: &TenantScope,
    world: &World,
    viewpoint: &Viewpoint,
    moment: DateTime<Utc>,
) -> StoreResult<NameAliases> {
    let naming_facts = services
        .ledger
        .facts
        .list_naming_facts(scope, viewpoint, moment, MAX_NAMES_READ)
        .await?;
    merge_open_names(services, scope, world, viewpoint, naming_facts).await
}

/// Combines the known names whose locks are open to the viewpoint.
///
/// # Errors
/// If the ledger does not answer.
pub(crate) async fn merge_open_names(
    services: &Services,
    scope: &TenantScope,
    world: &World,
    viewpoint: &Viewpoint,
    naming_facts: Vec<NamingFact>,
) -> StoreResult<NameAliases> {
    let gate = Gate::new(services, scope, world, viewpoint);
    let open = gate.open(naming_facts).await?;
    let assertions: Vec<NameAssertion<'_>> = open.iter().map(naming_of).collect();
    Ok(NameAliases::from_assertions(&assertions))
}

fn naming_of(fact: &Unlocked<NamingFact>) -> NameAssertion<'_> {
    NameAssertion {
        nickname: fact.nickname,
        ..NameAssertion::from_speaker(&fact.speaker, fact.authored, &fact.subject, &fact.name)
    }
}
