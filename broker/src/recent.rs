//! The last entries of the log in memory, so that recent messages are shown without a read of the log.

use std::collections::VecDeque;
use std::sync::Arc;

use lastword_facts::{Entry, Fact, Seq};

// Both bounds hold: many small entries or a few large bodies.
const ENTRIES_MAX: usize = 4_096;
const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A bounded run of entries without gaps that ends at the end of the log.
#[derive(Debug)]
pub(crate) struct Recent {
    entries: VecDeque<Arc<Entry>>,
    last: Seq,
    body_bytes: usize,
}

impl Recent {
    /// Starts empty, for a log that ends at `last`.
    pub(crate) const fn after(last: Seq) -> Self {
        Self { entries: VecDeque::new(), last, body_bytes: 0 }
    }

    pub(crate) const fn last(&self) -> Seq {
        self.last
    }

    pub(crate) fn push(&mut self, entry: Arc<Entry>) {
        self.body_bytes += body_bytes(&entry);
        self.entries.push_back(entry);
        self.last.0 += 1;
        while self.entries.len() > ENTRIES_MAX || self.body_bytes > BODY_BYTES_MAX {
            let Some(old) = self.entries.pop_front() else { break };
            self.body_bytes -= body_bytes(&old);
        }
    }

    pub(crate) fn get(&self, seq: Seq) -> Option<Arc<Entry>> {
        let back = usize::try_from(self.last.0.checked_sub(seq.0)?).ok()?;
        let index = self.entries.len().checked_sub(back + 1)?;
        self.entries.get(index).cloned()
    }
}

/// Returns the bytes that an entry has in the log: about those of its texts.
#[must_use]
pub fn weight(entry: &Entry) -> usize {
    // What can't be encoded was never written.
    postcard::experimental::serialized_size(entry).unwrap_or_default()
}

fn body_bytes(entry: &Entry) -> usize {
    if let Fact::Accepted { message } = &entry.fact {
        message.body.len() + message.payload.as_ref().map_or(0, |p| p.len())
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use lastword_facts::Time;
    use lastword_facts::ids::TurnId;

    use super::*;

    #[test]
    fn it_holds_the_last_entries_by_position() {
        let mut recent = Recent::after(Seq(10));
        assert_eq!(recent.get(Seq(10)), None);
        for n in 0..5_000 {
            let fact = Fact::Renewed { turn: TurnId(n), lease_until: Time(0) };
            recent.push(Arc::new(Entry { at: Time(n), grant: None, fact }));
        }
        assert_eq!(recent.last(), Seq(5_010));
        assert_eq!(recent.get(Seq(5_010)).unwrap().at, Time(4_999));
        assert_eq!(recent.get(Seq(5_010 - 4_095)).unwrap().at, Time(904));
        assert_eq!(recent.get(Seq(5_010 - 4_096)), None);
        assert_eq!(recent.get(Seq(5_011)), None);
    }
}
