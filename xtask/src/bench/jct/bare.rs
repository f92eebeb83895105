//! Three policies of the literature on plain arrays: an oracle that shares no code with the core, and the cost of a replay
//! that does nothing but decide. Times are whole seconds; a job is its row.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::path::Path;

use anyhow::{Context, Result};

/// GPUs of every node.
const GPUS_OF_A_NODE: i64 = 8;
/// What each later start costs, at the head of that run.
const RESTART_S: i64 = 30;

/// A policy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// By submission, strictly; nothing is stopped.
    Fifo,
    /// The least remaining time first, preemptive.
    Srtf,
    /// Levels of attained service that end at 600·4^i GPU-seconds, preemptive.
    Mlfq,
}

#[derive(Default)]
pub(super) struct Jobs {
    pub(super) submit_s: Vec<i64>,
    gpus: Vec<i64>,
    duration_s: Vec<i64>,
}

impl Jobs {
    /// Reads a trace so many times, each copy shifted by so much; the spans of copies may overlap.
    pub(super) fn read(file: &Path, copies: i64, shift_s: i64) -> Result<Self> {
        let reading = || format!("reading {}", file.display());
        let text = std::fs::read_to_string(file).with_context(reading)?;
        let mut rows = Vec::new();
        for copy in 0..copies {
            for line in text.lines().skip(1) {
                let mut cells = line.split(',').skip(1).map(str::parse::<i64>);
                let mut number = || cells.next().context("a row is too short")?.context("no number");
                rows.push((number()? + copy * shift_s, number()?, number()?));
            }
        }
        rows.sort_by_key(|(submit_s, ..)| *submit_s);
        let mut jobs = Self::default();
        for (submit_s, gpus, duration_s) in rows {
            jobs.submit_s.push(submit_s);
            jobs.gpus.push(gpus);
            jobs.duration_s.push(duration_s);
        }
        Ok(jobs)
    }
}

/// The second in which each job ends, on so many nodes.
pub(super) fn replay(jobs: &Jobs, nodes: usize, order: Order) -> Vec<i64> {
    let mut pool = Pool::new(jobs, nodes, order);
    let mut next = 0;
    loop {
        let arrival = jobs.submit_s.get(next).copied();
        let Some(now) = [arrival, pool.next_due()].into_iter().flatten().min() else { break };
        let mut news = pool.run_until(now);
        while jobs.submit_s.get(next).is_some_and(|at| *at <= now) {
            pool.waiting.push_back(next);
            next += 1;
            news = true;
        }
        match order {
            _ if !news => {}
            Order::Fifo => pool.start_in_order(now),
            Order::Srtf | Order::Mlfq => pool.walk(now),
        }
    }
    pool.finish_s
}

struct Pool<'a> {
    jobs: &'a Jobs,
    order: Order,
    free: Vec<i64>,
    waiting: VecDeque<usize>,
    running: Vec<usize>,
    /// When something happens to a job by itself, and in which of its runs.
    due: BinaryHeap<Reverse<(i64, usize, u32)>>,
    /// Of each job: starts so far, progress before this run, when its work began (or will), where it is, when it ended.
    starts: Vec<u32>,
    attained_s: Vec<i64>,
    since_s: Vec<i64>,
    places: Vec<Vec<(usize, i64)>>,
    finish_s: Vec<i64>,
}

impl<'a> Pool<'a> {
    fn new(jobs: &'a Jobs, nodes: usize, order: Order) -> Self {
        let count = jobs.submit_s.len();
        Self {
            jobs,
            order,
            free: vec![GPUS_OF_A_NODE; nodes],
            waiting: VecDeque::new(),
            running: Vec::new(),
            due: BinaryHeap::new(),
            starts: vec![0; count],
            attained_s: vec![0; count],
            since_s: vec![0; count],
            places: vec![Vec::new(); count],
            finish_s: vec![-1; count],
        }
    }

    fn next_due(&self) -> Option<i64> {
        self.due.peek().map(|Reverse((at, ..))| *at)
    }

    /// Lets what is due happen; returns whether any of it still counted.
    fn run_until(&mut self, now: i64) -> bool {
        let mut news = false;
        while self.next_due().is_some_and(|at| at <= now) {
            let Some(Reverse((_, job, run))) = self.due.pop() else { break };
            if run != self.starts[job] || self.places[job].is_empty() {
                continue;
            }
            news = true;
            if self.progress_s(job, now) >= self.jobs.duration_s[job] {
                self.leave(job);
                self.running.retain(|other| *other != job);
                self.finish_s[job] = now;
            } else {
                self.await_crossing(job, now);
            }
        }
        news
    }

    fn progress_s(&self, job: usize, now: i64) -> i64 {
        let runs = !self.places[job].is_empty();
        self.attained_s[job] + if runs { (now - self.since_s[job]).max(0) } else { 0 }
    }

    /// The progress at which a job enters each further level.
    fn thresholds(&self, job: usize) -> impl Iterator<Item = i64> + use<> {
        let gpus = self.jobs.gpus[job];
        (0..9).map(move |level| {
            (600 * 4_i64.pow(level)).div_euclid(gpus) + i64::from(600 * 4_i64.pow(level) % gpus > 0)
        })
    }

    /// Notes when a running job falls a level.
    fn await_crossing(&mut self, job: usize, now: i64) {
        let progress = self.progress_s(job, now);
        if let Some(next) = self.thresholds(job).find(|threshold| *threshold > progress) {
            let at = self.since_s[job] + next - self.attained_s[job];
            self.due.push(Reverse((at, job, self.starts[job])));
        }
    }

    /// What the order compares first.
    fn key(&self, job: usize, now: i64) -> i64 {
        let progress = self.progress_s(job, now);
        match self.order {
            Order::Fifo => 0,
            Order::Srtf => self.jobs.duration_s[job] - progress,
            Order::Mlfq => self.thresholds(job).take_while(|threshold| *threshold <= progress).count() as i64,
        }
    }

    /// The node that takes so many GPUs and is left with the fewest, apart from the nodes that are taken whole.
    fn best_fit(&self, gpus: i64, whole: &[(usize, i64)]) -> Option<usize> {
        let fits = |node: &usize| self.free[*node] >= gpus && whole.iter().all(|(taken, _)| taken != node);
        (0..self.free.len()).filter(fits).min_by_key(|node| self.free[*node])
    }

    fn find(&self, gpus: i64) -> Option<Vec<(usize, i64)>> {
        let (whole, rest) = (gpus / GPUS_OF_A_NODE, gpus % GPUS_OF_A_NODE);
        let idle = (0..self.free.len()).filter(|node| self.free[*node] == GPUS_OF_A_NODE);
        let mut places: Vec<_> = idle.take(whole as usize).map(|node| (node, GPUS_OF_A_NODE)).collect();
        if places.len() < whole as usize {
            return None;
        }
        if rest > 0 {
            places.push((self.best_fit(rest, &places)?, rest));
        }
        Some(places)
    }

    fn take(&mut self, places: &[(usize, i64)]) {
        places.iter().for_each(|(node, gpus)| self.free[*node] -= gpus);
    }

    fn leave(&mut self, job: usize) -> Vec<(usize, i64)> {
        let places = std::mem::take(&mut self.places[job]);
        places.iter().for_each(|(node, gpus)| self.free[*node] += gpus);
        places
    }

    /// Starts a waiting job, if it fits.
    fn start(&mut self, job: usize, now: i64) -> bool {
        let Some(places) = self.find(self.jobs.gpus[job]) else { return false };
        self.take(&places);
        self.places[job] = places;
        self.since_s[job] = now + if self.starts[job] > 0 { RESTART_S } else { 0 };
        self.starts[job] += 1;
        self.running.push(job);
        let end = self.since_s[job] + self.jobs.duration_s[job] - self.attained_s[job];
        self.due.push(Reverse((end, job, self.starts[job])));
        if self.order == Order::Mlfq {
            self.await_crossing(job, now);
        }
        true
    }

    fn start_in_order(&mut self, now: i64) {
        while let Some(first) = self.waiting.front().copied()
            && self.start(first, now)
        {
            self.waiting.pop_front();
        }
    }

    /// One decision of a preemptive policy.
    fn walk(&mut self, now: i64) {
        if self.waiting.is_empty() {
            return;
        }
        let active = self.running.iter().chain(&self.waiting);
        let mut line: Vec<(i64, usize)> = active.map(|job| (self.key(*job, now), *job)).collect();
        line.sort_unstable();
        let (chosen, victims) = self.choose(&line);
        let held: Vec<_> = victims.iter().map(|job| self.leave(*job)).collect();
        for job in chosen {
            self.start(job, now);
        }
        let mut stopped = Vec::new();
        for (job, places) in victims.into_iter().zip(held) {
            let stays = places.iter().all(|(node, gpus)| self.free[*node] >= *gpus);
            if stays {
                self.take(&places);
            } else {
                stopped.push(job);
            }
            self.places[job] = places;
        }
        for job in stopped {
            self.attained_s[job] = self.progress_s(job, now);
            self.places[job].clear();
        }
        self.fill(&line, now);
        self.running = line.iter().map(|(_, job)| *job).filter(|job| !self.places[*job].is_empty()).collect();
        self.waiting = line.iter().map(|(_, job)| *job).filter(|job| self.places[*job].is_empty()).collect();
    }

    /// Waiting jobs that would run and running ones that would not, if only counts mattered.
    fn choose(&self, line: &[(i64, usize)]) -> (Vec<usize>, Vec<usize>) {
        let mut left = GPUS_OF_A_NODE * self.free.len() as i64;
        let (mut chosen, mut victims) = (Vec::new(), Vec::new());
        for (_, job) in line {
            let (gpus, runs) = (self.jobs.gpus[*job], !self.places[*job].is_empty());
            match gpus <= left {
                true => {
                    left -= gpus;
                    chosen.extend((!runs).then_some(*job));
                }
                false => victims.extend(runs.then_some(*job)),
            }
        }
        (chosen, victims)
    }

    /// Starts whatever still fits, in order.
    fn fill(&mut self, line: &[(i64, usize)], now: i64) {
        // If a job does not fit, no larger one does.
        let mut too_large = i64::MAX;
        for (_, job) in line {
            let gpus = self.jobs.gpus[*job];
            if gpus < too_large && self.places[*job].is_empty() && !self.start(*job, now) {
                too_large = gpus;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_ends_as_reckoned_by_hand() {
        let jobs = Jobs {
            submit_s: vec![0, 10, 20, 30, 40],
            gpus: vec![8, 4, 4, 1, 8],
            duration_s: vec![1000, 300, 100, 50, 20],
        };
        let ends = |order| replay(&jobs, 1, order);
        assert_eq!(ends(Order::Fifo), [1000, 1300, 1100, 1150, 1320]);
        assert_eq!(ends(Order::Srtf), [1460, 440, 170, 130, 60]);
        assert_eq!(ends(Order::Mlfq), [1410, 680, 175, 225, 245]);
    }
}
