//! The recorded digests of all decisions: the same in a debug and in a release build, on one thread and on two, on any machine.
#![allow(clippy::unwrap_used, reason = "what a test's own functions can't set up has failed the test")]

use std::fmt::Write as _;
use std::path::Path;

use divvy_sim::generate::{self, NodeGroup, Recipe};
use divvy_sim::pack::{self, Packing};
use divvy_sim::policy::{Named, names};
use divvy_sim::replay::{Replay, named, replay};
use divvy_sim::trace::openb::workload;
use divvy_sim::{chaos, trace::jobs::TraceJob};

/// The digest of a month of two teams under a policy.
fn replayed(policy: &str) -> u64 {
    let nodes = vec![NodeGroup { count: 3, model: "a100".into(), gpus: 8 }];
    let recipe = Recipe { nodes, jobs: 120, seed: 7, load_percent: 130, teams: 2, users: 6 };
    let (cluster, jobs) = (generate::cluster(&recipe), generate::jobs(&recipe).collect::<Vec<TraceJob>>());
    let (policy, class) = named(policy.parse::<Named>().unwrap());
    let (nodes, restart_ms) = (cluster.iter().collect(), 30_000);
    let setup = Replay { nodes, queues: Vec::new(), policy, class, restart_ms, speeds: None };
    replay(setup, &jobs, |_| ()).unwrap().digest
}

/// The digest of a small pool that is packed.
fn packed(packing: Packing) -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/openb");
    let workload = workload(&dir.join("nodes.csv"), &dir.join("pods.csv"), &dir.join("order.bin")).unwrap();
    pack::run(&workload, packing, |_| ()).unwrap().digest.to_string()
}

/// All of them, as text.
fn digests(threads: usize) -> String {
    let mut text = String::new();
    for policy in names() {
        writeln!(text, "replay {policy} {:016x}", replayed(policy)).unwrap();
    }
    for packing in Packing::all(42) {
        writeln!(text, "pack {} {}", packing.name(), packed(packing)).unwrap();
    }
    writeln!(text, "chaos {}", chaos::run(0..6, 400, threads).digest).unwrap();
    text
}

#[test]
fn digests_are_those_written_down_on_one_thread_and_on_two() {
    let written = include_str!("digests.txt");
    let other = std::thread::scope(|scope| {
        let other = scope.spawn(|| digests(2));
        assert_eq!(digests(1), written, "where decisions were meant to change, write these down");
        other.join().unwrap()
    });
    assert_eq!(other, written);
}
