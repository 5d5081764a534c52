//! `lastword limits diff`: shows what differs from the defaults, where it is set, and what a restart would change.

use std::collections::BTreeMap;

use lastword_client::wire::{ApprovalRuleView, LimitsView};
use lastword_facts::Limits;
use lastword_facts::limits::Profile;
use serde::Serialize;

use super::Context;
use super::limits::{approval, in_force, is_running};
use crate::failure::Failure;
use crate::out::{Out, Tone, table};

/// The differences between the server, the configuration and the defaults.
#[derive(Debug, Serialize)]
struct Diff {
    /// The running server's address; `None` if only the configuration was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    /// The configuration file; `None` if there is none and the defaults apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<String>,
    /// The profile whose values are compared.
    profile: Profile,
    /// Limits and guards whose values differ anywhere.
    items: Vec<Item>,
    /// Rules on held calls that a restart would put into force.
    approvals_added: Vec<ApprovalRuleView>,
    /// Rules on held calls that a restart would remove.
    approvals_removed: Vec<ApprovalRuleView>,
    /// Whether a restart would change anything.
    restart_changes: bool,
    /// Most waking messages that one grant can cause, under each of them.
    bound_messages: Values,
}

/// A limit, or a guard's mode.
#[derive(Debug, Serialize)]
struct Item {
    name: String,
    rule: String,
    #[serde(flatten)]
    values: Values,
    /// `FILE:LINE` of the configuration that sets it; `None` for a default.
    #[serde(skip_serializing_if = "Option::is_none")]
    set_at: Option<String>,
}

#[derive(Debug, Serialize)]
struct Values {
    /// The value of the profile.
    default: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    config: String,
}

impl Values {
    fn differ(&self) -> bool {
        self.config != self.default || self.server.as_ref().is_some_and(|server| *server != self.default)
    }

    fn restart_changes(&self) -> bool {
        self.server.as_ref().is_some_and(|server| *server != self.config)
    }
}

pub(super) async fn run(offline: bool, profile: Profile, cx: &Context) -> Result<(), Failure> {
    let server = if is_running(cx) && !offline { Some(in_force(cx).await?) } else { None };
    let config = LimitsView::of(&cx.settings.limits, &cx.settings.policy);
    let file = cx.settings.file.as_ref().map(|file| file.display().to_string());
    let diff = Diff::of(profile, server.as_ref(), &config, cx.settings.set_at.clone(), cx.server_url(), file);
    cx.out.show(&diff, words)
}

impl Diff {
    fn of(
        profile: Profile,
        server: Option<&LimitsView>,
        config: &LimitsView,
        mut set_at: BTreeMap<String, String>,
        url: String,
        file: Option<String>,
    ) -> Self {
        let defaults = LimitsView::of(&Limits::of(profile), &Default::default());
        let number =
            |view: &LimitsView, name: &str| view.items.iter().find(|i| i.name == name).map(|i| i.value.to_string());
        let limits = defaults.items.iter().map(|row| Item {
            name: row.name.clone(),
            rule: row.rule.clone(),
            values: Values {
                default: row.value.to_string(),
                // An older server has no value for a limit that it doesn't know.
                server: server.map(|server| number(server, &row.name).unwrap_or_else(|| "-".to_owned())),
                config: number(config, &row.name).unwrap_or_default(),
            },
            set_at: set_at.remove(&row.name),
        });
        let mut items: Vec<Item> = limits.collect();
        items.extend(defaults.guards.iter().map(|(name, mode)| {
            let of = |view: &LimitsView| view.guards.get(name).cloned().unwrap_or_else(|| "-".to_owned());
            let values = Values { default: mode.clone(), server: server.map(of), config: of(config) };
            let list = if values.config == "observe" { "observe" } else { "enforce" };
            let set_at = set_at.get(list).filter(|_| values.config != values.default).cloned();
            Item { name: format!("guard {name}"), rule: "G7".to_owned(), values, set_at }
        }));
        items.retain(|item| item.values.differ());
        let rules = |view: &LimitsView| view.approvals.iter().map(key).collect::<Vec<_>>();
        let (now, then) = (server.map(rules), rules(config));
        let only = |from: &LimitsView, other: &[String]| {
            from.approvals.iter().filter(|rule| !other.contains(&key(rule))).cloned().collect::<Vec<_>>()
        };
        let approvals_added = now.as_ref().map_or_else(Vec::new, |now| only(config, now));
        let approvals_removed = server.map_or_else(Vec::new, |server| only(server, &then));
        let restart_changes =
            items.iter().any(|item| item.values.restart_changes()) || now.is_some_and(|now| now != then);
        Self {
            server: server.map(|_| url),
            config: file,
            profile,
            items,
            approvals_added,
            approvals_removed,
            restart_changes,
            bound_messages: Values {
                default: defaults.bound_messages.to_string(),
                server: server.map(|server| server.bound_messages.to_string()),
                config: config.bound_messages.to_string(),
            },
        }
    }
}

/// Returns a rule's whole content, for comparison.
fn key(rule: &ApprovalRuleView) -> String {
    serde_json::to_string(rule).unwrap_or_default()
}

fn words(diff: &Diff, out: &Out) -> String {
    let config = diff.config.as_deref().unwrap_or("no lastword.toml: the defaults");
    let mut text = match &diff.server {
        Some(server) => format!("server {server}, configuration {config}\n"),
        None => format!("no server is running; configuration {config}\n"),
    };
    if diff.items.is_empty() {
        let than = if diff.profile == Profile::Strict {
            "default".to_owned()
        } else {
            format!("value in the profile {}", diff.profile)
        };
        text.push_str(&format!("no limit and no guard differs from its {than}"));
    } else {
        let rows: Vec<_> = diff.items.iter().map(row).collect();
        let base = if diff.profile == Profile::Strict { "default" } else { diff.profile.word() };
        let head = ["limit", "rule", base, "server", "configuration", "set in", ""];
        text.push_str(&table(&head, &rows, out));
    }
    for (mark, rules) in [("+", &diff.approvals_added), ("-", &diff.approvals_removed)] {
        for rule in rules {
            text.push_str(&format!("\nheld calls {mark} {}", approval(rule).join("  ").trim_end()));
        }
    }
    let verdict = match (&diff.server, diff.restart_changes) {
        (None, _) => return text,
        (Some(_), false) => out.tone(Tone::Good, "a restart changes nothing"),
        (Some(_), true) => out.tone(Tone::Warn, "a restart applies the configuration"),
    };
    let bound = &diff.bound_messages;
    text.push_str(&format!("\n{verdict}"));
    if bound.restart_changes() {
        let now = bound.server.as_deref().unwrap_or_default();
        text.push_str(&format!("; a grant can then cause {} waking messages instead of {now}", bound.config));
    }
    text
}

fn row(item: &Item) -> Vec<String> {
    let values = &item.values;
    let mark = if values.restart_changes() { "a restart changes it" } else { "" };
    vec![
        item.name.clone(),
        item.rule.clone(),
        values.default.clone(),
        values.server.clone().unwrap_or_default(),
        values.config.clone(),
        item.set_at.clone().unwrap_or_default(),
        mark.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff(server: Option<&Limits>, config: &Limits) -> Diff {
        let view = |limits: &Limits| LimitsView::of(limits, &Default::default());
        let set_at = [("depth_max".to_owned(), "lastword.toml:2".to_owned())].into();
        Diff::of(Profile::Strict, server.map(view).as_ref(), &view(config), set_at, "http://here".into(), None)
    }

    #[test]
    fn what_is_the_default_everywhere_is_not_told() {
        let defaults = Limits::default();
        let same = diff(Some(&defaults), &defaults);
        assert!(same.items.is_empty() && !same.restart_changes, "{same:?}");
        assert!(diff(None, &defaults).items.is_empty());
    }

    #[test]
    fn a_value_is_told_where_server_and_configuration_differ_from_the_default_or_each_other() {
        let mut config = Limits { depth_max: 3, approval_ms: 9, ..Limits::default() };
        assert!(config.observed.observe("pair_rate"));
        let server = Limits { depth_max: 4, approval_ms: 9, hops_max: 2, ..Limits::default() };
        let told = diff(Some(&server), &config);
        let rows: Vec<String> = told.items.iter().map(|item| row(item).join("|")).collect();
        assert_eq!(
            rows,
            [
                "depth_max|D2|5|4|3|lastword.toml:2|a restart changes it",
                "hops_max|D4|3|2|3||a restart changes it",
                "approval_ms|H2|300000|9|9||",
                "guard pair_rate|G7|enforce|enforce|observe||a restart changes it",
            ]
        );
        assert!(told.restart_changes);
        assert!(!diff(None, &config).restart_changes, "there is no server to restart");
    }

    #[test]
    fn a_configuration_is_compared_with_a_profile() {
        let view = |limits: &Limits| LimitsView::of(limits, &Default::default());
        let against = |profile, config: &Limits| {
            let told = Diff::of(profile, None, &view(config), BTreeMap::new(), String::new(), None);
            told.items.iter().map(|item| row(item)[..5].join("|")).collect::<Vec<_>>()
        };
        let long = Limits::of(Profile::Long);
        assert!(against(Profile::Long, &long).is_empty());
        let rows = against(Profile::Strict, &long);
        assert!(rows.contains(&"depth_max|D2|5||39".to_owned()), "{rows:?}");
        assert!(rows.contains(&"guard no_progress|G7|observe||enforce".to_owned()), "{rows:?}");
        assert_eq!(rows.len(), 8, "{rows:?}");
        let own = Limits { depth_max: 7, ..long };
        assert_eq!(against(Profile::Long, &own), ["depth_max|D2|39||7"]);
    }
}
