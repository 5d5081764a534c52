//! What turns spent, by agent and by model, in the read model and before the witness.

use std::fs;

use lastword_facts::fact::{ModelSpend, Requeued, Rerun, Spend, TurnCharged, TurnClosed, TurnEnd, TurnOpened};
use lastword_facts::ids::{AgentId, TaskId, TurnId};
use lastword_facts::names::ModelName;
use lastword_facts::{Entry, Fact, FinishStatus, Seq, Time};
use lastword_store::format::decode;
use lastword_store::{Index, SpentIn};
use lastword_witness::Witness;

use crate::sample::{at, message, post};

const ALL: usize = 1_000;

fn opened(ms: u64, turn: u64, message: u64) -> Entry {
    let (turn, task, message) = (TurnId(turn), TaskId(turn), Seq(message));
    at(ms, Fact::TurnOpened(TurnOpened { turn, task, attempt: 1, message, lease_until: Time(0) }))
}

fn spend(tokens: u64) -> Spend {
    Spend { tokens, cost_microusd: tokens * 3 }
}

fn spent(ms: u64, turn: u64, tokens: u64) -> Entry {
    at(ms, Fact::Spent { turn: TurnId(turn), spend: spend(tokens) })
}

fn charged(ms: u64, turn: u64, tokens: u64, estimated: bool) -> Entry {
    let (turn, status) = (TurnId(turn), FinishStatus::Completed);
    at(ms, Fact::TurnCharged(TurnCharged { turn, status, spend: spend(tokens), estimated, said: 1 }))
}

fn on(ms: u64, turn: u64, models: &[(&str, u64)]) -> Entry {
    let part =
        |(model, tokens): &(&str, u64)| ModelSpend { model: ModelName::new(model).unwrap(), spend: spend(*tokens) };
    let models = models.iter().map(part).collect();
    at(ms, Fact::SpentOn { turn: TurnId(turn), agent: AgentId(2), models })
}

/// Indexes these entries, which begin at position 1, in one transaction.
fn indexed(entries: &[Entry]) -> (tempfile::TempDir, Index) {
    indexed_by(entries.len(), entries)
}

/// Indexes these entries, `step` in a transaction.
fn indexed_by(step: usize, entries: &[Entry]) -> (tempfile::TempDir, Index) {
    let dir = tempfile::tempdir().unwrap();
    let mut index = Index::open(dir.path()).unwrap();
    let rows: Vec<(Seq, &Entry)> = (1..).map(Seq).zip(entries).collect();
    rows.chunks(step).for_each(|rows| index.apply(rows).unwrap());
    (dir, index)
}

#[test]
fn a_turn_keeps_its_agent_when_its_request_is_reassigned_and_after_it_ended() {
    let reassigned = |why, agent| {
        at(5, Fact::Requeued(Requeued { task: TaskId(1), agent: AgentId(agent), why, ack_ms: 1, result: None }))
    };
    let again = at(
        7,
        Fact::TurnOpened(TurnOpened {
            turn: TurnId(2),
            task: TaskId(1),
            attempt: 2,
            message: Seq(1),
            lease_until: Time(0),
        }),
    );
    let lost = at(
        4,
        Fact::TurnClosed(TurnClosed { turn: TurnId(1), end: TurnEnd::Withdrawn, status: None, spend: spend(30) }),
    );
    let entries = [
        message(1, 1, 2, 3, "work"),
        opened(2, 1, 1),
        spent(3, 1, 20),
        lost,
        reassigned(Rerun::Rejected, 5),
        again,
        spent(8, 2, 40),
        charged(9, 2, 50, false),
        message(10, 2, 4, 3, "more"),
        opened(11, 3, 9),
        spent(12, 3, 60),
        spent(13, 4, 70),
    ];
    for step in 1..=entries.len() {
        let (_dir, index) = indexed_by(step, &entries);
        let turns = index.reader().spent_since(Time(0), ALL).unwrap();
        let told = turns.iter().map(|turn| (turn.turn.0, turn.tokens, turn.agent.map(|agent| agent.0)));
        assert_eq!(told.collect::<Vec<_>>(), [(4, 70, None), (3, 60, Some(4)), (2, 50, Some(5)), (1, 30, Some(2))]);
    }
}

#[test]
fn what_a_model_cost_is_what_the_newest_reports_say() {
    let (_dir, mut index) = indexed(&[
        on(10, 1, &[("opus", 60), ("haiku", 10)]),
        spent(10, 1, 70),
        on(20, 2, &[("opus", 5)]),
        charged(20, 2, 8, true),
        on(30, 1, &[("opus", 80)]),
        charged(30, 1, 100, false),
    ]);
    let models = |since, max| -> Vec<(String, SpentIn)> {
        index.reader().spent_on_models(Time(since), max).unwrap().into_values().flatten().collect()
    };
    let opus = |tokens, estimated| ("opus".to_owned(), SpentIn { tokens, cost_microusd: tokens * 3, estimated });
    assert_eq!(models(0, ALL), [opus(85, true)]);
    assert_eq!(models(21, ALL), [opus(80, false)], "only of turns that reported since");
    assert_eq!(models(0, 1), [opus(80, false)], "only of the newest turn");
    assert_eq!(models(31, ALL), []);
    // The log lets go of what is before a message.
    let last = message(40, 1, 2, 3, "later");
    let later = [last, on(50, 3, &[("opus", 2)]), spent(50, 3, 2)];
    let rows: Vec<(Seq, &Entry)> = (7..).map(Seq).zip(&later).collect();
    index.apply(&rows).unwrap();
    index.trim(Seq(7)).unwrap();
    assert_eq!(index.reader().spent_since(Time(0), ALL).unwrap().len(), 1);
    let left = index.reader().spent_on_models(Time(0), ALL).unwrap();
    assert_eq!(left.into_values().flatten().collect::<Vec<_>>(), [opus(2, false)]);
}

#[test]
fn models_that_account_for_more_than_their_turn_are_noticed() {
    let bytes = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/first_edition.log")).unwrap();
    let (mut entries, mut rest) = (Vec::new(), &bytes[..]);
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let (entry, behind) = behind.split_at(u32::from_le_bytes(*length) as usize);
        entries.push(decode(entry).unwrap());
        rest = behind;
    }
    let is_end = |entry: &Entry| matches!(entry.fact, Fact::TurnClosed(_));
    let place = entries.iter().position(is_end).unwrap();
    let Fact::TurnClosed(TurnClosed { turn, spend, .. }) = entries[place].fact else { unreachable!() };
    for (beyond, noticed) in [(0, false), (1, true)] {
        let mut witness = Witness::default();
        entries[..place].iter().for_each(|entry| witness.see(entry));
        let model = ModelName::new("opus").unwrap();
        let part = ModelSpend { model, spend: Spend { tokens: spend.tokens + beyond, ..spend } };
        for fact in [Fact::SpentOn { turn, agent: AgentId(1), models: vec![part] }, Fact::Spent { turn, spend }] {
            witness.see(&Entry { fact, ..entries[place].clone() });
        }
        witness.see(&entries[place]);
        let promises: Vec<_> = witness.broken().iter().map(|broken| broken.promise).collect();
        assert_eq!(promises.contains(&"models account for at most what their turn spent"), noticed, "{promises:?}");
    }
}

#[test]
fn texts_of_one_transaction_are_one_segment_of_the_full_text_index_whatever_is_written_between_them() {
    let (dir, index) = indexed(&[
        post(1, 1, "first"),
        spent(2, 1, 10),
        post(3, 1, "second"),
        spent(4, 2, 10),
        post(5, 1, "third"),
        spent(6, 3, 10),
    ]);
    drop(index);
    let db = rusqlite::Connection::open(dir.path().join("index.db")).unwrap();
    // FTS5 keeps the number of the segment above the lower 37 bits, and its own records below 11.
    let sql = "SELECT count(DISTINCT id >> 37) FROM words_data WHERE id > 10";
    assert_eq!(db.query_row(sql, [], |row| row.get::<_, u32>(0)).unwrap(), 1);
}
