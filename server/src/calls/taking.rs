//! What a client of an agent takes: what is new, or what it holds (F1).

use lastword_broker::{Claimable, Live, Parcel};
use lastword_core::input::{self, Consumer};
use lastword_core::{Input, Reply};
use lastword_facts::ids::TurnId;
use lastword_facts::{Code, Refusal};
use lastword_wire::Delivery;

use super::{Caller, Context, fault_of};
use crate::error::ApiError;
use crate::views::{self, Shown};

/// What a caller took.
pub enum Taking {
    /// A delivery, which starts a turn.
    Delivery(Box<Delivery>),
    /// Nothing came.
    Nothing {
        /// Whether another live client of the agent holds a delivery (F1).
        held: bool,
    },
}

impl Taking {
    /// Returns the delivery, if there is one.
    pub fn delivery(self) -> Option<Delivery> {
        match self {
            Self::Delivery(delivery) => Some(*delivery),
            Self::Nothing { .. } => None,
        }
    }
}

/// Returns the turn that answers join which the caller takes, if it can only continue that one.
pub(super) fn only(claimable: &Claimable) -> Option<TurnId> {
    match (&*claimable.own, &*claimable.shared) {
        ([turn], []) | ([], [turn]) if claimable.full => Some(*turn),
        _ => None,
    }
}

/// A delivery, with its message if that is still in memory.
pub(crate) type Taken = (Parcel, Option<Vec<Shown>>);

/// What a caller takes, or what it may do with the open turns if there is nothing.
pub(super) type Found<T> = Result<T, Claimable>;

/// Takes the next delivery: one that opens a turn, or what joins or repeats one that the client holds.
pub(super) async fn taken(ctx: &Context, caller: Caller, consumer: Consumer) -> Result<Found<Taken>, ApiError> {
    if caller.turn.is_some() || caller.principal.is_human() {
        return submitted(ctx, caller, Input::Take(caller.principal, caller.turn)).await;
    }
    let claimable = match submitted(ctx, caller, Input::Receive(caller.principal, consumer)).await? {
        // There is nothing new, and no room for it: what the client holds goes on.
        Err(claimable) if claimable.full => claimable,
        found => return Ok(found),
    };
    match (&*claimable.own, &*claimable.shared) {
        ([], []) => Ok(Err(claimable)),
        ([], [turn]) => submitted(ctx, caller, Input::Take(caller.principal, Some(*turn))).await,
        ([], _) => Err(Refusal::new(Code::TurnRequired).into()),
        _ => submitted(ctx, caller, Input::Resume(caller.principal, claimable.own)).await,
    }
}

async fn submitted(ctx: &Context, caller: Caller, input: Input) -> Result<Found<Taken>, ApiError> {
    let handle = ctx.handle.clone();
    let (agent, client) = (caller.principal.agent(), caller.client);
    let named = matches!(input, Input::Take(..));
    // Wrapped on the broker's thread: from here on the delivery can't be lost, whatever happens to the caller.
    let then = move |reply: Reply, live: &Live<'_>| match reply {
        Reply::Delivery(found) => {
            let mine = |of: &input::Delivery| of.turn.is_none_or(|open| live.hold(agent, open.turn, client) || named);
            let found = found.filter(mine).map(|delivery| {
                let shown = views::shown(live, &[delivery.message]);
                (handle.parcel(agent, delivery), shown)
            });
            Ok(found.ok_or_else(|| live.claimable(agent, client)))
        }
        other => Err(other),
    };
    match ctx.handle.submit_then(input, then).await? {
        Ok(found) => Ok(found),
        Err(other) => Err(fault_of(other)),
    }
}

/// Returns whether the caller may continue a turn of its agent.
pub(super) fn may_continue(ctx: &Context, caller: Caller, turn: TurnId) -> bool {
    let holder = || ctx.handle.holders().may_continue(caller.principal.agent(), turn, caller.client, ctx.handle.now());
    caller.turn.map_or_else(holder, |named| named == turn)
}
