//! Jobs of a trace that can never run, and why, in the words of the trace: rows, GPUs and nodes, but no tasks.

use divvy_core::amount::{Amount, Limits, Resource};
use divvy_core::decide::Rejection;
use divvy_core::model::device::WHOLE_MILLI;
use divvy_core::reason::Reason;

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
            // A row knows nothing of tasks.
            Rejection::BadSpec { field: "tasks", .. } => no_room(job, nodes, speeds),
            other => other.to_string(),
        };
        Self::of(row, job, why)
    }

    /// A job that asks for more than its limits leave it.
    pub(crate) fn beyond_limit(row: usize, job: &Arrival, room: &Room) -> Self {
        Self::of(row, job, format!("it asks for {}, and {room}", gpus_in_words(job.gpus)))
    }

    fn of(row: usize, job: &Arrival, why: String) -> Self {
        Self { row, id: job.id.clone(), queue: job.queue.clone(), why }
    }
}

/// What the limits of a queue leave to one job in the empty pool, in thousandths of GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    queue: String,
    of_user: bool,
    milli: i64,
    /// Whether limits on models are what makes it so little.
    by_model: bool,
}

impl Room {
    /// The room that limits leave (those on one user of the queue, or those on all), where the job can use this many GPUs of each
    /// model. `None` if they say nothing of GPUs.
    pub(crate) fn of<'m>(
        queue: &str,
        of_user: bool,
        limits: &Limits,
        usable: impl Iterator<Item = (&'m &'m str, &'m i64)>,
    ) -> Option<Self> {
        let finite = |resource: &Resource| match limits.get(resource) {
            Some(Amount::Finite(milli)) => Some(*milli),
            _ => None,
        };
        let of_model = |(model, gpus): (&&str, &i64)| {
            let all = gpus * i64::from(WHOLE_MILLI);
            finite(&Resource::Model((*model).to_owned())).map_or(all, |limit| limit.min(all))
        };
        let names_models = limits.keys().any(|resource| matches!(resource, Resource::Model(_)));
        let by_models: Option<i64> = names_models.then(|| usable.map(of_model).sum());
        let milli = finite(&Resource::Any).into_iter().chain(by_models).min()?;
        let by_model = finite(&Resource::Any).is_none_or(|any| milli < any);
        Some(Self { queue: queue.to_owned(), of_user, milli, by_model })
    }

    /// Whether this many GPUs are more than the room.
    pub(crate) fn is_below(&self, gpus: u32) -> bool {
        self.milli < i64::from(gpus) * i64::from(WHOLE_MILLI)
    }
}

impl std::fmt::Display for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (queue, gpus) = (&self.queue, self.milli as f64 / f64::from(WHOLE_MILLI));
        let whose = if self.of_user { "the limit of a user of queue" } else { "the limit of queue" };
        if self.by_model {
            write!(f, "{whose} {queue} leaves it {gpus} of the models that it may use")
        } else {
            write!(f, "{whose} {queue} is {gpus}")
        }
    }
}

/// A job that waits though nothing else can happen any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranded {
    /// Its place in the trace after merging, from 0.
    pub row: usize,
    /// Its name in the trace.
    pub id: String,
    /// Its queue.
    pub queue: String,
    /// What it waits for, as a code: `DV-LENT-OUT`.
    pub code: &'static str,
    /// The same in words.
    pub why: String,
}

impl Stranded {
    pub(crate) fn of(row: usize, job: &Arrival, reason: &Reason) -> Self {
        Self {
            row,
            id: job.id.clone(),
            queue: job.queue.clone(),
            code: reason.code(),
            why: reason.to_string(),
        }
    }

    /// The same, where the replay gave up after this many moments at which that might have changed.
    pub(crate) fn after(self, rounds: usize) -> Self {
        Self { why: format!("{}; no more than {rounds} renewals were awaited", self.why), ..self }
    }
}

fn gpus_in_words(count: u32) -> String {
    if count == 1 { "1 GPU".into() } else { format!("{count} GPUs") }
}

/// Says what the row asks for, and what the nodes that it may use have.
fn no_room(job: &Arrival, nodes: &[&ClusterNode], speeds: Option<&Speeds>) -> String {
    let (gpus, wanted) = (job.gpus, gpus_in_words(job.gpus));
    let models: Option<Vec<&str>> =
        speeds.map(|speeds| speeds.models(&job.name, gpus).map(|(model, _)| model).collect());
    if models.as_ref().is_some_and(Vec::is_empty) {
        return format!("--speeds has no row of {:?} with {wanted} for {BASE_MODEL}", job.name);
    }
    let usable = nodes
        .iter()
        .filter(|node| models.as_ref().is_none_or(|models| models.contains(&node.model.as_str())));
    let counts: Vec<u32> = usable.map(|node| node.gpus).collect();
    let all: u64 = counts.iter().map(|count| u64::from(*count)).sum();
    let largest = counts.iter().max().copied().unwrap_or(0);
    if u64::from(gpus) > all {
        format!("it asks for {wanted}, and the nodes that it may use have {all}")
    } else if gpus <= GPUS_OF_A_TASK {
        format!("it asks for {wanted} on one node, and the largest that it may use has {largest}")
    } else {
        format!(
            "it asks for {wanted}, {GPUS_OF_A_TASK} to a node and the rest on one, and the nodes that it may use \
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
    fn a_job_of_more_tasks_than_the_core_takes_is_told_its_gpus() {
        let (user, name) = (String::new(), String::new());
        let job = Arrival { id: "a".into(), submit_s: 0, gpus: 900_000, queue: "q".into(), user, name };
        let rejection = Rejection::BadSpec { field: "tasks", what: "write 1 to 100000 tasks".into() };
        let refused = Refused::by_core(0, &job, &rejection, &[], None);
        assert_eq!(refused.why, "it asks for 900000 GPUs, and the nodes that it may use have 0");
    }

    #[test]
    fn a_refusal_says_what_the_row_asks_for_and_what_there_is() {
        assert_eq!(why(99, &[8, 8]), "it asks for 99 GPUs, and the nodes that it may use have 16");
        assert_eq!(why(1, &[0]), "it asks for 1 GPU, and the nodes that it may use have 0");
        assert_eq!(why(6, &[4, 4]), "it asks for 6 GPUs on one node, and the largest that it may use has 4");
        assert!(
            why(16, &[4; 4]).contains("16 GPUs, 8 to a node and the rest on one"),
            "{}",
            why(16, &[4; 4])
        );
    }
}
