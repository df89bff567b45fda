//! Lore of a world: the entries of this node's memory, those that a turn's prompt may have, and writes of authors
//! (docs/algorithms.md#lore).
//!
//! All entries of a world, at most 10,000, are in the memory of each node that needs them, and every search is exact.
//! Mentions are counted in the turns of the dialogue. A rewind therefore takes mentions back without further work.

mod cache;
mod people;
mod search;
mod write;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

pub use self::write::{embed_lore, import_lore, write_lore};
pub(crate) use self::{
    cache::{LoadedLore, LoreCache},
    people::DeadPerson,
    search::{LoreOfTurn, prepare_lore},
};
use super::{Services, turn::TurnInput};
use colloquy_core::{
    ids::{LoreId, NpcId},
    scope::TenantScope,
};
use colloquy_memory::{
    authored::{Npc, World},
    condition::ConditionContext,
    fact::Viewpoint,
    keywords::normalise_text,
    lore::{LoreEntry, LoreScore},
    secrecy::Secrecy,
    state::WorldState,
    trace::{LoreFate, LoreSource, LoreTrace},
};
use colloquy_ports::StoreResult;

/// An entry that a turn considered, and its score.
#[derive(Debug, Clone)]
pub(crate) struct LoreHit {
    /// The position in the world's lore.
    at: usize,
    pub secrecy: Secrecy,
    pub trace: LoreTrace,
    /// Where characters of the entry are, and who has its items.
    pub now: Vec<LoreNow>,
}

/// A part of the state of the world that an entry is linked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LoreNow {
    Character {
        name: String,
        place: Option<String>,
        status: Option<String>,
    },
    /// The holder has the item.
    Item { item: String, holder: String },
}

/// The lore that a turn found.
#[derive(Debug, Clone)]
pub(crate) struct FoundLore {
    lore: Arc<LoadedLore>,
    /// Best first. Entries with another fate than [`LoreFate::Used`] are not in the prompt.
    pub hits: Vec<LoreHit>,
    /// The positions of entries about recent deaths to which the line has no similarity.
    unasked_deaths: Vec<usize>,
}

impl FoundLore {
    /// Returns the entries that a trace names as used, as they are now, with the state of the time of the trace. Deleted
    /// entries are left out.
    pub(crate) async fn reread(
        services: &Services,
        input: &TurnInput,
        state: &WorldState,
        traced: &[LoreTrace],
    ) -> StoreResult<Self> {
        let cache = &services.memory_cache.lore;
        let lore = cache.load_lore(services, &input.scope, &input.world).await?;
        let used = traced.iter().filter(|traced| traced.fate == LoreFate::Used);
        let hits = used.filter_map(|traced| {
            let at = lore.entries.iter().position(|entry| entry.id == traced.entry)?;
            let is_open = traced.secrecy == Secrecy::Open;
            let now = is_open.then(|| search::state_now(input, state, &lore.entries[at]));
            Some(LoreHit {
                at,
                secrecy: traced.secrecy,
                trace: traced.clone(),
                now: now.unwrap_or_default(),
            })
        });
        let hits = hits.collect();
        Ok(Self {
            lore,
            hits,
            unasked_deaths: Vec::new(),
        })
    }
    /// True if a tell is among the entries for the prompt.
    pub(crate) fn has_tell(&self) -> bool {
        let mut hits = self.hits.iter();
        hits.any(|hit| hit.secrecy == Secrecy::Guarded && hit.trace.fate == LoreFate::Used)
    }
    pub(crate) fn entry(&self, hit: &LoreHit) -> &LoreEntry {
        &self.lore.entries[hit.at]
    }
    /// Returns the text of an entry as it is now, with all its names and keywords.
    pub(crate) fn whole_text(&self, id: &LoreId) -> Option<String> {
        let text = &self.lore.entry(id)?.text;
        let names = text.aliases.iter().chain(&text.keywords);
        let parts = [&text.name, &text.content].into_iter().chain(names);
        Some(parts.map(String::as_str).collect::<Vec<_>>().join("\n"))
    }
    /// True if not every player may hear the entry.
    pub(crate) fn is_conditional(&self, id: &LoreId) -> bool {
        self.lore.entry(id).is_some_and(|entry| !entry.text.when.is_empty())
    }
    /// True if an entry is in the turn only because it tells of a recent death, whatever the line says.
    pub(crate) fn is_unasked_death(&self, traced: &LoreTrace) -> bool {
        let mut deaths = self.unasked_deaths.iter();
        traced.found_by == LoreSource::Meaning && deaths.any(|at| self.lore.entries[*at].id == traced.entry)
    }
}

impl LoreHit {
    fn new(at: usize, entry: &LoreEntry, secrecy: Secrecy, score: LoreScore, source: LoreSource) -> Self {
        Self {
            at,
            secrecy,
            trace: LoreTrace {
                entry: entry.id.clone(),
                name: entry.text.name.clone(),
                layer: entry.text.layer,
                secrecy,
                found_by: source,
                score,
                fate: LoreFate::Used,
                shown_text: None,
            },
            now: Vec::new(),
        }
    }
}

/// Returns the entries that the texts of turns name, and of which all `npcs` may always tell: those that most turns name
/// first, then by name. A turn is a list of texts. Keywords are no names. If a text names one of the `dead`, also by a
/// name of an entry about this person alone, all entries about the person count as named.
pub(super) async fn named_entries<'t>(
    services: &Services,
    scope: &TenantScope,
    world: &World,
    npcs: &[&Npc],
    turns: impl IntoIterator<Item = [&'t str; 2]>,
    dead: &[DeadPerson<'_>],
) -> StoreResult<Vec<LoreEntry>> {
    let lore = services.memory_cache.lore.load_lore(services, scope, world).await?;
    let is_open = |entry: &LoreEntry| npcs.iter().all(|npc| entry.text.is_always_open_to(npc));
    let mut naming: BTreeMap<usize, u32> = BTreeMap::new();
    for turn in turns {
        for at in entries_of_turn(&lore, turn, dead, is_open) {
            *naming.entry(at).or_default() += 1;
        }
    }
    let found = naming.into_iter().map(|(at, turns)| (turns, &lore.entries[at]));
    let mut found: Vec<(u32, &LoreEntry)> = found.collect();
    found.sort_by(|(turns, entry), (others, other)| {
        let by_name = || entry.text.name.cmp(&other.text.name);
        others
            .cmp(turns)
            .then_with(by_name)
            .then_with(|| entry.id.cmp(&other.id))
    });
    Ok(found.into_iter().map(|(_, entry)| entry.clone()).collect())
}

/// Returns the open entries that a turn names, and those about the dead whom it names.
fn entries_of_turn(
    lore: &LoadedLore,
    texts: [&str; 2],
    dead: &[DeadPerson<'_>],
    is_open: impl Fn(&LoreEntry) -> bool,
) -> BTreeSet<usize> {
    let mut named = BTreeSet::new();
    for text in texts {
        lore.names.find_in(text, |at, is_keyword| {
            if !is_keyword && is_open(&lore.entries[at]) {
                named.insert(at);
            }
        });
    }
    let is_meant = |person: &&DeadPerson<'_>| {
        texts.iter().any(|text| person.is_named_in(text))
            || named.iter().any(|at| person.is_alone_in(&lore.entries[*at]))
    };
    let meant = dead.iter().filter(is_meant);
    let about = meant.flat_map(|person| lore.characters.entries_about(&normalise_text(person.name)));
    let about: Vec<usize> = about.copied().filter(|at| is_open(&lore.entries[*at])).collect();
    named.extend(about);
    named
}

/// Returns those of `asked` (an entry, and the NPC that told of it) that the player at `viewpoint` may hear.
pub(super) async fn open_entries(
    services: &Services,
    scope: &TenantScope,
    world: &World,
    viewpoint: &Viewpoint,
    asked: &HashSet<(NpcId, LoreId)>,
) -> StoreResult<HashSet<(NpcId, LoreId)>> {
    if asked.is_empty() || viewpoint.sees_all_players {
        return Ok(HashSet::new());
    }
    let (lore, state) = tokio::try_join!(
        services.memory_cache.lore.load_lore(services, scope, world),
        services.memory_cache.world_state(services, scope, &world.id),
    )?;
    let tellers: HashSet<&NpcId> = asked.iter().map(|(npc, _)| npc).collect();
    let mut open = HashSet::new();
    for teller in tellers {
        let Some(npc) = services.ledger.authored.load_npc(scope, &world.id, teller).await? else {
            continue;
        };
        let (settings, player) = (&world.settings, viewpoint.player.as_ref());
        let context = ConditionContext::new(&state, settings, &npc, player, services.clock.now());
        let is_open = |id: &LoreId| lore.entry(id).is_some_and(|entry| context.all_hold(&entry.text.when));
        let of_teller = asked.iter().filter(|(npc, entry)| npc == teller && is_open(entry));
        open.extend(of_teller.cloned());
    }
    Ok(open)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use colloquy_memory::{authored::WorldSettings, lore::LoreText, state::StateChange};
    use colloquy_ports::ledger::{
        lore::{EmbeddedLore, WorldLore},
        scenarios::Embedding,
    };

    fn entry(id: &str, name: &str, aliases: &[&str], characters: &[&str]) -> EmbeddedLore {
        let owned = |list: &[&str]| -> Vec<String> { list.iter().map(|text| (*text).to_owned()).collect() };
        let entry = LoreEntry {
            world: "vale".parse().unwrap(),
            id: id.parse().unwrap(),
            text: LoreText {
                name: name.to_owned(),
                aliases: owned(aliases),
                characters: owned(characters),
                ..LoreText::default()
            },
            version: 1,
            updated_at: chrono::DateTime::UNIX_EPOCH,
        };
        let embedding = Embedding {
            model: String::new(),
            vector: Vec::new(),
        };
        EmbeddedLore { entry, embedding }
    }

    #[test]
    fn tell_counts_only_for_a_prompt_that_shows_it() {
        let stored = entry("ship", "The drowned ship", &[], &["Captain Voss"]).entry;
        let score = LoreScore::default();
        let hit = |secrecy, fate| {
            let mut hit = LoreHit::new(0, &stored, secrecy, score, LoreSource::Name);
            hit.trace.fate = fate;
            hit
        };
        let lore = Arc::new(LoadedLore::new(WorldLore::default(), "none").unwrap());
        for (secrecy, fate, has_tell) in [
            (Secrecy::Guarded, LoreFate::Used, true),
            (Secrecy::Guarded, LoreFate::Resting, false),
            (Secrecy::Guarded, LoreFate::Outranked, false),
            (Secrecy::Open, LoreFate::Used, false),
        ] {
            let found = FoundLore {
                lore: Arc::clone(&lore),
                hits: vec![hit(secrecy, fate)],
                unasked_deaths: Vec::new(),
            };
            assert_eq!(found.has_tell(), has_tell, "{secrecy:?} {fate:?}");
        }
    }

    #[test]
    fn entries_about_the_dead_tell_of_recent_deaths() {
        let stored = WorldLore {
            version: 1,
            entries: vec![
                entry("inn", "큰솥 주막", &[], &["곽분네"]),
                entry("vogts-death", "the death of Emmerich Vogt", &[], &["Emmerich Vogt"]),
                entry("wake", "곽분네의 초상", &[], &["곽분네", "황두칠"]),
            ],
            conditions_of_scenarios: Vec::new(),
        };
        let lore = LoadedLore::new(stored, "none").unwrap();
        let day = |day: i64| chrono::DateTime::UNIX_EPOCH + chrono::TimeDelta::days(day);
        let mut state = WorldState::default();
        for (name, died_on) in [("Emmerich Vogt", 10), ("곽분네", 12)] {
            let die = StateChange::Status {
                who: name.to_owned(),
                status: "dead".to_owned(),
            };
            state.apply_change(&die, day(died_on), None);
        }
        let settings = WorldSettings::default();
        let told_on = |today: i64| people::recent_deaths(&lore, &state, &settings, day(today), |_| true);
        assert_eq!(told_on(13), [2, 1], "the newest death first");
        assert_eq!(told_on(18), [2]);
        assert_eq!(told_on(20), Vec::<usize>::new());
        let is_news = |name: &str| name == "Emmerich Vogt";
        let news = people::recent_deaths(&lore, &state, &settings, day(13), is_news);
        assert_eq!(news, [1]);
    }

    #[test]
    fn names_of_entries_and_characters_are_found_in_a_line() {
        let stored = WorldLore {
            version: 1,
            entries: vec![
                entry("inn", "큰솥 주막", &["큰솥"], &["곽분네"]),
                entry("mill", "the old mill", &[], &["Anna Reiter"]),
            ],
            conditions_of_scenarios: Vec::new(),
        };
        let lore = LoadedLore::new(stored, "none").unwrap();
        for (line, names) in [
            ("Anna sleeps in the Old Mill.", vec!["the old mill", "Anna"]),
            ("Anna Reiter?", vec!["anna reiter", "Anna", "Reiter"]),
            ("분네가 큰솥에 있어요?", vec!["큰솥", "분네"]),
            ("Good day.", vec![]),
        ] {
            assert_eq!(lore.names_in(line), names, "{line}");
        }
    }

    #[test]
    fn dead_person_is_named_by_a_given_name_or_by_another_name_of_an_entry() {
        let stored = WorldLore {
            version: 1,
            entries: vec![
                entry("inn", "큰솥 주막", &["큰솥 할멈"], &["곽분네"]),
                entry("rockfall", "the rock fall", &[], &["Emmerich Vogt"]),
                entry("strike", "the strike", &[], &["Emmerich Vogt", "Corvin Haller"]),
                entry("wake", "곽분네의 초상", &[], &["곽분네"]),
            ],
            conditions_of_scenarios: Vec::new(),
        };
        let lore = LoadedLore::new(stored, "none").unwrap();
        let names = ["Emmerich Vogt", "곽분네"];
        let dead = names.map(|name| DeadPerson::new(name, &names.into_iter()));
        let found = |text: &str, dead: &[DeadPerson<'_>]| -> Vec<String> {
            let found = entries_of_turn(&lore, [text, ""], dead, |_| true);
            found.into_iter().map(|at| lore.entries[at].id.to_string()).collect()
        };
        for (text, of_dead, of_living) in [
            ("큰솥 할멈이 더덕 값을 깎으셨는데…", vec!["inn", "wake"], vec!["inn"]),
            ("Emmerich gave me a crust.", vec!["rockfall", "strike"], vec![]),
            ("Will the strike last?", vec!["strike"], vec!["strike"]),
            ("Good day.", vec![], vec![]),
        ] {
            assert_eq!(found(text, &dead), of_dead, "{text}");
            assert_eq!(found(text, &[]), of_living, "all are alive: {text}");
        }
    }
}
