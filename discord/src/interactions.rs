//! Clicks, forms and commands: each is served by its own task, so that none waits behind another.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lastword_client::ClientError;
use lastword_client::wire::{DecideApproval, EscalationAnswer};
use lastword_facts::fact::Decision;
use serde::Deserialize as _;
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;

use super::actors::Actor;
use super::bridge::BridgeContext;
use super::cards::{Button, WORDS, form};
use super::commands;
use super::heard::{Heard, Reach};
use super::model::{GuildMember, Person};
use super::names::key;
use super::outbound::header;
use super::rest::{Method, RestError};
use super::settings::Settings;
use super::text::{MESSAGE_CHARS_MAX, split};
use super::wording::for_person;
use lastword_client::RetryingClient;

/// Longest call to the broker, during which the user sees only Discord's waiting sign.
const PATIENCE: Duration = Duration::from_secs(20);
/// Most messages of one reply.
const ANSWER_PARTS_MAX: usize = 4;

/// Most tasks during which a stranger's interaction is begun.
const STRANGERS_TASKS_MAX: usize = 8;

/// Most roles that a refusal names.
const NAMED_ROLES_MAX: usize = 10;

/// Types of an interaction's response.
const MESSAGE: u8 = 4;
const LATER: u8 = 5;
const UPDATE_LATER: u8 = 6;
const FORM: u8 = 9;
/// Message flag: only the caller sees the reply.
pub(crate) const FOR_ONE: u64 = 1 << 6;

/// What a user did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Called our command: the subcommand's name and its options.
    Command { name: String, options: BTreeMap<String, String> },
    /// Pressed one of our buttons.
    Click(Button),
    /// Submitted the form that a button opened.
    Form { button: Button, words: String },
    /// Something that isn't ours.
    Other,
}

/// An interaction of a user with our application.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Interaction {
    id: String,
    token: String,
    application: String,
    pub(crate) person: Person,
    pub(crate) channel: u64,
    /// The message whose button was pressed.
    post: Option<u64>,
    deed: Deed,
}

impl fmt::Debug for Interaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The interaction's token is left out: it allows posting as our application for 15 minutes.
        write!(f, "Interaction({} by {}: {:?})", self.id, self.person.user, self.deed)
    }
}

impl Interaction {
    /// Parses an interaction from the gateway; `None` if a field is missing.
    fn read(value: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let id = |value: &Value| value.as_str()?.parse().ok();
        let person = person_of(value)?;
        Some(Self {
            id: text(&value["id"])?,
            token: text(&value["token"])?,
            application: text(&value["application_id"])?,
            person,
            channel: id(&value["channel_id"]).or_else(|| id(&value["channel"]["id"]))?,
            post: id(&value["message"]["id"]),
            deed: deed(value["type"].as_u64(), &value["data"]),
        })
    }
}

fn deed(kind: Option<u64>, data: &Value) -> Deed {
    let button = || data["custom_id"].as_str().and_then(Button::parse);
    match kind {
        Some(2) if data["name"] == commands::NAME => {
            let sub = &data["options"][0];
            let given = sub["options"].as_array().into_iter().flatten();
            let given = given.filter_map(|o| Some((o["name"].as_str()?.to_owned(), o["value"].as_str()?.to_owned())));
            let name = sub["name"].as_str().unwrap_or_default().to_owned();
            Deed::Command { name, options: given.collect() }
        }
        Some(3) => button().map_or(Deed::Other, Deed::Click),
        Some(5) => {
            let parts = data["components"].as_array().into_iter().flatten();
            let mut fields = parts.flat_map(|row| row["components"].as_array().into_iter().flatten());
            let words = fields.find(|field| field["custom_id"] == WORDS).and_then(|field| field["value"].as_str());
            match (button(), words) {
                // Other buttons open no form, so a form with their id isn't ours.
                (Some(button @ (Button::Respond { .. } | Button::Answer { .. })), Some(words)) => {
                    Deed::Form { button, words: words.trim().to_owned() }
                }
                (_, _) => Deed::Other,
            }
        }
        Some(_) | None => Deed::Other,
    }
}

/// Returns whether an interaction only shows something, and so may come through an agent's bot.
pub(crate) fn is_harmless(value: &Value) -> bool {
    let button = value["data"]["custom_id"].as_str().and_then(Button::parse);
    value["type"] == 3 && matches!(button, Some(Button::Envelope { .. }))
}

/// Returns the person of an interaction: with its roles in the server, without any in a private channel.
pub(crate) fn person_of(value: &Value) -> Option<Person> {
    let member = Some(&value["member"]).filter(|member| member.is_object());
    let user = member.map_or(&value["user"], |member| &member["user"]);
    let known = member.and_then(|member| GuildMember::deserialize(member).ok()).unwrap_or_default();
    let roles = if user["bot"] == true { BTreeSet::new() } else { known.roles() };
    let name = user["username"].as_str().unwrap_or_default().to_owned();
    Some(Person { user: user["id"].as_str()?.parse().ok()?, name, roles })
}

/// Serves each interaction in its own task; those of people who may act go first. Returns when the gateway ends.
pub(crate) async fn serve(
    shared: Arc<BridgeContext>,
    mut told: Receiver<Value>,
    mut strangers: Receiver<Value>,
) -> String {
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            value = told.recv() => {
                let Some(value) = value else { return "the gateway ended".to_owned() };
                if let Some(interaction) = Interaction::read(&value) {
                    let shared = Arc::clone(&shared);
                    tasks.spawn(async move { one(&shared, &interaction).await });
                }
            }
            Some(_done) = tasks.join_next() => {}
            // Few at a time: their refusals must not use up the tasks or the rate limits of the humans' commands.
            Some(value) = strangers.recv(), if tasks.len() < STRANGERS_TASKS_MAX => {
                if let Some(interaction) = Interaction::read(&value) {
                    let shared = Arc::clone(&shared);
                    tasks.spawn(async move { one(&shared, &interaction).await });
                }
            }
        }
    }
}

async fn one(shared: &BridgeContext, interaction: &Interaction) {
    if let Err(error) = served(shared, interaction).await {
        let (user, id) = (interaction.person.user, &interaction.id);
        shared.outbox.warn(&format!("what {user} did with {id} got no answer. {error}"));
    }
}

async fn served(shared: &BridgeContext, interaction: &Interaction) -> Result<(), RestError> {
    match &interaction.deed {
        Deed::Other => return Ok(()),
        Deed::Click(Button::Envelope { id }) => return envelope(shared, interaction, id).await,
        Deed::Command { .. } | Deed::Click(_) | Deed::Form { .. } => {}
    }
    let home = shared.home_of(interaction.channel).await;
    let reach = if interaction.is_stop() { Reach::Anywhere } else { Reach::Channel(home) };
    let Some(heard) = shared.settings.heard(reach, &interaction.person) else {
        return interaction.say(shared, &shut_out(&shared.settings, home), FOR_ONE).await;
    };
    match &interaction.deed {
        Deed::Other => Ok(()),
        Deed::Command { name, options } => commands::run(shared, interaction, heard, name, options).await,
        Deed::Click(button) | Deed::Form { button, .. } if !interaction.is_of_card(shared, button.subject()) => {
            interaction.say(shared, "This card is outdated or belongs to another workspace.", FOR_ONE).await
        }
        Deed::Click(button) => match form(button) {
            Some(form) => interaction.answer(shared, FORM, form).await,
            None => settle(shared, interaction, heard, button, None).await,
        },
        Deed::Form { button, words } => settle(shared, interaction, heard, button, Some(words)).await,
    }
}

/// Tells a person who isn't heard in a channel who is.
fn shut_out(settings: &Settings, channel: u64) -> String {
    let mut roles: Vec<String> = settings.roles_in(channel).map(|role| format!("<@&{role}>")).collect();
    let more = if roles.len() > NAMED_ROLES_MAX { ", …" } else { "" };
    roles.truncate(NAMED_ROLES_MAX);
    let takes = match roles.as_slice() {
        [] => return "Only the people listed as `humans` of this channel in `lastword.toml` can do that.".to_owned(),
        [role] => format!("the role {role}"),
        roles => format!("one of the roles {}{more}", roles.join(", ")),
    };
    format!("That takes {takes}, or a place among the `humans` of this channel in `lastword.toml`.")
}

impl Interaction {
    async fn answer(&self, shared: &BridgeContext, kind: u8, data: Value) -> Result<(), RestError> {
        let body = json!({ "type": kind, "data": data });
        let path = format!("interactions/{}/{}/callback", self.id, self.token);
        shared.outbox.broker.call(Method::Post, &path, Some(&body)).await.map(|_| ())
    }

    /// Returns the idempotency key of the calls to the broker.
    pub(crate) fn key(&self) -> String {
        self.id.parse().map_or_else(|_| self.id.clone(), key)
    }

    /// Replies at once.
    pub(crate) async fn say(&self, shared: &BridgeContext, text: &str, flags: u64) -> Result<(), RestError> {
        let data = json!({ "content": text, "flags": flags, "allowed_mentions": { "parse": [] } });
        self.answer(shared, MESSAGE, data).await
    }

    /// Announces a later reply: Discord waits only three seconds for a response.
    pub(crate) async fn wait(&self, shared: &BridgeContext, flags: u64) -> Result<(), RestError> {
        self.answer(shared, LATER, json!({ "flags": flags })).await
    }

    /// Sends the announced reply.
    pub(crate) async fn tell(&self, shared: &BridgeContext, text: &str, flags: u64) -> Result<(), RestError> {
        let mut parts = split(text, MESSAGE_CHARS_MAX);
        parts.truncate(ANSWER_PARTS_MAX);
        for (number, part) in parts.iter().enumerate() {
            let body = json!({ "content": part, "flags": flags, "allowed_mentions": { "parse": [] } });
            let base = format!("webhooks/{}/{}", self.application, self.token);
            let (method, path) = match number {
                0 => (Method::Patch, format!("{base}/messages/@original")),
                _ => (Method::Post, base),
            };
            shared.outbox.broker.call(method, &path, Some(&body)).await?;
        }
        Ok(())
    }

    /// Replies to the user alone, beside the card.
    async fn whisper(&self, shared: &BridgeContext, text: &str) -> Result<(), RestError> {
        let body = json!({ "content": text, "flags": FOR_ONE, "allowed_mentions": { "parse": [] } });
        let path = format!("webhooks/{}/{}", self.application, self.token);
        shared.outbox.broker.call(Method::Post, &path, Some(&body)).await.map(|_| ())
    }

    /// Returns whether the interaction happened on the card noted under this id. The same bot may once have served
    /// another workspace in which the id meant something else. A form may arrive without the card that opened it.
    fn is_of_card(&self, shared: &BridgeContext, id: &str) -> bool {
        let known = shared.book.card(id).ok().flatten();
        known.is_some_and(|card| card.post.is_none() || self.post.is_none() || card.post == self.post)
    }

    /// Returns whether this is the command that cancels work.
    fn is_stop(&self) -> bool {
        matches!(&self.deed, Deed::Command { name, .. } if name == commands::STOP)
    }

    /// Returns whoever acts for the user in the workspace, or why nobody can.
    pub(crate) async fn actor<'a>(&self, shared: &'a BridgeContext, heard: Heard) -> Result<Actor<'a>, String> {
        let found = within(&shared.broker, shared.actor(&self.person, heard)).await;
        found.unwrap_or_else(|error| Err(failure(&error, Heard::Listed)))
    }
}

/// Makes a call with a time limit and without a retry: the user can click again.
pub(crate) async fn within<T>(
    broker: &RetryingClient,
    call: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    broker.within(PATIENCE, call).await
}

/// Words an error for the user who clicked.
pub(crate) fn failure(error: &ClientError, heard: Heard) -> String {
    match error.problem() {
        Some(problem) => for_person(problem, heard.role()),
        None => format!("Lastword is unreachable: {error}"),
    }
}

async fn envelope(shared: &BridgeContext, interaction: &Interaction, id: &str) -> Result<(), RestError> {
    let text = match within(&shared.broker, shared.broker.client().message(id)).await {
        Ok(message) => format!("`{}`\n-# {} · hop {}", header(&message), message.id, message.hops),
        Err(error) => failure(&error, Heard::Listed),
    };
    interaction.say(shared, &text, FOR_ONE).await
}

/// Decides or answers, and has the card show the outcome. If it was settled before, tells the user so.
async fn settle(
    shared: &BridgeContext,
    interaction: &Interaction,
    heard: Heard,
    button: &Button,
    words: Option<&String>,
) -> Result<(), RestError> {
    let id = button.subject();
    // Acknowledge first: Discord drops an interaction without a response after three seconds.
    interaction.answer(shared, UPDATE_LATER, Value::Null).await?;
    let actor = match interaction.actor(shared, heard).await {
        Ok(actor) => actor,
        Err(reason) => return interaction.whisper(shared, &reason).await,
    };
    let broker = actor.broker();
    // Held until the user is noted, so that the card isn't settled without the user's name.
    let settling = shared.desk.settling.lock().await;
    let done = within(broker, decide(broker, button, words)).await;
    actor.ended(&done);
    if done.is_ok() && shared.book.sign_card(id, interaction.person.user).is_err() {
        shared.outbox.warn(&format!("who settled {id} could not be noted"));
    }
    drop(settling);
    shared.desk.touch(id);
    match done {
        Ok(()) => Ok(()),
        Err(error) => interaction.whisper(shared, &failure(&error, heard)).await,
    }
}

async fn decide(broker: &RetryingClient, button: &Button, words: Option<&String>) -> Result<(), ClientError> {
    let decided = |decision, digest: Option<&String>| DecideApproval {
        decision,
        comment: words.cloned(),
        input: None,
        digest: digest.cloned(),
    };
    let answered = |answer: String| EscalationAnswer { answer, lift: None };
    match button {
        Button::Approve { id, digest } => {
            broker.client().decide(id, &decided(Decision::Approve, Some(digest))).await.map(|_| ())
        }
        Button::Reject { id } => broker.client().decide(id, &decided(Decision::Reject, None)).await.map(|_| ()),
        Button::Respond { id } => broker.client().decide(id, &decided(Decision::Respond, None)).await.map(|_| ()),
        Button::Option { id, number } => {
            let options = broker.client().escalation(id).await?.options;
            let answer = options
                .get(*number)
                .cloned()
                .ok_or_else(|| ClientError::Unusable(format!("{id} has no answer {number} to choose from")))?;
            broker.client().answer_escalation(id, &answered(answer)).await.map(|_| ())
        }
        Button::Lift { id, lift } => {
            let chosen = EscalationAnswer { answer: String::new(), lift: Some(lift.clone()) };
            broker.client().answer_escalation(id, &chosen).await.map(|_| ())
        }
        Button::Answer { id } => {
            let answer = words.cloned().unwrap_or_default();
            broker.client().answer_escalation(id, &answered(answer)).await.map(|_| ())
        }
        Button::Envelope { .. } => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interaction(kind: u8, data: &Value) -> Interaction {
        let value = json!({
            "id": "1", "token": "canary", "application_id": "2", "type": kind, "channel_id": "3", "data": data,
            "member": { "user": { "id": "7" } }, "message": { "id": "9" },
        });
        Interaction::read(&value).unwrap()
    }

    #[test]
    fn a_command_a_click_and_a_form_are_read_and_the_rest_is_nothing_of_ours() {
        let sub = json!({ "type": 1, "name": "tree", "options": [{ "type": 3, "name": "ref", "value": "D-1" }] });
        let command = interaction(2, &json!({ "name": "lastword", "options": [sub] }));
        let options = BTreeMap::from([("ref".to_owned(), "D-1".to_owned())]);
        assert_eq!(command.deed, Deed::Command { name: "tree".into(), options });
        assert_eq!((command.person.user, command.channel, command.post), (7, 3, Some(9)));
        let reject = Button::Reject { id: "apr-1".into() };
        assert_eq!(interaction(3, &json!({ "custom_id": "lw:reject:apr-1" })).deed, Deed::Click(reject));
        let field = json!({ "type": 4, "custom_id": "words", "value": " no \n" });
        let sent = json!({ "custom_id": "lw:respond:apr-1", "components": [{ "type": 1, "components": [field] }] });
        let respond = Button::Respond { id: "apr-1".into() };
        assert_eq!(interaction(5, &sent).deed, Deed::Form { button: respond, words: "no".into() });
        for (kind, data) in [(1, json!({})), (2, json!({ "name": "other" })), (3, json!({ "custom_id": "x" }))] {
            assert_eq!(interaction(kind, &data).deed, Deed::Other);
        }
        assert!(!format!("{command:?}").contains("canary"));
        assert_eq!(Interaction::read(&json!({ "id": "1" })), None);
    }

    #[test]
    fn a_persons_roles_are_those_of_the_server_and_a_bot_has_none() {
        let member =
            |bot: bool| json!({ "member": { "roles": ["8"], "user": { "id": "7", "username": "ann", "bot": bot } } });
        let person = |roles: &[u64]| Person { user: 7, name: "ann".into(), roles: roles.iter().copied().collect() };
        assert_eq!(person_of(&member(false)), Some(person(&[8])));
        assert_eq!(person_of(&member(true)), Some(person(&[])));
        assert_eq!(person_of(&json!({ "user": { "id": "7", "username": "ann" }, "roles": ["8"] })), Some(person(&[])));
        assert_eq!(person_of(&json!({})), None);
    }
}
