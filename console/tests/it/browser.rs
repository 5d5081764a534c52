//! A browser with a human in front of it.

use std::time::Duration;

use reqwest::header::{HeaderMap, LOCATION, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};

use crate::world::{World, http_builder};

/// A browser with one cookie that follows no redirects.
pub(crate) struct Browser<'a> {
    world: &'a World,
    pub(crate) http: Client,
    pub(crate) cookie: String,
}

/// A response as the browser gets it.
pub(crate) struct Seen {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Seen {
    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        self
    }

    #[track_caller]
    pub(crate) fn has(self, text: &str) -> Self {
        assert!(self.text.contains(text), "{text:?} is not in {}", self.text);
        self
    }

    #[track_caller]
    pub(crate) fn lacks(self, text: &str) -> Self {
        assert!(!self.text.contains(text), "{text:?} is in {}", self.text);
        self
    }

    pub(crate) fn location(&self) -> &str {
        self.headers[LOCATION].to_str().unwrap()
    }
}

impl<'a> Browser<'a> {
    pub(crate) fn of(world: &'a World) -> Self {
        let http = http_builder().redirect(Policy::none()).build().unwrap();
        Self { world, http, cookie: String::new() }
    }

    /// Returns a browser in which the operator has signed in.
    pub(crate) async fn signed_in(world: &'a World) -> Self {
        Self::as_human(world, "operator").await
    }

    /// Returns a browser in which this human has signed in.
    pub(crate) async fn as_human(world: &'a World, who: &str) -> Self {
        let mut browser = Self::of(world);
        let seen = browser.sign_in("token", world.token(who)).await.is(303);
        assert_eq!(seen.location(), format!("{}/", world.server.path()));
        browser
    }

    /// Opens a stream as the script of a page does.
    pub(crate) async fn stream(&self, path: &str) -> reqwest::Response {
        self.http.get(self.world.url(path)).header("cookie", &self.cookie).send().await.unwrap()
    }

    pub(crate) async fn sign_in(&mut self, field: &str, secret: &str) -> Seen {
        let seen = self.send("/sign-in", &[(field, secret)], &[]).await;
        if let Some(cookie) = seen.headers.get(SET_COOKIE) {
            self.cookie = cookie.to_str().unwrap().split(';').next().unwrap().to_owned();
        }
        seen
    }

    /// Signs in as through a proxy with TLS that keeps the host.
    pub(crate) async fn sign_in_over_https(&self) -> String {
        let host = self.world.url("").replace("http://", "https://");
        let token = [("token", self.world.token("operator"))];
        let seen = self.send("/sign-in", &token, &[("origin", &host)]).await.is(303);
        seen.headers[SET_COOKIE].to_str().unwrap().to_owned()
    }

    pub(crate) async fn get(&self, path: &str) -> Seen {
        self.ask(self.http.get(self.world.url(path))).await
    }

    /// Reads a page until it is so, but not for ever.
    pub(crate) async fn until(&self, path: &str, is_so: impl Fn(&str) -> bool) -> Seen {
        let read = async {
            loop {
                let page = self.get(path).await.is(200);
                if is_so(&page.text) {
                    break page;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(60), read).await.expect("the page never says it")
    }

    /// Sends a form with the secret of this session.
    pub(crate) async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Seen {
        self.post_from(path, fields, "div#flash").await
    }

    /// Sends a form whose response replaces the element `target`.
    pub(crate) async fn post_from(&self, path: &str, fields: &[(&str, &str)], target: &str) -> Seen {
        let secret = self.secret().await;
        let fields: Vec<_> = fields.iter().copied().chain([("forms", secret.as_str())]).collect();
        self.send(path, &fields, &[("hx-request", "true"), ("hx-target", target), ("sec-fetch-site", "same-origin")])
            .await
    }

    /// Returns the secret of this session's forms, as a page has it.
    pub(crate) async fn secret(&self) -> String {
        let page = self.get("/").await.is(200);
        let (_, rest) = page.text.split_once("name=\"forms\" value=\"").unwrap();
        rest.split('"').next().unwrap().to_owned()
    }

    pub(crate) async fn send(&self, path: &str, fields: &[(&str, &str)], headers: &[(&str, &str)]) -> Seen {
        let body =
            fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect::<Vec<_>>().join("&");
        let request = self.http.post(self.world.url(path)).header("content-type", "application/x-www-form-urlencoded");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        self.ask(request.body(body)).await
    }

    pub(crate) async fn ask(&self, request: reqwest::RequestBuilder) -> Seen {
        let request = if self.cookie.is_empty() { request } else { request.header("cookie", &self.cookie) };
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        Seen { status, headers, text: response.text().await.unwrap() }
    }
}

fn encoded(text: &str) -> String {
    text.bytes().map(|b| format!("%{b:02X}")).collect()
}
