//! Keeps objects and lists of a JSON file on their line: what `lastword init` adds to them stands there as well, so that
//! `--remove` leaves the file as it was.

use jsonc_parser::ast::{Object, Value};
use jsonc_parser::common::{Range, Ranged as _};
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

/// Returns the `new` text of a file, to whose objects and lists something was added at their ends, with each of them on one
/// line that was so in the `old` one.
pub(crate) fn in_line(old: &str, new: String) -> String {
    let parsed = |text| parse_to_ast(text, &CollectOptions::default(), &ParseOptions::default()).ok()?.value;
    match (parsed(old), parsed(&new)) {
        (Some(before), Some(after)) => {
            format!("{}{}{}", &new[..after.start()], value(old, &before, &new, &after), &new[after.end()..])
        }
        _ => new,
    }
}

fn value(old: &str, before: &Value<'_>, new: &str, after: &Value<'_>) -> String {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => object(old, before, new, after),
        (Value::Array(before), Value::Array(after)) if is_line(old, before.range) => {
            let end = before.elements.last().map(|last| last.end());
            let added = after.elements.iter().skip(before.elements.len()).map(|element| element.range());
            end.map_or_else(
                || new[after.start()..after.end()].to_owned(),
                |end| format!("{}{}{}", &old[before.start()..end], joined(new, added), &old[end..before.end()]),
            )
        }
        (_, after) => new[after.start()..after.end()].to_owned(),
    }
}

fn object(old: &str, before: &Object<'_>, new: &str, after: &Object<'_>) -> String {
    let keeps_line = !before.properties.is_empty() && is_line(old, before.range);
    // The text that is taken over, but for the values of the members that both have.
    let (base, whole) = if keeps_line { (old, before) } else { (new, after) };
    let named =
        |object: &'_ Object<'_>, name: &str| object.properties.iter().position(|known| known.name.as_str() == name);
    let (mut text, mut at) = (String::new(), whole.range.start);
    for member in &whole.properties {
        let name = member.name.as_str();
        let (Some(was), Some(is)) = (named(before, name), named(after, name)) else { continue };
        text += &base[at..member.value.start()];
        text += &value(old, &before.properties[was].value, new, &after.properties[is].value);
        at = member.value.end();
    }
    let added = after.properties.iter().filter(|member| named(before, member.name.as_str()).is_none());
    if keeps_line {
        text += &joined(new, added.map(|member| member.range));
    }
    text + &base[at..whole.range.end]
}

fn is_line(text: &str, range: Range) -> bool {
    !text[range.start..range.end].contains('\n')
}

/// Returns parts of a text on one line, each behind a comma.
fn joined(text: &str, parts: impl Iterator<Item = Range>) -> String {
    let line = |part: Range| text[part.start..part.end].lines().map(str::trim).collect::<Vec<_>>().join(" ");
    parts.map(|part| format!(", {}", line(part))).collect()
}
