//! The guards: the rules that can refuse a message. What each judges is the core's.

/// A rule that can refuse a message.
#[derive(Clone, Copy)]
pub struct Guard {
    /// Its name: the code of its refusals, or the first of several codes.
    pub name: &'static str,
    /// The rule that it enforces.
    pub rule: &'static str,
    /// Whether it may be put under observation (G7).
    pub observable: bool,
    /// Whether it is under observation unless the configuration says otherwise.
    pub observed: bool,
    /// Whether it also applies to humans.
    pub humans: bool,
}

/// All guards, in the order in which they are asked (G5).
pub const GUARDS: &[Guard] = &[
    always("from_mismatch", "E3"),
    for_all("too_large", "L4"),
    for_all("malformed", "D11"),
    for_all("caused_by_refused", "D10"),
    always("lease_lost", "F6"),
    always("turn_required", "D1"),
    guard("turns_hard", "R1"),
    guard("turns_soft", "R1"),
    for_all("stopped", "H4"),
    always("paused", "H4"),
    always("latched", "R3"),
    guard("turn_closed", "F5"),
    for_all("unknown_recipient", "L3"),
    guard("self_send", "D6"),
    always("reply_not_expected", "E4"),
    always("ref_required", "E6"),
    guard("passive_reply", "D5"),
    guard("cycle", "D5"),
    guard("ref_conflict", "D3"),
    guard("ref_in_use", "D3"),
    always("task_closed", "D7"),
    always("depth_mismatch", "E3"),
    guard("hop_cap", "D4"),
    guard("depth_cap", "D2"),
    guard("task_requests", "D3"),
    observed("no_progress", "R5"),
    always("unattended", "D12"),
    always("root_allowance", "D7"),
    guard("mutual_wait", "Q8"),
    guard("pair_rate", "G1"),
    guard("sender_rate", "G1"),
    guard("fan_out", "G1"),
    always("quota_bytes", "G2"),
    for_all("saturated", "L4"),
    always("grant_expired", "D8"),
    always("grant_messages", "D8"),
    always("grant_turns", "D8"),
    always("grant_agents", "D8"),
    always("budget", "B1"),
];

const fn guard(name: &'static str, rule: &'static str) -> Guard {
    Guard { name, rule, observable: true, observed: false, humans: false }
}

const fn observed(name: &'static str, rule: &'static str) -> Guard {
    Guard { name, rule, observable: true, observed: true, humans: false }
}

const fn always(name: &'static str, rule: &'static str) -> Guard {
    Guard { name, rule, observable: false, observed: false, humans: false }
}

const fn for_all(name: &'static str, rule: &'static str) -> Guard {
    Guard { name, rule, observable: false, observed: false, humans: true }
}
