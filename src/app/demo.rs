//! The demo tenant: a world and three NPCs from `config/demo/`, so that a fresh server has NPCs to talk to.

use anyhow::Context;
use chrono::{DateTime, Utc};
use serde::Deserialize;

use colloquy_core::{
    ids::{FactionId, NpcId, TenantId, WorldId},
    scope::{Role, TenantScope},
};
use colloquy_memory::authored::{Language, Npc, Persona, TierSettings, World, WorldSettings};
use colloquy_ports::{
    PageRequest,
    clock::IdSource,
    ledger::{Ledger, audit::Edit, tenants::Tenant, usage::AuthoredLimits},
};

/// The demo's tenant.
pub const TENANT: &str = "demo";
/// The demo's world.
pub const WORLD: &str = "vale";
/// The NPC who speaks English.
pub const ENGLISH_NPC: &str = "mira";
/// The NPC with whom the NPC who speaks English talks.
pub const SECOND_ENGLISH_NPC: &str = "tom";
/// The NPC who speaks Korean.
pub const KOREAN_NPC: &str = "ergen";

const WORLD_FILE: &str = include_str!("../../config/demo/world.toml");
const NPC_FILES: [&str; 3] = [
    include_str!("../../config/demo/mira.toml"),
    include_str!("../../config/demo/tom.toml"),
    include_str!("../../config/demo/ergen.toml"),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorldFile {
    id: WorldId,
    name: String,
    language: Language,
    premise: String,
    rules: Vec<String>,
    #[serde(default)]
    settings: WorldSettings,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NpcFile {
    id: NpcId,
    name: String,
    language: Language,
    factions: Vec<FactionId>,
    persona: Persona,
}

/// The world and the NPCs of the demo.
struct DemoContent {
    world: World,
    npcs: Vec<Npc>,
}

fn load_demo_content(now: DateTime<Utc>) -> anyhow::Result<DemoContent> {
    let file: WorldFile = parse_toml(WORLD_FILE).context("config/demo/world.toml")?;
    let world = World {
        id: file.id,
        name: file.name,
        premise: file.premise.trim().to_owned(),
        language: file.language,
        rules: file.rules,
        settings: file.settings,
        lore_version: 0,
        tenant: colloquy_memory::authored::TenantTier::default(),
        version: 0,
        updated_at: now,
    };
    let npcs = NPC_FILES
        .iter()
        .map(|text| {
            let file: NpcFile = parse_toml(text).context("config/demo")?;
            let persona = Persona {
                description: file.persona.description.trim().to_owned(),
                ..file.persona
            };
            Ok(Npc {
                world: world.id.clone(),
                id: file.id,
                name: file.name,
                persona,
                language: file.language,
                factions: file.factions,
                model: None,
                settings: TierSettings::default(),
                has_scenarios: false,
                has_tells: false,
                version: 0,
                updated_at: now,
            })
        })
        .collect::<anyhow::Result<_>>()?;
    Ok(DemoContent { world, npcs })
}

fn parse_toml<T: for<'de> Deserialize<'de>>(text: &str) -> anyhow::Result<T> {
    use figment::providers::{Format, Toml};
    Ok(figment::Figment::from(Toml::string(text)).extract()?)
}

/// Creates the tenant, the world and the NPCs if missing. Later changes by users stay. Returns true if anything was
/// created.
pub async fn ensure_demo(ledger: &Ledger, ids: &IdSource, now: DateTime<Utc>) -> anyhow::Result<bool> {
    let tenant: TenantId = TENANT.parse()?;
    let scope = TenantScope::new(tenant.clone());
    let demo = load_demo_content(now)?;
    ledger
        .tenants
        .ensure_tenant(&Tenant {
            id: tenant,
            name: "Demo".into(),
            enabled: true,
            budget: None,
            created_at: now,
            version: 1,
        })
        .await?;
    let edit = |action, object: String| Edit {
        id: ids.next_id(),
        audit_id: ids.next_id(),
        subject: "colloquy".into(),
        role: Role::Admin,
        player: None,
        made_at: now,
        action,
        object,
        limits: AuthoredLimits::default(),
    };
    let mut is_new = false;
    if ledger.authored.load_world(&scope, &demo.world.id).await?.is_none() {
        let edit = edit("world.put", demo.world.id.to_string());
        ledger.authored.put_world(&scope, &demo.world, None, &edit).await?;
        is_new = true;
    }
    // A process that was killed between writing the world and the NPCs leaves an empty world.
    let first_row = PageRequest { limit: 1, after: None };
    if is_new
        || ledger
            .authored
            .list_npcs(&scope, &demo.world.id, &first_row)
            .await?
            .items
            .is_empty()
    {
        for npc in &demo.npcs {
            let edit = edit("npc.put", format!("{}/{}", npc.world, npc.id));
            ledger.authored.put_npc(&scope, npc, None, &edit).await?;
        }
        is_new = true;
    }
    Ok(is_new)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use colloquy_ports::clock::{Clock, SystemClock};

    #[test]
    fn demo_contains_what_the_readme_promises() {
        let demo = load_demo_content(SystemClock.now()).unwrap();
        assert_eq!(demo.world.id.as_str(), WORLD);
        let by_id = |id: &str| demo.npcs.iter().find(|npc| npc.id.as_str() == id).unwrap();
        assert_eq!(by_id(ENGLISH_NPC).language, Language::En);
        assert_eq!(by_id(SECOND_ENGLISH_NPC).language, Language::En);
        assert_eq!(by_id(KOREAN_NPC).language, Language::Ko);
        for npc in &demo.npcs {
            assert!(!npc.persona.greeting.is_empty() && !npc.persona.description.is_empty());
        }
    }
}
