//! One cluster as many pools or as one: a replay of each, side by side, and what came of all.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use divvy_core::amount::{Amount, Limits, Resource};
use divvy_core::model::policy::Policy;
pub use divvy_core::model::queue::Queue;

use crate::metrics::{Finished, PoolRun, Summary, summarise_pools};
use crate::policy::Class;
use crate::refused::Refused;
use crate::replay::{Replay, ReplayError, merged_digest, replay};
use crate::timeline::Timeline;
use crate::trace::cluster::ClusterNode;
use crate::trace::interval::Interval;
use crate::trace::jobs::TraceJob;
use crate::trace::speeds::Speeds;

/// Where jobs may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pools {
    /// On the nodes whose pool is the job's queue.
    #[default]
    Own,
    /// On every node; the GPUs of a queue's own nodes are its guarantee.
    Shared,
}

/// A text that is neither.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither own nor shared")]
pub struct NotPools(String);

impl FromStr for Pools {
    type Err = NotPools;

    fn from_str(text: &str) -> Result<Self, NotPools> {
        match text {
            "own" => Ok(Self::Own),
            "shared" => Ok(Self::Shared),
            _ => Err(NotPools(text.chars().take(40).collect())),
        }
    }
}

/// What a replay of a whole cluster takes.
pub struct Request<'a> {
    /// All nodes.
    pub nodes: &'a [ClusterNode],
    /// All jobs, in the order of their submission.
    pub jobs: Vec<TraceJob>,
    /// Where they may run.
    pub pools: Pools,
    /// The queues; none for one of each name in the trace.
    pub queues: Vec<Queue>,
    /// How it decides.
    pub policy: Policy,
    /// What it may know.
    pub class: Class,
    /// What each later start of a job costs, in milliseconds.
    pub restart_ms: i64,
    /// How fast each kind of job runs on each model; without it all run as fast on any.
    pub speeds: Option<&'a Speeds>,
    /// How many pools are replayed at once. It changes nothing but the time that it takes.
    pub threads: usize,
}

/// What came of it.
pub struct Outcome {
    /// Each pool, by name: its GPUs and the jobs that ended in it, with their rows in the whole trace.
    pub pools: Vec<(u32, Vec<Finished>)>,
    /// Jobs that could never run, and why, in the order of the trace.
    pub refused: Vec<Refused>,
    /// The hash of all decisions.
    pub digest: u64,
    /// How many events there were.
    pub events: u64,
    /// How many jobs waited and how many GPUs were held, over time, in all pools.
    pub timeline: Timeline,
}

impl Outcome {
    /// Sums up all pools; `measured` are the rows that means and percentiles are taken over.
    pub fn summary(&self, measured: Interval) -> Summary {
        let runs = self.pools.iter().map(|(gpus, finished)| PoolRun { gpus: *gpus, finished });
        let mut summary = summarise_pools(&runs.collect::<Vec<_>>(), measured);
        summary.all.refused = self.refused.len();
        for refused in &self.refused {
            summary.by_queue.entry(refused.queue.clone()).or_default().refused += 1;
        }
        summary
    }

    /// The GPUs of all pools.
    pub fn gpus(&self) -> u32 {
        self.pools.iter().fold(0, |sum, (gpus, _)| sum.saturating_add(*gpus))
    }
}

/// Replays a cluster. `ended` is told how many more jobs have ended, from several threads.
pub fn replay_pools(request: Request<'_>, ended: &(impl Fn(usize) + Sync)) -> Result<Outcome, ReplayError> {
    let (parts, refused) = split(request.nodes, request.jobs, request.pools, &request.queues);
    let done = side_by_side(&parts, request.threads, |part| {
        let setup = Replay {
            nodes: part.nodes.clone(),
            queues: part.queues.clone(),
            policy: request.policy.clone(),
            class: request.class,
            restart_ms: request.restart_ms,
            speeds: request.speeds,
        };
        let mut before = 0;
        replay(setup, &part.jobs, |now| {
            ended(now - before);
            before = now;
        })
    });
    let (pools, events, timeline) = (Vec::new(), 0, Timeline::default());
    let mut outcome = Outcome { pools, refused, digest: 0, events, timeline };
    let mut digests = Vec::new();
    for (part, replayed) in parts.iter().zip(done) {
        let mut replayed = replayed?;
        replayed.finished.iter_mut().for_each(|job| job.row = part.rows[job.row]);
        outcome.refused.extend(replayed.refused.into_iter().map(|(row, why)| {
            let arrival = &part.jobs[row].arrival;
            Refused::by_core(part.rows[row], arrival, &why, &part.nodes, request.speeds)
        }));
        outcome.pools.push((part.nodes.iter().map(|node| node.gpus).sum(), replayed.finished));
        outcome.events += replayed.events;
        outcome.timeline.add(replayed.timeline);
        digests.push(replayed.digest);
    }
    outcome.refused.sort_by_key(|refused| refused.row);
    Ok(Outcome { digest: merged_digest(&digests), ..outcome })
}

/// Does the same with each part, several at once; results are in the order of the parts.
fn side_by_side<P: Sync, R: Send>(parts: &[P], threads: usize, work: impl Fn(&P) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::new());
    let one_after_the_other = || {
        while let Some((at, part)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, parts.get(at)?)))
        {
            let result = work(part);
            done.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((at, result));
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(parts.len()) {
            scope.spawn(one_after_the_other);
        }
        one_after_the_other();
    });
    let mut done = done.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// One pool with its jobs.
#[derive(Default)]
struct Part<'a> {
    nodes: Vec<&'a ClusterNode>,
    queues: Vec<Queue>,
    jobs: Vec<TraceJob>,
    /// The row in the whole trace of each of the jobs.
    rows: Vec<usize>,
}

/// The pools that have jobs, by name, and the jobs that have no pool.
fn split<'a>(
    nodes: &'a [ClusterNode],
    jobs: Vec<TraceJob>,
    pools: Pools,
    queues: &[Queue],
) -> (Vec<Part<'a>>, Vec<Refused>) {
    let name_of = |pool: &str| match pools {
        Pools::Own => pool.to_owned(),
        Pools::Shared => String::new(),
    };
    let mut parts: BTreeMap<String, Part<'_>> = BTreeMap::new();
    for node in nodes {
        parts.entry(name_of(&node.pool)).or_default().nodes.push(node);
    }
    let mut homeless = Vec::new();
    for (row, job) in jobs.into_iter().enumerate() {
        match parts.get_mut(&name_of(&job.arrival.queue)) {
            Some(part) => {
                part.rows.push(row);
                part.jobs.push(job);
            }
            None => homeless.push(Refused::without_nodes(row, &job.arrival)),
        }
    }
    let mut parts: Vec<_> = parts.into_values().filter(|part| !part.jobs.is_empty()).collect();
    for part in &mut parts {
        part.queues = match pools {
            _ if !queues.is_empty() => queues.to_vec(),
            Pools::Own => Vec::new(),
            Pools::Shared => with_guarantees(part),
        };
    }
    (parts, homeless)
}

/// Reads the text of a queues.yaml.
pub fn queues(text: &str) -> Result<Vec<Queue>, String> {
    let settings = divvy_core::model::queue::parse(text).map_err(|error| error.to_string())?;
    Ok(settings.queues)
}

/// A queue of each name in the trace, whose guarantee are the GPUs of its own nodes.
fn with_guarantees(part: &Part<'_>) -> Vec<Queue> {
    let mut gpus: BTreeMap<&str, i64> = BTreeMap::new();
    for job in &part.jobs {
        gpus.entry(&job.arrival.queue).or_default();
    }
    for node in &part.nodes {
        gpus.entry(&node.pool).and_modify(|gpus| *gpus += i64::from(node.gpus));
    }
    let queue = |(name, gpus): (&str, i64)| {
        let guarantee = Limits::from([(Resource::Any, Amount::Finite(gpus * 1000))]);
        Queue { guarantee, ..Queue::named(name) }
    };
    gpus.into_iter().map(queue).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Named;
    use crate::trace::jobs::{Arrival, Fate};

    fn node(name: &str, pool: &str) -> ClusterNode {
        let (node, pool) = (name.to_owned(), pool.to_owned());
        ClusterNode { node, model: "generic".into(), gpus: 8, cpu_milli: 96_000, memory_mib: 1 << 19, pool }
    }

    fn job(id: &str, queue: &str, submit_s: i64, duration_s: i64) -> TraceJob {
        let (user, name) = (String::new(), String::new());
        let arrival = Arrival { id: id.into(), submit_s, gpus: 8, queue: queue.into(), user, name };
        TraceJob { arrival, fate: Fate::new(duration_s, String::new()) }
    }

    /// Two nodes, one of each pool; all jobs need a whole one.
    fn outcome(pools: Pools, threads: usize, jobs: Vec<TraceJob>) -> Outcome {
        let nodes = [node("n1", "a"), node("n2", "b")];
        let (policy, class) = (Named::Fifo.settings(), Named::Fifo.class());
        let queues = Vec::new();
        let (restart_ms, speeds) = (30_000, None);
        let request =
            Request { nodes: &nodes, jobs, pools, queues, policy, class, restart_ms, speeds, threads };
        replay_pools(request, &|_| ()).unwrap()
    }

    fn ends(outcome: &Outcome) -> Vec<(usize, &str, i64)> {
        let all = outcome.pools.iter().flat_map(|(_, finished)| finished);
        let mut ends: Vec<_> = all.map(|job| (job.row, job.id.as_str(), job.finish_s)).collect();
        ends.sort_unstable();
        ends
    }

    fn three_jobs() -> Vec<TraceJob> {
        vec![job("a1", "a", 0, 100), job("a2", "a", 1, 100), job("b1", "b", 2, 10)]
    }

    #[test]
    fn own_pools_share_nothing_and_rows_are_those_of_the_whole_trace() {
        let outcome = outcome(Pools::Own, 1, three_jobs());
        assert_eq!(ends(&outcome), [(0, "a1", 100), (1, "a2", 200), (2, "b1", 12)]);
        assert_eq!((outcome.pools.len(), outcome.gpus()), (2, 16));
        assert_eq!(outcome.summary("1..1".parse().unwrap()).all.mean_jct_s, 199.0);
    }

    #[test]
    fn a_shared_pool_is_open_to_every_queue() {
        let outcome = outcome(Pools::Shared, 1, three_jobs());
        assert_eq!(ends(&outcome), [(0, "a1", 100), (1, "a2", 101), (2, "b1", 110)]);
    }

    #[test]
    fn threads_change_no_decision() {
        let many = || (0..40).map(|row| job(&row.to_string(), ["a", "b"][row % 2], row as i64, 7)).collect();
        let (one, two) = (outcome(Pools::Own, 1, many()), outcome(Pools::Own, 2, many()));
        assert_eq!((one.digest, one.events), (two.digest, two.events));
        assert_eq!(ends(&one), ends(&two));
    }

    #[test]
    fn jobs_without_a_pool_and_jobs_larger_than_theirs_are_told() {
        let mut jobs = three_jobs();
        jobs[1].arrival.gpus = 64;
        jobs[2].arrival.queue = "c".into();
        let outcome = outcome(Pools::Own, 1, jobs);
        let ids: Vec<_> = outcome.refused.iter().map(|refused| refused.id.as_str()).collect();
        assert_eq!((ends(&outcome).len(), ids), (1, vec!["a2", "b1"]));
        assert_eq!(outcome.refused[0].why, "it asks for 64 GPUs, and the nodes that it may use have 8");
        assert_eq!(outcome.refused[1].why, "no node is of the pool c");
        let summary = outcome.summary(Interval::ALL);
        let refused = |queue: &str| summary.by_queue[queue].refused;
        assert_eq!((summary.all.refused, refused("a"), refused("c")), (2, 1, 1));
    }

    #[test]
    fn work_beyond_the_end_of_virtual_time_is_an_error_of_its_own() {
        let years = |count: i64| count * 366 * 86_400;
        let jobs = (0..3).map(|row| job(&row.to_string(), "a", row, years(400_000))).collect();
        let nodes = [node("n1", "a")];
        let (policy, class) = (Named::Fifo.settings(), Named::Fifo.class());
        let (queues, pools, threads) = (Vec::new(), Pools::Own, 1);
        let (restart_ms, speeds) = (30_000, None);
        let request =
            Request { nodes: &nodes, jobs, pools, queues, policy, class, restart_ms, speeds, threads };
        let error = replay_pools(request, &|_| ()).err().unwrap();
        assert_eq!(
            error.to_string(),
            "virtual time ends after 1000000 years, before job 2 does; 1 jobs are left"
        );
    }
}
