//! The log of a workspace in a stream of NATS JetStream, and each node's mirror of it.
//!
//! ```text
//!   leader   Log::append ──► one message, part by part ──► stream LASTWORD_<ws> ──► ack ──► its mirror ──► Ok
//!   node     Mirror::follow ◄── ordered consumer ◄── stream                    every mirror is an ordinary lastword.db
//!   takeover Mirror::lead: EpochStart ──► ack at E ──► read through E ──► Log
//! ```
//!
//! - The stream is the truth. A mirror is a cache in the format of the SQLite log, so that everything that reads one
//!   works on it unchanged. It may be deleted.
//! - A commit, the entries of one append, is one message, or several parts if it is long. It counts once its last part
//!   is in the stream, and only if no [`EpochStart`](record::EpochStart) of a newer epoch precedes it.
//! - One append is in flight at a time. Each message states the last sequence of the stream and of the epoch subject that
//!   its leader knows, so an old leader writes nothing behind the new leader's `EpochStart`.
//! - A publish whose outcome is unknown is looked up in the stream by its epoch and batch, as the stream's leader has it,
//!   and published again if it isn't there. Both are safe: the expectations let it in at most once.

mod address;
mod archive;
mod asking;
mod claim;
mod file;
mod leader;
mod mirror;
mod moves;
mod nats;
mod news;
mod opening;
mod options;
mod record;
mod tail;

pub use self::address::shown_address;
pub use self::asking::{AskError, Listener, Question, Questions};
pub use self::leader::Lease;
pub use self::mirror::{Mirror, MirrorError};
pub use self::moves::{MoveError, Moved, move_in, move_out};
pub use self::nats::{Copies, Nats, NatsError};
pub use self::options::NatsOptions;
pub use self::record::SetAside;
