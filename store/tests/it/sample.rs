//! Sample entries for a log.

use std::sync::Arc;

use lastword_facts::fact::{
    Answer, ApprovalAsked, Digest, EndReason, EscalationCause, EscalationOpened, Message, Part, Recipient, Refused,
};
use lastword_facts::ids::{AgentId, ApprovalId, ConvId, EscalationId, GrantId, RoomId, TaskId};
use lastword_facts::{Address, AnswerStatus, Code, Entry, Fact, MessageType, Refusal, Time};

pub(crate) fn at(ms: u64, fact: Fact) -> Entry {
    Entry { at: Time(ms), grant: Some((GrantId(1), 7)), fact }
}

pub(crate) fn note(n: u64) -> Entry {
    message(n, 1, 2, u32::try_from(n % 5).unwrap(), &format!("note number {n}"))
}

pub(crate) fn notes(range: std::ops::RangeInclusive<u64>) -> Vec<Arc<Entry>> {
    range.map(note).map(Arc::new).collect()
}

/// Returns a message with the longest possible body; two of them don't fit into a row.
pub(crate) fn long(n: u64) -> Entry {
    message(n, 1, 2, 0, &"x".repeat(800_000))
}

pub(crate) fn message(ms: u64, from: u32, to: u32, conv: u32, body: &str) -> Entry {
    let message = Message {
        from: AgentId(from),
        to: if to == 0 { Recipient::All } else { Recipient::One(AgentId(to)) },
        kind: if to == 0 { MessageType::Broadcast } else { MessageType::Info },
        conv: ConvId(conv),
        depth: u8::try_from(ms % 3).unwrap(),
        hops: 0,
        grant: Some(GrantId(1)),
        sender_task: None,
        cause: None,
        in_reply_to: None,
        key: None,
        action: None,
        payload: None,
        body: body.into(),
        metadata: None,
        part: Part::Plain,
    };
    at(ms, Fact::Accepted { message: Box::new(message) })
}

pub(crate) fn post(ms: u64, room: u32, body: &str) -> Entry {
    at(ms, Fact::Posted { room: RoomId(room), from: AgentId(3), body: body.into() })
}

/// Returns a held call of the shell, with a reason.
pub(crate) fn held(ms: u64, agent: u32, arguments: &str) -> Entry {
    let asked = ApprovalAsked {
        approval: ApprovalId(1),
        task: None,
        agent: AgentId(agent),
        tool: "Bash".into(),
        arguments: arguments.into(),
        reason: Some("because".into()),
        digest: Digest::default(),
        expires_at: Time(ms + 1),
    };
    at(ms, Fact::ApprovalAsked(asked))
}

pub(crate) fn asked(ms: u64, cause: EscalationCause, body: &str) -> Entry {
    let asked = EscalationOpened {
        escalation: EscalationId(1),
        task: None,
        agent: AgentId(1),
        conv: ConvId(1),
        cause,
        body: body.into(),
        options: Vec::new(),
    };
    at(ms, Fact::EscalationOpened(asked))
}

/// Returns an answer that says why its request failed.
pub(crate) fn failed(ms: u64, from: u32, to: u32, body: &str, reason: &str) -> Entry {
    let mut entry = message(ms, from, to, 1, body);
    if let Fact::Accepted { message } = &mut entry.fact {
        message.part = Part::Answer(Answer {
            task: TaskId(1),
            status: AnswerStatus::Failed,
            cause: EndReason::Answered,
            reason: Some(reason.into()),
            completed: Vec::new(),
            failed: Vec::new(),
            earlier: None,
        });
    }
    entry
}

pub(crate) fn refused(ms: u64, agent: u32, code: Code) -> Entry {
    let fact = Fact::Refused(Refused {
        agent: AgentId(agent),
        turn: None,
        kind: MessageType::Request,
        to: Address::All,
        reference: None,
        refusal: Refusal::new(code),
    });
    at(ms, fact)
}
