//! What could be given at a moment to jobs that are not split: the largest part of the pool that whole jobs fill, and who could
//! use it.

use std::collections::BTreeMap;

use super::water;
use super::world::World;

/// How many jobs there are of each size.
pub(super) type Sizes = BTreeMap<u32, i64>;

/// What whole jobs could hold at a moment, and what each vessel could use of it.
pub(super) struct Usable {
    pub(super) gpus: f64,
    pub(super) wanted: Vec<f64>,
}

/// The most of some room that whole jobs of these sizes fill. Exact where each size divides the next one, as the generator's
/// sizes do.
fn most_held(sizes: &Sizes, room: i64) -> i64 {
    let mut left = room.max(0);
    for (gpus, count) in sizes.iter().rev() {
        let gpus = i64::from(*gpus).max(1);
        left -= (left / gpus).min(*count) * gpus;
    }
    room.max(0) - left
}

/// What the open jobs could use, waiting or not. A job counts only if it fits beside what whole jobs of the other leaves fill of
/// their guarantees, of which nobody takes anything. A leaf that is due all that it wants has it; the others could use whole jobs
/// beside that.
pub(super) fn usable(world: &World, open: &[Sizes]) -> Usable {
    let gpus = i64::from(world.gpus());
    let fitting = fitting(world, open, gpus);
    let sum = |sizes: &Sizes| sizes.iter().map(|(size, count)| i64::from(*size) * count).sum::<i64>();
    let wanted: Vec<i64> = fitting.iter().map(sum).collect();
    let in_vessels = in_vessels(world, &wanted);
    let mut usable = gpus;
    loop {
        let due = water::fill(&world.vessels, usable as f64, &in_vessels);
        let has_all = |leaf: usize| due[world.leaves[leaf].1] > wanted[leaf] as f64 - 1e-6;
        let (full, hungry): (Vec<usize>, Vec<usize>) = (0..wanted.len()).partition(|leaf| has_all(*leaf));
        let firm: i64 = full.iter().map(|leaf| wanted[*leaf]).sum();
        let mut theirs = Sizes::new();
        for (size, count) in hungry.iter().flat_map(|leaf| &fitting[*leaf]) {
            *theirs.entry(*size).or_default() += count;
        }
        let whole = firm + most_held(&theirs, gpus - firm);
        if whole >= usable {
            return Usable { gpus: usable as f64, wanted: in_vessels };
        }
        usable = whole;
    }
}

/// The jobs of each leaf that fit beside what whole jobs of the other leaves fill of their guarantees.
fn fitting(world: &World, open: &[Sizes], gpus: i64) -> Vec<Sizes> {
    let guarantees = world.leaves.iter().map(|(_, vessel)| world.vessels[*vessel].guarantee as i64);
    let firm: Vec<i64> =
        open.iter().zip(guarantees).map(|(sizes, guarantee)| most_held(sizes, guarantee)).collect();
    let all: i64 = firm.iter().sum();
    let of = |(sizes, firm): (&Sizes, i64)| {
        let fits = |(size, _): &(&u32, &i64)| i64::from(**size) <= gpus - (all - firm);
        sizes.iter().filter(fits).map(|(size, count)| (*size, *count)).collect()
    };
    open.iter().zip(firm).map(of).collect()
}

/// What each vessel itself wants: only leaves want anything.
pub(super) fn in_vessels(world: &World, wanted: &[i64]) -> Vec<f64> {
    let mut all = vec![0.0; world.vessels.len()];
    for ((_, vessel), wanted) in world.leaves.iter().zip(wanted) {
        all[*vessel] = *wanted as f64;
    }
    all
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

    /// A pool in which each leaf stands below the pool itself.
    fn pool(gpus: u32, guarantees: &[f64]) -> World {
        let mut world = super::super::world::world(5, 1);
        world.nodes.truncate(1);
        world.nodes[0].gpus = gpus;
        world.vessels.truncate(1);
        world.leaves.clear();
        for guarantee in guarantees {
            world.leaves.push((String::new(), world.vessels.len()));
            world.vessels.push(water::Vessel { parent: Some(0), guarantee: *guarantee, weight: 1.0 });
        }
        world
    }

    #[test]
    fn a_job_that_does_not_fit_beside_the_guarantees_of_others_is_not_due_to_anybody() {
        let open = [sizes(&[(16, 2)]), sizes(&[(1, 3), (4, 1)])];
        let all = usable(&pool(20, &[0.0, 4.0]), &open);
        assert_eq!(all.wanted, [0.0, 32.0, 7.0]);
        let less = usable(&pool(18, &[0.0, 4.0]), &open);
        assert_eq!((less.gpus, less.wanted), (7.0, vec![0.0, 0.0, 7.0]));
    }

    #[test]
    fn whoever_is_due_all_that_he_wants_has_it_and_the_others_fill_the_rest_with_whole_jobs() {
        let open = [sizes(&[(8, 9)]), sizes(&[(1, 3)])];
        assert_eq!(usable(&pool(32, &[0.0, 0.0]), &open).gpus, 27.0);
        // A leaf that wants more than it is due may wait for another leaf's whole job.
        let open = [sizes(&[(8, 9)]), sizes(&[(1, 30)])];
        assert_eq!(usable(&pool(32, &[0.0, 0.0]), &open).gpus, 32.0);
    }
}
