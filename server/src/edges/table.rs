//! The table of calls as the server serves it: each call with the function that carries it out. HTTP and sessions read a
//! call from their bytes, carry it out here, and write what comes of it.
//!
//! What is a stream, needs no token, or is on the hot path has a function of its own in its edge.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::LazyLock;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::HeaderValue;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use lastword_facts::fact::{Control, Scope};
use lastword_facts::ids::{ApprovalId, ClaimId, EscalationId, TurnId};
use lastword_facts::names::{OWN_NAME, RequestId};
use lastword_wire::calls::{
    AcceptClock, AddAgent, AddHuman, AmendAgent, AmendHuman, AnswerEscalation, Archive, CancelRequest, ClaimResource,
    DecideOnCall, EndToken, Escalate, Explain, ExtendAgent, ExtendConversation, FinishTurn, GetAgent, GetApproval,
    GetArchives, GetClock, GetConversation, GetEscalation, GetLimits, GetMessage, GetRequest, HoldCall, ListAgents,
    ListApprovals, ListClaims, ListConversations, ListEscalations, ListFailedNotifications, ListHumans, ListIncidents,
    ListMessages, ListRooms, ListSchedules, MakeSignInLink, NarrowToken, OpenRoom, PauseAgent, PauseConversation,
    PauseWorkspace, PostToRoom, ReleaseClaim, RemoveAgent, RemoveSchedule, ReplaceToken, ReplayNotifications,
    ReportProgress, ReportPrompt, ReportUnavailable, ResendNotification, ResumeAgent, ResumeConversation,
    ResumeWorkspace, RunSchedule, SetSchedule, SignCheckpoint, SpendApproval, StopAgent, StopConversation,
    StopWorkspace,
};
use lastword_wire::{
    Call, FieldError, HeldCall, NewAgent, NewClaim, NewEscalation, NewRoom, Page, TypedCall, UseApproval,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::calls::audit::PAGE_BYTES_MAX;
use crate::calls::{
    Caller, Context, agents, approvals, archives, audit, checkpoints, claims, clock, control, conversations, epochs,
    escalations, explanations, grants, humans, incidents, limits, notifications, requests, rooms, schedules, tokens,
    tree, turns,
};
use crate::edges::http::{params, parse, parse_answer, parse_wait};
use crate::error::ApiError;

/// A call of the table with its function.
pub(super) struct Served {
    /// Its row.
    pub(super) call: &'static Call,
    work: CallWork,
}

type CallWork = Box<dyn Fn(Incoming) -> BoxFuture<'static, Result<AnswerJson, ApiError>> + Send + Sync>;

/// A call as its edge read it.
pub(super) struct Incoming {
    pub(super) ctx: Context,
    pub(super) caller: Caller,
    /// The header that authenticates it.
    pub(super) authorization: HeaderValue,
    /// What its path leaves open, decoded; empty if the call is about no one thing.
    pub(super) part: String,
    /// Its query parameters, as an address has them.
    pub(super) query: String,
    /// The key by which a retry is recognized as the same call (Q1).
    pub(super) key: Option<RequestId>,
    /// Its body, a JSON object; empty if it takes none.
    pub(super) body: Bytes,
}

/// What comes of a call: the JSON of its answer; `None` if it has none (status 204).
pub(super) type AnswerJson = Option<Vec<u8>>;

/// Every call that has its function here.
pub(super) static SERVED: LazyLock<Vec<Served>> =
    LazyLock::new(|| [work(), controls(), people(), desk(), log()].into_iter().flatten().collect());

impl Served {
    /// Returns the call with this name in a session.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        SERVED.iter().find(|served| served.call.name == Some(name))
    }

    /// Carries the call out.
    pub(super) fn carry_out(&self, incoming: Incoming) -> BoxFuture<'static, Result<AnswerJson, ApiError>> {
        (self.work)(incoming)
    }
}

/// A call of type `C`.
struct CallOf<C>(Incoming, PhantomData<C>);

impl<C> Deref for CallOf<C> {
    type Target = Incoming;

    fn deref(&self) -> &Incoming {
        &self.0
    }
}

impl<C: TypedCall<Body: DeserializeOwned>> CallOf<C> {
    fn body(&self) -> Result<C::Body, ApiError> {
        parse(&self.body)
    }
}

impl Incoming {
    /// Returns the query parameters. Empty ones are absent.
    fn params<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        params(&self.query)
    }

    /// Returns the id in the path; an invalid one is unknown.
    fn id<T>(&self, parse: impl Fn(&str) -> Option<T>) -> Result<T, ApiError> {
        parse(&self.part).ok_or_else(|| ApiError::unknown(&self.part))
    }

    /// Pauses, resumes or stops the conversation in the path.
    async fn conversation(&self, verb: Control) -> Result<(), ApiError> {
        self.caller.human()?;
        let conv = conversations::find(&self.ctx, self.caller, &self.part).await?;
        control::control(&self.ctx, self.caller, Scope::Conversation(conv), verb).await
    }

    /// Pauses, resumes or stops the agent in the path.
    async fn agent(&self, verb: Control) -> Result<(), ApiError> {
        self.caller.human()?;
        let agent = agents::find(&self.ctx, &self.part).await?;
        control::control(&self.ctx, self.caller, Scope::Agent(agent), verb).await
    }

    /// Pauses, resumes or stops the workspace.
    async fn workspace(&self, verb: Control) -> Result<(), ApiError> {
        control::control(&self.ctx, self.caller, Scope::Workspace, verb).await
    }
}

/// The parameter `wait`, for calls that have no other.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WaitParams {
    wait: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckpointParams {
    /// The position, at which a batch of facts ends; without it, the end of the log.
    at: Option<u64>,
}

/// Puts a call and its function together; the table says what the function gets and what it returns.
fn served<C, F>(work: fn(CallOf<C>) -> F) -> Served
where
    C: TypedCall<Answer: Serialize> + 'static,
    F: Future<Output = Result<C::Answer, ApiError>> + Send + 'static,
{
    let work = move |incoming: Incoming| -> BoxFuture<'static, _> {
        let working = work(CallOf(incoming, PhantomData));
        async move { answer(&working.await?) }.boxed()
    };
    Served { call: C::CALL, work: Box::new(work) }
}

/// Returns the JSON of an answer. `()` and an empty `Option` have none.
fn answer<T: Serialize>(answer: &T) -> Result<AnswerJson, ApiError> {
    let json = serde_json::to_vec(answer).map_err(|error| {
        tracing::error!(%error, "an answer has no JSON");
        ApiError::internal("the answer can't be written")
    })?;
    Ok((json != b"null").then_some(json))
}

fn work() -> Vec<Served> {
    vec![
        served(|it: CallOf<ListMessages>| async move {
            let params: audit::AuditParams = it.params()?;
            if params.q.as_ref().is_some_and(|words| words.trim().is_empty()) {
                let text = "is empty: leave it out, or give words to search for";
                return Err(ApiError::pointless(&FieldError::new("q", text)));
            }
            audit::messages(&it.ctx, it.caller, params).await
        }),
        served(|it: CallOf<GetMessage>| async move { audit::message(&it.ctx, it.caller, &it.part).await }),
        served(|it: CallOf<FinishTurn>| async move {
            // An answer isn't refused for text that isn't well-formed (F6).
            let finish = Box::new(parse_answer(&it.body)?);
            turns::finish(&it.ctx, it.caller, Some(it.id(TurnId::parse)?), finish).await
        }),
        served(|it: CallOf<ReportProgress>| async move {
            turns::progress(&it.ctx, it.caller, Some(it.id(TurnId::parse)?), it.body()?).await
        }),
        served(
            |it: CallOf<ListConversations>| async move { conversations::list(&it.ctx, it.caller, it.params()?).await },
        ),
        served(|it: CallOf<GetConversation>| async move {
            tree::conversation(&it.ctx, it.caller, &it.part, PAGE_BYTES_MAX).await
        }),
        served(|it: CallOf<ExtendConversation>| async move {
            it.caller.human()?;
            let conv = conversations::find(&it.ctx, it.caller, &it.part).await?;
            let extended = grants::extend(&it.ctx, it.caller, conv, it.body()?).await?;
            Ok(Some(extended).filter(|extended| !extended.held_by.is_empty()))
        }),
        served(|it: CallOf<GetRequest>| async move { requests::show(&it.ctx, it.caller, &it.part).await }),
        served(|it: CallOf<CancelRequest>| async move { requests::cancel(&it.ctx, it.caller, &it.part).await }),
        served(|it: CallOf<Explain>| async move { explanations::explain(&it.ctx, it.caller, &it.part).await }),
        served(|it: CallOf<ListIncidents>| async move { incidents::list(&it.ctx, it.caller).await }),
        served(|it: CallOf<ListClaims>| async move { claims::list(&it.ctx).await }),
        served(|it: CallOf<ClaimResource>| async move {
            let new = NewClaim { key: it.key.clone(), ..it.body()? };
            claims::take(&it.ctx, it.caller, new).await
        }),
        served(
            |it: CallOf<ReleaseClaim>| async move { claims::release(&it.ctx, it.caller, it.id(ClaimId::parse)?).await },
        ),
    ]
}

fn controls() -> Vec<Served> {
    vec![
        served(|it: CallOf<PauseConversation>| async move { it.conversation(Control::Pause).await }),
        served(|it: CallOf<ResumeConversation>| async move { it.conversation(Control::Resume).await }),
        served(|it: CallOf<StopConversation>| async move { it.conversation(Control::Stop).await }),
        served(|it: CallOf<PauseAgent>| async move { it.agent(Control::Pause).await }),
        served(|it: CallOf<ResumeAgent>| async move { it.agent(Control::Resume).await }),
        served(|it: CallOf<StopAgent>| async move { it.agent(Control::Stop).await }),
        served(|it: CallOf<PauseWorkspace>| async move { it.workspace(Control::Pause).await }),
        served(|it: CallOf<ResumeWorkspace>| async move { it.workspace(Control::Resume).await }),
        served(|it: CallOf<StopWorkspace>| async move { it.workspace(Control::Stop).await }),
    ]
}

fn people() -> Vec<Served> {
    vec![
        served(|it: CallOf<ListAgents>| async move { agents::list(&it.ctx).await }),
        served(|it: CallOf<AddAgent>| async move {
            let new = NewAgent { key: it.key.clone(), ..it.body()? };
            it.caller.human()?;
            agents::add(&it.ctx, it.caller, new).await
        }),
        served(|it: CallOf<GetAgent>| async move {
            match it.part.as_str() {
                OWN_NAME => agents::own(&it.ctx, it.caller).await,
                name => agents::show(&it.ctx, name).await,
            }
        }),
        served(|it: CallOf<AmendAgent>| async move { agents::amend(&it.ctx, it.caller, &it.part, it.body()?).await }),
        served(|it: CallOf<RemoveAgent>| async move { agents::remove(&it.ctx, it.caller, &it.part).await }),
        served(|it: CallOf<ExtendAgent>| async move { agents::grant(&it.ctx, it.caller, &it.part, it.body()?).await }),
        served(
            |it: CallOf<ReportPrompt>| async move { agents::prompt(&it.ctx, it.caller, &it.part, it.body()?).await },
        ),
        served(|it: CallOf<ReportUnavailable>| async move {
            agents::unavailable(&it.ctx, it.caller, &it.part, it.body()?).await
        }),
        served(|it: CallOf<ReplaceToken>| async move {
            it.caller.human()?;
            agents::rekey(&it.ctx, it.caller, &it.part, it.body()?).await
        }),
        served(|it: CallOf<ListHumans>| async move { humans::list(&it.ctx).await }),
        served(|it: CallOf<AddHuman>| async move {
            let new = NewAgent { key: it.key.clone(), ..it.body()?.into() };
            it.caller.human()?;
            agents::add(&it.ctx, it.caller, new).await
        }),
        served(|it: CallOf<AmendHuman>| async move {
            humans::set_role(&it.ctx, it.caller, &it.part, it.body()?.role).await
        }),
        served(|it: CallOf<MakeSignInLink>| async move { tokens::link(&it.ctx, it.caller) }),
        served(|it: CallOf<NarrowToken>| async move { tokens::narrow(&it.ctx, it.caller, it.body()?).await }),
        served(|it: CallOf<EndToken>| async move {
            let token = it.authorization.to_str().ok().and_then(|header| header.split_once(' '));
            let token = token.map_or("", |(_, token)| token.trim()).to_owned();
            tokens::end(&it.ctx, it.caller, token).await
        }),
        served(|it: CallOf<ListRooms>| async move { rooms::list(&it.ctx, it.caller).await }),
        served(|it: CallOf<OpenRoom>| async move {
            let new = NewRoom { key: it.key.clone(), ..it.body()? };
            rooms::open(&it.ctx, it.caller, new).await
        }),
        served(|it: CallOf<PostToRoom>| async move {
            rooms::post(&it.ctx, it.caller, &it.part, it.body()?, it.key.clone()).await
        }),
    ]
}

fn desk() -> Vec<Served> {
    vec![
        served(|it: CallOf<ListEscalations>| async move { escalations::list(&it.ctx, it.caller, &it.params()?).await }),
        served(|it: CallOf<Escalate>| async move {
            let new = NewEscalation { key: it.key.clone(), ..it.body()? };
            escalations::escalate(&it.ctx, it.caller, new).await
        }),
        served(|it: CallOf<GetEscalation>| async move {
            let found = escalations::seen(&it.ctx, it.caller, it.id(EscalationId::parse)?).await?;
            epochs::found(&it.ctx, &it.part, found).await
        }),
        served(|it: CallOf<AnswerEscalation>| async move {
            escalations::answer(&it.ctx, it.caller, it.id(EscalationId::parse)?, &it.body()?).await
        }),
        served(|it: CallOf<ListApprovals>| async move {
            let page: Page<_> = approvals::list(&it.ctx, it.caller, &it.params()?).await?;
            // The list shows each call in full, so its reader may decide without the digest (H2).
            it.ctx.shown.remember_views(it.caller.principal.agent(), &page.items);
            Ok(page)
        }),
        served(|it: CallOf<HoldCall>| async move {
            let call = HeldCall { key: it.key.clone(), ..it.body()? };
            approvals::hold(&it.ctx, it.caller, call).await
        }),
        served(|it: CallOf<GetApproval>| async move {
            let WaitParams { wait } = it.params()?;
            let wait = wait.as_deref().map(parse_wait).transpose()?.unwrap_or(Duration::ZERO);
            let view = approvals::show(&it.ctx, it.caller, it.id(ApprovalId::parse)?, wait).await?;
            it.ctx.shown.remember_views(it.caller.principal.agent(), [&view]);
            Ok(view)
        }),
        served(|it: CallOf<DecideOnCall>| async move {
            approvals::decide(&it.ctx, it.caller, it.id(ApprovalId::parse)?, it.body()?, None).await
        }),
        served(|it: CallOf<SpendApproval>| async move {
            let call = UseApproval { key: it.key.clone(), ..it.body()? };
            approvals::spend(&it.ctx, it.caller, it.id(ApprovalId::parse)?, call).await
        }),
        served(|it: CallOf<ListSchedules>| async move { schedules::list(&it.ctx, it.caller).await }),
        served(|it: CallOf<SetSchedule>| async move { schedules::set(&it.ctx, it.caller, it.body()?).await }),
        served(|it: CallOf<RemoveSchedule>| async move { schedules::remove(&it.ctx, it.caller, &it.part).await }),
        served(|it: CallOf<RunSchedule>| async move { schedules::run(&it.ctx, it.caller, &it.part).await }),
    ]
}

fn log() -> Vec<Served> {
    vec![
        served(|it: CallOf<ListFailedNotifications>| async move { notifications::failed(&it.ctx, it.caller).await }),
        served(
            |it: CallOf<ReplayNotifications>| async move { notifications::replay(&it.ctx, it.caller, it.body()?).await },
        ),
        served(
            |it: CallOf<ResendNotification>| async move { notifications::resend(&it.ctx, it.caller, &it.part).await },
        ),
        served(|it: CallOf<GetLimits>| async move { limits::in_force(&it.ctx).await }),
        served(|it: CallOf<GetArchives>| async move { archives::show(&it.ctx, it.caller).await }),
        served(|it: CallOf<Archive>| async move { archives::move_now(&it.ctx, it.caller, it.body()?).await }),
        served(|it: CallOf<SignCheckpoint>| async move {
            let CheckpointParams { at } = it.params()?;
            Ok(checkpoints::sign(&it.ctx, it.caller, at).await?.to_string())
        }),
        served(|it: CallOf<GetClock>| async move { Ok(clock::show(&it.ctx)) }),
        served(|it: CallOf<AcceptClock>| async move { clock::accept(&it.ctx, it.caller).await }),
    ]
}

#[cfg(test)]
mod tests {
    use lastword_wire::CALLS;
    use lastword_wire::calls::{BackUp, GetSignInProvider, SendMessage, SignIn, StreamEvents, TakeDelivery};

    use super::*;

    /// The calls that HTTP serves by functions of its own.
    const OWN: [&Call; 6] = [
        SendMessage::CALL,
        TakeDelivery::CALL,
        StreamEvents::CALL,
        BackUp::CALL,
        GetSignInProvider::CALL,
        SignIn::CALL,
    ];

    #[test]
    fn every_call_is_served_once() {
        for call in CALLS {
            let times = SERVED.iter().filter(|served| served.call == *call).count() + usize::from(OWN.contains(call));
            assert_eq!(times, 1, "{} {}", call.method, call.path);
        }
        assert_eq!(SERVED.len() + OWN.len(), CALLS.len());
    }

    #[test]
    fn only_calls_without_an_answer_have_status_204() {
        for call in CALLS {
            assert_eq!(call.status == 204, call.answer.is_none(), "{} {}", call.method, call.path);
        }
    }
}
