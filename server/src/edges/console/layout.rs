//! What stands around each page, and the page's live part.

use axum::http::HeaderName;
use axum::response::{Html, IntoResponse, Response};
use lastword_proto::Time;
use lastword_proto::state::Running;
use maud::{DOCTYPE, Markup, html};

use super::frame::ErrorPage;
use super::live::Topic;
use super::parts::plural;
use super::session::Viewer;
use super::{assets, clock, parts, workspace};
use crate::calls::{Context, control, decisions};
use crate::clock::ClockStatus;

/// The pages that the navigation leads to, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// What waits for the human.
    Inbox,
    /// What is being talked about, and one of it.
    Conversations,
    /// Who is here, and one of them.
    Agents,
    /// Work that begins by the clock.
    Schedules,
    /// Limits that tripped.
    Incidents,
    /// The numbers in force, and how near things came to them.
    Limits,
    /// Figures of the whole.
    Overview,
}

/// Each place: its path, its name, and the key that leads there behind `g`.
pub(super) const PLACES: &[(Place, &str, &str, char)] = &[
    (Place::Inbox, "/", "Inbox", 'i'),
    (Place::Conversations, "/conversations", "Conversations", 'c'),
    (Place::Agents, "/agents", "Agents", 'a'),
    (Place::Schedules, "/schedules", "Schedules", 's'),
    (Place::Incidents, "/incidents", "Incidents", 'n'),
    (Place::Limits, "/limits", "Limits", 'l'),
    (Place::Overview, "/overview", "Overview", 'o'),
];

/// One page.
pub(super) struct Page<'a> {
    /// Its name, for the window.
    pub(super) title: &'a str,
    /// Which entry of the navigation is lit.
    pub(super) place: Place,
    /// What it shows: a change of any of these has it asked for anew.
    pub(super) topics: &'a [Topic],
    /// Its content, with a heading.
    pub(super) main: Markup,
}

/// What each page knows of the moment at which it was made.
pub(super) struct Moment {
    /// The broker's time.
    pub(super) now: Time,
    clock: ClockStatus,
    /// The last position that the page can show; hints go on behind it.
    seq: u64,
}

impl Moment {
    /// Now; to be taken before anything that the page shows is looked at.
    pub(super) fn of(ctx: &Context) -> Self {
        let clock = ctx.handle.clock();
        Self { now: clock.broker, clock, seq: ctx.handle.committed().borrow().0 }
    }
}

/// How a message to the human is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    /// It was done.
    Good,
    /// It was not.
    Bad,
}

/// Headers that put an answer where the messages to the human are, whatever asked for it.
pub(super) const INTO_FLASH: [(HeaderName, &str); 2] =
    [(HeaderName::from_static("hx-retarget"), "#flash"), (HeaderName::from_static("hx-reswap"), "innerHTML")];

/// A message to the human, at the top of the page.
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
    /// The page, or only what changes on it where the open page asks for that.
    pub(super) async fn page(&self, ctx: &Context, moment: &Moment, page: Page<'_>) -> Result<Response, ErrorPage> {
        let markup = if self.partial {
            html! { title { (title(page.title)) } (main(self, &page)) }
        } else {
            let waiting = decisions::waiting(ctx).await?;
            let running = control::running(ctx).await?;
            whole(&title(page.title), &self.around(moment, &page, (waiting, running)))
        };
        Ok(Html(markup.into_string()).into_response())
    }

    fn around(&self, moment: &Moment, page: &Page<'_>, (waiting, running): (usize, Running)) -> Markup {
        html! {
            a.skip href="#main" { "Skip to the content" }
            header.bar {
                a.brand href="/" { "Lastword" }
                (navigation(page.place, waiting))
                div.tools {
                    a.button.quiet href="/compose" data-compose-page aria-keyshortcuts="c" { "Message " kbd { "c" } }
                    button.quiet type="button" data-open="palette" aria-keyshortcuts="Control+K Meta+K" { "Find " kbd { "Ctrl K" } }
                    button.quiet type="button" data-open="help" aria-label="Keyboard help" title="Keyboard help" { "?" }
                    // The script shows it where the browser can.
                    button.quiet type="button" data-notify aria-pressed="false" hidden
                        title="Notify me of pending decisions while this page is hidden" { "Notify: off" }
                    button.quiet type="button" data-theme-toggle aria-label="Light or dark" title="Light or dark" { "◐" }
                    (self.form("sign-out", "/sign-out", &html! { button.quiet type="submit" { "Sign out" } }))
                    a.button.danger href="/workspace" role="button" data-open="workspace" { "Stop…" }
                }
            }
            (workspace::banner(running))
            (clock::banner(self, moment.clock))
            div #banner.banner role="status" hidden {}
            div #flash aria-live="polite" {}
            (announcement(waiting))
            // The hints: their events go up to the body, where the parts of the page listen.
            div #live hidden data-after=(moment.seq) data-worker=(assets::worker()) {}
            (main(self, page))
            (help())
            (palette())
            (stop())
        }
    }
}

/// How many decisions wait stands before it; the script puts it there.
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
                // What a reader opened stays open when the page is made anew, and htmx writes no style of its own.
                meta name="htmx-config" content=r#"{"morphIgnore":["data-htmx-powered","open"],"morphSkipChildren":"[data-said]","includeIndicatorCSS":false,"history":false}"#;
                title { (title) }
                link rel="icon" type="image/svg+xml" href=(assets::icon());
                link rel="stylesheet" href=(assets::style());
                script src=(assets::theme()) {}
                script src=(assets::script()) defer {}
            }
            body { (body) }
        }
    }
}

/// A page without a session.
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

fn main(viewer: &Viewer, page: &Page<'_>) -> Markup {
    let events: Vec<String> = page.topics.iter().map(Topic::to_string).collect();
    // Figures of everything change with everything, and nobody reads them so fast.
    let pace = if page.place == Place::Overview { " throttle:5s" } else { "" };
    let trigger = events.iter().map(|event| format!("{event} from:body{pace}")).collect::<Vec<_>>().join(", ");
    html! {
        main #main tabindex="-1" hx-get=(viewer.here) hx-trigger={ "lw-all from:body, lw-refresh from:body, " (trigger) }
            hx-target="this" hx-swap="outerMorph" {
            (page.main)
        }
    }
}

fn navigation(here: Place, waiting: usize) -> Markup {
    html! {
        nav aria-label="Pages" {
            @for &(place, path, name, key) in PLACES {
                a href=(path) data-go=(key) aria-current=[(place == here).then_some("page")] {
                    (name)
                    @if place == Place::Inbox { " " (count(waiting, false)) }
                }
            }
        }
    }
}

/// How many decisions wait, beside the inbox; in an answer to an open page it takes the place of the old one.
fn count(waiting: usize, again: bool) -> Markup {
    html! {
        span #waiting.count data-waiting=(waiting) hx-swap-oob=[again.then_some("outerMorph")] hidden[waiting == 0] {
            (waiting) span.unseen { " waiting" }
        }
    }
}

/// The same in words, which a screen reader says when they change. It asks anew on whatever page it stands.
fn announcement(waiting: usize) -> Markup {
    let words = match waiting {
        0 => "No pending decisions".to_owned(),
        n => format!("{} for you", plural(n as u64, "pending decision", "pending decisions")),
    };
    html! {
        p #announcement.unseen role="status" hx-get="/waiting" hx-trigger="lw-inbox from:body, lw-all from:body"
            hx-target="this" hx-swap="outerMorph" { (words) }
    }
}

/// Both, for an open page.
pub(super) fn waiting(waiting: usize) -> Markup {
    html! { (announcement(waiting)) (count(waiting, true)) }
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
        ("Ctrl K", "find a page, an agent or a conversation"),
        ("?", "this help"),
        ("Esc", "leave a field or close a dialog"),
    ];
    html! {
        dialog #help aria-labelledby="help-title" {
            h2 #help-title { "Keys" }
            dl.keys {
                @for (key, what) in keys { dt { kbd { (key) } } dd { (what) } }
                @for (_, _, name, key) in PLACES { dt { kbd { "g " (key) } } dd { "go to " (name) } }
            }
            form method="dialog" { button type="submit" { "Close" } }
        }
    }
}

fn palette() -> Markup {
    html! {
        dialog #palette aria-label="Find a page, an agent or a conversation" {
            input #palette-query type="search" name="q" autocomplete="off" aria-label="Find" aria-controls="palette-list"
                placeholder="A page, an agent, a REF" hx-get="/palette" hx-trigger="input changed delay:100ms, lw-palette"
                hx-target="#palette-list" hx-swap="innerHTML";
            div #palette-list {}
            p.faint { kbd { "↑" } " " kbd { "↓" } " to choose, " kbd { "Enter" } " to open, " kbd { "Esc" } " to leave" }
        }
    }
}

/// The window of the red button; what it asks is as fresh as its opening.
fn stop() -> Markup {
    html! {
        dialog #workspace aria-labelledby="workspace-title" {
            h2 #workspace-title { "The whole workspace" }
            div #workspace-question hx-get="/workspace/question" hx-trigger="lw-open" hx-target="this" hx-swap="innerMorph" {}
            form method="dialog" { button type="submit" autofocus { "Cancel" } }
        }
    }
}

/// A list with nothing in it, and what would bring something.
pub(super) fn empty(title: &str, words: &Markup) -> Markup {
    html! { div.empty { p.strong { (title) } p.faint { (words) } } }
}

/// A heading with what belongs beside it.
pub(super) fn heading(text: &str, beside: &Markup) -> Markup {
    html! { div.heading { h1 { (parts::foreign_line(text)) } (beside) } }
}
