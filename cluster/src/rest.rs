//! Workspaces at rest: what their leases say of it, and whose call wakes them.

use std::time::Duration;

use lastword_broker::identity::hex;
use lastword_facts::fact::Credential;
use serde::{Deserialize, Serialize};

/// The characters of a token's hash that a rest keeps.
const CHARS: usize = 8;
/// The most tokens that a rest knows: each node has them in memory.
const TOKENS_MAX: usize = 384;

/// What a lease says of a workspace at rest: nobody leads or follows it until something is due, or somebody calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rest {
    /// How long it lasts until something is due, in ms; `None` if nothing ever is.
    pub lasts_ms: Option<u64>,
    /// The beginnings of the hashes of its tokens, each 8 hexadecimal digits; `None` if there are too many of them.
    pub tokens: Option<String>,
    /// The number of the configuration that was in force.
    pub config: u64,
}

/// When a rest began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rested {
    /// By the broker's time, in ms since the Unix epoch.
    pub at: u64,
    /// By the wall clock of the node that led, in ms since the Unix epoch.
    pub since: u64,
}

/// How long ago a rest began, by this node's own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RestClock {
    /// When this node heard of it.
    pub(crate) seen: Duration,
    /// How old it was then.
    pub(crate) age: Duration,
}

impl RestClock {
    /// Returns the age of the rest.
    pub(crate) fn age(self, now: Duration) -> Duration {
        self.age.saturating_add(now.saturating_sub(self.seen))
    }

    /// Returns the time at which the rest has this age.
    pub(crate) fn after(self, age: Duration) -> Duration {
        self.seen.saturating_add(age.saturating_sub(self.age))
    }
}

impl Rest {
    /// Returns what a rest keeps of these tokens.
    pub(crate) fn tokens(known: &[Credential]) -> Option<String> {
        (known.len() <= TOKENS_MAX).then(|| known.iter().map(begin).collect())
    }

    /// Returns whether a token with this hash may be one of the workspace; `None` if the rest doesn't tell.
    pub(crate) fn knows(&self, credential: &Credential) -> Option<bool> {
        let (tokens, shown) = (self.tokens.as_ref()?, begin(credential));
        Some(tokens.as_bytes().chunks_exact(CHARS).any(|known| known == shown.as_bytes()))
    }
}

fn begin(credential: &Credential) -> String {
    hex(&credential[..CHARS / 2])
}

#[cfg(test)]
mod tests {
    use lastword_broker::identity::credential;

    use super::*;

    #[test]
    fn a_rest_knows_the_tokens_of_its_workspace_and_no_others() {
        let known: Vec<Credential> = (0..300).map(|n| credential(&format!("lw_{n}"))).collect();
        let rest = Rest { tokens: Rest::tokens(&known), ..Rest::default() };
        assert!(known.iter().all(|token| rest.knows(token) == Some(true)));
        assert_eq!((0..300).filter(|n| rest.knows(&credential(&format!("lw_x{n}"))) == Some(true)).count(), 0);
        let many: Vec<Credential> = (0..TOKENS_MAX + 1).map(|n| credential(&n.to_string())).collect();
        let rest = Rest { tokens: Rest::tokens(&many), ..Rest::default() };
        assert_eq!(rest.knows(&many[0]), None, "it doesn't tell");
    }
}
