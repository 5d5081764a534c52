//! The bug trail of a Discord broker: each fix is a check that `trail.rs` takes out, to see that the bug comes back.
//!
//! In the shipped program [`holds`] is `true` at compile time. What a broker without a fix would do instead is in `naive.rs`,
//! which is compiled for the tests only.

/// A fix of the bug trail.
#[cfg_attr(not(test), expect(dead_code, reason = "some are taken out in `naive.rs` only"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fix {
    /// Our own posts count, too, but for those that only show what the broker has counted.
    OwnPostsCount,
    /// What a policy keeps out is counted before.
    CountedBeforePolicy,
    /// What a list of trusted bots keeps out is counted before.
    CountedBeforeTrust,
    /// A human is heard without a mention, so that a limit that was reached is lifted.
    HumansAreHeard,
    /// Only what an allowed human says is a human's word.
    OnlyWordsAreWords,
    /// The list of humans is about humans.
    ListsApart,
    /// A mention is one in the text, and no reply's ping.
    LiteralMentions,
    /// The broker's warning, when it comes back, is neither counted nor delivered.
    WarningsAreEchoes,
    /// A warning is posted for the one fact that tells of it.
    OneFactOneWarning,
    /// The broker's bot warns, and nobody else.
    BrokerWarns,
    /// A notice makes nobody a participant: who replies to one asks nobody.
    NoticesInvolveNobody,
    /// Nothing is posted where the bridge takes no part.
    OnlyWhereItTakesPart,
    /// A thread is looked up under the id under which it was noted.
    OneKey,
    /// The numbers of a warning are the broker's.
    NumbersOfTheBroker,
    /// The parts of a long answer are one post.
    PartsAreOnePost,
    /// What was posted long ago asks nobody.
    OldAsksNobody,
}

/// Returns whether a fix is in.
#[cfg(not(test))]
pub(crate) const fn holds(_: Fix) -> bool {
    true
}

#[cfg(test)]
pub(crate) use testing::{holds, without};

#[cfg(test)]
mod testing {
    use std::cell::Cell;

    use super::Fix;

    thread_local! {
        static OFF: Cell<Option<Fix>> = const { Cell::new(None) };
    }

    pub(crate) fn holds(fix: Fix) -> bool {
        OFF.get() != Some(fix)
    }

    /// Runs a test on this thread with one fix taken out.
    pub(crate) fn without<T>(fix: Fix, run: impl FnOnce() -> T) -> T {
        OFF.set(Some(fix));
        let result = run();
        OFF.set(None);
        result
    }
}
