//! The layout of each page, and its live parts.

use axum::http::HeaderName;
use axum::http::header::SET_COOKIE;
use axum::response::{Html, IntoResponse, Response};
use lastword_broker::clock::ClockStatus;
use lastword_facts::Time;
use lastword_facts::fact::Role;
use lastword_facts::status::Running;
use lastword_server::Context;
use lastword_server::calls::control;
use maud::{DOCTYPE, Markup, html};

use super::frame::ErrorPage;
use super::live::Topic;
use super::parts::{badge, encoded, foreign_line, plural, url};
use super::session::Viewer;
use super::{assets, clock, parts, terms, workspace};
use crate::reads::decisions;

/// A place of the console: one of the five rooms, or a page of the menu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// What waits, runs, went wrong and costs.
    Now,
    /// The pending decisions, in full.
    Inbox,
    /// The list of conversations, and the page of one.
    Work,
    /// The list of agents and humans, and the page of one.
    Agents,
    /// The spending.
    Spend,
    /// The recurring requests.
    Schedules,
    /// The files that tasks hold.
    Claims,
    /// The limits in force and their peaks.
    Limits,
    /// The agents and humans, and their tokens.
    Team,
    /// The devices of the human.
    Devices,
}

/// A place with its path, its name, and the key that leads there after `g`.
type Entry = (Place, &'static str, &'static str, char);

/// The rooms, in the order of the navigation.
const ROOMS: [Entry; 5] = [
    (Place::Now, "/", "Now", 'h'),
    (Place::Inbox, "/inbox", "Inbox", 'i'),
    (Place::Work, "/conversations", "Work", 'c'),
    (Place::Agents, "/agents", "Agents", 'a'),
    (Place::Spend, "/spend", "Spend", 'm'),
];

/// The pages of the menu.
const MENU: [Entry; 5] = [
    (Place::Team, "/team", "Team", 't'),
    (Place::Schedules, "/schedules", "Schedules", 's'),
    (Place::Claims, "/claims", "Claims", 'f'),
    (Place::Limits, "/limits", "Limits", 'l'),
    (Place::Devices, "/devices", "Devices", 'd'),
];

/// Returns the rooms, and then the pages of the menu.
pub(super) fn places() -> impl Iterator<Item = &'static Entry> {
    ROOMS.iter().chain(&MENU)
}

/// The parts of a page that differ between pages.
pub(super) struct Page<'a> {
    /// The title of the window.
    pub(super) title: &'a str,
    /// The marked entry of the navigation.
    pub(super) place: Place,
    /// The topics that it shows. A hint for any of them makes the page reload, at most once a second.
    pub(super) topics: &'a [Topic],
    /// The content, with its heading.
    pub(super) main: Markup,
}

/// The time and position at which a page is built.
pub(super) struct Moment {
    /// The broker's time.
    pub(super) now: Time,
    clock: ClockStatus,
    /// The last position that the page can show; its hints begin after it.
    seq: u64,
}

impl Moment {
    /// Takes the moment. Call it before reading anything for the page, so that no later change is missed.
    pub(super) fn of(ctx: &Context) -> Self {
        let clock = ctx.handle.clock();
        Self { now: clock.broker, clock, seq: ctx.handle.committed().borrow().0 }
    }
}

/// The tone of a message to the human.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    /// The call was done.
    Good,
    /// The call was refused or failed.
    Bad,
}

/// Headers that put a response into the page's message area, whatever element requested it.
pub(super) const INTO_FLASH: [(HeaderName, &str); 2] =
    [(HeaderName::from_static("hx-retarget"), "#flash"), (HeaderName::from_static("hx-reswap"), "innerHTML")];

/// Shows a message at the top of the page.
pub(super) fn flash(tone: Tone, words: &Markup) -> Markup {
    let (class, role) = match tone {
        Tone::Good => ("flash good", "status"),
        Tone::Bad => ("flash bad", "alert"),
    };
    html! {
        div class=(class) role=(role) {
            p { (words) }
            button.quiet type="button" data-dismiss aria-label="Dismiss this message" { "×" }
        }
    }
}

impl Viewer {
    /// Returns the page, or only its changing part if the open page requests that.
    pub(super) async fn page(&self, ctx: &Context, moment: &Moment, page: Page<'_>) -> Result<Response, ErrorPage> {
        if self.partial {
            let markup = html! { title { (title(page.title)) } (main(self, &page)) };
            return Ok(Html(markup.into_string()).into_response());
        }
        let waiting = decisions::waiting(ctx, self.role).await?;
        let running = control::running(ctx).await?;
        let markup = whole(&title(page.title), &self.around(moment, &page, waiting, running));
        let said = self.was_said().map(|cookie| [(SET_COOKIE, cookie)]);
        Ok((said, Html(markup.into_string())).into_response())
    }

    /// Shows who is signed in and where, with the pages that are no room and what is set in this browser.
    fn menu(&self, here: Place) -> Markup {
        html! {
            div #menu popover {
                p { a.strong href={ (url("/agents/")) (encoded(&self.name)) } { (foreign_line(&self.name)) } " " (badge(self.role.word())) }
                p.faint { "in the workspace at " (foreign_line(&self.workspace)) }
                nav aria-label="More pages" { (entries(self, &MENU, here, 0)) }
                button.quiet type="button" data-open="help" { "Keys and terms" }
                // Hidden until the script finds that the browser supports notifications.
                button.quiet type="button" data-notify aria-pressed="false" hidden
                    title="Notify me of pending decisions while this page is hidden" { "Notify: off" }
                button.quiet type="button" data-theme-toggle { "Light or dark" }
                (self.form("sign-out", "/sign-out", &html! { button.quiet type="submit" { "Sign out" } }))
            }
        }
    }

    fn around(&self, moment: &Moment, page: &Page<'_>, waiting: usize, running: Running) -> Markup {
        html! {
            a.skip href="#main" { "Skip to the content" }
            div #top {
            header.bar {
                a.brand href=(url("/")) { "Lastword" }
                (navigation(self, page.place, waiting))
                div.tools {
                    @if self.role <= Role::Operator { a.button.quiet href=(url("/compose")) data-compose-page aria-keyshortcuts="c" title="Ask an agent" { "Ask " kbd { "c" } } }
                    button.quiet type="button" data-open="palette" aria-keyshortcuts="Control+K Meta+K" { "Find " kbd { "Ctrl K" } }
                    button.quiet type="button" popovertarget="menu" title={ "Signed in as " (self.name) ", with the role " (self.role) ", in the workspace at " (self.workspace) } { (foreign_line(&self.name)) " ▾" }
                    (self.menu(page.place))
                    @if self.role <= Role::Operator { a.button.danger href=(url("/workspace")) role="button" data-open="workspace" { "Stop…" } }
                }
            }
            // Stacked, so that none of them covers another.
            div #notices {
                (workspace::banner(self, running, false))
                (clock::banner(self, moment.clock))
                div #banner.banner role="status" hidden {}
                div #flash aria-live="polite" { @if let Some((tone, words)) = &self.said { (flash(*tone, &foreign_line(words))) } }
            }
            }
            (announcement(self, waiting))
            // The hints' events bubble up to the body, where the parts of the page listen.
            div #live hidden data-after=(moment.seq) data-live=(url("/live")) data-worker=(assets::worker()) {}
            (main(self, page))
            (help())
            (palette())
            (question("workspace", "Pause or stop everything", "/workspace/question"))
            (question("resume", "Resume the workspace", "/workspace/question?resume=true"))
        }
    }
}

/// Returns the window's title. The script puts the number of pending decisions before it.
fn title(name: &str) -> String {
    format!("{name} · Lastword")
}

fn whole(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="description" content="The console of Lastword, the message broker for teams of AI agents.";
                // Elements that the reader opened stay open when the page is replaced, and htmx adds no styles of its
                // own.
                meta name="htmx-config" content=r#"{"morphIgnore":["data-htmx-powered","open"],"morphSkipChildren":"[data-said]","includeIndicatorCSS":false,"history":false}"#;
                title { (title) }
                meta name="theme-color" media="(prefers-color-scheme: light)" content="#ffffff";
                meta name="theme-color" media="(prefers-color-scheme: dark)" content="#1b2124";
                link rel="icon" type="image/svg+xml" href=(assets::icon());
                link rel="apple-touch-icon" href=(assets::square_icon());
                link rel="manifest" href=(assets::manifest());
                link rel="stylesheet" href=(assets::style());
                script src=(assets::theme()) {}
                script src=(assets::script()) defer {}
            }
            body { (body) }
        }
    }
}

/// Returns a page without a session.
pub(super) fn bare(name: &str, main: &Markup) -> Markup {
    let body = html! {
        main #main.bare tabindex="-1" {
            p.brand { "Lastword" }
            div #flash aria-live="polite" {}
            (main)
        }
    };
    whole(&title(name), &body)
}

/// Returns a page without a session that has much to read.
pub(super) fn shared(name: &str, main: &Markup) -> Markup {
    whole(&title(name), &html! { main #main.shared tabindex="-1" { p.brand { "Lastword" } (main) } })
}

fn main(viewer: &Viewer, page: &Page<'_>) -> Markup {
    let topics = page.topics.iter().map(Topic::to_string).collect::<Vec<_>>().join(" ");
    html! {
        main #main tabindex="-1" hx-get=(url(&viewer.here)) hx-trigger="lw-changed" data-topics=(topics)
            hx-target="this" hx-swap="outerMorph" {
            (page.main)
        }
    }
}

fn navigation(viewer: &Viewer, here: Place, waiting: usize) -> Markup {
    html! { nav #pages aria-label="Rooms" { (entries(viewer, &ROOMS, here, waiting)) } }
}

fn entries(viewer: &Viewer, all: &[Entry], here: Place, waiting: usize) -> Markup {
    html! {
        @for &(place, path, name, key) in all {
            a href=(url(path)) data-go=(key) aria-current=[(place == here).then_some("page")] {
                (name)
                @if place == Place::Inbox { " " (count(viewer, waiting, false)) }
            }
        }
    }
}

/// Shows the number of pending decisions beside the inbox; in a reply to an open page it replaces the old one.
fn count(viewer: &Viewer, waiting: usize, again: bool) -> Markup {
    html! {
        span #waiting.count data-waiting=(waiting) data-words=(words(viewer, waiting)) hx-swap-oob=[again.then_some("outerMorph")] hidden[waiting == 0] {
            (waiting) span.unseen { " waiting" }
        }
    }
}

/// Returns the number in words, and for whom they wait.
fn words(viewer: &Viewer, waiting: usize) -> String {
    let whom = if viewer.role <= Role::Approver { "you" } else { "an approver" };
    match waiting {
        0 => "No pending decisions".to_owned(),
        n => format!("{} for {whom}", plural(n as u64, "pending decision", "pending decisions")),
    }
}

/// Shows the number in words, which screen readers announce when they change. It reloads on every page.
fn announcement(viewer: &Viewer, waiting: usize) -> Markup {
    html! {
        p #announcement.unseen role="status" hx-get=(url("/waiting")) hx-trigger="lw-changed" data-topics="lw-inbox"
            hx-target="this" hx-swap="outerMorph" { (words(viewer, waiting)) }
    }
}

/// Returns the words and the number, for an open page.
pub(super) fn waiting(viewer: &Viewer, waiting: usize) -> Markup {
    html! { (announcement(viewer, waiting)) (count(viewer, waiting, true)) }
}

fn help() -> Markup {
    let keys: &[(&str, &str)] = &[
        ("j k", "next and previous entry"),
        ("Enter", "open the entry, or press the focused control"),
        (
            "a",
            "unfold the unseen part of a call, then focus Approve (Enter approves); for a question, focus the answer",
        ),
        ("Ctrl Enter", "submit the form being edited"),
        ("r", "focus the rejection reason; Enter submits it"),
        ("l", "focus the lift offered for a limit; Enter chooses it"),
        ("c", "write a message to an agent"),
        ("/", "search"),
        (
            "Ctrl K",
            "find a page, an agent, a conversation, an id, or how words begin: in messages, posts, questions, held calls and reasons",
        ),
        ("?", "this help"),
        ("Esc", "leave a field or close a dialog"),
    ];
    html! {
        dialog #help aria-labelledby="help-title" {
            header {
                h2 #help-title tabindex="-1" autofocus { "Keys and terms" }
                form method="dialog" { button type="submit" { "Close" } }
            }
            h3 { "Terms" }
            (terms::all())
            h3 { "Keys" }
            dl.keys {
                @for (key, what) in keys { dt { kbd { (key) } } dd { (what) } }
                @for (_, _, name, key) in places() { dt { kbd { "g " (key) } } dd { "go to " (name) } }
            }
        }
    }
}

fn palette() -> Markup {
    html! {
        dialog #palette aria-label="Find a page, an agent, a conversation or a message" {
            input #palette-query type="search" name="q" autocomplete="off" aria-label="Find" aria-controls="palette-list"
                placeholder="A page, an agent, a REF, an id, or words of a message, post, question, call or reason" hx-get=(url("/palette")) hx-trigger="input changed delay:100ms, lw-palette"
                hx-target="#palette-list" hx-swap="innerHTML";
            div #palette-list {}
            form method="dialog" {
                p.faint { kbd { "↑" } " " kbd { "↓" } " to choose, " kbd { "Enter" } " to open, " kbd { "Esc" } " to leave" }
                button.quiet type="submit" { "Close" }
            }
        }
    }
}

/// Shows a dialog about the whole workspace; its content loads when it opens.
fn question(id: &str, title: &str, from: &str) -> Markup {
    html! {
        dialog.of-workspace id=(id) aria-labelledby={ (id) "-title" } {
            h2 id={ (id) "-title" } { (title) }
            div data-question hx-get=(url(from)) hx-trigger="lw-open" hx-target="this" hx-swap="innerMorph" {}
            form method="dialog" { button type="submit" autofocus { "Cancel" } }
        }
    }
}

/// Shows an empty list, and what would fill it.
pub(super) fn empty(title: &str, words: &Markup) -> Markup {
    html! { div.empty { p.strong { (title) } p.faint { (words) } } }
}

/// Shows a heading with the content beside it.
pub(super) fn heading(text: &str, beside: &Markup) -> Markup {
    html! { div.heading { h1 { (parts::foreign_line(text)) } (beside) } }
}
