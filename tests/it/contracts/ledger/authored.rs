use colloquy::{
    memory::{
        authored::{Npc, TenantTier, TierSettings, World},
        chat_models::{ChatModel, ChatModels},
        tiers::PromptTuning,
    },
    ports::ledger::{
        authored::{DeleteOutcome, PutOutcome},
        dialogues::DialogueStatus,
        jobs::{Job, JobKind},
    },
};

use super::{
    LedgerSubject,
    fixture::{Fixture, page},
};

pub async fn worlds_are_created_read_listed_and_versioned<S: LedgerSubject>(f: &Fixture<S>) {
    let (authored, edit) = (&f.ledger().authored, f.audit_edit("world.put"));
    let world = f.sample_world("vale");
    assert_eq!(
        authored.put_world(&f.scope, &world, None, &edit).await.unwrap(),
        PutOutcome::Created
    );
    let stored = authored.load_world(&f.scope, &world.id).await.unwrap().unwrap();
    assert_eq!(
        stored,
        World {
            version: 1,
            ..world.clone()
        }
    );

    f.advance_clock();
    let renamed = World {
        name: "Vale".to_owned(),
        updated_at: f.now(),
        ..world.clone()
    };
    let put = |world: World, version| {
        let edit = f.audit_edit("world.put");
        async move { authored.put_world(&f.scope, &world, version, &edit).await.unwrap() }
    };
    assert_eq!(
        put(renamed.clone(), Some(7)).await,
        PutOutcome::VersionMismatch { stored: 1 }
    );
    assert_eq!(put(renamed.clone(), Some(1)).await, PutOutcome::Updated { version: 2 });
    assert_eq!(put(renamed.clone(), None).await, PutOutcome::Updated { version: 3 });
    let stored = authored.load_world(&f.scope, &world.id).await.unwrap().unwrap();
    assert_eq!(stored, World { version: 3, ..renamed });
    assert_eq!(
        put(f.sample_world("new"), Some(2)).await,
        PutOutcome::VersionMismatch { stored: 0 }
    );

    for id in ["a", "b"] {
        assert_eq!(put(f.sample_world(id), None).await, PutOutcome::Created);
    }
    let first = authored.list_worlds(&f.scope, &page(2, None)).await.unwrap();
    let names = |items: &[World]| items.iter().map(|world| world.id.to_string()).collect::<Vec<_>>();
    assert_eq!(names(&first.items), ["a", "b"]);
    let second = authored.list_worlds(&f.scope, &page(2, first.next)).await.unwrap();
    assert_eq!((names(&second.items), second.next), (vec!["vale".to_owned()], None));
}

pub async fn npcs_require_their_world<S: LedgerSubject>(f: &Fixture<S>) {
    let (authored, edit) = (&f.ledger().authored, f.audit_edit("npc.put"));
    let npc = f.sample_npc("vale", "mira");
    assert_eq!(
        authored.put_npc(&f.scope, &npc, None, &edit).await.unwrap(),
        PutOutcome::NoParent
    );
    f.put_world("vale").await;
    assert_eq!(
        authored
            .put_npc(&f.scope, &npc, None, &f.audit_edit("npc.put"))
            .await
            .unwrap(),
        PutOutcome::Created
    );
    let stored = authored.load_npc(&f.scope, &npc.world, &npc.id).await.unwrap().unwrap();
    assert_eq!(
        stored,
        Npc {
            version: 1,
            ..npc.clone()
        }
    );
    assert_eq!(
        authored
            .put_npc(&f.scope, &npc, Some(4), &f.audit_edit("npc.put"))
            .await
            .unwrap(),
        PutOutcome::VersionMismatch { stored: 1 }
    );
    // Version 0 means the row must not exist.
    let anew = authored
        .put_npc(&f.scope, &npc, Some(0), &f.audit_edit("npc.put"))
        .await;
    assert_eq!(anew.unwrap(), PutOutcome::VersionMismatch { stored: 1 });
    assert_eq!(
        authored
            .put_npc(&f.scope, &npc, Some(1), &f.audit_edit("npc.put"))
            .await
            .unwrap(),
        PutOutcome::Updated { version: 2 }
    );
    let ergen = f.sample_npc("vale", "ergen");
    let fresh = authored
        .put_npc(&f.scope, &ergen, Some(0), &f.audit_edit("npc.put"))
        .await;
    assert_eq!(fresh.unwrap(), PutOutcome::Created);
    let named = async |scope, names: &[&str]| {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let found = authored.find_npc_names(scope, &npc.world, &names).await.unwrap();
        found
            .into_iter()
            .map(|npc| (npc.id.to_string(), npc.name))
            .collect::<Vec<_>>()
    };
    let of = |npc: &Npc| (npc.id.to_string(), npc.name.clone());
    let both = named(&f.scope, &["MIRA", "ergen", "no\"body", "ergen"]).await;
    assert_eq!(both, [of(&ergen), of(&npc)]);
    assert_eq!(named(&f.scope, &["mira"]).await, [of(&npc)]);
    assert_eq!(
        named(&f.scope, &[&npc.name]).await,
        [of(&ergen), of(&npc)],
        "they share a name"
    );
    assert!(named(&f.other, &["mira"]).await.is_empty());
    assert!(named(&f.scope, &[]).await.is_empty());
    let first = authored.list_npcs(&f.scope, &npc.world, &page(1, None)).await.unwrap();
    assert_eq!(first.items[0].id, ergen.id);
    let second = authored
        .list_npcs(&f.scope, &npc.world, &page(1, first.next))
        .await
        .unwrap();
    assert_eq!((second.items[0].id.clone(), second.next), (npc.id, None));
}

pub async fn world_deletion_hides_it_and_ends_its_dialogues<S: LedgerSubject>(f: &Fixture<S>) {
    let authored = &f.ledger().authored;
    let (world, npc) = (f.sample_world("vale"), f.sample_npc("vale", "mira"));
    authored
        .put_world(&f.scope, &world, None, &f.audit_edit("world.put"))
        .await
        .unwrap();
    authored
        .put_npc(&f.scope, &npc, None, &f.audit_edit("npc.put"))
        .await
        .unwrap();
    let open = f.open_dialogue().await;
    f.advance_clock();
    let edit = f.audit_edit("world.delete");
    let stored = authored.load_world(&f.scope, &world.id).await.unwrap().unwrap().version;
    let other = authored
        .delete_world(&f.scope, &world.id, Some(stored + 1), &edit)
        .await;
    assert_eq!(other.unwrap(), DeleteOutcome::VersionMismatch { stored });
    let gone = authored.delete_world(&f.scope, &world.id, Some(stored), &edit).await;
    assert_eq!(gone.unwrap(), DeleteOutcome::Deleted);
    let again = authored
        .delete_world(&f.scope, &world.id, None, &f.audit_edit("world.delete"))
        .await;
    assert_eq!(again.unwrap(), DeleteOutcome::NotFound);
    assert_eq!(authored.load_world(&f.scope, &world.id).await.unwrap(), None);
    assert_eq!(authored.load_npc(&f.scope, &world.id, &npc.id).await.unwrap(), None);
    assert!(
        authored
            .list_worlds(&f.scope, &page(9, None))
            .await
            .unwrap()
            .items
            .is_empty()
    );
    let dialogue = f
        .ledger()
        .dialogues
        .load_dialogue(&f.scope, open.dialogue.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (dialogue.status, dialogue.updated_at),
        (DialogueStatus::Closed, edit.made_at)
    );

    // The world can be created again. Its NPCs stay hidden.
    let put = authored
        .put_world(&f.scope, &world, None, &f.audit_edit("world.put"))
        .await;
    assert_eq!(put.unwrap(), PutOutcome::Created);
    assert_eq!(
        authored.load_world(&f.scope, &world.id).await.unwrap().unwrap().version,
        1
    );
    assert_eq!(authored.load_npc(&f.scope, &world.id, &npc.id).await.unwrap(), None);
}

pub async fn npc_deletion_ends_the_dialogues_it_speaks_in<S: LedgerSubject>(f: &Fixture<S>) {
    let authored = &f.ledger().authored;
    f.put_world("vale").await;
    for id in ["mira", "ergen"] {
        let npc = f.sample_npc("vale", id);
        authored
            .put_npc(&f.scope, &npc, None, &f.audit_edit("npc.put"))
            .await
            .unwrap();
    }
    // Mira speaks in the dialogue, and Ergen overhears.
    let id = f.open_dialogue().await.dialogue.id;
    let status = || async {
        f.ledger()
            .dialogues
            .load_dialogue(&f.scope, id)
            .await
            .unwrap()
            .unwrap()
            .status
    };
    let ergen = "ergen".parse().unwrap();
    let gone = authored
        .delete_npc(&f.scope, &f.world, &ergen, None, &f.audit_edit("npc.delete"))
        .await;
    assert_eq!(gone.unwrap(), DeleteOutcome::Deleted);
    assert_eq!(status().await, DialogueStatus::Open);
    let stored = authored
        .load_npc(&f.scope, &f.world, &f.npc)
        .await
        .unwrap()
        .unwrap()
        .version;
    let delete = async |version| {
        let edit = f.audit_edit("npc.delete");
        authored
            .delete_npc(&f.scope, &f.world, &f.npc, version, &edit)
            .await
            .unwrap()
    };
    assert_eq!(
        delete(Some(stored + 1)).await,
        DeleteOutcome::VersionMismatch { stored }
    );
    assert_eq!(status().await, DialogueStatus::Open);
    assert_eq!(delete(Some(stored)).await, DeleteOutcome::Deleted);
    assert_eq!(status().await, DialogueStatus::Closed);
    assert_eq!(delete(None).await, DeleteOutcome::NotFound);
}

pub async fn authored_content_of_another_tenant_is_not_found<S: LedgerSubject>(f: &Fixture<S>) {
    let authored = &f.ledger().authored;
    let (world, npc) = (f.sample_world("vale"), f.sample_npc("vale", "mira"));
    authored
        .put_world(&f.scope, &world, None, &f.audit_edit("world.put"))
        .await
        .unwrap();
    authored
        .put_npc(&f.scope, &npc, None, &f.audit_edit("npc.put"))
        .await
        .unwrap();

    assert_eq!(authored.load_world(&f.other, &world.id).await.unwrap(), None);
    assert!(
        authored
            .list_worlds(&f.other, &page(9, None))
            .await
            .unwrap()
            .items
            .is_empty()
    );
    assert_eq!(authored.load_npc(&f.other, &world.id, &npc.id).await.unwrap(), None);
    assert!(
        authored
            .list_npcs(&f.other, &world.id, &page(9, None))
            .await
            .unwrap()
            .items
            .is_empty()
    );
    let edit = || f.audit_edit("rival");
    assert_eq!(
        authored.put_npc(&f.other, &npc, None, &edit()).await.unwrap(),
        PutOutcome::NoParent
    );
    let gone = authored.delete_npc(&f.other, &world.id, &npc.id, None, &edit()).await;
    assert_eq!(gone.unwrap(), DeleteOutcome::NotFound);
    let gone = authored.delete_world(&f.other, &world.id, None, &edit()).await;
    assert_eq!(gone.unwrap(), DeleteOutcome::NotFound);
    // In the other tenant the same id is free. Using the id there changes nothing here.
    assert_eq!(
        authored
            .put_world(&f.other, &f.sample_world("vale"), None, &edit())
            .await
            .unwrap(),
        PutOutcome::Created
    );
    assert_eq!(
        authored.load_world(&f.scope, &world.id).await.unwrap().unwrap().version,
        1
    );
}

pub async fn model_names_are_versioned_and_of_one_tenant<S: LedgerSubject>(f: &Fixture<S>) {
    let authored = &f.ledger().authored;
    let models = |name: &str| {
        let row = serde_json::json!({"name": name, "proxy": true, "settings": {"gossip": true}});
        vec![serde_json::from_value::<ChatModel>(row).unwrap()]
    };
    let put = async |name, version| {
        let edit = f.audit_edit("chat_models.put");
        let put = authored.put_chat_models(&f.scope, &models(name), version, &edit).await;
        put.unwrap()
    };
    let none = ChatModels::default();
    assert_eq!(authored.load_chat_models(&f.scope).await.unwrap(), none);
    assert_eq!(put("one", Some(2)).await, PutOutcome::VersionMismatch { stored: 0 });
    assert_eq!(put("one", Some(0)).await, PutOutcome::Created);
    assert_eq!(put("two", Some(0)).await, PutOutcome::VersionMismatch { stored: 1 });
    assert_eq!(put("two", None).await, PutOutcome::Updated { version: 2 });
    let stored = ChatModels {
        models: models("two"),
        version: 2,
    };
    assert_eq!(authored.load_chat_models(&f.scope).await.unwrap(), stored);
    assert_eq!(authored.load_chat_models(&f.other).await.unwrap(), none);
}

pub async fn tenant_settings_are_versioned_and_read_with_each_world<S: LedgerSubject>(f: &Fixture<S>) {
    let authored = &f.ledger().authored;
    let settings = |gossip| TierSettings {
        gossip: Some(gossip),
        prompt: Some(PromptTuning {
            lore_tokens: Some(7),
            ..PromptTuning::default()
        }),
        ..TierSettings::default()
    };
    let put = async |gossip, version| {
        let edit = f.audit_edit("settings.put");
        let settings = settings(gossip);
        let put = authored.put_tenant_settings(&f.scope, &settings, version, &edit).await;
        put.unwrap()
    };
    f.put_world("vale").await;
    let tenant_of = async |scope| {
        let world = authored.load_world(scope, &"vale".parse().unwrap()).await.unwrap();
        world.unwrap().tenant
    };
    assert_eq!(tenant_of(&f.scope).await, TenantTier::default());
    assert_eq!(put(true, Some(2)).await, PutOutcome::VersionMismatch { stored: 0 });
    assert_eq!(put(true, Some(0)).await, PutOutcome::Created);
    assert_eq!(put(true, Some(0)).await, PutOutcome::VersionMismatch { stored: 1 });
    let first = TenantTier {
        settings: settings(true),
        version: 1,
    };
    assert_eq!(tenant_of(&f.scope).await, first);
    assert_eq!(authored.load_tenant_tier(&f.scope).await.unwrap(), first);
    // Jobs remember worlds, but not with old settings of the tenant.
    let npc = f.sample_npc("vale", "mira");
    authored
        .put_npc(&f.scope, &npc, None, &f.audit_edit("npc.put"))
        .await
        .unwrap();
    let open = f.open_dialogue().await;
    let mut commit = f.sample_commit(&open, 1, None);
    commit.jobs = vec![f.sample_job(&commit, JobKind::ExtractFacts)];
    f.commit_turn(&commit).await;
    let job = Job::from(&commit.jobs[0]);
    let of_job = async || {
        let input = f.ledger().jobs.load_job_input(&f.scope, &job).await.unwrap();
        input.unwrap().world.tenant.clone()
    };
    assert_eq!(of_job().await, first);
    assert_eq!(put(false, Some(1)).await, PutOutcome::Updated { version: 2 });
    let second = TenantTier {
        settings: settings(false),
        version: 2,
    };
    assert_eq!(of_job().await, second);
    assert_eq!(
        authored.load_tenant_tier(&f.other).await.unwrap(),
        TenantTier::default()
    );
}
