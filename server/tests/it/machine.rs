//! A machine whose clocks a test sets.

use std::path::Path;
use std::sync::{Arc, Mutex};

use lastword_broker::clock::{Reading, Source};
use lastword_facts::Limits;
use lastword_server::{Config, Server};

use crate::world::{World, configured};

pub(crate) const SECOND: u64 = 1_000;
pub(crate) const HOUR: u64 = 3_600 * SECOND;
pub(crate) const DAY: u64 = 24 * HOUR;
pub(crate) const YEAR: u64 = 365 * DAY;
const BEGIN: u64 = 56 * YEAR;

/// A machine whose clocks the test sets, in ms.
#[derive(Clone)]
pub(crate) struct Machine(Arc<Mutex<Reading>>);

impl Machine {
    pub(crate) fn new() -> Self {
        let us = BEGIN * 1_000;
        Self(Arc::new(Mutex::new(Reading { monotonic_us: us, boottime_us: us, wall_us: us })))
    }

    fn source(&self) -> Source {
        Source::Set(Arc::clone(&self.0))
    }

    /// Runs for so long.
    pub(crate) fn run(&self, ms: u64) {
        self.set(|reading| {
            reading.monotonic_us += ms * 1_000;
            reading.boottime_us += ms * 1_000;
            reading.wall_us += ms * 1_000;
        });
    }

    /// Sleeps or is off for so long, and then runs for a moment.
    pub(crate) fn sleep(&self, ms: u64) {
        self.run(1);
        self.set(|reading| {
            reading.boottime_us += ms * 1_000;
            reading.wall_us += ms * 1_000;
        });
    }

    /// Sets the wall clock ahead.
    pub(crate) fn ahead(&self, ms: u64) {
        self.set(|reading| reading.wall_us += ms * 1_000);
    }

    pub(crate) fn back(&self, ms: u64) {
        self.set(|reading| reading.wall_us -= ms * 1_000);
    }

    fn set(&self, change: impl FnOnce(&mut Reading)) {
        change(&mut self.0.lock().unwrap());
    }

    pub(crate) async fn world(&self, agents: &[&str], limits: Limits) -> World {
        self.world_with(agents, |config| config.settings.limits = limits).await
    }

    /// Starts a server with changed settings.
    pub(crate) async fn world_with(&self, agents: &[&str], change: impl FnOnce(&mut Config)) -> World {
        let source = self.source();
        World::set(agents, |config| {
            config.settings.clocks = source;
            change(config);
        })
        .await
    }

    /// Restarts the server on the same directory.
    pub(crate) async fn restart(&self, world: World, limits: Limits) -> World {
        self.restart_with(world, |config| config.settings.limits = limits).await
    }

    /// Restarts the server after a change to its directory.
    pub(crate) async fn restart_after(&self, world: World, limits: Limits, change: impl FnOnce(&Path)) -> World {
        self.restart_with(world, |config| {
            change(&config.data_dir);
            config.settings.limits = limits;
        })
        .await
    }

    /// Restarts the server on the same directory with changed settings. The old one has ended before the change is made.
    pub(crate) async fn restart_with(&self, mut world: World, change: impl FnOnce(&mut Config)) -> World {
        world.server.shutdown().await;
        let mut config = configured(world.dir.path());
        config.settings.clocks = self.source();
        change(&mut config);
        world.server = Server::start(config).await.unwrap();
        world
    }
}
