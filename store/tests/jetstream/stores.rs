//! The log on JetStream, as the suite of every store sees it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use lastword_facts::{Entry, Seq};
use lastword_store::{AppendError, Archive, Log, LogReader, Nats, Snapshots};
use tempfile::TempDir;

use crate::conformance::Conforms;
use crate::nats_server::{self, One};
use crate::stream::{lead, open};

/// A workspace of its own on a server that all tests share.
struct Workspace {
    nats: Nats,
    name: String,
    dir: TempDir,
    epoch: Arc<AtomicU64>,
}

impl Workspace {
    /// Creates a workspace; `None` without the program.
    fn new() -> Option<Self> {
        static SERVER: OnceLock<One> = OnceLock::new();
        static WORKSPACES: AtomicU64 = AtomicU64::new(0);
        let program = nats_server::program("the log on JetStream")?;
        let nats = SERVER.get_or_init(|| One::start(&program)).connect();
        let name = format!("ws-{}", WORKSPACES.fetch_add(1, Ordering::Relaxed));
        nats_server::create_stream(&nats, &name, 1);
        Some(Self { nats, name, dir: tempfile::tempdir().unwrap(), epoch: Arc::default() })
    }

    fn lead(&self) -> Box<dyn Log> {
        let epoch = self.epoch.fetch_add(1, Ordering::Relaxed) + 1;
        lead(open(&self.nats, &self.name, self.dir.path()), epoch).0
    }
}

impl Conforms for Workspace {
    fn open(&self) -> Box<dyn Log> {
        let Self { nats, name, dir, epoch } = self;
        // The directory stays with the store.
        let again = (nats.clone(), name.clone(), dir.path().to_owned(), Arc::clone(epoch));
        Box::new(Leader { log: Some(self.lead()), begun: false, again })
    }
}

/// A leader whose further epochs are further takeovers: the log itself takes one.
struct Leader {
    log: Option<Box<dyn Log>>,
    begun: bool,
    again: (Nats, String, PathBuf, Arc<AtomicU64>),
}

impl Leader {
    fn log(&self) -> &dyn Log {
        self.log.as_deref().unwrap()
    }
}

impl Log for Leader {
    fn begin_epoch(&mut self) -> Result<u64, AppendError> {
        if std::mem::replace(&mut self.begun, true) {
            self.log = None;
            let (nats, name, dir, epoch) = &self.again;
            let epoch = epoch.fetch_add(1, Ordering::Relaxed) + 1;
            self.log = Some(lead(open(nats, name, dir), epoch).0);
        }
        self.log.as_mut().unwrap().begin_epoch()
    }

    fn append(&mut self, epoch: u64, expect: Seq, entries: &[Arc<Entry>]) -> Result<Seq, AppendError> {
        self.log.as_mut().unwrap().append(epoch, expect, entries)
    }

    fn reader(&self) -> Arc<dyn LogReader> {
        self.log().reader()
    }

    fn archive(&self) -> Arc<dyn Archive> {
        self.log().archive()
    }

    fn snapshots(&self) -> Arc<dyn Snapshots> {
        self.log().snapshots()
    }
}

/// Runs `check` on this store, if `nats-server` is there.
pub(crate) fn each_store(check: impl Fn(&dyn Conforms)) {
    if let Some(workspace) = Workspace::new() {
        check(&workspace);
    }
}
