//! Errors of A2A, in the form of each binding.
//!
//! What the standard names has its domain. A refusal of the broker keeps its own code, rule and hint, in the domain
//! `lastword`: nothing was admitted, so there is no task.

use axum::http::StatusCode;
use lastword_server::ApiError;
use lastword_wire::Problem;
use serde_json::{Map, Value, json};

/// The domain of the errors that the standard names.
const STANDARD: &str = "a2a-protocol.org";
/// The domain of the broker's refusals.
const OURS: &str = "lastword";
const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";
const BAD_REQUEST: &str = "type.googleapis.com/google.rpc.BadRequest";
/// The code that JSON-RPC leaves to the server, for refusals.
const REFUSED: i32 = -32000;

/// An error that the standard names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    TaskNotFound,
    TaskNotCancelable,
    UnsupportedOperation,
    ContentTypeNotSupported,
    VersionNotSupported,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    Parse,
}

impl Kind {
    /// Returns the code of JSON-RPC, the status of HTTP, the status of `google.rpc` and the reason.
    const fn forms(self) -> (i32, StatusCode, &'static str, &'static str) {
        let bad = StatusCode::BAD_REQUEST;
        match self {
            Self::TaskNotFound => (-32001, StatusCode::NOT_FOUND, "NOT_FOUND", "TASK_NOT_FOUND"),
            Self::TaskNotCancelable => (-32002, bad, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"),
            Self::UnsupportedOperation => (-32004, bad, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
            Self::ContentTypeNotSupported => (-32005, bad, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED"),
            Self::VersionNotSupported => (-32009, bad, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"),
            Self::InvalidParams => (-32602, bad, "INVALID_ARGUMENT", "INVALID_PARAMS"),
            Self::InvalidRequest => (-32600, bad, "INVALID_ARGUMENT", "INVALID_REQUEST"),
            Self::MethodNotFound => (-32601, StatusCode::NOT_FOUND, "NOT_FOUND", "METHOD_NOT_FOUND"),
            Self::Parse => (-32700, bad, "INVALID_ARGUMENT", "INVALID_REQUEST"),
        }
    }
}

/// Why an operation was not done.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// An error of the standard, with what is wrong and the member that is.
    Standard { kind: Kind, text: String, field: Option<String> },
    /// A refusal of the broker.
    Refused(Box<Problem>),
}

impl Fault {
    pub(crate) fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self::Standard { kind, text: text.into(), field: None }
    }

    /// A member that is wrong.
    pub(crate) fn field(field: &str, problem: impl std::fmt::Display) -> Self {
        Self::Standard {
            kind: Kind::InvalidParams,
            text: format!("`{field}` {problem}"),
            field: Some(field.to_owned()),
        }
    }

    /// A task that doesn't exist, or is another caller's, which looks the same.
    pub(crate) fn unknown_task(id: &str) -> Self {
        Self::new(Kind::TaskNotFound, format!("There is no task {id:?} of this caller"))
    }

    /// Returns the status of HTTP.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Standard { kind, .. } => kind.forms().1,
            Self::Refused(problem) => StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Standard { text, .. } => text,
            Self::Refused(problem) => &problem.detail,
        }
    }

    fn details(&self) -> Value {
        match self {
            Self::Standard { kind, text, field } => {
                let info = info(STANDARD, kind.forms().3, &Map::new());
                match field {
                    Some(field) => json!([info, {
                        "@type": BAD_REQUEST,
                        "fieldViolations": [{ "field": field, "description": text }],
                    }]),
                    None => json!([info]),
                }
            }
            Self::Refused(problem) => {
                let mut members = Map::new();
                members.insert("rule".into(), problem.rule.clone().into());
                members.insert("hint".into(), problem.hint.clone().into());
                // The values of this map are texts.
                members.extend(problem.retry_after_ms.map(|ms| ("retryAfterMs".into(), ms.to_string().into())));
                members.extend(problem.record.clone().map(|record| ("record".into(), record.into())));
                json!([info(OURS, &problem.code.to_string().to_uppercase(), &members)])
            }
        }
    }

    /// Returns the error object of JSON-RPC.
    pub(crate) fn rpc(&self) -> Value {
        let code = match self {
            Self::Standard { kind, .. } => kind.forms().0,
            Self::Refused(problem) if problem.status >= 500 && problem.status != 503 => -32603,
            Self::Refused(_) => REFUSED,
        };
        json!({ "code": code, "message": self.text(), "data": self.details() })
    }

    /// Returns the body of HTTP+JSON.
    pub(crate) fn rest(&self) -> Value {
        let status = match self {
            Self::Standard { kind, .. } => kind.forms().2,
            Self::Refused(problem) => match problem.status {
                401 => "UNAUTHENTICATED",
                403 => "PERMISSION_DENIED",
                404 => "NOT_FOUND",
                409 => "FAILED_PRECONDITION",
                429 => "RESOURCE_EXHAUSTED",
                503 | 507 => "UNAVAILABLE",
                500.. => "INTERNAL",
                _ => "INVALID_ARGUMENT",
            },
        };
        let code = self.status().as_u16();
        json!({ "error": { "code": code, "status": status, "message": self.text(), "details": self.details() } })
    }
}

fn info(domain: &str, reason: &str, metadata: &Map<String, Value>) -> Value {
    json!({ "@type": ERROR_INFO, "reason": reason, "domain": domain, "metadata": metadata })
}

impl From<ApiError> for Fault {
    fn from(fault: ApiError) -> Self {
        Self::Refused(fault.0)
    }
}
