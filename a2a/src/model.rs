//! What A2A 1.0 sends and receives, in ProtoJSON. Members that Lastword has no use for are ignored, as the standard asks.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// Members that the sender wants to pass on; extensions have theirs under their URI.
pub(crate) type Metadata = Map<String, Value>;

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TaskState {
    /// No state, which a filter may name.
    #[serde(rename = "TASK_STATE_UNSPECIFIED")]
    Unspecified,
    /// The agent has not taken it.
    #[serde(rename = "TASK_STATE_SUBMITTED")]
    Submitted,
    /// The agent works on it.
    #[serde(rename = "TASK_STATE_WORKING")]
    Working,
    /// It was answered.
    #[serde(rename = "TASK_STATE_COMPLETED")]
    Completed,
    /// It was tried, and failed.
    #[serde(rename = "TASK_STATE_FAILED")]
    Failed,
    /// The caller or a human cancelled it.
    #[serde(rename = "TASK_STATE_CANCELED")]
    Canceled,
    /// The agent declined it.
    #[serde(rename = "TASK_STATE_REJECTED")]
    Rejected,
    /// A question waits for the caller.
    #[serde(rename = "TASK_STATE_INPUT_REQUIRED")]
    InputRequired,
    /// A held call waits for a human's decision.
    #[serde(rename = "TASK_STATE_AUTH_REQUIRED")]
    AuthRequired,
}

impl TaskState {
    /// Whether the task has ended.
    pub(crate) const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled | Self::Rejected)
    }

    /// Whether a call that waits for the task returns.
    pub(crate) const fn is_interrupted(self) -> bool {
        matches!(self, Self::InputRequired | Self::AuthRequired)
    }
}

/// Who wrote a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Nobody is named.
    #[default]
    #[serde(rename = "ROLE_UNSPECIFIED")]
    Unspecified,
    /// The caller.
    #[serde(rename = "ROLE_USER")]
    User,
    /// The agent.
    #[serde(rename = "ROLE_AGENT")]
    Agent,
}

/// A part of a message: text, or data, or a file, which Lastword doesn't take.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Part {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) raw: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<String>,
    /// Any JSON; `null` is a value, too.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub(crate) data: Option<Value>,
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    pub(crate) metadata: Metadata,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) filename: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) media_type: String,
}

fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl Part {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), media_type: "text/plain".into(), ..Self::default() }
    }

    pub(crate) fn data(data: Value) -> Self {
        Self { data: Some(data), media_type: "application/json".into(), ..Self::default() }
    }
}

/// A message of the caller or the agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Message {
    pub(crate) message_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) context_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) task_id: String,
    pub(crate) role: Role,
    pub(crate) parts: Vec<Part>,
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    pub(crate) metadata: Metadata,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) extensions: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) reference_task_ids: Vec<String>,
}

/// The state of a task with what is said of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct TaskStatus {
    pub(crate) state: TaskState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<Message>,
    pub(crate) timestamp: String,
}

/// The answer of a task.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Artifact {
    pub(crate) artifact_id: String,
    pub(crate) name: String,
    pub(crate) parts: Vec<Part>,
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    pub(crate) metadata: Metadata,
}

/// A task: a request, as its caller sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Task {
    pub(crate) id: String,
    pub(crate) context_id: String,
    pub(crate) status: TaskStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) artifacts: Option<Vec<Artifact>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) history: Vec<Message>,
}

/// One element of a stream, and the body of a push notification.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum StreamResponse {
    /// The task as it is.
    Task(Box<Task>),
    /// The state has changed, or progress was reported.
    #[serde(rename_all = "camelCase")]
    StatusUpdate { task_id: String, context_id: String, status: Box<TaskStatus> },
    /// The answer.
    #[serde(rename_all = "camelCase")]
    ArtifactUpdate { task_id: String, context_id: String, artifact: Box<Artifact>, last_chunk: bool },
}

impl StreamResponse {
    /// Whether it tells of the task's end.
    pub(crate) const fn ends(&self) -> bool {
        match self {
            Self::Task(task) => task.status.state.is_terminal(),
            Self::StatusUpdate { status, .. } => status.state.is_terminal(),
            Self::ArtifactUpdate { .. } => false,
        }
    }
}

/// How a push notification authenticates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct AuthenticationInfo {
    pub(crate) scheme: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) credentials: String,
}

/// Where the changes of a task are posted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PushConfig {
    pub(crate) id: String,
    pub(crate) task_id: String,
    pub(crate) url: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) token: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) authentication: Option<AuthenticationInfo>,
}

/// What a send asks for besides its message.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Configuration {
    pub(crate) task_push_notification_config: Option<PushConfig>,
    pub(crate) history_length: Option<i32>,
    pub(crate) return_immediately: bool,
}

/// `SendMessage` and `SendStreamingMessage`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SendMessage {
    pub(crate) message: Message,
    pub(crate) configuration: Configuration,
    pub(crate) metadata: Metadata,
}

/// `GetTask`, `CancelTask` and `SubscribeToTask`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NamedTask {
    pub(crate) id: String,
    pub(crate) history_length: Option<i32>,
}

/// `ListTasks`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ListTasks {
    pub(crate) context_id: String,
    pub(crate) status: Option<TaskState>,
    pub(crate) page_size: Option<i32>,
    pub(crate) page_token: String,
    pub(crate) history_length: Option<i32>,
    pub(crate) status_timestamp_after: Option<String>,
    pub(crate) include_artifacts: bool,
}

/// The calls on a push configuration of a task.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NamedPush {
    pub(crate) task_id: String,
    pub(crate) id: String,
}

/// An operation with its parameters, whatever binding they came by.
#[derive(Debug)]
pub(crate) enum Operation {
    Send(Box<SendMessage>),
    SendStreaming(Box<SendMessage>),
    Get(NamedTask),
    List(ListTasks),
    Cancel(NamedTask),
    Subscribe(NamedTask),
    CreatePush(PushConfig),
    GetPush(NamedPush),
    ListPush(NamedPush),
    DeletePush(NamedPush),
    ExtendedCard,
}
