//! The properties of the fuzz targets, on the targets' corpus and a few thousand mutations of it. `.ci/fuzz` runs the
//! targets themselves.

#[path = "../../../fuzz/src/campaign.rs"]
mod campaign;
#[path = "../../../fuzz/src/properties/mod.rs"]
mod properties;

use std::collections::BTreeSet;
use std::path::Path;

use self::campaign::run;

#[test]
fn a_header_is_printed_as_it_was_parsed() {
    run("header", properties::header::check);
}

#[test]
fn an_envelope_means_the_same_when_it_is_written_and_read_again() {
    run("envelope", properties::envelope::check);
}

#[test]
fn a_boundary_encloses_exactly_its_authors_words() {
    run("quote", properties::quote::check);
}

#[test]
fn a_name_is_accepted_if_its_grammar_has_it() {
    run("names", properties::names::check);
}

#[test]
fn stored_bytes_are_an_entry_that_is_written_back_or_an_error() {
    run("entries", properties::entries::check);
}

#[test]
fn the_bytes_of_a_snapshot_are_a_state_that_is_written_back_or_an_error() {
    run("state", properties::state::check);
}

#[test]
fn a_message_of_an_mcp_client_sets_only_what_its_tool_lists() {
    run("mcp", lastword_mcp::properties::check);
}

#[test]
fn a_message_of_another_system_sets_only_what_its_sender_may_choose() {
    run("a2a", lastword_a2a::properties::check);
}

#[test]
fn a_session_reads_the_frames_that_its_client_sent() {
    run("session", lastword_server::properties::session);
}

#[test]
fn a_mention_is_a_name_that_the_post_has() {
    run("rooms", lastword_server::properties::rooms);
}

#[test]
fn a_cron_expression_ticks_at_full_minutes_and_ever_later() {
    run("cron", lastword_server::properties::cron);
}

#[test]
fn each_fuzz_target_has_a_corpus_and_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let names = |folder: &str| -> BTreeSet<String> {
        let files = std::fs::read_dir(root.join(folder)).unwrap();
        files.map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect()
    };
    let (targets, corpora) = (names("fuzz/fuzz_targets"), names("fuzz/corpus"));
    assert_eq!(targets, corpora);
    let files = ["sim/tests/it/fuzzed.rs", "cli/src/config_property.rs", "discord/src/properties.rs"];
    let tests = files.map(|file| std::fs::read_to_string(root.join(file)).unwrap()).concat();
    for target in targets {
        assert!(tests.contains(&format!("run(\"{target}\"")), "no test runs {target}");
        let size: u64 = std::fs::read_dir(root.join("fuzz/corpus").join(&target))
            .unwrap()
            .map(|file| file.unwrap().metadata().unwrap().len())
            .sum();
        assert!(size < 32 * 1024, "the corpus of {target} has {size} bytes: minimise it");
    }
}

/// No other build compiles the target `config`, which has modules of the program.
#[test]
fn the_target_of_the_configuration_has_each_module_that_its_modules_use() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = std::fs::read_to_string(root.join("fuzz/fuzz_targets/config.rs")).unwrap();
    let modules: Vec<&str> = target.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';')).collect();
    assert!(modules.contains(&"config"));
    for module in &modules {
        let source = std::fs::read_to_string(root.join(format!("cli/src/{module}.rs"))).unwrap();
        // The tests of a module aren't part of the target.
        let source = source.split("\n#[cfg(test)]").next().unwrap();
        for used in source.split("crate::").skip(1) {
            let used: String = used.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
            assert!(modules.contains(&used.as_str()), "{module} uses {used}, which fuzz/fuzz_targets/config.rs lacks");
        }
    }
}
