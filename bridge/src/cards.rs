//! Cards: messages with buttons for held calls and questions. Words them and parses clicks, without I/O.

mod desk;
mod kept;

pub(crate) use desk::CardQueue;

use lastword_client::wire::{ApprovalView, Arguments, EscalationView, parse_rfc3339};
use lastword_facts::fact::{Decision, EscalationCause};
use lastword_facts::status::ApprovalState;
use lastword_facts::status::EscalationState;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::dialect::Dialect;
use super::ids::UserId;
use super::text::{hides, title};

/// Prefix of the ids of our buttons.
const MARK: &str = "lw";
/// Characters kept free for the outcome on a card's last message.
const OUTCOME_CHARS_MAX: usize = 400;
/// Most messages of one card. A call that needs more can't be approved on the platform, where it isn't shown in full.
const PARTS_MAX: usize = 4;

/// What a click means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Button {
    /// Approve exactly the call with this digest, once.
    Approve { id: String, digest: String },
    /// Reject the call.
    Reject { id: String },
    /// Reject the call with a comment: opens a form, and identifies it when it is submitted.
    Respond { id: String },
    /// Answer with one of the offered options, by its index.
    Option { id: String, number: usize },
    /// Lift the limit that caused the question: extends and resumes in one step.
    Lift { id: String, lift: String },
    /// Answer in free text: opens a form, and identifies it when it is submitted.
    Answer { id: String },
    /// Show a message's whole envelope.
    Envelope { id: String },
}

impl Button {
    /// Returns the text with which the platform reports a click.
    pub(crate) fn id(&self) -> String {
        match self {
            Self::Approve { id, digest } => format!("{MARK}:approve:{id}:{digest}"),
            Self::Reject { id } => format!("{MARK}:reject:{id}"),
            Self::Respond { id } => format!("{MARK}:respond:{id}"),
            Self::Option { id, number } => format!("{MARK}:option:{id}:{number}"),
            Self::Lift { id, lift } => format!("{MARK}:lift:{id}:{lift}"),
            Self::Answer { id } => format!("{MARK}:answer:{id}"),
            Self::Envelope { id } => format!("{MARK}:envelope:{id}"),
        }
    }

    /// Parses a [`Button::id`]; `None` if it isn't ours.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split(':').collect();
        let [MARK, verb, id, rest @ ..] = parts.as_slice() else { return None };
        let id = (*id).to_owned();
        Some(match (*verb, rest) {
            ("approve", [digest]) => Self::Approve { id, digest: (*digest).to_owned() },
            ("reject", []) => Self::Reject { id },
            ("respond", []) => Self::Respond { id },
            ("option", [number]) => Self::Option { id, number: number.parse().ok()? },
            ("lift", [lift]) => Self::Lift { id, lift: (*lift).to_owned() },
            ("answer", []) => Self::Answer { id },
            ("envelope", []) => Self::Envelope { id },
            (_, _) => return None,
        })
    }

    /// Returns the id of the escalation, approval or message that the button is about.
    pub(crate) fn subject(&self) -> &str {
        match self {
            Self::Approve { id, .. }
            | Self::Reject { id }
            | Self::Respond { id }
            | Self::Option { id, .. }
            | Self::Lift { id, .. }
            | Self::Answer { id }
            | Self::Envelope { id } => id,
        }
    }

    /// Puts a text on the button.
    pub(crate) fn label(&self, text: &str, style: Style) -> Label {
        Label { button: self.id(), text: text.to_owned(), style }
    }
}

/// How a button stands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// One of several ways on.
    Primary,
    /// Aside.
    Secondary,
    /// It lets something go on.
    Success,
    /// It ends something.
    Danger,
}

/// A button as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The button, as the platform reports a click on it.
    pub button: String,
    /// What stands on it.
    pub text: String,
    /// How it stands out.
    pub style: Style,
}

/// A form with one field, for a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// The button that opened it, which identifies it.
    pub button: String,
    /// Its heading.
    pub heading: String,
    /// What to write.
    pub field: &'static str,
}

/// A card: its messages, and the buttons under the last one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Card {
    pub(crate) parts: Vec<String>,
    /// The buttons, as [`Dialect::buttons`] writes them.
    pub(crate) rows: Value,
    /// Whether the matter is settled; a settled card has no buttons.
    pub(crate) settled: bool,
}

impl Card {
    fn new(text: &str, buttons: &[Label], outcome: Option<&str>, dialect: &Dialect) -> Self {
        // Every part leaves room for the outcome, which is added to the last one when the matter is settled.
        let mut parts = (dialect.split)(text, OUTCOME_CHARS_MAX);
        if let (Some(outcome), Some(last)) = (outcome, parts.last_mut()) {
            last.push('\n');
            last.push_str(&title(outcome, OUTCOME_CHARS_MAX / 2));
        }
        let rows = if outcome.is_some() { json!([]) } else { (dialect.buttons)(buttons) };
        Self { parts, rows, settled: outcome.is_some() }
    }

    /// Returns the last message, which carries the buttons.
    pub(crate) fn last(&self) -> &str {
        self.parts.last().map(String::as_str).unwrap_or_default()
    }
}

/// Names who decided: the broker's name, and the user if it was done on the platform.
fn by(name: Option<&str>, user: Option<UserId>, dialect: &Dialect) -> String {
    let user = user.map(|user| format!(" ({})", (dialect.user)(user))).unwrap_or_default();
    format!("{}{user}", name.unwrap_or("nobody"))
}

/// Words the card of an escalation.
pub(crate) fn question(view: &EscalationView, user: Option<UserId>, dialect: &Dialect) -> Card {
    let EscalationView { id, agent, reference, message, options, .. } = view;
    let asks = match view.cause {
        EscalationCause::Asked => format!("❓ **{agent}** asks"),
        EscalationCause::TimedOut => format!("⏰ a request of **{agent}** timed out twice. What should happen?"),
        EscalationCause::NoProgress => format!("🔁 **{agent}** makes no progress and is held. May it go on?"),
    };
    let mut text = format!("{asks} · {reference} · {id}\n{}", shown(message));
    // Lifts take their buttons first. If the rest is too few for all options, or one is longer than a button shows, these
    // become a list in the text: what a button sends stands on it whole.
    // The last button opens the form.
    let options_max = dialect.buttons_max.saturating_sub(1 + view.offered().count());
    let fits = |option: &String| plain(option).trim().chars().count() <= dialect.label_chars_max;
    let on_buttons = options.len() <= options_max && options.iter().all(fits);
    if !on_buttons {
        for option in options {
            text.push_str(&format!("\n- {}", unmarked(option)));
        }
    }
    if let Some(limit) = &view.limit {
        let lifted = view.lifts.iter().find(|lift| lift.chosen).map(|lift| format!("✅ {}", unmarked(&lift.text)));
        let offer = || "A green button lifts that and answers no question; an answer lifts nothing.".to_owned();
        text.push_str(&format!("\n-# {} {}", unmarked(limit), lifted.unwrap_or_else(offer)));
    }
    let answer = view.answer.as_deref().unwrap_or_default();
    let outcome = match view.state {
        EscalationState::Open => None,
        EscalationState::Answered => {
            Some(format!("✅ {} answered: {answer}", by(view.answered_by.as_deref(), user, dialect)))
        }
        EscalationState::Withdrawn => Some("⚪ The task that asked has ended: no answer is needed.".to_owned()),
        EscalationState::Expired => Some("⚪ No answer in time: the task that asked has ended.".to_owned()),
    };
    let few = options.iter().enumerate().filter(|_| on_buttons);
    let lifts = view.offered().take(dialect.buttons_max - 1);
    let lifts = lifts
        .map(|lift| Button::Lift { id: id.clone(), lift: lift.id.clone() }.label(&plain(&lift.text), Style::Success));
    let mut buttons: Vec<Label> = lifts.collect();
    buttons.extend(
        few.map(|(number, option)| Button::Option { id: id.clone(), number }.label(&plain(option), Style::Primary)),
    );
    buttons.push(Button::Answer { id: id.clone() }.label("Answer…", Style::Secondary));
    Card::new(&text, &buttons, outcome.as_deref(), dialect)
}

/// Words the card of a held call, with its exact arguments.
pub(crate) fn held_call(view: &ApprovalView, user: Option<UserId>, dialect: &Dialect) -> Card {
    let ApprovalView { id, agent, tool, digest, .. } = view;
    let on = view.reference.as_ref().map(|reference| format!(" · {reference}")).unwrap_or_default();
    let mut text = format!("🔒 **{agent}** asks to call `{}`{on} · {id}", plain(tool).replace('`', "'"));
    if let Some(reason) = &view.reason {
        text.push_str(&format!("\nbecause: {}", unmarked(reason)));
    }
    let asked = view.requested.as_ref().unwrap_or(&view.arguments);
    text.push_str(&format!("\n```json\n{}\n```", arguments(asked)));
    let parts = |text: &str| (dialect.split)(text, OUTCOME_CHARS_MAX).len();
    if view.requested.is_some() {
        let both = format!("{text}\nedited:\n```json\n{}\n```", arguments(&view.arguments));
        // The card is posted already, so it keeps the number of its messages.
        text = if parts(&both) == parts(&text) { both } else { text };
    }
    let pending = view.state == ApprovalState::Pending;
    let whole = parts(&text) <= PARTS_MAX;
    // A card without the whole call gets no Approve button: only a call shown in full may be approved.
    if !whole {
        text = (dialect.split)(&text, OUTCOME_CHARS_MAX).swap_remove(0);
        let title = dialect.title;
        text.push_str(&format!("\n… too long for {title}: review it in the console or with `lastword approve`."));
    }
    if pending {
        let at = parse_rfc3339(&view.expires_at).map(|at| format!(", and is denied {}", (dialect.time)(at.0 / 1000)));
        text.push_str(&format!("\n-# digest {digest}{}", at.unwrap_or_default()));
    }
    let mut buttons = Vec::new();
    if whole {
        buttons.push(Button::Approve { id: id.clone(), digest: digest.clone() }.label("Approve", Style::Success));
    }
    buttons.push(Button::Reject { id: id.clone() }.label("Reject", Style::Danger));
    buttons.push(Button::Respond { id: id.clone() }.label("Reject with instructions…", Style::Secondary));
    Card::new(&text, &buttons, (!pending).then(|| ruling(view, user, dialect)).as_deref(), dialect)
}

/// Words how a held call was decided.
fn ruling(view: &ApprovalView, user: Option<UserId>, dialect: &Dialect) -> String {
    let who = by(view.by.as_deref(), user, dialect);
    let words = view.comment.as_ref().map(|words| format!(": {words}")).unwrap_or_default();
    if let Some(why) = view.undecided() {
        return format!("⌛ Denied: {why}.");
    }
    match (view.state, view.decision) {
        (ApprovalState::Pending | ApprovalState::Expired | ApprovalState::Withdrawn, _) => String::new(),
        (ApprovalState::Ignored, _) => format!("⚪ Ignored by {who}."),
        (ApprovalState::Approved | ApprovalState::Used, Some(Decision::Edit)) => {
            format!("✏️ Edited and approved by {who}{words}")
        }
        (ApprovalState::Approved | ApprovalState::Used, _) => format!("✅ Approved by {who}{words}"),
        (ApprovalState::Rejected, _) => format!("❌ Rejected by {who}{words}"),
    }
}

/// Formats JSON so that no character ends the code block or is invisible: such characters become escapes, which are
/// equal JSON.
fn arguments(all: &Arguments) -> String {
    let text = all.pretty();
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c == '`' || hides(c) {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                shown.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Returns a text on one line, without invisible characters.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || hides(c) { ' ' } else { c }).collect()
}

/// Returns a text on one line in which nothing is markup: no fence, spoiler or link.
fn unmarked(text: &str) -> String {
    let mut out = String::new();
    for c in plain(text).chars() {
        if c.is_ascii_punctuation()
            && !matches!(c, '.' | ',' | ';' | '?' | '!' | '/' | '\'' | '"' | '%' | '&' | '=' | '+' | '$')
        {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// Returns a text on several lines, without invisible characters and without code blocks or spoilers.
fn shown(text: &str) -> String {
    let seen = |c: char| if (c.is_control() && c != '\n') || hides(c) { ' ' } else { c };
    text.chars().map(seen).collect::<String>().replace("```", "` ` `").replace("||", "| |")
}

/// Returns whether a click on a button only shows something, and so may come through an agent's bot.
#[must_use]
pub fn is_harmless(button: &str) -> bool {
    matches!(Button::parse(button), Some(Button::Envelope { .. }))
}

/// Returns the form that a button opens; `None` if it opens none.
pub(crate) fn form(button: &Button) -> Option<Form> {
    let (heading, field) = match button {
        Button::Respond { id } => (format!("Reject {id} with instructions"), "Instructions for the agent"),
        Button::Answer { id } => (format!("Answer {id}"), "Your answer to the task that asked"),
        Button::Approve { .. }
        | Button::Reject { .. }
        | Button::Option { .. }
        | Button::Lift { .. }
        | Button::Envelope { .. } => return None,
    };
    Some(Form { button: button.id(), heading, field })
}

#[cfg(test)]
mod tests {
    use super::super::dialect::tests::{PLAIN, POST_CHARS_MAX};
    use super::*;

    fn escalation(options: usize, state: &str) -> EscalationView {
        let options: Vec<String> = (0..options).map(|number| format!("option {number}")).collect();
        serde_json::from_value(json!({
            "id": "esc-1", "seq": 7, "state": state, "cause": "asked", "agent": "kilo", "ref": "D-1", "message": "To eu or us?",
            "options": options, "created_at": "2026-01-01T00:00:00Z", "answered_by": "ann", "answer": "eu",
        }))
        .unwrap()
    }

    fn approval(arguments: &Value, state: &str) -> ApprovalView {
        serde_json::from_value(json!({
            "id": "apr-1", "digest": "ab".repeat(32), "state": state, "expires_at": "2026-01-01T00:05:00Z",
            "agent": "kilo", "tool": "deploy", "arguments": arguments, "reason": "asked to", "ref": "D-1",
            "created_at": "2026-01-01T00:00:00Z", "by": "ann", "comment": "not today",
        }))
        .unwrap()
    }

    fn question(view: &EscalationView, user: Option<u64>) -> Card {
        super::question(view, user.map(UserId::new), &PLAIN)
    }

    fn held_call(view: &ApprovalView, user: Option<u64>) -> Card {
        super::held_call(view, user.map(UserId::new), &PLAIN)
    }

    fn buttons(card: &Card) -> Vec<Button> {
        let ids = card.rows.as_array().unwrap().iter().map(|button| button["id"].as_str().unwrap());
        ids.map(|id| Button::parse(id).unwrap()).collect()
    }

    #[test]
    fn a_button_is_read_back_as_what_it_was() {
        for button in [
            Button::Approve { id: "apr-1".into(), digest: "ab".repeat(32) },
            Button::Reject { id: "apr-1".into() },
            Button::Respond { id: "apr-1".into() },
            Button::Option { id: "esc-1".into(), number: 23 },
            Button::Lift { id: "esc-1".into(), lift: "lift-1".into() },
            Button::Answer { id: "esc-1".into() },
            Button::Envelope { id: "msg-1".into() },
        ] {
            assert!(button.id().len() <= 100);
            assert_eq!(Button::parse(&button.id()), Some(button));
        }
        for foreign in ["", "other", "lw", "lw:approve:apr-1", "lw:option:esc-1:x", "lw:nuke:esc-1", "xx:reject:apr-1"]
        {
            assert_eq!(Button::parse(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_held_call_is_shown_as_it_is_and_approved_by_its_digest() {
        let card = held_call(&approval(&json!({ "to": "eu" }), "pending"), None);
        assert_eq!(
            card.parts,
            [format!(
                "🔒 **kilo** asks to call `deploy` · D-1 · apr-1\nbecause: asked to\n```json\n{{\n  \"to\": \"eu\"\n}}\n```\n\
                 -# digest {}, and is denied <t:1767225900>",
                "ab".repeat(32)
            )]
        );
        let approve = Button::Approve { id: "apr-1".into(), digest: "ab".repeat(32) };
        assert_eq!(buttons(&card)[0], approve);
        assert!(!card.settled);
    }

    #[test]
    fn what_the_broker_offers_is_a_button_each_and_words_are_said_to_extend_nothing() {
        let mut view = escalation(2, "open");
        view.limit = Some("The conversation is as deep as it may be: limit 5, would be 6, never extended.".into());
        view.lifts = serde_json::from_value(json!([{ "id": "lift-1", "text": "2 more rounds" }])).unwrap();
        let card = question(&view, None);
        let lift = Button::Lift { id: "esc-1".into(), lift: "lift-1".into() };
        assert_eq!(buttons(&card)[0], lift);
        assert_eq!(buttons(&card).len(), 4, "and the options, and words");
        assert_eq!(card.rows[0]["text"], "2 more rounds");
        assert!(
            card.last().contains(
                "never extended. A green button lifts that and answers no question; an answer lifts nothing."
            ),
            "{card:?}"
        );
        view.options = (0..24).map(|number| format!("option {number}")).collect();
        assert_eq!(buttons(&question(&view, None)).len(), 2, "there is room for 25");
    }

    #[test]
    fn nothing_in_the_arguments_ends_their_block_or_hides() {
        let tricky = json!({ "x": "``` fake\n`\u{202e}gnp.exe\u{200b}" });
        let card = held_call(&approval(&tricky, "pending"), None);
        let text = card.parts.concat();
        assert_eq!(text.matches("```").count(), 2, "{text}");
        assert!(!text.contains(['\u{202e}', '\u{200b}']));
        let (_, block) = text.split_once("```json\n").unwrap();
        let shown: Value = serde_json::from_str(block.split("\n```").next().unwrap()).unwrap();
        assert_eq!(shown, tricky, "it is the same JSON");
    }

    #[test]
    fn what_nobody_can_read_there_nobody_approves_there() {
        let long = held_call(&approval(&json!({ "x": "line\n".repeat(3000) }), "pending"), None);
        assert!(long.parts.len() <= PARTS_MAX && long.last().contains("too long for Chat"), "{:?}", long.parts.len());
        assert!(!buttons(&long).iter().any(|button| matches!(button, Button::Approve { .. })));
        let fits = held_call(&approval(&json!({ "x": "line ".repeat(500) }), "pending"), None);
        assert!(fits.parts.len() > 1 && buttons(&fits).len() == 3);
        assert!(fits.parts.iter().all(|part| part.chars().count() <= POST_CHARS_MAX));
    }

    #[test]
    fn a_settled_card_says_how_and_has_no_buttons() {
        for (state, words) in [
            ("approved", "✅ Approved by ann (<@7>): not today"),
            ("used", "✅ Approved by ann (<@7>): not today"),
            ("rejected", "❌ Rejected by ann (<@7>): not today"),
            ("ignored", "⚪ Ignored by ann (<@7>)."),
            ("expired", "⌛ Denied: no human decided in time."),
            ("withdrawn", "⌛ Denied: its agent was removed, or its work started again."),
        ] {
            let card = held_call(&approval(&json!({}), state), Some(7));
            assert!(card.last().ends_with(words), "{}", card.last());
            assert!(card.settled && card.rows == json!([]) && !card.last().contains("is denied <t:"));
        }
        let answered = question(&escalation(0, "answered"), None);
        assert!(answered.last().ends_with("✅ ann answered: eu"));
        assert!(question(&escalation(0, "withdrawn"), None).settled);
    }

    #[test]
    fn answers_to_choose_from_are_buttons_and_a_form_takes_any_other() {
        let card = question(&escalation(7, "open"), None);
        assert_eq!(buttons(&card)[6], Button::Option { id: "esc-1".into(), number: 6 });
        assert_eq!(buttons(&card)[7], Button::Answer { id: "esc-1".into() });
        let many = question(&escalation(30, "open"), None);
        assert!(many.parts[0].contains("- option 29") && buttons(&many).len() == 1);
        let mut long = escalation(2, "open");
        long.options[1] = "deploy and ".repeat(9) + "delete";
        let long = question(&long, None);
        assert!(
            long.parts[0].contains("and delete") && buttons(&long).len() == 1,
            "no button sends what it does not show"
        );
        let asked = form(&buttons(&card)[7]).unwrap();
        assert_eq!((asked.button.as_str(), asked.heading.as_str()), ("lw:answer:esc-1", "Answer esc-1"));
        assert_eq!(form(&buttons(&card)[0]), None);
    }
}
