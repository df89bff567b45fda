//! Characters that the chat program describes. The NPC of a character and its world are made with the first request; the
//! description stays with the chat program, which sends it with each request.

use std::fmt::Write as _;

use chrono::{DateTime, Utc};
use sha2::{Digest as _, Sha256};

use super::{
    messages::SortedMessages,
    nudges::named_speaker,
    request::{InputMessage, InputRole},
    settings::ChatModel,
};
use crate::{AppState, errors::Problem, extract::Authorized};
use colloquy_core::{
    ids::{NpcId, PlayerId, WorldId},
    scope::{Principal, Role},
};
use colloquy_memory::authored::{Language, Npc, Persona, TenantTier, TierSettings, World, WorldSettings};
use colloquy_ports::ledger::authored::PutOutcome;

/// The beginning of the ids of worlds that belong to one player's characters.
const OWN_WORLD_PREFIX: &str = "chats-";
/// The name of a character whose name the messages do not tell.
const UNNAMED: &str = "Character";
/// Words in lower case within a name.
const NAME_PARTICLES: [&str; 7] = ["of", "the", "von", "van", "de", "da", "al"];
/// The longest name that is taken from the messages, in characters.
const MAX_NAME_CHARS: usize = 60;

/// True if the world belongs to the characters of one player's chat program.
pub fn is_world_of_characters(world: &WorldId) -> bool {
    world.as_str().starts_with(OWN_WORLD_PREFIX)
}

/// True if the world belongs to the characters of somebody's chat program, and is hidden from the caller: a player.
pub fn is_hidden_world(principal: &Principal, world: &WorldId) -> bool {
    principal.role == Role::Player && is_world_of_characters(world)
}

/// Returns the NPC of the character in the messages. The NPC and its world are made if missing.
///
/// # Errors
/// The store's, or a used-up budget for authored content.
pub async fn find_or_make_character<A>(
    state: &AppState,
    caller: &Authorized<A>,
    player: &PlayerId,
    model: Option<&ChatModel>,
    found_name: Option<&str>,
    sorted_messages: &SortedMessages,
) -> Result<Npc, Problem> {
    let world = match model.and_then(|model| model.world.clone()) {
        Some(world) => world,
        None => id_from_hash("chats", &[player.as_str()])?,
    };
    let name = found_name.unwrap_or(UNNAMED).to_owned();
    let npc: NpcId = match slug_of_name(&name) {
        Some(slug) if found_name.is_some() => slug.parse().map_err(|error| Problem::internal_error(&error))?,
        _ => id_from_hash("character", &[&name, first_words(sorted_messages)])?,
    };
    let upstream = model.and_then(|model| model.upstream.clone());
    let store = &state.services.ledger.authored;
    if let Some(existing) = store.load_npc(&caller.scope, &world, &npc).await? {
        if existing.model == upstream || model.is_none() || existing.persona != Persona::default() {
            return Ok(existing);
        }
        let updated = Npc {
            model: upstream,
            ..existing
        };
        put_npc(state, caller, &updated, Some(updated.version)).await?;
        return Ok(updated);
    }
    let now = state.services.clock.now();
    let language = language_of(sorted_messages);
    if store.load_world(&caller.scope, &world).await?.is_none() {
        let settings = model.map_or_else(WorldSettings::default, |model| model.settings.clone());
        let new_world = world_of_player(&world, player, language, settings, now);
        let edit = caller.new_edit(state, "world.put", &world);
        // Another request may have made the world meanwhile.
        let _made_or_known: PutOutcome = store.put_world(&caller.scope, &new_world, Some(0), &edit).await?;
    }
    let new_npc = Npc {
        world: world.clone(),
        id: npc.clone(),
        name,
        persona: Persona::default(),
        language,
        factions: Vec::new(),
        model: upstream,
        settings: TierSettings::default(),
        has_scenarios: false,
        has_tells: false,
        version: 0,
        updated_at: now,
    };
    put_npc(state, caller, &new_npc, Some(0)).await?;
    Ok(new_npc)
}

fn world_of_player(
    id: &WorldId,
    player: &PlayerId,
    language: Language,
    settings: WorldSettings,
    now: DateTime<Utc>,
) -> World {
    World {
        id: id.clone(),
        name: format!("Chats of {player}"),
        premise: String::new(),
        language,
        rules: Vec::new(),
        settings,
        lore_version: 0,
        tenant: TenantTier::default(),
        version: 0,
        updated_at: now,
    }
}

async fn put_npc<A>(
    state: &AppState,
    caller: &Authorized<A>,
    npc: &Npc,
    if_version: Option<u32>,
) -> Result<(), Problem> {
    let edit = caller.new_edit(state, "npc.put", format!("{}/{}", npc.world, npc.id));
    let store = &state.services.ledger.authored;
    // Another request may have written the NPC meanwhile.
    let _written_or_known: PutOutcome = store.put_npc(&caller.scope, npc, if_version, &edit).await?;
    state
        .sessions
        .forget_authored_everywhere(&caller.scope, &npc.world)
        .await;
    Ok(())
}

/// Returns the character's name, if the messages tell it: the next speaker of a group, or a phrase of common prompts.
pub fn find_character_name(messages: &[InputMessage]) -> Option<String> {
    let heads = messages
        .iter()
        .filter(|message| message.role == InputRole::System)
        .map(|message| message.text.as_str());
    let from_requests = named_speaker(messages).into_iter();
    let from_instructions = heads.clone().filter_map(|head| {
        between(head, "Write ", "'s next reply").or_else(|| between(head, "write ", "'s next reply"))
    });
    let from_descriptions = heads.filter_map(|head| {
        let mut english = ["You are ", "You're "].iter();
        let english = english.find_map(|opening| between_any(head, opening, &[",", ".", "\n", " \u{2014}"]));
        let korean = || {
            let mut openings = ["당신은 ", "너는 "].iter();
            openings.find_map(|opening| between_any(head, opening, &["입니다", "이다", "다.", ","]))
        };
        english.map(words_of_name).or_else(korean)
    });
    from_requests
        .chain(from_instructions)
        .chain(from_descriptions)
        .find_map(clean_name)
}

/// Returns the words of a name at the beginning of a phrase: it ends before the first word in lower case, such as in "Mira
/// and answer Ann". A lone word is a name in any case.
fn words_of_name(phrase: &str) -> &str {
    let phrase = phrase.trim();
    if !phrase.contains(char::is_whitespace) {
        return phrase;
    }
    let mut end = 0;
    let mut scanned_bytes = 0;
    for word in phrase.split_inclusive(char::is_whitespace) {
        scanned_bytes += word.len();
        let word = word.trim();
        let is_lower = word.chars().next().is_some_and(char::is_lowercase);
        if is_lower && !NAME_PARTICLES.contains(&word) {
            break;
        }
        // A particle counts with the word after it.
        if !is_lower {
            end = scanned_bytes;
        }
    }
    phrase[..end].trim()
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    between_any(text, before, &[after])
}

/// Returns the text between `before` and the first of `ends`.
fn between_any<'a>(text: &'a str, before: &str, ends: &[&str]) -> Option<&'a str> {
    let rest = &text[text.find(before)? + before.len()..];
    let end = ends.iter().filter_map(|end| rest.find(end)).min()?;
    Some(&rest[..end])
}

/// A name has few words, on one line, and does not begin with an article ("You are a helpful assistant").
fn clean_name(raw_name: &str) -> Option<String> {
    let name = raw_name
        .trim()
        .trim_matches(['"', '\'', '*', '[', ']', '{', '}'])
        .trim();
    let first_word = name.split_whitespace().next()?.to_lowercase();
    let is_article = ["a", "an", "the", "now", "going", "to", "not", "my", "in"].contains(&first_word.as_str());
    let is_short = name.chars().count() <= MAX_NAME_CHARS && name.split_whitespace().count() <= 5;
    (is_short && !is_article && !name.contains('\n')).then(|| name.to_owned())
}

/// Returns the first reply of the talk, or the beginning of the head.
fn first_words(sorted_messages: &SortedMessages) -> &str {
    let first_turn = sorted_messages.transcript.turns.first();
    let greeting = first_turn
        .filter(|turn| turn.player_text.is_empty())
        .map(|turn| turn.reply_text.as_str());
    greeting
        .or_else(|| sorted_messages.head.first().map(|message| message.content.as_str()))
        .unwrap_or_default()
}

/// Returns an id from a name of Latin letters. `None`: the name has too few of them.
fn slug_of_name(name: &str) -> Option<String> {
    let mut slug = String::new();
    for character in name.chars() {
        match character {
            'a'..='z' | '0'..='9' => slug.push(character),
            'A'..='Z' => slug.push(character.to_ascii_lowercase()),
            ' ' | '-' | '_' if !slug.is_empty() && !slug.ends_with('-') => slug.push('-'),
            ' ' | '-' | '_' | '\'' | '.' => {}
            // A name in another script has no id of Latin letters.
            _ => return None,
        }
    }
    let slug = slug.trim_end_matches('-');
    (slug.len() >= 2).then(|| slug.to_owned())
}

fn id_from_hash<T: std::str::FromStr>(prefix: &str, parts: &[&str]) -> Result<T, Problem>
where
    T::Err: std::fmt::Display,
{
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    let mut id = format!("{prefix}-");
    for byte in &hash.finalize()[..8] {
        // Writing to a text cannot fail.
        let _ = write!(id, "{byte:02x}");
    }
    id.parse().map_err(|error| Problem::internal_error(&error))
}

/// Korean, if a tenth of the letters are Hangul; else English.
fn language_of(sorted_messages: &SortedMessages) -> Language {
    let heads = sorted_messages.head.iter().map(|message| message.content.as_str());
    let replies = sorted_messages
        .transcript
        .turns
        .iter()
        .map(|turn| turn.reply_text.as_str());
    let letters = heads
        .chain(replies)
        .flat_map(str::chars)
        .filter(|letter| letter.is_alphabetic());
    let mut letter_count = 0_usize;
    let mut hangul_count = 0_usize;
    for letter in letters {
        letter_count += 1;
        hangul_count += usize::from(('\u{ac00}'..='\u{d7a3}').contains(&letter));
    }
    if hangul_count * 10 > letter_count {
        Language::Ko
    } else {
        Language::En
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openai::messages::sort_messages;

    fn messages(head: &str, note: &str) -> Vec<InputMessage> {
        let system = |text: &str| InputMessage {
            role: InputRole::System,
            text: text.to_owned(),
            name: None,
            calls_tools: false,
            as_sent: None,
        };
        vec![system(head), system(note)]
    }

    #[test]
    fn names_are_found_in_common_prompts() {
        for (head, note, name) in [
            (
                "Write Mira's next reply in a fictional chat between Mira and Ann.",
                "",
                Some("Mira"),
            ),
            (
                "You are Mira the Herbalist, who sells herbs.",
                "",
                Some("Mira the Herbalist"),
            ),
            ("You are Mira and answer Edda.", "", Some("Mira")),
            ("You are Anna von der Mark, a smith.", "", Some("Anna")),
            ("You are Anna van de Mark.", "", Some("Anna van de Mark")),
            ("You are playing Mira.", "", None),
            ("You are mira, a herbalist.", "", Some("mira")),
            ("You are a helpful assistant.", "", None),
            ("Rules.", "[Write the next reply only as Tom.]", Some("Tom")),
            ("당신은 미라입니다. 약초를 팝니다.", "", Some("미라")),
            ("Nothing.", "", None),
        ] {
            assert_eq!(find_character_name(&messages(head, note)).as_deref(), name, "{head}");
        }
    }

    #[test]
    fn ids_come_from_latin_names_or_a_hash() {
        assert_eq!(
            slug_of_name("Mira the Herbalist").as_deref(),
            Some("mira-the-herbalist")
        );
        assert_eq!(slug_of_name("O'Neil Jr.").as_deref(), Some("oneil-jr"));
        assert_eq!(slug_of_name("미라"), None);
        let id: Result<NpcId, Problem> = id_from_hash("character", &["미라", ""]);
        assert!(id.is_ok_and(|id| id.as_str().len() == "character-".len() + 16));
        let korean = sort_messages(&messages("당신은 미라입니다.", ""), None);
        assert_eq!(language_of(&korean), Language::Ko);
    }
}
