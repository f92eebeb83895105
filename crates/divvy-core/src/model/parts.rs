//! What a running gang can lose while the rest runs on: tasks beyond a role's minimum, and groups beyond what their branch needs.

use std::collections::BTreeSet;
use std::ops::Range;

use super::gang::Group;

/// What a gang that runs with these ranks can lose, part by part in this order. A part is a range of ranks, of which earlier parts may
/// already have removed some. All other tasks are the gang's core, which goes only as a whole.
pub(crate) fn surplus(gang: &Group, present: &BTreeSet<u32>) -> Vec<Range<u32>> {
    let mut parts = Vec::new();
    core(gang, (0, present), &mut parts);
    parts
}

/// Returns how many tasks of a group must stay as long as the group does, and adds what may go earlier to `parts`.
fn core(group: &Group, (first, present): (u32, &BTreeSet<u32>), parts: &mut Vec<Range<u32>>) -> usize {
    let branch = match group {
        Group::Role(role) => {
            let here = || present.range(first..first + role.maximum);
            let minimum = role.minimum as usize;
            parts.extend(here().skip(minimum).map(|rank| *rank..rank + 1));
            return here().count().min(minimum);
        }
        Group::Branch(branch) => branch,
    };
    let (mut first, mut needed) = (first, branch.minimum);
    let mut stays = 0;
    for group in &branch.groups {
        let next = first + group.most_tasks();
        let own = core(group, (first, present), parts);
        match (own, needed) {
            (0, _) => {}
            (_, 0) => parts.push(first..next),
            (own, _) => {
                needed -= 1;
                stays += own;
            }
        }
        first = next;
    }
    stays
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

    fn branch(minimum: u32, groups: Vec<Group>) -> Group {
        Group::Branch(Branch {
            name: "b".into(),
            minimum,
            groups,
            topology: None,
            spread: Default::default(),
        })
    }

    /// Each from its first rank to the one behind its last.
    fn parts(gang: &Group, present: impl IntoIterator<Item = u32>) -> Vec<(u32, u32)> {
        let parts = surplus(gang, &present.into_iter().collect());
        parts.into_iter().map(|part| (part.start, part.end)).collect()
    }

    #[test]
    fn tasks_beyond_the_minimum_may_go_one_by_one() {
        assert_eq!(parts(&role(1, 4), [0, 2, 3]), [(2, 3), (3, 4)]);
        assert_eq!(parts(&role(3, 3), 0..3), []);
    }

    #[test]
    fn a_group_beyond_what_its_branch_needs_goes_as_a_whole_after_its_own_surplus() {
        let gang = branch(1, vec![role(2, 2), role(1, 3)]);
        assert_eq!(parts(&gang, [0, 1, 2, 4]), [(4, 5), (2, 5)]);
        // Of the groups that run, the first stay.
        assert_eq!(parts(&gang, [2, 3]), [(3, 4)]);
    }
}
