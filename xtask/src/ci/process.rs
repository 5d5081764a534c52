//! A step while it runs: its process, its output in a file, and what it used.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::steps::CiStep;
use crate::Failed;

/// The folder with the outputs of the steps.
pub(super) const FOLDER: &str = "target/ci";
/// How long a step may take. All of them together take less than twice as long.
const TIME_MAX: Duration = Duration::from_secs(40 * 60);
/// In `/proc`, a second of a processor has so many ticks.
const TICKS_PER_SECOND: u64 = 100;
/// A command behind this takes only the time that no other process wants.
const IDLE: &str = "chrt --idle 0 ionice -c 3 nice -n 19";

/// A step that was started.
pub(super) struct RunningStep {
    pub(super) step: &'static CiStep,
    child: Child,
    began: Instant,
    log: PathBuf,
}

/// A step that has ended.
pub(super) struct EndedStep {
    pub(super) step: &'static CiStep,
    pub(super) passed: bool,
    /// From its start to its end.
    pub(super) wall: Duration,
    /// The time of the processors, with that of the processes that it waited for.
    pub(super) processor: Duration,
    pub(super) output: String,
}

impl RunningStep {
    /// Starts a step, with its output in a folder.
    #[expect(clippy::disallowed_methods, reason = "the time that a step takes is measured")]
    pub(super) fn start(step: &'static CiStep, folder: &Path) -> Result<Self, Failed> {
        let log = folder.join(format!("{}.log", step.name.replace(' ', "-")));
        let output = File::create(&log)?;
        let idle = if step.idle && can_idle() { IDLE } else { "" };
        let mut words = idle.split(' ').chain(step.run.split(' ')).filter(|word| !word.is_empty());
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        if step.program {
            command.env("LASTWORD", std::env::current_dir()?.join(super::PROGRAM));
        }
        let child = command.spawn().map_err(|error| Failed::new(format!("{}: {error}", step.run)))?;
        Ok(Self { step, child, began: Instant::now(), log })
    }

    /// Returns how the step ended, or `None` while it runs.
    pub(super) fn ended(&mut self) -> Result<Option<EndedStep>, Failed> {
        // The times of a process are read before it is waited for.
        let processor = match Times::read(self.child.id()) {
            Some(times) if !times.ended => {
                // A test may wait for good.
                if self.began.elapsed() > TIME_MAX {
                    self.child.kill()?;
                }
                return Ok(None);
            }
            Some(times) => times.processor,
            None => Duration::ZERO,
        };
        let Some(status) = self.child.try_wait()? else { return Ok(None) };
        let wall = self.began.elapsed();
        let output = String::from_utf8_lossy(&std::fs::read(&self.log)?).into_owned();
        Ok(Some(EndedStep { step: self.step, passed: status.success(), wall, processor, output }))
    }
}

/// Whether the commands exist that make a process wait for all others.
fn can_idle() -> bool {
    let mut words = IDLE.split(' ').chain(["true"]);
    let tried = Command::new(words.next().unwrap_or_default()).args(words).stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

/// What `/proc` tells of a process.
struct Times {
    ended: bool,
    processor: Duration,
}

impl Times {
    /// Returns `None` on a system without `/proc`.
    fn read(process: u32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // After the name, which may have anything in it: the state, and from the 12th field on four sums of ticks.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks: u64 = fields.get(11..15)?.iter().filter_map(|field| field.parse::<u64>().ok()).sum();
        let processor = Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND);
        Some(Self { ended: fields.first() == Some(&"Z"), processor })
    }
}
