//! What a recording is replayed under: limits, or a rule that others have.

use lastword_facts::Limits;
use lastword_facts::limits::Profile;
use lastword_replay::{Played, Trace, play};

use super::baseline::Baseline;

/// The virtual time between two messages.
const PACE_MS: u64 = 20_000;

/// What a recording is replayed under.
pub(super) struct Contender {
    /// Its name in the report.
    pub(super) name: &'static str,
    rules: Rules,
}

enum Rules {
    Limits(Box<Limits>),
    Baseline(Baseline),
}

impl Contender {
    /// Returns all that are compared.
    pub(super) fn all() -> [Self; 6] {
        let mut structure = Limits::of(Profile::Long);
        structure.observed.observe("no_progress");
        let limits = |limits| Rules::Limits(Box::new(limits));
        [
            Self { name: "strict", rules: limits(Limits::of(Profile::Strict)) },
            Self { name: "long", rules: limits(Limits::of(Profile::Long)) },
            Self { name: "structure", rules: limits(structure) },
            Self { name: "identical", rules: Rules::Baseline(Baseline::Identical) },
            Self { name: "alternating", rules: Rules::Baseline(Baseline::Alternating) },
            Self { name: "messages-20", rules: Rules::Baseline(Baseline::Messages(20)) },
        ]
    }

    /// Replays a conversation.
    pub(super) fn play(&self, trace: &Trace) -> Played {
        match &self.rules {
            Rules::Limits(limits) => play(trace, limits, PACE_MS),
            Rules::Baseline(baseline) => Played {
                cut: baseline.cut(trace).map(|at| (at, self.name.to_owned())),
                is_final: true,
                ..Played::default()
            },
        }
    }
}
