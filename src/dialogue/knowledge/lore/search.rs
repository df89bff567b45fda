//! The search for lore of one turn.

use std::{
    cell::{LazyCell, RefCell},
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use super::{
    cache::LoadedLore,
    found::{FoundLore, LoreHit, state_now},
    people::{KnownPeople, entries_about_meant, find_names, names_meant, recent_deaths},
};
use crate::{
    Services,
    disclosure::{Disclosable, LoreVerdict},
    prompt::{location_in_turn, place_of_turn},
    turn::TurnInput,
};
use colloquy_memory::{
    calibration::Calibration,
    condition::ConditionContext,
    disclosure::secrecy::Secrecy,
    fact::Fact,
    keywords::{self, normalise_text},
    lore::{LORE_CANDIDATES, LoreEntry, LoreScore, LoreTies, Mentions, is_in_cooldown, is_sticky, names_person},
    party,
    scoring::dot_product,
    state::WorldState,
    trace::{LoreFate, LoreSource},
};
use colloquy_ports::StoreResult;

/// The most entries of one place that are candidates.
const MAX_OF_PLACE: usize = 10;
/// The most entries that other candidates lead to.
const MAX_SPREAD: usize = 20;
/// How many steps lead from a candidate to further candidates.
const SPREAD_STEPS: usize = 2;
/// The most entries, nearest first, among which the ten open ones are looked for.
const MAX_COMPARED: usize = 1_000;
/// The most entries that are candidates because a sentence has words of the line.
const MAX_WITH_WORDS: usize = 3;
/// The most entries that a line names and that are candidates.
const MAX_NAMED: usize = 100;
/// The most considered entries of a turn, in the trace.
const MAX_CONSIDERED: usize = 40;
/// The part of the way from the calibration's floor to a text that bears on a line, from which on an entry about
/// somebody near is found by meaning.
const NEAR_SHARE: f32 = 0.8;
/// The most entries about recent deaths in a greeting, and for a line.
const MAX_GREETING_DEATHS: usize = 2;
const MAX_LINE_DEATHS: usize = 1;
/// The number of last turns whose words bring a recent death of which they speak.
const NAMING_TURNS: usize = 4;

/// The search for the lore of a turn, as far as it goes without the intent.
#[derive(Clone)]
pub(crate) struct LoreOfTurn<'a> {
    search: LoreSearch<'a>,
    /// The entries to show that are similar to the line, most similar first, and those with words of the line.
    similar: Vec<usize>,
}

/// Looks for the lore that the turn's prompt may have. `embedding` is the line's.
pub(crate) async fn prepare_lore<'a>(
    services: &'a Services,
    input: &'a TurnInput,
    state: &'a WorldState,
    embedding: Option<Vec<f32>>,
) -> StoreResult<LoreOfTurn<'a>> {
    let cache = &services.memory_cache.lore;
    let lore = cache.load_lore(services, &input.scope, &input.world).await?;
    let line = embedding.map(|line| (line, &services.embedder.info().calibration));
    let mut search = LoreSearch::new(input, state, lore, line);
    let mut similar = search.similar_entries();
    let with_words = search.entries_with_words();
    similar.extend(&with_words);
    search.with_words = with_words;
    Ok(LoreOfTurn { search, similar })
}

impl LoreOfTurn<'_> {
    /// Returns the lore of the turn, best first. Small talk has no lore by meaning. `standing` are the standing facts.
    pub(crate) fn find(mut self, is_about_something: bool, standing: &[Disclosable<Fact>]) -> FoundLore {
        if !is_about_something {
            self.similar.clear();
        }
        let mut deaths = self.search.recent_deaths(standing);
        deaths.retain(|index| !self.similar.contains(index));
        let candidates = self.search.collect_candidates(&self.similar, &deaths);
        let hits = self.search.rank(candidates);
        let lore = self.search.lore;
        FoundLore {
            lore,
            hits,
            unasked_deaths: deaths,
        }
    }
}

/// The mentions of an entry: by its names, and by names or keywords.
#[derive(Clone, Default)]
struct EntryMentions {
    by_name: Mentions,
    by_any: Mentions,
    /// How the line of this turn found the entry.
    now: Option<LoreSource>,
}

#[derive(Clone)]
struct LoreSearch<'a> {
    input: &'a TurnInput,
    state: &'a WorldState,
    lore: Arc<LoadedLore>,
    /// The vector of the line, if the line is compared by meaning.
    line: Option<(Vec<f32>, &'a Calibration)>,
    context: ConditionContext<'a>,
    /// The people whom lines of the turn may mean.
    people: KnownPeople<'a>,
    mentions: HashMap<usize, EntryMentions>,
    /// The entries of which a sentence has words of the line.
    with_words: Vec<usize>,
    /// The verdicts on the entries that were asked for.
    verdicts: RefCell<HashMap<usize, LoreVerdict>>,
    /// Where the player is, or else the NPC; normalised.
    place: Option<String>,
    /// The characters who are near, normalised.
    nearby_names: BTreeSet<String>,
    /// The characters to whom the player has a relationship, normalised.
    related: BTreeSet<String>,
}

impl<'a> LoreSearch<'a> {
    fn new(
        input: &'a TurnInput,
        state: &'a WorldState,
        lore: Arc<LoadedLore>,
        line: Option<(Vec<f32>, &'a Calibration)>,
    ) -> Self {
        let key = input.player.as_ref().map(party::player_key);
        let player = key.as_deref().and_then(|key| state.characters.get(key));
        let place = place_of_turn(input, state);
        let cast = input
            .scene
            .iter()
            .flat_map(|scene| &scene.cast)
            .map(|member| member.name.as_str());
        let mut nearby_names: BTreeSet<String> = cast.chain([input.npc.name.as_str()]).map(normalise_text).collect();
        nearby_names.extend(
            player
                .into_iter()
                .flat_map(|player| player.companions_in(input.dialogue.id))
                .map(normalise_text),
        );
        if let Some(place) = &place {
            let people = state.people_at(place);
            let visible = people.filter(|(_, character)| location_in_turn(input, state, character).is_some());
            nearby_names.extend(visible.map(|(name, _)| normalise_text(name)));
        }
        let player_key = key.as_deref();
        let other_parties = state.relationships.iter().filter_map(|bond| match player_key {
            Some(player_key) if bond.from == player_key => Some(&bond.to),
            Some(player_key) if bond.to == player_key => Some(&bond.from),
            _ => None,
        });
        let people = KnownPeople::of_turn(input, state);
        Self {
            input,
            state,
            mentions: find_mentions(input, state, &people, &lore),
            people,
            lore,
            line,
            context: input.condition_context(state),
            with_words: Vec::new(),
            verdicts: RefCell::default(),
            place: place.map(|place| normalise_text(place.trim())),
            nearby_names,
            related: other_parties.map(|name| normalise_text(name)).collect(),
        }
    }

    fn entry(&self, index: usize) -> &LoreEntry {
        &self.lore.entries[index]
    }

    /// Returns the calibrated similarity of an entry with the line; 0 without vectors, and below the calibration's floor.
    fn similarity(&self, index: usize) -> f64 {
        let vector = &self.lore.vectors[index];
        match &self.line {
            Some((line, calibration)) if !vector.is_empty() => similarity_of(dot_product(line, vector), calibration),
            _ => 0.0,
        }
    }

    /// Returns the entries to show that bear on the line by their meaning, most similar first. Those about somebody
    /// near need less.
    fn similar_entries(&self) -> Vec<usize> {
        let Some((line, calibration)) = &self.line else {
            return Vec::new();
        };
        let of_near = self
            .nearby_names
            .iter()
            .map(|name| self.lore.characters.entries_about(name));
        let nearby_entries: HashSet<usize> = of_near.flatten().copied().collect();
        let bearing = calibration.bearing_cosine();
        let bearing_if_near = calibration.floor + NEAR_SHARE * (bearing - calibration.floor);
        // An entry with a vector of another embedder is similar to nothing.
        let exact = |index: usize| match &self.lore.vectors[index] {
            vector if vector.is_empty() => f32::MIN,
            vector => dot_product(line, vector),
        };
        let nearest = self.lore.near.nearest_first(line, bearing, &nearby_entries, exact);
        let similar = nearest.filter(|(index, cosine)| {
            *cosine >= bearing || *cosine >= bearing_if_near && nearby_entries.contains(index)
        });
        let similar = similar.map(|(index, _)| index).take(MAX_COMPARED);
        // Decayed entries do not take the places of others.
        let open_entries = similar.filter(|index| !self.is_decayed(*index) && self.secrecy(*index) == Secrecy::Open);
        open_entries.take(LORE_CANDIDATES).collect()
    }

    /// Returns the entries to show of which one sentence has two informative words of the player's line.
    fn entries_with_words(&self) -> Vec<usize> {
        if self.input.player.is_none() {
            return Vec::new();
        }
        let mut names = self.lore.names_in(&self.input.line);
        names.push(&self.input.npc.name);
        let matches = self.lore.sentences.find_by_line(&self.input.line, &names);
        let open_entries = matches
            .into_iter()
            .filter(|index| self.secrecy(*index) == Secrecy::Open);
        open_entries.take(MAX_WITH_WORDS).collect()
    }

    /// Returns the candidates, each with its first source. Locked entries are not among them. `deaths` are entries about
    /// recent deaths.
    fn collect_candidates(&self, similar: &[usize], deaths: &[usize]) -> Vec<(usize, LoreSource)> {
        let mut added = HashSet::new();
        let mut candidates: Vec<(usize, LoreSource)> = Vec::new();
        let mut add = |index: usize, source: LoreSource| {
            let may_be_shown = match self.secrecy(index) {
                Secrecy::Open => true,
                // A tell in an unrelated talk would be a hint.
                Secrecy::Guarded => matches!(
                    source,
                    LoreSource::Name | LoreSource::Keyword | LoreSource::PointedAt | LoreSource::Sticky
                ),
                Secrecy::Locked => false,
            };
            let is_new = may_be_shown && added.insert(index);
            if is_new {
                candidates.push((index, source));
            }
            is_new
        };
        for &index in &self.lore.always {
            add(index, LoreSource::Always);
        }
        let mut mentioned: Vec<(usize, &EntryMentions)> = self
            .mentions
            .iter()
            .map(|(index, mentions)| (*index, mentions))
            .collect();
        mentioned.sort_unstable_by_key(|(index, _)| *index);
        let mut remaining_names = MAX_NAMED;
        for &(index, mentions) in &mentioned {
            if let Some(source) = mentions.now.filter(|_| remaining_names > 0)
                && add(index, source)
            {
                remaining_names -= 1;
            }
        }
        for &(index, mentions) in &mentioned {
            if is_sticky(&mentions.by_any, self.entry(index).text.sticky, self.input.number) {
                add(index, LoreSource::Sticky);
            }
        }
        let entries_of_place = self.place.as_ref().and_then(|place| self.lore.by_place.get(place));
        let mut remaining_places = MAX_OF_PLACE;
        for &index in entries_of_place.into_iter().flatten() {
            if remaining_places > 0 && add(index, LoreSource::Place) {
                remaining_places -= 1;
            }
        }
        // Like what is only near in meaning, a death that nobody asks for leads nowhere and has no tell.
        for &index in similar.iter().chain(deaths) {
            add(index, LoreSource::Meaning);
        }
        self.spread(&mut candidates);
        candidates
    }

    /// Returns the entries that tell of deaths of the last days, in a session with a player. For a line of the player,
    /// these are deaths of characters whom the NPC's persona, a standing fact or one of the last turns names.
    fn recent_deaths(&self, standing: &[Disclosable<Fact>]) -> Vec<usize> {
        let npc = &self.input.npc;
        let is_greeting = self.input.is_greeting();
        if self.input.player.is_none() {
            return Vec::new();
        }
        let history = &self.input.history;
        let last_turns = &history[history.len().saturating_sub(NAMING_TURNS)..];
        // Most worlds have no recent death.
        let lately_named = LazyCell::new(|| {
            let recent_texts = last_turns.iter().flat_map(|turn| [&turn.player_text, &turn.reply_text]);
            let names = recent_texts.flat_map(|text| names_meant(&self.lore.characters, &self.people, text));
            names.collect::<HashSet<&str>>()
        });
        let is_close = |name: &str| {
            let is_named = |text: &str| names_person(text, name);
            let mut facts = standing.iter().map(|fact| fact.view.content.as_str());
            let key = normalise_text(name);
            key != normalise_text(&npc.name)
                && (is_named(&npc.persona.description) || facts.any(is_named) || lately_named.contains(key.as_str()))
        };
        let is_news = |name: &str| is_greeting || is_close(name);
        let settings = &self.input.world.settings;
        let now = self.input.started_at;
        let deaths = recent_deaths(&self.lore, self.state, settings, now, is_news).into_iter();
        // Decayed and resting entries do not take the places of others.
        let is_shown = |index: &usize| {
            self.secrecy(*index) == Secrecy::Open && self.fate(*index, LoreSource::Meaning) == LoreFate::Used
        };
        let max_deaths = if is_greeting {
            MAX_GREETING_DEATHS
        } else {
            MAX_LINE_DEATHS
        };
        deaths.filter(is_shown).take(max_deaths).collect()
    }

    /// Adds the entries to which the candidates lead.
    fn spread(&self, candidates: &mut Vec<(usize, LoreSource)>) {
        let mut candidate_indexes: HashSet<usize> = candidates.iter().map(|(index, _)| *index).collect();
        let mut from = 0;
        let max_candidates = candidates.len() + MAX_SPREAD;
        for _ in 0..SPREAD_STEPS {
            let until = candidates.len();
            for step in from..until {
                let (index, source) = candidates[step];
                // What is only near in meaning, or in every prompt, leads away from the talk.
                let is_asked_for = !matches!(source, LoreSource::Meaning | LoreSource::Always);
                // An entry that is kept back leads nowhere: what it leads to would tell of it.
                if !is_asked_for || self.secrecy(index) != Secrecy::Open || self.is_decayed(index) {
                    continue;
                }
                for &next in &self.lore.leads_to[index] {
                    if candidates.len() < max_candidates
                        && self.secrecy(next) == Secrecy::Open
                        && candidate_indexes.insert(next)
                    {
                        candidates.push((next, LoreSource::Related));
                    }
                }
            }
            from = until;
        }
    }

    fn verdict(&self, index: usize) -> LoreVerdict {
        let decide = || LoreVerdict::in_turn(&self.entry(index).text, &self.input.npc, &self.context);
        *self.verdicts.borrow_mut().entry(index).or_insert_with(decide)
    }

    fn secrecy(&self, index: usize) -> Secrecy {
        self.verdict(index).secrecy()
    }

    fn is_decayed(&self, index: usize) -> bool {
        let layer = self.entry(index).text.layer_now(&self.context);
        let now = self.input.number;
        match self.mentions.get(&index) {
            Some(mentions) => mentions.by_name.is_decayed(layer, now),
            None => Mentions::default().is_decayed(layer, now),
        }
    }

    /// Returns the fate of a candidate, before its group and the budget are known. Decay is only for entries that
    /// neither the author nor a line asks for.
    fn fate(&self, index: usize, source: LoreSource) -> LoreFate {
        let text = &self.entry(index).text;
        let is_resting = self
            .mentions
            .get(&index)
            .is_some_and(|mentions| is_in_cooldown(&mentions.by_any, text.sticky, text.cooldown, self.input.number));
        let decays = matches!(source, LoreSource::Place | LoreSource::Meaning | LoreSource::Related);
        if decays && self.is_decayed(index) && !self.with_words.contains(&index) {
            LoreFate::Decayed
        } else if is_resting {
            LoreFate::Resting
        } else {
            LoreFate::Used
        }
    }

    fn rank(&self, candidates: Vec<(usize, LoreSource)>) -> Vec<LoreHit> {
        let scored = candidates.into_iter().map(|(index, source)| {
            let entry = self.entry(index);
            let similarity = match source {
                LoreSource::Name => 1.0,
                // The place of a tell must not depend on the content that is kept back.
                _ if self.secrecy(index) == Secrecy::Guarded => 0.0,
                _ => self.similarity(index),
            };
            let layer = entry.text.layer_now(&self.context);
            let score = LoreScore::new(similarity, self.ties(entry), layer);
            let mut hit = LoreHit::new(index, entry, self.verdict(index), score, source);
            hit.trace.layer = layer;
            hit.trace.fate = self.fate(index, source);
            hit
        });
        let mut hits: Vec<LoreHit> = scored.collect();
        hits.sort_by(|a, b| {
            let is_first = |hit: &LoreHit| {
                (
                    hit.trace.fate == LoreFate::Used,
                    hit.trace.found_by == LoreSource::Always,
                )
            };
            is_first(b)
                .cmp(&is_first(a))
                .then_with(|| b.trace.score.total.total_cmp(&a.trace.score.total))
                .then_with(|| a.index.cmp(&b.index))
        });
        let mut groups: HashSet<&str> = HashSet::new();
        for hit in &mut hits {
            let group = self.entry(hit.index).text.group.as_deref();
            if hit.trace.fate == LoreFate::Used && group.is_some_and(|group| !groups.insert(group)) {
                hit.trace.fate = LoreFate::Outranked;
            }
        }
        hits.truncate(MAX_CONSIDERED);
        for hit in &mut hits {
            if hit.trace.fate == LoreFate::Used && hit.verdict.secrecy() == Secrecy::Open {
                hit.now = state_now(self.input, self.state, self.entry(hit.index));
            }
        }
        hits
    }

    /// True if a character of the entry is one of `names`, which are normalised.
    fn is_about_any(entry: &LoreEntry, names: &BTreeSet<String>) -> bool {
        let mut characters = entry.text.characters.iter();
        characters.any(|name| names.contains(&normalise_text(name.trim())))
    }

    fn ties(&self, entry: &LoreEntry) -> LoreTies {
        let text = &entry.text;
        let place = text.place.as_ref().map(|place| normalise_text(place.trim()));
        LoreTies {
            at_place: place.is_some() && place == self.place,
            nearby: Self::is_about_any(entry, &self.nearby_names),
            related: Self::is_about_any(entry, &self.related),
        }
    }
}

/// Returns the relevance of a cosine; 0 up to the calibration's floor.
fn similarity_of(cosine: f32, calibration: &Calibration) -> f64 {
    if cosine > calibration.floor {
        calibration.relevance_of(cosine)
    } else {
        0.0
    }
}

/// Returns the mentions of entries in the turns of the buffer and in the line.
fn find_mentions(
    input: &TurnInput,
    state: &WorldState,
    people: &KnownPeople<'_>,
    lore: &LoadedLore,
) -> HashMap<usize, EntryMentions> {
    let mut mentions_by_entry: HashMap<usize, EntryMentions> = HashMap::new();
    let line = input.heard_text();
    let points_back = input.player.is_some() && keywords::refers_back(&line);
    for turn in input.history.iter() {
        for text in [&turn.player_text, &turn.reply_text] {
            find_names(lore, people, text, |index, is_keyword| {
                let mentions = mentions_by_entry.entry(index).or_default();
                mentions.by_any.add_turn(turn.number);
                if !is_keyword {
                    mentions.by_name.add_turn(turn.number);
                    if points_back && turn.number + 1 == input.number {
                        mentions.now = Some(LoreSource::PointedAt);
                    }
                }
            });
        }
    }
    find_names(lore, people, &line, |index, is_keyword| {
        let mentions = mentions_by_entry.entry(index).or_default();
        if is_keyword {
            // A keyword says more than a word that points back.
            if mentions.now != Some(LoreSource::Name) {
                mentions.now = Some(LoreSource::Keyword);
            }
        } else {
            mentions.by_name.add_turn(input.number);
            mentions.now = Some(LoreSource::Name);
        }
    });
    // Whoever names a character, or speaks of dying, asks for what is told of the character or of the dead, but touches
    // none of their secrets.
    for index in entries_about_meant(&lore.characters, state, people, &line) {
        let mentions = mentions_by_entry.entry(index).or_default();
        mentions.by_any.add_turn(input.number);
        mentions.now.get_or_insert(LoreSource::Character);
    }
    mentions_by_entry
}
