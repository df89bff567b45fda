//! Items that a client sends.

use serde_json::Value;

use super::{
    errors::RealtimeError,
    fields::Fields,
    items::{Item, ItemRole},
};

const MAX_ITEM_ID_CHARS: usize = 64;

/// Reads a new item. An item without an id gets one.
pub fn read_item(mut fields: Fields) -> Result<Item, RealtimeError> {
    match fields.take_text("type")?.as_deref() {
        Some("message") => {}
        None => return Err(fields.fault("type", "is missing")),
        Some(_) => {
            let param = fields.param("type");
            return Err(RealtimeError::not_supported(&param, "items must be messages"));
        }
    }
    let role = match fields.take_text("role")?.as_deref() {
        Some("user") => ItemRole::User,
        Some("assistant") => ItemRole::Assistant,
        Some("system") => ItemRole::System,
        _ => return Err(fields.fault("role", "must be user, assistant or system")),
    };
    let id = match fields.take_text("id")? {
        None => format!("item_{:032x}", rand::random::<u128>()),
        Some(id) if (1..=MAX_ITEM_ID_CHARS).contains(&id.chars().count()) && id != "root" => id,
        Some(_) => {
            let detail = format!("must have 1 to {MAX_ITEM_ID_CHARS} characters, and not be `root`");
            return Err(fields.fault("id", &detail));
        }
    };
    // The state of the client's own copy.
    fields.take_text("object")?;
    fields.take_text("status")?;
    let text = match fields.take("content") {
        Some(Value::Array(parts)) if !parts.is_empty() => {
            let parts = parts.into_iter().enumerate();
            let texts = parts.map(|(index, part)| read_part(&fields.param(&format!("content[{index}]")), part, role));
            texts.collect::<Result<Vec<_>, _>>()?.join("\n")
        }
        _ => return Err(fields.fault("content", "must be a list with at least one part")),
    };
    if text.trim().is_empty() {
        return Err(fields.fault("content", "has no words"));
    }
    fields.refuse_rest()?;
    Ok(Item::loose(id, role, text))
}

fn read_part(path: &str, part: Value, role: ItemRole) -> Result<String, RealtimeError> {
    let Value::Object(part) = part else {
        return Err(RealtimeError::field(path, "must be an object"));
    };
    let mut part = Fields::new(part, path);
    let kind = part.take_required_text("type")?;
    let is_text = match role {
        ItemRole::User | ItemRole::System => ["input_text", "text"].contains(&kind.as_str()),
        ItemRole::Assistant => ["output_text", "text"].contains(&kind.as_str()),
    };
    if is_text {
        let text = part.take_required_text("text")?;
        part.refuse_rest()?;
        return Ok(text);
    }
    let param = part.param("type");
    if ["input_audio", "output_audio", "audio", "input_image"].contains(&kind.as_str()) {
        return Err(RealtimeError::not_supported(
            &param,
            "this server speaks and hears text",
        ));
    }
    let detail = format!("must be {} for this role", role.part_kind());
    Err(RealtimeError::field(&param, &detail))
}
