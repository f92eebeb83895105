//! Scores likeness: how many of the peer's own choices the core made, too. Nothing here is right or wrong.

use std::collections::BTreeMap;

use divvy_core::model::job::Cause;

use super::Preferred;
use super::answer::{Answer, JobFate, Outcome, PodsetFate, TaskFate};
use super::compare::tally_of;
use super::expected::{Expected, Prefer, Spread};

/// Counts the choices that are the same.
pub(super) fn score(answer: &Answer, expected: &Expected) -> Preferred {
    let matched = expected.prefer.iter().filter(|choice| is_same(answer, choice)).count();
    Preferred { matched, of: expected.prefer.len() }
}

fn is_same(answer: &Answer, choice: &Prefer) -> bool {
    match answer {
        Answer::Fates { jobs, .. } => same_fate(jobs, choice),
        Answer::Placements { podsets, labels } => {
            let set = podsets.iter().find(|set| Some(&set.podset) == choice.podset.as_ref());
            set.zip(choice.placement.as_ref()).is_some_and(|(set, spread)| same_spread(set, labels, spread))
        }
        Answer::Choice { .. } | Answer::Amounts(_) | Answer::Shares(_) => false,
    }
}

fn same_fate(jobs: &[JobFate], choice: &Prefer) -> bool {
    if let Some(id) = &choice.task {
        let task = jobs.iter().flat_map(|job| &job.tasks).find(|task| task.id == *id);
        return task.is_some_and(|task| same_task(task, choice));
    }
    let Some(job) = jobs.iter().find(|job| Some(&job.name) == choice.job.as_ref()) else { return false };
    if let Some(tally) = &choice.tally {
        return tally_of(job, tally.keys().any(|fared| fared.group.is_some())) == *tally;
    }
    if let Some(groups) = &choice.gpu_groups {
        return same_devices(job, groups);
    }
    match (&choice.outcome, &choice.reason) {
        (Some(word), _) => job.tasks.iter().all(|task| Outcome::read(word) == Some(task.outcome)),
        (None, Some(reason)) => job.cause.is_some_and(|cause| reasons(cause).contains(&reason.as_str())),
        (None, None) => same_flavors(job, choice),
    }
}

fn same_flavors(job: &JobFate, choice: &Prefer) -> bool {
    let set = job.podsets.iter().find(|set| Some(&set.podset) == choice.podset.as_ref());
    set.zip(choice.flavors.as_ref())
        .is_some_and(|(set, flavors)| flavors.values().all(|flavor| set.flavor.as_ref() == Some(flavor)))
}

fn same_task(task: &TaskFate, choice: &Prefer) -> bool {
    match (&choice.node, &choice.outcome) {
        (Some(node), _) => task.node.as_ref() == Some(node),
        (None, Some(word)) => Outcome::read(word) == Some(task.outcome),
        (None, None) => false,
    }
}

/// The peer names devices in its own way: the names are numbers, taken here as the device's place on its node.
fn same_devices(job: &JobFate, groups: &[String]) -> bool {
    let has = |task: &TaskFate| task.devices.iter().map(u32::to_string).collect::<Vec<_>>() == groups;
    !job.tasks.is_empty() && job.tasks.iter().all(has)
}

/// The peer's words for why a job was evicted, as far as the core tells reasons apart.
fn reasons(cause: Cause) -> &'static [&'static str] {
    match cause {
        Cause::Preempted | Cause::Order | Cause::Moved | Cause::Faster | Cause::Starved => {
            &["InClusterQueue"]
        }
        _ => &[],
    }
}

fn same_spread(
    set: &PodsetFate,
    labels: &BTreeMap<String, BTreeMap<String, String>>,
    spread: &Spread,
) -> bool {
    let domain = |node: &String| -> Vec<String> {
        let of = |level: &String| {
            labels.get(node).and_then(|labels| labels.get(level)).cloned().unwrap_or_default()
        };
        spread.levels.iter().map(of).collect()
    };
    let mut got: BTreeMap<Vec<String>, usize> = BTreeMap::new();
    for node in &set.nodes {
        *got.entry(domain(node)).or_default() += 1;
    }
    let want = spread.domains.iter().map(|domain| (domain.values.clone(), domain.count)).collect();
    got == want
}
