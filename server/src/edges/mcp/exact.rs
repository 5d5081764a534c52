//! Calls of tools whose arguments have to arrive exactly. MCP's library parses numbers into the machine's own, and keeps the
//! last of two members of the same name; a call that this would change is refused by name instead (H2).

use std::borrow::Cow;

use lastword_proto::wire::{Arguments, Inexact};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};

use super::permit;

/// The tools that hold, use or decide a call.
const TOOLS: [&str; 4] = [permit::TOOL, "request_approval", "resolve_agent_approval", "use_approval"];

#[derive(Deserialize)]
struct Message<'a> {
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

/// Returns the message with the reason in place of the arguments, if they would arrive changed.
pub(super) fn refused(message: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(message).ok().filter(|text| TOOLS.iter().any(|tool| text.contains(tool)))?;
    let of_tool = |params: &Params<'_>| params.name.as_deref().is_some_and(|name| TOOLS.contains(&name));
    let reason = match serde_json::from_str::<Message<'_>>(text) {
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

/// Passes the lines of a client on, with the arguments that would be changed replaced.
pub(super) async fn pass_on(from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> std::io::Result<()> {
    let mut from = BufReader::new(from);
    loop {
        let mut line = Vec::new();
        if from.read_until(b'\n', &mut line).await? == 0 {
            return to.shutdown().await;
        }
        if let Some(mut refused) = refused(&line) {
            refused.push(b'\n');
            line = refused;
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
}
