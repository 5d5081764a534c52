//! The texts of notifications.

use std::fmt::Write as _;

use lastword_facts::Time;
use lastword_facts::fact::{EscalationCause, Role};
use lastword_facts::visible::escape;
use lastword_wire::{ApprovalView, EscalationView, IncidentView, Notice, NoticeKind, rfc3339};
use serde::Serialize;
use serde_json::json;

use super::channel::{Channel, Severity};

/// The most characters of an agent's text in a notification.
const WORDS_MAX: usize = 200;
/// The most characters of arguments in a notification, if it contains them.
const ARGUMENTS_MAX: usize = 300;
/// The most items that are listed one by one; of the rest only their number is sent.
pub(super) const ITEMS_MAX: usize = 10;
/// The most bytes of a notification in JSON.
const BYTES_MAX: usize = 64 * 1024;

/// The reason for a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// Topics are pending.
    Waiting,
    /// A test of the channel.
    Test,
}

impl Kind {
    /// Returns the type of the CloudEvent.
    pub(super) const fn event_type(self) -> &'static str {
        match self {
            Self::Waiting => "lastword.notification.waiting",
            Self::Test => "lastword.notification.test",
        }
    }
}

/// The kind of a pending item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum What {
    /// A question to a human.
    Question,
    /// A held call.
    Approval,
    /// A limit that tripped.
    Incident,
    /// A stop of the workspace.
    Stop,
    /// Information that needs no decision.
    Note,
}

/// One pending item of a notification.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Item {
    pub(super) what: What,
    pub(super) id: String,
    pub(super) severity: Severity,
    /// Whether this channel was notified of it before.
    pub(super) again: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    /// A one-line summary of the item.
    summary: String,
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    reference: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<String>,
    /// A question's offered answers, each a line of at most [`WORDS_MAX`] characters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    options: Vec<String>,
    /// The command that decides or shows it.
    decide: String,
    /// The console's page of it, where it is decided and stays readable.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
}

/// The number of items of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    pub(super) questions: usize,
    pub(super) approvals: usize,
    pub(super) incidents: usize,
    pub(super) stops: usize,
    pub(super) notes: usize,
}

/// A notification in the form in which it is sent.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Notification {
    pub(super) id: String,
    pub(super) kind: Kind,
    pub(super) channel: String,
    pub(super) severity: Severity,
    pub(super) at: String,
    pub(super) title: String,
    pub(super) text: String,
    pub(super) counts: Counts,
    pub(super) items: Vec<Item>,
    /// The number of items beyond those listed.
    pub(super) more: usize,
    /// The number of items that were delayed because the hour's notifications were used up.
    pub(super) folded: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) console: Option<String>,
}

impl Item {
    pub(super) fn question(view: &EscalationView) -> Self {
        let line = first_line(&view.message);
        let agent = escape(&view.agent);
        let summary = match view.cause {
            EscalationCause::Asked => format!("{agent} asks: {line}"),
            EscalationCause::TimedOut => line,
            EscalationCause::NoProgress => format!("{agent} is held: {line}"),
        };
        let mut decide = format!("lastword answer {} TEXT", view.id);
        if let Some(lift) = view.offered().next() {
            decide.push_str(&format!(
                ", or for the limit: lastword answer {} --lift {} ({})",
                view.id,
                lift.id,
                escape(&lift.text)
            ));
        }
        Self {
            agent: Some(agent),
            reference: Some(view.reference.clone()).filter(|reference| !reference.is_empty()),
            since: Some(view.created_at.clone()),
            options: view.options.iter().map(|option| first_line(option)).collect(),
            ..Self::bare(What::Question, view.id.clone(), summary, decide)
        }
    }

    pub(super) fn call(view: &ApprovalView, include_arguments: bool) -> Self {
        let (agent, tool) = (escape(&view.agent), first_line(&view.tool));
        let decide = format!("lastword approve {}", view.id);
        let arguments = || cut(&escape(&view.arguments.to_string()), ARGUMENTS_MAX);
        Self {
            reference: view.reference.clone(),
            since: Some(view.created_at.clone()),
            until: Some(view.expires_at.clone()),
            arguments: include_arguments.then(arguments),
            ..Self::bare(What::Approval, view.id.clone(), format!("{agent} asks to call {tool}"), decide)
        }
        .by(agent, tool)
    }

    fn by(self, agent: String, tool: String) -> Self {
        Self { agent: Some(agent), tool: Some(tool), ..self }
    }

    pub(super) fn incident(view: &IncidentView) -> Self {
        let on = escape(&view.on);
        let summary = match view.scope.as_str() {
            "agent" => format!("{on} met the limit {} repeatedly; nothing is held", view.code),
            scope => format!("the limit {} tripped and holds {scope} {on}", view.code),
        };
        let decide =
            view.reference.as_ref().map_or_else(|| "lastword incidents".into(), |r| format!("lastword resume {r}"));
        Self {
            reference: view.reference.clone(),
            since: Some(view.at.clone()),
            ..Self::bare(What::Incident, view.id.clone(), summary, decide)
        }
    }

    /// Builds an item for information, in the inbox's words, with the command for it.
    pub(super) fn note(id: String, notice: &Notice, decide: String) -> Self {
        let line = first_line(&notice.body);
        let summary = match notice.kind {
            NoticeKind::Alert => format!("{} raises an ALERT: {line}", escape(&notice.from)),
            NoticeKind::Status | NoticeKind::Info | NoticeKind::Broadcast | NoticeKind::Late | NoticeKind::Warning => {
                line
            }
        };
        Self {
            reference: notice.reference.clone(),
            since: Some(notice.created_at.clone()),
            ..Self::bare(What::Note, id, summary, decide)
        }
    }

    pub(super) fn stop() -> Self {
        let summary = "the workspace is stopped: nothing is admitted".to_owned();
        Self::bare(What::Stop, "stop".into(), summary, "lastword resume --workspace".into())
    }

    /// Adds its current severity on a channel, and whether it is a reminder.
    pub(super) fn standing(self, severity: Severity, again: bool) -> Self {
        Self { severity, again, ..self }
    }

    const fn bare(what: What, id: String, summary: String, decide: String) -> Self {
        Self {
            what,
            id,
            severity: Severity::Normal,
            again: false,
            agent: None,
            tool: None,
            summary,
            reference: None,
            since: None,
            until: None,
            arguments: None,
            options: Vec::new(),
            decide,
            url: None,
        }
    }

    /// Adds the page of the item at the console with this address.
    fn at(self, console: &str) -> Self {
        let url = self.path().map(|path| format!("{}/{path}", console.trim_end_matches('/')));
        Self { url, ..self }
    }

    /// Returns the path of the item's page, below the console's.
    fn path(&self) -> Option<String> {
        let folder = match self.what {
            What::Question => "questions",
            What::Approval => "approvals",
            What::Incident => "incidents",
            What::Stop | What::Note => return None,
        };
        Some(format!("{folder}/{}", self.id))
    }

    fn lines(&self, out: &mut String) {
        let urgent = if self.severity == Severity::Urgent { ", urgent" } else { "" };
        let again = if self.again { ", still" } else { "" };
        let place = self.reference.as_ref().map(|r| format!(", in {r}")).unwrap_or_default();
        let until = self.until.as_ref().map(|until| format!(", until {until}")).unwrap_or_default();
        // Writing to a string can't fail.
        let _ok = writeln!(out, "{}{urgent}{again}: {}{place}{until}", self.id, self.summary);
        if let Some(arguments) = &self.arguments {
            let _ok = writeln!(out, "  {arguments}");
        }
        if !self.options.is_empty() {
            let _ok = writeln!(out, "  options: {}", self.options.join(" · "));
        }
        let _ok = writeln!(out, "  {}", self.decide);
        if let Some(url) = &self.url {
            let _ok = writeln!(out, "  {url}");
        }
    }
}

impl Counts {
    pub(super) const fn add(&mut self, what: What) {
        match what {
            What::Question => self.questions += 1,
            What::Approval => self.approvals += 1,
            What::Incident => self.incidents += 1,
            What::Stop => self.stops += 1,
            What::Note => self.notes += 1,
        }
    }

    const fn total(&self) -> usize {
        self.questions + self.approvals + self.incidents + self.stops + self.notes
    }

    /// Formats the counts for those who decide, or for others: "1 question and 2 approvals wait for you; 1 limit tripped".
    fn words(&self, whom: &str) -> String {
        let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
        let some = |n: usize, word: &str| (n > 0).then(|| plural(n, word));
        let waits: Vec<_> = [some(self.questions, "question"), some(self.approvals, "approval")].into();
        let waits = waits.into_iter().flatten().collect::<Vec<_>>().join(" and ");
        let wait = if self.questions + self.approvals == 1 { "waits" } else { "wait" };
        let waits = (!waits.is_empty()).then(|| format!("{waits} {wait} for {whom}"));
        let incidents = some(self.incidents, "limit").map(|limits| format!("{limits} tripped"));
        let stops = (self.stops > 0).then(|| "the workspace is stopped".to_owned());
        let notes = some(self.notes, "item").map(|notes| format!("{notes} for information"));
        [waits, incidents, stops, notes].into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

impl Notification {
    /// Builds a notification of these items; `counts` includes those that aren't listed.
    pub(super) fn waiting(
        id: String,
        at: Time,
        channel: &Channel,
        counts: Counts,
        items: Vec<Item>,
        folded: usize,
        console: String,
    ) -> Self {
        let severity = items.iter().map(|item| item.severity).max().unwrap_or(Severity::Low);
        let title = title(severity, &counts, "you");
        let items: Vec<Item> = items.into_iter().map(|item| item.at(&console)).collect();
        let more = counts.total().saturating_sub(items.len());
        let mut text = String::new();
        for item in &items {
            item.lines(&mut text);
        }
        if more > 0 {
            let _ok = writeln!(text, "and {more} more");
        }
        let _ok = write!(text, "Decide at {console}");
        let console = Some(console);
        let (channel, at) = (channel.name.clone(), rfc3339(at));
        Self { id, kind: Kind::Waiting, channel, severity, at, title, text, counts, items, more, folded, console }
    }

    /// Builds a notification that tests the channel.
    pub(super) fn test(id: String, channel: &Channel, at: Time) -> Self {
        Self::test_of(id, &channel.name, at, channel.console.clone())
    }

    /// Builds a notification that tests the channel with this name.
    pub(super) fn test_of(id: String, channel: &str, at: Time, console: Option<String>) -> Self {
        Self {
            id,
            kind: Kind::Test,
            channel: channel.to_owned(),
            severity: Severity::Normal,
            at: rfc3339(at),
            title: "Lastword: a test".into(),
            text: "This is a test: notifications of this channel arrive.".into(),
            counts: Counts::default(),
            items: Vec::new(),
            more: 0,
            folded: 0,
            console,
        }
    }

    /// Returns what a device shows of it, and the page that it opens, in at most this many bytes.
    pub(super) fn for_device(&self, bytes_max: usize, role: Role) -> Vec<u8> {
        let title = match self.kind {
            Kind::Waiting if role > Role::Approver => &title(self.severity, &self.counts, "an approver"),
            Kind::Waiting | Kind::Test => &self.title,
        };
        let path = match self.items.as_slice() {
            [only] if self.more == 0 => only.path(),
            _ => None,
        };
        let path = path.unwrap_or_else(|| if self.items.is_empty() { "devices" } else { "inbox" }.to_owned());
        let whole = |body: &str| json!({ "title": title, "body": body, "path": path, "tag": self.id }).to_string();
        let mut body = if self.items.is_empty() { self.text.clone() } else { String::new() };
        let mut more = self.more;
        for item in &self.items {
            let place = item.reference.as_ref().map(|reference| format!(", in {reference}")).unwrap_or_default();
            let arguments = item.arguments.as_ref().map(|arguments| format!("\n{arguments}")).unwrap_or_default();
            let line = format!("{}{place}{arguments}\n", item.summary);
            // With room for the number of those that have none.
            if whole(&format!("{body}{line}")).len() + 32 > bytes_max {
                more += 1;
            } else {
                body.push_str(&line);
            }
        }
        if more > 0 {
            body.push_str(&format!("and {more} more"));
        }
        whole(body.trim_end()).into_bytes()
    }

    /// Serializes the notification.
    pub(super) fn json(&self) -> Result<Vec<u8>, String> {
        let bytes = serde_json::to_vec(self).map_err(|error| error.to_string())?;
        if bytes.len() > BYTES_MAX { Err(format!("it is longer than {BYTES_MAX} bytes")) } else { Ok(bytes) }
    }
}

fn title(severity: Severity, counts: &Counts, whom: &str) -> String {
    let urgent = if severity == Severity::Urgent { "urgent: " } else { "" };
    format!("Lastword: {urgent}{}", counts.words(whom))
}

/// Returns the first non-empty line of an agent's text, escaped for display and shortened.
pub(super) fn first_line(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    // A single escaped line: an agent's text must not imitate the notification's own lines.
    cut(&escape(&line.replace('\t', " ")), WORDS_MAX)
}

fn cut(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    text.chars().take(max - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use lastword_facts::status::ApprovalState;

    use super::*;
    use crate::notify::channel::{Command, Means, channel};

    #[test]
    fn a_title_counts_what_waits() {
        let words = |questions, approvals, incidents, stops| {
            Counts { questions, approvals, incidents, stops, notes: 0 }.words("you")
        };
        assert_eq!(words(1, 0, 0, 0), "1 question waits for you");
        assert_eq!(words(1, 2, 0, 0), "1 question and 2 approvals wait for you");
        assert_eq!(words(0, 1, 2, 1), "1 approval waits for you; 2 limits tripped; the workspace is stopped");
        assert_eq!(words(0, 0, 1, 0), "1 limit tripped");
        assert_eq!(Counts { notes: 2, ..Counts::default() }.words("you"), "2 items for information");
    }

    #[test]
    fn an_agents_text_is_one_line_cut_with_nothing_that_steers() {
        assert_eq!(first_line("\n  a\u{1b}[2J\u{202e}b\tc \nsecond"), "a\\u{1b}[2J\\u{202e}b c");
        let long = first_line(&"ü".repeat(500));
        assert_eq!((long.chars().count(), long.ends_with('…')), (WORDS_MAX, true));
    }

    #[test]
    fn the_longest_notification_fits_and_tells_how_much_more_there_is() {
        let long = "\u{1f600}".repeat(2_000);
        let call = ApprovalView {
            id: "apr-1".into(),
            digest: "0".repeat(64),
            state: ApprovalState::Pending,
            ended: None,
            expires_at: rfc3339(Time(1_000)),
            lease_until: None,
            agent: "a".repeat(64),
            tool: long.clone(),
            arguments: serde_json::json!({ "key": long }).into(),
            requested: None,
            reason: Some(long),
            reference: Some("R".repeat(64)),
            request_id: None,
            created_at: rfc3339(Time(0)),
            decision: None,
            by: None,
            decided_at: None,
            by_kind: None,
            policy: None,
            tier: None,
            comment: None,
        };
        let told = |include_arguments| {
            let items: Vec<Item> = (0..ITEMS_MAX).map(|_| Item::call(&call, include_arguments)).collect();
            let counts = Counts { approvals: 500, ..Counts::default() };
            let channel = channel(Means::Command(Command::default()));
            let told = Notification::waiting("ntf-1".into(), Time(0), &channel, counts, items, 0, "http://c/".into());
            let title = |role| {
                let shown: serde_json::Value = serde_json::from_slice(&told.for_device(3_993, role)).unwrap();
                shown["title"].as_str().unwrap().to_owned()
            };
            assert_eq!(title(Role::Approver), "Lastword: 500 approvals wait for you");
            assert_eq!(title(Role::Viewer), "Lastword: 500 approvals wait for an approver");
            (told.json().unwrap(), told.for_device(3_993, Role::Owner), told.text)
        };
        let (whole, device, text) = told(true);
        assert!(text.ends_with("and 490 more\nDecide at http://c/"), "{text}");
        assert!(whole.windows(3).any(|w| w == b"key"));
        let shown: serde_json::Value = serde_json::from_slice(&device).unwrap();
        let body = shown["body"].as_str().unwrap();
        assert!(device.len() <= 3_993 && body.starts_with("aaaa") && body.contains(r#"{"key":"#), "{shown}");
        let lines = body.lines().filter(|line| line.contains("asks to call")).count();
        assert!(lines > 0 && body.ends_with(&format!("and {} more", 500 - lines)), "{shown}");
        assert_eq!(shown["path"], "inbox");
        let (bare, ..) = told(false);
        assert!(!bare.windows(3).any(|w| w == b"key"), "arguments may be secret");
    }

    #[test]
    fn an_incident_says_what_lifts_it() {
        let view = |reference: Option<&str>| IncidentView {
            is_cost: false,
            id: "inc-1".into(),
            on: "LOGIN-1".into(),
            scope: "conversation".into(),
            reference: reference.map(str::to_owned),
            code: lastword_facts::Code::TurnsHard,
            limit: 1,
            current: 2,
            at: rfc3339(Time(0)),
            lifted_at: None,
            lifted_by: None,
            parked: Vec::new(),
        };
        let item = Item::incident(&view(Some("LOGIN-1")));
        assert_eq!(item.summary, "the limit turns_hard tripped and holds conversation LOGIN-1");
        assert_eq!(item.decide, "lastword resume LOGIN-1");
        assert_eq!(Item::incident(&view(None)).decide, "lastword incidents");
    }
}
