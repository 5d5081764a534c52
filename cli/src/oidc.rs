//! The table `[oidc]` of `lastword.toml`: the provider by which humans sign in, and who may.

use std::fs;
use std::path::{Path, PathBuf};

use lastword_broker::identity::Secret;
use lastword_facts::fact::Role;
use lastword_facts::names::AgentName;
use lastword_server::{BasePath, KnownAs, Oidc, Person};
use serde::Deserialize;

use crate::environment::variable;
use crate::failure::Failure;
use crate::quantity::{duration, milliseconds};

/// The default time for which a sign-in is valid.
const VALID: &str = "12h";
/// The variable that may hold the client's secret: agents that the server runs don't get it.
const SECRET: &str = "LASTWORD_OIDC_SECRET";

/// The members of `[oidc]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OidcTable {
    issuer: String,
    client_id: String,
    client_secret_file: Option<PathBuf>,
    cli_client_id: Option<String>,
    console: Option<String>,
    valid: Option<String>,
    #[serde(default)]
    human: Vec<Entry>,
    /// The directory of the file, to which paths are relative.
    #[serde(skip)]
    base: PathBuf,
}

/// The members of one `[[oidc.human]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    email: Option<String>,
    subject: Option<String>,
    name: String,
    role: Option<Role>,
}

impl OidcTable {
    /// Returns the table of a file in this directory.
    pub(crate) fn at(self, base: &Path) -> Self {
        Self { base: base.to_owned(), ..self }
    }

    /// Returns the settings of a console under this path, with the client's secret.
    pub(crate) fn settings(&self, path: &BasePath) -> Result<Oidc, Failure> {
        let wrong =
            |what: String| Failure::usage(format!("[oidc]: {what}")).hint("docs/sign-in.md shows a configuration");
        let valid = duration(self.valid.as_deref().unwrap_or(VALID)).map_err(|why| wrong(format!("valid: {why}")))?;
        let people: Result<_, _> = self.human.iter().map(|entry| entry.person().map_err(wrong)).collect();
        let oidc = Oidc {
            issuer: self.issuer.clone(),
            client_id: self.client_id.clone(),
            client_secret: self.secret().map_err(wrong)?,
            cli_client_id: self.cli_client_id.clone().unwrap_or_else(|| self.client_id.clone()),
            console: self.console.clone(),
            valid_ms: milliseconds(valid),
            people: people?,
        };
        oidc.check(path).map_err(|error| Failure::usage(error).hint("docs/sign-in.md shows a configuration"))?;
        Ok(oidc)
    }

    fn secret(&self) -> Result<Option<Secret>, String> {
        let text = match (&self.client_secret_file, variable(SECRET)) {
            (None, None) => return Ok(None),
            (None, Some(text)) => text,
            (Some(_), Some(_)) => return Err(format!("both client_secret_file and {SECRET} are set; leave out one")),
            (Some(path), None) => {
                let path = self.base.join(path);
                fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?
            }
        };
        match text.trim() {
            "" => Err("the client's secret is empty".into()),
            text => Ok(Some(Secret::new(text.to_owned()))),
        }
    }
}

impl Entry {
    fn person(&self) -> Result<Person, String> {
        let known_as = match (&self.email, &self.subject) {
            (Some(email), None) if email.contains('@') => KnownAs::Email(email.clone()),
            (Some(email), None) => return Err(format!("email {email:?} isn't an address")),
            (None, Some(subject)) if !subject.is_empty() => KnownAs::Subject(subject.clone()),
            _ => return Err(format!("[[oidc.human]] {:?} needs either email or subject", self.name)),
        };
        let name = AgentName::new(&self.name).map_err(|error| format!("name {:?} {error}", self.name))?;
        Ok(Person { known_as, name, role: self.role.unwrap_or(Role::Viewer) })
    }
}
