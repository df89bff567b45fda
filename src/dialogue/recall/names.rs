//! Who is who, as a viewpoint knows it: a line that speaks of a person by one name finds what is known under the others.

use chrono::{DateTime, Utc};

use crate::{
    dialogue::{Services, locks},
    memory::{
        authored::World,
        fact::Viewpoint,
        names::{Names, Told},
    },
    ports::{StoreResult, ledger::facts::NamingFact},
    tenancy::TenantScope,
};

/// Names that are read of each knower and privacy, newest first.
const NAMES: u32 = 200;

/// The names of those that the viewpoint may know at `at`.
///
/// # Errors
/// If the ledger does not answer.
pub(in crate::dialogue) async fn names(
    services: &Services,
    scope: &TenantScope,
    world: &World,
    viewpoint: &Viewpoint,
    at: DateTime<Utc>,
) -> StoreResult<Names> {
    let known = services.ledger.facts.names(scope, viewpoint, at, NAMES).await?;
    open_names(services, scope, world, viewpoint, known).await
}

/// Of names that are known, those that are open to the viewpoint by their locks, brought together.
///
/// # Errors
/// If the ledger does not answer.
pub(in crate::dialogue) async fn open_names(
    services: &Services,
    scope: &TenantScope,
    world: &World,
    viewpoint: &Viewpoint,
    known: Vec<NamingFact>,
) -> StoreResult<Names> {
    let with_locks = known.into_iter().map(|name| {
        let locks = name.locks.clone();
        (name, locks)
    });
    let open = locks::open(services, scope, world, viewpoint, with_locks.collect()).await?;
    let told: Vec<Told<'_>> = open.iter().map(told).collect();
    Ok(Names::of(&told))
}

fn told(fact: &NamingFact) -> Told<'_> {
    Told::by(&fact.speaker, fact.authored, &fact.subject, &fact.name)
}
