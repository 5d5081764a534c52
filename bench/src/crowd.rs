//! Thousands of sessions on one server, among them readers that are slow or stop.
//!
//! Agents in pairs exchange requests: a human asks the first, which asks the second in its turn. Meanwhile readers are sent
//! more than a session's window has room for. In the first half of the measurement they read all of it at once; in the
//! second half some read slowly and some not at all; then they begin new sessions and read the rest. What is lost, comes
//! twice or makes the server's memory grow is a failure.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lastword_client::wire::session::{SessionCall, Watch, WatchDeliveries};
use lastword_client::{Pushes, Session, Token};
use lastword_wire::{Finish, NewAgent};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::failure::Failure;
use crate::load::{Load, Measured, drive};
use crate::program::{Program, Served};
use crate::readers::{Fed, Goal, Got, Pace, Reader, ReaderKind, feed};
use crate::sessions::{WAIT, call, checked, delivery, submit};
use crate::setup::at_once;
use crate::standing::{Figure, files};

/// The human's sessions that ask.
const ASKING: usize = 16;
/// The requests of the human that are open at a time.
const IN_FLIGHT: usize = 64;
/// Among so many agents there is one more reader of each kind and pace, from two on.
const AGENTS_A_READER: usize = 1_000;
/// The messages that all readers are sent in a second.
const FED_A_SECOND: f64 = 2_000.0;
/// The requests that may wait for one agent, in the server of the measurement.
const INBOX_MAX: u64 = 100;
/// The messages in a minute from one agent to another, in the server of the measurement.
const RATE_MAX: u64 = 1_000_000;
/// The messages that each reader which stopped is sent before the second half is measured: a session's window.
const AHEAD: u64 = 256;
/// How much the server's memory may grow while readers have stopped, in MiB, and for each of them.
const GROWTH_MAX: f64 = 16.0;
const EACH_MAX: f64 = 0.5;
/// The time in which readers get the rest.
const REST_MAX: Duration = Duration::from_secs(120);
/// Samples of the server's memory in each half.
const SAMPLES: u32 = 60;
const MIB: f64 = 1024.0 * 1024.0;

/// The size of the measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowd {
    /// Agents in sessions.
    pub(crate) agents: usize,
    /// The duration of each half.
    pub(crate) time: Duration,
    /// Length of the requests and answers of the pairs, in bytes.
    pub(crate) body: usize,
}

/// What the pairs have done.
#[derive(Default)]
struct Counts {
    asked: AtomicU64,
    first: AtomicU64,
    second: AtomicU64,
}

/// A reader, from outside.
struct Seat {
    name: String,
    kind: ReaderKind,
    /// Its pace in the second half.
    later: Pace,
    pace: watch::Sender<Pace>,
    fed: Arc<Fed>,
    reading: JoinSet<Result<Got, Failure>>,
}

/// One half of the measurement.
struct Half {
    exchanged: Measured,
    /// The server's memory in the course of it, in MiB.
    resident: Vec<f64>,
}

impl Half {
    /// Returns the least of one of three parts, from 0: a snapshot takes memory for some seconds.
    fn third(&self, part: usize) -> f64 {
        let third = self.resident.len() / 3;
        self.resident[part * third..][..third].iter().copied().fold(f64::INFINITY, f64::min)
    }
}

impl Crowd {
    /// Runs the measurement.
    pub(crate) async fn run(
        self,
        program: &Program,
        dir: &Path,
        progress: impl Fn(&'static str),
    ) -> Result<Vec<Figure>, Failure> {
        if self.agents < 16 {
            return Err(Failure::usage("sessions are measured with at least 16 agents").hint("name more: --agents"));
        }
        files(self.agents)?;
        progress("agents register");
        // Records are kept for a part of a half, so that the server holds as many as it ever does when it ends.
        let limits = format!(
            "agents_max = {}\ninbox_max = {INBOX_MAX}\nretention_ms = {}\npair_messages_max = {RATE_MAX}\n\
             sender_messages_max = {RATE_MAX}\n",
            self.agents + 1_000,
            (self.time / 8).as_millis()
        );
        let served = program.serve_with(&dir.join("sessions"), &limits).await?;
        let agents = served.agents(self.agents).await?;
        let before = served.resident()? as f64 / MIB;
        progress("sessions begin");
        let mut seats = self.seats(&served, &agents).await?;
        let pairs = &agents[..(self.agents - self.readers() * 2) / 2 * 2];
        let (counts, mut tasks) = (Arc::new(Counts::default()), JoinSet::new());
        self.pair(&served, pairs, &counts, &mut tasks).await?;
        served.attached(self.agents).await?;
        let opened = served.resident()? as f64 / MIB;
        let figures = tokio::select! {
            figures = self.measure(&served, &mut seats, pairs, &counts, &progress) => figures?,
            failure = failed(&mut tasks) => return Err(failure),
        };
        served.end().await?;
        let mut all = vec![Figure::new(
            format!("{} agents in sessions, resident, each", self.agents),
            (opened - before) * 1024.0 / self.agents as f64,
            "KiB",
        )];
        all.extend(figures);
        Ok(all)
    }

    /// Returns how many readers of each kind and pace there are.
    fn readers(&self) -> usize {
        (self.agents / AGENTS_A_READER).max(2)
    }

    /// Opens the sessions of the readers. Those of agents take the last ones.
    async fn seats(&self, served: &Served, agents: &[(String, String)]) -> Result<Vec<Seat>, Failure> {
        let mut agents = agents.iter().rev();
        let mut seats = Vec::new();
        for (what, kind, later, count) in [
            ("slow-agent", ReaderKind::Agent, Pace::Slow, self.readers()),
            ("stopped-agent", ReaderKind::Agent, Pace::Stopped, self.readers()),
            ("slow", ReaderKind::Human, Pace::Slow, self.readers()),
            ("stopped", ReaderKind::Human, Pace::Stopped, self.readers()),
            ("stopped-watcher", ReaderKind::Watcher, Pace::Stopped, 1),
            ("watcher", ReaderKind::Watcher, Pace::Fast, 1),
        ] {
            for n in 0..count {
                let (name, token) = match kind {
                    ReaderKind::Agent => agents.next().cloned().ok_or_else(|| Failure::bug("too few agents"))?,
                    ReaderKind::Human | ReaderKind::Watcher => {
                        let name = format!("{what}-{n}");
                        let new = json!({ "name": name, "kind": "human" });
                        let new: NewAgent = serde_json::from_value(new).map_err(Failure::bug)?;
                        (name, served.human.register(&new).await?.token)
                    }
                };
                let reader = Reader::open(kind, &served.addr, &token).await?;
                let (pace, paces) = watch::channel(Pace::Fast);
                let mut reading = JoinSet::new();
                reading.spawn(reader.run(paces));
                seats.push(Seat { name, kind, later, pace, fed: Arc::default(), reading });
            }
        }
        Ok(seats)
    }

    /// Opens the sessions of the pairs, whose agents serve from now on.
    async fn pair(
        &self,
        served: &Served,
        pairs: &[(String, String)],
        counts: &Arc<Counts>,
        tasks: &mut JoinSet<Result<(), Failure>>,
    ) -> Result<(), Failure> {
        let one = |(_, token): &(String, String)| {
            let token = Token::new(token);
            async move {
                let (session, pushes) = Session::open(served.human.endpoint(), &token?).await?;
                session.watch(&Watch { deliveries: Some(WatchDeliveries::default()), events: None }).await?;
                Ok((session, pushes))
            }
        };
        let sessions = at_once(pairs.iter().map(one)).await?;
        for (n, (session, pushes)) in sessions.into_iter().enumerate() {
            let peer = n.is_multiple_of(2).then(|| pairs[n + 1].0.clone());
            tasks.spawn(serve(session, pushes, peer, Arc::clone(counts)));
        }
        Ok(())
    }

    async fn measure(
        &self,
        served: &Served,
        seats: &mut Vec<Seat>,
        pairs: &[(String, String)],
        counts: &Counts,
        progress: &impl Fn(&'static str),
    ) -> Result<Vec<Figure>, Failure> {
        let operator = Token::new(&served.token)?;
        let (mut asking, mut feeding, (stop, stopped)) = (Vec::new(), JoinSet::new(), watch::channel(false));
        for _ in 0..ASKING {
            asking.push(Session::open(served.human.endpoint(), &operator).await?.0);
        }
        let pause = Duration::from_secs_f64(seats.len() as f64 / FED_A_SECOND);
        for seat in &*seats {
            let (session, _) = Session::open(served.human.endpoint(), &operator).await?;
            feeding.spawn(feed(session, seat.name.clone(), seat.kind, Arc::clone(&seat.fed), pause, stopped.clone()));
        }
        let work = Work { crowd: self, served, asking: &asking, pairs, counts };
        progress("all read");
        let first = work.half(self.time).await?;
        let before: Vec<u64> = seats.iter().map(|seat| seat.fed.sent()).collect();
        for seat in &*seats {
            seat.pace.send_replace(seat.later);
        }
        progress("readers stop");
        while !seats.iter().zip(&before).all(|(seat, before)| seat.is_behind(*before)) {
            alive(seats, &mut feeding)?;
            work.exchange(self.time / 10).await?;
        }
        let (then, refused) = sums(stopping(seats));
        progress("some are slow, some have stopped");
        let second = work.half(self.time).await?;
        let (sent, denied) = sums(stopping(seats));
        let (fed, denied) = (sent - then, denied - refused);
        alive(seats, &mut feeding)?;
        stop.send_replace(true);
        while let Some(fed) = feeding.join_next().await {
            fed.map_err(Failure::bug)??;
        }
        progress("they read the rest");
        let again = rest(seats, served).await?;
        counts.check()?;
        let stopped = stopping(seats).count();
        let mut figures = exchange_figures("all read", &first);
        figures.extend(exchange_figures("some are slow, some have stopped", &second));
        figures.extend([
            Figure::new("exchanges in all, none lost or there twice", counts.asked.load(Ordering::Acquire) as f64, ""),
            Figure::new(
                format!("messages to {} readers, none lost or there twice", seats.len()),
                sums(&*seats).0 as f64,
                "",
            ),
            Figure::new("the same, given again because they weren't acknowledged", again as f64, ""),
            Figure::new(format!("sent to {stopped} readers that had stopped"), fed as f64, ""),
            Figure::new("refused, because as many requests waited as may", denied as f64, ""),
            Figure::new("resident, all read", first.third(2), "MiB"),
            Figure::new("resident, readers have stopped, second third", second.third(1), "MiB"),
            Figure::new("the same, last third", second.third(2), "MiB"),
        ]);
        let (growth, most) = (second.third(2) - second.third(1), GROWTH_MAX + EACH_MAX * stopped as f64);
        if growth > most {
            return Err(Failure::bug(format!(
                "the server's memory grew by {growth:.1} MiB while {stopped} readers had stopped; {most:.1} are allowed"
            )));
        }
        Ok(figures)
    }
}

fn exchange_figures(when: &str, half: &Half) -> Vec<Figure> {
    vec![
        Figure::new(format!("exchanges a second, {when}"), half.exchanged.per_second, ""),
        Figure::new("the same, p50", half.exchanged.p50_ms, "ms"),
        Figure::new("the same, p99", half.exchanged.p99_ms, "ms"),
    ]
}

/// Returns what these readers were sent, and how many requests to them were refused.
fn sums<'a>(seats: impl IntoIterator<Item = &'a Seat>) -> (u64, u64) {
    seats.into_iter().fold((0, 0), |(sent, refused), seat| (sent + seat.fed.sent(), refused + seat.fed.refused()))
}

/// Returns those that stop.
fn stopping(seats: &[Seat]) -> impl Iterator<Item = &Seat> {
    seats.iter().filter(|seat| seat.later == Pace::Stopped)
}

/// Fails if a reader or a feeder has ended.
fn alive(seats: &mut [Seat], feeding: &mut JoinSet<Result<(), Failure>>) -> Result<(), Failure> {
    if let Some(ended) = feeding.try_join_next() {
        ended.map_err(Failure::bug)??;
    }
    for seat in seats {
        if let Some(ended) = seat.reading.try_join_next() {
            ended.map_err(Failure::bug)?.map_err(|failure| failure.of(&seat.name))?;
        }
    }
    Ok(())
}

/// Lets the readers read the rest; returns how many deliveries were given again.
async fn rest(seats: &mut [Seat], served: &Served) -> Result<u64, Failure> {
    let (session, _) = Session::open(served.human.endpoint(), &Token::new(&served.token)?).await?;
    let watcher = seats.last().ok_or_else(|| Failure::bug("no watcher"))?;
    // The last event that the watchers have to see.
    let last = watcher.fed.one(&session, &watcher.name, watcher.kind).await?;
    let until = last.ok_or_else(|| Failure::bug("a human's messages aren't refused"))?;
    for seat in &*seats {
        seat.pace.send_replace(Pace::Rest(Goal { sent: seat.fed.sent(), until }));
    }
    let (mut again, mut seen) = (0, Vec::new());
    let end = tokio::time::Instant::now() + REST_MAX;
    for seat in seats {
        let got = tokio::time::timeout_at(end, seat.reading.join_next()).await;
        let got = got.map_err(|_| Failure::bug(format!("{} did not get all that it was sent", seat.name)))?;
        let got = got.ok_or_else(|| Failure::bug("a reader has no task"))?.map_err(Failure::bug)?;
        let got = got.map_err(|failure| failure.of(&seat.name))?;
        again += got.again;
        if seat.kind == ReaderKind::Watcher {
            seen.push(got.events);
        }
    }
    same_events(&seen, until)?;
    Ok(again)
}

/// Checks that the watchers saw the same events, from the first one of whoever began last.
fn same_events(seen: &[Vec<u64>], until: u64) -> Result<(), Failure> {
    let from = seen.iter().filter_map(|events| events.first()).max().copied().unwrap_or_default();
    let within =
        |events: &[u64]| -> Vec<u64> { events.iter().copied().filter(|seq| (from..=until).contains(seq)).collect() };
    let all: Vec<_> = seen.iter().map(|events| within(events)).collect();
    let same = all.windows(2).all(|two| two[0] == two[1]);
    same.then_some(()).ok_or_else(|| {
        Failure::bug(format!("the watchers saw different events: {:?}", all.iter().map(Vec::len).collect::<Vec<_>>()))
    })
}

/// Waits until one of the agents in pairs fails.
async fn failed(tasks: &mut JoinSet<Result<(), Failure>>) -> Failure {
    match tasks.join_next().await {
        Some(Ok(Err(failure))) => failure,
        Some(Ok(Ok(()))) | None => Failure::unavailable("a session ended"),
        Some(Err(panic)) => Failure::bug(panic),
    }
}

impl Seat {
    /// Returns whether it was sent enough since it stopped: more than may be unacknowledged, or more requests than may wait.
    fn is_behind(&self, before: u64) -> bool {
        match (self.later, self.kind) {
            (Pace::Stopped, ReaderKind::Human | ReaderKind::Watcher) => self.fed.sent() >= before + AHEAD,
            (Pace::Stopped, ReaderKind::Agent) => self.fed.refused() > 0,
            (Pace::Fast | Pace::Slow | Pace::Rest(_), _) => true,
        }
    }
}

/// What the human asks, and whom.
struct Work<'a> {
    crowd: &'a Crowd,
    served: &'a Served,
    asking: &'a [Session],
    pairs: &'a [(String, String)],
    counts: &'a Counts,
}

impl Work<'_> {
    /// Lets the pairs exchange for some time, and watches the server's memory.
    async fn half(&self, time: Duration) -> Result<Half, Failure> {
        let watch = async {
            let mut resident = Vec::new();
            for _ in 0..SAMPLES {
                tokio::time::sleep(time / SAMPLES).await;
                resident.push(self.served.resident()? as f64 / MIB);
            }
            Ok(resident)
        };
        let (exchanged, resident) = tokio::try_join!(self.exchange(time), watch)?;
        Ok(Half { exchanged, resident })
    }

    async fn exchange(&self, time: Duration) -> Result<Measured, Failure> {
        let load = Load { in_flight: IN_FLIGHT.min(self.pairs.len() / 2), time, body: self.crowd.body };
        let body = "x".repeat(load.body);
        drive(load, |_| {
            let n = self.counts.asked.fetch_add(1, Ordering::AcqRel);
            let turn = usize::try_from(n).unwrap_or_default();
            let session = &self.asking[turn % self.asking.len()];
            let to = &self.pairs[turn * 2 % self.pairs.len()].0;
            let envelope = json!({ "type": "request", "to": to, "ref": format!("PAIR-{n}"), "body": body });
            async move {
                let replied = checked(submit(session, &envelope, Some(WAIT), None).await?)?;
                answered(&replied, &format!("first of PAIR-{n}, second of PAIR-{n}"))
            }
        })
        .await
    }
}

/// Checks that the response to a request is this answer.
fn answered(replied: &str, answer: &str) -> Result<(), Failure> {
    let reply: Value = serde_json::from_str(replied).map_err(Failure::bug)?;
    let body = reply["response"]["body"].as_str().unwrap_or_default();
    let right = body == answer;
    right.then_some(()).ok_or_else(|| Failure::bug(format!("{answer:?} was expected instead of {replied}")))
}

/// Serves as an agent of a pair: the first asks the second in its turn. A request that comes twice is a failure.
async fn serve(session: Session, mut pushes: Pushes, peer: Option<String>, counts: Arc<Counts>) -> Result<(), Failure> {
    let mut seen = HashSet::new();
    while let Some(pushed) = pushes.next().await {
        let Some(pushed) = delivery(pushed) else { continue };
        let Some(turn) = pushed.delivery.turn else { continue };
        let reference = pushed.delivery.message.reference;
        if !seen.insert(reference.clone()) {
            return Err(Failure::bug(format!("the request of {reference} came twice")));
        }
        let mut answer = format!("second of {reference}");
        if let Some(peer) = &peer {
            counts.first.fetch_add(1, Ordering::AcqRel);
            let envelope =
                json!({ "type": "request", "to": peer, "ref": reference, "body": pushed.delivery.message.body });
            let replied = checked(submit(&session, &envelope, Some(WAIT), Some(&turn.token)).await?)?;
            answered(&replied, &answer)?;
            answer = format!("first of {reference}, {answer}");
        } else {
            counts.second.fetch_add(1, Ordering::AcqRel);
        }
        let finish = to_raw_value(&Finish { answer, ..Finish::default() }).map_err(Failure::bug)?;
        let path = Some(turn.id.into());
        call(&session, SessionCall { call: "finish".into(), path, body: Some(&finish), ..SessionCall::default() })
            .await?;
    }
    Ok(())
}

impl Counts {
    /// Checks that each request reached both agents of its pair.
    fn check(&self) -> Result<(), Failure> {
        let [asked, first, second] =
            [&self.asked, &self.first, &self.second].map(|count| count.load(Ordering::Acquire));
        let same = asked == first && asked == second;
        same.then_some(()).ok_or_else(|| {
            Failure::bug(format!("of {asked} requests {first} reached the first agent and {second} the second"))
        })
    }
}
