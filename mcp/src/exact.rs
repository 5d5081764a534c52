//! Messages that MCP's library would change, or not answer. It parses numbers into the machine's own, and keeps the last of
//! two members of the same name: a call whose arguments have to arrive exactly is refused by name instead (H2). It drops text
//! that isn't well-formed: such a call is refused by name, too, but for the end of a turn (F6).

use std::borrow::Cow;

use lastword_server::edges::http::REQUEST_BYTES_MAX;
use lastword_wire::{Arguments, Inexact, text};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};

use super::permission_prompt;

/// The tool that ends a turn with its answer.
const FINISH: &str = "finish_turn";
/// The longest line that is passed on as it is. The library drops those above 16 MiB.
const LINE_BYTES_MAX: usize = 4 << 20;
/// The tools that hold, use or decide a call.
const TOOLS: [&str; 4] = [permission_prompt::TOOL, "request_approval", "resolve_agent_approval", "use_approval"];

#[derive(Deserialize)]
struct ToolCallMessage<'a> {
    #[serde(borrow)]
    params: Option<Params<'a>>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

/// Returns the message with the reason in place of the arguments, if they would arrive changed or not at all; or with U+FFFD
/// in place of what isn't text, if it is an answer or no call of a tool. `None` if it can be passed on as it is.
pub(super) fn refused(message: &[u8]) -> Option<Vec<u8>> {
    if let Some(flaw) = text::flaw(message) {
        return Some(mended(message, &flaw));
    }
    let text = std::str::from_utf8(message).ok().filter(|text| TOOLS.iter().any(|tool| text.contains(tool)))?;
    let of_tool = |params: &Params<'_>| params.name.as_deref().is_some_and(|name| TOOLS.contains(&name));
    let reason = match serde_json::from_str::<ToolCallMessage<'_>>(text) {
        Ok(message) => {
            let arguments = message.params.filter(of_tool)?.arguments?;
            Arguments::parse(arguments.get()).and_then(|arguments| arguments.exact_value()).err()?
        }
        // A member of the message itself is there twice; the library would take either.
        Err(error) => Inexact::Unreadable(error.to_string()),
    };
    // What is no message at all is refused by the library.
    let mut marked: Value = serde_json::from_str(text).ok()?;
    let arguments = marked.get_mut("params").and_then(Value::as_object_mut)?;
    arguments.insert("arguments".to_owned(), json!({ Inexact::MARK: reason.to_string() }));
    Some(marked.to_string().into_bytes())
}

/// Returns a message with a flaw so that the library answers it.
fn mended(message: &[u8], flaw: &text::Flaw) -> Vec<u8> {
    let mended = text::mended(message);
    let call = serde_json::from_str::<Value>(&mended).ok().filter(|call| call["method"] == "tools/call");
    match call.filter(|call| call["params"]["name"] != FINISH) {
        Some(mut call) if call["params"].is_object() => {
            call["params"]["arguments"] = json!({ Inexact::MARK: flaw.to_string() });
            call.to_string().into_bytes()
        }
        Some(_) | None => mended.trim_end().as_bytes().to_vec(),
    }
}

/// Shortens a line that the library would drop for its length, so that it is still answered as too long.
fn shortened(line: &[u8]) -> Option<Vec<u8>> {
    let long = Some(line).filter(|line| line.len() > LINE_BYTES_MAX);
    let mut call: Value = serde_json::from_str(&text::mended(long?)).ok()?;
    let arguments = call.get_mut("params").and_then(Value::as_object_mut)?;
    arguments.insert("arguments".to_owned(), json!({ "cut": " ".repeat(REQUEST_BYTES_MAX) }));
    Some(call.to_string().into_bytes())
}

/// Passes the lines of a client on, with the arguments that would be changed replaced.
pub(super) async fn pass_on(from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> std::io::Result<()> {
    let mut from = BufReader::new(from);
    loop {
        let mut line = Vec::new();
        if from.read_until(b'\n', &mut line).await? == 0 {
            return to.shutdown().await;
        }
        if let Some(mut other) = shortened(&line).or_else(|| refused(&line)) {
            other.push(b'\n');
            line = other;
        }
        to.write_all(&line).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(message: &str) -> Option<String> {
        let marked: Value = serde_json::from_slice(&refused(message.as_bytes())?).unwrap();
        assert_eq!(marked["id"], 1);
        Inexact::marked(&marked["params"]["arguments"]).map(str::to_owned)
    }

    #[test]
    fn a_call_that_would_arrive_changed_is_refused_by_name() {
        let of = |tool: &str, arguments: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
            )
        };
        let twice = r#"{"tool_name":"mail","input":{"to":"mallory","to":"anna"}}"#;
        let long = r#"{"tool_name":"pay","input":{"id":1234567890123456789012}}"#;
        for tool in TOOLS {
            assert!(reason(&of(tool, twice)).unwrap().contains("`input.to` is named twice"), "{tool}");
            assert!(reason(&of(tool, long)).unwrap().contains("1234567890123456789012"), "{tool}");
            assert_eq!(reason(&of(tool, r#"{"tool_name":"pay","input":{"id":12345678901234567,"of":0.1}}"#)), None);
        }
        let two = of("x", long).replace(r#""name":"x""#, r#""name":"x","name":"use_approval""#);
        assert!(reason(&two).unwrap().contains("duplicate"));
        assert_eq!(
            reason(&of("send_message", r#"{"body":"use_approval","payload":{"id":1234567890123456789012}}"#)),
            None
        );
        assert_eq!(refused(b"[] use_approval"), None);
    }

    #[test]
    fn a_call_with_text_that_is_not_well_formed_is_refused_by_name_and_an_answer_is_mended() {
        let of = |tool: &str, text: &[u8]| {
            let head = format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{{"x":""#
            );
            [head.as_bytes(), text, br#""}}}"#].concat()
        };
        for (text, named) in
            [(br"caf\\ud83d".as_slice(), None), (br"a\ud83d b", Some("\\ud83d")), (b"caf\xe9", Some("0xe9"))]
        {
            let asked = refused(&of("send_agent_message", text));
            let asked: Option<Value> = asked.map(|asked| serde_json::from_slice(&asked).unwrap());
            let reason = asked.as_ref().and_then(|asked| Inexact::marked(&asked["params"]["arguments"]));
            assert_eq!(reason.is_some(), named.is_some());
            assert!(reason.unwrap_or_default().contains(named.unwrap_or_default()), "{reason:?}");
            let finish = refused(&of(FINISH, text));
            assert_eq!(finish.is_some(), named.is_some());
            if let Some(finish) = finish {
                let finish: Value = serde_json::from_slice(&finish).unwrap();
                assert!(finish["params"]["arguments"]["x"].as_str().unwrap().contains('\u{fffd}'), "{finish}");
            }
        }
    }
}
