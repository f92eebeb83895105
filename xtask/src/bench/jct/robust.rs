//! `cargo xtask bench jct --robust`: Divvy's own order with each of its settings changed, and on copies of the traces in which
//! every job is submitted and runs slightly differently. This shows a policy that does well only at one spot.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, anyhow};
use divvy_core::model::policy::{Policy, Preempt};
use divvy_sim::policy::Named;
use divvy_sim::pools::Pools;
use divvy_sim::reference::{self, Experiment};
use divvy_sim::trace::interval::Interval;
use serde::Serialize;

use super::table::COMPARED;
use super::{Jct, Output};
use crate::bench::report::aligned;
use crate::bench::{machine, say};

/// By how many percent each setting is changed.
const BY_PERCENT: [i64; 2] = [-15, 15];

/// How many jittered copies there are of each trace.
const COPIES: u64 = 8;

/// The one trace whose jobs carry users and names: on all others history decides nothing.
const WITH_NAMES: &str = "ipsc_a";

/// What is changed, and how the policy fares then.
#[derive(Serialize)]
struct Row {
    changed: String,
    policy: String,
    /// The geometric mean over the traces of its mean JCT divided by the smaller of las' and mlfq's.
    geometric_mean: f64,
    worst: f64,
    worst_trace: String,
}

#[derive(Serialize)]
struct Robust {
    machine: machine::Machine,
    rows: Vec<Row>,
}

/// One policy on the traces: as they are, or the copies of a seed.
#[derive(Clone)]
struct Variant {
    changed: String,
    policy: Named,
    settings: Policy,
    jitter: Option<u64>,
}

/// A replay to run: of which variant, on which trace.
type Task<'a> = (&'a Variant, &'static str);

/// The mean JCT of each replay, by variant and trace.
type Means = BTreeMap<(String, Named, &'static str), f64>;

pub(super) fn run(jct: &Jct, folder: &Path, target: &Path) -> Result<()> {
    let own = own_variants();
    let all: Vec<Variant> = own.iter().cloned().chain(yardsticks()).collect();
    let means = run_all(folder, &all, jct.threads)?;
    let rows = own.iter().map(|variant| row(variant, &means)).collect::<Option<Vec<_>>>();
    let rows = rows.ok_or_else(|| anyhow!("a replay is missing"))?;
    let robust = Robust { machine: machine::describe(target)?, rows };
    match jct.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&robust)?),
        Output::Table => print!("{}", robust.text()),
    }
    Ok(())
}

/// Divvy's own policies: as they are, with each setting changed, and on copies.
fn own_variants() -> Vec<Variant> {
    let own = |policy: Named| {
        let as_is =
            || Variant { changed: "nothing".into(), policy, settings: policy.settings(), jitter: None };
        let changed = SETTINGS.iter().filter(move |(_, of, _)| of.contains(&policy)).flat_map(
            move |(name, _, change)| {
                BY_PERCENT.map(|percent| {
                    let mut variant = Variant { changed: format!("{name} {percent:+} %"), ..as_is() };
                    change(&mut variant.settings, percent);
                    variant
                })
            },
        );
        let copies =
            (1..=COPIES).map(move |seed| Variant { changed: copy_name(seed), jitter: Some(seed), ..as_is() });
        let walk = Policy { preempt: Preempt::Walk, ..policy.settings() };
        let walk = Variant { changed: "by the walk".into(), settings: walk, ..as_is() };
        [as_is(), walk].into_iter().chain(changed).chain(copies).collect::<Vec<_>>()
    };
    [Named::Divvy, Named::DivvyHistory].into_iter().flat_map(own).collect()
}

/// The policies that Divvy's own are compared with, on the traces and on their copies.
fn yardsticks() -> impl Iterator<Item = Variant> {
    let seeds = std::iter::once(None).chain((1..=COPIES).map(Some));
    seeds.flat_map(|jitter| {
        [Named::Las, Named::Mlfq].map(|policy| Variant {
            changed: jitter.map_or_else(|| "nothing".into(), copy_name),
            policy,
            settings: policy.settings(),
            jitter,
        })
    })
}

fn copy_name(seed: u64) -> String {
    format!("copy {seed}")
}

/// A setting: its name, for which policies it is changed, and how.
type Setting = (&'static str, &'static [Named], fn(&mut Policy, i64));

const BOTH: &[Named] = &[Named::Divvy, Named::DivvyHistory];
const N: &[Named] = &[Named::Divvy];
const P: &[Named] = &[Named::DivvyHistory];

const SETTINGS: [Setting; 16] = [
    ("level 1", N, |policy, percent| level(policy, 0, percent)),
    ("level 2", N, |policy, percent| level(policy, 1, percent)),
    ("level 3", N, |policy, percent| level(policy, 2, percent)),
    ("level 4", N, |policy, percent| level(policy, 3, percent)),
    ("level 5", N, |policy, percent| level(policy, 4, percent)),
    ("level 6", N, |policy, percent| level(policy, 5, percent)),
    ("level 7", N, |policy, percent| level(policy, 6, percent)),
    ("level 8", N, |policy, percent| level(policy, 7, percent)),
    ("all levels", N, |policy, percent| (0..8).for_each(|place| level(policy, place, percent))),
    ("ratios of levels", N, |policy, percent| ratios(&mut policy.attained.levels_device_ms, 3, percent)),
    ("head start", N, |policy, percent| change(&mut policy.attained.head_start_ms, percent)),
    ("cool_down", BOTH, |policy, percent| {
        policy.cool_down_ms.0.iter_mut().for_each(|ms| change(ms, percent))
    }),
    ("starve_after", BOTH, |policy, percent| {
        policy.starve_after_ms.0.iter_mut().for_each(|ms| change(ms, percent))
    }),
    ("foreseen levels", P, |policy, percent| {
        policy.attained.foreseen.levels_device_ms.iter_mut().for_each(|level| change(level, percent));
    }),
    ("their ratios", P, |policy, percent| ratios(&mut policy.attained.foreseen.levels_device_ms, 0, percent)),
    ("hold", P, |policy, percent| change(&mut policy.attained.foreseen.hold_ms, percent)),
];

fn change(value: &mut i64, percent: i64) {
    *value += *value * percent / 100;
}

fn level(policy: &mut Policy, place: usize, percent: i64) {
    policy.attained.levels_device_ms.get_mut(place).into_iter().for_each(|level| change(level, percent));
}

/// Changes the ratio of each level to the one before, and keeps one level where it is.
fn ratios(levels: &mut [i64], kept: usize, percent: i64) {
    let factor = 1.0 + percent as f64 / 100.0;
    for (place, level) in levels.iter_mut().enumerate() {
        *level = (*level as f64 * factor.powi(place as i32 - kept as i32)).round() as i64;
    }
}

fn run_all(folder: &Path, variants: &[Variant], threads: usize) -> Result<Means> {
    let wanted = |(variant, trace): &Task| variant.policy != Named::DivvyHistory || *trace == WITH_NAMES;
    let each = |variant| COMPARED.iter().map(move |trace| (variant, *trace));
    let tasks: Vec<Task> = variants.iter().flat_map(each).filter(wanted).collect();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Means::new()));
    let failed = || anyhow!("a thread has failed");
    let work = || -> Result<()> {
        while let Some((variant, trace)) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mean = mean_jct_s(folder, variant, trace)?;
            let mut done = done.lock().map_err(|_| failed())?;
            done.insert((variant.changed.clone(), variant.policy, trace), mean);
            if done.len().is_multiple_of(20) {
                say(&format!("{} of {} replays", done.len(), tasks.len()));
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| failed())?)
    })?;
    done.into_inner().map_err(|_| failed())
}

fn mean_jct_s(folder: &Path, variant: &Variant, trace: &str) -> Result<f64> {
    let pools = if trace.starts_with("philly64") { Pools::Shared } else { Pools::Own };
    let experiment = Experiment { trace: trace.into(), pools, policy: variant.policy };
    let mut prepared = reference::prepare(folder, &experiment)?.with(variant.settings.clone());
    if let Some(seed) = variant.jitter {
        prepared = prepared.jittered(seed);
    }
    Ok(prepared.run(Interval::ALL)?.summary.all.mean_jct_s)
}

/// How a variant compares with the smaller of las and mlfq on the same jobs. Where history decides nothing, its figures are those
/// of the policy without history.
fn row(variant: &Variant, means: &Means) -> Option<Row> {
    let on = if variant.jitter.is_some() { variant.changed.as_str() } else { "nothing" };
    let mean = |changed: &str, policy, trace| means.get(&(changed.to_owned(), policy, trace)).copied();
    let relative = |trace: &&'static str| {
        let yardstick = mean(on, Named::Las, trace)?.min(mean(on, Named::Mlfq, trace)?);
        let without_history = |changed| mean(changed, Named::Divvy, trace);
        let own = mean(&variant.changed, variant.policy, trace)
            .or_else(|| without_history(&variant.changed))
            .or_else(|| without_history(on))?;
        Some((own / yardstick, *trace))
    };
    let relatives = COMPARED.iter().map(relative).collect::<Option<Vec<_>>>()?;
    let sum: f64 = relatives.iter().map(|(relative, _)| relative.ln()).sum();
    let (worst, trace) = relatives.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(Row {
        changed: variant.changed.clone(),
        policy: variant.policy.to_string(),
        geometric_mean: (sum / COMPARED.len() as f64).exp(),
        worst,
        worst_trace: trace.to_owned(),
    })
}

impl Robust {
    fn text(&self) -> String {
        let mut lines = vec![["changed", "policy", "M", "worst row", "of"].map(str::to_owned).to_vec()];
        lines.extend(self.rows.iter().map(|row| {
            let (mean, worst) = (format!("{:.3}", row.geometric_mean), format!("{:.3}", row.worst));
            vec![row.changed.clone(), row.policy.clone(), mean, worst, row.worst_trace.clone()]
        }));
        format!("{}\n\n{}", self.machine, aligned(lines))
    }
}
