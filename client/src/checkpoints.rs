//! `GET /v1/checkpoint`: the log's hash, signed.

use reqwest::Method;

use crate::error::ClientError;
use crate::http::Client;

impl Client {
    /// Returns a checkpoint of the log as a signed note: at the end of a batch of facts, or at the log's present end. Only
    /// a human may ask.
    ///
    /// # Errors
    /// The server refuses or does not answer; `epoch_over` and `unknown_request` mean that the log has no hash at `at`.
    pub async fn checkpoint(&self, at: Option<u64>) -> Result<String, ClientError> {
        let path = at.map_or_else(|| "/v1/checkpoint".to_owned(), |at| format!("/v1/checkpoint?at={at}"));
        let response = self.answer(self.request(Method::GET, &path)).await?;
        response.text().await.map_err(|error| self.unreachable(&error))
    }
}
