//! Tests check figures, never speed.

use std::fs;

use crate::program::run;

#[test]
fn the_bench_says_what_it_can_not_measure_and_which_build_measures_others() {
    let dir = tempfile::tempdir().unwrap();
    let told = run(dir.path(), &["load", "--seconds", "none"]);
    assert!(told.code == 2 && told.stderr.contains("0.5"), "{told:?}");
    if cfg!(not(feature = "peers")) {
        let told = run(dir.path(), &["load", "--redis", "redis://127.0.0.1:1"]);
        assert!(told.code == 2 && told.stderr.contains("--features peers"), "{told:?}");
    }
}

#[test]
fn the_bench_measures_what_a_server_holds_and_how_it_stands() {
    let dir = tempfile::tempdir().unwrap();
    for (what, named) in [
        (["memory", "--conversations", "40"], ["idle server, resident", "40 open conversations, resident, each"]),
        (
            ["idle", "--agents", "8"],
            ["8 agents in a long poll, resident, each", "one of them is sent something and hears, p50"],
        ),
        (["long", "--messages", "400"], ["audit of 400 messages by REF, p50", "start without one"]),
        (["start", "--facts", "400"], ["start with a snapshot, 400 facts of 10 weeks", "the snapshot"]),
    ] {
        let told = run(dir.path(), &[["--json", "--dir", "."].as_slice(), &what].concat()).json();
        let figures = told["figures"].as_array().unwrap();
        for name in named {
            assert!(
                figures.iter().any(|figure| figure["what"] == name && figure["value"].is_number()),
                "{name}: {told}"
            );
        }
    }
    let soak = ["soak", "--minutes", "0.05", "--retention-seconds", "0.7", "--rate", "100"];
    let told = run(dir.path(), &[["--json", "--dir", "."].as_slice(), &soak].concat()).json();
    let (first, last) = (&told["soak"][0], &told["soak"].as_array().unwrap().last().unwrap());
    // A busy machine is late with some.
    assert!(first["messages"] == 0.0 && (1.0..=300.0).contains(&last["messages"].as_f64().unwrap()), "{told}");
    assert!(last["resident_mib"].as_f64() > Some(1.0) && last["log_mib"].as_f64() > Some(0.01), "{told}");
    assert!(told["figures"].as_array().unwrap().iter().any(|figure| figure["unit"] == "MiB/minute"), "{told}");
    let short = run(dir.path(), &["soak", "--minutes", "0.05"]);
    assert!(short.code == 2 && short.stderr.contains("four times the retention"), "{}", short.stderr);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
    let many = run(dir.path(), &["idle", "--agents", "1000000000"]);
    assert!(many.code == 2 && many.stderr.contains("open files"), "{}", many.stderr);
}
