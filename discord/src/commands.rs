//! `/lastword status|tree|stop|resume|limits`: watches and controls the workspace from Discord.
//!
//! Inside a thread a command applies to its conversation, elsewhere to the whole workspace, unless an option names
//! something else.

mod words;

use std::collections::BTreeMap;
use std::time::Duration;

use lastword_client::wire::IncidentView;
use lastword_client::{ClientError, Target};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::bridge::BridgeContext;
use super::heard::Heard;
use super::interactions::{FOR_ONE, Interaction, failure, within};
use super::names::{ROOM, room};
use super::rest::{Method, RestError};
use lastword_client::RetryingClient;

/// The command's name.
pub(crate) const NAME: &str = "lastword";
/// The subcommand that cancels work.
pub(crate) const STOP: &str = "stop";
/// Option names of the subcommands.
const REF: &str = "ref";
const AGENT: &str = "agent";
const WHERE: &str = "where";
const EVERYTHING: &str = "everything";

/// Discord's permission Manage Messages.
const OFFERED_TO: u64 = 1 << 13;

/// Pause before the registration is retried.
const PAUSE: Duration = Duration::from_secs(10);

/// Returns the command's definition for Discord.
fn definition() -> Value {
    let text = |name: &str, description: &str| json!({ "type": 3, "name": name, "description": description });
    let reference = || text(REF, "A conversation, by its REF");
    let agent = || text(AGENT, "An agent, by its name");
    let everything = || {
        let choice = json!({ "name": "the whole workspace", "value": EVERYTHING });
        let mut option = text(WHERE, "The whole workspace, even inside a thread");
        option["choices"] = json!([choice]);
        option
    };
    let sub = |name: &str, description: &str, options: Vec<Value>| json!({ "type": 1, "name": name, "description": description, "options": options });
    json!({
        "type": 1, "name": NAME, "description": "Watch and control the agents that use Lastword",
        // Whom Discord itself offers the command to; the server's settings can offer it to others.
        "default_member_permissions": OFFERED_TO.to_string(),
        "options": [
            sub("status", "Show open work and pending decisions", vec![reference()]),
            sub("tree", "Show a conversation, each message under its cause", vec![reference()]),
            sub(STOP, "Cancel open work; nothing is admitted until a resume",
                vec![reference(), agent(), everything()]),
            sub("resume", "Resume, and lift what a limit holds", vec![reference(), agent(), everything()]),
            sub("limits", "Show the distance to each limit", vec![reference()]),
        ],
    })
}

/// Registers the command in the guilds of the bridge's channels, where it is available at once. Retries until Discord
/// accepts it or refuses for good.
pub(crate) async fn register(shared: &BridgeContext) {
    let mut told = std::collections::BTreeSet::new();
    for channel in &shared.settings.channels {
        let rest = &shared.outbox.broker;
        let path = format!("channels/{channel}");
        let found = shared.outbox.persist(|| rest.call(Method::Get, &path, None)).await;
        let guild = match found {
            Ok(found) => found["guild_id"].as_str().unwrap_or_default().to_owned(),
            Err(error) => {
                shared.outbox.warn(&format!("{channel} can't be seen by the broker's bot. {error}"));
                continue;
            }
        };
        if guild.is_empty() || !told.insert(guild.clone()) {
            continue;
        }
        let path = format!("applications/{}/guilds/{guild}/commands", rest.application);
        let commands = json!([definition()]);
        while let Err(error) = rest.call(Method::Put, &path, Some(&commands)).await {
            shared.outbox.warn(&format!("/{NAME} could not be registered. {error}"));
            if !error.may_pass() {
                break;
            }
            sleep(PAUSE).await;
        }
    }
}

/// Carries out a command of an allowed human.
pub(crate) async fn run(
    shared: &BridgeContext,
    interaction: &Interaction,
    heard: Heard,
    name: &str,
    options: &BTreeMap<String, String>,
) -> Result<(), RestError> {
    let thread = shared.book.thread(interaction.channel).ok().flatten().map(|thread| thread.reference);
    let about = options.get(REF).cloned().or(thread);
    // A change is announced to everyone; a view is shown only to the caller.
    let flags = if matches!(name, STOP | "resume") { 0 } else { FOR_ONE };
    let saying = interaction.wait(shared, flags);
    let doing = async {
        let actor = match interaction.actor(shared, heard).await {
            Ok(actor) => actor,
            Err(reason) => return reason,
        };
        let broker = actor.broker();
        let done = match name {
            "status" => words::status(broker, about.as_deref()).await,
            "tree" => words::tree(broker, about.as_deref()).await,
            STOP => stop(broker, &target(options, about.as_deref())).await,
            "resume" => resume(broker, interaction, &target(options, about.as_deref())).await,
            "limits" => words::limits(broker, about.as_deref()).await,
            other => Ok(format!("Unknown command `/{NAME} {other}`.")),
        };
        actor.ended(&done);
        done.unwrap_or_else(|error| failure(&error, heard))
    };
    // Concurrently: a stop must not wait for Discord.
    let (said, text) = tokio::join!(saying, doing);
    said?;
    interaction.tell(shared, &text, flags).await
}

/// Returns what to stop or resume: an option's target, else the thread's conversation, else the workspace.
fn target<'a>(options: &'a BTreeMap<String, String>, about: Option<&'a str>) -> Target<'a> {
    let named = options.get(REF).map(String::as_str);
    match (options.get(AGENT), named, options.contains_key(WHERE)) {
        (Some(agent), _, _) => Target::Agent(agent),
        (None, Some(reference), _) => Target::Conversation(reference),
        (None, None, true) => Target::Workspace,
        (None, None, false) => about.map_or(Target::Workspace, Target::Conversation),
    }
}

fn name_of(target: &Target<'_>) -> String {
    match target {
        Target::Conversation(reference) => format!("**{reference}**"),
        Target::Agent(agent) => format!("**{agent}**"),
        Target::Workspace => "**everything**".to_owned(),
    }
}

async fn stop(broker: &RetryingClient, target: &Target<'_>) -> Result<String, ClientError> {
    within(broker, broker.client().stop(*target)).await?;
    let what = name_of(target);
    Ok(format!(
        "🛑 Stopped {what}: open work is cancelled and its requesters are notified. `/{NAME} resume` resumes it."
    ))
}

/// Resumes, and lifts what limits hold there: what it says it lifts is lifted (H6).
async fn resume(
    broker: &RetryingClient,
    interaction: &Interaction,
    target: &Target<'_>,
) -> Result<String, ClientError> {
    // With a key of Discord's the posts that lift rooms are not mirrored there.
    let key = interaction.key();
    let client = broker.client();
    let here = room(interaction.channel);
    let lifted = match target {
        Target::Workspace => within(broker, client.resume_all(Some(&key))).await?,
        Target::Conversation(_) => {
            within(broker, client.resume(*target)).await?;
            within(broker, client.lift_held(Some(&key), |held| held.on == here)).await?
        }
        Target::Agent(agent) => {
            within(broker, client.resume(*target)).await?;
            let own = |held: &IncidentView| held.scope == "agent" && held.on == *agent;
            within(broker, client.lift_held(None, own)).await?
        }
    };
    let mut text = format!("▶️ Resumed {}.", name_of(target));
    if !lifted.lifted.is_empty() {
        text.push_str(&format!(
            " Lifted what held {}.",
            lifted.lifted.iter().map(|on| shown(on)).collect::<Vec<_>>().join(", ")
        ));
    }
    for held in &lifted.held {
        text.push_str(&format!(
            "\n- still held: {} {} ({} {} of {})",
            held.scope,
            shown(&held.on),
            held.code,
            held.current,
            held.limit
        ));
    }
    Ok(text)
}

/// Returns the name of what was held, as people on Discord know it.
fn shown(on: &str) -> String {
    on.strip_prefix(ROOM).map_or_else(|| format!("**{on}**"), |channel| format!("<#{channel}>"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_is_about_what_it_names_else_about_its_thread_else_about_everything() {
        let given = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let what = |pairs: &[(&str, &str)], thread: Option<&str>| {
            let options = given(pairs);
            let about = options.get(REF).map(String::as_str).or(thread);
            name_of(&target(&options, about))
        };
        assert_eq!(what(&[], None), "**everything**");
        assert_eq!(what(&[], Some("D-1")), "**D-1**");
        assert_eq!(what(&[(REF, "D-2")], Some("D-1")), "**D-2**");
        assert_eq!(what(&[(AGENT, "kilo")], Some("D-1")), "**kilo**");
        assert_eq!(what(&[(WHERE, EVERYTHING)], Some("D-1")), "**everything**");
    }

    #[test]
    fn discord_is_told_of_no_more_than_it_takes() {
        let command = definition();
        for sub in command["options"].as_array().unwrap() {
            let description = sub["description"].as_str().unwrap();
            assert!((1..=100).contains(&description.chars().count()), "{description}");
        }
    }
}
