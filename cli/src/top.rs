//! `lastword top`: shows the workspace live at a terminal, and everything that waits for a human.
//!
//! `model` holds everything that is shown, `keys` turns a key into a change of it or an order, `draw` and `foot` only paint it,
//! `feed` keeps it up to date, and `screen` owns the terminal.

mod detail;
mod draw;
mod feed;
mod foot;
mod keys;
mod model;
mod rows;
mod screen;

pub(crate) use self::draw::draw;
pub(crate) use self::feed::{ModelUpdater, Update, carry_out};
pub(crate) use self::keys::press;
pub(crate) use self::model::{Model, Order, Seen};
pub(crate) use self::rows::{WAITS_FOR_USER, moment, share, span, told_state};
pub(crate) use self::screen::{Screen, wall_clock};

#[cfg(test)]
mod decisions_tests;
/// Example models for the tests of keys and pictures.
#[cfg(test)]
mod samples;
