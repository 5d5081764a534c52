//! `lastword stop-server`: ends the broker of the team's data directory.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::Duration;

use lastword_store::format::FILE_LOCK;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::Context;
use crate::failure::Failure;
use crate::session::running;

/// Time that a broker has to end: its agents' open runs deliver their answers first. The pause between two checks.
const END_MAX: Duration = Duration::from_secs(60);
const CHECK: Duration = Duration::from_millis(50);

pub(crate) fn run(cx: &Context) -> Result<(), Failure> {
    let data = std::path::absolute(&cx.settings.data)?;
    // The note of a server that was killed names a process that may be another one by now.
    let server = running(&data).filter(|_| is_locked(&data));
    let Some((server, pid)) = server.and_then(|server| pid(server.pid).map(|pid| (server, pid))) else {
        return Err(Failure::unavailable(format!("no server is running on {}", data.display()))
            .hint("name another data directory with --data; a server on another machine is ended there"));
    };
    kill_process(pid, Signal::TERM)?;
    // A server that has ended takes its note along, also where its process id is in use again.
    let ends = || running(&data).is_none_or(|now| now.pid != server.pid) || !is_locked(&data);
    let mut checks = 0..END_MAX.as_millis() / CHECK.as_millis();
    while !ends() {
        if checks.next().is_none() {
            let message = format!("process {} has not ended within {} s", server.pid, END_MAX.as_secs());
            return Err(Failure::unavailable(message).hint(
                "open runs of its agents deliver their answers first; `lastword stop-server` once more ends them",
            ));
        }
        std::thread::sleep(CHECK);
    }
    let ended = json!({ "data": data, "pid": server.pid, "url": server.url });
    cx.out.show(&ended, |_, _| format!("ended the server at {}; its data stays in {}", server.url, data.display()))
}

/// Whether a server holds the lock of a data directory.
fn is_locked(data: &Path) -> bool {
    let lock = File::open(data.join(FILE_LOCK));
    lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

fn pid(number: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(number).ok()?)
}
