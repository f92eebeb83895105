//! Packing as in the literature: compared with the published curves, and the same every time.
#![allow(clippy::unwrap_used, reason = "what a test's own functions can't set up has failed the test")]

use std::path::Path;

use divvy_sim::pack::{self, Packed, Packing};
use divvy_sim::testdata::shared;
use divvy_sim::trace::openb::{Workload, workload};

fn read(folder: &Path, trace: &str, seed: u64) -> Workload {
    let pods = folder.join(format!("pods_{trace}.csv"));
    workload(&folder.join("nodes.csv"), &pods, &folder.join(format!("orders/{trace}_{seed}.bin"))).unwrap()
}

/// The published values of an experiment: bin, allocated, fragmented of idle and of the capacity.
fn published(folder: &Path, trace: &str, policy: &str, seed: u64) -> Vec<(usize, [f64; 3])> {
    let text = std::fs::read_to_string(folder.join("expected_curves.csv")).unwrap();
    let prefix = format!("{trace},{policy},{seed},");
    let row = |line: &str| {
        let cells: Vec<f64> = line.split(',').map(|cell| cell.parse().unwrap()).collect();
        (cells[0] as usize, [cells[1], cells[2], cells[3]])
    };
    text.lines().filter_map(|line| line.strip_prefix(&prefix)).map(row).collect()
}

fn assert_as_published(packed: &Packed, published: &[(usize, [f64; 3])]) {
    assert_eq!(published.len(), 131);
    for (bin, values) in published {
        let ours = [&packed.allocated_percent, &packed.frag_of_idle, &packed.frag_of_capacity];
        for (ours, published) in ours.map(|all| all[*bin].unwrap()).into_iter().zip(values) {
            assert!(
                (ours - published).abs() <= 0.01,
                "{} at {bin} %: {ours}, published {published}",
                packed.policy
            );
        }
    }
}

#[test]
fn policies_of_the_literature_pack_as_published() {
    let Some(folder) = shared("openb") else { return };
    let packing = |name| Packing::named(name, 42).unwrap();
    let experiments = [
        ("multigpu30", "fgd"),
        ("multigpu30", "gpu-clustering"),
        ("cpu100", "best-fit"),
        ("cpu100", "gpu-packing"),
    ];
    for (trace, policy) in experiments {
        let packed = pack::run(&read(&folder, trace, 42), packing(policy), |_| ()).unwrap();
        assert_as_published(&packed, &published(&folder, trace, policy, 42));
    }
}

/// A pool of a few nodes, small enough to be packed by every policy.
fn small() -> Workload {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/openb");
    workload(&dir.join("nodes.csv"), &dir.join("pods.csv"), &dir.join("order.bin")).unwrap()
}

#[test]
fn the_same_experiment_gives_the_same_decisions() {
    for packing in Packing::all(7) {
        let [first, second] = [(), ()].map(|()| pack::run(&small(), packing, |_| ()).unwrap());
        assert_eq!(first, second);
        assert!(first.placed > 0 && first.placed < first.arrived, "{first:?}");
    }
}

/// In a debug build, in a release build, and on any machine.
#[test]
fn decisions_are_those_of_every_build_and_machine() {
    let digests = Packing::all(7).map(|packing| pack::run(&small(), packing, |_| ()).unwrap().digest);
    expect_test::expect![[r#"
        8e87b8da4063803d
        f49e45dbcc93a8b5
        9a5d2292f3214fdc
        4a1c75ea532927fd
        0fb4a179685ed66f
        ca031f58dd518b10
        77a00a8eb64bd59a"#]]
    .assert_eq(&digests.join("\n"));
}

#[test]
fn a_task_larger_than_every_node_is_counted() {
    let mut workload = small();
    let first = workload.arrivals[0];
    workload.pods[first].gpus = 64;
    workload.pods[first].gpu_milli = 1000;
    let packed = pack::run(&workload, Packing::Divvy, |_| ()).unwrap();
    let arrives = workload.arrivals.iter().filter(|place| **place == first).count() as u64;
    assert_eq!((packed.never_fit, packed.arrived), (arrives, workload.arrivals.len() as u64));
}
