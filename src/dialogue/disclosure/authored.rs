//! Verdicts on authored content: scenarios, and entries of the lore.

use super::disclosable::Disclosable;
use colloquy_core::planted_leak;
use colloquy_memory::{
    authored::Npc,
    condition::{Condition, ConditionContext},
    disclosure::secrecy::Secrecy,
    lore::LoreText,
    progress::Progress,
    trace::LoreTrace,
};
use colloquy_ports::ledger::scenarios::{EmbeddedScenario, ScenarioTell, ScenarioTitle};

/// A row of a scenario, with what the scenario requires of a player.
pub(crate) trait RequiresProgress {
    fn required_progress(&self) -> Progress;
    fn when(&self) -> &[Condition];
}
impl RequiresProgress for EmbeddedScenario {
    fn required_progress(&self) -> Progress {
        self.scenario.required_progress
    }
    fn when(&self) -> &[Condition] {
        &self.scenario.when
    }
}
impl RequiresProgress for ScenarioTitle {
    fn required_progress(&self) -> Progress {
        self.required_progress
    }
    fn when(&self) -> &[Condition] {
        &self.when
    }
}
impl RequiresProgress for ScenarioTell {
    fn required_progress(&self) -> Progress {
        self.required_progress
    }
    fn when(&self) -> &[Condition] {
        &self.when
    }
}

fn may_be_told(row: &impl RequiresProgress, progress: Progress, context: &ConditionContext<'_>) -> bool {
    progress >= row.required_progress() && context.all_hold(row.when())
}

/// Returns the scenarios that a player with this progress may hear, in the same order.
pub(crate) fn open_scenarios<R: RequiresProgress>(
    rows: Vec<R>,
    progress: Progress,
    context: &ConditionContext<'_>,
) -> Vec<Disclosable<R>> {
    let open = rows.into_iter().filter(|row| may_be_told(row, progress, context));
    open.map(Disclosable::new).collect()
}

/// Returns what the NPC shows of a scenario that it keeps to itself. `None`: the NPC shows nothing, or tells everything.
pub(crate) fn open_tell(
    hidden: &ScenarioTell,
    progress: Progress,
    context: &ConditionContext<'_>,
) -> Option<Disclosable<String>> {
    let may_be_told = may_be_told(hidden, progress, context);
    let secrecy = Secrecy::decide(may_be_told, Some(&hidden.tell), context);
    (secrecy == Secrecy::Guarded).then(|| Disclosable::new(hidden.tell.text.clone()))
}

/// The part of an entry of the lore that a prompt may have.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OpenLore<'a> {
    Whole(&'a LoreText),
    /// The sign that the NPC gives instead.
    Tell(&'a str),
}

/// What an NPC may say of an entry of the lore in a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoreVerdict(Secrecy);

impl LoreVerdict {
    /// Decides about an entry for a turn of `npc`.
    pub(crate) fn in_turn(text: &LoreText, npc: &Npc, context: &ConditionContext<'_>) -> Self {
        let is_locked_leaked = planted_leak!("lore.locked");
        let is_guarded_leaked = planted_leak!("lore.guarded");
        match text.secrecy(npc, context) {
            Secrecy::Locked if is_locked_leaked => Self(Secrecy::Open),
            Secrecy::Guarded if is_guarded_leaked => Self(Secrecy::Open),
            secrecy => Self(secrecy),
        }
    }
    /// Returns the verdict of an earlier turn.
    pub(crate) const fn before(traced: &LoreTrace) -> Self {
        Self(traced.secrecy)
    }
    pub(crate) const fn secrecy(self) -> Secrecy {
        self.0
    }
    /// Returns a verdict for a test.
    #[cfg(test)]
    pub(crate) const fn sample(secrecy: Secrecy) -> Self {
        Self(secrecy)
    }
}

/// Returns the part of an entry that a prompt may have. `None`: the prompt may have nothing.
pub(crate) fn open_lore(text: &LoreText, verdict: LoreVerdict) -> Option<Disclosable<OpenLore<'_>>> {
    match verdict.secrecy() {
        Secrecy::Open => Some(Disclosable::new(OpenLore::Whole(text))),
        Secrecy::Guarded => {
            let tell = text.tell.as_ref().map_or("", |tell| tell.text.as_str());
            Some(Disclosable::new(OpenLore::Tell(tell)))
        }
        Secrecy::Locked => None,
    }
}
