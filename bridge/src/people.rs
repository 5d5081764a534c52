//! Makes humans of the workspace for the people of the platform, so that the record names who asked and who decided (H7).

use std::collections::BTreeMap;

use lastword_client::wire::{HumanPatch, NewHuman};
use lastword_client::{Client, ClientError, RetryingClient};
use lastword_facts::Code;
use lastword_facts::fact::{Kind, Role};
use lastword_facts::names::AgentName;
use rusqlite::params;

use super::book::{BridgeStore, Kept, lost};
use super::bridge::BridgeContext;
use super::dialect::Dialect;
use super::ids::UserId;
use super::platform::Platform;
use super::post::Person;
use super::settings::{Secret, Settings, Speaker};

/// Most characters of a name of the platform that are used.
const NAME_CHARS_MAX: usize = 32;

/// What came of the people who are to have names of their own.
#[derive(Debug, Default)]
pub(crate) struct Enrolled {
    /// By user: the token of the human of the workspace.
    pub(crate) tokens: BTreeMap<UserId, Secret>,
    /// By user: why there is none. Nobody else's name may stand in for it.
    pub(crate) refused: BTreeMap<UserId, String>,
}

/// Makes a human for each person who has none yet, and renews the tokens of the others.
pub(crate) async fn enrol(
    settings: &Settings,
    broker: &RetryingClient,
    platform: &dyn Platform,
    book: &BridgeStore,
) -> Result<Enrolled, ClientError> {
    let mut enrolled = Enrolled::default();
    for (user, speaker) in &settings.humans {
        let Speaker::Enrolled(role) = speaker else { continue };
        match token(*user, *role, broker, platform, book).await {
            Ok(Ok(token)) => drop(enrolled.tokens.insert(*user, token)),
            Ok(Err(reason)) => drop(enrolled.refused.insert(*user, reason)),
            Err(ClientError::Refused(problem)) => drop(enrolled.refused.insert(*user, problem.detail)),
            Err(error) => return Err(error),
        }
    }
    Ok(enrolled)
}

async fn token(
    user: UserId,
    role: Option<Role>,
    broker: &RetryingClient,
    platform: &dyn Platform,
    book: &BridgeStore,
) -> Result<Result<Secret, String>, ClientError> {
    let client = broker.client();
    if let Some(made) = made_before(user, client, book).await? {
        return match (made, role) {
            (Ok(made), Some(role)) if made.role != Some(role) => {
                client.amend_human(&made.name, &HumanPatch { role }).await?;
                Ok(Ok(made.token))
            }
            (made, _) => Ok(made.map(|made| made.token)),
        };
    }
    let dialect = platform.dialect();
    let name = match platform.user_name(user).await {
        Ok(found) => workspace_name(&found, user, dialect),
        Err(error) => return Ok(Err(error.to_string())),
    };
    let maker = Maker { client, book, dialect };
    match maker.make(user, &name, role.unwrap_or(Role::Viewer)).await {
        Ok(made) => Ok(Ok(made.token)),
        // Its token would be taken from whoever has the name.
        Err(ClientError::Refused(problem)) if problem.code == Code::NameTaken => {
            Ok(Err(format!("the workspace has another {name}: remove that, or give this person a token")))
        }
        Err(error) => Err(error),
    }
}

/// A human of the workspace that stands for a person of the platform.
#[derive(Debug)]
pub(crate) struct MadeHuman {
    pub(crate) name: String,
    pub(crate) token: Secret,
    /// The role that it has, as far as known.
    pub(crate) role: Option<Role>,
}

/// Returns the human that was made for a user before, with a new token; or why there is none any more.
pub(crate) async fn made_before(
    user: UserId,
    client: &Client,
    book: &BridgeStore,
) -> Result<Option<Result<MadeHuman, String>>, ClientError> {
    let Some(name) = book.person(user).map_err(lost)? else { return Ok(None) };
    // Whoever removed it since, or gave the name to another, meant it.
    let known = match client.agent(&name).await {
        Ok(known) => Some(known).filter(|known| known.kind == Kind::Human),
        Err(ClientError::Refused(problem)) if problem.code == Code::UnknownRecipient => None,
        Err(error) => return Err(error),
    };
    let Some(known) = known else { return Ok(Some(Err(format!("{name} is no human of the workspace any more")))) };
    let token = Secret::new(&client.rekey(&name).await?.token);
    Ok(Some(Ok(MadeHuman { name, token, role: known.role })))
}

/// Makes a human for a person who acts by a role of the server. Nobody chose its name for it, so the id does if another
/// has the name.
pub(crate) async fn make_member(person: &Person, role: Role, shared: &BridgeContext) -> Result<MadeHuman, ClientError> {
    let BridgeContext { broker, book, dialect, .. } = shared;
    let maker = Maker { client: broker.client(), book, dialect };
    match maker.make(person.user, &workspace_name(&person.name, person.user, dialect), role).await {
        Err(ClientError::Refused(problem)) if problem.code == Code::NameTaken => {
            maker.make(person.user, &workspace_name("", person.user, dialect), role).await
        }
        made => made,
    }
}

/// What it takes to make a human.
struct Maker<'a> {
    client: &'a Client,
    book: &'a BridgeStore,
    dialect: &'a Dialect,
}

impl Maker<'_> {
    async fn make(&self, user: UserId, name: &str, role: Role) -> Result<MadeHuman, ClientError> {
        let new = NewHuman { name: name.to_owned(), role };
        // With a key, because a bridge that is killed before it notes the name makes the same human again.
        let key = format!("{}-person:{name}:{user}", self.dialect.name);
        let token = self.client.register_human_keyed(&new, &key).await?.token;
        self.book.set_person(user, name).map_err(lost)?;
        Ok(MadeHuman { name: name.to_owned(), token: Secret::new(&token), role: None })
    }
}

/// Returns the workspace's name for a name of the platform: the letters and digits that it may have, or else the id.
fn workspace_name(username: &str, user: UserId, dialect: &Dialect) -> String {
    let plain = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-');
    let kept: String = username.to_ascii_lowercase().chars().filter(plain).take(NAME_CHARS_MAX).collect();
    // With the platform's name behind it, so that neither hides another's.
    let name = format!("{}.{}", kept.trim_matches(['_', '-']), dialect.name);
    if AgentName::new(&name).is_ok() { name } else { format!("{user}.{}", dialect.name) }
}

impl BridgeStore {
    /// Returns the human of the workspace that was made for a user.
    fn person(&self, user: UserId) -> Kept<Option<String>> {
        self.first("SELECT name FROM people WHERE user = ?1", [user], |row| row.get(0))
    }

    fn set_person(&self, user: UserId, name: &str) -> Kept<()> {
        self.change("INSERT OR REPLACE INTO people VALUES (?1, ?2)", params![user, name])
    }
}

#[cfg(test)]
mod tests {
    use super::super::dialect::tests::PLAIN;
    use super::*;

    #[test]
    fn a_persons_name_in_the_workspace_is_one_that_it_takes() {
        for (username, name) in [("ann", "ann.chat"), ("Ann_K.", "ann_k.chat"), ("アン", "7.chat"), ("", "7.chat")] {
            assert_eq!(workspace_name(username, UserId::new(7), &PLAIN), name);
            assert!(AgentName::new(name).is_ok());
        }
    }
}
