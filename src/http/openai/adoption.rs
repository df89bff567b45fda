//! Adoption: an NPC takes in the memory of another NPC, such as a character that a chat program described. An operation
//! of this server's own document.
//!
//! The standing turns of each session of the other NPC are stored as a session of the adopting NPC with the same player, as
//! they were said, as a transcript that the server has not seen. The usual jobs learn from them. The id of the new session
//! follows from both NPCs and the old session, so a repeat finds the session again and adds only what is missing.
//! Facts that people wrote are copied.

use std::collections::HashSet;

use actix_web::{HttpRequest, HttpResponse, post, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use utoipa::ToSchema;

use super::{
    completions::new_session,
    follow::{follow_transcript, is_too_long_to_import},
    known_sessions::{KnownSessions, ThreadKey},
};
use crate::{
    AppState,
    errors::Problem,
    extract::{Author, Authorized, Body, Path},
    nodes::DialogueOfRequest,
    npcs,
    pagination::collect_pages,
    uncancelled::run_uncancelled,
    worlds,
};
use colloquy_actors::NewSession;
use colloquy_core::ids::{DialogueId, DialogueKind, FactId, NpcId, PlayerId, WorldId};
use colloquy_dialogue::remember::{ManualFact, write_manual_fact};
use colloquy_memory::{
    authored::Npc,
    chat_transcript::{Transcript, TranscriptAlignment, TranscriptEnd, TranscriptTurn},
    disclosure::audience::{Audience, Knower, Viewpoint, Watchers},
    fact::Fact,
    turn::Turn,
};
use colloquy_ports::{
    PageRequest,
    ledger::{
        dialogues::{Dialogue, DialogueFilter, DialogueStatus},
        facts::FactFilter,
        jobs::LearningProgress,
    },
};

/// The most turns that one request stores.
const MAX_ADOPTED_TURNS: usize = 1_000;

/// Whose memory is taken in.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
#[allow(clippy::struct_field_names)]
pub struct AdoptionBody {
    /// The world of the other NPC, such as the `chats-…` of a player.
    #[schema(value_type = String, pattern = "^[a-z0-9][a-z0-9_-]{0,63}$")]
    world_id: WorldId,
    /// The other NPC. It stays as it is.
    #[schema(value_type = String, pattern = "^[a-z0-9][a-z0-9_-]{0,63}$")]
    npc_id: NpcId,
    /// Only what this player said and heard. Default: all players.
    #[schema(value_type = Option<String>, pattern = r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$")]
    player_id: Option<PlayerId>,
}

/// A session whose turns were taken in.
#[derive(Debug, Serialize, ToSchema)]
pub struct AdoptedSessionView {
    #[schema(value_type = String)]
    source_session_id: DialogueId,
    /// The session of the adopting NPC.
    #[schema(value_type = String)]
    session_id: DialogueId,
    #[schema(value_type = String)]
    player_id: PlayerId,
    /// The turns that this request stored; 0: all were there.
    stored_turns: u32,
    learning: LearningProgress,
}

/// Why a session was left as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NotAdoptedReason {
    /// The session has several NPCs.
    SeveralNpcs,
    /// The adopted session has other turns by now than the source.
    Differs,
    /// The adopted session is closed.
    Closed,
    /// A turn has more than 16,000 characters.
    TooLong,
}

/// A session whose turns were not taken in.
#[derive(Debug, Serialize, ToSchema)]
pub struct NotAdoptedView {
    #[schema(value_type = String)]
    source_session_id: DialogueId,
    #[schema(inline)]
    reason: NotAdoptedReason,
}

/// The outcome of an adoption.
#[derive(Debug, Default, Serialize, ToSchema)]
pub struct AdoptionView {
    /// False: the request has stored as many turns as one request may (1,000). The same request again goes on.
    complete: bool,
    /// Oldest first.
    sessions: Vec<AdoptedSessionView>,
    not_adopted: Vec<NotAdoptedView>,
    /// The number of facts written by people that this request copied.
    copied_facts: u32,
    /// Learned facts of the other NPC that people have edited, and facts that people wrote with locks. They are not
    /// taken in: the NPC learns from the turns anew.
    #[schema(value_type = Vec<String>)]
    not_copied_facts: Vec<FactId>,
}

/// Takes the memory of another NPC in.
///
/// For a character of a chat program that becomes an NPC of an authored world. The turns of its sessions are stored as
/// sessions of this NPC with the same players, and learned from as if they were said now. Facts that people wrote are
/// copied. The other NPC keeps everything. A repeat adds only what is new, so it is safe.
#[utoipa::path(
    tag = "npcs",
    params(("world" = String, Path), ("npc" = String, Path)),
    request_body = AdoptionBody,
    responses((status = 200, body = AdoptionView), (status = 404, description = "There is no such world or NPC"), (status = 409, description = "The NPC is dead (`npc_dead`)")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[post("/v1/worlds/{world}/npcs/{npc}:adopt")]
pub async fn adopt_npc(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, NpcId)>,
    request: HttpRequest,
    body: Body<AdoptionBody>,
) -> Result<HttpResponse, Problem> {
    let (world, npc) = path.0;
    let AdoptionBody {
        world_id,
        npc_id,
        player_id,
    } = body.value;
    worlds::find_world(&state, &caller, &world).await?;
    let target = npcs::find_npc(&state, &caller, &world, &npc).await?;
    let not_found = || Problem::not_found("NPC").with_param("npc_id");
    if !caller.principal.can_access_world(&world_id) {
        return Err(not_found());
    }
    let authored = &state.services.ledger.authored;
    let source = authored.load_npc(&caller.scope, &world_id, &npc_id).await?;
    let source = source.ok_or_else(not_found)?;
    if (&source.world, &source.id) == (&target.world, &target.id) {
        return Err(Problem::invalid_field("npc_id", "is the NPC that takes the memory in"));
    }
    let import = state.limits.begin_import(caller.scope.tenant())?;
    run_uncancelled(async move {
        let _import = import;
        let adoption = Adoption {
            state,
            caller,
            request,
            source,
            target,
            player: player_id,
        };
        Ok(HttpResponse::Ok().json(adoption.run().await?))
    })
    .await
}

/// An adoption under way.
struct Adoption {
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    request: HttpRequest,
    source: Npc,
    target: Npc,
    /// `None`: all players.
    player: Option<PlayerId>,
}

/// What happened to a session of the source.
enum SessionOutcome {
    Adopted(AdoptedSessionView),
    NotAdopted(NotAdoptedReason),
    /// Nobody has said anything.
    Empty,
}

impl Adoption {
    async fn run(&self) -> Result<AdoptionView, Problem> {
        let mut view = AdoptionView::default();
        let mut remaining_turns = MAX_ADOPTED_TURNS;
        let object = format!("{}/{}", self.target.world, self.target.id);
        let edit = self.caller.new_edit(&self.state, "npc.adopt", object);
        let audit = &self.state.services.ledger.audit;
        audit.append_audit_row(&self.caller.scope, &edit).await?;
        for dialogue in self.source_sessions().await? {
            let source = dialogue.id;
            match self.adopt_session(dialogue, remaining_turns).await? {
                SessionOutcome::Empty => {}
                SessionOutcome::NotAdopted(reason) => view.not_adopted.push(NotAdoptedView {
                    source_session_id: source,
                    reason,
                }),
                SessionOutcome::Adopted(session) => {
                    remaining_turns =
                        remaining_turns.saturating_sub(usize::try_from(session.stored_turns).unwrap_or(usize::MAX));
                    view.sessions.push(session);
                }
            }
            if remaining_turns == 0 {
                return Ok(view);
            }
        }
        self.copy_facts(&mut view).await?;
        view.complete = true;
        Ok(view)
    }

    /// Returns the sessions of the source, oldest first.
    async fn source_sessions(&self) -> Result<Vec<Dialogue>, Problem> {
        let filter = DialogueFilter {
            kind: Some(DialogueKind::Session),
            world: Some(self.source.world.clone()),
            npc: Some(self.source.id.clone()),
            player: self.player.clone(),
            ..DialogueFilter::default()
        };
        let dialogues = &self.state.services.ledger.dialogues;
        let scope = &self.caller.scope;
        let read_page = async |page: &PageRequest| dialogues.list_dialogues(scope, &filter, page).await;
        let mut sessions = collect_pages(usize::MAX, read_page).await?;
        sessions.reverse();
        Ok(sessions)
    }

    /// Stores the turns of a session that the target does not have yet, at most `limit`.
    async fn adopt_session(&self, source: Dialogue, limit: usize) -> Result<SessionOutcome, Problem> {
        let Some(player) = source.player.clone().filter(|_| source.head_turn > 0) else {
            return Ok(SessionOutcome::Empty);
        };
        if source.npcs.len() != 1 {
            return Ok(SessionOutcome::NotAdopted(NotAdoptedReason::SeveralNpcs));
        }
        let dialogues = &self.state.services.ledger.dialogues;
        let scope = &self.caller.scope;
        let source_turns = dialogues.load_turns(scope, source.id, 1, source.head_turn).await?;
        if source_turns
            .iter()
            .any(|turn| is_too_long_to_import(&turn.player_text, &turn.reply_text))
        {
            return Ok(SessionOutcome::NotAdopted(NotAdoptedReason::TooLong));
        }
        let key = ThreadKey {
            tenant: scope.tenant().clone(),
            player: player.clone(),
            world: self.target.world.clone(),
            npc: self.target.id.clone(),
            name: source.options.chat_key.clone().unwrap_or_default(),
        };
        // A request of the chat program for the adopted session waits meanwhile.
        let mut thread = self.state.threads.lock(&key).await;
        let adopted = self.find_or_make_session(&source, &key).await?;
        let adopted_turns = dialogues.load_turns(scope, adopted.id, 1, adopted.head_turn).await?;
        if !source_turns
            .iter()
            .zip(&adopted_turns)
            .all(|(source_turn, adopted_turn)| is_same_turn(source_turn, adopted_turn))
        {
            return Ok(SessionOutcome::NotAdopted(NotAdoptedReason::Differs));
        }
        let new_turns: Vec<&Turn> = source_turns.iter().skip(adopted_turns.len()).take(limit).collect();
        if !new_turns.is_empty() && adopted.status == DialogueStatus::Closed {
            return Ok(SessionOutcome::NotAdopted(NotAdoptedReason::Closed));
        }
        self.store_turns(&adopted, &new_turns, &mut thread).await?;
        let jobs = &self.state.services.ledger.jobs;
        let learning = jobs.load_learning_progress(scope, adopted.id).await?;
        Ok(SessionOutcome::Adopted(AdoptedSessionView {
            source_session_id: source.id,
            session_id: adopted.id,
            player_id: player,
            stored_turns: u32::try_from(new_turns.len()).unwrap_or(u32::MAX),
            learning: learning.unwrap_or_default(),
        }))
    }

    /// Returns the session of the target for a session of the source.
    async fn find_or_make_session(&self, source: &Dialogue, key: &ThreadKey) -> Result<Dialogue, Problem> {
        let id = adopted_session_id(source.id, &self.target);
        let dialogues = &self.state.services.ledger.dialogues;
        if let Some(existing) = dialogues.load_dialogue(&self.caller.scope, id).await? {
            return Ok(existing);
        }
        let session = NewSession {
            playback: source.options.playback,
            chat_key: source.options.chat_key.clone(),
            ..new_session(key)
        };
        let sessions = &self.state.sessions;
        match sessions.create_session_with_id(&self.caller.scope, id, session).await {
            Ok(Some(created)) => Ok(created.dialogue),
            Ok(None) => Err(Problem::not_found("session")),
            // Another node may have made the session meanwhile.
            Err(error) => match dialogues.load_dialogue(&self.caller.scope, id).await? {
                Some(existing) => Ok(existing),
                None => Err(error.into()),
            },
        }
    }

    async fn store_turns(
        &self,
        adopted: &Dialogue,
        turns: &[&Turn],
        thread: &mut KnownSessions,
    ) -> Result<(), Problem> {
        if turns.is_empty() {
            return Ok(());
        }
        // For the middleware that may forward the request to the node of the session.
        DialogueOfRequest::set(&self.request, adopted.id);
        let transcript_turns = turns.iter().map(|turn| TranscriptTurn {
            player_text: turn.player_text.clone(),
            reply_text: turn.reply_text.clone(),
        });
        let transcript = Transcript {
            turns: transcript_turns.collect(),
            end: TranscriptEnd::Line(String::new()),
        };
        let alignment = TranscriptAlignment::after_turn(adopted.head_turn, &transcript);
        follow_transcript(&self.state, &self.caller.principal, adopted, &alignment, thread).await?;
        Ok(())
    }

    /// Copies the facts that people wrote for the source, except those that the target had before.
    async fn copy_facts(&self, view: &mut AdoptionView) -> Result<(), Problem> {
        let mut target_facts: HashSet<FactText> = HashSet::new();
        for fact in self.list_facts(&self.target, true).await? {
            target_facts.insert(FactText::of(&fact));
        }
        for fact in self.list_facts(&self.source, false).await? {
            let is_own = fact.audience.knowers.contains(&Knower::Npc(self.source.id.clone()));
            let of_player = self.player.is_none() || fact.audience.private_to.is_none();
            let of_player = of_player || fact.audience.private_to == self.player;
            if !is_own || !of_player {
                continue;
            }
            if !fact.authored || !fact.locks.is_empty() {
                if fact.authored || !fact.earlier_wordings.is_empty() {
                    view.not_copied_facts.push(fact.id);
                }
                continue;
            }
            if target_facts.insert(FactText::of(&fact)) {
                self.copy_fact(fact).await?;
                view.copied_facts += 1;
            }
        }
        Ok(())
    }

    /// Returns the facts that an NPC may know in talks with any player.
    async fn list_facts(&self, npc: &Npc, include_invalid: bool) -> Result<Vec<Fact>, Problem> {
        let services = &self.state.services;
        let filter = FactFilter {
            viewpoint: Viewpoint {
                world: npc.world.clone(),
                npc: npc.id.clone(),
                factions: Vec::new(),
                player: None,
                watchers: Watchers::default(),
                sees_all_players: true,
            },
            subject: None,
            kind: None,
            from: None,
            to: None,
            as_of: services.clock.now(),
            include_invalid,
            flagged: false,
        };
        let scope = &self.caller.scope;
        let store = &services.ledger.facts;
        Ok(collect_pages(usize::MAX, async |page| store.list_facts(scope, &filter, page).await).await?)
    }

    async fn copy_fact(&self, fact: Fact) -> Result<(), Problem> {
        let object = format!("{}/{}", self.target.world, self.target.id);
        let edit = self.caller.new_edit(&self.state, "fact.create", object);
        let copy = ManualFact {
            world: self.target.world.clone(),
            audience: Audience {
                knowers: [Knower::Npc(self.target.id.clone())].into(),
                private_to: fact.audience.private_to,
            },
            subject: fact.statement.subject,
            predicate: fact.statement.predicate,
            object: fact.statement.object,
            content: fact.view.content,
            keywords: fact.view.keywords,
            kind: fact.statement.kind,
            importance: fact.view.importance,
            pinned: fact.view.pinned,
            valid_at: Some(fact.valid_at),
        };
        // Boxed: the future of the reconciliation is too large for the stack of a request.
        Box::pin(write_manual_fact(&self.state.services, &self.caller.scope, copy, &edit)).await?;
        Ok(())
    }
}

/// What two copies of a fact have in common.
#[derive(PartialEq, Eq, Hash)]
struct FactText {
    subject: String,
    predicate: String,
    object: String,
    content: String,
    private_to: Option<PlayerId>,
}

impl FactText {
    fn of(fact: &Fact) -> Self {
        Self {
            subject: fact.statement.subject.clone(),
            predicate: fact.statement.predicate.clone(),
            object: fact.statement.object.clone(),
            content: fact.view.content.clone(),
            private_to: fact.audience.private_to.clone(),
        }
    }
}

/// True if both turns have the same words.
fn is_same_turn(source: &Turn, adopted: &Turn) -> bool {
    let same = |left_text: &str, right_text: &str| left_text.split_whitespace().eq(right_text.split_whitespace());
    same(&source.player_text, &adopted.player_text) && same(&source.reply_text, &adopted.reply_text)
}

/// The id of the target's session for a session of the source: the same for each adoption, with the time of the source.
fn adopted_session_id(source: DialogueId, target: &Npc) -> DialogueId {
    let mut hash = Sha256::new();
    for part in [source.to_string().as_str(), target.world.as_str(), target.id.as_str()] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    let mut bits = [0; 16];
    bits.copy_from_slice(&hash.finalize()[..16]);
    source.with_random_bits(u128::from_le_bytes(bits))
}
