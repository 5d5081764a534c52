//! Schedules: recurring requests with their last tick, and the forms that set, run and remove them (D13).

use axum::extract::{Path, Query, State};
use axum::response::{Html, IntoResponse as _, Response};
use lastword_facts::Time;
use lastword_facts::fact::{Kind, Role};
use lastword_server::calls::{agents, schedules as calls};
use lastword_server::{ApiError, Context, Ticks};
use lastword_wire::{NewSchedule, ScheduleView, parse_rfc3339, rfc3339};
use maud::{Markup, html};
use serde::Deserialize;

use super::agents::name_link;
use super::forms::{Form, Nothing, filled};
use super::frame::ErrorPage;
use super::layout::{Moment, Page, Place, empty, heading};
use super::live::Topic;
use super::parts::{Shown, badge, encoded, foreign, foreign_line, local, plural, time, url, zone};
use super::session::Viewer;
use super::terms::told;

/// The number of ticks that are shown.
const TICKS: usize = 3;
/// Expressions to choose from.
const CRONS: [(&str, &str); 4] = [
    ("0 9 * * MON-FRI", "weekdays at 9:00"),
    ("0 2 * * *", "each night at 2:00"),
    ("0 * * * *", "each hour"),
    ("0 8 1 * *", "on the first of each month at 8:00"),
];

/// `GET /schedules`: the list of schedules.
pub(super) async fn page(State(ctx): State<Context>, viewer: Viewer) -> Result<Response, ErrorPage> {
    let moment = Moment::of(&ctx);
    let schedules = calls::list(&ctx, viewer.caller).await?.items;
    let members = agents::members(&ctx, viewer.caller).await?;
    let agents = members.iter().filter(|member| member.view.kind == Kind::Agent).map(|member| &member.view.name);
    let main = html! {
        (heading("Schedules", &html! { span.faint { (plural(schedules.len() as u64, "schedule", "schedules")) } }))
        @if schedules.is_empty() {
            (empty("No schedules.", &html! {
                "A schedule sends a recurring request in the name of the human who set it. "
                code { "[[schedule]]" } " in " code { "lastword.toml" } " sets one at startup."
            }))
        }
        div.cards { @for schedule in &schedules { (card(&viewer, &moment, schedule)) } }
        h2 { "Set a schedule" }
        (viewer.allowed(Role::Operator, "Setting a schedule", || form(&viewer, moment.now)))
        datalist #agents { @for name in agents { option value=(name) {} } }
    };
    let topics = [Topic::Limits, Topic::Conversations];
    viewer.page(&ctx, &moment, Page { title: "Schedules", place: Place::Schedules, topics: &topics, main }).await
}

fn card(viewer: &Viewer, moment: &Moment, schedule: &ScheduleView) -> Markup {
    let name = &schedule.name;
    html! {
        article.card id={ "s-" (encoded(name)) } tabindex="-1" data-row aria-label={ "Schedule " (name) } {
            header {
                h2 { b { (foreign_line(name)) } }
                @if schedule.open { (badge("open")) }
                span.grow {}
                span.faint { "set by " (foreign_line(&schedule.by)) }
            }
            dl.about {
                dt { "When" } dd { (when(schedule)) }
                dt { "To" } dd { (addressee(&schedule.to)) }
                dt { "REF" } dd { code { (foreign_line(&schedule.reference)) } }
                dt { "Next ticks" } dd { (tick(&schedule.next_at, moment)) (ticks_after(schedule)) span.faint { ", in " (zone()) } }
                dt { "Last tick" } dd { (last(schedule, moment)) }
                @if let Some(at) = &schedule.skipped_at { dt { "Skipped" } dd { (tick(at, moment)) ": " (skipped(schedule)) } }
            }
            (foreign(&schedule.body))
            (viewer.allowed(Role::Operator, "Running or removing a schedule", || controls(viewer, schedule)))
        }
    }
}

/// Shows the expression in words and as it is written, and its time zone.
fn when(schedule: &ScheduleView) -> Markup {
    let words = Ticks::parse(&schedule.cron, &schedule.time_zone).map(|ticks| ticks.words());
    html! {
        @if let Ok(words) = words { (words) ", " }
        (foreign_line(&schedule.time_zone)) " " code.faint { (foreign_line(&schedule.cron)) }
    }
}

/// Returns the next ticks from a moment on.
fn next_ticks(ticks: &Ticks, from: Time) -> impl Iterator<Item = Time> {
    std::iter::successors(ticks.after(from), |tick| ticks.after(*tick)).take(TICKS)
}

/// Shows those that follow the next one.
fn ticks_after(schedule: &ScheduleView) -> Markup {
    let ticks = Ticks::parse(&schedule.cron, &schedule.time_zone).ok();
    let first = parse_rfc3339(&schedule.next_at);
    html! {
        @if let (Some(ticks), Some(first)) = (ticks, first) {
            @for at in next_ticks(&ticks, first).take(TICKS - 1) { ", " (local(&rfc3339(at), Shown::DateAndMinute)) }
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct TicksParams {
    #[serde(default)]
    preset: String,
    #[serde(default)]
    cron: String,
    #[serde(default)]
    time_zone: String,
}

/// `GET /schedules/ticks?cron=…`: what an expression means, for the form in which it is written.
pub(super) async fn ticks(
    State(ctx): State<Context>,
    _viewer: Viewer,
    Query(TicksParams { preset, cron, time_zone }): Query<TicksParams>,
) -> Response {
    Html(meaning(&expression(&preset, &cron), time_zone.trim(), ctx.handle.now()).into_string()).into_response()
}

/// Returns what was written, or else what was chosen.
fn expression(preset: &str, cron: &str) -> String {
    filled(cron).unwrap_or_else(|| preset.to_owned()).trim().to_owned()
}

/// Shows an expression in words, with its next ticks.
fn meaning(cron: &str, time_zone: &str, now: Time) -> Markup {
    let time_zone = if time_zone.is_empty() { "UTC" } else { time_zone };
    let parsed = Ticks::parse(cron, time_zone);
    html! {
        p #ticks.faint role="status" {
            @match &parsed {
                Ok(ticks) => {
                    (ticks.words()) ", " (foreign_line(time_zone)) ". Next: "
                    @for (n, at) in next_ticks(ticks, now).enumerate() { @if n > 0 { ", " } (local(&rfc3339(at), Shown::DateAndMinute)) }
                    ", in " (zone())
                }
                Err(error) => (foreign_line(&error.to_string())),
            }
        }
    }
}

fn addressee(to: &str) -> Markup {
    if to.starts_with('#') {
        html! { (foreign_line(to)) }
    } else {
        name_link(to)
    }
}

/// Shows a tick's time relative to now, and the exact time.
fn tick(at: &str, moment: &Moment) -> Markup {
    html! { (time(at, moment.now)) span.faint { ", " (local(at, Shown::DateAndMinute)) } }
}

fn last(schedule: &ScheduleView, moment: &Moment) -> Markup {
    let Some(at) = &schedule.last_at else { return html! { "none yet" } };
    html! {
        (tick(at, moment)) ", number " (schedule.ticks) ", "
        @if schedule.open { "still open" } @else { "closed" }
    }
}

fn skipped(schedule: &ScheduleView) -> Markup {
    html! {
        @match schedule.skipped {
            Some(code) => { (told(code)) ", " code { (code) } }
            None => { "the grant of the previous tick was still open" }
        }
    }
}

fn controls(viewer: &Viewer, schedule: &ScheduleView) -> Markup {
    let (name, to) = (&schedule.name, &schedule.to);
    let action = |verb: &str| format!("/schedules/{}/{verb}", encoded(name));
    let id = |verb: &str| format!("{verb}-{}", encoded(name));
    html! {
        div.buttons {
            (viewer.form(&id("run"), &action("run"), &html! { button type="submit" data-key="a" { "Run now" } }))
            (viewer.asked(
                &id("remove"),
                &action("remove"),
                &format!("Remove {name}? It sends no further requests to {to}. Work started by its last tick continues."),
                &html! { button.danger type="submit" { "Remove" } },
            ))
        }
    }
}

fn form(viewer: &Viewer, now: Time) -> Markup {
    let text = |name: &str, label: &str, placeholder: &str, list: Option<&str>| {
        html! {
            label { span { (label) }
                input type="text" name=(name) placeholder=(placeholder) list=[list] autocomplete="off" spellcheck="false"; }
        }
    };
    viewer.fill_in("schedule-form", "/schedules", &html! {
        div.fields.wide {
            (text("name", "Name", "nightly", None))
            label { span { "When" } select name="preset" { @for (cron, words) in CRONS { option value=(cron) { (words) } } } }
            (text("cron", "Or as minute, hour, day, month, day of the week", "0 2 * * *", None))
            (text("time_zone", "Time zone", "UTC", None))
            (text("to", "To an agent or #action", "tester", Some("agents")))
            (text("reference", "REF of each tick; {date} and {n} are filled in", "NAME-{n}", None))
        }
        div hx-get=(url("/schedules/ticks")) hx-trigger="change from:#schedule-form" hx-include="#schedule-form [name=preset], #schedule-form [name=cron], #schedule-form [name=time_zone]" hx-target="this" hx-swap="innerHTML" {
            (meaning(CRONS[0].0, "UTC", now))
        }
        label { span { "Request of each tick" } textarea name="body" rows="3" {} }
        p.faint { "Each tick is a request in your name with its own grant. A tick is skipped while the previous one's grant is open. "
            "A schedule with the same name is replaced." }
        p { button.main type="submit" { "Set" } }
    })
}

#[derive(Debug, Deserialize)]
pub(super) struct Fields {
    #[serde(default)]
    name: String,
    #[serde(default)]
    preset: String,
    #[serde(default)]
    cron: String,
    #[serde(default)]
    time_zone: String,
    #[serde(default)]
    to: String,
    #[serde(default)]
    body: String,
    #[serde(default)]
    reference: String,
}

/// `POST /schedules`: sets a schedule.
pub(super) async fn set(State(ctx): State<Context>, form: Form<Fields>) -> Result<Response, ErrorPage> {
    let Form { viewer, fields } = form;
    let trimmed = |text: &str| filled(text).map(|text| text.trim().to_owned());
    let new = NewSchedule {
        name: fields.name.trim().to_owned(),
        cron: expression(&fields.preset, &fields.cron),
        time_zone: trimmed(&fields.time_zone),
        to: fields.to.trim().to_owned(),
        body: filled(&fields.body).unwrap_or_default(),
        reference: trimmed(&fields.reference),
    };
    let set = calls::set(&ctx, viewer.caller, new).await?;
    let words = html! { (foreign_line(&set.name)) " ticks next at " (local(&set.next_at, Shown::DateAndSecond)) ", in " (zone()) "." };
    Ok(viewer.done(&words, "/schedules", &[Topic::Limits]))
}

/// `POST /schedules/{name}/{verb}`: `run` or `remove`.
pub(super) async fn act(
    State(ctx): State<Context>,
    Path((name, verb)): Path<(String, String)>,
    form: Form<Nothing>,
) -> Result<Response, ErrorPage> {
    let Form { viewer, fields: Nothing {} } = form;
    let words = match verb.as_str() {
        "run" => {
            let ran = calls::run(&ctx, viewer.caller, &name).await?;
            html! { "Sent a request to " (foreign_line(&ran.to)) "." }
        }
        "remove" => {
            calls::remove(&ctx, viewer.caller, &name).await?;
            html! { (foreign_line(&name)) " is removed." }
        }
        _ => return Err(ApiError::unknown(&verb).into()),
    };
    Ok(viewer.done(&words, "/schedules", &[Topic::Limits]))
}
