//! Maps keys to changes of the model and to orders.
#![expect(clippy::wildcard_enum_match_arm, reason = "a keyboard has many keys, and most of them do nothing")]

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::model::{ActionResult, Mode, Model, Order, Purpose, Subject, Tab, Verb};
use super::rows::Item;
use crate::out::escape_line;

/// Handles a key.
pub(crate) fn press(model: &mut Model, key: KeyEvent) -> Option<Order> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Some(Order::Quit),
            KeyCode::Char('l') => Some(Order::Refresh),
            _ => None,
        };
    }
    model.told = None;
    let before = model.identity();
    let order = match std::mem::take(&mut model.mode) {
        Mode::List => list(model, key.code),
        Mode::Detail => detail(model, key.code),
        Mode::StyledLine(purpose, text) => line(model, key.code, purpose, text),
        Mode::Confirm(question, order) => confirm(model, key.code, question, order),
        // Any key closes the help.
        Mode::Help => None,
    };
    if model.identity() != before {
        model.settle(0);
    }
    order
}

fn list(model: &mut Model, key: KeyCode) -> Option<Order> {
    match key {
        KeyCode::Enter | KeyCode::Right | KeyCode::Char('l') if model.current().is_some() => {
            model.scroll = 0;
            model.mode = Mode::Detail;
        }
        KeyCode::Down | KeyCode::Char('j') => model.step(1),
        KeyCode::Up | KeyCode::Char('k') => model.step(-1),
        KeyCode::PageDown => model.step(page(model)),
        KeyCode::PageUp => model.step(-page(model)),
        KeyCode::Home | KeyCode::Char('g') => model.step(isize::MIN),
        KeyCode::End | KeyCode::Char('G') => model.step(isize::MAX),
        KeyCode::Esc => model.filter.clear(),
        KeyCode::Char('q') => return Some(Order::Quit),
        other => return anywhere(model, other, Mode::List),
    }
    None
}

fn detail(model: &mut Model, key: KeyCode) -> Option<Order> {
    model.mode = Mode::Detail;
    let by = u16::try_from(page(model)).unwrap_or(1);
    match key {
        KeyCode::Esc | KeyCode::Left | KeyCode::Char('q' | 'h') => model.mode = Mode::List,
        KeyCode::Down | KeyCode::Char('j') => scroll(model, 1, true),
        KeyCode::Up | KeyCode::Char('k') => scroll(model, 1, false),
        KeyCode::PageDown | KeyCode::Char(' ') => scroll(model, by, true),
        KeyCode::PageUp => scroll(model, by, false),
        KeyCode::Home | KeyCode::Char('g') => model.scroll = 0,
        KeyCode::End | KeyCode::Char('G') => model.scroll = model.seen.scroll_max,
        other => return anywhere(model, other, Mode::Detail),
    }
    None
}

fn scroll(model: &mut Model, by: u16, down: bool) {
    let to = if down { model.scroll.saturating_add(by) } else { model.scroll.saturating_sub(by) };
    model.scroll = to.min(model.seen.scroll_max);
}

fn page(model: &Model) -> isize {
    isize::try_from(model.seen.page.max(2) - 1).unwrap_or(1)
}

/// Handles keys that do the same in a list and in a detail.
fn anywhere(model: &mut Model, key: KeyCode, mode: Mode) -> Option<Order> {
    model.mode = mode;
    let tab = model.tab as usize;
    if matches!(key, KeyCode::Char('a' | 'r' | 'e' | 'A' | 'L' | 'p' | 'u' | 's')) && !model.is_settled() {
        not_here(model, "this row has just come here: look at it, then press the key again");
        return None;
    }
    match key {
        KeyCode::Tab => model.turn_to(Tab::ALL[(tab + 1) % Tab::ALL.len()]),
        KeyCode::BackTab => model.turn_to(Tab::ALL[(tab + Tab::ALL.len() - 1) % Tab::ALL.len()]),
        KeyCode::Char('1') => model.turn_to(Tab::Inbox),
        KeyCode::Char('2') => model.turn_to(Tab::Conversations),
        KeyCode::Char('3') => model.turn_to(Tab::Agents),
        KeyCode::Char('?') | KeyCode::F(1) => model.mode = Mode::Help,
        KeyCode::Char('/') => model.mode = Mode::StyledLine(Purpose::Filter, model.filter.clone()),
        KeyCode::Char('a') => approve(model),
        KeyCode::Char('r') => reject(model),
        KeyCode::Char('e' | 'A') => answer(model),
        KeyCode::Char('L') => lift(model, None),
        KeyCode::Char('p') => control(model, Verb::Pause),
        KeyCode::Char('u') => control(model, Verb::Resume),
        KeyCode::Char('s') => control(model, Verb::Stop),
        KeyCode::Char('R') => return Some(Order::Refresh),
        KeyCode::Char('f') => model.unfolded = !model.unfolded,
        _ => {}
    }
    None
}

/// Asks for confirmation before an approval, once the call was shown to its end; the question names that call's digest.
fn approve(model: &mut Model) {
    let Some(Item::Approval(view)) = model.current() else {
        return not_here(model, "select a held call to approve it");
    };
    let digest: String = view.digest.chars().take(8).collect();
    let question = format!("Allow {} to make this call ({}, digest {digest}) once?", escape_line(&view.agent), view.id);
    let (id, digest) = (view.id.clone(), view.digest.clone());
    let order = Order::Approve { id, digest };
    model.read = None;
    model.scroll = 0;
    model.mode = Mode::Confirm(question, order);
}

fn reject(model: &mut Model) {
    let Some(Item::Approval(view)) = model.current() else {
        return not_here(model, "select a held call to reject it");
    };
    model.mode = Mode::StyledLine(Purpose::Reject(view.id.clone()), String::new());
}

fn answer(model: &mut Model) {
    let Some(Item::Escalation(view)) = model.current() else {
        return not_here(model, "select a question to answer it");
    };
    model.mode = Mode::StyledLine(Purpose::Answer(view.id.clone(), view.options.clone()), String::new());
}

/// Asks for confirmation before a lift: the first one offered, or the one after `asked`.
fn lift(model: &mut Model, asked: Option<&str>) {
    let Some(Item::Escalation(view)) = model.current() else {
        return not_here(model, "select a question to choose a lift");
    };
    let offered: Vec<_> = view.offered().collect();
    let at = asked.and_then(|id| offered.iter().position(|lift| lift.id == id)).map_or(0, |at| at + 1);
    let Some(chosen) = offered.get(at % offered.len().max(1)) else {
        return not_here(model, "no limit stopped this task: answer the question with e");
    };
    let others = if offered.len() > 1 { " (L: next)" } else { "" };
    let question = format!("Lift with \"{}\", leaving {} open{others}?", escape_line(&chosen.text), view.id);
    let order = Order::Lift { id: view.id.clone(), lift: chosen.id.clone(), text: chosen.text.clone() };
    model.mode = Mode::Confirm(question, order);
}

fn control(model: &mut Model, verb: Verb) {
    let subject = match model.current() {
        Some(Item::Conversation(view, ..)) => Subject::Conversation(view.reference.clone()),
        Some(Item::Agent(view)) => Subject::Agent(view.name.clone()),
        Some(Item::Incident(view)) => match &view.reference {
            Some(reference) => Subject::Conversation(reference.clone()),
            None => return not_here(model, "a room is released when a human posts in it"),
        },
        Some(Item::Approval(view)) => match &view.reference {
            Some(reference) => Subject::Conversation(reference.clone()),
            None => Subject::Agent(view.agent.clone()),
        },
        Some(Item::Escalation(view)) => Subject::Conversation(view.reference.clone()),
        None => return not_here(model, "nothing is selected"),
    };
    let name = escape_line(subject.name());
    let question = match verb {
        Verb::Pause => format!("Pause {name}? Nothing new is delivered."),
        Verb::Resume => format!("Resume {name} and everything held in it?"),
        Verb::Stop => format!("Stop {name}? Its open work is cancelled."),
    };
    model.mode = Mode::Confirm(question, Order::Control(verb, subject));
}

fn not_here(model: &mut Model, why: &str) {
    model.told = Some(ActionResult::Failed(why.to_owned()));
}

fn confirm(model: &mut Model, key: KeyCode, question: String, order: Order) -> Option<Order> {
    match key {
        KeyCode::Char('y' | 'Y') if model.seen.has_prompt && model.is_ready(&order) => return Some(order),
        KeyCode::Char('n' | 'N' | 'q') | KeyCode::Esc | KeyCode::Enter => {
            model.told = Some(ActionResult::Failed("cancelled: nothing was changed".to_owned()));
        }
        KeyCode::Char('L') if matches!(order, Order::Lift { .. }) => {
            let Order::Lift { lift: id, .. } = &order else { return None };
            lift(model, Some(id));
        }
        other => {
            // The call in question may be longer than the screen, so it can be scrolled.
            let by = u16::try_from(page(model)).unwrap_or(1);
            match other {
                KeyCode::Down | KeyCode::Char('j') => scroll(model, 1, true),
                KeyCode::Up | KeyCode::Char('k') => scroll(model, 1, false),
                KeyCode::PageDown | KeyCode::Char(' ') => scroll(model, by, true),
                KeyCode::PageUp => scroll(model, by, false),
                _ => {}
            }
            model.mode = Mode::Confirm(question, order);
        }
    }
    None
}

fn line(model: &mut Model, key: KeyCode, purpose: Purpose, mut text: String) -> Option<Order> {
    match key {
        KeyCode::Esc => return None,
        // An option that Tab chose must be read before it is sent.
        KeyCode::Enter if model.seen.has_prompt || purpose == Purpose::Filter => return enter(model, purpose, text),
        KeyCode::Backspace => drop(text.pop()),
        KeyCode::Tab => {
            if let Purpose::Answer(_, options) = &purpose
                && let Some(next) = following(options, &text)
            {
                text = next.to_owned();
            }
        }
        KeyCode::Char(c) => text.push(c),
        _ => {}
    }
    if purpose == Purpose::Filter {
        model.filter.clone_from(&text);
    }
    model.mode = Mode::StyledLine(purpose, text);
    None
}

/// Returns the option after the current text; the first one if the text isn't an option.
fn following<'a>(options: &'a [String], text: &str) -> Option<&'a str> {
    let at = options.iter().position(|option| option == text).map_or(0, |at| (at + 1) % options.len());
    options.get(at).map(String::as_str)
}

fn enter(model: &mut Model, purpose: Purpose, text: String) -> Option<Order> {
    match purpose {
        Purpose::Filter => None,
        Purpose::Reject(id) => Some(Order::Reject { id, reason: text }),
        Purpose::Answer(id, options) if text.trim().is_empty() => {
            model.told = Some(ActionResult::Failed("an answer needs a text".to_owned()));
            model.mode = Mode::StyledLine(Purpose::Answer(id, options), text);
            None
        }
        Purpose::Answer(id, _) => Some(Order::Answer { id, text }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Seen, samples};
    use super::*;

    /// Presses keys in order; a word in brackets is a named key.
    fn pressed(keys: &str) -> (Model, Option<Order>) {
        let mut model = samples::model();
        let mut order = None;
        let mut rest = keys;
        while let Some(c) = rest.chars().next() {
            let (code, length) = match rest.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
                Some((name, _)) => (named(name), name.len() + 2),
                None => (KeyCode::Char(c), c.len_utf8()),
            };
            order = press(&mut model, KeyEvent::new(code, KeyModifiers::NONE));
            // A screen with room for everything.
            model.seen(Seen { page: 20, scroll_max: 0, has_end: true, has_prompt: true });
            rest = &rest[length..];
        }
        (model, order)
    }

    fn named(name: &str) -> KeyCode {
        match name {
            "enter" => KeyCode::Enter,
            "esc" => KeyCode::Esc,
            "tab" => KeyCode::Tab,
            "back" => KeyCode::Backspace,
            "down" => KeyCode::Down,
            "end" => KeyCode::End,
            other => panic!("{other}"),
        }
    }

    fn control_of(verb: Verb, subject: Subject) -> Option<Order> {
        Some(Order::Control(verb, subject))
    }

    #[test]
    fn keys_give_these_orders() {
        let digest = samples::model().lists.approvals[0].digest.clone();
        let reject = |reason: &str| Some(Order::Reject { id: "apr-2".into(), reason: reason.into() });
        let answer = |text: &str| Some(Order::Answer { id: "esc-1".into(), text: text.into() });
        let lift =
            |lift: &str, text: &str| Some(Order::Lift { id: "esc-1".into(), lift: lift.into(), text: text.into() });
        let conversation = |name: &str| Subject::Conversation(name.to_owned());
        for (keys, order) in [
            ("ay", Some(Order::Approve { id: "apr-2".into(), digest })),
            ("a", None),
            ("an", None),
            ("a<enter>", None),
            ("a<esc>y", None),
            ("rno<enter>", reject("no")),
            ("r<enter>", reject("")),
            ("rno<back>t now<enter>", reject("nt now")),
            ("rno<esc><enter>", None),
            ("jeeu, please<enter>", answer("eu, please")),
            ("jA<tab><tab><enter>", answer("us")),
            ("je <enter>", None),
            ("e", None),
            ("ja", None),
            ("jLy", lift("lift-1", "2 more rounds")),
            ("jLLy", lift("lift-2", "20 more messages")),
            ("jLLLy", lift("lift-1", "2 more rounds")),
            ("jL<enter>", None),
            ("Ly", None),
            ("jjuy", control_of(Verb::Resume, conversation("BUDGET-1"))),
            ("2py", control_of(Verb::Pause, conversation("LOGIN-1"))),
            ("2p", None),
            ("2jsy", control_of(Verb::Stop, conversation("BUDGET-1"))),
            ("2<enter>uy", control_of(Verb::Resume, conversation("LOGIN-1"))),
            ("3sy", control_of(Verb::Stop, Subject::Agent("coder".into()))),
            ("3<end>sn", None),
            ("/old<enter>2py", control_of(Verb::Pause, conversation("OLD-7"))),
            ("2/old<enter><esc>py", control_of(Verb::Pause, conversation("OLD-7"))),
            ("R", Some(Order::Refresh)),
            ("q", Some(Order::Quit)),
            ("<enter>q", None),
            ("?q", None),
            ("?qq", Some(Order::Quit)),
        ] {
            assert_eq!(pressed(keys).1, order, "{keys}");
        }
    }

    #[test]
    fn keys_show_these_things() {
        for (keys, tab, mode) in [
            ("<tab>", Tab::Conversations, Mode::List),
            ("<tab><tab><tab>", Tab::Inbox, Mode::List),
            ("3<enter>", Tab::Agents, Mode::Detail),
            ("3<enter><esc>", Tab::Agents, Mode::List),
            ("3<enter>2", Tab::Conversations, Mode::List),
            ("?", Tab::Inbox, Mode::Help),
            ("?x", Tab::Inbox, Mode::List),
            ("/a", Tab::Inbox, Mode::StyledLine(Purpose::Filter, "a".into())),
            ("/zzz<enter><enter>", Tab::Inbox, Mode::List),
        ] {
            let (model, _) = pressed(keys);
            assert_eq!((model.tab, model.mode), (tab, mode), "{keys}");
        }
    }

    #[test]
    fn control_c_quits_whatever_is_typed() {
        for keys in ["", "r", "?", "a", "/x"] {
            let (mut model, _) = pressed(keys);
            let key = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
            assert_eq!(press(&mut model, key), Some(Order::Quit), "{keys}");
        }
    }

    #[test]
    fn a_call_that_changes_after_it_was_shown_is_not_approved() {
        let (mut model, _) = pressed("a");
        model.lists.approvals[0].digest = "00".repeat(32);
        assert_eq!(press(&mut model, KeyEvent::new(KeyCode::Char('y'), KeyModifiers::NONE)), None);
    }

    #[test]
    fn a_row_stays_selected_when_others_come_and_go() {
        let (mut model, _) = pressed("2j");
        model.lists.conversations.remove(0);
        assert_eq!(model.wanted().as_deref(), Some("BUDGET-1"));
        model.lists.conversations.remove(0);
        assert_eq!(model.wanted().as_deref(), Some("OLD-7"), "it is gone");
    }
}
