//! Hash tables that find conversations by REF and agents by name. The names themselves are in the records, so that an
//! entry takes 8 bytes whatever the length of its name.

use alloc::vec::Vec;
use core::num::NonZeroU32;
use serde::{Deserialize, Serialize};

use lastword_facts::envelope::{Address, Draft};
use lastword_facts::fact::Credential;
use lastword_facts::ids::{AgentId, ConvId};

use super::State;

/// The number of places in the smallest table.
const PLACES_MIN: usize = 8;

/// Numbers by the hash of a name, each in the first free place from the one that its hash selects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Index {
    /// Makes the hash unpredictable for agents, which could otherwise choose names that all collide.
    seed: u64,
    /// The table; its length is a power of two, and at least a quarter of it is free.
    places: Vec<Option<IndexEntry>>,
    len: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct IndexEntry {
    hash: u32,
    number: NonZeroU32,
}

impl Index {
    /// Takes the seed from the hash of a token, before any name is inserted.
    pub(super) fn seed(&mut self, credential: &Credential) {
        // Only before the first name: another seed would lose every entry. The first token is a human's.
        if self.seed == 0 && self.len == 0 {
            let words = credential.chunks_exact(8).filter_map(|word| word.try_into().ok());
            self.seed = words.fold(1, |seed, word| mix(seed, u64::from_le_bytes(word)));
        }
    }

    /// Returns the numbers whose name may be this one; the caller compares the names.
    fn candidates(&self, name: &str) -> impl Iterator<Item = u32> + '_ {
        let hash = self.hash(name);
        let known = self.from(hash).map_while(|place| self.places[place]);
        known.filter(move |known| known.hash == hash).map(|known| known.number.get())
    }

    /// Reads the place where the search for a name begins, so that it is cached when the search runs.
    fn touch(&self, name: &str) {
        core::hint::black_box(self.places.get(self.home(self.hash(name))).copied());
    }

    /// Inserts a number that isn't in the table; 0 is ignored.
    pub(super) fn insert(&mut self, name: &str, number: u32) {
        let Some(number) = NonZeroU32::new(number) else { return };
        if (self.len + 1) * 4 > self.places.len() * 3 {
            self.resize((self.places.len() * 2).max(PLACES_MIN));
        }
        self.len += 1;
        self.put(IndexEntry { hash: self.hash(name), number });
    }

    /// Removes a number, if it is in the table.
    pub(super) fn remove(&mut self, name: &str, number: u32) {
        let (hash, number) = (self.hash(name), NonZeroU32::new(number));
        let mut known = self.from(hash).take_while(|place| self.places[*place].is_some());
        let Some(place) = known.find(|place| self.places[*place].map(|known| known.number) == number) else { return };
        self.len -= 1;
        self.close(place);
        // Far below the load at which the table grows, so that no sequence of changes resizes it each time.
        if self.places.len() > PLACES_MIN && self.len * 8 < self.places.len() {
            self.resize(self.places.len() / 2);
        }
    }

    /// Frees a place and moves up the entries that were displaced by it.
    fn close(&mut self, place: usize) {
        let last = self.places.len() - 1;
        let mut free = place;
        for next in (1..=last).map(|step| (place + step) & last) {
            let Some(known) = self.places[next] else { break };
            let moved = next.wrapping_sub(self.home(known.hash)) & last;
            // Moves an entry only if the free place is not before its home, where no search would find it.
            if moved >= next.wrapping_sub(free) & last {
                self.places[free] = Some(known);
                free = next;
            }
        }
        self.places[free] = None;
    }

    fn resize(&mut self, places: usize) {
        let old = core::mem::replace(&mut self.places, alloc::vec![None; places]);
        for known in old.into_iter().flatten() {
            self.put(known);
        }
    }

    fn put(&mut self, known: IndexEntry) {
        let free = self.from(known.hash).find(|place| self.places[*place].is_none());
        if let Some(free) = free {
            self.places[free] = Some(known);
        }
    }

    /// Returns all places, starting at the one that a hash selects.
    fn from(&self, hash: u32) -> impl Iterator<Item = usize> + use<> {
        let (count, home) = (self.places.len(), self.home(hash));
        (0..count).map(move |step| (home + step) & (count - 1))
    }

    /// Returns the place that a hash selects by its upper bits.
    const fn home(&self, hash: u32) -> usize {
        ((hash as u64 * self.places.len() as u64) >> u32::BITS) as usize
    }

    /// Returns the hash of a text, for other tables that use the same seed.
    pub(super) fn hash_of(&self, text: &str) -> u32 {
        self.hash(text)
    }

    fn hash(&self, text: &str) -> u32 {
        let (words, rest) = text.as_bytes().as_chunks::<8>();
        let start = self.seed ^ text.len() as u64;
        let hash = words.iter().fold(start, |hash, word| mix(hash ^ self.seed, u64::from_le_bytes(*word)));
        if rest.is_empty() {
            return (hash >> u32::BITS) as u32;
        }
        // Builds the last word byte by byte: copying an unknown length would be a call.
        let last = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        (mix(hash ^ self.seed, last) >> u32::BITS) as u32
    }
}

/// Mixes two words so that each bit of the result depends on all of their bits.
const fn mix(a: u64, b: u64) -> u64 {
    let product = (a ^ 0x9e37_79b9_7f4a_7c15) as u128 * (b ^ 0xd6e8_feb8_6659_fd93) as u128;
    (product as u64) ^ (product >> u64::BITS) as u64
}

impl State {
    /// Returns the conversation with this REF.
    #[must_use]
    pub fn conv_of(&self, reference: &str) -> Option<ConvId> {
        let same = |conv: &ConvId| self.ref_of(*conv).is_some_and(|known| known.as_str() == reference);
        self.refs.candidates(reference).map(ConvId).find(same)
    }

    /// Reads a little of everything that a send reads. Most of it is not cached: requested together, the cache misses
    /// overlap instead of adding up.
    pub(crate) fn touch(&self, sender: AgentId, draft: &Draft) {
        if let Some(reference) = &draft.reference {
            self.refs.touch(reference.as_str());
        }
        if let Address::Name(name) = &draft.to
            && let Some(to) = self.agents_by_name.candidates(name.as_str()).next()
            && let Some(to) = self.agent(AgentId(to))
        {
            to.touch();
        }
        if let Some(sender) = self.agent(sender) {
            sender.touch();
        }
        self.exchanges.touch();
    }

    /// Returns the agent or human with this name, live or not.
    #[must_use]
    pub fn agent_of(&self, name: &str) -> Option<AgentId> {
        let same = |agent: &AgentId| self.name_of(*agent) == name;
        self.agents_by_name.candidates(name).map(AgentId).find(same)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::format;
    use alloc::string::String;
    use proptest::prelude::*;

    fn name(n: u32) -> String {
        format!("WORK-{n}")
    }

    proptest! {
        #[test]
        fn what_was_put_in_and_not_taken_out_is_found(
            steps in proptest::collection::vec((1..60_u32, any::<bool>()), 0..300),
            seed in any::<[u8; 32]>(),
        ) {
            let mut index = Index::default();
            index.seed(&seed);
            let mut known = BTreeSet::new();
            for (n, add) in steps {
                if add && known.insert(n) {
                    index.insert(&name(n), n);
                } else if !add && known.remove(&n) {
                    index.remove(&name(n), n);
                }
                prop_assert_eq!(index.len, known.len());
                for n in 1..60 {
                    prop_assert_eq!(index.candidates(&name(n)).any(|found| found == n), known.contains(&n));
                }
            }
        }
    }

    #[test]
    fn names_that_are_alike_want_other_places() {
        let index = Index { seed: 7, places: alloc::vec![None; 1 << 16], len: 0 };
        let homes: BTreeSet<usize> = (0..1 << 15).map(|n| index.home(index.hash(&name(n)))).collect();
        // By chance, 1 - 1 / sqrt(e) of the places would be selected: 25,786.
        assert!((25_000..26_500).contains(&homes.len()), "{}", homes.len());
    }
}
