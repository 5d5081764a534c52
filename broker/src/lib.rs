//! The broker: judges inputs, appends their facts to the log, and releases the replies once the facts are durable.
//!
//! [`boot`] starts its two threads on a log. [`identity`] turns a token into a principal, and [`Handle::submit`] hands an
//! input to the thread that owns the core; its reply is durable. Reads that need the state run as closures on that
//! thread ([`Live`]). What follows the log beside them is here, too: snapshots, checkpoints, the archive and the scrub.

pub mod archive;
pub mod checkpoint;
pub mod clock;
pub mod disk;
pub mod files;
pub mod identity;
pub mod metrics;
pub mod priority;
pub mod scrub;
pub mod sync;

mod boot;
mod faults;
mod handle;
mod handover;
mod holders;
#[cfg(all(test, feature = "interleavings"))]
mod interleavings_tests;
mod judge;
mod keeper;
mod live;
mod queue;
mod reads;
mod receiving;
mod recent;
mod unserved;
mod wakes;
mod writer;

pub use crate::boot::{Boot, BootError, begin_epoch, boot, boot_by, fold, replay};
pub use crate::handle::{Handle, Parcel};
pub use crate::holders::{Claimable, ClientId, Holders};
pub use crate::judge::QUEUE_MAX;
pub use crate::keeper::{Stored, keep_snapshots, save_snapshot};
pub use crate::live::Live;
pub use crate::reads::{ReadLane, off_thread};
pub use crate::receiving::{Receiver, Receiving};
pub use crate::recent::weight;
pub use crate::unserved::{BrokerFailure, Unserved};
pub use crate::wakes::{Bell, Subscription, Wait};
