//! Two lanes to the server: bindings and evictions, which somebody waits for, and what is only told. While anything of the first
//! is under way, few at a time are told.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many are told at once meanwhile: what pods wait for is told in the end, however long the others take.
const FEW: usize = 2;

/// One of the two.
#[derive(Clone)]
pub(super) enum Lane {
    /// What somebody waits for, and how much of it is under way.
    Urgent(Arc<AtomicUsize>),
    /// What is only told, beside how much that is urgent.
    Patient(Arc<AtomicUsize>, Arc<Semaphore>),
}

/// A write on its way: over when it is dropped.
pub(super) enum Turn {
    Urgent(Arc<AtomicUsize>),
    Few(Option<OwnedSemaphorePermit>),
    Free,
}

impl Lane {
    /// Both: the urgent one first.
    pub(super) fn pair() -> (Self, Self) {
        let urgent = Arc::new(AtomicUsize::new(0));
        (Self::Urgent(Arc::clone(&urgent)), Self::Patient(urgent, Arc::new(Semaphore::new(FEW))))
    }

    /// Waits for the turn of a write.
    pub(super) async fn turn(&self) -> Turn {
        match self {
            Self::Urgent(under_way) => {
                under_way.fetch_add(1, Ordering::Relaxed);
                Turn::Urgent(Arc::clone(under_way))
            }
            Self::Patient(urgent, few) if urgent.load(Ordering::Relaxed) > 0 => {
                Turn::Few(Arc::clone(few).acquire_owned().await.ok())
            }
            Self::Patient(..) => Turn::Free,
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        match self {
            Self::Urgent(under_way) => drop(under_way.fetch_sub(1, Ordering::Relaxed)),
            Self::Few(place) => drop(place.take()),
            Self::Free => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn while_something_is_urgent_few_are_told_at_once_and_then_as_many_as_there_are() {
        let (urgent, patient) = Lane::pair();
        let binds = urgent.turn().now_or_never().unwrap();
        let told: Vec<Option<Turn>> = (0..4).map(|_| patient.turn().now_or_never()).collect();
        assert_eq!(told.iter().filter(|turn| turn.is_some()).count(), FEW);
        drop(binds);
        assert!((0..4).all(|_| patient.turn().now_or_never().is_some()));
        let _binds = urgent.turn().now_or_never().unwrap();
        assert!(patient.turn().now_or_never().is_none());
        drop(told);
        assert!(patient.turn().now_or_never().is_some());
    }
}
