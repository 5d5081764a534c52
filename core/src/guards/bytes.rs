//! G2: the bytes that one agent may have stored in a day.

use lastword_facts::ids::{DAY_MS, Time};
use lastword_facts::limits::Limits;
use lastword_facts::refusal::{Code, Refusal};

use super::View;
use crate::state::Agent;

/// Refuses a message of an agent that has had its day's bytes stored. An answer always settles its request (F6).
pub(super) fn quota_bytes(view: &View<'_>) -> Option<Refusal> {
    exceeded(view.sender()?, &view.state.limits, view.now)
}

/// Returns a refusal with the limit and the agent's bytes of today, if it has used them up. 0 means no limit.
pub(crate) fn exceeded(agent: &Agent, limits: &Limits, now: Time) -> Option<Refusal> {
    let (used, max) = (agent.day.on(now).bytes, limits.agent_day_bytes_max);
    let refusal = || Refusal::new(Code::QuotaBytes).numbers(max, used).retry_after(DAY_MS - now.0 % DAY_MS);
    (max > 0 && used >= max && !agent.is_human()).then(refusal)
}
