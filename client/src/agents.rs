//! Calls about agents and their tokens, and a human's sign-in.

use lastword_wire::{
    AgentGrant, AgentPatch, AgentToken, AgentView, IdToken, NarrowedToken, NewAgent, NewToken, Page, Prompt,
    SignInLink, SignInProvider, SignedIn, TokenTerms, Unavailable,
};
use reqwest::Method;

use crate::calls::Registered;
use crate::error::ClientError;
use crate::http::{Client, segment};

impl Client {
    /// Registers an agent or human; the token is returned only this once.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn register(&self, agent: &NewAgent) -> Result<Registered, ClientError> {
        self.post("/v1/agents", agent).await
    }

    /// Lists agents and humans.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn agents(&self) -> Result<Page<AgentView>, ClientError> {
        self.get("/v1/agents").await
    }

    /// Returns an agent or human by name; `me` is the token's owner.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn agent(&self, name: &str) -> Result<AgentView, ClientError> {
        self.get(&format!("/v1/agents/{}", segment(name))).await
    }

    /// Changes an agent's registration.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn amend(&self, name: &str, patch: &AgentPatch) -> Result<AgentView, ClientError> {
        let path = format!("/v1/agents/{}", segment(name));
        self.json(self.request(Method::PATCH, &path).json(patch)).await
    }

    /// Extends an agent's budget for today (B1).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn grant_agent(&self, name: &str, more: &AgentGrant) -> Result<AgentView, ClientError> {
        self.post(&format!("/v1/agents/{}/grant", segment(name)), more).await
    }

    /// Reports a prompt in an agent's session: the caller typed it, or the last one ended (H8).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn prompt(&self, name: &str, typed: bool) -> Result<(), ClientError> {
        let path = format!("/v1/agents/{}/prompt", segment(name));
        self.answer(self.request(Method::POST, &path).json(&Prompt { typed })).await.map(drop)
    }

    /// Tells why an agent's program can't work, to be told to whoever asks the agent; `me` is the token's owner.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn unavailable(&self, name: &str, reason: String) -> Result<(), ClientError> {
        let path = format!("/v1/agents/{}/unavailable", segment(name));
        self.answer(self.request(Method::POST, &path).json(&Unavailable { reason })).await.map(drop)
    }

    /// Returns the provider by which humans sign in; needs no token.
    ///
    /// # Errors
    /// See [`ClientError`]; `unknown_request` if the server has none.
    pub async fn sign_in_provider(&self) -> Result<SignInProvider, ClientError> {
        self.get("/v1/sign-in").await
    }

    /// Signs a human in by the provider's ID token; the token is returned only this once.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn sign_in(&self, id_token: &IdToken) -> Result<SignedIn, ClientError> {
        self.post("/v1/sign-in", id_token).await
    }

    /// Makes a link that signs the calling human in to the console, once.
    ///
    /// # Errors
    /// See [`ClientError`]; `forbidden` if the caller's token is a narrowed one or of a sign-in.
    pub async fn sign_in_link(&self) -> Result<SignInLink, ClientError> {
        self.post("/v1/sign-in/link", &serde_json::json!({})).await
    }

    /// Makes a narrowed token for the caller; it is returned only this once.
    ///
    /// # Errors
    /// See [`ClientError`]; `forbidden` if the caller's own token isn't one of the log.
    pub async fn narrow(&self, new: &NewToken) -> Result<NarrowedToken, ClientError> {
        self.post("/v1/token", new).await
    }

    /// Ends the sign-in whose token makes this call.
    ///
    /// # Errors
    /// See [`ClientError`]; `malformed` for any other token.
    pub async fn end_token(&self) -> Result<(), ClientError> {
        self.answer(self.request(Method::DELETE, "/v1/token")).await.map(drop)
    }

    /// Removes an agent: hands its requests back and revokes its token.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn remove(&self, name: &str) -> Result<(), ClientError> {
        let path = format!("/v1/agents/{}", segment(name));
        self.answer(self.request(Method::DELETE, &path)).await.map(drop)
    }

    /// Replaces an agent's or human's token by one that doesn't expire; the old one is revoked at once.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn rekey(&self, name: &str) -> Result<AgentToken, ClientError> {
        self.rotate(name, TokenTerms::default()).await
    }

    /// Replaces an agent's or human's token on these terms.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn rotate(&self, name: &str, terms: TokenTerms) -> Result<AgentToken, ClientError> {
        self.post(&format!("/v1/agents/{}/token", segment(name)), &terms).await
    }
}
