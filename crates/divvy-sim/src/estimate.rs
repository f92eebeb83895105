//! What is foreseen of jobs, from what a policy's class may know. An estimator sees arrivals, and of a job's length only what
//! its end has shown; the oracle of class C alone is made with all lengths.

use std::collections::{BTreeMap, VecDeque};

use crate::trace::jobs::{Arrival, Fate};

/// Foresees how long jobs run.
pub trait Estimator {
    /// How long the job that has just arrived will run, in seconds; `None` if it cannot be said.
    fn at_arrival(&mut self, row: usize, job: &Arrival) -> Option<i64>;

    /// A job has ended after so many seconds of undisturbed work.
    fn at_end(&mut self, job: &Arrival, duration_s: i64);

    /// What it is called in the log.
    fn name(&self) -> &'static str;
}

/// Foresees nothing (class N).
pub struct Blind;

impl Estimator for Blind {
    fn at_arrival(&mut self, _: usize, _: &Arrival) -> Option<i64> {
        None
    }

    fn at_end(&mut self, _: &Arrival, _: i64) {}

    fn name(&self) -> &'static str {
        "none"
    }
}

/// Knows every length (class C), by row.
pub struct Oracle {
    durations_s: Vec<i64>,
}

impl Oracle {
    /// Reads all fates, in the order of the rows.
    pub fn new<'a>(fates: impl IntoIterator<Item = &'a Fate>) -> Self {
        Self { durations_s: fates.into_iter().map(Fate::duration_s).collect() }
    }
}

impl Estimator for Oracle {
    fn at_arrival(&mut self, row: usize, _: &Arrival) -> Option<i64> {
        self.durations_s.get(row).copied()
    }

    fn at_end(&mut self, _: &Arrival, _: i64) {}

    fn name(&self) -> &'static str {
        "oracle"
    }
}

/// How many finished jobs a mean is taken over.
const REMEMBERED: usize = 10;

/// What is foreseen where no job has ever finished, in seconds.
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
    fn at_arrival(&mut self, _: usize, job: &Arrival) -> Option<i64> {
        let alike = self.alike.get(&likeness(job)).and_then(Last::mean_s);
        let of_size = || self.of_size.get(&(job.queue.clone(), job.gpus)).and_then(Last::mean_s);
        let of_queue = || self.of_queue.get(&job.queue).and_then(Last::mean_s);
        alike.or_else(of_size).or_else(of_queue).or_else(|| self.of_pool.mean_s()).or(Some(NOTHING_KNOWN_S))
    }

    fn at_end(&mut self, job: &Arrival, duration_s: i64) {
        self.alike.entry(likeness(job)).or_default().note(duration_s);
        self.of_size.entry((job.queue.clone(), job.gpus)).or_default().note(duration_s);
        self.of_queue.entry(job.queue.clone()).or_default().note(duration_s);
        self.of_pool.note(duration_s);
    }

    fn name(&self) -> &'static str {
        "history"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(queue: &str, name: &str, gpus: u32) -> Arrival {
        let (id, user) = (String::new(), "ana".to_owned());
        Arrival { id, submit_s: 0, gpus, queue: queue.into(), user, name: name.into() }
    }

    #[test]
    fn history_falls_back_from_the_most_alike_to_the_whole_pool() {
        let mut history = History::default();
        assert_eq!(history.at_arrival(0, &job("a", "x", 1)), Some(NOTHING_KNOWN_S));
        history.at_end(&job("b", "x", 8), 100);
        assert_eq!(history.at_arrival(0, &job("a", "x", 1)), Some(100), "of the pool");
        history.at_end(&job("a", "y", 2), 200);
        assert_eq!(history.at_arrival(0, &job("a", "x", 1)), Some(200), "of the queue");
        history.at_end(&job("a", "y", 1), 301);
        assert_eq!(history.at_arrival(0, &job("a", "x", 1)), Some(301), "of queue and size");
        history.at_end(&job("a", "x", 1), 10);
        history.at_end(&job("a", "x", 1), 15);
        assert_eq!(history.at_arrival(0, &job("a", "x", 1)), Some(12), "of its likes, cut to a whole second");
    }

    #[test]
    fn only_the_last_ten_count() {
        let mut history = History::default();
        history.at_end(&job("a", "x", 1), 1_000_000);
        (0..10).for_each(|_| history.at_end(&job("a", "x", 1), 7));
        assert_eq!(history.at_arrival(0, &job("a", "x", 1)), Some(7));
    }
}
