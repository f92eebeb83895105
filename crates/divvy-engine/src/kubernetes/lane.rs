//! Two lanes to the server: an urgent one for bindings and evictions, which somebody waits for, and a patient one for messages.
//! While an urgent write is under way, messages go out slowly, one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The pause before each slow message: twenty a second cost the server little, and messages arrive in the end, however long
/// the urgent writes take.
const PAUSE: Duration = Duration::from_millis(50);

/// One of the two lanes.
#[derive(Clone)]
pub(super) enum Lane {
    /// Writes that somebody waits for, with how many are under way.
    Urgent(Arc<AtomicUsize>),
    /// Messages, with how many urgent writes are under way.
    Patient(Arc<AtomicUsize>, Arc<Semaphore>),
}

/// A write on its way: its turn ends when this is dropped.
pub(super) enum Turn {
    Urgent(Arc<AtomicUsize>),
    Few(Option<OwnedSemaphorePermit>),
    Free,
}

impl Lane {
    /// Makes both lanes, the urgent one first.
    pub(super) fn pair() -> (Self, Self) {
        let urgent = Arc::new(AtomicUsize::new(0));
        (Self::Urgent(Arc::clone(&urgent)), Self::Patient(urgent, Arc::new(Semaphore::new(1))))
    }

    /// Waits until a write may go out.
    pub(super) async fn turn(&self) -> Turn {
        match self {
            Self::Urgent(under_way) => {
                under_way.fetch_add(1, Ordering::Relaxed);
                Turn::Urgent(Arc::clone(under_way))
            }
            Self::Patient(urgent, few) if urgent.load(Ordering::Relaxed) > 0 => {
                let place = Arc::clone(few).acquire_owned().await.ok();
                tokio::time::sleep(PAUSE).await;
                Turn::Few(place)
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

    #[tokio::test(start_paused = true)]
    async fn while_something_is_urgent_one_is_told_after_the_other_and_then_as_many_as_there_are() {
        let (urgent, patient) = Lane::pair();
        let binds = urgent.turn().await;
        let began = tokio::time::Instant::now();
        let told = patient.turn().await;
        assert_eq!(began.elapsed(), PAUSE);
        assert!(tokio::time::timeout(PAUSE * 100, patient.turn()).await.is_err());
        drop(told);
        assert!(tokio::time::timeout(PAUSE * 2, patient.turn()).await.is_ok());
        drop(binds);
        let began = tokio::time::Instant::now();
        let _turns = (patient.turn().await, patient.turn().await, patient.turn().await);
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
