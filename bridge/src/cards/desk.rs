//! Keeps cards up to date: posts one for each open matter, and writes the outcome on it, wherever it was settled.
//!
//! The broker's current state is compared with the posted cards; an event only triggers the comparison. A restart on
//! either side therefore loses nothing, and a card is also settled when the console settled the matter.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lastword_client::ClientError;
use lastword_client::wire::Event;
use lastword_facts::Code;
use lastword_facts::status::{ApprovalState, EscalationState};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::kept::Posted;
use super::{Card, held_call, question};
use crate::book::{BridgeStore, lost};
use crate::bridge::BridgeContext;
use crate::ids::ChannelId;
use crate::platform::{Part, PlatformError, Poster, Spot};
use crate::signs::{self, Matter};

/// Pause after each pass, so that a busy workspace isn't queried at each event.
const PACE: Duration = Duration::from_millis(200);

/// The ids to look at, and the signal that there are some.
#[derive(Debug, Default)]
pub(crate) struct CardQueue {
    touched: Mutex<BTreeSet<String>>,
    ring: Notify,
    /// Locked while a click is carried out, so that the card's outcome can name the user who clicked.
    pub(crate) settling: tokio::sync::Mutex<()>,
}

impl CardQueue {
    /// Creates the queue and the tables for its cards.
    pub(crate) fn new(book: &BridgeStore) -> rusqlite::Result<Self> {
        book.prepare_cards()?;
        Ok(Self::default())
    }

    /// Takes note of an event of the workspace.
    pub(crate) fn apply(&self, event: &Event) {
        let name = match event.kind.as_str() {
            "escalation_opened" | "lift_chosen" => "escalation",
            "approval_asked" => "approval",
            // A question may also end with its task, a stop or a removal, so all open cards are checked.
            _ => return self.ring.notify_one(),
        };
        if let Some(id) = event.data.get(name).and_then(Value::as_str) {
            self.touch(id);
        }
    }

    /// Marks this id to be looked at.
    pub(crate) fn touch(&self, id: &str) {
        self.touched().insert(id.to_owned());
        self.ring.notify_one();
    }

    fn touched(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.touched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the cards up to date. Returns only if the broker refuses for good or the bridge's file can't be written.
    pub(crate) async fn serve(shared: Arc<BridgeContext>) -> ClientError {
        match Self::keep(&shared).await {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }

    async fn keep(shared: &BridgeContext) -> Result<std::convert::Infallible, ClientError> {
        let desk = &shared.desk;
        for id in waiting(shared).await? {
            desk.touch(&id);
        }
        loop {
            let touched = std::mem::take(&mut *desk.touched());
            let mut ids = touched.clone();
            ids.extend(shared.book.open_cards().map_err(lost)?);
            for id in ids {
                match look(shared, &id, touched.contains(&id)).await {
                    // An id that the broker doesn't know (any more) must not block other cards.
                    Err(ClientError::Refused(problem)) if problem.code != Code::Unauthenticated => {
                        shared.outbox.warn(&format!("the card of {id} is left as it is. {}", problem.detail));
                        shared.book.settle_card(&id).map_err(lost)?;
                    }
                    looked => looked?,
                }
            }
            sleep(PACE).await;
            // `Notify` keeps a permit, so an event during the pass isn't missed.
            desk.ring.notified().await;
        }
    }
}

/// Returns the ids of everything that waits for a human.
async fn waiting(shared: &BridgeContext) -> Result<Vec<String>, ClientError> {
    let broker = &shared.broker;
    let questions = broker.persist(|| broker.client().escalations()).await?.items;
    let calls = broker.persist(|| broker.client().approvals()).await?.items;
    let questions = questions.into_iter().filter(|view| view.state == EscalationState::Open).map(|view| view.id);
    let calls = calls.into_iter().filter(|view| view.state == ApprovalState::Pending).map(|view| view.id);
    Ok(questions.chain(calls).collect())
}

/// Posts the card of an open matter, writes on it that a lift was chosen, or its outcome.
async fn look(shared: &BridgeContext, id: &str, touched: bool) -> Result<(), ClientError> {
    // Read the user and the state under the lock: otherwise the state could already be settled while the user isn't
    // noted yet.
    let settling = shared.desk.settling.lock().await;
    let posted = shared.book.card(id).map_err(lost)?;
    let user = posted.and_then(|posted| posted.user);
    let broker = &shared.broker;
    let (card, reference, agent, lifted) = if id.starts_with("apr-") {
        let view = broker.persist(|| broker.client().approval(id, None)).await?;
        (held_call(&view, user, shared.dialect), view.reference, view.agent, false)
    } else {
        let view = broker.persist(|| broker.client().escalation(id)).await?;
        let lifted = view.lifts.iter().any(|lift| lift.chosen);
        (question(&view, user, shared.dialect), Some(view.reference), view.agent, lifted)
    };
    drop(settling);
    let was_posted = posted.as_ref().is_some_and(|posted| posted.post.is_some());
    let posted = match posted {
        Some(posted) if posted.settled => return Ok(()),
        Some(Posted { post: Some(post), channel, .. }) => Some(Spot { channel, post }),
        Some(Posted { post: None, channel, .. }) => post(shared, id, channel, &card).await?,
        None if card.settled => None,
        None => match place(shared, reference.as_deref()).await? {
            Some(channel) => post(shared, id, channel, &card).await?,
            None => None,
        },
    };
    if let (Some(_), Some(reference)) = (posted, &reference) {
        signs::waits(shared, Matter { id, agent: &agent, reference }, card.settled).await?;
    }
    match posted {
        Some(spot) if card.settled => {
            change(shared, id, spot, &card).await;
            shared.book.settle_card(id).map_err(lost)
        }
        Some(spot) if lifted && touched && was_posted => {
            change(shared, id, spot, &card).await;
            Ok(())
        }
        Some(_) | None => Ok(()),
    }
}

/// Writes what has changed on a card, and removes the buttons that are of no use any more.
async fn change(shared: &BridgeContext, id: &str, spot: Spot, card: &Card) {
    let changed = shared.outbox.persist(|| shared.platform.change(spot, card.last(), &card.rows)).await;
    told(shared, id, changed);
}

/// Posts a card once; returns the message with the buttons.
async fn post(shared: &BridgeContext, id: &str, channel: ChannelId, card: &Card) -> Result<Option<Spot>, ClientError> {
    let (outbox, book) = (&shared.outbox, &shared.book);
    let Some(card) = book.begin_card(id, channel, card).map_err(lost)? else { return Ok(None) };
    let mut last = None;
    for (number, part) in card.parts.iter().enumerate() {
        let nonce = book.nonce(&format!("c{id}"), number);
        let buttons = Some(&card.rows).filter(|_| number + 1 == card.parts.len());
        let (text, ping, reply, file) = (part.trim(), None, None, None);
        let part = Part { nonce: &nonce, channel, text, ping, reply, buttons, file };
        let once = || outbox.try_part(&Poster::Broker, &part);
        match outbox.persist(once).await {
            Ok(post) => last = Some(post),
            Err(error) => {
                told(shared, id, Err(error));
                // It is refused for good, so it isn't tried again.
                book.settle_card(id).map_err(lost)?;
                return Ok(None);
            }
        }
    }
    let Some(last) = last else { return Ok(None) };
    book.post_card(id, last).map_err(lost)?;
    Ok(Some(Spot { channel, post: last }))
}

fn told(shared: &BridgeContext, id: &str, done: Result<(), PlatformError>) {
    if let Err(error) = done {
        shared.outbox.warn(&format!("the card of {id} is not as it should be. {error}"));
    }
}

/// Returns the channel of a card: the thread of its conversation or of one it came from, else the home channel.
async fn place(shared: &BridgeContext, reference: Option<&str>) -> Result<Option<ChannelId>, ClientError> {
    let Some(reference) = reference else { return Ok(shared.settings.home) };
    if let Some(place) = shared.threads.find(&shared.broker, reference, None).await? {
        let thread = shared.threads.thread(&place, "").await;
        return Ok(thread.filter(|_| shared.settings.channels.contains(&place.channel)));
    }
    Ok(shared.settings.home)
}
