//! Calls on incidents: limits that tripped, and other facts that a human has to know.

use lastword_broker::Live;
use lastword_core::state::IncidentOn;
use lastword_facts::fact::{Latched, Place};
use lastword_facts::ids::AgentId;
use lastword_wire::{IncidentView, Page};

use super::{Caller, Context};
use crate::error::ApiError;
use crate::views;

/// Lists the incidents that `caller` may see, newest first.
pub async fn list(ctx: &Context, caller: Caller) -> Result<Page<IncidentView>, ApiError> {
    let who = caller.principal;
    let all = move |live: &Live<'_>| {
        let incidents = live.state.incidents.iter().rev();
        let seen = incidents.filter(|(_, incident)| who.is_human() || concerns(live, incident.on, who.agent()));
        seen.map(|(id, incident)| views::incident(live.state, *id, incident)).collect()
    };
    Ok(Page::whole(ctx.handle.query(all).await?))
}

fn concerns(live: &Live<'_>, on: IncidentOn, agent: AgentId) -> bool {
    let latch = match on {
        IncidentOn::Agent(about) => return about == agent,
        IncidentOn::Latch(latch) => latch,
    };
    match latch {
        Latched::Grant(grant) => live.state.grants.get(&grant).is_some_and(|g| g.agents.contains(&agent)),
        Latched::Place(Place::Conversation(conv)) => {
            live.state.conversations.get(&conv).is_some_and(|c| c.has_part(agent))
        }
        Latched::Place(Place::Room(room)) => live.state.rooms.get(&room).is_some_and(|r| r.members.contains(&agent)),
    }
}
