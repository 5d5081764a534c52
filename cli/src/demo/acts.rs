//! The acts: each is an incident that users of such systems reported, started here and watched to its end.

use std::time::{Duration, Instant};

use lastword_client::{Client, SendTerms};
use lastword_facts::AnswerStatus;
use lastword_wire::{ConversationView, DecideApproval, NewRoom};
use serde_json::json;

use super::cast::request;
use super::stage::{Mode, Stage};
use crate::failure::Failure;

/// Posts of each bot in the third act; with its warnings fewer than the refusals after which a sender isn't judged
/// (G2).
pub(crate) const POSTS: usize = 25;
/// Longest time of an act.
const ACT_MAX: Duration = Duration::from_secs(20);

/// One act of the demo.
pub(crate) struct Act {
    /// The prefix of its REFs, which the agents' scripts recognize.
    pub(crate) id: &'static str,
    /// The incident in a few words.
    pub(crate) title: &'static str,
    /// The recipient of the human's message; several agents for a room.
    first: &'static [&'static str],
    /// The code or rule that must end the act when the guards are in force.
    pub(crate) expected: &'static str,
}

/// All acts, in order.
pub(crate) const ACTS: &[Act] = &[
    act("I01", "a question becomes work, its report more work", &["lead"], "depth_cap"),
    act("I03", "a warning is warned back", &["kilo", "hive"], "turns_soft"),
    act("I08", "a triangle: A asks B asks C asks A", &["coder"], "cycle"),
    act("I11", "\"Ready.\" \"Acknowledged.\" \"Thank you.\"", &["kilo"], "depth_cap"),
    act("I12", "a \"new\" conversation on the same topic", &["lead"], "ref_conflict"),
    act("I13", "the answer reaches a session that asks again", &[], "depth_cap"),
    act("I14", "five workers answer in prose", &["lead"], "F2"),
    act("I21", "the human says stop", &["lead"], "stopped"),
    act("I23", "an agent approves its own call", &["coder"], "approver_not_allowed"),
];

const fn act(id: &'static str, title: &'static str, first: &'static [&'static str], expected: &'static str) -> Act {
    Act { id, title, first, expected }
}

/// The end of an act.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub(crate) struct Ended {
    /// The number of admitted messages.
    pub(crate) messages: u64,
    /// The tokens that the agents reported.
    pub(crate) tokens: u64,
    /// The code or rule that ended it.
    pub(crate) by: String,
}

/// Plays an act on a stage to its end.
pub(crate) async fn play(act: &Act, stage: &Stage) -> Result<Ended, Failure> {
    let reference = format!("{}-1", act.id);
    let human = &stage.human;
    match act.id {
        "I03" => return room(act, stage).await,
        "I13" => {
            let kilo = stage.as_agent("kilo")?;
            kilo.send(&request(&json!("hive"), Some(reference.clone()), "A question."), &SendTerms::default()).await?;
        }
        _ => {
            let begin = request(&json!(act.first[0]), Some(reference.clone()), act.title);
            human.send(&begin, &SendTerms::default()).await?;
        }
    }
    let by = match act.id {
        "I21" => stop(human, &reference).await?,
        "I23" => approve(human, &reference).await?,
        _ => String::new(),
    };
    let view =
        until(human, &reference, |view| view.grant().is_some_and(|grant| !grant.open || grant.latched.is_some()))
            .await?;
    let ended = ended(human, &view, act, stage.mode, by).await?;
    if view.grant().is_some_and(|grant| grant.open) {
        human.stop(lastword_client::Target::Conversation(&reference)).await?;
    }
    Ok(ended)
}

/// Polls the conversation until the condition holds. If no agent answers, no message arrives that it could wait for.
async fn until(
    human: &Client,
    reference: &str,
    wished: impl Fn(&ConversationView) -> bool,
) -> Result<ConversationView, Failure> {
    let begin = clock();
    loop {
        let view = human.conversation(reference).await?;
        if wished(&view) {
            return Ok(view);
        }
        if begin.elapsed() > ACT_MAX {
            return Err(Failure::unavailable(format!("{reference} did not end within {} s", ACT_MAX.as_secs())));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[expect(clippy::disallowed_methods, reason = "the demo's own time limit; the broker doesn't see it")]
fn clock() -> Instant {
    Instant::now()
}

async fn ended(human: &Client, view: &ConversationView, act: &Act, mode: Mode, by: String) -> Result<Ended, Failure> {
    let used = |name: &str| {
        let limits = view.grant().into_iter().flat_map(|grant| &grant.limits);
        limits.into_iter().find(|limit| limit.name == name).map_or(0, |limit| limit.current)
    };
    let latch = human.incidents().await?.items.into_iter().rev().find(|i| i.lifted_at.is_none());
    let latched = view.grant().is_some_and(|grant| grant.latched.is_some());
    let by = match latch.filter(|_| latched) {
        Some(incident) => incident.code.to_string(),
        None if by.is_empty() => cause(human, act, mode).await?,
        None => by,
    };
    Ok(Ended { messages: used("grant_messages_max"), tokens: used("grant_tokens_max"), by })
}

/// Returns the refusal that ended the act, as the agents received it; for the act of the prose, whether all answers
/// came.
async fn cause(human: &Client, act: &Act, mode: Mode) -> Result<String, Failure> {
    if act.id == "I14" {
        let said = human
            .messages(&lastword_client::MessageQuery { reference: Some(format!("{}-1", act.id)), ..Default::default() })
            .await?;
        let all = said.items.iter().any(|m| m.body.contains("5 of 5") && m.status == Some(AnswerStatus::Completed));
        return Ok(if all { "F2".into() } else { "answers lost".into() });
    }
    if mode == Mode::Observe {
        return Ok("nothing".into());
    }
    let mut events = human.events(Some(0)).await?;
    let mut last = None;
    let patience = Duration::from_millis(500);
    while let Ok(Ok(Some(event))) = tokio::time::timeout(patience, events.next()).await {
        let named = |name: &str| event.data.get(name).and_then(|value| value.as_str());
        if event.kind == "refused" && named("ref").is_some_and(|r| r.starts_with(act.id)) {
            last = named("code").map(str::to_owned);
        }
    }
    Ok(last.unwrap_or_else(|| "nothing".into()))
}

/// Lets two bots post to a room, each as often as it likes.
async fn room(act: &Act, stage: &Stage) -> Result<Ended, Failure> {
    let human = &stage.human;
    let room = format!("{}-room", act.id);
    let members = act.first.iter().map(|name| (*name).to_owned()).collect();
    human.open_room(&NewRoom { name: room.clone(), members, key: None }).await?;
    let mut tokens = 0;
    for (n, first) in act.first.iter().enumerate() {
        let reference = format!("{}-{}", act.id, n + 1);
        human.send(&request(&json!(first), Some(reference), act.title), &SendTerms::default()).await?;
    }
    for n in 1..=act.first.len() {
        let view = until(human, &format!("{}-{n}", act.id), |v| v.grant().is_some_and(|g| !g.open)).await?;
        let limits = view.grant().into_iter().flat_map(|grant| &grant.limits);
        tokens += limits.into_iter().find(|l| l.name == "grant_tokens_max").map_or(0, |l| l.current);
    }
    let rooms = human.rooms().await?;
    let posted = rooms.items.iter().find(|r| r.name == room).map_or(0, |r| r.messages);
    let by = if posted >= (POSTS * act.first.len()) as u64 { "nothing" } else { act.expected };
    Ok(Ended { messages: posted, tokens, by: by.into() })
}

/// Stops the conversation while the worker works, and checks that nothing follows.
async fn stop(human: &Client, reference: &str) -> Result<String, Failure> {
    until(human, reference, |view| {
        view.grant().is_some_and(|g| g.limits.iter().any(|l| l.name == "grant_turns_max" && l.current >= 2))
    })
    .await?;
    human.stop(lastword_client::Target::Conversation(reference)).await?;
    let after = until(human, reference, |view| view.grant().is_some_and(|g| !g.open)).await?;
    let messages = after.summary.counters.messages;
    let later = human.conversation(reference).await?.summary.counters.messages;
    Ok(if later == messages { "stopped".into() } else { "not stopped".into() })
}

/// Decides the held call as a human, after the agent has tried to.
async fn approve(human: &Client, reference: &str) -> Result<String, Failure> {
    until(human, reference, |view| view.grant().is_some_and(|g| g.open)).await?;
    let begin = clock();
    let held = loop {
        let approvals = human.approvals().await?;
        let waiting = human.conversation(reference).await?;
        let waits =
            waiting.grant().is_some_and(|g| g.limits.iter().any(|l| l.name == "grant_tokens_max" && l.current > 0));
        let found = approvals.items.into_iter().find(|a| a.reference.as_deref() == Some(reference));
        // Tokens are reported at a turn's end, so by now the agent has tried to decide and waits.
        if let Some(held) = found.filter(|_| waits) {
            break held;
        }
        if begin.elapsed() > ACT_MAX {
            return Err(Failure::unavailable("no call was held"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let by_itself = held.by.is_some();
    let verdict = DecideApproval {
        decision: lastword_facts::fact::Decision::Approve,
        comment: None,
        input: None,
        digest: Some(held.digest),
    };
    if by_itself || human.decide(&held.id, &verdict).await.is_err() {
        return Ok("approved by itself".into());
    }
    until(human, reference, |view| view.grant().is_some_and(|g| !g.open)).await?;
    let used = human.approval(&held.id, None).await?;
    Ok(if used.state == lastword_facts::status::ApprovalState::Used {
        "approver_not_allowed".into()
    } else {
        "not used".into()
    })
}
