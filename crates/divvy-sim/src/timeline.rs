//! A replay over time, for drawings: how many jobs waited and how many GPUs were held.

use std::collections::VecDeque;

/// Counts over time in buckets, whose width doubles whenever there are too many: memory stays the same however long
/// the replay is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// A bucket is 2 to the power of this many seconds wide.
    width_log2: u32,
    /// The number of the first bucket: second ÷ width.
    first: i64,
    /// From there on, without gaps, to the last bucket in which anything changed.
    buckets: VecDeque<Bucket>,
}

/// More than any drawing has columns.
const MOST_BUCKETS: usize = 4096;

/// What changed within a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bucket {
    waiting: Change,
    held: Change,
}

/// By how much a count changed, and the integral of that until the end of the bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Change {
    by: i64,
    integral: i128,
}

/// The means over one bucket of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// When the bucket begins.
    pub at_s: i64,
    /// Jobs that waited, in the mean.
    pub waiting: f64,
    /// GPUs that were held, in the mean.
    pub held_gpus: f64,
}

impl Timeline {
    /// Notes that from `at_s` on this many more jobs wait, and this many more GPUs are held; fewer, if negative.
    /// Calls may come in any order.
    pub fn note(&mut self, at_s: i64, waiting: i64, held_gpus: i64) {
        self.reach(at_s);
        let number = at_s >> self.width_log2;
        let rest_s = ((number + 1) << self.width_log2) - at_s;
        let bucket = &mut self.buckets[(number - self.first) as usize];
        bucket.waiting.add(Change::of(waiting, rest_s));
        bucket.held.add(Change::of(held_gpus, rest_s));
    }

    /// Makes sure that there is a bucket for a second.
    fn reach(&mut self, at_s: i64) {
        loop {
            let number = at_s >> self.width_log2;
            let (first, last) = self.ends().unwrap_or((number, number));
            let (first, last) = (first.min(number), last.max(number));
            let span = last - first + 1;
            if span > MOST_BUCKETS as i64 {
                self.coarsen();
                continue;
            }
            while self.first > first && !self.buckets.is_empty() {
                self.buckets.push_front(Bucket::default());
                self.first -= 1;
            }
            self.first = first;
            return self.buckets.resize(span as usize, Bucket::default());
        }
    }

    /// Adds what happened in another pool.
    pub fn add(&mut self, mut other: Self) {
        let Some((first, last)) = other.ends() else { return };
        while self.width_log2 < other.width_log2 {
            self.coarsen();
        }
        self.reach(first << other.width_log2);
        self.reach(last << other.width_log2);
        while other.width_log2 < self.width_log2 {
            other.coarsen();
        }
        let before = (other.first - self.first) as usize;
        for (mine, bucket) in self.buckets.iter_mut().skip(before).zip(other.buckets) {
            mine.waiting.add(bucket.waiting);
            mine.held.add(bucket.held);
        }
    }

    /// Returns the means over time, bucket by bucket, including buckets in which nothing changed; `most` buckets at
    /// most.
    pub fn moments(&self, most: usize) -> Vec<Moment> {
        let mut timeline = self.clone();
        while timeline.buckets.len() > most.max(1) {
            timeline.coarsen();
        }
        let width_s = 1i64 << timeline.width_log2;
        let (mut waiting, mut held) = (0, 0);
        let moment = |(number, bucket): (i64, &Bucket)| {
            let mean = |before: i64, change: Change| {
                (i128::from(before) * i128::from(width_s) + change.integral) as f64 / width_s as f64
            };
            let (at_s, means) = (number * width_s, (mean(waiting, bucket.waiting), mean(held, bucket.held)));
            waiting += bucket.waiting.by;
            held += bucket.held.by;
            Moment { at_s, waiting: means.0, held_gpus: means.1 }
        };
        (timeline.first..).zip(&timeline.buckets).map(moment).collect()
    }

    /// The numbers of the first bucket and of the last.
    fn ends(&self) -> Option<(i64, i64)> {
        let last = self.buckets.len().checked_sub(1)?;
        Some((self.first, self.first + last as i64))
    }

    /// Makes one bucket of every two.
    fn coarsen(&mut self) {
        let width_s = 1i128 << self.width_log2;
        let first = self.first >> 1;
        let count = self.ends().map_or(0, |(_, last)| (last >> 1) - first + 1);
        let mut halved = VecDeque::from(vec![Bucket::default(); count as usize]);
        for (number, bucket) in (self.first..).zip(&self.buckets) {
            // What changed in the first half lasts for all of the second.
            let later_s = if number & 1 == 0 { width_s } else { 0 };
            let both = &mut halved[((number >> 1) - first) as usize];
            both.waiting.add(bucket.waiting.lasting(later_s));
            both.held.add(bucket.held.lasting(later_s));
        }
        (self.first, self.buckets) = (first, halved);
        self.width_log2 += 1;
    }
}

impl Change {
    fn of(by: i64, rest_s: i64) -> Self {
        Self { by, integral: i128::from(by) * i128::from(rest_s) }
    }

    fn lasting(self, later_s: i128) -> Self {
        Self { integral: self.integral + i128::from(self.by) * later_s, ..self }
    }

    fn add(&mut self, other: Self) {
        self.by += other.by;
        self.integral += other.integral;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn means_are_over_the_time_of_a_bucket() {
        let mut timeline = Timeline::default();
        for (at_s, waiting, held) in [(0, 2, 0), (1, -1, 4), (3, -1, 4), (6, 0, -8)] {
            timeline.note(at_s, waiting, held);
        }
        let all: Vec<_> =
            timeline.moments(100).iter().map(|moment| (moment.waiting, moment.held_gpus)).collect();
        assert_eq!(all, [(2.0, 0.0), (1.0, 4.0), (1.0, 4.0), (0.0, 8.0), (0.0, 8.0), (0.0, 8.0), (0.0, 0.0)]);
        let two: Vec<_> = timeline.moments(2).iter().map(|moment| (moment.at_s, moment.held_gpus)).collect();
        assert_eq!(two, [(0, 4.0), (4, 4.0)]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn however_wide_the_buckets_the_sum_over_time_is_the_same(
            jobs in proptest::collection::vec((0i64..100_000, 1i64..50_000, 1i64..9), 1..50), most in 1usize..300,
        ) {
            let (mut timeline, mut other, mut expected) = (Timeline::default(), Timeline::default(), 0);
            for (row, (at_s, length_s, gpus)) in jobs.into_iter().enumerate() {
                let timeline = if row % 2 == 0 { &mut timeline } else { &mut other };
                timeline.note(at_s, 0, gpus);
                timeline.note(at_s + length_s, 0, -gpus);
                expected += gpus * length_s;
            }
            timeline.add(other);
            let moments = timeline.moments(most);
            prop_assert!(moments.len() <= most);
            let width_s = match moments[..] { [a, b, ..] => b.at_s - a.at_s, _ => 1 << 18 };
            let sum: f64 = moments.iter().map(|moment| moment.held_gpus * width_s as f64).sum();
            if moments.len() > 1 {
                prop_assert!((sum - expected as f64).abs() < 1.0, "{sum} {expected}");
            }
        }

        #[test]
        fn memory_is_bounded_and_no_time_is_too_far(times in proptest::collection::vec(0i64..400_000_000_000, 0..6000)) {
            let mut timeline = Timeline::default();
            for at_s in &times {
                timeline.note(*at_s, 1, 1);
            }
            prop_assert!(timeline.buckets.len() <= MOST_BUCKETS);
            let last = timeline.moments(500).last().copied();
            prop_assert_eq!(last.is_none(), times.is_empty());
        }
    }
}
