//! Discord's REST API, as one bot.

mod bot_client;

use std::fmt;
use std::str::FromStr;

use lastword_bridge::ids::{PostId, UserId};
use lastword_bridge::platform::PlatformError;
use lastword_bridge::settings::Secret;
use serde::de::DeserializeOwned;
use serde_json::Value;
pub(crate) use twilight_http_ratelimiting::Method;

use self::bot_client::BotClient;

/// A REST client of one bot.
pub(crate) struct Rest {
    bot_client: BotClient,
    /// The bot's Discord user.
    pub(crate) user: UserId,
    /// The bot's application, whose id differs from the user's for old bots.
    pub(crate) application: u64,
}

impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rest({})", self.user)
    }
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RestError {
    /// Discord refuses the call.
    Refused {
        /// The HTTP status.
        status: u16,
        /// Discord's error code; 0 if it gave none.
        code: u64,
        /// Discord's explanation, in English.
        message: String,
    },
    /// No usable response; the call may have been carried out.
    Unreachable(String),
}

impl RestError {
    /// Returns whether a retry may succeed.
    pub(crate) const fn may_pass(&self) -> bool {
        match self {
            Self::Refused { status, .. } => *status >= 500 || *status == 429,
            Self::Unreachable(_) => true,
        }
    }
}

impl fmt::Display for RestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { status: 401, .. } => f.write_str("Discord does not know this bot token"),
            Self::Refused { status, message, .. } => write!(f, "Discord refuses: {message} ({status})"),
            Self::Unreachable(reason) => write!(f, "Discord does not answer: {reason}"),
        }
    }
}

impl Rest {
    /// Connects as the bot with this token and reads its user id.
    pub(crate) async fn start(token: &Secret, api: Option<&str>) -> Result<Self, RestError> {
        let mut rest = Self { bot_client: BotClient::new(token, api)?, user: UserId::default(), application: 0 };
        let me = rest.call(Method::Get, "users/@me", None).await?;
        rest.user = id_of(&me)?;
        rest.application = id_of(&rest.call(Method::Get, "applications/@me", None).await?)?;
        Ok(rest)
    }

    /// Makes a call; returns its response as JSON, `null` if it is empty. A call refused with 429 is repeated after the
    /// pause that Discord demands.
    pub(crate) async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, RestError> {
        self.bot_client.call(method, path, body).await
    }

    /// Returns whether Discord knows the bot's token, as far as its answers say.
    pub(crate) fn is_known(&self) -> bool {
        self.bot_client.is_known()
    }

    /// Returns Discord's time in Unix milliseconds; `None` before the first response.
    pub(crate) fn now_ms(&self) -> Option<u64> {
        self.bot_client.now_ms()
    }

    /// Reads what is at a path.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, RestError> {
        let none = |error| RestError::Unreachable(format!("an answer that is none: {error}"));
        serde_json::from_value(self.call(Method::Get, path, None).await?).map_err(none)
    }

    /// Makes a call whose response says nothing.
    pub(crate) async fn tell(&self, method: Method, path: &str, body: Option<&Value>) -> Result<(), RestError> {
        self.call(method, path, body).await.map(|_| ())
    }

    /// Makes a call; returns the id in its response.
    pub(crate) async fn make<Id: FromStr>(&self, path: &str, body: &Value) -> Result<Id, RestError> {
        id_of(&self.call(Method::Post, path, Some(body)).await?)
    }

    /// Posts a message with a text as its file, and returns its id.
    pub(crate) async fn post_file(&self, path: &str, message: &Value, file: &str) -> Result<PostId, RestError> {
        id_of(&self.bot_client.call_with_file(Method::Post, path, message, file).await?)
    }
}

impl From<RestError> for PlatformError {
    fn from(error: RestError) -> Self {
        Self { message: error.to_string(), may_pass: error.may_pass() }
    }
}

/// Reads the id of an object.
pub(crate) fn id_of<Id: FromStr>(answer: &Value) -> Result<Id, RestError> {
    let id = answer["id"].as_str().and_then(|id| id.parse().ok());
    id.ok_or_else(|| RestError::Unreachable("an answer without an id".to_owned()))
}
