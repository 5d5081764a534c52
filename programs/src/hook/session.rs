//! What is known of a session from one hook to the next.

use std::path::PathBuf;

use lastword_client::wire::{Finish, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Occasion, dialog, edit, transcript};
use crate::wording::mark;

/// The state of a session between two hooks.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct HookSession {
    /// The open turn that a delivery opened in the session.
    pub(super) turn: Option<Open>,
    /// The user typed during that turn, so it isn't finished automatically.
    pub(super) mixed: bool,
    /// The model has been given the rules of conduct in this session.
    pub(super) told: bool,
    /// The model works on something that the user typed.
    #[serde(default)]
    pub(super) busy: bool,
    /// The session's transcript, as its last hook named it.
    #[serde(default)]
    pub(super) transcript: Option<PathBuf>,
    /// The turn that ended last, for as long as the user has typed nothing since: what the program does by itself is due
    /// to it (H4).
    #[serde(default)]
    pub(super) after: Option<String>,
    /// The next prompt of the program's own may be the end of what its user started before the turn.
    #[serde(default)]
    pub(super) spares: bool,
    /// The program works by itself, and is being interrupted.
    #[serde(default)]
    pub(super) strays: bool,
    /// What is known of its edits.
    #[serde(default)]
    pub(super) edits: edit::Edits,
    /// The model works, as far as hooks tell.
    #[serde(default)]
    pub(super) works: bool,
    /// The length of the transcript when the model began to work.
    #[serde(default)]
    pub(super) began: u64,
    /// A dialog of the program is open.
    #[serde(default)]
    pub(super) waits: bool,
    /// The calls of the session's dialogs that wait for humans of the team.
    #[serde(default)]
    pub(super) held: Vec<dialog::DialogCall>,
    /// The end of the turn, which a broker that was away has not taken yet.
    #[serde(default)]
    pub(super) owed: Option<Box<Finish>>,
}

impl HookSession {
    /// Returns what the turn used so far, if it is the turn's alone and the transcript has it.
    pub(super) fn used(&self, occasion: &Occasion) -> Option<Usage> {
        let open = self.turn.as_ref().filter(|_| !self.mixed)?;
        let counted = occasion.usage.clone();
        counted.or_else(|| transcript::used(occasion.transcript_path.as_deref()?, open.transcript))
    }

    /// Whether the user broke off what the model works at, of which no hook tells.
    pub(super) fn is_interrupted(&self) -> bool {
        self.transcript.as_deref().is_some_and(|path| transcript::is_interrupted(path, self.began))
    }

    /// Forgets a turn that is over.
    pub(super) fn close(&mut self) {
        self.after = self.turn.take().map(|open| open.id).or_else(|| self.after.take());
        (self.mixed, self.owed) = (false, None);
    }

    pub(super) fn woke_with(&self, prompt: &str) -> bool {
        self.turn.as_ref().is_some_and(|open| prompt.contains(&mark(&open.reference, &open.id)))
    }

    /// Returns the line that says who asked what, for the person at the session.
    pub(super) fn announces(&self, prompt: &str) -> Option<Value> {
        let open = self.turn.as_ref()?;
        let line = prompt.lines().find(|line| line.contains(&mark(&open.reference, &open.id)))?;
        Some(json!({ "systemMessage": line.trim_end_matches(':') }))
    }
}

/// An open turn.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Open {
    pub(super) id: String,
    /// The agent or human that the turn's answer goes to; `None` for the answer to a request of the session's own.
    #[serde(default)]
    pub(super) requester: Option<String>,
    pub(super) reference: String,
    /// The length of the session's transcript when the turn began: what follows is the turn's.
    #[serde(default)]
    pub(super) transcript: u64,
    /// The model was told that the turn's budget is used up.
    #[serde(default)]
    pub(super) spent: bool,
    /// The model ended its turn without finishing this one.
    #[serde(default)]
    pub(super) stopped: bool,
}
