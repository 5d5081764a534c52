//! The W3C trace context in `_meta`. It is copied into the messages that are sent, so that a trace can be followed from
//! agent to agent.

use lastword_facts::TraceContext;
use lastword_wire::{Metadata, TRACEPARENT, TRACESTATE, TRACESTATE_BYTES_MAX};
use rmcp::model::RequestMetaObject;
use serde_json::{Map, Value};
use tracing::Span;

/// The place of a call in a trace.
#[derive(Clone, Debug, Default)]
pub(super) struct Trace {
    parent: Option<String>,
    state: Option<String>,
}

impl Trace {
    /// Reads a request's trace context. An invalid one is ignored, as W3C requires.
    pub(super) fn of(meta: &RequestMetaObject) -> Self {
        let parent = meta.get_traceparent().filter(|text| TraceContext::parse(text).is_some()).map(str::to_owned);
        let readable =
            |text: &&str| text.len() <= TRACESTATE_BYTES_MAX && text.bytes().all(|b| (b' '..=b'~').contains(&b));
        // W3C: without a valid `traceparent`, `tracestate` is ignored.
        let state = meta.get_tracestate().filter(readable).map(str::to_owned).filter(|_| parent.is_some());
        Self { parent, state }
    }

    /// Returns the members for a message's metadata and for `_meta`.
    pub(super) fn members(&self) -> Map<String, Value> {
        let members = [(TRACEPARENT, &self.parent), (TRACESTATE, &self.state)];
        members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.clone()?.into()))).collect()
    }

    /// Adds it to a message.
    pub(super) fn mark(&self, metadata: &mut Metadata) {
        metadata.unknown.extend(self.members());
    }

    /// Returns a span for the call, so that its log lines name the trace.
    pub(super) fn span(&self, tool: &str) -> Span {
        match &self.parent {
            // At the error level, so that the span exists whatever the log's level is.
            Some(traceparent) => tracing::error_span!("mcp", tool, traceparent),
            None => Span::none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";

    #[test]
    fn a_trace_context_is_kept_and_what_is_none_is_not() {
        let of = |parent: &str, state: &str| {
            let mut meta = RequestMetaObject::new();
            meta.set_traceparent(parent);
            meta.set_tracestate(state);
            Value::Object(Trace::of(&meta).members())
        };
        assert_eq!(of(GOOD, "a=1"), serde_json::json!({ "traceparent": GOOD, "tracestate": "a=1" }));
        assert_eq!(of(GOOD, "line\nbreak"), serde_json::json!({ "traceparent": GOOD }));
        assert_eq!(of("00-0af7651916cd43dd8448eb211c80319c", "a=1"), serde_json::json!({}));
    }
}
