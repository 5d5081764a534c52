//! Discord, as the bridge uses it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use futures_util::future::BoxFuture;
use lastword_bridge::dialect::Dialect;
use lastword_bridge::event::EventSink;
use lastword_bridge::ids::{ChannelId, PostId, RoleId, ServerId, UserId};
use lastword_bridge::interactions::{Answer, Interaction};
use lastword_bridge::platform::{Inlet, ListPart, Part, Platform, PlatformCall, PlatformError, Poster, Spot};
use lastword_bridge::post::{Channel, Post, ThreadState};
use lastword_bridge::settings::Secret;
use serde::Deserialize;
use serde_json::{Value, json};

use super::dialect::DISCORD;
use super::gateway::{Role, listen};
use super::model::{ChannelObject, Message, first_id, moment};
use super::rest::{Method, Rest, RestError, id_of};
use super::settings::DiscordSettings;
use super::sights::Sights;
use super::{commands, interactions};

/// Most posts or threads that one call lists.
const PAGE: usize = 100;
/// Minutes of inactivity after which Discord archives a thread.
const ARCHIVE_MINUTES: u32 = 10_080;
/// Discord's error code: a thread was already started from this post.
const CODE_THREAD_EXISTS: u64 = 160_004;

/// Discord, with the bots that have a token.
#[derive(Debug)]
pub(crate) struct Discord {
    accounts: BTreeMap<Poster, Account>,
    api: Option<String>,
    gateway: Option<String>,
    sights: Sights,
    report: EventSink,
}

/// A bot, and its client once it is signed in.
#[derive(Debug)]
struct Account {
    token: Secret,
    rest: OnceLock<Rest>,
}

impl Discord {
    pub(crate) fn new(settings: &DiscordSettings, report: EventSink) -> Self {
        let account = |token: &Secret| Account { token: token.clone(), rest: OnceLock::new() };
        let agents = settings.tokens.iter().map(|(agent, token)| (Poster::Agent(agent.clone()), account(token)));
        let broker = settings.broker.iter().map(|token| (Poster::Broker, account(token)));
        let (api, gateway) = (settings.api.clone(), settings.gateway.clone());
        Self { accounts: agents.chain(broker).collect(), api, gateway, sights: Sights::default(), report }
    }

    fn account(&self, bot: &Poster) -> Result<&Account, PlatformError> {
        let message = || format!("there is no token of {bot:?}");
        self.accounts.get(bot).ok_or_else(|| PlatformError { message: message(), may_pass: false })
    }

    fn rest(&self, bot: &Poster) -> Result<&Rest, PlatformError> {
        let message = || format!("{bot:?} isn't signed in");
        self.account(bot)?.rest.get().ok_or_else(|| PlatformError { message: message(), may_pass: false })
    }

    fn broker(&self) -> Result<&Rest, PlatformError> {
        self.rest(&Poster::Broker)
    }
}

impl Platform for Discord {
    fn dialect(&self) -> &'static Dialect {
        &DISCORD
    }

    fn sign_in<'a>(&'a self, bot: &'a Poster) -> PlatformCall<'a, UserId> {
        Box::pin(async move {
            let account = self.account(bot)?;
            let rest = Rest::start(&account.token, self.api.as_deref()).await?;
            let user = rest.user;
            // The first one stays: it knows its rate limits.
            let _new = account.rest.set(rest).is_ok();
            Ok(user)
        })
    }

    fn knows(&self, bot: &Poster) -> bool {
        self.rest(bot).is_ok_and(Rest::is_known)
    }

    fn listen<'a>(&'a self, bot: &'a Poster, inlet: &'a Inlet) -> BoxFuture<'a, String> {
        Box::pin(async move {
            let role = match bot {
                Poster::Broker => Role::Reader,
                Poster::Agent(_) => Role::Present,
            };
            match self.account(bot) {
                Ok(account) => listen(&account.token, self.gateway.as_deref(), role, inlet).await,
                Err(error) => error.message,
            }
        })
    }

    fn offer_commands<'a>(&'a self, channels: &'a BTreeSet<ChannelId>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Ok(rest) = self.broker() {
                commands::register(rest, channels, &self.report).await;
            }
        })
    }

    fn now_ms(&self) -> Option<u64> {
        self.broker().ok()?.now_ms()
    }

    fn time_of(&self, post: PostId) -> u64 {
        moment(post)
    }

    fn first_at(&self, unix_ms: u64) -> PostId {
        first_id(unix_ms)
    }

    fn channel(&self, channel: ChannelId) -> PlatformCall<'_, Channel> {
        Box::pin(async move { Ok(self.broker()?.get::<ChannelObject>(&format!("channels/{channel}")).await?.into()) })
    }

    fn last_post(&self, channel: ChannelId) -> PlatformCall<'_, Option<PostId>> {
        Box::pin(async move {
            let posts: Value = self.broker()?.get(&format!("channels/{channel}/messages?limit=1")).await?;
            Ok(id_of(&posts[0]).ok())
        })
    }

    fn posts_after<'a>(&'a self, bot: &'a Poster, spot: Spot) -> PlatformCall<'a, ListPart<Post>> {
        Box::pin(async move {
            let path = format!("channels/{}/messages?after={}&limit={PAGE}", spot.channel, spot.post);
            let posts: Vec<Value> = self.rest(bot)?.get(&path).await?;
            // A post that can't be parsed must not hide the others.
            let posts = posts.into_iter().filter_map(|post| serde_json::from_value::<Message>(post).ok());
            let mut items: Vec<Post> = posts.map(Post::from).collect();
            items.sort_by_key(|post| post.id);
            Ok(ListPart { more: items.len() == PAGE, items })
        })
    }

    fn read_post(&self, spot: Spot) -> PlatformCall<'_, Post> {
        Box::pin(async move { Ok(self.broker()?.get::<Message>(&path(spot)).await?.into()) })
    }

    fn open_threads(&self, server: ServerId) -> PlatformCall<'_, Vec<ThreadState>> {
        Box::pin(async move {
            let open: Threads = self.broker()?.get(&format!("guilds/{server}/threads/active")).await?;
            Ok(open.threads.into_iter().filter_map(ChannelObject::thread).collect())
        })
    }

    fn archived_threads<'a>(
        &'a self,
        channel: ChannelId,
        before: Option<&'a str>,
    ) -> PlatformCall<'a, ListPart<ThreadState>> {
        Box::pin(async move {
            let before = before.map(|moment| format!("&before={}", moment.replace('+', "%2B"))).unwrap_or_default();
            let path = format!("channels/{channel}/threads/archived/public?limit={PAGE}{before}");
            let found: Threads = self.broker()?.get(&path).await?;
            Ok(ListPart {
                items: found.threads.into_iter().filter_map(ChannelObject::thread).collect(),
                more: found.has_more,
            })
        })
    }

    fn user_name(&self, user: UserId) -> PlatformCall<'_, String> {
        Box::pin(async move {
            let found: Value = self.broker()?.get(&format!("users/{user}")).await?;
            Ok(found["username"].as_str().unwrap_or_default().to_owned())
        })
    }

    fn roles_of(&self, channel: ChannelId, user: UserId) -> PlatformCall<'_, Option<BTreeSet<RoleId>>> {
        Box::pin(async move { Ok(self.sights.roles(self.broker()?, channel, user).await?) })
    }

    fn forget_roles(&self) {
        self.sights.forget();
    }

    fn post<'a>(&'a self, bot: &'a Poster, part: &'a Part<'a>) -> PlatformCall<'a, PostId> {
        Box::pin(async move {
            let (rest, path) = (self.rest(bot)?, format!("channels/{}/messages", part.channel));
            Ok(match part.file {
                Some(file) => rest.post_file(&path, &message(part), file).await?,
                None => rest.make(&path, &message(part)).await?,
            })
        })
    }

    fn change<'a>(&'a self, spot: Spot, text: &'a str, buttons: &'a Value) -> PlatformCall<'a, ()> {
        Box::pin(async move {
            let change = json!({ "content": text, "components": buttons, "allowed_mentions": { "parse": [] } });
            Ok(self.broker()?.tell(Method::Patch, &path(spot), Some(&change)).await?)
        })
    }

    fn start_thread<'a>(&'a self, spot: Spot, name: &'a str) -> PlatformCall<'a, ChannelId> {
        Box::pin(async move {
            let body = json!({ "name": name, "auto_archive_duration": ARCHIVE_MINUTES });
            match self.broker()?.make(&format!("{}/threads", path(spot)), &body).await {
                // A thread has the id of the post that it was started from.
                Err(RestError::Refused { code: CODE_THREAD_EXISTS, .. }) => Ok(ChannelId::new(spot.post.number())),
                made => Ok(made?),
            }
        })
    }

    fn typing<'a>(&'a self, bot: &'a Poster, channel: ChannelId) -> PlatformCall<'a, ()> {
        Box::pin(
            async move { Ok(self.rest(bot)?.tell(Method::Post, &format!("channels/{channel}/typing"), None).await?) },
        )
    }

    fn sign<'a>(&'a self, bot: &'a Poster, spot: Spot, emoji: &'a str) -> PlatformCall<'a, ()> {
        Box::pin(async move { Ok(self.rest(bot)?.tell(Method::Put, &reaction(spot, emoji), None).await?) })
    }

    fn unsign<'a>(&'a self, bot: &'a Poster, spot: Spot, emoji: &'a str) -> PlatformCall<'a, ()> {
        Box::pin(async move { Ok(self.rest(bot)?.tell(Method::Delete, &reaction(spot, emoji), None).await?) })
    }

    fn answer<'a>(&'a self, interaction: &'a Interaction, answer: Answer<'a>) -> PlatformCall<'a, ()> {
        Box::pin(async move { Ok(interactions::answer(self.broker()?, interaction, answer).await?) })
    }
}

/// Some threads.
#[derive(Deserialize)]
struct Threads {
    threads: Vec<ChannelObject>,
    #[serde(default)]
    has_more: bool,
}

fn path(spot: Spot) -> String {
    format!("channels/{}/messages/{}", spot.channel, spot.post)
}

fn reaction(spot: Spot, emoji: &str) -> String {
    let emoji: String = emoji.bytes().map(|byte| format!("%{byte:02X}")).collect();
    format!("{}/reactions/{emoji}/@me", path(spot))
}

/// Builds a message that pings no user except one.
fn message(part: &Part<'_>) -> Value {
    let users: Vec<String> = part.ping.iter().map(ToString::to_string).collect();
    let mut message = json!({
        "content": part.text,
        "nonce": part.nonce,
        // Discord itself drops a repeated nonce for a few minutes; the bridge's file covers later retries.
        "enforce_nonce": true,
        "allowed_mentions": { "parse": [], "users": users, "replied_user": false },
    });
    if let Some(reply) = part.reply {
        message["message_reference"] = json!({ "message_id": reply.to_string(), "fail_if_not_exists": false });
    }
    if let Some(buttons) = part.buttons {
        message["components"] = buttons.clone();
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_post_pings_nobody_but_whom_it_is_delivered_to() {
        let (nonce, channel, reply) = ("n", ChannelId::new(1), Some(PostId::new(5)));
        let plain = Part { nonce, channel, text: "@everyone <@1>", ping: None, reply, buttons: None, file: None };
        let ping = Part { ping: Some(UserId::new(7)), reply: None, ..plain };
        let plain = message(&plain);
        assert_eq!(plain["allowed_mentions"], json!({ "parse": [], "users": [], "replied_user": false }));
        assert_eq!((&plain["nonce"], &plain["enforce_nonce"]), (&json!("n"), &json!(true)));
        assert_eq!(plain["message_reference"]["message_id"], "5");
        assert_eq!(message(&ping)["allowed_mentions"]["users"], json!(["7"]));
    }
}
