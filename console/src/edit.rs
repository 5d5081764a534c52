//! Editing a held call: a field for each of its members, and what would change, before the edited call is approved.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::{Html, IntoResponse as _, Response};
use lastword_facts::Code;
use lastword_facts::ids::ApprovalId;
use lastword_facts::visible::escape;
use lastword_server::calls::approvals;
use lastword_server::{ApiError, Context};
use lastword_wire::call::{INPUT, difference, json};
use lastword_wire::{ApprovalView, Arguments, Inexact};
use maud::{Markup, html};

use super::forms::{Form, SAID};
use super::frame::ErrorPage;
use super::layout::{Moment, Page, Place, heading};
use super::parts::{number, url};
use super::session::Viewer;

/// The most members that get a field each; a call with more is edited as JSON.
const FIELDS_MAX: usize = 40;
/// The most lines of a field.
const ROWS_MAX: usize = 24;
/// The lines that are shown before and behind a change.
const CONTEXT: usize = 3;

/// A member of a call, or of the input that the runner of an ACP agent puts into one.
struct Field {
    /// Whether it is a member of the input.
    inside: bool,
    name: String,
    value: Arguments,
}

/// The control in which a member is edited.
enum Control {
    /// A text without a character that can't be seen.
    Text(String),
    Number,
    Bool,
    /// Anything else, as JSON.
    Json,
}

impl Field {
    fn control(&self) -> Control {
        let as_written = |text: &String| escape(text) == *text;
        match (self.value.text().filter(as_written), self.value.as_str()) {
            (Some(text), _) => Control::Text(text),
            (None, "true" | "false") => Control::Bool,
            (None, value) if value.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => Control::Number,
            (None, _) => Control::Json,
        }
    }

    fn label(&self) -> String {
        let within = if self.inside { "input." } else { "" };
        format!("{within}{}", escape(&self.name).replace('\n', "⏎"))
    }

    /// Returns the value that was entered.
    fn read(&self, entered: &str) -> Result<Arguments, ApiError> {
        let wrong = |what: &str| ApiError::new(Code::Malformed, format!("`{}` isn't {what}: {entered}", self.label()));
        let parsed = || Arguments::parse(entered.trim());
        match self.control() {
            Control::Text(_) => Ok(serde_json::Value::from(entered.replace("\r\n", "\n")).into()),
            Control::Bool => parsed().map_err(|_| wrong("true or false")),
            Control::Number => parsed()
                .ok()
                .filter(|value| value.as_str().starts_with(|c: char| c == '-' || c.is_ascii_digit()))
                .ok_or_else(|| wrong("a number")),
            Control::Json => parsed().map_err(|error| wrong(&format!("JSON ({error})"))),
        }
    }
}

/// Returns the members that get a field; `None` for what is edited as JSON alone.
fn fields(all: &Arguments) -> Option<Vec<Field>> {
    let mut found = Vec::new();
    for (name, value) in all.members()? {
        match value.members().filter(|members| name == INPUT && !members.is_empty()) {
            Some(members) => {
                found.extend(members.into_iter().map(|(name, value)| Field { inside: true, name, value }));
            }
            None => found.push(Field { inside: false, name, value }),
        }
    }
    (1..=FIELDS_MAX).contains(&found.len()).then_some(found)
}

/// Returns the arguments with what was entered: the whole as JSON, or the fields by their places.
fn edited(held: &Arguments, entered: &BTreeMap<String, String>) -> Result<Arguments, ApiError> {
    if let Some(whole) = entered.get("input") {
        let wrong = |error: Inexact| ApiError::new(Code::Malformed, format!("This is no JSON: {error}"));
        return Arguments::parse(whole).map_err(wrong);
    }
    let mut members = held.members().unwrap_or_default();
    let mut input = members.get(INPUT).and_then(Arguments::members).unwrap_or_default();
    for (place, field) in fields(held).unwrap_or_default().into_iter().enumerate() {
        let Some(text) = entered.get(&format!("member-{place}")) else { continue };
        let value = field.read(text)?;
        if field.inside {
            input.insert(field.name, value)
        } else {
            members.insert(field.name, value)
        };
    }
    if !input.is_empty() {
        members.insert(INPUT.to_owned(), Arguments::of(&input));
    }
    Ok(Arguments::of(&members))
}

/// Returns what differs between two calls, member by member: its name and the lines of both.
fn differences(before: &Arguments, after: &Arguments) -> Vec<(String, String)> {
    let (Some(old), Some(new)) = (before.members(), after.members()) else {
        let whole = ("arguments".to_owned(), difference(&json(before), &json(after)));
        return if before == after { Vec::new() } else { vec![whole] };
    };
    let shown = |value: Option<&Arguments>| {
        value.map_or_else(String::new, |value| value.text().map_or_else(|| json(value), |text| escape(&text)))
    };
    let mut names: Vec<&String> = old.keys().chain(new.keys()).collect();
    names.sort();
    names.dedup();
    let mut found = Vec::new();
    for name in names {
        let (old, new) = (old.get(name), new.get(name));
        if old == new {
            continue;
        }
        let inner = (old.filter(|value| value.members().is_some()), new.filter(|value| value.members().is_some()));
        if let (INPUT, (Some(old), Some(new))) = (name.as_str(), inner) {
            found.extend(differences(old, new).into_iter().map(|(name, lines)| (format!("input.{name}"), lines)));
            continue;
        }
        found.push((escape(name).replace('\n', "⏎"), difference(&shown(old), &shown(new))));
    }
    found
}

/// Shows what differs between two calls.
pub(super) fn changed(before: &Arguments, after: &Arguments) -> Markup {
    let all = differences(before, after);
    html! {
        @if all.is_empty() { p.faint { "Nothing differs from the call as it was asked." } }
        @for (name, lines) in &all {
            div.argument { p.name { (name) } div.diff { (near(lines)) } }
        }
    }
}

/// Shows the lines that differ, with those near them.
fn near(lines: &str) -> Markup {
    let lines: Vec<&str> = lines.lines().collect();
    let mut shown = vec![false; lines.len()];
    for (at, _) in lines.iter().enumerate().filter(|(_, line)| !line.starts_with(' ')) {
        let end = (at + CONTEXT + 1).min(lines.len());
        shown[at.saturating_sub(CONTEXT)..end].fill(true);
    }
    html! {
        @for stretch in shown.iter().zip(&lines).collect::<Vec<_>>().chunk_by(|a, b| a.0 == b.0) {
            @if *stretch[0].0 {
                @for (_, line) in stretch {
                    @match line.as_bytes().first() {
                        Some(b'-') => del { "− " (line[1..]) },
                        Some(b'+') => ins { "+ " (line[1..]) },
                        _ => span { "  " (line.get(1..).unwrap_or_default()) },
                    }
                }
            } @else { span.faint { "⋯ " (number(stretch.len() as u64)) " more" } }
        }
    }
}

/// Shows the fields of a call, and the whole of it as JSON; what would change is shown below them.
pub(super) fn form(viewer: &Viewer, held: &ApprovalView) -> Markup {
    let id = &held.id;
    let whole = json(&held.arguments);
    let action = url(&format!("/approvals/{id}/changes"));
    let said = format!("{id}-edit{SAID}");
    let one = |suffix: &str, content: &Markup| {
        html! {
            form.edit id={ (id) (suffix) } method="post" action=(action) hx-post=(action) hx-target={ "#" (said) }
                hx-swap="innerHTML" hx-trigger="input delay:300ms, submit" {
                input type="hidden" name="forms" value=(viewer.forms);
                (content)
                button type="submit" { "Show what changes" }
            }
        }
    };
    let fields = fields(&held.arguments);
    let json_form = one(
        "-edit-json",
        &html! {
            label for={ (id) "-input" } { "The whole call as JSON" }
            textarea.code id={ (id) "-input" } name="input" rows=(whole.lines().count().clamp(2, ROWS_MAX)) spellcheck="false" { (whole) }
        },
    );
    html! {
        h3 { "Approve it with different arguments" }
        @match &fields {
            Some(fields) => {
                (one("-edit", &html! { @for (place, field) in fields.iter().enumerate() { (control(id, place, field)) } }))
                details id={ (id) "-json" } { summary { "As JSON" } (json_form) }
            }
            None => (json_form),
        }
        // A reload of the page leaves what it says.
        div.said.changes id=(said) role="status" data-said {}
    }
}

fn control(id: &str, place: usize, field: &Field) -> Markup {
    let (name, place) = (format!("member-{place}"), format!("{id}-member-{place}"));
    let area = |text: &str, class: &str| {
        html! {
            textarea class=(class) id=(place) name=(name) rows=(text.split('\n').count().clamp(1, ROWS_MAX)) spellcheck="false" {
                // The first line end is no part of the text for a browser.
                @if text.starts_with('\n') { "\n" }
                (text)
            }
        }
    };
    html! {
        label for=(place) { code { (field.label()) } }
        @match field.control() {
            Control::Text(text) => (area(&text, "code")),
            Control::Json => (area(&json(&field.value), "code")),
            Control::Number => input id=(place) name=(name) type="text" inputmode="decimal" autocomplete="off" value=(field.value);,
            Control::Bool => select id=(place) name=(name) {
                @for word in ["true", "false"] { option value=(word) selected[field.value.as_str() == word] { (word) } }
            },
        }
    }
}

/// `POST /approvals/{id}/changes`: what an edit would change, and the button that approves exactly that. Changes nothing.
pub(super) async fn changes(
    State(ctx): State<Context>,
    Path(id): Path<String>,
    form: Form<BTreeMap<String, String>>,
) -> Result<Response, ErrorPage> {
    let Form { mut viewer, fields } = form;
    let wanted = ApprovalId::parse(&id).ok_or_else(|| ApiError::unknown(&id))?;
    let moment = Moment::of(&ctx);
    let held = approvals::show(&ctx, viewer.caller, wanted, Duration::ZERO).await?;
    let after = edited(&held.arguments, &fields)?;
    let approve = viewer.form(
        &format!("{id}-approve-edited"),
        &format!("/approvals/{id}/edit"),
        &html! {
            input type="hidden" name="digest" value=(held.digest);
            input type="hidden" name="input" value=(after);
            button type="submit" { "Approve the edited call" }
        },
    );
    let shown = html! {
        (changed(&held.arguments, &after))
        @if after != held.arguments { (approve) }
    };
    if viewer.partial {
        return Ok(Html(shown.into_string()).into_response());
    }
    let title = format!("What changes in {id}");
    let main = html! {
        (heading(&title, &html! {}))
        div.cards.one { article.card { (shown) } }
        p { a href={ (url("/approvals/")) (id) } { "Back to the call, without a change" } }
    };
    viewer.here = format!("/approvals/{id}");
    viewer.page(&ctx, &moment, Page { title: &title, place: Place::Inbox, topics: &[], main }).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(value: &serde_json::Value) -> Arguments {
        Arguments::from(value)
    }

    fn enter(held: &Arguments, all: &[(usize, &str)]) -> Result<Arguments, String> {
        let entered = all.iter().map(|(place, text)| (format!("member-{place}"), (*text).to_owned())).collect();
        edited(held, &entered).map_err(|fault| fault.0.detail)
    }

    #[test]
    fn each_member_is_edited_as_what_it_is_and_the_others_stay() {
        let held =
            Arguments::parse(r#"{"a":[1],"b":true,"c":12345678901234567890123,"d":"x\ny","e":"\u202e"}"#).unwrap();
        let new =
            enter(&held, &[(0, "[2, 3]"), (1, "false"), (2, "12345678901234567890124"), (3, "\nx\r\nz")]).unwrap();
        let wanted = r#"{"a":[2,3],"b":false,"c":12345678901234567890124,"d":"\nx\nz","e":"\u202e"}"#;
        assert_eq!(new, Arguments::parse(wanted).unwrap());
        assert_eq!(enter(&held, &[]).unwrap(), held);
        assert!(enter(&held, &[(2, "\"7\"")]).unwrap_err().contains("`c` isn't a number"));
        assert!(enter(&held, &[(0, "[")]).unwrap_err().contains("`a` isn't JSON"));
        // A text that hides something is edited as JSON, where it is written out.
        assert!(enter(&held, &[(4, "no quotes")]).is_err());
    }

    #[test]
    fn what_a_runner_of_acp_holds_is_edited_within_its_input() {
        let held = call(&json!({"title": "t", "input": {"command": "rm", "timeout": 5}}));
        let new = enter(&held, &[(0, "ls")]).unwrap();
        assert_eq!(new, call(&json!({"title": "t", "input": {"command": "ls", "timeout": 5}})));
        assert_eq!(differences(&held, &new), [("input.command".to_owned(), "-rm\n+ls\n".to_owned())]);
    }

    #[test]
    fn only_the_lines_near_a_change_are_shown() {
        let lines: Vec<String> = (0..30).map(|n| n.to_string()).collect();
        let (old, new) = (lines.join("\n"), lines.join("\n").replace("\n15\n", "\nx\n"));
        let shown =
            changed(&call(&json!({"script": old, "n": 1})), &call(&json!({"script": new, "n": 1}))).into_string();
        assert!(shown.contains("<del>− 15</del><ins>+ x</ins>"), "{shown}");
        assert!(shown.contains("⋯ 12 more") && shown.contains("⋯ 11 more") && !shown.contains(">n<"), "{shown}");
        let same = call(&json!([1]));
        assert!(changed(&same, &same).into_string().contains("Nothing differs"));
    }
}
