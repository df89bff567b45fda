//! Writes lorebooks and character cards of V3. Other programs do not know conditions, tells and who knows an entry:
//! they read the whole text of a secret.

use serde_json::{Map, Value, json};

use super::{
    entries,
    lorebook::{Lorebook, OWN},
    npc::{ImportedNpc, OwnFields},
};
use crate::lore::LoreText;
use colloquy_core::ids::LoreId;

impl Lorebook {
    /// A lorebook of V3. An import gives the same entries, with the same ids.
    #[must_use]
    pub fn from_entries(name: &str, entries: &[(LoreId, LoreText)]) -> Value {
        json!({"spec": "lorebook_v3", "data": book_of(name, entries)})
    }
}

/// A character card of V3, with `lore` as its lorebook. An import gives the same NPC and the same entries.
#[must_use]
pub fn card_from_npc(npc: &ImportedNpc, lore: &[(LoreId, LoreText)]) -> Value {
    let persona = &npc.persona;
    let texts = [&persona.description, &persona.speech_style, &persona.greeting];
    let own_fields = OwnFields {
        language: npc.language,
        boundaries: persona.boundaries.clone(),
        cues: persona.cues.clone(),
        verbatim: !texts.into_iter().all(|text| entries::is_plain(text)),
    };
    let mut data = json!({
        "name": npc.name,
        "description": persona.description,
        "personality": persona.speech_style,
        "scenario": "",
        "first_mes": persona.greeting,
        "mes_example": "",
        "creator_notes": "",
        "system_prompt": "",
        "post_history_instructions": "",
        "alternate_greetings": [],
        "group_only_greetings": [],
        "tags": [],
        "creator": "",
        "character_version": "",
        "extensions": {OWN: value_of(&own_fields)},
    });
    if !lore.is_empty() {
        data["character_book"] = book_of(&npc.name, lore);
    }
    json!({"spec": "chara_card_v3", "spec_version": "3.0", "data": data})
}

fn book_of(name: &str, entries: &[(LoreId, LoreText)]) -> Value {
    let entries = entries.iter().enumerate();
    let entries: Vec<Value> = entries.map(|(nth, (id, text))| entry_of(nth, id, text)).collect();
    json!({"name": name, "extensions": {}, "entries": entries})
}

fn entry_of(nth: usize, id: &LoreId, text: &LoreText) -> Value {
    let own_fields = entries::OwnFields::of(id, text);
    let keys: Vec<&str> = own_fields.exported_keys(&text.name).collect();
    let mut extensions = Map::new();
    // Other programs count messages; a turn has two.
    for (field, turns) in [("sticky", text.sticky), ("cooldown", text.cooldown)] {
        if turns > 0 {
            extensions.insert(field.to_owned(), (2 * turns).into());
        }
    }
    if let Some(group) = &text.group {
        extensions.insert("group".to_owned(), group.as_str().into());
    }
    extensions.insert(OWN.to_owned(), value_of(&own_fields));
    json!({
        "id": nth,
        "name": text.name,
        "comment": text.name,
        "keys": keys,
        "secondary_keys": [],
        "content": text.content,
        "constant": text.always,
        "selective": false,
        "enabled": true,
        "insertion_order": nth,
        "use_regex": false,
        "case_sensitive": false,
        "extensions": extensions,
    })
}

fn value_of(fields: &impl serde::Serialize) -> Value {
    serde_json::to_value(fields).expect("texts, numbers and lists")
}
