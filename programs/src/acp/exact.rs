//! Lines of the agent that the parser behind this would change or drop. It rounds long numbers, keeps the last of two members
//! of the same name, and takes no text that isn't well-formed: a call with such arguments is denied by name (H2). In what the
//! agent says, U+FFFD takes the place of what isn't text (F6).

use lastword_client::wire::{Arguments, Inexact, text};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The members of a line that describe a call.
const CALLS: [&str; 2] = ["toolCall", "update"];

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    params: Option<Params<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    #[serde(borrow)]
    tool_call: Option<ToolCallInput<'a>>,
    #[serde(borrow)]
    update: Option<ToolCallInput<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolCallInput<'a> {
    #[serde(borrow)]
    raw_input: Option<&'a RawValue>,
}

/// Returns a line of the agent, with the reason in place of arguments that would be changed.
pub(super) fn kept(line: &[u8]) -> String {
    if let Some(flaw) = text::flaw(line) {
        return mended(line, &flaw);
    }
    let line = String::from_utf8_lossy(line).into_owned();
    if !line.contains("rawInput") {
        return line;
    }
    let reason = match serde_json::from_str::<Line<'_>>(&line) {
        Ok(Line { params }) => {
            let calls = params.into_iter().flat_map(|params| [params.tool_call, params.update]);
            let mut inputs = calls.flatten().filter_map(|call| call.raw_input);
            let exact = |input: &RawValue| Arguments::parse(input.get()).and_then(|input| input.exact_value());
            inputs.find_map(|input| exact(input).err())
        }
        Err(error) => Some(Inexact::Unreadable(error.to_string())),
    };
    let Some((reason, Ok(mut marked))) = reason.map(|reason| (reason, serde_json::from_str::<Value>(&line))) else {
        return line;
    };
    for call in CALLS {
        mark(&mut marked, call, &reason.to_string());
    }
    marked.to_string()
}

/// Returns a line whose text isn't well-formed with U+FFFD, and with the reason in place of a call's arguments.
fn mended(line: &[u8], flaw: &text::Flaw) -> String {
    let mended = text::mended(line);
    let Ok(mut value) = serde_json::from_str::<Value>(&mended) else { return mended.into_owned() };
    if value["params"]["update"]["sessionUpdate"] == "agent_message_chunk" {
        return text::mended_part(line).into_owned();
    }
    let calls = CALLS.into_iter().filter(|call| value["params"][*call].get("toolCallId").is_some()).collect::<Vec<_>>();
    for call in calls {
        mark(&mut value, call, &flaw.to_string());
    }
    value.to_string()
}

fn mark(line: &mut Value, call: &str, reason: &str) {
    if let Some(call) = line["params"].get_mut(call).and_then(Value::as_object_mut) {
        call.insert("rawInput".to_owned(), json!({ Inexact::MARK: reason }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_would_be_changed_are_replaced_by_the_reason() {
        for (call, input, named) in [
            ("toolCall", r#"{"to":"mallory","to":"anna"}"#, Some("`to` is named twice")),
            ("update", r#"[{"id":1234567890123456789012}]"#, Some("1234567890123456789012")),
            ("toolCall", r#"{"id":12345,"of":0.5}"#, None),
        ] {
            let line = format!(r#"{{"id":1,"params":{{"usage":1e-400,"{call}":{{"rawInput":{input}}}}}}}"#);
            let found = kept(line.as_bytes());
            let marked: Value = serde_json::from_str(&found).unwrap();
            let reason = Inexact::marked(&marked["params"][call]["rawInput"]);
            assert_eq!(
                reason.is_some_and(|reason| reason.contains(named.unwrap_or_default())),
                named.is_some(),
                "{line}"
            );
            assert_eq!(found == line, named.is_none());
        }
        let twice = r#"{"params":{"toolCall":{"rawInput":{"a":1},"rawInput":{"a":2}}}}"#;
        assert!(kept(twice.as_bytes()).contains("duplicate field"));
    }

    #[test]
    fn a_call_with_text_that_is_not_well_formed_is_denied_by_name_and_what_is_said_is_mended() {
        for line in [
            br#"{"params":{"toolCall":{"toolCallId":"1","rawInput":{"cmd":"rm \ud83d"}}}}"#.as_slice(),
            b"{\"params\":{\"toolCall\":{\"toolCallId\":\"1\",\"content\":\"caf\xe9\"}}}",
        ] {
            let kept: Value = serde_json::from_str(&kept(line)).unwrap();
            assert!(Inexact::marked(&kept["params"]["toolCall"]["rawInput"]).is_some(), "{kept}");
        }
        let said =
            b"{\"params\":{\"update\":{\"sessionUpdate\":\"agent_message_chunk\",\"text\":\"caf\xe9 \\ud83d!\"}}}";
        let said: Value = serde_json::from_str(&kept(said)).unwrap();
        assert_eq!(said["params"]["update"]["text"], "caf\u{fffd} \u{fffd}!");
    }
}
