//! `lastword sign-in`: signs a human in by the workspace's identity provider, with the device authorization grant
//! (RFC 8628). The program is a public client: it talks to the provider itself and shows the broker the ID token alone.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::time::Duration;

use lastword_broker::files::write_private;
use lastword_client::wire::{IdToken, SignInProvider};
use lastword_client::{Client, Endpoint};
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::sleep;

use super::Context;
use crate::failure::Failure;
use crate::out::{Out, escape_line};

/// The time limit of one call to the provider.
const CALL_MAX: Duration = Duration::from_secs(20);
/// The time between two polls if the provider names none, and by how much it grows when the provider asks for that.
const INTERVAL_SECONDS: u64 = 5;
/// The longest that the program polls, whatever the provider says.
const EXPIRES_SECONDS_MAX: u64 = 1_800;
/// How often in a row the provider may fail to answer a poll.
const FAILURES_MAX: u32 = 5;
const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// What the provider says of itself, as far as it is used.
#[derive(Deserialize)]
struct ProviderMetadata {
    issuer: String,
    token_endpoint: String,
    device_authorization_endpoint: Option<String>,
}

#[derive(Deserialize)]
struct Device {
    device_code: String,
    user_code: String,
    verification_uri: String,
    verification_uri_complete: Option<String>,
    expires_in: u64,
    interval: Option<u64>,
}

/// The answer to a poll.
#[derive(Debug, Default, Deserialize)]
struct Polled {
    id_token: Option<String>,
    error: Option<String>,
}

/// What follows from the answer to a poll.
#[derive(Debug, PartialEq, Eq)]
enum PollResult {
    Done(String),
    Wait,
    /// Poll less often from now on.
    SlowDown,
    Failed(&'static str),
    Refused(String),
}

pub(crate) async fn run(Args {}: Args, cx: &Context) -> Result<(), Failure> {
    if let Some(variable) = cx.environment.agent {
        return Err(Failure::refused(format!("an agent is running this command ({variable} is set)"))
            .hint("sign in at a terminal of your own; an agent has its own token"));
    }
    let endpoint = cx.endpoint()?;
    let file = cx
        .sign_in_file(endpoint.url())
        .ok_or_else(|| Failure::usage("there is no place for the token: neither XDG_CONFIG_HOME nor HOME is set"))?;
    let broker = Client::new(&endpoint, None)?;
    let provider = broker.sign_in_provider().await?;
    let id_token = device(&provider).await?;
    let signed_in = broker.sign_in(&IdToken { id_token }).await?;
    if let Some(dir) = file.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    write_private(&file, format!("{}\n", signed_in.token).as_bytes())?;
    let (name, role, until) = (&signed_in.name, signed_in.role, &signed_in.expires_at);
    let shown = json!({ "name": name, "role": role, "expires_at": until, "token_file": file });
    cx.out.show(&shown, |_, _| format!("signed in as {name} ({role}) until {until}\ntoken in {}", file.display()))
}

/// Gets an ID token from the provider, once the human has consented in a browser.
async fn device(provider: &SignInProvider) -> Result<String, Failure> {
    let url = format!("{}/.well-known/openid-configuration", provider.issuer.trim_end_matches('/'));
    let metadata: ProviderMetadata = get(&url).await?;
    if metadata.issuer != provider.issuer {
        return Err(Failure::refused(format!("{url} describes another issuer, {:?}", metadata.issuer)));
    }
    let at = metadata.device_authorization_endpoint.ok_or_else(|| {
        Failure::refused(format!("{} has no device authorization", provider.issuer))
            .hint("sign in to the console instead, or use a token")
    })?;
    let client_id = provider.client_id.as_str();
    let (status, bytes) = post(&at, &[("client_id", client_id), ("scope", "openid email")]).await?;
    if status >= 400 {
        let Polled { error, .. } = serde_json::from_slice(&bytes).unwrap_or_default();
        let error = error.unwrap_or_else(|| status.to_string());
        return Err(Failure::refused(format!("{at} refuses the client {client_id:?}: {}", escape_line(&error)))
            .hint("the client has to be a public one with the device flow: cli_client_id in [oidc]"));
    }
    let device: Device = parsed(&bytes, &at)?;
    let page = device.verification_uri_complete.as_ref().unwrap_or(&device.verification_uri);
    Out::note(&format!(
        "open {} in a browser, check that it shows the code {}, and sign in",
        escape_line(page),
        escape_line(&device.user_code)
    ))?;
    poll(&metadata.token_endpoint, client_id, &device).await
}

/// Polls until the human has consented or the code expires.
async fn poll(at: &str, client_id: &str, device: &Device) -> Result<String, Failure> {
    let fields = [("grant_type", GRANT), ("device_code", device.device_code.as_str()), ("client_id", client_id)];
    let mut interval = device.interval.unwrap_or(INTERVAL_SECONDS);
    let (mut waited, mut failures) = (0, 0);
    while waited < device.expires_in.min(EXPIRES_SECONDS_MAX) {
        // At most ten times a second, even if the provider names no time.
        sleep(Duration::from_secs(interval).max(Duration::from_millis(100))).await;
        waited += interval.max(1);
        let answer = match post(at, &fields).await {
            Ok((status, bytes)) if status < 500 => parsed::<Polled>(&bytes, at)?,
            failed => {
                failures += 1;
                // RFC 8628 has a client that gets no answer poll less often.
                interval = interval.max(1) * 2;
                if failures > FAILURES_MAX {
                    return Err(failed.err().unwrap_or_else(|| Failure::unavailable(format!("{at} fails"))));
                }
                continue;
            }
        };
        failures = 0;
        match next(answer) {
            PollResult::Done(id_token) => return Ok(id_token),
            PollResult::Wait => {}
            PollResult::SlowDown => interval += INTERVAL_SECONDS,
            PollResult::Failed(why) => return Err(Failure::refused(why).hint("run `lastword sign-in` again")),
            PollResult::Refused(error) => {
                return Err(Failure::refused(format!("{at} refuses the sign-in: {}", escape_line(&error))));
            }
        }
    }
    Err(Failure::refused("the code expired before it was used").hint("run `lastword sign-in` again"))
}

fn next(Polled { id_token, error }: Polled) -> PollResult {
    match (id_token, error.as_deref()) {
        (Some(id_token), None) => PollResult::Done(id_token),
        (None, None) => PollResult::Failed("the provider sent no ID token"),
        (_, Some("authorization_pending")) => PollResult::Wait,
        (_, Some("slow_down")) => PollResult::SlowDown,
        (_, Some("expired_token")) => PollResult::Failed("the code expired before it was used"),
        (_, Some("access_denied")) => PollResult::Failed("the sign-in was refused at the provider"),
        (_, Some(error)) => PollResult::Refused(error.to_owned()),
    }
}

async fn get<T: DeserializeOwned>(url: &str) -> Result<T, Failure> {
    let request = http(url)?.get(url).header(ACCEPT, "application/json").timeout(CALL_MAX);
    let response = request.send().await.map_err(|error| unreachable(url, &error))?;
    let status = response.status();
    if !status.is_success() {
        return Err(Failure::unavailable(format!("{url} answers {status}")));
    }
    parsed(&response.bytes().await.map_err(|error| unreachable(url, &error))?, url)
}

async fn post(url: &str, fields: &[(&str, &str)]) -> Result<(u16, Vec<u8>), Failure> {
    let mut body = reqwest::Url::parse("form:").map_err(Failure::bug)?;
    body.query_pairs_mut().extend_pairs(fields);
    let request = http(url)?.post(url).header(CONTENT_TYPE, "application/x-www-form-urlencoded").timeout(CALL_MAX);
    let request = request.header(ACCEPT, "application/json").body(body.query().unwrap_or_default().to_owned());
    let response = request.send().await.map_err(|error| unreachable(url, &error))?;
    let status = response.status().as_u16();
    Ok((status, response.bytes().await.map_err(|error| unreachable(url, &error))?.to_vec()))
}

/// Returns a client that follows no redirect. Codes go to no address without TLS, except on this machine.
fn http(url: &str) -> Result<reqwest::Client, Failure> {
    let named = reqwest::Url::parse(url).map_err(|error| Failure::refused(format!("{url:?}: {error}")))?;
    let here = matches!(named.host_str(), Some("127.0.0.1" | "[::1]" | "localhost"));
    if named.scheme() != "https" && !here {
        return Err(Failure::refused(format!("the provider's address {url:?} has no TLS")));
    }
    Ok(Endpoint::new(url).http()?)
}

fn parsed<T: DeserializeOwned>(bytes: &[u8], url: &str) -> Result<T, Failure> {
    serde_json::from_slice(bytes)
        .map_err(|error| Failure::unavailable(format!("the answer of {url} is not what is defined: {error}")))
}

fn unreachable(url: &str, error: &reqwest::Error) -> Failure {
    Failure::unavailable(format!("the provider can't be reached at {url}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_to_a_poll_has_its_step() {
        let polled = |text: &str| next(serde_json::from_str(text).unwrap());
        assert_eq!(polled(r#"{"error":"authorization_pending"}"#), PollResult::Wait);
        assert_eq!(polled(r#"{"error":"slow_down"}"#), PollResult::SlowDown);
        assert!(matches!(polled(r#"{"error":"expired_token"}"#), PollResult::Failed(why) if why.contains("expired")));
        assert!(matches!(polled(r#"{"error":"access_denied"}"#), PollResult::Failed(why) if why.contains("refused")));
        assert_eq!(polled(r#"{"error":"invalid_client"}"#), PollResult::Refused("invalid_client".into()));
        assert_eq!(polled(r#"{"id_token":"a.b.c","access_token":"x"}"#), PollResult::Done("a.b.c".into()));
        assert!(matches!(polled(r#"{"access_token":"x"}"#), PollResult::Failed(_)));
    }

    #[test]
    fn codes_go_over_tls_or_stay_on_this_machine() {
        assert!(http("http://id.example/token").is_err());
        assert!(http("http://127.0.0.1.evil.example/token").is_err());
        assert!(http("http://127.0.0.1:1/token").is_ok());
    }
}
