//! Runs steps beside each other, as many as the processors have time for.

use std::path::{Path, PathBuf};
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
    /// Where the outputs are written.
    folder: PathBuf,
    waiting: Vec<&'static CiStep>,
    running: Vec<RunningStep>,
    /// Those that failed, and run once more when no other step runs.
    again: Vec<&'static CiStep>,
    ended: Vec<EndedStep>,
}

impl Lanes {
    /// Lanes for these steps, in the order in which they are preferred, with their outputs in a folder.
    pub(super) fn new(steps: Vec<&'static CiStep>, folder: &Path) -> Self {
        let folder = folder.to_owned();
        Self { folder, waiting: steps, running: Vec::new(), again: Vec::new(), ended: Vec::new() }
    }

    /// Runs all steps, and reports each when it ends. A step that waits for moments and failed runs once more, alone: a busy
    /// machine misses a moment once, a fault fails twice. Skips the steps that need one that failed.
    pub(super) fn run(mut self, report: impl Fn(&EndedStep)) -> Result<Vec<EndedStep>, Failed> {
        loop {
            self.start()?;
            if self.running.is_empty() {
                let Some(step) = self.again.pop() else { break };
                self.running.push(RunningStep::start(step, &self.folder)?);
            }
            std::thread::sleep(PAUSE);
            let mut still = Vec::new();
            for mut process in std::mem::take(&mut self.running) {
                match process.ended()? {
                    Some(ended) => {
                        report(&ended);
                        self.end(ended);
                    }
                    None => still.push(process),
                }
            }
            self.running = still;
        }
        Ok(self.ended)
    }

    fn end(&mut self, ended: EndedStep) {
        let first = self.ended.iter().all(|before| before.step.name != ended.step.name);
        if !ended.passed && ended.step.again && first {
            self.again.push(ended.step);
        }
        self.ended.push(ended);
    }

    /// Starts each step that may start. A step that waits for room isn't overtaken by others that take some.
    fn start(&mut self) -> Result<(), Failed> {
        let (mut waiting, mut full) = (Vec::new(), false);
        for step in std::mem::take(&mut self.waiting) {
            let due = self.is_due(step, &waiting) && !(full && step.load > 0);
            if due && self.has_room_for(step) {
                self.running.push(RunningStep::start(step, &self.folder)?);
            } else {
                full |= due && step.load > 0;
                waiting.push(step);
            }
        }
        self.waiting = waiting;
        Ok(())
    }

    /// Whether what the step follows has passed. A step that was not asked for is taken as passed.
    fn is_due(&self, step: &CiStep, passed_over: &[&CiStep]) -> bool {
        let is_open = |name: &str| {
            let mut tries = self.ended.iter().filter(|ended| ended.step.name == name);
            let failed = tries.next_back().is_some_and(|last| !last.passed);
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

    fn ended(step: &'static CiStep, passed: bool) -> EndedStep {
        EndedStep { step, passed, wall: Duration::ZERO, processor: Duration::ZERO, output: String::new() }
    }

    #[test]
    fn a_step_waits_for_those_that_it_follows_and_is_skipped_when_one_fails() {
        const FIRST: &CiStep = &CiStep { name: "first", ..STEP };
        const SECOND: &CiStep = &CiStep { name: "second", after: &["first"], ..STEP };
        let mut lanes = Lanes::new(vec![FIRST, SECOND], Path::new(""));
        assert!(lanes.is_due(FIRST, &[]) && !lanes.is_due(SECOND, &[FIRST]));
        lanes.end(ended(FIRST, true));
        assert!(lanes.is_due(SECOND, &[]));
        lanes.ended[0].passed = false;
        assert!(!lanes.is_due(SECOND, &[]));
        assert!(lanes.again.is_empty(), "what waits for no moment fails at once");
    }

    #[test]
    fn a_step_that_waits_for_moments_fails_twice_before_it_has_failed() {
        const FIRST: &CiStep = &CiStep { name: "first", again: true, ..STEP };
        const SECOND: &CiStep = &CiStep { name: "second", after: &["first"], ..STEP };
        for passes in [true, false] {
            let mut lanes = Lanes::new(vec![SECOND], Path::new(""));
            lanes.end(ended(FIRST, false));
            assert_eq!(lanes.again.pop().map(|step| step.name), Some("first"));
            assert!(!lanes.is_due(SECOND, &[]));
            lanes.end(ended(FIRST, passes));
            assert_eq!(lanes.is_due(SECOND, &[]), passes);
            assert!(lanes.again.is_empty());
        }
    }

    #[test]
    fn a_step_that_waits_for_room_is_not_overtaken_and_what_fails_runs_again_at_the_end() {
        const FIRST: &CiStep = &CiStep { name: "first", run: "true", load: 100, ..STEP };
        const LARGE: &CiStep = &CiStep { name: "large", run: "true", load: 200, ..STEP };
        const SMALL: &CiStep = &CiStep { name: "small", run: "true", load: 50, ..STEP };
        const FAILS: &CiStep = &CiStep { name: "fails", run: "false", load: 50, again: true, ..STEP };
        const AFTER: &CiStep = &CiStep { name: "after", run: "true", after: &["fails"], ..STEP };
        let folder = std::env::temp_dir().join(format!("lastword-lanes-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let ended = Lanes::new(vec![FIRST, LARGE, FAILS, SMALL, AFTER], &folder).run(|_| {}).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let at = |name: &str| ended.iter().position(|ended| ended.step.name == name);
        assert!(at("first") < at("large") && at("large") < at("small"));
        assert_eq!(ended.iter().filter(|ended| ended.step.name == "fails").count(), 2);
        assert_eq!((ended.last().map(|last| last.step.name), at("after")), (Some("fails"), None));
    }
}
