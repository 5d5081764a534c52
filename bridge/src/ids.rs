//! The ids of a platform, which makes and reads them. The bridge compares, stores and passes them on; it finds neither
//! time nor place in one.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use rusqlite::types::{FromSql, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use serde::{Deserialize, Serialize};

/// Digits of a short id: Crockford's base 32.
const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(u64);

        impl $name {
            /// Makes an id of the platform's number.
            #[must_use]
            pub const fn new(number: u64) -> Self {
                Self(number)
            }

            /// Returns the number, for the platform that made the id.
            #[must_use]
            pub const fn number(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIntError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }

        impl ToSql for $name {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                Ok(self.0.cast_signed().into())
            }
        }

        impl FromSql for $name {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                i64::column_result(value).map(|number| Self(number.cast_unsigned()))
            }
        }
    };
}

id! {
    /// A channel, or a thread of one: each is a place of its own.
    ChannelId
}

id! {
    /// A post. No two posts of a platform have the same id, and ids grow with time; in a channel, with each post. The
    /// default comes before every post.
    PostId
}

id! {
    /// A user: a person or a bot.
    UserId
}

id! {
    /// A role that people have on a server.
    RoleId
}

id! {
    /// A server, which has channels and members.
    ServerId
}

impl PostId {
    /// Comes after every post.
    pub(crate) const LAST: Self = Self(i64::MAX.cast_unsigned());

    /// Writes the id in base 32, to save characters.
    pub(crate) fn short(self) -> String {
        short(self.0)
    }
}

/// Writes a number in base 32.
pub(crate) fn short(number: u64) -> String {
    let mut digits = Vec::new();
    let mut rest = number;
    while rest > 0 {
        digits.push(char::from(DIGITS[(rest % 32) as usize]));
        rest /= 32;
    }
    digits.iter().rev().collect()
}
