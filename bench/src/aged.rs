//! Measures a start on a log that grew over many weeks. Work settled longer ago than the retention is only in the log.

use std::path::Path;
use std::sync::Arc;

use lastword_core::input::Finish;
use lastword_core::{Core, Effect, Input, Out, Principal, Reply};
use lastword_facts::envelope::{Address, Draft};
use lastword_facts::fact::{Part, Terms};
use lastword_facts::names::{AgentName, Ref};
use lastword_facts::{Entry, Fact, MessageType, Seq, Time};
use lastword_server::{Config, OPERATOR, Server};
use lastword_store::{DataDir, Log};
use lastword_wire::NewAgent;
use serde_json::json;

use crate::clock::now;
use crate::failure::Failure;
use crate::load::{self, WORDS};
use crate::program::Program;
use crate::standing::{Figure, ms};

/// Agents of a grown log.
pub(crate) const TEAM: usize = 20;
/// The age of the log in weeks: ten times the default retention.
const WEEKS: u64 = 10;
const WEEK_MS: u64 = 7 * 24 * 3_600_000;
/// Facts of one exchange, approximately; sets the time between two exchanges.
const FACTS_PER_EXCHANGE: u64 = 8;
/// Facts in one append.
const APPEND: usize = 4_096;

/// Measures a start on a log of `facts` facts, with a snapshot and without.
pub(crate) async fn start(
    program: &Program,
    dir: &Path,
    facts: u64,
    progress: impl Fn(u64),
) -> Result<Vec<Figure>, Failure> {
    let data = dir.join("aged");
    let server = Server::start(Config::local(&data)).await?;
    team(&server).await?;
    server.shutdown().await;
    grow(&data, facts, progress)?;
    // Builds the read model; the graceful end saves the snapshot.
    Server::start(Config::local(&data)).await?.shutdown().await;
    let mut figures = Vec::new();
    for what in ["with a snapshot", "without one"] {
        let begin = now();
        let served = program.serve(&data, 0).await?;
        let took = begin.elapsed();
        figures.push(Figure::new(format!("start {what}, {facts} facts of {WEEKS} weeks"), ms(took), "ms"));
        served.end().await?;
        if figures.len() == 1 {
            let snapshots = DataDir::at(&data).open()?.snapshots();
            let (_, state) = snapshots.load()?.ok_or_else(|| Failure::bug("no snapshot was saved"))?;
            figures.push(Figure::new("the snapshot", state.len() as f64 / 1e6, "MB"));
            snapshots.delete()?;
        } else {
            figures.push(Figure::new("the same", facts as f64 / took.as_secs_f64() / 1e6, "M facts/s"));
        }
    }
    Ok(figures)
}

/// Registers the agents of a grown log.
pub(crate) async fn team(server: &Server) -> Result<(), Failure> {
    let human = load::human(server)?;
    for name in (0..TEAM).map(member) {
        let agent: NewAgent = serde_json::from_value(json!({ "name": name })).map_err(Failure::bug)?;
        human.register(&agent).await?;
    }
    Ok(())
}

/// Returns the name of an agent of a grown log.
pub(crate) fn member(n: usize) -> String {
    format!("{}{n}", load::MEMBER)
}

/// Appends to the log from its last moment on: requests of a human, each answered, and each answer read.
fn grow(data: &Path, facts: u64, progress: impl Fn(u64)) -> Result<(), Failure> {
    let mut growing = Growing::open(data)?;
    let step = WEEKS * WEEK_MS * FACTS_PER_EXCHANGE / facts.max(1);
    for n in 0.. {
        if growing.core.state().seq.0 >= facts {
            break;
        }
        growing.at = growing.at.plus(step.max(1));
        growing.exchange(n)?;
        if growing.out.entries.len() >= APPEND {
            growing.append()?;
            progress(growing.behind.0);
        }
    }
    growing.append()
}

/// A log that grows without a server, from its last moment on.
pub(crate) struct Growing {
    /// The core whose facts are appended.
    pub(crate) core: Core,
    log: Box<dyn Log>,
    epoch: u64,
    behind: Seq,
    at: Time,
    /// The time that passes before each input, in ms.
    pub(crate) step: u64,
    /// The messages that were appended.
    pub(crate) messages: usize,
    out: Out,
    /// The first human.
    pub(crate) human: Principal,
    /// The agents.
    pub(crate) team: Vec<Principal>,
}

impl Growing {
    /// Opens the log of a data directory that no server uses.
    pub(crate) fn open(data: &Path) -> Result<Self, Failure> {
        let mut log = DataDir::at(data).open().map_err(Failure::unavailable)?;
        let epoch = log.begin_epoch().map_err(Failure::unavailable)?;
        let mut core = Core::default();
        for (_, entry) in log.reader().read(Seq(1), usize::MAX).map_err(Failure::unavailable)? {
            core.replay(&entry).map_err(Failure::bug)?;
        }
        let state = core.state();
        let proof = |name: &str| {
            let id = state.live(name)?;
            let (credential, _) = state.credentials.iter().find(|(_, agent)| **agent == id)?;
            state.prove(credential)
        };
        let gone = || Failure::bug("an agent of the bench is gone");
        let human = proof(OPERATOR).ok_or_else(gone)?;
        let team: Option<Vec<_>> = (0..TEAM).map(|n| proof(&member(n))).collect();
        let (team, behind, at) = (team.ok_or_else(gone)?, state.seq, state.at);
        Ok(Self { core, log, epoch, behind, at, step: 0, messages: 0, out: Out::default(), human, team })
    }

    fn exchange(&mut self, n: usize) -> Result<(), Failure> {
        let agent = n % TEAM;
        let to = Address::Name(AgentName::new(&member(agent)).map_err(Failure::bug)?);
        let mut draft = Draft::new(MessageType::Request, to, WORDS);
        draft.reference = Ref::new(&format!("AGED-{n}")).ok();
        self.give(Input::Send(self.human, Box::new(draft)))?;
        let Some(Fact::Accepted { message }) = self.out.entries.last().map(|entry| &entry.fact) else {
            return Err(Failure::bug("a request was not accepted"));
        };
        let Part::Request(Terms { request, .. }) = message.part.clone() else {
            return Err(Failure::bug("a request has no id"));
        };
        self.give(Input::Take(self.team[agent], None))?;
        let finish = Finish { body: WORDS.into(), ..Finish::default() };
        self.give(Input::Finish(self.team[agent], None, Box::new(finish)))?;
        self.give(Input::Collect(self.human, request))
    }

    /// Lets the core handle an input; a refusal is an error.
    pub(crate) fn give(&mut self, input: Input) -> Result<(), Failure> {
        self.at = self.at.plus(self.step);
        self.core.handle(self.at, input, &mut self.out);
        let refused = self.out.effects.drain(..).find_map(|effect| match effect {
            Effect::Reply(reply) => {
                if let Reply::Refused { refusal, .. } = *reply {
                    Some(refusal)
                } else {
                    None
                }
            }
            Effect::Wake(_) | Effect::WakeAll => None,
        });
        refused.map_or(Ok(()), |refusal| Err(Failure::refused(refusal)))
    }

    /// Appends the new facts to the log.
    pub(crate) fn append(&mut self) -> Result<(), Failure> {
        let accepted = self.out.entries.iter().filter(|entry| matches!(entry.fact, Fact::Accepted { .. }));
        self.messages += accepted.count();
        let entries: Vec<Arc<Entry>> = self.out.entries.drain(..).map(Arc::new).collect();
        if !entries.is_empty() {
            self.behind = self.log.append(self.epoch, self.behind, &entries).map_err(Failure::unavailable)?;
        }
        Ok(())
    }
}
