//! Waiting for news of a job: watchers are woken when an event in the log concerns the job, not before.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use divvy_core::event::{Event, Stamped};
use divvy_core::id::JobId;
use divvy_core::model::attempt::Attempt;
use divvy_core::state::State;
use tokio::sync::watch;

/// How many ended attempts are remembered, so that watchers need not read them from the disk.
const ENDINGS_KEPT: usize = 512;

/// The watchers, by the number of the job (of the array as a whole).
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    by_number: Mutex<HashMap<u64, watch::Sender<u64>>>,
    endings: Mutex<Endings>,
}

/// The last attempts that ended for good: two generations, the older of which is dropped when the newer is full.
#[derive(Debug, Default)]
struct Endings {
    newer: HashMap<JobId, Attempt>,
    older: HashMap<JobId, Attempt>,
}

impl Watchers {
    /// Subscribes to news of a job from this moment on. To be called before the state is looked at.
    pub(crate) fn subscribe(&self, number: u64) -> watch::Receiver<u64> {
        let mut all = self.by_number.lock().unwrap_or_else(PoisonError::into_inner);
        // Now and then, entries without listeners are removed.
        if all.len() > 64 && all.len().is_power_of_two() {
            all.retain(|_, sender| sender.receiver_count() > 0);
        }
        all.entry(number).or_insert_with(|| watch::channel(0).0).subscribe()
    }

    /// Wakes all watchers that a commit concerns. `state` is the state after the commit.
    pub(crate) fn tell(&self, state: &State, events: &[Stamped]) {
        let mut all = self.by_number.lock().unwrap_or_else(PoisonError::into_inner);
        if all.is_empty() {
            return;
        }
        for stamped in events {
            for number in concerned(state, &stamped.event, &all) {
                let Some(sender) = all.get(&number) else { continue };
                sender.send_modify(|count| *count += 1);
                if sender.receiver_count() == 0 {
                    all.remove(&number);
                }
            }
        }
    }

    /// Remembers how attempts ended.
    pub(crate) fn remember(&self, attempts: &[Attempt]) {
        let mut endings = self.endings.lock().unwrap_or_else(PoisonError::into_inner);
        for attempt in attempts.iter().filter(|attempt| attempt.state.is_ended()).take(ENDINGS_KEPT) {
            if endings.newer.len() >= ENDINGS_KEPT {
                endings.older = std::mem::take(&mut endings.newer);
            }
            endings.newer.insert(attempt.job, attempt.clone());
        }
    }

    /// Returns the last attempt of a job that ended recently.
    pub(crate) fn ending(&self, job: JobId) -> Option<Attempt> {
        let endings = self.endings.lock().unwrap_or_else(PoisonError::into_inner);
        endings.newer.get(&job).or_else(|| endings.older.get(&job)).cloned()
    }
}

fn concerned(state: &State, event: &Event, waited_for: &HashMap<u64, watch::Sender<u64>>) -> Vec<u64> {
    match event {
        Event::Submitted(submission) => vec![submission.number],
        Event::Held { job, .. }
        | Event::Released { job, .. }
        | Event::Prioritised { job, .. }
        | Event::Checkpointed { job, .. }
        | Event::Placed { job, .. }
        | Event::Adopted { job, .. }
        | Event::Grown { job, .. }
        | Event::Shrinking { job, .. }
        | Event::Stopping { job, .. }
        | Event::AttemptEnded { job, .. }
        | Event::Dropped { job, .. } => vec![job.number],
        Event::TaskStarted { allocation, .. }
        | Event::TaskEnded { allocation, .. }
        | Event::Overdue { allocation } => {
            state.allocations.get(allocation).map(|held| held.job.number).into_iter().collect()
        }
        Event::Judged { classes } => {
            let judged = |number: &&u64| {
                let class = state.jobs.get(number).map(|job| job.class);
                class.is_some_and(|class| classes.iter().any(|(judged, _)| *judged == class))
            };
            waited_for.keys().filter(judged).copied().collect()
        }
        _ => Vec::new(),
    }
}
