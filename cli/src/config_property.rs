//! A property of `lastword.toml`: a text is refused with a reason, or its settings are what it says. The fuzz target
//! `config` checks it, too.

use std::fmt::Write as _;
use std::path::Path;

use lastword_facts::limits::{LIMITS, Limits};

use crate::config::{Global, Settings};
use crate::environment::Environment;
use crate::failure::Exit;

/// Checks one text.
pub(crate) fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let settings = match resolved(text) {
        Ok(settings) => settings,
        Err(failure) => {
            assert_eq!(failure.exit, Exit::Usage, "a wrong file is the user's");
            return assert!(failure.message.len() > 3, "and the reason is said");
        }
    };
    // Found at once, whatever the numbers are.
    assert!(settings.limits.bound_messages() <= settings.limits.grant_messages_max.max(1));
    assert!(settings.limits.bound_turns() <= settings.limits.grant_turns_max);
    let mut lines = String::from("[limits]\n");
    for row in LIMITS {
        // A limit of this name and value is what the text set, or the default.
        if let Some(value) = settings.limits.value(row.name) {
            writeln!(lines, "{} = {value}", row.name).expect("a text takes it");
        }
    }
    // TOML's numbers end where those of an i64 do; a limit beyond it can't have been in the text.
    let again = resolved(&lines).unwrap_or_else(|failure| panic!("{}: {lines}", failure.message));
    for row in LIMITS {
        assert_eq!(again.limits.value(row.name), settings.limits.value(row.name), "{}", row.name);
    }
    for name in settings.set_at.keys() {
        assert!(name == "observe" || Limits::default().value(name).is_some(), "{name} is a limit");
        let place = &settings.set_at[name];
        let line = place.rsplit(':').next().and_then(|line| line.parse::<usize>().ok()).expect("FILE:LINE");
        assert!((1..=text.split('\n').count()).contains(&line), "{place} is in the file");
    }
}

fn resolved(text: &str) -> Result<Settings, crate::failure::Failure> {
    Settings::of_text(Path::new("lastword.toml"), Some(text.to_owned()), &Global::default(), &Environment::default())
}

/// Runs the property on its corpus and on mutations of it.
#[cfg(test)]
#[path = "../../fuzz/src/campaign.rs"]
mod campaign;

#[test]
fn a_configuration_is_refused_with_a_reason_or_says_what_it_sets() {
    campaign::run("config", check);
}
