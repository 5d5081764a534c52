//! Arguments of tools that the parser behind this would change: it rounds long numbers, and keeps the last of two members of
//! the same name. A call with such arguments is denied by name (H2).

use lastword_client::wire::{Arguments, Inexact};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    params: Option<Params<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    #[serde(borrow)]
    tool_call: Option<Call<'a>>,
    #[serde(borrow)]
    update: Option<Call<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Call<'a> {
    #[serde(borrow)]
    raw_input: Option<&'a RawValue>,
}

/// Returns a line of the agent, with the reason in place of arguments that would be changed.
pub(super) fn kept(line: String) -> String {
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
    for call in ["toolCall", "update"] {
        if let Some(call) = marked["params"].get_mut(call).and_then(Value::as_object_mut) {
            call.insert("rawInput".to_owned(), json!({ Inexact::MARK: reason.to_string() }));
        }
    }
    marked.to_string()
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
            let found = kept(line.clone());
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
        assert!(kept(twice.to_owned()).contains("duplicate field"));
    }
}
