//! How many requests may be under way at once: more while the server keeps up, fewer when it reports overload.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The size at the start, the least and the most. Thirty-two requests keep two idle server cores busy; more would only wait.
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

    /// Waits for a place; dropping the permit frees it again.
    pub(super) async fn enter(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).acquire_owned().await.ok()
    }

    /// Notes a successful request: after as many as there are places, one place is added.
    pub(super) fn widen(&self) {
        let size = self.size.load(Ordering::Relaxed);
        if size < SIZES.2 && self.well.fetch_add(1, Ordering::Relaxed) >= size {
            self.well.store(0, Ordering::Relaxed);
            self.size.fetch_add(1, Ordering::Relaxed);
            self.places.add_permits(1);
        }
    }

    /// Notes an overload of the server: halves the places, as far as they are free.
    pub(super) fn narrow(&self) {
        let size = self.size.load(Ordering::Relaxed);
        let fewer = (size / 2).min(size.saturating_sub(SIZES.1));
        let taken = self.places.forget_permits(fewer);
        self.size.fetch_sub(taken, Ordering::Relaxed);
        self.well.store(0, Ordering::Relaxed);
    }

    /// Returns how many requests may be under way.
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
