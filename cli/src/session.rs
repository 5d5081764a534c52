//! Finds the server, and the token to authenticate with.

use std::fs;
use std::io::{BufRead as _, IsTerminal as _, Write as _, stderr, stdin, stdout};
use std::path::{Path, PathBuf};

use lastword_client::{Client, Endpoint, Pin, Token, Trust};
use lastword_facts::fact::Kind;
use lastword_facts::names::OWN_NAME;
use lastword_server::FILE_PIN;
use lastword_store::format::FILE_DATABASE;
use serde::Deserialize;

use crate::config::LISTEN;
use crate::context::Context;
use crate::environment::variable;
use crate::failure::Failure;
use crate::out::Out;
use crate::text_file;
use crate::token_source::TokenSource;

/// The file in the data directory with the running server's address and process id.
pub(crate) const FILE_SERVER: &str = "server.json";
/// The file in the data directory with the operator's token.
pub(crate) const FILE_OPERATOR: &str = "operator.token";

/// What a command does with the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Authority {
    /// Only reads the workspace.
    Read,
    /// Acts as the token's owner.
    Act,
}

/// How the process was started, as far as that shows whether a human is there.
#[derive(Clone, Copy, Debug)]
struct Presence {
    /// The environment variable that shows that an agent program runs this one.
    agent: Option<&'static str>,
    /// Whether standard input and one of the outputs are a terminal, as in `lastword agent add coder > coder.token`.
    terminal: bool,
    /// Whether at least standard input or standard error is a terminal, as in `lastword audit | less`.
    piped: bool,
}

/// The content of `DIR/server.json`.
#[derive(Debug, Deserialize)]
pub(crate) struct Running {
    /// The address that the server listens on.
    pub(crate) url: String,
    /// The server's process id.
    pub(crate) pid: u32,
}

/// The server, and this run's token for it.
#[derive(Clone)]
pub(crate) struct ServerAccess {
    pub(crate) endpoint: Endpoint,
    pub(crate) token: String,
}

impl Context {
    /// Returns a client of the server with this run's token.
    pub(crate) fn client(&self, authority: Authority) -> Result<Client, Failure> {
        let ServerAccess { endpoint, token } = self.access(authority)?;
        Ok(Client::new(&endpoint, Some(Token::new(&token)?))?)
    }

    /// Returns the server and this run's token. From here on this process is closed to others of its user.
    pub(crate) fn access(&self, authority: Authority) -> Result<ServerAccess, Failure> {
        keep_to_itself()?;
        // A token is named first: without one, an agent's program hears of that, and not of the server.
        let server = self.server().unwrap_or_default();
        let token = match &self.settings.token {
            TokenSource::Text(text) if text.trim().is_empty() => {
                return Err(Failure::refused("LASTWORD_TOKEN is set but empty").hint(NAME_A_TOKEN));
            }
            TokenSource::Text(text) => text.clone(),
            TokenSource::File(path) => read_token(path)?,
            TokenSource::Implicit => self.own_token(authority, server.as_deref())?,
        };
        // Its source is only known here.
        let named = |error| Failure::from(error).in_token(&self.settings.token);
        Token::new(&token).map_err(named)?;
        Ok(ServerAccess { endpoint: self.endpoint()?, token })
    }

    /// Returns the file with the token of a sign-in at this server.
    pub(crate) fn sign_in_file(&self, url: &str) -> Option<PathBuf> {
        // Two addresses never have one file: a token must not go to another server than its own.
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
        let name = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
        let name: String = url.trim_end_matches('/').bytes().map(name).collect();
        Some(self.environment.config_home.as_ref()?.join("lastword/sign-in").join(name))
    }

    /// Returns the token of the user at the terminal: of the sign-in at this server, else the operator's, if this run
    /// may use it.
    fn own_token(&self, authority: Authority, server: Option<&str>) -> Result<String, Failure> {
        let presence = Presence {
            agent: self.environment.agent,
            terminal: stdin().is_terminal() && (stdout().is_terminal() || stderr().is_terminal()),
            piped: stdin().is_terminal() || stderr().is_terminal(),
        };
        if server.is_none() && presence.agent.is_none() {
            // Without a server a token wouldn't help, so this error comes first.
            return Err(self.unserved());
        }
        // The file is of this very address, so its token goes to no other server, on this machine or elsewhere.
        if let Some(file) = server.and_then(|url| self.sign_in_file(url)).filter(|file| file.exists()) {
            may_use_own_token(authority, &presence)?;
            return read_token(&file);
        }
        may_use_operator_token(authority, &presence, server)?;
        if server.is_none() {
            // Any user's program may listen on the default address, so it never gets a token that wasn't named.
            return Err(self.unserved());
        }
        read_token(&self.settings.data.join(FILE_OPERATOR)).map_err(|failure| failure.hint(NAME_A_TOKEN))
    }

    /// Returns a client for a command that starts work or creates tokens. Agents must do that in their own name: if an
    /// agent program runs this one, a human's token is refused, however it was named.
    pub(crate) async fn acting(&self) -> Result<Client, Failure> {
        let client = self.client(Authority::Act)?;
        if let Some(variable) = self.environment.agent
            && client.agent(OWN_NAME).await?.kind == Kind::Human
        {
            return Err(no_human(variable).hint("use the agent's own token with --token-file FILE or LASTWORD_TOKEN"));
        }
        Ok(client)
    }

    /// Returns a client for a command that decides in a human's name. Holding a human's token isn't enough: the command
    /// needs a terminal or `--yes`, and must not be run by an agent program. An agent's own token passes; the broker
    /// judges what that agent may decide.
    pub(crate) async fn deciding(&self, yes: bool) -> Result<Client, Failure> {
        self.deciding_so(yes, "confirm with --yes").await
    }

    /// The same for a command that a script has to give more than `--yes`, as `in_script` tells.
    pub(crate) async fn deciding_so(&self, yes: bool, in_script: &str) -> Result<Client, Failure> {
        let client = self.client(Authority::Act)?;
        if client.agent(OWN_NAME).await?.kind == Kind::Human {
            may_decide(self.environment.agent, stdin().is_terminal(), yes, in_script)?;
        }
        Ok(client)
    }

    /// Returns why this run must not act as the token's owner, `own`, if the environment names another agent. A token
    /// in a folder's configuration is one agent's, but every agent that works there reads that configuration.
    pub(crate) fn other_agent(&self, own: &str) -> Option<String> {
        let named = self.environment.agent_name.as_deref().filter(|named| *named != own)?;
        Some(format!(
            "the configured token is {own}'s, but this session is {named}'s (LASTWORD_AGENT={named}), so Lastword does \
             nothing here; give {named} its own configuration: `lastword init --from-env`"
        ))
    }

    /// Returns the named address, else that of the server running on the data directory, else the default, to be shown.
    pub(crate) fn server_url(&self) -> String {
        match self.server() {
            Ok(found) => found.unwrap_or_else(usual),
            Err(_) => self.settings.data.display().to_string(),
        }
    }

    /// Returns the server, and how its certificate is verified: as named, else by the fingerprint in the data directory
    /// if the server runs there, else by the system's authorities.
    ///
    /// # Errors
    /// No server is running on the data directory that is meant.
    pub(crate) fn endpoint(&self) -> Result<Endpoint, Failure> {
        let url = self.server()?.unwrap_or_else(usual);
        let endpoint = Endpoint::new(&url);
        let trust = match &self.settings.trust {
            Some(named) => named.clone(),
            None => kept_trust(&self.settings.data, &endpoint),
        };
        Ok(endpoint.trusting(trust).called_by(variable("LASTWORD_CLIENT").as_deref()))
    }

    /// Returns the named address, else that of the server running on the data directory, if there is one.
    ///
    /// # Errors
    /// There is none, and the data directory is a certain one: it is named, or has a log. What is meant for its server goes
    /// nowhere else: anyone's program may listen on the default address.
    fn server(&self) -> Result<Option<String>, Failure> {
        let settings = &self.settings;
        let found = settings.url.clone().or_else(|| running(&settings.data).map(|server| server.url));
        let certain = settings.data_is_named || settings.data.join(FILE_DATABASE).exists();
        if found.is_none() && certain { Err(self.unserved()) } else { Ok(found) }
    }

    fn unserved(&self) -> Failure {
        Failure::unavailable(format!("no server is running on {}", self.settings.data.display()))
            .hint("start one with `lastword serve`, or name a running one with --url or its directory with --data")
    }
}

/// Returns how the certificate of the server on this data directory is verified, if it is this one.
pub(crate) fn kept_trust(data: &Path, endpoint: &Endpoint) -> Trust {
    let port = |url: &str| url.rsplit(':').next().map(str::to_owned);
    let ours = running(data).is_some_and(|server| {
        let here = is_loopback(&server.url) && is_loopback(endpoint.url());
        server.url == endpoint.url() || (here && port(&server.url) == port(endpoint.url()))
    });
    match std::path::absolute(data.join(FILE_PIN)) {
        Ok(pin) if ours && endpoint.url().starts_with("https://") => Trust::Pinned(Pin::File(pin)),
        Ok(_) | Err(_) => Trust::System,
    }
}

fn usual() -> String {
    format!("http://{LISTEN}")
}

/// Closes this process's memory and environment, which may hold a human's token, to programs of the same user: those that
/// it starts, above all.
pub(crate) fn keep_to_itself() -> Result<(), Failure> {
    #[cfg(target_os = "linux")]
    if rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable).is_err() {
        Out::note("programs of this user can read this process's memory, with its token")?;
    }
    Ok(())
}

const SIGN_IN: &str = "sign in with `lastword sign-in`, or name a token with --token-file FILE or LASTWORD_TOKEN";
const NAME_A_TOKEN: &str = "name a token with --token-file FILE or LASTWORD_TOKEN";

/// Returns the server noted in the data directory, unless its process is known to be gone.
pub(crate) fn running(data: &Path) -> Option<Running> {
    let noted: Running = serde_json::from_slice(&fs::read(data.join(FILE_SERVER)).ok()?).ok()?;
    // Without /proc the process can't be checked, and the note is trusted.
    let processes = Path::new("/proc");
    let gone = processes.join("self").exists() && !processes.join(noted.pid.to_string()).exists();
    (!gone).then_some(noted)
}

pub(crate) fn read_token(path: &Path) -> Result<String, Failure> {
    text_file::read(path).map_err(|error| Failure::refused(format!("no token: {}: {error}", path.display())))
}

/// Refuses the operator's token unless a human is at a terminal and the server is on this machine. An agent's shell
/// runs as the same user and could read the file as well, but it has to name the file openly.
fn may_use_operator_token(authority: Authority, presence: &Presence, server: Option<&str>) -> Result<(), Failure> {
    if presence.agent.is_none()
        && let Some(url) = server.filter(|url| !is_loopback(url))
    {
        return Err(Failure::refused(format!("{url} is another machine: a token is required")).hint(SIGN_IN));
    }
    may_use_own_token(authority, presence)
}

/// Refuses a human's token that no flag or variable names, unless a human is at a terminal.
fn may_use_own_token(authority: Authority, presence: &Presence) -> Result<(), Failure> {
    if let Some(variable) = presence.agent {
        return Err(Failure::refused(format!(
            "an agent is running this command ({variable} is set) without its own token"
        ))
        .hint("use the agent's own token with --token-file FILE or LASTWORD_TOKEN"));
    }
    // Reading may be piped, as in `lastword audit | less`; acting needs an output to a terminal, too.
    let present = match authority {
        Authority::Act => presence.terminal,
        Authority::Read => presence.piped,
    };
    if present {
        return Ok(());
    }
    Err(Failure::refused("no token was named; the operator's token is the default only at a terminal")
        .hint(NAME_A_TOKEN))
}

fn no_human(variable: &str) -> Failure {
    Failure::refused(format!("an agent is running this command ({variable} is set) with a human's token"))
}

/// Refuses a human's token for an agent program, unless the user asks for that by name.
pub(crate) fn no_human_for_a_model(name: &str) -> Failure {
    Failure::refused(format!("this token is {name}'s, a human: the model would act as {name}")).hint(
        "register an agent: `lastword agent add NAME > NAME.token`; \
         with --as-human the model only reads and decides, and each of its decisions is recorded as yours",
    )
}

/// Refuses a human's token where it must not decide.
fn may_decide(agent: Option<&str>, terminal: bool, yes: bool, in_script: &str) -> Result<(), Failure> {
    if let Some(variable) = agent {
        return Err(no_human(variable).hint(
            "decide in your own terminal; an agent that may decide uses its own token. \
             To keep agents from your token, run them as another user: docs/approvals.md",
        ));
    }
    if terminal || yes {
        return Ok(());
    }
    Err(Failure::refused("this command decides in a human's name and needs a terminal")
        .hint(format!("run it at a terminal; in a script {in_script}")))
}

/// Asks the user at the terminal to confirm, unless the command line already does.
pub(crate) fn confirmed(question: &str, yes: bool) -> Result<bool, Failure> {
    if yes || !stdin().is_terminal() {
        return Ok(yes);
    }
    // On standard error, so that standard output holds only the result with --json.
    stderr().lock().write_all(format!("{question} [y/N] ").as_bytes())?;
    let mut line = String::new();
    stdin().lock().read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

fn is_loopback(url: &str) -> bool {
    loopback(url).is_some()
}

/// Returns the host of a URL if it is this machine's own.
pub(crate) fn loopback(url: &str) -> Option<&'static str> {
    let host = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")).unwrap_or(url);
    let host = host.split('/').next().unwrap_or_default();
    // In `user@host`, the part before the `@` could look like a local address.
    if host.contains('@') {
        return None;
    }
    if host.starts_with("[::1]") {
        return Some("::1");
    }
    ["127.0.0.1", "localhost"].into_iter().find(|name| host.split(':').next() == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "http://127.0.0.1:7171";

    fn presence(agent: bool, terminal: bool, piped: bool) -> Presence {
        Presence { agent: agent.then_some("CLAUDECODE"), terminal, piped }
    }

    #[test]
    fn the_operators_token_is_picked_up_only_where_a_person_sits() {
        let may = |authority, presence| may_use_operator_token(authority, &presence, Some(HERE)).is_ok();
        assert!(may(Authority::Act, presence(false, true, true)));
        assert!(!may(Authority::Act, presence(true, true, true)), "an agent's terminal");
        assert!(!may(Authority::Act, presence(false, false, true)), "a script");
        assert!(may(Authority::Read, presence(false, false, true)), "`lastword audit | less`");
        assert!(!may(Authority::Read, presence(false, false, false)), "no terminal anywhere");
        assert!(!may(Authority::Read, presence(true, true, true)));
    }

    #[test]
    fn a_humans_token_decides_at_a_terminal_or_for_a_script_and_never_for_an_agent() {
        let may = |agent, terminal, yes| may_decide(agent, terminal, yes, "").is_ok();
        assert!(may(None, true, false));
        assert!(may(None, false, true));
        assert!(!may(None, false, false), "a shell without anybody");
        let refused = may_decide(None, false, false, "confirm with --yes, and more").unwrap_err();
        assert!(format!("{refused:?}").contains("in a script confirm with --yes, and more"), "{refused:?}");
        for (terminal, yes) in [(true, false), (false, true), (true, true)] {
            assert!(!may(Some("CLAUDECODE"), terminal, yes), "an agent says yes as easily as a person");
        }
    }

    #[test]
    fn the_operators_token_goes_to_this_machine_only() {
        let present = presence(false, true, true);
        let may = |url| may_use_operator_token(Authority::Act, &present, Some(url)).is_ok();
        for near in [HERE, "http://localhost:7171/", "http://[::1]:7171"] {
            assert!(may(near), "{near}");
        }
        for far in ["http://127.0.0.1.evil.example", "http://evil.example/127.0.0.1", "http://127.0.0.1@evil.example"] {
            assert!(!may(far), "{far}");
        }
    }
}
