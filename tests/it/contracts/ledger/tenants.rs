use colloquy::ports::ledger::tenants::Tenant;

use super::{Subject, fixture::Fixture};

pub async fn ensure_adds_once_and_all_lists<S: Subject>(f: &Fixture<S>) {
    let tenants = &f.ledger().tenants;
    let studio = Tenant {
        id: f.scope.tenant().clone(),
        name: "Studio".to_owned(),
        enabled: true,
        created_at: f.now(),
    };
    assert!(tenants.ensure(&studio).await.unwrap());
    let renamed = Tenant {
        name: "Renamed".to_owned(),
        ..studio.clone()
    };
    assert!(!tenants.ensure(&renamed).await.unwrap());
    assert_eq!(tenants.get(&studio.id).await.unwrap().as_ref(), Some(&studio));
    assert_eq!(tenants.get(f.other.tenant()).await.unwrap(), None);

    let rival = Tenant {
        id: f.other.tenant().clone(),
        enabled: false,
        ..studio.clone()
    };
    assert!(tenants.ensure(&rival).await.unwrap());
    assert_eq!(tenants.all().await.unwrap(), [rival, studio]);
}
