//! The room on the data directory's disk. When it gets low, writes are refused before the log fails, and a reserve is
//! kept for a human's stop (G2, H4).

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use lastword_core::Input;
use lastword_wire::DiskSpace;
use rustix::fs::{FallocateFlags, fallocate, statvfs};

/// How often the free space is checked.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The disk is low when less than one part in `LOW_SHARE` of its size is free, or less than `LOW_BYTES_MAX` bytes,
/// whichever is smaller.
const LOW_SHARE: u64 = 16;
const LOW_BYTES_MAX: u64 = 64 << 20;
/// A warning comes at this many times the watermark, before anything is refused, and again after twice as much was free.
const WARN_TIMES: u64 = 4;
/// The reserve is at most one part in this many of that watermark.
const RESERVE_SHARE: u64 = 4;
/// A smaller reserve is useless, because an append writes several pages.
const RESERVE_MIN: u64 = 16 << 10;
/// What is released at a time: one part in this many of the reserve, and at least `RELEASE_MIN` bytes.
const RELEASE_SHARE: u64 = 8;
const RELEASE_MIN: u64 = 16 << 10;
const FILE_RESERVE: &str = "reserve";

/// Returns whether an input is admitted with this much room. Inputs that end or hold work are admitted longer: they
/// write little, and open work bounds their number.
pub(crate) const fn admits(space: DiskSpace, input: &Input) -> bool {
    match input {
        // A human's controls and the broker's own bookkeeping are never refused.
        Input::Control(..) | Input::ConfigurePolicy(_) | Input::Attach(..) | Input::Tick | Input::Idled(..) => true,
        // A human may still read answers; an agent's delivery would start new work.
        Input::Take(by, _) | Input::Receive(by, _) | Input::Collect(by, _) if by.is_human() => {
            !matches!(space, DiskSpace::Full)
        }
        Input::Finish(..)
        | Input::Cancel(..)
        | Input::Dismiss(..)
        | Input::SetLink(..)
        | Input::Release(..)
        | Input::Decide(..)
        | Input::Remove(..)
        | Input::Rekey(..) => !matches!(space, DiskSpace::Full),
        Input::Configure(_)
        | Input::ChangePolicy(..)
        | Input::ChangeLimits(..)
        | Input::Bootstrap(_)
        | Input::Register(..)
        | Input::Amend(..)
        | Input::Send(..)
        | Input::Take(..)
        | Input::Receive(..)
        | Input::Resume(..)
        | Input::Collect(..)
        | Input::Progress(..)
        | Input::Extend(..)
        | Input::Escalate(..)
        | Input::Answer(..)
        | Input::AskApproval(..)
        | Input::Use(..)
        | Input::Claim(..)
        | Input::OpenRoom(..)
        | Input::Post(..)
        | Input::ExtendRounds(..)
        | Input::ChooseLift(..)
        | Input::LimitAgent(..)
        | Input::SetDisplayName(..)
        | Input::GrantAgent(..)
        | Input::SetRole(..)
        | Input::Act(_)
        | Input::Prompt(..)
        | Input::Upgrade(_)
        | Input::BeginEpoch(_)
        | Input::SetSchedule(..)
        | Input::RemoveSchedule(..)
        | Input::RunSchedule(..)
        | Input::TickSchedule(_) => matches!(space, DiskSpace::Enough),
    }
}

/// The disk of a data directory. Without a directory, the log is in memory and always has room.
#[derive(Debug, Default)]
pub struct Disk {
    dir: Option<PathBuf>,
    /// The file that keeps room for controls.
    reserve: Option<PathBuf>,
    space: AtomicU8,
    /// Whether a warning came that it gets scarce.
    warned: AtomicBool,
    /// The free bytes at the last check.
    free: AtomicU64,
    /// Whether the log's files are no longer at their path.
    gone: AtomicBool,
    /// The number of batches that found no room, even in the reserve where they may use it.
    lost: AtomicU64,
}

/// The size and the free space of a file system, in bytes.
#[derive(Clone, Copy, Debug)]
struct Bytes {
    size: u64,
    free: u64,
}

impl Bytes {
    fn of(dir: &Path) -> io::Result<Self> {
        let found = statvfs(dir)?;
        // `f_bavail`, not `f_bfree`: blocks reserved for root are no use to the server.
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(Self { size: bytes(found.f_blocks), free: bytes(found.f_bavail) })
    }

    const fn low(self) -> u64 {
        let share = self.size / LOW_SHARE;
        if share < LOW_BYTES_MAX { share } else { LOW_BYTES_MAX }
    }

    /// Returns whether it gets scarce, which is warned of once.
    const fn is_scarce(self, warned: bool) -> bool {
        self.free < self.low() * if warned { 2 * WARN_TIMES } else { WARN_TIMES }
    }

    /// Returns the state after a check. A shortage ends only at twice the watermark, so that it doesn't flicker.
    const fn space(self, before: DiskSpace) -> DiskSpace {
        let enough = if matches!(before, DiskSpace::Enough) { self.low() } else { 2 * self.low() };
        match before {
            _ if self.free >= enough => DiskSpace::Enough,
            // A failed append outweighs the file system's numbers until there is clearly room again.
            DiskSpace::Full => DiskSpace::Full,
            DiskSpace::Enough | DiskSpace::Low => DiskSpace::Low,
        }
    }
}

/// Returns how much room there is in a directory, for who keeps no reserve there; `before` is what the last look said.
#[must_use]
pub fn space_of(dir: &Path, before: DiskSpace) -> DiskSpace {
    Bytes::of(dir).map_or(before, |bytes| bytes.space(before))
}

impl Disk {
    /// Checks the disk of this directory for the first time. Several logs on one disk may share the file of its reserve.
    #[must_use]
    pub fn of(dir: &Path, shared: Option<PathBuf>) -> Self {
        let own = dir.join(FILE_RESERVE);
        // An earlier version kept one for each log.
        if shared.is_some()
            && let Err(error) = std::fs::remove_file(&own)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::debug!(%error, "a reserve stays that is of no more use");
        }
        let disk = Self { dir: Some(dir.to_owned()), reserve: Some(shared.unwrap_or(own)), ..Self::default() };
        // Creates the reserve before anything else can use the room.
        disk.refresh();
        disk
    }

    /// Returns how much room there is, as of the last check.
    #[must_use]
    pub fn space(&self) -> DiskSpace {
        match self.space.load(Ordering::Acquire) {
            0 => DiskSpace::Enough,
            1 => DiskSpace::Low,
            _ => DiskSpace::Full,
        }
    }

    /// Returns the free bytes at the last check; `None` for a log in memory.
    #[must_use]
    pub fn free(&self) -> Option<u64> {
        self.dir.as_ref().map(|_| self.free.load(Ordering::Relaxed))
    }

    /// Returns how many batches have found no room so far.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Acquire)
    }

    /// Returns whether the log's files are no longer at their path: what is appended isn't found by the next start (L1).
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Records whether the log's files are at their path.
    pub(crate) fn place(&self, in_place: bool) {
        if self.gone.swap(!in_place, Ordering::AcqRel) != in_place {
            return;
        }
        let dir = self.dir.as_deref().unwrap_or_else(|| Path::new("memory")).display();
        if in_place {
            tracing::info!(%dir, "the log's files are at their path again: everything is taken");
        } else {
            tracing::error!(
                %dir,
                "the log's files are no longer at their path, so that nothing is taken: put back what was moved; if it was \
                 deleted, the server writes the log anew, and goes on when it is restarted"
            );
        }
    }

    /// Records that an append found no room.
    pub(crate) fn fill(&self) {
        self.set(DiskSpace::Full);
    }

    /// Counts a batch that found no room and was dropped.
    pub(crate) fn lose(&self) {
        self.lost.fetch_add(1, Ordering::AcqRel);
    }

    /// Runs `write`. If the disk is full, releases the reserve bit by bit until it succeeds: other programs, and the read
    /// model, use up at once what gets free.
    ///
    /// # Errors
    /// The error of `write`, if the reserve doesn't help.
    pub fn with_reserve<T, E>(
        &self,
        mut write: impl FnMut() -> Result<T, E>,
        is_full: impl Fn(&E) -> bool,
    ) -> Result<T, E> {
        let mut done = write();
        while done.as_ref().is_err_and(&is_full) && self.release() {
            done = write();
        }
        done
    }

    /// Checks the free space and, unless the disk is full, restores the reserve.
    pub(crate) fn refresh(&self) {
        let before = self.space();
        let Some(dir) = &self.dir else { return self.set(DiskSpace::Enough) };
        match Bytes::of(dir) {
            Ok(bytes) => {
                let now = bytes.space(before);
                self.free.store(bytes.free, Ordering::Relaxed);
                self.warn(dir, bytes);
                self.set(now);
                if now != DiskSpace::Full {
                    self.reserve(bytes);
                }
            }
            Err(error) => tracing::debug!(%error, "the room on the disk is not known"),
        }
    }

    fn warn(&self, dir: &Path, bytes: Bytes) {
        let scarce = bytes.is_scarce(self.warned.load(Ordering::Relaxed));
        if scarce && !self.warned.swap(scarce, Ordering::Relaxed) {
            let Bytes { free, .. } = bytes;
            let low = bytes.low();
            tracing::warn!(dir = %dir.display(), free, low, "the disk gets scarce: below `low` no new work is taken");
        }
        self.warned.store(scarce, Ordering::Relaxed);
    }

    fn set(&self, now: DiskSpace) {
        let before = self.space.swap(now as u8, Ordering::AcqRel);
        // Logs each change once instead of at every check.
        if before == now as u8 {
            return;
        }
        let dir = self.dir.as_deref().unwrap_or_else(|| Path::new("memory"));
        match now {
            DiskSpace::Enough => tracing::info!(dir = %dir.display(), "the disk has room again: everything is taken"),
            DiskSpace::Low => tracing::error!(dir = %dir.display(), "the disk is low: no new work is taken; make room"),
            DiskSpace::Full => {
                tracing::error!(dir = %dir.display(), "the disk is full: only controls are taken; make room")
            }
        }
    }

    /// Reserves room for controls: a share of the watermark, or what of it still fits.
    fn reserve(&self, bytes: Bytes) {
        let Some(path) = &self.reserve else { return };
        let kept = path.metadata().map_or(0, |file| file.len());
        let most = (bytes.low() / RESERVE_SHARE).min(kept + bytes.free / 2);
        if most <= kept || most < RESERVE_MIN {
            return;
        }
        // Allocated, not only sized: a sparse file would reserve nothing.
        let keep = |file: File| Ok(fallocate(&file, FallocateFlags::empty(), 0, most)?);
        let open = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        if let Err(error) = open.and_then(keep) {
            tracing::warn!(path = %path.display(), %error, "no room is kept for a human's stop on a full disk");
        }
    }

    /// Releases a part of the reserve; `false` if there is none.
    fn release(&self) -> bool {
        let Some(path) = &self.reserve else { return false };
        let kept = path.metadata().map_or(0, |file| file.len());
        let left = kept.saturating_sub((kept / RELEASE_SHARE).max(RELEASE_MIN));
        let shrunk = OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(left));
        kept > 0 && shrunk.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_ends_at_twice_the_watermark() {
        let of = |free| Bytes { size: 1_600, free };
        assert_eq!(of(100).space(DiskSpace::Enough), DiskSpace::Enough);
        assert_eq!(of(99).space(DiskSpace::Enough), DiskSpace::Low);
        assert_eq!(of(199).space(DiskSpace::Low), DiskSpace::Low);
        assert_eq!(of(199).space(DiskSpace::Full), DiskSpace::Full, "what an append found holds until there is room");
        assert_eq!(of(200).space(DiskSpace::Full), DiskSpace::Enough);
        let large = Bytes { size: 1 << 40, free: LOW_BYTES_MAX };
        assert_eq!(large.space(DiskSpace::Enough), DiskSpace::Enough, "the share of a large disk is bounded");
    }

    #[test]
    fn a_warning_comes_once_before_anything_is_refused() {
        let of = |free| Bytes { size: 1_600, free };
        assert!(of(399).is_scarce(false) && !of(400).is_scarce(false));
        assert_eq!(of(399).space(DiskSpace::Enough), DiskSpace::Enough);
        assert!(of(799).is_scarce(true) && !of(800).is_scarce(true), "it isn't repeated while the free space flickers");
        let (dir, disk) = (tempfile::tempdir().unwrap(), Disk::default());
        for (free, warned) in [(400, false), (399, true), (700, true), (800, false)] {
            disk.warn(dir.path(), of(free));
            assert_eq!(disk.warned.load(Ordering::Relaxed), warned, "{free}");
        }
        assert!(Disk::of(dir.path(), None).free() > Some(0) && disk.free().is_none());
    }

    #[test]
    fn logs_that_share_a_disk_keep_one_reserve() {
        let dir = tempfile::tempdir().unwrap();
        let own = ["a", "b"].map(|name| dir.path().join(name));
        own.iter().for_each(|own| std::fs::create_dir(own).unwrap());
        std::fs::write(own[0].join(FILE_RESERVE), [0; 100]).unwrap();
        let common = dir.path().join("node.reserve");
        let disks = own.each_ref().map(|own| Disk::of(own, Some(common.clone())));
        let kept = || common.metadata().unwrap().len();
        assert!(kept() >= RESERVE_MIN && own.iter().all(|own| !own.join(FILE_RESERVE).exists()));
        let whole = kept();
        assert!(disks[1].release() && kept() < whole, "either gives it up");
        disks[0].refresh();
        assert_eq!(kept(), whole);
    }

    #[test]
    fn the_reserve_is_given_up_bit_by_bit_for_what_must_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::of(dir.path(), None);
        let path = dir.path().join(FILE_RESERVE);
        let kept = || path.metadata().unwrap().len();
        let whole = kept();
        assert!(whole > 4 * RELEASE_MIN);
        let wanted = whole - 2 * RELEASE_MIN;
        let done: Result<(), bool> =
            disk.with_reserve(|| if kept() > wanted { Err(true) } else { Ok(()) }, |full| *full);
        assert_eq!(done, Ok(()));
        assert!((1..=wanted).contains(&kept()), "the rest is kept");
        let never: Result<(), bool> = disk.with_reserve(|| Err(true), |full| *full);
        assert!(never.is_err() && kept() == 0 && !disk.release());
        disk.refresh();
        assert_eq!(kept(), whole);
    }
}
