//! Which tools are listed. A tool that isn't listed can still be called: the list saves tokens, and the core decides
//! what an agent may do.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use lastword_broker::{Live, Subscription};
use lastword_facts::ids::AgentId;
use lastword_facts::limits::Approvers;
use lastword_facts::policy::Ruling;
use lastword_server::calls::Caller;
use lastword_server::{ApiError, Context, ended};
use rmcp::model::Tool;

use super::Offer;
use super::catalog::{self, CORE, Form};
use super::inbox::Listener;

/// The time after which the watch looks without a delivery.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// The query parameter of `/mcp` with a selection.
pub(super) const PARAMETER: &str = "tools";
/// The name of all tools in a selection.
const ALL: &str = "all";
/// The name of the core tools, with those that the agent needs.
const CORE_NAME: &str = "core";

/// The tools that a client asks for: `core` (the default), `all`, or names, separated by commas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    all: bool,
    /// Whether the core tools are left out: the client named tools, and `core` isn't among them.
    without_core: bool,
    named: BTreeSet<&'static str>,
}

impl Selection {
    /// Parses `core`, `all` or tools by name.
    ///
    /// # Errors
    /// A name that no tool has.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut selection = Self { without_core: true, ..Self::default() };
        for word in text.split(',').map(str::trim) {
            match word {
                ALL => selection.all = true,
                CORE_NAME => selection.without_core = false,
                name => {
                    let known = catalog::known(name, Offer::Agent).or_else(|| catalog::known(name, Offer::Human));
                    selection.named.insert(known.ok_or_else(|| format!("there is no tool {name:?}"))?);
                }
            }
        }
        Ok(selection)
    }

    /// Reads the selection in the query of `/mcp`, as in `?tools=all`.
    ///
    /// # Errors
    /// As for [`Selection::parse`].
    pub(super) fn of_query(query: Option<&str>) -> Result<Self, String> {
        let pairs: Vec<(String, String)> = serde_urlencoded::from_str(query.unwrap_or_default()).unwrap_or_default();
        pairs
            .iter()
            .find(|(name, _)| name == PARAMETER)
            .map_or_else(|| Ok(Self::default()), |(_, value)| Self::parse(value))
    }

    /// Whether the list can change while a session runs.
    pub(super) const fn can_change(&self) -> bool {
        !self.all && !self.without_core
    }
}

/// The form in which [`Selection::parse`] reads it.
impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = if self.all { Some(ALL) } else { (!self.without_core).then_some(CORE_NAME) };
        let words: Vec<&str> = first.into_iter().chain(self.named.iter().copied()).collect();
        f.write_str(&words.join(","))
    }
}

/// Lists the tools for a caller: of those that its token may call.
pub(super) async fn list(ctx: &Context, caller: Caller, selection: &Selection) -> Result<Vec<Tool>, ApiError> {
    let mut tools = offered(ctx, caller, selection).await?;
    if caller.is_narrowed() {
        tools.retain(|tool| caller.may(Some(catalog::scope(&tool.name))).is_ok());
    }
    Ok(tools)
}

async fn offered(ctx: &Context, caller: Caller, selection: &Selection) -> Result<Vec<Tool>, ApiError> {
    let offer = if caller.principal.is_human() { Offer::Human } else { Offer::Agent };
    if selection.all || offer == Offer::Human {
        return Ok(catalog::names(offer).filter_map(|name| catalog::tool(name, offer, Form::Full)).collect());
    }
    let agent = caller.principal.agent();
    let (needed, several) = ctx.handle.query(move |live| (needed(live, agent), has_several_turns(live, agent))).await?;
    let form = if several { Form::ShortWithTurn } else { Form::Short };
    let core = || CORE.into_iter().chain(needed.iter().copied());
    let mut tools = Vec::new();
    for name in core().filter(|_| !selection.without_core) {
        if !selection.named.contains(name) {
            tools.extend(catalog::tool(name, offer, form));
        }
    }
    tools.extend(selection.named.iter().filter_map(|name| catalog::tool(name, offer, Form::Full)));
    Ok(tools)
}

/// Lists the tools without knowing what the agent needs, while the server can't be reached.
pub(super) fn offline(offer: Offer, selection: &Selection) -> Vec<Tool> {
    let core = |name: &str| !selection.without_core && CORE.contains(&name);
    let whole = |name: &str| selection.all || offer == Offer::Human || selection.named.contains(name);
    let forms = catalog::names(offer).filter_map(|name| match (whole(name), core(name)) {
        (true, _) => Some((name, Form::Full)),
        (false, true) => Some((name, Form::ShortWithTurn)),
        (false, false) => None,
    });
    forms.filter_map(|(name, form)| catalog::tool(name, offer, form)).collect()
}

/// Returns whether the agent may have several open turns, so that a call has to name its own.
pub(super) fn has_several_turns(live: &Live<'_>, agent: AgentId) -> bool {
    live.state.agent(agent).is_some_and(|known| known.profile.turns_max > 1 || known.turns.len() > 1)
}

/// Returns the tools besides the core that the agent has a use for now.
fn needed(live: &Live<'_>, agent: AgentId) -> Vec<&'static str> {
    let state = live.state;
    let Some(own) = state.agent(agent) else { return Vec::new() };
    let tasks = || own.turns.iter().filter_map(|turn| state.tasks.get(&state.turns.get(turn)?.task));
    let is_named = |name: &str| own.name.as_ref().is_some_and(|own| own.as_str() == name);
    let decides =
        |approvers: &Approvers| approvers.asker || approvers.agents.iter().any(|name| is_named(name.as_str()));
    let asks = state.policy.rules.iter().filter(|rule| rule.ruling == Ruling::Ask);
    let is_held =
        asks.clone().any(|rule| rule.agents.is_empty() || rule.agents.iter().any(|name| is_named(name.as_str())))
            || tasks().any(|task| !task.approvals.is_empty());
    let approves = decides(&state.limits.approvers) || asks.filter_map(|rule| rule.who.as_ref()).any(decides);
    let is_continued = tasks().any(|task| state.conversations.get(&task.conv).is_some_and(|conv| conv.messages > 1));
    let tools: [(bool, &[&'static str]); 5] = [
        (approves, &["resolve_agent_approval"]),
        (is_held, &["request_approval", "use_approval"]),
        (!state.claims.is_empty(), &["claim_resource", "release_resource"]),
        (is_continued, &["get_conversation"]),
        // Its lease has expired before: it has to renew it.
        (tasks().any(|task| task.lost > 0), &["report_progress"]),
    ];
    tools.into_iter().filter(|(is_needed, _)| *is_needed).flat_map(|(_, names)| names).copied().collect()
}

/// Reports changes of the list to a listener, until the listener is gone, the caller's token is revoked or the server
/// shuts down.
pub(super) async fn watch(ctx: &Context, caller: Caller, selection: &Selection, listener: &Listener) {
    if !selection.can_change() {
        return std::future::pending().await;
    }
    let agent = caller.principal.agent();
    let subscription = Subscription::new(&ctx.handle, agent);
    let bell = subscription.bell();
    let mut stopping = ctx.stopping.clone();
    let mut known = None;
    loop {
        let mut ring = std::pin::pin!(bell.notified());
        // Listen before looking: a delivery that arrives between the two still rings.
        ring.as_mut().enable();
        if caller.reauthenticate(&ctx.handle).is_err() {
            return;
        }
        let Ok(now) = ctx.handle.query(move |live| needed(live, agent)).await else { return };
        if known.as_ref().is_some_and(|known| *known != now) && !listener.tell_tools().await {
            return;
        }
        known = Some(now);
        tokio::select! {
            () = ring => {}
            () = tokio::time::sleep(LOOK_AGAIN) => {}
            () = ended(&mut stopping) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_server_the_same_tools_are_listed_but_those_by_need() {
        let names = |offer, text: &str| -> Vec<String> {
            let tools = offline(offer, &Selection::parse(text).unwrap());
            tools.into_iter().map(|tool| tool.name.into_owned()).collect()
        };
        assert_eq!(names(Offer::Agent, "core"), CORE);
        assert_eq!(names(Offer::Agent, "core,approve_tool_use").len(), 7);
        assert_eq!(names(Offer::Agent, "list_agents"), ["list_agents"]);
        assert_eq!((names(Offer::Agent, "all").len(), names(Offer::Human, "core").len()), (15, 6));
    }

    #[test]
    fn a_selection_is_read_as_it_is_written() {
        for text in ["core", "all", "core,approve_tool_use", "check_request,list_agents"] {
            assert_eq!(Selection::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Selection::of_query(None).unwrap(), Selection::parse("core").unwrap());
        assert_eq!(Selection::of_query(Some("x=1&tools=core%2Capprove_tool_use")).unwrap().named.len(), 1);
        assert!(Selection::parse("everything").unwrap_err().contains("everything"));
    }
}
