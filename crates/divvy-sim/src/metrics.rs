//! What came of a replay: completion times, waits, fairness, use.
//!
//! Sums are integers, so that a mean does not depend on the order of its terms; floats appear in the last division.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::trace::interval::Interval;

/// A job that ran to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its place in the trace after merging, from 0.
    pub row: usize,
    /// Its name in the trace.
    pub id: String,
    /// Its queue.
    pub queue: String,
    /// The GPUs that it held while it ran.
    pub gpus: u32,
    /// When it was submitted.
    pub submit_s: i64,
    /// When it first started.
    pub start_s: i64,
    /// When it ended.
    pub finish_s: i64,
    /// Seconds of undisturbed work.
    pub duration_s: i64,
    /// How often it was stopped before its end.
    pub preemptions: u32,
}

/// The jobs that ran in one pool: those of one queue where each queue has its own nodes, else all.
#[derive(Clone, Copy, Debug)]
pub struct PoolRun<'a> {
    /// The GPUs of the pool.
    pub gpus: u32,
    /// The jobs that finished in it, in any order.
    pub finished: &'a [Finished],
}

/// What came of all jobs of a replay. Times are in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The figures over all queues.
    #[serde(flatten)]
    pub all: Figures,
    /// From the first submission to the last end, of all jobs.
    pub makespan_s: i64,
    /// The part of the pools' GPU time in the makespan that was spent on progress of jobs.
    pub gpu_utilization: f64,
    /// The figures of each queue.
    pub by_queue: BTreeMap<String, Figures>,
}

/// Figures over a set of jobs. Times are in seconds; percentiles are by nearest rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// How many jobs of the whole trace could never run.
    #[serde(default)]
    pub refused: usize,
    /// How many of the measured jobs finished.
    pub finished: usize,
    /// The mean time from submission to the end.
    pub mean_jct_s: f64,
    /// The median.
    pub p50_jct_s: i64,
    /// The 90th percentile.
    pub p90_jct_s: i64,
    /// The 99th percentile.
    pub p99_jct_s: i64,
    /// The mean of that time less the duration of the job.
    pub mean_wait_s: f64,
    /// How often jobs were stopped before their end.
    pub preemptions: u64,
    /// The largest finish-time fairness.
    pub worst_rho: f64,
    /// The share of jobs that did worse than their fair share: with a finish-time fairness above 1.
    pub unfair_fraction: f64,
}

/// Sums up the jobs of one pool; `measured` are the rows that means and percentiles are taken over.
pub fn summarise(finished: &[Finished], pool_gpus: u32, measured: Interval) -> Summary {
    summarise_pools(&[PoolRun { gpus: pool_gpus, finished }], measured)
}

/// Sums up the jobs of several pools that share nothing.
pub fn summarise_pools(pools: &[PoolRun<'_>], measured: Interval) -> Summary {
    let mut all = Tally::default();
    let mut queues: BTreeMap<&str, Tally> = BTreeMap::new();
    for pool in pools {
        for (job, fairness) in pool.finished.iter().zip(fairness(pool.finished, pool.gpus)) {
            if measured.has_row(job.row) {
                all.count(job, fairness);
                queues.entry(&job.queue).or_default().count(job, fairness);
            }
        }
    }
    let by_queue = queues.into_iter().map(|(queue, tally)| (queue.to_owned(), tally.figures())).collect();
    let makespan_s = makespan_s(pools);
    Summary { all: all.figures(), makespan_s, gpu_utilization: utilization(pools, makespan_s), by_queue }
}

fn makespan_s(pools: &[PoolRun<'_>]) -> i64 {
    let jobs = || pools.iter().flat_map(|pool| pool.finished);
    let first = jobs().map(|job| job.submit_s).min();
    let last = jobs().map(|job| job.finish_s).max();
    last.zip(first).map_or(0, |(last, first)| last - first)
}

fn utilization(pools: &[PoolRun<'_>], makespan_s: i64) -> f64 {
    let work = |job: &Finished| i128::from(job.duration_s) * i128::from(job.gpus);
    let done: i128 = pools.iter().flat_map(|pool| pool.finished).map(work).sum();
    let room: i128 = pools.iter().map(|pool| i128::from(pool.gpus)).sum::<i128>() * i128::from(makespan_s);
    if room == 0 { 0.0 } else { done as f64 / room as f64 }
}

/// Finish-time fairness of a job, ρ: its completion time over what it would have been on its fair share of the pool,
/// which is its duration (of at least a minute) times the mean contention while it was there. Kept as a fraction, so
/// that "above 1" is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fairness {
    over: i128,
    under: i128,
}

impl Fairness {
    /// The number.
    pub fn rho(self) -> f64 {
        if self.under == 0 { 0.0 } else { self.over as f64 / self.under as f64 }
    }

    /// Whether the job did worse than its fair share.
    pub fn is_unfair(self) -> bool {
        self.over > self.under
    }
}

/// Jobs shorter than this count as this long in their fairness: else a second's wait of a job of one second is unfair.
const SHORTEST_FAIR_S: i64 = 60;

/// The fairness of each job, in the order given, among the jobs of its pool.
///
/// Contention at a moment is max(1, GPUs wanted by unfinished jobs ÷ GPUs of the pool). With I the integral of
/// max(pool, wanted) over the stay of the job, the mean contention is I ÷ (pool · stay), hence
/// ρ = stay² · pool ÷ (duration · I): whole numbers up to the last division.
pub fn fairness(finished: &[Finished], pool_gpus: u32) -> Vec<Fairness> {
    let integral = WantedIntegral::new(finished, pool_gpus);
    let one = |job: &Finished| {
        let stay = i128::from(job.finish_s - job.submit_s);
        let wanted = integral.up_to(job.finish_s) - integral.up_to(job.submit_s);
        let duration = i128::from(job.duration_s.max(SHORTEST_FAIR_S));
        Fairness { over: stay * stay * i128::from(pool_gpus), under: duration * wanted }
    };
    finished.iter().map(one).collect()
}

/// The integral over time of max(GPUs of the pool, GPUs wanted by unfinished jobs), known at every arrival and end.
struct WantedIntegral {
    times_s: Vec<i64>,
    sums: Vec<i128>,
}

impl WantedIntegral {
    fn new(finished: &[Finished], pool_gpus: u32) -> Self {
        let ends = |job: &Finished| {
            let gpus = i128::from(job.gpus);
            [(job.submit_s, gpus), (job.finish_s, -gpus)]
        };
        let mut changes: Vec<(i64, i128)> = finished.iter().flat_map(ends).collect();
        changes.sort_unstable();
        let (mut times_s, mut sums) = (Vec::with_capacity(changes.len()), Vec::with_capacity(changes.len()));
        let (mut wanted, mut sum) = (0, 0);
        let mut before_s = changes.first().map_or(0, |(at_s, _)| *at_s);
        for (at_s, change) in changes {
            sum += i128::from(at_s - before_s) * i128::max(wanted, pool_gpus.into());
            wanted += change;
            before_s = at_s;
            if times_s.last() != Some(&at_s) {
                times_s.push(at_s);
                sums.push(sum);
            }
        }
        Self { times_s, sums }
    }

    /// The integral up to the arrival or end of a job.
    fn up_to(&self, at_s: i64) -> i128 {
        let at = self.times_s.partition_point(|there| *there < at_s);
        self.sums.get(at).copied().unwrap_or_default()
    }
}

/// Sums over some of the jobs.
#[derive(Default)]
struct Tally {
    jct_s: Vec<i64>,
    wait_s: i128,
    preemptions: u64,
    worst_rho: f64,
    unfair: usize,
}

impl Tally {
    fn count(&mut self, job: &Finished, fairness: Fairness) {
        let jct_s = job.finish_s - job.submit_s;
        self.jct_s.push(jct_s);
        self.wait_s += i128::from(jct_s - job.duration_s);
        self.preemptions += u64::from(job.preemptions);
        self.worst_rho = self.worst_rho.max(fairness.rho());
        self.unfair += usize::from(fairness.is_unfair());
    }

    fn figures(mut self) -> Figures {
        self.jct_s.sort_unstable();
        let count = self.jct_s.len();
        let sum: i128 = self.jct_s.iter().map(|jct_s| i128::from(*jct_s)).sum();
        let per_job = |sum: f64| if count == 0 { 0.0 } else { sum / count as f64 };
        Figures {
            refused: 0,
            finished: count,
            mean_jct_s: per_job(sum as f64),
            p50_jct_s: nearest_rank(&self.jct_s, 50),
            p90_jct_s: nearest_rank(&self.jct_s, 90),
            p99_jct_s: nearest_rank(&self.jct_s, 99),
            mean_wait_s: per_job(self.wait_s as f64),
            preemptions: self.preemptions,
            worst_rho: self.worst_rho,
            unfair_fraction: per_job(self.unfair as f64),
        }
    }
}

/// The smallest value that at least so many percent of all are not above; 0 of none.
fn nearest_rank(sorted: &[i64], percent: usize) -> i64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The jobs A..E of one node with eight GPUs, with the times at which a policy ends them.
    fn five_jobs(finish_s: [i64; 5]) -> Vec<Finished> {
        let jobs =
            [("A", 0, 8, 1000), ("B", 10, 4, 300), ("C", 20, 4, 100), ("D", 30, 1, 50), ("E", 40, 8, 20)];
        let job =
            |(row, ((id, submit_s, gpus, duration_s), finish_s)): (usize, ((&str, _, _, _), i64))| Finished {
                row,
                id: id.to_owned(),
                queue: if gpus == 8 { "large" } else { "small" }.to_owned(),
                gpus,
                submit_s,
                start_s: finish_s - duration_s,
                finish_s,
                duration_s,
                preemptions: u32::from(row == 0),
            };
        jobs.into_iter().zip(finish_s).enumerate().map(job).collect()
    }

    /// By hand: A runs alone until 10, then 12, 16, 17 and 25 GPUs are wanted of 8, and so on.
    #[test]
    fn figures_of_five_jobs_first_come_first_served_are_those_worked_out_by_hand() {
        let summary = summarise(&five_jobs([1000, 1300, 1100, 1150, 1320]), 8, Interval::ALL);
        let Figures { finished, mean_jct_s, p50_jct_s, p90_jct_s, p99_jct_s, mean_wait_s, .. } = summary.all;
        assert_eq!((finished, p50_jct_s, p90_jct_s, p99_jct_s), (5, 1120, 1290, 1290));
        assert_eq!((mean_jct_s, mean_wait_s), (1154.0, 860.0));
        assert_eq!((summary.makespan_s, summary.all.preemptions), (1320, 1));
        assert_eq!(summary.gpu_utilization, (8000 + 1200 + 400 + 50 + 160) as f64 / (8.0 * 1320.0));
        assert_eq!(summary.by_queue["large"].finished, 2);
        assert_eq!(summary.by_queue["small"].mean_jct_s, (1290.0 + 1080.0 + 1120.0) / 3.0);
    }

    #[test]
    fn fairness_divides_by_the_mean_contention_of_the_stay() {
        let jobs = five_jobs([1000, 1300, 1100, 1150, 1320]);
        let fairness = fairness(&jobs, 8);
        // A from 0 to 1000: 8 GPUs wanted for 10 s, then 12, 16 and 17 for 10 s each, then 25 for 960 s, of 8.
        let integral = 80 + 120 + 160 + 170 + 960 * 25;
        assert_eq!(fairness[0], Fairness { over: 1000 * 1000 * 8, under: 1000 * integral });
        assert!(!fairness[0].is_unfair());
        // E from 40 to 1320: 25 until 1000, 17 until 1100, 13 until 1150, 12 until 1300, then 8; its 20 s count as 60.
        let integral = 960 * 25 + 100 * 17 + 50 * 13 + 150 * 12 + 20 * 8;
        assert_eq!(fairness[4], Fairness { over: 1280 * 1280 * 8, under: 60 * integral });
        assert!(fairness[4].is_unfair() && fairness[4].rho() > 7.7 && fairness[4].rho() < 7.8);
    }

    #[test]
    fn means_are_over_the_measured_rows_but_contention_over_all() {
        let jobs = five_jobs([1000, 1300, 1100, 1150, 1320]);
        let (some, all) = (summarise(&jobs, 8, "3..4".parse().unwrap()), summarise(&jobs, 8, Interval::ALL));
        assert_eq!((some.all.finished, some.all.mean_jct_s), (2, 1200.0));
        assert_eq!((some.makespan_s, some.gpu_utilization), (all.makespan_s, all.gpu_utilization));
        assert_eq!(some.all.worst_rho, fairness(&jobs, 8)[4].rho());
    }

    #[test]
    fn nothing_that_finished_is_summed_up_as_zeros() {
        assert_eq!(summarise(&[], 8, Interval::ALL), Summary::default());
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let values: Vec<i64> = (1..=200).collect();
        assert_eq!([50, 90, 99].map(|percent| nearest_rank(&values, percent)), [100, 180, 198]);
        assert_eq!([50, 99].map(|percent| nearest_rank(&[7], percent)), [7, 7]);
    }
}
