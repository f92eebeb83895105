//! What the cases of the `kueue` suite may ask for that Divvy has no word for.

use std::collections::BTreeSet;

use crate::suite::answer::Obstacle;

use super::form::{Asked, Podset, State};

/// The most tasks that a case is staged with: cases have some hundreds.
const MOST_TASKS: i64 = 100_000;

/// All that is missing, by name.
pub(super) fn missing(asked: &Asked) -> BTreeSet<String> {
    let mut missing = BTreeSet::new();
    let mut note = |there: bool, word: &str| {
        if there {
            missing.insert(word.to_owned());
        }
    };
    let any = |test: fn(&Podset) -> bool| asked.jobs.iter().flat_map(|job| &job.podsets).any(test);
    note(asked.config.usage_fairness, "share over past usage");
    note(
        any(|podset| {
            let affinity = podset.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
            let all = affinity.into_iter().chain(&podset.node_affinity);
            all.into_iter().any(|affinity| affinity.preferred.is_some())
        }),
        "nodes that are merely preferred",
    );
    let held = asked
        .jobs
        .iter()
        .flat_map(|job| &job.assigned)
        .map(|assigned| i64::from(assigned.pods()))
        .sum::<i64>();
    note(tasks(asked) + held > MOST_TASKS, "so many tasks");
    missing
}

fn tasks(asked: &Asked) -> i64 {
    asked.jobs.iter().flat_map(|job| &job.podsets).map(|podset| i64::from(podset.count)).sum()
}

/// Whether a quota of pods could ever matter.
pub(super) fn pods_bound(asked: &Asked) -> bool {
    let held: i64 =
        asked.usage.iter().filter(|usage| usage.resource == "pods").map(|usage| usage.amount).sum();
    let quotas = asked.queues.iter().flat_map(|queue| &queue.quotas);
    let mut of_pods = quotas.filter(|quota| quota.resource.as_deref() == Some("pods"));
    of_pods.any(|quota| tasks(asked) + held > quota.nominal)
}

/// Whether jobs start strictly in order. In the core that is a pool's setting; here it is a queue's.
pub(super) fn strict(asked: &Asked) -> Result<bool, Obstacle> {
    let waits = |queue: &str| {
        let here = asked.jobs.iter().filter(|job| job.queue.as_deref() == Some(queue));
        here.filter(|job| matches!(job.state, State::Pending | State::Incoming)).count()
    };
    let with_jobs: Vec<_> = asked.queues.iter().filter(|queue| waits(&queue.name) > 0).collect();
    let is_strict = |queue: &&super::form::QueueText| queue.strategy.as_deref() == Some("StrictFIFO");
    // A single job has nobody behind it.
    if !with_jobs.iter().any(|queue| is_strict(queue) && waits(&queue.name) > 1) {
        return Ok(false);
    }
    let in_line = |queue: &&&super::form::QueueText| waits(&queue.name) > 1;
    if with_jobs.iter().filter(in_line).all(is_strict) {
        Ok(true)
    } else {
        Err(Obstacle::no_word("strict order in one queue alone"))
    }
}
