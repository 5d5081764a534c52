//! `/lastword status|tree|stop|resume|limits`: watches and controls the workspace from the platform.
//!
//! Inside a thread a command applies to its conversation, elsewhere to the whole workspace, unless an option names
//! something else.

mod words;

use std::collections::BTreeMap;

use lastword_client::wire::IncidentView;
use lastword_client::{ClientError, RetryingClient, Target};

use super::bridge::BridgeContext;
use super::dialect::Dialect;
use super::heard::Heard;
use super::interactions::{Answer, Audience, Interaction, failure, within};
use super::platform::PlatformError;

/// The command's name.
pub const NAME: &str = "lastword";
/// The subcommand that cancels work.
pub const STOP: &str = "stop";
/// The option that names a conversation.
pub const REF: &str = "ref";
/// The option that names an agent.
pub const AGENT: &str = "agent";
/// The option that names the whole workspace, with its only value.
pub const WHERE: &str = "where";
/// The value of [`WHERE`].
pub const EVERYTHING: &str = "everything";

/// Carries out a command of an allowed human.
pub(crate) async fn run(
    shared: &BridgeContext,
    interaction: &Interaction,
    heard: Heard,
    name: &str,
    options: &BTreeMap<String, String>,
) -> Result<(), PlatformError> {
    let thread = shared.book.thread(interaction.channel).ok().flatten().map(|thread| thread.reference);
    let about = options.get(REF).cloned().or(thread);
    // A change is announced to everyone; a view is shown only to the caller.
    let audience = if matches!(name, STOP | "resume") { Audience::Everyone } else { Audience::One };
    let saying = interaction.answer(shared, Answer::Announce(audience));
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
            "resume" => resume(broker, shared.dialect, interaction, &target(options, about.as_deref())).await,
            "limits" => words::limits(broker, about.as_deref()).await,
            other => Ok(format!("Unknown command `/{NAME} {other}`.")),
        };
        actor.ended(&done);
        done.unwrap_or_else(|error| failure(&error, heard))
    };
    // Concurrently: a stop must not wait for the platform.
    let (said, text) = tokio::join!(saying, doing);
    said?;
    interaction.answer(shared, Answer::Tell(&text, audience)).await
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
    dialect: &Dialect,
    interaction: &Interaction,
    target: &Target<'_>,
) -> Result<String, ClientError> {
    // With a key of the platform's the posts that lift rooms are not mirrored there.
    let key = dialect.key(&interaction.id);
    let client = broker.client();
    let here = dialect.room(interaction.channel);
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
            lifted.lifted.iter().map(|on| shown(dialect, on)).collect::<Vec<_>>().join(", ")
        ));
    }
    for held in &lifted.held {
        text.push_str(&format!(
            "\n- still held: {} {} ({} {} of {})",
            held.scope,
            shown(dialect, &held.on),
            held.code,
            held.current,
            held.limit
        ));
    }
    Ok(text)
}

/// Returns the name of what was held, as people on the platform know it.
fn shown(dialect: &Dialect, on: &str) -> String {
    dialect.channel_of(on).map_or_else(|| format!("**{on}**"), dialect.channel)
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
}
