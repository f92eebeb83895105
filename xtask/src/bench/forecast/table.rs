//! How often the interval held, and how wide it was.

use divvy_sim::forecast::{Asked, Expected, Truth};
use serde::Serialize;

use super::Outcome;
use crate::bench::machine::Machine;
use crate::bench::report::aligned;

/// Everything that was found.
#[derive(Serialize)]
pub(super) struct Table {
    machine: Machine,
    rows: Vec<Row>,
}

/// A trace under a policy. Shares are parts of the jobs that were said to wait and were given an interval.
#[derive(Serialize)]
struct Row {
    trace: String,
    policy: String,
    asked: usize,
    /// Jobs that were said to start at once.
    now: usize,
    /// How many of these did.
    now_right: usize,
    /// Jobs that were said to wait, with an interval.
    wait: usize,
    /// Jobs for which no start was foreseen.
    no_answer: usize,
    /// How often the interval held.
    inside: f64,
    before: f64,
    after: f64,
    /// How often it would have held as it was drawn, with nothing learned from earlier errors.
    drawn_inside: f64,
    /// How often all answers held, those that said "now" among them.
    all_inside: f64,
    /// Intervals without an upper end.
    open: f64,
    median_width_s: i64,
    median_wait_s: i64,
    /// The median ratio of the actual wait and the middle of the interval, the longer over the shorter; a minute is added to
    /// both.
    median_factor: f64,
    cpu_s: f64,
}

impl Table {
    pub(super) fn new(machine: Machine, outcomes: &[Outcome]) -> Self {
        Self { machine, rows: outcomes.iter().map(row).collect() }
    }

    pub(super) fn text(&self) -> String {
        let head = [
            "trace", "policy", "asked", "now", "right", "wait", "none", "inside", "before", "after", "drawn",
            "all", "open", "width s", "wait s", "factor", "CPU s",
        ];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        lines.extend(self.rows.iter().map(Row::cells));
        format!("{}\n\n{}", self.machine, aligned(lines))
    }
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let percent = |part: f64| format!("{:.1} %", 100.0 * part);
        vec![
            self.trace.clone(),
            self.policy.clone(),
            self.asked.to_string(),
            self.now.to_string(),
            self.now_right.to_string(),
            self.wait.to_string(),
            self.no_answer.to_string(),
            percent(self.inside),
            percent(self.before),
            percent(self.after),
            percent(self.drawn_inside),
            percent(self.all_inside),
            percent(self.open),
            self.median_width_s.to_string(),
            self.median_wait_s.to_string(),
            format!("{:.2}", self.median_factor),
            format!("{:.0}", self.cpu_s),
        ]
    }
}

fn row(outcome: &Outcome) -> Row {
    let Outcome { trace, policy, asked, cpu_s } = outcome;
    let said: Vec<(&Asked, Expected)> = asked.iter().filter_map(|asked| Some((asked, asked.said?))).collect();
    let (now, wait): (Vec<_>, Vec<_>) = said.iter().partition(|(_, said)| said.is_now());
    let part = |count: usize, of: usize| count as f64 / of.max(1) as f64;
    let lie = |truth| wait.iter().filter(|(asked, said)| said.truth(asked.wait_ms()) == truth).count();
    let drawn_inside = |(asked, _): &&(&Asked, Expected)| {
        asked.drawn.is_some_and(|drawn| drawn.truth(asked.wait_ms()) == Truth::Inside)
    };
    let now_right = now.iter().filter(|(asked, _)| asked.wait_ms() == 0).count();
    let width = |(_, said): &(&Asked, Expected)| said.high_ms.map_or(i64::MAX, |high| high - said.low_ms);
    Row {
        trace: trace.clone(),
        policy: policy.clone(),
        asked: asked.len(),
        now: now.len(),
        now_right,
        wait: wait.len(),
        no_answer: asked.len() - said.len(),
        inside: part(lie(Truth::Inside), wait.len()),
        before: part(lie(Truth::Before), wait.len()),
        after: part(lie(Truth::After), wait.len()),
        drawn_inside: part(wait.iter().filter(drawn_inside).count(), wait.len()),
        all_inside: part(lie(Truth::Inside) + now_right, said.len()),
        open: part(wait.iter().filter(|(_, said)| said.high_ms.is_none()).count(), wait.len()),
        median_width_s: median(wait.iter().map(width).collect()) / 1000,
        median_wait_s: median(wait.iter().map(|(asked, _)| asked.wait_ms()).collect()) / 1000,
        median_factor: median(wait.iter().map(factor_percent).collect()) as f64 / 100.0,
        cpu_s: *cpu_s,
    }
}

/// How many times longer than said (or shorter) a job waited, in hundredths.
fn factor_percent((asked, said): &(&Asked, Expected)) -> i64 {
    let (one, other) = (asked.wait_ms() as f64 + 60_000.0, said.middle_ms as f64 + 60_000.0);
    (100.0 * one.max(other) / one.min(other)) as i64
}

fn median(mut values: Vec<i64>) -> i64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}
