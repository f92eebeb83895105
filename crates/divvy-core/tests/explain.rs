//! What is said to lift a job's blockers lifts them, and what is said to start it starts it.

#![allow(clippy::unwrap_used, reason = "only tests live here")]

use std::collections::BTreeMap;

use divvy_core::amount::Resource;
use divvy_core::decide::Submit;
use divvy_core::explain::{self, Advice, Change, Raise};
use divvy_core::id::JobId;
use divvy_core::model::job::Cause;
use divvy_core::plan;
use divvy_core::reason::Verdict;
use divvy_core::scenario::Scenario;
use divvy_core::snapshot::Snapshot;
use divvy_core::state::State;
use divvy_core::time::Span;
use expect_test::{Expect, expect};

/// The advice on a job, in lines: each blocker's code with its ways, then the remedy.
fn told(advice: &Advice) -> String {
    let mut text = String::new();
    for blocker in &advice.blockers {
        text += &format!("{} {}\n", blocker.reason.code(), blocker.reason);
        blocker.ways.iter().for_each(|way| text += &format!("    {way}\n"));
        blocker.lifted_by.iter().for_each(|way| text += &format!("    lifted by: {way}\n"));
    }
    let remedy = advice.remedy.as_ref().map_or("nothing".to_owned(), ToString::to_string);
    text + &format!("=> {remedy}\n")
}

/// A pool after these lines, and the number of one of its jobs.
fn pool(scenario: &str, job: &str) -> (Scenario, u64) {
    let mut pool = Scenario::new();
    for line in scenario.lines() {
        assert_eq!(pool.line(line), Ok(()), "{line}");
    }
    let number = pool.jobs().find(|(name, _)| *name == job).map_or(0, |(_, number)| number);
    (pool, number)
}

fn check(scenario: &str, job: &str, expected: Expect) {
    let (pool, number) = pool(scenario, job);
    let advice = explain::advise(pool.state(), pool.snapshot(), JobId::single(number));
    expected.assert_eq(&advice.map_or("it does not wait".to_owned(), |advice| told(&advice)));
}

#[test]
fn a_busy_pool_frees_itself_and_the_ends_that_do_are_named() {
    check(
        "node n1 4xh100\nsubmit a default 2 limit=1h\nsubmit b default 1 limit=2h\nsubmit c default 1\nplan\nsubmit j default 3\nplan",
        "j",
        expect![[r#"
            DV-GPUS-BUSY no node has 3 GPUs free that would do
                ask for 2 GPUs per task instead of 3 and wait for job 1 to end
                wait for jobs 1, 2 to end
                priority 1 for it
            => ask for 2 GPUs per task instead of 3 and wait for job 1 to end
        "#]],
    );
}

#[test]
fn a_limit_and_a_full_pool_are_lifted_one_by_one() {
    check(
        "node n1 4xh100\nqueue q limit=2\nqueue r\nsubmit a q 1 limit=1h\nsubmit b r 3 limit=2h\nplan\nsubmit j q 2\nplan",
        "j",
        expect![[r#"
            DV-QUEUE-LIMIT queue q is at its limit of 2 GPUs
                ask for 1 GPU per task instead of 2
                wait for job 1 to end
                1 more GPU of limit for q (to 3)
            DV-GPUS-BUSY no node has 2 GPUs free that would do
                wait for job 1 to end
                priority 1 for it
            => ask for 1 GPU per task instead of 2 and wait for job 1 to end
        "#]],
    );
}

#[test]
fn what_is_asked_instead_is_told_beside_what_the_job_asks_now() {
    check(
        "node n1 8xh100\nqueue q limit=3\nqueue r\nsubmit a r 7\nplan\nsubmit j q 5\nplan",
        "j",
        expect![[r#"
            DV-QUEUE-LIMIT queue q has a limit of 3 GPUs, and it asks for 5
                lifted by: ask for 1 GPU per task instead of 5
            DV-GPUS-BUSY no node has 5 GPUs free that would do
                ask for 1 GPU per task instead of 5
                wait for job 1 to end
                3 more GPUs of guarantee for q (to 3)
            => ask for 1 GPU per task instead of 5
        "#]],
    );
}

#[test]
fn own_conditions_are_waived_or_waited_for() {
    check(
        "node n1 4xh100 gb=80\nnode n2 2xa100\nsubmit a default 1 limit=1h\nplan\nsubmit j default 2 model=b200 after=a start=+10m held wait\nplan",
        "j",
        expect![[r#"
            DV-HELD held by ana
                release it
            DV-DEPENDENCY waits for job 1 to complete
                let it not wait for job 1
                wait for job 1 to end
            DV-START-AFTER its start time has not come
                submit it without a start time
                wait until its start time
            DV-NO-SUCH-MODEL the pool has no GPU like b200
                accept h100, too
                a node with 2 more b200
            => release it, let it not wait for job 1, submit it without a start time and accept h100, too
        "#]],
    );
}

#[test]
fn a_job_that_is_not_preemptible_needs_a_guarantee() {
    check(
        "node n1 8xh100\nqueue q guarantee=2\nqueue r guarantee=2\nsubmit a q 2 fixed\nplan\nsubmit j q 2 fixed wait\nplan",
        "j",
        expect![[r#"
            DV-OVER-QUOTA is not preemptible, and queue q is guaranteed 2 GPUs for such jobs
                submit it as preemptible
                wait for job 1 to end
                2 more GPUs of guarantee for q (to 4)
            => submit it as preemptible
        "#]],
    );
}

#[test]
fn in_a_strict_order_the_line_is_a_blocker() {
    check(
        "policy {strict: true, share: none, preempt: off}\nnode n1 4xh100\nsubmit a default 3 limit=1h\nplan\nsubmit b default 2\nsubmit j default 1\nplan",
        "j",
        expect![[r#"
            DV-IN-LINE jobs start strictly in order, and one before it does not fit yet
                wait for job 1 to end
                priority 1 for it
            => wait for job 1 to end
        "#]],
    );
}

#[test]
fn what_is_kept_for_others_may_be_used_by_a_job_that_is_over_in_time() {
    check(
        "node n1 4xh100\nsubmit a default 3 limit=1h\nplan\nsubmit b default 4\nsubmit j default 1\nplan",
        "j",
        expect![[r#"
            DV-RESERVED what is free is kept for job 2, which is before it in line
                say a time limit of at most 59m (-t 59m)
                priority 1 for it
            => say a time limit of at most 59m (-t 59m)
        "#]],
    );
}

#[test]
fn what_others_keep_is_lent_or_guaranteed_by_an_administrator() {
    check(
        "node n1 4xh100\nqueue a guarantee=3 lend=1\nqueue b guarantee=1\nsubmit x b 2 limit=1h\nplan\nsubmit j b 2\nplan",
        "j",
        expect![[r#"
            DV-NOT-LENT queue b would have to borrow, and the others lend 0 more GPUs
                wait for job 1 to end
                2 more GPUs of what is lent for a (to 3)
            => wait for job 1 to end
        "#]],
    );
}

#[test]
fn who_is_next_in_line_for_what_becomes_free_is_reckoned_with() {
    check(
        "node n1 2xh100\nsubmit a default 1 limit=1h\nsubmit b default 1 limit=2h\nplan\nsubmit first default 1\nplan\nsubmit j default 1\nplan",
        "j",
        expect![[r#"
            DV-GPUS-BUSY every GPU that would do is taken
                wait for jobs 1, 2 to end
                priority 1 for it
            => wait for jobs 1, 2 to end
        "#]],
    );
}

#[test]
fn nodes_that_drain_and_devices_that_broke_are_named() {
    check(
        "node n1 2xh100\nnode n2 1xh100\ndevice n2:0 down\ndrain on n1\nsubmit j default 1\nplan",
        "j",
        expect![[r#"
            DV-DRAINING 1 node that would do is being drained
                n1 takes jobs again: divvy gpus undrain n1
            => n1 takes jobs again: divvy gpus undrain n1
        "#]],
    );
}

#[test]
fn an_array_that_runs_as_many_members_as_may_is_allowed_more_or_waits() {
    check(
        "node n1 4xh100\nsubmit j default 1 array=0-5%2 limit=1h\nplan",
        "j",
        expect![[r#"
            DV-ARRAY-LIMIT 2 members of its array run, as many as may
                let 3 members of the array run at once
                wait for job 1_0 to end
            => let 3 members of the array run at once
        "#]],
    );
}

#[test]
fn a_gang_asks_for_fewer_tasks_or_lies_anywhere() {
    check(
        "node n1 2xh100 rack=r1\nnode n2 2xh100 rack=r2\nsubmit j default 2 tasks=2 within=rack wait\nplan",
        "j",
        expect![[r#"
            DV-TOPOLOGY 2 tasks must lie within one rack; none holds more than 1
                let its tasks lie anywhere
                nodes with 2 × 2 more h100
            => let its tasks lie anywhere
        "#]],
    );
}

#[test]
fn a_gang_that_must_be_spread_lets_more_tasks_lie_in_one_rack() {
    check(
        "node n1 4xh100 rack=r1\nnode n2 4xh100 rack=r2\nsubmit j default 1 tasks=6 spread=2:rack wait\nplan",
        "j",
        expect![[r#"
            DV-NOT-SPREAD of 6 tasks no more than 2 may lie in one rack; the empty pool holds 4 so
                let 3 tasks lie in one rack instead of 2
                nodes with 2 × 1 more h100
            => let 3 tasks lie in one rack instead of 2
        "#]],
    );
}

#[test]
fn where_no_number_in_one_rack_will_do_a_gang_only_prefers_to_be_spread() {
    check(
        "node n1 4xh100\nsubmit j default 1 tasks=2 spread=1:rack wait\nplan",
        "j",
        expect![[r#"
        DV-NOT-SPREAD of 2 tasks no more than 1 may lie in one rack; the empty pool holds 0 so
            only prefer to have its tasks spread
        => only prefer to have its tasks spread
    "#]],
    );
}

#[test]
fn who_asks_for_fewer_gpus_gets_less_memory_with_them_and_need_not_say_how_much() {
    check(
        "node n1 4xh100 mem=64\nnode n2 4xh100 mem=400\nsubmit c default 4 mem=100\nplan\nsubmit a default 2 limit=1h\nsubmit b default 2 limit=2h\nplan\nsubmit j default 3\nplan",
        "j",
        expect![[r#"
            DV-GPUS-BUSY no node has 3 GPUs free that would do
                ask for 2 GPUs per task instead of 3 and wait for job 2 to end
                wait for jobs 2, 3 to end
                priority 1 for it
            => ask for 2 GPUs per task instead of 3 and wait for job 2 to end
        "#]],
    );
}

#[test]
fn who_waits_for_its_start_time_keeps_its_place_in_a_strict_line() {
    check(
        "policy {strict: true, share: none, preempt: off}\nnode n1 2xh100\nsubmit a default 2 limit=1h\nplan\nsubmit j default 1 start=+30m\nsubmit k default 2\nplan",
        "j",
        expect![[r#"
            DV-START-AFTER its start time has not come
                submit it without a start time
                wait until its start time
            DV-GPUS-BUSY every GPU that would do is taken
                priority 1 for it
            DV-IN-LINE jobs start strictly in order, and one before it does not fit yet
                wait for job 1 to end
                priority 1 for it
            => wait until its start time and wait for job 1 to end
        "#]],
    );
}

#[test]
fn a_node_that_was_drained_twice_is_taken_back_once() {
    check(
        "node n1 2xh100\ndrain on n1\ndrain on n1\nsubmit j default 1\nplan",
        "j",
        expect![[r#"
            DV-DRAINING 1 node that would do is being drained
                n1 takes jobs again: divvy gpus undrain n1
            => n1 takes jobs again: divvy gpus undrain n1
        "#]],
    );
}

#[test]
fn who_keeps_more_than_there_is_has_to_lend_that_too() {
    check(
        "node n1 4xh100\nqueue a guarantee=6 lend=1\nqueue b\nsubmit j b 1 wait\nplan",
        "j",
        expect![[r#"
            DV-NOT-LENT queue b would have to borrow, and the others lend 0 more GPUs
                2 more GPUs of what is lent for a (to 3)
            => 2 more GPUs of what is lent for a (to 3)
        "#]],
    );
}

#[test]
fn who_wants_to_lie_near_others_may_lie_beside_anybody() {
    check(
        "node n1 1xh100 rack=r1\nnode n2 1xh100 rack=r2\nsubmit db default 1 labels=app:db\nstart db on=n1:0\nsubmit j default 1 near=app:db@rack wait\nplan",
        "j",
        expect![[r#"
            DV-NOT-NEAR wants to lie near tasks with app=db (same rack), and has no room near any
                submit it without near and apart
            => submit it without near and apart
        "#]],
    );
}

#[test]
fn who_wants_to_lie_apart_from_others_may_lie_beside_anybody() {
    check(
        "node n1 2xh100 rack=r1\nsubmit db default 1 labels=app:db limit=1h\nplan\nsubmit j default 1 apart=app:db@rack\nplan",
        "j",
        expect![[r#"
            DV-NOT-APART wants to lie apart from tasks with app=db (same rack), and they lie where it has room
                submit it without near and apart
                wait for job 1 to end
                priority 1 for it
            => submit it without near and apart
        "#]],
    );
}

#[test]
fn new_devices_of_which_the_pool_has_none_are_named_with_what_they_must_be_like() {
    check(
        "node n1 2xh100\nsubmit j default 1 model=l4 bandwidth=900 wait\nplan",
        "j",
        expect![[r#"
        DV-NO-SUCH-MODEL the pool has no GPU like l4 with at least 900 GB/s
            accept h100, too and accept GPUs with slower memory
            a node with 1 more l4 with at least 900 GB/s
        => accept h100, too and accept GPUs with slower memory
    "#]],
    );
}

#[test]
fn what_is_reserved_for_its_queue_keeps_nothing_from_a_job() {
    let (pool, _) =
        pool("node n1 4xh100\nqueue q\nqueue r\nreserve 2 queue=q\nplan\nsubmit a r 2\nplan", "a");
    let asks = |queue: &str| {
        let mut spec = (*pool.state().jobs[&1].spec).clone();
        spec.queue = queue.to_owned();
        let found = explain::explain_spec(pool.state(), pool.snapshot(), &spec);
        found.blockers.iter().map(|reason| reason.code()).collect::<Vec<_>>()
    };
    assert_eq!((asks("q"), asks("q/below"), asks("r")), (vec![], vec![], vec!["DV-BOOKED"]));
}

#[test]
fn new_nodes_are_there_before_they_are_guaranteed() {
    let (pool, number) = pool("node n1 2xh100\nqueue q\nsubmit j q 3 fixed wait\nplan", "j");
    let room = Change::AddRoom { tasks: 1, devices: 3, model: "h100".into(), kept: None, class: None };
    let raise = Raise { queue: "q".into(), resource: Resource::Any, from: 0, to: 3000 };
    let starts = |changes: &[Change]| {
        explain::starts_after(pool.state(), pool.snapshot(), JobId::single(number), changes)
    };
    assert!(starts(&[Change::RaiseGuarantee(raise.clone()), room]));
    assert!(!starts(&[Change::RaiseGuarantee(raise)]), "nothing is guaranteed that the pool does not have");
}

/// Advises on `j`, adds nodes, and says where it runs then.
fn told_and_seated(scenario: &str, nodes: &str) -> String {
    let (mut pool, number) = pool(scenario, "j");
    let advice = explain::advise(pool.state(), pool.snapshot(), JobId::single(number));
    let mut text = advice.map_or("it does not wait\n".to_owned(), |advice| told(&advice));
    for line in nodes.lines().chain(["plan"]) {
        assert_eq!(pool.line(line), Ok(()), "{line}");
    }
    let placements = pool.state().run(JobId::single(number)).map(|run| run.placements.clone());
    let name = |node| pool.state().nodes[&node].spec.name.clone();
    let names = placements.iter().flatten().map(|placement| name(placement.node));
    text += &format!("on {}\n", names.collect::<Vec<_>>().join(", "));
    text
}

#[test]
fn a_new_node_has_the_labels_of_its_queues_own_nodes() {
    let pool = "node n1 2xh100\nqueue prod nodes=pool:prod,zone:a\nsubmit j prod 1 wait\nplan";
    let expected = expect![[r#"
        DV-NODES-ABSENT none of the nodes is there that are kept for queue prod
            a node with 1 more h100, labelled pool=prod, zone=a
        => a node with 1 more h100, labelled pool=prod, zone=a
        on n3
    "#]];
    expected.assert_eq(&told_and_seated(pool, "node n2 1xh100\nnode n3 1xh100 labels=pool:prod,zone:a"));
}

#[test]
fn a_new_node_has_a_name_that_is_missing_among_its_queues_own_nodes() {
    let pool = "node n1 2xh100\nqueue prod nodes=n7,n8\nsubmit j prod 2 tasks=2 exclusive wait\nplan";
    let expected = expect![[r#"
        DV-NODES-ABSENT none of the nodes is there that are kept for queue prod
            ask for 1 task instead of 2 and a node with 2 more h100, named n7
            nodes with 2 × 2 more h100, named n7, n8
        => ask for 1 task instead of 2 and a node with 2 more h100, named n7
        on n7, n8
    "#]];
    expected.assert_eq(&told_and_seated(pool, "node n2 2xh100\nnode n7 2xh100\nnode n8 2xh100"));
}

/// Where a job runs, and why there.
fn seat(scenario: &str, job: &str) -> String {
    let (pool, number) = pool(scenario, job);
    let placements = pool.state().run(JobId::single(number)).map(|run| run.placements.clone());
    let spec = &pool.state().jobs[&number].spec;
    let seats = plan::seats(pool.snapshot(), spec, &placements.unwrap_or_default());
    seats.map_or("it has no place".to_owned(), |seats| seats.to_string())
}

#[test]
fn a_running_job_is_told_why_it_is_where_it_is() {
    let nodes = "node n1 4xh100 rack=r1\nnode n2 4xh100 rack=r1\nnode n3 2xa100 rack=r2\n";
    let alone = format!("{nodes}submit a default 3\nplan\nsubmit j default 1 model=h100\nplan");
    assert_eq!(seat(&alone, "j"), "of 2 nodes with room, the one that it leaves the least free on");
    assert_eq!(
        seat(&format!("{nodes}submit j default 2 model=a100\nplan"), "j"),
        "the only node with room for it"
    );
    let gang = format!("{nodes}submit j default 4 tasks=2\nplan");
    assert_eq!(seat(&gang, "j"), "2 of 2 nodes with room, all in rack r1");
}

#[test]
fn what_the_calendar_keeps_can_be_waited_for() {
    check(
        "node n1 2xh100\ndrain on n1 evict at=+0m for=2h\nsubmit j default 1\nplan",
        "j",
        expect![[r#"
            DV-DRAINING 1 node that would do is being drained
                wait until 1970-01-01 02:00 UTC: divvy reserve has it as reservation 1
                n1 takes jobs again: divvy gpus undrain n1
            => wait until 1970-01-01 02:00 UTC: divvy reserve has it as reservation 1
        "#]],
    );
}

#[test]
fn that_who_runs_is_safe_for_now_can_be_waited_for() {
    check(
        "policy {half_life: none, min_runtime: 1h}\nnode n1 4xh100\nqueue a guarantee=2\nqueue b guarantee=1 lend=0\nsubmit x default 3\nplan\nsubmit j a 2\nplan",
        "j",
        expect![[r#"
            DV-LENT-OUT what is guaranteed to queue a is lent to others, who are safe for now
                wait for job 1 to end
                1 more GPU of what is lent for b (to 1)
            DV-GPUS-BUSY no node has 2 GPUs free that would do
                lifted by: wait for job 1 to end
            => wait until 1970-01-01 01:00 UTC: until then those who run are safe from it
        "#]],
    );
}

#[test]
fn a_limit_of_the_only_model_is_named_to_who_names_none() {
    check(
        "node n1 8xh100\nqueue a h100=5\nsubmit j a 6 wait\nplan",
        "j",
        expect![[r#"
            DV-QUEUE-LIMIT queue a has a limit of 5 h100, and it asks for 6
                ask for 5 GPUs per task instead of 6
                1 more h100 of limit for a (to 6)
            => ask for 5 GPUs per task instead of 6
        "#]],
    );
}

#[test]
fn nobody_is_to_lend_more_than_is_guaranteed_to_him() {
    check(
        "policy {half_life: none}\nnode n1 8xh100\nqueue urgent guarantee=2 lend=0\nqueue a guarantee=3 lend=1\nsubmit u urgent 2\nsubmit x a 3\nplan\nsubmit j default 4\nplan",
        "j",
        expect![[r#"
            DV-GPUS-BUSY no node has 4 GPUs free that would do
                ask for 3 GPUs per task instead of 4
                wait for job 2 to end
                a node with 4 more h100
            => ask for 3 GPUs per task instead of 4
        "#]],
    );
}

#[test]
fn the_least_priority_that_suffices_is_named_and_none_above_what_its_queue_allows() {
    let pool = |bounds: &str| {
        format!(
            "node n1 2xh100\nqueue q {{\"path\": \"q\", \"bounds\": {{{bounds}}}}}\nsubmit a q 2 prio=50 limit=1h\nplan\nsubmit b q 1 prio=20\nsubmit j q 1\nplan"
        )
    };
    check(
        &pool(""),
        "j",
        expect![[r#"
            DV-GPUS-BUSY every GPU that would do is taken
                wait for job 1 to end
                priority 51 for it
            => wait for job 1 to end
        "#]],
    );
    check(
        &pool("\"max_priority\": 50"),
        "j",
        expect![[r#"
            DV-GPUS-BUSY every GPU that would do is taken
                wait for job 1 to end
                priority 21 for it and a node with 1 more h100
            => wait for job 1 to end
        "#]],
    );
}

#[test]
fn a_job_that_is_too_large_for_any_node_is_not_told_that_ends_alone_help() {
    check(
        "node n1 8xh100\nqueue q limit=6\nsubmit j q 9 wait\nsubmit a default 4\nsubmit b default 4\nplan",
        "j",
        expect![[r#"
            DV-QUEUE-LIMIT queue q has a limit of 6 GPUs, and it asks for 9
                lifted by: ask for 4 GPUs per task instead of 9
            DV-TOO-MANY-GPUS asks for 9 GPUs on one node; the largest node has 8 of them
                lifted by: ask for 4 GPUs per task instead of 9
            DV-GPUS-BUSY no node has 6 GPUs free that would do
                ask for 4 GPUs per task instead of 9
                wait for jobs 2, 3 to end
                6 more GPUs of guarantee for q (to 6)
            => ask for 4 GPUs per task instead of 9
        "#]],
    );
}

#[test]
fn a_limit_of_memory_that_the_share_of_one_gpu_exceeds_is_named_before_what_passes() {
    check(
        "node n1 2xh100 mem=20\nqueue q limit=1 memory=6Gi\nsubmit a q 1 mem=1\nplan\nsubmit j q 1\nplan",
        "j",
        expect![[r#"
            DV-QUEUE-LIMIT queue q has a limit of 6Gi memory, and it takes 10Gi
                ask for 5Gi of memory per task instead of 10Gi
                5Gi more memory of limit for q (to 11Gi)
            DV-QUEUE-LIMIT queue q is at its limit of 1 GPU
                wait for job 1 to end
                1 more GPU of limit for q (to 2)
            => ask for 5Gi of memory per task instead of 10Gi and wait for job 1 to end
        "#]],
    );
}

#[test]
fn a_job_beyond_its_own_limit_never_starts_as_things_are_set() {
    check(
        "node n1 8xh100\nqueue q limit=6\nsubmit j q 7\nplan",
        "j",
        expect![[r#"
            DV-QUEUE-LIMIT queue q has a limit of 6 GPUs, and it asks for 7
                ask for 6 GPUs per task instead of 7
                1 more GPU of limit for q (to 7)
            => ask for 6 GPUs per task instead of 7
        "#]],
    );
    check(
        "node n1 8xh100\nqueue q {\"path\": \"q\", \"users\": {\"limit\": {\"any\": {\"finite\": 4000}}}}\nsubmit a default 4\nplan\nsubmit j q 7\nplan",
        "j",
        expect![[r#"
            DV-USER-LIMIT a user has a limit of 4 GPUs in queue q, and this job of ana asks for 7
                ask for 4 GPUs per task instead of 7
                3 more GPUs of limit of each user for q (to 7)
            DV-GPUS-BUSY no node has 7 GPUs free that would do
                lifted by: ask for 4 GPUs per task instead of 7
            => ask for 4 GPUs per task instead of 7
        "#]],
    );
}

/// What the next cycle would make of one more job like this one.
fn tried(scenario: &str, job: &str) -> explain::Tried {
    let (pool, number) = pool(scenario, job);
    tried_in(pool.state(), (pool.snapshot(), number))
}

/// The same in a pool at some moment.
fn tried_in(state: &State, (snapshot, number): (&Snapshot, u64)) -> explain::Tried {
    let like = &state.jobs[&number];
    let submit = Submit {
        owner: like.owner.clone(),
        spec: like.spec.clone(),
        requeue_said: true,
        array: None,
        token: None,
        held: false,
        history: BTreeMap::new(),
    };
    explain::tried(state, snapshot, &submit).unwrap()
}

#[test]
fn what_was_used_of_a_budget_since_the_last_event_counts_for_a_job_that_is_tried() {
    let day =
        r#"queue q {"path": "q", "budget": {"milli_gpu_hours": 4000, "every": "day", "carry_milli": 0}}"#;
    let uses = format!("node n1 4xh100\n{day}\nsubmit a q 2 limit=1d\nplan\nsubmit j q 1 held\nplan");
    let (pool, number) = pool(&uses, "j");
    let begun = pool.state().now;
    let starts = |minutes: i64| {
        let mut state = pool.state().clone();
        state.pass(begun + Span(minutes * 60_000));
        tried_in(&state, (pool.snapshot(), number)).starts
    };
    assert_eq!([0, 119, 121].map(starts), [true, true, false], "two GPUs use four GPU-hours in two hours");
    let mut state = pool.state().clone();
    state.pass(begun - Span(1));
    assert_eq!(state.now, begun, "time goes on only");
}

#[test]
fn a_job_that_is_only_tried_is_told_who_would_give_way_for_it() {
    let lends = "node n1 2xh100\nqueue a guarantee=1\nqueue b guarantee=1\nsubmit x b 1\nsubmit y b 1\nplan\nsubmit j a 1 held\nplan";
    let told = tried(lends, "j");
    assert!(told.starts && told.placements.is_empty(), "{told:?}");
    assert_eq!(told.gives_way.iter().map(|way| way.cause).collect::<Vec<_>>(), [Cause::Reclaimed]);
    let whole: Vec<Option<u32>> = told.gives_way.iter().map(|way| way.tasks).collect();
    assert_eq!(whole, [None]);
    let grown = "node n1 2xh100\nqueue a guarantee=1\nqueue b\nsubmit x b 1 tasks=1..2\nplan\nsubmit j a 1 held\nplan";
    let told = tried(grown, "j");
    assert!(told.starts && told.placements.is_empty(), "{told:?}");
    let parts: Vec<(Cause, Option<u32>)> = told.gives_way.iter().map(|way| (way.cause, way.tasks)).collect();
    assert_eq!(parts, [(Cause::Reclaimed, Some(1))]);
    let free = tried("node n1 2xh100\nsubmit j default 1 held\nplan", "j");
    assert!(free.starts && free.placements.len() == 1 && free.gives_way.is_empty(), "{free:?}");
    let full = tried("node n1 2xh100\nsubmit x default 2\nplan\nsubmit j default 1 held\nplan", "j");
    assert_eq!(full, explain::Tried::default());
}

#[test]
fn what_a_job_leaves_that_the_calendar_keeps_for_others_by_then_is_not_waited_for_alone() {
    let (pool, number) = pool(
        "node n1 4xh100\nqueue b\nsubmit x default 4 limit=1h\nplan\nreserve 4 queue=b at=+30m for=10m\nplan\nsubmit j default 4 limit=20m\nplan",
        "x",
    );
    let stopped = pool.state().stopped_for(JobId::single(number)).map(|kept| (kept.id, kept.from.0));
    assert_eq!(stopped, Some((1, 30 * 60_000)));
    assert_eq!(explain::expected_end(pool.state(), JobId::single(number)).map(|at| at.0), Some(30 * 60_000));
    let (_, waits) = pool.jobs().find(|(name, _)| *name == "j").unwrap();
    let advice = explain::advise(pool.state(), pool.snapshot(), JobId::single(waits)).unwrap();
    expect![[r#"
        DV-GPUS-BUSY no node has 4 GPUs free that would do
            wait until 1970-01-01 00:40 UTC: divvy reserve has it as reservation 1 and wait for job 1 to end
            priority 1 for it
        => wait until 1970-01-01 00:40 UTC: divvy reserve has it as reservation 1 and wait for job 1 to end
    "#]]
    .assert_eq(&told(&advice));
}

#[test]
fn an_array_of_more_members_than_its_queue_ever_takes_is_told_so() {
    let mut pool = Scenario::new();
    pool.line("node n1 4xh100").unwrap();
    pool.line(r#"queue q {"path": "q", "bounds": {"max_jobs": 3}}"#).unwrap();
    pool.line("submit a q 1 array=0-5").unwrap();
    let said = pool.printed();
    let text = "refused beyond-queue: queue q takes at most 3 jobs at a time, and this array has 6 members";
    assert!(said.contains(text), "{said}");
}

/// Whether advice on a job names a change in these words.
fn names(scenario: &str, job: &str, change: &str) {
    let (pool, number) = pool(scenario, job);
    let text = explain::advise(pool.state(), pool.snapshot(), JobId::single(number)).map(|it| told(&it));
    assert!(text.as_ref().is_some_and(|text| text.contains(change)), "{text:?}");
}

#[test]
fn no_more_is_to_be_lent_than_the_job_needs() {
    names(
        "policy {half_life: none}\nnode n1 8xh100\nqueue prod guarantee=6 lend=0\nqueue b\nsubmit j b 4\nplan",
        "j",
        "2 more GPUs of what is lent for prod (to 2)",
    );
}

#[test]
fn a_limit_is_to_be_raised_by_as_much_as_what_else_is_changed_leaves() {
    names(
        "policy {half_life: none}\nnode n1 8xh100\nqueue a limit=8\nqueue a/x limit=4\nqueue b guarantee=4\nsubmit one a/x 4\nsubmit j a/x 4\n\
        submit three b 4\nplan\nqueue a limit=2\nqueue a/x limit=0\nplan",
        "j",
        "2 more GPUs of limit for a/x (to 2)",
    );
}

#[test]
fn no_more_is_to_be_lent_than_is_guaranteed() {
    names(
        r#"policy {half_life: none}
node n1 8xh100
queue prod {"path": "prod", "guarantee": {"h100": {"finite": 6000}}, "lend": {"any": {"finite": 0}}}
queue b
submit j b 8
plan"#,
        "j",
        "6 more GPUs of what is lent for prod (to 6)",
    );
}

/// Advice on a member of `j`, an array.
fn check_member(scenario: &str, member: u32, expected: Expect) {
    let (pool, number) = pool(scenario, "j");
    let id = JobId::member(number, member);
    let advice = explain::advise(pool.state(), pool.snapshot(), id).unwrap();
    let found = explain::explain(pool.state(), pool.snapshot(), id).unwrap();
    let ahead = found.ahead.map(|ahead| format!("{} before it, first {}\n", ahead.members, ahead.next));
    expected.assert_eq(&(ahead.unwrap_or_default() + &told(&advice)));
}

#[test]
fn a_member_behind_others_of_its_array_is_told_what_starts_the_next_of_them() {
    let full = "node n1 8xh100\nsubmit x default 8 limit=1h\nplan\nsubmit j default 1 array=0-9%2\nplan";
    check_member(
        full,
        5,
        expect![[r#"
        5 before it, first 2_0
        DV-GPUS-BUSY every GPU that would do is taken
            wait for job 1 to end
            priority 1 for it
        => wait for job 1 to end
    "#]],
    );
    let bounded = "node n1 8xh100\nsubmit j default 1 array=0-9%2 limit=1h\nplan";
    check_member(
        bounded,
        3,
        expect![[r#"
        1 before it, first 1_2
        DV-ARRAY-LIMIT 2 members of its array run, as many as may
            let 3 members of the array run at once
            wait for job 1_0 to end
        => let 3 members of the array run at once
    "#]],
    );
    let busy = "node n1 3xh100\nsubmit j default 1 array=0-9%8 limit=1h\nplan";
    check_member(
        busy,
        4,
        expect![[r#"
        1 before it, first 1_3
        DV-GPUS-BUSY every GPU that would do is taken
            wait for job 1_0 to end
            a node with 1 more h100
        => wait for job 1_0 to end
    "#]],
    );
    let held = format!("{full}\nhold j_5");
    check_member(
        &held,
        5,
        expect![[r#"
        5 before it, first 2_0
        DV-HELD held by ana
            release it
        DV-GPUS-BUSY every GPU that would do is taken
            wait for job 1 to end
            priority 1 for it
        => release it and wait for job 1 to end
    "#]],
    );
    check_member(
        &held,
        6,
        expect![[r#"
        5 before it, first 2_0
        DV-GPUS-BUSY every GPU that would do is taken
            wait for job 1 to end
            priority 1 for it
        => wait for job 1 to end
    "#]],
    );
}

#[test]
fn a_later_way_that_no_limit_exceeds_starts_with_time() {
    check(
        "node n1 2xh100\nnode n2 2xl4\nqueue q h100=1\nsubmit x q 2 model=l4 limit=1h\nplan\nsubmit j q 2 model=h100 or=l4:2\nplan",
        "j",
        expect![[r#"
            DV-QUEUE-LIMIT queue q has a limit of 1 h100, and it asks for 2
                ask for 1 GPU per task instead of 2
                wait for job 1 to end
                1 more h100 of limit for q (to 2)
            => ask for 1 GPU per task instead of 2
        "#]],
    );
}

#[test]
fn a_reservation_that_has_begun_is_told_with_its_end_and_one_to_come_with_its_beginning() {
    let said = |reservation: &str, job: &str| {
        let (pool, number) = pool(
            &format!(
                "node n1 8xh100\nqueue v\nreserve n1:0 queue=v {reservation}\nplan\npass 10m\nsubmit j default 8 {job}\nplan"
            ),
            "j",
        );
        let found = explain::explain(pool.state(), pool.snapshot(), JobId::single(number)).unwrap();
        explain::text(pool.state(), &found.blockers[0])
    };
    let (ends, begins) = ("1970-01-01 02:00 UTC", "1970-01-01 01:00 UTC");
    assert_eq!(said("for=2h", ""), format!("what is free is reserved now, until {ends}"));
    assert_eq!(said("", ""), "what is free is reserved now, until the reservation is taken back");
    assert_eq!(said("at=+1h", "limit=2h"), format!("what is free is reserved from {begins} on"));
}

/// The verdict on `j`, by both who ask: explanation and advice.
fn verdict(scenario: &str) -> Verdict {
    let (pool, number) = pool(scenario, "j");
    let id = JobId::single(number);
    let advice = explain::advise(pool.state(), pool.snapshot(), id).unwrap();
    let found = explain::explain(pool.state(), pool.snapshot(), id).unwrap();
    assert_eq!(advice.verdict, found.verdict, "{}", told(&advice));
    found.verdict
}

#[test]
fn a_job_never_starts_only_where_all_its_ways_exceed_what_is_set() {
    let nodes = "node n1 2xh100\nnode n2 2xl4\n";
    let ways = "submit x q 2 model=l4 limit=1h\nplan\nsubmit j q 2 model=h100 or=l4:2\nplan";
    assert_eq!(verdict(&format!("{nodes}queue q h100=1\n{ways}")), Verdict::Later);
    assert_eq!(
        verdict(&format!("{nodes}queue q limit=1\nsubmit j q 2 model=h100 or=l4:2\nplan")),
        Verdict::NoFit
    );
    let fixed = r#"queue q {"path": "q", "guarantee": {"h100": {"finite": 1000}, "l4": {"finite": 2000}}}"#;
    let fixed_ways = "submit x q 2 model=l4 fixed\nplan\nsubmit j q 2 model=h100 or=l4:2 fixed wait\nplan";
    assert_eq!(verdict(&format!("{nodes}{fixed}\n{fixed_ways}")), Verdict::Later);
    assert_eq!(verdict(&format!("{nodes}{fixed}\nsubmit j q 2 model=h100 fixed wait\nplan")), Verdict::NoFit);
}

#[test]
fn a_job_beyond_what_its_queue_may_borrow_or_others_lend_never_starts() {
    let borrow = "node n1 8xh100\nqueue b guarantee=2 borrow=1\nsubmit j b 4\nplan";
    assert_eq!(verdict(borrow), Verdict::NoFit);
    let taken = "node n1 8xh100\nqueue b guarantee=2 borrow=2\nsubmit x b 1\nplan\nsubmit j b 4\nplan";
    assert_eq!(verdict(taken), Verdict::Later);
    let lend = "policy {half_life: none}\nnode n1 8xh100\nqueue a guarantee=2 lend=0\nqueue b\n";
    assert_eq!(verdict(&format!("{lend}submit j b 7\nplan")), Verdict::NoFit);
    assert_eq!(verdict(&format!("{lend}submit x a 2\nplan\nsubmit j b 7\nplan")), Verdict::NoFit);
    assert_eq!(verdict(&format!("{lend}submit x b 6\nplan\nsubmit j b 6\nplan")), Verdict::Later);
    check(
        borrow,
        "j",
        expect![[r#"
            DV-BORROW-LIMIT queue b would borrow more than the 1 GPU that it may
                ask for 3 GPUs per task instead of 4
                1 more GPU of guarantee for b (to 3)
            => ask for 3 GPUs per task instead of 4
        "#]],
    );
}

#[test]
fn what_lifts_a_blocker_beside_another_is_named_where_not_all_ways_do() {
    check(
        "node n1 8xh100\nqueue q h100=1 limit=6\nqueue r\nsubmit x q 1\nsubmit y r 6 limit=1h\nsubmit z r 1\nplan\nqueue q h100=1 limit=1\nsubmit j q 1 model=h100\nplan",
        "j",
        expect![[r#"
            DV-QUEUE-LIMIT queue q is at its limit of 1 GPU
                wait for job 1 to end
                1 more GPU of limit for q (to 2)
            DV-GPUS-BUSY every GPU that would do is taken
                lifted by: wait for job 1 to end
            => wait for job 1 to end
        "#]],
    );
}

#[test]
fn the_end_of_a_reservation_that_has_begun_can_be_waited_for() {
    check(
        "node n1 8xh100\nqueue v\nreserve n1:0 queue=v for=2h\nplan\npass 10m\nsubmit j default 8 limit=1h\nplan",
        "j",
        expect![[r#"
            DV-BOOKED what is free is reserved from 1970-01-01 00:00 UTC on
                ask for 7 GPUs per task instead of 8
                wait until 1970-01-01 02:00 UTC: divvy reserve has it as reservation 1
                reservation 1 taken back: divvy reserve --cancel 1
            => ask for 7 GPUs per task instead of 8
        "#]],
    );
}

#[test]
fn of_a_small_budget_no_more_is_asked_for_than_a_little_beyond_what_is_used() {
    let small =
        r#"queue q {"path": "q", "budget": {"milli_gpu_hours": 20, "every": "day", "carry_milli": 0}}"#;
    check(
        &format!(
            "policy {{half_life: none}}\nnode n1 4xh100\n{small}\nsubmit a q 1\nplan\npass 4m\nsubmit b q 1\nplan"
        ),
        "b",
        expect![[r#"
            DV-OVER-BUDGET queue q has used its budget of 0.02 GPU-hours; it has more from 1970-01-04 00:00 UTC on
                0.048 more GPU-hours of budget for q (to 0.068)
            => 0.048 more GPU-hours of budget for q (to 0.068)
        "#]],
    );
}

#[test]
fn beside_another_reason_a_budget_may_be_waited_for_too() {
    let small =
        r#"queue q {"path": "q", "budget": {"milli_gpu_hours": 4000, "every": "day", "carry_milli": 0}}"#;
    check(
        &format!(
            "policy {{half_life: none}}\nnode n1 4xh100\n{small}\nqueue r\nsubmit a q 4\nplan\npass 2h\nend a\nsubmit x r 4 limit=3h\nplan\nsubmit b q 1\nplan"
        ),
        "b",
        expect![[r#"
            DV-OVER-BUDGET queue q has used its budget of 4 GPU-hours; it has more from 1970-01-03 00:00 UTC on
                wait for more of the budget of q until 1970-01-03 00:00 UTC
                4.2 more GPU-hours of budget for q (to 8.2)
            DV-GPUS-BUSY every GPU that would do is taken
                wait for job 2 to end
                a node with 1 more h100
            => wait for more of the budget of q until 1970-01-03 00:00 UTC and wait for job 2 to end
        "#]],
    );
}

#[test]
fn of_several_limits_that_are_reached_each_is_named() {
    check(
        "node n1 8xh100\nqueue l limit=2\nqueue l/x {\"path\": \"l/x\", \"limit\": {\"any\": {\"finite\": 2000}}, \"users\": {\"limit\": {\"any\": {\"finite\": 2000}}}}\nsubmit a l/x 2 limit=1h user=ana\nplan\nsubmit j l/x 1 user=ana\nplan",
        "j",
        expect![[r#"
            DV-USER-LIMIT ana is at the limit of 2 GPUs that a user has in queue l/x
                wait for job 1 to end
                1 more GPU of limit of each user for l/x (to 3)
            DV-QUEUE-LIMIT queue l/x is at its limit of 2 GPUs
                lifted by: wait for job 1 to end
            DV-QUEUE-LIMIT queue l is at its limit of 2 GPUs
                lifted by: wait for job 1 to end
            => wait for job 1 to end
        "#]],
    );
    let spent = r#"{"path": "q", "limit": {"any": {"finite": 1000}}, "budget": {"milli_gpu_hours": 1000, "every": "day", "carry_milli": 0}}"#;
    check(
        &format!("node n1 8xh100\nqueue q {spent}\nsubmit a q 1 limit=3h\nplan\npass 2h\nsubmit j q 1\nplan"),
        "j",
        expect![[r#"
            DV-OVER-BUDGET queue q has used its budget of 1 GPU-hour; it has more from 1970-01-03 00:00 UTC on
                1.2 more GPU-hours of budget for q (to 2.2)
            DV-QUEUE-LIMIT queue q is at its limit of 1 GPU
                wait for job 1 to end
                1 more GPU of limit for q (to 2)
            => wait for job 1 to end and 1.2 more GPU-hours of budget for q (to 2.2)
        "#]],
    );
}
