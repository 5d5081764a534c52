//! The permission-prompt tool of Claude Code, which that program calls before each tool call that its own settings
//! leave open. Replies in the form it expects, one text that contains JSON, and never with an error: a call that isn't
//! allowed is denied.

use std::time::Duration;

use lastword_server::{ApiError, Context};
use lastword_wire::{Arguments, HeldCall, Scope};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, ProgressNotificationParam};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::json;

use super::permission::{Permission, permission};
use super::remote::Remote;
use super::trace::Trace;
use super::{args, tools, who};

/// The name of the tool.
pub(super) const TOOL: &str = "approve_tool_use";
/// The time before the first progress report. A call that the policy decides is answered sooner.
const TOLD_FIRST: Duration = Duration::from_secs(1);
/// The time between further progress reports.
const TOLD_EVERY: Duration = Duration::from_secs(15);

/// Answers through the broker of this process.
pub(super) async fn local(
    ctx: &Context,
    arguments: JsonObject,
    context: &RequestContext<RoleServer>,
) -> CallToolResult {
    let asked = async {
        let caller = who(ctx, &context.extensions)?;
        caller.may(Some(Scope::Ask))?;
        let asked: args::Permit = tools::read(arguments)?;
        let call = HeldCall { tool: asked.tool_name, arguments: asked.input.into(), reason: None, key: None };
        let input = call.arguments.clone();
        Ok::<_, ApiError>((permission(ctx, caller, call).await, input))
    };
    match telling(context, asked).await {
        Ok((permission, input)) => answer(permission, &input),
        Err(fault) => deny(&format!("Not allowed: {}", fault.0.detail)),
    }
}

/// Answers through a running server. If it can't be reached, or sends an unexpected reply, the call is denied.
pub(super) async fn remote(
    remote: &Remote,
    arguments: JsonObject,
    trace: &Trace,
    context: &RequestContext<RoleServer>,
) -> CallToolResult {
    match telling(context, remote.call(TOOL, arguments, trace)).await {
        // Passed on unchanged: the server has already written it in the client's form.
        Ok(result) if result.is_error != Some(true) && !result.content.is_empty() => result,
        Ok(_) => deny("Not allowed: the Lastword server refused to hold this call."),
        Err(error) => deny(&format!("Not allowed: {}", error.message)),
    }
}

/// Waits for `answer`, and reports progress to a client that asks for it. The first report turns the response into a
/// stream, whose head is sent at once: Claude Code allows 60 s for the head, and 5 min of silence on a stream.
async fn telling<T>(context: &RequestContext<RoleServer>, answer: impl Future<Output = T>) -> T {
    let Some(token) = context.meta.get_progress_token() else { return answer.await };
    let mut answer = std::pin::pin!(answer);
    let (mut told, mut pause) = (0_u32, TOLD_FIRST);
    loop {
        tokio::select! {
            answer = &mut answer => return answer,
            () = tokio::time::sleep(pause) => {}
        }
        (told, pause) = (told.saturating_add(1), TOLD_EVERY);
        let progress = ProgressNotificationParam::new(token.clone(), f64::from(told));
        // The loss of the client is noticed elsewhere.
        let _told = context.peer.notify_progress(progress.with_message("waits for a decision")).await;
    }
}

fn answer(permission: Permission, asked: &Arguments) -> CallToolResult {
    match permission {
        // Claude Code reads empty arguments as "unchanged", and would make the call that was not approved.
        Permission::Allow(input) if input != *asked && input.members().is_none_or(|members| members.is_empty()) => {
            deny(
                "The call was approved with different arguments, which this program doesn't accept. Continue without it.",
            )
        }
        // Digit by digit, so as text.
        Permission::Allow(input) => said(format!(r#"{{"behavior":"allow","updatedInput":{input}}}"#)),
        Permission::Deny(message) => deny(&message),
    }
}

fn deny(message: &str) -> CallToolResult {
    said(json!({ "behavior": "deny", "message": message }).to_string())
}

fn said(answer: String) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(answer)])
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn text(result: &CallToolResult) -> Value {
        let told = serde_json::to_value(result).unwrap();
        assert_eq!(told["structuredContent"], Value::Null, "a client may prefer it to the text");
        serde_json::from_str(told["content"][0]["text"].as_str().unwrap()).unwrap()
    }

    #[test]
    fn arguments_that_the_client_would_take_for_the_old_ones_are_denied() {
        let asked = json!({ "command": "rm -rf build" }).into();
        for edited in [json!({}), json!(null), json!("x")] {
            let told = text(&answer(Permission::Allow(edited.into()), &asked));
            assert_eq!(told["behavior"], "deny", "{told}");
        }
        let told = text(&answer(Permission::Allow(json!({ "command": "ls" }).into()), &asked));
        assert_eq!(told, json!({ "behavior": "allow", "updatedInput": { "command": "ls" } }));
        let told = text(&answer(Permission::Allow(json!({}).into()), &json!({}).into()));
        assert_eq!(told["behavior"], "allow", "a call without arguments");
    }
}
