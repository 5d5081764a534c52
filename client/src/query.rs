//! The filter of `GET /v1/messages`.

use serde::Serialize;

/// Which messages to list; what is absent admits all.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MessageQuery {
    /// In this conversation and its children.
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// Sent by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Addressed to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Of this type.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// At this depth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u8>,
    /// Not before this moment (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Not after this moment (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// With these words in the body.
    #[serde(rename = "q", skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// At most so many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Where an earlier part of the list ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
