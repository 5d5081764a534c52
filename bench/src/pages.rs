//! Measures the console's pages on a large workspace: the time to the first byte of each, and its size.

use std::path::Path;

use lastword_core::Input;
use lastword_core::input::Finish;
use lastword_facts::envelope::{Address, Draft};
use lastword_facts::fact::Spend;
use lastword_facts::ids::TurnId;
use lastword_facts::names::{AgentName, Ref};
use lastword_facts::{Limits, MessageType};
use lastword_server::{Config, OPERATOR, Server};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::aged::{Growing, TEAM, member, team};
use crate::clock::now;
use crate::failure::Failure;
use crate::load::Times;
use crate::program::{Program, Served};
use crate::standing::Figure;

/// Messages of an ordinary conversation: a human's request, nine of the agent's own, and their answers.
const ORDINARY: usize = 20;
/// Requests that an agent sends for one request of a human.
const CHILDREN: usize = 9;
/// Requests of humans in the long conversation; with their children 200.
const LONG_ROOTS: usize = 20;
/// Notes in the turn of each request of the long conversation: with requests and answers 3,000 messages.
const LONG_NOTES: usize = 130;
/// Measured loads of each page, after one that isn't.
const LOADS: usize = 9;
/// The long conversation.
const LONG: &str = "LONG-1";
/// The pages, `{}` for the number of an ordinary conversation.
const PAGES: [&str; 22] = [
    "/",
    "/inbox",
    "/conversations",
    "/conversations?q=word7",
    "/conversations?state=active",
    "/conversations/PAGE-4000",
    "/conversations/LONG-1",
    "/conversations/LONG-1?view=waterfall",
    "/conversations/LONG-1?view=timeline",
    "/conversations/LONG-1?view=graph",
    "/conversations/LONG-1?view=log",
    "/agents",
    "/agents/member-0",
    "/graph",
    "/spend",
    "/spend?over=7d",
    "/rooms",
    "/schedules",
    "/incidents",
    "/limits",
    "/overview",
    "/palette?q=word7",
];

/// Fills a workspace with `messages` messages in `conversations` conversations, the long one included, and measures the
/// pages.
pub(crate) async fn pages(
    program: &Program,
    dir: &Path,
    conversations: usize,
    messages: usize,
    progress: impl Fn(u64),
) -> Result<Vec<Figure>, Failure> {
    let data = dir.join("pages");
    let server = Server::start(Config::local(&data)).await?;
    team(&server).await?;
    server.shutdown().await;
    let filled = fill(&data, conversations, messages, progress)?;
    // Builds the read model.
    Server::start(Config::local(&data)).await?.shutdown().await;
    let served = program.serve(&data, messages).await?;
    let cookie = sign_in(&served).await?;
    let what = format!("messages in {} conversations", conversations + 1);
    let mut figures = vec![Figure::new(what, filled as f64, "")];
    for path in PAGES {
        load(&served, path, &cookie).await?;
        let mut times = Times::default();
        let mut bytes = 0;
        for _ in 0..LOADS {
            let (time, size) = load(&served, path, &cookie).await?;
            times.push(time);
            bytes = size;
        }
        figures.push(Figure::new(format!("{path}, first byte p50"), times.at(50), "ms"));
        figures.push(Figure::new(format!("{path}, slowest of {LOADS}"), times.at(100), "ms"));
        figures.push(Figure::new(format!("{path}, compressed"), bytes as f64 / 1e3, "kB"));
    }
    served.end().await?;
    Ok(figures)
}

fn fill(data: &Path, conversations: usize, messages: usize, progress: impl Fn(u64)) -> Result<usize, Failure> {
    let mut growing = Growing::open(data)?;
    growing.step = 1;
    growing.give(Input::Configure(Box::new(limits())))?;
    let long = LONG_ROOTS * (2 * (CHILDREN + 1) + LONG_NOTES);
    let each = messages.saturating_sub(long) / conversations.max(1);
    for n in 0..conversations {
        let mut left = each.max(1);
        while left > 0 {
            family(&mut growing, &format!("PAGE-{n}"), n, 0)?;
            left = left.saturating_sub(ORDINARY);
        }
        growing.append()?;
        progress(n as u64);
    }
    for n in 0..LONG_ROOTS {
        family(&mut growing, LONG, n, LONG_NOTES)?;
    }
    growing.append()?;
    Ok(growing.messages)
}

/// Returns limits that the filled log keeps, whatever its shape.
fn limits() -> Limits {
    const MANY: u64 = 1_000_000;
    let mut limits = Limits {
        task_requests_max: 64,
        grant_messages_max: 9_000,
        grant_turns_max: MANY,
        grant_tokens_max: MANY * 1_000,
        agent_day_tokens_max: 0,
        pair_messages_max: MANY,
        sender_messages_max: MANY,
        fan_out_targets_max: MANY,
        turns_soft_max: MANY,
        turns_hard_max: MANY,
        inbox_max: MANY,
        ..Limits::default()
    };
    limits.observed.observe("no_progress");
    limits.agent_day_tokens_max = MANY * 1_000_000;
    limits
}

/// Adds a human's request, and those that its agent sends to others, each with its answer.
fn family(growing: &mut Growing, reference: &str, n: usize, notes: usize) -> Result<(), Failure> {
    let lead = n % TEAM;
    let text = |what: &str| format!("{what} of {reference}, part {n}: word{} and word{}", n % 997, n * 31 % 499);
    let mut root = Draft::new(MessageType::Request, name(&member(lead))?, text("The work").as_str());
    root.reference = Ref::new(reference).ok();
    growing.give(Input::Send(growing.human, Box::new(root)))?;
    let turn = take(growing, lead)?.ok_or_else(|| Failure::bug("the lead has no work"))?;
    for child in 1..=CHILDREN {
        let to = (lead + child) % TEAM;
        let mut draft = Draft::new(MessageType::Request, name(&member(to))?, text(&format!("Step {child}")).as_str());
        draft.turn = Some(turn);
        growing.give(Input::Send(growing.team[lead], Box::new(draft)))?;
    }
    for note in 0..notes {
        let to = if note == 0 { OPERATOR.to_owned() } else { member((lead + 1 + note % CHILDREN) % TEAM) };
        let mut draft = Draft::new(MessageType::Info, name(&to)?, text(&format!("Note {note}")).as_str());
        draft.turn = Some(turn);
        growing.give(Input::Send(growing.team[lead], Box::new(draft)))?;
    }
    growing.give(Input::Finish(growing.team[lead], Some(turn), Box::default()))?;
    for child in 1..=CHILDREN {
        let of = (lead + child) % TEAM;
        let turn = take(growing, of)?;
        finish(growing, of, turn, &text(&format!("Step {child} is done")))?;
    }
    while let Some(turn) = take(growing, lead)? {
        finish(growing, lead, Some(turn), &text("Everything is done"))?;
    }
    Ok(())
}

fn name(name: &str) -> Result<Address, Failure> {
    AgentName::new(name).map(Address::Name).map_err(Failure::bug)
}

/// Takes an agent's next delivery; returns its turn.
fn take(growing: &mut Growing, agent: usize) -> Result<Option<TurnId>, Failure> {
    let principal = growing.team[agent];
    growing.give(Input::Take(principal, None))?;
    let state = growing.core.state();
    Ok(state.agent(principal.agent()).and_then(|agent| agent.turns.first().copied()))
}

fn finish(growing: &mut Growing, agent: usize, turn: Option<TurnId>, answer: &str) -> Result<(), Failure> {
    let spend = Some(Spend { tokens: 1_200, cost_microusd: 900 });
    growing.give(Input::Finish(
        growing.team[agent],
        turn,
        Box::new(Finish { body: answer.into(), spend, ..Finish::default() }),
    ))
}

/// Signs the operator in; returns the session's cookie.
async fn sign_in(served: &Served) -> Result<String, Failure> {
    let body = format!("token={}", served.token);
    let request = format!(
        "POST /sign-in HTTP/1.1\r\nhost: {}\r\ncontent-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        served.addr,
        body.len()
    );
    let (_, answer) = exchange(served, &request).await?;
    let answer = String::from_utf8_lossy(&answer);
    let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")?.split(';').next());
    cookie.map(str::to_owned).ok_or_else(|| Failure::bug("signing in returned no cookie"))
}

/// Loads a page as a browser does; returns the time to the first byte, and the bytes of the body.
async fn load(served: &Served, path: &str, cookie: &str) -> Result<(std::time::Duration, usize), Failure> {
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: {}\r\ncookie: {cookie}\r\naccept-encoding: gzip\r\nconnection: close\r\n\r\n",
        served.addr
    );
    let (time, answer) = exchange(served, &request).await?;
    if !answer.starts_with(b"HTTP/1.1 200 ") {
        let line = answer.split(|byte| *byte == b'\r').next().unwrap_or_default();
        return Err(Failure::bug(format!("{path}: {}", String::from_utf8_lossy(line))));
    }
    let head = answer.windows(4).position(|at| at == b"\r\n\r\n").unwrap_or_default();
    Ok((time, answer.len() - head - 4))
}

async fn exchange(served: &Served, request: &str) -> Result<(std::time::Duration, Vec<u8>), Failure> {
    let mut socket = TcpStream::connect(&served.addr).await?;
    let begin = now();
    socket.write_all(request.as_bytes()).await?;
    let mut answer = vec![0; 1];
    socket.read_exact(&mut answer).await?;
    let time = begin.elapsed();
    socket.read_to_end(&mut answer).await?;
    Ok((time, answer))
}
