//! What a launcher gives the program that it starts, and what the two tell each other of the program's session.

use std::io;
use std::path::Path;

use serde_json::{Value, json};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// The id under which everything of a session calls the broker. One session at a time sits in an agent's place.
pub const CLIENT: &str = "session";
/// Most events and orders that wait between the session and its attendant.
const QUEUE_MAX: usize = 64;
/// Why a turn failed whose user broke it off, and one whose user refused a call or closed its dialog.
pub(crate) const INTERRUPTED: &str = "the user of the session interrupted the turn";
pub(crate) const REFUSED: &str = "the user of the session refused the call";

/// What a launcher gives the program that it starts.
pub struct Launch {
    /// The path of the program `lastword`.
    pub lastword: String,
    /// Its options that name the broker.
    pub endpoint: Vec<String>,
    /// The broker's MCP endpoint; `None` if the program's own client couldn't verify its certificate.
    pub mcp_url: Option<String>,
    /// The agent's token.
    pub token: String,
    /// What the model is told of Lastword.
    pub primer: &'static str,
    /// A call that a message asks for waits for any human of the team.
    pub held: bool,
    /// What the program's own settings allow runs unasked, also where a message asks for it.
    pub unheld: bool,
}

impl Launch {
    /// Returns the headers of calls of the MCP endpoint.
    pub(crate) fn headers(&self, token: &str) -> Value {
        json!({ "Authorization": format!("Bearer {token}"), "Lastword-Client": CLIENT })
    }

    /// Returns the arguments of `lastword mcp` with the token in this file.
    pub(crate) fn mcp(&self, token: &Path) -> Vec<String> {
        let token = ["--token-file".to_owned(), token.display().to_string(), "mcp".to_owned()];
        self.endpoint.iter().cloned().chain(token).collect()
    }
}

/// Why a program isn't started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// An argument or a setting of the user stands against it.
    #[error("{problem}")]
    Refused {
        /// What stands against it.
        problem: String,
        /// What the user does about it, if the problem doesn't say so.
        hint: Option<&'static str>,
    },
    /// An argument or a setting of the user can't be read.
    #[error("{0}")]
    Unreadable(String),
    /// A file can't be read or made.
    #[error(transparent)]
    File(#[from] io::Error),
}

/// Keeps the id of a session in which something is said, as the agent's last one.
pub type Keep = Box<dyn Fn(&str) + Send + Sync>;

/// What happens in a program's session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// A session that can take a text began.
    Began,
    /// A turn began that the attendant did not start. Holds its prompt, which is empty if the program started the turn.
    Prompted(String),
    /// A dialog opened.
    Asked(Asked),
    /// The dialog about this call closed.
    Settled(String),
    /// A model request ended that used this, as the program's machine output reports it.
    Used(Value),
    /// The model ended its turn with this text.
    Answered(String),
    /// The turn ended without an answer, for this reason.
    BrokeOff(String),
}

/// A call for which a dialog of the program is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The program's own id of the dialog.
    pub id: String,
    /// The tool's name.
    pub tool: String,
    /// All that the program shows of the call; `None` for a dialog that only its user can answer.
    pub arguments: Option<Value>,
}

/// What a session does for the attendant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Gives a text to the model.
    Say(String),
    /// Interrupts the model's turn.
    Interrupt,
    /// Answers the dialog with this id: allows the call, or refuses it with a reason for the model.
    Decide(String, Result<(), String>),
}

/// A program's end of the connection: it reports events and takes orders.
pub struct Session {
    /// What happens in the session.
    pub happened: Sender<Happened>,
    /// What the session is to do.
    pub orders: Receiver<Order>,
}

/// The attendant's end of the connection.
pub struct Attendant {
    /// What happens in the session.
    pub happened: Receiver<Happened>,
    /// What the session is to do.
    pub orders: Sender<Order>,
}

/// Returns the two ends of a new connection.
#[must_use]
pub fn connection() -> (Session, Attendant) {
    let (happened, events) = channel(QUEUE_MAX);
    let (sender, orders) = channel(QUEUE_MAX);
    (Session { happened, orders }, Attendant { happened: events, orders: sender })
}
