//! Estimates of how long jobs run, from what a policy's class may know. An estimator sees arrivals, and a job's length only
//! once it has ended; the oracle of class C, which alone is handed a length, is no estimator.

use std::collections::{BTreeMap, VecDeque};

use divvy_core::model::job::Estimate;
use divvy_insight::Likeness;

use crate::trace::jobs::{Arrival, Fate};

/// Estimates how long jobs run.
pub trait Estimator {
    /// Returns how long a job that has arrived and has not ended will run; `None` if it cannot be said.
    fn foresee(&mut self, job: &Arrival) -> Option<Estimate>;

    /// Records that a job has ended after this many seconds of undisturbed work.
    fn at_end(&mut self, job: &Arrival, duration_s: i64);

    /// Returns whether all jobs that have not ended are to be estimated anew.
    fn renews(&mut self) -> bool {
        false
    }
}

/// An estimate of one length and nothing else.
fn exactly(seconds: i64, model: &str) -> Estimate {
    Estimate { p50_ms: seconds * 1000, p90_ms: seconds * 1000, model: model.into(), outlook: Vec::new() }
}

/// Estimates nothing (class N).
pub struct Blind;

impl Estimator for Blind {
    fn foresee(&mut self, _: &Arrival) -> Option<Estimate> {
        None
    }

    fn at_end(&mut self, _: &Arrival, _: i64) {}
}

/// Returns the estimate of an oracle that knows every length (class C).
pub fn oracle(fate: &Fate) -> Estimate {
    exactly(fate.duration_s(), "oracle")
}

/// How many finished jobs a mean is taken over.
const REMEMBERED: usize = 10;

/// The estimate where no job has ever finished, in seconds.
const NOTHING_KNOWN_S: i64 = 3600;

/// The mean of the last ten finished jobs that are most alike (class P): of the same queue, user, name and size, else of queue and
/// size, else of the queue, else of the pool.
#[derive(Default)]
pub struct History {
    alike: BTreeMap<(String, String, String, u32), Last>,
    of_size: BTreeMap<(String, u32), Last>,
    of_queue: BTreeMap<String, Last>,
    of_pool: Last,
}

#[derive(Default)]
struct Last {
    durations_s: VecDeque<i64>,
    sum_s: i64,
}

impl Last {
    fn note(&mut self, duration_s: i64) {
        self.durations_s.push_back(duration_s);
        self.sum_s += duration_s;
        if self.durations_s.len() > REMEMBERED {
            self.sum_s -= self.durations_s.pop_front().unwrap_or(0);
        }
    }

    fn mean_s(&self) -> Option<i64> {
        let count = i64::try_from(self.durations_s.len()).ok().filter(|count| *count > 0)?;
        Some(self.sum_s / count)
    }
}

fn likeness(job: &Arrival) -> (String, String, String, u32) {
    (job.queue.clone(), job.user.clone(), job.name.clone(), job.gpus)
}

impl Estimator for History {
    fn foresee(&mut self, job: &Arrival) -> Option<Estimate> {
        let alike = self.alike.get(&likeness(job)).and_then(Last::mean_s);
        let of_size = || self.of_size.get(&(job.queue.clone(), job.gpus)).and_then(Last::mean_s);
        let of_queue = || self.of_queue.get(&job.queue).and_then(Last::mean_s);
        let known = alike.or_else(of_size).or_else(of_queue).or_else(|| self.of_pool.mean_s());
        Some(exactly(known.unwrap_or(NOTHING_KNOWN_S), "history"))
    }

    fn at_end(&mut self, job: &Arrival, duration_s: i64) {
        self.alike.entry(likeness(job)).or_default().note(duration_s);
        self.of_size.entry((job.queue.clone(), job.gpus)).or_default().note(duration_s);
        self.of_queue.entry(job.queue.clone()).or_default().note(duration_s);
        self.of_pool.note(duration_s);
    }
}

/// How the lengths of finished jobs are spread (class P).
pub struct Learned {
    history: divvy_insight::History,
}

impl Learned {
    /// Returns an empty history for a pool of this many GPUs.
    pub fn new(pool_gpus: u32) -> Self {
        Self { history: divvy_insight::History::new(pool_gpus) }
    }
}

fn likeness_of(job: &Arrival) -> Likeness {
    let (queue, user, name, devices) = likeness(job);
    Likeness { queue, user, name, devices }
}

impl Estimator for Learned {
    fn foresee(&mut self, job: &Arrival) -> Option<Estimate> {
        self.history.foresee(&likeness_of(job))
    }

    fn at_end(&mut self, job: &Arrival, duration_s: i64) {
        self.history.note_end(&likeness_of(job), duration_s * 1000);
    }

    fn renews(&mut self) -> bool {
        self.history.renews()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(queue: &str, name: &str, gpus: u32) -> Arrival {
        let (id, user) = (String::new(), "ana".to_owned());
        Arrival { id, submit_s: 0, gpus, queue: queue.into(), user, name: name.into() }
    }

    fn foreseen_s(history: &mut History, job: &Arrival) -> i64 {
        history.foresee(job).unwrap().p50_ms / 1000
    }

    #[test]
    fn history_falls_back_from_the_most_alike_to_the_whole_pool() {
        let mut history = History::default();
        assert_eq!(foreseen_s(&mut history, &job("a", "x", 1)), NOTHING_KNOWN_S);
        history.at_end(&job("b", "x", 8), 100);
        assert_eq!(foreseen_s(&mut history, &job("a", "x", 1)), 100, "of the pool");
        history.at_end(&job("a", "y", 2), 200);
        assert_eq!(foreseen_s(&mut history, &job("a", "x", 1)), 200, "of the queue");
        history.at_end(&job("a", "y", 1), 301);
        assert_eq!(foreseen_s(&mut history, &job("a", "x", 1)), 301, "of queue and size");
        history.at_end(&job("a", "x", 1), 10);
        history.at_end(&job("a", "x", 1), 15);
        assert_eq!(foreseen_s(&mut history, &job("a", "x", 1)), 12, "of its likes, cut to a whole second");
    }

    #[test]
    fn only_the_last_ten_count() {
        let mut history = History::default();
        history.at_end(&job("a", "x", 1), 1_000_000);
        (0..10).for_each(|_| history.at_end(&job("a", "x", 1), 7));
        assert_eq!(foreseen_s(&mut history, &job("a", "x", 1)), 7);
    }
}
