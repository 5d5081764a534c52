//! Defects of the core that campaigns found, each as the short history that shows it.

use lastword_core::input::{Finish, Progress};
use lastword_core::{Input, Reply};
use lastword_facts::MessageType;
use lastword_facts::envelope::{Address, Draft, FinishStatus};
use lastword_facts::fact::{EscalationCause, EscalationOpened, Fact, Spend};
use lastword_facts::ids::AgentId;
use lastword_facts::limits::Limits;
use lastword_facts::names::{Label, Ref};
use lastword_sim::World;

fn request(world: &World, to: AgentId) -> Draft {
    let name = world.core().state().agent(to).and_then(|agent| agent.name.clone()).unwrap();
    Draft::new(MessageType::Request, Address::Name(name), "please")
}

#[test]
fn a_rejected_request_goes_to_another_agent_and_never_to_a_human() {
    let mut world = World::new(&Limits::default(), 1);
    let (human, agent) = (world.human(), world.agents()[0]);
    let draft = Draft { action: Label::new("work").ok(), ..request(&world, agent) };
    world.give(Input::Send(human, Box::new(draft)));
    let by = world.agent(agent).unwrap();
    world.give(Input::Take(by, None));
    // By their profiles, both humans serve the action like the agent.
    let rejects = Finish { status: Some(FinishStatus::Rejected), body: "not mine".into(), ..Finish::default() };
    let reply = world.give(Input::Finish(by, None, Box::new(rejects)));
    assert!(matches!(reply, Some(Reply::Finished { answer: Some(_), open: false })), "{reply:?}");
    assert!(!world.log().iter().any(|entry| matches!(entry.fact, Fact::Requeued(_))));
}

#[test]
fn what_the_broker_tells_humans_of_a_request_that_timed_out_is_nothing_that_its_asker_wrote() {
    let limits = Limits { sender_messages_max: 3, ..Limits::default() };
    let mut world = World::new(&limits, 4);
    let (asker, others) = (world.agents()[0], world.agents()[1..].to_vec());
    let by = world.agent(asker).unwrap();
    let mut asks = |to: AgentId, name: &str| {
        let (reference, timeout_ms) = (Ref::new(name).ok(), Some(1_000));
        let draft = Draft { reference, timeout_ms, ..request(&world, to) };
        let reply = world.give(Input::Send(by, Box::new(draft)));
        world.walk(3_000);
        reply
    };
    asks(others[0], "T-1");
    asks(others[1], "T-2");
    let third = asks(others[2], "T-3");
    assert!(matches!(third, Some(Reply::Sent(_))), "two of three messages were sent: {third:?}");
    let told =
        |fact: &Fact| matches!(fact, Fact::EscalationOpened(EscalationOpened { cause: EscalationCause::TimedOut, .. }));
    assert_eq!(world.log().iter().filter(|entry| told(&entry.fact)).count(), 3, "humans were told of each");
}

#[test]
fn an_agent_that_rests_is_not_sent_to_rest_again_by_what_its_turn_still_spends() {
    let limits = Limits { agent_day_tokens_max: 1_000, ..Limits::default() };
    let mut world = World::new(&limits, 1);
    let (human, agent) = (world.human(), world.agents()[0]);
    world.give(Input::Send(human, Box::new(request(&world, agent))));
    let by = world.agent(agent).unwrap();
    world.give(Input::Take(by, None));
    let spent = |tokens| Some(Spend { tokens, cost_microusd: 0 });
    world.give(Input::Progress(by, None, Progress { spend: spent(2_000), ..Progress::default() }));
    world.give(Input::Progress(by, None, Progress { spend: spent(3_000), ..Progress::default() }));
    world.give(Input::Finish(
        by,
        None,
        Box::new(Finish { body: "done".into(), spend: spent(4_000), ..Finish::default() }),
    ));
    let rests = world.log().iter().filter(|entry| matches!(entry.fact, Fact::AgentRested { until: Some(_), .. }));
    assert_eq!(rests.count(), 1);
}
