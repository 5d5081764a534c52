//! What is pushed to a session: deliveries within a window, and events.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use lastword_broker::{Bell, Parcel, Receiving, Subscription};
use lastword_core::{Input, input};
use lastword_facts::ids::TurnId;
use lastword_facts::{Code, Seq};
use lastword_wire::session::{WINDOW_MAX, Watch, WatchDeliveries, WatchEvents, Watching};
use lastword_wire::{Delivery, FieldError, Scope};
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use super::Push;
use super::dispatch::Desk;
use crate::calls::deliveries::packed;
use crate::calls::inbox::SortedTurns;
use crate::calls::taking::Taken;
use crate::calls::{Caller, Context, ended, inbox};
use crate::edges::http::Feed;
use crate::error::ApiError;

/// The most bytes of unacknowledged deliveries. A longer one is pushed alone.
const WINDOW_BYTES_MAX: usize = 1 << 20;
/// How often the inbox is looked into without a hint, for turns that ended elsewhere.
const RECHECK_EVERY: Duration = Duration::from_secs(30);
/// The most deliveries that are taken at once.
const STEP_MAX: usize = 64;
/// The pause after a refusal, such as of an agent that is stopped.
const REFUSED_PAUSE: Duration = Duration::from_secs(2);

/// The deliveries that were pushed and not acknowledged, and the turns that they opened.
pub(super) struct Window {
    state: Mutex<Unacknowledged>,
    /// Rings when there is more room, or when a turn of the session ended.
    moved: Notify,
}

struct Unacknowledged {
    max: usize,
    cursor: u64,
    bytes: usize,
    waiting: VecDeque<UnacknowledgedDelivery>,
    /// The turns of the session, with the messages that were pushed in each.
    turns: BTreeMap<TurnId, BTreeSet<Seq>>,
    /// The turns that ended while one of their deliveries was being taken or waited to be pushed.
    over: BTreeSet<TurnId>,
    /// Whether the session watches its deliveries.
    watches: bool,
}

struct UnacknowledgedDelivery {
    cursor: u64,
    bytes: usize,
    turn: Option<TurnId>,
    /// Dropped with the session, it makes the broker give the delivery again.
    parcel: Parcel,
}

impl Default for Window {
    fn default() -> Self {
        let state = Unacknowledged {
            max: WINDOW_MAX as usize,
            cursor: 0,
            bytes: 0,
            waiting: VecDeque::new(),
            turns: BTreeMap::new(),
            over: BTreeSet::new(),
            watches: false,
        };
        Self { state: Mutex::new(state), moved: Notify::new() }
    }
}

impl Window {
    fn lock(&self) -> MutexGuard<'_, Unacknowledged> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a delivery that is about to be pushed; returns its text.
    pub(super) fn enter(
        &self,
        mut parcel: Parcel,
        delivery: Delivery,
        text: impl Fn(u64, Delivery) -> String,
    ) -> String {
        let turn = turn_of(&parcel);
        let message = parcel.delivery().map(|delivery| delivery.message);
        let mut state = self.lock();
        state.cursor += 1;
        let text = text(state.cursor, delivery);
        let (cursor, bytes) = (state.cursor, text.len());
        state.bytes += bytes;
        parcel.push();
        state.waiting.push_back(UnacknowledgedDelivery { cursor, bytes, turn, parcel });
        if let Some(turn) = turn {
            state.turns.entry(turn).or_default().extend(message);
        }
        text
    }

    /// Acknowledges every delivery up to a cursor.
    pub(super) fn acknowledge(&self, cursor: u64) {
        self.accept(|waiting| waiting.cursor <= cursor);
    }

    /// Acknowledges the deliveries of a turn that ended.
    pub(super) fn finished(&self, turn: TurnId) {
        self.end(&[turn]);
    }

    fn accept(&self, which: impl Fn(&UnacknowledgedDelivery) -> bool) {
        let mut accepted = Vec::new();
        let mut state = self.lock();
        let mut at = 0;
        while let Some(waiting) = state.waiting.get(at) {
            if which(waiting) {
                accepted.extend(state.waiting.remove(at));
            } else {
                at += 1;
            }
        }
        state.bytes -= accepted.iter().map(|waiting: &UnacknowledgedDelivery| waiting.bytes).sum::<usize>();
        drop(state);
        accepted.into_iter().for_each(|waiting| waiting.parcel.accept());
        self.moved.notify_one();
    }

    fn has_room(&self) -> bool {
        let state = self.lock();
        state.waiting.is_empty() || (state.waiting.len() < state.max && state.bytes < WINDOW_BYTES_MAX)
    }

    /// Returns for how many more deliveries there is room; at least one.
    fn free(&self) -> usize {
        let state = self.lock();
        state.max.saturating_sub(state.waiting.len()).max(1)
    }

    /// Forgets turns that ended elsewhere, which acknowledges their deliveries.
    fn forget(&self, ended: &[TurnId]) {
        if !ended.is_empty() {
            self.end(ended);
        }
    }

    /// Forgets these turns and accepts their deliveries.
    fn end(&self, turns: &[TurnId]) {
        {
            let mut state = self.lock();
            turns.iter().for_each(|turn| drop(state.turns.remove(turn)));
            // A session that watches no deliveries takes none, and never prunes these.
            if state.watches {
                state.over.extend(turns);
            }
        }
        self.accept(|waiting| waiting.turn.is_some_and(|turn| turns.contains(&turn)));
    }

    /// Forgets the ended turns of which no delivery waits to be pushed.
    fn prune(&self, taken: &VecDeque<(Parcel, Delivery)>) {
        let is_taken = |turn: &TurnId| taken.iter().any(|(parcel, _)| turn_of(parcel) == Some(*turn));
        self.lock().over.retain(is_taken);
    }

    /// Looks for room again: a turn may have ended.
    pub(super) fn nudge(&self) {
        self.moved.notify_one();
    }

    /// Returns whether this message was pushed in this session before, or belongs to a turn that has ended meanwhile.
    fn knows(&self, parcel: &Parcel) -> bool {
        let (Some(delivery), Some(turn)) = (parcel.delivery(), turn_of(parcel)) else { return false };
        let state = self.lock();
        state.over.contains(&turn) || state.turns.get(&turn).is_some_and(|pushed| pushed.contains(&delivery.message))
    }

    fn turns(&self) -> Vec<TurnId> {
        self.lock().turns.keys().copied().collect()
    }
}

fn turn_of(parcel: &Parcel) -> Option<TurnId> {
    parcel.delivery().and_then(|delivery| delivery.turn).map(|open| open.turn)
}

/// What a session watches from now on.
pub(super) struct Watched {
    pub(super) deliveries: Option<BoxStream<'static, Push>>,
    pub(super) events: Option<BoxStream<'static, Push>>,
    pub(super) reply: Watching,
}

/// Starts the pushes that a client asks for.
pub(super) async fn watch(desk: &Arc<Desk>, watch: Watch) -> Result<Watched, ApiError> {
    let position = *desk.ctx.handle.committed().borrow();
    let deliveries = watch.deliveries.as_ref().map(|asked| deliveries(desk, asked)).transpose()?;
    let events = match watch.events {
        Some(asked) => Some(events(desk, &asked, position).await?),
        None => None,
    };
    Ok(Watched { deliveries, events, reply: Watching { position: position.0 } })
}

fn deliveries(desk: &Arc<Desk>, asked: &WatchDeliveries) -> Result<BoxStream<'static, Push>, ApiError> {
    desk.caller.may(Some(Scope::Work))?;
    let window = asked.window.unwrap_or(WINDOW_MAX);
    if window == 0 {
        return Err(FieldError::new("deliveries.window", "is 0: leave `deliveries` out, or give at least 1").into());
    }
    let working = asked.working.iter().map(|turn| {
        TurnId::parse(turn).ok_or_else(|| FieldError::new("deliveries.working", format!("{turn:?} isn't a turn")))
    });
    let mut working = working.collect::<Result<Vec<_>, _>>()?;
    // What this session pushed before isn't lost.
    working.extend(desk.window.turns());
    {
        let mut state = desk.window.lock();
        state.max = usize::try_from(window.min(WINDOW_MAX)).unwrap_or(usize::MAX);
        state.watches = true;
        for turn in &working {
            state.turns.entry(*turn).or_default();
        }
    }
    let (ctx, caller) = (desk.ctx.clone(), desk.caller);
    let mut subscription = Subscription::new(&ctx.handle, caller.principal.agent()).of(caller.client);
    subscription.attach();
    let inbox = Inbox {
        desk: Arc::downgrade(desk),
        ctx,
        caller,
        receiving: None,
        bell: subscription.bell(),
        rings: 0,
        recheck: false,
        subscription,
        taken: VecDeque::new(),
        working: Some(working),
        step: 1,
        joinable: Vec::new(),
        ended: Vec::new(),
    };
    Ok(stream::unfold(inbox, |mut inbox| async move { inbox.next().await.map(|push| (push, inbox)) }).boxed())
}

/// The inbox of the session's principal.
struct Inbox {
    /// Weak, because the session that owns the desk also owns this.
    desk: std::sync::Weak<Desk>,
    ctx: Context,
    caller: Caller,
    /// The deliveries that the broker takes as they come.
    receiving: Option<Receiving<Taken>>,
    subscription: Subscription,
    bell: Arc<Bell>,
    /// How often the bell had rung when the broker was last asked.
    rings: u64,
    /// Whether the broker is asked without a ring.
    recheck: bool,
    /// The deliveries that were taken and not pushed yet.
    taken: VecDeque<(Parcel, Delivery)>,
    /// The open turns that the client works on; `None` once the others were looked up.
    working: Option<Vec<TurnId>>,
    /// How many deliveries are taken at once.
    step: usize,
    /// The turns that an answer can join.
    joinable: Vec<TurnId>,
    /// The turns that ended elsewhere, which the client isn't told yet.
    ended: Vec<TurnId>,
}

impl Inbox {
    /// Returns the next push; `None` when the session ends.
    async fn next(&mut self) -> Option<Push> {
        let desk = self.desk.upgrade()?;
        let mut stopping: watch::Receiver<bool> = self.ctx.stopping.clone();
        let bell = Arc::clone(&self.bell);
        loop {
            if let Some(turn) = self.ended.pop() {
                return Some(Push::Ended(turn));
            }
            if let Some((parcel, delivery)) = self.ready(&desk.window) {
                return Some(Push::Delivery(parcel, Box::new(delivery)));
            }
            let (mut rings, mut moved) = (pin!(bell.notified()), pin!(desk.window.moved.notified()));
            // Listen before looking: what arrives between the two still rings.
            rings.as_mut().enable();
            moved.as_mut().enable();
            match self.look(&desk.window).await {
                Ok(Some((parcel, _))) if desk.window.knows(&parcel) => {
                    // Kept by an earlier session, which ended behind its successor's begin.
                    parcel.accept();
                    continue;
                }
                Ok(Some((parcel, delivery))) => return Some(Push::Delivery(parcel, Box::new(delivery))),
                Ok(None) if !self.joinable.is_empty() || !self.ended.is_empty() => continue,
                Ok(None) => {
                    self.listen(&desk.window);
                    tokio::select! {
                        () = rings => {}
                        () = inbox::arrived(self.receiving.as_ref()) => {}
                        () = moved => {}
                        () = sleep(RECHECK_EVERY) => self.recheck = true,
                        () = ended(&mut stopping) => return None,
                    }
                }
                Err(fault) if fault.0.code == Code::Unauthenticated => return Some(Push::Revoked(fault.0.detail)),
                Err(fault) => {
                    tracing::debug!(detail = %fault.0.detail, "nothing is pushed for now");
                    self.recheck = true;
                    // A stop refuses what is taken, and ends turns.
                    if self.look_for_ends(&desk.window).await {
                        continue;
                    }
                    // Not for the bell: a delivery that goes back rings it.
                    tokio::select! {
                        () = sleep(REFUSED_PAUSE) => {}
                        () = ended(&mut stopping) => return None,
                    }
                }
            }
            if let Err(fault) = self.caller.reauthenticate(&self.ctx.handle) {
                return Some(Push::Revoked(fault.0.detail));
            }
        }
    }

    /// Returns a delivery that was taken before and needs no look at the broker.
    fn ready(&mut self, window: &Window) -> Option<(Parcel, Delivery)> {
        let looks_first = self.working.is_some() || !self.joinable.is_empty() || !window.has_room();
        let (parcel, _) = self.taken.front().filter(|_| !looks_first)?;
        if window.knows(parcel) { None } else { self.taken.pop_front() }
    }

    /// Returns whether the broker takes deliveries as they come.
    fn receives(&self) -> bool {
        self.receiving.as_ref().is_some_and(|receiving| !receiving.is_over())
    }

    /// Lets the broker take deliveries as they come, as many as there is room for.
    fn listen(&mut self, window: &Window) {
        if !self.receives() {
            let input = Input::Receive(self.caller.principal, input::Consumer::InTurns);
            self.receiving = Some(inbox::receiving(&self.ctx, self.caller, &self.subscription, input));
        }
        if let Some(receiving) = &self.receiving {
            let room = if window.has_room() { window.free().min(STEP_MAX) } else { 0 };
            receiving.allow(room.saturating_sub(self.taken.len()));
        }
    }

    /// Adds the deliveries that the broker has taken to those that are to be pushed.
    async fn collect(&mut self) -> Result<(), ApiError> {
        while let Some((parcel, shown)) = self.receiving.as_mut().and_then(Receiving::take) {
            self.taken.extend(packed(&self.ctx, self.caller, parcel, shown).await?);
        }
        Ok(())
    }

    /// Forgets turns that ended elsewhere, of which the client is told.
    fn forget(&mut self, window: &Window, ended: Vec<TurnId>) {
        window.forget(&ended);
        self.ended.extend(ended);
    }

    /// Returns whether turns ended elsewhere.
    async fn look_for_ends(&mut self, window: &Window) -> bool {
        if let Ok(SortedTurns { ended, .. }) = inbox::look(&self.ctx, window.turns()).await {
            self.forget(window, ended);
        }
        !self.ended.is_empty()
    }

    /// Returns the next delivery that is there.
    async fn look(&mut self, window: &Window) -> Result<Option<(Parcel, Delivery)>, ApiError> {
        let _place = match &self.ctx.places {
            Some(places) => Some(places.enter().await),
            None => None,
        };
        window.prune(&self.taken);
        if let Some(working) = self.working.take() {
            self.taken.extend(Box::pin(inbox::again_all(&self.ctx, self.caller, working)).await?);
        }
        if let Some(turn) = self.joinable.pop() {
            // There may be another one for it.
            self.recheck = true;
            // Whoever waits for it may be what fills the window.
            return Box::pin(inbox::join(&self.ctx, self.caller, turn)).await;
        }
        if !window.has_room() {
            let SortedTurns { joinable, ended } = inbox::look(&self.ctx, window.turns()).await?;
            self.forget(window, ended);
            self.joinable = joinable;
            if !window.has_room() {
                return Ok(None);
            }
        }
        Box::pin(self.collect()).await?;
        if let Some(taken) = self.taken.pop_front() {
            return Ok(Some(taken));
        }
        let rings = self.bell.rings();
        if self.receives() && rings == self.rings && !std::mem::take(&mut self.recheck) {
            return Ok(None);
        }
        self.rings = rings;
        if let Some(receiving) = &self.receiving {
            // What is asked for now fills the window.
            receiving.allow(0);
        }
        let most = self.step.min(window.free());
        let received = Box::pin(inbox::receive(&self.ctx, self.caller, window.turns(), most)).await?;
        // One at a time while little comes, and many while much does.
        let full = received.deliveries.len() == most;
        self.step = if full { (self.step * 2).min(STEP_MAX) } else { (received.deliveries.len() + 1).min(STEP_MAX) };
        self.forget(window, received.turns.ended);
        self.joinable = received.turns.joinable;
        // There may be more than was asked for.
        self.recheck = !received.deliveries.is_empty();
        // Some may have come meanwhile, taken before or after these.
        Box::pin(self.collect()).await?;
        self.taken.extend(received.deliveries);
        self.taken.make_contiguous().sort_by_key(|(parcel, _)| parcel.delivery().map(order));
        // One that was on its way counted in neither: it goes back, because another session of the agent may be idle.
        self.taken.truncate(window.free());
        Ok(self.taken.pop_front())
    }
}

/// Returns what orders deliveries as the broker gave them: turns by their numbers, and a human's messages.
fn order(delivery: &input::Delivery) -> (Option<TurnId>, Seq) {
    (delivery.turn.map(|open| open.turn), delivery.message)
}

async fn events(desk: &Arc<Desk>, asked: &WatchEvents, position: Seq) -> Result<BoxStream<'static, Push>, ApiError> {
    desk.caller.may(Some(Scope::Read))?;
    let feed = Feed::open(desk.ctx.clone(), Some(desk.peer.clone()), desk.caller, position, asked.after.map(Seq), None)
        .await?;
    let pushes = stream::unfold(Some(feed), |feed| async move {
        let mut feed = feed?;
        Some(match feed.next().await {
            Some(event) => (Push::Event(Box::new(event)), Some(feed)),
            None => (Push::EventsEnd, None),
        })
    });
    Ok(pushes.boxed())
}

#[cfg(test)]
mod tests {
    use lastword_broker::identity::TurnSigner;
    use lastword_core::input::OpenTurn;
    use lastword_facts::ids::{AgentId, GrantId, TaskId};
    use lastword_facts::{Limits, Time};
    use lastword_store::MemoryLog;

    use super::*;

    #[test]
    fn what_an_earlier_session_leaves_while_its_turn_ends_is_not_pushed_again() {
        let signer = TurnSigner::ephemeral().unwrap();
        let (handle, thread) = lastword_broker::boot(Box::new(MemoryLog::new()), signer, Limits::default()).unwrap();
        let parcel = || {
            let turn = OpenTurn {
                turn: TurnId(3),
                task: TaskId(1),
                attempt: 1,
                lease_until: Time(60),
                grant: GrantId(1),
                trace: None,
            };
            handle.parcel(
                AgentId(1),
                input::Delivery { turn: Some(turn), message: Seq(7), notices: Vec::new(), steps: Vec::new() },
            )
        };
        let (window, left) = (Window::default(), parcel());
        window.finished(TurnId(3));
        assert!(window.lock().over.is_empty(), "nothing is watched");
        window.lock().watches = true;
        window.lock().turns.entry(TurnId(3)).or_default().insert(Seq(7));
        assert!(window.knows(&left));
        window.finished(TurnId(3));
        assert!(window.knows(&left), "it was taken while the turn was open");
        window.prune(&VecDeque::new());
        assert!(window.lock().over.is_empty());
        left.accept();
        handle.close();
        thread.join().unwrap();
    }
}
