//! Directives of worlds: `/v1/worlds/{w}/directives`.

use actix_web::{HttpRequest, HttpResponse, delete, get, put, web};
use garde::Validate;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    AppState,
    authored::{ConditionalEdit, PutRequest, StoredByPut, authored_list, authored_resource, parse_id},
    dry_run::PutQuery,
    errors::{Code, Problem},
    extract::{Author, Authorized, Body, Path, QueryParams},
    pagination::{Items, PageQuery},
    validate::one_line_label,
};
use colloquy_core::ids::{DirectiveId, WorldId};
use colloquy_memory::{
    authored::World,
    directive::{Directive, KeyPattern, MAX_KEYS, MAX_LINE_CHARS, MAX_LINES, MAX_TEXT_CHARS},
};
use colloquy_ports::ledger::authored::PutOutcome;

/// A directive as its author writes it. A text, an instruction or a failure condition is needed.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
pub struct DirectiveBody {
    /// The dialogues that the directive is for: `world:<world>`, then `:npc:<npc>`, then `:session:<id>` or
    /// `:conversation:<id>`. In an id, `*` stands for any characters and `?` for one character. A shorter pattern
    /// selects everything below it.
    #[garde(length(min = 1, max = MAX_KEYS))]
    #[schema(value_type = Vec<String>, min_items = 1, max_items = 16)]
    keys: Vec<KeyPattern>,
    /// What the NPC keeps to; may have several lines.
    #[serde(default)]
    #[garde(length(chars, max = MAX_TEXT_CHARS))]
    #[schema(max_length = 500)]
    text: String,
    /// Instructions of one line.
    #[serde(default)]
    #[garde(length(max = MAX_LINES), inner(length(chars, max = MAX_LINE_CHARS), custom(one_line_label)))]
    #[schema(max_items = 5)]
    instructions: Vec<String>,
    /// What makes a reply fail: each completes "A reply fails if it …".
    #[serde(default)]
    #[garde(length(max = MAX_LINES), inner(length(chars, max = MAX_LINE_CHARS), custom(one_line_label)))]
    #[schema(max_items = 5)]
    fails_if: Vec<String>,
    /// Directives with a higher priority come first. Equal priorities are in the order of the ids.
    #[serde(default)]
    #[garde(range(min = -1000, max = 1000))]
    #[schema(minimum = -1000, maximum = 1000)]
    priority: i32,
}

impl DirectiveBody {
    /// Returns a fault that a single field does not show, with its field.
    fn find_fault(&self, world: &WorldId) -> Option<(&'static str, String)> {
        if let Some(mismatched_key) = self.keys.iter().find(|key| !key.matches_world(world)) {
            return Some((
                "keys",
                format!("`{mismatched_key}` selects no dialogue of the world `{world}`"),
            ));
        }
        if self.text.trim().is_empty() && self.instructions.is_empty() && self.fails_if.is_empty() {
            return Some((
                "text",
                "a text, an instruction or a failure condition is needed".to_owned(),
            ));
        }
        None
    }
}

/// Creates or replaces a directive, which NPCs follow in the dialogues that its keys select.
///
/// A prompt has at most three texts, five instructions and ten failure conditions of directives. The trace of a turn
/// shows them. A world has at most 200 directives.
#[utoipa::path(
    tag = "directives",
    params(("world" = String, Path), ("directive" = String, Path, pattern = "^[a-z0-9][a-z0-9_-]{0,63}$"), ("If-Match" = Option<String>, Header, description = "The ETag the change was made on, or *"), ("If-None-Match" = Option<String>, Header, description = "`*`: only if there is none yet"), PutQuery),
    request_body = DirectiveBody,
    responses((status = 200, body = Directive, description = "Replaced"), (status = 201, body = Directive, description = "Made"), (status = 409, description = "The world has as many as it may (`too_many_directives`)"), (status = 412, description = "Another version is stored, or one at all")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[put("/v1/worlds/{world}/directives/{directive}")]
pub async fn put_directive(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, String)>,
    query: QueryParams<PutQuery>,
    request: HttpRequest,
    body: Body<DirectiveBody>,
) -> Result<HttpResponse, Problem> {
    let (world, name) = path.0;
    let key = (world, parse_id("directive", &name)?);
    let put = PutRequest::<Directive>::new(state, caller, key, &query.0, &request)?;
    let body = body.value;
    if let Some((field, fault)) = body.find_fault(&put.key.0) {
        return Err(Problem::invalid_field(field, fault));
    }
    put.store(move |_, (world, id), updated_at| {
        Ok(Directive {
            world: world.clone(),
            id: id.clone(),
            keys: body.keys,
            text: body.text.trim().to_owned(),
            instructions: body.instructions,
            fails_if: body.fails_if,
            priority: body.priority,
            version: 0,
            updated_at,
        })
    })
    .await
}

impl StoredByPut for Directive {
    async fn find_refusal(&self, put: &ConditionalEdit<'_>) -> Result<Option<PutOutcome>, Problem> {
        let store = &put.state.services.ledger.directives;
        let refusal = store.check_put(put.scope, self, put.if_version).await?;
        refusal.map(unless_full).transpose()
    }
    async fn put(&self, put: &ConditionalEdit<'_>) -> Result<PutOutcome, Problem> {
        let store = &put.state.services.ledger.directives;
        unless_full(store.put_directive(put.scope, self, put.if_version, put.edit).await?)
    }
}

fn unless_full(outcome: PutOutcome) -> Result<PutOutcome, Problem> {
    match outcome {
        PutOutcome::Full { most } => {
            let detail = format!("a world may have {most} directives; delete some that nobody needs");
            Err(Problem::new(Code::TooManyDirectives, detail))
        }
        outcome => Ok(outcome),
    }
}

authored_resource! {
    Directive is "directive" of "world", logged as "directive";
    tag "directives", "/v1/worlds/{world}/directives/{directive}",
        key (WorldId, DirectiveId) = "world" world, "directive" directive;
    store directives: load_directive, delete_directive;
    /// Returns a directive.
    get get_directive;
    /// Deletes a directive. Later turns do without it.
    delete delete_directive;
}

authored_list! {
    /// Lists the directives of a world.
    list_directives: Directive by DirectiveId, of World;
    tag "directives", "/v1/worlds/{world}/directives", key WorldId = "world" world;
    store directives: list_directives;
}
