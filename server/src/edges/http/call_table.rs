//! The table of calls, and the documents made from it.

#[cfg(test)]
use lastword_proto::fact::Role;
use lastword_wire::Scope;

/// The OpenAPI 3.1 document of the surface.
pub const OPENAPI: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.json"));
/// The AsyncAPI 3 document of sessions.
pub const ASYNCAPI: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/asyncapi.json"));
/// The JSON Schema of a message.
pub const MESSAGE_SCHEMA: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/message.schema.json"));

/// One call: method, path, what it does, query parameters, body, status, response.
pub(crate) type Row = (&'static str, &'static str, &'static str, &'static str, &'static str, u16, &'static str);

/// Returns the scope that a narrowed token needs for a call of the table; `None` if any token may make it.
pub(crate) fn scope(method: &str, path: &str) -> Option<Scope> {
    Some(match (method, path) {
        ("get", "/inbox") | ("post", "/turns/{id}/finish" | "/turns/{id}/progress" | "/agents/{name}/unavailable") => {
            Scope::Work
        }
        ("post", "/messages" | "/rooms/{room}/messages" | "/requests/{id}/cancel" | "/claims")
        | ("delete", "/claims/{id}") => Scope::Send,
        ("post", "/escalations" | "/approvals" | "/approvals/{id}/use") => Scope::Ask,
        ("post", "/escalations/{id}/answer" | "/approvals/{id}/decision") => Scope::Decide,
        ("post", "/agents" | "/humans" | "/agents/{name}/token" | "/archives" | "/backup")
        | ("patch", _)
        | ("delete", "/agents/{name}") => Scope::Manage,
        (_, "/sign-in" | "/sign-in/link" | "/token") => return None,
        ("get", _) => Scope::Read,
        _ => Scope::Control,
    })
}

/// Returns the least role with which a human may make a call of the table (H7); the core refuses the others. What a
/// message or a post needs depends on what it says, so that a viewer's INFO stands here, and a request needs an operator.
/// An agent has no role.
#[cfg(test)]
pub(crate) fn role(method: &str, path: &str) -> Role {
    match (method, path) {
        ("get", _)
        | ("post", "/messages" | "/rooms/{room}/messages" | "/sign-in" | "/sign-in/link" | "/token")
        | ("delete", "/token")
        // A human has no turns.
        | ("post", "/turns/{id}/finish" | "/turns/{id}/progress") => Role::Viewer,
        ("post", "/escalations/{id}/answer" | "/approvals/{id}/decision") => Role::Approver,
        ("post", "/agents" | "/humans" | "/agents/{name}/token" | "/archives" | "/backup" | "/clock/accept")
        | ("patch", _)
        | ("delete", "/agents/{name}") => Role::Owner,
        _ => Role::Operator,
    }
}

/// Returns the row of the call with this method and path below `/v1`; `None` if there is no such call.
pub(crate) fn row(method: &str, path: &str) -> Option<&'static Row> {
    let matches = |template: &str| {
        let (mut given, mut known) = (path.split('/'), template.split('/'));
        loop {
            match (given.next(), known.next()) {
                (None, None) => return true,
                (Some(given), Some(known)) if known == given || known.starts_with('{') => {}
                _ => return false,
            }
        }
    };
    let mut rows = CALLS.iter().filter(|row| row.0.eq_ignore_ascii_case(method));
    // A template without a parameter at some place is exact there: the first match is the right one.
    rows.find(|row| matches(row.1))
}

/// Every call of `/v1`.
pub(crate) const CALLS: &[Row] = &[
    ("post", "/messages", "Send a message", "wait return", "Envelope", 201, "StoredMessage"),
    (
        "get",
        "/messages",
        "Search messages, newest first",
        "ref from to type depth since until q limit cursor",
        "",
        200,
        "Page_StoredMessage",
    ),
    ("get", "/messages/{id}", "Get a message", "", "", 200, "StoredMessage"),
    ("get", "/inbox", "Take the next delivery; 204 if there is none", "wait turns", "", 200, "Delivery"),
    ("post", "/turns/{id}/finish", "End a turn with its answer", "", "Finish", 200, "Finished"),
    ("post", "/turns/{id}/progress", "Report progress, which renews the lease", "", "Progress", 200, "Renewed"),
    (
        "get",
        "/conversations",
        "List conversations, newest first",
        "limit cursor open",
        "",
        200,
        "Page_ConversationSummary",
    ),
    ("get", "/conversations/{ref}", "Get a conversation as a tree", "", "", 200, "ConversationView"),
    ("post", "/conversations/{ref}/pause", "Pause a conversation", "", "", 204, ""),
    ("post", "/conversations/{ref}/resume", "Resume a conversation and lift its latches", "", "", 204, ""),
    ("post", "/conversations/{ref}/stop", "Stop a conversation", "", "", 204, ""),
    (
        "post",
        "/conversations/{ref}/grant",
        "Extend a conversation's budget; 204 unless it is still held",
        "",
        "Extend",
        200,
        "Extended",
    ),
    ("post", "/agents/{name}/pause", "Pause an agent", "", "", 204, ""),
    ("post", "/agents/{name}/resume", "Resume an agent", "", "", 204, ""),
    ("post", "/agents/{name}/stop", "Stop an agent", "", "", 204, ""),
    ("post", "/workspace/pause", "Pause everything", "", "", 204, ""),
    ("post", "/workspace/resume", "Resume everything", "", "", 204, ""),
    ("post", "/workspace/stop", "Stop everything", "", "", 204, ""),
    ("get", "/agents", "List agents and humans", "", "", 200, "Page_AgentView"),
    ("post", "/agents", "Register an agent or human; returns its token, once", "", "NewAgent", 201, "AgentToken"),
    ("get", "/agents/{name}", "Get an agent; `me` is the caller", "", "", 200, "AgentView"),
    ("patch", "/agents/{name}", "Change an agent's actions, groups and limits", "", "AgentPatch", 200, "AgentView"),
    ("delete", "/agents/{name}", "Remove an agent", "", "", 204, ""),
    ("post", "/agents/{name}/grant", "Extend an agent's budget for today", "", "AgentGrant", 200, "AgentView"),
    (
        "post",
        "/agents/{name}/prompt",
        "Report a prompt in an agent's session: the caller typed it, or it ended",
        "",
        "Prompt",
        204,
        "",
    ),
    ("post", "/agents/{name}/unavailable", "Tell why an agent's program can't work", "", "Unavailable", 204, ""),
    ("get", "/humans", "List humans and their roles", "", "", 200, "Page_AgentView"),
    ("post", "/humans", "Register a human; returns the token, once", "", "NewHuman", 201, "AgentToken"),
    ("patch", "/humans/{name}", "Set a human's role", "", "HumanPatch", 200, "AgentView"),
    ("get", "/sign-in", "Get the provider by which humans sign in; needs no token", "", "", 200, "SignInProvider"),
    (
        "post",
        "/sign-in",
        "Sign a human in with the provider's ID token; needs no other token",
        "",
        "IdToken",
        201,
        "SignedIn",
    ),
    ("post", "/sign-in/link", "Make a link that signs the caller in to the console, once", "", "", 201, "SignInLink"),
    (
        "post",
        "/token",
        "Make a narrowed token for the caller: some of its scopes, for a while",
        "",
        "NewToken",
        201,
        "NarrowedToken",
    ),
    ("delete", "/token", "End the sign-in whose token makes this call", "", "", 204, ""),
    ("post", "/agents/{name}/token", "Replace an agent's token", "", "TokenTerms", 201, "AgentToken"),
    ("get", "/requests/{id}", "Get a request", "", "", 200, "RequestView"),
    ("post", "/requests/{id}/cancel", "Cancel a request", "", "", 200, "RequestView"),
    ("get", "/escalations", "List escalations, newest first", "limit cursor", "", 200, "Page_EscalationView"),
    ("post", "/escalations", "Ask a human", "", "NewEscalation", 201, "EscalationView"),
    ("get", "/escalations/{id}", "Get an escalation", "", "", 200, "EscalationView"),
    ("post", "/escalations/{id}/answer", "Answer an escalation", "", "EscalationAnswer", 200, "EscalationView"),
    ("get", "/approvals", "List approvals, newest first", "limit cursor", "", 200, "Page_ApprovalView"),
    ("post", "/approvals", "Hold a tool call for a decision", "", "HeldCall", 201, "ApprovalView"),
    ("get", "/approvals/{id}", "Get an approval; with `wait`, once it is decided", "wait", "", 200, "ApprovalView"),
    ("post", "/approvals/{id}/decision", "Decide an approval", "", "DecideApproval", 200, "ApprovalView"),
    ("post", "/approvals/{id}/use", "Use an approval for exactly that call", "", "UseApproval", 200, "ApprovalView"),
    ("get", "/explanations/{id}", "Explain a message, refusal, approval or escalation", "", "", 200, "Explanation"),
    ("get", "/incidents", "List incidents, newest first", "", "", 200, "Page_IncidentView"),
    ("get", "/rooms", "List rooms", "", "", 200, "Page_RoomView"),
    ("post", "/rooms", "Open a room, or set its members", "", "NewRoom", 201, "RoomView"),
    ("post", "/rooms/{room}/messages", "Post to a room", "", "Post", 201, "Posted"),
    ("get", "/claims", "List claims", "", "", 200, "Page_ClaimView"),
    ("post", "/claims", "Claim a resource", "", "NewClaim", 201, "ClaimView"),
    ("delete", "/claims/{id}", "Release a claim", "", "", 204, ""),
    ("get", "/schedules", "List schedules", "", "", 200, "Page_ScheduleView"),
    (
        "post",
        "/schedules",
        "Set a schedule, which sends a request at each tick",
        "",
        "NewSchedule",
        201,
        "ScheduleView",
    ),
    ("delete", "/schedules/{id}", "Remove a schedule", "", "", 204, ""),
    ("post", "/schedules/{id}/run", "Run a schedule now", "", "", 200, "ScheduleView"),
    ("get", "/events", "Stream events as server-sent events", "after until", "", 200, "Event"),
    ("get", "/limits", "List the limits in force", "", "", 200, "LimitsView"),
    ("get", "/archives", "Show the log's extent, and the segments that left it", "", "", 200, "ArchivesView"),
    (
        "post",
        "/archives",
        "Move the oldest part of the log to the archive, for an owner",
        "",
        "MoveToArchive",
        200,
        "MovedToArchive",
    ),
    ("post", "/backup", "Make a backup of the log, for an owner", "", "", 200, "Backup"),
    ("get", "/checkpoint", "Get the log's hash, signed, for a human", "at", "", 200, "Checkpoint"),
    ("get", "/clock", "Get the broker's time and the wall clock's", "", "", 200, "ClockView"),
    ("post", "/clock/accept", "Accept the wall clock", "", "", 200, "ClockView"),
];

#[cfg(test)]
mod tests {
    use lastword_wire::session;

    use super::CALLS;

    #[test]
    fn a_session_carries_every_call_but_those_that_are_streams_or_need_no_token() {
        let others = ["/events", "/backup", "/sign-in"];
        let calls = CALLS.iter().filter(|row| !others.contains(&row.1));
        let mut calls: Vec<_> = calls.map(|row| (row.0.to_ascii_uppercase(), row.1)).collect();
        let mut carried: Vec<_> = session::CALLS.iter().map(|call| (call.1.to_owned(), call.2)).collect();
        calls.sort_unstable();
        carried.sort_unstable();
        assert_eq!(calls, carried);
    }
}
