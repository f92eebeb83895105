//! Gangs that run with fewer tasks than they need. No gang of Divvy does: what runs of them is one that needs no more, and what they
//! lack waits or, where it is being stopped, leaves.

use std::collections::BTreeSet;

use divvy_core::model::gang::{Branch, Group, Role};

/// A part of a gang, and the ranks that its tasks had in it.
pub(super) type Part = (Group, Vec<u32>);

/// A gang in parts: what runs, with what it may have beyond its need; and what it lacks.
pub(super) struct Parts {
    pub(super) runs: Option<Part>,
    pub(super) lacks: Option<Part>,
}

/// Parts a group whose first task has this rank: what it lacks of its need is a gang of its own that waits. `None` where it cannot be
/// said which of its groups are lacking, or where they are to lie near the others.
pub(super) fn parts(group: &Group, first: u32, seated: &BTreeSet<u32>) -> Option<Parts> {
    match group {
        Group::Role(role) => of_role(role, first, seated),
        Group::Branch(branch) => of_branch(branch, first, seated),
    }
}

fn of_role(role: &Role, first: u32, seated: &BTreeSet<u32>) -> Option<Parts> {
    let all = first..first + role.maximum;
    let (here, others): (Vec<u32>, Vec<u32>) = all.clone().partition(|rank| seated.contains(rank));
    let runs = here.len() as u32;
    let part = |minimum, ranks: Vec<u32>| {
        let maximum = ranks.len() as u32;
        Some((Group::Role(Role { minimum, maximum, ..role.clone() }), ranks))
    };
    Some(match runs {
        0 => Parts { runs: None, lacks: part(role.minimum, others) },
        _ if runs >= role.minimum => Parts { runs: part(role.minimum, all.collect()), lacks: None },
        _ if role.topology.is_some() => return None,
        _ => Parts { runs: part(runs, here), lacks: part(role.minimum - runs, others) },
    })
}

fn of_branch(branch: &Branch, first: u32, seated: &BTreeSet<u32>) -> Option<Parts> {
    let (mut running, mut idle, mut lacking, mut next) = (Vec::new(), Vec::new(), Vec::new(), first);
    for group in &branch.groups {
        let Parts { runs, lacks } = parts(group, next, seated)?;
        next += group.most_tasks();
        match runs {
            Some(runs) => {
                running.push(runs);
                lacking.extend(lacks);
            }
            None => idle.extend(lacks),
        }
    }
    let runs = running.len() as u32;
    if runs == 0 {
        return Some(Parts { runs: None, lacks: Some(joined(branch, branch.minimum, idle)) });
    }
    // More run than it needs, or only some of those that do not: then it is open which are lacking.
    let missing = branch.minimum.checked_sub(runs)?;
    match missing {
        0 => running.extend(idle),
        _ if missing == idle.len() as u32 => lacking.extend(idle),
        _ => return None,
    }
    if !lacking.is_empty() && branch.topology.is_some() {
        return None;
    }
    let all = lacking.len() as u32;
    let lacks = (all > 0).then(|| joined(branch, all, lacking));
    Some(Parts { runs: Some(joined(branch, runs, running)), lacks })
}

/// These groups as a branch of which so many are needed.
fn joined(branch: &Branch, minimum: u32, parts: Vec<Part>) -> Part {
    let (groups, ranks): (Vec<Group>, Vec<Vec<u32>>) = parts.into_iter().unzip();
    (Group::Branch(Branch { minimum, groups, ..branch.clone() }), ranks.concat())
}

/// Lets a gang that runs with fewer tasks than it needs be content with these: what it lacks it may still get.
pub(super) fn as_it_runs(group: &mut Group, first: u32, seated: &BTreeSet<u32>) {
    match group {
        Group::Role(role) => {
            let here = seated.range(first..first + role.maximum).count() as u32;
            role.minimum = role.minimum.min(here.max(1));
        }
        Group::Branch(branch) => {
            let (mut next, mut run) = (first, 0);
            for group in &mut branch.groups {
                let begin = next;
                next += group.most_tasks();
                if seated.range(begin..next).next().is_some() {
                    run += 1;
                    as_it_runs(group, begin, seated);
                }
            }
            branch.minimum = branch.minimum.min(run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use divvy_core::model::ask::Ask;

    fn role(name: &str, (minimum, maximum): (u32, u32)) -> Group {
        let (ask, work) = (Ask::default(), super::super::plain_work());
        Group::Role(Role {
            name: name.into(),
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
            name: "all".into(),
            minimum,
            groups,
            topology: None,
            spread: Default::default(),
        })
    }

    /// The least number of a part's tasks, and its ranks.
    type Told = Option<(u32, Vec<u32>)>;

    /// What runs and what is lacking.
    fn found(group: &Group, seated: &[u32]) -> Option<[Told; 2]> {
        let parts = parts(group, 0, &seated.iter().copied().collect())?;
        let told = |part: Option<Part>| part.map(|(group, ranks)| (group.tasks(), ranks));
        Some([told(parts.runs), told(parts.lacks)])
    }

    #[test]
    fn what_a_gang_lacks_is_what_its_roles_and_groups_need_beyond_what_runs() {
        let one = role("a", (2, 4));
        assert_eq!(found(&one, &[0]), Some([Some((1, vec![0])), Some((1, vec![1, 2, 3]))]));
        assert_eq!(found(&one, &[0, 1]), Some([Some((2, vec![0, 1, 2, 3])), None]));
        let both = branch(2, vec![role("a", (2, 3)), role("b", (1, 2))]);
        assert_eq!(found(&both, &[0]), Some([Some((1, vec![0])), Some((2, vec![1, 2, 3, 4]))]));
        assert_eq!(found(&both, &[0, 1]), Some([Some((2, vec![0, 1, 2])), Some((1, vec![3, 4]))]));
    }

    #[test]
    fn where_it_is_open_which_groups_are_lacking_there_are_no_parts() {
        let any = branch(2, vec![role("a", (1, 1)), role("b", (1, 1)), role("c", (1, 1))]);
        assert_eq!(found(&any, &[0]), None);
        assert_eq!(found(&branch(1, vec![role("a", (1, 1)), role("b", (2, 2))]), &[0, 1]), None);
        assert_eq!(found(&any, &[0, 2]), Some([Some((2, vec![0, 2, 1])), None]));
    }
}
