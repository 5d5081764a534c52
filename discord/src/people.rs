//! Makes humans of the workspace for the people of Discord, so that the record names who asked and who decided (H7).

use std::collections::BTreeMap;

use lastword_client::wire::{HumanPatch, NewHuman};
use lastword_client::{ClientError, RetryingClient};
use lastword_proto::Code;
use lastword_proto::fact::{Kind, Role};
use lastword_proto::names::AgentName;
use rusqlite::{OptionalExtension as _, params};

use super::book::{BridgeStore, Kept, lost};
use super::rest::{Method, Rest};
use super::settings::{Secret, Settings, Speaker};

/// What follows a Discord name in the workspace's, so that neither hides another's.
const SUFFIX: &str = ".discord";
/// Most characters of a Discord name that are used.
const NAME_CHARS_MAX: usize = 32;

/// What came of the people who are to have names of their own.
#[derive(Debug, Default)]
pub(crate) struct Enrolled {
    /// By Discord user: the token of the human of the workspace.
    pub(crate) tokens: BTreeMap<u64, Secret>,
    /// By Discord user: why there is none. Nobody else's name may stand in for it.
    pub(crate) refused: BTreeMap<u64, String>,
}

/// Makes a human for each person who has none yet, and renews the tokens of the others.
pub(crate) async fn enrol(
    settings: &Settings,
    broker: &RetryingClient,
    rest: &Rest,
    book: &BridgeStore,
) -> Result<Enrolled, ClientError> {
    let mut enrolled = Enrolled::default();
    for (user, speaker) in &settings.humans {
        let Speaker::Enrolled(role) = speaker else { continue };
        match token(*user, *role, broker, rest, book).await {
            Ok(Ok(token)) => drop(enrolled.tokens.insert(*user, token)),
            Ok(Err(reason)) => drop(enrolled.refused.insert(*user, reason)),
            Err(ClientError::Refused(problem)) => drop(enrolled.refused.insert(*user, problem.detail)),
            Err(error) => return Err(error),
        }
    }
    Ok(enrolled)
}

async fn token(
    user: u64,
    role: Option<Role>,
    broker: &RetryingClient,
    rest: &Rest,
    book: &BridgeStore,
) -> Result<Result<Secret, String>, ClientError> {
    let client = broker.client();
    if let Some(name) = book.person(user).map_err(lost)? {
        // Made before. Whoever removed it since, or gave the name to another, meant it.
        let known = client.agent(&name).await?;
        if known.kind != Kind::Human {
            return Ok(Err(format!("{name} is no human of the workspace any more")));
        }
        if let Some(role) = role.filter(|role| known.role != Some(*role)) {
            client.amend_human(&name, &HumanPatch { role }).await?;
        }
        return Ok(Ok(Secret::new(&client.rekey(&name).await?.token)));
    }
    let found = match rest.call(Method::Get, &format!("users/{user}"), None).await {
        Ok(found) => found,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let name = workspace_name(found["username"].as_str().unwrap_or_default(), user);
    match client.agent(&name).await {
        // Its token would be taken from whoever has the name.
        Ok(_) => return Ok(Err(format!("the workspace has another {name}: remove that, or give this person a token"))),
        Err(ClientError::Refused(problem)) if problem.code == Code::UnknownRecipient => {}
        Err(error) => return Err(error),
    }
    let new = NewHuman { name: name.clone(), role: role.unwrap_or(Role::Viewer) };
    let made = client.register_human(&new).await?;
    book.set_person(user, &name).map_err(lost)?;
    Ok(Ok(Secret::new(&made.token)))
}

/// Returns the workspace's name for a Discord name: the letters and digits that it may have, or else the id.
fn workspace_name(username: &str, user: u64) -> String {
    let plain = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-');
    let kept: String = username.to_ascii_lowercase().chars().filter(plain).take(NAME_CHARS_MAX).collect();
    let name = format!("{}{SUFFIX}", kept.trim_matches(['_', '-']));
    if AgentName::new(&name).is_ok() { name } else { format!("{user}{SUFFIX}") }
}

impl BridgeStore {
    /// Returns the human of the workspace that was made for a Discord user.
    fn person(&self, user: u64) -> Kept<Option<String>> {
        let db = self.db();
        let mut look = db.prepare_cached("SELECT name FROM people WHERE user = ?1")?;
        look.query_row([user.cast_signed()], |row| row.get(0)).optional()
    }

    fn set_person(&self, user: u64, name: &str) -> Kept<()> {
        let db = self.db();
        let mut set = db.prepare_cached("INSERT OR REPLACE INTO people VALUES (?1, ?2)")?;
        set.execute(params![user.cast_signed(), name]).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_persons_name_in_the_workspace_is_one_that_it_takes() {
        for (username, name) in
            [("ann", "ann.discord"), ("Ann_K.", "ann_k.discord"), ("アン", "7.discord"), ("", "7.discord")]
        {
            assert_eq!(workspace_name(username, 7), name);
            assert!(AgentName::new(name).is_ok());
        }
    }
}
