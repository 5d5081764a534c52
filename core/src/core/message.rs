//! The message that an admitted draft becomes: its content, its cause, and the terms of a request.

use alloc::boxed::Box;

use lastword_facts::envelope::{Address, Draft, JsonText, MessageType};
use lastword_facts::fact::{Key, Message, Part, Recipient, Terms};
use lastword_facts::ids::{AgentId, ConvId, GrantId, Seq, TaskId};
use lastword_facts::names::RequestId;

use super::Step;
use crate::state::{RequestNumber, Task};

/// Where a message goes, and the work that it belongs to.
#[derive(Clone, Copy)]
pub(super) struct Destination {
    pub(super) conv: ConvId,
    pub(super) depth: u8,
    pub(super) to: Option<AgentId>,
    /// Its number in a list of recipients.
    pub(super) number: Option<usize>,
    pub(super) sender_task: Option<TaskId>,
    pub(super) grant: Option<GrantId>,
}

/// The content of a message.
#[derive(Clone, Default)]
pub(super) struct Content {
    pub(super) payload: Option<JsonText>,
    pub(super) body: Box<str>,
    pub(super) metadata: Option<JsonText>,
}

impl Content {
    /// Takes the content out of a draft, `count` times: copies, and the original as the last one.
    pub(super) fn of(draft: &mut Draft, count: usize) -> impl Iterator<Item = Self> + use<> {
        let (payload, body) = (draft.payload.take(), core::mem::take(&mut draft.body));
        core::iter::repeat_n(Self { payload, body, metadata: draft.metadata.take() }, count)
    }
}

impl Step<'_> {
    pub(super) fn message(
        &self,
        sender: AgentId,
        draft: &Draft,
        key: Option<Key>,
        content: Content,
        destination: Destination,
    ) -> Message {
        let Destination { conv, depth, to, number, sender_task, grant } = destination;
        let state = self.state();
        let task = sender_task.and_then(|t| state.tasks.get(&t));
        let request = draft.kind == MessageType::Request;
        let hop = task.map_or(0, |t| t.hop);
        let part = match to.filter(|_| request) {
            Some(to) => Part::Request(self.terms(draft, task, to, number)),
            None if draft.caused_by.is_some() => Part::Echo,
            None => Part::Plain,
        };
        Message {
            from: sender,
            to: to.map_or(Recipient::All, Recipient::One),
            kind: draft.kind,
            conv,
            depth,
            hops: hop.saturating_add(u8::from(request && task.is_some())),
            grant,
            sender_task,
            cause: self.cause(task),
            in_reply_to: draft.in_reply_to.or(draft.caused_by),
            key,
            action: draft.action.clone().or_else(|| draft.to.action().cloned()),
            payload: content.payload,
            body: content.body,
            metadata: content.metadata,
            part,
        }
    }

    /// Returns the message that opened the task's turn, otherwise the one that created the task (D1).
    pub(super) fn cause(&self, task: Option<&Task>) -> Option<Seq> {
        let task = task?;
        let turn = task.turn().and_then(|t| self.state().turns.get(&t));
        let opened = turn.and_then(|t| t.delivered.first()).map(|d| d.message);
        opened.or_else(|| task.request.as_ref().map(|r| r.message))
    }

    fn terms(&self, draft: &Draft, task: Option<&Task>, to: AgentId, number: Option<usize>) -> Terms {
        let above = task.and_then(|t| t.request.as_ref()).and_then(|r| r.deadline.get());
        // A request can't outlive the one above it, because only that one's answer needs it.
        let own = draft.deadline_ms.map(|ms| self.now.plus(ms));
        let deadline = match (own, above) {
            (Some(own), Some(above)) => Some(own.min(above)),
            (own, above) => own.or(above),
        };
        let action = matches!(draft.to, Address::Action(_));
        debug_assert!(!action || number.is_none(), "an action is one request");
        Terms {
            task: TaskId(self.state().last_task() + 1),
            request: self.request_id(draft, number),
            priority: draft.priority,
            ack_ms: draft.timeout_ms.unwrap_or_else(|| self.ack_ms(to)),
            deadline,
            wait_until: draft.wait_ms.map(|ms| self.now.plus(ms)),
        }
    }

    /// Returns the client's key, `KEY.1`, `KEY.2`, … for a list, or the next minted number.
    fn request_id(&self, draft: &Draft, number: Option<usize>) -> RequestId {
        let state = self.state();
        let given = draft.request_id.as_ref().and_then(|id| match number {
            None => Some(id.clone()),
            Some(n) => RequestId::new(&alloc::format!("{id}.{n}")).ok(),
        });
        // The id of a remembered request can't name another one; the message keeps the key itself.
        if let Some(id) = given.filter(|id| state.keys.task(id.as_str()).is_none()) {
            return id;
        }
        let minted = (state.last_request() + 1..).filter_map(RequestNumber::id);
        let mut free = minted.filter(|id| !state.keys.contains(id.as_str()));
        free.next().unwrap_or_else(|| unreachable!("there are more numbers than keys"))
    }
}
