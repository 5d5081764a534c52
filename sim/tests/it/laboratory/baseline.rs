//! What others do against loops, as far as it can be told from the texts: to compare the guards with.

use lastword_replay::{Said, Trace};

/// A rule that ends a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Baseline {
    /// After this many messages.
    Messages(usize),
    /// When a speaker says the same three times in a row, whatever others say in between.
    Identical,
    /// When two messages alternate three times, or two such pairs do: patterns by which OpenHands' stuck detector ends a
    /// run, read as messages. Its monologues can't occur, because two messages of one speaker in a row are one; which
    /// answers are errors, no recording says.
    Alternating,
}

impl Baseline {
    /// Returns the index of the first message that isn't said any more.
    pub(super) fn cut(self, trace: &Trace) -> Option<usize> {
        let said = &trace.messages;
        if !trace.has_texts && !matches!(self, Self::Messages(_)) {
            return None;
        }
        let ends = |end: usize| match self {
            Self::Messages(max) => end >= max,
            Self::Identical => identical(&said[..end]),
            Self::Alternating => alternates(&said[..end]),
        };
        // The message that shows it was said; the next one isn't.
        (1..said.len()).find(|end| ends(*end))
    }
}

fn identical(said: &[Said]) -> bool {
    let Some(last) = said.last() else { return false };
    let mut own = said.iter().rev().filter(|one| one.from == last.from).map(|one| one.text.trim());
    own.by_ref().take(3).filter(|text| *text == last.text.trim()).count() == 3
}

fn alternates(said: &[Said]) -> bool {
    let same = |one: &Said, other: &Said| one.from == other.from && one.text.trim() == other.text.trim();
    // Three times a period of two or four messages.
    let repeats = |period: usize| {
        let last = said.len().checked_sub(3 * period).map(|from| &said[from..]);
        last.is_some_and(|last| last.iter().zip(&last[period..]).all(|(one, other)| same(one, other)))
    };
    repeats(2) || repeats(4)
}

fn of(messages: &[(&str, &str)]) -> Trace {
    let said =
        |(from, text): &(&str, &str)| Said { from: (*from).to_owned(), text: (*text).to_owned(), ..Said::default() };
    Trace { messages: messages.iter().map(said).collect(), has_texts: true, ..Trace::default() }
}

#[test]
fn a_conversation_ends_after_so_many_messages() {
    let long = of(&[("a", "1"), ("b", "2"), ("a", "3")]);
    assert_eq!(Baseline::Messages(2).cut(&long), Some(2));
    assert_eq!(Baseline::Messages(3).cut(&long), None);
}

#[test]
fn the_third_equal_message_of_a_speaker_is_the_last() {
    let said = [("a", "hi"), ("b", "1"), ("a", "hi "), ("b", "2"), ("a", "hi"), ("b", "3")];
    assert_eq!(Baseline::Identical.cut(&of(&said)), Some(5));
    assert_eq!(Baseline::Identical.cut(&of(&said[..5])), None, "nothing comes after it");
    assert_eq!(Baseline::Alternating.cut(&of(&said)), None, "b says something else each time");
}

#[test]
fn two_messages_that_alternate_three_times_are_stuck() {
    let said = [("a", "x"), ("b", "y"), ("a", "x"), ("b", "y"), ("a", "x"), ("b", "y"), ("a", "x")];
    assert_eq!(Baseline::Alternating.cut(&of(&said)), Some(6));
    assert_eq!(Baseline::Alternating.cut(&of(&said[..5])), None);
    let pairs: Vec<_> = [("a", "x"), ("b", "1"), ("a", "y"), ("b", "2")].into_iter().cycle().take(13).collect();
    assert_eq!(Baseline::Alternating.cut(&of(&pairs)), Some(12));
}
