//! Hooks of an agent that sits in a session of its own, in the words of Claude Code: deliveries come into the
//! session by themselves, and a turn that a delivery opened is finished with what the model said last.
//!
//! Whether a person typed is all that is known of a session. So a turn in which somebody did is never finished
//! by itself: what was said last may be meant for that person. And a prompt is no human's grant here: the
//! program sends prompts of its own, too (schedules, agents of its own that come back).

use std::fs::{self, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lastword_client::wire::{Delivery, Finish};
use lastword_client::{Client, ClientError};
use lastword_proto::fact::Kind;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::wording::{Memory, prompt};

/// Longest session id that becomes a file's name.
const SESSION_BYTES_MAX: usize = 128;

/// What the program tells a hook on standard input; other members are passed over.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Occasion {
    /// What happened: `SessionStart`, `UserPromptSubmit` or `Stop`.
    pub hook_event_name: String,
    /// The session.
    pub session_id: String,
    /// Where the session is written down, one JSON value a line.
    pub transcript_path: Option<PathBuf>,
    /// `Stop`: what the model said last.
    pub last_assistant_message: Option<String>,
    /// `Stop`: a hook has made the model go on before, in this turn.
    pub stop_hook_active: bool,
}

/// Why a hook did nothing.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// The broker could not be asked, or said no.
    #[error(transparent)]
    Broker(#[from] ClientError),
    /// What is known of the session could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// The token is a human's.
    #[error("the token is a human's: a hook acts as the agent that sits in the session")]
    Human,
    /// The input names no session.
    #[error("the input names no session: this command is called by an agent program, with JSON on standard input")]
    NoSession,
}

/// What is known of a session from one hook to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
struct Session {
    /// The turn that a delivery opened in it.
    turn: Option<Open>,
    /// Somebody typed in that turn.
    mixed: bool,
    /// The model was told how to behave.
    told: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
struct Open {
    id: String,
    from: String,
    reference: String,
}

/// Does what the occasion asks for; gives what the program is to be told, if anything. `folder` keeps what is
/// known of sessions.
///
/// # Errors
/// See [`HookError`]. The session goes on all the same.
pub async fn claude(client: &Client, folder: &Path, occasion: &Occasion) -> Result<Option<Value>, HookError> {
    let kept = Kept::of(folder, &occasion.session_id)?;
    let mut session = kept.read()?;
    let me = client.agent("me").await?;
    if me.kind == Kind::Human {
        return Err(HookError::Human);
    }
    // It was finished with a tool, or its lease is over.
    session.turn = session.turn.take().filter(|open| me.turns.contains(&open.id));
    session.mixed &= session.turn.is_some();
    let said = match occasion.hook_event_name.as_str() {
        "SessionStart" => Some(context("SessionStart", &started(&session, me.queued))),
        "UserPromptSubmit" => typed(client, &mut session).await?,
        "Stop" => stopped(client, &mut session, occasion).await?,
        _ => None,
    };
    kept.write(&session)?;
    Ok(said)
}

fn started(session: &Session, queued: u64) -> String {
    let mut text =
        "You are an agent of a team whose messages Lastword routes. Requests to you are delivered into this \
                    session: with the user's prompts, and after your turns."
            .to_owned();
    if let Some(open) = &session.turn {
        text.push_str(&format!(" {}", still_open(open)));
    } else if queued > 0 {
        text.push_str(&format!(" {queued} queued."));
    }
    text
}

fn still_open(open: &Open) -> String {
    let Open { id, from, reference } = open;
    format!("Turn {id} for {from} ({reference}) is still open: when it is done, call finish_turn with its answer.")
}

/// Somebody typed. A delivery that waits comes with it, in a turn that is then both's.
async fn typed(client: &Client, session: &mut Session) -> Result<Option<Value>, HookError> {
    if let Some(open) = &session.turn {
        session.mixed = true;
        let text = format!("{} It is not finished automatically, because the user has typed.", still_open(open));
        return Ok(Some(context("UserPromptSubmit", &text)));
    }
    let Some(delivery) = next(client, session).await? else { return Ok(None) };
    session.mixed = true;
    let worded = prompt(&delivery, Memory::Kept, None, &[]);
    let text = format!(
        "Besides the user's prompt, a message from the team has arrived. Its turn is not finished automatically: call \
         finish_turn with the answer for {}, and answer the user as usual.\n\n{worded}",
        delivery.message.from
    );
    Ok(Some(context("UserPromptSubmit", &text)))
}

/// The model ends its turn: so does the delivery's, if it is its alone, and the next one comes.
async fn stopped(client: &Client, session: &mut Session, occasion: &Occasion) -> Result<Option<Value>, HookError> {
    if let Some(open) = session.turn.clone() {
        if session.mixed {
            // Once: who doesn't do it then is let go, and the lease ends some time.
            return Ok((!occasion.stop_hook_active).then(|| go_on(&still_open(&open))));
        }
        let answer = last_words(occasion)?;
        match client.finish(&open.id, &Finish { answer, ..Finish::default() }).await {
            // A refusal says that it is over already.
            Ok(_) | Err(ClientError::Refused(_)) => session.turn = None,
            Err(error) => return Err(error.into()),
        }
    }
    let Some(delivery) = next(client, session).await? else { return Ok(None) };
    let memory = if session.told { Memory::Kept } else { Memory::Fresh };
    session.told = true;
    Ok(Some(go_on(&prompt(&delivery, memory, None, &[]))))
}

/// The next delivery, without waiting; its turn is the session's from now on.
async fn next(client: &Client, session: &mut Session) -> Result<Option<Delivery>, HookError> {
    let delivery = client.inbox(Duration::ZERO).await?;
    if let Some(delivery) = &delivery {
        let message = &delivery.message;
        session.turn = delivery.turn.as_ref().map(|turn| Open {
            id: turn.id.clone(),
            from: message.from.clone(),
            reference: message.reference.clone(),
        });
        session.mixed = false;
    }
    Ok(delivery)
}

fn context(event: &str, text: &str) -> Value {
    json!({ "hookSpecificOutput": { "hookEventName": event, "additionalContext": text } })
}

fn go_on(text: &str) -> Value {
    json!({ "decision": "block", "reason": text })
}

/// What the model said last: as the program tells, else as it stands in the session's transcript.
fn last_words(occasion: &Occasion) -> Result<String, HookError> {
    if let Some(text) = &occasion.last_assistant_message {
        return Ok(text.clone());
    }
    let Some(path) = &occasion.transcript_path else { return Ok(String::new()) };
    let failed = |source| HookError::File { path: path.clone(), source };
    let mut last = String::new();
    for line in BufReader::new(fs::File::open(path).map_err(failed)?).lines() {
        let line = line.map_err(failed)?;
        // A line that is being written is none yet.
        let Ok(value) = serde_json::from_str::<Value>(&line) else { continue };
        if value["type"] == "assistant"
            && let Some(text) = texts(&value["message"]["content"])
        {
            last = text;
        }
    }
    Ok(last)
}

fn texts(content: &Value) -> Option<String> {
    let parts = content.as_array()?.iter().filter(|part| part["type"] == "text");
    let texts: Vec<&str> = parts.filter_map(|part| part["text"].as_str()).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

/// The file of a session.
struct Kept(PathBuf);

impl Kept {
    fn of(folder: &Path, session: &str) -> Result<Self, HookError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if session.is_empty() || session.len() > SESSION_BYTES_MAX || !session.chars().all(plain) {
            return Err(HookError::NoSession);
        }
        Ok(Self(folder.join(format!("{session}.json"))))
    }

    fn failed(&self, source: io::Error) -> HookError {
        HookError::File { path: self.0.clone(), source }
    }

    fn read(&self) -> Result<Session, HookError> {
        match fs::read(&self.0) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| self.failed(error.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Session::default()),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Replaces the file, whole or not at all.
    fn write(&self, session: &Session) -> Result<(), HookError> {
        let bytes = serde_json::to_vec(session).map_err(|error| self.failed(error.into()))?;
        let draft = self.0.with_extension("new");
        let write = || {
            fs::create_dir_all(self.0.parent().unwrap_or(Path::new(".")))?;
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
            file.write_all(&bytes)?;
            fs::rename(&draft, &self.0)
        };
        write().map_err(|error| self.failed(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_last_is_found_in_a_transcript_too() {
        let dir = std::env::temp_dir().join(format!("lastword-hook-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("transcript.jsonl");
        let said = |text: &str| json!({"type": "assistant", "message": {"content": [{"type": "text", "text": text}]}});
        let tool = json!({"type": "assistant", "message": {"content": [{"type": "tool_use", "name": "Bash"}]}});
        let user = json!({"type": "user", "message": {"content": "thanks"}});
        fs::write(&path, format!("{}\n{tool}\n{}\n{user}\n{{\"type\": \"assis", said("first"), said("second")))
            .unwrap();
        let mut occasion = Occasion { transcript_path: Some(path), ..Occasion::default() };
        assert_eq!(last_words(&occasion).unwrap(), "second");
        occasion.last_assistant_message = Some("third".into());
        assert_eq!(last_words(&occasion).unwrap(), "third");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_session_is_no_path() {
        for bad in ["", "..", "a/b", "../../etc/passwd", &"x".repeat(200)] {
            assert!(matches!(Kept::of(Path::new("/tmp"), bad), Err(HookError::NoSession)), "{bad}");
        }
    }
}
