//! What waiting callers wait for: deliveries, answers, and hints that something changed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use lastword_core::{Input, Principal, Reply};
use lastword_facts::ids::AgentId;
use lastword_facts::{Entry, Fact, Seq, Time};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, oneshot};

use crate::handle::Handle;
use crate::handle::release;
use crate::holders::ClientId;
use crate::judge::OnReply;
use crate::live::Live;
use crate::receiving::Takes;
use crate::sync::{Mutex, MutexGuard};

/// The hint channels, and the senders that wait for answers. A lost hint only costs time, because what it announces is in
/// the state.
#[derive(Default)]
pub(crate) struct Wakes {
    slots: Mutex<BTreeMap<AgentId, Slot>>,
    answers: Mutex<Answers>,
    /// Why the programs of agents can't work.
    failed: Mutex<BTreeMap<AgentId, Box<str>>>,
    /// When agents without a connection last asked for deliveries.
    polled: Mutex<BTreeMap<AgentId, Time>>,
    last_taker: AtomicU64,
    /// Rings when an approval is decided.
    pub(crate) approvals: Notify,
    /// Rings when a claim ends.
    pub(crate) claims: Notify,
}

/// The senders that wait for the answers to their requests, by request and in order.
#[derive(Default)]
struct Answers {
    last: u64,
    waiting: BTreeMap<(Seq, u64), Waiter>,
}

/// A sender that waits for an answer.
pub(crate) struct Waiter {
    /// Who collects the answer.
    pub(crate) by: Principal,
    /// Turns the reply to that into the sender's answer.
    pub(crate) then: OnReply,
}

#[derive(Default)]
struct Slot {
    bell: Arc<Bell>,
    waiting: usize,
    attached: usize,
    /// The attached clients that take deliveries; `None` is one without an id.
    clients: Vec<Option<ClientId>>,
    /// The callers for which the judge takes deliveries, with their numbers.
    takers: VecDeque<(u64, Box<dyn Takes>)>,
}

/// The hints for one agent.
#[derive(Debug, Default)]
pub struct Bell {
    rings: AtomicU64,
    ring: Notify,
}

impl Bell {
    /// Waits for the next hint.
    pub fn notified(&self) -> Notified<'_> {
        self.ring.notified()
    }

    /// Returns how often it rang.
    #[must_use]
    pub fn rings(&self) -> u64 {
        self.rings.load(Ordering::Acquire)
    }

    fn ring(&self) {
        self.rings.fetch_add(1, Ordering::AcqRel);
        self.ring.notify_waiters();
    }
}

impl Wakes {
    /// Rings for the callers that wait for this entry.
    pub(crate) fn durable(&self, entry: &Entry) {
        if matches!(entry.fact, Fact::ApprovalDecided(_)) {
            self.approvals.notify_waiters();
        }
        if matches!(entry.fact, Fact::Released { .. } | Fact::ClaimBroken { .. }) {
            self.claims.notify_waiters();
        }
    }

    /// Takes a sender that waits for the answer to this request.
    pub(crate) fn waiter(&self, request: Seq) -> Option<Waiter> {
        let mut answers = self.answers();
        let first = answers.waiting.range((request, 0)..=(request, u64::MAX)).next().map(|(key, _)| *key)?;
        answers.waiting.remove(&first)
    }

    pub(crate) fn wake(&self, agent: AgentId) {
        if let Some(slot) = self.lock().get(&agent) {
            slot.bell.ring();
        }
    }

    pub(crate) fn wake_all(&self) {
        for slot in self.lock().values() {
            slot.bell.ring();
        }
    }

    /// Takes a caller that waits for this agent's deliveries and has room for one; [`Wakes::put_back`] follows.
    pub(crate) fn taker(&self, agent: AgentId) -> Option<(u64, Box<dyn Takes>)> {
        let mut slots = self.lock();
        let takers = &mut slots.get_mut(&agent)?.takers;
        let at = takers.iter().position(|(_, taker)| taker.has_room())?;
        takers.remove(at)
    }

    /// Lets a caller wait on, behind the others. Returns whether it is the only one that waits for the agent.
    pub(crate) fn put_back(&self, agent: AgentId, number: u64, taker: Box<dyn Takes>) -> bool {
        let mut slots = self.lock();
        // Asked under the lock: a caller that leaves says so before it looks for its taker here.
        let Some(slot) = slots.get_mut(&agent).filter(|_| !taker.has_left()) else {
            // What it holds may wake the agent, which needs the lock.
            drop(slots);
            return false;
        };
        slot.takers.push_back((number, taker));
        slot.waiting == 1
    }

    /// Returns the number of clients that wait for deliveries, or are among those that hold a turn.
    pub(crate) fn clients(&self, agent: AgentId, holding: Vec<ClientId>, nameless: usize) -> usize {
        let slots = self.lock();
        let waiting = slots.get(&agent).map_or(&[][..], |slot| &*slot.clients);
        let known: BTreeSet<ClientId> = waiting.iter().copied().flatten().chain(holding).collect();
        let unknown = waiting.iter().filter(|client| client.is_none()).count();
        known.len() + unknown.max(nameless.min(1))
    }

    pub(crate) fn is_attached(&self, agent: AgentId) -> bool {
        self.lock().get(&agent).is_some_and(|slot| slot.attached > 0)
    }

    /// Keeps the reason why an agent's program can't work, until another connection begins; an empty one takes it back.
    pub(crate) fn fail(&self, agent: AgentId, reason: Box<str>) {
        if reason.is_empty() {
            self.failed().remove(&agent);
        } else {
            self.failed().insert(agent, reason);
        }
    }

    /// Returns the reason why an agent's program can't work.
    pub(crate) fn unavailable(&self, agent: AgentId) -> Option<Box<str>> {
        self.failed().get(&agent).cloned()
    }

    /// Keeps when an agent asked for deliveries, unless it has a connection, whose end says more.
    pub(crate) fn poll(&self, agent: AgentId, now: Time) {
        if !self.is_attached(agent) {
            self.polled().insert(agent, now);
        }
    }

    /// Returns when an agent last asked for deliveries; `None` if it has had a connection since.
    pub(crate) fn polled_at(&self, agent: AgentId) -> Option<Time> {
        self.polled().get(&agent).copied()
    }

    fn enter(&self, agent: AgentId) -> Arc<Bell> {
        let mut slots = self.lock();
        let slot = slots.entry(agent).or_default();
        slot.waiting += 1;
        Arc::clone(&slot.bell)
    }

    /// Counts a connection. The core gets the input under the lock, so that it sees beginnings and ends in the order in
    /// which they were counted.
    fn attach(&self, agent: AgentId, client: Option<Option<ClientId>>, tell: impl FnOnce()) {
        self.failed().remove(&agent);
        self.polled().remove(&agent);
        let mut slots = self.lock();
        let slot = slots.entry(agent).or_default();
        slot.attached += 1;
        slot.clients.extend(client);
        // Only the first connection changes anything for the core.
        if slot.attached == 1 {
            tell();
        }
    }

    fn leave(&self, agent: AgentId, attached: bool, client: Option<Option<ClientId>>, tell: impl FnOnce()) {
        let mut slots = self.lock();
        let Some(slot) = slots.get_mut(&agent) else { return };
        slot.waiting -= 1;
        slot.attached -= usize::from(attached);
        if attached && let Some(at) = slot.clients.iter().position(|known| client == Some(*known)) {
            slot.clients.swap_remove(at);
        }
        if attached && slot.attached == 0 {
            tell();
        }
        if slot.waiting == 0 {
            slots.remove(&agent);
        }
    }

    pub(crate) fn add_taker(&self, agent: AgentId, taker: Box<dyn Takes>) -> u64 {
        let number = self.last_taker.fetch_add(1, Ordering::AcqRel);
        // The caller's subscription keeps the slot.
        self.lock().entry(agent).or_default().takers.push_back((number, taker));
        number
    }

    pub(crate) fn remove_taker(&self, agent: AgentId, number: u64) -> Option<Box<dyn Takes>> {
        let mut slots = self.lock();
        let takers = &mut slots.get_mut(&agent)?.takers;
        let at = takers.iter().position(|(known, _)| *known == number)?;
        takers.remove(at).map(|(_, taker)| taker)
    }

    fn failed(&self) -> MutexGuard<'_, BTreeMap<AgentId, Box<str>>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn polled(&self) -> MutexGuard<'_, BTreeMap<AgentId, Time>> {
        self.polled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<AgentId, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection of an agent that waits for deliveries. It ends when dropped, also when its request is cancelled.
pub struct Subscription {
    pub(crate) handle: Handle,
    pub(crate) agent: AgentId,
    bell: Arc<Bell>,
    attached: bool,
    /// The client that takes the deliveries; `None` if it only watches.
    client: Option<Option<ClientId>>,
}

impl Subscription {
    /// Waits for wakes of `agent` without counting as its connection.
    #[must_use]
    pub fn new(handle: &Handle, agent: AgentId) -> Self {
        let bell = handle.wakes().enter(agent);
        Self { handle: handle.clone(), agent, bell, attached: false, client: None }
    }

    /// Counts as a connection of this client, which takes deliveries, from when it is attached.
    #[must_use]
    pub const fn of(mut self, client: Option<ClientId>) -> Self {
        self.client = Some(client);
        self
    }

    /// Counts as a connection of the agent from now on (Q2).
    pub fn attach(&mut self) {
        if !self.attached {
            self.attached = true;
            self.handle.wakes().attach(self.agent, self.client, || self.handle.cast(Input::Attach(self.agent, true)));
        }
    }

    /// Returns the bell on which the hints arrive.
    #[must_use]
    pub fn bell(&self) -> Arc<Bell> {
        Arc::clone(&self.bell)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let tell = || self.handle.cast(Input::Attach(self.agent, false));
        self.handle.wakes().leave(self.agent, self.attached, self.client, tell);
    }
}

/// A send that waits for the answer to its request; it stops waiting when dropped.
///
/// The broker collects the answer in the step in which it is given, so that both are appended together.
pub struct Wait<T> {
    handle: Handle,
    place: (Seq, u64),
    collected: oneshot::Receiver<T>,
}

impl<T: Send + 'static> Wait<T> {
    /// Starts to wait for the answer to the message at `request`, which `then` receives.
    #[must_use]
    pub fn new(
        handle: &Handle,
        by: Principal,
        request: Seq,
        then: impl FnOnce(Reply, &Live<'_>) -> T + Send + 'static,
    ) -> Self {
        let (send, collected) = oneshot::channel();
        let then = Box::new(move |reply: Reply, live: &Live<'_>| release(send, then(reply, live)));
        let mut answers = handle.wakes().answers();
        answers.last += 1;
        let place = (request, answers.last);
        answers.waiting.insert(place, Waiter { by, then });
        drop(answers);
        Self { handle: handle.clone(), place, collected }
    }

    /// Returns the message whose answer it waits for.
    #[must_use]
    pub const fn request(&self) -> Seq {
        self.place.0
    }

    /// Returns the answer once it is durable; `None` if the disk had no room for it, or the broker has stopped.
    pub async fn answer(&mut self) -> Option<T> {
        (&mut self.collected).await.ok()
    }

    /// Stops waiting. Returns the answer if the broker has collected it meanwhile.
    pub async fn end(&mut self) -> Option<T> {
        if self.leave() { None } else { self.answer().await }
    }
}

impl<T> Wait<T> {
    fn leave(&self) -> bool {
        self.handle.wakes().answers().waiting.remove(&self.place).is_some()
    }
}

impl<T> Drop for Wait<T> {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use lastword_core::input::{Finish, Registration};
    use lastword_facts::envelope::{Address, Draft};
    use lastword_facts::fact::{Kind, Profile};
    use lastword_facts::names::{AgentName, Ref};
    use lastword_facts::{Code, Limits, MessageType};
    use lastword_store::{InjectedFault, LogReader as _, MemoryLog};

    use super::*;
    use crate::identity::{Secret, TurnSigner};
    use crate::receiving::testing::Reader;
    use crate::{Parcel, Receiving, Unserved, boot};

    /// A broker over a log in memory, with a human who waits for the answer to a request that an agent has taken.
    struct World {
        log: MemoryLog,
        handle: Handle,
        human: Principal,
        agent: Principal,
        request: Seq,
        wait: Wait<Reply>,
    }

    impl World {
        async fn new() -> Self {
            let log = MemoryLog::new();
            let (handle, _) = boot(Box::new(log.clone()), TurnSigner::ephemeral().unwrap(), Limits::default()).unwrap();
            let human = enrol(&handle, "ann", Kind::Human, None).await;
            let agent = enrol(&handle, "kilo", Kind::Agent, Some(human)).await;
            let mut draft = Draft::new(MessageType::Request, Address::Name(AgentName::new("kilo").unwrap()), "?");
            draft.reference = Ref::new("T-1").ok();
            let waits = handle.clone();
            let then = move |reply, _live: &Live<'_>| {
                let Reply::Sent(seqs) = reply else { panic!("{reply:?}") };
                (seqs[0], Wait::new(&waits, human, seqs[0], |reply, _live| reply))
            };
            let (request, wait) = handle.submit_then(Input::Send(human, Box::new(draft)), then).await.unwrap();
            let taken = handle.submit(Input::Take(agent, None)).await.unwrap();
            assert!(matches!(taken, Reply::Delivery(Some(_))), "{taken:?}");
            Self { log, handle, human, agent, request, wait }
        }

        async fn finish(&self) -> Result<Reply, Unserved> {
            let finish = Finish { body: "done".into(), ..Finish::default() };
            self.handle.submit(Input::Finish(self.agent, None, Box::new(finish))).await
        }

        /// Returns whether the log says that the human has the answer.
        fn is_read(&self) -> bool {
            let all = self.log.read(Seq(1), 1_000).unwrap();
            all.iter().any(|(_, entry)| matches!(entry.fact, Fact::NoticeRead { .. }))
        }
    }

    async fn enrol(handle: &Handle, name: &str, kind: Kind, by: Option<Principal>) -> Principal {
        let token = Secret::token().unwrap();
        let profile = Profile { actions: Vec::new(), groups: Vec::new(), turns_max: 0 };
        let name = AgentName::new(name).unwrap();
        let registration = Registration {
            name,
            kind,
            profile,
            credential: token.credential(),
            role: None,
            display_name: None,
            key: None,
        };
        let input = by.map_or(Input::Bootstrap(registration.clone()), |by| Input::Register(by, registration));
        assert!(matches!(handle.submit(input).await, Ok(Reply::Registered(_))));
        handle.prove(token.reveal()).unwrap()
    }

    #[tokio::test]
    async fn an_awaited_answer_is_collected_in_the_append_that_has_it() {
        let mut world = World::new().await;
        let finished = world.finish().await.unwrap();
        let Reply::Finished { answer: Some(answer), .. } = finished else { panic!("{finished:?}") };
        assert!(world.is_read(), "both are durable before the agent's reply");
        let collected = world.wait.answer().await;
        let Some(Reply::Delivery(Some(delivery))) = collected else { panic!("{collected:?}") };
        assert_eq!((delivery.message, delivery.turn), (answer, None));
        assert!(world.handle.wakes().answers().waiting.is_empty());
    }

    #[tokio::test]
    async fn an_answer_that_nobody_waits_for_any_more_stays_in_the_inbox() {
        let mut world = World::new().await;
        assert!(world.wait.end().await.is_none());
        world.finish().await.unwrap();
        assert!(!world.is_read());
        let taken = world.handle.submit(Input::Take(world.human, None)).await.unwrap();
        assert!(matches!(taken, Reply::Delivery(Some(_))), "{taken:?}");
    }

    #[tokio::test]
    async fn a_wait_that_ends_behind_the_answer_has_the_answer() {
        let mut world = World::new().await;
        world.finish().await.unwrap();
        assert!(matches!(world.wait.end().await, Some(Reply::Delivery(Some(_)))));
    }

    impl World {
        fn ask(&self, reference: &str) -> Input {
            let mut draft = Draft::new(MessageType::Request, Address::Name(AgentName::new("kilo").unwrap()), "?");
            draft.reference = Ref::new(reference).ok();
            Input::Send(self.human, Box::new(draft))
        }

        fn receiving(&self, subscription: &Subscription, most: usize) -> Receiving<Parcel> {
            let receiving = Receiving::new(subscription, Reader(self.handle.clone(), self.agent));
            receiving.allow(most);
            receiving
        }

        fn turns(&self) -> usize {
            let all = self.log.read(Seq(1), 1_000).unwrap();
            all.iter().filter(|(_, entry)| matches!(entry.fact, Fact::TurnOpened(_))).count()
        }
    }

    #[tokio::test]
    async fn a_message_is_delivered_to_whoever_waits_in_the_append_that_has_it() {
        let world = World::new().await;
        world.finish().await.unwrap();
        let subscription = Subscription::new(&world.handle, world.agent.agent());
        let mut receiving = world.receiving(&subscription, 8);
        // The finish wakes the agent right after its reply, and a read waits for that.
        world.handle.query(|_live| ()).await.unwrap();
        let rings = subscription.bell().rings();
        assert!(matches!(world.handle.submit(world.ask("T-2")).await, Ok(Reply::Sent(_))));
        assert_eq!(world.turns(), 2, "both are durable before the sender's reply");
        receiving.arrived().await;
        receiving.take().unwrap().accept();
        world.finish().await.unwrap();
        world.handle.query(|_live| ()).await.unwrap();
        assert_eq!(subscription.bell().rings(), rings, "nobody else waits, and nothing is left to take");
        // There is no room for more: the next message only wakes the agent.
        receiving.allow(0);
        assert!(matches!(world.handle.submit(world.ask("T-3")).await, Ok(Reply::Sent(_))));
        world.handle.query(|_live| ()).await.unwrap();
        assert!(receiving.take().is_none() && subscription.bell().rings() > rings);
        assert_eq!(world.turns(), 2);
    }

    #[tokio::test]
    async fn a_delivery_that_found_no_room_on_the_disk_is_kept_for_nobody() {
        let world = World::new().await;
        let subscription = Subscription::new(&world.handle, world.human.agent());
        let receiving = Receiving::new(&subscription, Reader(world.handle.clone(), world.human));
        receiving.allow(8);
        world.log.fail_next(InjectedFault::Full);
        assert!(world.finish().await.is_err());
        // The answer isn't in the log, and another fact may get its position.
        assert!(world.handle.unread(world.human.agent(), |_| true).is_none());
    }

    #[tokio::test]
    async fn another_caller_of_the_agent_is_woken_beside_the_one_that_takes_the_delivery() {
        let world = World::new().await;
        world.finish().await.unwrap();
        let (first, second) = (
            Subscription::new(&world.handle, world.agent.agent()),
            Subscription::new(&world.handle, world.agent.agent()),
        );
        let mut receiving = world.receiving(&first, 8);
        let rings = second.bell().rings();
        world.handle.submit(world.ask("T-2")).await.unwrap();
        receiving.arrived().await;
        assert!(receiving.take().is_some());
        assert!(second.bell().rings() > rings);
    }

    #[tokio::test]
    async fn a_delivery_that_its_caller_left_behind_is_kept_for_the_next_call() {
        let world = World::new().await;
        world.finish().await.unwrap();
        let subscription = Subscription::new(&world.handle, world.agent.agent());
        let receiving = world.receiving(&subscription, 8);
        let Ok(Reply::Sent(sent)) = world.handle.submit(world.ask("T-2")).await else { panic!("refused") };
        receiving.arrived().await;
        drop(receiving);
        let kept = world.handle.unread(world.agent.agent(), |_| true).unwrap();
        assert_eq!(kept.delivery().map(|delivery| delivery.message), Some(sent[0]));
        kept.accept();
        // And from here on, nobody takes anything for it.
        world.finish().await.unwrap();
        world.handle.submit(world.ask("T-3")).await.unwrap();
        assert_eq!(world.turns(), 2);
    }

    #[tokio::test]
    async fn an_answer_that_found_no_room_can_be_awaited_again() {
        let mut world = World::new().await;
        world.log.fail_next(InjectedFault::Full);
        assert_eq!(world.finish().await.unwrap_err().refusal().code, Code::DiskLow);
        assert!(world.wait.answer().await.is_none());
        let mut again = Wait::new(&world.handle, world.human, world.request, |reply, _live| reply);
        while world.finish().await.is_err() {
            // The broker looks for room again every second.
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        assert!(matches!(again.answer().await, Some(Reply::Delivery(Some(_)))));
    }
}
