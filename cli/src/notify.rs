//! The `[[notify]]` tables of `lastword.toml`: channels that notify humans of pending decisions.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lastword_broker::identity::Secret;
use lastword_facts::names::Label;
use lastword_server::notify::{Channel, Command, Format, HOURLY_MAX, Means, STALE, Severity, WINDOW, Webhook};
use serde::Deserialize;

use crate::environment::variable;
use crate::failure::Failure;
use crate::quantity::duration;

/// Prefix of the variables that may hold a secret: agents that the server runs don't get them.
pub(crate) const OWN_VARIABLES: &str = "LASTWORD_";

/// The members of one `[[notify]]` table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NotifyTable {
    name: String,
    command: Option<Vec<String>>,
    webhook: Option<Address>,
    #[serde(default)]
    devices: bool,
    secret_env: Option<String>,
    secret_file: Option<PathBuf>,
    allow_private: Option<bool>,
    format: Option<Format>,
    minimum: Option<Severity>,
    window: Option<String>,
    hourly_max: Option<usize>,
    stale: Option<String>,
    #[serde(default)]
    include_arguments: bool,
    console: Option<String>,
    /// The directory of the file, to which paths are relative.
    #[serde(skip)]
    base: PathBuf,
}

/// An address that may hold a secret; its `Debug` form hides it.
#[derive(Clone, Deserialize)]
struct Address(String);

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(not shown)")
    }
}

/// Checks the tables of a file in this directory, without reading their secrets.
pub(crate) fn tables(tables: Vec<NotifyTable>, base: &Path) -> Result<Vec<NotifyTable>, Failure> {
    let tables: Vec<NotifyTable> =
        tables.into_iter().map(|table| NotifyTable { base: base.to_owned(), ..table }).collect();
    for (index, table) in tables.iter().enumerate() {
        let wrong = |what: String| Failure::usage(format!("[[notify]] {}: {what}", index + 1));
        table.checked().map_err(wrong)?;
        if tables.iter().take(index).any(|earlier| earlier.name == table.name) {
            return Err(wrong(format!("name {:?} is used twice", table.name)));
        }
        if table.devices && tables.iter().take(index).any(|earlier| earlier.devices) {
            return Err(wrong("there is one channel to devices".into()));
        }
    }
    Ok(tables)
}

/// Builds the channels, with their secrets.
pub(crate) fn channels(tables: &[NotifyTable]) -> Result<Vec<Channel>, Failure> {
    let one = |table: &NotifyTable| {
        let named = |what| Failure::usage(format!("the [[notify]] named {:?}: {what}", table.name));
        table.channel().map_err(named)
    };
    tables.iter().map(one).collect()
}

impl NotifyTable {
    /// Returns the channel's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn checked(&self) -> Result<(), String> {
        Label::new(&self.name).map_err(|error| format!("name {:?} {error}", self.name))?;
        match (&self.command, &self.webhook, self.devices) {
            (None, None, true) => {
                if self.secret_env.is_some() || self.secret_file.is_some() || self.format.is_some() {
                    return Err("secret_env, secret_file and format are for a webhook".into());
                }
            }
            (Some(words), None, false) => {
                if words.first().is_none_or(String::is_empty) {
                    return Err("command has no program, such as [\"notify-send\", \"{title}\", \"{text}\"]".into());
                }
                let of_webhook =
                    self.secret_env.is_some() || self.secret_file.is_some() || self.allow_private.is_some();
                if of_webhook || self.format.is_some() {
                    return Err("secret_env, secret_file, allow_private and format are for a webhook".into());
                }
            }
            (None, Some(_), false) => {
                if self.secret_env.is_some() == self.secret_file.is_some() {
                    return Err("a webhook needs a signing secret: set secret_env or secret_file".into());
                }
                if self.secret_env.as_ref().is_some_and(|name| !name.starts_with(OWN_VARIABLES)) {
                    return Err(
                        "secret_env must begin with LASTWORD_, so that agents run by the server don't see it".into()
                    );
                }
            }
            _ => return Err("set either command or webhook, or devices = true".into()),
        }
        if self.hourly_max == Some(0) {
            return Err("hourly_max = 0 would send nothing: remove the channel instead".into());
        }
        if let Some(console) = &self.console {
            // Readers follow it as a link.
            let rest = ["http://", "https://"].iter().find_map(|scheme| console.strip_prefix(scheme));
            if rest.is_none_or(|rest| rest.is_empty() || rest.contains(char::is_whitespace)) {
                return Err(format!("console {console:?} isn't an address such as \"https://lastword.example/\""));
            }
        }
        time("window", self.window.as_deref(), WINDOW)?;
        if time("stale", self.stale.as_deref(), STALE)?.is_zero() {
            return Err("stale = 0 would resend without end".into());
        }
        Ok(())
    }

    /// Builds the channel, with its secret.
    pub(crate) fn channel(&self) -> Result<Channel, String> {
        let means = match (&self.command, &self.webhook) {
            (Some(words), _) => Means::Command(self.command(words)?),
            (None, Some(Address(url))) => {
                let webhook = Webhook::new(url, self.secret()?, self.allow_private.unwrap_or_default())?;
                Means::Webhook(webhook.with_format(self.format.unwrap_or_default()))
            }
            (None, None) => Means::Devices { allow_private: self.allow_private.unwrap_or_default(), devices: None },
        };
        Ok(Channel {
            name: self.name.clone(),
            means,
            minimum: self.minimum.unwrap_or_default(),
            window: time("window", self.window.as_deref(), WINDOW)?,
            hourly_max: self.hourly_max.unwrap_or(HOURLY_MAX),
            stale: time("stale", self.stale.as_deref(), STALE)?,
            include_arguments: self.include_arguments,
            console: self.console.clone(),
        })
    }

    /// Resolves the command: a program with a slash is relative to the file, any other is looked up in `PATH`.
    fn command(&self, words: &[String]) -> Result<Command, String> {
        let here = std::env::current_dir().map_err(|error| error.to_string())?.join(&self.base);
        let Some((program, args)) = words.split_first() else { return Err("command has no program".into()) };
        let program = if program.contains('/') { here.join(program) } else { program.into() };
        Ok(Command { program, args: args.to_vec(), cwd: here })
    }

    fn secret(&self) -> Result<Secret, String> {
        let text = match (&self.secret_env, &self.secret_file) {
            (Some(name), _) => variable(name).ok_or_else(|| format!("{name} is not set"))?,
            (None, Some(file)) => private("secret_file", &self.base.join(file))?,
            (None, None) => return Err("a webhook needs a signing secret: set secret_env or secret_file".into()),
        };
        Ok(Secret::new(text.trim().to_owned()))
    }
}

/// Reads a file that only its owner can read.
pub(crate) fn private(key: &str, path: &Path) -> Result<String, String> {
    let shown = path.display();
    let failed = |error| format!("{key} {shown}: {error}");
    let mode = fs::metadata(path).map_err(failed)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(format!("{key} {shown} can be read by others ({mode:o}): chmod 600 {shown}"));
    }
    fs::read_to_string(path).map_err(failed)
}

fn time(key: &str, text: Option<&str>, default: Duration) -> Result<Duration, String> {
    text.map_or(Ok(default), |text| duration(text).map_err(|error| format!("{key}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Global, Settings};
    use crate::environment::Environment;

    const SECRET: &str = "a-secret-that-is-long-enough";

    fn settings(text: &str) -> (tempfile::TempDir, Result<Settings, Failure>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lastword.toml");
        fs::write(&path, text).unwrap();
        let settings = Settings::resolve(&Global { config: Some(path), ..Global::default() }, &Environment::default());
        (dir, settings)
    }

    #[test]
    fn a_channel_that_makes_no_sense_is_refused_with_its_number_and_the_reason() {
        let command = "name = \"a\"\ncommand = [\"true\"]\n";
        for (text, word) in [
            ("name = \"a\"\n", "either command or webhook"),
            ("name = \"a\"\ncommand = [\"true\"]\nwebhook = \"https://x\"", "either command or webhook"),
            ("name = \"a b\"\ncommand = [\"true\"]", "a b"),
            ("name = \"a\"\ncommand = []", "no program"),
            ("name = \"a\"\nwebhook = \"https://x\"", "secret_env"),
            ("name = \"a\"\nwebhook = \"https://x\"\nsecret_env = \"OTHER\"", "LASTWORD_"),
            (&format!("{command}secret_env = \"LASTWORD_X\""), "for a webhook"),
            ("name = \"a\"\ndevices = true\ncommand = [\"true\"]", "either command or webhook"),
            ("name = \"a\"\ndevices = true\nformat = \"lastword\"", "for a webhook"),
            ("name = \"a\"\ndevices = true\n[[notify]]\nname = \"b\"\ndevices = true", "one channel to devices"),
            (&format!("{command}hourly_max = 0"), "hourly_max"),
            (&format!("{command}console = \"javascript:alert(1)\""), "isn't an address such as"),
            (&format!("{command}console = \"https://\""), "isn't an address such as"),
            (&format!("{command}window = \"soon\""), "window"),
            (&format!("{command}minimum = \"huge\""), "huge"),
            (&format!("{command}colour = 1"), "colour"),
            (&format!("{command}[[notify]]\n{command}"), "[[notify]] 2: name \"a\" is used twice"),
        ] {
            let failure = settings(&format!("[[notify]]\n{text}")).1.unwrap_err();
            assert!(failure.message.contains(word), "{text}: {}", failure.message);
        }
    }

    #[test]
    fn a_secret_is_read_from_a_file_of_ones_own_and_is_nowhere_in_what_is_printed() {
        let text =
            "[[notify]]\nname = \"ops\"\nwebhook = \"https://hooks.example/canary\"\nsecret_file = \"hook.secret\"";
        let (dir, settings) = settings(text);
        let (settings, file) = (settings.unwrap(), dir.path().join("hook.secret"));
        assert!(channels(&settings.notify).unwrap_err().message.contains("hook.secret"));
        fs::write(&file, format!("{SECRET}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(channels(&settings.notify).unwrap_err().message.contains("chmod 600"));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let channels = channels(&settings.notify).unwrap();
        let shown = format!("{settings:?} {channels:?}");
        assert!(shown.contains("ops") && !shown.contains(SECRET) && !shown.contains("canary"), "{shown}");
        assert_eq!((channels[0].window, channels[0].minimum, channels[0].hourly_max), (WINDOW, Severity::Normal, 12));
    }

    #[test]
    fn a_program_with_a_slash_is_relative_to_the_file() {
        let text =
            "[[notify]]\nname = \"a\"\ncommand = [\"./tell\", \"x\"]\n[[notify]]\nname = \"b\"\ncommand = [\"true\"]";
        let (dir, settings) = settings(text);
        let channels = channels(&settings.unwrap().notify).unwrap();
        let programs = channels.into_iter().map(|channel| match channel.means {
            Means::Command(command) => command.program,
            Means::Webhook(_) | Means::Devices { .. } => unreachable!("both are commands"),
        });
        assert_eq!(programs.collect::<Vec<_>>(), [dir.path().join("./tell"), "true".into()]);
    }
}
