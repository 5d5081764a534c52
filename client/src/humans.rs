//! Calls about the humans of the workspace and their roles (H7).

use lastword_wire::{AgentView, HumanPatch, NewHuman, Page};
use reqwest::Method;

use crate::calls::Registered;
use crate::error::ClientError;
use crate::http::{Client, segment};

impl Client {
    /// Lists humans, with their roles.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn humans(&self) -> Result<Page<AgentView>, ClientError> {
        self.get("/v1/humans").await
    }

    /// Registers a human with a role; the token is returned only this once.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn register_human(&self, human: &NewHuman) -> Result<Registered, ClientError> {
        self.post("/v1/humans", human).await
    }

    /// Like [`Client::register_human`], with an idempotency key: a retry with the same key returns the same human, with a
    /// new token.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn register_human_keyed(&self, human: &NewHuman, key: &str) -> Result<Registered, ClientError> {
        let request = self.request(Method::POST, "/v1/humans").json(human);
        self.json(request.header("Idempotency-Key", key)).await
    }

    /// Sets a human's role (H7).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn amend_human(&self, name: &str, patch: &HumanPatch) -> Result<AgentView, ClientError> {
        let path = format!("/v1/humans/{}", segment(name));
        self.json(self.request(Method::PATCH, &path).json(patch)).await
    }
}
