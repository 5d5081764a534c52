//! Resumes a workspace with what limits hold in it (H6).

use lastword_wire::{IncidentView, Post};

use crate::calls::Target;
use crate::error::ClientError;
use crate::http::Client;

/// The post that lifts a room's latch.
const POST: &str = "resume";
/// The kinds of subjects of an incident that a resume lifts.
const ROOM: &str = "room";
const CONVERSATIONS: [&str; 2] = ["conversation", "grant"];

/// What a resume lifted, and what holds on.
#[derive(Clone, Debug, Default)]
pub struct Lifted {
    /// The names of what was held and goes on: rooms, conversations, grants.
    pub lifted: Vec<String>,
    /// What a resume doesn't lift, such as an agent's budget of the day.
    pub held: Vec<IncidentView>,
}

impl Client {
    /// Resumes the workspace, and lifts every latch in it that a resume lifts. A room is lifted by a post; with `key`,
    /// each has a key derived from it.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn resume_all(&self, key: Option<&str>) -> Result<Lifted, ClientError> {
        self.resume(Target::Workspace).await?;
        self.lift_held(key, |_| true).await
    }

    /// Lifts the latches of these incidents.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn lift_held(
        &self,
        key: Option<&str>,
        fits: impl Fn(&IncidentView) -> bool,
    ) -> Result<Lifted, ClientError> {
        let open = |held: &IncidentView| held.lifted_at.is_none() && fits(held);
        let mut lifted = Vec::new();
        for (number, held) in self.incidents().await?.items.into_iter().filter(open).enumerate() {
            if held.scope == ROOM {
                let post = Post { body: POST.to_owned(), mentions: None, reference: None };
                let key = key.map(|key| format!("{key}.{number}"));
                self.post_in_room(&held.on, &post, key.as_deref()).await?;
            } else if CONVERSATIONS.contains(&held.scope.as_str())
                && let Some(reference) = &held.reference
            {
                self.resume(Target::Conversation(reference)).await?;
            } else {
                continue;
            }
            lifted.push(held.on);
        }
        // Read again: what is reported as lifted is lifted, whatever was tried.
        let held: Vec<IncidentView> = self.incidents().await?.items.into_iter().filter(open).collect();
        lifted.retain(|name| !held.iter().any(|held| held.on == *name));
        Ok(Lifted { lifted, held })
    }
}
