//! What could be given at a moment to jobs that are not split: the part of the pool that whole jobs fill at most, and who could
//! use it.

use std::collections::BTreeMap;

/// How many jobs there are of each size.
pub(super) type Sizes = BTreeMap<u32, i64>;

/// What whole jobs could hold at a moment, and what each leaf could use of it.
pub(super) struct Usable {
    pub(super) gpus: f64,
    pub(super) wanted: Vec<f64>,
}

/// The most that jobs of these sizes fill of some room, none of them split. Exact where each size divides the next one, as the
/// generator's do.
fn most_held(sizes: &Sizes, room: i64) -> i64 {
    let mut left = room.max(0);
    for (gpus, count) in sizes.iter().rev() {
        let gpus = i64::from(*gpus).max(1);
        left -= (left / gpus).min(*count) * gpus;
    }
    room.max(0) - left
}

/// What could be used by the jobs that are there, waiting or not: a job counts only if it fits beside what whole jobs of the other
/// leaves fill of their guarantees, of which nobody takes anything.
pub(super) fn usable(open: &[Sizes], guarantees: &[i64], gpus: i64) -> Usable {
    let firm: Vec<i64> =
        open.iter().zip(guarantees).map(|(sizes, guarantee)| most_held(sizes, *guarantee)).collect();
    let all: i64 = firm.iter().sum();
    let (mut any, mut wanted) = (Sizes::new(), Vec::new());
    for (sizes, firm) in open.iter().zip(firm) {
        let room = gpus - (all - firm);
        let mut sum = 0;
        for (size, count) in sizes.iter().filter(|(size, _)| i64::from(**size) <= room) {
            *any.entry(*size).or_default() += count;
            sum += i64::from(*size) * count;
        }
        wanted.push(sum as f64);
    }
    Usable { gpus: most_held(&any, gpus) as f64, wanted }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(sizes: &[(u32, i64)]) -> Sizes {
        sizes.iter().copied().collect()
    }

    #[test]
    fn whole_jobs_leave_what_none_of_them_fits_into() {
        assert_eq!(most_held(&sizes(&[(1, 3), (8, 9)]), 63), 59);
        assert_eq!(most_held(&sizes(&[(4, 2), (8, 1)]), 15), 12);
        assert_eq!(most_held(&sizes(&[(8, 1)]), 7), 0);
    }

    #[test]
    fn a_job_that_does_not_fit_beside_the_guarantees_of_others_is_not_due_to_anybody() {
        let open = [sizes(&[(16, 2)]), sizes(&[(1, 3), (4, 1)])];
        let all = usable(&open, &[0, 4], 20);
        assert_eq!((all.gpus, all.wanted), (20.0, vec![32.0, 7.0]));
        let less = usable(&open, &[0, 4], 18);
        assert_eq!((less.gpus, less.wanted), (7.0, vec![0.0, 7.0]));
    }
}
