//! Resources: worlds, personas, scenarios, lore and transcripts, by `colloquy://` addresses. Each is an object or a
//! list of REST, as JSON.

use actix_http::StatusCode;
use percent_encoding::percent_decode_str;
use rmcp::{
    ErrorData,
    model::{ListResourcesResult, ReadResourceResult, Resource, ResourceContents, ResourceTemplate},
};
use serde_json::{Value, json};

use super::{
    arguments::encoded,
    errors::{error_of, refused_error},
    operations::{OperationClient, OperationRequest},
};

const SCHEME: &str = "colloquy://";
const JSON: &str = "application/json";
/// The most operations that one page of the list calls, if the first ones have nothing to list.
const MAX_STEPS: usize = 8;

/// The address, the name and the description of each template.
const TEMPLATES: [(&str, &str, &str); 6] = [
    (
        "colloquy://worlds/{world}",
        "world",
        "A world: premise, rules and settings.",
    ),
    (
        "colloquy://worlds/{world}/npcs/{npc}",
        "persona",
        "An NPC: its persona, factions and settings.",
    ),
    (
        "colloquy://worlds/{world}/npcs/{npc}/scenarios/{scenario}",
        "scenario",
        "A memory of an NPC's own past, with what unlocks it.",
    ),
    (
        "colloquy://worlds/{world}/lore/{lore}",
        "lore",
        "An entry of the lore, with who knows it and when.",
    ),
    (
        "colloquy://sessions/{session}/transcript{?limit,after}",
        "transcript",
        "The turns of a session, oldest first, one page of them. `next` is the `after` of the next page.",
    ),
    (
        "colloquy://npc-conversations/{conversation}/transcript{?limit,after}",
        "npc-transcript",
        "The lines of a conversation between NPCs, oldest first, one page of them.",
    ),
];

/// All templates.
pub fn templates() -> Vec<ResourceTemplate> {
    TEMPLATES
        .iter()
        .map(|(uri, name, description)| {
            ResourceTemplate::new(*uri, *name)
                .with_description(*description)
                .with_mime_type(JSON)
        })
        .collect()
}

/// Reads a resource.
///
/// # Errors
/// The address belongs to no resource, or the operation refuses.
pub async fn read_resource(operations: &OperationClient, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let not_found = || ErrorData::resource_not_found("there is no such resource", Some(json!({ "uri": uri })));
    let path = operation_of(uri).ok_or_else(not_found)?;
    let answer = operations.call(OperationRequest::get(path)).await;
    let mut answer = answer.map_err(|problem| error_of(&problem))?;
    if !answer.status.is_success() {
        answer.body["uri"] = json!(uri);
        return Err(refused_error(answer));
    }
    let contents = ResourceContents::text(answer.body.to_string(), uri).with_mime_type(JSON);
    Ok(ReadResourceResult::new(vec![contents]))
}

/// The operation of an address: its path and query.
fn operation_of(uri: &str) -> Option<String> {
    let address = uri.strip_prefix(SCHEME)?;
    let (path, query) = match address.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (address, None),
    };
    let segments: Vec<String> = path
        .split('/')
        .map(|segment| Some(encoded(&percent_decode_str(segment).decode_utf8().ok()?)))
        .collect::<Option<_>>()?;
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    if segments.contains(&"") {
        return None;
    }
    let path = match segments[..] {
        ["worlds", world] => format!("/v1/worlds/{world}"),
        ["worlds", world, "npcs", npc] => format!("/v1/worlds/{world}/npcs/{npc}"),
        ["worlds", world, "npcs", npc, "scenarios", scenario] => {
            format!("/v1/worlds/{world}/npcs/{npc}/scenarios/{scenario}")
        }
        ["worlds", world, "lore", lore] => format!("/v1/worlds/{world}/lore/{lore}"),
        [kind @ ("sessions" | "npc-conversations"), dialogue, "transcript"] => {
            let page = query.map(|query| format!("?{query}")).unwrap_or_default();
            return Some(format!("/v1/{kind}/{dialogue}/turns{page}"));
        }
        _ => return None,
    };
    query.is_none().then_some(path)
}

/// A place in the list of all resources: a list of REST, and the last item before the page. The list goes through the
/// worlds, with the NPCs and the lore of each world after it; then come the transcripts of sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// The next world.
    World {
        after: Option<String>,
    },
    Npcs {
        world: String,
        after: Option<String>,
    },
    Lore {
        world: String,
        after: Option<String>,
    },
    Sessions {
        after: Option<String>,
    },
}

impl Place {
    fn parse(cursor: &str) -> Option<Self> {
        let mut parts = cursor.split('/');
        let mut next_part = || parts.next().filter(|part| !part.is_empty()).map(str::to_owned);
        Some(match next_part()?.as_str() {
            "worlds" => Self::World { after: next_part() },
            "npcs" => Self::Npcs {
                world: next_part()?,
                after: next_part(),
            },
            "lore" => Self::Lore {
                world: next_part()?,
                after: next_part(),
            },
            "sessions" => Self::Sessions { after: next_part() },
            _ => return None,
        })
    }

    /// The place as a cursor. Ids and cursors of these lists have no `/`.
    fn cursor(&self) -> String {
        let parts: [&str; 3] = match self {
            Self::World { after } => ["worlds", after.as_deref().unwrap_or_default(), ""],
            Self::Npcs { world, after } => ["npcs", world, after.as_deref().unwrap_or_default()],
            Self::Lore { world, after } => ["lore", world, after.as_deref().unwrap_or_default()],
            Self::Sessions { after } => ["sessions", after.as_deref().unwrap_or_default(), ""],
        };
        parts.join("/").trim_end_matches('/').to_owned()
    }

    /// The list to read, and the parts of addresses before and after the id of an item.
    fn list(&self) -> (String, String, &'static str) {
        let page = |after: &Option<String>| match after {
            Some(after) => format!("after={}", encoded(after)),
            None => String::new(),
        };
        match self {
            Self::World { after } => (
                format!("/v1/worlds?limit=1&{}", page(after)),
                format!("{SCHEME}worlds/"),
                "",
            ),
            Self::Npcs { world, after } => (
                format!("/v1/worlds/{}/npcs?{}", encoded(world), page(after)),
                format!("{SCHEME}worlds/{world}/npcs/"),
                "",
            ),
            Self::Lore { world, after } => (
                format!("/v1/worlds/{}/lore?{}", encoded(world), page(after)),
                format!("{SCHEME}worlds/{world}/lore/"),
                "",
            ),
            Self::Sessions { after } => (
                format!("/v1/sessions?{}", page(after)),
                format!("{SCHEME}sessions/"),
                "/transcript",
            ),
        }
    }

    /// The place after a page; `None` at the end.
    fn next(self, items: &[Value], next_cursor: Option<String>) -> Option<Self> {
        match (self, next_cursor) {
            // The NPCs of the world come first; `next` is the id of the same world.
            (Self::World { .. }, _) => Some(match items.first().and_then(|world| world["id"].as_str()) {
                Some(world) => Self::Npcs {
                    world: world.to_owned(),
                    after: None,
                },
                None => Self::Sessions { after: None },
            }),
            (Self::Npcs { world, .. }, Some(after)) => Some(Self::Npcs {
                world,
                after: Some(after),
            }),
            (Self::Npcs { world, .. }, None) => Some(Self::Lore { world, after: None }),
            (Self::Lore { world, .. }, Some(after)) => Some(Self::Lore {
                world,
                after: Some(after),
            }),
            (Self::Lore { world, .. }, None) => Some(Self::World { after: Some(world) }),
            (Self::Sessions { .. }, Some(after)) => Some(Self::Sessions { after: Some(after) }),
            (Self::Sessions { .. }, None) => None,
        }
    }
}

/// Lists a page of the resources that the caller may read.
///
/// # Errors
/// The cursor is not of this list, or an operation refuses.
pub async fn list_resources(
    operations: &OperationClient,
    cursor: Option<&str>,
) -> Result<ListResourcesResult, ErrorData> {
    let first_place = || Some(Place::World { after: None });
    let mut place = match cursor {
        Some(cursor) => Some(Place::parse(cursor).ok_or_else(|| ErrorData::invalid_params("no such cursor", None))?),
        None => first_place(),
    };
    let mut resources = Vec::new();
    for _ in 0..MAX_STEPS {
        let Some(current) = place.clone().filter(|_| resources.is_empty()) else {
            break;
        };
        let (list, prefix, suffix) = current.list();
        let answer = operations.call(OperationRequest::get(list)).await;
        let mut answer = answer.map_err(|problem| error_of(&problem))?;
        match (answer.status, &current) {
            (status, _) if status.is_success() => {}
            // Players see no worlds, but their own sessions.
            (StatusCode::FORBIDDEN, Place::World { .. }) => {
                place = Some(Place::Sessions { after: None });
                continue;
            }
            // The world was deleted meanwhile.
            (StatusCode::NOT_FOUND, Place::Npcs { world, .. } | Place::Lore { world, .. }) => {
                place = Some(Place::World {
                    after: Some(world.clone()),
                });
                continue;
            }
            _ => return Err(refused_error(answer)),
        }
        let items = match answer.body["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        };
        let next_cursor = answer.body["next"].as_str().map(str::to_owned);
        resources.extend(items.iter().filter_map(|item| listed_item(item, &prefix, suffix)));
        place = current.next(&items, next_cursor);
    }
    let mut listed = ListResourcesResult::with_all_items(resources);
    listed.next_cursor = place.map(|place| place.cursor());
    Ok(listed)
}

fn listed_item(item: &Value, prefix: &str, suffix: &str) -> Option<Resource> {
    let id = item["id"].as_str()?;
    let resource = Resource::new(format!("{prefix}{}{suffix}", encoded(id)), id).with_mime_type(JSON);
    Some(match item["name"].as_str() {
        Some(name) => resource.with_title(name),
        None => resource,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_operations() {
        for (uri, path) in [
            ("colloquy://worlds/vale", Some("/v1/worlds/vale")),
            ("colloquy://worlds/vale/npcs/ergen", Some("/v1/worlds/vale/npcs/ergen")),
            (
                "colloquy://worlds/vale/npcs/ergen/scenarios/well",
                Some("/v1/worlds/vale/npcs/ergen/scenarios/well"),
            ),
            ("colloquy://worlds/vale/lore/w%2Fx", Some("/v1/worlds/vale/lore/w%2Fx")),
            (
                "colloquy://sessions/s1/transcript?limit=5&after=7",
                Some("/v1/sessions/s1/turns?limit=5&after=7"),
            ),
            (
                "colloquy://npc-conversations/c1/transcript",
                Some("/v1/npc-conversations/c1/turns"),
            ),
            ("colloquy://worlds/vale?limit=1", None),
            ("colloquy://worlds//npcs/ergen", None),
            ("colloquy://worlds/vale/npcs", None),
            ("colloquy://tenants/acme", None),
            ("https://worlds/vale", None),
        ] {
            assert_eq!(operation_of(uri).as_deref(), path, "{uri}");
        }
    }

    #[test]
    fn cursors_of_the_list_are_read_again() {
        let after = || Some("x".to_owned());
        let world = || "vale".to_owned();
        for place in [
            Place::World { after: None },
            Place::World { after: after() },
            Place::Npcs {
                world: world(),
                after: None,
            },
            Place::Lore {
                world: world(),
                after: after(),
            },
            Place::Sessions { after: None },
        ] {
            assert_eq!(Place::parse(&place.cursor()), Some(place));
        }
        for cursor in ["", "npcs", "tenants/x", "/"] {
            assert_eq!(Place::parse(cursor), None, "{cursor}");
        }
    }

    #[test]
    fn list_goes_through_worlds_and_ends_with_sessions() {
        let world = [json!({"id": "vale"})];
        let npcs = Place::World { after: None }.next(&world, Some("vale".into())).unwrap();
        let lore = npcs.next(&[], None).unwrap();
        assert_eq!(
            lore.clone().next(&[], None),
            Some(Place::World {
                after: Some("vale".into())
            })
        );
        let sessions = Place::World { after: None }.next(&[], None).unwrap();
        assert_eq!(sessions, Place::Sessions { after: None });
        assert_eq!(sessions.next(&[], None), None);
    }

    #[test]
    fn listed_addresses_are_those_of_the_templates() {
        let session = json!({"id": "ses_1"});
        let (_, before, behind) = Place::Sessions { after: None }.list();
        let uri = listed_item(&session, &before, behind).unwrap().uri;
        assert_eq!(uri, "colloquy://sessions/ses_1/transcript");
        assert!(operation_of(&uri).is_some());
    }
}
