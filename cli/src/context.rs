//! What every command gets.

use crate::config::Settings;
use crate::environment::Environment;
use crate::out::Out;

/// The input of every command.
pub(crate) struct Context {
    pub(crate) settings: Settings,
    pub(crate) environment: Environment,
    pub(crate) out: Out,
}
