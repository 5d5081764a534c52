//! Refusals: a stable code, the numbers, and one sentence that tells a model what to do next (G3).

use alloc::boxed::Box;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A message or command that was not done, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What was wrong; the same on every surface.
    pub code: Code,
    /// The limit that was met.
    pub limit: Option<u64>,
    /// The value that would have been, or the count that is.
    pub current: Option<u64>,
    /// When trying again may work, in ms from now; only where time helps.
    pub retry_after_ms: Option<u64>,
    /// The name that it is about: an agent, a REF, a request, a holder.
    pub subject: Option<Box<str>>,
}

impl Refusal {
    /// A refusal with nothing but its code.
    #[must_use]
    pub const fn new(code: Code) -> Self {
        Self { code, limit: None, current: None, retry_after_ms: None, subject: None }
    }

    /// Adds the limit and what would have been.
    #[must_use]
    pub const fn numbers(mut self, limit: u64, current: u64) -> Self {
        self.limit = Some(limit);
        self.current = Some(current);
        self
    }

    /// Adds when trying again may work.
    #[must_use]
    pub const fn retry_after(mut self, ms: u64) -> Self {
        self.retry_after_ms = Some(ms);
        self
    }

    /// Adds the name that it is about.
    #[must_use]
    pub fn about(mut self, subject: impl fmt::Display) -> Self {
        self.subject = Some(alloc::format!("{subject}").into());
        self
    }
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
        /// The stable code of a refusal. New ones may join; none changes its meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        #[serde(rename_all = "snake_case")]
        pub enum Code { $(#[doc = $title] $variant,)* }

        impl Code {
            /// All codes, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The code as every surface writes it.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// The HTTP status of the refusal.
            #[must_use]
            pub const fn http_status(self) -> u16 {
                match self { $(Self::$variant => $status,)* }
            }

            /// The rule that it enforces.
            #[must_use]
            pub const fn rule(self) -> &'static str {
                match self { $(Self::$variant => $rule,)* }
            }

            /// What is wrong, in a few words.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }

            /// What to do instead, in one sentence that a model can act on.
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
        )
    }

    /// The code that `word` stands for.
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
        "Start the message with [FROM:…][TO:…][TYPE:…][REF:…][DEPTH:…] exactly, and send it again.";
    Malformed "malformed" 400 "E2" "The request is malformed"
        "Fix the field named in the detail, then resend.";
    Unauthenticated "unauthenticated" 401 "G5" "No valid token"
        "Send a valid token in the header `Authorization: Bearer TOKEN`; `lastword agent token NAME` makes a new one.";
    Forbidden "forbidden" 403 "G5" "This token may not do that"
        "Ask a human of the workspace to do it.";
    FromMismatch "from_mismatch" 403 "E3" "FROM is not who you are"
        "Leave `from` out or state your own name; identity comes from the token.";
    DepthMismatch "depth_mismatch" 422 "E3" "DEPTH is not the depth of this message"
        "Leave `depth` out; the broker mints it.";
    UnknownRecipient "unknown_recipient" 404 "L3" "There is no such recipient"
        "Call list_agents to see who is here, and address one of them.";
    SelfSend "self_send" 422 "D6" "A message to yourself"
        "Do the work yourself, in this turn.";
    NotAddressee "not_addressee" 403 "E5" "The request was addressed to somebody else"
        "Leave the answer to the addressee of that request.";
    ReplyNotExpected "reply_not_expected" 422 "E4" "That message expects no answer"
        "Do nothing: only a REQUEST is answered; who needs an answer has to send a REQUEST.";
    PassiveReply "passive_reply" 422 "D5" "The recipient waits for your final answer"
        "End your turn with what you have to say; the broker forwards it to the asker.";
    Cycle "cycle" 422 "D5" "The recipient is above you in this chain of requests"
        "End your turn with your answer or your question; it travels up by itself.";
    RefInUse "ref_in_use" 409 "D3" "The REF belongs to a conversation that you can't start or join"
        "Use a REF of your own, wait for the answer that is due under this one, or leave `ref` out inside a turn.";
    RefConflict "ref_conflict" 409 "D3" "You already have a conversation with this agent in this task"
        "Inside your turn leave `ref` out or name the REF of that conversation; outside it wait for its answer first.";
    RefRequired "ref_required" 409 "E6" "A message outside a turn needs a REF"
        "Name the work item in `ref`.";
    DepthCap "depth_cap" 422 "D2" "The conversation is as deep as it may be"
        "Send nothing more on this REF: finish with what you have, or call escalate_to_user, where a human can give more rounds.";
    HopCap "hop_cap" 422 "D4" "The work has been delegated as often as it may be"
        "Do this part yourself and finish with the result.";
    TaskRequests "task_requests" 422 "D3" "This task has sent all the requests that it may"
        "Finish with what you have, or escalate to the user.";
    RootAllowance "root_allowance" 429 "D7" "You have started all the work that you may start by yourself for now"
        "Wait for retry_after_ms, or ask a human to give you the task.";
    PairRate "pair_rate" 429 "G1" "Too many messages to this recipient"
        "Wait for retry_after_ms; put what you have to say into one message.";
    SenderRate "sender_rate" 429 "G1" "Too many messages"
        "Wait for retry_after_ms before you send anything.";
    FanOut "fan_out" 429 "G1" "Too many different recipients at once"
        "Wait for retry_after_ms before you ask another agent.";
    GrantMessages "grant_messages" 422 "D8" "The work of this grant has used up its messages"
        "Finish with what you have; a human may grant more.";
    GrantTurns "grant_turns" 422 "D8" "The work of this grant has used up its turns"
        "Finish with what you have; a human may grant more.";
    GrantAgents "grant_agents" 422 "D8" "The work of this grant has woken as many agents as it may"
        "Ask an agent that this work has woken already, finish with what you have, or escalate to the user for one more.";
    GrantExpired "grant_expired" 422 "D8" "The time of this grant is over"
        "Finish with what you have; a human may extend the time.";
    Budget "budget" 422 "B1" "The budget is used up"
        "Finish with what you have; more is there after retry_after_ms, where it is given, or by a human's grant.";
    TurnsSoft "turns_soft" 422 "R1" "Many agent messages here, and no human has spoken"
        "Stop sending here; finish with what you have or escalate to the user.";
    TurnsHard "turns_hard" 422 "R1" "Too many agent messages here since a human spoke"
        "Nothing more can be sent here until a human speaks; finish with what you have.";
    Paused "paused" 409 "H4" "A human has paused this"
        "Wait until a human resumes it, then send this again; what was admitted before is kept.";
    Latched "latched" 409 "R3" "A limit tripped here and holds until a human lifts it"
        "Finish with what you have; only a human's grant or resume lifts it.";
    Stopped "stopped" 409 "H4" "A human has stopped this"
        "Stop working on it.";
    UnknownRequest "unknown_request" 404 "Q7" "There is no such thing here"
        "Check the id; it may have been settled long ago.";
    AlreadySettled "already_settled" 409 "Q7" "That has ended already"
        "Do nothing: it ends exactly once.";
    MutualWait "mutual_wait" 409 "Q8" "The recipient is blocked waiting for you"
        "Send without `wait`, or finish your turn first.";
    Saturated "saturated" 503 "L4" "The queue is full"
        "Try again after retry_after_ms.";
    TooLarge "too_large" 413 "L4" "Too large"
        "Send a reference to the content instead of the content.";
    TurnClosed "turn_closed" 409 "F5" "This turn can't send any more"
        "Finish the turn with your final answer.";
    LeaseLost "lease_lost" 409 "F6" "This turn has ended: its lease was lost, or its request was settled"
        "Stop working on it; take the next message.";
    TurnRequired "turn_required" 409 "D1" "You have several open turns"
        "Name the one that you mean by its token: `turn` of a tool, the header Lastword-Turn over HTTP, --turn-token of a command.";
    IdempotencyConflict "idempotency_conflict" 409 "Q1" "That request_id was used for another message"
        "Use a new request_id for a new message.";
    NameTaken "name_taken" 409 "E2" "A live agent has that name"
        "Choose another name, or remove that agent first.";
    ApprovalUsed "approval_used" 409 "H2" "The approval was used up"
        "Ask for a new approval for each call.";
    ApprovalExpired "approval_expired" 409 "H2" "Nobody decided in time, which is a denial"
        "Go on without that call, or escalate to the user.";
    ApproverNotAllowed "approver_not_allowed" 403 "H3" "You may not decide this approval"
        "Wait for the decision of a human.";
    DigestMismatch "digest_mismatch" 422 "H2" "The approval is for another call"
        "Make exactly the call that was approved, or ask for an approval of this one.";
    EscalationsOpen "escalations_open" 409 "H1" "You have as many open escalations as you may"
        "Wait for an answer to one of them.";
    ApprovalsOpen "approvals_open" 409 "H2" "You have as many undecided approvals as you may"
        "Wait for a decision on one of them.";
    NotApproved "not_approved" 409 "H2" "The call was not approved"
        "Do not make this call; the approval says why.";
    ClaimHeld "claim_held" 409 "C1" "Somebody holds that resource"
        "Work on something else, or wait until the holder's task ends.";
    NotDecided "not_decided" 409 "H2" "Nobody has decided that call yet"
        "Wait for the decision before you make the call.";
    Unattended "unattended" 409 "D12" "No human has acted in this workspace for too long"
        "Finish what is open and start nothing new; work starts again once a human acts here.";
    Unanswered "unanswered" 409 "H1" "No human answered in time"
        "Finish with what you have; ask again if the question still matters.";
    TaskQuestions "task_questions" 422 "H1" "This task has asked humans all that it may"
        "Finish with what you have, without asking a human again.";
    CausedByRefused "caused_by_refused" 422 "D10" "What one of ours caused can't ask for work"
        "Send it as INFO with `caused_by`, or ask inside the task that caused it.";
    RefusedTooOften "refused_too_often" 429 "G2" "Too many of your writes were refused"
        "Stop repeating what was refused; wait for retry_after_ms and do something else.";
    TurnsOpen "turns_open" 409 "F1" "You have as many open turns as you may"
        "Finish an open turn first, then take this request.";
    DiskLow "disk_low" 503 "G2" "The broker's disk has too little room"
        "Try again after retry_after_ms; a human has to make room on the broker's disk.";
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
            assert!([400, 401, 403, 404, 409, 413, 422, 429, 503].contains(&code.http_status()), "{code}");
            assert!(Code::ALL[..i].iter().all(|other| other.word() != code.word()), "{code} stands twice");
        }
    }
}
