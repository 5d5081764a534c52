//! All that `top` shows. Nothing here asks a server, a clock or a terminal.

use lastword_client::wire::{
    AgentView, ApprovalView, ConversationSummary, ConversationView, EscalationView, IncidentView,
};

use super::rows::{Item, inbox};
use crate::out::escape_line;

/// From so many columns on the selected row is told beside the list.
pub(super) const WIDE_COLUMNS: u16 = 140;

/// What is listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tab {
    /// What waits for a human.
    #[default]
    Inbox,
    /// Conversations, newest first.
    Conversations,
    /// Agents and humans.
    Agents,
}

impl Tab {
    /// All of them, in order.
    pub(super) const ALL: [Self; 3] = [Self::Inbox, Self::Conversations, Self::Agents];

    /// Its heading.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Inbox => "Inbox",
            Self::Conversations => "Conversations",
            Self::Agents => "Agents",
        }
    }
}

/// How the server is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ServerConnection {
    /// Not yet.
    #[default]
    Connecting,
    /// What happens is shown as it happens.
    Live,
    /// It is gone, for this reason; what is shown is from before.
    Lost(String),
}

/// What is done with the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The list.
    #[default]
    List,
    /// One row, in full.
    Detail,
    /// A line that is being typed.
    StyledLine(Purpose, String),
    /// A question, and what is done at yes.
    Confirm(String, Order),
    /// The keys.
    Help,
}

/// What a typed line is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Rows that have these words.
    Filter,
    /// Why the held call of this id is refused.
    Reject(String),
    /// The answer to the question of this id, and the answers that its asker named.
    Answer(String, Vec<String>),
}

/// What a human may do to something that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Nothing new is delivered.
    Pause,
    /// It goes on; what latched is lifted.
    Resume,
    /// What is open is cancelled.
    Stop,
}

/// What is paused, resumed or stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A conversation, by its REF.
    Conversation(String),
    /// An agent, by its name.
    Agent(String),
}

impl Subject {
    /// Its name.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Conversation(name) | Self::Agent(name) => name,
        }
    }
}

/// What the server is to be asked for, in a human's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Allow the call with this digest, once.
    Approve {
        /// The approval.
        id: String,
        /// The digest of the call that was shown.
        digest: String,
    },
    /// Refuse a held call.
    Reject {
        /// The approval.
        id: String,
        /// Why.
        reason: String,
    },
    /// Answer a question.
    Answer {
        /// The escalation.
        id: String,
        /// The answer.
        text: String,
    },
    /// Choose what the broker offers to a question that a limit caused.
    Lift {
        /// The escalation.
        id: String,
        /// The lift.
        lift: String,
    },
    /// Pause, resume or stop.
    Control(Verb, Subject),
    /// Fetch everything anew.
    Refresh,
    /// End the program.
    Quit,
}

/// What the server last said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lists {
    pub(crate) escalations: Vec<EscalationView>,
    pub(crate) approvals: Vec<ApprovalView>,
    pub(crate) incidents: Vec<IncidentView>,
    pub(crate) conversations: Vec<ConversationSummary>,
    /// There are older conversations than those listed.
    pub(crate) more_conversations: bool,
    pub(crate) agents: Vec<AgentView>,
}

/// How much of what there is a picture had room for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Rows of a page.
    pub(super) page: u16,
    /// The most lines that the detail can be scrolled by.
    pub(super) scroll_max: u16,
    /// The detail can be scrolled to its end, for it has no more lines than can be counted.
    pub(super) has_end: bool,
}

/// All that is shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) url: String,
    pub(crate) lists: Lists,
    pub(crate) link: ServerConnection,
    pub(crate) color: bool,
    /// The wall clock, in ms since the Unix epoch.
    pub(crate) now_ms: u64,
    /// The conversation that is told in full, as last fetched.
    pub(crate) conversation: Option<ConversationView>,
    /// What came of the last order.
    pub(crate) told: Option<ActionResult>,
    pub(super) tab: Tab,
    pub(super) mode: Mode,
    pub(super) filter: String,
    /// The selected row of each tab, by its key, so that it stays selected when the list changes.
    pub(super) selected: [Option<String>; 3],
    /// Lines of the detail above the screen.
    pub(super) scroll: u16,
    pub(super) seen: Seen,
    /// The digest of the held call that was shown to its end, since its approval was asked about.
    pub(super) read: Option<String>,
    pub(super) columns: u16,
}

/// What came of an order, or why a key did nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ActionResult {
    /// It was done.
    Done(String),
    /// It was not.
    Failed(String),
}

impl Model {
    /// An empty one, for the server at this address.
    pub(crate) fn new(url: &str, color: bool) -> Self {
        Self { url: url.to_owned(), color, ..Self::default() }
    }

    /// The rows of the tab that pass the filter.
    pub(super) fn rows(&self) -> Vec<Item<'_>> {
        let lists = &self.lists;
        let all: Vec<Item<'_>> = match self.tab {
            Tab::Inbox => inbox(lists),
            Tab::Conversations => lists.conversations.iter().map(Item::Conversation).collect(),
            Tab::Agents => lists.agents.iter().map(Item::Agent).collect(),
        };
        let words = self.filter.to_lowercase();
        let wanted = |item: &Item<'_>| words.split_whitespace().all(|word| item.text().contains(word));
        all.into_iter().filter(wanted).collect()
    }

    /// Where the selected row is among `rows`; the first where that one is gone.
    pub(super) fn index(&self, rows: &[Item<'_>]) -> usize {
        let key = self.selected[self.tab as usize].as_deref();
        rows.iter().position(|row| key == Some(row.key())).unwrap_or(0)
    }

    /// The selected row.
    pub(super) fn current(&self) -> Option<Item<'_>> {
        let rows = self.rows();
        rows.get(self.index(&rows)).copied()
    }

    /// Selects the row that many rows further down.
    pub(super) fn step(&mut self, by: isize) {
        let rows = self.rows();
        let at = self.index(&rows).saturating_add_signed(by).min(rows.len().saturating_sub(1));
        let key = rows.get(at).map(|row| row.key().to_owned());
        self.selected[self.tab as usize] = key;
        self.scroll = 0;
    }

    /// Shows another tab.
    pub(super) fn turn_to(&mut self, tab: Tab) {
        self.tab = tab;
        self.mode = Mode::List;
        self.scroll = 0;
    }

    /// How many wait for a human.
    pub(super) fn waiting(&self) -> usize {
        inbox(&self.lists).len()
    }

    /// Whether there is room for the list and the selected row beside it.
    pub(super) const fn is_wide(&self) -> bool {
        self.columns >= WIDE_COLUMNS
    }

    /// A picture showed so much of it.
    pub(crate) fn seen(&mut self, seen: Seen) {
        self.seen = seen;
        self.scroll = self.scroll.min(seen.scroll_max);
        if let Mode::Confirm(_, Order::Approve { digest, .. }) = &self.mode
            && self.shows(digest)
            && seen.has_end
            && self.scroll == seen.scroll_max
        {
            self.read = Some(digest.clone());
        }
    }

    /// Whether the selected row is the held call with this digest.
    pub(super) fn shows(&self, digest: &str) -> bool {
        matches!(self.current(), Some(Item::Approval(view)) if view.digest == digest)
    }

    /// Whether an order can be given: all of a call is shown before it is approved.
    pub(super) fn is_ready(&self, order: &Order) -> bool {
        match order {
            Order::Approve { digest, .. } => self.read.as_ref() == Some(digest) && self.shows(digest),
            Order::Reject { .. }
            | Order::Answer { .. }
            | Order::Lift { .. }
            | Order::Control(..)
            | Order::Refresh
            | Order::Quit => true,
        }
    }

    /// The terminal has so many columns now. Lines break elsewhere then, so what is being read begins anew.
    pub(crate) fn resize(&mut self, columns: u16) {
        if self.columns != columns && matches!(self.mode, Mode::Confirm(..)) {
            self.scroll = 0;
        }
        self.columns = columns;
    }

    /// The conversation that is told in full, and so has to be fetched.
    pub(crate) fn wanted(&self) -> Option<String> {
        match self.current() {
            Some(Item::Conversation(summary)) => Some(summary.reference.clone()),
            Some(Item::Approval(_) | Item::Escalation(_) | Item::Incident(_) | Item::Agent(_)) | None => None,
        }
    }

    /// An order was carried out.
    pub(crate) fn done(&mut self, text: &str) {
        self.told = Some(ActionResult::Done(escape_line(text)));
    }

    /// An order was not carried out.
    pub(crate) fn failed(&mut self, text: &str) {
        self.told = Some(ActionResult::Failed(escape_line(text)));
    }
}
