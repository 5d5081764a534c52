//! `lastword archive`: what left the log, and the ways there and back.

use std::fs;

use crate::program::{Server, run};

#[test]
fn the_oldest_part_moves_and_comes_back_and_every_hash_holds() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lastword.toml"), "[archive]\nafter = \"90d\"\n").unwrap();
    let server = Server::start_in(dir);
    server.agent("kilo");
    for n in 0..30 {
        server.operator(&["send", "kilo", &format!("news {n}"), "--type", "info"]).ok();
    }
    let shown = server.operator(&["archive"]).ok();
    assert!(shown.contains("log: positions ") && shown.contains("entries older than 90d"), "{shown}");
    // What the sends and the unread notices need stays.
    let moved = server.operator(&["--json", "archive", "now", "--above", "1", "--yes"]).json();
    let (last, held) = (moved["segments"][0]["last"].as_u64().unwrap(), moved["held_back_at"].as_u64().unwrap());
    assert!(last < held && held < 30, "{moved}");
    let page = server.operator(&["archive"]).ok();
    let file = format!("1-{last}.segment");
    assert!(page.contains(&file) && page.contains(&format!("positions {} to", last + 1)), "{page}");
    server.operator(&["backup", "b.lastword"]).ok();
    let (code, dir) = server.terminate();
    assert_eq!(code, 0);
    // A backup has no segments; its log goes on from the base.
    run(dir.path(), &["--data", "copy", "restore", "b.lastword"]).ok();
    let verified = run(dir.path(), &["--data", "copy", "verify"]).ok();
    assert!(verified.contains(&format!("what is before {} was not read", last + 1)), "{verified}");
    let server = Server::start_with(dir, &["--data", "copy", "--listen", "127.0.0.1:0"]);
    let url = server.first_line["listening"].as_str().unwrap();
    let agents = ["--url", url, "--token-file", "copy/operator.token", "agent", "list"];
    assert!(run(server.path(), &agents).ok().contains("kilo"));
    let (code, dir) = server.terminate();
    assert_eq!(code, 0);
    let verified = run(dir.path(), &["verify"]).ok();
    assert!(verified.contains("the witness finds every promise kept"), "{verified}");
    let segment = dir.path().join(".lastword/archive").join(&file);
    fs::rename(&segment, dir.path().join("kept")).unwrap();
    let verified = run(dir.path(), &["verify"]).ok();
    assert!(verified.contains(&format!("what is before {} was not read", last + 1)), "{verified}");
    let missing = run(dir.path(), &["archive", "restore"]);
    assert!(missing.code == 3 && missing.stderr.contains(&file), "{missing:?}");
    run(dir.path(), &["archive", "compact"]).ok();
    fs::rename(dir.path().join("kept"), &segment).unwrap();
    let restored = run(dir.path(), &["archive", "restore"]).ok();
    assert!(restored.contains("the log, which begins at 1"), "{restored}");
    let verified = run(dir.path(), &["--json", "verify"]).json();
    assert!(verified["unread_through"].is_null(), "{verified}");
    let server = Server::start_in(dir);
    assert!(server.operator(&["audit", "news"]).ok().contains("news 29"));
}
