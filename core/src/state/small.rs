//! Small containers for records that exist in large numbers: lists that mostly hold one or two items, and numbers that
//! may be missing.

use core::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smallvec::SmallVec;
use thin_vec::ThinVec;

use lastword_facts::ids::TaskId;

use super::Number;

/// A list that holds up to `N` items without an allocation.
pub type Few<T, const N: usize> = SmallVec<[T; N]>;

/// Appends to a list that rarely gets a second item: the first allocation has room for one.
pub(super) fn append<T>(list: &mut ThinVec<T>, item: T) {
    if list.capacity() == 0 {
        list.reserve_exact(1);
    }
    list.push(item);
}

/// The largest `u64` that [`Opt`] can keep.
pub(super) const LAST: u64 = u64::MAX - 1;

/// A number that may be missing, in the size of the number; `Option` takes twice as much. The largest value represents
/// none, so a number with that value is kept as the one before it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Opt<T>(T);

impl<T: Number> Opt<T> {
    /// Returns the value that holds no number.
    #[must_use]
    pub fn none() -> Self {
        Self(T::from_value(u64::MAX))
    }

    /// Returns the value that represents none.
    fn largest() -> u64 {
        Self::none().0.value()
    }

    /// Returns the number, if there is one.
    #[must_use]
    pub fn get(self) -> Option<T> {
        self.is_some().then_some(self.0)
    }

    /// Whether there is a number.
    #[must_use]
    pub fn is_some(self) -> bool {
        !self.is_none()
    }

    /// Whether the number is missing.
    #[must_use]
    pub fn is_none(self) -> bool {
        self.0.value() == Self::largest()
    }

    /// Returns the number and leaves none.
    pub(crate) fn take(&mut self) -> Option<T> {
        core::mem::take(self).get()
    }
}

impl<T: Number> Default for Opt<T> {
    fn default() -> Self {
        Self::none()
    }
}

impl<T: Number> From<T> for Opt<T> {
    fn from(number: T) -> Self {
        Self(T::from_value(number.value().min(Self::largest() - 1)))
    }
}

impl<T: Number> From<Option<T>> for Opt<T> {
    fn from(number: Option<T>) -> Self {
        number.map_or_else(Self::none, Self::from)
    }
}

impl<T: Number + fmt::Debug> fmt::Debug for Opt<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl<T: Number + Serialize> Serialize for Opt<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.get().serialize(to)
    }
}

impl<'de, T: Number + Deserialize<'de>> Deserialize<'de> for Opt<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Option::<T>::deserialize(from).map(Self::from)
    }
}

/// A sorted set in one piece of memory, for sets that mostly hold a few items and are bounded by a limit. New items
/// tend to come last, so insertion tries that place first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent, bound(serialize = "T: Serialize", deserialize = "T: Deserialize<'de>"))]
pub struct Sorted<T, const N: usize>(Few<T, N>);

/// Tasks, in the order of their numbers.
pub type TaskSet = Sorted<TaskId, 2>;

impl<T, const N: usize> Default for Sorted<T, N> {
    fn default() -> Self {
        Self(Few::new())
    }
}

impl<T: Ord, const N: usize> Sorted<T, N> {
    /// Inserts an item, if it isn't in the set.
    pub(crate) fn insert(&mut self, item: T) {
        if self.0.last().is_none_or(|last| *last < item) {
            self.0.push(item);
        } else if let Err(place) = self.0.binary_search(&item) {
            self.0.insert(place, item);
        }
    }

    /// Removes an item, if it is in the set.
    pub(crate) fn remove(&mut self, item: &T) {
        if let Ok(place) = self.0.binary_search(item) {
            self.0.remove(place);
        }
        // A set that was large once would otherwise keep its memory for the life of the record.
        if self.0.is_empty() {
            self.0.shrink_to_fit();
        }
    }

    /// Returns the items from `from` to `through`, both included.
    pub(crate) fn within(&self, from: &T, through: &T) -> &[T] {
        let (begin, end) = (self.0.partition_point(|item| item < from), self.0.partition_point(|item| item <= through));
        self.0.get(begin..end).unwrap_or_default()
    }

    /// Returns the first item.
    #[must_use]
    pub fn first(&self) -> Option<&T> {
        self.0.first()
    }

    /// Returns the last item.
    #[must_use]
    pub fn last(&self) -> Option<&T> {
        self.0.last()
    }

    /// Returns the items in order.
    pub fn iter(&self) -> core::slice::Iter<'_, T> {
        self.0.iter()
    }

    /// Returns the number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set has no items.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T, const N: usize> IntoIterator for Sorted<T, N> {
    type Item = T;
    type IntoIter = smallvec::IntoIter<[T; N]>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, T, const N: usize> IntoIterator for &'a Sorted<T, N> {
    type Item = &'a T;
    type IntoIter = core::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_tasks_is_in_order_and_holds_each_once() {
        let mut set = TaskSet::default();
        for n in [3, 1, 3, 2, 9] {
            set.insert(TaskId(n));
        }
        set.remove(&TaskId(2));
        set.remove(&TaskId(7));
        assert_eq!(set.iter().map(|task| task.0).collect::<alloc::vec::Vec<_>>(), [1, 3, 9]);
        assert_eq!(set.within(&TaskId(2), &TaskId(9)), [TaskId(3), TaskId(9)]);
        assert_eq!(set.within(&TaskId(4), &TaskId(8)), []);
        assert_eq!(set.within(&TaskId(10), &TaskId(11)), []);
    }

    #[test]
    fn a_number_that_may_be_missing_is_what_was_put_in() {
        use lastword_facts::ids::ConvId;

        assert_eq!(Opt::<u64>::none().get(), None);
        assert_eq!(Opt::<ConvId>::none().get(), None);
        assert_eq!([0, 7, LAST, u64::MAX].map(|n| Opt::from(n).get()), [0, 7, LAST, LAST].map(Some));
        let convs = [0, u32::MAX - 1, u32::MAX].map(|n| Opt::from(ConvId(n)).get());
        assert_eq!(convs, [0, u32::MAX - 1, u32::MAX - 1].map(|n| Some(ConvId(n))));
        let mut taken = Opt::from(3_u64);
        assert_eq!((taken.take(), taken.get()), (Some(3), None));
    }
}
