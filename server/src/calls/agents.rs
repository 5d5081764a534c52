//! Calls that register, list, amend and remove agents and humans.

use std::collections::BTreeMap;

use lastword_broker::Live;
use lastword_broker::identity::Secret;
use lastword_core::input::{NewToken, Prompted, Registration};
use lastword_core::state::Agent;
use lastword_core::{Input, Reply};
use lastword_facts::Code;
use lastword_facts::fact::{AgentLimits, Kind, Profile, Role, Spend};
use lastword_facts::ids::AgentId;
use lastword_facts::names::{AgentName, DisplayName, Label, OWN_NAME};
use lastword_wire::{
    AgentGrant, AgentPatch, AgentToken, AgentView, FieldError, NewAgent, Page, Prompt, TokenTerms, Unavailable,
    microusd, nearest, rfc3339,
};

use super::{Caller, Context, admitted, checked, humans};
use crate::error::ApiError;
use crate::views;
use crate::views::Member;

/// The longest time after which a token expires: ten years.
const EXPIRES_MS_MAX: u64 = 315_360_000_000;
/// The longest time that a replaced token stays valid: 30 days.
const OVERLAP_MS_MAX: u64 = 2_592_000_000;
/// The characters kept of the reason why an agent's program can't work.
const REASON_CHARS: usize = 500;

/// Registers an agent or human. Only this reply shows its token.
///
/// # Errors
/// What is wrong with the registration, or the rule that refuses it.
pub async fn add(ctx: &Context, caller: Caller, new: NewAgent) -> Result<AgentToken, ApiError> {
    caller.gives_rights(ctx)?;
    let name = checked("name", &new.name, AgentName::new).map_err(|error| {
        let fault = ApiError::from(error);
        let other = "Choose a name in ASCII, and give this one as `display_name`.";
        if new.name.is_ascii() { fault } else { fault.hinted(other) }
    })?;
    distinct(ctx, &name).await?;
    let profile = Profile {
        actions: labels("actions", &new.actions)?,
        groups: labels("groups", &new.groups)?,
        turns_max: new.turns_max,
    };
    let token = new_token()?;
    let credential = token.credential();
    let display_name = display_name(new.display_name.as_deref())?;
    let registration =
        Registration { name, kind: new.kind, profile, credential, role: new.role, display_name, key: new.key };
    let then = |reply: Reply, live: &Live<'_>| match reply {
        Reply::Registered(agent) => Ok(live.state.agent(agent).map_or(0, |a| a.incarnation)),
        other => Err(other),
    };
    match ctx.handle.submit_then(Input::Register(caller.principal, registration), then).await? {
        Ok(incarnation) => {
            Ok(AgentToken { name: new.name, token: token.reveal().to_owned(), incarnation, expires_at: None })
        }
        Err(other) => Err(admitted(Ok(other)).map_or_else(|fault| fault, |other| ApiError::unexpected(&other))),
    }
}

/// Names that people take for the workspace's own.
const OFFICIAL: [&str; 4] = ["admin", "administrator", "broker", "lastword"];

/// Words by which pages and messages speak of people, or of none.
const SPOKEN: [&str; 5] = ["approver", "everyone", "nobody", "owner", "you"];

/// Returns what people would take a name for.
fn taken_for(name: &str) -> Option<&'static str> {
    let name = name.to_lowercase();
    if OFFICIAL.contains(&name.as_str()) {
        Some("reads as the workspace's own")
    } else {
        SPOKEN.contains(&name.as_str()).then_some("is a word by which pages speak of others")
    }
}

/// Refuses a new name that people would take for the broker's, for a word, or for another one.
pub(super) async fn distinct(ctx: &Context, name: &AgentName) -> Result<(), FieldError> {
    if let Some(why) = taken_for(name.as_str()) {
        return Err(FieldError::new("name", format!("{name:?} {why}; choose another")));
    }
    let wanted = name.clone();
    let alike = move |live: &Live<'_>| {
        let names = live.state.live_by_name().into_iter().map(|agent| live.state.name_of(agent));
        names.filter(|other| *other != wanted.as_str()).find(|other| alike(other, wanted.as_str())).map(str::to_owned)
    };
    match ctx.handle.query(alike).await {
        Ok(Some(other)) => Err(FieldError::new("name", format!("{name:?} looks like {other}; choose another"))),
        // A broker that is away refuses the registration itself.
        Ok(None) | Err(_) => Ok(()),
    }
}

/// Returns the display name; none if it is empty.
fn display_name(text: Option<&str>) -> Result<Option<DisplayName>, ApiError> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    if let Some(why) = taken_for(text) {
        return Err(FieldError::new("display_name", format!("{text:?} {why}; choose another")).into());
    }
    Ok(Some(checked("display_name", text, DisplayName::new)?))
}

/// Whether two names differ at most in digits that look like letters.
fn alike(one: &str, other: &str) -> bool {
    let letter = |byte: u8| match byte {
        b'0' => b'o',
        b'1' => b'l',
        byte => byte,
    };
    one.len() == other.len() && one.bytes().map(letter).eq(other.bytes().map(letter))
}

/// Replaces an agent's token. The old one ends at once, unless the terms say otherwise.
///
/// # Errors
/// The caller may not, the name is unknown, or the times are out of bounds.
pub async fn rekey(
    ctx: &Context,
    caller: Caller,
    name: &str,
    TokenTerms { expires_in_ms, overlap_ms }: TokenTerms,
) -> Result<AgentToken, ApiError> {
    caller.human()?;
    caller.gives_rights(ctx)?;
    if expires_in_ms.is_some_and(|ms| ms == 0 || ms > EXPIRES_MS_MAX) {
        return Err(ApiError::pointless(&FieldError::new(
            "expires_in_ms",
            format!("must be between 1 and {EXPIRES_MS_MAX}"),
        )));
    }
    if overlap_ms > OVERLAP_MS_MAX {
        return Err(ApiError::pointless(&FieldError::new("overlap_ms", format!("must be at most {OVERLAP_MS_MAX}"))));
    }
    let agent = find(ctx, name).await?;
    let token = new_token()?;
    let new = NewToken { credential: token.credential(), expires_in_ms, overlap_ms };
    admitted(ctx.handle.submit(Input::Rekey(caller.principal, agent, new)).await)?;
    let known = move |live: &Live<'_>| live.state.agent(agent).map(|a| (a.incarnation, a.token_expires_at()));
    let (incarnation, expires_at) = ctx.handle.query(known).await?.unwrap_or_default();
    let (name, token) = (name.to_owned(), token.reveal().to_owned());
    Ok(AgentToken { name, token, incarnation, expires_at: expires_at.map(rfc3339) })
}

/// Lists all registered agents and humans.
pub async fn list(ctx: &Context) -> Result<Page<AgentView>, ApiError> {
    listed(ctx, Kind::ALL).await
}

pub(super) async fn listed(ctx: &Context, kinds: &'static [Kind]) -> Result<Page<AgentView>, ApiError> {
    let all = move |live: &Live<'_>| {
        let one_of = |id: &AgentId| live.state.agent(*id).is_some_and(|a| kinds.contains(&a.kind));
        let ids = live.state.live_by_name().into_iter().filter(one_of);
        ids.filter_map(|id| views::agent(live, id)).collect()
    };
    Ok(Page::whole(ctx.handle.query(all).await?))
}

/// Returns the caller's own entry.
pub async fn own(ctx: &Context, caller: Caller) -> Result<AgentView, ApiError> {
    let agent = caller.principal.agent();
    ctx.handle.query(move |live| views::agent(live, agent)).await?.ok_or_else(|| ApiError::unknown(OWN_NAME))
}

/// Returns one agent or human by name.
pub(crate) async fn show(ctx: &Context, name: &str) -> Result<AgentView, ApiError> {
    let agent = find(ctx, name).await?;
    ctx.handle.query(move |live| views::agent(live, agent)).await?.ok_or_else(|| ApiError::unknown(name))
}

/// Lists all agents, then all humans, each with its current work.
pub async fn members(ctx: &Context, caller: Caller) -> Result<Vec<Member>, ApiError> {
    caller.human()?;
    let all = |live: &Live<'_>| -> Vec<Member> {
        live.state.live_by_name().into_iter().filter_map(|id| views::member(live, id)).collect()
    };
    let mut members = ctx.handle.query(all).await?;
    members.sort_by_key(|member| member.view.kind == Kind::Human);
    Ok(members)
}

/// Returns one agent or human with its current work.
pub async fn member(ctx: &Context, caller: Caller, name: &str) -> Result<Member, ApiError> {
    caller.human()?;
    let agent = find(ctx, name).await?;
    ctx.handle.query(move |live| views::member(live, agent)).await?.ok_or_else(|| ApiError::unknown(name))
}

/// Changes what an agent may do, and its own limits. Changes nothing if any field is invalid.
pub async fn amend(ctx: &Context, caller: Caller, name: &str, patch: AgentPatch) -> Result<AgentView, ApiError> {
    caller.human()?;
    let agent = find(ctx, name).await?;
    let amends = patch.actions.is_some() || patch.groups.is_some() || patch.turns_max.is_some();
    if !amends && patch.limits.is_none() && patch.display_name.is_none() {
        let text = "the patch changes nothing: name `actions`, `groups`, `turns_max`, `limits` or `display_name`";
        return Err(ApiError::new(Code::Malformed, text));
    }
    let look = move |live: &Live<'_>| {
        let known = live.state.agent(agent)?;
        Some((Profile::clone(&known.profile), known.own_limits().clone(), known.is_human()))
    };
    let (mut profile, own, human) = ctx.handle.query(look).await?.ok_or_else(|| ApiError::unknown(name))?;
    // All checks come before the first input, because the inputs below are not one transaction.
    if human && patch.limits.is_some() {
        return Err(ApiError::new(
            Code::UnknownRecipient,
            format!("Agent {name:?} not found: it is a human, who has no limits"),
        ));
    }
    let limits = patch.limits.map(|limits| own_limits(own, &limits)).transpose()?;
    // Its own name beside its name says nothing.
    let shown = |text: String| if text == name { Ok(None) } else { display_name(Some(&text)) };
    let named = patch.display_name.map(shown).transpose()?;
    if let Some(actions) = patch.actions {
        profile.actions = labels("actions", &actions)?;
    }
    if let Some(groups) = patch.groups {
        profile.groups = labels("groups", &groups)?;
    }
    profile.turns_max = patch.turns_max.unwrap_or(profile.turns_max);
    if let Some(named) = named {
        admitted(ctx.handle.submit(Input::SetDisplayName(caller.principal, agent, named)).await)?;
    }
    if amends {
        admitted(ctx.handle.submit(Input::Amend(caller.principal, agent, profile)).await)?;
    }
    if let Some(limits) = limits {
        admitted(ctx.handle.submit(Input::LimitAgent(caller.principal, agent, Box::new(limits))).await)?;
    }
    show(ctx, name).await
}

/// Returns the agent's limits after these changes; 0 removes one (§1).
fn own_limits(mut own: AgentLimits, changed: &BTreeMap<String, u64>) -> Result<AgentLimits, FieldError> {
    for (name, value) in changed {
        if !own.set(name, *value) {
            let known = AgentLimits::NAMES.join(", ");
            return Err(FieldError::new("limits", format!("has no {name:?}; an agent's own limits are {known}")));
        }
    }
    Ok(own)
}

/// Extends an agent's day budget for today (B1).
pub async fn grant(ctx: &Context, caller: Caller, name: &str, more: AgentGrant) -> Result<AgentView, ApiError> {
    caller.human()?;
    if more.cost_usd < 0.0 {
        return Err(FieldError::new("cost_usd", "is below 0: a grant can't be reduced").into());
    }
    let spend = Spend { tokens: more.tokens, cost_microusd: microusd(more.cost_usd) };
    if spend == Spend::default() {
        return Err(FieldError::new("tokens", "is 0, and so is `cost_usd`: nothing is given").into());
    }
    let agent = find(ctx, name).await?;
    admitted(ctx.handle.submit(Input::GrantAgent(caller.principal, agent, spend)).await)?;
    show(ctx, name).await
}

/// Takes note of a prompt in an agent's session: the human who calls typed it, or the last one ended (H8).
pub(crate) async fn prompt(ctx: &Context, caller: Caller, name: &str, prompt: Prompt) -> Result<(), ApiError> {
    caller.human()?;
    let agent = find(ctx, name).await?;
    let prompted = if prompt.typed { Prompted::Typed } else { Prompted::Ended };
    admitted(ctx.handle.submit(Input::Prompt(caller.principal, agent, prompted)).await).map(|_| ())
}

/// Keeps the reason why an agent's program can't work, told by the agent's own runner or by a human who runs it.
pub(crate) async fn unavailable(ctx: &Context, caller: Caller, name: &str, told: Unavailable) -> Result<(), ApiError> {
    let own = caller.principal.agent();
    let agent = if name == OWN_NAME { own } else { find(ctx, name).await? };
    if agent != own || caller.principal.is_human() {
        humans::require(ctx, caller, Role::Operator).await?;
    }
    let reason: String = told.reason.trim().chars().take(REASON_CHARS).collect();
    if ctx.handle.query(move |live| live.state.agent(agent).is_some_and(Agent::is_human)).await? {
        return Err(FieldError::new("name", "is a human, whom no runner serves").into());
    }
    if let Some(client) = caller.client.filter(|_| !reason.is_empty()) {
        ctx.handle.gone(agent, client);
    }
    ctx.handle.fail(agent, reason.into());
    Ok(())
}

/// Removes an agent or human; its token ends at once.
///
/// # Errors
/// The caller may not, or the name is unknown.
pub async fn remove(ctx: &Context, caller: Caller, name: &str) -> Result<(), ApiError> {
    caller.human()?;
    let agent = find(ctx, name).await?;
    admitted(ctx.handle.submit(Input::Remove(caller.principal, agent)).await).map(|_| ())
}

/// Returns the number of a live agent or human.
pub async fn find(ctx: &Context, name: &str) -> Result<AgentId, ApiError> {
    let wanted = name.to_owned();
    let found = ctx.handle.query(move |live| live.state.live(&wanted)).await?;
    match found {
        Some(agent) => Ok(agent),
        None => {
            let fault = ApiError::new(Code::UnknownRecipient, format!("Agent or human {name:?} not found"));
            Err(Box::pin(with_near(ctx, fault, name)).await)
        }
    }
}

/// Names the agent or human that an address means by its display name: `to` takes names alone (§1).
pub async fn by_display_name(ctx: &Context, fault: ApiError) -> ApiError {
    let quoted = fault.0.detail.strip_prefix("`to` \"").and_then(|rest| rest.split_once('"'));
    match quoted.map(|(text, _)| text.to_owned()) {
        Some(text) => displayed(ctx, &text).await.unwrap_or(fault),
        None => fault,
    }
}

/// Returns the refusal of a recipient named by a display name; `None` if no live agent or human has it.
async fn displayed(ctx: &Context, text: &str) -> Option<ApiError> {
    let wanted = text.trim().to_lowercase();
    let found = move |live: &Live<'_>| {
        let reads_as = |agent: &&Agent| {
            agent.live && agent.display_name().is_some_and(|name| name.as_str().to_lowercase() == wanted)
        };
        Some(live.state.agents.iter().find(reads_as)?.name().to_owned())
    };
    let name = ctx.handle.query(found).await.ok()??;
    let fault = ApiError::new(Code::UnknownRecipient, format!("{text} is the display name of {name}"));
    Some(fault.hinted(format!("Address {name}: a message is addressed to a name, not to a display name.")))
}

/// Names the agent, human, `@group` or `#action` that was probably meant by a text.
pub(super) async fn with_near(ctx: &Context, mut fault: ApiError, text: &str) -> ApiError {
    if let Some(known) = displayed(ctx, text).await {
        fault.0.detail = known.0.detail;
        fault.0.hint = known.0.hint;
        return fault;
    }
    let known = |live: &Live<'_>| -> Vec<String> {
        let agents = live.state.agents.iter().filter(|agent| live.state.live(agent.name()).is_some());
        let all = agents.flat_map(|agent| {
            let groups = agent.profile.groups.iter().map(|group| format!("@{group}"));
            let actions = agent.profile.actions.iter().map(|action| format!("#{action}"));
            std::iter::once(agent.name().to_owned()).chain(groups).chain(actions)
        });
        all.collect()
    };
    if let Ok(known) = ctx.handle.query(known).await
        && let Some(near) = nearest(text, known.iter().map(String::as_str))
    {
        fault.0.hint = format!("Did you mean {near}? {}", fault.0.hint);
    }
    fault
}

fn labels(field: &'static str, texts: &[String]) -> Result<Vec<Label>, FieldError> {
    texts.iter().map(|text| checked(field, text, Label::new)).collect()
}

fn new_token() -> Result<Secret, ApiError> {
    Secret::token().map_err(|error| ApiError::internal(&format!("no randomness for a token: {error}")))
}
