//! Deliveries of the bots that post by themselves: taken here, shown by what follows the log, ended by what they post.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lastword_client::ClientError;
use lastword_client::wire::{Delivery, Finish, Finished, TurnView};
use tokio::sync::watch;

use crate::broker::{Broker, Outcome, is_late};

/// Time that an answer of the broker gets.
const ANSWER: Duration = Duration::from_secs(15);

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

    /// Whether a turn is open.
    pub(crate) async fn is_open(&self, turn: &str) -> bool {
        self.held.borrow().contains_key(turn)
            || self.broker.persist(|| self.broker.is_open(turn)).await.unwrap_or(false)
    }

    /// Ends a turn with its final answer; says what was refused. The delivery may still be on its way here, and a turn that
    /// was lost has its answer on record as late: whichever it is, the broker hears it.
    pub(crate) async fn finish(&self, turn: &str, answer: &str) -> Result<(), String> {
        let finish = Finish { answer: answer.to_owned(), ..Finish::default() };
        let held = self.held.borrow().get(turn).cloned();
        let outcome = match &held {
            Some(held) => self.broker.finish(&held.delivery, &held.turn, &finish).await,
            None => self.finish_unheld(turn, &finish).await,
        };
        match outcome {
            Outcome::Finished(_) => {
                self.end(turn);
                Ok(())
            }
            Outcome::Late => {
                self.end(turn);
                Err("the turn was over: the answer is on record as late".to_owned())
            }
            Outcome::Refused(reason) => Err(reason),
        }
    }

    async fn finish_unheld(&self, turn: &str, finish: &Finish) -> Outcome {
        let mut tries = 0;
        let sent = self.broker.persist(|| {
            tries += 1;
            self.broker.within(ANSWER, self.broker.client.finish(turn, finish))
        });
        match sent.await {
            Ok(finished) => Outcome::Finished(finished),
            // An earlier try was heard, and its answer lost.
            Err(ClientError::Refused(problem)) if is_late(&problem) && tries > 1 => {
                Outcome::Finished(Finished { turn: Some(turn.to_owned()), open: false, answer: None })
            }
            Err(ClientError::Refused(problem)) if is_late(&problem) => Outcome::Late,
            Err(error) => Outcome::Refused(error.to_string()),
        }
    }
}
