//! Jobs of a trace that can never run, and why, in the words of the trace: it knows rows, GPUs and nodes, and nothing of tasks.

use divvy_core::decide::Rejection;
use divvy_core::model::device::WHOLE_MILLI;

use crate::replay::ask::GPUS_OF_A_TASK;
use crate::trace::cluster::ClusterNode;
use crate::trace::jobs::Arrival;
use crate::trace::speeds::{BASE_MODEL, Speeds};

/// A job that its pool could never run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its place in the trace after merging, from 0.
    pub row: usize,
    /// Its name in the trace.
    pub id: String,
    /// Its queue.
    pub queue: String,
    /// Why.
    pub why: String,
}

impl Refused {
    /// A job whose queue has no node.
    pub(crate) fn without_nodes(row: usize, job: &Arrival) -> Self {
        Self::of(row, job, format!("no node is of the pool {}", job.queue))
    }

    /// A job that the core refused on these nodes.
    pub(crate) fn by_core(
        row: usize,
        job: &Arrival,
        rejection: &Rejection,
        nodes: &[&ClusterNode],
        speeds: Option<&Speeds>,
    ) -> Self {
        let runs_nowhere = speeds.is_some_and(|speeds| speeds.models(&job.name, job.gpus).next().is_none());
        let why = match rejection {
            Rejection::CannotFit { .. } => no_room(job, nodes, speeds),
            _ if runs_nowhere => no_room(job, nodes, speeds),
            other => other.to_string(),
        };
        Self::of(row, job, why)
    }

    /// A job that asks for more than a queue may hold, in thousandths of GPUs.
    pub(crate) fn beyond_limit(row: usize, job: &Arrival, queue: &str, limit: i64) -> Self {
        let limit = limit as f64 / f64::from(WHOLE_MILLI);
        Self::of(
            row,
            job,
            format!("it asks for {} GPUs, and the limit of queue {queue} is {limit}", job.gpus),
        )
    }

    fn of(row: usize, job: &Arrival, why: String) -> Self {
        Self { row, id: job.id.clone(), queue: job.queue.clone(), why }
    }
}

/// What the row asks for, and what the nodes have that it may use.
fn no_room(job: &Arrival, nodes: &[&ClusterNode], speeds: Option<&Speeds>) -> String {
    let gpus = job.gpus;
    let models: Option<Vec<&str>> =
        speeds.map(|speeds| speeds.models(&job.name, gpus).map(|(model, _)| model).collect());
    if models.as_ref().is_some_and(Vec::is_empty) {
        return format!("--speeds has no row of {:?} with {gpus} GPUs for {BASE_MODEL}", job.name);
    }
    let usable = nodes
        .iter()
        .filter(|node| models.as_ref().is_none_or(|models| models.contains(&node.model.as_str())));
    let counts: Vec<u32> = usable.map(|node| node.gpus).collect();
    let all: u64 = counts.iter().map(|count| u64::from(*count)).sum();
    let largest = counts.iter().max().copied().unwrap_or(0);
    if u64::from(gpus) > all {
        format!("it asks for {gpus} GPUs, and the nodes that it may use have {all}")
    } else if gpus <= GPUS_OF_A_TASK {
        format!("it asks for {gpus} GPUs on one node, and the largest that it may use has {largest}")
    } else {
        format!(
            "it asks for {gpus} GPUs, {GPUS_OF_A_TASK} to a node and the rest on one, and the nodes that it may use \
             have {all}, the largest {largest}: so they cannot be divided"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(gpus: u32, nodes: &[u32]) -> String {
        let node = |gpus: &u32| ClusterNode {
            node: String::new(),
            model: "m".into(),
            gpus: *gpus,
            cpu_milli: 0,
            memory_mib: 0,
            pool: "q".into(),
        };
        let nodes: Vec<_> = nodes.iter().map(node).collect();
        let (user, name) = (String::new(), String::new());
        let job = Arrival { id: "a".into(), submit_s: 0, gpus, queue: "q".into(), user, name };
        no_room(&job, &nodes.iter().collect::<Vec<_>>(), None)
    }

    #[test]
    fn a_refusal_says_what_the_row_asks_for_and_what_there_is() {
        assert_eq!(why(99, &[8, 8]), "it asks for 99 GPUs, and the nodes that it may use have 16");
        assert_eq!(why(6, &[4, 4]), "it asks for 6 GPUs on one node, and the largest that it may use has 4");
        assert!(
            why(16, &[4; 4]).contains("16 GPUs, 8 to a node and the rest on one"),
            "{}",
            why(16, &[4; 4])
        );
    }
}
