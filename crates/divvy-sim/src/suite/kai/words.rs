//! What the cases of the `kai` suite may ask for that Divvy has no word for.

use std::collections::BTreeSet;

use super::form::{Asked, State, TaskText};
use crate::suite::MOST_DEVICES;

/// The phases that a case may ask about one by one and that the planner does not have.
const PHASES_TO_COME: [(&str, &str); 1] = [("stale_gang_eviction", "the eviction of stale gangs")];

/// All that is missing, by name.
pub(super) fn missing(asked: &Asked) -> BTreeSet<String> {
    let mut missing = BTreeSet::new();
    let mut note = |there: bool, word: &str| {
        if there {
            missing.insert(word.to_owned());
        }
    };
    let tasks = || asked.jobs.iter().flat_map(|job| &job.tasks);
    let any = |test: fn(&TaskText) -> bool| tasks().any(test);
    note(asked.nodes.iter().any(|node| node.mig.is_some()) || any(asks_mig), "partitions (MIG)");
    note(asked.dra.is_some() || any(asks_claims), "device claims (DRA)");
    note(
        asked.nodes.iter().any(|node| node.numa.is_some()) || any(|task| task.numa_placement.is_some()),
        "NUMA alignment",
    );
    note(any(|task| task.state == State::Pipelined), "promises made before");
    note(any(|task| task.state == State::Failed), "failed tasks of a running gang");
    note(asked.jobs.iter().any(|job| job.stale_s.is_some()), "a gang that has been broken for a time");
    note(asked.jobs.iter().any(|job| job.preemption_delay.is_some()), "a delay before preemption");
    note(
        asked.queues.iter().any(|queue| queue.reclaim_min_runtime_s.is_some()),
        "a least run time before reclaim",
    );
    note(asked.nodes.iter().any(|node| node.gpus > MOST_DEVICES), "so many devices of one node");
    let placement = &asked.config.placement;
    note(
        [&placement.node_gpu, &placement.node_cpu, &placement.device].contains(&&"spread".to_owned()),
        "spreading over nodes or devices",
    );
    if asked.config.phases.len() == 1 {
        for (phase, word) in PHASES_TO_COME {
            note(asked.config.phases.iter().any(|asked| asked == phase), word);
        }
    }
    missing
}

fn asks_mig(task: &TaskText) -> bool {
    task.request.mig.is_some() || task.legacy_mig.is_some()
}

fn asks_claims(task: &TaskText) -> bool {
    task.request.dra_gpus.is_some() || task.claims.is_some()
}
