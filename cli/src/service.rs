//! Tells a service manager (systemd, `Type=notify`) that a server is ready, alive and stopping.

use std::time::Duration;

use sd_notify::{NotifyState, notify, watchdog_enabled};

/// Reports that the server is ready at this address.
pub(crate) fn ready(url: &str) {
    say(&[NotifyState::Ready, NotifyState::Status(&format!("serving at {url}"))]);
}

/// Reports that the server is stopping, and waits for open runs.
pub(crate) fn stopping() {
    say(&[NotifyState::Stopping, NotifyState::Status("finishing open work")]);
}

/// Reports that the server is alive each time that it answers; never returns.
///
/// The manager restarts a server that doesn't report within `WatchdogSec=`.
pub(crate) async fn watched(answer: impl AsyncFn()) {
    match watchdog_enabled() {
        Some(most) => report(most, answer, || say(&[NotifyState::Watchdog])).await,
        None => std::future::pending().await,
    }
}

/// Reports twice per interval, so that one late report doesn't restart the server.
async fn report(most: Duration, answer: impl AsyncFn(), report: impl Fn()) {
    loop {
        answer().await;
        report();
        tokio::time::sleep(most / 2).await;
    }
}

fn say(states: &[NotifyState]) {
    if let Err(error) = notify(states) {
        eprintln!("warning: can't notify the service manager: {error}");
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn a_server_that_does_not_answer_is_not_reported_alive() {
        let (answers, reports, stuck) = (Cell::new(2), Cell::new(0), Notify::new());
        let answer = async || match answers.get() {
            0 => {
                stuck.notify_one();
                std::future::pending().await
            }
            left => answers.set(left - 1),
        };
        tokio::select! {
            () = report(Duration::ZERO, answer, || reports.set(reports.get() + 1)) => unreachable!("it never returns"),
            () = stuck.notified() => {}
        }
        assert_eq!(reports.get(), 2);
    }
}
