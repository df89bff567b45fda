//! Random histories. Both worlds run the same history; only the secret differs.

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use super::words::plain_word;

/// What the two worlds differ in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secret {
    /// A scenario of Mira that is not open to the observers.
    Scenario,
    /// An entry of the lore that is not open to the observers.
    Lore,
    /// What the first player tells Mira in private.
    Confidence,
    /// What NPCs say where only the first player listens.
    Conversation,
    /// What the first player told Mira, and a person removed from her memory.
    Removed,
    /// A second tenant in the first world, with the same names.
    Tenant,
    /// A turn that is said and taken back in the first world, and never said in the second.
    UnsaidTurn,
}

impl Secret {
    pub const ALL: [Self; 7] = [
        Self::Scenario,
        Self::Lore,
        Self::Confidence,
        Self::Conversation,
        Self::Removed,
        Self::Tenant,
        Self::UnsaidTurn,
    ];
}

/// The players. The first one may know the secret.
pub const PLAYERS: [&str; 3] = ["p1", "p2", "p3"];
/// The NPCs: ids and names. The secret is Mira's.
pub const NPCS: [(&str, &str); 3] = [("mira", "Mira"), ("ergen", "Ergen"), ("tom", "Tom")];

/// The form of a player's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineForm {
    Ask,
    Tell,
    Promise,
    Keep,
    AskPast,
    AskWorld,
    AskOverheard,
    Forget,
    Greet,
    PointBack,
}

impl LineForm {
    const ALL: [Self; 10] = [
        Self::Ask,
        Self::Tell,
        Self::Promise,
        Self::Keep,
        Self::AskPast,
        Self::AskWorld,
        Self::AskOverheard,
        Self::Forget,
        Self::Greet,
        Self::PointBack,
    ];

    /// Returns the line about a word.
    pub fn line(self, word: &str) -> String {
        match self {
            Self::Ask => format!("What do you know of the {word}?"),
            Self::Tell => format!("I keep a {word} at home, and I like it."),
            Self::Promise => format!("I promise to bring you the {word}."),
            Self::Keep => format!("It is done: here is the {word}, and I keep my word."),
            Self::AskPast => format!("What happened in your past with the {word}?"),
            Self::AskWorld => format!("Where in the world is the {word}?"),
            Self::AskOverheard => format!("What was said among you about the {word}?"),
            Self::Forget => format!("Forget what I told you about the {word}."),
            Self::Greet => "Good day to you.".to_owned(),
            Self::PointBack => "And what was that about?".to_owned(),
        }
    }
}

/// Who may listen to a conversation among NPCs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listeners {
    Nobody,
    Everybody,
    First,
    Second,
}

/// A player, an NPC: the session between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair {
    pub player: usize,
    pub npc: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Say {
        pair: Pair,
        form: LineForm,
        word: u8,
    },
    /// The first player tells Mira the secret.
    Confide {
        number: u8,
    },
    /// A person removes all facts of the first player's session with Mira, and the session ends.
    Erase,
    /// The turn that is taken back in the first world, and never said in the second.
    TakeBack {
        pair: Pair,
        number: u8,
    },
    /// NPCs talk, and nobody outside of them and their listeners hears the secret.
    Converse {
        listeners: Listeners,
        word: u8,
        lines: u8,
    },
    /// The NPCs talk of the secret before the first player alone.
    ConverseInSecret {
        number: u8,
    },
    /// Takes the last turns of a session back; the last one partly, with `heard`.
    Rewind {
        pair: Pair,
        turns: u32,
        heard: bool,
    },
    Close {
        pair: Pair,
    },
    Save,
    Restore {
        number: usize,
    },
    Write {
        npc: usize,
        word: u8,
        is_pinned: bool,
    },
    /// Edits or deletes a fact that the player's session with the NPC may use.
    Edit {
        pair: Pair,
        number: usize,
        deletes: bool,
    },
    Progress {
        pair: Pair,
        to: u32,
    },
    Report {
        player: usize,
        word: u8,
    },
    Curate {
        pair: Pair,
    },
    Consolidate {
        npc: usize,
    },
    Wait {
        hours: u64,
    },
}

/// A history with its worlds' settings.
#[allow(clippy::struct_excessive_bools, reason = "independent settings")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    pub secret: Secret,
    /// True: the first player comes to know the secret.
    pub is_known: bool,
    /// True: the second world lacks the secret. False: it has another.
    pub is_absent: bool,
    /// True: the NPC shows the same tell in both worlds.
    pub is_guarded: bool,
    pub shares: bool,
    pub gossip: bool,
    pub self_told: bool,
    pub steps: Vec<Step>,
}

impl Program {
    /// Returns the history of a seed with at most `length` steps.
    pub fn random(secret: Secret, seed: u64, length: usize) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let is_authored = matches!(secret, Secret::Scenario | Secret::Lore);
        let is_told = matches!(secret, Secret::Confidence | Secret::Conversation);
        let is_removed = secret == Secret::Removed;
        let is_known = is_told || is_removed || is_authored && rng.random_bool(0.5);
        let is_absent = (is_told || is_authored && !is_known) && rng.random_bool(0.4);
        // What is told in private is shared nowhere.
        let shares = !is_told && !is_removed && rng.random_bool(0.4);
        let mut program = Self {
            secret,
            is_known,
            is_absent,
            // Words of a secret keep back statements that share a word, so shared statements need equal names.
            is_guarded: is_authored && !is_absent && (is_known && shares || rng.random_bool(0.5)),
            shares,
            gossip: secret != Secret::Conversation && rng.random_bool(0.2),
            // An NPC that knows a secret chooses its words about itself by it.
            self_told: !is_known && rng.random_bool(0.5),
            steps: Vec::new(),
        };
        let steps = rng.random_range(length / 2..=length);
        if is_authored && is_known {
            program.steps.push(Step::Progress { pair: INSIDERS, to: 3 });
        }
        if is_removed {
            program
                .steps
                .extend([Step::Confide { number: 0 }, Step::Confide { number: 1 }, Step::Erase]);
        }
        for _ in 0..steps {
            let step = program.random_step(&mut rng);
            program.steps.push(step);
        }
        program
    }

    fn random_step(&self, rng: &mut StdRng) -> Step {
        let pair = Pair {
            player: rng.random_range(0..PLAYERS.len()),
            npc: [0, 0, 1, 2][rng.random_range(0..4)],
        };
        let word = rng.random_range(0..8);
        let number = rng.random_range(0..3);
        match rng.random_range(0..40) {
            0..6 => self.secret_step(pair, number),
            6..20 => Step::Say {
                pair,
                form: LineForm::ALL[rng.random_range(0..LineForm::ALL.len())],
                word,
            },
            20..23 => {
                let listeners = [
                    Listeners::Nobody,
                    Listeners::Everybody,
                    Listeners::First,
                    Listeners::Second,
                ];
                let listeners = listeners[rng.random_range(0..4)];
                // A named channel: what is learned where a secret was shown is kept back. Without the secret, it is open.
                let is_tainted = self.secret == Secret::Conversation
                    && self.is_absent
                    && matches!(listeners, Listeners::Nobody | Listeners::First);
                Step::Converse {
                    listeners: if is_tainted { Listeners::Everybody } else { listeners },
                    word,
                    lines: 1 + number,
                }
            }
            23..25 => Step::Rewind {
                pair,
                turns: rng.random_range(1..3),
                heard: rng.random_bool(0.3),
            },
            25 => Step::Close { pair },
            26 => Step::Save,
            27 => Step::Restore {
                number: rng.random_range(0..2),
            },
            28..30 => Step::Write {
                npc: pair.npc,
                word,
                is_pinned: rng.random_bool(0.2),
            },
            30 => Step::Edit {
                pair: self.observed(pair),
                number: rng.random_range(0..4),
                deletes: rng.random_bool(0.5),
            },
            31 => Step::Progress {
                pair: self.observed(pair),
                to: rng.random_range(0..3),
            },
            32..34 => Step::Report {
                player: pair.player,
                word,
            },
            34..37 => Step::Curate {
                pair: if self.is_known && number > 0 { INSIDERS } else { pair },
            },
            37 => Step::Consolidate { npc: pair.npc },
            _ => Step::Wait {
                hours: [1, 30, 200][usize::from(number)],
            },
        }
    }

    /// Returns a step of the kind of the secret, or a line where the secret needs no step.
    fn secret_step(&self, pair: Pair, number: u8) -> Step {
        match self.secret {
            Secret::Confidence => Step::Confide { number },
            Secret::Conversation => Step::ConverseInSecret { number },
            // The second player's socket has the events of a turn that is taken back.
            Secret::UnsaidTurn => Step::TakeBack {
                pair: Pair {
                    player: [0, 2, 2][pair.player],
                    ..pair
                },
                number,
            },
            // The line names the secret: by its title, or by words of its content.
            Secret::Scenario | Secret::Lore | Secret::Removed | Secret::Tenant => {
                let player = if self.is_known { INSIDERS.player } else { pair.player };
                let form = [LineForm::AskPast, LineForm::AskWorld, LineForm::Ask][usize::from(number)];
                let word = [7, 0, 3][usize::from(number)];
                Step::Say {
                    pair: Pair { player, npc: 0 },
                    form,
                    word,
                }
            }
        }
    }

    /// Replaces the pair by another player's, if the pair may know the secret.
    fn observed(&self, pair: Pair) -> Pair {
        if self.may_know(pair) {
            Pair { player: 1, ..pair }
        } else {
            pair
        }
    }

    /// True if a new session of the pair may have the secret, unless the secret was removed before.
    pub fn may_know(&self, pair: Pair) -> bool {
        // After a conversation, more than one NPC knows.
        let is_insider = pair.npc == INSIDERS.npc || self.secret == Secret::Conversation;
        self.is_known && pair.player == INSIDERS.player && is_insider
    }

    /// True if the prompts of a step may have the secret; for a step of a session, if its session may.
    pub fn is_inside(&self, step: &Step) -> bool {
        match step {
            // The prompt of a turn that is never said has no counterpart.
            Step::Confide { .. } | Step::ConverseInSecret { .. } | Step::Erase | Step::TakeBack { .. } => true,
            // NPCs who talk among themselves, or before the first player, know of their talk.
            Step::Converse { listeners, .. } => {
                self.secret == Secret::Conversation && matches!(listeners, Listeners::Nobody | Listeners::First)
            }
            // These work on all memories.
            Step::Consolidate { .. } | Step::Restore { .. } => self.is_known,
            _ => false,
        }
    }

    /// True if no step edits or removes what earlier steps added.
    pub fn only_adds(&self) -> bool {
        let is_edit = |step: &Step| {
            matches!(
                step,
                Step::Erase | Step::TakeBack { .. } | Step::Rewind { .. } | Step::Restore { .. } | Step::Edit { .. }
            )
        };
        !self.steps.iter().any(is_edit)
    }

    /// Returns the history without one step.
    pub fn without_step(&self, index: usize) -> Self {
        let mut shorter = self.clone();
        shorter.steps.remove(index);
        shorter
    }
}

/// The session that may know the secret.
pub const INSIDERS: Pair = Pair { player: 0, npc: 0 };

impl std::fmt::Display for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            secret,
            is_known,
            is_absent,
            is_guarded,
            shares,
            gossip,
            self_told,
            steps,
        } = self;
        writeln!(
            f,
            "{secret:?} known={is_known} absent={is_absent} guarded={is_guarded} shares={shares} gossip={gossip} \
             self_told={self_told}"
        )?;
        for (index, step) in steps.iter().enumerate() {
            match step {
                Step::Say { pair, form, word } => {
                    let line = form.line(plain_word(*word));
                    writeln!(f, "{index:>3} {} to {}: {line}", PLAYERS[pair.player], NPCS[pair.npc].0)?;
                }
                step => writeln!(f, "{index:>3} {step:?}")?,
            }
        }
        Ok(())
    }
}
