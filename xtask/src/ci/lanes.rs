//! Runs steps beside each other, as many as the processors have time for.

use std::time::Duration;

use super::process::{EndedStep, RunningStep};
use super::steps::CiStep;
use crate::Failed;

/// What the steps that run at once may need, in hundredths of a processor.
const LOAD_MAX: u32 = 200;
/// How often the running steps are looked at.
const PAUSE: Duration = Duration::from_millis(50);

/// The steps by how far they are.
pub(super) struct Lanes {
    waiting: Vec<&'static CiStep>,
    running: Vec<RunningStep>,
    ended: Vec<EndedStep>,
}

impl Lanes {
    /// Lanes for these steps, in the order in which they are preferred.
    pub(super) fn new(steps: Vec<&'static CiStep>) -> Self {
        Self { waiting: steps, running: Vec::new(), ended: Vec::new() }
    }

    /// Runs all steps, and reports each when it ends. Skips those that need one that failed.
    pub(super) fn run(mut self, report: impl Fn(&EndedStep)) -> Result<Vec<EndedStep>, Failed> {
        while !self.waiting.is_empty() || !self.running.is_empty() {
            self.start()?;
            if self.running.is_empty() {
                break;
            }
            std::thread::sleep(PAUSE);
            let mut still = Vec::new();
            for mut process in self.running {
                match process.ended()? {
                    Some(ended) => {
                        report(&ended);
                        self.ended.push(ended);
                    }
                    None => still.push(process),
                }
            }
            self.running = still;
        }
        Ok(self.ended)
    }

    /// Starts each step that may start.
    fn start(&mut self) -> Result<(), Failed> {
        let mut waiting = Vec::new();
        for step in std::mem::take(&mut self.waiting) {
            if self.is_due(step, &waiting) && self.has_room_for(step) {
                self.running.push(RunningStep::start(step)?);
            } else {
                waiting.push(step);
            }
        }
        self.waiting = waiting;
        Ok(())
    }

    /// Whether what the step follows has passed. A step that was not asked for is taken as passed.
    fn is_due(&self, step: &CiStep, passed_over: &[&CiStep]) -> bool {
        let is_open = |name: &str| {
            let failed = self.ended.iter().any(|ended| ended.step.name == name && !ended.passed);
            let running = self.running.iter().any(|process| process.step.name == name);
            failed || running || passed_over.iter().any(|step| step.name == name)
        };
        !step.after.iter().any(|name| is_open(name))
    }

    fn has_room_for(&self, step: &CiStep) -> bool {
        let load: u32 = self.running.iter().map(|process| process.step.load).sum();
        let compiling = self.running.iter().any(|process| process.step.compiler);
        !(step.compiler && compiling) && (self.running.is_empty() || load + step.load <= LOAD_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::super::steps::STEP;
    use super::*;

    #[test]
    fn a_step_waits_for_those_that_it_follows_and_is_skipped_when_one_fails() {
        const FIRST: &CiStep = &CiStep { name: "first", ..STEP };
        const SECOND: &CiStep = &CiStep { name: "second", after: &["first"], ..STEP };
        let mut lanes = Lanes::new(vec![FIRST, SECOND]);
        assert!(lanes.is_due(FIRST, &[]) && !lanes.is_due(SECOND, &[FIRST]));
        let first = EndedStep {
            step: FIRST,
            passed: true,
            wall: Duration::ZERO,
            processor: Duration::ZERO,
            output: String::new(),
        };
        lanes.ended.push(first);
        assert!(lanes.is_due(SECOND, &[]));
        lanes.ended[0].passed = false;
        assert!(!lanes.is_due(SECOND, &[]));
    }
}
