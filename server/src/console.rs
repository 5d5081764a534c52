//! What the configuration says of the console.

use crate::passkeys::{PasskeyUse, Site};

/// The console as people reach it.
#[derive(Clone, Debug)]
pub struct ConsoleSettings {
    /// Its address for people, up to its path, if it differs from where the server listens.
    pub address: Option<String>,
    /// Whether humans may switch notifications on in their browsers.
    pub push: bool,
    /// Whether webhooks that humans add may be on this machine or its network.
    pub allow_private: bool,
    /// Where a passkey is asked for, which needs an address.
    pub passkey: PasskeyUse,
}

impl ConsoleSettings {
    /// Returns the site for which passkeys are made; `None` if none is asked for.
    ///
    /// # Errors
    /// The address is missing, or one for which browsers make none; the text says so.
    pub fn site(&self) -> Result<Option<Site>, String> {
        match (self.passkey, &self.address) {
            (PasskeyUse::Off, _) => Ok(None),
            (PasskeyUse::Console | PasskeyUse::Always, Some(address)) => Site::of(address).map(Some),
            (PasskeyUse::Console | PasskeyUse::Always, None) => Err("it needs the console's address".to_owned()),
        }
    }
}

impl Default for ConsoleSettings {
    fn default() -> Self {
        Self { address: None, push: true, allow_private: false, passkey: PasskeyUse::Off }
    }
}
