//! Bytes of a session's client, from the stream of frames down to the call: the tracker sees the frames that the library
//! reads, however the bytes arrive, and a frame's text is the call that it says or a fault that names it.

use std::io::Cursor;

use serde_json::Value;
use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;
use tokio_tungstenite::tungstenite::protocol::frame::coding::OpCode;

use super::dispatch::{self, parsed};
use super::tracker::Tracker;

/// Checks one text of a frame, if it begins with `{`; otherwise a stream of frames.
///
/// # Panics
/// Panics if the property is broken.
pub fn check(data: &[u8]) {
    if data.first() != Some(&b'{') {
        stream(data);
    } else if let Ok(frame) = std::str::from_utf8(data) {
        text(frame);
    }
}

/// The place in a stream that the library's own parser finds.
#[derive(Debug, Default, PartialEq, Eq)]
struct StreamPosition {
    /// Messages that ended.
    ended: usize,
    /// The declared bytes of the unfinished message.
    message: u64,
    /// Whether the last frame or message is unfinished.
    within: bool,
}

fn stream(data: &[u8]) {
    let (found, sound) = by_the_library(data);
    let data = &data[..sound];
    for chunk in [1, 2, 7, data.len().max(1)] {
        let mut tracker = Tracker::default();
        let ended = data.chunks(chunk).filter(|bytes| tracker.follow(bytes)).count();
        let followed = StreamPosition { ended, message: tracker.message_bytes(), within: tracker.is_within() };
        // Several messages may end within one chunk.
        let ended = if chunk == 1 { found.ended } else { ended };
        assert!(followed.ended <= found.ended && (followed.ended == 0) == (found.ended == 0));
        assert_eq!(followed, StreamPosition { ended, ..found }, "in chunks of {chunk}");
    }
}

/// Parses a stream with the library. Returns what it found, and the bytes up to the first frame that ends a session.
fn by_the_library(data: &[u8]) -> (StreamPosition, usize) {
    let mut found = StreamPosition::default();
    let mut cursor = Cursor::new(data);
    loop {
        let begins = usize::try_from(cursor.position()).expect("a position in a slice");
        match FrameHeader::parse(&mut cursor) {
            Err(_) => return (found, begins),
            Ok(None) => {
                found.within = found.message > 0 || begins < data.len();
                return (found, data.len());
            }
            Ok(Some((header, length))) => {
                let control = matches!(header.opcode, OpCode::Control(_));
                if !control {
                    found.message = found.message.saturating_add(length).max(1);
                }
                let ends = cursor.position().saturating_add(length);
                if ends > data.len() as u64 {
                    found.within = true;
                    return (found, data.len());
                }
                cursor.set_position(ends);
                if !control && header.is_final {
                    found = StreamPosition { ended: found.ended + 1, ..StreamPosition::default() };
                }
                found.within = found.message > 0;
            }
        }
    }
}

fn text(frame: &str) {
    let value = serde_json::from_str::<Value>(frame).ok();
    let member = |name: &str| value.as_ref().and_then(|value| value.get(name));
    let id = member("id").and_then(Value::as_u64);
    match parsed(frame) {
        Ok(call) => assert_eq!((Some(call.id), member("call").and_then(Value::as_str)), (id, Some(&*call.call))),
        Err((named, fault)) => {
            assert!(!fault.0.detail.is_empty());
            // A frame that is nested too deep is not read for its number.
            assert!(named == 0 || Some(named) == id);
        }
    }
    if let Ok((_, Some(hello))) = dispatch::hello(frame)
        && let Some(header) = dispatch::authorization(&hello)
    {
        assert_eq!(header.as_bytes(), format!("Bearer {}", hello.token).as_bytes());
        assert!(header.is_sensitive());
    }
    if dispatch::own(frame).is_some() {
        let name = member("call").and_then(Value::as_str);
        assert!(name == Some("watch") || name == Some("ack"), "{name:?}");
    }
}
