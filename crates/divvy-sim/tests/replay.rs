//! Replays against figures that were reckoned by others.
#![allow(clippy::unwrap_used, reason = "what a test's own functions can't set up has failed the test")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use divvy_sim::policy::Named;
use divvy_sim::replay::{Replay, Replayed, named, replay};
use divvy_sim::trace::cluster::ClusterNode;
use divvy_sim::trace::interval::Interval;
use divvy_sim::trace::jobs::{self, Selection, TraceJob};

fn read(files: &[PathBuf], submitted: Interval) -> Vec<TraceJob> {
    jobs::merge(files, Selection { submitted, ..Selection::default() }).unwrap().map(Result::unwrap).collect()
}

fn run(nodes: &[ClusterNode], trace: &[TraceJob], policy: &str) -> Replayed {
    let (policy, class) = named(policy.parse::<Named>().unwrap());
    let setup = Replay {
        nodes: nodes.iter().collect(),
        queues: Vec::new(),
        policy,
        class,
        restart_ms: 30_000,
        speeds: None,
    };
    replay(setup, trace, |_| ()).unwrap()
}

#[test]
fn five_jobs_end_when_pencil_and_paper_say() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("jobs.csv");
    let rows = "A,0,8,1000,q,,,\nB,10,4,300,q,,,\nC,20,4,100,q,,,\nD,30,1,50,q,,,\nE,40,8,20,q,,,\n";
    std::fs::write(&trace, format!("job_id,submit_s,gpus,duration_s,queue,user,name,status\n{rows}"))
        .unwrap();
    let trace = read(&[trace], Interval::ALL);
    let node = ClusterNode {
        node: "n".into(),
        model: "generic".into(),
        gpus: 8,
        cpu_milli: 96_000,
        memory_mib: 1 << 19,
        pool: "q".into(),
    };
    let ends = |policy| {
        let finished = run(std::slice::from_ref(&node), &trace, policy).finished;
        let by_id: BTreeMap<String, i64> = finished.into_iter().map(|job| (job.id, job.finish_s)).collect();
        by_id.into_values().collect::<Vec<_>>()
    };
    assert_eq!(ends("fifo"), [1000, 1300, 1100, 1150, 1320]);
    assert_eq!(ends("srtf"), [1460, 440, 170, 130, 60]);
    assert_eq!(ends("las"), [1350, 707, 507, 557, 727]);
    assert_eq!(ends("mlfq"), [1410, 680, 175, 225, 245]);
}
