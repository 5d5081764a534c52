//! How Discord names and writes things, and what it has room for.

use lastword_bridge::cards::{Label, Style};
use lastword_bridge::dialect::Dialect;
use lastword_bridge::text::title;
use serde_json::{Value, json};

use super::text::{MESSAGE_CHARS_MAX, split};

/// Buttons in a row.
const ROW_BUTTONS: usize = 5;
/// Longest text of a button.
const LABEL_CHARS_MAX: usize = 80;

/// How Discord names and writes things.
pub(crate) static DISCORD: Dialect = Dialect {
    name: "discord",
    title: "Discord",
    guest: "discord-guest",
    reference: "D-",
    user: |user| format!("<@{user}>"),
    role: |role| format!("<@&{role}>"),
    channel: |channel| format!("<#{channel}>"),
    time: |seconds| format!("<t:{seconds}:R>"),
    split: |text, spare| split(text, MESSAGE_CHARS_MAX - spare),
    buttons: rows,
    buttons_max: 25,
    label_chars_max: LABEL_CHARS_MAX,
    thread_chars_max: 100,
};

/// Writes buttons in rows.
fn rows(labels: &[Label]) -> Value {
    let rows = labels
        .chunks(ROW_BUTTONS)
        .map(|row| json!({ "type": 1, "components": row.iter().map(button).collect::<Value>() }));
    rows.collect()
}

fn button(label: &Label) -> Value {
    let style = match label.style {
        Style::Primary => 1,
        Style::Secondary => 2,
        Style::Success => 3,
        Style::Danger => 4,
    };
    json!({ "type": 2, "style": style, "label": title(&label.text, LABEL_CHARS_MAX), "custom_id": label.button })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buttons_are_in_rows_of_five() {
        let labels: Vec<Label> = (0..7)
            .map(|number| Label {
                button: format!("lw:option:esc-1:{number}"),
                text: "long ".repeat(50),
                style: Style::Primary,
            })
            .collect();
        let rows = rows(&labels);
        assert_eq!(rows.as_array().map(Vec::len), Some(2));
        let last = &rows[1]["components"][1];
        assert_eq!((&last["custom_id"], &last["style"]), (&json!("lw:option:esc-1:6"), &json!(1)));
        assert_eq!(last["label"].as_str().map(|label| label.chars().count()), Some(LABEL_CHARS_MAX));
        assert_eq!(super::rows(&[]), json!([]));
    }
}
