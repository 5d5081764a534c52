//! A call of the table on its way: its row says the method, the path, the body and the answer.

use std::marker::PhantomData;
use std::time::Duration;

use lastword_wire::TypedCall;
use reqwest::{Method, RequestBuilder, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::ClientError;
use crate::http::{Client, segment};

/// The most pages of a list that are read at once; each has at most 1 MiB of texts.
const PAGES_MAX: usize = 16;

/// A call that is being put together.
pub(crate) struct Asking<'c, C> {
    client: &'c Client,
    request: RequestBuilder,
    call: PhantomData<C>,
}

impl Client {
    /// Begins a call about `part`, which its path leaves open.
    pub(crate) fn ask<C: TypedCall>(&self, part: &str) -> Asking<'_, C> {
        let path = match C::CALL.path.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?.1)))
        {
            Some((before, after)) => format!("/v1{before}{}{after}", segment(part)),
            None => format!("/v1{}", C::CALL.path),
        };
        // The table has no other methods than those of HTTP.
        let method = C::CALL.method.parse().unwrap_or(Method::POST);
        Asking { client: self, request: self.request(method, &path), call: PhantomData }
    }
}

impl<C: TypedCall> Asking<'_, C> {
    /// Sets the body.
    pub(crate) fn body(self, body: &C::Body) -> Self
    where
        C::Body: Serialize,
    {
        Self { request: self.request.json(body), ..self }
    }

    /// Sets a body in plain text.
    pub(crate) fn text(self, text: String) -> Self {
        Self { request: self.request.header("Content-Type", "text/plain").body(text), ..self }
    }

    /// Adds query parameters.
    pub(crate) fn query(self, parameters: &impl Serialize) -> Self {
        Self { request: self.request.query(parameters), ..self }
    }

    /// Waits in the server for what the call is about.
    pub(crate) fn wait(self, wait: Option<Duration>) -> Self {
        match wait {
            Some(wait) => self.query(&[("wait", format!("{}ms", wait.as_millis()))]),
            None => self,
        }
    }

    /// Sets the idempotency key: a retry with the same key returns the first result.
    pub(crate) fn key(self, key: Option<&str>) -> Self {
        match key {
            Some(key) => Self { request: self.request.header("Idempotency-Key", key), ..self },
            None => self,
        }
    }

    /// Makes the call and returns its answer.
    pub(crate) async fn answer(self) -> Result<C::Answer, ClientError>
    where
        C::Answer: DeserializeOwned,
    {
        self.client.json(self.request).await
    }

    /// Makes the call and returns its answer in another form than the table has.
    pub(crate) async fn answer_as<T: DeserializeOwned>(self) -> Result<T, ClientError> {
        self.client.json(self.request).await
    }

    /// Makes the call and returns the response with what it streams.
    pub(crate) async fn response(self) -> Result<Response, ClientError> {
        self.client.answer(self.request).await
    }
}

impl Client {
    /// Reads a list, page by page; a very long one ends with the cursor of its rest.
    pub(crate) async fn pages<C, T>(&self) -> Result<C::Answer, ClientError>
    where
        C: TypedCall<Answer = lastword_wire::Page<T>>,
        T: DeserializeOwned,
    {
        let mut page = self.ask::<C>("").answer().await?;
        for _ in 1..PAGES_MAX {
            let Some(cursor) = page.next.take() else { break };
            let next = self.ask::<C>("").query(&[("cursor", cursor)]).answer().await?;
            page.items.extend(next.items);
            page.next = next.next;
        }
        Ok(page)
    }
}
