//! The read model finds what the log holds, accepts any query, and can be rebuilt.

use std::sync::Arc;

use lastword_facts::envelope::Address;
use lastword_facts::fact::{
    ConversationOpened, EscalationCause, Place, Refused, RootStarted, Spend, TurnClosed, TurnEnd, TurnOpened,
};
use lastword_facts::ids::{AgentId, ConvId, GrantId, RoomId, TaskId, TurnId};
use lastword_facts::names::Ref;
use lastword_facts::{Code, Entry, Fact, MessageType, Refusal, Seq, Time};
use lastword_store::{Cursor, Filter, Index, IndexReader, Log, MemoryLog, PostFilter, RefusalFilter, TurnTokens};

use lastword_store::format::FILE_INDEX;

use crate::sample::{asked, failed, held, message, note, post, refused};

/// Returns entries with times in steps of ten: position n is at 10 n.
fn entries() -> Vec<Entry> {
    vec![
        message(10, 1, 2, 1, "Please review the parser"),
        message(20, 2, 1, 1, "the parser is fine, the lexer's not"),
        post(30, 7, "lunch, or the parser?"),
        message(40, 1, 0, 2, "broadcast: release 4.2.1 tonight"),
        refused(50, 1, Code::PairRate),
        message(60, 3, 2, 3, "écoute Δοκιμή 測試"),
        refused(70, 2, Code::DepthCap),
        message(80, 1, 2, 1, "thanks"),
    ]
}

fn log_of(entries: &[Entry]) -> MemoryLog {
    let mut log = MemoryLog::new();
    let epoch = log.begin_epoch().unwrap();
    let entries: Vec<_> = entries.iter().cloned().map(Arc::new).collect();
    log.append(epoch, Seq(0), &entries).unwrap();
    log
}

fn indexed() -> (tempfile::TempDir, Index) {
    let dir = tempfile::tempdir().unwrap();
    let mut index = Index::open(dir.path()).unwrap();
    index.catch_up(&log_of(&entries()), &mut |_, _| {}).unwrap();
    (dir, index)
}

fn oldest_first() -> Cursor {
    Cursor { ascending: true, limit: 100, ..Cursor::default() }
}

fn found(reader: &IndexReader, filter: Filter) -> Vec<u64> {
    let filter = Filter { cursor: oldest_first(), ..filter };
    reader.messages(&filter).unwrap().into_iter().map(|seq| seq.0).collect()
}

#[test]
fn messages_are_found_by_every_member_of_the_filter_and_their_conjunction() {
    let (_dir, index) = indexed();
    let reader = index.reader();
    let all = Filter::default;
    assert_eq!(found(&reader, all()), [1, 2, 4, 6, 8]);
    assert_eq!(found(&reader, Filter { convs: Some(vec![ConvId(1), ConvId(3)]), ..all() }), [1, 2, 6, 8]);
    assert_eq!(found(&reader, Filter { convs: Some(vec![]), ..all() }), [] as [u64; 0]);
    assert_eq!(found(&reader, Filter { from: Some(AgentId(1)), ..all() }), [1, 4, 8]);
    assert_eq!(found(&reader, Filter { to: Some(AgentId(2)), ..all() }), [1, 6, 8]);
    assert_eq!(found(&reader, Filter { kind: Some(MessageType::Broadcast), ..all() }), [4]);
    assert_eq!(found(&reader, Filter { depth: Some(2), ..all() }), [2, 8]);
    assert_eq!(found(&reader, Filter { since: Some(Time(20)), until: Some(Time(60)), ..all() }), [2, 4, 6]);
    assert_eq!(found(&reader, Filter { since: Some(Time(21)), until: Some(Time(59)), ..all() }), [4]);
    assert_eq!(found(&reader, Filter { since: Some(Time(81)), ..all() }), [] as [u64; 0]);
    assert_eq!(found(&reader, Filter { until: Some(Time(u64::MAX)), ..all() }), [1, 2, 4, 6, 8]);
    let several = Filter { from: Some(AgentId(1)), to: Some(AgentId(2)), text: Some("thanks".into()), ..all() };
    assert_eq!(found(&reader, several), [8]);
}

#[test]
fn words_are_found_in_any_case_and_all_of_them_are_wanted() {
    let (_dir, index) = indexed();
    let reader = index.reader();
    let with = |text: &str| found(&reader, Filter { text: Some(text.into()), ..Filter::default() });
    assert_eq!(with("parser"), [1, 2], "the post with that word is no message");
    assert_eq!(with("LEXER parser"), [2]);
    assert_eq!(with("4.2.1"), [4]);
    assert_eq!(with("ECOUTE"), [6]);
    assert_eq!(with("nowhere"), [] as [u64; 0]);
}

#[test]
fn words_are_found_by_their_first_letters_in_all_that_agents_wrote() {
    let (dir, log) = (tempfile::tempdir().unwrap(), {
        let mut all = entries();
        all.extend([
            held(90, 2, r#"{"command":"echo one\nrollout status","u":"\u0007bell"}"#),
            asked(100, EscalationCause::Asked, "Which rate of tax?"),
            asked(110, EscalationCause::TimedOut, "parsers never came"),
            failed(120, 2, 1, "no", "the registry answers 503"),
        ]);
        log_of(&all)
    });
    let mut index = Index::open(dir.path()).unwrap();
    index.catch_up(&log, &mut |_, _| {}).unwrap();
    let reader = index.reader();
    let with =
        |text: &str| -> Vec<u64> { reader.beginning_with(text, 9).unwrap().into_iter().map(|seq| seq.0).collect() };
    assert_eq!(with("pars"), [3, 2, 1], "the newest first, posts as well, and no sentence of the broker");
    assert_eq!(with("LEX par"), [2]);
    assert_eq!((with("rollo"), with("bell"), with("Bas"), with("nrollout")), (vec![9], vec![9], vec![9], vec![]));
    assert_eq!((with("because"), with("rat ta"), with("regis")), (vec![9], vec![10], vec![12]));
    assert_eq!(reader.beginning_with("pars", 1).unwrap(), [Seq(3)]);
    for text in ["", " ", "\"", "*", "a\"b*", "\0", "OR", "💥"] {
        assert!(reader.beginning_with(text, 9).is_ok(), "{text:?}");
    }
    // The filter knows the reason, and whole words as before.
    let filter = |text: &str| found(&reader, Filter { text: Some(text.into()), ..Filter::default() });
    assert_eq!((filter("registry"), filter("regis")), (vec![12], vec![]));
    // What is no more in the log is not found.
    index.trim(Seq(9)).unwrap();
    assert_eq!(reader.beginning_with("pars", 9).unwrap(), [] as [Seq; 0]);
}

#[test]
fn no_text_that_somebody_types_is_an_error_or_an_operator() {
    let (_dir, index) = indexed();
    let reader = index.reader();
    let hostile = [
        "",
        " ",
        "\"",
        "'",
        "\"\"",
        "a\"b",
        "*",
        "par*",
        "^parser",
        "AND",
        "OR",
        "NOT parser",
        "NEAR(a b)",
        "body:",
        "-x",
        "(",
        ")",
        "()",
        "parser)",
        "{a b}: c",
        "\0",
        "a\0b",
        "%",
        ";DROP TABLE messages",
        "\u{202e}",
        "💥",
        "+",
        "a + b",
        ":",
        "words MATCH 'x'",
        "\\",
        "--",
        "[FROM:kilo]",
    ];
    for text in hostile {
        let filter = Filter { text: Some(text.into()), cursor: oldest_first(), ..Filter::default() };
        let result = reader.messages(&filter);
        assert!(result.is_ok(), "{text:?}: {result:?}");
        let posts = PostFilter { text: Some(text.into()), cursor: oldest_first(), ..PostFilter::default() };
        assert!(reader.posts(&posts).is_ok(), "{text:?}");
    }
    let or = Filter { text: Some("lexer OR thanks".into()), ..Filter::default() };
    assert_eq!(found(&reader, or), [] as [u64; 0], "OR is a word like any other");
}

#[test]
fn posts_and_refusals_are_found() {
    let (_dir, index) = indexed();
    let reader = index.reader();
    let posts = |room, text: Option<&str>| {
        let text = text.map(Into::into);
        reader.posts(&PostFilter { room, text, cursor: oldest_first() }).unwrap()
    };
    assert_eq!(posts(Some(RoomId(7)), Some("parser")), [Seq(3)]);
    assert_eq!(posts(Some(RoomId(8)), None), []);
    let refusals = |filter| reader.refusals(&RefusalFilter { cursor: oldest_first(), ..filter }).unwrap();
    assert_eq!(refusals(RefusalFilter::default()), [Seq(5), Seq(7)]);
    assert_eq!(refusals(RefusalFilter { agent: Some(AgentId(1)), ..RefusalFilter::default() }), [Seq(5)]);
    assert_eq!(refusals(RefusalFilter { code: Some(Code::DepthCap), ..RefusalFilter::default() }), [Seq(7)]);
    assert_eq!(refusals(RefusalFilter { since: Some(Time(60)), ..RefusalFilter::default() }), [Seq(7)]);
}

#[test]
fn the_tokens_of_a_turn_are_found_once_it_has_ended() {
    let (_dir, mut index) = indexed();
    let closed = |turn, tokens| Entry {
        at: Time(100),
        grant: None,
        fact: Fact::TurnClosed(TurnClosed {
            turn: TurnId(turn),
            end: TurnEnd::Finished,
            status: None,
            spend: Spend { tokens, ..Spend::default() },
        }),
    };
    let (first, second) = (closed(1, 700), closed(3, 20));
    let next = index.last().0;
    index.apply(&[(Seq(next + 1), &first), (Seq(next + 2), &second)]).unwrap();
    let turns: Vec<TurnId> = (1..=2_000).map(TurnId).collect();
    let of = |tokens, estimated| TurnTokens { tokens, estimated };
    let spends = [(TurnId(1), of(700, true)), (TurnId(3), of(20, true))];
    assert_eq!(index.reader().spends(&turns).unwrap(), spends);
    assert_eq!(index.reader().spends(&[TurnId(2)]).unwrap(), []);
}

#[test]
fn spending_is_found_by_conversation_and_by_time_and_a_later_report_replaces_the_one_before() {
    let (_dir, mut index) = indexed();
    let grant = Some((GrantId(1), 9));
    let spent = |turn, at, tokens| Entry {
        at: Time(at),
        grant,
        fact: Fact::Spent { turn: TurnId(turn), spend: Spend { tokens, cost_microusd: tokens * 3 } },
    };
    let facts = [spent(1, 200, 10), spent(1, 300, 25), spent(2, 250, 5)];
    let next = index.last().0 + 1;
    let rows: Vec<(Seq, &Entry)> = facts.iter().enumerate().map(|(n, entry)| (Seq(next + n as u64), entry)).collect();
    index.apply(&rows).unwrap();
    let since = |at| index.reader().spent_since(Time(at), 10).unwrap();
    let told: Vec<_> = since(200).iter().map(|one| (one.turn.0, one.at.0, one.tokens, one.cost_microusd)).collect();
    assert_eq!(told, [(1, 300, 25, 75), (2, 250, 5, 15)]);
    assert_eq!(since(200)[0].grant, Some(GrantId(1)));
    assert_eq!(since(251).len(), 1);
    assert_eq!(since(301), []);
    let convs: Vec<ConvId> = (0..50).map(ConvId).collect();
    let sums = index.reader().spent_in(&convs).unwrap();
    let all: u64 = sums.iter().map(|(_, sum)| sum.tokens).sum();
    let placed: u64 = since(0).iter().filter(|one| one.conv.is_some()).map(|one| one.tokens).sum();
    assert_eq!(all, placed);
    assert_eq!(index.reader().first_messages(&convs).unwrap().first().map(|(_, seq)| seq.0 > 0), Some(true));
}

#[test]
fn what_was_said_spent_and_refused_is_added_up() {
    let (_dir, mut index) = indexed();
    let all = index.reader().sums(Time(0)).unwrap();
    assert_eq!(all.messages.all, all.messages.since);
    assert_eq!(all.hours, [(Time(0), all.messages.all)]);
    assert_eq!(all.refused.iter().map(|code| code.count.all).sum::<u64>(), 2);
    let later = index.reader().sums(Time(60)).unwrap();
    let recent: Vec<_> = later.refused.iter().map(|code| (code.code, code.count.since)).collect();
    assert_eq!(recent[0], (Code::DepthCap, 1));
    assert_eq!(recent[1].1, 0);
    assert_eq!(later.refused[0].last, Seq(7));
    assert!(later.messages.since < later.messages.all);
    let day = 86_400_000;
    let heard = |at, place, turns| Entry {
        at: Time(at),
        grant: None,
        fact: Fact::Heard { agent: AgentId(1), place, agent_messages: turns },
    };
    let (conv, room) = (Place::Conversation(ConvId(1)), Place::Room(RoomId(1)));
    let closed = Entry {
        at: Time(day),
        grant: None,
        fact: Fact::TurnClosed(TurnClosed {
            turn: TurnId(9),
            end: TurnEnd::Finished,
            status: None,
            spend: Spend { tokens: 0, cost_microusd: 12 },
        }),
    };
    let observed = Entry {
        at: Time(day),
        grant: None,
        fact: Fact::Observed { agent: AgentId(1), refusal: Refusal::new(Code::Cycle) },
    };
    let (high, low, last) = (heard(day, room, 7), heard(day, conv, 5), heard(2 * day, conv, 6));
    let next = index.last().0;
    let entries = [&high, &low, &closed, &observed, &last];
    let numbered: Vec<_> = (next + 1..).map(Seq).zip(entries).collect();
    index.apply(&numbered).unwrap();
    let turns = |since| {
        let peaks = index.reader().peaks(Time(since)).unwrap();
        peaks.into_iter().find(|peak| peak.name == "turns_hard_max").map(|peak| (peak.value, peak.seq))
    };
    assert_eq!(turns(0), Some((7, Seq(next + 1))));
    assert_eq!(turns(2 * day), Some((6, Seq(next + 5))));
    assert_eq!(turns(3 * day), None);
    let sums = index.reader().sums(Time(day)).unwrap();
    assert_eq!((sums.cost_microusd.all, sums.cost_microusd.since), (12, 12));
    assert_eq!(sums.observed.iter().map(|code| (code.code, code.count.all)).collect::<Vec<_>>(), [(Code::Cycle, 1)]);
}

#[test]
fn a_list_is_paged_in_both_directions_without_gaps() {
    let (_dir, index) = indexed();
    let reader = index.reader();
    for text in [None, Some("the".to_owned())] {
        let page = |cursor| reader.messages(&Filter { text: text.clone(), cursor, ..Filter::default() }).unwrap();
        let all = page(oldest_first());
        let mut paged = Vec::new();
        let mut cursor = Cursor { limit: 1, ascending: true, ..Cursor::default() };
        while let [seq] = page(cursor)[..] {
            paged.push(seq);
            cursor.after = Some(seq);
        }
        assert_eq!(paged, all);
        let newest = page(Cursor { limit: 100, ..Cursor::default() });
        assert!(newest.iter().rev().eq(&all));
        assert_eq!(page(Cursor { limit: 100, before: newest.get(1).copied(), ..Cursor::default() }), newest[2..]);
    }
}

#[test]
fn an_index_that_followed_equals_one_built_anew() {
    let entries: Vec<Entry> = (1..=500).map(note).collect();
    let log = log_of(&entries);
    let [followed, rebuilt] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mut index = Index::open(followed.path()).unwrap();
    let numbered: Vec<_> = (1..).map(Seq).zip(&entries).collect();
    for chunk in numbered.chunks(7) {
        index.apply(chunk).unwrap();
        index.apply(chunk).unwrap();
    }
    let mut heard = Vec::new();
    let anew = Index::reindex(rebuilt.path(), log.reader().as_ref(), &mut |at, of| heard.push((at, of))).unwrap();
    assert_eq!(heard.last(), Some(&(Seq(500), Seq(500))));
    assert_eq!((index.last(), anew.last()), (Seq(500), Seq(500)));
    for filter in [
        Filter::default(),
        Filter { text: Some("number".into()), ..Filter::default() },
        Filter { text: Some("number 77".into()), ..Filter::default() },
        Filter { convs: Some(vec![ConvId(3)]), ..Filter::default() },
    ] {
        let filter = Filter { cursor: Cursor { limit: 1000, ..Cursor::default() }, ..filter };
        let expected = anew.reader().messages(&filter).unwrap();
        assert!(!expected.is_empty());
        assert_eq!(index.reader().messages(&filter).unwrap(), expected);
    }
}

/// Facts between two updates of the lists of agents' messages.
const LISTED: u64 = 32_768;

#[test]
fn the_messages_of_an_agent_are_found_however_many_came_since_they_were_listed() {
    let party = |n: u64| u32::try_from(n % 7 + 1).unwrap();
    let entry = |n: u64| message(n, party(n), party(n / 7), u32::try_from(n / 50 + 1).unwrap(), "");
    let mut log = MemoryLog::new();
    let (epoch, mut last) = (log.begin_epoch().unwrap(), Seq(0));
    let dir = tempfile::tempdir().unwrap();
    let mut index = Index::open(dir.path()).unwrap();
    // Just before, at and after the update; then rebuilt; and at the second update.
    for (end, anew) in
        [(LISTED - 1, false), (LISTED, false), (LISTED + 1, false), (LISTED + 1, true), (2 * LISTED + 7, false)]
    {
        let entries: Vec<_> = (last.0 + 1..=end).map(entry).map(Arc::new).collect();
        last = log.append(epoch, last, &entries).unwrap();
        drop(index);
        index = if anew {
            Index::reindex(dir.path(), log.reader().as_ref(), &mut |_, _| {}).unwrap()
        } else {
            Index::open(dir.path()).unwrap()
        };
        index.catch_up(log.reader().as_ref(), &mut |_, _| {}).unwrap();
        let reader = index.reader();
        for (from, to, since) in [(Some(3), None, None), (None, Some(2), None), (Some(1), Some(5), Some(end - 9_000))] {
            let wanted = |n: &u64| {
                from.is_none_or(|from| party(*n) == from)
                    && to.is_none_or(|to| party(*n / 7) == to)
                    && since.is_none_or(|since| *n >= since)
            };
            let expected: Vec<Seq> = (1..=end).rev().filter(wanted).map(Seq).collect();
            let cursor = Cursor { limit: usize::MAX, ..Cursor::default() };
            let (from, to, since) = (from.map(AgentId), to.map(AgentId), since.map(Time));
            let filter = Filter { from, to, since, cursor, ..Filter::default() };
            assert_eq!(reader.messages(&filter).unwrap(), expected, "{filter:?} of {end}");

            let mut convs: Vec<(ConvId, Seq)> =
                expected.iter().map(|seq| (ConvId(u32::try_from(seq.0 / 50 + 1).unwrap()), *seq)).collect();
            convs.dedup_by_key(|(conv, _)| *conv);
            let before = convs[3].1;
            let page = Filter { cursor: Cursor { before: Some(before), limit: 5, ..cursor }, ..filter };
            assert_eq!(reader.conversations(&page).unwrap(), convs[4..9], "{page:?} of {end}");
        }
    }
}

#[test]
fn an_index_goes_on_where_it_stopped_and_one_of_another_log_is_built_anew() {
    let (dir, index) = indexed();
    drop(index);
    let mut index = Index::open(dir.path()).unwrap();
    assert_eq!(index.last(), Seq(8));
    let shorter = log_of(&[message(10, 5, 6, 1, "another log")]);
    index.catch_up(&shorter, &mut |_, _| {}).unwrap();
    assert_eq!(found(&index.reader(), Filter::default()), [1]);
    assert_eq!(found(&index.reader(), Filter { text: Some("parser".into()), ..Filter::default() }), [] as [u64; 0]);
    assert_eq!(index.reader().last().unwrap(), Seq(1));
}

#[test]
fn a_damaged_or_foreign_index_is_replaced_by_an_empty_one() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(FILE_INDEX), "garbage ".repeat(1000)).unwrap();
    assert_eq!(Index::open(dir.path()).unwrap().last(), Seq(0));
    let (dir, index) = indexed();
    drop(index);
    let db = rusqlite::Connection::open(dir.path().join(FILE_INDEX)).unwrap();
    db.pragma_update(None, "user_version", 99).unwrap();
    drop(db);
    assert_eq!(Index::open(dir.path()).unwrap().last(), Seq(0));
}

#[test]
fn conversations_are_found_by_what_was_said_and_ordered_by_the_last_of_it() {
    let (_dir, index) = indexed();
    let reader = index.reader();
    let found = |filter: Filter, before: Option<u64>, limit: usize| {
        let cursor = Cursor { before: before.map(Seq), limit, ..Cursor::default() };
        let all = reader.conversations(&Filter { cursor, ..filter }).unwrap();
        all.into_iter().map(|(conv, seq)| (conv.0, seq.0)).collect::<Vec<_>>()
    };
    let all = Filter::default;
    assert_eq!(found(all(), None, 9), [(1, 8), (3, 6), (2, 4)]);
    assert_eq!(found(all(), None, 2), [(1, 8), (3, 6)]);
    assert_eq!(found(all(), Some(6), 9), [(2, 4)], "the page behind it, in which nothing comes twice");
    assert_eq!(found(Filter { from: Some(AgentId(1)), ..all() }, None, 9), [(1, 8), (2, 4)]);
    assert_eq!(found(Filter { text: Some("parser".into()), ..all() }, None, 9), [(1, 2)]);
    assert_eq!(found(Filter { convs: Some(vec![ConvId(3)]), ..all() }, None, 9), [(3, 6)]);
}

#[test]
fn a_history_holds_what_belongs_to_its_conversation_and_nothing_else() {
    let (turn, task, conv) = (TurnId(1), TaskId(5), ConvId(2));
    let reference = Ref::new("T-1").unwrap();
    let refusal = |turn: Option<TurnId>, reference: Option<&str>| {
        Fact::Refused(Refused {
            agent: AgentId(1),
            turn,
            kind: MessageType::Request,
            to: Address::All,
            reference: reference.map(|text| Ref::new(text).unwrap()),
            refusal: Refusal::new(Code::DepthCap),
        })
    };
    let opened = Fact::ConversationOpened(ConversationOpened { conv, reference, parent: None, opener: AgentId(1) });
    let started = Fact::RootStarted(RootStarted { task, agent: AgentId(1), conv, grant: GrantId(1), received: None });
    let taken = Fact::TurnOpened(TurnOpened { turn, task, attempt: 1, message: Seq(1), lease_until: Time(9) });
    let facts = [
        opened,
        started,
        taken,
        Fact::Renewed { turn, lease_until: Time(99) },
        refusal(Some(turn), Some("OTHER")),
        refusal(None, Some("T-1")),
        refusal(None, Some("OTHER")),
        refusal(Some(TurnId(8)), None),
    ];
    let mut entries: Vec<Entry> = facts.into_iter().map(|fact| Entry { at: Time(1), grant: None, fact }).collect();
    entries.push(message(1, 1, 2, 2, "in it"));
    entries.push(message(1, 1, 2, 3, "elsewhere"));
    let dir = tempfile::tempdir().unwrap();
    let mut index = Index::open(dir.path()).unwrap();
    index.catch_up(&log_of(&entries), &mut |_, _| {}).unwrap();
    let history = |cursor: Cursor| index.reader().history(&[conv], cursor).unwrap();
    assert_eq!(history(oldest_first()), [1, 2, 3, 5, 6, 9].map(Seq));
    assert_eq!(history(Cursor { limit: 2, ..Cursor::default() }), [9, 6].map(Seq), "the newest first");
    let there = RefusalFilter { convs: Some(vec![conv]), cursor: oldest_first(), ..RefusalFilter::default() };
    assert_eq!(index.reader().refusals(&there).unwrap(), [5, 6].map(Seq), "what was refused in it");
    let log = log_of(&entries);
    drop(index);
    let again = Index::reindex(dir.path(), log.reader().as_ref(), &mut |_, _| {}).unwrap();
    assert_eq!(again.reader().history(&[conv], oldest_first()).unwrap().len(), 6, "it was not listed twice");
}
