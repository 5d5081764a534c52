//! Properties of parsers that are private to this crate. Each takes arbitrary bytes and panics if its property is
//! broken. Fuzz targets run them, and tests run them on the targets' corpus.

pub use crate::calls::rooms::properties::check as rooms;
pub use crate::cron::properties::check as cron;
pub use crate::edges::session::properties::check as session;
