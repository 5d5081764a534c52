//! Who acts in the workspace for a person of the platform: the bridge's human, one with a token of its own, or one that the
//! bridge makes for a member on first sight. A member's role there follows its roles on the server before each act.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lastword_client::wire::{HumanPatch, Problem};
use lastword_client::{ClientError, RetryingClient};
use lastword_facts::Code;
use lastword_facts::fact::Role;
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

use super::bridge::BridgeContext;
use super::event::EventSink;
use super::heard::Heard;
use super::ids::UserId;
use super::people::{MadeHuman, made_before, make_member};
use super::post::Person;
use super::settings::{Secret, Settings};
use super::wording::for_people;

/// Most members that have acted; each is a human of the workspace, of which the broker limits the number, too.
const MEMBERS_MAX: usize = 10_000;

/// The members that have acted since the start.
#[derive(Debug, Default)]
pub(crate) struct ActiveMembers(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    /// By user. An act holds its slot for reading, so that no other role comes in between; whoever makes the
    /// human or changes its role holds it for writing.
    slots: BTreeMap<UserId, Slot>,
    /// The roles of the members' humans, by name.
    roles: BTreeMap<String, Role>,
}

type Slot = Arc<RwLock<Option<Member>>>;

/// A member's human, and the broker as that human.
#[derive(Debug)]
struct Member {
    name: String,
    broker: RetryingClient,
    /// Whether the broker refused its token.
    lost: AtomicBool,
}

/// Whoever acts for a person; a member's role doesn't change while this is held.
#[derive(Debug)]
pub(crate) enum Actor<'a> {
    /// The bridge's human.
    Bridge(&'a RetryingClient, &'a str),
    /// A human whose token the settings name, or who was made at the start.
    Own(&'a RetryingClient, &'a str),
    /// A human that was made for a member.
    Member(Acting),
}

/// A member's human during an act.
#[derive(Debug)]
pub(crate) struct Acting(OwnedRwLockReadGuard<Option<Member>, Member>);

impl Actor<'_> {
    /// Returns the broker as this human.
    pub(crate) fn broker(&self) -> &RetryingClient {
        match self {
            Self::Bridge(broker, _) | Self::Own(broker, _) => broker,
            Self::Member(acting) => &acting.0.broker,
        }
    }

    /// Returns the human's name in the workspace.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Bridge(_, name) | Self::Own(_, name) => name,
            Self::Member(acting) => &acting.0.name,
        }
    }

    /// Returns whether the human has a token of its own, whose end isn't the bridge's.
    pub(crate) const fn is_alone(&self) -> bool {
        !matches!(self, Self::Bridge(..))
    }

    /// Notes how a call ended: a member whose token was refused gets another one for its next act.
    pub(crate) fn ended<T>(&self, done: &Result<T, ClientError>) {
        let refused = done.as_ref().err().and_then(ClientError::problem);
        if let (Self::Member(acting), Some(Code::Unauthenticated)) = (self, refused.map(|problem| problem.code)) {
            acting.0.lost.store(true, Ordering::Relaxed);
        }
    }
}

impl ActiveMembers {
    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a user's slot; `None` if there are too many.
    fn slot(&self, user: UserId) -> Option<Slot> {
        let mut noted = self.noted();
        let room = noted.slots.len() < MEMBERS_MAX || noted.slots.contains_key(&user);
        room.then(|| Arc::clone(noted.slots.entry(user).or_default()))
    }

    fn role_of(&self, name: &str) -> Option<Role> {
        self.noted().roles.get(name).copied()
    }

    fn set_role(&self, name: &str, role: Role) {
        self.noted().roles.insert(name.to_owned(), role);
    }

    /// Notes the role of a human, whoever set it: the next act sets that which follows from the server's roles.
    pub(crate) fn note_role(&self, name: &str, role: Role) {
        if let Some(known) = self.noted().roles.get_mut(name) {
            *known = role;
        }
    }
}

impl Member {
    fn new(made: MadeHuman, settings: &Settings, report: &EventSink) -> Result<Self, ClientError> {
        let MadeHuman { name, token, .. } = made;
        let broker = client(settings, &token, report)?;
        Ok(Self { name, broker, lost: AtomicBool::new(false) })
    }

    fn is_as(&self, role: Role, members: &ActiveMembers) -> bool {
        !self.lost.load(Ordering::Relaxed) && members.role_of(&self.name) == Some(role)
    }
}

/// Returns a client for a member, without a connection that stays: there may be many, and each rarely acts.
fn client(settings: &Settings, token: &Secret, report: &EventSink) -> Result<RetryingClient, ClientError> {
    let events = report.clone();
    RetryingClient::without_session(&settings.broker_at, token.reveal(), move |change| events.emit(&change.into()))
}

impl BridgeContext {
    /// Returns whoever acts for a person, or why nobody can. Makes the human of a member, and sets its role.
    ///
    /// # Errors
    /// The broker doesn't answer, or refuses the bridge's own token.
    pub(crate) async fn actor(&self, person: &Person, heard: Heard) -> Result<Result<Actor<'_>, String>, ClientError> {
        let Heard::Member(role) = heard else { return Ok(Ok(self.listed(person.user))) };
        match self.member(person, role).await {
            Ok(acting) => Ok(acting.map(Actor::Member)),
            Err(ClientError::Refused(problem)) if problem.code != Code::Unauthenticated => Ok(Err(unmade(&problem))),
            Err(error) => Err(error),
        }
    }

    fn listed(&self, user: UserId) -> Actor<'_> {
        match (self.humans.get(&user), self.names.get(&user)) {
            (Some(broker), name) => Actor::Own(broker, name.unwrap_or(&self.me)),
            (None, _) => Actor::Bridge(&self.broker, &self.me),
        }
    }

    async fn member(&self, person: &Person, role: Role) -> Result<Result<Acting, String>, ClientError> {
        let Some(slot) = self.members.slot(person.user) else {
            return Ok(Err("more people act here than the bridge can keep apart".to_owned()));
        };
        let held = Arc::clone(&slot).read_owned().await;
        if held.as_ref().is_some_and(|member| member.is_as(role, &self.members)) {
            return Ok(acting(held));
        }
        drop(held);
        // Waits for this person's other acts; the next one of them finds the human made.
        let mut held = slot.write_owned().await;
        let client = self.broker.client();
        let usable = held.take().filter(|member| !member.lost.load(Ordering::Relaxed));
        let member = match usable {
            Some(member) => member,
            None => {
                let made = match made_before(person.user, client, &self.book).await? {
                    Some(Ok(made)) => made,
                    Some(Err(reason)) => return Ok(Err(reason)),
                    None => make_member(person, role, self).await?,
                };
                if let Some(role) = made.role {
                    self.members.set_role(&made.name, role);
                }
                Member::new(made, &self.settings, &self.outbox.report)?
            }
        };
        let member = held.insert(member);
        if self.members.role_of(&member.name) != Some(role) {
            client.amend_human(&member.name, &HumanPatch { role }).await?;
            self.members.set_role(&member.name, role);
        }
        Ok(acting(held.downgrade()))
    }
}

fn acting(held: OwnedRwLockReadGuard<Option<Member>>) -> Result<Acting, String> {
    let found = OwnedRwLockReadGuard::try_map(held, Option::as_ref);
    found.map(Acting).map_err(|_| "the human is being made: try again".to_owned())
}

/// Words why a member has no human.
fn unmade(problem: &Problem) -> String {
    if problem.code == Code::Forbidden {
        // The refusal is about the bridge's own token, which the member knows nothing of.
        return "Lastword has no name for you: the bridge runs with a token that isn't an owner's".to_owned();
    }
    for_people(problem)
}
