//! Takes the deliveries of foreign bots and keeps their turns; `follow.rs` shows them, and the bots' posts finish them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lastword_client::ClientError;
use lastword_client::wire::{Delivery, Finish, Finished, TurnView};
use tokio::sync::watch;

use lastword_client::{FinishOutcome, RetryingClient, is_late};

/// Time limit of a call to the broker.
const ANSWER: Duration = Duration::from_secs(15);

/// A turn that a foreign bot holds.
#[derive(Clone, Debug)]
pub(crate) struct HeldTurn {
    delivery: Delivery,
    turn: TurnView,
}

/// The open turns of one foreign bot.
#[derive(Debug)]
pub(crate) struct Taker {
    pub(crate) broker: RetryingClient,
    held: watch::Sender<BTreeMap<String, HeldTurn>>,
    /// The number of answers to the bot's own requests; a change triggers a look at its inbox.
    answers: watch::Sender<u64>,
}

impl Taker {
    pub(crate) fn new(broker: RetryingClient) -> Arc<Self> {
        Arc::new(Self { broker, held: watch::Sender::default(), answers: watch::Sender::default() })
    }

    /// Takes deliveries, one turn after another. Returns only if the broker refuses for good.
    pub(crate) async fn serve(&self) -> ClientError {
        loop {
            match self.broker.take().await {
                Ok(delivery) => self.attend(delivery).await,
                Err(error) => return error,
            }
        }
    }

    /// Keeps a turn until it is over; answers that arrive meanwhile join it.
    async fn attend(&self, delivery: Delivery) {
        let Some(turn) = delivery.turn.clone() else { return };
        let (id, token) = (turn.id.clone(), turn.token.clone());
        self.held.send_modify(|held| {
            held.insert(id.clone(), HeldTurn { delivery, turn });
        });
        let within = self.broker.client().in_turn(&token);
        let over = async {
            let mut held = self.held.subscribe();
            // The sender lives as long as `self`, so the wait can't fail.
            let _over = held.wait_for(|held| !held.contains_key(&id)).await.is_ok();
        };
        let joining = async {
            let mut answers = self.answers.subscribe();
            loop {
                // One look per answer: polling would keep renewing the lease for a bot that is gone.
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

    /// Notes that an answer to one of the bot's own requests has arrived.
    pub(crate) fn answered(&self) {
        self.answers.send_modify(|count| *count += 1);
    }

    /// Drops a turn that is over.
    pub(crate) fn end(&self, turn: &str) {
        self.held.send_if_modified(|held| held.remove(turn).is_some());
    }

    /// Returns whether the bot holds any turn.
    pub(crate) fn holds_any(&self) -> bool {
        !self.held.borrow().is_empty()
    }

    /// Returns whether a turn is open.
    pub(crate) async fn is_open(&self, turn: &str) -> bool {
        self.held.borrow().contains_key(turn)
            || self.broker.persist(|| self.broker.is_open(turn)).await.unwrap_or(false)
    }

    /// Finishes a turn with its answer, or returns why that was refused. The delivery may not have arrived here yet,
    /// and the answer to a lost turn is recorded as late, so the broker is called in every case.
    pub(crate) async fn finish(&self, turn: &str, answer: &str) -> Result<(), String> {
        let finish = Finish { answer: answer.to_owned(), ..Finish::default() };
        let held = self.held.borrow().get(turn).cloned();
        let outcome = match &held {
            Some(held) => self.broker.finish(&held.delivery, &held.turn, &finish).await,
            None => self.finish_unheld(turn, &finish).await,
        };
        match outcome {
            FinishOutcome::Finished(_) => {
                self.end(turn);
                Ok(())
            }
            FinishOutcome::Late => {
                self.end(turn);
                Err("the turn was over: the answer is on record as late".to_owned())
            }
            FinishOutcome::Refused(reason) => Err(reason),
        }
    }

    async fn finish_unheld(&self, turn: &str, finish: &Finish) -> FinishOutcome {
        let mut tries = 0;
        let sent = self.broker.persist(|| {
            tries += 1;
            self.broker.within(ANSWER, self.broker.client().finish(turn, finish))
        });
        match sent.await {
            Ok(finished) => FinishOutcome::Finished(finished),
            // An earlier try succeeded, but its response was lost.
            Err(ClientError::Refused(problem)) if is_late(&problem) && tries > 1 => FinishOutcome::Finished(Finished {
                turn: Some(turn.to_owned()),
                open: false,
                answer: None,
                warning: None,
            }),
            Err(ClientError::Refused(problem)) if is_late(&problem) => FinishOutcome::Late,
            Err(error) => FinishOutcome::Refused(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use lastword_client::wire::Problem;
    use lastword_facts::Code;
    use lastword_facts::refusal::Refusal;
    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Finishes a turn at a broker with one fixed response; returns the outcome and the calls made.
    async fn finished(status: u16, answer: Value) -> (Result<(), String>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serve = async {
            // It has no sessions.
            let (mut line, _) = listener.accept().await.unwrap();
            let mut upgrade = Vec::new();
            while !upgrade.ends_with(b"\r\n\r\n") {
                line.read_buf(&mut upgrade).await.unwrap();
            }
            line.write_all(b"HTTP/1.1 404 x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await.unwrap();
            let (mut line, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"}") {
                line.read_buf(&mut request).await.unwrap();
            }
            let body = answer.to_string();
            let head = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            line.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
            String::from_utf8(request).unwrap()
        };
        let taker = Taker::new(RetryingClient::new(&lastword_client::Endpoint::new(&url), "lw_test", drop).unwrap());
        tokio::join!(taker.finish("turn-1", "done"), serve)
    }

    #[tokio::test]
    async fn an_answer_whose_delivery_is_still_on_its_way_is_handed_in_all_the_same() {
        let (ended, request) = finished(200, json!({ "turn": "turn-1", "open": false, "answer": "5" })).await;
        assert_eq!(ended, Ok(()));
        assert!(request.starts_with("POST /v1/turns/turn-1/finish ") && request.contains("done"), "{request}");
    }

    #[tokio::test]
    async fn an_answer_to_a_turn_that_was_lost_is_said_to_be_late() {
        let problem = serde_json::to_value(Problem::new(&Refusal::new(Code::LeaseLost))).unwrap();
        let (ended, _) = finished(409, problem).await;
        assert!(ended.is_err_and(|reason| reason.contains("late")));
    }
}
