//! The arguments of a held call, exactly as they were written: an approval holds for these and no others (H2).

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde::ser::{Error as _, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// JSON in its canonical form: members sorted, no spaces, texts in their shortest form, and each number digit by digit
/// as it was written. A [`Value`] would round long numbers, and keep only the last of two members of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments(Box<str>);

/// Why a text can't be kept exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inexact {
    /// A member is there twice, and two readers could each take another one.
    Twice(String),
    /// The number would be rounded on its way.
    Rounded(String),
    /// The text isn't JSON; with the parser's words.
    Unreadable(String),
}

impl Inexact {
    /// The member that stands in place of arguments which a parser would have changed, with the reason.
    pub const MARK: &str = "lastword_inexact";

    /// Returns why these arguments were replaced; `None` if they were not.
    #[must_use]
    pub fn marked(arguments: &Value) -> Option<&str> {
        arguments.get(Self::MARK)?.as_str()
    }
}

impl fmt::Display for Inexact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Twice(path) => write!(f, "`{path}` is named twice: send each member once"),
            Self::Rounded(number) => write!(f, "the number {number} would be rounded here: send it as a text"),
            Self::Unreadable(error) => f.write_str(error),
        }
    }
}

impl Arguments {
    /// Brings JSON into its canonical form.
    ///
    /// # Errors
    /// The text isn't JSON, or a member is there twice.
    pub fn parse(text: &str) -> Result<Self, Inexact> {
        written(text, &Layout::Line, &numeral).map(|text| Self(text.into()))
    }

    /// Takes arguments that the broker stored; an earlier version may have stored what isn't JSON, which is a text then.
    #[must_use]
    pub fn stored(text: &str) -> Self {
        Self::parse(text).unwrap_or_else(|_| Value::String(text.to_owned()).into())
    }

    /// The canonical text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns a value in which long numbers are rounded: to look at the texts alone.
    #[must_use]
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }

    /// Returns the value, if it holds each number as it is.
    ///
    /// # Errors
    /// A number would be rounded.
    pub fn exact_value(&self) -> Result<Value, Inexact> {
        written(&self.0, &Layout::Line, &unrounded).map(|_| self.value())
    }

    /// Returns the members of an object.
    #[must_use]
    pub fn members(&self) -> Option<BTreeMap<String, Self>> {
        let Members(members) = serde_json::from_str(&self.0).ok()?;
        Some(members.into_iter().map(|(name, value)| (name, Self(value.get().into()))).collect())
    }

    /// Returns the items of a list.
    #[must_use]
    pub fn items(&self) -> Option<Vec<Self>> {
        let items: Vec<&RawValue> = serde_json::from_str(&self.0).ok()?;
        Some(items.into_iter().map(|value| Self(value.get().into())).collect())
    }

    /// Returns the list of these items.
    #[must_use]
    pub fn list(items: &[Self]) -> Self {
        Self(format!("[{}]", items.iter().map(Self::as_str).collect::<Vec<_>>().join(",")).into())
    }

    /// Returns the object with these members.
    #[must_use]
    pub fn of(members: &BTreeMap<String, Self>) -> Self {
        let each = members.iter().map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), value.0));
        Self(format!("{{{}}}", each.collect::<Vec<_>>().join(",")).into())
    }

    /// Returns the text, if it is one.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        serde_json::from_str(&self.0).ok()
    }

    /// Formats it on several lines.
    #[must_use]
    pub fn pretty(&self) -> String {
        written(&self.0, &Layout::Lines(0), &numeral).unwrap_or_else(|_| self.0.to_string())
    }
}

impl Default for Arguments {
    fn default() -> Self {
        Self("null".into())
    }
}

impl fmt::Display for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&Value> for Arguments {
    fn from(value: &Value) -> Self {
        let text = value.to_string();
        // A value has each member once, so only its order can differ from the canonical form.
        Self::parse(&text).unwrap_or_else(|_| Self(text.into()))
    }
}

impl From<Value> for Arguments {
    fn from(value: Value) -> Self {
        Self::from(&value)
    }
}

impl Serialize for Arguments {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serde_json::from_str::<&RawValue>(&self.0).map_err(S::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::parse(raw.get()).map_err(D::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl utoipa::PartialSchema for Arguments {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        <Value as utoipa::PartialSchema>::schema()
    }
}

#[cfg(feature = "schema")]
impl utoipa::ToSchema for Arguments {}

/// The members of an object, in order.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Each)
    }
}

/// How JSON is written.
#[derive(Clone, Copy)]
enum Layout {
    Line,
    /// On several lines, at this depth.
    Lines(usize),
}

impl Layout {
    const fn deeper(self) -> Self {
        match self {
            Self::Line => Self::Line,
            Self::Lines(depth) => Self::Lines(depth + 1),
        }
    }

    fn list(self, open: char, close: char, items: &[String]) -> String {
        match self {
            Self::Lines(depth) if !items.is_empty() => {
                let (inside, outside) = ("  ".repeat(depth + 1), "  ".repeat(depth));
                format!("{open}\n{inside}{}\n{outside}{close}", items.join(&format!(",\n{inside}")))
            }
            Self::Line | Self::Lines(_) => format!("{open}{}{close}", items.join(",")),
        }
    }

    const fn colon(self) -> &'static str {
        match self {
            Self::Line => ":",
            Self::Lines(_) => ": ",
        }
    }
}

type Numbers<'a> = &'a dyn Fn(&str) -> Result<String, Inexact>;

/// Writes JSON with sorted members; `number` writes the numbers.
fn written(text: &str, layout: &Layout, number: Numbers<'_>) -> Result<String, Inexact> {
    let unreadable = |error: serde_json::Error| Inexact::Unreadable(error.to_string());
    let text = text.trim();
    let inside = |text: &str| written(text, &layout.deeper(), number);
    match text.bytes().next() {
        Some(b'{') => {
            let Members(mut members) = serde_json::from_str(text).map_err(unreadable)?;
            members.sort_by(|a, b| a.0.cmp(&b.0));
            if let Some(twice) = members.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                return Err(Inexact::Twice(twice[0].0.clone()));
            }
            let one = |(name, value): (String, &RawValue)| {
                let value = inside(value.get()).map_err(|error| error.within(&name))?;
                Ok(format!("{}{}{value}", Value::from(name.as_str()), layout.colon()))
            };
            let members: Vec<String> = members.into_iter().map(one).collect::<Result<_, _>>()?;
            Ok(layout.list('{', '}', &members))
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text).map_err(unreadable)?;
            let items: Vec<String> = items.into_iter().map(|item| inside(item.get())).collect::<Result<_, _>>()?;
            Ok(layout.list('[', ']', &items))
        }
        Some(b'-' | b'0'..=b'9') => {
            let whole: &RawValue = serde_json::from_str(text).map_err(unreadable)?;
            number(whole.get())
        }
        _ => Ok(serde_json::from_str::<Value>(text).map_err(unreadable)?.to_string()),
    }
}

impl Inexact {
    fn within(self, name: &str) -> Self {
        match self {
            Self::Twice(path) => Self::Twice(format!("{name}.{path}")),
            Self::Rounded(_) | Self::Unreadable(_) => self,
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "one of two functions that write numbers")]
fn numeral(text: &str) -> Result<String, Inexact> {
    Ok(text.to_owned())
}

fn unrounded(text: &str) -> Result<String, Inexact> {
    let kept = serde_json::from_str::<Value>(text).is_ok_and(|value| decimal(&value.to_string()) == decimal(text));
    if kept { Ok(text.to_owned()) } else { Err(Inexact::Rounded(text.to_owned())) }
}

/// Returns a number's sign, its digits without zeros around them, and the power of ten of the last one.
fn decimal(text: &str) -> Option<(bool, String, i64)> {
    let (mantissa, power) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, part) =
        mantissa.trim_start_matches('-').split_once('.').unwrap_or((mantissa.trim_start_matches('-'), ""));
    let digits = format!("{whole}{part}");
    let kept = digits.trim_end_matches('0');
    let cut = i64::try_from(digits.len() - kept.len()).ok()?;
    let power: i64 = power.parse().ok()?;
    let power = power.checked_sub(i64::try_from(part.len()).ok()?)?.checked_add(cut)?;
    let kept = kept.trim_start_matches('0');
    let power = if kept.is_empty() { 0 } else { power };
    Some((text.starts_with('-'), kept.to_owned(), power))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parsed(text: &str) -> String {
        Arguments::parse(text).unwrap().to_string()
    }

    #[test]
    fn members_are_sorted_and_numbers_stay_digit_by_digit() {
        assert_eq!(parsed(r#" {"b":[{"z":1,"a":"\u0041\n"}], "a":null} "#), r#"{"a":null,"b":[{"a":"A\n","z":1}]}"#);
        for number in ["1234567890123456789012", "0.10000000000000000001", "-0.0", "1E400", "1.10"] {
            assert_eq!(parsed(&format!("[{{\"id\": {number}}}]")), format!("[{{\"id\":{number}}}]"));
        }
        let value: Arguments = serde_json::from_str(r#"{"id":1234567890123456789012}"#).unwrap();
        assert_eq!(serde_json::to_string(&value).unwrap(), r#"{"id":1234567890123456789012}"#);
        assert_eq!(value.pretty(), "{\n  \"id\": 1234567890123456789012\n}");
        assert_eq!(Arguments::of(&value.members().unwrap()), value);
    }

    #[test]
    fn a_member_that_is_named_twice_is_refused_by_name_in_any_nesting() {
        for (text, path) in
            [(r#"{"to":"mallory","to":"anna"}"#, "to"), (r#"{"a":[{"b":{"to":1,"t\u006f":1}}]}"#, "a.b.to")]
        {
            assert_eq!(Arguments::parse(text), Err(Inexact::Twice(path.into())), "{text}");
            let error = serde_json::from_str::<Arguments>(text).unwrap_err().to_string();
            assert!(error.contains(&format!("`{path}` is named twice")), "{error}");
        }
        for text in [r#""\ud800""#, "{", "1 2", "", "01", r#"{"a":tru}"#] {
            assert!(matches!(Arguments::parse(text), Err(Inexact::Unreadable(_))), "{text}");
        }
    }

    #[test]
    fn a_value_is_exact_if_it_has_the_same_decimal_number() {
        for number in ["0", "-1", "18446744073709551615", "0.1", "1.10", "1e2", "1e+16", "1e-07", "5E3", "0.0"] {
            assert!(Arguments::parse(number).unwrap().exact_value().is_ok(), "{number}");
        }
        for number in ["18446744073709551616", "0.10000000000000000001", "1e400", "1e-400", "9007199254740993.0"] {
            let known = Arguments::parse(&format!("[{number}]")).unwrap();
            assert_eq!(known.exact_value(), Err(Inexact::Rounded(number.into())), "{number}");
        }
    }

    #[test]
    fn what_a_value_has_is_what_the_text_has() {
        let value = json!({"b": {"y": [], "x": {}}, "a": "é\u{1}"});
        assert_eq!(Arguments::from(&value).value(), value);
        assert_eq!(serde_json::from_value::<Arguments>(value.clone()).unwrap(), Arguments::from(&value));
        let sorted = "{\n  \"a\": \"é\\u0001\",\n  \"b\": {\n    \"x\": {},\n    \"y\": []\n  }\n}";
        assert_eq!(Arguments::from(&value).pretty(), sorted);
        assert_eq!(Arguments::stored("no JSON").text().as_deref(), Some("no JSON"));
    }
}
