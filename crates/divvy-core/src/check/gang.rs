//! How many tasks a gang may run with, reckoned by the checker for itself.

use std::collections::BTreeSet;

use crate::model::gang::Group;

/// Whether a gang may run with tasks of these ranks: each group is as complete as it must be, and there are no more than allowed.
pub(super) fn may_run(gang: &Group, ranks: &BTreeSet<u32>) -> bool {
    let all = (0..most(gang)).collect();
    ranks.is_subset(&all) && starts(gang, &mut (0..most(gang)), ranks) == Some(true)
}

/// Whether these ranks are enough of a group, whose ranks come next; `None` if it has none of them, which its branch may allow.
fn starts(group: &Group, next: &mut impl Iterator<Item = u32>, ranks: &BTreeSet<u32>) -> Option<bool> {
    match group {
        Group::Role(role) => {
            let own: Vec<u32> = next.take(role.maximum as usize).collect();
            let there = own.iter().filter(|rank| ranks.contains(rank)).count() as u32;
            (there > 0 || role.minimum == 0).then_some(there >= role.minimum)
        }
        Group::Branch(branch) => {
            let mut whole = 0;
            let mut broken = false;
            for group in &branch.groups {
                match starts(group, &mut *next, ranks) {
                    Some(true) => whole += 1,
                    Some(false) => broken = true,
                    None => {}
                }
            }
            (whole > 0 || broken).then_some(!broken && whole >= branch.minimum)
        }
    }
}

/// How many ranks a gang has.
pub(super) fn most(gang: &Group) -> u32 {
    match gang {
        Group::Role(role) => role.maximum,
        Group::Branch(branch) => branch.groups.iter().map(most).sum(),
    }
}

/// The fewest tasks that a gang may run with.
pub(super) fn least(gang: &Group) -> u32 {
    match gang {
        Group::Role(role) => role.minimum,
        Group::Branch(branch) => {
            let mut least: Vec<u32> = branch.groups.iter().map(least).collect();
            least.sort_unstable();
            least.iter().take(branch.minimum as usize).sum()
        }
    }
}

/// Whether it has one size only.
pub(super) fn is_rigid(gang: &Group) -> bool {
    least(gang) == most(gang)
}

/// Its sizes, in words.
pub(super) fn words(gang: &Group) -> String {
    format!("it may have {} to {}", least(gang), most(gang))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ask::Ask;
    use crate::model::gang::{Branch, Role};
    use crate::model::job::Work;

    fn role(minimum: u32, maximum: u32) -> Group {
        let (ask, work) = (Ask::default(), Work::External(Vec::new()));
        Group::Role(Role {
            name: "r".into(),
            minimum,
            maximum,
            ask,
            work,
            topology: None,
            spread: Default::default(),
        })
    }

    #[test]
    fn a_gang_runs_with_its_minimum_and_no_more_than_its_maximum_and_its_groups_are_never_broken() {
        let groups = vec![role(2, 3), role(1, 1), role(2, 2)];
        let gang = Group::Branch(Branch {
            name: "b".into(),
            minimum: 2,
            groups,
            topology: None,
            spread: Default::default(),
        });
        let may = |ranks: &[u32]| may_run(&gang, &ranks.iter().copied().collect());
        assert!(may(&[0, 1, 3]) && may(&[0, 2, 4, 5]) && may(&[0, 1, 2, 3, 4, 5]));
        // Too few groups; a group in part; a rank that is none.
        assert!(!may(&[0, 1]) && !may(&[0, 1, 3, 4]) && !may(&[0, 1, 3, 6]));
        assert_eq!((least(&gang), most(&gang)), (3, 6));
    }
}
