//! What a sender hands in: a [`Draft`], and the words of which it consists (E2, E4, E5).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

use crate::ids::{Seq, TurnId};
use crate::names::{AgentName, Label, Ref, RequestId};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// All of them, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The word that stands for it in JSON.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// The one that `word` stands for.
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
pub(crate) use words;

words! {
    /// The six types of message (E4). Only a REQUEST and its answer ever wake an agent.
    MessageType {
        /// Asks for work; the only one that expects an answer.
        Request = "request",
        /// Answers exactly one request.
        Response = "response",
        /// Drives the request's state; wakes no one.
        Status = "status",
        /// Something broke: shown to humans at once; wakes no agent.
        Alert = "alert",
        /// For information; wakes no one.
        Info = "info",
        /// For everybody; wakes no one and can't be answered.
        Broadcast = "broadcast",
    }
}

impl MessageType {
    /// The keyword of the text form: the word in upper case.
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

    /// The type of a text-form keyword; exact, upper case.
    #[must_use]
    pub fn from_keyword(keyword: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|t| t.keyword() == keyword)
    }
}

words! {
    /// How a recipient's queue is ordered (Q2).
    Priority {
        /// Before everything else.
        Urgent = "urgent",
        /// Before normal work.
        High = "high",
        /// The default.
        Normal = "normal",
        /// After normal work.
        Low = "low",
    }
}

words! {
    /// How a request ended, as its answer says (F2, F4, Q3–Q9).
    AnswerStatus {
        /// Done.
        Completed = "completed",
        /// Done in part, after the retry of what failed.
        Partial = "partial",
        /// The recipient won't do it.
        Rejected = "rejected",
        /// The recipient tried and could not, answered nothing, or was stopped.
        Failed = "failed",
        /// Nobody acknowledged or the lease was lost, twice; or the deadline passed.
        TimedOut = "timed_out",
        /// Everybody who could do it was tried: the asker does it itself.
        Exhausted = "exhausted",
        /// The asker or a human took it back.
        Cancelled = "cancelled",
    }
}

words! {
    /// What `finish_turn` says of the turn (F2).
    FinishStatus {
        /// The task is done; what is still in flight is cancelled.
        Completed = "completed",
        /// Some parts are done and some failed.
        Partial = "partial",
        /// Not for this agent.
        Rejected = "rejected",
        /// Tried and failed.
        Failed = "failed",
        /// The task goes on when an answer comes.
        Waiting = "waiting",
    }
}

/// Whom a message is for (E2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Address {
    /// One agent or human.
    Name(AgentName),
    /// Every member of a group.
    Group(Label),
    /// Any one agent that serves the action.
    Action(Label),
    /// The human who gave the grant, else any human of the workspace.
    User,
    /// Everybody; for BROADCAST, INFO and ALERT.
    All,
    /// Several of the above, one message each.
    List(Vec<Self>),
}

impl Address {
    /// The action, if any agent that serves it will do.
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

/// A JSON text that some edge parsed and found well-formed; the core passes it on unread.
pub type JsonText = Box<str>;

/// A message as its sender hands it in. What the broker mints is absent or a claim (E3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// The type (E4).
    pub kind: MessageType,
    /// The claimed sender; refused where it differs from who is authenticated.
    pub from: Option<AgentName>,
    /// The addressee.
    pub to: Address,
    /// The work item; mandatory on a root (E6).
    pub reference: Option<Ref>,
    /// The claimed depth; refused where it differs.
    pub depth: Option<u8>,
    /// The idempotency key of a REQUEST; on a RESPONSE or STATUS, the request that it belongs to (Q1).
    pub request_id: Option<RequestId>,
    /// The action asked for.
    pub action: Option<Label>,
    /// Structured content.
    pub payload: Option<JsonText>,
    /// Text content.
    pub body: Box<str>,
    /// Members that Lastword doesn't know, kept and passed on: a JSON object.
    pub metadata: Option<JsonText>,
    /// Order in the recipient's queue.
    pub priority: Priority,
    /// How long the recipient has to acknowledge, in ms; default by how it is connected (Q2).
    pub timeout_ms: Option<u64>,
    /// How long the whole request may take, in ms (Q2).
    pub deadline_ms: Option<u64>,
    /// The message that this one replies to.
    pub in_reply_to: Option<Seq>,
    /// One of ours that caused this from outside (D10); such a message is no grant.
    pub caused_by: Option<Seq>,
    /// The turn whose token came with the call; already proven to be this sender's (D1).
    pub turn: Option<TurnId>,
    /// How long the sender blocks for the answer, in ms (Q8).
    pub wait_ms: Option<u64>,
    /// STATUS: the recipient has seen the request.
    pub acknowledged: bool,
    /// STATUS: how long it will take, in ms.
    pub eta_ms: Option<u64>,
    /// RESPONSE: how it went; default `completed`.
    pub status: Option<FinishStatus>,
    /// Whether `request_id` came as the header `Idempotency-Key`: then it names no work item (Q1).
    pub key_only: bool,
}

impl Draft {
    /// A draft with nothing but type, addressee and body.
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
        }
    }

    /// A number that is the same for the same content, to tell a retry from another message under the
    /// same key (Q1). FNV-1a, 64 bits: only the key's own sender can collide with itself.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        fnv_of(format_args!(
            "{}\0{}\0{:?}\0{:?}\0{}\0{:?}\0{:?}",
            self.kind, self.to, self.reference, self.action, self.body, self.payload, self.in_reply_to
        ))
    }
}

/// How deep brackets nest in a JSON text, outside its strings.
#[must_use]
pub fn nesting(json: &[u8]) -> u64 {
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
    deepest
}

/// The FNV-1a hash of a text, 64 bits.
pub(crate) fn fnv(text: &str) -> u64 {
    let mut hash = Fnv(FNV_OFFSET);
    // Writing to a hash can't fail.
    let _ok = fmt::Write::write_str(&mut hash, text);
    hash.0
}

/// The FNV-1a hash of what is formatted, 64 bits.
pub(crate) fn fnv_of(text: fmt::Arguments<'_>) -> u64 {
    let mut hash = Fnv(FNV_OFFSET);
    // Writing to a hash can't fail.
    let _ok = fmt::write(&mut hash, text);
    hash.0
}

/// A hash of texts, eight bytes at a time: a long answer costs tens of nanoseconds. It tells apart what one sender says
/// twice, so it has to be the same everywhere and need not resist anybody.
pub(crate) struct Words(u64);

impl Default for Words {
    fn default() -> Self {
        Self(FNV_OFFSET)
    }
}

impl Words {
    pub(crate) const fn number(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }

    /// A text with its length, so that where one ends and the next begins counts.
    pub(crate) fn text(&mut self, text: &str) {
        let (words, rest) = text.as_bytes().as_chunks::<8>();
        self.number(text.len() as u64);
        words.iter().for_each(|word| self.number(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.number(u64::from_le_bytes(last));
    }

    pub(crate) const fn value(&self) -> u64 {
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
