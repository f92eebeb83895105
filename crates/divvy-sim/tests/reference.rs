//! The policies of the literature against figures that an independent simulator has computed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where something is wrong")]

use divvy_sim::policy::Named;
use divvy_sim::pools::Pools;
use divvy_sim::reference::{Experiment, experiments, read, run};
use divvy_sim::testdata::shared;

/// Compares the chosen replays in every digit.
#[track_caller]
fn every_figure_is_equal(is_chosen: impl Fn(&Experiment) -> bool) {
    let Some(folder) = shared("jct") else { return };
    let expected = read(&folder.join("reference.csv")).unwrap();
    let chosen: Vec<_> = experiments(&expected).into_iter().filter(is_chosen).collect();
    assert!(!chosen.is_empty(), "nothing is chosen");
    for experiment in chosen {
        let summary = run(&folder, &experiment).unwrap().summary;
        for expected in expected.iter().filter(|expected| expected.experiment == experiment) {
            let differences = expected.differences(&summary);
            assert!(differences.is_empty(), "{experiment:?}, queue {}: {differences:?}", expected.queue);
        }
    }
}

#[test]
fn a_virtual_cluster_on_its_own_nodes_is_as_reckoned_under_every_policy() {
    every_figure_is_equal(|experiment| experiment.trace == "philly_2869ce");
}

#[test]
fn an_overloaded_cluster_is_as_reckoned_under_every_policy() {
    every_figure_is_equal(|experiment| experiment.trace == "philly64_2869ce");
}

#[test]
fn two_queues_that_share_their_nodes_are_as_reckoned() {
    let policies = [Named::Fifo, Named::QuotaFifo, Named::QuotaMlfq];
    every_figure_is_equal(|experiment| {
        experiment.trace == "philly_both"
            && experiment.pools == Pools::Shared
            && policies.contains(&experiment.policy)
    });
}

#[test]
fn the_own_order_is_as_fast_as_the_better_of_las_and_mlfq_where_they_are_hard_to_beat() {
    let Some(folder) = shared("jct") else { return };
    let (trace, policy) = ("philly_2869ce".into(), Named::Divvy);
    let outcome = run(&folder, &Experiment { trace, pools: Pools::Own, policy }).unwrap();
    // The mean under las.
    assert!(outcome.summary.all.mean_jct_s < 54_822.7 * 1.005);
}
