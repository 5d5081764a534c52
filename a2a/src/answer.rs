//! What an answer is to a caller of A2A: its parts, and whether it needs no task.

use axum::http::Uri;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use lastword_wire::StoredMessage;
use serde::Deserialize;
use serde_json::Value;

use crate::model::Part;

/// The member of an answer's payload that is meant for callers of A2A alone.
const MEMBER: &str = "a2a";

/// The value of that member.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ForCallers {
    files: Vec<File>,
    message: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct File {
    url: Option<String>,
    raw: Option<String>,
    filename: String,
    media_type: String,
}

impl File {
    /// Whether it is an address, or bytes in base64.
    fn is_whole(&self) -> bool {
        match (&self.url, &self.raw) {
            (Some(url), None) => url
                .parse::<Uri>()
                .is_ok_and(|url| matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some()),
            (None, Some(raw)) => BASE64_STANDARD.decode(raw).is_ok(),
            _ => false,
        }
    }

    fn into_part(self) -> Part {
        let Self { url, raw, filename, media_type } = self;
        Part { url, raw, filename, media_type, ..Part::default() }
    }
}

/// An answer, as callers of A2A get it.
pub(crate) struct AnswerParts {
    /// Its text, its files and its data.
    pub(crate) parts: Vec<Part>,
    /// Whether a caller that waited for it gets a message in place of the task.
    pub(crate) as_message: bool,
}

impl AnswerParts {
    /// Reads an answer. A [`MEMBER`] in another form is data, as everything else in the payload.
    pub(crate) fn of(answer: &StoredMessage) -> Self {
        let mut data = answer.payload.clone();
        let member = data.as_ref().and_then(|data| data.get(MEMBER)).cloned();
        let parsed = member.and_then(|member| serde_json::from_value::<ForCallers>(member).ok());
        let parsed = parsed.filter(|parsed| parsed.files.iter().all(File::is_whole));
        if let (Some(_), Some(Value::Object(members))) = (&parsed, &mut data) {
            members.remove(MEMBER);
            if members.is_empty() {
                data = None;
            }
        }
        let ForCallers { files, message } = parsed.unwrap_or_default();
        let is_text = !answer.body.is_empty() || (data.is_none() && files.is_empty());
        let text = is_text.then(|| Part::text(&answer.body));
        let files = files.into_iter().map(File::into_part);
        let parts = text.into_iter().chain(files).chain(data.map(Part::data)).collect();
        Self { parts, as_message: message }
    }
}
