//! Every limit of the protocol, defined once: name, unit, default, rule and meaning.
//!
//! The struct, the documentation, `GET /v1/limits` and the keys of the configuration are all made from this table, so
//! that no number is defined twice. The last word of a name is its unit.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize, Serializer};

use crate::envelope::words;
use crate::guards::GUARDS;
use crate::names::AgentName;

/// One row of the limits table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitRow {
    /// The name, with its unit last. Also the key in the configuration and in `GET /v1/limits`.
    pub name: &'static str,
    /// The rule that the limit belongs to.
    pub rule: &'static str,
    /// The value that holds unless the configuration sets another one.
    pub default: u64,
    /// The quantity that it bounds, in one sentence.
    pub meaning: &'static str,
}

macro_rules! limits {
    ($($rule:literal $name:ident = $default:literal, $meaning:literal;)*) => {
        /// The limits in force. See [`LIMITS`] for rule, unit and meaning of each.
        #[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
        #[serde(from = "StoredLimits")]
        pub struct Limits {
            $(#[doc = $meaning] pub $name: u64,)*
            /// The guards that only record what they would have refused (G7), by index in `GUARDS`.
            pub observed: Observed,
            /// The agents that may decide approvals besides humans (H3); none by default.
            pub approvers: Approvers,
            /// The profile from which these limits were made; they may differ from it (R6).
            pub profile: Profile,
        }

        impl Default for Limits {
            fn default() -> Self {
                let (observed, approvers) = (Observed::default(), Approvers::default());
                Self { $($name: $default,)* observed, approvers, profile: Profile::Strict }
            }
        }

        /// The table of all limits, in the order of the documentation.
        pub const LIMITS: &[LimitRow] = &[$(LimitRow {
            name: stringify!($name), rule: $rule, default: $default, meaning: $meaning,
        },)*];

        impl Limits {
            /// Returns the value of the limit called `name`; `None` if no limit has that name.
            #[must_use]
            pub fn value(&self, name: &str) -> Option<u64> {
                match name { $(stringify!($name) => Some(self.$name),)* _ => None }
            }

            /// Returns the name and the value of each limit, in the order of [`LIMITS`].
            const fn values(&self) -> [(&'static str, u64); LIMITS.len()] {
                [$((stringify!($name), self.$name),)*]
            }

            /// Sets the limit called `name`. Returns `false` if no limit has that name.
            pub fn set(&mut self, name: &str, value: u64) -> bool {
                match name { $(stringify!($name) => self.$name = value,)* _ => return false }
                true
            }
        }
    };
}

limits! {
    "D2" depth_max = 5, "Deepest message of a conversation, inclusive; 5 makes the longest chain six messages.";
    "D4" hops_max = 3, "Delegation edges from the grant along the causal path.";
    "D3" task_requests_max = 16, "Requests a task may send in its lifetime, over all turns, attempts and REFs.";
    "D7" roots_per_hour_max = 10, "Roots an agent may start in any hour outside every turn.";
    "D7" root_messages_per_day_max = 200, "Waking messages that an agent's own roots may cause together in a UTC day.";
    "D8" grant_messages_max = 64, "Waking messages a grant may cause; a request reserves its answer, so it takes two.";
    "D8" grant_turns_max = 100, "Turns a grant may cause.";
    "D8" grant_agents_max = 16, "Distinct agents a grant may wake.";
    "D8" grant_age_ms = 86_400_000, "Clock of a grant; stops while no turn is open and the work waits for a human, a pause or a latch.";
    "B1" grant_tokens_max = 500_000, "Weighted tokens a grant may spend: cache reads count a tenth, cache writes 1.25. A turn is charged its reported usage, at least the estimate from its text.";
    "B1" agent_day_tokens_max = 5_000_000, "Weighted tokens an agent may spend in a UTC day.";
    "B1" grant_cost_microusd_max = 0, "Cost of a grant, in millionths of a dollar; 0 means no limit.";
    "B1" agent_day_cost_microusd_max = 0, "Cost of an agent in a UTC day, in millionths of a dollar; 0 means no limit.";
    "B1" budget_warning_percent = 80, "Share of a token or cost limit at which the agent gets one warning.";
    "F1" lease_ms = 600_000, "Lease of a turn; activity renews it.";
    "F1" holder_ms = 30_000, "Time without a sign of the client that holds a turn, after which a client without an id gets its delivery.";
    "F1" agent_turns_max = 1, "Open turns of an agent without a per-agent limit.";
    "F5" turn_refusals_max = 5, "Refusals in one turn, after which it can only finish; those with a retry_after are free.";
    "Q2" ack_woken_ms = 30_000, "Time to acknowledge for a recipient with an open connection.";
    "Q2" ack_polling_ms = 600_000, "Time to acknowledge for a recipient that polls.";
    "Q2" ageing_ms = 60_000, "Waiting time that raises a queued request's priority by one step.";
    "Q2" eta_ms_max = 3_600_000, "Longest extension of a lease that one eta_ms may ask for.";
    "Q4" reassignments_max = 2, "Times a rejected request goes to another agent that serves its action.";
    "Q5" runs_max = 4, "Runs of one request: retry, reassignment and partial together.";
    "G1" pair_messages_max = 10, "Messages from one sender to one recipient in any window.";
    "G1" sender_messages_max = 30, "Messages from one sender in any window.";
    "G1" window_ms = 60_000, "The window of the two rates above.";
    "G1" fan_out_targets_max = 5, "Distinct recipients of one sender in any fan-out window.";
    "G1" fan_out_window_ms = 5_000, "The fan-out window.";
    "R1" turns_soft_max = 20, "Agent messages in a conversation or room since a human spoke, at which one warning is posted.";
    "R1" turns_hard_max = 100, "Agent messages in a conversation or room since a human spoke, at which further ones are held.";
    "R1" progress_interval_ms = 1_000, "Minimum time between two progress reports of one turn.";
    "H1" escalations_open_max = 3, "Open escalations of an agent.";
    "H2" approvals_open_max = 8, "Undecided approvals of an agent.";
    "H2" approval_ms = 300_000, "Time to decide an approval, after which it is denied.";
    "L3" delivery_age_ms = 86_400_000, "Age at which an unread notice is dropped from the inbox; it stays in the log.";
    "L4" inbox_max = 1_000, "Requests waiting for one agent, and notices waiting for one agent.";
    "L4" body_bytes_max = 262_144, "Longest body or payload.";
    "L4" payload_depth_max = 32, "Deepest nesting of a payload.";
    "D11" list_max = 16, "Recipients of one send.";
    "L7" retention_ms = 604_800_000, "How long a settled request, its idempotency key and a closed conversation are kept in memory.";
    "C1" claims_max = 64, "Leases on resources that one agent may hold.";
    "C1" claim_ms_max = 3_600_000, "Longest lease on a resource.";
    "E2" agents_max = 10_000, "Registered agents and humans.";
    "E2" rooms_max = 10_000, "Rooms.";
    "D8" grant_clock_warning_percent = 80, "Share of a grant's clock at which the human who gave it gets one warning.";
    "D8" latch_ms = 604_800_000, "How long a latch of a grant may hold before the grant is closed.";
    "D8" grant_life_ms = 2_592_000_000, "Longest lifetime of a grant, including the time in which its clock was stopped.";
    "D2" rounds_max = 10, "Rounds that one extension of a conversation may give; a round is two messages.";
    "D12" unattended_ms = 1_209_600_000, "Time without a human act after which no agent starts work; 0 means no limit.";
    "D13" schedules_max = 64, "Schedules of a workspace.";
    "D13" schedule_interval_ms = 600_000, "Minimum time between two ticks of a schedule.";
    "G2" refused_writes_max = 60, "Refused writes of an agent in any window, after which its writes are refused without being judged.";
    "G2" recorded_refusals_max = 10, "Refusals recorded one by one per window, for writes that a rule exempts from that limit.";
    "E4" alerts_per_hour_max = 5, "ALERTs of an agent in any hour that humans are shown; the rest are only counted.";
    "H1" task_questions_max = 16, "Escalations and held calls of a task in its lifetime.";
    "H1" escalation_ms = 604_800_000, "Time to answer an escalation, after which the task that asked ends.";
    "H2" approval_use_ms = 3_600_000, "Time after the decision within which an approved call may be made.";
    "L3" notice_bytes_max = 2_048, "Longest notice attached to a delivery; the rest is available in the audit.";
    "L3" notices_bytes_max = 32_768, "Total size of the notices attached to one delivery.";
    "D3" refs_named_max = 64, "REFs that one request can name for its task.";
    "G2" agent_day_bytes_max = 268_435_456, "Bytes that an agent's messages, posts, calls, questions and claims may add to the log in a UTC day; 0 means no limit.";
    "H8" typed_grants_per_hour_max = 30, "Grants that prompts typed into the session of one agent may open in any hour; 0 means that prompts open none.";
    "R5" no_progress_bytes_max = 67_108_864, "Memory for what tells whether exchanges make progress; beyond it the one with the oldest message starts anew.";
    "B1" bound_warning_messages = 1_000, "`lastword bound` warns if a grant may cause more waking messages.";
    "B1" bound_ceiling_messages = 10_000, "`lastword bound` and `serve` refuse a configuration whose grants may cause more.";
}

/// The stored form, by name, so that a log written before a limit or guard was added stays readable. A limit that it
/// doesn't name has its default; a name that this program doesn't know is ignored.
#[derive(Deserialize)]
struct StoredLimits {
    values: Vec<(Box<str>, u64)>,
    observed: Vec<Box<str>>,
    asker_approves: bool,
    approvers: Vec<AgentName>,
}

/// The same form as it is written: each snapshot has it, so it copies no name and looks none up.
#[derive(Serialize)]
#[serde(rename = "StoredLimits")]
struct WrittenLimits<'a> {
    values: Vec<(&'static str, u64)>,
    observed: Vec<Cow<'static, str>>,
    asker_approves: bool,
    approvers: &'a [AgentName],
}

/// The name under which the profile is stored among the limits.
const PROFILE: &str = "profile";
/// The mark of a stored guard that is enforced although it observes by default.
const ENFORCED: char = '!';

words! {
    /// A set of limits to start from (R6). Any limit that is set by hand wins over it.
    Profile {
        /// Every limit at its default, from the four sources; `no_progress` is observed.
        Strict = "strict",
        /// For teams that work through many rounds; `no_progress` is enforced.
        Long = "long",
    }
}

/// The times that may be 0: no limit, and no minimum.
const MAY_BE_ZERO: [&str; 2] = ["unattended_ms", "progress_interval_ms"];

/// Whether a limit may have this value: most times may not be 0.
#[must_use]
pub fn may_be(name: &str, value: u64) -> bool {
    value > 0 || !name.ends_with("_ms") || MAY_BE_ZERO.contains(&name)
}

impl Limits {
    /// Returns the limits of a profile (R6).
    #[must_use]
    pub fn of(profile: Profile) -> Self {
        let strict = Self::default();
        match profile {
            Profile::Strict => strict,
            Profile::Long => {
                let mut long = Self {
                    depth_max: 39,
                    task_requests_max: 64,
                    turns_soft_max: 80,
                    turns_hard_max: 200,
                    grant_messages_max: 512,
                    grant_turns_max: 800,
                    grant_tokens_max: strict.grant_tokens_max * 5,
                    profile,
                    ..strict
                };
                long.observed.enforce("no_progress");
                long
            }
        }
    }
}

impl Serialize for Limits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let long = (self.profile == Profile::Long).then_some((PROFILE, 1));
        let observed = GUARDS.iter().enumerate().filter_map(|(index, guard)| match self.observed.contains(index) {
            true => Some(guard.name.into()),
            false => guard.observed.then(|| alloc::format!("{ENFORCED}{}", guard.name).into()),
        });
        let written = WrittenLimits {
            values: self.values().into_iter().chain(long).collect(),
            observed: observed.collect(),
            asker_approves: self.approvers.asker,
            approvers: &self.approvers.agents,
        };
        written.serialize(serializer)
    }
}

impl From<StoredLimits> for Limits {
    fn from(stored: StoredLimits) -> Self {
        let mut limits = Self::default();
        for (name, value) in &stored.values {
            if &**name == PROFILE && *value == 1 {
                limits.profile = Profile::Long;
            }
            limits.set(name, *value);
        }
        for name in &stored.observed {
            match name.strip_prefix(ENFORCED) {
                Some(name) => limits.observed.enforce(name),
                None => limits.observed.observe(name),
            };
        }
        limits.approvers = Approvers { asker: stored.asker_approves, agents: stored.approvers };
        limits
    }
}

/// The agents that may decide approvals (H3). Never the agent that makes the call, nor an agent that works for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Approvers {
    /// Whether the requester of the task in which the call is held may decide.
    pub asker: bool,
    /// Other agents that may decide, by name.
    pub agents: Vec<AgentName>,
}

/// The set of guards that observe instead of enforce (G7): one bit for each row of `GUARDS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed(u64);

impl Default for Observed {
    fn default() -> Self {
        let mut set = Self(0);
        for guard in GUARDS.iter().filter(|guard| guard.observed) {
            set.observe(guard.name);
        }
        set
    }
}

impl Observed {
    /// Returns the set of all guards that may be observed.
    #[must_use]
    pub fn all() -> Self {
        let mut set = Self::default();
        for guard in GUARDS {
            set.observe(guard.name);
        }
        set
    }

    /// Puts the guard called `name` under observation. Returns `false` if no guard has that name, or if it is always
    /// enforced (such as the totals of a grant).
    pub fn observe(&mut self, name: &str) -> bool {
        match GUARDS.iter().position(|g| g.name == name && g.observable) {
            Some(index) => {
                self.0 |= 1 << index;
                true
            }
            None => false,
        }
    }

    /// Puts the guard called `name` into force. Returns `false` if no guard has that name, or if it is always enforced.
    pub fn enforce(&mut self, name: &str) -> bool {
        match GUARDS.iter().position(|g| g.name == name && g.observable) {
            Some(index) => {
                self.0 &= !(1 << index);
                true
            }
            None => false,
        }
    }

    /// Whether the guard at `index` of `GUARDS` only observes.
    #[must_use]
    pub const fn contains(self, index: usize) -> bool {
        self.0 & (1 << index) != 0
    }

    /// Whether the guard called `name` only observes.
    #[must_use]
    pub fn observes(self, name: &str) -> bool {
        // The core asks this for every message, so only the few guards that observe are compared.
        let mut left = self.0;
        while left != 0 {
            if GUARDS.get(left.trailing_zeros() as usize).is_some_and(|guard| guard.name == name) {
                return true;
            }
            left &= left - 1;
        }
        false
    }
}

impl Limits {
    /// Returns the most tasks that one grant can ever hold: the sum of `task_requests_max` to the powers 0 to
    /// `hops_max`.
    #[must_use]
    pub fn bound_tasks(&self) -> u64 {
        if self.task_requests_max == 1 {
            return self.hops_max.saturating_add(1);
        }
        let (mut sum, mut of_hop): (u64, u64) = (1, 1);
        for _ in 0..self.hops_max {
            of_hop = of_hop.saturating_mul(self.task_requests_max);
            let next = sum.saturating_add(of_hop);
            // As in `potential`: a configured `hops_max` may be any number.
            if next == sum {
                break;
            }
            sum = next;
        }
        sum
    }

    /// Returns the waking messages that a task at hop `h` can still cause, its own included: `V(h)` of the termination
    /// proof.
    #[must_use]
    pub fn potential(&self, hop: u64) -> u64 {
        let mut v: u64 = 1;
        // One request for each task makes a chain, which grows by a request and its answer at each hop.
        if self.task_requests_max == 1 {
            return v.saturating_add(self.hops_max.saturating_sub(hop).saturating_mul(2));
        }
        for _ in hop..self.hops_max {
            let next = self.task_requests_max.saturating_mul(v.saturating_add(1)).saturating_add(1);
            // Without requests it stays, and with several it saturates within 64 hops; a configured `hops_max` may be
            // any number.
            if next == v {
                break;
            }
            v = next;
        }
        v
    }

    /// Returns the most waking messages that an agent's own roots cause after the last act of a human (D12); `None` if
    /// nothing bounds them.
    #[must_use]
    pub fn bound_unattended_agent(&self) -> Option<u64> {
        let days = self.unattended_ms.div_ceil(crate::ids::DAY_MS).saturating_add(1);
        (self.unattended_ms > 0).then(|| self.root_messages_per_day_max.saturating_mul(days))
    }

    /// Returns the most waking messages that a schedule causes after the last act of a human, if it ticks as often as
    /// it may.
    #[must_use]
    pub fn bound_unattended_schedule(&self) -> Option<u64> {
        let ticks = self.unattended_ms.checked_div(self.schedule_interval_ms)?.saturating_add(1);
        (self.unattended_ms > 0).then(|| self.bound_messages().saturating_mul(ticks))
    }

    /// Returns the most waking messages that the prompts typed into one agent's session cause in a day (H8).
    #[must_use]
    pub fn bound_typed_day(&self) -> u64 {
        self.bound_messages().saturating_mul(self.typed_grants_per_hour_max).saturating_mul(24)
    }

    /// Returns the time after the last act of a human at which all work of the workspace has ended, in ms.
    #[must_use]
    pub fn bound_rest_ms(&self) -> Option<u64> {
        (self.unattended_ms > 0).then(|| self.unattended_ms.saturating_add(self.grant_life_ms))
    }

    /// Returns the most waking messages that one grant can cause: the smaller of the structural bound and the total.
    #[must_use]
    pub fn bound_messages(&self) -> u64 {
        self.potential(0).min(self.grant_messages_max)
    }

    /// Returns the most turns that the structure of one grant allows: each waking message and each question to a human
    /// opens one, in every run. A delivery whose lease was lost is repeated once, whatever `runs_max` is.
    #[must_use]
    pub fn potential_turns(&self) -> u64 {
        let questions = self.task_questions_max.saturating_mul(self.bound_tasks());
        self.runs_max.max(2).saturating_mul(self.potential(0).saturating_add(questions))
    }

    /// Returns the most turns that one grant can open: the smaller of the structural bound and the total.
    #[must_use]
    pub fn bound_turns(&self) -> u64 {
        self.potential_turns().min(self.grant_turns_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structural_bound_is_two_tasks_less_one() {
        let limits = Limits::default();
        assert_eq!(limits.bound_tasks(), 1 + 16 + 256 + 4096);
        assert_eq!(limits.potential(0), 2 * limits.bound_tasks() - 1);
        assert_eq!(limits.bound_messages(), 64);
        assert_eq!((limits.potential_turns(), limits.bound_turns()), (314_564, 100));
        assert_eq!(limits.bound_unattended_agent(), Some(3_000));
        assert_eq!(Limits { unattended_ms: 0, ..limits }.bound_rest_ms(), None);
    }

    #[test]
    fn the_bounds_of_any_configuration_are_found_at_once() {
        for (requests, tasks, messages) in [(0, 1, 1), (1, u64::MAX, u64::MAX), (2, u64::MAX, u64::MAX)] {
            let limits = Limits { hops_max: u64::MAX, task_requests_max: requests, ..Limits::default() };
            assert_eq!((limits.bound_tasks(), limits.potential(0)), (tasks, messages), "{requests}");
        }
        for (hops_max, task_requests_max) in [(0, 1), (5, 1), (0, 7), (4, 7), (9, 2), (3, 0)] {
            let limits = Limits { hops_max, task_requests_max, ..Limits::default() };
            let tasks: u64 = (0..=u32::try_from(hops_max).unwrap()).map(|hop| task_requests_max.pow(hop)).sum();
            assert_eq!((limits.bound_tasks(), limits.potential(0)), (tasks, 2 * tasks - 1));
            assert_eq!(limits.potential(hops_max), 1);
        }
    }

    #[test]
    fn a_log_from_before_a_limit_joined_gives_it_its_default() {
        let mut limits = Limits { depth_max: 7, ..Limits::default() };
        limits.observed.observe("cycle");
        let written = postcard::to_allocvec(&limits).unwrap();
        assert_eq!(postcard::from_bytes::<Limits>(&written).unwrap(), limits);
        let mut stored: StoredLimits = postcard::from_bytes(&written).unwrap();
        let names: Vec<&str> = stored.values.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, LIMITS.iter().map(|row| row.name).collect::<Vec<_>>());
        stored.values.retain(|(name, _)| &**name != "hops_max");
        stored.values.push(("a_limit_of_the_future".into(), 1));
        assert_eq!(Limits::from(stored), limits, "hops_max was at its default");
    }

    #[test]
    fn every_limit_can_be_read_and_set_by_its_name() {
        let mut limits = Limits::default();
        for row in LIMITS {
            assert_eq!(limits.value(row.name), Some(row.default), "{}", row.name);
            assert!(limits.set(row.name, 7));
            assert_eq!(limits.value(row.name), Some(7));
        }
        assert!(!limits.set("nonsense", 1));
    }
}
