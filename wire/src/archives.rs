//! The archive of the log.

use serde::{Deserialize, Serialize};

/// The log and the segments that left it; `GET /v1/archives`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ArchivesView {
    /// The position from which the log has its entries.
    pub first: u64,
    /// The position of its last entry.
    pub last: u64,
    /// The time of the first of these entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The bytes of these entries.
    pub bytes: u64,
    /// How many of these bytes were added on an average day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_day: Option<u64>,
    /// Entries older than this move to the archive, in ms; absent if age moves none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<u64>,
    /// The oldest entries of a log with more bytes than this move to the archive; absent if size moves none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above_bytes: Option<u64>,
    /// The segments, oldest first.
    pub segments: Vec<SegmentView>,
}

/// A part of the log that left it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SegmentView {
    /// The position of its first entry.
    pub first: u64,
    /// The position of its last entry.
    pub last: u64,
    /// The time of its last entry.
    pub until: String,
    /// The hash of the chain at its end, in hexadecimal digits.
    pub hash: String,
    /// The name of its file in the folder `archive` of the data directory.
    pub file: String,
    /// The bytes of that file; absent if it isn't there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// Moves the oldest part of the log to the archive; `POST /v1/archives`. Without members, as configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MoveToArchive {
    /// Entries older than this, in ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<u64>,
    /// The oldest entries, until the log has at most these bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above_bytes: Option<u64>,
}

/// What moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MovedToArchive {
    /// The new segments, oldest first.
    pub segments: Vec<SegmentView>,
    /// The oldest position that open or remembered work still needs, if entries from there on stayed because of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_back_at: Option<u64>,
}
