//! Pseudo-random numbers that are the same in each run.

/// A source of such numbers.
pub(crate) struct Draw(u64);

impl Draw {
    /// From this seed, unless the variable names another.
    pub(crate) fn seeded(variable: &str, usual: u64) -> Self {
        let other = std::env::var(variable).ok().and_then(|text| text.parse().ok());
        let seed = other.unwrap_or(usual);
        eprintln!("{variable}={seed}");
        Self(seed)
    }

    /// The next number, below the bound.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }

    /// True in so many cases out of a hundred.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
