//! A server under a service manager.

use std::os::unix::net::UnixDatagram;

use crate::program::{Server, lastword, run};

/// Returns the next message that the manager hears.
fn heard(manager: &UnixDatagram) -> String {
    let mut message = [0; 512];
    let length = manager.recv(&mut message).unwrap();
    String::from_utf8_lossy(&message[..length]).into_owned()
}

#[test]
fn a_service_manager_hears_that_the_server_is_ready_alive_and_ending() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
    let mut command = lastword(dir.path());
    command.args(["serve", "--json", "--listen", "127.0.0.1:0"]);
    command.env("NOTIFY_SOCKET", &socket).env("WATCHDOG_USEC", "100000");
    let mut server = Server::start_by(dir, command);
    assert!(heard(&manager).starts_with("READY=1\nSTATUS=serving at http://127.0.0.1:"));
    for _ in 0..3 {
        assert_eq!(heard(&manager), "WATCHDOG=1\n");
    }
    server.ask_to_end();
    let last = std::iter::repeat_with(|| heard(&manager)).find(|message| message != "WATCHDOG=1\n").unwrap();
    assert!(last.starts_with("STOPPING=1\n"), "{last}");
    assert_eq!(server.wait().code, 0);
}

#[test]
fn a_health_check_passes_while_the_server_is_ready() {
    let server = Server::start();
    let ready = run(server.path(), &["doctor", "--ready"]).ok();
    assert!(ready.starts_with("http://127.0.0.1:") && ready.ends_with(" is ready\n"), "{ready}");
    let dir = server.kill();
    let gone = run(dir.path(), &["doctor", "--ready"]);
    assert_eq!(gone.code, 3, "{}", gone.stderr);
}
