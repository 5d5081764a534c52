//! The resources: what a client can read or subscribe to without a tool call.

use lastword_server::calls::{Caller, limits, tree};
use lastword_server::{ApiError, Context};
use lastword_wire::FieldError;
use rmcp::model::{ErrorData, ReadResourceResult, Resource, ResourceContents, ResourceTemplate};
use serde::Serialize;
use serde_json::json;

use super::inbox;

/// The agent's inbox.
pub(super) const INBOX: &str = "lastword://inbox";
const LIMITS: &str = "lastword://limits";
const CONVERSATIONS: &str = "lastword://conversations/";
const JSON: &str = "application/json";

/// Lists the resources with a fixed address.
pub(super) fn all() -> Vec<Resource> {
    let resource =
        |uri: &str, name: &str, told: &str| Resource::new(uri, name).with_description(told).with_mime_type(JSON);
    vec![
        resource(INBOX, "inbox", "Your inbox, to be taken with next_message. Supports subscriptions"),
        resource(LIMITS, "limits", "The numbers in force"),
    ]
}

/// Lists the resources whose address contains a name.
pub(super) fn templates() -> Vec<ResourceTemplate> {
    let template = ResourceTemplate::new(format!("{CONVERSATIONS}{{ref}}"), "conversation");
    let told = "A conversation as a tree, with the remainder of every limit; write a slash in its name as %2F";
    vec![template.with_description(told).with_mime_type(JSON)]
}

/// Reads a resource; `None` if the address is unknown.
pub(super) async fn read(ctx: &Context, caller: Caller, uri: &str) -> Result<Option<ReadResourceResult>, ApiError> {
    let text = match uri {
        INBOX => text(&inbox::view(ctx, caller).await?)?,
        LIMITS => text(&limits::in_force(ctx).await?)?,
        _ => {
            let Some(named) = uri.strip_prefix(CONVERSATIONS) else { return Ok(None) };
            let reference = decoded(named).ok_or_else(|| FieldError::new("uri", "has a wrong percent-encoding"))?;
            text(&tree::conversation(ctx, caller, &reference, tree::MODEL_BYTES_MAX).await?)?
        }
    };
    Ok(Some(ReadResourceResult::new(vec![ResourceContents::text(text, uri).with_mime_type(JSON)])))
}

/// Returns the error for a resource that doesn't exist or that the caller may not see.
pub(super) fn unknown(uri: &str) -> ErrorData {
    ErrorData::resource_not_found("there is no such resource", Some(json!({ "uri": uri })))
}

fn text(view: &impl Serialize) -> Result<String, ApiError> {
    serde_json::to_string(view).map_err(|error| ApiError::internal(&error.to_string()))
}

/// Decodes a percent-encoded text; `None` if the encoding is invalid.
fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        // `from_str_radix` accepts a leading sign, which isn't a digit here.
        let digits = code.bytes().all(|byte| byte.is_ascii_hexdigit());
        bytes.push(u8::from_str_radix(code, 16).ok().filter(|_| digits)?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_decoded_or_refused() {
        assert_eq!(decoded("T-1/1").as_deref(), Some("T-1/1"));
        assert_eq!(decoded("T-1%2F1%2f2").as_deref(), Some("T-1/1/2"));
        for bad in ["%", "%2", "%zz", "%+1", "%ff"] {
            assert_eq!(decoded(bad), None, "{bad}");
        }
    }
}
