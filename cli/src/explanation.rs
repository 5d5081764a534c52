//! Words an explanation: what happened, the rule and its numbers, the chain from the grant down, and the next step.

use lastword_client::wire::{
    CausalLink, Explanation, IncidentView, RefusedSend, StoredMessage, Subject, amount, is_cost,
};
use lastword_facts::MessageType;
use lastword_facts::status::ApprovalState;
use lastword_facts::status::EscalationState;

use crate::out::{Out, StyledLine, Tone, escape_line};
use crate::render;
use crate::tree::{self, kind_tone, plain};

mod exchange;

/// Formats the whole explanation.
pub(crate) fn words(told: &Explanation, out: &Out) -> String {
    let mut lines = Vec::new();
    let mut text = String::new();
    match told.subject {
        Subject::Message => lines.extend(told.message.as_ref().into_iter().flat_map(message)),
        Subject::Refusal | Subject::Observed => {
            lines.extend(told.refused.as_ref().into_iter().flat_map(|one| refused(told, one)))
        }
        Subject::Approval => text = told.approval.as_ref().map(|view| render::approval(view, out)).unwrap_or_default(),
        Subject::Escalation => {
            text = told.escalation.as_ref().map(|view| render::escalation(view, out)).unwrap_or_default()
        }
        Subject::Incident => lines.extend(told.incident.as_ref().into_iter().flat_map(incident)),
        Subject::Grant => lines.extend(told.grant.iter().flat_map(tree::grant)),
        Subject::Conversation => {}
    }
    match told.subject {
        Subject::Incident | Subject::Grant | Subject::Conversation => {
            lines.extend(told.conversation.as_ref().map(tree::heading));
            let named = told.subject != Subject::Grant;
            lines.extend(told.grant.iter().filter(|_| named).flat_map(tree::grant));
        }
        Subject::Message | Subject::Refusal | Subject::Observed | Subject::Approval | Subject::Escalation => {
            lines.extend(chain(told));
        }
    }
    lines.extend(told.exchange.as_ref().map(exchange::lines).unwrap_or_default());
    lines.extend(standing(told));
    lines.extend(next(told));
    [text, out.whole(lines)].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
}

fn head(text: &str) -> StyledLine {
    vec![(Tone::Strong, text.to_owned())]
}

fn indented(tone: Tone, text: String) -> StyledLine {
    vec![plain("  "), (tone, text)]
}

fn message(message: &StoredMessage) -> Vec<StyledLine> {
    let mut first = vec![(Tone::Faint, format!("{}  ", message.id))];
    first.extend(tree::route(message));
    first.push(plain(format!(" {}", escape_line(&message.reference))));
    if let Some(outcome) = message.outcome() {
        first.push((render::outcome_tone(outcome), format!("  {}", outcome.label())));
    }
    first.push((Tone::Faint, format!("  admitted at {}, {}", message.created_at, message.delivery_state)));
    vec![
        first,
        indented(Tone::Plain, format!("depth {}: {} (D2)", message.depth, depth(message))),
        indented(Tone::Plain, format!("hop {}: {} (D4)", message.hops, hops(message))),
    ]
}

/// Explains a message's depth.
fn depth(message: &StoredMessage) -> &'static str {
    match (message.depth, message.kind, &message.cause) {
        (_, MessageType::Response, None) => "an answer given by the broker or a human",
        (0, _, None) => "sent outside every turn, at the start of a conversation",
        (0, _, Some(_)) => "its task had received only messages from a human here, which add no depth",
        _ => "one more than the deepest message of this conversation received by its task",
    }
}

fn hops(message: &StoredMessage) -> String {
    match (message.hops, message.kind) {
        (0, _) => "the grant's own request, or its answer".to_owned(),
        (1, _) => "the work was delegated once since the grant".to_owned(),
        (hops, _) => format!("the work was delegated {hops} times since the grant"),
    }
}

fn refused(told: &Explanation, refused: &RefusedSend) -> Vec<StyledLine> {
    let problem = &refused.problem;
    let observed = told.subject == Subject::Observed;
    let (mark, tone) = if observed { ("!", Tone::Warn) } else { ("✗", Tone::Bad) };
    let to = refused.to.as_deref().map(|to| format!(" → {}", escape_line(to))).unwrap_or_default();
    let mut first =
        vec![(tone, format!("{mark} {}  ", told.id)), (Tone::Strong, format!("{}{to}", escape_line(&refused.from)))];
    if let Some(kind) = refused.kind {
        first.push((kind_tone(kind), format!(" {}", kind.keyword())));
    }
    if let Some(reference) = &refused.reference {
        first.push(plain(format!(" {}", escape_line(reference))));
    }
    let verb = if observed { "let through at" } else { "refused at" };
    first.push((Tone::Faint, format!("  {verb} {}", told.at)));
    let mut lines = vec![first];
    lines.push(vec![
        plain("  "),
        (tone, format!("{} ({})", problem.code, problem.rule)),
        plain(format!(": {}", escape_line(&problem.detail))),
    ]);
    if let (Some(limit), Some(current)) = (problem.limit, problem.current) {
        let [limit, current] = [limit, current].map(|n| amount(problem.is_cost, n));
        lines.push(indented(Tone::Plain, format!("limit {limit}, would have been {current}")));
    }
    if observed {
        lines.push(indented(Tone::Plain, "the guard only observes (`observe` in lastword.toml)".to_owned()));
    }
    lines
}

/// Formats an incident: the limit that tripped, and whether it still holds work.
fn incident(incident: &IncidentView) -> Vec<StyledLine> {
    let on = format!("{} {}", incident.scope, escape_line(&incident.on));
    let first = vec![
        (Tone::Strong, format!("{}  ", incident.id)),
        (Tone::Bad, incident.code.word().to_owned()),
        plain(format!(" on {on}")),
        (Tone::Faint, format!("  at {}", incident.at)),
    ];
    let rule = incident.code.rule();
    let mut lines = vec![first];
    let [current, limit] = incident.amounts();
    let numbers = format!("{} ({rule}): limit {limit}, {current}", incident.code.title());
    lines.push(indented(Tone::Plain, numbers));
    if let Some(at) = &incident.lifted_at {
        let ended = match &incident.lifted_by {
            Some(by) => format!("lifted by {} at {at}", escape_line(by)),
            None => format!("ended with its grant at {at}"),
        };
        lines.push(indented(Tone::Good, ended));
    } else if !incident.parked.is_empty() {
        let held = incident.parked.iter().map(|id| escape_line(id)).collect::<Vec<_>>().join(", ");
        lines.push(indented(Tone::Bad, format!("holds {held}")));
    }
    lines
}

/// Formats the chain of causes from the grant down to the message.
fn chain(told: &Explanation) -> Vec<StyledLine> {
    let mut lines = Vec::new();
    if told.chain.is_empty() && told.grant.is_none() {
        lines.push(vec![(Tone::Faint, "not caused by a grant or a message".to_owned())]);
        return lines;
    }
    lines.push(head("from the grant down"));
    lines.extend(told.grant.iter().flat_map(tree::grant));
    let width =
        |part: fn(&CausalLink) -> String| told.chain.iter().map(|link| part(link).chars().count()).max().unwrap_or(0);
    let (ids, routes) = (width(|link| link.id.clone()), width(route));
    let refs = width(|link| escape_line(&link.reference));
    for link in &told.chain {
        let own = link.id == told.id;
        lines.push(vec![
            (Tone::Faint, format!("  {:ids$}  ", link.id)),
            (if own { Tone::Strong } else { Tone::Plain }, format!("{:routes$}  ", route(link))),
            (kind_tone(link.kind), format!("{:<9} ", link.kind.keyword())),
            plain(format!("{:refs$}  ", escape_line(&link.reference))),
            (Tone::Faint, format!("depth {} hop {}", link.depth, link.hops)),
        ]);
    }
    lines
}

fn route(link: &CausalLink) -> String {
    format!("{} → {}", escape_line(&link.from), escape_line(&link.to))
}

/// Formats the remaining limits, and what holds the message.
fn standing(told: &Explanation) -> Vec<StyledLine> {
    let mut lines = Vec::new();
    if !told.limits.is_empty() {
        lines.push(head("limits"));
        for limit in &told.limits {
            let left = format!("  {} left", amount(is_cost(&limit.name), limit.left));
            lines.push(vec![plain("  "), tree::used(&limit.name, limit), (Tone::Faint, left)]);
        }
    }
    lines.extend(tree::held(&told.held_by));
    lines
}

/// Lists the next steps.
fn next(told: &Explanation) -> Vec<StyledLine> {
    let mut steps: Vec<String> = Vec::new();
    if let Some(refused) = &told.refused {
        steps.push(format!("the sender: {}", refused.problem.hint));
        if let Some(ms) = refused.problem.retry_after_ms {
            steps.push(format!("can be resent after {}", tree::duration(ms)));
        }
        steps.extend(refused.problem.lift.as_ref().map(|lift| format!("a human: {}", lift.cli)));
    }
    if let Some(view) = told.approval.as_ref().filter(|view| view.state == ApprovalState::Pending) {
        steps.push(format!("may decide: {}, until {}", told.deciders.join(", "), view.due()));
        steps.push(format!("lastword approve {} or lastword reject {}", view.id, view.id));
    }
    if let Some(view) = told.escalation.as_ref().filter(|view| view.state == EscalationState::Open) {
        steps.push(format!("a human: lastword answer {} \"…\"", view.id));
    }
    if steps.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![head("what to do")];
    lines.extend(steps.into_iter().map(|step| indented(Tone::Plain, escape_line(&step))));
    lines
}
