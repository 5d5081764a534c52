//! Work that begins again and again (D13).

use alloc::boxed::Box;

use serde::{Deserialize, Serialize};

use crate::names::Label;

/// A schedule: a request that a human's clock sends (D13).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Its name.
    pub name: Label,
    /// When it ticks, as a cron expression of five fields; the shell reads it.
    pub cron: Box<str>,
    /// The time zone of the expression, by its IANA name.
    pub time_zone: Box<str>,
    /// One agent, or an action.
    pub to: crate::envelope::Address,
    /// What is asked.
    pub body: Box<str>,
    /// The REF of each tick, in which `{date}` and `{n}` are filled in; `NAME-{n}` where there is none.
    pub reference: Option<Box<str>>,
}
