//! Priorities of the threads that work beside the broker and may share its processors.

/// For work that no caller waits for: it runs only on idle processors.
pub(crate) const NEVER_URGENT: i32 = 19;
/// For work that a caller sometimes waits for: about a tenth of a processor when others want it.
pub const AFTER_OTHERS: i32 = 10;

/// For reads of agents, which may be many: about a third of a processor when others want it.
pub(crate) const FOR_AGENTS: i32 = 5;

/// Sets the calling thread's niceness.
pub fn lower(niceness: i32) {
    // Elsewhere this would set the priority of the whole process.
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(Some(rustix::thread::gettid()), niceness) {
        tracing::debug!(%error, niceness, "a thread keeps the usual priority");
    }
    #[cfg(not(target_os = "linux"))]
    let _kept = niceness;
}
