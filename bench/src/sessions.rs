//! The same operations over sessions: the server in its own process, the clients in this one, loopback between them.

use std::sync::{Arc, Mutex, PoisonError};

use lastword_client::{Pushed, Pushes, Replied, Session, Token};
use lastword_facts::names::SYSTEM_NAME;
use lastword_wire::session::{PushedDelivery, SessionCall, Watch, WatchDeliveries};
use lastword_wire::{Finish, NewAgent};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::failure::Failure;
use crate::load::{Load, Measured, drive};
use crate::program::Served;
use crate::systems::Work;

/// The connections of a load: half of them ask, half of them serve.
const CONNECTIONS: usize = 8;
/// How long an answer may take.
pub(crate) const WAIT: &str = "20s";

/// The sessions of a load.
struct Team {
    asking: Vec<Session>,
    /// The names of those that serve, and the tasks that serve for them.
    serving: Vec<String>,
    _tasks: JoinSet<Result<(), Failure>>,
}

/// Measures an operation over sessions, with at most [`CONNECTIONS`] of them.
pub(crate) async fn measure(served: &Served, work: Work, load: Load) -> Result<Measured, Failure> {
    let waiting = WaitingWorkers::of(load);
    let team = Team::open(served, work, load, &waiting).await?;
    let body = "x".repeat(load.body);
    let mut sent = 0_u64;
    drive(load, |worker| {
        sent += 1;
        let (session, to) = (&team.asking[worker % team.asking.len()], &team.serving[worker % team.serving.len()]);
        let reference = format!("{worker}-{}-{sent}", work.word());
        let (body, waiting) = (&body, &waiting);
        async move {
            match work {
                Work::Message => {
                    let read = waiting.enter(worker);
                    send(session, &Outgoing { kind: "info", to, reference, body }, None).await?;
                    read.await.map_err(Failure::bug)
                }
                Work::Exchange => {
                    let request = Outgoing { kind: "request", to, reference, body };
                    let replied = send(session, &request, Some(WAIT)).await?;
                    let answered = replied.contains(r#""response":{"#);
                    answered.then_some(()).ok_or_else(|| Failure::bug(format!("no answer: {replied}")))
                }
            }
        }
    })
    .await
}

impl Team {
    async fn open(served: &Served, work: Work, load: Load, waiting: &WaitingWorkers) -> Result<Self, Failure> {
        let pairs = load.in_flight.clamp(1, CONNECTIONS / 2);
        let kind = if work == Work::Message { "human" } else { "agent" };
        let (mut asking, mut serving, mut tasks) = (Vec::new(), Vec::new(), JoinSet::new());
        let known = served.human.agents().await?.items.len();
        for pair in 0..pairs {
            let name = format!("session-{known}-{pair}");
            let new: NewAgent = serde_json::from_value(json!({ "name": name, "kind": kind })).map_err(Failure::bug)?;
            let token = Token::new(&served.human.register(&new).await?.token)?;
            let (session, pushes) = Session::open(served.human.endpoint(), &token).await?;
            session.watch(&Watch { deliveries: Some(WatchDeliveries::default()), events: None }).await?;
            match work {
                Work::Message => tasks.spawn(read_all(session, pushes, waiting.clone())),
                Work::Exchange => tasks.spawn(answer_all(session, pushes, "y".repeat(load.body))),
            };
            serving.push(name);
            asking.push(Session::open(served.human.endpoint(), &Token::new(&served.token)?).await?.0);
        }
        Ok(Self { asking, serving, _tasks: tasks })
    }
}

/// A message as a program writes it.
#[derive(Serialize)]
struct Outgoing<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    to: &'a str,
    #[serde(rename = "ref")]
    reference: String,
    body: &'a str,
}

async fn send(session: &Session, envelope: &Outgoing<'_>, wait: Option<&str>) -> Result<String, Failure> {
    checked(submit(session, envelope, wait, None).await?)
}

/// Sends a message, within a turn if its token is given.
pub(crate) async fn submit(
    session: &Session,
    envelope: &impl Serialize,
    wait: Option<&str>,
    turn: Option<&str>,
) -> Result<Replied, Failure> {
    let body = to_raw_value(envelope).map_err(Failure::bug)?;
    let mut query = Map::from_iter([("return".to_owned(), Value::from("minimal"))]);
    query.extend(wait.map(|wait| ("wait".to_owned(), Value::from(wait))));
    let turn = turn.map(Into::into);
    Ok(session
        .call(SessionCall { call: "send".into(), query, turn, body: Some(&body), ..SessionCall::default() })
        .await?)
}

pub(crate) async fn call(session: &Session, call: SessionCall<'_>) -> Result<String, Failure> {
    checked(session.call(call).await?)
}

/// Returns the result of a call; a refusal is a failure.
pub(crate) fn checked(replied: Replied) -> Result<String, Failure> {
    if replied.status < 400 { Ok(replied.json) } else { Err(Failure::bug(replied.json)) }
}

/// Reads as a human: takes what is there, acknowledges it as a whole, and tells the senders.
async fn read_all(session: Session, mut pushes: Pushes, waiting: WaitingWorkers) -> Result<(), Failure> {
    while let Some(first) = pushes.next().await {
        let mut all = vec![first];
        while let Some(more) = pushes.ready() {
            all.push(more);
        }
        let deliveries: Vec<Box<PushedDelivery>> = all.into_iter().filter_map(delivery).collect();
        let Some(last) = deliveries.last() else { continue };
        session.acknowledge(last.cursor).await?;
        for pushed in &deliveries {
            let worker = pushed.delivery.message.reference.split('-').next().and_then(|worker| worker.parse().ok());
            let woken = worker.and_then(|worker| waiting.wake(worker));
            woken.ok_or_else(|| Failure::bug("a message arrived that no worker waits for"))?;
        }
    }
    Ok(())
}

pub(crate) fn delivery(pushed: Pushed) -> Option<Box<PushedDelivery>> {
    match pushed {
        Pushed::Delivery(pushed) if pushed.delivery.message.from != SYSTEM_NAME => Some(pushed),
        Pushed::Delivery(_) | Pushed::Ended(_) | Pushed::Event(_) => None,
    }
}

/// Answers each request, as many at a time as there are.
async fn answer_all(session: Session, mut pushes: Pushes, body: String) -> Result<(), Failure> {
    let finish = to_raw_value(&Finish { answer: body, ..Finish::default() }).map_err(Failure::bug)?;
    let finish: Arc<RawValue> = finish.into();
    let mut answering = JoinSet::new();
    while let Some(pushed) = pushes.next().await {
        let Some(pushed) = delivery(pushed) else { continue };
        let Some(turn) = pushed.delivery.turn else { continue };
        let (session, finish) = (session.clone(), Arc::clone(&finish));
        answering.spawn(async move {
            let path = Some(turn.id.as_str().into());
            call(&session, SessionCall { call: "finish".into(), path, body: Some(&finish), ..SessionCall::default() })
                .await
        });
        while let Some(answered) = answering.try_join_next() {
            answered.map_err(Failure::bug)??;
        }
    }
    Ok(())
}

/// The workers that wait for the acknowledgement of their message, by number.
#[derive(Clone, Debug)]
pub(crate) struct WaitingWorkers(Arc<Mutex<Vec<Option<oneshot::Sender<()>>>>>);

impl WaitingWorkers {
    pub(crate) fn of(load: Load) -> Self {
        Self(Arc::new(Mutex::new((0..load.in_flight).map(|_| None).collect())))
    }

    fn place(&self, worker: usize, sender: Option<oneshot::Sender<()>>) -> Option<oneshot::Sender<()>> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places.get_mut(worker).and_then(|place| std::mem::replace(place, sender))
    }

    /// Registers a worker as waiting.
    pub(crate) fn enter(&self, worker: usize) -> oneshot::Receiver<()> {
        let (done, wait) = oneshot::channel();
        self.place(worker, Some(done));
        wait
    }

    /// Wakes a worker; `None` if it doesn't wait.
    pub(crate) fn wake(&self, worker: usize) -> Option<()> {
        self.place(worker, None)?.send(()).ok()
    }
}
