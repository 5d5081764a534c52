//! A call of MCP whose messages before the answer are read.

use lastword_proto::wire::session::SessionCall;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::{Place, Replied, Session, cancellation};
use crate::error::ClientError;

/// The most messages that wait to be read.
const MESSAGES_MAX: usize = 64;

/// The messages before the answer to a call. Dropping them cancels the call.
pub(crate) struct Messages {
    messages: mpsc::Receiver<String>,
    reply: oneshot::Receiver<Replied>,
    place: Place,
}

impl Session {
    /// Makes a call of MCP and reads what comes before its answer.
    pub(super) async fn messages(&self, call: &SessionCall<'_>) -> Result<Messages, ClientError> {
        let (id, frame) = self.frame(call)?;
        let (sender, reply) = oneshot::channel();
        let (reader, messages) = mpsc::channel(MESSAGES_MAX);
        {
            let mut waiting = self.0.calls.lock();
            if waiting.ended.is_none() {
                waiting.replies.insert(id, sender);
                waiting.messages.insert(id, reader);
            }
        }
        let place = Place { session: self.clone(), id, cancel: cancellation(call) };
        if self.0.outgoing.send(frame).await.is_err() {
            return Err(self.ended());
        }
        Ok(Messages { messages, reply, place })
    }
}

impl Messages {
    /// Returns the next message; `None` once the call is answered.
    pub(crate) async fn next(&mut self) -> Result<Option<String>, ClientError> {
        if let Some(message) = self.messages.recv().await {
            return Ok(Some(message));
        }
        let session = &self.place.session;
        let replied = (&mut self.reply).await.map_err(|_| session.ended())?;
        session.read::<Value>(&replied).map(|_| None)
    }
}
