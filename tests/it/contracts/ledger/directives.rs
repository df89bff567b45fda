use colloquy::{
    memory::directive::{Directive, MAX_DIRECTIVES_PER_WORLD},
    ports::ledger::authored::{DeleteOutcome, PutOutcome},
};

use super::{
    LedgerSubject,
    fixture::{Fixture, page},
};

fn sample_directive<S: LedgerSubject>(f: &Fixture<S>, id: &str) -> Directive {
    Directive {
        world: f.world.clone(),
        id: id.parse().unwrap(),
        keys: vec![
            "world:vale:npc:guard-*".parse().unwrap(),
            "world:*:npc:?ra:session:*".parse().unwrap(),
        ],
        text: "It is the \"week\" of mourning.\n누구도 웃지 않는다.".to_owned(),
        instructions: vec!["Whisper.".to_owned()],
        fails_if: vec!["names the dead queen".to_owned()],
        priority: -3,
        version: 0,
        updated_at: f.now(),
    }
}

async fn put<S: LedgerSubject>(f: &Fixture<S>, directive: &Directive, version: Option<u32>) -> PutOutcome {
    let edit = f.audit_edit("directive.put");
    let directives = &f.ledger().directives;
    let put = directives.put_directive(&f.scope, directive, version, &edit).await;
    put.unwrap()
}

async fn ids<S: LedgerSubject>(f: &Fixture<S>) -> Vec<String> {
    let all = f.ledger().directives.load_all_directives(&f.scope, &f.world).await;
    all.unwrap().iter().map(|it| it.id.to_string()).collect()
}

pub async fn directives_are_created_read_listed_versioned_and_deleted<S: LedgerSubject>(f: &Fixture<S>) {
    let directives = &f.ledger().directives;
    let mourning = sample_directive(f, "mourning");
    assert_eq!(put(f, &mourning, None).await, PutOutcome::NoParent);
    f.put_world("vale").await;
    assert_eq!(
        put(f, &mourning, Some(3)).await,
        PutOutcome::VersionMismatch { stored: 0 }
    );
    assert_eq!(put(f, &mourning, Some(0)).await, PutOutcome::Created);
    let found = directives.load_directive(&f.scope, &f.world, &mourning.id).await;
    let stored = Directive {
        version: 1,
        ..mourning.clone()
    };
    assert_eq!(found.unwrap(), Some(stored));
    let louder = Directive {
        text: String::new(),
        priority: 7,
        ..mourning.clone()
    };
    assert_eq!(
        put(f, &louder, Some(2)).await,
        PutOutcome::VersionMismatch { stored: 1 }
    );
    assert_eq!(put(f, &louder, Some(1)).await, PutOutcome::Updated { version: 2 });
    assert_eq!(put(f, &sample_directive(f, "feast"), None).await, PutOutcome::Created);
    let first = directives
        .list_directives(&f.scope, &f.world, &page(1, None))
        .await
        .unwrap();
    assert_eq!(first.items[0].id.as_str(), "feast");
    let second = directives
        .list_directives(&f.scope, &f.world, &page(1, first.next))
        .await
        .unwrap();
    assert_eq!(second.items, [Directive { version: 2, ..louder }]);
    assert_eq!(second.next, None);
    assert_eq!(ids(f).await, ["feast", "mourning"]);
    assert!(
        directives
            .load_all_directives(&f.other, &f.world)
            .await
            .unwrap()
            .is_empty()
    );
    let edit = f.audit_edit("directive.delete");
    for (scope, version, expected) in [
        (&f.other, None, DeleteOutcome::NotFound),
        (&f.scope, Some(1), DeleteOutcome::VersionMismatch { stored: 2 }),
        (&f.scope, Some(2), DeleteOutcome::Deleted),
        (&f.scope, None, DeleteOutcome::NotFound),
    ] {
        let deleted = directives
            .delete_directive(scope, &f.world, &mourning.id, version, &edit)
            .await;
        assert_eq!(deleted.unwrap(), expected);
    }
    assert_eq!(put(f, &mourning, None).await, PutOutcome::Created);
    let authored = &f.ledger().authored;
    let edit = f.audit_edit("world.delete");
    authored.delete_world(&f.scope, &f.world, None, &edit).await.unwrap();
    f.put_world("vale").await;
    assert!(ids(f).await.is_empty(), "directives are deleted with their world");
}

pub async fn directives_of_a_world_are_limited<S: LedgerSubject>(f: &Fixture<S>) {
    f.put_world("vale").await;
    for number in 0..MAX_DIRECTIVES_PER_WORLD {
        let made = put(f, &sample_directive(f, &format!("d{number}")), None).await;
        assert_eq!(made, PutOutcome::Created);
    }
    let full = PutOutcome::Full {
        most: MAX_DIRECTIVES_PER_WORLD,
    };
    let store = &f.ledger().directives;
    let [another, known] = ["another", "d7"].map(|id| sample_directive(f, id));
    assert_eq!(store.check_put(&f.scope, &another, None).await.unwrap(), Some(full));
    assert_eq!(store.check_put(&f.scope, &known, None).await.unwrap(), None);
    assert_eq!(put(f, &another, None).await, full);
    let again = put(f, &known, None).await;
    assert_eq!(again, PutOutcome::Updated { version: 2 });
}
