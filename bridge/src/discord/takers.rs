//! Deliveries of the bots that post by themselves: taken here, shown by what follows the log, ended by what they post.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lastword_client::ClientError;
use lastword_client::wire::{Delivery, Finish, TurnView};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::broker::{Broker, Outcome};

/// Time that an answer of the broker gets.
const ANSWER: Duration = Duration::from_secs(15);
/// Longest wait for a delivery that is on its way to us, while its turn is open.
const ON_ITS_WAY: Duration = Duration::from_secs(5);

/// A turn that a foreign bot has.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    delivery: Delivery,
    turn: TurnView,
}

/// The turns of one foreign bot.
#[derive(Debug)]
pub(crate) struct Taker {
    pub(crate) broker: Broker,
    held: watch::Sender<BTreeMap<String, Held>>,
    /// How many answers to requests of its own there were.
    answers: watch::Sender<u64>,
}

impl Taker {
    pub(crate) fn new(broker: Broker) -> Arc<Self> {
        Arc::new(Self { broker, held: watch::Sender::default(), answers: watch::Sender::default() })
    }

    /// Takes deliveries, one turn after another. Ends only where the broker refuses for good.
    pub(crate) async fn serve(&self) -> ClientError {
        loop {
            match self.broker.take().await {
                Ok(delivery) => self.attend(delivery).await,
                Err(error) => return error,
            }
        }
    }

    /// Stays with a turn until it is over; what comes for it meanwhile joins it.
    async fn attend(&self, delivery: Delivery) {
        let Some(turn) = delivery.turn.clone() else { return };
        let (id, token) = (turn.id.clone(), turn.token.clone());
        self.held.send_modify(|held| {
            held.insert(id.clone(), Held { delivery, turn });
        });
        let within = self.broker.client.in_turn(&token);
        let over = async {
            let mut held = self.held.subscribe();
            // The sender lives as long as this value.
            let _over = held.wait_for(|held| !held.contains_key(&id)).await.is_ok();
        };
        let joining = async {
            let mut answers = self.answers.subscribe();
            loop {
                // One look an answer: whoever asks all the time keeps the lease of a bot that is gone.
                let looked = self.broker.persist(|| self.broker.within(ANSWER, within.inbox(Duration::ZERO))).await;
                match looked {
                    Ok(Some(_)) => {}
                    Ok(None) if answers.changed().await.is_ok() => {}
                    Ok(None) | Err(_) => return,
                }
            }
        };
        tokio::select! {
            () = over => {}
            () = joining => {}
        }
        self.end(&id);
    }

    /// An answer to a request of its own is there.
    pub(crate) fn answered(&self) {
        self.answers.send_modify(|count| *count += 1);
    }

    /// The turn is over.
    pub(crate) fn end(&self, turn: &str) {
        self.held.send_if_modified(|held| held.remove(turn).is_some());
    }

    /// The turn, once it is here; nothing where it is over.
    pub(crate) async fn held(&self, turn: &str) -> Option<Held> {
        let mut held = self.held.subscribe();
        if let Some(found) = held.borrow().get(turn) {
            return Some(found.clone());
        }
        let open = self.broker.persist(|| self.broker.is_open(turn)).await.unwrap_or(false);
        if !open {
            return None;
        }
        let here = timeout(ON_ITS_WAY, held.wait_for(|held| held.contains_key(turn))).await;
        here.ok()?.ok()?.get(turn).cloned()
    }

    /// Ends a turn with its final answer; says what was refused.
    pub(crate) async fn finish(&self, held: &Held, answer: String) -> Result<(), String> {
        let finish = Finish { answer, ..Finish::default() };
        match self.broker.finish(&held.delivery, &held.turn, &finish).await {
            Outcome::Finished(_) => {
                self.end(&held.turn.id);
                Ok(())
            }
            Outcome::Late => {
                self.end(&held.turn.id);
                Err("the turn was over: the answer is on record as late".to_owned())
            }
            Outcome::Refused(reason) => Err(reason),
        }
    }
}
