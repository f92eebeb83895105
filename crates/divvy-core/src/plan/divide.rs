//! Part of phase 1, share: one whole divided among the children that ask for parts of it.

use std::collections::BTreeSet;

/// What a child asks of what is divided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// What it gets in any case.
    pub(super) guaranteed: i64,
    /// What it can use.
    pub(super) wanted: i64,
    pub(super) weight: u32,
    pub(super) priority: i32,
}

/// Divides a whole. Each claim gets what is guaranteed to it; the rest goes by weight, higher priorities first, to none more than it can
/// use, and in whole quanta where a claim is cut short. What the quanta leave goes to the largest remainders, then the first.
pub(super) fn fill(whole: i64, claims: &[Claim], quantum: i64) -> Vec<i64> {
    let mut parts: Vec<i64> = claims.iter().map(|claim| claim.guaranteed).collect();
    let mut left = parts.iter().fold(whole, |left, part| left.saturating_sub(*part));
    let priorities: BTreeSet<i32> = claims.iter().map(|claim| claim.priority).collect();
    for priority in priorities.into_iter().rev() {
        while left > 0 {
            let open = |index: &usize| {
                let claim = &claims[*index];
                claim.priority == priority && claim.weight > 0 && parts[*index] < claim.wanted
            };
            let open: Vec<usize> = (0..claims.len()).filter(open).collect();
            let weights: i128 = open.iter().map(|index| i128::from(claims[*index].weight)).sum();
            let need = |index: usize| claims[index].wanted - parts[index];
            let content = |index: &usize| {
                i128::from(need(*index)) * weights <= i128::from(left) * i128::from(claims[*index].weight)
            };
            let full: Vec<usize> = open.iter().copied().filter(content).collect();
            if full.is_empty() {
                left = cut(left, (claims, &open), quantum, &mut parts);
                break;
            }
            for index in full {
                left -= claims[index].wanted - parts[index];
                parts[index] = claims[index].wanted;
            }
        }
    }
    parts
}

/// Divides among claims none of which gets all that it can use; returns what is left.
fn cut(mut left: i64, (claims, open): (&[Claim], &[usize]), quantum: i64, parts: &mut [i64]) -> i64 {
    let weights: i128 = open.iter().map(|index| i128::from(claims[*index].weight)).sum();
    if weights == 0 {
        return left;
    }
    let whole = i128::from(left);
    let mut remainders = Vec::new();
    for index in open {
        let product = whole * i128::from(claims[*index].weight);
        let unit = i128::from(quantum) * weights;
        let quanta = i64::try_from(product / unit).unwrap_or(i64::MAX);
        parts[*index] += quanta * quantum;
        left -= quanta * quantum;
        remainders.push((-(product % unit), *index));
    }
    remainders.sort_unstable();
    for (_, index) in remainders {
        let more = quantum.min(left).min(claims[index].wanted - parts[index]).max(0);
        parts[index] += more;
        left -= more;
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claim(guaranteed: i64, wanted: i64, weight: u32) -> Claim {
        Claim { guaranteed: guaranteed.min(wanted), wanted, weight, priority: 0 }
    }

    #[test]
    fn what_one_cannot_use_goes_to_the_others_by_weight() {
        let claims = [claim(2, 3, 1), claim(0, 100, 1), claim(0, 100, 3)];
        assert_eq!(fill(11, &claims, 1), [3, 2, 6]);
    }

    #[test]
    fn devices_are_divided_whole_and_the_largest_remainder_gets_the_last() {
        let claims = [claim(0, 9000, 2), claim(0, 9000, 1)];
        assert_eq!(fill(4000, &claims, 1000), [3000, 1000]);
    }

    #[test]
    fn guarantees_beyond_the_whole_leave_nothing_to_divide() {
        assert_eq!(fill(4, &[claim(3, 9, 1), claim(3, 9, 1)], 1), [3, 3]);
    }

    #[test]
    fn higher_priorities_are_served_first_and_a_weight_of_zero_gets_nothing_beyond_its_guarantee() {
        let first = Claim { priority: 1, ..claim(0, 3, 1) };
        assert_eq!(fill(4, &[claim(0, 9, 1), first, claim(1, 9, 0)], 1), [0, 3, 1]);
    }

    proptest! {
        #[test]
        fn the_parts_sum_to_the_whole_or_to_all_that_can_be_used(
            whole in 0i64..1000,
            claims in proptest::collection::vec((0i64..300, 0i64..300, 1u32..9, -2i32..3), 1..9),
        ) {
            let claims: Vec<Claim> = claims
                .into_iter()
                .map(|(guaranteed, wanted, weight, priority)| Claim { priority, ..claim(guaranteed, wanted, weight) })
                .collect();
            let parts = fill(whole, &claims, 1);
            for (part, claim) in parts.iter().zip(&claims) {
                prop_assert!((claim.guaranteed..=claim.wanted).contains(part));
            }
            let guaranteed: i64 = claims.iter().map(|claim| claim.guaranteed).sum();
            let wanted: i64 = claims.iter().map(|claim| claim.wanted).sum();
            prop_assert_eq!(parts.iter().sum::<i64>(), whole.clamp(guaranteed.min(wanted), wanted));
        }
    }
}
