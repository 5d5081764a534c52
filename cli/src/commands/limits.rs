//! `lastword limits`: shows every limit, from the running server or the configuration.

use lastword_client::wire::{ApprovalRuleView, LimitView, LimitsView};
use lastword_facts::limits;
use lastword_facts::policy::Ruling;

use super::{Context, limits_diff};
use crate::failure::Failure;
use crate::out::{Out, table};
use crate::session::{Authority, running};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Show the configuration's values even if a server is running.
    #[arg(long)]
    offline: bool,
    #[command(subcommand)]
    command: Option<LimitsCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum LimitsCommand {
    /// Show what differs from the defaults, and what a restart would change
    Diff {
        /// Read only the configuration, even if a server is running.
        #[arg(long)]
        offline: bool,
        /// Compare with this profile instead of the defaults.
        #[arg(long, value_enum)]
        profile: Option<Profile>,
    },
}

/// The profiles, as a flag names them.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum Profile {
    /// Every limit at its default
    Strict,
    /// For teams that work through many rounds
    Long,
}

impl From<Profile> for limits::Profile {
    fn from(profile: Profile) -> Self {
        match profile {
            Profile::Strict => Self::Strict,
            Profile::Long => Self::Long,
        }
    }
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    if let Some(LimitsCommand::Diff { offline, profile }) = args.command {
        return limits_diff::run(offline || args.offline, profile.map_or(limits::Profile::Strict, Into::into), cx)
            .await;
    }
    let view = if is_running(cx) && !args.offline {
        in_force(cx).await?
    } else {
        LimitsView::of(&cx.settings.limits, &cx.settings.policy)
    };
    cx.out.show(&view, words)
}

/// Returns whether there is a server to ask: one that is named, or one that runs on the data directory.
pub(super) fn is_running(cx: &Context) -> bool {
    cx.settings.url.is_some() || running(&cx.settings.data).is_some()
}

/// Returns the limits in force at the server.
pub(super) async fn in_force(cx: &Context) -> Result<LimitsView, Failure> {
    Ok(cx.client(Authority::Read)?.limits().await?)
}

fn words(view: &LimitsView, out: &Out) -> String {
    let row = |limit: &LimitView| {
        let changed = if limit.value == limit.default { String::new() } else { limit.default.to_string() };
        vec![limit.name.clone(), limit.value.to_string(), changed, limit.rule.clone(), limit.meaning.clone()]
    };
    let limits: Vec<_> = view.items.iter().map(row).collect();
    let guards: Vec<_> = view.guards.iter().map(|(name, mode)| vec![name.clone(), mode.clone()]).collect();
    let approvals: Vec<_> = view.approvals.iter().map(approval).collect();
    format!(
        "profile {}\n\n{}\n\n{}\n\n{}\n\nA grant can cause {} waking messages at most (`lastword bound`).",
        view.profile,
        table(&["limit", "value", "default", "rule", "what it bounds"], &limits, out),
        table(&["guard", "mode"], &guards, out),
        table(&["held call", "of", "decision", "tier", "decided by", "within"], &approvals, out),
        view.bound_messages,
    )
}

/// Formats a rule on held calls as cells.
pub(super) fn approval(rule: &ApprovalRuleView) -> Vec<String> {
    let agents = if rule.agents.is_empty() { "everybody".to_owned() } else { rule.agents.join(", ") };
    let (who, within) = match rule.decision {
        Ruling::Ask => (rule.who.join(", "), format!("{} s", rule.timeout_ms / 1000)),
        Ruling::Allow | Ruling::Deny => ("policy".to_owned(), String::new()),
    };
    let tier = rule.tier.clone().unwrap_or_default();
    vec![rule.call.clone(), agents, rule.decision.to_string(), tier, who, within]
}
