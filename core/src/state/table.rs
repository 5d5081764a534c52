//! A map by minted number: records with neighbouring numbers are neighbours in memory, and each has its own place.
//!
//! Numbers only grow, and old records are forgotten roughly in order. Small pages suit that. The records are in the
//! pages themselves: one step finds the page and the next one the record. A few old records that stay cost one page
//! each, and 16 bytes for every page after them. Where the numbers jump, as at the begin of an epoch (L8), a new run of
//! pages begins instead.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Bound, Index, RangeBounds};
use serde::de::{Error as _, MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use lastword_facts::ids::{ConvId, GrantId, IncidentId, Seq, TaskId, Time, TurnId};

/// The size of a page, in bytes, or as little as half of that.
const PAGE_BYTES: usize = 2_048;

/// A number that identifies something, or a moment.
pub trait Number: Copy + Ord {
    /// Returns the number with this value.
    fn from_value(value: u64) -> Self;
    /// Returns its value.
    fn value(self) -> u64;
}

/// The most empty pages between two records of one run. A wider gap begins a new run.
const GAP_PAGES_MAX: usize = 1 << 10;

/// Records by minted number, in order.
#[derive(Clone)]
pub struct Table<K, T> {
    /// The run with the greatest numbers.
    run: Run<T>,
    /// The runs with smaller numbers, in order; none of them is empty.
    older: Vec<Run<T>>,
    len: usize,
    key: PhantomData<K>,
}

/// Pages with consecutive numbers.
#[derive(Clone)]
struct Run<T> {
    /// The number of the first page.
    first: usize,
    /// The pages from the first one in use to the last one.
    pages: VecDeque<Page<T>>,
}

/// Places for [`Run::PER_PAGE`] records; empty if none of them is in use.
type Page<T> = Box<[Option<T>]>;

impl<T> Run<T> {
    /// The number of places on a page: a power of two, so that a place is found without a division.
    const PER_PAGE: usize =
        if size_of::<Option<T>>() < PAGE_BYTES { 1 << (PAGE_BYTES / size_of::<Option<T>>()).ilog2() } else { 1 };

    const EMPTY: Self = Self { first: 0, pages: VecDeque::new() };

    /// Returns the page of a number, and its place on the page.
    const fn place(value: u64) -> (usize, usize) {
        let value = value as usize;
        (value / Self::PER_PAGE, value % Self::PER_PAGE)
    }

    fn get(&self, value: u64) -> Option<&T> {
        let (page, slot) = Self::place(value);
        self.pages.get(page.checked_sub(self.first)?)?.get(slot)?.as_ref()
    }

    fn get_mut(&mut self, value: u64) -> Option<&mut T> {
        let (page, slot) = Self::place(value);
        self.pages.get_mut(page.checked_sub(self.first)?)?.get_mut(slot)?.as_mut()
    }

    fn remove(&mut self, value: u64) -> Option<T> {
        let (at, slot) = Self::place(value);
        let page = self.pages.get_mut(at.checked_sub(self.first)?)?;
        let old = page.get_mut(slot)?.take()?;
        if page.iter().all(Option::is_none) {
            *page = Page::default();
            self.trim();
        }
        Some(old)
    }

    /// Whether a page with this number would leave a wide gap behind this run.
    fn ends_far_before(&self, page: usize) -> bool {
        !self.pages.is_empty() && page > self.first + self.pages.len() + GAP_PAGES_MAX
    }

    /// Whether a page with this number would leave a wide gap before this run.
    fn begins_far_after(&self, page: usize) -> bool {
        !self.pages.is_empty() && page + GAP_PAGES_MAX < self.first
    }

    /// Returns the page with this number; makes it if it doesn't exist.
    fn page(&mut self, number: usize) -> &mut Page<T> {
        if self.pages.is_empty() {
            self.first = number;
        }
        // Rare: minted numbers only grow, so pages are usually added at the end.
        while number < self.first {
            self.pages.push_front(Page::default());
            self.first -= 1;
        }
        let at = number - self.first;
        if at >= self.pages.len() {
            self.pages.resize_with(at + 1, Page::default);
        }
        let page = &mut self.pages[at];
        if page.is_empty() {
            *page = core::iter::repeat_with(|| None).take(Self::PER_PAGE).collect();
        }
        page
    }

    /// Removes empty pages at both ends.
    fn trim(&mut self) {
        while self.pages.front().is_some_and(|page| page.is_empty()) {
            self.pages.pop_front();
            self.first += 1;
        }
        while self.pages.back().is_some_and(|page| page.is_empty()) {
            self.pages.pop_back();
        }
    }

    /// Returns the records with numbers from `first` to before `end`.
    fn range(&self, first: u64, end: u64) -> impl DoubleEndedIterator<Item = (u64, &T)> {
        let count = self.pages.len();
        let from = Self::place(first).0.saturating_sub(self.first).min(count);
        let upto = Self::place(end).0.saturating_add(1).saturating_sub(self.first).clamp(from, count);
        let base = self.first + from;
        let records = self.pages.range(from..upto).enumerate().flat_map(move |(n, page)| {
            let begin = (base + n) * Self::PER_PAGE;
            let numbered = page.iter().enumerate();
            // The number of a place without a record may be past the last one.
            numbered.filter_map(move |(i, record)| record.as_ref().map(|record| ((begin + i) as u64, record)))
        });
        records.filter(move |(value, _)| (first..end).contains(value))
    }
}

impl<K: Number, T> Table<K, T> {
    /// Returns an empty table.
    #[must_use]
    pub const fn new() -> Self {
        Self { run: Run::EMPTY, older: Vec::new(), len: 0, key: PhantomData }
    }

    /// Returns the number of records.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the table has no records.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the record with this number.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&T> {
        let value = key.value();
        let found = self.run.get(value);
        if found.is_some() || self.older.is_empty() {
            return found;
        }
        self.older.get(self.older_at(value)?)?.get(value)
    }

    /// Returns the place of the older run that may have a record with this number.
    fn older_at(&self, value: u64) -> Option<usize> {
        let (page, _) = Run::<T>::place(value);
        self.older.partition_point(|run| run.first <= page).checked_sub(1)
    }

    /// Returns the record with this number for changes.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut T> {
        let value = key.value();
        if self.older.is_empty() || Run::<T>::place(value).0 >= self.run.first {
            return self.run.get_mut(value);
        }
        let at = self.older_at(value)?;
        self.older.get_mut(at)?.get_mut(value)
    }

    /// Whether there is a record with this number.
    #[must_use]
    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Inserts a record, or replaces the one with its number.
    #[inline]
    pub fn insert(&mut self, key: K, record: T) {
        let (page, slot) = Run::<T>::place(key.value());
        if self.run.ends_far_before(page) {
            self.older.push(core::mem::replace(&mut self.run, Run::EMPTY));
        }
        let run = if self.run.begins_far_after(page) { self.older_run(page) } else { &mut self.run };
        let place = &mut run.page(page)[slot];
        let added = usize::from(place.is_none());
        *place = Some(record);
        self.len += added;
    }

    /// Returns the run before the newest one for a page with this number; makes it if it doesn't exist.
    fn older_run(&mut self, page: usize) -> &mut Run<T> {
        let at = self.older.partition_point(|run| run.ends_far_before(page));
        if self.older.get(at).is_none_or(|run| run.begins_far_after(page)) {
            self.older.insert(at, Run::EMPTY);
        }
        &mut self.older[at]
    }

    /// Removes and returns a record.
    pub fn remove(&mut self, key: &K) -> Option<T> {
        let value = key.value();
        let old = if self.older.is_empty() || Run::<T>::place(value).0 >= self.run.first {
            self.run.remove(value)?
        } else {
            let at = self.older_at(value)?;
            let old = self.older.get_mut(at)?.remove(value)?;
            if self.older[at].pages.is_empty() {
                self.older.remove(at);
            }
            old
        };
        self.len -= 1;
        if self.run.pages.is_empty() {
            self.run = self.older.pop().unwrap_or(Run::EMPTY);
        }
        Some(old)
    }

    /// Returns the records, in the order of their numbers.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (K, &T)> {
        self.range(..)
    }

    /// Returns the records with numbers in `range`, in order.
    pub fn range(&self, range: impl RangeBounds<K>) -> impl DoubleEndedIterator<Item = (K, &T)> {
        let first = match range.start_bound() {
            Bound::Included(key) => key.value(),
            Bound::Excluded(key) => key.value().saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(key) => key.value().saturating_add(1),
            Bound::Excluded(key) => key.value(),
            Bound::Unbounded => u64::MAX,
        };
        let runs = self.older.iter().chain(core::iter::once(&self.run));
        runs.flat_map(move |run| run.range(first, end)).map(|(value, record)| (K::from_value(value), record))
    }

    /// Returns the records without their numbers.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.iter().map(|(_, record)| record)
    }

    /// Returns the numbers of the records.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = K> {
        self.iter().map(|(key, _)| key)
    }
}

impl<K: Number + PartialEq, T: PartialEq> PartialEq for Table<K, T> {
    fn eq(&self, other: &Self) -> bool {
        // The same records may lie in different runs.
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<K: Number + Eq, T: Eq> Eq for Table<K, T> {}

impl<K: Number, T> Default for Table<K, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Number, T> Index<&K> for Table<K, T> {
    type Output = T;

    fn index(&self, key: &K) -> &T {
        self.get(key).unwrap_or_else(|| panic!("there is no record {}", key.value()))
    }
}

impl<K: Number + fmt::Debug, T: fmt::Debug> fmt::Debug for Table<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Number + Serialize, T: Serialize> Serialize for Table<K, T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.len))?;
        for (key, record) in self.iter() {
            map.serialize_entry(&key, record)?;
        }
        map.end()
    }
}

impl<'de, K: Number + Deserialize<'de>, T: Deserialize<'de>> Deserialize<'de> for Table<K, T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Records(PhantomData))
    }
}

/// Reads the form that [`Table`] writes.
struct Records<K, T>(PhantomData<(K, T)>);

impl<'de, K: Number + Deserialize<'de>, T: Deserialize<'de>> Visitor<'de> for Records<K, T> {
    type Value = Table<K, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("records by number")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut table = Table::new();
        while let Some((key, record)) = map.next_entry::<K, T>()? {
            // A range ends before a number, so that no range has the last one; none is ever minted.
            if key.value() == u64::MAX {
                return Err(A::Error::custom("a record has the last number"));
            }
            table.insert(key, record);
        }
        Ok(table)
    }
}

macro_rules! numbers {
    ($($name:ident),*) => {$(
        impl Number for $name {
            fn from_value(value: u64) -> Self {
                Self(value)
            }

            fn value(self) -> u64 {
                self.0
            }
        }
    )*};
}

numbers!(GrantId, IncidentId, Seq, TaskId, Time, TurnId);

impl Number for u64 {
    fn from_value(value: u64) -> Self {
        value
    }

    fn value(self) -> u64 {
        self
    }
}

impl Number for ConvId {
    fn from_value(value: u64) -> Self {
        Self(u32::try_from(value).unwrap_or(u32::MAX))
    }

    fn value(self) -> u64 {
        self.0.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    /// Large enough that the numbers below fill some pages.
    type Record = [u64; 4];

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64, Record),
        Remove(u64),
        Range(u64, u64),
    }

    /// A number near 0, or one of an epoch that began far behind it.
    fn number() -> impl Strategy<Value = u64> {
        (prop::sample::select(&[0, 0, 0, 59_000_000_000_000, 60_000_000_000_000][..]), 0..400_u64)
            .prop_map(|(base, number)| base + number)
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (number(), any::<u8>()).prop_map(|(key, mark)| Step::Insert(key, [mark.into(); 4])),
            number().prop_map(Step::Remove),
            (number(), number()).prop_map(|(a, b)| Step::Range(a, b)),
        ]
    }

    #[test]
    fn one_that_has_become_empty_is_like_a_new_one() {
        let mut table: Table<TaskId, Record> = Table::new();
        table.insert(TaskId(66), [0; 4]);
        table.remove(&TaskId(66));
        assert_eq!(table, Table::new());
    }

    #[test]
    fn the_last_number_of_all_is_found_on_a_page_that_ends_beyond_it() {
        let mut table: Table<TaskId, Record> = Table::new();
        table.insert(TaskId(u64::MAX - 1), [7; 4]);
        assert_eq!(table.iter().map(|(key, _)| key).collect::<Vec<_>>(), [TaskId(u64::MAX - 1)]);
        assert_eq!(table.remove(&TaskId(u64::MAX - 1)), Some([7; 4]));
        let map = BTreeMap::from([(u64::MAX, [7; 4])]);
        let read = postcard::from_bytes::<Table<TaskId, Record>>(&postcard::to_allocvec(&map).unwrap());
        assert!(read.is_err(), "the last number is in no range");
    }

    #[test]
    fn keys_that_are_far_apart_dont_take_the_pages_between_them() {
        let map: BTreeMap<u64, Record> = [1, 1_000_000, u64::MAX - 1].map(|key| (key, [0; 4])).into();
        let table = postcard::from_bytes::<Table<TaskId, Record>>(&postcard::to_allocvec(&map).unwrap()).unwrap();
        assert_eq!((table.len(), table.older.len(), table.run.pages.len()), (3, 2, 1));
    }

    proptest! {
        #[test]
        fn it_is_a_map(steps in proptest::collection::vec(step(), 0..200)) {
            let mut table: Table<TaskId, Record> = Table::new();
            let mut map: BTreeMap<TaskId, Record> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Insert(key, record) => {
                        table.insert(TaskId(key), record);
                        map.insert(TaskId(key), record);
                    }
                    Step::Remove(key) => prop_assert_eq!(table.remove(&TaskId(key)), map.remove(&TaskId(key))),
                    Step::Range(a, b) => {
                        let (a, b) = (TaskId(a.min(b)), TaskId(a.max(b)));
                        let expected: Vec<_> = map.range(a..b).rev().map(|(k, v)| (*k, *v)).collect();
                        prop_assert_eq!(table.range(a..b).rev().map(|(k, v)| (k, *v)).collect::<Vec<_>>(), expected);
                        prop_assert_eq!(table.range(..=b).count(), map.range(..=b).count());
                    }
                }
                prop_assert_eq!(table.len(), map.len());
                prop_assert!(table.iter().map(|(k, v)| (k, *v)).eq(map.iter().map(|(k, v)| (*k, *v))));
                prop_assert_eq!(table.run.pages.is_empty() && table.older.is_empty(), map.is_empty());
                prop_assert!(table.older.len() <= 4 && table.older.iter().all(|run| !run.pages.is_empty()));
            }
            let bytes = postcard::to_allocvec(&table).unwrap();
            prop_assert_eq!(&bytes, &postcard::to_allocvec(&map).unwrap(), "it is written like a map");
            prop_assert_eq!(postcard::from_bytes::<Table<TaskId, Record>>(&bytes).unwrap(), table);
        }
    }
}
