//! Offers `/lastword` on Discord.

use std::collections::BTreeSet;
use std::time::Duration;

use lastword_bridge::commands::{AGENT, EVERYTHING, NAME, REF, STOP, WHERE};
use lastword_bridge::event::{Event, EventSink};
use lastword_bridge::ids::ChannelId;
use lastword_bridge::outbox::persist;
use lastword_bridge::post::Channel;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::model::ChannelObject;
use super::rest::{Method, Rest};

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
pub(crate) async fn register(rest: &Rest, channels: &BTreeSet<ChannelId>, report: &EventSink) {
    let warn = |message: String| report.emit(&Event::Warning { message });
    let mut told = BTreeSet::new();
    for channel in channels {
        let path = format!("channels/{channel}");
        let find = async || Ok(Channel::from(rest.get::<ChannelObject>(&path).await?).server);
        let guild = match persist(report, find).await {
            Ok(guild) => guild,
            Err(error) => {
                warn(format!("{channel} can't be seen by the broker's bot. {error}"));
                continue;
            }
        };
        let Some(guild) = guild.filter(|guild| told.insert(*guild)) else { continue };
        let path = format!("applications/{}/guilds/{guild}/commands", rest.application);
        let commands = json!([definition()]);
        while let Err(error) = rest.call(Method::Put, &path, Some(&commands)).await {
            warn(format!("/{NAME} could not be registered. {error}"));
            if !error.may_pass() {
                break;
            }
            sleep(PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discord_is_told_of_no_more_than_it_takes() {
        let command = definition();
        for sub in command["options"].as_array().unwrap() {
            let description = sub["description"].as_str().unwrap();
            assert!((1..=100).contains(&description.chars().count()), "{description}");
        }
    }
}
