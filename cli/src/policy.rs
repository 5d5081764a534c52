//! The policy of held calls in `lastword.toml`: `[[approval]]` rules, and `[tier.NAME]` tables that several rules
//! share.

use std::collections::BTreeMap;

use lastword_facts::Limits;
use lastword_facts::limits::Approvers;
use lastword_facts::names::{AgentName, Label};
use lastword_facts::policy::{ApprovalRule, CallPattern, Policy, Ruling};
use serde::Deserialize;

use crate::failure::Failure;
use crate::quantity::{duration, milliseconds};

/// The members of `[[approval]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    tool: Tools,
    #[serde(default)]
    agents: Vec<String>,
    decision: Option<Ruling>,
    tier: Option<String>,
    who: Option<Vec<String>>,
    timeout: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Tools {
    One(String),
    Many(Vec<String>),
}

/// The members of `[tier.NAME]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tier {
    who: Option<Vec<String>>,
    timeout: Option<String>,
}

/// Builds the policy from rules and tiers; an error names the number of its rule.
pub(crate) fn policy(rules: &[Rule], tiers: &BTreeMap<String, Tier>, limits: &Limits) -> Result<Policy, Failure> {
    let mut policy = Policy::default();
    for (index, rule) in rules.iter().enumerate() {
        let wrong = |what: String| Failure::usage(format!("[[approval]] {}: {what}", index + 1));
        policy.rules.extend(compiled(rule, tiers, limits).map_err(wrong)?);
    }
    // Check unused tiers, too: a mistake would otherwise surface only once a rule names the tier.
    for (name, tier) in tiers {
        let wrong = |what: String| Failure::usage(format!("[tier.{name}]: {what}"));
        Label::new(name).map_err(|error| wrong(error.to_string()))?;
        approvers(tier.who.as_deref()).map_err(wrong)?;
        time(tier.timeout.as_deref(), limits).map_err(wrong)?;
    }
    Ok(policy)
}

fn compiled(rule: &Rule, tiers: &BTreeMap<String, Tier>, limits: &Limits) -> Result<Vec<ApprovalRule>, String> {
    let ruling = rule.decision.unwrap_or(Ruling::Ask);
    if ruling != Ruling::Ask && (rule.who.is_some() || rule.timeout.is_some() || rule.tier.is_some()) {
        return Err(format!("with decision = \"{ruling}\" no approver is needed: omit who, timeout and tier"));
    }
    let tier = match &rule.tier {
        Some(name) => Some(tiers.get(name).ok_or_else(|| format!("unknown tier: no [tier.{name}]"))?),
        None => None,
    };
    let who = rule.who.as_deref().or_else(|| tier?.who.as_deref());
    let timeout = rule.timeout.as_deref().or_else(|| tier?.timeout.as_deref());
    let label = rule.tier.as_deref().map(Label::new).transpose().map_err(|error| format!("tier {error}"))?;
    let tools = match &rule.tool {
        Tools::One(tool) => std::slice::from_ref(tool),
        Tools::Many(tools) => tools,
    };
    let one = |tool: &String| {
        let unread = || format!("tool {tool:?} isn't a pattern such as \"Bash\", \"mcp__github__*\" or \"Bash(rm *)\"");
        Ok(ApprovalRule {
            call: CallPattern::parse(tool).ok_or_else(unread)?,
            agents: rule.agents.iter().map(|name| agent(name)).collect::<Result<_, _>>()?,
            ruling,
            tier: label.clone(),
            who: approvers(who)?,
            timeout_ms: time(timeout, limits)?,
        })
    };
    tools.iter().map(one).collect()
}

fn agent(name: &str) -> Result<AgentName, String> {
    AgentName::new(name).map_err(|error| format!("agent {name:?} {error}"))
}

/// Parses the approvers. Humans always may decide; `human` alone means that no agent may.
fn approvers(who: Option<&[String]>) -> Result<Option<Approvers>, String> {
    let Some(who) = who else { return Ok(None) };
    if who.is_empty() {
        return Err("who is empty: name \"human\", \"asker\" or agents".to_owned());
    }
    let named = who.iter().filter(|name| !matches!(name.as_str(), "human" | "asker"));
    let agents = named.map(|name| agent(name)).collect::<Result<_, _>>()?;
    Ok(Some(Approvers { asker: who.iter().any(|name| name == "asker"), agents }))
}

fn time(text: Option<&str>, limits: &Limits) -> Result<Option<u64>, String> {
    let Some(text) = text else { return Ok(None) };
    let ms = milliseconds(duration(text).map_err(|error| format!("timeout {error}"))?);
    if ms == 0 || ms > limits.grant_age_ms {
        return Err(format!("timeout {text} is not between 1ms and grant_age_ms"));
    }
    Ok(Some(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct File {
        #[serde(default)]
        approval: Vec<Rule>,
        #[serde(default)]
        tier: BTreeMap<String, Tier>,
    }

    fn read(text: &str) -> Result<Policy, String> {
        let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
        policy(&file.approval, &file.tier, &Limits::default()).map_err(|failure| failure.message)
    }

    #[test]
    fn a_rule_takes_from_its_tier_what_it_does_not_say() {
        let policy = read(
            "[[approval]]\ntool = [\"Bash(rm *)\", \"Write\"]\ntier = \"high\"\ntimeout = \"2m\"\n\
             [[approval]]\ntool = \"Read\"\ndecision = \"allow\"\nagents = [\"coder\"]\n\
             [tier.high]\nwho = [\"asker\", \"auditor\"]\ntimeout = \"10s\"\n",
        )
        .unwrap();
        let [first, second, third] = policy.rules.as_slice() else { panic!("{policy:?}") };
        assert_eq!((first.call.to_string(), second.call.to_string()), ("Bash(rm *)".into(), "Write".into()));
        assert_eq!((first.timeout_ms, first.tier.as_ref().map(Label::as_str)), (Some(120_000), Some("high")));
        let who = first.who.as_ref().unwrap();
        assert!(who.asker && who.agents[0].as_str() == "auditor");
        assert_eq!((third.ruling, third.agents[0].as_str()), (Ruling::Allow, "coder"));
    }

    #[test]
    fn a_rule_that_makes_no_sense_is_refused_by_its_number() {
        for (text, words) in [
            ("tool = \"Bash(rm\"", "[[approval]] 1: tool \"Bash(rm\" isn't a pattern"),
            ("tool = \"Bash\"\ntier = \"none\"", "no [tier.none]"),
            ("tool = \"Bash\"\nwho = []", "who is empty"),
            ("tool = \"Bash\"\nwho = [\"user\"]", "\"user\" is a reserved name"),
            ("tool = \"Bash\"\nagents = [\"No One\"]", "agent \"No One\""),
            ("tool = \"Bash\"\ntimeout = \"2d\"", "grant_age_ms"),
            ("tool = \"Bash\"\ntimeout = \"soon\"", "isn't a duration"),
            ("tool = \"Bash\"\ndecision = \"deny\"\nwho = [\"human\"]", "no approver is needed"),
            ("tool = \"Bash\"\ndecision = \"maybe\"", "maybe"),
            ("tools = \"Bash\"", "tools"),
            ("tool = \"Bash\"\n[tier.high]\nwhom = []", "whom"),
        ] {
            let failure = read(&format!("[[approval]]\n{text}")).unwrap_err();
            assert!(failure.contains(words), "{text}: {failure}");
        }
    }
}
