//! Collections that mostly hold one or two things: no allocation for these, and a place in order for more.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::ids::TaskId;

/// A list that holds up to `N` without an allocation.
pub type Few<T, const N: usize> = SmallVec<[T; N]>;

/// Tasks, each once, in the order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSet(Few<TaskId, 2>);

impl TaskSet {
    /// Puts one in; those minted last come last, which is where it looks first.
    pub(crate) fn insert(&mut self, task: TaskId) {
        if self.0.last().is_none_or(|last| *last < task) {
            self.0.push(task);
        } else if let Err(place) = self.0.binary_search(&task) {
            self.0.insert(place, task);
        }
    }

    /// Takes one out.
    pub(crate) fn remove(&mut self, task: &TaskId) {
        if let Ok(place) = self.0.binary_search(task) {
            self.0.remove(place);
        }
        if self.0.is_empty() {
            self.0.shrink_to_fit();
        }
    }

    /// Them, in the order of their numbers.
    pub fn iter(&self) -> core::slice::Iter<'_, TaskId> {
        self.0.iter()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl IntoIterator for TaskSet {
    type Item = TaskId;
    type IntoIter = smallvec::IntoIter<[TaskId; 2]>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a TaskSet {
    type Item = &'a TaskId;
    type IntoIter = core::slice::Iter<'a, TaskId>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
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
    }
}
