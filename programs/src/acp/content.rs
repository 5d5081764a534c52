//! Content of an answer that isn't plain text. It is named in the answer, because a message has only text.

use agent_client_protocol_schema::v1::{ContentBlock, EmbeddedResourceResource};

/// The characters of Base64 for three bytes.
const BASE64: usize = 4;

/// Names a part of an answer; the text of an embedded resource follows its name.
pub(super) fn named(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => {
            list("image", [image.uri.clone(), Some(image.mime_type.clone()), decoded(&image.data)])
        }
        ContentBlock::Audio(audio) => list("audio", [Some(audio.mime_type.clone()), decoded(&audio.data), None]),
        ContentBlock::ResourceLink(link) => {
            let name = link.title.as_ref().unwrap_or(&link.name);
            let bytes = link.size.and_then(|size| usize::try_from(size).ok()).map(size);
            list("resource", [Some(format!("{} {name}", link.uri)), link.mime_type.clone(), bytes])
        }
        ContentBlock::Resource(embedded) => match &embedded.resource {
            EmbeddedResourceResource::TextResourceContents(found) => {
                let name = list("resource", [Some(found.uri.clone()), found.mime_type.clone(), None]);
                format!("{name}\n{}", found.text)
            }
            EmbeddedResourceResource::BlobResourceContents(found) => {
                list("resource", [Some(found.uri.clone()), found.mime_type.clone(), decoded(&found.blob)])
            }
            // The protocol's enums grow.
            _ => list("resource", [Some("of a kind that isn't known here".to_owned()), None, None]),
        },
        _ => list("content", [Some("of a kind that isn't known here".to_owned()), None, None]),
    }
}

fn list(kind: &str, of: [Option<String>; 3]) -> String {
    let of: Vec<String> = of.into_iter().flatten().collect();
    format!("[{kind}: {}]", of.join(", "))
}

/// Returns the size of what a text in Base64 holds.
fn decoded(base64: &str) -> Option<String> {
    Some(size(base64.trim_end_matches('=').len() * 3 / BASE64))
}

fn size(bytes: usize) -> String {
    if bytes < 1_000 { format!("{bytes} bytes") } else { format!("{} kB", bytes.div_ceil(1_000)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_named_with_its_kind_and_size() {
        let base64 = "A".repeat(16_000);
        for (block, words) in [
            (
                serde_json::json!({ "type": "image", "mimeType": "image/png", "data": base64 }),
                "[image: image/png, 12 kB]",
            ),
            (
                serde_json::json!({ "type": "audio", "mimeType": "audio/wav", "data": "AAA=" }),
                "[audio: audio/wav, 2 bytes]",
            ),
            (
                serde_json::json!({ "type": "resource_link", "uri": "file:///x", "name": "report.md" }),
                "[resource: file:///x report.md]",
            ),
            (
                serde_json::json!({ "type": "resource", "resource": { "uri": "file:///y", "mimeType": "text/plain", "text": "hi" } }),
                "[resource: file:///y, text/plain]\nhi",
            ),
            (
                serde_json::json!({ "type": "resource", "resource": { "uri": "file:///z", "blob": "AAAA" } }),
                "[resource: file:///z, 3 bytes]",
            ),
        ] {
            assert_eq!(named(&serde_json::from_value(block).unwrap()), words);
        }
    }
}
