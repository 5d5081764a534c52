//! Discord's REST API, as one bot.

mod bot_client;

use std::fmt;

use serde_json::{Value, json};
pub(crate) use twilight_http_ratelimiting::Method;

use self::bot_client::BotClient;
use super::model::{Channel, GuildMember, Post};
use super::settings::Secret;

/// Most posts that one call lists.
pub(crate) const PAGE: usize = 100;
/// Minutes of inactivity after which Discord archives a thread.
const ARCHIVE_MINUTES: u32 = 10_080;
/// Discord's error code: a thread was already started from this post.
const CODE_THREAD_EXISTS: u64 = 160_004;

/// A REST client of one bot.
pub(crate) struct Rest {
    bot_client: BotClient,
    /// The bot's Discord user.
    pub(crate) user: u64,
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
        let mut rest = Self { bot_client: BotClient::new(token, api)?, user: 0, application: 0 };
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

    /// Reads a channel or thread.
    pub(crate) async fn channel(&self, channel: u64) -> Result<Channel, RestError> {
        read(self.call(Method::Get, &format!("channels/{channel}"), None).await?)
    }

    /// Lists up to [`PAGE`] posts after one, oldest first.
    pub(crate) async fn posts_after(&self, channel: u64, after: u64) -> Result<Vec<Post>, RestError> {
        let path = format!("channels/{channel}/messages?after={after}&limit={PAGE}");
        let posts: Vec<Value> = read(self.call(Method::Get, &path, None).await?)?;
        // A post that can't be parsed must not hide the others.
        let mut posts: Vec<Post> = posts.into_iter().filter_map(|post| serde_json::from_value(post).ok()).collect();
        posts.sort_by_key(|post| post.id);
        Ok(posts)
    }

    /// Reads a post.
    pub(crate) async fn read_post(&self, channel: u64, post: u64) -> Result<Post, RestError> {
        read(self.call(Method::Get, &format!("channels/{channel}/messages/{post}"), None).await?)
    }

    /// Returns a user as a member of a guild; `None` if it isn't one.
    pub(crate) async fn member(&self, guild: u64, user: u64) -> Result<Option<GuildMember>, RestError> {
        match self.call(Method::Get, &format!("guilds/{guild}/members/{user}"), None).await {
            Ok(member) => read(member).map(Some),
            Err(RestError::Refused { status: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lists the open threads of a guild.
    pub(crate) async fn open_threads(&self, guild: u64) -> Result<Vec<Channel>, RestError> {
        let answer = self.call(Method::Get, &format!("guilds/{guild}/threads/active"), None).await?;
        read(answer["threads"].clone())
    }

    /// Lists a page of a channel's threads that were archived before a time, the latest first; the flag says whether
    /// there are more.
    pub(crate) async fn put_away(&self, channel: u64, before: Option<&str>) -> Result<(Vec<Channel>, bool), RestError> {
        let before = before.map(|moment| format!("&before={}", moment.replace('+', "%2B"))).unwrap_or_default();
        let path = format!("channels/{channel}/threads/archived/public?limit={PAGE}{before}");
        let answer = self.call(Method::Get, &path, None).await?;
        Ok((read(answer["threads"].clone())?, answer["has_more"] == true))
    }

    /// Returns the id of a channel's last post.
    pub(crate) async fn last_post(&self, channel: u64) -> Result<Option<u64>, RestError> {
        let posts = self.call(Method::Get, &format!("channels/{channel}/messages?limit=1"), None).await?;
        Ok(id_of(&posts[0]).ok())
    }

    /// Posts a message, with a text as its file if there is one, and returns its id.
    pub(crate) async fn post(&self, channel: u64, message: &Value, file: Option<&str>) -> Result<u64, RestError> {
        let path = format!("channels/{channel}/messages");
        let post = match file {
            Some(file) => self.bot_client.call_with_file(Method::Post, &path, message, file).await?,
            None => self.call(Method::Post, &path, Some(message)).await?,
        };
        id_of(&post)
    }

    /// Starts a thread from a post; returns the existing one if there is one.
    pub(crate) async fn start_thread(&self, channel: u64, post: u64, name: &str) -> Result<u64, RestError> {
        let path = format!("channels/{channel}/messages/{post}/threads");
        let body = json!({ "name": name, "auto_archive_duration": ARCHIVE_MINUTES });
        match self.call(Method::Post, &path, Some(&body)).await {
            Ok(thread) => id_of(&thread),
            // A thread has the id of the post that it was started from.
            Err(RestError::Refused { code: CODE_THREAD_EXISTS, .. }) => Ok(post),
            Err(error) => Err(error),
        }
    }

    /// Shows the typing sign.
    pub(crate) async fn typing(&self, channel: u64) -> Result<(), RestError> {
        self.call(Method::Post, &format!("channels/{channel}/typing"), None).await.map(|_| ())
    }

    /// Adds a reaction to a post.
    pub(crate) async fn react(&self, channel: u64, post: u64, emoji: &str) -> Result<(), RestError> {
        self.call(Method::Put, &reaction(channel, post, emoji), None).await.map(|_| ())
    }

    /// Takes this bot's reaction to a post back.
    pub(crate) async fn unreact(&self, channel: u64, post: u64, emoji: &str) -> Result<(), RestError> {
        self.call(Method::Delete, &reaction(channel, post, emoji), None).await.map(|_| ())
    }
}

fn reaction(channel: u64, post: u64, emoji: &str) -> String {
    let emoji: String = emoji.bytes().map(|byte| format!("%{byte:02X}")).collect();
    format!("channels/{channel}/messages/{post}/reactions/{emoji}/@me")
}

fn read<T: serde::de::DeserializeOwned>(answer: Value) -> Result<T, RestError> {
    serde_json::from_value(answer).map_err(|error| RestError::Unreachable(format!("an answer that is none: {error}")))
}

fn id_of(answer: &Value) -> Result<u64, RestError> {
    let id = answer["id"].as_str().and_then(|id| id.parse().ok());
    id.ok_or_else(|| RestError::Unreachable("an answer without an id".to_owned()))
}
