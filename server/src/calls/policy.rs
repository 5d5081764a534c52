//! Changes of the policy of held calls while the server runs: rules that always allow a call, kept in the configuration.

use lastword_broker::{Live, off_thread};
use lastword_core::Input;
use lastword_core::state::Approval;
use lastword_facts::Code;
use lastword_facts::fact::Role;
use lastword_facts::ids::{ApprovalId, DAY_MS};
use lastword_facts::names::AgentName;
use lastword_facts::policy::{ApprovalRule, CallPattern, Policy, Ruling};
use lastword_facts::visible::escape;
use lastword_wire::call::{ArgumentKind, INPUT, SUBJECTS};
use lastword_wire::{ApprovalView, Arguments};

use super::canonical::subjects;
use super::{Caller, Context, admitted, config_edits, humans};
use crate::error::ApiError;
use crate::views;

/// The most calls that are listed for a rule.
const NEWEST_MAX: usize = 10;

/// Returns who allowed the calls of each rule in force, and when, if a human's click wrote it.
pub async fn comments(ctx: &Context) -> Result<Vec<Option<(String, String)>>, ApiError> {
    let rules = ctx.handle.query(|live| live.state.policy.rules.iter().map(written).collect::<Vec<_>>()).await?;
    let Some(file) = ctx.config.file().cloned() else { return Ok(vec![None; rules.len()]) };
    let read = move || {
        let comments = file.rule_comments(&rules);
        Ok(comments.into_iter().zip(rules).map(|(comment, rule)| Some((rule, comment?))).collect())
    };
    Ok(off_thread(read).await?)
}

/// Returns a rule as `lastword.toml` has it.
pub fn written(rule: &ApprovalRule) -> String {
    let names: Vec<String> = rule.agents.iter().map(|name| format!("'{name}'")).collect();
    format!("[[approval]]\ntool = '{}'\nagents = [{}]\ndecision = \"{}\"\n", rule.call, names.join(", "), rule.ruling)
}

/// Returns the rule that allows exactly this call, with all its arguments; `None` if none could be written.
pub fn exact(held: &ApprovalView) -> Option<ApprovalRule> {
    allowing(held, CallPattern::exact(&held.tool, &subjects(asked(held)).arguments)?)
}

/// Returns the narrowest rule that also allows other arguments, with the members that may then be anything, quoted; `None`
/// if none could be written. A call of a tool that names no subject may have any arguments.
pub fn wider(held: &ApprovalView) -> Option<(ApprovalRule, Vec<String>)> {
    let seen = subjects(asked(held));
    let pattern = match seen.written.as_slice() {
        [] => held.tool.clone(),
        [subject] => format!("{}({subject})", held.tool),
        _ => return None,
    };
    let rule = allowing(held, CallPattern::parse(&pattern).filter(|parsed| parsed.to_string() == pattern)?)?;
    let covers = Policy { rules: vec![rule.clone()] }.first(&held.agent, &held.tool, &seen).is_some();
    let mut free = Vec::new();
    open_members(asked(held), "", &mut free);
    (!pattern.contains('*') && covers).then_some((rule, free))
}

/// Returns the arguments that the agent asked for.
fn asked(held: &ApprovalView) -> &Arguments {
    held.requested.as_ref().unwrap_or(&held.arguments)
}

/// Collects the members that a pattern doesn't compare.
fn open_members(arguments: &Arguments, within: &str, free: &mut Vec<String>) {
    for (name, value) in arguments.members().unwrap_or_default() {
        let compared = SUBJECTS.iter().any(|(subject, kind)| *subject == name && *kind != ArgumentKind::Query);
        match (compared, name.as_str()) {
            (true, _) => {}
            (false, INPUT) if within.is_empty() && value.members().is_some() => open_members(&value, "input.", free),
            (false, _) => free.push(format!("{within}{}", escape(&name).replace('\n', "⏎"))),
        }
    }
}

fn allowing(held: &ApprovalView, call: CallPattern) -> Option<ApprovalRule> {
    let plain = |text: &str| !text.contains(['\'', '\n', '\r']) && escape(text) == text;
    let agents = vec![AgentName::new(&held.agent).ok()?];
    let fits = plain(&call.to_string()) && plain(&held.agent);
    fits.then_some(ApprovalRule { call, agents, ruling: Ruling::Allow, tier: None, who: None, timeout_ms: None })
}

/// The calls that were held in the last week, and those of them that a rule would have allowed.
#[derive(Clone, Debug, Default)]
pub struct Matched {
    /// The number of those that the rule matches.
    pub matched: usize,
    /// The number of all held calls of the week.
    pub held: usize,
    /// The newest of those that it matches.
    pub newest: Vec<ApprovalView>,
}

/// The most bytes of calls that a rule is compared with.
const LOOKED_AT_BYTES: usize = 16 << 20;

/// Returns which of the calls held in the last seven days a rule would have allowed.
pub async fn matched(ctx: &Context, rule: ApprovalRule) -> Result<Matched, ApiError> {
    let alone = Policy { rules: vec![rule] };
    let look = |live: &Live<'_>| {
        let (state, mut bytes) = (live.state, 0);
        let of_week = state.approvals.iter().rev().take_while(|(_, held)| live.now().since(held.at) < 7 * DAY_MS);
        let call = |(id, held): (&ApprovalId, &Approval)| {
            let asked = held.requested.as_ref().unwrap_or(&held.arguments).clone();
            bytes += asked.len();
            (bytes <= LOOKED_AT_BYTES).then(|| (*id, state.name_of(held.agent).to_owned(), held.tool.clone(), asked))
        };
        of_week.map_while(call).collect::<Vec<_>>()
    };
    let calls = ctx.handle.query(look).await?;
    let held = calls.len();
    // Not on the broker's thread: each command is parsed.
    let fits = move || {
        let matches = calls
            .into_iter()
            .filter(|(_, agent, tool, asked)| alone.first(agent, tool, &subjects(&Arguments::stored(asked))).is_some());
        Ok(matches.map(|(id, ..)| id).collect::<Vec<_>>())
    };
    let ids = off_thread(fits).await?;
    let matched = ids.len();
    let newest = move |live: &Live<'_>| {
        ids.into_iter().take(NEWEST_MAX).filter_map(|id| views::approval(live.state, id)).collect()
    };
    Ok(Matched { matched, held, newest: ctx.handle.query(newest).await? })
}

/// Allows the calls of a rule from now on: above all other rules, and in the configuration file.
pub async fn allow(ctx: &Context, caller: Caller, rule: ApprovalRule, after: &str) -> Result<(), ApiError> {
    caller.gives_rights(ctx)?;
    humans::require(ctx, caller, Role::Owner).await?;
    let file = ctx.config.editable()?;
    let comment = format!("Allowed by {}, after {after}", config_edits::author(ctx, caller).await?);
    let text = written(&rule);
    let _turn = ctx.config.turn().await;
    let before = ctx.handle.query(|live| live.state.policy.clone()).await?;
    let mut policy = before.clone();
    policy.rules.retain(|known| *known != rule);
    policy.rules.insert(0, rule);
    replace(ctx, caller, policy).await?;
    keep(ctx, caller, before, move || file.add_rule(&text, &comment)).await
}

/// Takes back a rule that a human's click wrote.
pub async fn withdraw(ctx: &Context, caller: Caller, text: &str) -> Result<(), ApiError> {
    humans::require(ctx, caller, Role::Owner).await?;
    let file = ctx.config.editable()?;
    let _turn = ctx.config.turn().await;
    let before = ctx.handle.query(|live| live.state.policy.clone()).await?;
    let mut policy = before.clone();
    policy.rules.retain(|known| written(known) != text);
    replace(ctx, caller, policy).await?;
    let text = text.to_owned();
    keep(ctx, caller, before, move || file.remove_rule(&text)).await
}

async fn replace(ctx: &Context, caller: Caller, policy: Policy) -> Result<(), ApiError> {
    admitted(ctx.handle.submit(Input::ChangePolicy(caller.principal, Box::new(policy))).await)?;
    Ok(())
}

/// Writes the file. The change is in force only with it: otherwise a restart would undo it without a word.
async fn keep(
    ctx: &Context,
    caller: Caller,
    before: Policy,
    write: impl FnOnce() -> Result<(), String> + Send + 'static,
) -> Result<(), ApiError> {
    let Err(reason) = config_edits::write(write).await? else { return Ok(()) };
    replace(ctx, caller, before).await?;
    Err(ApiError::new(Code::Malformed, reason))
}

#[cfg(test)]
mod tests {
    use lastword_facts::fact::Kind;
    use serde_json::{Value, json};

    use super::*;

    fn held(tool: &str, arguments: &Value) -> ApprovalView {
        let view = json!({
            "id": "apr-1", "digest": "00", "state": "pending", "expires_at": "2026-01-31T09:00:00Z", "agent": "coder",
            "tool": tool, "arguments": arguments, "created_at": "2026-01-31T09:00:00Z", "by_kind": Kind::Agent,
        });
        serde_json::from_value(view).unwrap()
    }

    #[test]
    fn exactly_this_call_is_this_call_alone() {
        for (tool, call, others) in [
            (
                "run",
                json!({"command": "git", "args": ["status"]}),
                vec![json!({"command": "git", "args": ["push", "--force"]})],
            ),
            ("Write", json!({"file_path": "a", "content": "x"}), vec![json!({"file_path": "a", "content": "y"})]),
            ("http", json!({"url": "http://a", "method": "GET"}), vec![json!({"url": "http://a", "method": "DELETE"})]),
            (
                "Bash",
                json!({"command": "ls"}),
                vec![json!({"command": "ls", "dangerouslyDisableSandbox": true}), json!({})],
            ),
            ("run", json!({"command": ["git", 1, "log"]}), vec![json!({"command": ["git", 1, "push"]})]),
            (
                "Bash",
                json!({"command": "rm -rf x; echo 'done' *"}),
                vec![json!({"command": "rm -rf x; echo 'done' **"})],
            ),
        ] {
            let policy = Policy { rules: vec![exact(&held(tool, &call)).unwrap()] };
            let allows = |arguments: &Value| policy.first("coder", tool, &subjects(&arguments.into())).is_some();
            assert!(allows(&call), "{call}");
            for other in others {
                assert!(!allows(&other), "{call} {other}");
            }
        }
        assert_eq!(exact(&held("a tool", &json!({}))), None);
        assert_eq!(exact(&held("mcp__*", &json!({}))), None);
    }

    #[test]
    fn a_wider_rule_says_what_may_then_be_anything_or_is_not_offered() {
        let of = |tool: &str, arguments: Value| {
            wider(&held(tool, &arguments)).map(|(rule, free)| (rule.call.to_string(), free.join(" ")))
        };
        let wanted = |rule: &str, free: &str| Some((rule.to_owned(), free.to_owned()));
        assert_eq!(of("Bash", json!({"command": "cargo test", "timeout": 5})), wanted("Bash(cargo test)", "timeout"));
        assert_eq!(of("mcp__deploy__status", json!({"env": "a"})), wanted("mcp__deploy__status", "env"));
        let within = json!({"title": "t", "input": {"command": "ls", "cwd": "/"}});
        assert_eq!(of("execute", within), wanted("execute(ls)", "input.cwd title"));
        for (tool, arguments) in [
            ("Bash", json!({"command": "rm *"})),
            ("Bash", json!({"command": "echo 'quoted'"})),
            ("Bash", json!({"command": "ls", "path": "/tmp"})),
            ("Bash", json!({"command": "ls", "dangerouslyDisableSandbox": true})),
            ("Bash", json!({"command": ["ls", 1]})),
            ("a tool", json!({})),
            ("Bash", json!({"command": "ls\u{202e}"})),
        ] {
            assert_eq!(of(tool, arguments.clone()), None, "{tool} {arguments}");
        }
    }
}
