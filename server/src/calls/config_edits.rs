//! The configuration file, as far as humans change it while the server runs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use lastword_broker::off_thread;
use lastword_facts::Code;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard};

use super::{Caller, Context};
use crate::error::ApiError;

/// A configuration file that keeps its comments and its order.
pub trait EditableConfig: fmt::Debug + Send + Sync {
    /// Returns the file's path, for a human to read.
    fn place(&self) -> String;

    /// Writes a rule of held calls above all others, below a comment of one line.
    ///
    /// # Errors
    /// A sentence with the reason; the file is unchanged.
    fn add_rule(&self, rule: &str, comment: &str) -> Result<(), String>;

    /// Removes a rule that was written so, with its comment.
    ///
    /// # Errors
    /// A sentence with the reason; the file is unchanged.
    fn remove_rule(&self, rule: &str) -> Result<(), String>;

    /// Returns the comment of each of these rules; `None` if the file has no rule that is written so.
    fn rule_comments(&self, rules: &[String]) -> Vec<Option<String>>;

    /// Sets limits, by name, each with this comment behind it. Returns the place of each, as `FILE:LINE`.
    ///
    /// # Errors
    /// A sentence with the reason; the file is unchanged.
    fn set_limits(&self, limits: &BTreeMap<String, u64>, comment: &str) -> Result<BTreeMap<String, String>, String>;
}

/// What humans change in the configuration file.
#[derive(Clone, Debug, Default)]
pub struct ConfigEdits {
    file: Option<Arc<dyn EditableConfig>>,
    set_at: Arc<Mutex<BTreeMap<String, String>>>,
    // Held over the reading and the replacing of a setting, so that no change is lost.
    turn: Arc<AsyncMutex<()>>,
}

impl ConfigEdits {
    pub(crate) fn new(file: Option<Arc<dyn EditableConfig>>, set_at: BTreeMap<String, String>) -> Self {
        Self { file, set_at: Arc::new(Mutex::new(set_at)), turn: Arc::default() }
    }

    /// Returns the file that is changed; `None` where the configuration is kept elsewhere.
    #[must_use]
    pub fn place(&self) -> Option<String> {
        self.file.as_ref().map(|file| file.place())
    }

    /// Returns where a limit, `profile` or `observe` is set, as `FILE:LINE`.
    #[must_use]
    pub fn set_at(&self, name: &str) -> Option<String> {
        self.set_at.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    pub(super) fn now_set_at(&self, places: BTreeMap<String, String>) {
        self.set_at.lock().unwrap_or_else(PoisonError::into_inner).extend(places);
    }

    pub(super) const fn file(&self) -> Option<&Arc<dyn EditableConfig>> {
        self.file.as_ref()
    }

    /// Returns the file to change.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn editable(&self) -> Result<Arc<dyn EditableConfig>, ApiError> {
        let none = "This server has no configuration file that it can write: change it where its configuration is kept";
        self.file.clone().ok_or_else(|| ApiError::new(Code::Malformed, none))
    }

    pub(super) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }
}

/// Returns who changes the file, and when, for its comments.
pub(super) async fn author(ctx: &Context, caller: Caller) -> Result<String, ApiError> {
    let human = caller.principal.agent();
    let name = ctx.handle.query(move |live| live.state.name_of(human).to_owned()).await?;
    let day = lastword_wire::rfc3339(ctx.handle.now()).get(..16).unwrap_or_default().replace('T', " ");
    Ok(format!("{name} on {day} UTC"))
}

/// Writes the file, not on a thread that serves calls.
pub(super) async fn write<T: Send + 'static>(
    write: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<Result<T, String>, ApiError> {
    Ok(off_thread(move || Ok(write())).await?)
}
