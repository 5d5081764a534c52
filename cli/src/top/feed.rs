//! Keeps the model up to date: events say what changed, and that is fetched again.

use std::collections::BTreeSet;
use std::time::Duration;

use lastword_client::wire::{
    AgentView, ApprovalView, ConversationSummary, ConversationView, DecideApproval, EscalationAnswer, EscalationView,
    Event, IncidentView, Page,
};
use lastword_client::{Client, ClientError, Events, Target};
use lastword_facts::fact::{Decision, EventKind};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout_at};

use super::model::{Model, Order, ServerConnection, Subject, Verb};
use crate::context::Context;
use crate::failure::Failure;
use crate::session::Authority;

/// Pause before the server is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Events within this time cause one fetch.
const GATHER: Duration = Duration::from_millis(200);
/// Interval at which agents are fetched while their windows hold something: windows empty without an event.
const WINDOWS: Duration = Duration::from_secs(5);
/// Most conversations listed.
const CONVERSATIONS_MAX: usize = 200;

/// An update of the model.
#[derive(Debug)]
pub(crate) enum Update {
    /// The state of the connection, and the server's address.
    ServerConnection(ServerConnection, String),
    /// The questions to humans.
    Escalations(Page<EscalationView>),
    /// The tool calls that are or were held.
    Approvals(Page<ApprovalView>),
    /// The limits that tripped.
    Incidents(Page<IncidentView>),
    /// The conversations, newest first.
    Conversations(Page<ConversationSummary>),
    /// The agents and humans.
    Agents(Page<AgentView>),
    /// A conversation in full.
    Conversation(Box<ConversationView>),
}

impl Update {
    /// Applies the update to the model.
    pub(crate) fn apply(self, model: &mut Model) {
        let lists = &mut model.lists;
        match self {
            Self::ServerConnection(link, url) => (model.link, model.url) = (link, url),
            Self::Escalations(page) => lists.escalations = page.items,
            Self::Approvals(page) => lists.approvals = page.items,
            Self::Incidents(page) => lists.incidents = page.items,
            Self::Conversations(page) => {
                (lists.more_conversations, lists.conversations) = (page.next.is_some(), page.items);
            }
            Self::Agents(page) => lists.agents = page.items,
            Self::Conversation(view) => model.conversation = Some(*view),
        }
    }
}

/// A list that is fetched from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum List {
    Escalations,
    Approvals,
    Incidents,
    Conversations,
    Agents,
    /// The conversation that is shown in full.
    Shown,
}

const ALL: [List; 6] =
    [List::Escalations, List::Approvals, List::Incidents, List::Conversations, List::Agents, List::Shown];

/// Returns the lists that an event changes. An event of a kind that a newer server knows may change any of them.
fn changed(kind: &str) -> &'static [List] {
    EventKind::from_word(kind).map_or(&ALL, changed_by)
}

#[expect(clippy::too_many_lines, reason = "a line for each kind")]
fn changed_by(kind: EventKind) -> &'static [List] {
    use EventKind as K;
    match kind {
        K::EscalationOpened | K::EscalationNoted | K::EscalationLifts | K::LiftChosen | K::EscalationExpired => {
            &[List::Escalations, List::Conversations, List::Shown]
        }
        K::ApprovalAsked | K::ApprovalRuled | K::ApprovalDecided | K::ApprovalUsed => &[List::Approvals],
        K::IncidentNoted => &[List::Incidents],
        K::Registered
        | K::Amended
        | K::Rekeyed
        | K::RoleSet
        | K::DisplayNameSet
        | K::Noticed
        | K::AgentLimited
        | K::AgentGranted
        | K::AgentRests
        | K::AgentGoesOn => &[List::Agents],
        K::LatchSet | K::LatchLifted | K::Stalled => &[List::Incidents, List::Conversations, List::Shown],
        // The end of a task, a new attempt and the end of an agent also end its questions and held calls.
        K::Accepted | K::TurnClosed | K::GrantClosed | K::RootEnded | K::Requeued | K::Removed => {
            &[List::Conversations, List::Agents, List::Shown, List::Escalations, List::Approvals]
        }
        // These hold or release any work.
        K::Controlled | K::Unattended | K::Idled | K::EpochBegan => &ALL,
        K::Refused
        | K::Observed
        | K::WriteRefused
        | K::TurnOpened
        | K::Joined
        | K::WaitsForUser
        | K::WorkedOutside
        | K::Heard
        | K::Warned
        | K::Rearmed
        | K::GrantOpened
        | K::GrantExtended
        | K::GrantAged
        | K::RoundsGranted
        | K::RequestsGranted
        | K::ConversationOpened
        | K::RootStarted
        | K::SessionBegan
        | K::BudgetWarned => &[List::Conversations, List::Agents, List::Shown],
        // Spending shows when its turn closes, or with the next change.
        K::Spent
        | K::StepKept
        | K::GrantTraced
        | K::SpentOn
        | K::Renewed
        | K::Late
        | K::Collected
        | K::Configured
        | K::LimitChanged
        | K::PolicyChanged
        | K::Upgraded
        | K::Forgot
        | K::Keyed
        | K::NoticeRead
        | K::HumanActed
        | K::PromptTyped
        | K::PromptEnded
        | K::AlertRaised
        | K::RefusalsSummed
        | K::EscalationKeyed
        | K::ApprovalOffered
        | K::Claimed
        | K::Released
        | K::ClaimBroken
        | K::Dismissed
        | K::LinkSet
        | K::RoomOpened
        | K::Posted
        | K::PostKeyed
        | K::ScheduleSet
        | K::ScheduleRemoved
        | K::ScheduleTicked
        | K::ScheduleSkipped => &[],
    }
}

/// The task that keeps the model up to date.
pub(crate) struct ModelUpdater {
    news: mpsc::Sender<Update>,
    wanted: watch::Receiver<Option<String>>,
    again: mpsc::Receiver<()>,
}

/// The receiver of the updates is gone.
struct Gone;

impl ModelUpdater {
    /// Creates the task. It sends updates to `news`, reads which conversation is wanted in full, and fetches everything
    /// on request.
    pub(crate) const fn new(
        news: mpsc::Sender<Update>,
        wanted: watch::Receiver<Option<String>>,
        again: mpsc::Receiver<()>,
    ) -> Self {
        Self { news, wanted, again }
    }

    /// Runs until the receiver of the updates is gone.
    pub(crate) async fn run(mut self, cx: &Context) {
        loop {
            let Err(failure) = self.follow(cx).await else { return };
            let lost = Update::ServerConnection(ServerConnection::Lost(failure.message), cx.server_url());
            if self.tell(lost).await.is_err() {
                return;
            }
            sleep(RETRY).await;
        }
    }

    /// Follows one connection to its end; `Ok` if the receiver of the updates is gone.
    async fn follow(&mut self, cx: &Context) -> Result<(), Failure> {
        // Each time again: after a restart the server may have another address.
        let client = cx.client(Authority::Read)?.over_session();
        // The stream is opened before the first fetch, which reads everything, so no change is missed in between.
        let mut events = client.events(None).await?;
        let mut dirty: BTreeSet<List> = ALL.into_iter().collect();
        let mut live = false;
        // Kept from fetch to fetch: one that leaves the agents out says nothing about their windows.
        let mut windows = false;
        loop {
            match self.fetch(&client, &dirty).await {
                Ok(fetched) => windows = fetched.unwrap_or(windows),
                Err(FetchEnd::Gone) => return Ok(()),
                Err(FetchEnd::Failed(error)) => return Err(error.into()),
            }
            if !live
                && self.tell(Update::ServerConnection(ServerConnection::Live, client.url().to_owned())).await.is_err()
            {
                return Ok(());
            }
            live = true;
            match self.wait(&mut events, windows).await? {
                Some(next) => dirty = next,
                None => return Ok(()),
            }
        }
    }

    /// Waits for a change, and a moment longer for more; `None` if the receiver of the updates is gone.
    async fn wait(&mut self, events: &mut Events, windows: bool) -> Result<Option<BTreeSet<List>>, Failure> {
        let mut dirty = BTreeSet::new();
        let mut until = windows.then(|| later(WINDOWS));
        loop {
            let far = later(Duration::from_hours(1));
            tokio::select! {
                event = timeout_at(until.unwrap_or(far), events.next()) => match event {
                    Ok(event) => {
                        let event = event?.ok_or_else(|| Failure::unavailable("the server ended the stream"))?;
                        dirty.extend(self.dirtied(&event));
                        if !dirty.is_empty() {
                            // Never later than before: a steady stream of events must not postpone the fetch for ever.
                            until = Some(until.unwrap_or(far).min(later(GATHER)));
                        }
                    }
                    Err(_) if dirty.is_empty() && windows => return Ok(Some([List::Agents].into())),
                    Err(_) if dirty.is_empty() => {}
                    Err(_) => return Ok(Some(dirty)),
                },
                changed = self.wanted.changed() => match changed {
                    Ok(()) => return Ok(Some(dirty.into_iter().chain([List::Shown]).collect())),
                    Err(_) => return Ok(None),
                },
                again = self.again.recv() => return Ok(again.map(|()| ALL.into_iter().collect())),
            }
        }
    }

    /// Returns the lists to fetch after an event.
    fn dirtied(&self, event: &Event) -> Vec<List> {
        let shown = self.wanted.borrow().clone();
        let concerned = shown.is_some_and(|shown| event.reference.as_deref().is_none_or(|at| at.starts_with(&shown)));
        changed(&event.kind).iter().copied().filter(|list| *list != List::Shown || concerned).collect()
    }

    /// Fetches the lists; returns whether an agent's windows hold something, if the agents are among them.
    async fn fetch(&mut self, client: &Client, dirty: &BTreeSet<List>) -> Result<Option<bool>, FetchEnd> {
        let mut windows = None;
        for list in dirty {
            let update = match list {
                List::Escalations => Update::Escalations(client.escalations().await?),
                List::Approvals => Update::Approvals(client.approvals().await?),
                List::Incidents => Update::Incidents(client.incidents().await?),
                List::Conversations => {
                    Update::Conversations(client.newest_conversations(CONVERSATIONS_MAX, false).await?)
                }
                List::Agents => {
                    let page = client.agents().await?;
                    let mut all = page.items.iter().flat_map(|agent| &agent.windows);
                    windows = Some(all.any(|window| window.current > 0));
                    Update::Agents(page)
                }
                List::Shown => {
                    let wanted = self.wanted.borrow_and_update().clone();
                    let Some(reference) = wanted else { continue };
                    match client.conversation(&reference).await {
                        Ok(view) => Update::Conversation(Box::new(view)),
                        // The conversation was forgotten meanwhile, which the list shows.
                        Err(ClientError::Refused(_)) => continue,
                        Err(error) => return Err(error.into()),
                    }
                }
            };
            self.tell(update).await?;
        }
        Ok(windows)
    }

    async fn tell(&self, update: Update) -> Result<(), Gone> {
        self.news.send(update).await.map_err(|_| Gone)
    }
}

/// Why a fetch ended early.
enum FetchEnd {
    /// The receiver of the updates is gone.
    Gone,
    /// The server refused or didn't answer.
    Failed(ClientError),
}

impl From<Gone> for FetchEnd {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

impl From<ClientError> for FetchEnd {
    fn from(error: ClientError) -> Self {
        Self::Failed(error)
    }
}

/// Returns the time `by` from now, on the runtime's clock.
fn later(by: Duration) -> Instant {
    Instant::now() + by
}

/// Carries out an order in a human's name, under the same checks as the commands; returns a sentence for the screen.
pub(crate) async fn carry_out(cx: &Context, order: Order) -> Result<String, Failure> {
    match order {
        Order::Approve { id, digest } => decide(cx, &id, Decision::Approve, None, Some(digest)).await,
        Order::Reject { id, reason } => {
            decide(cx, &id, Decision::Reject, Some(reason).filter(|text| !text.trim().is_empty()), None).await
        }
        Order::Answer { id, text } => {
            cx.deciding(false).await?.answer_escalation(&id, &EscalationAnswer { answer: text, lift: None }).await?;
            Ok(format!("answered {id}"))
        }
        Order::Lift { id, lift, .. } => {
            let chosen = EscalationAnswer { answer: String::new(), lift: Some(lift) };
            let view = cx.deciding(false).await?.answer_escalation(&id, &chosen).await?;
            let given = view.lifts.into_iter().find(|lift| lift.chosen).map(|lift| lift.text).unwrap_or_default();
            Ok(format!("lifted for {id}: {given}"))
        }
        Order::Control(verb, subject) => control(cx, verb, &subject).await,
        Order::Refresh | Order::Quit => Ok(String::new()),
    }
}

async fn decide(
    cx: &Context,
    id: &str,
    decision: Decision,
    comment: Option<String>,
    digest: Option<String>,
) -> Result<String, Failure> {
    let client = cx.deciding(false).await?;
    let decided = client.decide(id, &DecideApproval { decision, comment, input: None, digest }).await?;
    Ok(format!("{} {}", decided.id, crate::render::word(&decided.state)))
}

async fn control(cx: &Context, verb: Verb, subject: &Subject) -> Result<String, Failure> {
    let target = match subject {
        Subject::Conversation(reference) => Target::Conversation(reference),
        Subject::Agent(name) => Target::Agent(name),
    };
    let done = match verb {
        Verb::Pause => cx.client(Authority::Act)?.pause(target).await.map(|_| "paused"),
        Verb::Stop => cx.client(Authority::Act)?.stop(target).await.map(|_| "stopped"),
        Verb::Resume => cx.deciding(false).await?.resume(target).await.map(|_| "resumed"),
    };
    Ok(format!("{} {}", done?, subject.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_a_kind_that_is_not_known_may_have_changed_everything() {
        assert_eq!(changed("something_new"), ALL);
        // Each running turn reports what it spent once a second.
        assert_eq!((changed("renewed"), changed("spent")), (&[][..], &[][..]));
        assert!(changed("approval_asked").contains(&List::Approvals));
        // A stopped task, root or not, takes its held calls with it.
        for end in ["accepted", "root_ended", "turn_closed", "grant_closed", "requeued", "removed"] {
            assert!(changed(end).contains(&List::Approvals) && changed(end).contains(&List::Escalations), "{end}");
        }
    }
}
