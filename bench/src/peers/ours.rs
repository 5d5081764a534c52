//! The same operations on a Lastword server in process: guarded, and in the log before each reply.

use lastword_core::input::Finish;
use lastword_core::{Input, Principal, Reply};
use lastword_facts::MessageType;
use lastword_facts::envelope::{Address, Draft};
use lastword_facts::names::{AgentName, Ref, RequestId};
use lastword_server::Server;
use lastword_wire::NewAgent;
use serde_json::json;

use super::unused;
use crate::failure::Failure;
use crate::load::{Load, Measured, drive, human, principal, submit};
use crate::systems::Work;

/// The human and the agent of one worker, so that no queue grows long.
#[derive(Clone)]
struct Pair {
    person: AgentName,
    proof: Principal,
    agent: AgentName,
    agent_proof: Principal,
}

pub(super) async fn measure(server: &Server, work: Work, load: Load) -> Result<Measured, Failure> {
    let pairs = pairs(server, work, load).await?;
    let operator = principal(server.handle(), lastword_server::OPERATOR).await?;
    let body = "x".repeat(load.body);
    let mut sent = 0_u64;
    drive(load, |worker| {
        sent += 1;
        let (pair, body, name) = (&pairs[worker], body.clone(), format!("{}-{sent}", pairs[worker].agent));
        async move {
            match work {
                Work::Message => message(server, operator, pair, &name, &body).await,
                Work::Exchange => exchange(server, pair, &name, &body).await,
            }
        }
    })
    .await
}

/// Sends an INFO to a human and takes it as that human: one input delivers and acknowledges it.
async fn message(server: &Server, operator: Principal, pair: &Pair, name: &str, body: &str) -> Result<(), Failure> {
    let mut draft = Draft::new(MessageType::Info, Address::Name(pair.person.clone()), body);
    draft.reference = Ref::new(name).ok();
    submit(server.handle(), Input::Send(operator, Box::new(draft))).await?;
    delivered(&submit(server.handle(), Input::Take(pair.proof, None)).await?)
}

/// Sends a human's request to an agent, which takes and finishes it; the human then takes the answer.
async fn exchange(server: &Server, pair: &Pair, name: &str, body: &str) -> Result<(), Failure> {
    let request = RequestId::new(name).map_err(Failure::bug)?;
    let mut draft = Draft::new(MessageType::Request, Address::Name(pair.agent.clone()), body);
    draft.reference = Ref::new(name).ok();
    draft.request_id = Some(request.clone());
    submit(server.handle(), Input::Send(pair.proof, Box::new(draft))).await?;
    delivered(&submit(server.handle(), Input::Take(pair.agent_proof, None)).await?)?;
    let finish = Finish { body: body.into(), ..Finish::default() };
    submit(server.handle(), Input::Finish(pair.agent_proof, None, Box::new(finish))).await?;
    delivered(&submit(server.handle(), Input::Collect(pair.proof, request)).await?)
}

fn delivered(reply: &Reply) -> Result<(), Failure> {
    if let Reply::Delivery(Some(_)) = reply { Ok(()) } else { Err(Failure::bug(format!("no delivery: {reply:?}"))) }
}

/// Registers a human and an agent for each worker.
async fn pairs(server: &Server, work: Work, load: Load) -> Result<Vec<Pair>, Failure> {
    let client = human(server)?;
    let mut pairs = Vec::new();
    for worker in 0..load.in_flight {
        let mut names = Vec::new();
        for kind in ["human", "agent"] {
            let name = format!("{}-{kind}-{worker}", unused(work, load));
            let new: NewAgent = serde_json::from_value(json!({ "name": name, "kind": kind })).map_err(Failure::bug)?;
            client.register(&new).await?;
            names.push((principal(server.handle(), &name).await?, AgentName::new(&name).map_err(Failure::bug)?));
        }
        let [(proof, person), (agent_proof, agent)] =
            <[_; 2]>::try_from(names).map_err(|_| Failure::bug("two names"))?;
        pairs.push(Pair { person, proof, agent, agent_proof });
    }
    Ok(pairs)
}
