//! Calls about agents and humans, their tokens and roles, and a human's sign-in.
#![expect(clippy::missing_errors_doc, reason = "every call fails as `ClientError` says")]

use lastword_wire::calls::{
    AddAgent, AddHuman, AmendAgent, AmendHuman, EndToken, ExtendAgent, GetAgent, GetSignInProvider, ListAgents,
    ListHumans, MakeSignInLink, NarrowToken, RemoveAgent, ReplaceToken, ReportPrompt, ReportUnavailable, SignIn,
};
use lastword_wire::{
    AgentGrant, AgentPatch, AgentToken, AgentView, HumanPatch, IdToken, NarrowedToken, NewAgent, NewHuman, NewToken,
    Page, Prompt, SignInLink, SignInProvider, SignedIn, TokenTerms, Unavailable,
};

use crate::calls::Registered;
use crate::error::ClientError;
use crate::http::Client;

impl Client {
    /// Registers an agent or human; the token is returned only this once.
    pub async fn register(&self, agent: &NewAgent) -> Result<Registered, ClientError> {
        self.ask::<AddAgent>("").body(agent).answer().await
    }

    /// Lists agents and humans.
    pub async fn agents(&self) -> Result<Page<AgentView>, ClientError> {
        self.ask::<ListAgents>("").answer().await
    }

    /// Returns an agent or human by name; `me` is the token's owner.
    pub async fn agent(&self, name: &str) -> Result<AgentView, ClientError> {
        self.ask::<GetAgent>(name).answer().await
    }

    /// Changes an agent's registration.
    pub async fn amend(&self, name: &str, patch: &AgentPatch) -> Result<AgentView, ClientError> {
        self.ask::<AmendAgent>(name).body(patch).answer().await
    }

    /// Extends an agent's budget for today (B1).
    pub async fn grant_agent(&self, name: &str, more: &AgentGrant) -> Result<AgentView, ClientError> {
        self.ask::<ExtendAgent>(name).body(more).answer().await
    }

    /// Reports a prompt in an agent's session: the caller typed it, or the last one ended (H8).
    pub async fn prompt(&self, name: &str, typed: bool) -> Result<(), ClientError> {
        self.ask::<ReportPrompt>(name).body(&Prompt { typed }).answer().await
    }

    /// Tells why an agent's program can't work, to be told to whoever asks the agent; `me` is the token's owner.
    pub async fn unavailable(&self, name: &str, reason: String) -> Result<(), ClientError> {
        self.ask::<ReportUnavailable>(name).body(&Unavailable { reason }).answer().await
    }

    /// Returns the provider by which humans sign in; needs no token.
    /// `unknown_request` if the server has none.
    pub async fn sign_in_provider(&self) -> Result<SignInProvider, ClientError> {
        self.ask::<GetSignInProvider>("").answer().await
    }

    /// Signs a human in by the provider's ID token; the token is returned only this once.
    pub async fn sign_in(&self, id_token: &IdToken) -> Result<SignedIn, ClientError> {
        self.ask::<SignIn>("").body(id_token).answer().await
    }

    /// Makes a link that signs the calling human in to the console, once.
    /// `forbidden` if the caller's token is a narrowed one or of a sign-in.
    pub async fn sign_in_link(&self) -> Result<SignInLink, ClientError> {
        self.ask::<MakeSignInLink>("").answer().await
    }

    /// Makes a narrowed token for the caller; it is returned only this once.
    /// `forbidden` if the caller's own token isn't one of the log.
    pub async fn narrow(&self, new: &NewToken) -> Result<NarrowedToken, ClientError> {
        self.ask::<NarrowToken>("").body(new).answer().await
    }

    /// Ends the sign-in whose token makes this call.
    /// `malformed` for any other token.
    pub async fn end_token(&self) -> Result<(), ClientError> {
        self.ask::<EndToken>("").answer().await
    }

    /// Removes an agent: hands its requests back and revokes its token.
    pub async fn remove(&self, name: &str) -> Result<(), ClientError> {
        self.ask::<RemoveAgent>(name).answer().await
    }

    /// Replaces an agent's or human's token by one that doesn't expire; the old one is revoked at once.
    pub async fn rekey(&self, name: &str) -> Result<AgentToken, ClientError> {
        self.rotate(name, TokenTerms::default()).await
    }

    /// Replaces an agent's or human's token on these terms.
    pub async fn rotate(&self, name: &str, terms: TokenTerms) -> Result<AgentToken, ClientError> {
        self.ask::<ReplaceToken>(name).body(&terms).answer().await
    }

    /// Lists humans, with their roles.
    pub async fn humans(&self) -> Result<Page<AgentView>, ClientError> {
        self.ask::<ListHumans>("").answer().await
    }

    /// Registers a human with a role; the token is returned only this once.
    pub async fn register_human(&self, human: &NewHuman) -> Result<Registered, ClientError> {
        self.ask::<AddHuman>("").body(human).answer().await
    }

    /// Like [`Client::register_human`], with an idempotency key: a retry with the same key returns the same human, with a
    /// new token.
    pub async fn register_human_keyed(&self, human: &NewHuman, key: &str) -> Result<Registered, ClientError> {
        self.ask::<AddHuman>("").body(human).key(Some(key)).answer().await
    }

    /// Sets a human's role (H7).
    pub async fn amend_human(&self, name: &str, patch: &HumanPatch) -> Result<AgentView, ClientError> {
        self.ask::<AmendHuman>(name).body(patch).answer().await
    }
}
