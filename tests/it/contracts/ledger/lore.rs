use colloquy::{
    memory::lore::{LoreEntry, LoreLayer, LoreText},
    ports::ledger::{
        authored::{DeleteOutcome, PutOutcome},
        lore::{EmbeddedLore, ImportOutcome},
        scenarios::Embedding,
    },
};

use super::{
    LedgerSubject,
    fixture::{Fixture, page},
};

pub fn sample_lore<S: LedgerSubject>(f: &Fixture<S>, id: &str, name: &str) -> EmbeddedLore {
    let text = LoreText {
        name: name.to_owned(),
        aliases: vec!["어둠의 숲".to_owned()],
        content: "A wood.\nNobody goes there.".to_owned(),
        layer: LoreLayer::A1,
        when: serde_json::from_value(serde_json::json!([{"not": {"item": "key"}}])).unwrap(),
        sticky: 2,
        ..LoreText::default()
    };
    EmbeddedLore {
        entry: LoreEntry {
            world: f.world.clone(),
            id: id.parse().unwrap(),
            text,
            version: 0,
            updated_at: f.now(),
        },
        embedding: Embedding {
            model: "angles".to_owned(),
            vector: vec![0.5, -0.5, f32::MIN_POSITIVE],
        },
    }
}

async fn put<S: LedgerSubject>(f: &Fixture<S>, id: &str, version: Option<u32>) -> PutOutcome {
    let (store, lore, edit) = (
        &f.ledger().lore,
        sample_lore(f, id, &format!("The \"{id}\"")),
        f.audit_edit("lore.put"),
    );
    let refused = store.check_put(&f.scope, &lore.entry, version).await.unwrap();
    let outcome = store.put_lore(&f.scope, &lore, version, &edit).await.unwrap();
    let is_written = matches!(outcome, PutOutcome::Created | PutOutcome::Updated { .. });
    assert_eq!(refused, (!is_written).then_some(outcome), "what was said before");
    outcome
}

async fn delete<S: LedgerSubject>(f: &Fixture<S>, id: &str, version: Option<u32>) -> DeleteOutcome {
    let (store, edit, id) = (&f.ledger().lore, f.audit_edit("lore.delete"), id.parse().unwrap());
    store
        .delete_lore(&f.scope, &f.world, &id, version, &edit)
        .await
        .unwrap()
}

/// The `lore_version` of the world, and the ids of its lore.
async fn world_lore<S: LedgerSubject>(f: &Fixture<S>) -> (u32, Vec<String>) {
    let world = f.ledger().authored.load_world(&f.scope, &f.world).await.unwrap();
    let lore = f.ledger().lore.load_world_lore(&f.scope, &f.world).await.unwrap();
    if let Some(world) = world {
        assert_eq!(world.lore_version, lore.version);
    }
    let ids = lore.entries.iter().map(|lore| lore.entry.id.to_string());
    (lore.version, ids.collect())
}

pub async fn lore_is_created_read_listed_versioned_and_hidden<S: LedgerSubject>(f: &Fixture<S>) {
    let store = &f.ledger().lore;
    assert_eq!(put(f, "forest", None).await, PutOutcome::NoParent);
    f.put_world("vale").await;
    assert_eq!(world_lore(f).await, (0, vec![]));
    assert_eq!(
        put(f, "forest", Some(1)).await,
        PutOutcome::VersionMismatch { stored: 0 }
    );
    assert_eq!(put(f, "forest", Some(0)).await, PutOutcome::Created);
    assert_eq!(put(f, "forest", Some(1)).await, PutOutcome::Updated { version: 2 });
    assert_eq!(put(f, "abbey", None).await, PutOutcome::Created);
    assert_eq!(world_lore(f).await, (3, vec!["abbey".to_owned(), "forest".to_owned()]));

    let forest = "forest".parse().unwrap();
    let found = store.load_lore(&f.scope, &f.world, &forest).await.unwrap();
    let expected = LoreEntry {
        version: 2,
        ..sample_lore(f, "forest", "The \"forest\"").entry
    };
    assert_eq!(found, Some(expected.clone()));
    assert_eq!(store.load_lore(&f.other, &f.world, &forest).await.unwrap(), None);
    let all = store.load_world_lore(&f.scope, &f.world).await.unwrap();
    assert_eq!(all.entries[1].entry, expected);
    assert_eq!(
        all.entries[1].embedding,
        sample_lore(f, "forest", "The \"forest\"").embedding
    );
    let first = store.list_lore(&f.scope, &f.world, &page(1, None)).await.unwrap();
    assert_eq!(
        (first.items[0].id.as_str(), first.next.as_deref()),
        ("abbey", Some("abbey"))
    );
    let rest = store
        .list_lore(&f.scope, &f.world, &page(1, Some("abbey".to_owned())))
        .await
        .unwrap();
    assert_eq!((rest.items[0].id.as_str(), rest.next), ("forest", None));

    assert_eq!(
        delete(f, "forest", Some(1)).await,
        DeleteOutcome::VersionMismatch { stored: 2 }
    );
    assert_eq!(delete(f, "forest", Some(2)).await, DeleteOutcome::Deleted);
    assert_eq!(delete(f, "forest", None).await, DeleteOutcome::NotFound);
    assert_eq!(world_lore(f).await, (4, vec!["abbey".to_owned()]));
    assert_eq!(put(f, "forest", Some(0)).await, PutOutcome::Created);

    let edit = f.audit_edit("world.delete");
    f.ledger()
        .authored
        .delete_world(&f.scope, &f.world, None, &edit)
        .await
        .unwrap();
    assert_eq!(world_lore(f).await, (6, vec![]));
    f.put_world("vale").await;
    assert_eq!(
        world_lore(f).await,
        (6, vec![]),
        "a new world of the same id has no lore"
    );
}

pub async fn lore_is_imported_whole<S: LedgerSubject>(f: &Fixture<S>) {
    let store = &f.ledger().lore;
    let import = async |ids: &[&str]| {
        let entries: Vec<EmbeddedLore> = ids
            .iter()
            .map(|id| sample_lore(f, id, &format!("The \"{id}\"")))
            .collect();
        let edit = f.audit_edit("lore.import");
        store.import_lore(&f.scope, &f.world, &entries, &edit).await.unwrap()
    };
    assert_eq!(import(&["abbey"]).await, ImportOutcome::NoParent);
    f.put_world("vale").await;
    let written = |created, updated| ImportOutcome::Written { created, updated };
    assert_eq!(import(&["abbey", "forest"]).await, written(2, 0));
    assert_eq!(import(&["forest", "inn"]).await, written(1, 1));
    let all = ["abbey", "forest", "inn"].map(str::to_owned).to_vec();
    assert_eq!(world_lore(f).await, (2, all));
    let forest = store
        .load_lore(&f.scope, &f.world, &"forest".parse().unwrap())
        .await
        .unwrap();
    assert_eq!(forest.unwrap().version, 2);
}

pub async fn lore_of_another_embedder_is_embedded_again<S: LedgerSubject>(f: &Fixture<S>) {
    let store = &f.ledger().lore;
    f.put_world("vale").await;
    put(f, "abbey", None).await;
    put(f, "forest", None).await;
    assert_eq!(store.list_unembedded(&f.scope, "angles", 9).await.unwrap(), []);
    assert_eq!(store.list_unembedded(&f.scope, "new", 1).await.unwrap().len(), 1);
    let missing = store.list_unembedded(&f.scope, "new", 9).await.unwrap();
    assert_eq!(missing.len(), 2);
    let embedding = Embedding {
        model: "new".to_owned(),
        vector: vec![1.0],
    };
    // The abbey was edited meanwhile.
    put(f, "abbey", None).await;
    let embedded = missing.into_iter().map(|entry| EmbeddedLore {
        entry,
        embedding: embedding.clone(),
    });
    let embedded: Vec<EmbeddedLore> = embedded.collect();
    store.store_embeddings(&f.scope, &embedded).await.unwrap();
    let left = store.list_unembedded(&f.scope, "new", 9).await.unwrap();
    assert_eq!(
        left.iter().map(|entry| entry.id.as_str()).collect::<Vec<_>>(),
        ["abbey"]
    );
    let all = store.load_world_lore(&f.scope, &f.world).await.unwrap();
    assert_eq!((all.version, &all.entries[1].embedding), (4, &embedding));
}
