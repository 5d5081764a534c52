//! Discord's checks of a message, a modal and a command.

use serde_json::Value;

use super::json;
use super::model::{Id, User};
use super::posting::{Draft, Pings};
use super::rest::No;

/// The flags that are kept of a message's own: hidden, silent, without embeds.
const KEPT_FLAGS: u64 = (1 << 2) | (1 << 6) | (1 << 12);

fn list<'a>(value: &'a Value, member: &str) -> &'a [Value] {
    value[member].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn within(value: &Value, member: &str, most: usize) -> Result<(), No> {
    let long = value[member].as_str().is_some_and(|text| text.encode_utf16().count() > most);
    let message = format!("Must be {most} or fewer in length.");
    if long { Err(No::form(member, "BASE_TYPE_MAX_LENGTH", &message)) } else { Ok(()) }
}

fn at_most(value: &Value, member: &str, most: usize) -> Result<(), No> {
    let message = format!("Must be between 1 and {most} in length.");
    if list(value, member).len() > most { Err(No::form(member, "BASE_TYPE_BAD_LENGTH", &message)) } else { Ok(()) }
}

/// Checks what applies to both new and changed messages.
pub(crate) fn check(body: &Value) -> Result<(), No> {
    within(body, "content", 2000)?;
    within(body, "nonce", 25)?;
    at_most(body, "embeds", 10)?;
    let mut total = 0;
    for embed in list(body, "embeds") {
        within(embed, "title", 256)?;
        within(embed, "description", 4096)?;
        at_most(embed, "fields", 25)?;
        for field in list(embed, "fields") {
            within(field, "name", 256)?;
            within(field, "value", 1024)?;
            let blank = |member: &str| field[member].as_str().is_none_or(|text| text.trim().is_empty());
            if blank("name") || blank("value") {
                return Err(No::form("fields", "BASE_TYPE_REQUIRED", "This field is required"));
            }
        }
        total += embed.to_string().len();
    }
    if total > 6000 {
        return Err(No::form("embeds", "MAX_EMBED_SIZE_EXCEEDED", "Embed size exceeds maximum size of 6000"));
    }
    rows(body)?;
    let pings = &body["allowed_mentions"];
    let both = |what: &str| list(pings, "parse").iter().any(|p| p == what) && !list(pings, what).is_empty();
    if both("users") || both("roles") {
        return Err(No::form("allowed_mentions", "MESSAGE_ALLOWED_MENTIONS_PARSE_EXCLUSIVE", "parse and a list"));
    }
    Ok(())
}

/// Checks for at most five rows of five buttons, each with its own id.
fn rows(body: &Value) -> Result<(), No> {
    at_most(body, "components", 5)?;
    let mut ids: Vec<&str> = Vec::new();
    for row in list(body, "components") {
        if row["type"] != 1 {
            return Err(No::form("components", "UNION_TYPE_CHOICES", "Value of field \"type\" must be one of (1,)."));
        }
        at_most(row, "components", 5)?;
        for part in list(row, "components") {
            within(part, "label", if part["type"] == 2 { 80 } else { 45 })?;
            within(part, "custom_id", 100)?;
            let linked = part["url"].is_string();
            match part["custom_id"].as_str() {
                Some(id) if ids.contains(&id) => {
                    let message = "Component custom id cannot be duplicated";
                    return Err(No::form("components", "COMPONENT_CUSTOM_ID_DUPLICATED", message));
                }
                Some(id) if !id.is_empty() => ids.push(id),
                Some(_) | None if linked => {}
                Some(_) | None => {
                    return Err(No::form("custom_id", "BASE_TYPE_REQUIRED", "This field is required"));
                }
            }
        }
    }
    Ok(())
}

/// Checks a modal: a title, and rows of one text input each.
pub(crate) fn check_modal(data: &Value) -> Result<(), No> {
    within(data, "title", 45)?;
    within(data, "custom_id", 100)?;
    if data["title"].as_str().is_none_or(str::is_empty) || list(data, "components").is_empty() {
        return Err(No::form("data", "BASE_TYPE_REQUIRED", "This field is required"));
    }
    rows(data)?;
    for part in list(data, "components").iter().flat_map(|row| list(row, "components")) {
        if part["type"] != 4 {
            return Err(No::form("components", "UNION_TYPE_CHOICES", "a modal holds text inputs"));
        }
        within(part, "placeholder", 100)?;
        within(part, "value", 4000)?;
    }
    Ok(())
}

/// Checks a command: its name, and the descriptions that Discord demands.
pub(crate) fn check_command(command: &Value) -> Result<(), No> {
    let name = command["name"].as_str().unwrap_or_default();
    let fits = (1..=32).contains(&name.chars().count())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_');
    if !fits {
        return Err(No::form("name", "APPLICATION_COMMAND_INVALID_NAME", "Command name is invalid"));
    }
    within(command, "description", 100)?;
    if command["description"].as_str().is_none_or(str::is_empty) {
        return Err(No::form("description", "BASE_TYPE_REQUIRED", "This field is required"));
    }
    list(command, "options").iter().try_for_each(check_command)
}

/// Builds the message of a bot or a webhook.
pub(crate) fn draft(author: User, channel: Id, body: &Value) -> Result<Draft, No> {
    check(body)?;
    let content = body["content"].as_str().unwrap_or_default();
    let nothing = content.trim().is_empty();
    if nothing && list(body, "embeds").is_empty() && list(body, "components").is_empty() {
        return Err(No::new(400, 50006, "Cannot send an empty message"));
    }
    let pings = &body["allowed_mentions"];
    Ok(Draft {
        pings: if pings.is_object() { Pings::As(pings.clone()) } else { Pings::All },
        reply_to: json::id(&body["message_reference"]["message_id"]),
        nonce: Some(body["nonce"].clone()).filter(|nonce| !nonce.is_null()),
        once: body["enforce_nonce"] == true,
        embeds: list(body, "embeds").to_vec(),
        components: list(body, "components").to_vec(),
        flags: body["flags"].as_u64().unwrap_or(0) & KEPT_FLAGS,
        ..Draft::of(author, channel, content)
    })
}
