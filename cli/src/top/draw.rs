//! Paints the model, and does nothing else.

use lastword_client::wire::{Outcome, money};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as Text, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Row, Table, TableState, Wrap};

use super::detail;
use super::foot::{footing, prompt, rows_of};
use super::model::{Mode, Model, Purpose, Seen, ServerConnection, Tab};
use super::rows::Item;
use crate::out::{StyledLine, Tone, cut, escape_line};

const HELP: &str = "\
Tab, 1 2 3       inbox, conversations, agents
j k, arrows      move; PgUp PgDn, g G further
Enter, Esc       one row in full, and back
a                read the held call, then approve it, once
r                reject it, with a reason
e, A             answer the question; Tab: its options
L                give what the broker offers for it
p u s            pause, resume, stop the conversation
                 or agent (resume lifts a hold)
f                fold or unfold the conversations
                 below another
/                only rows with these words; Esc: all
R                fetch everything anew
?                this
q, Ctrl-C        quit";

/// The columns of each tab: heading and width; 0 takes the remaining width. Columns that don't fit are left out, and those
/// of [`GROWING`] share what is left over.
const INBOX: [(&str, u16); 6] = [("", 9), ("id", 6), ("agent", 10), ("ref", 12), ("time", 11), ("what", 0)];
const CONVERSATIONS: [(&str, u16); 8] = [
    ("ref", 14),
    ("state", 7),
    ("subject", 17),
    ("open", 4),
    ("spent", 9),
    ("nearest limit", 20),
    ("msgs", 4),
    ("last", 10),
];
/// The columns that are wider where there is room: names and texts.
const GROWING: [&str; 4] = ["ref", "subject", "agent", "name"];
const AGENTS: [(&str, u16); 9] = [
    ("name", 14),
    ("state", 7),
    ("link", 9),
    ("inbox", 5),
    ("turn", 10),
    ("sent", 6),
    ("fan", 4),
    ("roots", 5),
    ("tokens", 9),
];
/// What a column that takes the remaining width has of it before others grow.
const REMAINING_MIN: u16 = 60;
/// The width from which the columns behind the nearest limit are shown.
const ALL_COLUMNS: u16 = 130;
/// Least rows of the selected row's detail below the list, if it is shown there.
const BELOW_ROWS_MIN: u16 = 5;

/// Paints the whole screen; returns how much of the content was visible.
pub(crate) fn draw(frame: &mut Frame<'_>, model: &Model) -> Seen {
    let area = frame.area();
    let (asked, has_prompt) = prompt(model, area);
    let rows = asked.as_ref().map_or(1, |line| rows_of(line, area.width));
    let [title, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(rows)]).areas(area);
    frame.render_widget(Paragraph::new(heading(model, title.width)), title);
    let full = !matches!(model.mode, Mode::List | Mode::Help | Mode::StyledLine(Purpose::Filter, _));
    let seen = if model.is_wide() {
        let [left, right] = Layout::horizontal([Constraint::Percentage(55), Constraint::Percentage(45)]).areas(body);
        let seen = list(frame, model, left);
        let beside = full_row(frame, model, right);
        if full { beside } else { Seen { page: seen.page, ..beside } }
    } else if full {
        full_row(frame, model, body)
    } else if model.rows().is_empty() {
        list(frame, model, body)
    } else {
        // The list takes at most half of the screen; the rest shows the selected row.
        let rows = u16::try_from(model.rows().len()).unwrap_or(u16::MAX).saturating_add(1);
        let most = body.height.saturating_sub((body.height / 2).max(BELOW_ROWS_MIN));
        let [above, below] = Layout::vertical([Constraint::Length(rows.min(most)), Constraint::Min(0)]).areas(body);
        let seen = list(frame, model, above);
        Seen { page: seen.page, ..full_row(frame, model, below) }
    };
    if model.mode == Mode::Help {
        help(frame, model, body);
    }
    let line = footing(model, seen, asked);
    frame.render_widget(Paragraph::new(text(model, line)).wrap(Wrap { trim: false }), foot);
    Seen { has_prompt, ..seen }
}

/// Returns a tone as a style; without colors, only by weight.
fn style(model: &Model, tone: Tone) -> Style {
    let color = |color: Color| if model.color { Style::new().fg(color) } else { Style::new() };
    match tone {
        Tone::Plain => Style::new(),
        Tone::Strong => Style::new().add_modifier(Modifier::BOLD),
        Tone::Faint => Style::new().add_modifier(Modifier::DIM),
        Tone::Good => color(Color::Green),
        Tone::Warn => color(Color::Yellow),
        Tone::Bad => color(Color::Red).add_modifier(Modifier::BOLD),
        Tone::Ask => color(Color::Cyan),
        Tone::All => color(Color::Magenta),
    }
}

fn text(model: &Model, line: StyledLine) -> Text<'static> {
    let span = |(tone, text): (Tone, String)| Span::styled(text, style(model, tone));
    line.into_iter().map(span).collect()
}

fn heading(model: &Model, columns: u16) -> Text<'static> {
    let lists = &model.lists;
    let counts = [model.waiting(), lists.conversations.len(), lists.agents.len()];
    let mut line = vec![(Tone::Strong, "lastword ".to_owned())];
    for (i, (tab, count)) in Tab::ALL.into_iter().zip(counts).enumerate() {
        let more = if tab == Tab::Conversations && lists.more_conversations { "+" } else { "" };
        let label = format!(" {} {} {count}{more} ", i + 1, tab.title());
        let waits = tab == Tab::Inbox && count > 0;
        line.push((if waits { Tone::Bad } else { Tone::Plain }, label));
    }
    let width = |line: &StyledLine| line.iter().map(|(_, text)| text.chars().count()).sum::<usize>();
    line.extend(sums(model));
    let address = format!("live {}", model.url.trim_start_matches("http://"));
    let fits = width(&line) + address.chars().count() < usize::from(columns);
    let link = match &model.link {
        ServerConnection::Connecting => (Tone::Faint, "connecting …".to_owned()),
        ServerConnection::Live => (Tone::Good, if fits { address } else { "live".to_owned() }),
        ServerConnection::Lost(_) => (Tone::Bad, "reconnecting …".to_owned()),
    };
    let room = usize::from(columns).saturating_sub(width(&line) + link.1.chars().count());
    line.push((Tone::Plain, " ".repeat(room.max(1))));
    line.push(link);
    let mut painted = text(model, cut(line, columns.into()));
    if let Some(span) = painted.spans.get_mut(model.tab as usize + 1) {
        span.style = span.style.add_modifier(Modifier::REVERSED);
    }
    painted
}

/// Returns how many of the conversations ended without their result, and what all agents cost today.
fn sums(model: &Model) -> StyledLine {
    let is_bad = |outcome| matches!(outcome, Outcome::Failed | Outcome::TimedOut);
    let failed = model.lists.conversations.iter().filter(|one| one.ended().is_some_and(is_bad)).count();
    let cost = model.lists.agents.iter().map(|agent| agent.cost_today_microusd).sum();
    let mut sums = StyledLine::new();
    if failed > 0 {
        sums.push((Tone::Bad, format!(" {failed} failed")));
    }
    if cost > 0 {
        sums.push((Tone::Plain, format!(" {} today", money(cost))));
    }
    sums
}

fn list(frame: &mut Frame<'_>, model: &Model, area: Rect) -> Seen {
    let seen = Seen { page: area.height.saturating_sub(1), ..Seen::default() };
    let rows = model.rows();
    if rows.is_empty() {
        frame.render_widget(Paragraph::new(text(model, nothing(model))).wrap(Wrap { trim: true }), area);
        return seen;
    }
    let columns = fitting(model.tab, area.width);
    let columns = &grown(columns, area.width);
    let widths =
        columns.iter().map(|(_, width)| if *width == 0 { Constraint::Min(4) } else { Constraint::Length(*width) });
    let head = Row::new(columns.iter().map(|(name, _)| Span::styled(*name, style(model, Tone::Faint))));
    let painted = rows.iter().map(|item| row(model, item, columns));
    let table = Table::new(painted, widths)
        .header(head)
        .column_spacing(1)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(Some(model.index(&rows)));
    frame.render_stateful_widget(table, area, &mut state);
    seen
}

/// Returns the columns of a tab that fit next to each other.
fn fitting(tab: Tab, width: u16) -> &'static [(&'static str, u16)] {
    let all: &[(&str, u16)] = match tab {
        Tab::Inbox => &INBOX,
        Tab::Conversations => &CONVERSATIONS,
        Tab::Agents => &AGENTS,
    };
    let mut used = 0;
    let fit = all.iter().take_while(|(_, columns)| {
        used += columns.max(&1) + 1;
        used <= width + 1
    });
    let count = fit.count().max(1);
    // Names and subjects are worth more than the last columns.
    let most = if tab == Tab::Conversations && width < ALL_COLUMNS { 6 } else { all.len() };
    &all[..count.min(most)]
}

/// Shares the width that is left over among the columns that can use it.
fn grown(columns: &[(&'static str, u16)], width: u16) -> Vec<(&'static str, u16)> {
    let used: u16 = columns.iter().map(|(_, columns)| columns + 1).sum();
    let growing = columns.iter().filter(|(name, _)| GROWING.contains(name)).count();
    let left = (width + 1).saturating_sub(used);
    // A column that takes the remaining width has most of it.
    let remaining = columns.iter().any(|(_, width)| *width == 0);
    let left = if remaining { left.saturating_sub(REMAINING_MIN) / 3 } else { left };
    let each = left.checked_div(u16::try_from(growing).unwrap_or(u16::MAX)).unwrap_or_default();
    columns.iter().map(|(name, width)| (*name, if GROWING.contains(name) { width + each } else { *width })).collect()
}

fn row(model: &Model, item: &Item<'_>, columns: &[(&str, u16)]) -> Row<'static> {
    let cells = item.cells(model.now_ms).into_iter().zip(columns);
    let painted = cells.map(|((words, tone), (_, width))| {
        // `…` marks a cell that doesn't fit.
        let columns = if *width == 0 { usize::MAX } else { (*width).into() };
        text(model, cut(vec![(tone, words)], columns))
    });
    Row::new(painted.collect::<Vec<_>>())
}

/// Returns the text for an empty list.
fn nothing(model: &Model) -> StyledLine {
    let words = match (&model.link, model.tab) {
        (ServerConnection::Connecting, _) => "connecting …".to_owned(),
        _ if !model.filter.is_empty() => {
            format!("no row matches {:?}; Esc clears the filter", escape_line(&model.filter))
        }
        (ServerConnection::Live | ServerConnection::Lost(_), Tab::Inbox) => {
            "no pending decisions: no held call, no question, no hold".to_owned()
        }
        (ServerConnection::Live | ServerConnection::Lost(_), Tab::Conversations) => {
            "no conversations yet: `lastword ask` starts one".to_owned()
        }
        (ServerConnection::Live | ServerConnection::Lost(_), Tab::Agents) => {
            "no agent is registered: `lastword agent add NAME`".to_owned()
        }
    };
    vec![(Tone::Faint, words)]
}

fn full_row(frame: &mut Frame<'_>, model: &Model, area: Rect) -> Seen {
    let borders = match model.mode {
        _ if model.is_wide() => Borders::LEFT,
        Mode::List | Mode::Help | Mode::StyledLine(Purpose::Filter, _) => Borders::TOP,
        Mode::Detail | Mode::StyledLine(..) | Mode::Confirm(..) => Borders::NONE,
    };
    let block = Block::new().borders(borders).border_style(style(model, Tone::Faint));
    let inner = block.inner(area);
    // Lines of a tree begin with its rail, which wrapping would break.
    let is_tree = matches!(model.current(), Some(Item::Conversation(..)));
    let in_tree = |line: &StyledLine| {
        is_tree && matches!(line.first(), Some((Tone::Faint, rail)) if rail.contains(['├', '└', '│']))
    };
    let fit = |line: StyledLine| if in_tree(&line) { cut(line, inner.width.into()) } else { line };
    let lines: Vec<Text<'_>> = detail::lines(model).into_iter().map(|line| text(model, fit(line))).collect();
    // Long lines wrap: every character of a call must be readable before it is approved.
    let paragraph = Paragraph::new(lines).wrap(Wrap { trim: false });
    let total = u16::try_from(paragraph.line_count(inner.width));
    let has_end = total.is_ok() && !inner.is_empty();
    let scroll_max = total.unwrap_or(u16::MAX).saturating_sub(inner.height);
    frame.render_widget(block, area);
    frame.render_widget(paragraph.scroll((model.scroll.min(scroll_max), 0)), inner);
    Seen { page: inner.height, scroll_max, has_end, ..Seen::default() }
}

fn help(frame: &mut Frame<'_>, model: &Model, body: Rect) {
    let rows = u16::try_from(HELP.lines().count()).unwrap_or(0) + 2;
    let columns = u16::try_from(HELP.lines().map(|line| line.chars().count()).max().unwrap_or(0)).unwrap_or(0) + 4;
    let (width, height) = (columns.min(body.width), rows.min(body.height));
    let area = Rect::new(body.x + (body.width - width) / 2, body.y + (body.height - height) / 2, width, height);
    let block = Block::bordered().title(" keys ").border_style(style(model, Tone::Faint));
    let lines: Vec<Text<'_>> = HELP.lines().map(|line| Text::raw(format!(" {line}"))).collect();
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
    use lastword_facts::status::Running;

    use super::super::samples::{painted, text, typed};
    use super::super::{press, samples};
    use super::*;

    /// Compares with a golden file; `UPDATE=1` rewrites the file.
    fn check(name: &str, now: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/top").join(name);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, now).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), now, "{name}: look at it, then UPDATE=1");
    }

    #[test]
    fn the_pictures_are_those_in_the_files() {
        for (name, keys) in [
            ("inbox", ""),
            ("approval", "\n"),
            ("approve", "a"),
            ("reject", "rnot on a Friday"),
            ("question", "j\n"),
            ("lift", "jL"),
            ("latch", "jj\n"),
            ("conversations", "2"),
            ("conversation", "2\n"),
            ("stop", "2s"),
            ("agents", "3"),
            ("filter", "2/old"),
            ("nothing", "/zebra\n"),
            ("help", "?"),
        ] {
            let mut pictures = String::new();
            for (columns, rows) in [(80, 24), (200, 30)] {
                let mut model = samples::model();
                typed(&mut model, keys);
                let buffer = painted(&mut model, columns, rows);
                pictures.push_str(&format!("{columns}x{rows}\n{}\n\n", text(&buffer)));
            }
            check(&format!("{name}.txt"), &pictures);
        }
    }

    #[test]
    fn it_says_that_it_is_reconnecting_and_goes_on_showing_what_was() {
        let mut model = samples::model();
        model.link = ServerConnection::Lost("no answer from http://127.0.0.1:7171".into());
        check("reconnecting.txt", &format!("{}\n", text(&painted(&mut model, 80, 12))));
    }

    #[test]
    fn without_colours_nothing_has_a_colour() {
        let colours = |model: &mut Model| {
            let buffer = painted(model, 80, 24);
            buffer.content.iter().filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset).count()
        };
        assert!(colours(&mut samples::model()) > 0);
        assert_eq!(colours(&mut Model { color: false, ..samples::model() }), 0);
    }

    #[test]
    fn every_size_of_a_terminal_can_be_painted() {
        for keys in ["", "2", "3", "a", "?", "2\n", "rx"] {
            for (columns, rows) in [(1, 1), (2, 3), (10, 4), (40, 10), (139, 24), (140, 5), (400, 120)] {
                let mut model = samples::model();
                typed(&mut model, keys);
                painted(&mut model, columns, rows);
            }
        }
    }

    #[test]
    fn nothing_that_others_wrote_steers_the_terminal() {
        for keys in ["", "\n", "2", "2\n"] {
            let mut model = samples::model();
            typed(&mut model, keys);
            let shown = text(&painted(&mut model, 200, 40));
            assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown}");
        }
        let mut model = samples::model();
        typed(&mut model, "\n");
        assert!(text(&painted(&mut model, 80, 24)).contains("\\u202e"), "it is shown as JSON has it");
    }

    #[test]
    fn conversations_are_folded_into_their_parents_and_names_use_the_width_with_subject_and_money() {
        let mut model = samples::model();
        model.turn_to(Tab::Conversations);
        let mut first = model.lists.conversations[0].clone();
        (first.reference, first.subject) = ("A-LONG-NAME-OF-A-WORK-ITEM".into(), "Sell more".into());
        first.cost_microusd = 1_250_000;
        let mut child = first.clone();
        (child.reference, child.parent_ref) = (format!("{}/1", first.reference), Some(first.reference.clone()));
        let mut grandchild = child.clone();
        (grandchild.reference, grandchild.parent_ref) =
            (format!("{}/1", child.reference), Some(child.reference.clone()));
        model.lists.conversations = vec![grandchild, child, first];
        let folded = text(&painted(&mut model, 200, 20));
        let row = folded.lines().nth(2).unwrap_or_default();
        assert!(row.contains("A-LONG-NAME-OF-A-WORK-ITEM +2") && row.contains("Sell more"), "{folded}");
        assert!(row.contains("$3.75"), "its own cost and that of those folded into it: {folded}");
        assert!(!folded.contains("WORK-ITEM/1"), "{folded}");
        typed(&mut model, "f");
        assert!(text(&painted(&mut model, 200, 20)).contains("WORK-ITEM/1"));
    }

    #[test]
    fn a_hold_by_money_is_told_in_dollars_in_its_row_and_in_full() {
        let mut model = samples::model();
        let held = &mut model.lists.incidents[0];
        (held.is_cost, held.limit, held.current) = (true, 6_000_000, 7_500_000);
        typed(&mut model, "jj");
        let shown = text(&painted(&mut model, 120, 24));
        assert!(shown.contains("budget $7.50/$6.00") && shown.contains("$7.50 of $6.00"), "{shown}");
    }

    #[test]
    fn an_agent_whose_day_budget_is_used_up_says_so_unless_a_human_holds_it() {
        let mut model = samples::model();
        model.turn_to(Tab::Agents);
        assert!(!text(&painted(&mut model, 120, 24)).contains("budget"));
        model.lists.agents[0].rests_until = Some("2026-02-01T00:00:00Z".into());
        let painted_text = text(&painted(&mut model, 120, 24));
        assert!(painted_text.lines().any(|row| row.contains("coder") && row.contains("budget")), "{painted_text}");
        press(&mut model, KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE));
        let detail = text(&painted(&mut model, 120, 24));
        assert!(detail.contains("budget used up, works again 2026-02-01T00:00:00Z"), "{detail}");
        model.lists.agents[0].state = Running::Stopped;
        assert!(!text(&painted(&mut model, 120, 24)).contains("budget"));
    }
}
