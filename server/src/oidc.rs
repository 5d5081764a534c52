//! OpenID Connect: the provider that says who a human is, the ID tokens that it signs, and who of them may come in.

mod claims;
mod keys;
mod provider;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::{fs, io};

use lastword_broker::files::Files;
use lastword_broker::identity::{Secret, Spent};
use lastword_facts::Time;
use lastword_facts::fact::Role;
use lastword_facts::names::AgentName;
use reqwest::Url;
use serde::{Deserialize, Serialize};

use crate::base_path::BasePath;

pub(crate) use self::claims::Claims;
pub(crate) use self::provider::{Code, Provider};

/// The file in the data directory with the provider's subject of each human who has signed in.
pub(crate) const FILE_SUBJECTS: &str = "sign-in.json";
/// The file in the data directory that lists the ID tokens that were used and haven't expired.
pub(crate) const FILE_USED: &str = "sign-in.used";
/// The longest time for which a sign-in may be valid, in ms: that of a session.
pub(crate) const VALID_MS_MAX: u64 = 7 * 24 * 60 * 60 * 1000;
/// The most ID tokens, and the most sign-ins of browsers, that are remembered as used.
const USED_MAX: usize = 8_192;

/// The provider by which humans sign in, and who may.
#[derive(Clone)]
pub struct Oidc {
    /// The issuer, exactly as the provider's ID tokens name it.
    pub issuer: String,
    /// The client that is registered for the console.
    pub client_id: String,
    /// The secret of that client; `None` if it is a public one.
    pub client_secret: Option<Secret>,
    /// The public client that is registered for the command line.
    pub cli_client_id: String,
    /// The console's address, to which the provider sends browsers back; `None` is the one that the server prints.
    pub console: Option<String>,
    /// The time for which a sign-in is valid, in ms.
    pub valid_ms: u64,
    /// The humans who may sign in.
    pub people: Vec<Person>,
}

/// A human who may sign in.
#[derive(Clone, Debug)]
pub struct Person {
    /// How the provider names the human.
    pub known_as: KnownAs,
    /// The human's name in the workspace.
    pub name: AgentName,
    /// The role that the human gets at the first sign-in (H7).
    pub role: Role,
}

/// How the provider names a human.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KnownAs {
    /// By a verified e-mail address; its case doesn't count.
    Email(String),
    /// By the claim `sub`.
    Subject(String),
}

impl std::fmt::Debug for Oidc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the secret.
        f.debug_struct("Oidc").field("issuer", &self.issuer).field("client_id", &self.client_id).finish_non_exhaustive()
    }
}

/// Why the settings of a provider are unusable.
#[derive(Debug, thiserror::Error)]
#[error("[oidc]: {0}")]
pub struct OidcError(pub(crate) String);

impl Oidc {
    /// Checks the settings for a console under this path.
    ///
    /// # Errors
    /// The member that is wrong, and why.
    pub fn check(&self, path: &BasePath) -> Result<(), OidcError> {
        let wrong = |what: String| Err(OidcError(what));
        if let Err(why) = safe_url(&self.issuer) {
            return wrong(format!("issuer {:?} {why}", self.issuer));
        }
        if let Some(console) = &self.console {
            match safe_url(console) {
                Ok(url) if url.path().trim_end_matches('/') == path.to_string() && url.query().is_none() => {}
                Ok(_) => return wrong(format!("console {console:?} has another path than the server, {path}/")),
                Err(why) => return wrong(format!("console {console:?} {why}")),
            }
        }
        if self.client_id.is_empty() || self.cli_client_id.is_empty() {
            return wrong("client_id is empty".into());
        }
        if self.valid_ms == 0 || self.valid_ms > VALID_MS_MAX {
            return wrong("valid must be between 1 ms and 7 days".into());
        }
        if self.people.is_empty() {
            return wrong("nobody may sign in: add [[oidc.human]] with email or subject, and name".into());
        }
        for (index, person) in self.people.iter().enumerate() {
            let before = &self.people[..index];
            // One human, one account: otherwise the audit couldn't tell who acted.
            if before.iter().any(|other| other.name == person.name) {
                return wrong(format!("{} is the name of two [[oidc.human]]", person.name));
            }
            if before.iter().any(|other| other.known_as.same(&person.known_as)) {
                return wrong(format!("{} has the account of another [[oidc.human]]", person.name));
            }
        }
        Ok(())
    }

    fn person(&self, claims: &Claims) -> Option<&Person> {
        let by = |known: &dyn Fn(&KnownAs) -> bool| self.people.iter().find(|person| known(&person.known_as));
        // By subject first: an address may be given to somebody else.
        by(&|known| matches!(known, KnownAs::Subject(subject) if *subject == claims.sub)).or_else(|| {
            let email = claims.email.as_deref()?;
            by(&|known| matches!(known, KnownAs::Email(address) if address.eq_ignore_ascii_case(email)))
        })
    }
}

impl KnownAs {
    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Email(one), Self::Email(two)) => one.eq_ignore_ascii_case(two),
            (Self::Subject(one), Self::Subject(two)) => one == two,
            (Self::Email(_), Self::Subject(_)) | (Self::Subject(_), Self::Email(_)) => false,
        }
    }
}

/// Parses an address to which a secret or a code may be sent: over TLS, or on this machine.
fn safe_url(text: &str) -> Result<Url, &'static str> {
    let url = Url::parse(text).map_err(|_| "isn't a URL")?;
    let here = matches!(url.host_str(), Some("127.0.0.1" | "[::1]" | "localhost"));
    match url.scheme() {
        _ if !url.username().is_empty() || url.password().is_some() => Err("has a user or password in it"),
        _ if url.fragment().is_some() => Err("has a fragment"),
        "https" => Ok(url),
        "http" if here => Ok(url),
        _ => Err("must begin with https://, except on this machine"),
    }
}

/// Why a human wasn't signed in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoSignIn {
    /// The provider, or what it says of itself, is unusable at the moment.
    #[error("{0}")]
    Provider(String),
    /// The code or the ID token isn't valid.
    #[error("{0}")]
    Invalid(String),
    /// It is valid, but this account may not come in.
    #[error("{0}")]
    NotAllowed(String),
}

/// The provider's subjects of the humans who have signed in, and the ID tokens that were used.
pub(crate) struct Accounts {
    files: Files,
    /// Each human's account by name; a change is written before it counts.
    bound: Mutex<BTreeMap<String, Account>>,
    /// ID tokens that the command line presented.
    id_tokens: Spent,
    /// Sign-ins of browsers, each by its `state`. A restart may forget them: a provider takes a code once.
    states: Spent,
}

/// An account at a provider.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
struct Account {
    issuer: String,
    subject: String,
}

impl Accounts {
    /// Reads the subjects from the data directory.
    ///
    /// # Errors
    /// The file can't be read, or isn't what was written.
    pub(crate) fn open(files: &Files) -> io::Result<Self> {
        let bound = match fs::read(files.path(FILE_SUBJECTS)) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error),
        };
        let id_tokens = Spent::open(files, FILE_USED)?;
        Ok(Self { files: files.clone(), bound: Mutex::new(bound), id_tokens, states: Spent::default() })
    }

    fn path(&self) -> PathBuf {
        self.files.path(FILE_SUBJECTS)
    }

    /// Returns who the claims are, if they may sign in. The first account of a name is bound to it: an address that
    /// the provider gives to somebody else later doesn't let them in. Writes a file.
    pub(crate) fn admit(&self, oidc: &Oidc, claims: &Claims) -> Result<Person, NoSignIn> {
        let shown = claims.email.as_deref().unwrap_or(&claims.sub);
        let Some(person) = oidc.person(claims) else {
            return Err(NoSignIn::NotAllowed(format!(
                "{shown} may not sign in here: the configuration of this workspace doesn't list this account"
            )));
        };
        if matches!(person.known_as, KnownAs::Email(_)) && !claims.email_verified {
            return Err(NoSignIn::NotAllowed(format!(
                "{} says that {shown} isn't a verified address: verify it there, then sign in again",
                oidc.issuer
            )));
        }
        let account = Account { issuer: oidc.issuer.clone(), subject: claims.sub.clone() };
        let mut bound = self.bound.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match bound.get(person.name.as_str()) {
            Some(known) if *known == account => {}
            Some(_) => {
                return Err(NoSignIn::NotAllowed(format!(
                    "{} signed in with another account before: if this one replaces it, remove {} from {} and restart \
                     the server",
                    person.name,
                    person.name,
                    self.path().display()
                )));
            }
            None => {
                let mut next = bound.clone();
                next.insert(person.name.as_str().to_owned(), account);
                let text = serde_json::to_vec_pretty(&next).unwrap_or_default();
                let kept = self.files.write(FILE_SUBJECTS, &text);
                kept.map_err(|error| NoSignIn::Provider(format!("{}: {error}", self.path().display())))?;
                *bound = next;
            }
        }
        Ok(person.clone())
    }

    /// Uses up an ID token, so that it signs in once; `false` if it was used before. Writes a file.
    ///
    /// # Errors
    /// The file can't be written.
    pub(crate) fn use_id_token(&self, text: &str, until: Time, now: Time) -> io::Result<bool> {
        // By what was signed: the same claims have other valid signatures, which anyone can compute (ES256), and other
        // spellings of each. A list of an earlier version has whole tokens.
        let signed = text.rsplit_once('.').map_or(text, |(signed, _signature)| signed);
        if self.id_tokens.has(text) {
            return Ok(false);
        }
        // Beyond the bound nobody signs in, rather than somebody twice. Only valid ones come here, which a provider issued.
        self.id_tokens.add(signed, until, now, USED_MAX)
    }

    /// Uses up the `state` of a browser's sign-in; `false` if it was used before.
    pub(crate) fn use_state(&self, state: &str, until: Time, now: Time) -> bool {
        // A list without a file is always written.
        self.states.add(state, until, now, USED_MAX).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oidc(people: Vec<Person>) -> Oidc {
        Oidc {
            issuer: "https://id.example".into(),
            client_id: "lastword".into(),
            client_secret: None,
            cli_client_id: "lastword".into(),
            console: None,
            valid_ms: 1_000,
            people,
        }
    }

    fn person(email: &str, name: &str) -> Person {
        Person { known_as: KnownAs::Email(email.into()), name: AgentName::new(name).unwrap(), role: Role::Viewer }
    }

    fn claims(sub: &str, email: &str, email_verified: bool) -> Claims {
        Claims { sub: sub.into(), email: Some(email.into()), email_verified, exp: 0 }
    }

    #[test]
    fn an_address_that_goes_to_somebody_else_lets_nobody_else_in_also_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let oidc = oidc(vec![person("Ann@example.com", "ann")]);
        let accounts = Accounts::open(&Files::local(dir.path())).unwrap();
        assert!(accounts.admit(&oidc, &claims("1", "ann@example.com", false)).is_err(), "not verified");
        assert!(accounts.admit(&oidc, &claims("9", "bob@example.com", true)).is_err(), "not listed");
        assert_eq!(accounts.admit(&oidc, &claims("1", "ann@example.com", true)).unwrap().name.as_str(), "ann");
        let accounts = Accounts::open(&Files::local(dir.path())).unwrap();
        assert!(accounts.admit(&oidc, &claims("1", "ann@example.com", true)).is_ok());
        let refused = accounts.admit(&oidc, &claims("2", "ann@example.com", true)).unwrap_err();
        assert!(refused.to_string().contains("another account"), "{refused}");
    }

    #[test]
    fn settings_that_would_send_a_secret_in_clear_or_name_one_human_twice_are_refused() {
        let at = |path: &str| BasePath::try_from(path.to_owned()).unwrap();
        oidc(vec![person("a@x", "ann")]).check(&at("/")).unwrap();
        for (console, path, fits) in [("/lw", "/lw", true), ("/lw/", "/lw", true), ("/", "/lw", false)] {
            let console = Some(format!("https://c.example{console}"));
            let settings = Oidc { console, ..oidc(vec![person("a@x", "ann")]) };
            assert_eq!(settings.check(&at(path)).is_ok(), fits);
        }
        for (change, word) in [
            (Oidc { issuer: "http://id.example".into(), ..oidc(vec![person("a@x", "ann")]) }, "https://"),
            (Oidc { issuer: "https://u:p@id.example".into(), ..oidc(vec![person("a@x", "ann")]) }, "password"),
            (Oidc { console: Some("https://c.example/lw".into()), ..oidc(vec![person("a@x", "ann")]) }, "path"),
            (Oidc { valid_ms: VALID_MS_MAX + 1, ..oidc(vec![person("a@x", "ann")]) }, "valid"),
            (oidc(vec![]), "nobody"),
            (oidc(vec![person("a@x", "ann"), person("b@x", "ann")]), "two"),
            (oidc(vec![person("a@x", "ann"), person("A@x", "bob")]), "another"),
        ] {
            let refused = change.check(&at("/")).unwrap_err().to_string();
            assert!(refused.contains(word), "{refused}");
        }
    }
}
