//! The table of calls: each call of HTTP, which a session carries under its name.

use lastword_facts::fact::Role;

use crate::{
    AgentGrant, AgentPatch, AgentToken, AgentView, ApprovalView, ArchivesView, ClaimView, ClockView,
    ConversationSummary, ConversationView, DecideApproval, Delivery, Envelope, EscalationAnswer, EscalationView, Event,
    Explanation, Extend, Extended, FailedNotification, Finish, Finished, HeldCall, HumanPatch, IdToken, IncidentView,
    LimitsView, MoveToArchive, MovedToArchive, NarrowedToken, NewAgent, NewClaim, NewEscalation, NewHuman, NewRoom,
    NewSchedule, NewToken, Page, Post, Posted, Progress, Prompt, Renewed, Replay, RequestView, Resent, RoomView,
    ScheduleView, Scope, SignInLink, SignInProvider, SignedIn, StoredMessage, TokenTerms, Unavailable, UseApproval,
};

/// One call of `/v1`.
#[derive(Debug, PartialEq, Eq)]
pub struct Call {
    /// The name of its type.
    pub id: &'static str,
    /// Its name in a session; `None` if no session carries it: it is a stream, or needs no token.
    pub name: Option<&'static str>,
    /// `GET`, `POST`, `PATCH` or `DELETE`.
    pub method: &'static str,
    /// The path below `/v1`, with at most one open segment, such as `{id}`.
    pub path: &'static str,
    /// What it does.
    pub about: &'static str,
    /// The scope that a narrowed token needs for it; `None` if any token may make it.
    pub scope: Option<Scope>,
    /// The least role with which a human may make it (H7); the core refuses the others. What a message or a post needs
    /// depends on what it says, so that a viewer's INFO stands here, and a request needs an operator. An agent has no role.
    pub role: Role,
    /// The names of its query parameters.
    pub query: &'static [&'static str],
    /// The type of its body.
    pub body: Option<&'static str>,
    /// The status of its answer, if it isn't refused.
    pub status: u16,
    /// The type of its answer.
    pub answer: Option<&'static str>,
}

/// A row of the table as a type, so that the compiler checks what its server and its client make of it.
pub trait TypedCall {
    /// The row.
    const CALL: &'static Call;
    /// The body; `()` if it has none.
    type Body;
    /// The answer; `()` if it has none, and an `Option` if it may be empty (status 204).
    type Answer;
}

/// A backup of the log, as a stream of bytes.
#[derive(Debug)]
pub enum Backup {}

/// A checkpoint of the log, as a signed note in plain text.
pub type Checkpoint = String;

macro_rules! calls {
    ($($type:ident $name:tt $method:ident $path:literal $about:literal
        $scope:tt $role:ident [$($query:tt)*] $body:ty => $status:literal $answer:ty;)*) => {
        $(
            #[doc = concat!($about, ".")]
            #[derive(Debug)]
            pub enum $type {}

            impl TypedCall for $type {
                const CALL: &'static Call = &Call {
                    id: stringify!($type),
                    name: optional!($name),
                    method: stringify!($method),
                    path: $path,
                    about: $about,
                    scope: optional!(Scope $scope),
                    role: Role::$role,
                    query: &[$(stringify!($query)),*],
                    body: shape(stringify!($body)),
                    status: $status,
                    answer: shape(stringify!($answer)),
                };
                type Body = $body;
                type Answer = $answer;
            }
        )*

        /// Every call. Of two whose paths fit, the one without an open segment comes first.
        pub const CALLS: &[&Call] = &[$($type::CALL),*];
    };
}

macro_rules! optional {
    (-) => {
        None
    };
    ($word:literal) => {
        Some($word)
    };
    ($kind:ident -) => {
        None
    };
    ($kind:ident $variant:ident) => {
        Some($kind::$variant)
    };
}

/// Returns the name of a type of the table; `None` for `()`.
const fn shape(name: &'static str) -> Option<&'static str> {
    match name.as_bytes() {
        b"()" => None,
        [b'O', b'p', b't', b'i', b'o', b'n', b'<', .., b'>'] => Some(name.split_at(name.len() - 1).0.split_at(7).1),
        _ => Some(name),
    }
}

// The type, the name in a session, the method and the path, what it does; the scope, the role, the query, the body, the
// answer.
calls! {
    SendMessage "send" POST "/messages" "Send a message"
        Send Viewer [wait return] Envelope => 201 StoredMessage;
    ListMessages "messages" GET "/messages" "Search messages, newest first"
        Read Viewer [ref from to type depth since until q limit cursor] () => 200 Page<StoredMessage>;
    GetMessage "message" GET "/messages/{id}" "Get a message"
        Read Viewer [] () => 200 StoredMessage;
    TakeDelivery "next" GET "/inbox" "Take the next delivery; 204 if there is none"
        Work Viewer [wait turns] () => 200 Option<Delivery>;
    FinishTurn "finish" POST "/turns/{id}/finish" "End a turn with its answer"
        Work Viewer [] Finish => 200 Finished;
    ReportProgress "progress" POST "/turns/{id}/progress" "Report progress, which renews the lease"
        Work Viewer [] Progress => 200 Renewed;
    ListConversations "conversations" GET "/conversations" "List conversations, newest first"
        Read Viewer [limit cursor open] () => 200 Page<ConversationSummary>;
    GetConversation "conversation" GET "/conversations/{ref}" "Get a conversation as a tree"
        Read Viewer [] () => 200 ConversationView;
    PauseConversation "pause" POST "/conversations/{ref}/pause" "Pause a conversation"
        Control Operator [] () => 204 ();
    ResumeConversation "resume" POST "/conversations/{ref}/resume" "Resume a conversation and lift its latches"
        Control Operator [] () => 204 ();
    StopConversation "stop" POST "/conversations/{ref}/stop" "Stop a conversation"
        Control Operator [] () => 204 ();
    ExtendConversation "grant" POST "/conversations/{ref}/grant" "Extend a conversation's budget; 204 unless it is still held"
        Control Operator [] Extend => 200 Option<Extended>;
    PauseAgent "pause_agent" POST "/agents/{name}/pause" "Pause an agent"
        Control Operator [] () => 204 ();
    ResumeAgent "resume_agent" POST "/agents/{name}/resume" "Resume an agent"
        Control Operator [] () => 204 ();
    StopAgent "stop_agent" POST "/agents/{name}/stop" "Stop an agent"
        Control Operator [] () => 204 ();
    PauseWorkspace "pause_workspace" POST "/workspace/pause" "Pause everything"
        Control Operator [] () => 204 ();
    ResumeWorkspace "resume_workspace" POST "/workspace/resume" "Resume everything"
        Control Operator [] () => 204 ();
    StopWorkspace "stop_workspace" POST "/workspace/stop" "Stop everything"
        Control Operator [] () => 204 ();
    ListAgents "agents" GET "/agents" "List agents and humans"
        Read Viewer [] () => 200 Page<AgentView>;
    AddAgent "add_agent" POST "/agents" "Register an agent or human; returns its token, once"
        Manage Owner [] NewAgent => 201 AgentToken;
    GetAgent "agent" GET "/agents/{name}" "Get an agent; `me` is the caller"
        Read Viewer [] () => 200 AgentView;
    AmendAgent "amend_agent" PATCH "/agents/{name}" "Change an agent's actions, groups and limits"
        Manage Owner [] AgentPatch => 200 AgentView;
    RemoveAgent "remove_agent" DELETE "/agents/{name}" "Remove an agent"
        Manage Owner [] () => 204 ();
    ExtendAgent "grant_agent" POST "/agents/{name}/grant" "Extend an agent's budget for today"
        Control Operator [] AgentGrant => 200 AgentView;
    ReportPrompt "prompt" POST "/agents/{name}/prompt" "Report a prompt in an agent's session: the caller typed it, or it ended"
        Control Operator [] Prompt => 204 ();
    ReportUnavailable "unavailable_agent" POST "/agents/{name}/unavailable" "Tell why an agent's program can't work"
        Work Operator [] Unavailable => 204 ();
    ListHumans "humans" GET "/humans" "List humans and their roles"
        Read Viewer [] () => 200 Page<AgentView>;
    AddHuman "add_human" POST "/humans" "Register a human; returns the token, once"
        Manage Owner [] NewHuman => 201 AgentToken;
    AmendHuman "amend_human" PATCH "/humans/{name}" "Set a human's role"
        Manage Owner [] HumanPatch => 200 AgentView;
    GetSignInProvider - GET "/sign-in" "Get the provider by which humans sign in; needs no token"
        - Viewer [] () => 200 SignInProvider;
    SignIn - POST "/sign-in" "Sign a human in with the provider's ID token; needs no other token"
        - Viewer [] IdToken => 201 SignedIn;
    MakeSignInLink "sign_in_link" POST "/sign-in/link" "Make a link that signs the caller in to the console, once"
        - Viewer [] () => 201 SignInLink;
    NarrowToken "narrow_token" POST "/token" "Make a narrowed token for the caller: some of its scopes, for a while"
        - Viewer [] NewToken => 201 NarrowedToken;
    EndToken "end_token" DELETE "/token" "End the sign-in whose token makes this call"
        - Viewer [] () => 204 ();
    ReplaceToken "replace_token" POST "/agents/{name}/token" "Replace an agent's token"
        Manage Owner [] TokenTerms => 201 AgentToken;
    GetRequest "request" GET "/requests/{id}" "Get a request"
        Read Viewer [] () => 200 RequestView;
    CancelRequest "cancel" POST "/requests/{id}/cancel" "Cancel a request"
        Send Operator [] () => 200 RequestView;
    ListEscalations "escalations" GET "/escalations" "List escalations, newest first"
        Read Viewer [limit cursor] () => 200 Page<EscalationView>;
    Escalate "escalate" POST "/escalations" "Ask a human"
        Ask Operator [] NewEscalation => 201 EscalationView;
    GetEscalation "escalation" GET "/escalations/{id}" "Get an escalation"
        Read Viewer [] () => 200 EscalationView;
    AnswerEscalation "answer" POST "/escalations/{id}/answer" "Answer an escalation"
        Decide Approver [] EscalationAnswer => 200 EscalationView;
    ListApprovals "approvals" GET "/approvals" "List approvals, newest first"
        Read Viewer [limit cursor] () => 200 Page<ApprovalView>;
    HoldCall "request_approval" POST "/approvals" "Hold a tool call for a decision"
        Ask Operator [] HeldCall => 201 ApprovalView;
    GetApproval "approval" GET "/approvals/{id}" "Get an approval; with `wait`, once it is decided"
        Read Viewer [wait] () => 200 ApprovalView;
    DecideOnCall "approve" POST "/approvals/{id}/decision" "Decide an approval"
        Decide Approver [] DecideApproval => 200 ApprovalView;
    SpendApproval "use_approval" POST "/approvals/{id}/use" "Use an approval for exactly that call"
        Ask Operator [] UseApproval => 200 ApprovalView;
    Explain "explain" GET "/explanations/{id}" "Explain a message, refusal, approval or escalation"
        Read Viewer [] () => 200 Explanation;
    ListIncidents "incidents" GET "/incidents" "List incidents, newest first"
        Read Viewer [] () => 200 Page<IncidentView>;
    ListRooms "rooms" GET "/rooms" "List rooms"
        Read Viewer [] () => 200 Page<RoomView>;
    OpenRoom "open_room" POST "/rooms" "Open a room, or set its members"
        Control Operator [] NewRoom => 201 RoomView;
    PostToRoom "post" POST "/rooms/{room}/messages" "Post to a room"
        Send Viewer [] Post => 201 Posted;
    ListClaims "claims" GET "/claims" "List claims"
        Read Viewer [] () => 200 Page<ClaimView>;
    ClaimResource "claim" POST "/claims" "Claim a resource"
        Send Operator [] NewClaim => 201 ClaimView;
    ReleaseClaim "release" DELETE "/claims/{id}" "Release a claim"
        Send Operator [] () => 204 ();
    ListSchedules "schedules" GET "/schedules" "List schedules"
        Read Viewer [] () => 200 Page<ScheduleView>;
    SetSchedule "set_schedule" POST "/schedules" "Set a schedule, which sends a request at each tick"
        Control Operator [] NewSchedule => 201 ScheduleView;
    RemoveSchedule "remove_schedule" DELETE "/schedules/{id}" "Remove a schedule"
        Control Operator [] () => 204 ();
    RunSchedule "run_schedule" POST "/schedules/{id}/run" "Run a schedule now"
        Control Operator [] () => 200 ScheduleView;
    ListFailedNotifications "failed_notifications" GET "/notifications" "List the notifications that were given up, newest first"
        Read Viewer [] () => 200 Page<FailedNotification>;
    ReplayNotifications "replay_notifications" POST "/notifications" "Send a channel what began after a position and is pending"
        Control Operator [] Replay => 200 Resent;
    ResendNotification "resend_notification" POST "/notifications/{id}/resend" "Send a notification that was given up again"
        Control Operator [] () => 200 Resent;
    StreamEvents - GET "/events" "Stream events as server-sent events"
        Read Viewer [after until] () => 200 Event;
    GetLimits "limits" GET "/limits" "List the limits in force"
        Read Viewer [] () => 200 LimitsView;
    GetArchives "archives" GET "/archives" "Show the log's extent, and the segments that left it"
        Read Viewer [] () => 200 ArchivesView;
    Archive "archive" POST "/archives" "Move the oldest part of the log to the archive, for an owner"
        Manage Owner [] MoveToArchive => 200 MovedToArchive;
    BackUp - POST "/backup" "Make a backup of the log, for an owner"
        Manage Owner [] () => 200 Backup;
    SignCheckpoint "checkpoint" GET "/checkpoint" "Get the log's hash, signed, for a human"
        Read Viewer [at] () => 200 Checkpoint;
    GetClock "clock" GET "/clock" "Get the broker's time and the wall clock's"
        Read Viewer [] () => 200 ClockView;
    AcceptClock "accept_clock" POST "/clock/accept" "Accept the wall clock"
        Control Owner [] () => 200 ClockView;
}

impl Call {
    /// Returns the call with this name in a session.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        CALLS.iter().copied().find(|call| call.name == Some(name))
    }

    /// Returns the call of this method and path below `/v1`, and the encoded segment that its template leaves open.
    #[must_use]
    pub fn find<'p>(method: &str, path: &'p str) -> Option<(&'static Self, Option<&'p str>)> {
        let of_method = || CALLS.iter().copied().filter(|call| call.method.eq_ignore_ascii_case(method));
        let exact = of_method().find(|call| call.path == path).map(|call| (call, None));
        exact.or_else(|| of_method().find_map(|call| open_segment(call.path, path).map(|open| (call, Some(open)))))
    }
}

fn open_segment<'p>(template: &str, path: &'p str) -> Option<&'p str> {
    let (before, rest) = template.split_once('{')?;
    let (_, after) = rest.split_once('}')?;
    let open = path.strip_prefix(before)?.strip_suffix(after)?;
    (!open.is_empty() && !open.contains('/')).then_some(open)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_found_by_its_name_and_by_its_path() {
        assert_eq!(Call::named("send").map(|call| (call.method, call.path)), Some(("POST", "/messages")));
        assert_eq!(Call::named("nothing"), None);
        let found = |method: &str, path: &'static str| Call::find(method, path).map(|(call, open)| (call.name, open));
        assert_eq!(found("POST", "/messages"), Some((Some("send"), None)));
        assert_eq!(found("post", "/turns/turn-3/finish"), Some((Some("finish"), Some("turn-3"))));
        assert_eq!(found("GET", "/conversations/T-1%2F2"), Some((Some("conversation"), Some("T-1%2F2"))));
        assert_eq!(found("POST", "/rooms/ops/messages"), Some((Some("post"), Some("ops"))));
        assert_eq!(found("GET", "/turns/a/b/finish"), None);
        assert_eq!(found("GET", "/events"), Some((None, None)));
    }

    #[test]
    fn a_session_carries_every_call_but_those_that_are_streams_or_need_no_token() {
        let others = CALLS.iter().filter(|call| call.name.is_none()).map(|call| (call.method, call.path));
        let expected = [("GET", "/sign-in"), ("POST", "/sign-in"), ("GET", "/events"), ("POST", "/backup")];
        assert_eq!(others.collect::<Vec<_>>(), expected);
    }
}
