//! Observations on their way to the shell.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use divvy_core::engine::Observation;

/// Where the engine's threads put what they saw. Clones share one box.
#[derive(Clone)]
pub(crate) struct Outbox {
    observations: Arc<Mutex<Vec<Observation>>>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

impl Outbox {
    pub(crate) fn new(wake: Box<dyn Fn() + Send + Sync>) -> Self {
        Self { observations: Arc::default(), wake: wake.into() }
    }

    /// Adds observations and wakes the shell, if there are any.
    pub(crate) fn put(&self, observations: impl IntoIterator<Item = Observation>) {
        let mut waiting = lock(&self.observations);
        let before = waiting.len();
        waiting.extend(observations);
        let has_news = waiting.len() > before;
        drop(waiting);
        if has_news {
            (self.wake)();
        }
    }

    /// Takes all that is there.
    pub(crate) fn take(&self) -> Vec<Observation> {
        std::mem::take(&mut *lock(&self.observations))
    }
}

/// Locks the mutex. What a panicked thread left is intact, since nothing here is changed in several steps.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
