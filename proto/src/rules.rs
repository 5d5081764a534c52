//! The rules that are no guard, each with what a broker without it does.
//!
//! A core that the tests build with the feature `rules-off` can be made without one of them, or without one guard:
//! so it is seen that each transcript which names a rule really needs it. In every other build [`Rules`] is empty,
//! and a check is the constant `true`.

use serde::{Deserialize, Serialize};

use crate::envelope::words;

words! {
    /// A rule in the core that can be taken out. First what holds, then what happens without it.
    Rule {
        /// R1: a message is counted before anything can refuse it. Without: what a filter drops is never counted.
        CountedFirst = "counted_first",
        /// R2: one warning a crossing. Without: every message beyond the limit is warned about.
        WarnedOnce = "warned_once",
        /// R4: only a human's words reset the counters. Without: a join or an empty post does too.
        HumanWords = "human_words",
        /// D2: an answer continues the conversation one deeper. Without: an answer starts again at depth 0.
        AnswersDeepen = "answers_deepen",
        /// D2, D3: depth is of one conversation. Without: one counter for all that a task does.
        DepthPerConversation = "depth_per_conversation",
        /// D8: a grant ends after its time. Without: its work is done whenever somebody comes to it.
        GrantAge = "grant_age",
        /// L3: a notice that is too old is dropped. Without: it is shown as if it were new.
        NoticeAge = "notice_age",
        /// E4: only a REQUEST and its answer wake. Without: every message that an agent is sent does.
        OnlyRequestsWake = "only_requests_wake",
        /// F2: the broker forwards the final answer. Without: it ends the turn, and stays where it was said.
        Forwarding = "forwarding",
        /// F2, Q1: an answer goes to the task that asked. Without: to the newest task of the agent that asked.
        Correlation = "correlation",
        /// Q1: the same key is the same message. Without: it is admitted anew.
        Idempotency = "idempotency",
        /// F6, Q7: a finish belongs to its turn. Without: a late one ends whatever its agent does now.
        LateAnswers = "late_answers",
        /// F6: a final answer is never refused. Without: the limit on messages refuses it like any other.
        AnswersAdmitted = "answers_admitted",
        /// L3: what can't be delivered becomes an outcome. Without: it waits in the mailbox of the name.
        Undeliverable = "undeliverable",
        /// L3, §1: a proof is of one incarnation. Without: it holds for whoever has the name.
        Incarnations = "incarnations",
        /// L3, R2: a refusal is said in the reply. Without: it is also a message, which wakes who is refused.
        QuietRefusals = "quiet_refusals",
        /// H4: pause, resume and stop are out of band. Without: they wait behind what the agents do.
        OutOfBand = "out_of_band",
        /// H3: nobody but a human, or whom a policy names, decides. Without: anybody does.
        Authority = "authority",
        /// H2: an approval that nobody decides is denied. Without: it is waited for without end.
        ApprovalAge = "approval_age",
        /// H2: an approval is of one call. Without: its agent may use it for any.
        CallDigest = "call_digest",
        /// L6: short times stand still while the broker doesn't run. Without: they run out meanwhile.
        Idling = "idling",
    }
}

/// What is taken out of a core: a rule, or the guard of this name.
#[cfg(feature = "rules-off")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Off {
    /// A rule of the core.
    Rule(Rule),
    /// A guard, whether or not it may be observed.
    Guard(&'static str),
}

#[cfg(feature = "rules-off")]
impl Off {
    /// The rule or guard that is called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let guard = crate::guards::GUARDS.iter().find(|g| g.name == name);
        Rule::from_word(name).map(Self::Rule).or_else(|| guard.map(|g| Self::Guard(g.name)))
    }
}

/// Which rules hold: all of them, outside the tests of what each is good for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rules {
    #[cfg(feature = "rules-off")]
    off: Option<Off>,
}

#[cfg(not(feature = "rules-off"))]
impl Rules {
    pub(crate) const ALL: Self = Self {};

    pub(crate) const fn has(self, _: Rule) -> bool {
        true
    }

    pub(crate) const fn has_guard(self, _: &str) -> bool {
        true
    }
}

#[cfg(feature = "rules-off")]
impl Rules {
    pub(crate) const ALL: Self = Self { off: None };

    pub(crate) const fn without(off: Off) -> Self {
        Self { off: Some(off) }
    }

    pub(crate) fn has(self, rule: Rule) -> bool {
        self.off != Some(Off::Rule(rule))
    }

    pub(crate) fn has_guard(self, name: &str) -> bool {
        !matches!(self.off, Some(Off::Guard(off)) if off == name)
    }
}
