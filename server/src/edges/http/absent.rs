//! Empty texts in a JSON object: an optional member that is an empty text is absent.

use std::fmt;

use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The members of an object as they were written, in their order.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        from.deserialize_map(Each)
    }
}

/// Returns a JSON object without its members that are empty texts; `None` if it has none, or isn't an object. Members in
/// `required` stay.
fn without_empty(json: &[u8], required: &[String]) -> Option<String> {
    // Few bodies have one, and looking costs less than parsing.
    json.windows(2).position(|two| two == b"\"\"")?;
    let Members(members) = serde_json::from_slice(json).ok()?;
    // Without a recipient a message may be for the user.
    let stays = |(name, text): &&(String, &RawValue)| text.get() != "\"\"" || name == "to" || required.contains(name);
    let kept: Vec<String> = members
        .iter()
        .filter(stays)
        .map(|(name, text)| Ok(format!("{}:{}", serde_json::to_string(name)?, text.get())))
        .collect::<Result<_, serde_json::Error>>()
        .ok()?;
    (kept.len() < members.len()).then(|| format!("{{{}}}", kept.join(",")))
}

/// Parses a JSON object without the optional members that are empty texts; `None` if it has none, or can't be parsed so.
pub(super) fn parse<T: DeserializeOwned>(json: &[u8]) -> Option<T> {
    retried(|required| {
        let text = without_empty(json, required)?;
        Some(serde_json::from_slice(text.as_bytes()).map_err(|error| error.to_string()))
    })
}

/// Returns arguments without the optional members that are empty texts, as far as `T` has them.
pub fn arguments<T: DeserializeOwned>(arguments: &Map<String, Value>) -> Option<T> {
    arguments.values().find(|value| value.as_str() == Some(""))?;
    retried(|required| {
        let mut kept = arguments.clone();
        kept.retain(|name, value| value.as_str() != Some("") || required.contains(name));
        Some(serde_json::from_value(Value::Object(kept)).map_err(|error| error.to_string()))
    })
}

/// Parses again with each member that turns out to be required.
fn retried<T>(mut parse: impl FnMut(&[String]) -> Option<Result<T, String>>) -> Option<T> {
    let mut required = Vec::new();
    loop {
        let error = match parse(&required)? {
            Ok(parsed) => return Some(parsed),
            Err(error) => error,
        };
        let missing = error.strip_prefix("missing field `").and_then(|rest| rest.split_once('`'))?.0.to_owned();
        if required.contains(&missing) {
            return None;
        }
        required.push(missing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Body {
        message: String,
        turn: Option<String>,
        wait: Option<u64>,
    }

    fn read(json: &str) -> Option<(String, Option<String>, Option<u64>)> {
        parse::<Body>(json.as_bytes()).map(|body| (body.message, body.turn, body.wait))
    }

    #[test]
    fn an_empty_text_is_absent_where_it_may_be_and_stays_where_it_may_not() {
        assert_eq!(read(r#"{"message":"a","turn":""}"#), Some(("a".into(), None, None)));
        assert_eq!(read(r#"{"message":"","turn":""}"#), Some((String::new(), None, None)));
        assert_eq!(read(r#"{"message":"say \"\"","wait":""}"#), Some(("say \"\"".into(), None, None)));
        for other in
            [r#"{"message":"a"}"#, r#"["",""]"#, r#"{"message":"a","trun":"","x":1}"#, r#"{"turn":""}"#, "{\"\""]
        {
            assert_eq!(read(other), None, "{other}");
        }
        let arguments: Map<String, Value> = serde_json::from_str(r#"{"message":"","turn":""}"#).unwrap();
        assert_eq!(super::arguments::<Body>(&arguments).unwrap().turn, None);
    }
}
