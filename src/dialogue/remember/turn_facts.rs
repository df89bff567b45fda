//! What one turn adds to the memories it teaches: what is private to its player, or known to all who heard it, and what
//! the NPC told of itself.

use super::{
    Injected,
    extraction::{Fresh, Learned},
    judge::Judge,
    reconciling::{Addition, Memory, Part, write},
    self_told,
};
use crate::{
    dialogue::{
        Services,
        events::{MemoryChange, MemoryOp},
        jobs::{JobError, Said},
        models::spent,
    },
    ids::{FactId, WorldId},
    memory::{
        fact::{Audience, Cause, NewFact},
        timeline::{Flagged, Known, Settled, Share},
    },
    ports::{
        StoreError,
        ledger::{
            facts::{Extraction, ReconcileOutcome, Reconciliation, Writing},
            jobs::Job,
        },
    },
    tenancy::TenantScope,
};

/// Calls of a judge that the job of one turn may make. One is enough for what a turn teaches; what was said since a turn
/// whose job comes late needs more.
const TURN_CALLS: usize = 4;

/// Writes what was learned. Returns what changed; nothing if the turn was unsaid meanwhile.
///
/// What the NPC told of itself may be for every player to hear of, which is another memory than what the player told it: both
/// are planned apart, and written at once.
pub(super) async fn reconcile(
    services: &Services,
    scope: &TenantScope,
    job: &Job,
    said: &Said,
    injected: &Injected,
    learned: Learned,
) -> Result<Vec<MemoryChange>, JobError> {
    let (for_all, own) = self_told::apart(services, scope, said, injected, learned.facts).await?;
    let extraction = Extraction {
        turn: said.turn.id,
        dialogue: said.turn.dialogue,
        number: said.turn.number,
        npc: said.turn.npc.clone(),
        said_at: said.turn.committed_at,
        player: said.turn.player.clone(),
        forget: learned.forget,
        ends: learned.ends,
        injected: injected.ids.clone(),
        quoted: injected.quoted.clone(),
        audience: said.audience(),
        room: if for_all.is_empty() {
            Share::WHOLE
        } else {
            Share::GREATER
        },
    };
    let writing = Writing::Job(job.fence());
    if for_all.is_empty() && own.is_empty() && !extraction.may_end_facts() {
        // A turn that says nothing new ends nothing, whatever was said around it: there is nothing to plan.
        let result = nothing_new(said.world.id.clone(), writing, extraction);
        return match services.ledger.facts.reconcile(scope, &result).await? {
            ReconcileOutcome::Committed | ReconcileOutcome::Fenced => Ok(Vec::new()),
            ReconcileOutcome::MemoryMoved => {
                Err(StoreError::Corrupt(format!("the end of {} depends on a memory", said.turn.id)).into())
            }
        };
    }
    let part = |fresh: Vec<Fresh>, extraction: Extraction| Part {
        memory: Memory {
            services,
            scope,
            world: said.world.id.clone(),
            npcs: said.learners(),
            audience: extraction.audience.clone(),
        },
        addition: Some(Addition {
            facts: fresh
                .iter()
                .map(|fresh| new_fact(said, &extraction.audience, injected, fresh))
                .collect(),
            fresh,
            extraction,
        }),
    };
    let beside = (!for_all.is_empty()).then(|| self_told::extraction(&extraction));
    let mut parts = vec![part(own, extraction)];
    parts.extend(beside.map(|extraction| part(for_all, extraction)));
    let mut judge = Judge::new(services, scope, said.npc.language, TURN_CALLS);
    let answer = job.answer.is_none().then_some(learned.answer.as_str());
    let written = write(&parts, said.turn.committed_at, &writing, answer, &mut judge).await?;
    let outcomes = parts.iter().zip(written.into_iter().flatten());
    let added = outcomes.filter_map(|(part, outcome)| Some((part.addition.as_ref()?, outcome)));
    Ok(added
        .flat_map(|(addition, (known, settled))| changes(&known, &settled, addition))
        .collect())
}

/// That a turn taught nothing, which moves no memory and depends on none.
fn nothing_new(world: WorldId, writing: Writing, extraction: Extraction) -> Reconciliation {
    Reconciliation {
        writing,
        calls: spent(),
        world,
        npcs: Vec::new(),
        expected_memory_seq: 0,
        extractions: vec![extraction],
        facts: Vec::new(),
        invalidations: Vec::new(),
        lifts: Vec::new(),
        flags: Vec::new(),
        flagging: Vec::new(),
        flagging_by: Vec::new(),
        flags_kept: Vec::new(),
        replaced: Vec::new(),
        verdicts: Vec::new(),
    }
}

fn new_fact(said: &Said, audience: &Audience, injected: &Injected, fresh: &Fresh) -> NewFact {
    NewFact {
        id: fresh.id,
        world: said.world.id.clone(),
        audience: audience.clone(),
        locks: said.locks_of(&fresh.statement, injected),
        statement: fresh.statement.clone(),
        // When it was said, whenever the job runs.
        valid_at: said.turn.committed_at,
        expires_at: None,
        cause: Cause::Turn(said.turn.id),
        source: Some((said.turn.dialogue, said.turn.number)),
        derived_from: Vec::new(),
        pii: fresh.pii.clone(),
        authored: false,
        embedding: fresh.embedding.clone(),
    }
}

/// What those who listen to the dialogue are told: what is new and stands, what it ended, what it
/// contradicts.
fn changes(known: &[Known], settled: &Settled, addition: &Addition) -> Vec<MemoryChange> {
    let ended = |fact: FactId| {
        settled
            .ends
            .iter()
            .any(|end| end.fact == fact && end.restored_at.is_none())
    };
    let added = addition
        .fresh
        .iter()
        .filter(|fresh| !ended(fresh.id))
        .map(|fresh| MemoryChange {
            id: fresh.id,
            content: fresh.statement.content.clone(),
            op: MemoryOp::Added,
        });
    let known = known.iter().filter(|known| {
        let new = addition.fresh.iter().any(|fresh| fresh.id == known.fact.id);
        !new
    });
    let others = known.filter_map(|known| {
        let id = known.fact.id;
        let flagged = |flag: &Flagged| flag.fact == id && flag.turn == addition.extraction.turn;
        let op = if known.fact.invalid.is_none() && ended(id) {
            MemoryOp::Invalidated
        } else if settled.flags.iter().any(flagged) {
            MemoryOp::Flagged
        } else {
            return None;
        };
        Some(MemoryChange {
            id,
            content: known.fact.view.content.clone(),
            op,
        })
    });
    added.chain(others).collect()
}
