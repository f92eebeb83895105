//! Dice that fall the same on every machine: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). No new version of a library can change its
//! sequence.

/// A generator of numbers from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// Dice of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub(crate) fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below a bound (0 for a bound of 0). The remainder favours some numbers by less than one in a billion.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.any().checked_rem(bound).unwrap_or(0)
    }

    /// A number from the first to the last.
    pub(crate) fn between(&mut self, first: i64, last: i64) -> i64 {
        let width = u64::try_from(last - first + 1).unwrap_or(0);
        first + i64::try_from(self.below(width)).unwrap_or(0)
    }

    /// True in this percentage of cases.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of several.
    pub(crate) fn one_of<'a, T>(&mut self, several: &'a [T]) -> &'a T {
        &several[self.below(several.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_on_any_machine() {
        let mut dice = Dice::new(17);
        assert_eq!([dice.any(), dice.any()], [0x8084_75f0_2ee3_7363, 0x6434_ff62_b4e8_edd1]);
    }
}
