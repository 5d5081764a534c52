//! What a service manager (systemd, `Type=notify`) hears of a server: that it is ready, that it is alive, that it ends.

use sd_notify::{NotifyState, notify, watchdog_enabled};

/// Says that the server serves, at this address.
pub(crate) fn ready(url: &str) {
    say(&[NotifyState::Ready, NotifyState::Status(&format!("serving at {url}"))]);
}

/// Says that the server ends, and waits for open runs.
pub(crate) fn stopping() {
    say(&[NotifyState::Stopping, NotifyState::Status("finishing open work")]);
}

/// Says that the server is alive for as long as it is; never returns.
///
/// The manager restarts a server of which it heard nothing for the time that it asked for (`WatchdogSec=`).
pub(crate) async fn watched(is_alive: impl AsyncFn() -> bool) {
    let Some(most) = watchdog_enabled() else { return std::future::pending().await };
    loop {
        if is_alive().await {
            say(&[NotifyState::Watchdog]);
        }
        // Twice within the time: one that comes late is no fault.
        tokio::time::sleep(most / 2).await;
    }
}

fn say(states: &[NotifyState]) {
    if let Err(error) = notify(states) {
        eprintln!("warning: the service manager can't be told: {error}");
    }
}
