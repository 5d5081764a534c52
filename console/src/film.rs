//! The film of a conversation: who asked whom, one step after the other, up to where a rule cut it. It is one SVG file that
//! moves by itself, in the page as well as saved.

use std::collections::BTreeMap;

use axum::extract::{Path, State};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use lastword_facts::visible::escape;
use lastword_facts::{Code, Fact, MessageType};
use lastword_server::Context;
use lastword_server::calls::subjects::first_line;
use maud::{Markup, html};

use super::assets;
use super::decision::shortened;
use super::frame::ErrorPage;
use super::graph::{Spot, halfway, label, route, spots};
use super::markdown;
use super::pages::ViewParams;
use super::parts::{encoded, url};
use super::session::Viewer;
use super::terms::told_within;
use crate::reads::graph::Node;
use crate::reads::history::{self, History, HistoryEntry};

/// The most steps; of a longer history the last ones are shown.
const STEPS_MAX: usize = 40;
/// How long a step takes, and how much of that something moves, in milliseconds.
const STEP_MS: usize = 1_400;
const MOVES_MS: usize = 900;
/// The height of the two lines below the picture, and the width that they need.
const LINES: f64 = 52.0;
const WIDE: f64 = 620.0;

/// A step of the film, between two agents or humans.
struct FilmStep {
    from: String,
    to: String,
    what: Movement,
    /// Who does what to whom.
    line: String,
    /// The message, or why it was refused.
    words: String,
}

enum Movement {
    Asks,
    Answers,
    /// A rule refused the message.
    Cut(Code),
}

/// `GET /conversations/{ref}/film`: the film, as an SVG file.
pub(super) async fn file(
    State(ctx): State<Context>,
    viewer: Viewer,
    Path(reference): Path<String>,
) -> Result<Response, ErrorPage> {
    let history = history::of(&ctx, viewer.caller, &reference, ViewParams::default().asked()?).await?;
    let kind = [(CONTENT_TYPE, "image/svg+xml"), (CONTENT_DISPOSITION, "attachment; filename=\"film.svg\"")];
    Ok((kind, drawn(&steps(&history)).into_string()).into_response())
}

/// Shows what plays the film and what saves it. It begins when it is unfolded, because a picture that isn't shown isn't
/// loaded.
pub(super) fn offer(reference: &str) -> Markup {
    let film = format!("/conversations/{}/film", encoded(reference));
    html! {
        details #film {
            summary { "Play" }
            p { a href=(url(&film)) download={ (reference.replace('/', "-")) ".svg" } { "Save as SVG" } }
            img src=(url(&film)) loading="lazy" alt="Who asked whom, one after the other; the tree below says the same";
        }
    }
}

/// Returns what is shown of a history: all of it, or what led to the last refusal.
fn steps(history: &History) -> Vec<FilmStep> {
    let mut steps: Vec<FilmStep> = history.page_lines().iter().filter_map(step).collect();
    if let Some(cut) = steps.iter().rposition(|step| matches!(step.what, Movement::Cut(_))) {
        steps.truncate(cut + 1);
    }
    steps.split_off(steps.len().saturating_sub(STEPS_MAX))
}

fn step(line: &HistoryEntry) -> Option<FilmStep> {
    if let Fact::Refused(refused) = &line.entry.fact {
        let (from, to) = (line.event.agent.clone()?, refused.to.to_string());
        let (line, code) = (format!("{from} asks {to}"), refused.refusal.code);
        return Some(FilmStep {
            from,
            to,
            what: Movement::Cut(code),
            line,
            words: format!("✕ refused: {}", told_within(code)),
        });
    }
    let message = line.event.message.as_ref()?;
    let (what, verb) = match message.kind {
        MessageType::Request => (Movement::Asks, "asks"),
        MessageType::Response => (Movement::Answers, "answers"),
        MessageType::Status | MessageType::Alert | MessageType::Info | MessageType::Broadcast => return None,
    };
    let (from, to) = (message.from.clone(), message.to.clone());
    let line = format!("{from} {verb} {to}");
    Some(FilmStep { from, to, what, line, words: shortened(&first_line(&markdown::plain(&message.body))) })
}

fn drawn(steps: &[FilmStep]) -> Markup {
    let names = steps.iter().flat_map(|step| [&step.from, &step.to]).map(|name| Node {
        name: name.clone(),
        activity: None,
        rests_until: None,
        tokens: 0,
    });
    let nodes: BTreeMap<String, Node> = names.map(|node| (node.name.clone(), node)).collect();
    let (size, places) = spots(&nodes.values().collect::<Vec<_>>());
    let places: BTreeMap<&str, Spot> = nodes.keys().map(String::as_str).zip(places).collect();
    let wide = size.max(WIDE);
    let (left, high) = (format!("{:.0}", (size - wide) / 2.0), format!("{:.0}", size + LINES));
    html! {
        svg.graph.film xmlns="http://www.w3.org/2000/svg" width=(format!("{wide:.0}")) height=(high)
            viewBox=(format!("{left} 0 {wide:.0} {high}")) {
            style { (maud::PreEscaped(assets::STYLE_SHEET)) }
            @for part in [way, moves] {
                @for (at, step) in steps.iter().enumerate() {
                    @if let (Some(a), Some(b)) = (places.get(step.from.as_str()), places.get(step.to.as_str())) {
                        (part(at, step, *a, *b, size / 2.0))
                    }
                }
            }
            @for (name, spot) in &places {
                circle.peer cx=(format!("{:.0}", spot.x)) cy=(format!("{:.0}", spot.y)) r=(format!("{:.0}", spot.r)) {}
                (label(name, *spot, size / 2.0))
            }
            @for (at, step) in steps.iter().enumerate() {
                @let last = at + 1 == steps.len();
                text.caption.last[last] text-anchor="middle" opacity="0" {
                    @for (words, up) in [(&step.line, 34.0), (&step.words, 14.0)] {
                        tspan x=(format!("{:.0}", size / 2.0)) y=(format!("{:.0}", size + LINES - up)) { (escape(words)) }
                    }
                    @if last { set attributeName="opacity" to="1" begin=(ms(at * STEP_MS)) fill="freeze" {} }
                    @else { set attributeName="opacity" to="1" begin=(ms(at * STEP_MS)) dur=(ms(STEP_MS)) {} }
                }
            }
        }
    }
}

fn ms(n: usize) -> String {
    format!("{n}ms")
}

/// Shows the line of a request from its step on, and the cross of one that was refused.
fn way(at: usize, step: &FilmStep, a: Spot, b: Spot, middle: f64) -> Markup {
    let state = match step.what {
        Movement::Asks => "answered",
        Movement::Answers => return html! {},
        Movement::Cut(_) => "cut",
    };
    let line = route(a, b, middle);
    let (x, y) = halfway(a, b, middle);
    let from = |begin: usize| html! { set attributeName="opacity" to="1" begin=(ms(begin)) fill="freeze" {} };
    html! {
        g.shown opacity="0" {
            path class={ "edge " (state) } d=(line.path) {}
            path class={ "head " (state) } d=(line.head) {}
            (from(at * STEP_MS))
        }
        @if let Movement::Cut(code) = step.what {
            g.shown opacity="0" {
                circle.cross cx=(format!("{x:.0}")) cy=(format!("{y:.0}")) r="9" {}
                text.cross x=(format!("{x:.0}")) y=(format!("{:.0}", y + 4.0)) text-anchor="middle" { "✕" }
                text.rule x=(format!("{:.0}", x + 12.0)) y=(format!("{:.0}", y + 4.0)) { (code.rule()) }
                (from(at * STEP_MS + MOVES_MS))
            }
        }
    }
}

/// Moves a dot along the line: a request to its recipient, an answer the way of its request back, and what was refused up
/// to the cross.
fn moves(at: usize, step: &FilmStep, a: Spot, b: Spot, middle: f64) -> Markup {
    let (path, points) = match step.what {
        Movement::Asks => (route(a, b, middle).path, "0;1"),
        Movement::Answers => (route(b, a, middle).path, "1;0"),
        Movement::Cut(_) => (route(a, b, middle).path, "0;0.5"),
    };
    let (begin, dur) = (ms(at * STEP_MS), ms(MOVES_MS));
    html! {
        circle.runner r="6" opacity="0" {
            set attributeName="opacity" to="1" begin=(begin) dur=(dur) {}
            animateMotion path=(path) keyPoints=(points) keyTimes="0;1" calcMode="linear" begin=(begin) dur=(dur) {}
        }
    }
}
