//! Who is in the team: agents and humans, with what is set on each.

use lastword_broker::Live;
use lastword_facts::Time;
use lastword_facts::fact::{Kind, Role};
use lastword_facts::ids::AgentId;
use lastword_server::calls::Caller;
use lastword_server::{ApiError, Context};

/// What one agent or human is set to.
pub(crate) struct Person {
    /// The registered name.
    pub(crate) name: String,
    /// The name that humans and models read beside it.
    pub(crate) display_name: Option<String>,
    /// A human's role; `None` for an agent.
    pub(crate) role: Option<Role>,
    /// An agent's own limits, by name.
    pub(crate) limits: Vec<(&'static str, u64)>,
    /// When the token expires.
    pub(crate) token_expires_at: Option<Time>,
}

/// Returns the agents and humans, by name.
pub(crate) async fn people(ctx: &Context, caller: Caller) -> Result<Vec<Person>, ApiError> {
    caller.human()?;
    let look = |live: &Live<'_>| {
        let person = |id: AgentId| {
            let known = live.state.agent(id)?;
            let own = known.own_limits().values();
            Some(Person {
                name: known.name().to_owned(),
                display_name: known.display_name().map(ToString::to_string),
                role: (known.kind == Kind::Human).then_some(known.role),
                limits: own.into_iter().filter(|(_, value)| *value > 0).collect(),
                token_expires_at: known.token_expires_at(),
            })
        };
        live.state.live_by_name().into_iter().filter_map(person).collect()
    };
    Ok(ctx.handle.query(look).await?)
}
