//! The configuration of a workspace.

use std::collections::BTreeMap;
use std::sync::Arc;

use lastword_broker::archive::ArchivePolicy;
use lastword_broker::clock::Source;
use lastword_facts::Limits;
use lastword_facts::policy::Policy;
use lastword_wire::ClaimRule;

use super::{CHECKPOINT_EVERY_FACTS, Companion};
use crate::attempts::AUTH_FAILURES_MAX;
use crate::base_path::BasePath;
use crate::calls::config_edits::EditableConfig;
use crate::calls::schedules::ConfiguredSchedule;
use crate::console::ConsoleSettings;
use crate::notify::Channel;
use crate::oidc::Oidc;
use crate::trace::Traces;

/// The configuration of a workspace.
#[derive(Clone, Debug)]
pub struct WorkspaceSettings {
    /// The limits to put in force.
    pub limits: Limits,
    /// The policy that allows, denies or holds tool calls.
    pub policy: Policy,
    /// Host names under which it may be called, besides literal addresses and `localhost`.
    pub hosts: Vec<String>,
    /// The path under which a reverse proxy serves it.
    pub path: BasePath,
    /// The console as people reach it.
    pub console: ConsoleSettings,
    /// Failed authentications that an address may make in a minute, at least 1; callers behind a proxy share its address.
    pub auth_failures_max: u64,
    /// When the oldest part of the log moves to the archive.
    pub archive: ArchivePolicy,
    /// Whether to replace the first human's token by a new one, in case it was lost.
    pub renew_operator_token: bool,
    /// The agents whose own MCP client has a human in front of it, each with that human's name. Their escalations may
    /// be answered there.
    pub seats: BTreeMap<String, String>,
    /// Who may claim certain paths, and how (C1).
    pub claims: Vec<ClaimRule>,
    /// The place where each limit and guard is set, as `FILE:LINE` by name, for humans to read; `observe` is the entry
    /// for all guards.
    pub set_at: BTreeMap<String, String>,
    /// The configuration file in which humans change limits and rules of held calls; `None` if it is kept elsewhere.
    pub config: Option<Arc<dyn EditableConfig>>,
    /// The channels through which humans are notified of pending decisions.
    pub notify: Vec<Channel>,
    /// How grants are traced.
    pub traces: Traces,
    /// What follows the log beside the broker, from other crates.
    pub companions: Vec<Companion>,
    /// The schedules of the configuration.
    pub schedules: Vec<ConfiguredSchedule>,
    /// The provider by which humans sign in.
    pub oidc: Option<Oidc>,
    /// The facts after which a checkpoint is kept, at most one a second; 0 keeps one only when the server stops.
    pub checkpoint_every_facts: u64,
    /// The clocks that the broker's time follows.
    pub clocks: Source,
}

impl Default for WorkspaceSettings {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            policy: Policy::default(),
            hosts: Vec::new(),
            path: BasePath::default(),
            console: ConsoleSettings::default(),
            auth_failures_max: AUTH_FAILURES_MAX,
            archive: ArchivePolicy::default(),
            renew_operator_token: false,
            seats: BTreeMap::new(),
            claims: Vec::new(),
            set_at: BTreeMap::new(),
            config: None,
            notify: Vec::new(),
            traces: Traces::default(),
            companions: Vec::new(),
            schedules: Vec::new(),
            oidc: None,
            checkpoint_every_facts: CHECKPOINT_EVERY_FACTS,
            clocks: Source::machine(),
        }
    }
}
