//! Checkpoints of the log that are kept elsewhere (L5).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lastword_facts::{Entry, Fact, Seq};
use lastword_store::DataDir;
use tempfile::TempDir;

use crate::program::{Ended, Server, lastword, run};
use crate::running::wait_for;

const DATA: &str = ".lastword";
const KEPT: &str = ".lastword/lastword.checkpoints";

fn ask(server: &Server, agent: &str, text: &str, reference: &str) {
    server.operator(&["ask", agent, text, "--ref", reference, "--wait", "0s"]).ok();
}

/// Starts a server with one agent and one request.
fn started() -> Server {
    let server = Server::start();
    server.agent("kilo");
    ask(&server, "kilo", "pay 100", "T-1");
    server
}

fn key(dir: &Path) -> String {
    run(dir, &["checkpoint", "--key"]).ok().trim().to_owned()
}

/// Appends the log's checkpoint to a file, as a cron line does; returns its position.
fn keep(dir: &Path, name: &str) -> u64 {
    let path = dir.join(name);
    let before = fs::read_to_string(&path).unwrap_or_default();
    fs::write(&path, before + &run(dir, &["checkpoint"]).ok()).unwrap();
    run(dir, &["checkpoint", "--json"]).json()["seq"].as_u64().unwrap()
}

fn verify(dir: &Path, args: &[&str]) -> Ended {
    run(dir, &[&["verify"], args].concat())
}

#[track_caller]
fn assert_refused(ended: &Ended, words: &str) {
    assert!(ended.code == 1 && ended.stderr.contains(words), "{words}: {ended:?}");
}

/// Replaces the log of a stopped server by one in which `alter` changed the rows, with good hashes throughout: what
/// someone can do who can write the data directory.
fn rewrite(dir: &Path, alter: impl FnOnce(&mut Vec<Vec<Entry>>)) {
    let data = dir.join(DATA);
    let reader = DataDir::at(&data).open_reader().unwrap();
    let ends: Vec<u64> = {
        let db = rusqlite::Connection::open(data.join("lastword.db")).unwrap();
        let mut rows = db.prepare("SELECT first_seq + count - 1 FROM log ORDER BY first_seq").unwrap();
        rows.query_map([], |row| row.get::<_, i64>(0)).unwrap().map(|end| end.unwrap().cast_unsigned()).collect()
    };
    let all = reader.read(Seq(1), 1_000_000).unwrap();
    let row = |(at, end): (usize, &u64)| {
        let behind = at.checked_sub(1).map_or(0, |before| ends[before]);
        all.iter().filter(|(seq, _)| (behind + 1..=*end).contains(&seq.0)).map(|(_, entry)| entry.clone()).collect()
    };
    let mut rows: Vec<Vec<Entry>> = ends.iter().enumerate().map(row).collect();
    drop(reader);
    alter(&mut rows);
    for name in ["lastword.db", "lastword.db-wal", "lastword.db-shm", "lastword.head", "snapshot", "index.db"] {
        let _missing = fs::remove_file(data.join(name));
    }
    for name in ["index.db-wal", "index.db-shm"] {
        let _missing = fs::remove_file(data.join(name));
    }
    let mut log = DataDir::at(&data).open().unwrap();
    let (epoch, mut last) = (log.begin_epoch().unwrap(), Seq(0));
    for row in rows {
        let row: Vec<Arc<Entry>> = row.into_iter().map(Arc::new).collect();
        last = log.append(epoch, last, &row).unwrap();
    }
}

/// Turns "pay 100" into "pay 900": nothing that the witness of the rules recounts.
fn forge(rows: &mut [Vec<Entry>]) {
    let mut found = 0;
    for entry in rows.iter_mut().flatten() {
        if let Fact::Accepted { message } = &mut entry.fact
            && &*message.body == "pay 100"
        {
            message.body = "pay 900".into();
            found += 1;
        }
    }
    assert_eq!(found, 1);
}

#[test]
fn a_checkpoint_kept_elsewhere_finds_a_log_that_was_rewritten_with_good_hashes() {
    let server = started();
    let at = keep(server.path(), "kept");
    let log_key = key(server.path());
    ask(&server, "kilo", "and so on", "T-2");
    keep(server.path(), "kept");
    let (_, dir) = server.terminate();
    let with_kept = ["--key", &log_key, "--checkpoint", "kept"];
    let said = verify(dir.path(), &with_kept).ok();
    assert!(said.contains("3 signed checkpoints"), "two that were kept elsewhere, one of the stop: {said}");

    rewrite(dir.path(), |rows| forge(rows));
    assert_refused(&verify(dir.path(), &["--key", &log_key]), "is another one than the one whose hash was noted");
    verify(dir.path(), &[]).ok();
    // The key is in the data directory, too: what was kept there is signed again.
    fs::remove_file(dir.path().join(KEPT)).unwrap();
    assert_refused(&verify(dir.path(), &["--key", &log_key]), "there is no checkpoint");
    fs::write(dir.path().join(KEPT), run(dir.path(), &["checkpoint"]).ok()).unwrap();
    verify(dir.path(), &["--key", &log_key]).ok();
    let found = verify(dir.path(), &with_kept);
    assert_refused(&found, &format!("the history up to {at} is another one than the one whose hash was noted"));
    assert!(found.stderr.contains("the log is broken at position"), "{found:?}");
}

#[test]
fn a_log_that_was_cut_off_does_not_pass_a_checkpoint_and_a_made_up_restore_does_not_hide_it() {
    let server = started();
    let log_key = key(server.path());
    ask(&server, "kilo", "and so on", "T-2");
    let at = keep(server.path(), "kept");
    let (_, dir) = server.terminate();
    rewrite(dir.path(), |rows| rows.truncate(rows.len() - 1));
    fs::remove_file(dir.path().join(KEPT)).unwrap();
    verify(dir.path(), &[]).ok();
    let with_kept = ["--key", &log_key, "--checkpoint", "kept"];
    assert_refused(&verify(dir.path(), &with_kept), &format!("the log ends here, but {at} was acknowledged"));
    run(dir.path(), &["doctor", "--accept-loss", "--yes"]).ok();
    verify(dir.path(), &[]).ok();
    let found = verify(dir.path(), &with_kept);
    assert_refused(&found, &format!("position {at} was noted, and the log jumps over it"));
    assert!(found.stderr.contains("--restored"), "{found:?}");
}

#[test]
fn a_checkpoint_needs_the_key_of_its_own_log_and_an_unaltered_text() {
    let (server, other) = (started(), started());
    for server in [&server, &other] {
        keep(server.path(), "kept");
    }
    let (own, others) = (key(server.path()), key(other.path()));
    fs::write(server.path().join("log.pub"), format!("{own}\n")).unwrap();
    let with = |key: &str, file: &str| verify(server.path(), &["--key", key, "--checkpoint", file]);
    with(&own, "kept").ok();
    with("log.pub", "kept").ok();
    assert_refused(&with(&others, "kept"), "kept: not signed by the key lastword-hash-chain/");
    let elsewhere = other.path().join("kept").display().to_string();
    assert_refused(&with(&own, &elsewhere), "kept: not signed by the key lastword-hash-chain/");
    let wrong = with(&own.replace('+', "-"), "kept");
    assert!(wrong.code == 2 && wrong.stderr.contains("No such file"), "{wrong:?}");
    let wrong = with(&format!("{own}x"), "kept");
    assert!(wrong.code == 2 && wrong.stderr.contains("not a public key"), "{wrong:?}");
    let honest = fs::read_to_string(server.path().join("kept")).unwrap();
    let lines: Vec<&str> = honest.lines().collect();
    let at: u64 = lines[1].parse().unwrap();
    for (altered, words) in [
        (honest.replace(&format!("\n{at}\n"), &format!("\n{}\n", at - 1)), "doesn't match"),
        (honest.replace(lines[2], "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="), "doesn't match"),
        (honest.replace("— ", "- "), "not a signed note: line 4"),
        (String::new(), "has no checkpoint"),
    ] {
        fs::write(server.path().join("altered"), &altered).unwrap();
        assert_refused(&with(&own, "altered"), words);
    }
    let unkeyed = verify(server.path(), &["--checkpoint", "kept"]);
    assert!(unkeyed.code == 2, "{unkeyed:?}");
}

/// Waits until the kept checkpoints satisfy a condition.
fn kept_until(dir: &Path, wanted: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    wait_for("a kept checkpoint", || {
        text = fs::read_to_string(dir.join(KEPT)).unwrap_or_default();
        wanted(&text)
    });
    text
}

#[test]
fn a_server_keeps_checkpoints_as_it_runs_and_when_it_stops() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lastword.toml"), "checkpoint_every_facts = 1\n").unwrap();
    let server = Server::start_in(dir);
    let log_key = key(server.path());
    assert_eq!(server.first_line["checkpoint_key"].as_str().unwrap(), log_key);
    server.agent("kilo");
    let first = kept_until(server.path(), |text| !text.is_empty());
    ask(&server, "kilo", "more", "T-1");
    kept_until(server.path(), |text| text.matches("\n\n— ").count() > first.matches("\n\n— ").count());
    ask(&server, "kilo", "yet more", "T-2");
    // Killed: what was kept before is still good, and the next stop adds the end.
    let dir = server.kill();
    verify(dir.path(), &["--key", &log_key]).ok();
    fs::write(dir.path().join("lastword.toml"), "checkpoint_every_facts = 0\n").unwrap();
    let server = Server::start_in(dir);
    assert_eq!(key(server.path()), log_key, "the key is made once");
    let (_, dir) = server.terminate();
    let report = verify(dir.path(), &["--key", &log_key, "--json"]).json();
    assert_eq!(report["checkpoints"]["newest"], report["seq"], "{report}");
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &dir.path().join(".lastword/checkpoint.key").metadata().unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_restore_keeps_the_key_and_replaces_only_what_came_after_the_backup() {
    let server = started();
    let log_key = key(server.path());
    keep(server.path(), "before");
    let (_, dir) = server.terminate();
    let server = Server::start_in(dir);
    server.operator(&["backup", "b.lastword"]).ok();
    ask(&server, "kilo", "after the backup", "T-2");
    let lost = keep(server.path(), "after");
    let (_, dir) = server.terminate();
    let restored = run(dir.path(), &["restore", "b.lastword", "--yes", "--json"]).json();
    let first = restored["epoch_first"].to_string();
    assert_eq!(key(dir.path()), log_key);
    let checked = |args: &[&str]| verify(dir.path(), &[&["--key", &log_key], args].concat());
    checked(&[]).ok();
    checked(&["--checkpoint", "before"]).ok();
    assert_refused(
        &checked(&["--checkpoint", "after"]),
        &format!("position {lost} was noted, and the log jumps over it to {first}: a restore replaced that part"),
    );
    assert_refused(&checked(&["--checkpoint", "after", "--restored", "77"]), "a restore replaced that part");
    let known = checked(&["--checkpoint", "after", "--checkpoint", "before", "--restored", &first, "--json"]).json();
    assert_eq!(known["checkpoints"]["replaced"], 1, "{known}");
    keep(dir.path(), "newest");
    let server = Server::start_in(dir);
    ask(&server, "kilo", "goes on", "T-3");
    let (_, dir) = server.terminate();
    verify(dir.path(), &["--key", &log_key, "--checkpoint", "newest", "--checkpoint", "before"]).ok();
}

/// Cosigns, elsewhere, the server's checkpoint.
fn cosign(server: &Server, elsewhere: &Path) -> Ended {
    let url = server.first_line["listening"].as_str().unwrap();
    let token = server.path().join(".lastword/operator.token");
    let (log_key, token) = (key(server.path()), token.display().to_string());
    run(elsewhere, &["--url", url, "--token-file", &token, "checkpoint", "--cosign", "w.key", "--log-key", &log_key])
}

fn cosigner() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    (dir, path)
}

#[test]
fn a_cosigner_signs_what_goes_on_from_what_it_saw_and_verify_requires_it() {
    let (server, (_dir, elsewhere)) = (started(), cosigner());
    let log_key = key(server.path());
    keep(server.path(), "alone");
    let cosigned = cosign(&server, &elsewhere).ok();
    ask(&server, "kilo", "more", "T-2");
    let again = cosign(&server, &elsewhere).ok();
    let lines: Vec<&str> = again.trim_end().lines().collect();
    assert_eq!(lines.len(), 6, "{again}");
    assert!(lines[4].starts_with("— lastword-hash-chain/") && lines[5].starts_with("— lastword-cosigner/"), "{again}");
    fs::write(server.path().join("cosigned"), format!("{cosigned}{again}")).unwrap();
    let cosigner_key = run(&elsewhere, &["checkpoint", "--cosign", "w.key", "--key"]).ok().trim().to_owned();
    let by = |file: &str| {
        verify(server.path(), &["--key", &log_key, "--checkpoint", file, "--cosigner-key", &cosigner_key, "--json"])
    };
    assert_eq!(by("cosigned").json()["checkpoints"]["signed"], 2);
    assert_refused(&by("alone"), "not signed by the key lastword-cosigner/");
    let unnamed = verify(server.path(), &["--key", &log_key, "--cosigner-key", &cosigner_key]);
    assert_eq!(unnamed.code, 2, "a cosigner's key is for checkpoints that are named: {unnamed:?}");
}

#[test]
fn a_cosigner_signs_no_second_history_and_keeps_the_proof() {
    let (server, (_dir, elsewhere)) = (started(), cosigner());
    cosign(&server, &elsewhere).ok();
    let (_, dir) = server.terminate();
    rewrite(dir.path(), |rows| forge(rows));
    let server = Server::start_in(dir);
    ask(&server, "kilo", "goes on", "T-2");
    let refused = cosign(&server, &elsewhere);
    assert_refused(&refused, "the log shows two histories: its hash at position");
    let proof = fs::read_to_string(elsewhere.join("w.key.split")).unwrap();
    let lines: Vec<&str> = proof.lines().filter(|line| !line.is_empty() && !line.contains("cosigner")).collect();
    let [origin, at, hash, _, origin2, at2, hash2, _] = lines[..] else { panic!("{proof}") };
    assert!(origin == origin2 && at == at2 && hash != hash2, "{proof}");
    // The same with a log that was cut off before what was cosigned.
    let (_, dir) = server.terminate();
    rewrite(dir.path(), |rows| rows.truncate(2));
    let cut = run(
        dir.path(),
        &["checkpoint", "--cosign", elsewhere.join("w.key").to_str().unwrap(), "--log-key", &key(dir.path())],
    );
    assert_refused(&cut, "was cosigned");
    assert!(cut.stderr.contains("w.key.seen"), "{cut:?}");
}

#[test]
fn a_checkpoint_is_served_to_humans_at_any_position_that_has_a_hash() {
    let server = started();
    let url = server.first_line["listening"].as_str().unwrap().to_owned();
    let operator = fs::read_to_string(server.path().join(".lastword/operator.token")).unwrap();
    let get = |path: &str| crate::online::get(&url, operator.trim(), path);
    let at = keep(server.path(), "kept");
    let kept = fs::read_to_string(server.path().join("kept")).unwrap();
    let served = get("/v1/checkpoint");
    assert!(served.contains("content-type: text/plain"), "{served}");
    assert!(served.contains(kept.trim_end()), "Ed25519 gives the same signature of the same text: {served}");
    ask(&server, "kilo", "more", "T-2");
    assert!(!get("/v1/checkpoint").contains(kept.trim_end()));
    assert!(get(&format!("/v1/checkpoint?at={at}")).contains(kept.trim_end()));
    for (path, status) in [
        ("/v1/checkpoint?at=0", "404"),
        ("/v1/checkpoint?at=1000000", "409"),
        ("/v1/checkpoint?at=18446744073709551615", "409"),
        ("/v1/checkpoint?at=x", "400"),
    ] {
        let answer = get(path);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {answer}");
    }
    let agent = fs::read_to_string(server.path().join("kilo.token")).unwrap();
    let refused = crate::online::get(&url, agent.trim(), "/v1/checkpoint");
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    let remote = server.operator(&["--url", &url, "checkpoint"]).ok();
    assert!(remote.starts_with("lastword-hash-chain/"), "{remote}");
    let keyless = lastword(server.path()).args(["--url", &url, "checkpoint", "--key"]).output().unwrap();
    assert_eq!(keyless.status.code(), Some(2));
}
