//! The two bindings: what a request of each asks for.

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Method};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::card;
use crate::fault::{Fault, Kind};
use crate::model::{ListTasks, NamedPush, NamedTask, Operation, PushConfig};

const EXTENDED: &str = "extendedAgentCard";
const PUSH: &str = "pushNotificationConfigs";
const VERSION_HEADER: &str = "a2a-version";

/// Refuses every version but 1.0. No version means 0.3.
pub(crate) fn spoken(headers: &HeaderMap, query: &str) -> Result<(), Fault> {
    let by_header = headers.get(VERSION_HEADER).map(|value| value.to_str().unwrap_or("?"));
    let by_query = query.split('&').find_map(|pair| pair.strip_prefix("A2A-Version="));
    let version = by_header.filter(|text| !text.is_empty()).or(by_query).unwrap_or_default().trim();
    if version == card::VERSION {
        return Ok(());
    }
    let named = if version.is_empty() { "none, which means 0.3".to_owned() } else { format!("{version:?}") };
    let text = format!("The header A2A-Version names {named}: this agent speaks {}", card::VERSION);
    Err(Fault::new(Kind::VersionNotSupported, text))
}

/// Refuses a body that isn't JSON by its own word.
fn is_json(headers: &HeaderMap) -> Result<(), Fault> {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if kind == "application/json" || kind == "application/a2a+json" {
        return Ok(());
    }
    let text = format!("The body is {kind:?}: send application/json, or application/a2a+json over HTTP+JSON");
    Err(Fault::new(Kind::ContentTypeNotSupported, text))
}

/// The members of a request of JSON-RPC.
#[derive(Deserialize)]
struct Rpc {
    jsonrpc: String,
    method: String,
    #[serde(default)]
    params: Value,
}

/// Returns the id of a request of JSON-RPC, and the operation that it names.
pub(crate) fn called(headers: &HeaderMap, bytes: &[u8]) -> (Value, Result<Operation, Fault>) {
    if let Err(fault) = is_json(headers) {
        return (Value::Null, Err(fault));
    }
    let value: Value = match serde_json::from_slice(bytes) {
        Ok(value) => value,
        Err(error) => return (Value::Null, Err(Fault::new(Kind::Parse, format!("The body isn't JSON: {error}")))),
    };
    let id = value.get("id").filter(|id| id.is_string() || id.is_number()).cloned().unwrap_or(Value::Null);
    let wrong = |text: String| Fault::new(Kind::InvalidRequest, text);
    if !value.is_object() {
        return (id, Err(wrong("The request is none of JSON-RPC: it has to be one object".to_owned())));
    }
    let parsed = Rpc::deserialize(&value).map_err(|error| wrong(format!("The request is none of JSON-RPC: {error}")));
    let parsed = parsed.and_then(|rpc| {
        if rpc.jsonrpc != "2.0" {
            return Err(wrong(format!("`jsonrpc` is {:?}, and has to be \"2.0\"", rpc.jsonrpc)));
        }
        if value.get("id").is_some_and(|id| !id.is_string() && !id.is_number() && !id.is_null()) {
            return Err(wrong("`id` has to be a text or a number".to_owned()));
        }
        let params = if rpc.params.is_null() { json!({}) } else { rpc.params };
        operation(&rpc.method, params)
    });
    (id, parsed)
}

fn operation(method: &str, params: Value) -> Result<Operation, Fault> {
    Ok(match method {
        "SendMessage" => Operation::Send(Box::new(parameters(params)?)),
        "SendStreamingMessage" => Operation::SendStreaming(Box::new(parameters(params)?)),
        "GetTask" => Operation::Get(parameters(params)?),
        "ListTasks" => Operation::List(parameters(params)?),
        "CancelTask" => Operation::Cancel(parameters(params)?),
        "SubscribeToTask" => Operation::Subscribe(parameters(params)?),
        "CreateTaskPushNotificationConfig" => Operation::CreatePush(parameters(params)?),
        "GetTaskPushNotificationConfig" => Operation::GetPush(parameters(params)?),
        "ListTaskPushNotificationConfigs" => Operation::ListPush(parameters(params)?),
        "DeleteTaskPushNotificationConfig" => Operation::DeletePush(parameters(params)?),
        "GetExtendedAgentCard" => Operation::ExtendedCard,
        _ => return Err(Fault::new(Kind::MethodNotFound, format!("There is no method {method:?}"))),
    })
}

/// Brings members to the one form that ProtoJSON writes: it also reads their names as the definition has them, a null as
/// nothing, and a number as a text. What is of the caller's own choice stays as it is.
fn read_as_proto(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, mut member) in std::mem::take(members) {
                let name = camel(&name);
                if name == "data" || name == "metadata" {
                    // A null is a value of data, and no metadata.
                    if name == "data" || !member.is_null() {
                        members.insert(name, member);
                    }
                    continue;
                }
                if ["historyLength", "pageSize"].contains(&name.as_str())
                    && let Some(number) = member.as_str().and_then(|text| text.parse::<i32>().ok())
                {
                    member = number.into();
                }
                if !member.is_null() {
                    read_as_proto(&mut member);
                    members.insert(name, member);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(read_as_proto),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns a name of the definition, such as `message_id`, as JSON has it.
fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |mut all, word| {
        let mut letters = word.chars();
        all.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        all.push_str(letters.as_str());
        all
    })
}

/// Parses the parameters of an operation; an error names the wrong member.
fn parameters<T: DeserializeOwned>(mut params: Value) -> Result<T, Fault> {
    if !params.is_object() {
        return Err(Fault::field("params", "has to be an object"));
    }
    read_as_proto(&mut params);
    serde_path_to_error::deserialize(params).map_err(|error| {
        let path = error.path().to_string();
        let field = if path == "." { "params".to_owned() } else { path };
        Fault::field(&field, format!("is wrong: {}", error.inner()))
    })
}

/// An operation of HTTP+JSON, by its method and path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Send,
    SendStreaming,
    List,
    Get(String),
    Cancel(String),
    Subscribe(String),
    CreatePush(String),
    ListPush(String),
    GetPush(String, String),
    DeletePush(String, String),
    Extended,
}

/// Why a path has no operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// There is nothing.
    Path,
    /// It has other methods.
    Method(&'static str),
}

/// Finds the operation of a path below an agent's address.
pub(crate) fn route(method: &Method, path: &str) -> Result<Route, Missing> {
    let parts: Vec<&str> = path.split('/').collect();
    let (get, post, delete) = (*method == Method::GET, *method == Method::POST, *method == Method::DELETE);
    let text = |id: &str| id.to_owned();
    match parts.as_slice() {
        ["message:send"] if post => Ok(Route::Send),
        ["message:stream"] if post => Ok(Route::SendStreaming),
        ["message:send" | "message:stream"] => Err(Missing::Method("POST")),
        [EXTENDED] if get => Ok(Route::Extended),
        ["tasks"] if get => Ok(Route::List),
        [EXTENDED | "tasks"] => Err(Missing::Method("GET")),
        ["tasks", id] => match (id.strip_suffix(":cancel"), id.strip_suffix(":subscribe")) {
            (Some(id), _) if post => Ok(Route::Cancel(text(id))),
            (Some(_), _) => Err(Missing::Method("POST")),
            // The text of the standard says POST, its definition GET.
            (_, Some(id)) if get || post => Ok(Route::Subscribe(text(id))),
            (_, Some(_)) => Err(Missing::Method("GET, POST")),
            (None, None) if get => Ok(Route::Get(text(id))),
            (None, None) => Err(Missing::Method("GET")),
        },
        ["tasks", id, PUSH] if post => Ok(Route::CreatePush(text(id))),
        ["tasks", id, PUSH] if get => Ok(Route::ListPush(text(id))),
        ["tasks", _, PUSH] => Err(Missing::Method("GET, POST")),
        ["tasks", id, PUSH, config] if get => Ok(Route::GetPush(text(id), text(config))),
        ["tasks", id, PUSH, config] if delete => Ok(Route::DeletePush(text(id), text(config))),
        ["tasks", _, PUSH, _] => Err(Missing::Method("DELETE, GET")),
        _ => Err(Missing::Path),
    }
}

impl Route {
    /// Parses what the operation needs.
    pub(crate) fn parsed(self, headers: &HeaderMap, query: &str, bytes: &[u8]) -> Result<Operation, Fault> {
        let body = || -> Result<Value, Fault> {
            is_json(headers)?;
            serde_json::from_slice(bytes)
                .map_err(|error| Fault::new(Kind::Parse, format!("The body isn't JSON: {error}")))
        };
        let push = |task_id: String, id: String| NamedPush { task_id, id };
        Ok(match self {
            Self::Send => Operation::Send(Box::new(parameters(body()?)?)),
            Self::SendStreaming => Operation::SendStreaming(Box::new(parameters(body()?)?)),
            Self::List => Operation::List(queried::<ListTasks>(query)?),
            Self::Get(id) => Operation::Get(NamedTask { id, ..queried(query)? }),
            // Their bodies have nothing that counts here, and may be missing.
            Self::Cancel(id) => Operation::Cancel(NamedTask { id, history_length: None }),
            Self::Subscribe(id) => Operation::Subscribe(NamedTask { id, history_length: None }),
            Self::CreatePush(task_id) => Operation::CreatePush(PushConfig { task_id, ..parameters(body()?)? }),
            Self::ListPush(task_id) => Operation::ListPush(push(task_id, String::new())),
            Self::GetPush(task_id, id) => Operation::GetPush(push(task_id, id)),
            Self::DeletePush(task_id, id) => Operation::DeletePush(push(task_id, id)),
            Self::Extended => Operation::ExtendedCard,
        })
    }
}

fn queried<T: DeserializeOwned>(query: &str) -> Result<T, Fault> {
    let given: Vec<&str> = query.split('&').filter(|pair| !pair.ends_with('=')).collect();
    serde_urlencoded::from_str(&given.join("&")).map_err(|error| Fault::field("query", format!("is wrong: {error}")))
}
