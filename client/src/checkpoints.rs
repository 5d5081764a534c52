//! `GET /v1/checkpoint`: the log's hash, signed.

use lastword_wire::calls::SignCheckpoint;

use crate::error::ClientError;
use crate::http::Client;

impl Client {
    /// Returns a checkpoint of the log as a signed note: at the end of a batch of facts, or at the log's present end. Only
    /// a human may ask.
    ///
    /// # Errors
    /// The server refuses or does not answer; `epoch_over` and `unknown_request` mean that the log has no hash at `at`.
    pub async fn checkpoint(&self, at: Option<u64>) -> Result<String, ClientError> {
        let asking = self.ask::<SignCheckpoint>("");
        let response = if let Some(at) = at { asking.query(&[("at", at)]) } else { asking }.response().await?;
        response.text().await.map_err(|error| self.unreachable(&error))
    }
}
