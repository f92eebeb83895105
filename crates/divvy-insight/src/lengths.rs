//! How long jobs run, for forecasts by lot: the spread of the finished jobs that are most alike, filled up with less similar ones.

use std::collections::BTreeMap;

use crate::history::Likeness;
use crate::spread::Spread;

/// What a group inherits from the wider group around it counts as this many jobs of its own.
const INHERITED: f64 = 10.0;

/// Of the jobs of which only the limit is known, the part that ends before it; the others run into it.
pub const BEFORE_THE_LIMIT: f64 = 0.4;

/// What a user says of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Said {
    /// How long it will run, in milliseconds.
    pub estimate_ms: Option<i64>,
    /// After how many milliseconds it is stopped.
    pub limit_ms: Option<i64>,
}

/// The lengths of jobs: of those most alike, of the same size, of the same queue and of the whole pool.
#[derive(Clone, Debug, Default)]
pub struct Lengths {
    alike: BTreeMap<Likeness, Group>,
    of_size: BTreeMap<(String, u32), Group>,
    of_queue: BTreeMap<String, Group>,
    of_pool: Group,
}

/// Jobs that have something in common.
#[derive(Clone, Debug)]
struct Group {
    ended: Spread,
    /// How long the jobs that have not ended have run.
    running: Spread,
}

impl Default for Group {
    fn default() -> Self {
        Self { ended: Spread::empty(), running: Spread::empty() }
    }
}

impl Group {
    fn blended(&self, expected: &Spread) -> Spread {
        self.ended.blended_with_running(&self.running, expected, INHERITED)
    }
}

impl Lengths {
    /// Records that a job has ended after this much run time.
    pub fn note_end(&mut self, job: &Likeness, length_ms: i64) {
        self.groups(job).for_each(|group| group.ended.add(length_ms));
    }

    /// Records that a job has run for this long and has not ended. The record stays: tell it to a copy.
    pub fn note_running(&mut self, job: &Likeness, ran_ms: i64) {
        self.groups(job).for_each(|group| group.running.add(ran_ms));
    }

    fn groups(&mut self, job: &Likeness) -> impl Iterator<Item = &mut Group> {
        let alike = is_named(job).then(|| self.alike.entry(job.clone()).or_default());
        let of_size = self.of_size.entry(size_of(job)).or_default();
        let of_queue = self.of_queue.entry(job.queue.clone()).or_default();
        alike.into_iter().chain([of_size, of_queue, &mut self.of_pool])
    }

    /// Returns how many jobs have ended.
    pub fn count(&self) -> u64 {
        self.of_pool.ended.weight() as u64
    }

    /// Returns how many jobs most like this one have ended: alike in all, else of its size, else of its queue, else any.
    pub fn count_alike(&self, job: &Likeness) -> u64 {
        let groups = [self.alike.get(job), self.of_size.get(&size_of(job)), self.of_queue.get(&job.queue)];
        let mut counts = groups.into_iter().flatten().map(|group| group.ended.weight() as u64);
        counts.find(|count| *count > 0).unwrap_or_else(|| self.count())
    }

    /// Returns how the lengths of jobs like this one are spread; what its user says counts as several of the jobs most
    /// like it would. `None` if its user says nothing (or only a limit) and nothing has ended.
    pub fn spread(&self, job: &Likeness, said: Said) -> Option<Spread> {
        let expected = match (said.estimate_ms, said.limit_ms) {
            (Some(estimate_ms), _) => Spread::said(estimate_ms),
            _ if self.count() == 0 => return None,
            // One limit is well considered, another is the queue's longest: as good as what others ran.
            (None, Some(limit_ms)) => {
                self.around(job).blended(&Spread::limited(limit_ms, BEFORE_THE_LIMIT), 1.0)
            }
            (None, None) => self.around(job),
        };
        Some(self.alike.get(job).map_or_else(|| expected.clone(), |own| own.blended(&expected)))
    }

    /// The lengths of jobs of its size, filled up with those of its queue and of the pool; weighs as one job.
    fn around(&self, job: &Likeness) -> Spread {
        let mut spread = self.of_pool.blended(&Spread::usual());
        for group in [self.of_queue.get(&job.queue), self.of_size.get(&size_of(job))].into_iter().flatten() {
            spread = group.blended(&spread);
        }
        spread
    }
}

/// Without user and name, only their size tells jobs apart.
fn is_named(job: &Likeness) -> bool {
    !job.user.is_empty() || !job.name.is_empty()
}

fn size_of(job: &Likeness) -> (String, u32) {
    (job.queue.clone(), job.devices)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str, devices: u32) -> Likeness {
        Likeness { queue: "q".into(), user: String::new(), name: name.into(), devices }
    }

    fn median_s(lengths: &Lengths, job: &Likeness) -> i64 {
        lengths.spread(job, Said::default()).unwrap().draw_ms(0, 0.5) / 1000
    }

    #[test]
    fn nothing_is_known_before_anything_has_ended_or_was_said() {
        let lengths = Lengths::default();
        assert_eq!((lengths.spread(&job("", 1), Said::default()), lengths.count()), (None, 0));
        let limit = Said { limit_ms: Some(60_000), ..Said::default() };
        assert_eq!(lengths.spread(&job("", 1), limit), None);
        let estimate = Said { estimate_ms: Some(60_000), ..limit };
        assert!(lengths.spread(&job("", 1), estimate).is_some());
    }

    #[test]
    fn a_limit_counts_as_much_as_jobs_of_others() {
        let mut lengths = Lengths::default();
        (0..100).for_each(|_| lengths.note_end(&job("x", 1), 60_000));
        let limit = Said { limit_ms: Some(36_000_000), ..Said::default() };
        let drawn = |name, part| lengths.spread(&job(name, 1), limit).unwrap().draw_ms(0, part) / 1000;
        assert!(drawn("new", 0.3) < 80 && drawn("new", 0.8) > 36_000);
        assert!(drawn("x", 0.8) < 80, "its likes say more");
    }

    #[test]
    fn the_most_alike_count_most() {
        let mut lengths = Lengths::default();
        for _ in 0..200 {
            lengths.note_end(&job("train", 1), 100_000_000);
            lengths.note_end(&job("test", 1), 60_000);
            lengths.note_end(&job("", 8), 10_000_000);
        }
        assert!((50..70).contains(&median_s(&lengths, &job("test", 1))));
        assert!((80_000..120_000).contains(&median_s(&lengths, &job("train", 1))));
        assert!((8_000..12_000).contains(&median_s(&lengths, &job("new", 8))), "of its size");
        assert_eq!((lengths.count_alike(&job("test", 1)), lengths.count_alike(&job("new", 1))), (200, 400));
        assert_eq!((lengths.count_alike(&job("new", 2)), lengths.count()), (600, 600));
    }
}
