//! How lengths are spread, and what that says of a job that has run for some time.

use divvy_core::model::job::Prospect;

/// Bins of a length: four for each doubling, from a second to four years.
const BINS: usize = 108;

const BINS_PER_DOUBLING: f64 = 4.0;

/// What is taken for granted before anything has ended: lengths are spread log-normally about fifty minutes, as widely as
/// clusters of very different kinds show together.
const USUAL_MEDIAN_MS: f64 = 3_000_000.0;
const USUAL_SIGMA: f64 = 2.5;

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

impl Spread {
    /// Of no job.
    pub fn empty() -> Self {
        Self { bins: vec![0.0; BINS], total: 0.0 }
    }

    /// What is expected where nothing is known; it weighs as one job.
    pub fn usual() -> Self {
        let below = |bin: usize| match bin {
            0 => 0.0,
            bin => {
                let deviations = libm::log(edge_ms(bin) / USUAL_MEDIAN_MS) / USUAL_SIGMA;
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

    /// These jobs, and `expected` as if so many more had shown it; weighs as one job.
    pub fn blended(&self, expected: &Self, weight: f64) -> Self {
        let bins: Vec<f64> =
            self.bins.iter().zip(&expected.bins).map(|(own, other)| own + weight * other).collect();
        Self { total: bins.iter().sum(), bins }.normalised()
    }

    fn normalised(mut self) -> Self {
        self.bins.iter_mut().for_each(|bin| *bin /= self.total);
        self.total = 1.0;
        self
    }

    /// The length that so large a part of the jobs does not exceed, in milliseconds.
    pub fn quantile_ms(&self, part: f64) -> i64 {
        let mut sum = 0.0;
        let reached = |bin: &f64| {
            sum += bin;
            sum >= part * self.total
        };
        begins_ms(self.bins.iter().position(reached).unwrap_or(BINS - 1) + 1)
    }

    /// What can be expected of a job whose devices count as so many, by how long it has run: the inverse of its Gittins index.
    pub fn outlook(&self, devices: f64) -> Vec<Prospect> {
        let prospect = |bin: usize| {
            let cost = libm::round(self.per_end_ms(bin)? * devices) as i64;
            Some(Prospect { after_ms: begins_ms(bin), per_end_device_ms: cost })
        };
        (0..BINS).map_while(prospect).collect()
    }

    /// Run time per end from the start of a bin on, at the further time that makes it least; nothing where none is left.
    fn per_end_ms(&self, from: usize) -> Option<f64> {
        let left: f64 = self.bins[from..].iter().sum();
        let (mut running, mut used_ms) = (left, 0.0);
        let mut least: Option<f64> = None;
        for bin in from..BINS {
            let begin_ms = if bin == 0 { 0.0 } else { edge_ms(bin) };
            let beyond = (running - self.bins[bin]).max(0.0);
            // Those that end inside the bin do so, on average, in its middle.
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
    fn absurd_lengths_find_a_bin() {
        for length_ms in [i64::MIN, -1, 0, 1, i64::MAX] {
            let mut spread = Spread::empty();
            spread.add(length_ms);
            assert!(!spread.outlook(1.0).is_empty());
        }
    }
}
