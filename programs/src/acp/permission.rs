//! Turns a permission request into an approval, and the approval's decision into the response (H2).

use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol_schema::v1::{
    PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest, SelectedPermissionOutcome,
    ToolCallUpdateFields,
};
use lastword_client::wire::{ApprovalView, Arguments, HeldCall, Inexact, UseApproval, quote};
use lastword_client::{Client, ClientError};
use lastword_facts::status::ApprovalState;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use super::updates::{PendingPermission, Route};
use crate::edits::{self, ClaimLasts, Claimed, ToolCall, Verdict};
use crate::event::Event;
use crate::run::{Run, RunnerContext};
use crate::watch::{RunStatus, stopped};
use crate::wording::{self, Denial, Remedy};

/// Longest wait for a decision in one call; the call is repeated.
const POLL: Duration = Duration::from_secs(30);

/// A call that awaits its decision.
pub(super) struct PermissionRequest {
    held: AskedCall,
    run_status: watch::Receiver<RunStatus>,
    asked: PendingPermission,
}

/// The call, as the broker holds it.
struct AskedCall {
    client: Client,
    route: Arc<Route>,
    /// Its id in the session.
    call: String,
    turn: String,
    tool: String,
    arguments: Value,
    /// The runner's settings allow this tool without approval.
    allowed: bool,
}

/// The outcome of a permission request.
enum CallDecision {
    /// It may be made under these claims.
    Allowed(Vec<Claimed>),
    Denied {
        reason: String,
        /// The name and kind of the decider, such as `the human ann`.
        decider: String,
        /// The decider's comment for the agent.
        comment: Option<String>,
        remedy: Remedy,
    },
}

impl CallDecision {
    /// Returns a denial without a decision.
    fn failed(reason: String) -> Self {
        Self::Denied { reason, decider: String::new(), comment: None, remedy: Remedy::None }
    }

    /// Returns the denial of a call that would change what another task holds.
    fn conflict(held: edits::Held) -> Self {
        Self::Denied { reason: held.told, decider: String::new(), comment: None, remedy: Remedy::Conflict }
    }
}

impl PermissionRequest {
    pub(super) fn new(shared: &RunnerContext, run: &Run, route: &Arc<Route>, asked: PendingPermission) -> Self {
        let call = &asked.request.tool_call;
        let known = route.call(&call.tool_call_id.0, call.fields.clone());
        let (tool, arguments) = held(&known);
        // Match only the tool's name: the model chooses the title.
        let allowed = known.name.as_ref().is_some_and(|name| shared.settings.allows(name));
        let (client, route, call) = (run.client.clone(), Arc::clone(route), call.tool_call_id.0.to_string());
        let held = AskedCall { client, route, call, turn: run.turn.id.clone(), tool, arguments, allowed };
        Self { held, run_status: run.run_status.clone(), asked }
    }

    /// Waits for the decision and responds to the agent, and for the end of a call that holds a work tree. ACP's response is
    /// only yes or no, so a denial is returned for the prompt that explains it.
    pub(super) async fn settle(self, shared: &RunnerContext) -> Option<Denial> {
        let mut run_status = self.run_status.clone();
        let decision = tokio::select! {
            decision = self.held.decide(shared) => decision,
            // The prompt is cancelled, and this request with it.
            _ = stopped(&mut run_status) => return None,
        };
        let tool = self.held.tool.clone();
        let denial = |reason, decider, comment, remedy| Some(Denial { tool, reason, decider, comment, remedy });
        let mut claims = Vec::new();
        let (outcome, denial) = match decision {
            CallDecision::Allowed(claimed) => match option(&self.asked.request, PermissionOptionKind::AllowOnce) {
                Some(outcome) => {
                    claims = claimed;
                    (outcome, None)
                }
                None => {
                    let reason = "the agent offers no way to allow it once".to_owned();
                    (denied(&self.asked.request), denial(reason, String::new(), None, Remedy::None))
                }
            },
            CallDecision::Denied { reason, decider, comment, remedy } => {
                (denied(&self.asked.request), denial(reason, decider, comment, remedy))
            }
        };
        let (turn, tool, allowed) = (self.held.turn.clone(), self.held.tool.clone(), denial.is_none());
        let reason = denial.as_ref().map(|denial| denial.reason.clone());
        shared.report.emit(&Event::ApprovalAnswered { turn, tool, allowed, reason });
        // Before the response: the agent may speak as soon as it has that.
        if denial.is_some() {
            self.held.route.deny();
        }
        self.asked.responder.respond(outcome);
        self.held.give_back(&claims).await;
        denial
    }
}

impl AskedCall {
    async fn decide(&self, shared: &RunnerContext) -> CallDecision {
        match self.decided(shared).await {
            Ok(decision) => decision,
            Err(error) => {
                let hint = error.problem().map(|problem| format!(". {}", problem.hint)).unwrap_or_default();
                CallDecision::failed(format!("{error}{hint}"))
            }
        }
    }

    async fn decided(&self, shared: &RunnerContext) -> Result<CallDecision, ClientError> {
        match self.claim(shared).await? {
            Verdict::Held(held) => return Ok(CallDecision::conflict(held)),
            Verdict::Free(claimed) if self.allowed => return Ok(CallDecision::Allowed(claimed)),
            // Others go on in the tree for as long as the call waits.
            Verdict::Free(claimed) => edits::give_back(&self.client, &claimed).await,
        }
        // The line that the agent sent said more than what is left of it here.
        if let Some(reason) = self.arguments.get("input").and_then(Inexact::marked) {
            return Ok(CallDecision::failed(format!("the arguments can't be held: {reason}")));
        }
        let arguments = Arguments::from(&self.arguments);
        let key = wording::new_key();
        let call = HeldCall { tool: self.tool.clone(), arguments: arguments.clone(), reason: None, key };
        let broker = &shared.broker;
        let held = broker.persist(|| self.client.hold(&call)).await?;
        let (turn, approval, tool) = (self.turn.clone(), held.id.clone(), self.tool.clone());
        shared.report.emit(&Event::ApprovalAsked { turn, approval, tool });
        let mut view = held;
        while view.state == ApprovalState::Pending {
            view = broker.persist(|| self.client.approval(&view.id, Some(POLL))).await?;
        }
        if view.state != ApprovalState::Approved {
            let comment = view.comment.clone().filter(|comment| !comment.trim().is_empty());
            let (reason, decider) = (reason(&view), quote::decider(&view));
            return Ok(CallDecision::Denied { reason, decider, comment, remedy: Remedy::None });
        }
        // ACP can't change the arguments of a call, so an edit denies this call and tells the agent which one would be
        // allowed.
        if view.arguments != arguments {
            let decider = quote::decider(&view);
            let reason = format!("{decider} approved other arguments instead: {}", quote::json(&view.arguments));
            let comment = view.comment.filter(|comment| !comment.trim().is_empty());
            return Ok(CallDecision::Denied { reason, decider, comment, remedy: Remedy::OtherArguments });
        }
        let claimed = match self.claim(shared).await? {
            Verdict::Held(held) => return Ok(CallDecision::conflict(held)),
            Verdict::Free(claimed) => claimed,
        };
        let call = UseApproval { tool: self.tool.clone(), arguments, key: wording::new_key() };
        // The broker checks the digest, and that the approval is used only once.
        match broker.persist(|| self.client.use_approval(&view.id, &call)).await {
            Ok(_) => Ok(CallDecision::Allowed(claimed)),
            Err(error) => {
                edits::give_back(&self.client, &claimed).await;
                Err(error)
            }
        }
    }
}

impl AskedCall {
    /// Claims what the call would change.
    async fn claim(&self, shared: &RunnerContext) -> Result<Verdict, ClientError> {
        // The kind is the protocol's own, and the name that of the program.
        let kind = self.arguments.get("kind").and_then(Value::as_str).unwrap_or(&self.tool);
        let call = ToolCall { tool: kind, arguments: Some(&self.arguments) };
        shared.broker.persist(|| edits::claim(&self.client, &shared.settings.cwd, call)).await
    }

    /// Ends the claims of the call itself once it has ended. The end of the lease does so in any case.
    async fn give_back(&self, claimed: &[Claimed]) {
        if claimed.iter().any(|one| one.lasts == ClaimLasts::Call)
            && timeout(edits::CALL_LEASE, self.route.until_ended(&self.call)).await.is_ok()
        {
            edits::give_back(&self.client, claimed).await;
        }
    }
}

/// Returns the tool and arguments to hold: all that the agent reported of the call. The approver sees them, and the
/// digest covers them.
fn held(call: &ToolCallUpdateFields) -> (String, Value) {
    let kind = call.kind.and_then(|kind| serde_json::to_value(kind).ok());
    let kind_word = kind.as_ref().and_then(Value::as_str).map(ToOwned::to_owned);
    let tool = call.name.clone().or(kind_word).filter(|name| !name.trim().is_empty());
    let mut arguments = Map::new();
    let parts = [
        ("title", call.title.as_ref().map(|title| json!(title))),
        ("kind", kind),
        ("input", call.raw_input.clone()),
        ("content", call.content.as_ref().and_then(|content| serde_json::to_value(content).ok())),
        ("locations", call.locations.as_ref().and_then(|places| serde_json::to_value(places).ok())),
    ];
    for (name, value) in parts {
        if let Some(value) = value.filter(|value| !value.is_null() && *value != json!([])) {
            arguments.insert(name.to_owned(), value);
        }
    }
    (tool.unwrap_or_else(|| "tool".to_owned()), Value::Object(arguments))
}

fn reason(view: &ApprovalView) -> String {
    let by = quote::decider(view);
    match view.undecided() {
        Some(why) => format!("denied: {why}"),
        None if view.state == ApprovalState::Ignored => format!("ignored by {by}"),
        None => format!("rejected by {by}"),
    }
}

fn option(request: &RequestPermissionRequest, kind: PermissionOptionKind) -> Option<RequestPermissionOutcome> {
    let found = request.options.iter().find(|option| option.kind == kind)?;
    Some(RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(found.option_id.clone())))
}

/// Denies this call once; "always" is never chosen on a human's behalf.
fn denied(request: &RequestPermissionRequest) -> RequestPermissionOutcome {
    option(request, PermissionOptionKind::RejectOnce).unwrap_or(RequestPermissionOutcome::Cancelled)
}

#[cfg(test)]
mod tests {
    use agent_client_protocol_schema::v1::ToolKind;

    use super::*;

    #[test]
    fn all_that_is_known_of_a_call_is_held() {
        let call =
            ToolCallUpdateFields::new().title("rm -r build").kind(ToolKind::Execute).raw_input(json!({"cmd": 1}));
        let (tool, arguments) = held(&call);
        assert_eq!(tool, "execute");
        assert_eq!(arguments, json!({"title": "rm -r build", "kind": "execute", "input": {"cmd": 1}}));
        assert_eq!(held(&ToolCallUpdateFields::new()), ("tool".to_owned(), json!({})));
    }
}
