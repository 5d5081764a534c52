//! All state that `top` shows. Nothing here accesses a server, a clock or a terminal.

use lastword_client::wire::{
    AgentView, ApprovalView, ConversationSummary, ConversationView, EscalationView, IncidentView,
};

use super::rows::{Item, conversations, inbox};
use crate::out::escape_line;

/// Columns from which the selected row is shown beside the list.
pub(super) const WIDE_COLUMNS: u16 = 140;
/// Time for which decision keys are ignored after the selection moved without a key, or its row changed, in ms.
pub(super) const SETTLE_MS: u64 = 1_000;

/// The tabs, each with a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tab {
    /// Everything that waits for a human.
    #[default]
    Inbox,
    /// Conversations, newest first.
    Conversations,
    /// Agents and humans.
    Agents,
}

impl Tab {
    /// All tabs, in order.
    pub(super) const ALL: [Self; 3] = [Self::Inbox, Self::Conversations, Self::Agents];

    /// Returns the tab's title on the screen.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Inbox => "Inbox",
            Self::Conversations => "Conversations",
            Self::Agents => "Agents",
        }
    }
}

/// The state of the connection to the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ServerConnection {
    /// Not connected yet.
    #[default]
    Connecting,
    /// Connected: changes are shown as they happen.
    Live,
    /// The connection was lost, for this reason; the lists are from before.
    Lost(String),
}

/// What keys currently act on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The list of the current tab.
    #[default]
    List,
    /// The selected row, in full.
    Detail,
    /// A line that the user types.
    StyledLine(Purpose, String),
    /// A question, and the order to carry out at yes.
    Confirm(String, Order),
    /// The list of keys.
    Help,
}

/// The purpose of a typed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The filter: only rows with these words are shown.
    Filter,
    /// The reason for the rejection of the approval with this id.
    Reject(String),
    /// The answer to the escalation with this id, and its options.
    Answer(String, Vec<String>),
}

/// A control that a human may apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Deliver nothing new.
    Pause,
    /// Continue, and lift holds.
    Resume,
    /// Cancel open work.
    Stop,
}

/// The target of a control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A conversation, by its REF.
    Conversation(String),
    /// An agent, by its name.
    Agent(String),
}

impl Subject {
    /// Returns the REF or name.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Conversation(name) | Self::Agent(name) => name,
        }
    }
}

/// Something to ask of the server in a human's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Approve the call with this digest, once.
    Approve {
        /// The approval's id.
        id: String,
        /// The digest of the call that was shown.
        digest: String,
    },
    /// Reject a held call.
    Reject {
        /// The approval's id.
        id: String,
        /// The comment for the agent.
        reason: String,
    },
    /// Answer an escalation.
    Answer {
        /// The escalation's id.
        id: String,
        /// The answer's text.
        text: String,
    },
    /// Choose a lift that the broker offers for a question caused by a limit.
    Lift {
        /// The escalation's id.
        id: String,
        /// The lift's id.
        lift: String,
        /// What the lift gives, as it was shown.
        text: String,
    },
    /// Pause, resume or stop the subject.
    Control(Verb, Subject),
    /// Fetch everything again.
    Refresh,
    /// End the program.
    Quit,
}

/// The lists that the server last sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lists {
    pub(crate) escalations: Vec<EscalationView>,
    pub(crate) approvals: Vec<ApprovalView>,
    pub(crate) incidents: Vec<IncidentView>,
    pub(crate) conversations: Vec<ConversationSummary>,
    /// Whether there are older conversations than those listed.
    pub(crate) more_conversations: bool,
    pub(crate) agents: Vec<AgentView>,
}

/// How much of the content the last picture had room for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Rows of a page.
    pub(super) page: u16,
    /// The most lines that the detail can be scrolled by.
    pub(super) scroll_max: u16,
    /// Whether the detail can be scrolled to its end; false if it has more lines than can be counted.
    pub(super) has_end: bool,
    /// Whether the typed line or the question was shown whole.
    pub(super) has_prompt: bool,
}

/// All state of the screen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) url: String,
    pub(crate) lists: Lists,
    pub(crate) link: ServerConnection,
    pub(crate) color: bool,
    /// The system clock, in ms since the Unix epoch.
    pub(crate) now_ms: u64,
    /// The conversation shown in full, as last fetched.
    pub(crate) conversation: Option<ConversationView>,
    /// The result of the last order.
    pub(crate) told: Option<ActionResult>,
    pub(super) tab: Tab,
    pub(super) mode: Mode,
    pub(super) filter: String,
    /// Whether conversations below another one are listed, too.
    pub(super) unfolded: bool,
    /// The key of each tab's selected row, so that it stays selected when the list changes.
    pub(super) selected: [Option<String>; 3],
    /// Lines of the detail above the screen.
    pub(super) scroll: u16,
    pub(super) seen: Seen,
    /// The digest of the held call that was shown to its end since its approval was asked about.
    pub(super) read: Option<String>,
    /// What the last picture showed as selected, and when it was selected by itself; 0 if a key did.
    pub(super) settled: (Option<String>, u64),
    pub(super) columns: u16,
}

/// The result of an order, or why a key did nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ActionResult {
    /// The order was carried out.
    Done(String),
    /// The order failed, or the key did nothing.
    Failed(String),
}

impl Model {
    /// Creates an empty model for the server at this address.
    pub(crate) fn new(url: &str, color: bool) -> Self {
        Self { url: url.to_owned(), color, ..Self::default() }
    }

    /// Returns the rows of the current tab that pass the filter.
    pub(super) fn rows(&self) -> Vec<Item<'_>> {
        let lists = &self.lists;
        let all: Vec<Item<'_>> = match self.tab {
            Tab::Inbox => inbox(lists),
            Tab::Conversations => conversations(lists, self.unfolded || !self.filter.is_empty()),
            Tab::Agents => lists.agents.iter().map(Item::Agent).collect(),
        };
        let words = self.filter.to_lowercase();
        let wanted = |item: &Item<'_>| words.split_whitespace().all(|word| item.text().contains(word));
        all.into_iter().filter(wanted).collect()
    }

    /// Returns the index of the selected row in `rows`; 0 if that row is gone.
    pub(super) fn index(&self, rows: &[Item<'_>]) -> usize {
        let key = self.selected[self.tab as usize].as_deref();
        rows.iter().position(|row| key == Some(row.key())).unwrap_or(0)
    }

    /// Returns the selected row.
    pub(super) fn current(&self) -> Option<Item<'_>> {
        let rows = self.rows();
        rows.get(self.index(&rows)).copied()
    }

    /// Moves the selection by `by` rows.
    pub(super) fn step(&mut self, by: isize) {
        let rows = self.rows();
        let at = self.index(&rows).saturating_add_signed(by).min(rows.len().saturating_sub(1));
        let key = rows.get(at).map(|row| row.key().to_owned());
        self.selected[self.tab as usize] = key;
        self.scroll = 0;
    }

    /// Switches to another tab.
    pub(super) fn turn_to(&mut self, tab: Tab) {
        self.tab = tab;
        self.mode = Mode::List;
        self.scroll = 0;
    }

    /// Returns the number of rows that wait for a human.
    pub(super) fn waiting(&self) -> usize {
        inbox(&self.lists).len()
    }

    /// Returns whether the list and the selected row fit beside each other.
    pub(super) const fn is_wide(&self) -> bool {
        self.columns >= WIDE_COLUMNS
    }

    /// Notes how much the last picture showed.
    pub(crate) fn seen(&mut self, seen: Seen) {
        self.seen = seen;
        if self.identity() != self.settled.0 {
            self.settle(self.now_ms);
        }
        self.scroll = self.scroll.min(seen.scroll_max);
        if let Mode::Confirm(_, Order::Approve { digest, .. }) = &self.mode
            && self.shows(digest)
            && seen.has_end
            && self.scroll == seen.scroll_max
        {
            self.read = Some(digest.clone());
        }
    }

    /// Returns what a decision about the selected row would be about.
    pub(super) fn identity(&self) -> Option<String> {
        let current = self.current()?;
        let more = match current {
            Item::Approval(view) => view.digest.clone(),
            Item::Escalation(view) => view.offered().map(|lift| format!("{} {}\n", lift.id, lift.text)).collect(),
            Item::Incident(_) | Item::Conversation(..) | Item::Agent(_) => String::new(),
        };
        Some(format!("{} {more}", current.key()))
    }

    /// Keeps the current row selected when others come above it; the first lists come one after another.
    pub(super) fn settle(&mut self, since: u64) {
        if self.link != ServerConnection::Connecting {
            self.step(0);
        }
        self.settled = (self.identity(), since);
    }

    /// Returns whether the human had time to see what is selected.
    pub(super) fn is_settled(&self) -> bool {
        let (shown, since) = &self.settled;
        *shown == self.identity() && self.now_ms.abs_diff(*since) >= SETTLE_MS
    }

    /// Returns whether the selected row is the held call with this digest.
    pub(super) fn shows(&self, digest: &str) -> bool {
        matches!(self.current(), Some(Item::Approval(view)) if view.digest == digest)
    }

    /// Returns whether an order may be given: what it decides must have been shown in full, and be selected still.
    pub(super) fn is_ready(&self, order: &Order) -> bool {
        match order {
            Order::Approve { digest, .. } => self.read.as_ref() == Some(digest) && self.shows(digest),
            Order::Lift { id, lift, text } => match self.current() {
                Some(Item::Escalation(view)) if view.id == *id => {
                    view.offered().any(|offered| offered.id == *lift && offered.text == *text)
                }
                Some(_) | None => false,
            },
            Order::Reject { .. } | Order::Answer { .. } | Order::Control(..) | Order::Refresh | Order::Quit => true,
        }
    }

    /// Notes the terminal's width. Lines wrap elsewhere then, so the call has to be shown to its end again.
    pub(crate) fn resize(&mut self, columns: u16) {
        if self.columns != columns && matches!(self.mode, Mode::Confirm(..)) {
            self.scroll = 0;
        }
        self.columns = columns;
    }

    /// Returns the REF of the conversation shown in full, which has to be fetched.
    pub(crate) fn wanted(&self) -> Option<String> {
        match self.current() {
            Some(Item::Conversation(summary, ..)) => Some(summary.reference.clone()),
            Some(Item::Approval(_) | Item::Escalation(_) | Item::Incident(_) | Item::Agent(_)) | None => None,
        }
    }

    /// Notes that an order was carried out.
    pub(crate) fn done(&mut self, text: &str) {
        self.told = Some(ActionResult::Done(escape_line(text)));
    }

    /// Notes that an order failed.
    pub(crate) fn failed(&mut self, text: &str) {
        self.told = Some(ActionResult::Failed(escape_line(text)));
    }
}
