//! Reads lines for the question "What were you two just talking about?". Only standing lines of the conversation are
//! read, so an unsaid line cannot be told.

use minijinja::{Value, context};

use super::{
    entries::{Entries, Entry},
    kind::{KindOfKnowledge, LineSearch, Rereading},
    section::{Section, SectionSize, SectionSizes, TemplateValues, ToldParts, room_under_heading},
};
use crate::{
    Services,
    disclosure::{Disclosable, Disclosures, Gate, Hearing, shown_before},
    prompt::{ITEM_TOKENS, PromptContext, escape_untrusted},
    settings::PromptSettings,
    turn::{TurnError, TurnInput},
};
use colloquy_core::ids::{DialogueId, DialogueKind, NpcId};
use colloquy_memory::{
    disclosure::{audience::Watchers, locks::DisclosureLocks},
    fact::Cause,
    trace::{OverheardTrace, PromptSources, TurnTrace},
    turn::{Intent, Turn},
};
use colloquy_ports::{StoreResult, buffer::BufferedTurn};

/// The number of lines read from the end of a conversation.
const MAX_OVERHEARD_LINES: u32 = 12;

/// A line that an NPC said to other NPCs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OverheardLine {
    name: String,
    text: String,
}

/// The overheard lines, oldest first, with the players who may hear them.
#[derive(Debug, Default)]
pub(crate) struct Overheard {
    lines: Vec<Disclosable<OverheardLine>>,
    locks: DisclosureLocks,
    /// Where the lines are from.
    source: Option<OverheardTrace>,
}

/// The selected lines, newest first, each with the name of its speaker.
pub(crate) struct OverheardSection(Entries<Disclosable<String>>);

impl Overheard {
    pub(crate) const fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Returns the lines of turns that the hearers of this turn may hear. `watchers` could listen to the conversation.
    async fn open(
        services: &Services,
        input: &TurnInput,
        turns: Vec<Turn>,
        watchers: &Watchers,
        hearing: Hearing,
    ) -> StoreResult<Self> {
        let source = source_of(&turns);
        let lines = attribute_lines(services, input, turns).await?;
        let hearers_lock = watchers.hearers_lock().filter(|_| !lines.is_empty());
        let locks: DisclosureLocks = hearers_lock.into_iter().collect();
        Ok(Self {
            lines: Gate::of_turn(services, input)
                .open_heard_lines(lines, &locks, hearing)
                .await?,
            locks,
            source,
        })
    }
}

/// Returns where the lines of turns are from.
fn source_of(turns: &[Turn]) -> Option<OverheardTrace> {
    let (first, last) = turns.first().zip(turns.last())?;
    Some(OverheardTrace {
        dialogue: first.dialogue,
        from: first.number,
        to: last.number,
    })
}

impl KindOfKnowledge for Overheard {
    type Read<'a> = ();
    type Section<'a> = OverheardSection;

    async fn find(search: &LineSearch<'_>, (): ()) -> Result<Self, TurnError> {
        let LineSearch {
            services,
            input,
            classified,
            ..
        } = search;
        Ok(read_overheard_lines(services, input, classified.intent).await?)
    }

    async fn reread(rereading: &Rereading<'_>, changes: &mut Vec<String>) -> Result<Self, TurnError> {
        let Some(source) = rereading.sources.overheard else {
            return Ok(Self::default());
        };
        let dialogues = &rereading.services.ledger.dialogues;
        let turns = dialogues.load_turns(rereading.scope, source.dialogue, source.from, source.to);
        let turns = turns.await?;
        let found_source = source_of(&turns);
        let lines = attribute_lines(rereading.services, rereading.input, turns).await?;
        let shown_lines = shown_before(rereading.trace, (found_source, lines));
        let talk = dialogues.load_dialogue(rereading.scope, source.dialogue).await?;
        if talk.is_none_or(|talk| talk.head_turn < source.to) || found_source != Some(source) {
            changes.push(format!("lines of {} were taken back", source.dialogue));
        }
        let lines = shown_lines.map(|shown| shown.map(|(_, lines)| lines).into_entries().collect());
        Ok(Self {
            lines: lines.unwrap_or_default(),
            locks: DisclosureLocks::default(),
            source: found_source,
        })
    }

    /// Selects the newest lines without gaps: questions are about the last lines.
    fn select<'a>(
        &'a self,
        context: &'a PromptContext<'a>,
        _told_parts: &ToldParts<'_>,
        remaining_tokens: u32,
    ) -> Result<OverheardSection, TurnError> {
        let budget = context.settings.prompt.overheard_tokens;
        let mut room = room_under_heading(budget, remaining_tokens);
        let mut entries = Entries::<Disclosable<String>>::default();
        for (index, line) in self.lines.iter().enumerate().rev() {
            let detail = line.as_ref().map(|line| escape_untrusted(&line.name));
            let text = line.as_ref().map(|line| escape_untrusted(&line.text));
            let tokens = context.count(&detail) + context.count(&text) + ITEM_TOKENS;
            if tokens > room {
                break;
            }
            let entry = Entry {
                index,
                text,
                tokens,
                detail,
            };
            entries.fit(entry, &mut room);
        }
        entries.dropped = self.lines.len() - entries.items.len();
        Ok(OverheardSection(entries))
    }

    fn add_sources(&self, sources: &mut PromptSources) {
        sources.overheard = self.source;
    }

    fn add_disclosures(&self, _input: &TurnInput, _trace: &TurnTrace, disclosures: &mut Disclosures) {
        disclosures.told_at_once.extend_with(&self.locks);
    }
}

impl Section for OverheardSection {
    fn tokens(&self) -> u32 {
        self.0.tokens()
    }
    /// Drops the oldest.
    fn drop_least(&mut self) -> bool {
        self.0.drop_last()
    }

    fn add_values(&self, values: &mut TemplateValues<'_>) -> Result<(), TurnError> {
        let entries = self.0.items.iter().rev();
        let lines = entries.map(|entry| {
            let line = entry.detail.as_ref().zip(entry.text.as_ref());
            line.map(|(name, text)| context! { name, text })
        });
        values.add_changing("overheard", lines.collect::<Disclosable<Vec<Value>>>());
        Ok(())
    }

    fn add_sizes(&self, budgets: &PromptSettings, sizes: &mut SectionSizes) {
        let budget = budgets.overheard_tokens;
        let size = SectionSize::new("overheard", self.tokens(), budget, self.0.dropped, "earlier lines");
        sizes.add_if_any(size, |hash| {
            for entry in self.0.items.iter().rev() {
                hash.add_text(&entry.detail);
                hash.add_text(&entry.text);
            }
        });
    }
}

/// Returns the last lines of the conversation that this turn asks about, oldest first:
/// - If the player joined the session from a conversation: that conversation, always.
/// - If the intent asks for it: the conversation with the newest line that the NPC took part in or witnessed.
///
/// A conversation names the players who may listen. Other players hear no line, unless the world's NPCs gossip.
async fn read_overheard_lines(services: &Services, input: &TurnInput, intent: Intent) -> StoreResult<Overheard> {
    let Some(player) = &input.player else {
        return Ok(Overheard::default());
    };
    let dialogues = &services.ledger.dialogues;
    if let Some(Cause::Turn(turn)) = input.dialogue.cause
        && let Some(cause_turn) = dialogues.load_turn(&input.scope, turn).await?
        && cause_turn.turn.dialogue.kind() == DialogueKind::NpcConversation
    {
        // Lines after the player's departure are excluded, because the player left the conversation for this session.
        let joined = cause_turn.turn.dialogue;
        let last = cause_turn.turn.number;
        let (turns, conversation) = tokio::try_join!(
            read_last_turns(services, input, joined, last),
            dialogues.load_dialogue(&input.scope, joined)
        )?;
        let watchers = conversation.map(|conversation| conversation.options.watchers());
        return Overheard::open(services, input, turns, &watchers.unwrap_or_default(), Hearing::Joined).await;
    }
    if intent != Intent::Overheard {
        return Ok(Overheard::default());
    }
    let gossip = input.world.settings.allows_gossip();
    let player = (!gossip).then_some(player);
    let talk = dialogues.find_last_overheard(&input.scope, &input.world.id, &input.npc.id, player);
    let Some(talk) = talk.await? else {
        return Ok(Overheard::default());
    };
    let turns = read_last_turns(services, input, talk.dialogue, talk.last).await?;
    Overheard::open(services, input, turns, &talk.watchers, Hearing::Told).await
}

async fn read_last_turns(
    services: &Services,
    input: &TurnInput,
    dialogue: DialogueId,
    last: u32,
) -> StoreResult<Vec<Turn>> {
    let from = last.saturating_sub(MAX_OVERHEARD_LINES) + 1;
    let dialogues = &services.ledger.dialogues;
    dialogues.load_turns(&input.scope, dialogue, from, last).await
}

/// Adds the names of the speakers.
async fn attribute_lines(services: &Services, input: &TurnInput, turns: Vec<Turn>) -> StoreResult<Vec<OverheardLine>> {
    let mut names: Vec<(NpcId, String)> = vec![(input.npc.id.clone(), input.npc.name.clone())];
    let mut lines = Vec::with_capacity(turns.len());
    for turn in &turns {
        if !names.iter().any(|(id, _)| *id == turn.npc) {
            let authored = &services.ledger.authored;
            let npc = authored.load_npc(&input.scope, &input.world.id, &turn.npc).await?;
            // A deleted NPC appears with its id.
            names.push((
                turn.npc.clone(),
                npc.map_or_else(|| turn.npc.to_string(), |npc| npc.name),
            ));
        }
        let name = names
            .iter()
            .find(|(id, _)| *id == turn.npc)
            .map(|(_, name)| name.clone());
        lines.push(OverheardLine {
            name: name.unwrap_or_default(),
            // Includes the dash at the end of a cut line.
            text: BufferedTurn::from(turn).reply_text,
        });
    }
    Ok(lines)
}
