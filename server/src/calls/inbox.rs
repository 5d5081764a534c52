//! The inbox: what a caller takes, at once or once it comes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lastword_broker::clock::Stopwatch;
use lastword_broker::{Claimable, Handle, Live, Parcel, Receiver, Receiving, Subscription};
use lastword_core::input::{self, Consumer};
use lastword_core::state::Task;
use lastword_core::{Input, Reply};
use lastword_facts::fact::Recipient;
use lastword_facts::ids::{AgentId, TurnId};
use lastword_facts::{Entry, Fact, MessageType, Seq};
use lastword_wire::Delivery;

use super::deliveries::{fit, packed};
use super::taking::{Found, Taken, Taking, may_continue, only, taken};
use super::{Caller, Context, fault_of, wait_for};
use crate::error::ApiError;
use crate::views;

/// Takes the next delivery. Waits for one up to `wait`, during which the agent counts as connected.
pub async fn take(ctx: &Context, caller: Caller, consumer: Consumer, wait: Duration) -> Result<Taking, ApiError> {
    let taking = awaited(ctx, caller, consumer, wait).await?;
    if !caller.principal.is_human() {
        ctx.handle.poll(caller.principal.agent());
    }
    Ok(taking)
}

async fn awaited(ctx: &Context, caller: Caller, consumer: Consumer, wait: Duration) -> Result<Taking, ApiError> {
    let stopwatch = Stopwatch::start();
    let mut subscription = Subscription::new(&ctx.handle, caller.principal.agent()).of(caller.client);
    let bell = subscription.bell();
    loop {
        let mut ring = std::pin::pin!(bell.notified());
        // Listen before looking: a message that arrives between the two still rings.
        ring.as_mut().enable();
        // Boxed, so that each of ten thousand waiting callers doesn't reserve the space of this future.
        let claimable = if caller.principal.is_human() {
            if let Some(delivery) = Box::pin(read(ctx, caller)).await? {
                return Ok(Taking::Delivery(Box::new(delivery)));
            }
            Claimable::default()
        } else {
            match Box::pin(take_now(ctx, caller, consumer)).await? {
                Ok((parcel, delivery)) => {
                    parcel.accept();
                    return Ok(Taking::Delivery(Box::new(delivery)));
                }
                Err(claimable) => claimable,
            }
        };
        let left = wait.saturating_sub(stopwatch.elapsed());
        if left.is_zero() {
            return Ok(Taking::Nothing { held: claimable.held });
        }
        // Only a caller that really waits counts as connected (Q2).
        subscription.attach();
        let take = match caller.turn.or_else(|| only(&claimable)) {
            Some(turn) => Input::Take(caller.principal, Some(turn)),
            None => Input::Receive(caller.principal, consumer),
        };
        let mut receiving = (!caller.principal.is_human()).then(|| receiving(ctx, caller, &subscription, take));
        if let Some(receiving) = &receiving {
            receiving.allow(1);
        }
        let woken = async {
            tokio::select! {
                () = ring => {}
                () = arrived(receiving.as_ref()) => {}
            }
        };
        // A turn whose holder shows no sign becomes free during the wait.
        let free_in = claimable.free_at.map(|at| Duration::from_millis(at.since(ctx.handle.now())));
        let woken = wait_for(ctx, woken, free_in.map_or(left, |free_in| left.min(free_in))).await;
        if let Some((parcel, shown)) = receiving.as_mut().and_then(Receiving::take)
            && let Some((parcel, delivery)) = Box::pin(packed(ctx, caller, parcel, shown)).await?
        {
            parcel.accept();
            return Ok(Taking::Delivery(Box::new(delivery)));
        }
        if woken.is_none() && (stopwatch.elapsed() >= wait || *ctx.stopping.borrow()) {
            return Ok(Taking::Nothing { held: claimable.held });
        }
        caller.reauthenticate(&ctx.handle)?;
    }
}

/// Lets the broker take deliveries for the caller as they come, by `input`.
pub(crate) fn receiving(ctx: &Context, caller: Caller, subscription: &Subscription, input: Input) -> Receiving<Taken> {
    Receiving::new(subscription, DeliveryReader { handle: ctx.handle.clone(), caller, input })
}

/// A caller for which the broker takes deliveries.
struct DeliveryReader {
    handle: Handle,
    caller: Caller,
    input: Input,
}

impl Receiver<Taken> for DeliveryReader {
    fn input(&self) -> Option<Input> {
        self.caller.reauthenticate(&self.handle).ok().map(|()| self.input.clone())
    }

    fn put(&self, delivery: input::Delivery, live: &Live<'_>) -> Taken {
        if let Some(open) = delivery.turn {
            live.hold(self.caller.principal.agent(), open.turn, self.caller.client);
        }
        let shown = views::shown(live, &[delivery.message]);
        (self.handle.parcel(self.caller.principal.agent(), delivery), shown)
    }

    fn must_wake(&self, live: &Live<'_>) -> bool {
        let own = live.state.agent(self.caller.principal.agent());
        // A take continues turns itself. A caller that receives has to ask for the answers that join one.
        let receives = matches!(self.input, Input::Receive(..));
        receives && own.is_some_and(|own| own.turns.iter().any(|turn| joins(live, *turn)))
    }
}

/// Waits for a delivery that the broker takes; forever if it takes none.
pub(crate) async fn arrived(receiving: Option<&Receiving<Taken>>) {
    match receiving {
        Some(receiving) => receiving.arrived().await,
        None => std::future::pending().await,
    }
}

/// Returns a human's next answer, alert or question, with the messages before it as notices.
async fn read(ctx: &Context, caller: Caller) -> Result<Option<Delivery>, ApiError> {
    let human = caller.principal.agent();
    let unread = move |live: &Live<'_>| -> Vec<Seq> {
        live.state.agent(human).into_iter().flat_map(|h| h.notices.iter().map(|(seq, _)| *seq)).collect()
    };
    let mut unread = ctx.handle.query(unread).await?;
    // Taken by an earlier call that didn't hand them over, so the state no longer lists them.
    unread.extend(ctx.handle.kept(human));
    let (mut urgent, mut alerts) = (BTreeSet::new(), BTreeMap::new());
    let look = |seq, entry: &Arc<Entry>| {
        alerts.extend(views::alert(&entry.fact).map(|message| (message, seq)));
        if calls_for_attention(&entry.fact) {
            urgent.insert(seq);
        }
    };
    ctx.handle.visit(unread, look).await?;
    let twice = told_twice(ctx, human, alerts).await?;
    let calls = |seq: Seq| urgent.contains(&seq) && !twice.contains(&seq);
    if !urgent.iter().any(|seq| calls(*seq)) {
        return Ok(None);
    }
    // The parcels of earlier messages are kept until then: if the caller disconnects, its next call gets them again.
    let (mut before, mut parcels) = (Vec::new(), Vec::new());
    while let Ok((parcel, mut delivery)) = take_now(ctx, caller, Consumer::InTurns).await? {
        parcels.push(parcel);
        let seq = Seq(delivery.message.seq);
        if calls(seq) {
            delivery.notices = fit(ctx, caller, before);
            parcels.into_iter().for_each(Parcel::accept);
            return Ok(Some(delivery));
        }
        if twice.contains(&seq) {
            continue;
        }
        before.extend(
            views::notices(
                &ctx.handle,
                vec![Seq(delivery.message.seq)],
                views::Reader::with_shell(caller.principal.agent()),
            )
            .await?,
        );
    }
    Ok(None)
}

/// Returns those raised ALERTs, by message, that `human` gets as their recipient, too; one delivery is enough.
async fn told_twice(ctx: &Context, human: AgentId, alerts: BTreeMap<Seq, Seq>) -> Result<BTreeSet<Seq>, ApiError> {
    let mut twice = BTreeSet::new();
    let addressed = |seq, entry: &Arc<Entry>| {
        let Fact::Accepted { message } = &entry.fact else { return };
        let own = matches!(message.to, Recipient::All) || message.to == Recipient::One(human);
        twice.extend(alerts.get(&seq).copied().filter(|_| own));
    };
    ctx.handle.visit(alerts.keys().copied().collect(), addressed).await?;
    Ok(twice)
}

/// STATUS, INFO and BROADCAST wake no recipient, not even a human (E4).
fn calls_for_attention(fact: &Fact) -> bool {
    let Fact::Accepted { message } = fact else { return true };
    match message.kind {
        MessageType::Request | MessageType::Response | MessageType::Alert => true,
        MessageType::Status | MessageType::Info | MessageType::Broadcast => false,
    }
}

/// Takes the next delivery without waiting. If the caller disconnects before it has it, its next call gets it again.
async fn take_now(ctx: &Context, caller: Caller, consumer: Consumer) -> Result<Found<(Parcel, Delivery)>, ApiError> {
    let (parcel, shown) = match unread(ctx, caller).await? {
        Some(parcel) => (parcel, None),
        None => match taken(ctx, caller, consumer).await? {
            Ok(taken) => taken,
            Err(claimable) => return Ok(Err(claimable)),
        },
    };
    if let Some(delivery) = parcel.delivery() {
        // An earlier call of the agent may have left it behind while the broker was giving it.
        ctx.handle.forget_kept(caller.principal.agent(), delivery);
    }
    Ok(packed(ctx, caller, parcel, shown).await?.ok_or_else(Claimable::default))
}

/// Returns a delivery that was not handed over, unless its turn has ended meanwhile.
async fn unread(ctx: &Context, caller: Caller) -> Result<Option<Parcel>, ApiError> {
    let agent = caller.principal.agent();
    while let Some(parcel) = ctx.handle.unread(agent, |turn| may_continue(ctx, caller, turn)) {
        let Some(turn) = parcel.delivery().and_then(|delivery| delivery.turn) else { return Ok(Some(parcel)) };
        let of_open = move |live: &Live<'_>| {
            live.state.turns.get(&turn.turn).filter(|t| t.open)?;
            live.state.tasks.get(&turn.task).map(Task::kept_steps)
        };
        if let Some(steps) = ctx.handle.query(of_open).await? {
            return Ok(Some(parcel.with_steps(steps)));
        }
        // The turn ended meanwhile: its request was settled or delivered again.
        parcel.accept();
    }
    Ok(None)
}

/// What [`receive`] found.
pub(crate) struct Received {
    /// The deliveries, in order. Each is given again unless its parcel is accepted.
    pub(crate) deliveries: Vec<(Parcel, Delivery)>,
    /// What the named turns are ready for.
    pub(crate) turns: SortedTurns,
}

/// Turns, by what the session that works on them has to tell its client. Others are left out.
#[derive(Default)]
pub(crate) struct SortedTurns {
    /// An answer can join them.
    pub(crate) joinable: Vec<TurnId>,
    /// They have ended.
    pub(crate) ended: Vec<TurnId>,
}

/// Takes up to `most` deliveries that open turns, or a human's messages, in one step of the broker. Looks at `turns` for
/// answers to join, too.
pub(crate) async fn receive(
    ctx: &Context,
    caller: Caller,
    turns: Vec<TurnId>,
    most: usize,
) -> Result<Received, ApiError> {
    let mut received = Received { deliveries: Vec::new(), turns: SortedTurns::default() };
    if let Some(parcel) = unread(ctx, caller).await? {
        received.deliveries.extend(packed(ctx, caller, parcel, None).await?);
        return Ok(received);
    }
    // Submitted together, so that one append makes all of them durable.
    let others = (1..most).map(|_| received_one(ctx, caller, Vec::new()));
    let all = std::iter::once(received_one(ctx, caller, turns)).chain(others);
    for one in join_all(all).await {
        match one {
            Ok((taken, turns)) => {
                received.turns.joinable.extend(turns.joinable);
                received.turns.ended.extend(turns.ended);
                if let Some((parcel, shown)) = taken {
                    received.deliveries.extend(packed(ctx, caller, parcel, shown).await?);
                }
            }
            // The fault is dropped: it comes again with the next call, and what was taken before must not be lost.
            Err(_) if !received.deliveries.is_empty() => break,
            Err(fault) => return Err(fault),
        }
    }
    Ok(received)
}

async fn received_one(
    ctx: &Context,
    caller: Caller,
    turns: Vec<TurnId>,
) -> Result<(Option<Taken>, SortedTurns), ApiError> {
    let (handle, agent, client) = (ctx.handle.clone(), caller.principal.agent(), caller.client);
    let then = move |reply: Reply, live: &Live<'_>| match reply {
        Reply::Delivery(delivery) => {
            if let Some(open) = delivery.as_ref().and_then(|delivery| delivery.turn) {
                live.hold(agent, open.turn, client);
            }
            let shown = delivery.as_ref().and_then(|delivery| views::shown(live, &[delivery.message]));
            let taken = delivery.map(|delivery| (handle.parcel(agent, delivery), shown));
            Ok((taken, sorted(live, turns)))
        }
        other => Err(other),
    };
    match ctx.handle.submit_then(Input::Receive(caller.principal, Consumer::InTurns), then).await? {
        Ok(received) => Ok(received),
        Err(other) => Err(fault_of(other)),
    }
}

/// Returns which of these turns have an answer that can join them, and which have ended.
pub(crate) async fn look(ctx: &Context, turns: Vec<TurnId>) -> Result<SortedTurns, ApiError> {
    Ok(ctx.handle.query(move |live: &Live<'_>| sorted(live, turns)).await?)
}

fn sorted(live: &Live<'_>, turns: Vec<TurnId>) -> SortedTurns {
    let is_open = |turn: &TurnId| live.state.turns.get(turn).is_some_and(|turn| turn.open);
    let (mut joinable, ended): (Vec<TurnId>, Vec<TurnId>) = turns.into_iter().partition(is_open);
    joinable.retain(|turn| joins(live, *turn));
    SortedTurns { joinable, ended }
}

/// Returns whether an answer can join this turn.
fn joins(live: &Live<'_>, turn: TurnId) -> bool {
    let task = live.state.turns.get(&turn).and_then(|turn| live.state.tasks.get(&turn.task));
    task.is_some_and(|task| !task.ready.is_empty())
}

/// Takes the next answer that joins this turn.
pub(crate) async fn join(ctx: &Context, caller: Caller, turn: TurnId) -> Result<Option<(Parcel, Delivery)>, ApiError> {
    let caller = caller.in_turn(turn);
    let Ok((parcel, shown)) = taken(ctx, caller, Consumer::InTurns).await? else { return Ok(None) };
    packed(ctx, caller, parcel, shown).await
}

/// Returns the deliveries of the agent's open turns that it doesn't work on, once more.
pub(crate) async fn again_all(
    ctx: &Context,
    caller: Caller,
    working: Vec<TurnId>,
) -> Result<Vec<(Parcel, Delivery)>, ApiError> {
    let (agent, client) = (caller.principal.agent(), caller.client);
    let open = move |live: &Live<'_>| -> Vec<input::Delivery> {
        let turns = live.state.agent(agent).into_iter().flat_map(|own| own.turns.iter());
        // `hold` gives the client each turn that it may continue, also those that it works on.
        let own: Vec<TurnId> = turns.copied().filter(|turn| live.hold(agent, *turn, client)).collect();
        let lost = own.iter().filter(|turn| !working.contains(turn)).filter_map(|&turn| {
            let open = live.state.turns.get(&turn)?;
            let task = live.state.tasks.get(&open.task)?;
            let view = input::OpenTurn {
                turn,
                task: open.task,
                attempt: open.attempt,
                lease_until: open.lease_until,
                grant: task.grant,
                trace: live.state.grants.get(&task.grant).and_then(|grant| grant.trace.as_deref().copied()),
            };
            let steps = task.kept_steps();
            let one =
                |message| input::Delivery { turn: Some(view), message, notices: Vec::new(), steps: steps.clone() };
            Some(open.delivered.iter().map(|ready| ready.message).map(one).collect::<Vec<_>>())
        });
        lost.flatten().collect()
    };
    let (mut all, mut kept) = (Vec::new(), Vec::new());
    for delivery in ctx.handle.query(open).await? {
        // What an earlier session was not handed is kept with its notices.
        let turn = delivery.turn.map(|turn| turn.turn);
        kept.extend(std::iter::from_fn(|| ctx.handle.unread(agent, |of| turn == Some(of))));
        let same = |parcel: &Parcel| parcel.delivery().is_some_and(|kept| kept.message == delivery.message);
        let parcel = match kept.iter().position(same) {
            Some(at) => kept.swap_remove(at).with_steps(delivery.steps),
            None => ctx.handle.parcel(agent, delivery),
        };
        all.extend(packed(ctx, caller, parcel, None).await?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use lastword_core::Principal;
    use lastword_facts::names::Ref;

    use super::*;
    use crate::{Config, Server};

    const IN_TURNS: Consumer = Consumer::InTurns;

    fn question(of: Principal, body: &str) -> Input {
        let question =
            input::Question { body: body.into(), options: Vec::new(), reference: Ref::new("T-1").ok(), key: None };
        Input::Escalate(of, None, question)
    }

    #[tokio::test]
    async fn a_human_gets_everything_again_that_calls_which_were_cut_had_taken() {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::start(Config::local(dir.path())).await.unwrap();
        let ctx = server.context();
        let token = std::fs::read_to_string(server.operator_token_file()).unwrap();
        let human = Caller::prove(&ctx.handle, token.trim(), None).unwrap();
        for body in ["first", "second"] {
            ctx.handle.submit(question(human.principal, body)).await.unwrap();
        }
        let (one, two) = (taken(ctx, human, IN_TURNS).await.unwrap(), taken(ctx, human, IN_TURNS).await.unwrap());
        assert!(one.is_ok() && two.is_ok() && taken(ctx, human, IN_TURNS).await.unwrap().is_err());
        drop((two, one));
        for body in ["first", "second"] {
            let again = take(ctx, human, IN_TURNS, Duration::ZERO).await.unwrap().delivery().unwrap();
            assert!(again.message.body.ends_with(body), "{}", again.message.body);
        }
        assert!(take(ctx, human, IN_TURNS, Duration::ZERO).await.unwrap().delivery().is_none());
        server.shutdown().await;
    }
}
