//! Recurring work (D13).

use alloc::boxed::Box;

use serde::{Deserialize, Serialize};

use crate::names::Label;

/// A schedule: a recurring request in a human's name (D13).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// The name, unique in the workspace.
    pub name: Label,
    /// The times of its ticks, as a cron expression of five fields. Only the shell parses it.
    pub cron: Box<str>,
    /// The IANA name of the time zone in which the expression is read.
    pub time_zone: Box<str>,
    /// The recipient of each tick's request: one agent, or an action.
    pub to: crate::envelope::Address,
    /// The text of the request.
    pub body: Box<str>,
    /// The REF of each tick, with `{date}` and `{n}` filled in; `NAME-{n}` when `None`.
    pub reference: Option<Box<str>>,
}
