//! Interactions, as Discord sends and answers them.

use std::collections::BTreeSet;

use lastword_bridge::cards::{self, Form};
use lastword_bridge::commands::NAME;
use lastword_bridge::interactions::{Answer, Audience, Deed, Interaction};
use lastword_bridge::post::Person;
use lastword_bridge::settings::Secret;
use lastword_bridge::text::title;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::model::GuildMember;
use super::rest::{Method, Rest, RestError};
use super::text::{MESSAGE_CHARS_MAX, split};

/// Most messages of one reply.
const ANSWER_PARTS_MAX: usize = 4;
/// Longest title of a form.
const TITLE_CHARS_MAX: usize = 45;

/// Types of an interaction's response.
const MESSAGE: u8 = 4;
const LATER: u8 = 5;
const UPDATE_LATER: u8 = 6;
const FORM: u8 = 9;
/// Message flag: only the caller sees the reply.
const FOR_ONE: u64 = 1 << 6;
/// The id of a form's text field.
const WORDS: &str = "words";
/// Between the parts of a handle: an application's id has none.
const HANDLE: char = '/';

/// Reads an interaction from the gateway; `None` if a field is missing.
pub(crate) fn read(value: &Value) -> Option<Interaction> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Some(Interaction {
        id: text(&value["id"])?,
        // The token allows posting as our application for 15 minutes.
        handle: Secret::new(&format!("{}{HANDLE}{}", value["application_id"].as_str()?, value["token"].as_str()?)),
        person: person_of(value)?,
        channel: id(&value["channel_id"]).or_else(|| id(&value["channel"]["id"]))?,
        post: id(&value["message"]["id"]),
        deed: deed(value["type"].as_u64(), &value["data"]),
    })
}

fn id<Id: std::str::FromStr>(value: &Value) -> Option<Id> {
    value.as_str()?.parse().ok()
}

fn deed(kind: Option<u64>, data: &Value) -> Deed {
    let button = || data["custom_id"].as_str().map(str::to_owned);
    match kind {
        Some(2) if data["name"] == NAME => {
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
            let both = button().zip(words);
            both.map_or(Deed::Other, |(button, words)| Deed::Form { button, words: words.trim().to_owned() })
        }
        Some(_) | None => Deed::Other,
    }
}

/// Returns whether an interaction only shows something, and so may come through an agent's bot.
pub(crate) fn is_harmless(value: &Value) -> bool {
    value["type"] == 3 && value["data"]["custom_id"].as_str().is_some_and(cards::is_harmless)
}

/// Returns the person of an interaction: with its roles in the server, without any in a private channel.
fn person_of(value: &Value) -> Option<Person> {
    let member = Some(&value["member"]).filter(|member| member.is_object());
    let user = member.map_or(&value["user"], |member| &member["user"]);
    let known = member.and_then(|member| GuildMember::deserialize(member).ok()).unwrap_or_default();
    let roles = if user["bot"] == true { BTreeSet::new() } else { known.roles() };
    let name = user["username"].as_str().unwrap_or_default().to_owned();
    Some(Person { user: id(&user["id"])?, name, roles })
}

/// Answers an interaction. Discord drops one without a response after three seconds.
pub(crate) async fn answer(rest: &Rest, interaction: &Interaction, answer: Answer<'_>) -> Result<(), RestError> {
    let (application, token) = interaction.handle.reveal().split_once(HANDLE).unwrap_or_default();
    let respond = async |kind: u8, data: Value| {
        let path = format!("interactions/{}/{token}/callback", interaction.id);
        rest.call(Method::Post, &path, Some(&json!({ "type": kind, "data": data }))).await.map(|_| ())
    };
    let later = format!("webhooks/{application}/{token}");
    match answer {
        Answer::Say(text) => respond(MESSAGE, message(text, FOR_ONE)).await,
        Answer::Announce(to) => respond(LATER, json!({ "flags": flags(to) })).await,
        Answer::Take => respond(UPDATE_LATER, Value::Null).await,
        Answer::Open(opened) => respond(FORM, form(opened)).await,
        Answer::Whisper(text) => rest.call(Method::Post, &later, Some(&message(text, FOR_ONE))).await.map(|_| ()),
        Answer::Tell(text, to) => {
            let mut parts = split(text, MESSAGE_CHARS_MAX);
            parts.truncate(ANSWER_PARTS_MAX);
            for (number, part) in parts.iter().enumerate() {
                let (method, path) = match number {
                    0 => (Method::Patch, format!("{later}/messages/@original")),
                    _ => (Method::Post, later.clone()),
                };
                rest.call(method, &path, Some(&message(part, flags(to)))).await?;
            }
            Ok(())
        }
    }
}

const fn flags(to: Audience) -> u64 {
    match to {
        Audience::One => FOR_ONE,
        Audience::Everyone => 0,
    }
}

fn message(text: &str, flags: u64) -> Value {
    json!({ "content": text, "flags": flags, "allowed_mentions": { "parse": [] } })
}

fn form(form: &Form) -> Value {
    let input = json!({
        "type": 4, "custom_id": WORDS, "style": 2, "label": form.field, "required": true, "max_length": 4000,
    });
    json!({
        "title": title(&form.heading, TITLE_CHARS_MAX), "custom_id": form.button,
        "components": [{ "type": 1, "components": [input] }],
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lastword_bridge::ids::{ChannelId, PostId, RoleId, UserId};

    use super::*;

    fn interaction(kind: u8, data: &Value) -> Interaction {
        let value = json!({
            "id": "1", "token": "canary", "application_id": "2", "type": kind, "channel_id": "3", "data": data,
            "member": { "user": { "id": "7" } }, "message": { "id": "9" },
        });
        read(&value).unwrap()
    }

    #[test]
    fn a_command_a_click_and_a_form_are_read_and_the_rest_is_nothing_of_ours() {
        let sub = json!({ "type": 1, "name": "tree", "options": [{ "type": 3, "name": "ref", "value": "D-1" }] });
        let command = interaction(2, &json!({ "name": "lastword", "options": [sub] }));
        let options = BTreeMap::from([("ref".to_owned(), "D-1".to_owned())]);
        assert_eq!(command.deed, Deed::Command { name: "tree".into(), options });
        assert_eq!(
            (command.person.user, command.channel, command.post),
            (UserId::new(7), ChannelId::new(3), Some(PostId::new(9)))
        );
        let reject = "lw:reject:apr-1";
        assert_eq!(interaction(3, &json!({ "custom_id": reject })).deed, Deed::Click(reject.into()));
        let field = json!({ "type": 4, "custom_id": "words", "value": " no \n" });
        let sent = json!({ "custom_id": "lw:respond:apr-1", "components": [{ "type": 1, "components": [field] }] });
        let respond = "lw:respond:apr-1".into();
        assert_eq!(interaction(5, &sent).deed, Deed::Form { button: respond, words: "no".into() });
        for (kind, data) in [(1, json!({})), (2, json!({ "name": "other" })), (3, json!({}))] {
            assert_eq!(interaction(kind, &data).deed, Deed::Other);
        }
        assert!(!format!("{command:?}").contains("canary"));
        assert_eq!(read(&json!({ "id": "1" })), None);
        let opened = Form { button: "lw:answer:esc-1".into(), heading: "Answer ".repeat(9), field: "Words" };
        assert_eq!(form(&opened)["custom_id"], "lw:answer:esc-1");
        assert_eq!(form(&opened)["title"].as_str().map(|title| title.chars().count()), Some(TITLE_CHARS_MAX));
    }

    #[test]
    fn a_persons_roles_are_those_of_the_server_and_a_bot_has_none() {
        let member =
            |bot: bool| json!({ "member": { "roles": ["8"], "user": { "id": "7", "username": "ann", "bot": bot } } });
        let person = |roles: &[u64]| Person {
            user: UserId::new(7),
            name: "ann".into(),
            roles: roles.iter().copied().map(RoleId::new).collect(),
        };
        assert_eq!(person_of(&member(false)), Some(person(&[8])));
        assert_eq!(person_of(&member(true)), Some(person(&[])));
        assert_eq!(person_of(&json!({ "user": { "id": "7", "username": "ann" }, "roles": ["8"] })), Some(person(&[])));
        assert_eq!(person_of(&json!({})), None);
    }
}
