//! Real prompts of the demo's NPCs, from the configured templates and budgets, on a temporary ledger.

use std::{path::Path, sync::Arc};

use anyhow::Context as _;

use super::questions::Questions;
use crate::{
    app::{demo, open_services},
    config::Config,
};
use colloquy_actors::{NewSession, handle::Dialogues};
use colloquy_core::scope::TenantScope;
use colloquy_memory::turn::Intent;
use colloquy_ports::{
    clock::{Clock, IdSource, SystemClock},
    ledger::dialogues::Playback,
    llm::ChatMessage,
};

/// A prompt that asks for a reply with a state block.
pub(super) struct ReplyPrompt {
    /// The id of the NPC.
    pub npc: String,
    pub messages: Vec<ChatMessage>,
}

/// Assembles the prompts of lines that change something, in English and in Korean. No model is called.
pub(super) async fn assemble_reply_prompts(config: &Config, questions: &Questions) -> anyhow::Result<Vec<ReplyPrompt>> {
    let folder = tempfile::tempdir().context("cannot make a folder for the temporary ledger")?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let ids = Arc::new(IdSource::from_thread_rng(clock.clone()));
    let services = open_services(
        &with_temporary_stores(config, folder.path()),
        clock.clone(),
        ids.clone(),
    )
    .await?;
    demo::ensure_demo(&services.ledger, &ids, clock.now()).await?;
    let scope = TenantScope::new(demo::TENANT.parse()?);
    let sessions = Dialogues::start(services, ids.next_id(), config.actors.clone());
    let mut prompts = Vec::new();
    for (npc, line) in [
        (demo::ENGLISH_NPC, &questions.change_en),
        (demo::KOREAN_NPC, &questions.change_ko),
    ] {
        let new_session = NewSession {
            chat_key: None,
            world: demo::WORLD.parse()?,
            npcs: vec![npc.parse()?],
            player: "doctor".parse()?,
            witnesses: Vec::new(),
            factions: Vec::new(),
            playback: Playback::default(),
            settings: None,
            cause: None,
        };
        let created = sessions.create_session(&scope, new_session).await?;
        let preview = sessions
            .preview_prompt(&scope, created.dialogue.id, line.clone(), Some(Intent::Chat))
            .await??;
        prompts.push(ReplyPrompt {
            npc: npc.to_owned(),
            messages: preview.messages,
        });
    }
    sessions.stop_threads();
    Ok(prompts)
}

/// Returns the configuration with a ledger in `folder`, and with the offline embedder.
fn with_temporary_stores(config: &Config, folder: &Path) -> Config {
    let mut config = config.clone();
    folder.clone_into(&mut config.data_dir);
    config.ledger.url = None;
    config.node.url = None;
    config.buffer.url = "memory:".into();
    "embedded:".clone_into(&mut config.vectors.url);
    config.embedder.base_url = None;
    config.embedder.model = None;
    config
}
