//! Everything that humans set, in one view: who may do what, tokens, and what a change of the limits would bound.

use lastword_broker::Live;
use lastword_facts::fact::{Kind, Role};
use lastword_facts::ids::AgentId;
use lastword_facts::{Limits, Time};
use lastword_server::calls::Caller;
use lastword_server::{ApiError, Context};

/// The limits on which the bound of a grant depends.
pub(crate) const BOUNDING: [&str; 4] = ["hops_max", "task_requests_max", "grant_messages_max", "grant_turns_max"];

/// What one agent or human is set to.
pub(crate) struct Person {
    /// The registered name.
    pub(crate) name: String,
    /// A human's role; `None` for an agent.
    pub(crate) role: Option<Role>,
    /// An agent's own limits, by name.
    pub(crate) limits: Vec<(&'static str, u64)>,
    /// When the token expires.
    pub(crate) token_expires_at: Option<Time>,
}

/// What one grant can cause, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    /// Waking messages.
    pub(crate) messages: u64,
    /// Turns.
    pub(crate) turns: u64,
    /// Waking messages that its structure allows, before the total of a grant cuts it.
    pub(crate) structure: u64,
}

impl Bound {
    pub(crate) fn of(limits: &Limits) -> Self {
        Self { messages: limits.bound_messages(), turns: limits.bound_turns(), structure: limits.potential(0) }
    }
}

/// Everything that humans set.
pub(crate) struct SettingsView {
    /// The agents and humans, by name.
    pub(crate) people: Vec<Person>,
    /// The limits in force.
    pub(crate) limits: Limits,
    /// The number of schedules.
    pub(crate) schedules: usize,
}

/// Returns everything that humans set.
pub(crate) async fn all(ctx: &Context, caller: Caller) -> Result<SettingsView, ApiError> {
    caller.human()?;
    let look = |live: &Live<'_>| {
        let state = live.state;
        let person = |id: AgentId| {
            let known = state.agent(id)?;
            let own = known.own_limits().values();
            Some(Person {
                name: known.name().to_owned(),
                role: (known.kind == Kind::Human).then_some(known.role),
                limits: own.into_iter().filter(|(_, value)| *value > 0).collect(),
                token_expires_at: known.token_expires_at(),
            })
        };
        SettingsView {
            people: state.live_by_name().into_iter().filter_map(person).collect(),
            limits: state.limits.clone(),
            schedules: state.schedules.len(),
        }
    };
    Ok(ctx.handle.query(look).await?)
}
