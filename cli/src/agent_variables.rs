//! The environment of agent programs.

use lastword_programs::ALL;

/// Variables of Lastword's own, and those that several programs set.
const COMMON: [&str; 3] = ["LASTWORD_AGENT", "AGENT", "AI_AGENT"];
/// Variables of programs that Lastword doesn't know otherwise.
const OTHERS: [&str; 5] = ["AUGMENT_AGENT", "CLINE_ACTIVE", "CURSOR_AGENT", "GOOSE_TERMINAL", "QWEN_CODE"];

/// Returns the environment variables that show that an agent program runs this one.
pub(crate) fn agent_variables() -> impl Iterator<Item = &'static str> {
    let known = ALL.into_iter().flat_map(|program| program.variables).copied();
    COMMON.into_iter().chain(known).chain(OTHERS)
}
