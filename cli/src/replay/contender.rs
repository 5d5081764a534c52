//! What a recording is replayed under: limits, or a rule that others have.

use std::path::Path;

use lastword_facts::Limits;
use lastword_facts::limits::Profile;

use super::baseline::Baseline;
use super::play::{Depth, Played, play};
use super::trace::Trace;
use crate::config::{Environment, Global, Settings};
use crate::failure::Failure;

/// The names of everything but files.
pub(crate) const NAMES: &str = "config, strict, long, structure, identical, alternating, messages-N";

/// What a recording is replayed under.
#[derive(Debug)]
pub(crate) struct Contender {
    /// Its name in the report.
    pub(crate) name: String,
    rules: Rules,
}

#[derive(Debug)]
enum Rules {
    Limits(Box<Limits>),
    Baseline(Baseline),
}

impl Contender {
    /// Returns the limits of the configuration.
    pub(crate) fn config(limits: &Limits) -> Self {
        Self { name: "config".to_owned(), rules: Rules::Limits(Box::new(limits.clone())) }
    }

    /// Returns what is named: a profile, a rule that others have, or a configuration file.
    ///
    /// # Errors
    /// There is nothing with this name, or the file is wrong.
    pub(crate) fn named(name: &str) -> Result<Self, Failure> {
        let limits = |limits| Ok(Rules::Limits(Box::new(limits)));
        let rules = match name {
            "strict" => limits(Limits::of(Profile::Strict)),
            "long" => limits(Limits::of(Profile::Long)),
            "structure" => {
                let mut structure = Limits::of(Profile::Long);
                structure.observed.observe("no_progress");
                limits(structure)
            }
            "identical" => Ok(Rules::Baseline(Baseline::Identical)),
            "alternating" => Ok(Rules::Baseline(Baseline::Alternating)),
            _ => match name.strip_prefix("messages-").map(str::parse) {
                Some(Ok(max)) if max > 0 => Ok(Rules::Baseline(Baseline::Messages(max))),
                _ if Path::new(name).is_file() => {
                    let global = Global { config: Some(name.into()), ..Global::default() };
                    limits(Settings::resolve(&global, &Environment::default())?.limits)
                }
                _ => {
                    let failure = Failure::usage(format!("there is neither a file nor a set of rules named {name:?}"));
                    Err(failure.hint(format!("use a configuration file, or one of {NAMES}")))
                }
            },
        };
        rules.map(|rules| Self { name: name.to_owned(), rules })
    }

    /// Replays a conversation.
    pub(crate) fn play(&self, trace: &Trace, depth: Depth, pace_ms: u64) -> ReplayOutcome {
        match &self.rules {
            Rules::Limits(limits) => play(trace, limits, depth, pace_ms).into(),
            Rules::Baseline(baseline) => ReplayOutcome {
                cut: baseline.cut(trace).map(|at| (at, self.name.clone())),
                is_final: true,
                ..ReplayOutcome::default()
            },
        }
    }
}

/// What came of a conversation.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplayOutcome {
    /// The index of the first message that isn't said, and the code of the refusal, or the name of the baseline.
    pub(crate) cut: Option<(usize, String)>,
    /// Whether no human can let it go on.
    pub(crate) is_final: bool,
    /// How often a human has to say yes for it to go on as recorded.
    pub(crate) lifts: u64,
    /// The first message of which R5 warns, or would.
    pub(crate) warned: Option<usize>,
    /// The first message after which R5 holds, or would.
    pub(crate) held: Option<usize>,
    /// Messages that had to wait for a window.
    pub(crate) delayed: u64,
}

impl From<Played> for ReplayOutcome {
    fn from(played: Played) -> Self {
        let Played { cut, ended, lifts, warned, held, delayed } = played;
        let cut = cut.map(|(at, code)| (at, code.to_string()));
        Self { cut, is_final: ended.is_some(), lifts, warned, held, delayed }
    }
}
