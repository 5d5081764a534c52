//! The members of `lastword.toml`, and what they amount to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lastword_broker::archive::ArchivePolicy;
use lastword_client::wire::nearest;
use lastword_facts::Limits;
use lastword_facts::limits::{Approvers, LIMITS, Profile, may_be};
use lastword_facts::names::AgentName;
use lastword_facts::policy::Policy;
use lastword_programs::Price;
use lastword_server::passkeys::PasskeyUse;
use lastword_server::{BasePath, ConsoleSettings};
use lastword_wire::{ClaimRule, NewSchedule};
use serde::Deserialize;
use toml::Spanned;

use crate::failure::Failure;
use crate::notify;
use crate::oidc;
use crate::policy;
use crate::quantity::{duration, milliseconds};
use crate::team::Member;
use crate::telemetry::TelemetryTable;
use crate::tls::TlsMode;

/// The members of `lastword.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Configuration {
    pub(crate) data: Option<PathBuf>,
    pub(crate) listen: Option<String>,
    /// Host names that clients may use for the server.
    pub(crate) hosts: Vec<String>,
    /// The path under which a reverse proxy serves the server.
    pub(crate) path: BasePath,
    /// Failed authentications of an address in a minute (L4).
    pub(crate) auth_failures_max: Option<u64>,
    pub(crate) url: Option<String>,
    /// The server's certificate: `auto`, or its files.
    pub(crate) tls: Option<TlsMode>,
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    /// How clients verify the server's certificate.
    pub(crate) tls_pin: Option<String>,
    pub(crate) tls_ca: Option<PathBuf>,
    pub(crate) token_file: Option<PathBuf>,
    /// The limits to start from (R6).
    pub(crate) profile: Option<Spanned<Profile>>,
    /// Limits that differ from the profile's, by name.
    pub(crate) limits: BTreeMap<String, Spanned<u64>>,
    /// Guards that only record what they would refuse (G7).
    pub(crate) observe: Option<Spanned<Vec<String>>>,
    /// Guards that refuse although they only observe in the profile (G7).
    pub(crate) enforce: Option<Spanned<Vec<String>>>,
    /// Agents that may decide approvals besides humans (H3).
    pub(crate) approvers: Approvers,
    /// The policy of held calls: the first rule that matches a call applies (H2).
    pub(crate) approval: Vec<policy::Rule>,
    /// Settings that several rules of the policy share.
    pub(crate) tier: BTreeMap<String, policy::Tier>,
    /// Agents whose MCP client a human uses directly, and which human (H1).
    pub(crate) seats: BTreeMap<String, String>,
    /// Agents that `serve --with-agents` runs.
    pub(crate) agent: Vec<Member>,
    /// Prices of models, for programs that report tokens but no money (B1).
    pub(crate) prices: BTreeMap<String, Price>,
    /// Channels that notify humans of pending decisions.
    pub(crate) notify: Vec<notify::NotifyTable>,
    /// Who may claim certain paths, and how (C1).
    pub(crate) claim: Vec<ClaimRule>,
    /// Schedules that `serve` sets for the operator (D13).
    pub(crate) schedule: Vec<Spanned<NewSchedule>>,
    /// The console as people reach it.
    pub(crate) console: ConsoleTable,
    /// Sessions that launchers start.
    pub(crate) sessions: Sessions,
    /// When the oldest part of the log moves to the archive.
    pub(crate) archive: Archive,
    /// The provider by which humans sign in.
    pub(crate) oidc: Option<oidc::OidcTable>,
    /// The facts after which the server keeps a checkpoint.
    pub(crate) checkpoint_every_facts: Option<u64>,
    /// The agents that other systems may ask.
    pub(crate) a2a: A2a,
    /// Where spans go.
    pub(crate) telemetry: Option<TelemetryTable>,
    /// The bridge to Discord; parsed only where the bridge is run.
    pub(crate) discord: Option<toml::Table>,
}

impl Configuration {
    /// Reads the text of the file at `path`.
    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self, Failure> {
        toml::from_str(text).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
    }

    /// Returns the limits in force: the file's values over those of its profile.
    pub(crate) fn limits(&self) -> Result<Limits, Failure> {
        let profile = self.profile.as_ref().map_or(Profile::Strict, |profile| *profile.get_ref());
        let mut limits = Limits { approvers: self.approvers.clone(), ..Limits::of(profile) };
        for (name, value) in &self.limits {
            if !may_be(name, *value.get_ref()) {
                return Err(Failure::usage(format!("{name} is 0, and a time has to be longer")).hint(
                    "leave it out for the default; `lastword limits` lists the limits, and which of them 0 turns off",
                ));
            }
            if !limits.set(name, *value.get_ref()) {
                let failure = Failure::usage(format!("unknown limit {name:?}"));
                return Err(match nearest(name, LIMITS.iter().map(|row| row.name)) {
                    Some(known) => failure.hint(format!("did you mean {known}? `lastword limits` lists them")),
                    None => failure.hint("`lastword limits` lists them"),
                });
            }
        }
        for guard in self.observe.iter().flat_map(Spanned::get_ref) {
            if !limits.observed.observe(guard) {
                return Err(Failure::usage(format!("no guard {guard:?} that can be observed"))
                    .hint("`lastword limits` lists the guards; the totals of a grant can't be observed"));
            }
        }
        for guard in self.enforce.iter().flat_map(Spanned::get_ref) {
            if self.observe.iter().flat_map(Spanned::get_ref).any(|observed| observed == guard) {
                return Err(Failure::usage(format!("the guard {guard:?} is listed in both observe and enforce"))
                    .hint("leave it in the one that is meant"));
            }
            if !limits.observed.enforce(guard) {
                return Err(Failure::usage(format!("no guard {guard:?} that could only observe"))
                    .hint("`lastword limits` lists the guards; those that can't be observed are always enforced"));
            }
        }
        if self.sessions.typed == Switch::Off {
            limits.typed_grants_per_hour_max = 0;
        }
        Ok(limits)
    }

    /// Returns the policy of held calls, under the limits of the file.
    pub(crate) fn policy(&self, limits: &Limits) -> Result<Policy, Failure> {
        policy::policy(&self.approval, &self.tier, limits)
    }

    /// Returns where the file sets each limit, and `profile`, `observe` and `enforce`.
    pub(crate) fn set_at(&self, place: impl Fn(usize) -> String) -> BTreeMap<String, String> {
        let limits = self.limits.iter().map(|(name, value)| (name.clone(), value.span().start));
        let observe = self.observe.iter().map(|list| ("observe".to_owned(), list.span().start));
        let enforce = self.enforce.iter().map(|list| ("enforce".to_owned(), list.span().start));
        let profile = self.profile.iter().map(|profile| ("profile".to_owned(), profile.span().start));
        limits.chain(observe).chain(enforce).chain(profile).map(|(name, at)| (name, place(at))).collect()
    }
}

/// The members of `[a2a]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct A2a {
    /// The agents with an address of their own.
    publish: Vec<String>,
    /// What the cards of some of them say.
    description: BTreeMap<String, String>,
    /// Whether push notifications may go to this machine and its network.
    allow_private: bool,
}

impl A2a {
    pub(crate) fn settings(self) -> Result<lastword_a2a::A2aSettings, Failure> {
        let Self { publish, mut description, allow_private } = self;
        if let Some(wrong) = publish.iter().find(|name| AgentName::new(name).is_err()) {
            return Err(Failure::usage(format!("[a2a] publish: {wrong:?} is no agent's name")));
        }
        let described = |name: String| {
            let description = description.remove(&name).unwrap_or_default();
            lastword_a2a::Published { name, description }
        };
        let publish = publish.into_iter().map(described).collect();
        if let Some(name) = description.keys().next() {
            return Err(Failure::usage(format!("[a2a.description] names {name}, which [a2a] publish doesn't")));
        }
        Ok(lastword_a2a::A2aSettings { publish, allow_private })
    }
}

/// The members of `[console]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ConsoleTable {
    /// Its address for people, without a path, if they reach it by another one than that where the server listens.
    address: Option<String>,
    /// Whether humans may switch notifications on in their browsers.
    push: Switch,
    /// Whether webhooks that humans add may be on this machine or its network.
    allow_private: bool,
    /// Where a passkey is asked for.
    passkey: PasskeyUse,
}

impl ConsoleTable {
    /// Returns what the server needs of it, and the host of the address.
    pub(crate) fn settings(&self) -> Result<(ConsoleSettings, Option<&str>), Failure> {
        let address = self.address()?;
        let settings = ConsoleSettings {
            address: address.map(|(address, _)| address.to_owned()),
            push: self.push == Switch::On,
            allow_private: self.allow_private,
            passkey: self.passkey,
        };
        settings.site().map_err(|why| Failure::usage(format!("[console] passkey: {why}")))?;
        Ok((settings, address.map(|(_, host)| host)))
    }

    /// Returns the address and its host.
    fn address(&self) -> Result<Option<(&str, &str)>, Failure> {
        let Some(address) = self.address.as_deref().map(|address| address.trim_end_matches('/')) else {
            return Ok(None);
        };
        let rest = ["http://", "https://"].iter().find_map(|scheme| address.strip_prefix(scheme));
        let authority = rest.filter(|rest| !rest.contains(|c: char| "/?#@".contains(c) || c.is_whitespace()));
        let port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let host =
            authority.map(|all| all.rsplit_once(':').filter(|(_, after)| port(after)).map_or(all, |(host, _)| host));
        match host.filter(|host| !host.is_empty()) {
            Some(host) => Ok(Some((address, host))),
            None => Err(Failure::usage(format!(
                "[console] address {address:?} isn't an address such as \"https://lastword.example\"; `path` is the path in it"
            ))),
        }
    }
}

/// The members of `[sessions]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Sessions {
    typed: Switch,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Switch {
    #[default]
    On,
    Off,
}

/// The members of `[archive]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Archive {
    /// Entries older than this, such as `90d`.
    after: Option<String>,
    /// The oldest entries of a log with more bytes than this.
    above_bytes: Option<u64>,
}

impl Archive {
    pub(crate) fn policy(&self) -> Result<ArchivePolicy, Failure> {
        let after = self.after.as_deref().map(duration).transpose();
        let after = after.map_err(|why| Failure::usage(format!("[archive] after: {why}")))?;
        Ok(ArchivePolicy { after_ms: after.map(milliseconds), above_bytes: self.above_bytes })
    }
}
