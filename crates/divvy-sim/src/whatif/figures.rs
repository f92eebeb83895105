//! The results of the two replays, side by side.

use std::collections::{BTreeMap, BTreeSet};

use divvy_core::id::JobId;
use serde::{Deserialize, Serialize};

use super::change::Change;
use super::record::{Life, Past};
use super::rerun::Rerun;

/// The pool as it was, and under the change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Jobs submitted from here on are counted, in milliseconds since 1970.
    pub since_ms: i64,
    /// The last event, likewise.
    pub until_ms: i64,
    /// What is different.
    pub changes: Vec<String>,
    /// Jobs (members of arrays each) that are counted.
    pub jobs: usize,
    /// Of these, those that have not ended yet.
    pub open: usize,
    /// How far the replay as it was is from what really happened.
    pub fidelity: Fidelity,
    /// The replay as it was.
    pub before: Side,
    /// The replay under the change.
    pub after: Side,
    /// What both assume.
    pub assumptions: Vec<String>,
}

/// The replay as it was, beside the record of the same jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fidelity {
    /// Jobs that started both in the past and in the replay.
    pub jobs: usize,
    /// Their mean wait in the past.
    pub recorded_mean_wait_s: f64,
    /// Their mean wait in the replay.
    pub replayed_mean_wait_s: f64,
}

/// One of the two replays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// The devices of the pool.
    pub gpus: u32,
    /// The part of their time that was held, within the time that is counted.
    pub gpu_use: f64,
    /// The figures over all queues.
    #[serde(flatten)]
    pub all: QueueFigures,
    /// The figures of each queue.
    pub by_queue: BTreeMap<String, QueueFigures>,
    /// Jobs that such a pool would have refused: number and reason.
    pub refused: BTreeMap<u64, String>,
    /// Jobs that such a pool would never start, though it would take them: number and what they wait for.
    pub stranded: BTreeMap<u64, String>,
    /// What is guaranteed beyond what the pool has.
    pub beyond: Option<String>,
    /// The hash of all decisions.
    pub digest: String,
}

/// Figures over the jobs of a queue, or of all. Waits are from submission to the first start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueFigures {
    /// Jobs that started.
    pub started: usize,
    /// Jobs that never did: refused, cancelled before, or left waiting.
    pub never: usize,
    /// The mean wait of those that started; nothing where none did.
    pub mean_wait_s: Option<f64>,
    /// The median, likewise.
    pub p50_wait_s: Option<f64>,
    /// The 90th percentile, by nearest rank.
    pub p90_wait_s: Option<f64>,
    /// The 99th percentile.
    pub p99_wait_s: Option<f64>,
    /// GPU time held within the time that is counted.
    pub gpu_hours: f64,
    /// How often jobs were stopped before their end.
    pub preemptions: u64,
}

const MS_PER_S: f64 = 1000.0;
const MILLI_MS_PER_HOUR: f64 = 3_600_000.0 * 1000.0;

pub(super) fn answer(past: &Past, changes: &[Change], before: &Rerun, after: &Rerun) -> Answer {
    let counted: Vec<(&JobId, &Life)> =
        past.lives.iter().filter(|(_, life)| life.submitted_at >= past.since).collect();
    Answer {
        since_ms: past.since.0,
        until_ms: past.until.0,
        changes: changes.iter().map(ToString::to_string).collect(),
        jobs: counted.len(),
        open: counted.iter().filter(|(_, life)| life.ended.is_none()).count(),
        fidelity: fidelity(&counted, before),
        before: side(past, &counted, before),
        after: side(past, &counted, after),
        assumptions: assumptions(past, changes),
    }
}

fn fidelity(counted: &[(&JobId, &Life)], before: &Rerun) -> Fidelity {
    let both = |(id, life): &(&JobId, &Life)| life.wait_ms().zip(before.waits_ms.get(id).copied());
    let pairs: Vec<(i64, i64)> = counted.iter().filter_map(both).collect();
    let mean = |of: fn(&(i64, i64)) -> i64| {
        let sum: i128 = pairs.iter().map(|pair| i128::from(of(pair))).sum();
        if pairs.is_empty() { 0.0 } else { sum as f64 / pairs.len() as f64 / MS_PER_S }
    };
    Fidelity {
        jobs: pairs.len(),
        recorded_mean_wait_s: mean(|pair| pair.0),
        replayed_mean_wait_s: mean(|pair| pair.1),
    }
}

fn side(past: &Past, counted: &[(&JobId, &Life)], run: &Rerun) -> Side {
    let mut waits: BTreeMap<&str, (Vec<i64>, usize)> = BTreeMap::new();
    for (id, life) in counted {
        let (waits, jobs) = waits.entry(&life.queue).or_default();
        waits.extend(run.waits_ms.get(id));
        *jobs += 1;
    }
    for queue in run.held_milli_ms.keys() {
        waits.entry(queue).or_default();
    }
    let figures = |queue: &str, (waits, jobs): &(Vec<i64>, usize)| {
        let held = run.held_milli_ms.get(queue).copied().unwrap_or_default();
        figures(waits.clone(), *jobs, held, run.preemptions.get(queue).copied().unwrap_or_default())
    };
    let by_queue = waits.iter().map(|(queue, rows)| ((*queue).to_owned(), figures(queue, rows))).collect();
    let all_waits = waits.values().flat_map(|(waits, _)| waits).copied().collect();
    let held: i128 = run.held_milli_ms.values().sum();
    let room = i128::from(run.gpus) * 1000 * i128::from(past.until.since(past.since).0);
    Side {
        gpus: run.gpus,
        gpu_use: if room == 0 { 0.0 } else { held as f64 / room as f64 },
        all: self::figures(all_waits, counted.len(), held, run.preemptions.values().sum()),
        by_queue,
        refused: run.refused.clone(),
        stranded: run.stranded.clone(),
        beyond: run.beyond.clone(),
        digest: format!("{:016x}", run.digest),
    }
}

fn figures(mut waits_ms: Vec<i64>, jobs: usize, held_milli_ms: i128, preemptions: u64) -> QueueFigures {
    waits_ms.sort_unstable();
    let count = waits_ms.len();
    let sum: i128 = waits_ms.iter().map(|wait| i128::from(*wait)).sum();
    let percentile = |percent: usize| {
        let rank = (count * percent).div_ceil(100);
        waits_ms.get(rank.saturating_sub(1)).map(|wait| *wait as f64 / MS_PER_S)
    };
    QueueFigures {
        started: count,
        never: jobs.saturating_sub(count),
        mean_wait_s: (count > 0).then(|| sum as f64 / count as f64 / MS_PER_S),
        p50_wait_s: percentile(50),
        p90_wait_s: percentile(90),
        p99_wait_s: percentile(99),
        gpu_hours: held_milli_ms as f64 / MILLI_MS_PER_HOUR,
        preemptions,
    }
}

fn assumptions(past: &Past, changes: &[Change]) -> Vec<String> {
    let mut all: Vec<String> = [
        "jobs are submitted, held, released and cancelled while they wait at the moments at which that happened",
        "use and GPU hours are those up to now; who waits then is counted when he starts, however much later",
        "a job works as long as its attempts ran; jobs that have not ended as long as they are estimated, else to their limit, else as the median of their queue",
        "a job that was cancelled while it waited works as long as one that has not ended, if it has started by then here",
        "nodes, queues and policy are those at the end, all the time; devices that are broken now are left out",
        "faults, restarts of the daemon and processes outside the pool are not replayed",
        "a start takes as long as in the median; a job runs as fast on any device that it may have",
        "jobs that were there before the time that is counted are replayed, too, and not counted",
    ]
    .map(str::to_owned)
    .to_vec();
    let there = |model: &str| {
        past.settings.nodes.iter().flat_map(|(_, devices)| devices).any(|one| one.model == model)
    };
    let strange = changes.iter().filter_map(|change| match change {
        Change::AddNodes(group) if !there(&group.model) => Some(group.model.as_str()),
        _ => None,
    });
    for model in strange.collect::<BTreeSet<_>>() {
        all.push(format!("{model}, of which the pool has none, have the memory of the data sheet, or 80 GB where none is known"));
    }
    let left_out = past.left_out.iter().map(|(what, count)| format!("{what}: {count}"));
    let left_out: Vec<_> = left_out.collect();
    if !left_out.is_empty() {
        all.push(format!("left out here: {}", left_out.join("; ")));
    }
    all
}
