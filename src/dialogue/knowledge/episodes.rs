//! Episodes: one line about each turn of an NPC with a player. A turn recalls them from the whole past of the two, in three
//! stages (docs/algorithms.md#episodes).

mod cache;
mod hit;
mod section;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use parking_lot::Mutex;

pub(super) use self::cache::PairEpisodes;
pub(crate) use self::{cache::EpisodeCache, hit::EpisodeHit, section::Episodes};
use super::kind::EarlyReading;
use crate::{
    Services,
    disclosure::{Gate, PreparedRemovals, RedactedEpisode, redact_episodes, unlocked_before},
    prompt::{Template, TemplateError},
    turn::TurnInput,
};
use colloquy_core::ids::{PlayerId, TurnId};
use colloquy_memory::{
    authored::Npc,
    disclosure::locks::DisclosureLocks,
    episode::{
        Episode, MAX_COMPARED_EPISODES, MAX_EPISODE_CHARS, MAX_LINE_CHARS, MIN_IMPORTANT, StageCounts, clip_line,
        first_sentence,
    },
    fact::Importance,
    scoring::dot_product,
    trace::{EpisodeFate, TurnTrace},
    turn::{Intent, Turn},
};
use colloquy_ports::{
    StoreResult,
    buffer::BufferedTurn,
    ledger::episodes::{EpisodePair, EpisodeRequest, FoundEpisodes},
};

/// Further candidates of each stage, for those that turn out to be in the prompt already.
const SPARE_CANDIDATES: u32 = 24;
/// The number of similar episodes that are confirmed in the first read. Each further read confirms four times as many: after
/// rewinds, many may be lifted.
const CONFIRMED_AT_ONCE: usize = 16;

/// The minimum calibrated similarity of an episode with the line, in [0, 1]: about two thirds of a good answer's 0.5.
const MIN_SIMILARITY: f64 = 0.33;
/// The minimum similarity of small talk and of requests to forget, on the scale of relevance, where a good answer has 0.5 or
/// more. Below, they are near many lines and tell nothing.
const MIN_SMALL_TALK_SIMILARITY: f64 = 0.55;

/// The bytes of a raw turn in a prompt besides its texts: the tags, and the frames of two messages.
const BYTES_AROUND_TURN: usize = 80;
/// A token of usual text has at least this many bytes.
const LEAST_BYTES_PER_TOKEN: usize = 2;

/// The episodes that a turn has read, before the line's embedding is known.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReadEpisodes {
    /// The turns of standing episodes: of the newest and of the most important.
    standing: BTreeSet<TurnId>,
    episodes: Arc<Mutex<PairEpisodes>>,
}

/// Returns the episodes of the turn's pair that this node has, perhaps none.
pub(super) fn cached_episodes(services: &Services, input: &TurnInput) -> Arc<Mutex<PairEpisodes>> {
    let cache = &services.memory_cache.episodes;
    let cached = |player| cache.cached_episodes(&input.scope, pair_of(input, player));
    input.player.as_ref().map(cached).unwrap_or_default()
}

/// Returns what a turn asks of the ledger: which of the newest and the most important episodes stand, and the rows that
/// `cached` does not have. `None`: a turn without a player has no episodes.
pub(super) fn episode_request<'i>(input: &'i TurnInput, cached: &PairEpisodes) -> Option<EpisodeRequest<'i>> {
    let player = input.player.as_ref()?;
    // All turns of the history may be among the newest and the most important.
    let in_history = u32::try_from(input.history.len()).unwrap_or(u32::MAX);
    let max_candidates = |count: usize| {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        count.saturating_add(in_history).saturating_add(SPARE_CANDIDATES)
    };
    let counts = StageCounts::default();
    Some(EpisodeRequest {
        pair: pair_of(input, player),
        recent: max_candidates(counts.recent),
        important: max_candidates(counts.important),
        min_importance: MIN_IMPORTANT,
        after: cached.read_after(),
        rows: u32::try_from(MAX_COMPARED_EPISODES).unwrap_or(u32::MAX),
    })
}

/// Takes the episodes of a turn, and adds the new rows to those that this node has.
async fn read_episodes(reading: &EarlyReading<'_>) -> StoreResult<ReadEpisodes> {
    let EarlyReading {
        services,
        input,
        memory,
    } = reading;
    let FoundEpisodes { standing, rows } = memory.take(|memory| &mut memory.episodes).await?;
    let cached = &memory.episodes;
    if let Some(player) = &input.player {
        let cache = &services.memory_cache.episodes;
        let model = &services.embedder.info().model;
        cache.add_rows(&input.scope, pair_of(input, player), cached, rows, model);
    }
    Ok(ReadEpisodes {
        standing,
        episodes: Arc::clone(cached),
    })
}

/// Returns the turns of the history, if the prompt surely has all raw turns: their episodes are no candidates.
fn turns_in_prompt(services: &Services, input: &TurnInput) -> HashSet<TurnId> {
    let bytes = |turn: &BufferedTurn| turn.player_text.len() + turn.reply_text.len() + BYTES_AROUND_TURN;
    let bytes: usize = input.history.iter().map(bytes).sum();
    let fits = bytes / LEAST_BYTES_PER_TOKEN <= usize::try_from(services.settings.prompt.history_tokens).unwrap_or(0);
    let turns = input.history.iter().filter(|_| fits);
    turns.map(|turn| turn.id).collect()
}

/// Returns the candidates for the prompt of a turn. `embedding` is the line's, if the turn is about something;
/// `removals` were taken out of memory.
async fn find_candidates(
    services: &Services,
    input: &TurnInput,
    pair_episodes: ReadEpisodes,
    embedding: Option<&[f32]>,
    removals: &PreparedRemovals<'_>,
) -> StoreResult<Vec<EpisodeHit>> {
    let Some(player) = &input.player else {
        return Ok(Vec::new());
    };
    let ReadEpisodes {
        mut standing,
        episodes: cached,
    } = pair_episodes;
    let in_prompt = turns_in_prompt(services, input);
    standing.retain(|turn| !in_prompt.contains(turn));
    let model = &services.embedder.info().model;
    let similarities = embedding.map(|line| rank_by_similarity(services, &cached.lock(), line, model));
    let mut ranked = similarities.unwrap_or_default();
    ranked.retain(|(turn, _)| !in_prompt.contains(turn));
    let mut episodes = load_standing(services, input, player, &cached, standing, &ranked).await?;
    episodes.retain(|episode| may_be_candidate(input, episode));
    let open = Gate::of_turn(services, input).open(episodes).await?;
    let similarities: HashMap<TurnId, f64> = ranked.into_iter().collect();
    let redacted_episodes = redact_episodes(removals, open);
    let turns: BTreeSet<TurnId> = redacted_episodes.iter().map(|redacted| redacted.episode.turn).collect();
    let mut vectors = cached.lock().vectors_of(&turns, model);
    let hit = |RedactedEpisode { episode, is_changed }| EpisodeHit {
        similarity: similarities.get(&episode.turn).copied(),
        vector: vectors.remove(&episode.turn).unwrap_or_else(|| [].into()),
        episode,
        redacted: is_changed,
    };
    Ok(redacted_episodes.into_iter().map(hit).collect())
}

/// Returns those of the turns `standing` and of the best of `ranked` whose lines still stand. `cached` needs no reads.
async fn load_standing(
    services: &Services,
    input: &TurnInput,
    player: &PlayerId,
    cached: &Mutex<PairEpisodes>,
    standing: BTreeSet<TurnId>,
    ranked: &[(TurnId, f64)],
) -> StoreResult<Vec<Episode>> {
    let mut episodes = cached.lock().episodes_of(&standing);
    let mut known_turns: HashSet<TurnId> = episodes.iter().map(|episode| episode.turn).collect();
    let mut unread: Vec<TurnId> = standing
        .into_iter()
        .filter(|turn| !known_turns.contains(turn))
        .collect();
    let wanted_count = StageCounts::default().similar + input.history.len();
    let mut remaining_turns: Vec<TurnId> = ranked.iter().map(|(turn, _)| *turn).collect();
    let mut similar_count = 0;
    // Usually all candidates stand, and one read or none is enough. Unsaid lines never take the place of standing ones.
    let mut batch_size = CONFIRMED_AT_ONCE.max(wanted_count);
    while similar_count < wanted_count && !remaining_turns.is_empty() || !unread.is_empty() {
        let batch: Vec<TurnId> = remaining_turns.drain(..remaining_turns.len().min(batch_size)).collect();
        batch_size = batch_size.saturating_mul(4);
        unread.extend(batch.iter().filter(|turn| !known_turns.contains(turn)));
        if !unread.is_empty() {
            let store = &services.ledger.episodes;
            let loaded = store
                .load_standing_episodes(&input.scope, pair_of(input, player), &unread)
                .await?;
            known_turns.extend(loaded.iter().map(|episode| episode.turn));
            episodes.extend(loaded);
            unread.clear();
        }
        similar_count += batch.iter().filter(|turn| known_turns.contains(turn)).count();
    }
    Ok(episodes)
}

/// The locks of an episode whose turn is in the history need no reads.
fn may_be_candidate(input: &TurnInput, episode: &Episode) -> bool {
    let in_history = || {
        let mut numbers = input.history.iter().map(|turn| turn.number);
        episode.dialogue == input.dialogue.id && numbers.any(|number| number == episode.number)
    };
    episode.locks.is_empty() || !in_history()
}

/// Returns the episodes with at least the minimum similarity, best first. Equal similarities: the newer first.
fn rank_by_similarity(services: &Services, episodes: &PairEpisodes, line: &[f32], model: &str) -> Vec<(TurnId, f64)> {
    let calibration = services.embedder.info().calibration;
    let mut ranked: Vec<(TurnId, f64)> = episodes
        .of_model(model)
        .filter(|row| row.vector.len() == line.len())
        .filter_map(|row| {
            let is_small_talk = row.episode.importance.get() < MIN_IMPORTANT;
            let min_similarity = if is_small_talk {
                MIN_SMALL_TALK_SIMILARITY
            } else {
                MIN_SIMILARITY
            };
            let similarity = calibration.relevance_of(dot_product(line, &row.vector));
            (similarity >= min_similarity).then_some((row.episode.turn, similarity))
        })
        .collect();
    ranked.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then_with(|| b.0.cmp(&a.0)));
    ranked
}

/// Returns the episodes that a trace names and that its prompt may have, as they stand now. `removals` were taken out
/// of memory at the time. Near-duplicates are left out, because a chosen episode tells the same.
async fn reread_episodes(
    services: &Services,
    input: &TurnInput,
    trace: &TurnTrace,
    removals: &PreparedRemovals<'_>,
) -> StoreResult<Vec<EpisodeHit>> {
    let Some(player) = &input.player else {
        return Ok(Vec::new());
    };
    let traced = trace
        .episodes
        .iter()
        .filter(|traced| traced.fate != EpisodeFate::NearDuplicate);
    let similarities: HashMap<TurnId, Option<f64>> = traced.map(|traced| (traced.turn_id, traced.similarity)).collect();
    let turns: Vec<TurnId> = similarities.keys().copied().collect();
    if turns.is_empty() {
        return Ok(Vec::new());
    }
    let store = &services.ledger.episodes;
    let pair = pair_of(input, player);
    let loaded = store.load_standing_episodes(&input.scope, pair, &turns).await?;
    let hit = |RedactedEpisode { episode, is_changed }| EpisodeHit {
        similarity: similarities.get(&episode.turn).copied().flatten(),
        vector: [].into(),
        episode,
        redacted: is_changed,
    };
    let shown = loaded.into_iter().filter_map(|episode| unlocked_before(trace, episode));
    let mut hits: Vec<EpisodeHit> = redact_episodes(removals, shown.collect())
        .into_iter()
        .map(hit)
        .collect();
    hits.sort_by_key(|hit| hit.episode.turn);
    Ok(hits)
}

fn pair_of<'a>(input: &'a TurnInput, player: &'a PlayerId) -> EpisodePair<'a> {
    EpisodePair {
        world: &input.world.id,
        npc: &input.npc.id,
        player,
    }
}

/// Returns the line about a turn that no model has described: the first sentence of the player's line. A greeting has no
/// line.
pub(crate) fn plain_episode(
    services: &Services,
    npc: &Npc,
    line: &str,
    intent: Option<Intent>,
) -> Result<(String, Importance), TemplateError> {
    // A quotation mark in the line would end the quotation, and the rest would read as a report.
    let line = first_sentence(line, MAX_LINE_CHARS).replace(['"', '\u{201c}', '\u{201d}', '\u{ff02}'], "'");
    let is_small_talk = line.is_empty() || intent == Some(Intent::Chat);
    let values = minijinja::context! { line, npc_name => npc.name.as_str() };
    let text = services.prompts.render(npc.language, Template::Episode, values)?;
    let importance = if is_small_talk { 1.0 } else { 2.0 };
    Ok((
        clip_line(&text, MAX_EPISODE_CHARS),
        Importance::from_clamped(importance),
    ))
}

/// Returns the episode of a greeting, which no extraction reads. `None`: the turn is none.
pub(crate) fn greeting_episode(
    services: &Services,
    input: &TurnInput,
    turn: &Turn,
    place: Option<String>,
) -> Result<Option<Episode>, TemplateError> {
    let Some(player) = input.player.clone().filter(|_| input.teaches_nothing()) else {
        return Ok(None);
    };
    let (text, importance) = plain_episode(services, &input.npc, "", None)?;
    Ok(Some(Episode {
        turn: turn.id,
        dialogue: turn.dialogue,
        number: turn.number,
        world: input.world.id.clone(),
        npc: turn.npc.clone(),
        player,
        place,
        text,
        importance,
        // The text has nothing of the prompt.
        locks: DisclosureLocks::default(),
        committed_at: turn.committed_at,
    }))
}
