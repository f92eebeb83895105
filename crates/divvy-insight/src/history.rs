//! Estimates how long jobs run, from how long the jobs ran that have ended.

use std::collections::BTreeMap;

use divvy_core::model::job::Estimate;

use crate::spread::Spread;

/// What a group inherits from the wider group around it counts as this many jobs of its own.
const INHERITED: f64 = 10.0;

/// Estimates are renewed when the number of ended jobs has reached this percentage of what it was.
const RENEWED_AT_PERCENT: u64 = 105;

/// A job counts for at most its pool's devices divided by this: what large jobs take is not worth their long wait.
const LARGEST_PART: f64 = 8.0;

/// What makes jobs alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Likeness {
    /// The queue.
    pub queue: String,
    /// Who submits; may be empty.
    pub user: String,
    /// What is run; may be empty.
    pub name: String,
    /// How many devices it runs on.
    pub devices: u32,
}

/// The lengths of jobs that have ended, by likeness and by queue. Estimates nothing before any job has had a user or a
/// name: sizes and queues alone mislead.
pub struct History {
    pool_devices: u32,
    usual: Spread,
    alike: BTreeMap<Likeness, Spread>,
    of_queue: BTreeMap<String, Spread>,
    foreseen: BTreeMap<Likeness, Estimate>,
    names_seen: bool,
    ended: u64,
    ended_at_renewal: u64,
}

impl History {
    /// Returns an empty history for a pool of this many devices.
    pub fn new(pool_devices: u32) -> Self {
        Self {
            pool_devices,
            usual: Spread::usual(),
            alike: BTreeMap::new(),
            of_queue: BTreeMap::new(),
            foreseen: BTreeMap::new(),
            names_seen: false,
            ended: 0,
            ended_at_renewal: 0,
        }
    }

    /// Records that a job has ended after this much run time.
    pub fn note_end(&mut self, job: &Likeness, length_ms: i64) {
        self.alike.entry(job.clone()).or_insert_with(Spread::empty).add(length_ms);
        self.of_queue.entry(job.queue.clone()).or_insert_with(Spread::empty).add(length_ms);
        self.ended += 1;
    }

    /// Returns how many jobs of a queue have ended.
    pub fn ended_of_queue(&self, queue: &str) -> u64 {
        self.of_queue.get(queue).map_or(0, |spread| spread.weight() as u64)
    }

    /// Returns the estimate for a job that has not ended. It stays the same until [`History::renews`] is true.
    pub fn foresee(&mut self, job: &Likeness) -> Option<Estimate> {
        self.names_seen |= !job.user.is_empty() || !job.name.is_empty();
        if !self.names_seen {
            return None;
        }
        if let Some(estimate) = self.foreseen.get(job) {
            return Some(estimate.clone());
        }
        let estimate = self.estimate(job);
        self.foreseen.insert(job.clone(), estimate.clone());
        Some(estimate)
    }

    /// Returns whether enough jobs have ended for all estimates to be made anew; if so, drops the old ones.
    pub fn renews(&mut self) -> bool {
        let grown = self.ended > self.ended_at_renewal
            && self.ended * 100 >= self.ended_at_renewal * RENEWED_AT_PERCENT;
        if grown {
            self.ended_at_renewal = self.ended;
            self.foreseen.clear();
        }
        grown
    }

    fn estimate(&self, job: &Likeness) -> Estimate {
        let of_queue = match self.of_queue.get(&job.queue) {
            Some(spread) => spread.blended(&self.usual, INHERITED),
            None => self.usual.clone(),
        };
        let spread = self.alike.get(job).map(|spread| spread.blended(&of_queue, INHERITED));
        let spread = spread.unwrap_or(of_queue);
        let largest = (f64::from(self.pool_devices) / LARGEST_PART).max(1.0);
        Estimate {
            p50_ms: spread.quantile_ms(0.5),
            p90_ms: spread.quantile_ms(0.9),
            model: "spread".into(),
            outlook: spread.outlook(f64::from(job.devices.max(1)).min(largest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(user: &str, name: &str) -> Likeness {
        Likeness { queue: "q".into(), user: user.into(), name: name.into(), devices: 1 }
    }

    fn first_cost(history: &mut History, job: &Likeness) -> i64 {
        history.foresee(job).unwrap().outlook[0].per_end_device_ms
    }

    #[test]
    fn nothing_is_foreseen_where_jobs_carry_no_names() {
        let mut history = History::new(8);
        history.note_end(&job("", ""), 1000);
        assert_eq!(history.foresee(&job("", "")), None);
        assert!(history.foresee(&job("ana", "")).is_some());
        assert!(history.foresee(&job("", "")).is_some(), "from then on the others stand on the same scale");
    }

    #[test]
    fn what_ran_long_is_foreseen_to_run_long() {
        let mut history = History::new(8);
        for _ in 0..50 {
            history.note_end(&job("ana", "train"), 100_000_000);
            history.note_end(&job("ana", "test"), 60_000);
        }
        let (train, test) = (job("ana", "train"), job("ana", "test"));
        assert!(first_cost(&mut history, &train) > 10 * first_cost(&mut history, &test));
        let foreseen = history.foresee(&test).unwrap();
        assert!(foreseen.p50_ms < 100_000 && foreseen.p90_ms >= foreseen.p50_ms);
    }

    #[test]
    fn estimates_stand_until_enough_more_has_ended() {
        let mut history = History::new(8);
        (0..100).for_each(|_| history.note_end(&job("ana", "x"), 1000));
        assert!(history.renews() && !history.renews());
        let before = history.foresee(&job("ana", "x"));
        (0..4).for_each(|_| history.note_end(&job("ana", "x"), 90_000_000));
        assert!(!history.renews());
        assert_eq!(history.foresee(&job("ana", "x")), before);
        history.note_end(&job("ana", "x"), 90_000_000);
        assert!(history.renews());
        assert_ne!(history.foresee(&job("ana", "x")), before);
    }

    #[test]
    fn a_job_as_large_as_the_pool_counts_as_an_eighth_of_it() {
        let mut history = History::new(64);
        let sized = |devices| Likeness { devices, ..job("ana", "x") };
        let costs = [1, 8, 64].map(|devices| first_cost(&mut history, &sized(devices)));
        assert!(costs[1] > 7 * costs[0]);
        assert_eq!(costs[1], costs[2]);
    }
}
