//! Forms that change limits of the workspace.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::Response;
use lastword_facts::Code;
use lastword_facts::fact::Role;
use lastword_facts::limits::LIMITS;
use lastword_server::calls::limits as calls;
use lastword_server::{ApiError, Context};
use lastword_wire::LimitView;
use maud::{Markup, html};

use super::agent_forms::{amount, units};
use super::forms::Form;
use super::frame::ErrorPage;
use super::limits;
use super::live::Topic;
use super::parts::{plural, quantity};
use super::session::Viewer;
use crate::reads::figures::Reached;

/// The units in which a time is entered, with their milliseconds.
const TIMES: [(&str, u64); 5] =
    [("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000), ("seconds", 1_000), ("milliseconds", 1)];
/// The name of the field with the unit of a time.
const UNIT: &str = "unit";

/// The name of the field with the highest value of last week that the form shows.
const PEAK: &str = "peak";
/// The name of the field that confirms a value below it.
const BELOW: &str = "below";

/// Shows the form that changes a limit, with the highest value that work reached last week.
pub(super) fn form(viewer: &Viewer, limit: &LimitView, peak: Option<&Reached>, open_grants: u64) -> Markup {
    let LimitView { name, value, .. } = limit;
    let unit = shown_unit(name, *value);
    html! {
        (viewer.fill_in("change-limit", "/limits", &html! {
            div.fields {
                label { span { "New value" @if is_money(name) { ", in dollars" } }
                    input name=(name) value=(amount(*value, unit)) inputmode="decimal" autocomplete="off" required autofocus; }
                @if is_time(name) {
                    label { span { "Unit" } select name=(UNIT) {
                        @for (word, ms) in TIMES { option value=(ms) selected[ms == unit] { (word) } }
                    } }
                }
            }
            @if name.starts_with("grant_") && open_grants > 0 {
                p.faint { "It holds for the work that is open, too: " (plural(open_grants, "grant", "grants")) "." }
            }
            @if let Some(peak) = peak {
                p.faint { "Highest in the last seven days: " (quantity(name, peak.value)) (limits::reached_by(peak)) "." }
                input type="hidden" name=(PEAK) value=(peak.value);
                label.check { input type="checkbox" name=(BELOW) value="yes"; "also a limit below that" }
            }
            button type="submit" { "Change" }
        }))
    }
}

fn is_time(name: &str) -> bool {
    name.trim_end_matches("_max").ends_with("_ms")
}

fn is_money(name: &str) -> bool {
    name.trim_end_matches("_max").ends_with("_microusd")
}

/// Returns how many of a limit's units make one of its field's: the longest time of which the value is a whole number.
fn shown_unit(name: &str, value: u64) -> u64 {
    match name {
        _ if is_money(name) => 1_000_000,
        _ if is_time(name) => {
            TIMES.iter().find(|(_, ms)| value > 0 && value.is_multiple_of(*ms)).map_or(1, |(_, ms)| *ms)
        }
        _ => 1,
    }
}

/// `POST /limits`: changes limits from now on, and in the configuration file.
pub(super) async fn change(
    State(ctx): State<Context>,
    form: Form<BTreeMap<String, String>>,
) -> Result<Response, ErrorPage> {
    let Form { viewer, fields } = form;
    let viewer = viewer.confirmed(&ctx, Role::Owner).await?;
    let chosen = fields.get(UNIT);
    let mut wanted = BTreeMap::new();
    for (name, text) in fields.iter().filter(|(name, _)| LIMITS.iter().any(|row| row.name == *name)) {
        let unit = match chosen {
            Some(chosen) if is_time(name) => TIMES.iter().map(|(_, ms)| *ms).find(|ms| ms.to_string() == *chosen),
            _ => Some(shown_unit(name, 0)),
        };
        let unknown = || ApiError::new(Code::Malformed, "That is no unit of a time");
        wanted.insert(name.clone(), in_units(name, text, unit.ok_or_else(unknown)?)?);
    }
    let peak = fields.get(PEAK).and_then(|peak| peak.parse::<u64>().ok()).unwrap_or_default();
    let is_below = |value: u64| value > 0 && value < peak && !fields.contains_key(BELOW);
    let below = wanted.iter().find(|(_, value)| is_below(**value)).map(|(name, _)| name.clone());
    if let Some(name) = below {
        let reached = quantity(&name, peak);
        let words = format!(
            "Work of the last seven days reached {reached}, so this limit would have tripped. Tick “also a limit below \
             that” to set it anyway"
        );
        return Err(ApiError::new(Code::Malformed, words).into());
    }
    if wanted.is_empty() {
        return Err(ApiError::new(Code::Malformed, "This names no limit").into());
    }
    let before = calls::change(&ctx, viewer.caller, wanted.clone()).await?;
    if before.is_empty() {
        return Err(ApiError::new(Code::Malformed, "These limits have these values already").into());
    }
    let words = html! {
        @for (index, (name, before)) in before.iter().enumerate() {
            @if index > 0 { ", " }
            code { (name) } " is " (quantity(name, wanted.get(name).copied().unwrap_or_default())) " now, after " (quantity(name, *before))
        }
        "."
    };
    let next = before.keys().next().map_or_else(String::new, |name| format!("/limits#{name}"));
    Ok(viewer.done(&words, &next, &[Topic::Limits]))
}

/// Parses a value, with the spaces and commas between thousands that pages show.
fn in_units(name: &str, text: &str, unit: u64) -> Result<u64, ApiError> {
    let plain: String = text.chars().filter(|c| !c.is_whitespace() && *c != ',' && *c != '\u{202f}').collect();
    let no_amount = || ApiError::new(Code::Malformed, format!("`{name}` isn't an amount: {text:?}"));
    if plain.is_empty() {
        return Err(no_amount());
    }
    if unit == 1 || unit.to_string().trim_end_matches('0') == "1" {
        return units(name, &plain, unit);
    }
    // Minutes, hours and days have no decimal places.
    plain.parse::<u64>().ok().and_then(|whole| whole.checked_mul(unit)).ok_or_else(no_amount)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_entered_in_the_unit_in_which_it_is_shown() {
        for (name, value, unit, text) in [
            ("lease_ms", 600_000, 60_000, "10"),
            ("claim_ms_max", 5_400_000, 60_000, "90"),
            ("window_ms", 1_500, 1, "1500"),
            ("unattended_ms", 0, 1, "0"),
            ("grant_cost_microusd_max", 2_500_000, 1_000_000, "2.5"),
            ("grant_tokens_max", 500_000, 1, "500000"),
        ] {
            assert_eq!(shown_unit(name, value), unit, "{name}");
            assert_eq!(amount(value, unit), text, "{name}");
            assert_eq!(in_units(name, text, unit).unwrap(), value, "{name}");
        }
        assert_eq!(in_units("grant_tokens_max", "1,500 000", 1).unwrap(), 1_500_000);
        for text in ["", "1.5", "-1", "much", "99999999999999999999"] {
            assert!(in_units("lease_ms", text, 60_000).is_err(), "{text:?}");
        }
    }
}
