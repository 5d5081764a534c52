//! The cost of one input in the core, with 1,000 and with 100,000 open conversations, and the cost of the header.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a bench that can't be set up has nothing to measure"
)]

use std::time::{Duration, Instant};

use criterion::{Criterion, SamplingMode, criterion_group, criterion_main};
use lastword_core::input::Registration;
use lastword_core::{Core, Input, Out, Principal};
use lastword_facts::envelope::{Address, Draft};
use lastword_facts::fact::{Kind, Profile};
use lastword_facts::ids::Time;
use lastword_facts::limits::Limits;
use lastword_facts::names::{AgentName, Ref};
use lastword_facts::stall::{Reading, Stall};
use lastword_facts::{Fact, MessageType, header};

/// The allocator that the program uses.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const AGENTS: u64 = 10_000;
fn credential(n: u64) -> [u8; 32] {
    let mut hash = [7; 32];
    hash[..8].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    hash
}

/// Returns a core with `agents` agents and the given number of open conversations, each with a queued request.
fn crowd(agents: u64, conversations: u64) -> (Core, Vec<Principal>, Time) {
    let mut core = Core::default();
    let mut out = Out::default();
    let limits = Limits { agents_max: 1_000_000, inbox_max: 1_000_000, unattended_ms: 0, ..Limits::default() };
    let mut now = Time(1);
    core.handle(now, Input::Configure(Box::new(limits)), &mut out);
    let profile = Profile { actions: Vec::new(), groups: Vec::new(), turns_max: 0 };
    let mut principals = Vec::new();
    for n in 0..=agents {
        let name = AgentName::new(&format!("agent-{n}")).unwrap();
        let kind = if n == 0 { Kind::Human } else { Kind::Agent };
        let registration = Registration {
            name,
            kind,
            profile: profile.clone(),
            credential: credential(n),
            role: None,
            display_name: None,
            key: None,
        };
        let input = if n == 0 { Input::Bootstrap(registration) } else { Input::Register(principals[0], registration) };
        core.handle(now, input, &mut out);
        principals.push(core.state().prove(&credential(n)).unwrap());
    }
    for n in 0..conversations {
        now = now.plus(1);
        let sender = principals[(n % agents) as usize + 1];
        // Another delegate each time; otherwise the request would continue the same conversation.
        let delegate = (n + 1 + n / agents) % agents + 1;
        core.handle(now, Input::Send(sender, root(n, delegate)), &mut out);
        if n % 1_000 == 0 {
            // An agent may start ten roots an hour.
            now = now.plus(3_600_000 * 1_000 / agents.max(1));
            out.clear();
        }
    }
    out.clear();
    (core, principals, now)
}

fn root(n: u64, to: u64) -> Box<Draft> {
    let to = Address::Name(AgentName::new(&format!("agent-{to}")).unwrap());
    let mut draft = Draft::new(MessageType::Request, to, &"x".repeat(400));
    draft.reference = Ref::new(&format!("WORK-{n}")).ok();
    // As the edges do on their own threads.
    draft.reading = Some(Box::new(Reading::of(&draft.body, None)));
    Box::new(draft)
}

/// Sends `count` requests that each start a root, and times each one. Returns the median times `count`.
fn send(mut core: Core, principals: &[Principal], mut now: Time, count: u64) -> Duration {
    let mut took = Vec::new();
    let mut out = Out::default();
    let numbers: Vec<u64> = (1..=count).collect();
    // As many in a row as a broker judges before it writes.
    for batch in numbers.chunks(128) {
        let next = |n: &u64| {
            now = now.plus(4_000);
            let sender = n * 7_919 % AGENTS;
            // Another recipient each time, one that the sender has not asked yet.
            let to = (sender + 100 + n / AGENTS) % AGENTS + 1;
            (now, principals[sender as usize + 1], root(1_000_000 + n, to))
        };
        let sends: Vec<_> = batch.iter().map(next).collect();
        for (now, sender, draft) in sends {
            let begin = Instant::now();
            core.handle(now, Input::Send(sender, draft), &mut out);
            took.push(begin.elapsed());
        }
        let accepted = out.entries.iter().filter(|entry| matches!(entry.fact, Fact::Accepted { .. })).count();
        assert_eq!(accepted, batch.len(), "a refusal costs something else: {:?}", out.effects);
        out.clear();
    }
    took.sort_unstable();
    took[took.len() / 2] * u32::try_from(count).unwrap()
}

/// Sends requests within a turn, each to another delegate: a child conversation and a task in an open grant.
fn delegate(mut core: Core, principals: &[Principal], mut now: Time, count: u64) -> Duration {
    const EACH: u64 = 12;
    let mut took = Vec::new();
    let mut out = Out::default();
    for n in 0..count.div_ceil(EACH) {
        let agent = n * 7_919 % AGENTS;
        now = now.plus(60_000);
        core.handle(now, Input::Send(principals[0], root(2_000_000 + n, agent + 1)), &mut out);
        // Earlier requests in its queue are taken and finished first.
        let me = principals[agent as usize + 1];
        let opened = loop {
            core.handle(now, Input::Take(me, None), &mut out);
            let turn = core.state().turns.iter().next_back().map(|(id, _)| id).unwrap();
            let task = core.state().turns[&turn].task;
            let conv = core.state().tasks[&task].conv;
            if core.state().ref_of(conv).unwrap().as_str() == format!("WORK-{}", 2_000_000 + n) {
                break turn;
            }
            core.handle(now, Input::Finish(me, Some(turn), Box::default()), &mut out);
        };
        for k in 0..EACH.min(count - n * EACH) {
            now = now.plus(4_000);
            let to = (agent + 500 + 13 * k) % AGENTS + 1;
            let mut draft = root(0, to);
            draft.reference = None;
            out.clear();
            let begin = Instant::now();
            core.handle(now, Input::Send(me, draft), &mut out);
            took.push(begin.elapsed());
            let accepted = out.entries.iter().any(|entry| matches!(entry.fact, Fact::Accepted { .. }));
            assert!(accepted, "a refusal costs something else: {:?}", out.effects);
        }
        core.handle(now, Input::Finish(me, Some(opened), Box::default()), &mut out);
    }
    took.sort_unstable();
    took[took.len() / 2] * u32::try_from(count).unwrap()
}

fn sends(c: &mut Criterion) {
    type Kind = fn(Core, &[Principal], Time, u64) -> Duration;
    let kinds: [(&str, Kind); 2] = [("send", send), ("send within a turn", delegate)];
    for (name, kind) in kinds {
        let mut group = c.benchmark_group(name);
        // Each sample starts from the same state.
        group.sample_size(20).sampling_mode(SamplingMode::Flat).measurement_time(Duration::from_secs(4));
        for conversations in [1_000, 100_000] {
            let (core, principals, now) = crowd(AGENTS, conversations);
            let open = core.state().conversations.len();
            group.bench_function(format!("{open} open conversations"), |b| {
                b.iter_custom(|count| kind(core.clone(), &principals, now, count));
            });
        }
        group.finish();
    }
}

fn headers(c: &mut Criterion) {
    let text = "[FROM:kilo][TO:hive][TYPE:REQUEST][REF:EDGA-1450][DEPTH:0] please look";
    let (parsed, _) = header::parse(text).unwrap();
    c.bench_function("header parse", |b| b.iter(|| header::parse(std::hint::black_box(text))));
    c.bench_function("header print", |b| b.iter(|| std::hint::black_box(&parsed).to_string()));
}

/// Returns a text of about `chars` characters in English, code or Chinese; another one for each `n`.
fn text(kind: &str, chars: usize, n: usize) -> String {
    let mut text = String::new();
    let mut k = n * 7_919;
    while text.chars().count() < chars {
        k += 1;
        match kind {
            "English" => text.push_str(&format!("{} ", ["the", "build", "failed", "because", "word"][k % 5])),
            "code" if text.is_empty() => text.push_str("```rust\n"),
            "code" => text.push_str(&format!("    let value_{} = call(argument, {});\n", k % 997, k % 31)),
            _ => text.extend((0..20).filter_map(|i| char::from_u32(0x4e00 + ((k * 31 + i * 977) % 8_000) as u32))),
        }
        if kind == "English" && k.is_multiple_of(3) {
            text.push_str(&format!("word{} ", k % 1_999));
        }
    }
    text
}

/// The cost of R5: reading a text, which the edges do, and judging what was read, which the judge's thread does.
fn exchanges(c: &mut Criterion) {
    let mut group = c.benchmark_group("no progress");
    for kind in ["English", "code", "Chinese"] {
        for chars in [400, 8_000] {
            let texts: Vec<String> = (0..16).map(|n| text(kind, chars, n)).collect();
            let mut next = (0..texts.len()).cycle();
            group.bench_function(format!("read {chars} characters of {kind}"), |b| {
                b.iter(|| Reading::of(&texts[next.next().unwrap()], None));
            });
            let readings: Vec<Reading> = texts.iter().map(|text| Reading::of(text, None)).collect();
            let mut next = (0..readings.len()).cycle();
            let mut stall = Stall::default();
            group.bench_function(format!("judge {chars} characters of {kind}"), |b| {
                b.iter(|| {
                    let n = next.next().unwrap();
                    stall.message(n as u32 % 2, Some(1 - n as u32 % 2), &readings[n])
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, sends, headers, exchanges);
criterion_main!(benches);
