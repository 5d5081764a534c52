//! Explanations: the rule and the numbers behind a refusal or hold, and the chain from the grant down to it (G3).

use lastword_broker::Live;
use lastword_core::state::IncidentOn;
use lastword_facts::fact::{Latched, Place};
use lastword_facts::ids::{AgentId, ApprovalId, ConvId, EscalationId, GrantId, IncidentId};
use lastword_facts::limits::Approvers;
use lastword_facts::{Code, Entry, Fact, Message, Seq};
use lastword_wire::{CausalLink, Explanation, Subject, rfc3339};

use super::{Caller, Context, approvals, conversations, epochs, escalations, exchanges, incidents};
use crate::error::{ApiError, record_of};
use crate::views::{self, ExplainContext, Shown};

/// The longest chain that is shown; a grant's totals make longer ones rare (D8).
const CHAIN_MAX: usize = 64;

/// Explains a message (`msg-12`), a recorded refusal (`refused-12`), an approval, an escalation, an incident, a grant
/// or a conversation.
pub async fn explain(ctx: &Context, caller: Caller, id: &str) -> Result<Explanation, ApiError> {
    match told(ctx, caller, id).await {
        Err(error) if error.0.code == Code::UnknownRequest => Err(epochs::unknown(ctx, id).await),
        told => told,
    }
}

async fn told(ctx: &Context, caller: Caller, id: &str) -> Result<Explanation, ApiError> {
    if let Some(approval) = ApprovalId::parse(id) {
        return of_approval(ctx, caller, approval).await;
    }
    if let Some(escalation) = EscalationId::parse(id) {
        return of_escalation(ctx, caller, escalation).await;
    }
    if let Some(incident) = IncidentId::parse(id) {
        return of_incident(ctx, caller, incident).await;
    }
    if let Some(grant) = GrantId::parse(id) {
        caller.human()?;
        return of_grant(ctx, grant).await;
    }
    let unknown = || ApiError::unknown(id);
    let Some(seq) = Seq::parse(id).or_else(|| record_of(id)) else {
        let conv = conversations::find(ctx, caller, id).await?;
        return of_conversation(ctx, conv).await;
    };
    let entries = ctx.handle.entries(vec![seq]).await?;
    let (_, entry) = entries.into_iter().next().ok_or_else(unknown)?;
    match &entry.fact {
        Fact::Accepted { message } => of_message(ctx, caller, seq, &entry, message).await,
        _ => of_record(ctx, caller, id, seq, &entry).await,
    }
}

async fn of_message(
    ctx: &Context,
    caller: Caller,
    seq: Seq,
    entry: &Entry,
    message: &Message,
) -> Result<Explanation, ApiError> {
    let shown = views::show(&ctx.handle, vec![seq]).await?;
    let stored = readable(ctx, caller, shown)
        .await?
        .and_then(Shown::stored)
        .ok_or_else(|| ApiError::unknown(&seq.to_string()))?;
    let (about, of) = (message.clone(), message.clone());
    let standing = ctx.handle.query(move |live| ExplainContext::of(live.state, &about)).await?;
    let above = message.cause.or(message.in_reply_to);
    let mut chain = chain(ctx, caller, above).await?;
    chain.push(views::link(stored.clone()));
    let mut told = standing_of(ctx, blank(seq.to_string(), Subject::Message, rfc3339(entry.at)), standing).await?;
    // Show the message's own depth and hops, not those that the conversation has reached since.
    for limit in &mut told.limits {
        match limit.name.as_str() {
            "depth_max" => limit.current = of.depth.into(),
            "hops_max" => limit.current = of.hops.into(),
            _ => {}
        }
        limit.left = limit.limit.saturating_sub(limit.current);
    }
    if stored.delivery_state == lastword_wire::DeliveryState::Settled {
        told.holds.clear();
        told.held_by.clear();
    }
    let exchange = exchanges::of_message(ctx, caller, seq, message).await?;
    Ok(Explanation { chain, message: Some(stored), exchange, ..told })
}

async fn of_record(ctx: &Context, caller: Caller, id: &str, seq: Seq, entry: &Entry) -> Result<Explanation, ApiError> {
    let fact = entry.fact.clone();
    let look = move |live: &Live<'_>| {
        let (agent, turn, told) = views::refused(live.state, seq, &fact)?;
        let standing = ExplainContext::in_turn(live.state, turn, agent);
        Some((agent, told, standing, standing.begin(live.state)))
    };
    let found = ctx.handle.query(look).await?;
    // Only the refused agent and humans may see it. For all others it looks like an unknown id.
    let may = |agent: AgentId| caller.principal.is_human() || caller.principal.agent() == agent;
    let (_, refused, standing, begin) = found.filter(|(agent, ..)| may(*agent)).ok_or_else(|| ApiError::unknown(id))?;
    let subject = if matches!(entry.fact, Fact::Observed { .. }) { Subject::Observed } else { Subject::Refusal };
    let id = refused.problem.record.clone().unwrap_or_default();
    let told = standing_of(ctx, blank(id, subject, rfc3339(entry.at)), standing).await?;
    let chain = chain(ctx, caller, begin).await?;
    let exchange = exchanges::of_refusal(ctx, caller, seq, entry).await?;
    Ok(Explanation { chain, refused: Some(refused), exchange, ..told })
}

async fn of_approval(ctx: &Context, caller: Caller, id: ApprovalId) -> Result<Explanation, ApiError> {
    let approval = approvals::show(ctx, caller, id, std::time::Duration::ZERO).await?;
    let look = move |live: &Live<'_>| {
        let known = live.state.approvals.get(&id)?;
        let ruled = known.rule.as_ref().and_then(|rule| rule.who.as_ref());
        let standing = ExplainContext::in_task(live.state, known.task, known.agent);
        let who = deciders(ruled.unwrap_or(&live.state.limits.approvers));
        Some((standing, standing.begin(live.state), who))
    };
    let found = ctx.handle.query(look).await?;
    let (standing, begin, deciders) = found.ok_or_else(|| ApiError::unknown(&id.to_string()))?;
    let told = blank(id.to_string(), Subject::Approval, approval.created_at.clone());
    let told = standing_of(ctx, told, standing).await?;
    let chain = chain(ctx, caller, begin).await?;
    Ok(Explanation { chain, deciders, approval: Some(approval), ..told })
}

async fn of_escalation(ctx: &Context, caller: Caller, id: EscalationId) -> Result<Explanation, ApiError> {
    let escalation = escalations::seen(ctx, caller, id).await?.ok_or_else(|| ApiError::unknown(&id.to_string()))?;
    let look = move |live: &Live<'_>| {
        let known = live.state.escalations.get(&id)?;
        let task = ExplainContext::in_task(live.state, known.task, known.agent);
        let standing = ExplainContext { conv: Some(known.conv), ..task };
        Some((standing, standing.begin(live.state)))
    };
    let found = ctx.handle.query(look).await?;
    let (standing, begin) = found.ok_or_else(|| ApiError::unknown(&id.to_string()))?;
    let told = blank(id.to_string(), Subject::Escalation, escalation.created_at.clone());
    let told = standing_of(ctx, told, standing).await?;
    let chain = chain(ctx, caller, begin).await?;
    let exchange = exchanges::of_escalation(ctx, caller, id).await?;
    Ok(Explanation { chain, deciders: vec!["human".into()], escalation: Some(escalation), exchange, ..told })
}

async fn of_incident(ctx: &Context, caller: Caller, id: IncidentId) -> Result<Explanation, ApiError> {
    let unknown = || ApiError::unknown(&id.to_string());
    let seen = incidents::list(ctx, caller).await?.items.into_iter().find(|incident| incident.id == id.to_string());
    let incident = seen.ok_or_else(unknown)?;
    let told = blank(id.to_string(), Subject::Incident, incident.at.clone());
    let look = move |live: &Live<'_>| {
        let known = live.state.incidents.get(&id)?;
        let open = known.lifted.is_none();
        let told = match known.on {
            IncidentOn::Latch(Latched::Grant(grant)) => Explanation {
                grant: views::grant(live.state, grant),
                held_by: if open { views::held_in_grant(live.state, grant) } else { Vec::new() },
                ..told
            },
            IncidentOn::Latch(Latched::Place(Place::Conversation(conv))) => Explanation {
                conversation: live.state.conversations.get(&conv).map(|known| views::summary(live.state, known)),
                held_by: if open { views::held_in_conversation(live.state, conv) } else { Vec::new() },
                ..told
            },
            IncidentOn::Latch(Latched::Place(Place::Room(room))) => {
                Explanation { held_by: views::held_in_room(live.state, room, known).into_iter().collect(), ..told }
            }
            // It blocks nothing.
            IncidentOn::Agent(_) => told,
        };
        Some(told)
    };
    let told = ctx.handle.query(look).await?.ok_or_else(unknown)?;
    Ok(Explanation { incident: Some(incident), ..told })
}

async fn of_grant(ctx: &Context, id: GrantId) -> Result<Explanation, ApiError> {
    let look = move |live: &Live<'_>| {
        let known = live.state.grants.get(&id)?;
        let conversation = live.state.conversations.get(&known.conv);
        Some(Explanation {
            grant: views::grant(live.state, id),
            conversation: conversation.map(|known| views::summary(live.state, known)),
            held_by: views::held_in_grant(live.state, id),
            ..blank(id.to_string(), Subject::Grant, rfc3339(known.opened_at))
        })
    };
    ctx.handle.query(look).await?.ok_or_else(|| ApiError::unknown(&id.to_string()))
}

async fn of_conversation(ctx: &Context, id: ConvId) -> Result<Explanation, ApiError> {
    let look = move |live: &Live<'_>| {
        let known = live.state.conversations.get(&id)?;
        let (summary, reference) = (views::summary(live.state, known), known.reference.to_string());
        let standing = ExplainContext { conv: Some(id), grant: known.grant.get(), ..ExplainContext::default() };
        Some(Explanation {
            conversation: Some(summary),
            grant: standing.grant(live.state),
            limits: standing.limits(live.state),
            holds: standing.holds(live.state),
            held_by: views::held_in_conversation(live.state, id),
            ..blank(reference, Subject::Conversation, rfc3339(known.opened_at))
        })
    };
    ctx.handle.query(look).await?.ok_or_else(|| ApiError::unknown(&id.to_string()))
}

/// Adds the current limits, grant and holds.
async fn standing_of(ctx: &Context, told: Explanation, standing: ExplainContext) -> Result<Explanation, ApiError> {
    let look = move |live: &Live<'_>| Explanation {
        limits: standing.limits(live.state),
        grant: standing.grant(live.state),
        holds: standing.holds(live.state),
        held_by: views::held(live.state, standing),
        ..told
    };
    Ok(ctx.handle.query(look).await?)
}

const fn blank(id: String, subject: Subject, at: String) -> Explanation {
    Explanation {
        id,
        subject,
        at,
        message: None,
        refused: None,
        approval: None,
        deciders: Vec::new(),
        escalation: None,
        incident: None,
        conversation: None,
        holds: Vec::new(),
        held_by: Vec::new(),
        chain: Vec::new(),
        limits: Vec::new(),
        grant: None,
        exchange: None,
    }
}

fn deciders(approvers: &Approvers) -> Vec<String> {
    let asker = approvers.asker.then(|| "asker".to_owned());
    let agents = approvers.agents.iter().map(ToString::to_string);
    ["human".to_owned()].into_iter().chain(asker).chain(agents).collect()
}

/// Returns the messages from the grant down to `last`, as far as the caller may read them.
async fn chain(ctx: &Context, caller: Caller, last: Option<Seq>) -> Result<Vec<CausalLink>, ApiError> {
    let mut links = Vec::new();
    let mut next = last;
    // A cause always has a lower position than its effect, so the walk ends even without the maximum.
    while let Some(seq) = next.filter(|_| links.len() < CHAIN_MAX) {
        let shown = views::show(&ctx.handle, vec![seq]).await?;
        let above = shown.first().and_then(Shown::message).and_then(|message| message.cause.or(message.in_reply_to));
        next = above.filter(|above| *above < seq);
        links.extend(readable(ctx, caller, shown).await?.and_then(Shown::stored).map(views::link));
    }
    links.reverse();
    Ok(links)
}

/// Returns the first of these messages if the caller may read it.
async fn readable(ctx: &Context, caller: Caller, shown: Vec<Shown>) -> Result<Option<Shown>, ApiError> {
    Ok(super::audit::readable(ctx, caller.principal, shown).await?.into_iter().next())
}
