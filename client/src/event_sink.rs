//! The destination of a program's events.

use std::fmt;
use std::sync::Arc;

/// Passes events of type `E` on to the program that prints or logs them. Clones share the destination.
pub struct EventSink<E>(Arc<dyn Fn(&E) + Send + Sync>);

impl<E> EventSink<E> {
    /// Passes each event to `receive`.
    pub fn new(receive: impl Fn(&E) + Send + Sync + 'static) -> Self {
        Self(Arc::new(receive))
    }

    /// Passes on one event.
    pub fn emit(&self, event: &E) {
        (self.0)(event);
    }
}

impl<E> Clone for EventSink<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<E> fmt::Debug for EventSink<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventSink(…)")
    }
}
