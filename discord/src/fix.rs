//! The bug trail of a Discord broker: each fix is a check that `trail.rs` disables, to show that the bug comes back.
//!
//! In the shipped program [`holds`] is `true` at compile time. `naive.rs` holds what a broker without a fix would do;
//! it is compiled only for tests.

/// A fix of the bug trail.
#[cfg_attr(not(test), expect(dead_code, reason = "some are checked only in `naive.rs`"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fix {
    /// Our own posts count, too, except those that only show what the broker has counted.
    OwnPostsCount,
    /// Posts that the policy keeps out are counted first.
    CountedBeforePolicy,
    /// Posts that the list of trusted bots keeps out are counted first.
    CountedBeforeTrust,
    /// A human is heard without a mention, so that a reached limit is lifted.
    HumansAreHeard,
    /// Only the text of an allowed human counts as a human's post.
    OnlyWordsAreWords,
    /// The list of humans applies only to humans.
    ListsApart,
    /// Only a mention in the text counts, not the ping of a reply.
    LiteralMentions,
    /// The broker's own warning is neither counted nor delivered when it comes back.
    WarningsAreEchoes,
    /// A warning is posted only for the one fact that reports it.
    OneFactOneWarning,
    /// Only the broker's bot warns.
    BrokerWarns,
    /// A notice involves no agent: a reply to one sends no request.
    NoticesInvolveNobody,
    /// Nothing is posted outside of the bridge's channels.
    OnlyWhereItTakesPart,
    /// A thread is looked up under the same id under which it was noted.
    OneKey,
    /// A warning shows the broker's numbers.
    NumbersOfTheBroker,
    /// The parts of a long answer are one post.
    PartsAreOnePost,
    /// A post with a header counts where people see it, too.
    EnvelopesAreSeen,
    /// A post read too late sends no request.
    OldAsksNobody,
}

/// Returns whether a fix is active.
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

    /// Runs a test on this thread with one fix disabled.
    pub(crate) fn without<T>(fix: Fix, run: impl FnOnce() -> T) -> T {
        OFF.set(Some(fix));
        let result = run();
        OFF.set(None);
        result
    }
}
