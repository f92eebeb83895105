//! When snapshots are written: every so many events, on a thread of their own, and when the daemon ends.

use std::thread::JoinHandle;

use divvy_core::id::Position;

use crate::pool::Pool;
use crate::store::Store;

/// The daemon folds this many events at its start in well under a second.
const EVERY_EVENTS: u64 = 20_000;

/// When the daemon ends, this many events are worth a snapshot: without one the next start folds them.
const LEAST_AT_THE_END: u64 = 1_000;

/// The snapshot that is being written, and the position of the last one.
#[derive(Debug)]
pub(crate) struct Snapshots {
    last: Position,
    writing: Option<JoinHandle<()>>,
}

impl Snapshots {
    /// Starts from a last snapshot at this position.
    pub(crate) fn since(position: Position) -> Self {
        Self { last: position, writing: None }
    }

    /// Writes a snapshot if one is due and none is being written.
    pub(crate) fn maybe(&mut self, store: &Store, pool: &Pool) {
        let due = store.position().0 >= self.last.0 + EVERY_EVENTS;
        if !due || self.writing.as_ref().is_some_and(|writing| !writing.is_finished()) {
            return;
        }
        self.last = store.position();
        let write = store.snapshot(pool.controller.blocking_read().state().clone());
        let thread = std::thread::Builder::new().name("divvy-snapshot".into());
        self.writing = thread.spawn(move || say(write())).ok();
    }

    /// Writes a last snapshot, if it saves the next start some work.
    pub(crate) fn at_the_end(&mut self, store: &Store, pool: &Pool) {
        if let Some(writing) = self.writing.take() {
            let _ = writing.join();
        }
        if store.position().0 >= self.last.0 + LEAST_AT_THE_END {
            say(store.snapshot(pool.controller.blocking_read().state().clone())());
        }
    }
}

/// A snapshot is a cache: without it the daemon only starts later.
fn say(written: std::io::Result<()>) {
    if let Err(error) = written {
        tracing::warn!("cannot write a snapshot of the state: {error}");
    }
}
