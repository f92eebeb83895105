//! How the lengths of jobs are spread, and what that says of a job that has run for some time.

use divvy_core::model::job::Prospect;

/// The number of bins of length: four for each doubling, from a second to four years.
const BINS: usize = 108;

const BINS_PER_DOUBLING: f64 = 4.0;

/// The assumption before anything has ended: lengths are spread log-normally around fifty minutes, as widely as clusters
/// of very different kinds show together.
const USUAL_MEDIAN_MS: f64 = 3_000_000.0;
const USUAL_SIGMA: f64 = 2.5;

/// How widely lengths are spread around what users say: four in five within a factor of two and a half.
const SAID_SIGMA: f64 = 0.7;

/// How many jobs, or parts of one, are in each bin of lengths.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    bins: Vec<f64>,
    total: f64,
}

/// Where a bin begins, in milliseconds.
fn edge_ms(bin: usize) -> f64 {
    1000.0 * libm::exp2(bin as f64 / BINS_PER_DOUBLING)
}

/// The first whole millisecond of a bin.
fn begins_ms(bin: usize) -> i64 {
    if bin == 0 { 0 } else { libm::ceil(edge_ms(bin)) as i64 }
}

fn bin_of(length_ms: i64) -> usize {
    (1..BINS).take_while(|bin| begins_ms(*bin) <= length_ms).last().unwrap_or(0)
}

/// The same from the logarithm; near an edge it may give the bin on the other side.
fn bin_at(length_ms: f64) -> usize {
    let bin = libm::floor(libm::log2(length_ms / 1000.0) * BINS_PER_DOUBLING);
    bin.clamp(0.0, (BINS - 1) as f64) as usize
}

impl Spread {
    /// A spread of no job.
    pub fn empty() -> Self {
        Self { bins: vec![0.0; BINS], total: 0.0 }
    }

    /// Returns the spread expected where nothing is known; it weighs as one job.
    pub fn usual() -> Self {
        Self::about(USUAL_MEDIAN_MS, USUAL_SIGMA)
    }

    /// Returns the spread expected of a job that is said to take this long; it weighs as one job.
    pub fn said(length_ms: i64) -> Self {
        Self::about(length_ms.max(1) as f64, SAID_SIGMA)
    }

    /// Returns the spread expected of a job of which only its limit is known: the part `before` of such jobs ends before the
    /// limit, at any time, the others run into it. It weighs as one job.
    pub fn limited(limit_ms: i64, before: f64) -> Self {
        let mut spread = Self::empty();
        let last = bin_of(limit_ms);
        for bin in 0..=last {
            let from = if bin == 0 { 0.0 } else { edge_ms(bin) };
            let inside = (edge_ms(bin + 1).min(limit_ms as f64) - from).max(0.0);
            spread.bins[bin] = before * inside / (limit_ms.max(1)) as f64;
        }
        spread.bins[(last + 1).min(BINS - 1)] += 1.0 - before;
        spread.total = spread.bins.iter().sum();
        spread.normalised()
    }

    /// A log-normal spread around a median.
    fn about(median_ms: f64, sigma: f64) -> Self {
        let below = |bin: usize| match bin {
            0 => 0.0,
            bin => {
                let deviations = libm::log(edge_ms(bin) / median_ms) / sigma;
                0.5 * libm::erfc(-deviations / std::f64::consts::SQRT_2)
            }
        };
        let bins: Vec<f64> = (0..BINS).map(|bin| below(bin + 1) - below(bin)).collect();
        let total = bins.iter().sum();
        Self { bins, total }.normalised()
    }

    /// Counts one more job.
    pub fn add(&mut self, length_ms: i64) {
        self.bins[bin_of(length_ms)] += 1.0;
        self.total += 1.0;
    }

    /// Returns these jobs, and `expected` as if `weight` jobs had shown it; weighs as one job.
    pub fn blended(&self, expected: &Self, weight: f64) -> Self {
        let bins: Vec<f64> =
            self.bins.iter().zip(&expected.bins).map(|(own, other)| own + weight * other).collect();
        Self { total: bins.iter().sum(), bins }.normalised()
    }

    /// The same where some jobs have not ended, so that only how long they have run is known. Each counts as the jobs do that ran
    /// longer (redistribution to the right: Efron, 1967); otherwise the short ones, whose ends come first, would count too much.
    pub fn blended_with_running(&self, running: &Self, expected: &Self, weight: f64) -> Self {
        let pairs = self.bins.iter().zip(&expected.bins);
        let mut bins: Vec<f64> = pairs.map(|(own, other)| own + weight * other).collect();
        for bin in (0..BINS - 1).filter(|bin| running.bins[*bin] > 0.0) {
            let right: f64 = bins[bin + 1..].iter().sum();
            if right > 0.0 {
                let grown = 1.0 + running.bins[bin] / right;
                bins[bin + 1..].iter_mut().for_each(|mass| *mass *= grown);
            }
        }
        Self { total: bins.iter().sum(), bins }.normalised()
    }

    fn normalised(mut self) -> Self {
        self.bins.iter_mut().for_each(|bin| *bin /= self.total);
        self.total = 1.0;
        self
    }

    /// Returns the length that this part of the jobs does not exceed, in milliseconds.
    pub fn quantile_ms(&self, part: f64) -> i64 {
        let mut sum = 0.0;
        let reached = |bin: &f64| {
            sum += bin;
            sum >= part * self.total
        };
        begins_ms(self.bins.iter().position(reached).unwrap_or(BINS - 1) + 1)
    }

    /// Returns how many jobs were counted, parts of jobs included.
    pub fn weight(&self) -> f64 {
        self.total
    }

    /// Returns the length of a job that has run for `ran_ms`: of all jobs that run longer, `part` (0 to 1) do not exceed it.
    /// Where none ran longer, it is up to three times `ran_ms`.
    pub fn draw_ms(&self, ran_ms: i64, part: f64) -> i64 {
        let ran = (ran_ms.max(1)) as f64;
        let first = bin_at(ran);
        let begin = |bin: usize| if bin == 0 { 1.0 } else { edge_ms(bin) };
        let passed = libm::log(ran / begin(first)) / libm::log(edge_ms(first + 1) / begin(first));
        let head = self.bins[first] * (1.0 - passed).clamp(0.0, 1.0);
        let left: f64 = head + self.bins[first + 1..].iter().sum::<f64>();
        if left <= self.total * f64::EPSILON * BINS as f64 {
            return libm::round(ran * (1.0 + 2.0 * part)) as i64;
        }
        let mut before = part * left;
        for bin in first..BINS {
            let (inside, from) = if bin == first { (head, ran) } else { (self.bins[bin], begin(bin)) };
            if before <= inside && inside > 0.0 {
                let length = from * libm::exp(libm::log(edge_ms(bin + 1) / from) * (before / inside));
                return (libm::round(length) as i64).max(ran_ms + 1);
            }
            before -= inside;
        }
        (edge_ms(BINS) as i64).max(ran_ms + 1)
    }

    /// Returns what to expect of a job that counts as so many devices, by how long it has run: its Gittins index, inverted.
    pub fn outlook(&self, devices: f64) -> Vec<Prospect> {
        let prospect = |bin: usize| {
            let cost = libm::round(self.per_end_ms(bin)? * devices) as i64;
            Some(Prospect { after_ms: begins_ms(bin), per_end_device_ms: cost })
        };
        (0..BINS).map_while(prospect).collect()
    }

    /// The run time per end, from the start of a bin to the further time that minimises it; `None` if no job is left.
    fn per_end_ms(&self, from: usize) -> Option<f64> {
        let left: f64 = self.bins[from..].iter().sum();
        let (mut running, mut used_ms) = (left, 0.0);
        let mut least: Option<f64> = None;
        for bin in from..BINS {
            let begin_ms = if bin == 0 { 0.0 } else { edge_ms(bin) };
            let beyond = (running - self.bins[bin]).max(0.0);
            // Jobs that end inside the bin do so, on average, in its middle.
            used_ms += (edge_ms(bin + 1) - begin_ms) * 0.5 * (running + beyond);
            running = beyond;
            let ended = left - running;
            if ended > left * f64::EPSILON * BINS as f64 {
                let cost = used_ms / ended;
                least = Some(least.map_or(cost, |least| least.min(cost)));
            }
        }
        least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lengths_s: &[i64]) -> Spread {
        let mut spread = Spread::empty();
        lengths_s.iter().for_each(|seconds| spread.add(seconds * 1000));
        spread
    }

    fn cost_after(spread: &Spread, seconds: i64) -> i64 {
        let outlook = spread.outlook(1.0);
        outlook.iter().rev().find(|prospect| prospect.after_ms <= seconds * 1000).unwrap().per_end_device_ms
            / 1000
    }

    #[test]
    fn jobs_of_one_length_come_nearer_to_their_end() {
        let spread = of(&[1000; 5]);
        assert!((800..1200).contains(&cost_after(&spread, 0)));
        assert!(cost_after(&spread, 700) < 400);
    }

    #[test]
    fn a_job_that_has_outlived_the_short_ones_is_far_from_its_end() {
        let spread = of(&[60, 60, 60, 100_000]);
        assert!(cost_after(&spread, 0) < 100, "most end at once");
        assert!(cost_after(&spread, 200) > 50_000);
    }

    #[test]
    fn moments_rise_and_devices_multiply() {
        let (one, four) = (Spread::usual().outlook(1.0), Spread::usual().outlook(4.0));
        assert!(one.windows(2).all(|pair| pair[0].after_ms < pair[1].after_ms));
        assert_eq!((one[0].after_ms, one.len()), (0, BINS));
        assert!((one[40].per_end_device_ms * 4 - four[40].per_end_device_ms).abs() <= 4);
    }

    #[test]
    fn quantiles_lie_at_the_ends_of_bins() {
        let spread = of(&[10, 10, 1000]);
        assert!((10_000..12_000).contains(&spread.quantile_ms(0.5)));
        assert!((1_000_000..1_200_000).contains(&spread.quantile_ms(0.9)));
        assert!((2_400_000..3_600_000).contains(&Spread::usual().quantile_ms(0.5)));
    }

    #[test]
    fn draws_are_longer_than_what_has_run_and_rise_with_their_part() {
        let spread = of(&[10, 100, 1000, 10_000]);
        for ran_ms in [0, 1, 999, 1000, 50_000, 9_900_000, 100_000_000, i64::MAX / 8] {
            let draws = [0.0, 0.25, 0.5, 0.75, 1.0].map(|part| spread.draw_ms(ran_ms, part));
            assert!(draws[0] >= ran_ms && draws.is_sorted(), "{ran_ms}: {draws:?}");
        }
        assert!((90_000..1_200_000).contains(&spread.draw_ms(20_000, 0.2)), "the job of 10 s is out");
        assert!((9_000_000..13_000_000).contains(&spread.draw_ms(20_000, 0.9)));
    }

    #[test]
    fn what_a_user_says_is_the_middle_of_what_is_expected() {
        let said = Spread::said(3_600_000);
        assert!((3_000_000..4_300_000).contains(&said.draw_ms(0, 0.5)));
        assert!(said.draw_ms(0, 0.1) > 1_000_000 && said.draw_ms(0, 0.9) < 12_000_000);
    }

    #[test]
    fn jobs_that_have_not_ended_count_as_those_that_ran_longer() {
        let ended = of(&[10, 10, 10, 10, 10, 10, 10, 1000]);
        let without = ended.blended(&Spread::usual(), 1.0);
        let with = ended.blended_with_running(&of(&[100; 8]), &Spread::usual(), 1.0);
        assert!(without.draw_ms(0, 0.7) < 20_000 && with.draw_ms(0, 0.7) > 500_000);
        assert_eq!(ended.blended_with_running(&Spread::empty(), &Spread::usual(), 1.0), without);
    }

    #[test]
    fn a_limit_is_where_most_end() {
        let limited = Spread::limited(3_600_000, 0.4);
        assert!((1_500_000..2_100_000).contains(&limited.draw_ms(0, 0.2)));
        assert!(limited.draw_ms(0, 0.6) > 3_600_000 && limited.draw_ms(0, 0.99) < 5_000_000);
        assert!(Spread::limited(1, 0.4).draw_ms(0, 0.5) > 0);
    }

    #[test]
    fn absurd_lengths_find_a_bin() {
        for length_ms in [i64::MIN, -1, 0, 1, i64::MAX] {
            let mut spread = Spread::empty();
            spread.add(length_ms);
            assert!(!spread.outlook(1.0).is_empty());
        }
    }
}
