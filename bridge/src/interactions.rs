//! Clicks, forms and commands: each is served by its own task, so that none waits behind another.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lastword_client::wire::{DecideApproval, EscalationAnswer};
use lastword_client::{ClientError, RetryingClient};
use lastword_facts::fact::Decision;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;

use super::actors::Actor;
use super::bridge::BridgeContext;
use super::cards::{Button, Form, form};
use super::commands;
use super::heard::{Heard, Reach};
use super::ids::{ChannelId, PostId};
use super::outbound::header;
use super::platform::PlatformError;
use super::post::Person;
use super::settings::Secret;
use super::wording::for_person;

/// Longest call to the broker, during which the user sees only the platform's waiting sign.
const PATIENCE: Duration = Duration::from_secs(20);

/// Most tasks during which a stranger's interaction is begun.
const STRANGERS_TASKS_MAX: usize = 8;

/// Most roles that a refusal names.
const NAMED_ROLES_MAX: usize = 10;

/// What a user did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Called our command: the subcommand's name and its options.
    Command {
        /// The subcommand.
        name: String,
        /// What was given, by option.
        options: BTreeMap<String, String>,
    },
    /// Pressed a button.
    Click(String),
    /// Submitted the form that a button opened.
    Form {
        /// The button.
        button: String,
        /// What was written.
        words: String,
    },
    /// Something that isn't ours.
    Other,
}

/// An interaction of a user with our application.
#[derive(Clone, PartialEq, Eq)]
pub struct Interaction {
    /// Its id, which no other has.
    pub id: String,
    /// What the platform needs to answer.
    pub handle: Secret,
    /// Who acted.
    pub person: Person,
    /// The channel or thread in which it happened.
    pub channel: ChannelId,
    /// The post whose button was pressed.
    pub post: Option<PostId>,
    /// What was done.
    pub deed: Deed,
}

/// Who sees an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Whoever acted.
    One,
    /// Everyone in the channel.
    Everyone,
}

/// An answer to an interaction.
#[derive(Clone, Copy, Debug)]
pub enum Answer<'a> {
    /// A reply, at once.
    Say(&'a str),
    /// A later reply is announced: a platform may wait only a moment.
    Announce(Audience),
    /// The announced reply.
    Tell(&'a str, Audience),
    /// A click is taken, and changes its card later.
    Take,
    /// A reply to whoever clicked, beside the card.
    Whisper(&'a str),
    /// A form opens.
    Open(&'a Form),
}

impl fmt::Debug for Interaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the handle, which may allow posting as our application.
        write!(f, "Interaction({} by {}: {:?})", self.id, self.person.user, self.deed)
    }
}

/// Serves each interaction in its own task; those of people who may act go first. Returns when the gateway ends.
pub(crate) async fn serve(
    shared: Arc<BridgeContext>,
    mut told: Receiver<Interaction>,
    mut strangers: Receiver<Interaction>,
) -> String {
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            interaction = told.recv() => {
                let Some(interaction) = interaction else { return "the gateway ended".to_owned() };
                let shared = Arc::clone(&shared);
                tasks.spawn(async move { one(&shared, &interaction).await });
            }
            Some(_done) = tasks.join_next() => {}
            // Few at a time: their refusals must not use up the tasks or the rate limits of the humans' commands.
            Some(interaction) = strangers.recv(), if tasks.len() < STRANGERS_TASKS_MAX => {
                let shared = Arc::clone(&shared);
                tasks.spawn(async move { one(&shared, &interaction).await });
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

/// Returns the button of a click or form; `None` if it isn't ours.
fn pressed(deed: &Deed) -> Option<Button> {
    match deed {
        Deed::Command { .. } | Deed::Other => None,
        Deed::Click(button) => Button::parse(button),
        // Other buttons open no form, so a form with their id isn't ours.
        Deed::Form { button, .. } => Button::parse(button).filter(|button| form(button).is_some()),
    }
}

async fn served(shared: &BridgeContext, interaction: &Interaction) -> Result<(), PlatformError> {
    let button = pressed(&interaction.deed);
    if let Some(Button::Envelope { id }) = &button {
        return envelope(shared, interaction, id).await;
    }
    if button.is_none() && !matches!(interaction.deed, Deed::Command { .. }) {
        return Ok(());
    }
    let home = shared.home_of(interaction.channel).await;
    let reach = if interaction.is_stop() { Reach::Anywhere } else { Reach::Channel(home) };
    let Some(heard) = shared.settings.heard(reach, &interaction.person) else {
        return interaction.answer(shared, Answer::Say(&shut_out(shared, home))).await;
    };
    match (&interaction.deed, &button) {
        (Deed::Command { name, options }, _) => commands::run(shared, interaction, heard, name, options).await,
        (_, Some(button)) if !interaction.is_of_card(shared, button.subject()) => {
            interaction.answer(shared, Answer::Say("This card is outdated or belongs to another workspace.")).await
        }
        (Deed::Form { words, .. }, Some(button)) => settle(shared, interaction, heard, button, Some(words)).await,
        (Deed::Click(_) | Deed::Other, Some(button)) => match form(button) {
            Some(form) => interaction.answer(shared, Answer::Open(&form)).await,
            None => settle(shared, interaction, heard, button, None).await,
        },
        (_, None) => Ok(()),
    }
}

/// Tells a person who isn't heard in a channel who is.
fn shut_out(shared: &BridgeContext, channel: ChannelId) -> String {
    let mut roles: Vec<String> = shared.settings.roles_in(channel).map(shared.dialect.role).collect();
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
    pub(crate) async fn answer(&self, shared: &BridgeContext, answer: Answer<'_>) -> Result<(), PlatformError> {
        shared.platform.answer(self, answer).await
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

async fn envelope(shared: &BridgeContext, interaction: &Interaction, id: &str) -> Result<(), PlatformError> {
    let text = match within(&shared.broker, shared.broker.client().message(id)).await {
        Ok(message) => format!("`{}`\n-# {} · hop {}", header(&message), message.id, message.hops),
        Err(error) => failure(&error, Heard::Listed),
    };
    interaction.answer(shared, Answer::Say(&text)).await
}

/// Decides or answers, and has the card show the outcome. If it was settled before, tells the user so.
async fn settle(
    shared: &BridgeContext,
    interaction: &Interaction,
    heard: Heard,
    button: &Button,
    words: Option<&String>,
) -> Result<(), PlatformError> {
    let id = button.subject();
    // First, because a platform may wait only a moment.
    interaction.answer(shared, Answer::Take).await?;
    let actor = match interaction.actor(shared, heard).await {
        Ok(actor) => actor,
        Err(reason) => return interaction.answer(shared, Answer::Whisper(&reason)).await,
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
        Err(error) => interaction.answer(shared, Answer::Whisper(&failure(&error, heard))).await,
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
pub(crate) mod tests {
    use super::super::ids::UserId;
    use super::*;

    /// Returns what Ann did in the channel 3, on the post 9.
    pub(crate) fn interaction(deed: Deed) -> Interaction {
        Interaction {
            id: "1".into(),
            handle: Secret::new("canary"),
            person: Person { user: UserId::new(7), name: "ann".into(), roles: [].into() },
            channel: ChannelId::new(3),
            post: Some(PostId::new(9)),
            deed,
        }
    }

    #[test]
    fn a_form_is_ours_only_if_its_button_opens_one() {
        let words = String::from("no");
        let form = |button: &str| pressed(&Deed::Form { button: button.to_owned(), words: words.clone() });
        assert_eq!(form("lw:respond:apr-1"), Some(Button::Respond { id: "apr-1".into() }));
        assert_eq!((form("lw:reject:apr-1"), form("x")), (None, None));
        assert_eq!(pressed(&Deed::Click("lw:reject:apr-1".into())), Some(Button::Reject { id: "apr-1".into() }));
        assert_eq!((pressed(&Deed::Click("x".into())), pressed(&Deed::Other)), (None, None));
    }

    #[test]
    fn no_handle_is_printed() {
        assert!(!format!("{:?}", interaction(Deed::Other)).contains("canary"));
    }
}
