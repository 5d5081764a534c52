//! What a sender submits: a [`Draft`], and the enumerations that it is made of (E2, E4, E5).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

use crate::ids::{Seq, TurnId};
use crate::names::{AgentName, Label, Ref, RequestId};
use crate::stall::Reading;
use crate::trace::TraceContext;

/// Declares an enumeration that JSON represents by words, with `ALL`, `word` and `from_word`.
#[macro_export]
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// Every variant, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the word that represents the variant in JSON.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// Returns the variant that `word` represents; `None` for an unknown word.
            #[must_use]
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|v| v.word() == word)
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}
pub use crate::words;

words! {
    /// The six types of message (E4). Only a REQUEST and its answer wake an agent.
    MessageType {
        /// Asks for work. The only type that expects an answer.
        Request = "request",
        /// Answers exactly one request.
        Response = "response",
        /// Reports on a request and drives its state; wakes no agent.
        Status = "status",
        /// Reports that something broke: shown to humans at once; wakes no agent.
        Alert = "alert",
        /// Informs its recipient; wakes no agent.
        Info = "info",
        /// Informs all agents and humans; wakes no agent and can't be answered.
        Broadcast = "broadcast",
    }
}

impl MessageType {
    /// Returns the keyword of the text form: the word in upper case.
    #[must_use]
    pub const fn keyword(self) -> &'static str {
        match self {
            Self::Request => "REQUEST",
            Self::Response => "RESPONSE",
            Self::Status => "STATUS",
            Self::Alert => "ALERT",
            Self::Info => "INFO",
            Self::Broadcast => "BROADCAST",
        }
    }

    /// Returns the type for a keyword of the text form, which is case-sensitive.
    #[must_use]
    pub fn from_keyword(keyword: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|t| t.keyword() == keyword)
    }
}

words! {
    /// The rank of a request in its recipient's queue (Q2).
    Priority {
        /// Goes before everything else.
        Urgent = "urgent",
        /// Goes before normal work.
        High = "high",
        /// Is the default.
        Normal = "normal",
        /// Goes after normal work.
        Low = "low",
    }
}

words! {
    /// How a request ended, as stated in its answer (F2, F4, Q3–Q9).
    AnswerStatus {
        /// The agent completed the request.
        Completed = "completed",
        /// The agent completed a part, even after the failed parts ran again.
        Partial = "partial",
        /// The recipient declined the request.
        Rejected = "rejected",
        /// The recipient tried and failed, gave an empty answer, or was stopped.
        Failed = "failed",
        /// The request was not acknowledged or its lease was lost, twice; or its deadline passed.
        TimedOut = "timed_out",
        /// Every agent that serves the action was tried: the requester has to do the work itself.
        Exhausted = "exhausted",
        /// The requester or a human cancelled the request.
        Cancelled = "cancelled",
    }
}

words! {
    /// The status that `finish_turn` gives to a turn (F2).
    FinishStatus {
        /// The task is done; requests that are still in flight are cancelled.
        Completed = "completed",
        /// Some parts are done and some failed.
        Partial = "partial",
        /// The agent declines the request.
        Rejected = "rejected",
        /// The agent tried and failed.
        Failed = "failed",
        /// The task continues when an answer arrives.
        Waiting = "waiting",
        /// A budget ended the run: the task continues once a human gives more, or the agent's day is over (B1).
        Held = "held",
    }
}

/// The recipient of a message, as the sender names it (E2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Address {
    /// One agent or human.
    Name(AgentName),
    /// Every member of a group.
    Group(Label),
    /// Any one agent that serves the action.
    Action(Label),
    /// The human who gave the grant, otherwise any human of the workspace.
    User,
    /// All agents and humans; for BROADCAST, INFO and ALERT.
    All,
    /// Several of the above; each recipient gets a message of its own.
    List(Vec<Self>),
}

impl Address {
    /// Returns the names in it, alone or in a list.
    pub fn names(&self) -> impl Iterator<Item = &AgentName> {
        let list = if let Self::List(list) = self { list.as_slice() } else { core::slice::from_ref(self) };
        list.iter().filter_map(|one| if let Self::Name(name) = one { Some(name) } else { None })
    }

    /// Returns the action, if any agent that serves it may be the recipient.
    #[must_use]
    pub const fn action(&self) -> Option<&Label> {
        match self {
            Self::Action(action) => Some(action),
            Self::Name(_) | Self::Group(_) | Self::User | Self::All | Self::List(_) => None,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name.as_str()),
            Self::Group(group) => write!(f, "@{group}"),
            Self::Action(action) => write!(f, "#{action}"),
            Self::User => f.write_str("user"),
            Self::All => f.write_str("all"),
            Self::List(items) => items.iter().enumerate().try_for_each(|(i, item)| {
                if i > 0 {
                    f.write_str(",")?;
                }
                write!(f, "{item}")
            }),
        }
    }
}

/// JSON text that an edge parsed and found well-formed; the core passes it on without parsing it.
pub type JsonText = Box<str>;

/// A message as its sender submits it. Members that the broker mints are absent, or are claims that it checks (E3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// One of the six message types (E4).
    pub kind: MessageType,
    /// The claimed sender; refused if it differs from the authenticated one.
    pub from: Option<AgentName>,
    /// The recipient, not resolved yet.
    pub to: Address,
    /// The work item; mandatory for a root (E6).
    pub reference: Option<Ref>,
    /// The claimed depth; refused if it differs from the actual one.
    pub depth: Option<u8>,
    /// The idempotency key of a REQUEST; on a RESPONSE or STATUS, the request that it belongs to (Q1).
    pub request_id: Option<RequestId>,
    /// The action that the message asks for.
    pub action: Option<Label>,
    /// Structured content, as JSON text.
    pub payload: Option<JsonText>,
    /// Text content; may be empty.
    pub body: Box<str>,
    /// Members that Lastword doesn't know, kept and passed on, as a JSON object.
    pub metadata: Option<JsonText>,
    /// Rank in the recipient's queue.
    pub priority: Priority,
    /// Time for the recipient to acknowledge, in ms; the default depends on how it is connected (Q2).
    pub timeout_ms: Option<u64>,
    /// Time for the whole request, in ms (Q2).
    pub deadline_ms: Option<u64>,
    /// The message that this one answers or refers to.
    pub in_reply_to: Option<Seq>,
    /// A message of this workspace that caused this one from outside (D10); such a message opens no grant.
    pub caused_by: Option<Seq>,
    /// The turn whose token the call carried, already proven to be this sender's (D1).
    pub turn: Option<TurnId>,
    /// The time for which the send blocks for the answer, in ms (Q8).
    pub wait_ms: Option<u64>,
    /// STATUS: the recipient has seen the request.
    pub acknowledged: bool,
    /// STATUS: the estimated time until the answer, in ms.
    pub eta_ms: Option<u64>,
    /// RESPONSE: the result. If `None`: `waiting` while requests of the task are in flight, otherwise `completed`.
    pub status: Option<FinishStatus>,
    /// Whether `request_id` came in the header `Idempotency-Key`; if so, it does not name a work item (Q1).
    pub key_only: bool,
    /// What the sender is warned of, whatever comes of the message: members that mean nothing to Lastword.
    pub note: Option<Box<str>>,
    /// What body and payload amount to, if the shell computed it beside the judge's thread (R5); `None` leaves it to the
    /// fold.
    pub reading: Option<Box<Reading>>,
    /// The place in a trace at which the sender's work is, if it is in one. A grant that the message opens belongs to
    /// that trace.
    pub trace: Option<TraceContext>,
}

impl Draft {
    /// Returns a draft with only type, recipient and body.
    #[must_use]
    pub fn new(kind: MessageType, to: Address, body: &str) -> Self {
        Self {
            kind,
            from: None,
            to,
            reference: None,
            depth: None,
            request_id: None,
            action: None,
            payload: None,
            body: body.into(),
            metadata: None,
            priority: Priority::Normal,
            timeout_ms: None,
            deadline_ms: None,
            in_reply_to: None,
            caused_by: None,
            turn: None,
            wait_ms: None,
            acknowledged: false,
            eta_ms: None,
            status: None,
            key_only: false,
            note: None,
            reading: None,
            trace: None,
        }
    }

    /// Returns a number that is the same for the same content, to tell a retry from another message under the same key
    /// (Q1). FNV-1a with 64 bits suffices: only the key's own sender can collide with itself.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        fnv_of(format_args!(
            "{}\0{}\0{:?}\0{:?}\0{}\0{:?}\0{:?}",
            self.kind, self.to, self.reference, self.action, self.body, self.payload, self.in_reply_to
        ))
    }
}

/// Returns how deep the brackets of a JSON text nest, outside its strings; `None` if that is not deeper than `max`.
#[must_use]
pub fn nesting_above(json: &[u8], max: u64) -> Option<u64> {
    // Few texts have so many brackets at all, and counting them is the cheapest look at a text. `[` and `{` differ in
    // one bit.
    let brackets = json.iter().filter(|byte| **byte | 0x20 == b'{').count();
    if brackets as u64 <= max {
        return None;
    }
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_u64, 0, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Some(deepest).filter(|deepest| *deepest > max)
}

/// Returns the 64-bit FNV-1a hash of a text.
pub fn fnv(text: &str) -> u64 {
    let mut hash = Fnv(FNV_OFFSET);
    // Writing to a hash can't fail.
    let _ok = fmt::Write::write_str(&mut hash, text);
    hash.0
}

/// Returns the 64-bit FNV-1a hash of a formatted text.
pub fn fnv_of(text: fmt::Arguments<'_>) -> u64 {
    let mut hash = Fnv(FNV_OFFSET);
    // Writing to a hash can't fail.
    let _ok = fmt::write(&mut hash, text);
    hash.0
}

/// A hash of texts that reads eight bytes at a time, so that a long answer costs tens of nanoseconds. It detects when
/// one sender says the same thing twice, so it has to be the same on every machine but need not resist an attacker.
pub struct Words(u64);

impl Default for Words {
    fn default() -> Self {
        Self(FNV_OFFSET)
    }
}

impl Words {
    /// Hashes a number.
    pub const fn number(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }

    /// Hashes a text together with its length, so that two texts can't hash like the same bytes split elsewhere.
    pub fn text(&mut self, text: &str) {
        let (words, rest) = text.as_bytes().as_chunks::<8>();
        self.number(text.len() as u64);
        words.iter().for_each(|word| self.number(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.number(u64::from_le_bytes(last));
    }

    /// Returns the hash of what it was given.
    #[must_use]
    pub const fn value(&self) -> u64 {
        self.0
    }
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

struct Fnv(u64);

impl fmt::Write for Fnv {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }
}
