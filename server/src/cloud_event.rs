//! CloudEvents 1.0: the attributes of an event, and its JSON.

use serde_json::{Map, Value};

/// The media type of one event in JSON.
pub(crate) const STRUCTURED: &str = "application/cloudevents+json";
/// The media type of a JSON list of events.
pub(crate) const BATCHED: &str = "application/cloudevents-batch+json";
/// The media type of every event's data.
pub(crate) const JSON: &str = "application/json";
/// The source of an event whose origin has no name of its own, and what such names begin with.
pub(crate) const SOURCE: &str = "urn:lastword";

/// The attributes of an event. Two events have the same source and id only if one repeats the other.
pub(crate) struct Attributes<'e> {
    pub(crate) id: &'e str,
    pub(crate) source: &'e str,
    pub(crate) kind: &'e str,
    pub(crate) subject: Option<&'e str>,
    pub(crate) time: &'e str,
}

impl<'e> Attributes<'e> {
    /// Returns the attributes with their names.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, &'e str)> {
        let all = [
            ("specversion", Some("1.0")),
            ("id", Some(self.id)),
            ("source", Some(self.source)),
            ("type", Some(self.kind)),
            ("subject", self.subject),
            ("time", Some(self.time)),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?)))
    }

    /// Returns the event with this data, in structured mode.
    pub(crate) fn structured(&self, data: Value) -> Value {
        let named = self.named().chain([("datacontenttype", JSON)]);
        let mut event: Map<_, _> = named.map(|(name, value)| (name.to_owned(), value.into())).collect();
        event.insert("data".to_owned(), data);
        Value::Object(event)
    }
}
