//! One cluster as many pools or as one: a replay of each, side by side, and the results of all together.
//!
//! Each thread reads the trace again and hands every job to its pool. Only open jobs are kept and, of those that
//! have ended, what their percentiles need.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::str::FromStr;
use std::thread;

use divvy_core::amount::{Amount, Limits, Resource};
pub use divvy_core::decide::Beyond;
use divvy_core::model::policy::Policy;
pub use divvy_core::model::queue::{Queue, places};
use divvy_core::state::fingerprint;
use divvy_core::time::Time;

use crate::metrics::{Cut, Finished, Summary, Tallies};
use crate::policy::Class;
use crate::pool::beyond;
use crate::ranks::{Seconds, append};
use crate::refused::{Refused, Stranded};
use crate::replay::{Ended, Onlooker, Replay, ReplayError, Run, merged_digest, node};
use crate::timeline::Timeline;
use crate::trace::TraceError;
use crate::trace::cluster::ClusterNode;
use crate::trace::interval::Interval;
use crate::trace::source::{Survey, Trace};
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

/// A text that names neither.
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

/// The input of a replay of a whole cluster.
pub struct Request<'a> {
    /// All nodes.
    pub nodes: &'a [ClusterNode],
    /// Where all jobs are read from.
    pub trace: &'a Trace,
    /// What the trace was found to hold.
    pub survey: &'a Survey,
    /// Where they may run.
    pub pools: Pools,
    /// The queues; empty for one queue per name in the trace.
    pub queues: Vec<Queue>,
    /// How it decides.
    pub policy: Policy,
    /// What it may know.
    pub class: Class,
    /// What each later start of a job costs, in milliseconds.
    pub restart_ms: i64,
    /// How fast each kind of job runs on each model; without it all run equally fast on any.
    pub speeds: Option<&'a Speeds>,
    /// The rows that means and percentiles are taken over.
    pub measured: Interval,
    /// Whether the start and the end of each job are kept: 40 bytes each.
    pub keeps_ends: bool,
    /// How many threads share the pools. It changes only the time that it takes.
    pub threads: usize,
}

/// The result of a replay.
pub struct Outcome {
    /// The figures.
    pub summary: Summary,
    /// The GPUs of all pools that had jobs.
    pub gpus: u32,
    /// How long all jobs that ended took, measured or not, in sorted lists.
    pub jct_s: Vec<Seconds>,
    /// What became of each job that ended, in the order of the trace, if that was asked for.
    pub ends: Vec<End>,
    /// The first job of the trace that a time limit ended before its work was done; the figures count them.
    pub first_cut: Option<Cut>,
    /// Jobs that could never run, and why, in the order of the trace.
    pub refused: Vec<Refused>,
    /// Jobs that wait when nothing else can happen, and what for, in the order of the trace.
    pub stranded: Vec<Stranded>,
    /// The hash of all decisions.
    pub digest: u64,
    /// How many events there were.
    pub events: u64,
    /// How many jobs waited and how many GPUs were held, over time, in all pools.
    pub timeline: Timeline,
}

/// What became of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct End {
    /// Its place in the trace after merging, from 0.
    pub row: usize,
    /// When it first started.
    pub start_s: i64,
    /// When it ended.
    pub finish_s: i64,
    /// Its finish-time fairness.
    pub rho: f64,
    /// How often it was stopped before its end.
    pub preemptions: u32,
}

/// Replays a cluster. Several threads call `ended` with how many more jobs have ended.
pub fn replay_pools(request: Request<'_>, ended: &(impl Fn(usize) + Sync)) -> Result<Outcome, ReplayError> {
    let parts = parts(&request);
    parts.iter().try_for_each(|part| part.keeps_guarantees(&request))?;
    let shares = shares(&parts, request.threads);
    let replay_share = |share: &Share| replay_share(&request, &parts, share, ended);
    let (mut done, mut homeless) = (Vec::new(), Vec::new());
    for replayed in side_by_side(&shares, replay_share) {
        let replayed = replayed?;
        if replayed.jobs != request.survey.jobs {
            return Err(ReplayError::Changed { before: request.survey.jobs, now: replayed.jobs });
        }
        done.extend(replayed.done);
        homeless.extend(replayed.homeless);
    }
    done.sort_by_key(|(at, _)| *at);
    outcome(&request, &parts, done, homeless)
}

/// Combines the results of the parts, which are in their order.
fn outcome(
    request: &Request<'_>,
    parts: &[Part<'_>],
    done: Vec<PartDone<'_>>,
    homeless: Vec<Refused>,
) -> Result<Outcome, ReplayError> {
    let mut tallies = Tallies::new(0, request.measured);
    let (mut ends, mut refused, mut digests) = (Vec::new(), homeless, Vec::new());
    let (mut events, mut timeline, mut first_cut) = (0, Timeline::default(), None);
    let mut stranded = Vec::new();
    for (_, played) in done {
        let (books, ended) = played?;
        tallies.add(books.tallies);
        append(&mut ends, books.ends);
        first_cut = earlier(first_cut, books.first_cut);
        refused.extend(ended.refused);
        stranded.extend(ended.stranded);
        digests.push(ended.digest);
        events += ended.events;
        timeline.add(ended.timeline);
    }
    refused.sort_by_key(|refused| refused.row);
    ends.sort_unstable_by_key(|end| end.row);
    let (mut summary, jct_s) = tallies.close();
    summary.all.refused = refused.len();
    for refused in &refused {
        summary.by_queue.entry(refused.queue.clone()).or_default().refused += 1;
    }
    stranded.sort_by_key(|stranded| stranded.row);
    summary.all.stranded = stranded.len();
    for stranded in &stranded {
        summary.by_queue.entry(stranded.queue.clone()).or_default().stranded += 1;
    }
    let gpus = parts.iter().fold(0, |sum: u32, part| sum.saturating_add(part.gpus()));
    let rows: Vec<usize> = refused.iter().map(|refused| refused.row).collect();
    let digest = merged_digest(&digests);
    // A pool's digest is of what it decided about the jobs that it took.
    let digest = if rows.is_empty() { digest } else { fingerprint(&(digest, rows)) };
    Ok(Outcome { summary, gpus, jct_s, ends, first_cut, refused, stranded, digest, events, timeline })
}

/// What one thread does.
#[derive(Clone, Default)]
struct Share {
    /// The parts that it replays, by their places among all.
    parts: Vec<usize>,
    /// How many jobs these have.
    jobs: usize,
    /// Whether it reports the jobs that belong to no part. Exactly one share does.
    tells_homeless: bool,
}

/// Deals the parts to threads: those with the most jobs first, each to the share with the fewest jobs.
fn shares(parts: &[Part<'_>], threads: usize) -> Vec<Share> {
    // Even if there is no part, one share must report the jobs that have none.
    let mut shares = vec![Share::default(); threads.min(parts.len()).max(1)];
    shares[0].tells_homeless = true;
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|at| Reverse(parts[*at].jobs));
    for at in order {
        if let Some(share) = shares.iter_mut().min_by_key(|share| share.jobs) {
            share.jobs += parts[at].jobs;
            share.parts.push(at);
        }
    }
    shares
}

/// Does the same with each share, all at once; results are in the order of the shares.
fn side_by_side<S: Sync, R: Send>(shares: &[S], work: impl Fn(&S) -> R + Sync) -> Vec<R> {
    let Some((first, others)) = shares.split_first() else { return Vec::new() };
    let work = &work;
    thread::scope(|scope| {
        let others: Vec<_> = others.iter().map(|share| scope.spawn(move || work(share))).collect();
        let mut done = vec![work(first)];
        for other in others {
            match other.join() {
                Ok(result) => done.push(result),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    })
}

/// The result of a part, by its place among all.
type PartDone<'a> = (usize, Result<(Books<'a>, Ended), ReplayError>);

/// The results of the parts of one thread.
struct ShareDone<'a> {
    done: Vec<PartDone<'a>>,
    /// Jobs of no part, if this thread reports them.
    homeless: Vec<Refused>,
    /// How many jobs the trace had.
    jobs: usize,
}

/// Reads the trace and replays some of its parts. A part that breaks off does not keep the others from finishing:
/// which error is reported must not depend on the threads.
fn replay_share<'a>(
    request: &'a Request<'_>,
    parts: &'a [Part<'a>],
    share: &Share,
    ended: &'a (dyn Fn(usize) + Sync),
) -> Result<ShareDone<'a>, TraceError> {
    let place = |(at, part): (usize, &'a Part<'a>)| (part.name.as_str(), (at, share.parts.contains(&at)));
    let places: BTreeMap<&str, (usize, bool)> = parts.iter().enumerate().map(place).collect();
    let mut playing: BTreeMap<usize, Played<'a>> = BTreeMap::new();
    let (mut homeless, mut jobs) = (Vec::new(), 0);
    for (row, job) in request.trace.jobs()?.enumerate() {
        let job = job?;
        jobs += 1;
        match places.get(request.pools.pool_of(&job.arrival.queue)) {
            Some((at, true)) => {
                let submit_s = job.arrival.submit_s;
                let played = playing.entry(*at).or_insert_with(|| parts[*at].begin(request, submit_s, ended));
                if let Ok(run) = played
                    && let Err(error) = run.take(row, job)
                {
                    *played = Err(error);
                }
            }
            None if share.tells_homeless => homeless.push(Refused::without_nodes(row, &job.arrival)),
            _ => {}
        }
    }
    let done = playing.into_iter().map(|(at, played)| (at, played.and_then(Run::end))).collect();
    Ok(ShareDone { done, homeless, jobs })
}

/// A replay under way, or why it broke off.
type Played<'a> = Result<Run<'a, Books<'a>>, ReplayError>;

/// What is recorded of the jobs of one part.
struct Books<'a> {
    tallies: Tallies,
    keeps_ends: bool,
    ends: Vec<End>,
    first_cut: Option<Cut>,
    ended: &'a (dyn Fn(usize) + Sync),
}

/// Returns the cut that comes first in the trace.
fn earlier(one: Option<Cut>, other: Option<Cut>) -> Option<Cut> {
    one.into_iter().chain(other).min_by_key(|cut| cut.row)
}

impl Onlooker for Books<'_> {
    fn ended(&mut self, _: u64, job: Finished) {
        self.tallies.count(&job);
        if self.keeps_ends {
            let Finished { row, start_s, finish_s, preemptions, fairness, .. } = job;
            self.ends.push(End { row, start_s, finish_s, rho: fairness.rho(), preemptions });
        }
        (self.ended)(1);
    }

    fn cut(&mut self, _: u64, cut: Cut) {
        self.tallies.count_cut(&cut);
        self.first_cut = earlier(self.first_cut.take(), Some(cut));
        (self.ended)(1);
    }
}

/// One pool with what is known of its jobs.
struct Part<'a> {
    /// The name of the pool; empty where all nodes are one.
    name: String,
    nodes: Vec<&'a ClusterNode>,
    queues: Vec<Queue>,
    jobs: usize,
}

impl<'a> Part<'a> {
    /// Refuses queues that a pool of these nodes would refuse. In its own pool a queue is alone: other queues have no jobs there.
    fn keeps_guarantees(&self, request: &Request<'_>) -> Result<(), ReplayError> {
        let are_alone = request.pools == Pools::Own;
        let queues = request.queues.iter().filter(|queue| !are_alone || queue.path == self.name);
        let queues: Vec<Queue> = queues.cloned().collect();
        if queues.is_empty() {
            return Ok(());
        }
        let nodes = self.nodes.iter().map(|row| node(row)).collect();
        let broken = |broken| ReplayError::Broken { at: 0, broken };
        match beyond(nodes, &queues, Time(0)).map_err(broken)? {
            Some(beyond) => Err(ReplayError::Queues(beyond)),
            None => Ok(()),
        }
    }

    fn begin(
        &'a self,
        request: &'a Request<'_>,
        start_s: i64,
        ended: &'a (dyn Fn(usize) + Sync),
    ) -> Played<'a> {
        let setup = Replay {
            nodes: self.nodes.clone(),
            queues: self.queues.clone(),
            policy: request.policy.clone(),
            class: request.class,
            restart_ms: request.restart_ms,
            speeds: request.speeds,
        };
        let tallies = Tallies::new(self.gpus(), request.measured);
        let (keeps_ends, ends, first_cut) = (request.keeps_ends, Vec::new(), None);
        Run::begin(Books { tallies, keeps_ends, ends, first_cut, ended }, setup, start_s)
    }

    fn gpus(&self) -> u32 {
        self.nodes.iter().map(|node| node.gpus).sum()
    }
}

impl Pools {
    /// Returns the name of the pool of a queue, or of a node that this queue owns.
    fn pool_of(self, queue: &str) -> &str {
        match self {
            Self::Own => queue,
            Self::Shared => "",
        }
    }
}

/// The pools that have jobs, by name.
fn parts<'a>(request: &Request<'a>) -> Vec<Part<'a>> {
    let Request { nodes, pools, survey, .. } = *request;
    let mut nodes_of: BTreeMap<&str, Vec<&ClusterNode>> = BTreeMap::new();
    for node in nodes {
        nodes_of.entry(pools.pool_of(&node.pool)).or_default().push(node);
    }
    let part = |(name, nodes): (&str, Vec<&'a ClusterNode>)| {
        let (jobs, queues) = match pools {
            Pools::Own => (survey.by_queue.get(name).copied().unwrap_or(0), vec![Queue::named(name)]),
            Pools::Shared => (survey.jobs, with_guarantees(survey, &nodes)),
        };
        let queues = if request.queues.is_empty() { queues } else { request.queues.clone() };
        Part { name: name.to_owned(), nodes, queues, jobs }
    };
    nodes_of.into_iter().map(part).filter(|part| part.jobs > 0).collect()
}

/// Reads the queues in the text of a queues.yaml, and whether it also says how to decide, which a replay is told otherwise.
pub fn queues(text: &str) -> Result<(Vec<Queue>, bool), String> {
    let settings = divvy_core::model::queue::parse(text).map_err(|error| error.to_string())?;
    let says_more = settings.policy.is_some() || settings.prices.is_some();
    Ok((settings.queues, says_more))
}

/// A queue for each name in the trace, guaranteed the GPUs of its own nodes.
fn with_guarantees(survey: &Survey, nodes: &[&ClusterNode]) -> Vec<Queue> {
    let mut gpus: BTreeMap<&str, i64> = survey.by_queue.keys().map(|queue| (queue.as_str(), 0)).collect();
    for node in nodes {
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
    use crate::trace::jobs::{Arrival, Fate, TraceJob};

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
    fn replayed(
        (pools, threads): (Pools, usize),
        jobs: Vec<TraceJob>,
        measured: Interval,
    ) -> Result<Outcome, ReplayError> {
        let trace = Trace::Jobs(jobs);
        let request = Request {
            nodes: &[node("n1", "a"), node("n2", "b")],
            trace: &trace,
            survey: &trace.survey().unwrap(),
            pools,
            queues: Vec::new(),
            policy: Named::Fifo.settings(),
            class: Named::Fifo.class(),
            restart_ms: 30_000,
            speeds: None,
            measured,
            keeps_ends: true,
            threads,
        };
        replay_pools(request, &|_| ())
    }

    fn outcome(pools: Pools, threads: usize, jobs: Vec<TraceJob>) -> Outcome {
        replayed((pools, threads), jobs, Interval::ALL).unwrap()
    }

    fn ends(outcome: &Outcome) -> Vec<(usize, i64)> {
        outcome.ends.iter().map(|end| (end.row, end.finish_s)).collect()
    }

    fn three_jobs() -> Vec<TraceJob> {
        vec![job("a1", "a", 0, 100), job("a2", "a", 1, 100), job("b1", "b", 2, 10)]
    }

    #[test]
    fn own_pools_share_nothing_and_rows_are_those_of_the_whole_trace() {
        let outcome = outcome(Pools::Own, 1, three_jobs());
        assert_eq!(ends(&outcome), [(0, 100), (1, 200), (2, 12)]);
        assert_eq!(outcome.gpus, 16);
        let one = replayed((Pools::Own, 1), three_jobs(), "1..1".parse().unwrap()).unwrap();
        assert_eq!((one.summary.all.mean_jct_s, one.ends), (199.0, outcome.ends));
    }

    #[test]
    fn a_shared_pool_is_open_to_every_queue() {
        let outcome = outcome(Pools::Shared, 1, three_jobs());
        assert_eq!(ends(&outcome), [(0, 100), (1, 101), (2, 110)]);
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
        let summary = outcome.summary;
        let refused = |queue: &str| summary.by_queue[queue].refused;
        assert_eq!((summary.all.refused, refused("a"), refused("c")), (2, 1, 1));
    }

    #[test]
    fn work_beyond_the_end_of_virtual_time_is_an_error_of_its_own() {
        let years = |count: i64| count * 366 * 86_400;
        let jobs = (0..3).map(|row| job(&row.to_string(), "a", row, years(400_000))).collect();
        let error = replayed((Pools::Own, 1), jobs, Interval::ALL).err().unwrap();
        assert_eq!(
            error.to_string(),
            "virtual time ends after 1000000 years, before job 2 does; 1 jobs are left"
        );
    }

    #[test]
    fn a_trace_that_is_changed_while_it_is_replayed_is_an_error() {
        let trace = Trace::Jobs(three_jobs());
        let mut survey = trace.survey().unwrap();
        survey.jobs += 1;
        let request = Request {
            nodes: &[node("n1", "a")],
            trace: &trace,
            survey: &survey,
            pools: Pools::Shared,
            queues: Vec::new(),
            policy: Named::Fifo.settings(),
            class: Named::Fifo.class(),
            restart_ms: 30_000,
            speeds: None,
            measured: Interval::ALL,
            keeps_ends: false,
            threads: 1,
        };
        let error = replay_pools(request, &|_| ()).err().unwrap().to_string();
        assert_eq!(error, "the trace was changed while it was replayed: it had 4 jobs, and now has 3");
    }
}
