//! The results of a replay: completion times, waits, fairness, use.
//!
//! Sums are integers, so that a mean does not depend on the order of its terms; floats appear in the last division.
//! Jobs are counted one by one when they end, and none of them is kept: four bytes remain of each, for the
//! percentiles.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ranks::{Seconds, at_rank};
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
    /// Seconds that count as work: the duration or, where models differ in speed, the time it held its GPUs.
    pub worked_s: i64,
    /// How often it was stopped before its end.
    pub preemptions: u32,
    /// What it got compared with its fair share.
    pub fairness: Fairness,
}

/// A job that a time limit ended before its work was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
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
    /// When it was ended.
    pub finish_s: i64,
    /// Seconds of undisturbed work that it would have needed.
    pub duration_s: i64,
    /// Seconds that count as work, as for a finished job: what it did.
    pub worked_s: i64,
    /// How often it was stopped before that.
    pub preemptions: u32,
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
    /// How many jobs of the whole trace wait when nothing else can happen.
    #[serde(default)]
    pub stranded: usize,
    /// How many of the measured jobs finished.
    pub finished: usize,
    /// How many of them a time limit ended before their work was done. They are in no mean.
    #[serde(default)]
    pub ended_by_limit: usize,
    /// The mean time from submission to the end.
    pub mean_jct_s: f64,
    /// The median.
    pub p50_jct_s: i64,
    /// The 90th percentile.
    pub p90_jct_s: i64,
    /// The 99th percentile.
    pub p99_jct_s: i64,
    /// The mean completion time less the job's duration; where models differ in speed, less the time for which it held its GPUs.
    pub mean_wait_s: f64,
    /// How often jobs were stopped before their end.
    pub preemptions: u64,
    /// The largest finish-time fairness.
    pub worst_rho: f64,
    /// The share of jobs that did worse than their fair share: with a finish-time fairness above 1.
    pub unfair_fraction: f64,
}

/// Jobs that ended, as they are counted one by one.
pub struct Tallies {
    measured: Interval,
    gpus: i128,
    work_gpu_s: i128,
    first_submit_s: Option<i64>,
    last_finish_s: Option<i64>,
    by_queue: BTreeMap<String, Tally>,
    /// Completion times of the jobs that are not measured: for the drawing alone.
    others_jct_s: Seconds,
}

impl Tallies {
    /// Returns empty tallies of a pool of so many GPUs; means and percentiles are taken over the rows `measured`.
    pub fn new(gpus: u32, measured: Interval) -> Self {
        Self {
            measured,
            gpus: gpus.into(),
            work_gpu_s: 0,
            first_submit_s: None,
            last_finish_s: None,
            by_queue: BTreeMap::new(),
            others_jct_s: Seconds::default(),
        }
    }

    /// Counts a job that ended.
    pub fn count(&mut self, job: &Finished) {
        self.count_work(job.gpus, job.worked_s, (job.submit_s, job.finish_s));
        if !self.measured.has_row(job.row) {
            return self.others_jct_s.push(job.finish_s - job.submit_s);
        }
        if let Some(tally) = self.tally(&job.queue) {
            tally.count(job);
        }
    }

    /// Counts a job that a time limit ended: its work and its end count, but it has no completion time.
    pub fn count_cut(&mut self, job: &Cut) {
        self.count_work(job.gpus, job.worked_s, (job.submit_s, job.finish_s));
        if !self.measured.has_row(job.row) {
            return;
        }
        if let Some(tally) = self.tally(&job.queue) {
            tally.ended_by_limit += 1;
            tally.preemptions += u64::from(job.preemptions);
        }
    }

    fn count_work(&mut self, gpus: u32, worked_s: i64, (submit_s, finish_s): (i64, i64)) {
        self.work_gpu_s += i128::from(worked_s) * i128::from(gpus);
        self.first_submit_s = self.first_submit_s.into_iter().chain([submit_s]).min();
        self.last_finish_s = self.last_finish_s.max(Some(finish_s));
    }

    /// The tally of a queue. A name is copied only the first time.
    fn tally(&mut self, queue: &str) -> Option<&mut Tally> {
        if !self.by_queue.contains_key(queue) {
            self.by_queue.insert(queue.to_owned(), Tally::default());
        }
        self.by_queue.get_mut(queue)
    }

    /// Adds what was counted in another pool, which shares nothing with this one.
    pub fn add(&mut self, other: Self) {
        self.gpus += other.gpus;
        self.work_gpu_s += other.work_gpu_s;
        self.first_submit_s = self.first_submit_s.into_iter().chain(other.first_submit_s).min();
        self.last_finish_s = self.last_finish_s.max(other.last_finish_s);
        for (queue, tally) in other.by_queue {
            self.by_queue.entry(queue).or_default().add(tally);
        }
        self.others_jct_s.append(other.others_jct_s);
    }

    /// Sums up, and returns the completion times of all jobs, measured or not, in several sorted lists.
    pub fn close(mut self) -> (Summary, Vec<Seconds>) {
        self.by_queue.values_mut().for_each(|tally| tally.jct_s.sort());
        self.others_jct_s.sort();
        let all = Figures::of(&self.by_queue.values().collect::<Vec<_>>());
        let by_queue = self.by_queue.iter().map(|(queue, tally)| (queue.clone(), Figures::of(&[tally])));
        let by_queue = by_queue.collect();
        let makespan_s = self.makespan_s();
        let summary = Summary { all, makespan_s, gpu_utilization: self.utilization(makespan_s), by_queue };
        let lists = self.by_queue.into_values().map(|tally| tally.jct_s);
        (summary, lists.chain([self.others_jct_s]).collect())
    }

    fn makespan_s(&self) -> i64 {
        self.last_finish_s.zip(self.first_submit_s).map_or(0, |(last, first)| last - first)
    }

    fn utilization(&self, makespan_s: i64) -> f64 {
        let room = self.gpus * i128::from(makespan_s);
        if room == 0 { 0.0 } else { self.work_gpu_s as f64 / room as f64 }
    }
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

/// Shorter jobs count as this long in their fairness: else one second's wait would be unfair to a job of one second.
const SHORTEST_FAIR_S: i64 = 60;

/// The demand on a pool: the integral over time, up to now, of max(GPUs of the pool, GPUs wanted by unfinished
/// jobs).
///
/// Contention at a moment is max(1, GPUs wanted by unfinished jobs ÷ GPUs of the pool). With I the integral over the
/// stay of a job, the mean contention is I ÷ (pool · stay), hence ρ = stay² · pool ÷ (duration · I): whole numbers up
/// to the last division. All that must be kept per job is the integral at its arrival.
#[derive(Clone, Copy, Debug, Default)]
pub struct Contention {
    pool_gpus: i128,
    wanted_gpus: i128,
    now_s: i64,
    integral: i128,
}

impl Contention {
    /// Returns the contention of a pool of this many GPUs in which nothing is wanted.
    pub fn new(pool_gpus: u32) -> Self {
        Self { pool_gpus: pool_gpus.into(), ..Self::default() }
    }

    /// Adds a submitted job. Returns the integral up to then.
    pub fn arrives(&mut self, at_s: i64, gpus: u32) -> i128 {
        self.pass_to(at_s);
        self.wanted_gpus += i128::from(gpus);
        self.integral
    }

    /// Removes a job that ended, submitted when the integral was `before`. Returns its fairness.
    pub fn ends(&mut self, job: Stay, before: i128) -> Fairness {
        self.pass_to(job.finish_s);
        self.wanted_gpus -= i128::from(job.gpus);
        let stay = i128::from(job.finish_s - job.submit_s);
        let duration = i128::from(job.duration_s.max(SHORTEST_FAIR_S));
        Fairness { over: stay * stay * self.pool_gpus, under: duration * (self.integral - before) }
    }

    /// Moves on to a time; calls come in the order of time.
    fn pass_to(&mut self, at_s: i64) {
        self.integral += i128::from(at_s - self.now_s) * self.wanted_gpus.max(self.pool_gpus);
        self.now_s = at_s;
    }
}

/// The stay of a job: from when to when it was there, its GPUs, and how long it worked.
#[derive(Clone, Copy, Debug)]
pub struct Stay {
    /// The GPUs that it wanted all the time.
    pub gpus: u32,
    /// When it was submitted.
    pub submit_s: i64,
    /// When it ended.
    pub finish_s: i64,
    /// Seconds of undisturbed work.
    pub duration_s: i64,
}

/// Sums over some of the jobs.
#[derive(Default)]
struct Tally {
    jct_s: Seconds,
    sum_jct_s: i128,
    sum_wait_s: i128,
    preemptions: u64,
    worst_rho: f64,
    unfair: usize,
    ended_by_limit: usize,
}

impl Tally {
    fn count(&mut self, job: &Finished) {
        let jct_s = job.finish_s - job.submit_s;
        self.jct_s.push(jct_s);
        self.sum_jct_s += i128::from(jct_s);
        self.sum_wait_s += i128::from(jct_s - job.worked_s);
        self.preemptions += u64::from(job.preemptions);
        self.worst_rho = self.worst_rho.max(job.fairness.rho());
        self.unfair += usize::from(job.fairness.is_unfair());
    }

    fn add(&mut self, other: Self) {
        self.jct_s.append(other.jct_s);
        self.sum_jct_s += other.sum_jct_s;
        self.sum_wait_s += other.sum_wait_s;
        self.preemptions += other.preemptions;
        self.worst_rho = self.worst_rho.max(other.worst_rho);
        self.unfair += other.unfair;
        self.ended_by_limit += other.ended_by_limit;
    }
}

impl Figures {
    /// Figures over several tallies whose times are sorted.
    fn of(tallies: &[&Tally]) -> Self {
        let times: Vec<&Seconds> = tallies.iter().map(|tally| &tally.jct_s).collect();
        let count: usize = times.iter().map(|times| times.len()).sum();
        let sum = |of: fn(&Tally) -> i128| tallies.iter().map(|tally| of(tally)).sum::<i128>() as f64;
        let per_job = |sum: f64| if count == 0 { 0.0 } else { sum / count as f64 };
        // By nearest rank: the smallest value that at least this percentage of all values does not exceed.
        let percentile = |percent: usize| at_rank(&times, (count * percent).div_ceil(100));
        Self {
            refused: 0,
            stranded: 0,
            finished: count,
            ended_by_limit: tallies.iter().map(|tally| tally.ended_by_limit).sum(),
            mean_jct_s: per_job(sum(|tally| tally.sum_jct_s)),
            p50_jct_s: percentile(50),
            p90_jct_s: percentile(90),
            p99_jct_s: percentile(99),
            mean_wait_s: per_job(sum(|tally| tally.sum_wait_s)),
            preemptions: tallies.iter().map(|tally| tally.preemptions).sum(),
            worst_rho: tallies.iter().map(|tally| tally.worst_rho).fold(0.0, f64::max),
            unfair_fraction: per_job(tallies.iter().map(|tally| tally.unfair).sum::<usize>() as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The jobs A..E of one node with eight GPUs, with the times at which a policy ends them.
    fn five_jobs(finish_s: [i64; 5]) -> Vec<Finished> {
        let jobs =
            [("A", 0, 8, 1000), ("B", 10, 4, 300), ("C", 20, 4, 100), ("D", 30, 1, 50), ("E", 40, 8, 20)];
        let mut contention = Contention::new(8);
        let before = jobs.map(|(_, submit_s, gpus, _)| contention.arrives(submit_s, gpus));
        let mut order: Vec<usize> = (0..jobs.len()).collect();
        order.sort_by_key(|row| finish_s[*row]);
        let job = |row: usize| {
            let (id, submit_s, gpus, duration_s) = jobs[row];
            let finish_s = finish_s[row];
            let stay = Stay { gpus, submit_s, finish_s, duration_s };
            Finished {
                row,
                id: id.to_owned(),
                queue: if gpus == 8 { "large" } else { "small" }.to_owned(),
                gpus,
                submit_s,
                start_s: finish_s - duration_s,
                finish_s,
                duration_s,
                worked_s: duration_s,
                preemptions: u32::from(row == 0),
                fairness: contention.ends(stay, before[row]),
            }
        };
        order.into_iter().map(job).collect()
    }

    fn summarise(jobs: &[Finished], measured: Interval) -> Summary {
        let mut tallies = Tallies::new(8, measured);
        jobs.iter().for_each(|job| tallies.count(job));
        tallies.close().0
    }

    fn fairness_of(jobs: &[Finished], id: &str) -> Fairness {
        jobs.iter().find(|job| job.id == id).unwrap().fairness
    }

    /// By hand: A runs alone until 10, then 12, 16, 17 and 25 GPUs are wanted of 8, and so on.
    #[test]
    fn figures_of_five_jobs_first_come_first_served_are_those_worked_out_by_hand() {
        let summary = summarise(&five_jobs([1000, 1300, 1100, 1150, 1320]), Interval::ALL);
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
        // A from 0 to 1000: 8 GPUs wanted for 10 s, then 12, 16 and 17 for 10 s each, then 25 for 960 s, of 8.
        let integral = 80 + 120 + 160 + 170 + 960 * 25;
        let a = fairness_of(&jobs, "A");
        assert_eq!(a, Fairness { over: 1000 * 1000 * 8, under: 1000 * integral });
        assert!(!a.is_unfair());
        // E from 40 to 1320: 25 until 1000, 17 until 1100, 13 until 1150, 12 until 1300, then 8; its 20 s count as 60.
        let integral = 960 * 25 + 100 * 17 + 50 * 13 + 150 * 12 + 20 * 8;
        let e = fairness_of(&jobs, "E");
        assert_eq!(e, Fairness { over: 1280 * 1280 * 8, under: 60 * integral });
        assert!(e.is_unfair() && e.rho() > 7.7 && e.rho() < 7.8);
    }

    #[test]
    fn means_are_over_the_measured_rows_but_contention_over_all() {
        let jobs = five_jobs([1000, 1300, 1100, 1150, 1320]);
        let (some, all) = (summarise(&jobs, "3..4".parse().unwrap()), summarise(&jobs, Interval::ALL));
        assert_eq!((some.all.finished, some.all.mean_jct_s), (2, 1200.0));
        assert_eq!((some.makespan_s, some.gpu_utilization), (all.makespan_s, all.gpu_utilization));
        assert_eq!(some.all.worst_rho, fairness_of(&jobs, "E").rho());
    }

    #[test]
    fn pools_that_are_counted_apart_sum_up_as_one_count_and_all_times_are_kept() {
        let jobs = five_jobs([1000, 1300, 1100, 1150, 1320]);
        let (mut one, mut other) =
            (Tallies::new(3, "1..4".parse().unwrap()), Tallies::new(5, "1..4".parse().unwrap()));
        jobs.iter().for_each(|job| if job.gpus == 4 { one.count(job) } else { other.count(job) });
        one.add(other);
        let (summary, times) = one.close();
        assert_eq!(summary, summarise(&jobs, "1..4".parse().unwrap()));
        assert_eq!([1, 5].map(|rank| at_rank(&times, rank)), [1000, 1290]);
    }

    #[test]
    fn nothing_that_finished_is_summed_up_as_zeros() {
        assert_eq!(summarise(&[], Interval::ALL), Summary::default());
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let figures = |times: &mut dyn Iterator<Item = i64>| {
            let mut tally = Tally::default();
            times.for_each(|jct_s| tally.jct_s.push(jct_s));
            tally.jct_s.sort();
            Figures::of(&[&tally])
        };
        let many = figures(&mut (1..=200).rev());
        assert_eq!([many.p50_jct_s, many.p90_jct_s, many.p99_jct_s], [100, 180, 198]);
        let one = figures(&mut std::iter::once(7));
        assert_eq!([one.p50_jct_s, one.p99_jct_s], [7, 7]);
    }
}
