//! The pages of a conversation's history: which part of it a view shows, and the links to the parts before and behind.

use lastword_facts::{Code, Seq};
use lastword_server::ApiError;
use lastword_store::{PageCut, PagePlace, PageUnit};
use maud::{Markup, html};
use serde::Deserialize;

use super::parts::{encoded, number, url};
use super::waterfall::Zoom;
use crate::reads::history::{History, PageAsked};

/// The most messages of a tree.
const TREE_MAX: usize = 200;
/// The most requests of a waterfall.
const WATERFALL_MAX: usize = 60;
/// The most facts of a log.
const LOG_MAX: usize = 400;
/// The most facts of any page.
const FACTS_MAX: usize = 1_000;

/// The view of the history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum View {
    #[default]
    Tree,
    Waterfall,
    Log,
}

/// The addresses of views that there were, and of what shows the same.
const MOVED: [(&str, &str); 2] = [("view=timeline", "view=waterfall"), ("view=graph", "view=tree&graph=true")];

/// Returns the query of what an old address leads to.
pub(super) fn moved(query: &str) -> Option<String> {
    let (old, new) = MOVED.into_iter().find(|(old, _)| query.split('&').any(|pair| pair == *old))?;
    Some(query.replacen(old, new, 1))
}

impl View {
    /// Each view with its word in the address and its name.
    pub(super) const ALL: [(Self, &str, &str); 3] =
        [(Self::Tree, "tree", "Tree"), (Self::Waterfall, "waterfall", "Waterfall"), (Self::Log, "log", "Log")];

    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(view, _, _)| *view == self).map_or("tree", |(_, word, _)| word)
    }

    /// Returns what a page of it counts, and how many of them it has.
    const fn size(self) -> (PageUnit, usize) {
        match self {
            Self::Tree => (PageUnit::Messages, TREE_MAX),
            Self::Waterfall => (PageUnit::Requests, WATERFALL_MAX),
            Self::Log => (PageUnit::Facts, LOG_MAX),
        }
    }

    const fn units(self) -> &'static str {
        match self {
            Self::Tree => "Messages",
            Self::Waterfall => "Requests",
            Self::Log => "Lines",
        }
    }
}

/// The query of a conversation's page.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ViewParams {
    #[serde(default)]
    pub(super) view: View,
    /// Show above the history who asks whom.
    #[serde(default)]
    pub(super) graph: bool,
    /// How many times wider than the window the waterfall is.
    #[serde(default)]
    pub(super) zoom: Zoom,
    /// Show what stands right before this message or line.
    #[serde(default)]
    before: String,
    /// Show what stands right behind this message or line.
    #[serde(default)]
    after: String,
    /// Show the part with this message or line.
    #[serde(default)]
    at: String,
    /// Show what stands right behind this message or line, and go on doing so while the history grows.
    #[serde(default)]
    since: String,
    /// Show the newest part, and scroll to its end whenever it grows.
    #[serde(default)]
    pub(super) follow: bool,
}

impl ViewParams {
    /// Returns the page of the history to read.
    pub(super) fn asked(&self) -> Result<PageAsked, ApiError> {
        let seq = |id: &str| Seq::parse(id).ok_or_else(|| ApiError::unknown(id));
        let places = [&self.before, &self.after, &self.at, &self.since].map(String::as_str);
        let place = match places {
            _ if self.follow => PagePlace::Newest,
            ["", "", "", ""] => PagePlace::Newest,
            [before, "", "", ""] => PagePlace::Before(seq(before)?),
            ["", after, "", ""] => PagePlace::After(seq(after)?),
            ["", "", at, ""] => PagePlace::At(seq(at)?),
            ["", "", "", since] => PagePlace::Since(seq(since)?),
            _ => {
                let words = "`before`, `after`, `at` and `since` exclude each other: give one";
                return Err(ApiError::new(Code::Malformed, words));
            }
        };
        let (unit, units_max) = self.view.size();
        let cut = PageCut { unit, place, units_max, facts_max: FACTS_MAX };
        Ok(PageAsked { cut, ahead: matches!(self.view, View::Tree | View::Waterfall) })
    }

    /// Returns the address of a view at the same place of the history.
    pub(super) fn to_view(&self, history: &History, view: View) -> String {
        let first = history.page_lines().first().filter(|_| history.page.later.is_some());
        let place = first.map_or(String::new(), |line| format!("&at=msg-{}", line.event.seq));
        let shown = Self { view, zoom: Zoom::default(), ..self.clone() };
        format!("{}{}{place}", path(history), shown.query())
    }

    /// Returns the address of this part of the history, of which nothing leaves while the history grows.
    fn held(&self, history: &History) -> String {
        let first = history.page_lines().first().map(|line| line.event.seq.saturating_sub(1));
        let place = match first {
            Some(_) if !self.before.is_empty() => format!("&before={}", encoded(&self.before)),
            Some(behind) => format!("&since=msg-{behind}"),
            None => String::new(),
        };
        format!("{}{}{place}", path(history), self.query())
    }

    /// Shows the link that shows or hides the graph above the history.
    pub(super) fn graph_toggle(&self, history: &History) -> Markup {
        let to = Self { graph: !self.graph, ..self.clone() }.live(history);
        html! { a #with-graph.button.quiet role="button" href=(url(&to)) aria-pressed=(if self.graph { "true" } else { "false" }) { "Graph" } }
    }

    /// Shows the link that begins or ends following the newest part.
    pub(super) fn following(&self, history: &History) -> Markup {
        let to = if self.follow { self.held(history) } else { self.followed(history) };
        html! { a #follow.button.quiet role="button" href=(url(&to)) aria-pressed=(if self.follow { "true" } else { "false" }) { "Follow" } }
    }

    /// Returns the address from which the open page reloads itself.
    pub(super) fn live(&self, history: &History) -> String {
        if self.follow { self.followed(history) } else { self.held(history) }
    }

    fn followed(&self, history: &History) -> String {
        format!("{}{}&follow=true", path(history), self.query())
    }

    /// Returns the address of this page with another zoom.
    pub(super) fn to_zoom(&self, history: &History, times: u64) -> String {
        let places = [("before", &self.before), ("after", &self.after), ("at", &self.at), ("since", &self.since)];
        let place = places.iter().find(|(_, id)| !id.is_empty());
        let place = place.map_or(String::new(), |(name, id)| format!("&{name}={}", encoded(id)));
        let graph = if self.graph { "&graph=true" } else { "" };
        format!("{}?view=waterfall&zoom={times}{graph}{place}", path(history))
    }

    fn query(&self) -> String {
        let zoom = self.zoom.times();
        let zoom = if zoom == 1 { String::new() } else { format!("&zoom={zoom}") };
        let graph = if self.graph { "&graph=true" } else { "" };
        format!("?view={}{zoom}{graph}", self.view.word())
    }

    /// Shows which part of the history the page has, with the links to the others; nothing if it has all.
    pub(super) fn paging(&self, history: &History, label: &str) -> Markup {
        let page = &history.page;
        if page.earlier.is_none() && page.later.is_none() {
            return html! {};
        }
        let (path, query) = (url(&path(history)), self.query());
        let count = |n: usize| number(n as u64);
        html! {
            nav.paging aria-label=(label) {
                @if let Some(seq) = page.earlier { a.button rel="prev" href={ (path) (query) "&before=" (seq) } { "Earlier" } }
                @if let Some(seq) = page.later { a.button rel="next" href={ (path) (query) "&after=" (seq) } { "Later" } }
                @if page.later.is_some() { a href={ (path) (query) } { "Newest" } }
                span.faint {
                    @if page.within == 0 { "No " (self.view.units().to_lowercase()) " here, " (count(page.total)) " in all" }
                    @else { (self.view.units()) " " (count(page.before + 1)) "–" (count(page.before + page.within)) " of " (count(page.total)) }
                }
            }
        }
    }
}

fn path(history: &History) -> String {
    format!("/conversations/{}", encoded(&history.view.summary.reference))
}

/// Returns the address of a message in its conversation's tree.
pub(super) fn in_tree(reference: &str, id: &str) -> String {
    format!("/conversations/{}?at={id}#{id}", encoded(reference))
}

#[cfg(test)]
mod tests {
    use super::moved;

    #[test]
    fn an_old_address_leads_to_what_shows_the_same() {
        assert_eq!(moved("view=timeline&at=msg-9").as_deref(), Some("view=waterfall&at=msg-9"));
        assert_eq!(moved("view=graph").as_deref(), Some("view=tree&graph=true"));
        assert_eq!(moved("view=log&graph=true"), None);
    }
}
