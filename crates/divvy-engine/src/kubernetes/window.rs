//! How many requests are under way at once: more while the server bears it, fewer when it says that it is too much.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many there are at the start, at least and at most. Thirty-two fill two quiet cores of a server; more only wait there.
const SIZES: (usize, usize, usize) = (32, 2, 64);

/// The requests that may be under way.
pub(super) struct Window {
    places: Arc<Semaphore>,
    size: AtomicUsize,
    /// Requests that went well since the size changed.
    well: AtomicUsize,
}

impl Window {
    pub(super) fn new() -> Self {
        Self {
            places: Arc::new(Semaphore::new(SIZES.0)),
            size: AtomicUsize::new(SIZES.0),
            well: AtomicUsize::new(0),
        }
    }

    /// Waits for a place; it is free again when what is given back is dropped.
    pub(super) async fn enter(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).acquire_owned().await.ok()
    }

    /// A request went well: after as many as there are places, there is one more.
    pub(super) fn widen(&self) {
        let size = self.size.load(Ordering::Relaxed);
        if size < SIZES.2 && self.well.fetch_add(1, Ordering::Relaxed) >= size {
            self.well.store(0, Ordering::Relaxed);
            self.size.fetch_add(1, Ordering::Relaxed);
            self.places.add_permits(1);
        }
    }

    /// The server has too much to do: half as many places, as far as they are free.
    pub(super) fn narrow(&self) {
        let size = self.size.load(Ordering::Relaxed);
        let fewer = (size / 2).min(size.saturating_sub(SIZES.1));
        let taken = self.places.forget_permits(fewer);
        self.size.fetch_sub(taken, Ordering::Relaxed);
        self.well.store(0, Ordering::Relaxed);
    }

    /// How many requests may be under way.
    #[cfg(test)]
    fn size(&self) -> usize {
        self.size.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_narrows_at_once_and_widens_step_by_step() {
        let window = Window::new();
        window.narrow();
        assert_eq!(window.size(), 16);
        (0..40).for_each(|_| window.widen());
        assert_eq!(window.size(), 18);
        (0..20).for_each(|_| window.narrow());
        assert_eq!(window.size(), SIZES.1);
    }
}
