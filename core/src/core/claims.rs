//! Leases on shared resources (C1).

use alloc::vec::Vec;

use lastword_facts::fact::{ClaimMode, Fact, Role, WriteKind};
use lastword_facts::ids::{AgentId, ClaimId, TaskId, TurnId};
use lastword_facts::refusal::{Code, Refusal};

use super::admit::key;
use super::{Outcome, Step};
use crate::input::{ClaimDraft, Reply};
use crate::state::{Claim, Principal};

impl Step<'_> {
    pub(super) fn claim(&mut self, by: Principal, turn: Option<TurnId>, claim: ClaimDraft) -> Outcome {
        let id = claim.key.clone();
        let key = key(id.as_ref(), format_args!("{}\0{}\0{}", claim.resource, claim.mode, claim.ttl_ms));
        let human = by.is_human();
        self.write(by, WriteKind::Claim, turn, key, |step| step.take_lease(by.agent(), human, turn, claim))
    }

    fn take_lease(&mut self, agent: AgentId, human: bool, turn: Option<TurnId>, claim: ClaimDraft) -> Outcome {
        let ClaimDraft { resource, mode, ttl_ms, .. } = claim;
        if !human && is_wide(resource.as_str()) {
            return Err(Refusal::new(Code::Forbidden).about(format_args!(
                "a claim on all of {resource}, which only a human may make; name a directory, as in repo:src/auth/*"
            )));
        }
        let task = self.task_in_turn(agent, turn)?;
        let state = self.state();
        // The task is the holder: two tasks of one agent conflict, too.
        let conflicting = state.claims.iter().find(|(_, held)| {
            (held.agent, held.task) != (agent, task)
                && (mode == ClaimMode::Exclusive || held.mode == ClaimMode::Exclusive)
                && overlap(held.resource.as_str(), resource.as_str())
        });
        if let Some((fence, held)) = conflicting {
            let request = held.task.and_then(|t| state.tasks.get(&t)).and_then(|t| t.request.as_ref());
            let task = request.map_or("no task", |r| r.id.as_str());
            let wait = held.expires_at.since(self.now);
            let holder = format_args!("{} in {task}, {fence}", state.name_of(held.agent));
            return Err(Refusal::new(Code::ClaimHeld).about(holder).retry_after(wait.max(1)));
        }
        let (max, count) = (state.limits.claims_max, state.agents[agent.0 as usize].claims);
        if count >= max {
            return Err(Refusal::new(Code::Saturated).numbers(max, count + 1));
        }
        // A lease that is too long is shortened instead of refused.
        let expires_at = self.now.plus(ttl_ms.clamp(1, state.limits.claim_ms_max));
        let claim = ClaimId(state.last_claim() + 1);
        self.record(Fact::Claimed { claim, agent, task, resource, mode, expires_at });
        Ok(Reply::Claimed(claim))
    }

    pub(super) fn release(&mut self, by: Principal, id: ClaimId) -> Outcome {
        self.may(by, Role::Operator)?;
        let unknown = || Refusal::new(Code::UnknownRequest).about(id);
        let claim = self.state().claims.get(&id).ok_or_else(unknown)?;
        if claim.agent != by.agent() && !by.is_human() {
            return Err(Code::Forbidden.into());
        }
        self.record(Fact::Released { claim: id });
        Ok(Reply::Done)
    }

    /// Releases the claims of a task that ended.
    pub(super) fn release_claims(&mut self, task: TaskId) {
        self.release_where(|claim| claim.task == Some(task));
    }

    /// Releases the claims of an agent that is removed.
    pub(super) fn release_claims_of(&mut self, agent: AgentId) {
        self.release_where(|claim| claim.agent == agent);
    }

    fn release_where(&mut self, ended: impl Fn(&Claim) -> bool) {
        let held = self.state().claims.iter().filter(|(_, claim)| ended(claim)).map(|(id, _)| *id);
        for claim in held.collect::<Vec<ClaimId>>() {
            self.record(Fact::Released { claim });
        }
    }
}

/// Whether a resource name with a trailing `*` covers everything, a whole scope (`repo:*`), or all names that begin alike
/// (`s*`): no directory stands between the scope and the `*`.
fn is_wide(name: &str) -> bool {
    let Some(before) = name.strip_suffix('*') else { return false };
    let path = before.trim_end_matches('*').rsplit(':').next().unwrap_or_default();
    let mut parts = path.split('/');
    // What follows the last `/` is the beginning of a name.
    let _open = parts.next_back();
    let mut depth = 0_i32;
    for part in parts {
        depth += match part {
            "" | "." => 0,
            ".." => -1,
            _ => 1,
        };
    }
    depth <= 0
}

/// Whether two resource names can cover the same resource; a trailing `*` covers every name that begins with the text
/// before it.
fn overlap(a: &str, b: &str) -> bool {
    match (a.strip_suffix('*'), b.strip_suffix('*')) {
        (None, None) => a == b,
        (Some(a), None) => b.starts_with(a),
        (None, Some(b)) => a.starts_with(b),
        (Some(a), Some(b)) => a.starts_with(b) || b.starts_with(a),
    }
}

#[cfg(test)]
mod tests {
    use super::is_wide;

    #[test]
    fn an_agents_claim_names_a_directory_before_its_star() {
        for wide in
            ["*", "a*", "z*", "**", "src*", "repo:*", "repo:s*", "/*", "/s*", "./*", "../*", "a:b:*", "repo:/*", "//*"]
                .into_iter()
                .chain(["a/../*", "repo:a/../*", "a/b/../../*", "../a/*", "a/../../b/*"])
        {
            assert!(is_wide(wide), "{wide}");
        }
        for narrow in [
            "repo:src/auth/*",
            "docs/*",
            "src/a*",
            "README.md",
            "repo:README.md",
            "a",
            "/srv/www/*",
            "./src/*",
            "a/../b/*",
        ] {
            assert!(!is_wide(narrow), "{narrow}");
        }
    }
}
