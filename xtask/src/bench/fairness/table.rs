//! How fair each policy was.

use std::fmt::Write as _;

use serde::Serialize;

use super::Outcome;
use super::account::Account;
use crate::bench::machine::Machine;
use crate::bench::report::aligned;

/// Everything that was found.
#[derive(Serialize)]
pub(super) struct Table {
    machine: Machine,
    months: Vec<Month>,
}

/// One month under one policy.
#[derive(Serialize)]
struct Month {
    queues: usize,
    gpus: u32,
    seed: u64,
    policy: String,
    jobs: usize,
    /// The part of the pool that was held.
    used: f64,
    /// The part of it that whole jobs could have held.
    usable: f64,
    /// The part of it that stood idle while a waiting job asked for no more than that.
    in_vain: f64,
    /// The largest |share − due| ÷ due of any queue.
    worst_of_due: f64,
    /// The same, in the mean over queues.
    mean_of_due: f64,
    /// The largest difference from the due of what whole jobs could have held, and how many queues are off by more than 2 %
    /// of it.
    worst_of_whole: f64,
    beyond_2_percent_of_whole: usize,
    /// The largest difference from what the queue is due over the whole time at once.
    worst_at_once: f64,
    /// How many queues are off by more than 2 % of their due.
    beyond_2_percent: usize,
    /// Half of the sum of |share − due| over the pool: the part of it that others should have had.
    misplaced: f64,
    violations: u64,
    violated_h: f64,
    longest_denial_s: i64,
    mean_wait_s: f64,
    preemptions: u64,
    cpu_s: f64,
    each: Vec<Row>,
}

/// One queue: GPUs on average.
#[derive(Serialize)]
struct Row {
    queue: String,
    wanted: f64,
    due: f64,
    due_whole: f64,
    due_at_once: f64,
    held: f64,
    of_due: f64,
    of_whole: f64,
    violations: u64,
    longest_denial_s: i64,
}

/// How far a share is off, as a part of the due. A queue that is due nothing is off by nothing.
fn off(held: f64, due: f64) -> f64 {
    if due > 0.0 { (held - due) / due } else { 0.0 }
}

impl Table {
    pub(super) fn new(machine: Machine, outcomes: &[Outcome]) -> Self {
        Self { machine, months: outcomes.iter().map(month).collect() }
    }

    pub(super) fn text(&self, each: bool) -> String {
        let head = [
            "queues",
            "GPUs",
            "seed",
            "policy",
            "jobs",
            "used %",
            "usable %",
            "in vain %",
            "worst of due %",
            "mean %",
            "beyond 2 %",
            "worst of whole %",
            "beyond 2 %",
            "at once %",
            "misplaced %",
            "violations",
            "hours",
            "longest s",
            "wait s",
            "stops",
            "CPU s",
        ];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        lines.extend(self.months.iter().map(Month::cells));
        let mut text = format!("{}\n\n{}", self.machine, aligned(lines));
        for month in self.months.iter().filter(|_| each) {
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                "\n{}, {} queues, seed {}\n{}",
                month.policy,
                month.queues,
                month.seed,
                month.rows()
            );
        }
        text
    }
}

impl Month {
    fn cells(&self) -> Vec<String> {
        vec![
            self.queues.to_string(),
            self.gpus.to_string(),
            self.seed.to_string(),
            self.policy.clone(),
            self.jobs.to_string(),
            percent(self.used),
            percent(self.usable),
            percent(self.in_vain),
            percent(self.worst_of_due),
            percent(self.mean_of_due),
            self.beyond_2_percent.to_string(),
            percent(self.worst_of_whole),
            self.beyond_2_percent_of_whole.to_string(),
            percent(self.worst_at_once),
            percent(self.misplaced),
            self.violations.to_string(),
            format!("{:.1}", self.violated_h),
            self.longest_denial_s.to_string(),
            format!("{:.0}", self.mean_wait_s),
            self.preemptions.to_string(),
            format!("{:.1}", self.cpu_s),
        ]
    }

    fn rows(&self) -> String {
        let head = [
            "queue",
            "wanted",
            "due",
            "whole",
            "at once",
            "held",
            "of due %",
            "of whole %",
            "violations",
            "longest s",
        ];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        lines.extend(self.each.iter().map(|row| {
            let gpus = [row.wanted, row.due, row.due_whole, row.due_at_once, row.held];
            let gpus = gpus.map(|gpus| format!("{gpus:.2}"));
            let mut cells = vec![row.queue.clone()];
            cells.extend(gpus);
            cells.extend([percent(row.of_due), percent(row.of_whole)]);
            cells.extend([row.violations.to_string(), row.longest_denial_s.to_string()]);
            cells
        }));
        aligned(lines)
    }
}

fn percent(part: f64) -> String {
    format!("{:.2}", 100.0 * part)
}

fn month(outcome: &Outcome) -> Month {
    let accounts = || outcome.queues.iter().map(|(_, account)| account);
    let parts: Vec<f64> = accounts().map(|account| off(account.held, account.due).abs()).collect();
    let of_whole: Vec<f64> = accounts().map(|account| off(account.held, account.due_whole).abs()).collect();
    let at_once = accounts().map(|account| off(account.held, account.due_at_once).abs());
    let gpus = f64::from(outcome.gpus);
    Month {
        queues: outcome.queues.len(),
        gpus: outcome.gpus,
        seed: outcome.seed,
        policy: outcome.policy.clone(),
        jobs: outcome.jobs,
        used: accounts().map(|account| account.held).sum::<f64>() / gpus,
        usable: outcome.pool.usable / gpus,
        in_vain: outcome.pool.in_vain / gpus,
        worst_of_due: parts.iter().copied().fold(0.0, f64::max),
        worst_of_whole: of_whole.iter().copied().fold(0.0, f64::max),
        beyond_2_percent_of_whole: of_whole.iter().filter(|part| **part > 0.02).count(),
        worst_at_once: at_once.fold(0.0, f64::max),
        mean_of_due: parts.iter().sum::<f64>() / parts.len().max(1) as f64,
        beyond_2_percent: parts.iter().filter(|part| **part > 0.02).count(),
        misplaced: accounts().map(|account| (account.held - account.due).abs()).sum::<f64>() / 2.0 / gpus,
        violations: accounts().map(|account| account.violations).sum(),
        violated_h: accounts().map(|account| account.violated_s).sum::<i64>() as f64 / 3600.0,
        longest_denial_s: accounts().map(|account| account.longest_denial_s).max().unwrap_or(0),
        mean_wait_s: outcome.mean_wait_s,
        preemptions: outcome.preemptions,
        cpu_s: outcome.cpu_s,
        each: outcome.queues.iter().map(row).collect(),
    }
}

fn row((queue, account): &(String, Account)) -> Row {
    Row {
        queue: queue.clone(),
        wanted: account.wanted,
        due: account.due,
        due_whole: account.due_whole,
        due_at_once: account.due_at_once,
        held: account.held,
        of_due: off(account.held, account.due),
        of_whole: off(account.held, account.due_whole),
        violations: account.violations,
        longest_denial_s: account.longest_denial_s,
    }
}
