//! The rules that aren't guards, each with what a broker without it does.
//!
//! A core that the tests build with the feature `rules-off` can lack one rule or one guard. That proves that each
//! transcript which names a rule needs it. In every other build `Rules` is empty, and a check is the constant `true`.

use serde::{Deserialize, Serialize};

use lastword_facts::envelope::words;

words! {
    /// A rule of the core that tests can switch off. Each doc states the rule, then what happens without it.
    Rule {
        /// R1: a message is counted before anything can refuse it. Without: a message that a filter drops is never
        /// counted.
        CountedFirst = "counted_first",
        /// R2: each crossing is warned about once. Without: every message beyond the limit is warned about.
        WarnedOnce = "warned_once",
        /// R4: only a human's text resets the counters. Without: a join or an empty post does too.
        HumanWords = "human_words",
        /// D2: an answer continues the conversation one deeper. Without: an answer starts again at depth 0.
        AnswersDeepen = "answers_deepen",
        /// D2, D3: each conversation has its own depth. Without: one counter covers everything that a task does.
        DepthPerConversation = "depth_per_conversation",
        /// D8: a grant expires. Without: its work runs at any later time.
        GrantAge = "grant_age",
        /// L3: a notice that is too old is dropped. Without: it is shown as if it were new.
        NoticeAge = "notice_age",
        /// E4: only a REQUEST and its answer wake an agent. Without: every message to an agent does.
        OnlyRequestsWake = "only_requests_wake",
        /// F2: the broker routes the final answer to the requester. Without: a finish only ends the turn.
        Forwarding = "forwarding",
        /// F2, Q1: an answer goes to the task that asked. Without: it goes to the newest task of the agent that asked.
        Correlation = "correlation",
        /// Q1: a message with the same key is the same message. Without: it is admitted again.
        Idempotency = "idempotency",
        /// F6, Q7: a finish belongs to its turn. Without: a late one ends the turn that its agent has open now.
        LateAnswers = "late_answers",
        /// F6: a final answer is never refused. Without: the limit on messages refuses it like any other message.
        AnswersAdmitted = "answers_admitted",
        /// L3: a request that can't be delivered is settled with an outcome. Without: it stays in the inbox of the
        /// name.
        Undeliverable = "undeliverable",
        /// L3, §1: a proof is valid for one incarnation. Without: it is valid for every holder of the name.
        Incarnations = "incarnations",
        /// L3, R2: a refusal is only in the reply. Without: it is also a message, which wakes the refused agent.
        QuietRefusals = "quiet_refusals",
        /// H4: pause, resume and stop are out of band. Without: they are queued behind the agents' messages.
        OutOfBand = "out_of_band",
        /// H3: only humans and the agents that a policy names decide. Without: every agent may.
        Authority = "authority",
        /// H2: an approval that is not decided in time is denied. Without: the agent waits without end.
        ApprovalAge = "approval_age",
        /// H2: an approval is valid for one call. Without: its agent may use it for any call.
        CallDigest = "call_digest",
        /// H8: typed prompts open a limited number of grants an hour. Without: each prompt opens one.
        TypedAllowance = "typed_allowance",
        /// L6: short times are suspended while the broker doesn't run. Without: they run out meanwhile.
        Idling = "idling",
    }
}

/// The rule or guard that a core lacks.
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
    /// Returns the rule or guard called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let guard = lastword_facts::guards::GUARDS.iter().find(|g| g.name == name);
        Rule::from_word(name).map(Self::Rule).or_else(|| guard.map(|g| Self::Guard(g.name)))
    }
}

/// The rules that hold: all of them, except in the tests that prove that each is needed.
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
