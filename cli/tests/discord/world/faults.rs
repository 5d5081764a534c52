//! What goes wrong between a bot and Discord, by a test's wish, and the record of what was called.

use super::model::{Discord, Id};

/// One call of the REST interface.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: String,
    /// The path behind `/api/v10`.
    pub(crate) path: String,
    /// Whose token it had, where it had one.
    pub(crate) bot: Option<Id>,
    /// The status that it was answered with.
    pub(crate) status: u16,
    /// When.
    pub(crate) at: tokio::time::Instant,
}

/// What happens to a call instead.
#[derive(Clone, Debug)]
pub(crate) enum Mishap {
    /// 429: not now.
    Limited { retry_after_ms: u64, global: bool },
    /// This status, and nothing is done.
    Refused(u16),
    /// It is done, and the connection breaks before the answer is through.
    Lost,
    /// It is done, and answered with 502.
    BadGateway,
}

/// A mishap that waits for the call that it fits.
#[derive(Clone, Debug)]
pub(crate) struct InjectedError {
    pub(crate) method: &'static str,
    /// A part of the path.
    pub(crate) path: String,
    pub(crate) bot: Option<Id>,
    pub(crate) mishap: Mishap,
}

/// Calls that wait until the test lets them go on.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    /// How many wait now.
    pub(crate) waiting: u32,
}

impl Discord {
    /// The first mishap that fits the call, which is then over.
    pub(crate) fn mishap(&mut self, method: &str, path: &str, bot: Option<Id>) -> Option<Mishap> {
        let fits =
            |f: &InjectedError| f.method == method && path.contains(&f.path) && (f.bot.is_none() || f.bot == bot);
        let place = self.faults.iter().position(fits)?;
        self.faults.remove(place).map(|fault| fault.mishap)
    }

    /// Where the call is held, if it is.
    pub(crate) fn hold(&mut self, method: &str, path: &str) -> Option<&mut Hold> {
        self.holds.iter_mut().find(|hold| hold.method == method && path.contains(&hold.path))
    }
}
