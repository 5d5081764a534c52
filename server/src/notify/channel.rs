//! The channels of notifications: where they go, and which they get.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lastword_broker::identity::Secret;
use reqwest::Url;
use serde::{Deserialize, Serialize};

use super::devices::Devices;
use super::target::{self, OWN_RECEIVER};
use super::webhook;

/// The shortest secret that may sign a webhook, in bytes.
const SECRET_BYTES_MIN: usize = 16;

/// Default window: events within this time of the first become one notification.
pub const WINDOW: Duration = Duration::from_secs(30);
/// Default maximum of notifications per hour.
pub const HOURLY_MAX: usize = 12;
/// Default time after which an open matter is notified again.
pub const STALE: Duration = Duration::from_hours(4);

/// How urgent a topic is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// No agent waits for it: a request that timed out for good.
    Low,
    /// An agent waits: a question or a held call.
    #[default]
    Normal,
    /// Work is blocked or soon will be: a limit that tripped, a stopped workspace, a held call past half of its time.
    Urgent,
}

impl Severity {
    /// Returns the word that the configuration and the notification use.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::Urgent => "urgent",
        }
    }

    /// Parses the word; `None` if it is none.
    pub(super) fn from_word(word: &str) -> Option<Self> {
        [Self::Low, Self::Normal, Self::Urgent].into_iter().find(|severity| severity.word() == word)
    }
}

/// One `[[notify]]` entry of the configuration.
#[derive(Clone, Debug)]
pub struct Channel {
    /// The name; the record of sent notifications is kept under it.
    pub name: String,
    /// The way in which it is reached.
    pub means: Means,
    /// The lowest severity that it is notified of.
    pub minimum: Severity,
    /// Topics within this time after the first are sent as one notification.
    pub window: Duration,
    /// The most notifications in an hour; further topics are delayed.
    pub hourly_max: usize,
    /// The time after which a topic that is still pending is sent again.
    pub stale: Duration,
    /// Whether notifications contain the arguments of held calls.
    pub include_arguments: bool,
    /// The URL of the console, if it differs from the address that the server listens on.
    pub console: Option<String>,
}

/// The means of reaching a channel.
#[derive(Clone, Debug)]
pub enum Means {
    /// Runs a program.
    Command(Command),
    /// Makes an HTTP call.
    Webhook(Webhook),
    /// Sends to the browsers in which humans switched it on.
    Devices {
        /// Whether their services may be on this machine or its network.
        allow_private: bool,
        /// The devices of the workspace, once it is open.
        devices: Option<Arc<Devices>>,
    },
}

impl Means {
    /// Returns the devices that it sends to.
    pub(super) const fn devices(&self) -> Option<&Arc<Devices>> {
        match self {
            Self::Devices { devices, .. } => devices.as_ref(),
            Self::Command(_) | Self::Webhook(_) => None,
        }
    }

    /// Returns whether it would send to nobody.
    pub(super) fn is_idle(&self) -> bool {
        self.devices().is_some_and(|devices| *devices.count().borrow() == 0)
    }
}

impl Channel {
    /// Returns the channel to devices as it is unless it is configured.
    #[must_use]
    pub fn to_devices() -> Self {
        Self {
            name: "devices".to_owned(),
            means: Means::Devices { allow_private: false, devices: None },
            minimum: Severity::default(),
            window: WINDOW,
            hourly_max: HOURLY_MAX,
            stale: STALE,
            include_arguments: false,
            console: None,
        }
    }
}

/// A program that is run for each notification.
#[derive(Clone, Debug, Default)]
pub struct Command {
    /// The path of the program; it is started without a shell.
    pub program: PathBuf,
    /// Its arguments. `{title}` and `{text}` are replaced by those of the notification.
    pub args: Vec<String>,
    /// Its working directory.
    pub cwd: PathBuf,
}

/// A URL that may be called.
#[derive(Clone)]
pub struct Target {
    pub(super) url: Url,
    pub(super) allow_private: bool,
}

/// A URL that is called with each signed notification.
#[derive(Clone)]
pub struct Webhook {
    pub(super) target: Target,
    pub(super) secret: Secret,
    pub(super) format: Format,
}

/// The form in which a webhook gets a notification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// The notification.
    #[default]
    Lastword,
    /// A CloudEvent in structured mode: the notification is its `data`.
    Cloudevents,
    /// A CloudEvent in binary mode: the notification is the body, and the attributes are headers.
    CloudeventsBinary,
}

impl Target {
    /// Checks a URL. Host names are resolved, and their addresses checked, at each call.
    ///
    /// # Errors
    /// The URL is invalid or leads where no call may. The text doesn't repeat it, because it may contain a secret.
    pub fn new(url: &str, allow_private: bool) -> Result<Self, String> {
        let url = Url::parse(url).map_err(|error| format!("webhook isn't a URL: {error}"))?;
        match url.scheme() {
            "https" => {}
            // Without TLS only for a receiver of one's own.
            "http" if allow_private => {}
            "http" => {
                return Err(format!("webhook is http: use https; {OWN_RECEIVER}"));
            }
            other => return Err(format!("webhook is {other}, and can be https only")),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(
                "webhook has a user or a password in it: the secret belongs into secret_env or secret_file".into()
            );
        }
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or("webhook names no host")?;
        if let Some(ip) = target::literal(host) {
            target::check(ip, allow_private)?;
        }
        Ok(Self { url, allow_private })
    }
}

impl Webhook {
    /// Checks the URL as a [`Target`], and the secret.
    ///
    /// # Errors
    /// The URL or the secret is invalid.
    pub fn new(url: &str, secret: Secret, allow_private: bool) -> Result<Self, String> {
        let target = Target::new(url, allow_private)?;
        if secret.reveal().len() < SECRET_BYTES_MIN {
            return Err(format!("the webhook's secret is shorter than {SECRET_BYTES_MIN} bytes"));
        }
        webhook::key(&secret)?;
        Ok(Self { target, secret, format: Format::default() })
    }

    /// Returns the host that is called.
    pub(super) fn host(&self) -> &str {
        self.target.url.host_str().unwrap_or_default()
    }

    /// Returns the same webhook, which gets notifications in this form.
    #[must_use]
    pub fn with_format(self, format: Format) -> Self {
        Self { format, ..self }
    }
}

impl fmt::Debug for Webhook {
    /// Prints neither the secret nor the path, which is a secret at some receivers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("host", &self.target.url.host_str()).finish_non_exhaustive()
    }
}

/// Returns a channel that is notified of everything at once.
#[cfg(test)]
pub(super) fn channel(means: Means) -> Channel {
    Channel {
        name: "desk".into(),
        means,
        minimum: Severity::Low,
        window: Duration::ZERO,
        hourly_max: 12,
        stale: Duration::from_hours(4),
        include_arguments: false,
        console: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "canary-secret-of-a-webhook";

    fn hook(url: &str, allow_private: bool) -> Result<Webhook, String> {
        Webhook::new(url, Secret::new(SECRET.into()), allow_private)
    }

    #[test]
    fn an_address_that_can_not_be_called_is_refused_with_the_reason() {
        for (url, word) in [
            ("nonsense", "isn't a URL"),
            ("ftp://hooks.example/", "https only"),
            ("http://hooks.example/", "use https"),
            ("https://user:pass@hooks.example/", "secret_env"),
            ("https://169.254.169.254/latest", "link-local"),
        ] {
            let error = hook(url, false).unwrap_err();
            assert!(error.contains(word) && !error.contains("pass@"), "{url}: {error}");
        }
        assert!(hook("https://hooks.example/x", false).is_ok());
        assert!(hook("http://127.0.0.1:9/x", true).is_ok());
        let short = Webhook::new("https://hooks.example/", Secret::new("short".into()), false).unwrap_err();
        assert!(short.contains("16 bytes"), "{short}");
        let encoded = |secret: &str| Webhook::new("https://hooks.example/", Secret::new(secret.into()), false);
        assert!(encoded("whsec_bGFzdHdvcmQtY2FuYXJ5").is_ok());
        let wrong = encoded("whsec_this is no base64").unwrap_err();
        assert!(wrong.contains("no Base64") && !wrong.contains("this"), "{wrong}");
    }

    #[test]
    fn what_is_printed_of_a_webhook_has_no_secret() {
        let shown = format!("{:?}", hook("https://hooks.example/services/T0/canary-path", false).unwrap());
        assert!(shown.contains("hooks.example") && !shown.contains("canary"), "{shown}");
    }
}
