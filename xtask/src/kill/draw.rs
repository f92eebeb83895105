//! Random choices that repeat with their seed.

use std::time::Duration;

/// A source of choices: SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
#[derive(Clone, Debug)]
pub(super) struct Draw(u64);

impl Draw {
    /// A source for one stream of a seed; each stream draws for itself.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        let mut draw = Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ stream);
        draw.next();
        draw
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below the bound.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// True in so many cases out of a hundred.
    pub(super) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A time below the bound, in microseconds.
    pub(super) fn moment_below(&mut self, bound: Duration) -> Duration {
        Duration::from_micros(self.below(u64::try_from(bound.as_micros()).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_its_streams_differ() {
        let drawn = |seed, stream| {
            let mut draw = Draw::new(seed, stream);
            (0..8).map(|_| draw.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(drawn(1, 0), drawn(1, 0));
        assert_ne!(drawn(1, 0), drawn(1, 1));
        assert_ne!(drawn(1, 0), drawn(2, 0));
    }
}
