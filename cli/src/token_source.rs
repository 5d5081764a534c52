//! Where a command takes its token from.

use std::fmt;
use std::path::PathBuf;

/// The source of the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TokenSource {
    /// The text of `LASTWORD_TOKEN`.
    Text(String),
    /// A file that a flag, a variable or the configuration names.
    File(PathBuf),
    /// None is named; the operator's own is used if no agent can be acting.
    Implicit,
}

impl fmt::Display for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str("LASTWORD_TOKEN"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Implicit => f.write_str("the data directory"),
        }
    }
}
