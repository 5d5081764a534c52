//! The live graph: who asks whom, what each agent does, and where a rule refused. A table says the same in words.

use std::collections::{BTreeMap, BTreeSet};
use std::f64::consts::TAU;

use axum::extract::State;
use axum::response::Response;
use lastword_facts::Code;
use lastword_facts::visible::escape;
use lastword_server::Context;
use lastword_server::views::Activity;
use lastword_wire::rfc3339;
use maud::{Markup, html};

use super::agents::{self, name_link};
use super::frame::ErrorPage;
use super::layout::{Moment, Page, Place, empty, heading};
use super::live::Topic;
use super::parts::{Shown, badge, clock, number, plural, url};
use super::session::Viewer;
use super::terms::told;
use crate::reads::graph::{self, Edge, Graph, Node};

/// The most nodes drawn; the table has all.
const NODES_MAX: usize = 40;
/// The most rules that are named on an edge.
const RULES_MAX: usize = 3;
/// The radius of a node without tokens, and what the largest one has more.
const RADIUS: (f64, f64) = (11.0, 15.0);
/// The space around the circle of nodes, for their names.
const MARGIN: f64 = 100.0;

/// `GET /graph`: the graph of the workspace.
pub(super) async fn page(State(ctx): State<Context>, viewer: Viewer) -> Result<Response, ErrorPage> {
    let moment = Moment::of(&ctx);
    let graph = graph::graph(&ctx, viewer.caller, None).await?;
    let main = html! {
        (heading("Agents", &html! { span.faint { "open requests, and those of the last hour" } }))
        (agents::views(agents::View::Graph))
        (view(&viewer, &graph))
    };
    let topics = [Topic::Agents, Topic::Conversations, Topic::Inbox, Topic::Incidents];
    viewer.page(&ctx, &moment, Page { title: "Graph", place: Place::Agents, topics: &topics, main }).await
}

/// The width, in pixels, up to which a drawing fits a phone.
const NARROW: f64 = 340.0;

/// Shows a graph, and below it the same as a table.
pub(super) fn view(viewer: &Viewer, graph: &Graph) -> Markup {
    if graph.edges.is_empty() {
        return empty("No requests here.", &html! { "Agents appear here with the requests between them." });
    }
    html! {
        (drawing(viewer, graph))
        details #legend.fold {
            summary { "What the signs mean" }
            div.legend {
                // What needs no human comes first.
                @for activity in Activity::ALL.into_iter().rev() {
                    span { span class={ "dot " (tone(Some(activity))) } {} " " (viewer.word(activity.word())) @if activity == Activity::Down { ", with work queued" } }
                }
                span { span.dot.human {} " human" } span { "colour: what the agent does now, in any conversation" } span { "larger: more tokens" }
                span { span.dash.open {} " open requests" } span { span.dash {} " ended" } span.bad { span.dash.cut {} " all refused" }
                @for (code, count) in cuts(graph) { span.bad { "✕ " (code.rule()) ": " (told(code)) ", " (number(count)) } }
            }
        }
        @if graph.unplaced > 0 {
            p.faint { (plural(graph.unplaced, "refusal has", "refusals have")) " no one recipient, such as of posts in rooms; " a href=(url("/limits#refused")) { "all refusals" } }
        }
        (table(viewer, graph))
    }
}

/// Returns the rules whose refusals the graph shows, each with the number of messages on its edges.
fn cuts(graph: &Graph) -> BTreeMap<Code, u64> {
    let mut cuts = BTreeMap::new();
    for (code, refused) in graph.edges.values().flat_map(|edge| &edge.refused) {
        *cuts.entry(*code).or_default() += refused;
    }
    cuts
}

fn refused(edge: &Edge) -> u64 {
    edge.refused.values().sum()
}

const fn tone(activity: Option<Activity>) -> &'static str {
    match activity {
        None => "human",
        Some(Activity::Stopped) => "stopped",
        Some(Activity::Paused) => "paused",
        Some(Activity::Rests) => "rests",
        Some(Activity::Held) => "held",
        Some(Activity::WaitsForHuman) => "asks",
        Some(Activity::Working) => "working",
        Some(Activity::Unable | Activity::Down) => "down",
        Some(Activity::Queued) => "queued",
        Some(Activity::Idle) => "idle",
        Some(Activity::Away) => "away",
    }
}

/// Where a node is, and how large.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) r: f64,
}

/// Places the nodes on a circle, the same for the same names.
pub(super) fn spots(nodes: &[&Node]) -> (f64, Vec<Spot>) {
    let count = f64::from(u32::try_from(nodes.len()).unwrap_or(u32::MAX));
    let radius = (count * 19.0).max(120.0);
    let half = radius + MARGIN;
    let most = nodes.iter().map(|node| node.tokens).max().unwrap_or_default().max(1);
    let spot = |(index, node): (usize, &&Node)| {
        let angle = TAU * f64::from(u32::try_from(index).unwrap_or_default()) / count - TAU / 4.0;
        let permille = u32::try_from(u128::from(node.tokens) * 1_000 / u128::from(most)).unwrap_or_default();
        let share = (f64::from(permille) / 1_000.0).sqrt();
        Spot { x: half + radius * angle.cos(), y: half + radius * angle.sin(), r: RADIUS.0 + RADIUS.1 * share }
    };
    (half * 2.0, nodes.iter().enumerate().map(spot).collect())
}

fn drawing(viewer: &Viewer, graph: &Graph) -> Markup {
    let mut nodes: Vec<&Node> = graph.nodes.iter().collect();
    if nodes.len() > NODES_MAX {
        nodes.sort_by_key(|node| std::cmp::Reverse(node.tokens));
        nodes.truncate(NODES_MAX);
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
    }
    let (size, spots) = spots(&nodes);
    let places: BTreeMap<&str, Spot> = nodes.iter().map(|node| node.name.as_str()).zip(spots.iter().copied()).collect();
    let side = format!("{size:.0}");
    html! {
        @if graph.nodes.len() > nodes.len() { p.faint { "The " (nodes.len()) " agents with the most tokens are drawn; the table has all." } }
        @if size > NARROW { p.faint.narrow-only { "Scroll sideways to see all of it." } }
        // The table below says the same to screen readers.
        div.graph aria-hidden="true" {
            svg width=(side) height=(side) viewBox={ "0 0 " (side) " " (side) } {
                // What is written stands above all lines.
                @for part in [line, cross] {
                    @for ((from, to), edge) in &graph.edges {
                        @if let (Some(a), Some(b)) = (places.get(from.as_str()), places.get(to.as_str())) {
                            (part(*a, *b, edge, size / 2.0, &format!("{from} → {to}")))
                        }
                    }
                }
                @for (node, spot) in nodes.iter().zip(&spots) { (circle(viewer, node, *spot, size / 2.0)) }
            }
        }
    }
}

fn circle(viewer: &Viewer, node: &Node, spot: Spot, middle: f64) -> Markup {
    let Spot { x, y, r } = spot;
    html! {
        circle class={ "peer " (tone(node.activity)) } cx=(format!("{x:.0}")) cy=(format!("{y:.0}")) r=(format!("{r:.0}")) {
            title { (escape(&node.name)) @if let Some(activity) = node.activity { ": " (viewer.word(activity.word())) }
                @if let Some(until) = node.rests_until { " until " (Shown::Minute.of(&rfc3339(until))) " UTC" } ", " (number(node.tokens)) " tokens" }
        }
        (label(&node.name, spot, middle))
    }
}

/// Shows the name of a node beside it.
pub(super) fn label(name: &str, spot: Spot, middle: f64) -> Markup {
    let Spot { x, y, r } = spot;
    // Names stand outside of the circle.
    let (side, anchor) = if x >= middle { (r + 6.0, "start") } else { (-r - 6.0, "end") };
    let centred = (x - middle).abs() < 2.0;
    let (dx, anchor) = if centred { (0.0, "middle") } else { (side, anchor) };
    let dy = if !centred {
        4.0
    } else if y < middle {
        -r - 8.0
    } else {
        r + 16.0
    };
    html! { text x=(format!("{:.0}", x + dx)) y=(format!("{:.0}", y + dy)) text-anchor=(anchor) { (escape(name)) } }
}

/// Returns what an edge bends to: a third of the way to the middle, to the right of the direction, so that the way back is
/// another line.
fn bend(a: Spot, b: Spot, middle: f64) -> (f64, f64) {
    let (mx, my) = (f64::midpoint(a.x, b.x), f64::midpoint(a.y, b.y));
    let (side_x, side_y) = ((b.y - a.y) * 0.12, (a.x - b.x) * 0.12);
    (mx + (middle - mx) * 0.35 + side_x, my + (middle - my) * 0.35 + side_y)
}

/// The line of an edge, and the tip of its arrow.
pub(super) struct Route {
    pub(super) path: String,
    pub(super) head: String,
}

pub(super) fn route(a: Spot, b: Spot, middle: f64) -> Route {
    let (cx, cy) = bend(a, b, middle);
    let end = towards(cx, cy, b, b.r + 4.0);
    let (tip, left, right) = arrow(cx, cy, end.0, end.1);
    Route {
        path: format!("M {:.0} {:.0} Q {cx:.0} {cy:.0} {:.0} {:.0}", a.x, a.y, end.0, end.1),
        head: format!("M {:.1} {:.1} L {:.1} {:.1} L {:.1} {:.1} Z", tip.0, tip.1, left.0, left.1, right.0, right.1),
    }
}

/// Returns where an edge is cut.
pub(super) fn halfway(a: Spot, b: Spot, middle: f64) -> (f64, f64) {
    let (cx, cy) = bend(a, b, middle);
    (0.25 * a.x + 0.5 * cx + 0.25 * b.x, 0.25 * a.y + 0.5 * cy + 0.25 * b.y)
}

/// Shows an edge, moving while a request is open.
fn line(a: Spot, b: Spot, edge: &Edge, middle: f64, words: &str) -> Markup {
    let Route { path, head } = route(a, b, middle);
    let state = match (edge.open, edge.answered + edge.ended) {
        (0, 0) => "cut",
        (0, _) => "answered",
        (_, _) => "open",
    };
    html! {
        path class={ "edge " (state) } d=(path) {
            title { (escape(words)) ": " (counts(edge)) ", " (refused(edge)) " refused" }
        }
        path class={ "head " (state) } d=(head) {}
    }
}

/// Shows a red cross on an edge where a rule refused.
fn cross(a: Spot, b: Spot, edge: &Edge, middle: f64, words: &str) -> Markup {
    let (kx, ky) = halfway(a, b, middle);
    html! {
        @if let Some((code, _)) = edge.cut {
            circle.cross cx=(format!("{kx:.0}")) cy=(format!("{ky:.0}")) r="9" { title { (escape(words)) ": rule " (code.rule()) ", " (told(code)) } }
            text.cross x=(format!("{kx:.0}")) y=(format!("{:.0}", ky + 4.0)) text-anchor="middle" { "✕" }
            text.rule x=(format!("{:.0}", kx + 12.0)) y=(format!("{:.0}", ky + 4.0)) { (rules(edge)) }
        }
    }
}

/// Returns the first rules that refused messages of an edge, each once.
fn rules(edge: &Edge) -> String {
    let rules: BTreeSet<&str> = edge.refused.keys().map(|code| code.rule()).collect();
    let more = if rules.len() > RULES_MAX { ", …" } else { "" };
    let shown: Vec<&str> = rules.into_iter().take(RULES_MAX).collect();
    format!("{}{more}", shown.join(", "))
}

/// Returns the point at a distance before a spot, seen from a point.
fn towards(x: f64, y: f64, spot: Spot, distance: f64) -> (f64, f64) {
    let (dx, dy) = (x - spot.x, y - spot.y);
    let length = dx.hypot(dy).max(1.0);
    (spot.x + dx / length * distance, spot.y + dy / length * distance)
}

/// Returns the corners of the tip of an arrow from a point to its end.
fn arrow(from_x: f64, from_y: f64, x: f64, y: f64) -> ((f64, f64), (f64, f64), (f64, f64)) {
    let (dx, dy) = (x - from_x, y - from_y);
    let length = dx.hypot(dy).max(1.0);
    let (ux, uy) = (dx / length, dy / length);
    let back = (x - ux * 8.0, y - uy * 8.0);
    ((x, y), (back.0 - uy * 4.0, back.1 + ux * 4.0), (back.0 + uy * 4.0, back.1 - ux * 4.0))
}

fn table(viewer: &Viewer, graph: &Graph) -> Markup {
    let node = |name: &str| graph.nodes.iter().find(|node| node.name == name);
    html! {
        div.table.edges tabindex="0" role="region" aria-label="Requests between agents" {
            table {
                thead { tr { th scope="col" { "From" } th scope="col" { "To" } th scope="col" { "Requests" } th scope="col" { "Refused" } } }
                tbody {
                    @for ((from, to), edge) in &graph.edges {
                        tr {
                            th scope="row" { (name_link(from)) }
                            td { (name_link(to))
                                // What it does now says nothing about requests that are answered.
                                @if let Some(node) = node(to).filter(|_| edge.open > 0) {
                                    @if let Some(activity) = node.activity { " " (badge(viewer.word(activity.word()))) }
                                    @if let Some(until) = node.rests_until { " " span.faint { "until " (clock(until)) } }
                                }
                            }
                            td {
                                @match edge.last { Some(last) => a href={ (url("/messages/")) (last) } { (counts(edge)) }, None => (counts(edge)) }
                            }
                            td.none[edge.cut.is_none()] {
                                @match edge.cut {
                                    Some((code, seq)) => { (plural(refused(edge), "message", "messages")) @if edge.refused.len() > 1 { ", the last" } ": " a href={ (url("/messages/")) (seq) } { "rule " (code.rule()) ", " (told(code)) } },
                                    None => span.faint { "none" },
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Returns how many requests are open, answered and without a result; nothing of the kind that there is none of.
fn counts(edge: &Edge) -> String {
    let counts = [(edge.open, "open"), (edge.answered, "answered"), (edge.ended, "without a result")];
    let told: Vec<String> = counts.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}")).collect();
    if told.is_empty() { "none".to_owned() } else { told.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_stand_apart_inside_the_drawing() {
        for count in [1, 2, 7, NODES_MAX] {
            let nodes: Vec<Node> = (0..count)
                .map(|n| Node { name: n.to_string(), activity: None, rests_until: None, tokens: n as u64 * 1_000 })
                .collect();
            let (size, spots) = spots(&nodes.iter().collect::<Vec<_>>());
            assert!(spots.iter().all(|spot| spot.x - spot.r > 0.0 && spot.x + spot.r < size), "{count}");
            for pair in spots.windows(2) {
                let distance = (pair[0].x - pair[1].x).hypot(pair[0].y - pair[1].y);
                assert!(distance > pair[0].r + pair[1].r, "{count}");
            }
        }
    }

    #[test]
    fn each_refusal_counts_for_its_own_rule() {
        let edge = |refused: &[(Code, u64)], cut| Edge {
            refused: refused.iter().copied().collect(),
            cut: Some((cut, lastword_facts::Seq(9))),
            ..Edge::default()
        };
        let edges = [
            edge(&[(Code::DepthCap, 2), (Code::RefConflict, 1)], Code::RefConflict),
            edge(&[(Code::DepthCap, 1)], Code::DepthCap),
        ];
        assert_eq!(refused(&edges[0]), 3);
        let named = ["lima", "kilo"].map(|to| ("hive".to_owned(), to.to_owned())).into_iter().zip(edges);
        let graph = Graph { nodes: Vec::new(), edges: named.collect(), unplaced: 0 };
        assert_eq!(cuts(&graph), [(Code::DepthCap, 3), (Code::RefConflict, 1)].into());
    }
}
