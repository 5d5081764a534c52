//! Puts notifications together from the state and the log, and sends again what a human asks for.

use std::collections::{BTreeMap, BTreeSet};

use lastword_broker::Live;
use lastword_facts::Seq;
use lastword_facts::names::SYSTEM_NAME;
use lastword_wire::{ApprovalView, IncidentView, Notice, Resent};

use super::book::{NotificationLedger, Parcel, Topic};
use super::channel::{Channel, Severity};
use super::plan::{PendingTopic, Plan, by_urgency};
use super::words::{Counts, ITEMS_MAX, Item, What, first_line};
use super::{Notification, send, wall_time};
use crate::calls::{Context, escalations};
use crate::error::ApiError;
use crate::views;

/// The most entries read in one step.
pub(super) const BATCH_MAX: usize = 512;
/// The most items for information that are read again, the newest ones. Older ones remain in the inbox only.
pub(super) const NOTES_MAX: usize = 1_000;

/// Puts notifications together.
#[derive(Clone)]
pub(super) struct Composer {
    pub(super) ctx: Context,
    /// The URL of the console.
    pub(super) console: String,
}

/// The items of a notification, as read from the state.
#[derive(Default)]
struct FoundItems {
    calls: BTreeMap<Topic, ApprovalView>,
    incidents: BTreeMap<Topic, IncidentView>,
    notes: BTreeMap<Topic, Item>,
    questions: BTreeMap<Topic, Item>,
}

/// Returns the command for a notice: the one that its text names, or `lastword inbox`.
fn step(notice: &Notice) -> String {
    let named = notice.body.split('`').nth(1).filter(|named| named.starts_with("lastword "));
    // Only the broker's own text may name a command: an agent's must not suggest one to a human.
    let named = named.filter(|_| notice.from == SYSTEM_NAME);
    named.unwrap_or("lastword inbox").to_owned()
}

/// What is sent again.
pub(super) enum Again {
    /// These topics, which a notification had that was given up.
    Topics(Vec<Topic>),
    /// What began after a position.
    After(Seq),
}

impl Composer {
    /// Sends a channel what of this is pending, as it is now and without retries.
    pub(super) async fn again(&self, channel: &Channel, id: String, again: Again) -> Result<Resent, ApiError> {
        let (topics, is_replay) = match again {
            Again::Topics(topics) => (topics.into_iter().collect(), false),
            Again::After(after) => (self.since(after).await?, true),
        };
        let mut pending = self.pending(&topics).await?;
        let now = self.ctx.handle.now();
        // A replay covers whatever began, most of it settled long ago: the number would tell nothing.
        let settled = if is_replay { 0 } else { topics.len() - pending.len() };
        pending.retain(|_, topic| !is_replay || topic.severity(now) >= channel.minimum);
        let listed = by_urgency(pending.iter(), now).into_iter().map(|topic| (topic, true)).collect();
        let parcel = Parcel { id: id.clone(), topics: listed, folded: 0, failures: 0, next: now };
        let severity = |topic| pending.get(&topic).map_or(Severity::Low, |pending| pending.severity(now));
        let told = self.notification(channel, &parcel, severity).await?;
        let items = told.as_ref().map_or(0, |told| told.items.len() + told.more);
        let problem = match &told {
            Some(told) => send(channel, told).await.err().map(|reason| first_line(&reason)),
            None => None,
        };
        Ok(Resent { id, channel: channel.name.clone(), items, settled, problem })
    }

    /// Returns what began after a position and isn't settled by a later fact.
    async fn since(&self, after: Seq) -> Result<BTreeSet<Topic>, ApiError> {
        let mut heard = Plan::new(Vec::new(), NotificationLedger::new());
        let (mut last, end) = (after, *self.ctx.handle.committed().borrow());
        while last < end {
            let entries = self.ctx.handle.read(Seq(last.0 + 1), BATCH_MAX).await?;
            let Some((read, _)) = entries.last() else { break };
            last = *read;
            entries.iter().for_each(|(seq, entry)| heard.hear(*seq, entry.at, &entry.fact));
        }
        Ok(heard.topics().collect())
    }

    /// Returns what of these topics is pending now. Information stays what it is: nobody decides it.
    async fn pending(&self, topics: &BTreeSet<Topic>) -> Result<BTreeMap<Topic, PendingTopic>, ApiError> {
        let look = |live: &Live<'_>| Plan::waiting_in(live.state, live.now());
        let mut pending: BTreeMap<Topic, PendingTopic> = self.ctx.handle.query(look).await?;
        pending.retain(|topic, _| topics.contains(topic));
        let noted = |topic: &Topic| if let Topic::Note(seq) = topic { Some(*seq) } else { None };
        let noted = topics.iter().rev().filter_map(noted).take(NOTES_MAX).collect();
        for (seq, entry) in self.ctx.handle.entries(noted).await? {
            pending.extend(PendingTopic::note(entry.at, &entry.fact).map(|note| (Topic::Note(seq), note)));
        }
        Ok(pending)
    }

    /// Builds the notification of a parcel whose topics have these severities; `None` if none of them is pending any
    /// more.
    pub(super) async fn notification(
        &self,
        channel: &Channel,
        parcel: &Parcel,
        severity: impl Fn(Topic) -> Severity,
    ) -> Result<Option<Notification>, ApiError> {
        let listed: Vec<Topic> = parcel.topics.iter().take(ITEMS_MAX).map(|(topic, _)| *topic).collect();
        let found = self.found(&listed).await?;
        let items = parcel.topics.iter().take(ITEMS_MAX).filter_map(|(topic, again)| {
            let item = match topic {
                Topic::Question(_) => found.questions.get(topic).cloned()?,
                Topic::Call(_) => Item::call(found.calls.get(topic)?, channel.include_arguments),
                Topic::Incident(_) => Item::incident(found.incidents.get(topic)?),
                Topic::Stop => Item::stop(),
                Topic::Note(_) => found.notes.get(topic).cloned()?,
            };
            Some(item.standing(severity(*topic), *again))
        });
        let items: Vec<Item> = items.collect();
        if items.is_empty() {
            return Ok(None);
        }
        let mut counts = Counts::default();
        items.iter().for_each(|item| counts.add(item.what));
        for (topic, _) in parcel.topics.iter().skip(ITEMS_MAX) {
            counts.add(match topic {
                Topic::Question(_) => What::Question,
                Topic::Call(_) => What::Approval,
                Topic::Incident(_) => What::Incident,
                Topic::Stop => What::Stop,
                Topic::Note(_) => What::Note,
            });
        }
        let console = channel.console.clone().unwrap_or_else(|| self.console.clone());
        let (id, folded) = (parcel.id.clone(), parcel.folded);
        Ok(Some(Notification::waiting(id, wall_time(), channel, counts, items, folded, console)))
    }

    async fn found(&self, topics: &[Topic]) -> Result<FoundItems, ApiError> {
        let noted: Vec<Topic> = topics.iter().filter(|topic| matches!(topic, Topic::Note(_))).copied().collect();
        let wanted = topics.to_vec();
        let look = move |live: &Live<'_>| {
            let (mut found, mut questions) = (FoundItems::default(), Vec::new());
            for topic in wanted {
                match topic {
                    Topic::Question(id) => questions.push(id),
                    Topic::Call(id) => found.calls.extend(views::approval(live.state, id).map(|view| (topic, view))),
                    Topic::Incident(id) => {
                        let known = live.state.incidents.get(&id);
                        found.incidents.extend(known.map(|known| (topic, views::incident(live.state, id, known))));
                    }
                    Topic::Stop | Topic::Note(_) => {}
                }
            }
            (found, questions)
        };
        let (mut found, questions) = self.ctx.handle.query(look).await?;
        let views = escalations::by_ids(&self.ctx, questions.clone()).await?;
        let topics = questions.into_iter().map(Topic::Question);
        for topic in topics {
            let view = views.iter().find(|view| view.id == topic.to_string());
            found.questions.extend(view.map(|view| (topic, Item::question(view))));
        }
        for topic in noted {
            let Topic::Note(seq) = topic else { continue };
            let reader = views::Reader { agent: None, has_shell: true };
            let worded = views::notices(&self.ctx.handle, vec![seq], reader).await?.into_iter().next();
            let item = worded.map(|worded| Item::note(topic.to_string(), &worded.notice, step(&worded.notice)));
            found.notes.extend(item.map(|item| (topic, item)));
        }
        Ok(found)
    }
}
