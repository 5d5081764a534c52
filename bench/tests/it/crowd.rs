//! Sessions of which some are slow and some stop.

use crate::program::run;

#[test]
fn of_many_sessions_some_are_slow_or_stop_and_nothing_is_lost_or_there_twice() {
    let dir = tempfile::tempdir().unwrap();
    let told = run(dir.path(), &["sessions", "--agents", "100", "--seconds", "0.5", "--json", "--dir", "."]);
    assert_eq!(told.code, 0, "{told:?}");
    let told = told.json();
    let figure = |name: &str| {
        let figures = told["figures"].as_array().unwrap();
        let found = figures.iter().find(|figure| figure["what"].as_str().is_some_and(|what| what.starts_with(name)));
        found.unwrap_or_else(|| panic!("{name}: {told}"))["value"].as_f64().unwrap()
    };
    assert!(figure("exchanges in all, none lost") >= 48.0, "{told}");
    assert!(figure("messages to 10 readers, none lost") >= 5.0 * 256.0, "{told}");
    assert!(figure("the same, given again because they weren't acknowledged") >= 1.0, "{told}");
    let few = run(dir.path(), &["sessions", "--agents", "3"]);
    assert!(few.code == 2 && few.stderr.contains("--agents"), "{few:?}");
}
