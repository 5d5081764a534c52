//! Priorities of threads that work beside the broker, on whose processors it may run, too.

/// For what nobody waits for: it takes the time that nobody else wants.
pub(crate) const NEVER_URGENT: i32 = 19;
/// For what is waited for at times: a tenth of the time of a processor that others want.
pub(crate) const AFTER_OTHERS: i32 = 10;

/// Gives the calling thread this niceness.
pub(crate) fn lower(niceness: i32) {
    // On other systems this would be the priority of the whole process.
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(Some(rustix::thread::gettid()), niceness) {
        tracing::debug!(%error, niceness, "a thread keeps the usual priority");
    }
    #[cfg(not(target_os = "linux"))]
    let _kept = niceness;
}
