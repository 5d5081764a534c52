//! `GET /v1/events`: server-sent events, resumable from the position of the last one.

use futures_util::{Stream, StreamExt as _};
use lastword_wire::Event;
use reqwest::Method;
use reqwest::header::ACCEPT;

use crate::error::ClientError;
use crate::http::Client;
use crate::session::{Pushed, Pushes, Session};

/// Longest event accepted; the server never sends one close to it.
pub(crate) const EVENT_BYTES_MAX: usize = 4 << 20;

/// An open stream of events.
pub struct Events {
    client: Client,
    source: Source,
    position: u64,
}

/// The bytes of a response.
pub(crate) type Bytes = std::pin::Pin<Box<dyn Stream<Item = reqwest::Result<Vec<u8>>> + Send>>;

/// Where events come from.
enum Source {
    Http(Bytes, Parser),
    /// A session, which is kept open.
    Session(#[expect(dead_code, reason = "it is held")] Session, Pushes),
}

/// The header with the log's head when the stream was opened.
const POSITION: &str = "lastword-position";

impl Client {
    /// Opens the stream of events behind the position `after`; without it, of live events only.
    ///
    /// # Errors
    /// The server refuses or does not answer.
    pub async fn events(&self, after: Option<u64>) -> Result<Events, ClientError> {
        self.events_until(after, None).await
    }

    /// Like [`Client::events`], but the stream ends at the position `until` or at the log's head, whichever is first.
    ///
    /// # Errors
    /// The server refuses or does not answer.
    pub async fn events_until(&self, after: Option<u64>, until: Option<u64>) -> Result<Events, ClientError> {
        if until.is_none()
            && let Some(watched) = self.watch_events(after).await
        {
            let (session, pushes, position) = watched?;
            return Ok(Events { client: self.clone(), source: Source::Session(session, pushes), position });
        }
        let mut request = self.request(Method::GET, "/v1/events").header(ACCEPT, "text/event-stream");
        if let Some(until) = until {
            request = request.query(&[("until", until)]);
        }
        if let Some(after) = after {
            request = request.header("Last-Event-ID", after.to_string());
        }
        let response = self.answer(request).await?;
        let position = response.headers().get(POSITION).and_then(|value| value.to_str().ok()?.parse().ok());
        let position = position.or(after).unwrap_or_default();
        let bytes = response.bytes_stream().map(|chunk| chunk.map(|bytes| bytes.to_vec()));
        let source = Source::Http(Box::pin(bytes), Parser::default());
        Ok(Events { client: self.clone(), source, position })
    }
}

impl Events {
    /// Returns the log's head when the stream was opened: later events have happened since.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Returns the next event; `None` if the server ended the stream, which can be reopened from the last event's
    /// position.
    ///
    /// # Errors
    /// The connection broke, or the server sent something that isn't an event.
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        let (bytes, parser) = match &mut self.source {
            Source::Http(bytes, parser) => (bytes, parser),
            Source::Session(_, pushes) => loop {
                match pushes.next().await {
                    None => return Ok(None),
                    Some(Pushed::Event(pushed)) => return Ok(Some(pushed.event)),
                    Some(Pushed::Delivery(_) | Pushed::Ended(_)) => {}
                }
            },
        };
        loop {
            if let Some(data) = parser.event() {
                return serde_json::from_str(&data).map(Some).map_err(|error| ClientError::Unexpected {
                    url: self.client.url().to_owned(),
                    status: 200,
                    detail: format!("an event that is none: {error}"),
                });
            }
            match bytes.next().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(self.client.unreachable(&error)),
                Some(Ok(chunk)) if parser.push(&chunk) => {}
                Some(Ok(_)) => {
                    return Err(ClientError::Unexpected {
                        url: self.client.url().to_owned(),
                        status: 200,
                        detail: format!("an event of more than {EVENT_BYTES_MAX} bytes"),
                    });
                }
            }
        }
    }
}

/// Assembles events from the chunks in which they arrive.
#[derive(Default)]
pub(crate) struct Parser {
    bytes: Vec<u8>,
    data: String,
}

impl Parser {
    /// Adds a chunk; returns `false` if the event exceeds `EVENT_BYTES_MAX`.
    pub(crate) fn push(&mut self, chunk: &[u8]) -> bool {
        self.bytes.extend_from_slice(chunk);
        self.bytes.len() + self.data.len() <= EVENT_BYTES_MAX
    }

    /// Returns the data of the next complete event. Skips events without data, and comments, which keep the connection
    /// alive.
    pub(crate) fn event(&mut self) -> Option<String> {
        while let Some(end) = self.bytes.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.bytes.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches(['\n', '\r']);
            if line.is_empty() {
                if !self.data.is_empty() {
                    return Some(std::mem::take(&mut self.data));
                }
            } else if let Some(data) = line.strip_prefix("data:") {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(data.strip_prefix(' ').unwrap_or(data));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(chunks: &[&str]) -> Vec<String> {
        let mut parser = Parser::default();
        let mut out = Vec::new();
        for chunk in chunks {
            assert!(parser.push(chunk.as_bytes()));
            out.extend(std::iter::from_fn(|| parser.event()));
        }
        out
    }

    #[test]
    fn events_are_whole_however_they_are_cut() {
        let text =
            "id: 7\ndata: {\"a\":1}\n\n: keep-alive\n\nevent: x\r\ndata: two\r\ndata: lines é\r\n\r\ndata: unfinished";
        let expected = ["{\"a\":1}", "two\nlines é"];
        assert_eq!(events(&[text]), expected);
        let mut parser = Parser::default();
        let mut out = Vec::new();
        for byte in text.bytes() {
            parser.push(&[byte]);
            out.extend(std::iter::from_fn(|| parser.event()));
        }
        assert_eq!(out, expected);
    }

    #[test]
    fn an_event_without_end_is_given_up() {
        let mut parser = Parser::default();
        assert!(!parser.push(&vec![b'x'; EVENT_BYTES_MAX + 1]));
    }
}
