//! Replays against figures that others have computed.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what a test's own functions can't set up has failed the test"
)]

use std::collections::BTreeMap;
use std::path::PathBuf;

use divvy_sim::generate::{self, NodeGroup, Recipe};
use divvy_sim::metrics::Tallies;
use divvy_sim::policy::Named;
use divvy_sim::replay::{Replay, Replayed, named, replay};
use divvy_sim::trace::cluster::ClusterNode;
use divvy_sim::trace::interval::Interval;
use divvy_sim::trace::jobs::{self, Selection, TraceJob};

fn read(files: &[PathBuf], submitted: Interval) -> Vec<TraceJob> {
    jobs::merge(files, Selection { submitted, ..Selection::default() }).unwrap().map(Result::unwrap).collect()
}

fn run(nodes: &[ClusterNode], trace: &[TraceJob], policy: &str) -> Replayed {
    run_in("", nodes, trace, policy)
}

/// A replay with the queues of a queues.yaml, if there is one.
fn run_in(queues: &str, nodes: &[ClusterNode], trace: &[TraceJob], policy: &str) -> Replayed {
    let queues = if queues.is_empty() { Vec::new() } else { divvy_sim::pools::queues(queues).unwrap().0 };
    let (policy, class) = named(policy.parse::<Named>().unwrap());
    let setup =
        Replay { nodes: nodes.iter().collect(), queues, policy, class, restart_ms: 30_000, speeds: None };
    replay(setup, trace, |_| ()).unwrap()
}

fn read_rows(rows: &str) -> Vec<TraceJob> {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("jobs.csv");
    std::fs::write(&trace, format!("job_id,submit_s,gpus,duration_s,queue,user,name,status\n{rows}"))
        .unwrap();
    read(&[trace], Interval::ALL)
}

fn node() -> ClusterNode {
    let (node, model, pool) = ("n".into(), "generic".into(), "q".into());
    ClusterNode { node, model, gpus: 8, cpu_milli: 96_000, memory_mib: 1 << 19, pool }
}

fn ends(trace: &[TraceJob], policy: &str) -> BTreeMap<String, i64> {
    let finished = run(&[node()], trace, policy).finished;
    finished.into_iter().map(|job| (job.id, job.finish_s)).collect()
}

#[test]
fn five_jobs_end_when_pencil_and_paper_say() {
    let rows = "A,0,8,1000,q,,,\nB,10,4,300,q,,,\nC,20,4,100,q,,,\nD,30,1,50,q,,,\nE,40,8,20,q,,,\n";
    let trace = read_rows(rows);
    let ends = |policy| ends(&trace, policy).into_values().collect::<Vec<_>>();
    assert_eq!(ends("fifo"), [1000, 1300, 1100, 1150, 1320]);
    assert_eq!(ends("srtf"), [1460, 440, 170, 130, 60]);
    assert_eq!(ends("las"), [1350, 707, 507, 557, 727]);
    assert_eq!(ends("mlfq"), [1410, 680, 175, 225, 245]);
}

#[test]
fn a_job_that_a_time_limit_ends_is_no_finished_job_and_counts_for_what_it_did() {
    let trace = read_rows("A,0,8,7200,q,,,\nB,10,8,100,q,,,\n");
    // Under mlfq and divvy B stops A, which then works on until the sixty minutes of its last start are over.
    for (policy, b_starts_s, a_ends_s, a_did_s) in
        [("fifo", 3601, 3600, 3600), ("mlfq", 75, 4090, 3900), ("divvy", 1160, 4890, 4760)]
    {
        let replayed = run_in("queues:\n  q: {default_time: 1h}\n", &[node()], &trace, policy);
        let [b] = &replayed.finished[..] else { panic!("{policy}: {:?}", replayed.finished) };
        let [a] = &replayed.cut[..] else { panic!("{policy}: {:?}", replayed.cut) };
        assert_eq!((b.id.as_str(), b.start_s), ("B", b_starts_s), "{policy}");
        assert_eq!((a.id.as_str(), a.finish_s, a.duration_s), ("A", a_ends_s, 7200), "{policy}");
        assert_eq!(a.worked_s, a_did_s, "{policy}");
        let mut tallies = Tallies::new(8, Interval::ALL);
        tallies.count(b);
        tallies.count_cut(a);
        let (summary, _) = tallies.close();
        assert_eq!((summary.all.finished, summary.all.ended_by_limit), (1, 1), "{policy}");
        assert_eq!(summary.all.mean_jct_s, (b.finish_s - 10) as f64, "{policy}");
        let (work_s, span_s) = (100 + a_did_s, b.finish_s.max(a_ends_s));
        assert_eq!(summary.gpu_utilization, work_s as f64 / span_s as f64, "{policy}");
    }
}

/// Forty long and forty short jobs of one user, one after the other; then one of each, where the short one comes while the
/// long one runs.
fn long_and_short(name: impl Fn(&str) -> String) -> Vec<TraceJob> {
    let row = |id: String, submit_s: i64, kind: &str| {
        let duration_s = if kind == "long" { 20_000 } else { 60 };
        format!("{id},{submit_s},8,{duration_s},q,,{},\n", name(kind))
    };
    let past = (0..40).flat_map(|at| {
        [row(format!("l{at}"), at * 30_000, "long"), row(format!("s{at}"), at * 30_000 + 25_000, "short")]
    });
    let last = [row("long".into(), 2_000_000, "long"), row("short".into(), 2_001_000, "short")];
    read_rows(&past.chain(last).collect::<String>())
}

#[test]
fn what_was_short_before_goes_first_by_history_and_need_not_wait_for_a_level_to_end() {
    let trace = long_and_short(str::to_owned);
    let (blind, learned) = (ends(&trace, "divvy"), ends(&trace, "divvy-history"));
    // Without history the long one gives way when its 8 × (1160 + 840) device-seconds end a level.
    assert_eq!((blind["long"], blind["short"]), (2_020_090, 2_001_220));
    assert_eq!((learned["long"], learned["short"]), (2_020_090, 2_001_060));
}

#[test]
fn history_without_users_and_names_decides_as_no_history() {
    let trace = long_and_short(|_| String::new());
    assert_eq!(run(&[node()], &trace, "divvy").digest, run(&[node()], &trace, "divvy-history").digest);
}

#[test]
fn a_job_that_can_never_run_changes_when_no_other_runs() {
    let nodes = vec![NodeGroup { count: 2, model: "a100".into(), gpus: 8 }];
    let recipe = Recipe { nodes, jobs: 60, seed: 3, load_percent: 150, teams: 2, users: 4 };
    let (nodes, mut trace) = (generate::cluster(&recipe), generate::jobs(&recipe).collect::<Vec<_>>());
    trace.iter_mut().for_each(|job| job.arrival.submit_s += 1000);
    for policy in ["fifo", "las", "mlfq", "hist", "srtf", "divvy", "divvy-history"] {
        let alone = run(&nodes, &trace, policy);
        // One comes before all others, and one a second after each start and end.
        let moments = alone.finished.iter().flat_map(|job| [job.start_s + 1, job.finish_s + 1]).chain([0]);
        let refused = moments.map(|at_s| {
            let mut job = trace[0].clone();
            (job.arrival.submit_s, job.arrival.gpus, job.arrival.user) = (at_s, 1000, "stranger".into());
            job
        });
        let mut together: Vec<TraceJob> = trace.iter().cloned().chain(refused).collect();
        together.sort_by_key(|job| job.arrival.submit_s);
        let together = run(&nodes, &together, policy);
        assert_eq!((together.finished.len(), together.refused.len()), (60, 121), "{policy}");
        assert_eq!((together.digest, together.events), (alone.digest, alone.events), "{policy}");
        let ends = |replayed: &Replayed| -> Vec<_> {
            replayed.finished.iter().map(|job| (job.id.clone(), job.start_s, job.finish_s)).collect()
        };
        assert_eq!(ends(&together), ends(&alone), "{policy}");
    }
}
