//! One page of a list.

use serde::{Deserialize, Serialize};

/// One page of a list, and the cursor of the next one.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Page<T> {
    /// The items of this page.
    pub items: Vec<T>,
    /// The `cursor` of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The facts that the list doesn't cover yet, because the read model is behind the log; absent if it covers all.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub behind: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl<T> Page<T> {
    /// Returns a complete list as one page.
    #[must_use]
    pub const fn whole(items: Vec<T>) -> Self {
        Self { items, next: None, behind: 0 }
    }
}
