//! Faults that a test injects between a bot and Discord, and the record of all calls.

use super::model::{Discord, Id};

/// One call to the REST interface.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: String,
    /// The path after `/api/v10`.
    pub(crate) path: String,
    /// The bot whose token it carried, if any.
    pub(crate) bot: Option<Id>,
    /// The status of the response.
    pub(crate) status: u16,
    /// When it arrived, in real time.
    pub(crate) at: tokio::time::Instant,
}

/// What happens to a call instead of its result.
#[derive(Clone, Debug)]
pub(crate) enum Mishap {
    /// 429: rate limited.
    Limited { retry_after_ms: u64, global: bool },
    /// Refused with this status; nothing is done.
    Refused(u16),
    /// The call is done, but the connection breaks before the response is complete.
    Lost,
    /// The call is done, but answered with 502.
    BadGateway,
}

/// A mishap that waits for a matching call.
#[derive(Clone, Debug)]
pub(crate) struct InjectedError {
    pub(crate) method: &'static str,
    /// A part of the path.
    pub(crate) path: String,
    pub(crate) bot: Option<Id>,
    pub(crate) mishap: Mishap,
}

/// Calls that wait until the test releases them.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    /// How many calls wait now.
    pub(crate) waiting: u32,
}

impl Discord {
    /// Takes the first mishap that matches the call.
    pub(crate) fn mishap(&mut self, method: &str, path: &str, bot: Option<Id>) -> Option<Mishap> {
        let fits =
            |f: &InjectedError| f.method == method && path.contains(&f.path) && (f.bot.is_none() || f.bot == bot);
        let place = self.faults.iter().position(fits)?;
        self.faults.remove(place).map(|fault| fault.mishap)
    }

    /// Returns the hold that matches the call, if any.
    pub(crate) fn hold(&mut self, method: &str, path: &str) -> Option<&mut Hold> {
        self.holds.iter_mut().find(|hold| hold.method == method && path.contains(&hold.path))
    }
}
