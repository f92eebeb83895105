//! The curve of an experiment: what is allocated and fragmented, against what has arrived.

use super::Watch;

/// 0 to 130 percent of the capacity.
pub(super) const BINS: usize = 131;

/// Means by percent arrived.
pub(super) struct Bins(Vec<(f64, u32)>);

impl Bins {
    fn new() -> Self {
        Self(vec![(0.0, 0); BINS])
    }

    fn add(&mut self, bin: usize, value: f64) {
        if let Some(sum) = self.0.get_mut(bin) {
            *sum = (sum.0 + value, sum.1 + 1);
        }
    }

    /// `None` where nothing was added.
    pub(super) fn means(&self) -> Vec<Option<f64>> {
        self.0.iter().map(|(sum, count)| (*count > 0).then(|| rounded(sum / f64::from(*count), 4))).collect()
    }
}

/// Rounds to a number of decimals, halves to even.
fn rounded(value: f64, decimals: i32) -> f64 {
    let scale = 10_f64.powi(decimals);
    (value * scale).round_ties_even() / scale
}

/// What is noted after each arrival.
pub(super) struct Curve {
    pub(super) capacity_milli: i64,
    arrived_milli: i64,
    allocated_milli: i64,
    pub(super) allocated: Bins,
    pub(super) of_idle: Bins,
    pub(super) of_capacity: Bins,
}

impl Curve {
    pub(super) fn new(capacity_milli: i64) -> Self {
        let (allocated, of_idle, of_capacity) = (Bins::new(), Bins::new(), Bins::new());
        Self { capacity_milli, arrived_milli: 0, allocated_milli: 0, allocated, of_idle, of_capacity }
    }

    pub(super) fn arrive(&mut self, milli: i64) {
        self.arrived_milli += milli;
    }

    pub(super) fn allocate(&mut self, milli: i64) {
        self.allocated_milli += milli;
    }

    /// Notes the present values, each rounded to hundredths of a percent as in the published curves.
    pub(super) fn note(&mut self, watch: &Watch) {
        let bin = self.bin();
        let percent = |part: f64, whole: i64| rounded(100.0 * part / whole as f64, 2);
        let fragmented_milli = watch.fragmented_micro as f64 / 1000.0;
        self.allocated.add(bin, percent(self.allocated_milli as f64, self.capacity_milli));
        self.of_capacity.add(bin, percent(fragmented_milli, self.capacity_milli));
        if watch.idle_milli > 0 {
            self.of_idle.add(bin, percent(fragmented_milli, watch.idle_milli));
        }
    }

    /// The percent arrived, halves to even.
    fn bin(&self) -> usize {
        let (percent, rest) =
            (100 * self.arrived_milli / self.capacity_milli, 100 * self.arrived_milli % self.capacity_milli);
        let up = 2 * rest > self.capacity_milli || 2 * rest == self.capacity_milli && percent % 2 == 1;
        usize::try_from(percent + i64::from(up)).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_goes_to_the_even_bin() {
        let mut curve = Curve::new(1000);
        let bins: Vec<usize> = [5, 10, 4]
            .map(|milli| {
                curve.arrive(milli);
                curve.bin()
            })
            .to_vec();
        assert_eq!(bins, [0, 2, 2]);
    }

    #[test]
    fn a_bin_without_arrivals_has_no_value() {
        let mut bins = Bins::new();
        bins.add(1, 2.0);
        bins.add(1, 3.0);
        bins.add(500, 1.0);
        assert_eq!(bins.means()[..3], [None, Some(2.5), None]);
    }
}
