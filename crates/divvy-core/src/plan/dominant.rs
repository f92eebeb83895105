//! Part of phase 1, share: a whole of several resources divided by the dominant part. A child that asks for several
//! resources gets them in the proportion in which it can use them. All get equal parts, by weight, of the resource of
//! which each gets most. (Ghodsi and others, Dominant Resource Fairness, NSDI 2011; here beyond what is guaranteed.)

use super::divide::{self, Claim};
use super::share::Amounts;

/// What a child asks of what is divided.
#[derive(Clone, Debug)]
pub(super) struct Demand {
    /// What it gets in any case, of each resource.
    pub(super) guaranteed: Amounts,
    /// What it can use.
    pub(super) wanted: Amounts,
    pub(super) weight: u32,
    pub(super) priority: i32,
}

/// The number that stands for the whole when parts of it are measured.
const WHOLE: i128 = 1_000_000_000;

impl Demand {
    /// What it could use beyond what is guaranteed to it.
    fn more(&self, resource: usize) -> i128 {
        i128::from(self.wanted[resource].saturating_sub(self.guaranteed[resource]).max(0))
    }

    /// The part of the whole that it would have, per unit of weight, with all that it could use, measured by
    /// the resource of which that is most. Of a resource that does not exist nothing can be used.
    fn most(&self, whole: &Amounts) -> i128 {
        let part = |resource: usize| match whole[resource] {
            ..=0 => 0,
            all => self.more(resource) * WHOLE / i128::from(all),
        };
        (0..whole.len()).map(part).max().unwrap_or(0) / i128::from(self.weight.max(1))
    }

    /// What it gets of a resource beyond what is guaranteed to it when its part is `level`.
    fn at(&self, resource: usize, level: i128, most: i128) -> i128 {
        if level >= most { self.more(resource) } else { self.more(resource) * level / most }
    }
}

/// Divides a whole: all resources together, then what is left of each by itself, by weight. Without that, a child that is cut short of
/// one resource would be due less of the others than what is guaranteed to it takes of them, while they stand idle.
pub(super) fn fill(whole: &Amounts, demands: &[Demand], quanta: &Amounts) -> Vec<Amounts> {
    let mut parts = grow_together(whole, demands, quanta);
    for (resource, whole) in whole.iter().enumerate() {
        let claim = |(demand, part): (&Demand, &Amounts)| Claim {
            guaranteed: part[resource],
            wanted: demand.wanted[resource],
            weight: demand.weight,
            priority: demand.priority,
        };
        let claims: Vec<Claim> = demands.iter().zip(&parts).map(claim).collect();
        let filled = divide::fill(*whole, &claims, quanta[resource]);
        parts.iter_mut().zip(filled).for_each(|(part, filled)| part[resource] = filled);
    }
    parts
}

/// Gives each demand what is guaranteed to it. Then, higher priorities first, the parts of equals grow together until
/// they have all that they can use or a resource is used up, of which those that need it then get no more. Each
/// resource goes in whole quanta; what rounding leaves goes to the largest remainders, then the first.
fn grow_together(whole: &Amounts, demands: &[Demand], quanta: &Amounts) -> Vec<Amounts> {
    let mut parts: Vec<Amounts> = demands.iter().map(|demand| demand.guaranteed.clone()).collect();
    let mut left: Vec<i128> = whole.iter().map(|whole| i128::from(*whole)).collect();
    for (resource, left) in left.iter_mut().enumerate() {
        *left =
            demands.iter().fold(*left, |left, demand| left - i128::from(demand.guaranteed[resource])).max(0);
    }
    let mut priorities: Vec<i32> = demands.iter().map(|demand| demand.priority).collect();
    priorities.sort_unstable();
    priorities.dedup();
    for priority in priorities.into_iter().rev() {
        let is_open = |index: &usize| demands[*index].priority == priority && demands[*index].weight > 0;
        let open: Vec<usize> = (0..demands.len()).filter(is_open).collect();
        let levels = levels(whole, demands, (&open, &left));
        for resource in 0..whole.len() {
            let quantum = i128::from(quanta[resource]);
            let mut rounded: Vec<(i128, usize)> = Vec::new();
            for (index, level) in open.iter().zip(&levels) {
                let exact = demands[*index].at(resource, *level, demands[*index].most(whole));
                give(&mut parts[*index][resource], &mut left[resource], exact / quantum * quantum);
                rounded.push((-(exact % quantum), *index));
            }
            rounded.sort_unstable();
            for (_, index) in rounded.into_iter().filter(|(remainder, _)| *remainder < 0) {
                let can_use = i128::from(demands[index].wanted[resource] - parts[index][resource]);
                give(&mut parts[index][resource], &mut left[resource], quantum.min(can_use));
            }
        }
    }
    parts
}

fn give(part: &mut i64, left: &mut i128, more: i128) {
    let more = more.min(*left).max(0);
    *part = part.saturating_add(i64::try_from(more).unwrap_or(i64::MAX));
    *left -= more;
}

/// How large the part of each becomes: they grow together, and stop one by one.
fn levels(whole: &Amounts, demands: &[Demand], (open, left): (&[usize], &[i128])) -> Vec<i128> {
    let most: Vec<i128> = open.iter().map(|index| demands[*index].most(whole)).collect();
    let mut levels: Vec<Option<i128>> = vec![None; open.len()];
    // Each round stops one at least.
    for _ in 0..open.len() {
        let used = |resource: usize, level: i128| -> i128 {
            let of = |(place, index): (usize, &usize)| {
                demands[*index].at(resource, levels[place].unwrap_or(level).min(most[place]), most[place])
            };
            open.iter().enumerate().map(of).sum()
        };
        let fits = |level: i128| (0..whole.len()).all(|resource| used(resource, level) <= left[resource]);
        let grows = |place: &usize| levels[*place].is_none();
        let Some(highest) = (0..open.len()).filter(grows).map(|place| most[place]).max() else { break };
        // No demand gets more than the whole.
        let level = largest(highest.min(2 * WHOLE), fits);
        let scarce = |resource: &usize| used(*resource, level + 1) > left[*resource];
        let scarce: Vec<usize> = (0..whole.len()).filter(scarce).collect();
        let stops = |place: usize| {
            let needs = |resource: &usize| demands[open[place]].more(*resource) > 0;
            most[place] <= level || scarce.iter().any(needs)
        };
        let stopped: Vec<usize> = (0..open.len()).filter(grows).filter(|place| stops(*place)).collect();
        if stopped.is_empty() {
            break;
        }
        stopped.into_iter().for_each(|place| levels[place] = Some(level.min(most[place])));
    }
    levels.into_iter().zip(most).map(|(level, most)| level.unwrap_or(most)).collect()
}

/// The largest level up to one that fits; 0 if none does.
fn largest(highest: i128, fits: impl Fn(i128) -> bool) -> i128 {
    let (mut low, mut high) = (0, highest);
    while low < high {
        let middle = (low + high + 1) / 2;
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use smallvec::smallvec;

    fn demand(guaranteed: [i64; 2], wanted: [i64; 2], weight: u32) -> Demand {
        Demand {
            guaranteed: guaranteed.iter().zip(wanted).map(|(one, other)| *one.min(&other)).collect(),
            wanted: wanted.iter().copied().collect(),
            weight,
            priority: 0,
        }
    }

    fn by(
        fill: impl Fn(&Amounts, &[Demand], &Amounts) -> Vec<Amounts>,
        whole: [i64; 2],
        demands: &[Demand],
    ) -> Vec<[i64; 2]> {
        let (whole, quanta): (Amounts, Amounts) = (whole.iter().copied().collect(), smallvec![1, 1]);
        fill(&whole, demands, &quanta).into_iter().map(|part| [part[0], part[1]]).collect()
    }

    fn shared(whole: [i64; 2], demands: &[Demand]) -> Vec<[i64; 2]> {
        by(fill, whole, demands)
    }

    #[test]
    fn the_example_of_the_paper_comes_out() {
        // 9 cores and 18 GB: tasks of one user take (1, 4), of the other (3, 1). Three of the one, two of the other fit.
        let demands = [demand([0, 0], [900, 3600], 1), demand([0, 0], [900, 300], 1)];
        let parts = by(grow_together, [900, 1800], &demands);
        assert!((295..=305).contains(&parts[0][0]) && (1190..=1205).contains(&parts[0][1]), "{parts:?}");
        assert!((595..=605).contains(&parts[1][0]) && (195..=205).contains(&parts[1][1]), "{parts:?}");
    }

    #[test]
    fn what_is_guaranteed_comes_first_and_the_rest_goes_by_weight() {
        let demands = [demand([40, 0], [100, 0], 1), demand([0, 0], [100, 0], 2)];
        assert_eq!(shared([100, 100], &demands), [[60, 0], [40, 0]]);
    }

    #[test]
    fn who_needs_little_leaves_the_rest_to_the_others() {
        let demands = [demand([0, 0], [10, 0], 1), demand([0, 0], [100, 50], 1)];
        assert_eq!(by(grow_together, [100, 100], &demands), [[10, 0], [90, 45]]);
    }

    #[test]
    fn what_is_left_of_one_resource_goes_to_those_who_are_cut_short_of_another() {
        // Of both, tasks take 8 cores; of the one a device in addition. Half of the cores are guaranteed to it.
        let demands = [demand([32, 0], [64, 8], 1), demand([0, 0], [64, 0], 1)];
        assert_eq!(by(grow_together, [64, 8], &demands), [[42, 2], [21, 0]]);
        assert_eq!(shared([64, 8], &demands), [[43, 8], [21, 0]]);
    }

    #[test]
    fn who_wants_a_million_times_what_there_is_gets_its_part() {
        let demands = [demand([0, 0], [i64::MAX, i64::MAX / 2], 1), demand([0, 0], [100, 0], 1)];
        assert_eq!(by(grow_together, [1000, 1000], &demands), [[900, 450], [100, 0]]);
        let demands = [demand([0, 0], [i64::MAX, 0], 3), demand([0, 0], [i64::MAX, 0], 1)];
        assert_eq!(shared([1000, 1000], &demands), [[750, 0], [250, 0]]);
    }

    proptest! {
        #[test]
        fn nobody_gets_more_than_it_can_use_or_less_than_is_guaranteed_and_all_get_no_more_than_there_is(
            whole in [100i64..1000, 100i64..1000],
            demands in proptest::collection::vec(([0i64..40, 0i64..40], [0i64..600, 0i64..600], 1u32..9), 1..6),
        ) {
            let demands: Vec<Demand> =
                demands.into_iter().map(|(guaranteed, wanted, weight)| demand(guaranteed, wanted, weight)).collect();
            let parts = shared(whole, &demands);
            for resource in 0..2 {
                let sum: i64 = parts.iter().map(|part| part[resource]).sum();
                let guaranteed: i64 = demands.iter().map(|demand| demand.guaranteed[resource]).sum();
                prop_assert!(sum <= whole[resource].max(guaranteed));
                for (part, demand) in parts.iter().zip(&demands) {
                    prop_assert!(part[resource] >= demand.guaranteed[resource]);
                    prop_assert!(part[resource] <= demand.wanted[resource]);
                }
            }
        }
    }
}
