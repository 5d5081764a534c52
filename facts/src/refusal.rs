//! Refusals: a stable code, the numbers, and one sentence that tells a model what to do next (G3).

use alloc::boxed::Box;
use core::fmt;
use serde::{Deserialize, Serialize};

use crate::names::{AgentName, Ref};

/// The subject of a refusal for the cost of a grant, and the first word of one for the cost of an agent's day.
pub const MONEY: &str = "money";

/// A message or call that was not admitted, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The reason, by a code that is the same on every surface.
    pub code: Code,
    /// The limit that the call met.
    pub limit: Option<u64>,
    /// The value that the call would have reached, or the current count.
    pub current: Option<u64>,
    /// The time after which a retry may succeed, in ms from now; `None` if time alone does not help.
    pub retry_after_ms: Option<u64>,
    /// The name that the refusal is about: an agent, a REF, a request, a holder.
    pub subject: Option<Box<str>>,
}

impl Refusal {
    /// Returns a refusal with only its code.
    #[must_use]
    pub const fn new(code: Code) -> Self {
        Self { code, limit: None, current: None, retry_after_ms: None, subject: None }
    }

    /// Adds the limit and the value that the call would have reached.
    #[must_use]
    pub const fn numbers(mut self, limit: u64, current: u64) -> Self {
        self.limit = Some(limit);
        self.current = Some(current);
        self
    }

    /// Adds the time after which a retry may succeed.
    #[must_use]
    pub const fn retry_after(mut self, ms: u64) -> Self {
        self.retry_after_ms = Some(ms);
        self
    }

    /// Returns the name of the room whose limit refused a post (R1).
    #[must_use]
    pub fn room(&self) -> Option<&str> {
        // In a conversation these refusals are about nothing else, and name nothing.
        let counted = matches!(self.code, Code::TurnsSoft | Code::TurnsHard);
        self.subject.as_deref().filter(|_| counted)
    }

    /// Returns whether the numbers are money, in millionths of a dollar: only a budget counts it, beside tokens.
    #[must_use]
    pub fn is_cost(&self) -> bool {
        let subject = self.subject.as_deref().filter(|_| self.code == Code::Budget);
        // A day's budget of tokens is about its agent, whose name could be the word, but has no space.
        let is_money = |subject: &str| match self.retry_after_ms {
            None => subject == MONEY,
            Some(_) => subject.strip_prefix(MONEY).is_some_and(|rest| rest.starts_with(' ')),
        };
        subject.is_some_and(is_money)
    }

    /// Returns by how much the call would have passed the limit.
    #[must_use]
    pub fn lacks(&self) -> u64 {
        self.current.unwrap_or(0).saturating_sub(self.limit.unwrap_or(0))
    }

    /// Adds the name that the refusal is about.
    #[must_use]
    pub fn about(mut self, subject: impl fmt::Display) -> Self {
        self.subject = Some(alloc::format!("{subject}").into());
        self
    }
}

/// The subject of a refusal, for the step by which a human lifts it (H6).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedAbout {
    /// The REF of the conversation that is held, or that has a limit that a human can lift.
    pub reference: Option<Ref>,
    /// The agent that is paused or stopped, or else the one that was refused, if the log records the refusal.
    pub agent: Option<AgentName>,
    /// Whether the work has settled, so that a human can't extend it but give the task anew.
    pub settled: bool,
}

impl From<Code> for Refusal {
    fn from(code: Code) -> Self {
        Self::new(code)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.code)?;
        if let Some(subject) = &self.subject {
            write!(f, " {subject}")?;
        }
        if let (Some(limit), Some(current)) = (self.limit, self.current) {
            write!(f, " (limit {limit}, would be {current})")?;
        }
        match self.retry_after_ms {
            Some(ms) => write!(f, " retry after {ms} ms"),
            None => Ok(()),
        }
    }
}

macro_rules! codes {
    ($($variant:ident $word:literal $status:literal $rule:literal $title:literal $hint:literal;)*) => {
        /// The stable code of a refusal. Codes may be added; none changes its meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        #[serde(rename_all = "snake_case")]
        pub enum Code { $(#[doc = $title] $variant,)* }

        impl Code {
            /// Every code, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the code as every surface writes it.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// Returns the HTTP status of the refusal.
            #[must_use]
            pub const fn http_status(self) -> u16 {
                match self { $(Self::$variant => $status,)* }
            }

            /// Returns the rule that the code enforces.
            #[must_use]
            pub const fn rule(self) -> &'static str {
                match self { $(Self::$variant => $rule,)* }
            }

            /// Returns a short sentence that describes the code.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }

            /// Returns what to do instead, in one sentence that a model can act on.
            #[must_use]
            pub const fn hint(self) -> &'static str {
                match self { $(Self::$variant => $hint,)* }
            }
        }
    };
}

impl Code {
    /// Whether a human can lift the limit or latch for the task that met it (H6).
    #[must_use]
    pub const fn can_be_lifted(self) -> bool {
        matches!(
            self,
            Self::DepthCap
                | Self::TaskRequests
                | Self::GrantMessages
                | Self::GrantTurns
                | Self::GrantAgents
                | Self::GrantExpired
                | Self::Budget
                | Self::TurnsSoft
                | Self::TurnsHard
                | Self::Latched
                | Self::NoProgress
        )
    }

    /// Returns the code for `word`; `None` if there is none.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|c| c.word() == word)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

codes! {
    MalformedHeader "malformed_header" 400 "E1" "The header is malformed"
        "Start the message with exactly [FROM:…][TO:…][TYPE:…][REF:…][DEPTH:…], then resend.";
    Malformed "malformed" 400 "E2" "The request is malformed"
        "Fix the field named in `detail`, then resend.";
    Unauthenticated "unauthenticated" 401 "G5" "No valid token"
        "Send a valid token in the header `Authorization: Bearer TOKEN`; `lastword agent token NAME` makes a new one.";
    Forbidden "forbidden" 403 "G5" "This token isn't allowed to do that"
        "Ask a human of the workspace to do it.";
    FromMismatch "from_mismatch" 403 "E3" "FROM is not your name"
        "Omit `from` or set it to your own name; identity comes from the token.";
    DepthMismatch "depth_mismatch" 422 "E3" "DEPTH is not the depth of this message"
        "Omit `depth`; the broker assigns it.";
    UnknownRecipient "unknown_recipient" 404 "L3" "There is no such recipient"
        "Call list_agents and address one of the agents that it lists.";
    SelfSend "self_send" 422 "D6" "A message to yourself"
        "Do the work yourself, in this turn.";
    NotAddressee "not_addressee" 403 "E5" "The request was addressed to another agent"
        "Do not answer; the recipient of that request answers it.";
    ReplyNotExpected "reply_not_expected" 422 "E4" "That message expects no answer"
        "Do nothing: only a REQUEST is answered, and a sender that needs an answer sends one.";
    PassiveReply "passive_reply" 422 "D5" "The recipient waits for your final answer"
        "End your turn with your answer; the broker forwards it to the requester.";
    Cycle "cycle" 422 "D5" "The recipient is above you in this chain of requests"
        "End your turn with your answer or your question; the broker forwards it up the chain.";
    RefInUse "ref_in_use" 409 "D3" "The REF belongs to a conversation that you can't start or join"
        "Use an unused REF, wait for the answer that is due under this one, or omit `ref` inside a turn.";
    RefConflict "ref_conflict" 409 "D3" "You already have a conversation with this agent in this task"
        "Inside your turn omit `ref` or name the REF of that conversation; outside a turn wait for its answer first.";
    RefRequired "ref_required" 409 "E6" "A message outside a turn needs a REF"
        "Name the work item in `ref`.";
    DepthCap "depth_cap" 422 "D2" "The conversation has reached its depth limit"
        "Send nothing more on this REF: finish with what you have, or call escalate_to_user so that a human can grant more rounds.";
    HopCap "hop_cap" 422 "D4" "The work has reached its delegation limit"
        "Do this part yourself and finish with the result.";
    TaskRequests "task_requests" 422 "D3" "This task has used up its requests"
        "Finish with what you have, or escalate to the user.";
    RootAllowance "root_allowance" 429 "D7" "You have used up your allowance of root requests for now"
        "Wait for retry_after_ms, or ask a human to send you the task.";
    PairRate "pair_rate" 429 "G1" "Too many messages to this recipient"
        "Wait for retry_after_ms, then send everything in one message.";
    SenderRate "sender_rate" 429 "G1" "Too many messages"
        "Wait for retry_after_ms before you send another message.";
    FanOut "fan_out" 429 "G1" "Too many different recipients at once"
        "Wait for retry_after_ms before you ask another agent.";
    GrantMessages "grant_messages" 422 "D8" "This grant has used up its messages"
        "Finish with what you have; a human can grant more.";
    GrantTurns "grant_turns" 422 "D8" "This grant has used up its turns"
        "Finish with what you have; a human can grant more.";
    GrantAgents "grant_agents" 422 "D8" "This grant has used up its agents"
        "Ask an agent that this grant has already woken, finish with what you have, or escalate to the user for one more.";
    GrantExpired "grant_expired" 422 "D8" "This grant has expired"
        "Finish with what you have; a human can extend the time.";
    Budget "budget" 422 "B1" "The budget is used up"
        "Finish with what you have; more is available after retry_after_ms, if present, or when a human grants it.";
    TurnsSoft "turns_soft" 422 "R1" "Too many agent messages here without a human message"
        "Stop sending here; finish with what you have, or escalate to the user.";
    TurnsHard "turns_hard" 422 "R1" "Held: too many agent messages here without a human message"
        "Finish with what you have; nothing more can be sent here until a human writes.";
    Paused "paused" 409 "H4" "A human has paused this"
        "Wait until a human resumes it, then resend; messages admitted before are kept.";
    Latched "latched" 409 "R3" "A limit holds this until a human lifts it"
        "Finish with what you have; only a human can lift it, by `grant` or `resume`.";
    Stopped "stopped" 409 "H4" "A human has stopped this"
        "Stop working on it.";
    UnknownRequest "unknown_request" 404 "Q7" "Not found"
        "Check the id; settled requests are forgotten after some days.";
    AlreadySettled "already_settled" 409 "Q7" "Already settled"
        "Do nothing; it is already settled.";
    MutualWait "mutual_wait" 409 "Q8" "The recipient is blocked waiting for you"
        "Send without `wait`, or finish your turn first.";
    Saturated "saturated" 503 "L4" "There is no room for more"
        "Retry after retry_after_ms.";
    TooLarge "too_large" 413 "L4" "Too large"
        "Send a reference to the content instead of the content.";
    TurnClosed "turn_closed" 409 "F5" "This turn can't send any more"
        "Finish the turn with your final answer.";
    LeaseLost "lease_lost" 409 "F6" "This turn has ended: its lease was lost, or its request was settled"
        "Stop working on it; take the next message.";
    TurnRequired "turn_required" 409 "D1" "You have several open turns"
        "Name one by its token: `turn` in a tool call, the header Lastword-Turn over HTTP, --turn-token on the command line.";
    IdempotencyConflict "idempotency_conflict" 409 "Q1" "That request_id was used for another message"
        "Use a new request_id for a new message.";
    NameTaken "name_taken" 409 "E2" "A live agent has that name"
        "Choose another name; for a new token of an agent that is yours, call `lastword agent token NAME`.";
    ApprovalUsed "approval_used" 409 "H2" "The approval was already used"
        "Request a new approval for each call.";
    ApprovalExpired "approval_expired" 409 "H2" "The call was not decided in time, or it was approved too long ago"
        "Continue without that call, or escalate to the user.";
    ApproverNotAllowed "approver_not_allowed" 403 "H3" "You aren't allowed to decide this approval"
        "Wait for a human's decision.";
    DigestMismatch "digest_mismatch" 422 "H2" "The approval is for another call"
        "Make exactly the approved call, or request an approval for this one.";
    EscalationsOpen "escalations_open" 409 "H1" "You have reached your limit of open escalations"
        "Wait for an answer to one of them.";
    ApprovalsOpen "approvals_open" 409 "H2" "You have reached your limit of undecided approvals"
        "Wait for a decision on one of them.";
    NotApproved "not_approved" 409 "H2" "The call was not approved"
        "Do not make this call; the approval says why.";
    ClaimHeld "claim_held" 409 "C1" "Another task holds that resource"
        "Work on something else and come back, claim it again with wait_ms to wait for its release, or ask its holder.";
    NotDecided "not_decided" 409 "H2" "That call is not decided yet"
        "Wait for the decision before you make the call.";
    Unattended "unattended" 409 "D12" "No human has acted in this workspace for too long"
        "Finish open work and start nothing new; agents can start work again once a human acts here.";
    Unanswered "unanswered" 409 "H1" "No human answered in time"
        "Finish with what you have; ask again if the question still matters.";
    TaskQuestions "task_questions" 422 "H1" "This task has used up its questions to humans"
        "Finish with what you have; do not ask a human again.";
    CausedByRefused "caused_by_refused" 422 "D10" "A message caused by an agent of this workspace can't request work from outside"
        "Send it as INFO with `caused_by`, or ask inside the task that caused it.";
    RefusedTooOften "refused_too_often" 429 "G2" "Too many of your writes were refused"
        "Stop resending refused writes; wait for retry_after_ms.";
    TurnsOpen "turns_open" 409 "F1" "You have reached your limit of open turns"
        "Finish an open turn first, then take this request.";
    DiskLow "disk_low" 503 "G2" "The broker's disk is nearly full"
        "Retry after retry_after_ms; a human has to free space on the broker's disk.";
    EpochOver "epoch_over" 409 "L8" "A restore went back to before this was issued"
        "Drop what you know of it and take the next message.";
    QuotaBytes "quota_bytes" 429 "G2" "You have had your share of the disk for today"
        "Finish with what you have, in few words; more is stored after retry_after_ms, or when a human raises agent_day_bytes_max.";
    AuthRate "auth_rate" 429 "L4" "Too many failed authentications from your address"
        "Wait for retry_after_ms; a valid token is accepted at once.";
    Archived "archived" 410 "L7" "That position has left the log for the archive"
        "Go on after the position that limit names; a human finds what is before in the archive.";
    NoProgress "no_progress" 422 "R5" "Held: your requests to this agent in this task make no progress"
        "Answer with what you have, or ask the human; nothing more can be asked of this agent in this task until a human says so.";
    LogGone "log_gone" 503 "L1" "The broker's log is no longer at its path"
        "Retry after retry_after_ms; a human has to put the files of the data directory back, or to restart the server.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_one_word_one_hint_and_a_status_of_its_class() {
        for (i, code) in Code::ALL.iter().enumerate() {
            assert_eq!(Code::from_word(code.word()), Some(*code));
            assert!(code.hint().ends_with('.'), "{code}");
            assert!(!code.hint().trim_end_matches('.').contains(". "), "{code}: one sentence");
            assert!([400, 401, 403, 404, 409, 410, 413, 422, 429, 503].contains(&code.http_status()), "{code}");
            assert!(Code::ALL[..i].iter().all(|other| other.word() != code.word()), "{code} stands twice");
        }
    }
}
