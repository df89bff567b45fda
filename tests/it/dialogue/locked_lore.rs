//! Lore with conditions, and what is learned while the conditions hold.

use colloquy::{
    dialogue::knowledge::{lore, scenarios},
    memory::{lore::LoreEntry, progress::Progress},
    ports::{clock::Clock as _, llm::Task},
};
use serde_json::{Value, json};

use super::Stage;
use crate::support::run;

async fn put_lore(stage: &mut Stage) {
    let text = json!({
        "name": "Siege", "aliases": ["the Long Ring"], "keywords": ["harbour"], "layer": "A1",
        "content": "Goblins lie before the harbour, and the watchword is 4711.", "when": [{"progress": 1}],
    });
    let entry = LoreEntry {
        world: stage.world.id.clone(),
        id: "siege".parse().unwrap(),
        text: serde_json::from_value(text).unwrap(),
        version: 0,
        updated_at: stage.clock.now(),
    };
    let edit = stage.edit("lore.put");
    lore::write_lore(&stage.services, &stage.scope, entry, None, &edit)
        .await
        .unwrap();
    let authored = &stage.services.ledger.authored;
    let world = authored.load_world(&stage.scope, &stage.world.id).await.unwrap();
    stage.world = world.unwrap();
}

async fn set_progress(stage: &Stage, to: u32) {
    let (player, to) = ("p1".parse().unwrap(), Progress::new(to).unwrap());
    let (of, edit) = ((&stage.world, &stage.npc), stage.edit("progress.put"));
    let set = scenarios::set_progress(&stage.services, &stage.scope, of, &player, to, &edit).await;
    assert!(set.unwrap());
}

fn statement_of_npc(content: &str) -> Value {
    json!({
        "subject": "Mira", "predicate": "tells", "object": "", "content": content, "keywords": [],
        "speaker": "Mira", "kind": "other", "importance": 5, "polarity": "positive", "tense": "past",
    })
}

#[test]
fn lore_locks_the_private_memories_that_share_a_word() {
    run(async {
        let mut stage = Stage::prepare().await;
        put_lore(&mut stage).await;
        set_progress(&stage, 1).await;
        let mut talk = stage.session("p1").await;
        stage.llm.queue_text(Task::Intent, "world");
        let memories = [
            ("Mira fears goblins.", true),
            ("Mira saw the Long Ring.", true),
            ("Mira trusts 4711 alone.", true),
            // Words of another script cannot be compared.
            ("미라는 두려워한다.", true),
            ("Mira owes the player a soup.", false),
        ];
        let facts = memories.map(|(text, _)| statement_of_npc(text));
        talk.say_and_learn("What of the harbour?", &json!(facts)).await;
        assert_eq!(talk.trace(1).await.locks.to_string(), "lore:mira/siege");
        let learned = stage.facts().await;
        for (text, is_locked) in memories {
            let fact = learned.iter().find(|fact| fact.view.content == text).unwrap();
            assert!(fact.audience.private_to.is_some(), "{fact:?}");
            assert_eq!(!fact.locks.is_empty(), is_locked, "{text}: {}", fact.locks);
        }
        // A memory that is locked with the lore passes the lock on by its own words.
        stage.llm.queue_text(Task::Intent, "memory");
        let facts = [
            statement_of_npc("Mira hides a soup from the ring of fear."),
            statement_of_npc("Mira bakes bread on Mondays."),
        ];
        let mut other = stage.session("p1").await;
        other.say_and_learn("Do you fear goblins?", &json!(facts)).await;
        let learned = stage.facts().await;
        let locks_of = |part: &str| {
            let fact = learned.iter().find(|fact| fact.view.content.contains(part)).unwrap();
            fact.locks.to_string()
        };
        assert_eq!(locks_of("of fear"), "lore:mira/siege");
        assert_eq!(locks_of("bakes bread"), "");

        set_progress(&stage, 0).await;
        stage.llm.queue_text(Task::Intent, "memory");
        let mut later = stage.session("p1").await;
        later
            .say_and_learn("What do you owe me, and whom do you fear?", &json!([]))
            .await;
        let prompt = stage.llm.prompts_of(Task::Reply).pop().unwrap();
        assert!(prompt.contains("owes the player a soup"), "{prompt}");
        for locked in ["fears goblins", "Long Ring", "4711", "두려워한다", "of fear"] {
            assert!(!prompt.contains(locked), "{locked} in {prompt}");
        }
    });
}
