//! Scenarios of entitlement: guarantees, shares, reclaim and preemption.

use divvy_core::scenario::run;
use expect_test::{Expect, expect};

/// Runs a scenario in which queues share the pool and jobs give way by least loss.
fn check(scenario: &str, expected: Expect) {
    let text = format!("policy {{share: fill, preempt: least_loss}}\n{scenario}");
    match run(&text) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

#[test]
fn a_queue_takes_back_what_is_guaranteed_to_it_and_no_more() {
    check(
        "node n1 8xh100\nqueue a guarantee=4\nqueue b guarantee=4\nsubmit b0 b 1 array=0-7\nplan\npass 1h\nsubmit a0 a 4\nplan\nend b0_7 signal=15\nend b0_6 signal=15\nend b0_5 signal=15\nend b0_4 signal=15\nplan\nsubmit a1 a 1\nplan",
        expect![[r#"
            place b0_0 n1:0
            place b0_1 n1:1
            place b0_2 n1:2
            place b0_3 n1:3
            place b0_4 n1:4
            place b0_5 n1:5
            place b0_6 n1:6
            place b0_7 n1:7
            stop b0_7 Reclaimed by a0
            stop b0_6 Reclaimed by a0
            stop b0_5 Reclaimed by a0
            stop b0_4 Reclaimed by a0
            promise a0 n1:4+n1:5+n1:6+n1:7
            ended b0_7 pending Reclaimed exit=143
            ended b0_6 pending Reclaimed exit=143
            ended b0_5 pending Reclaimed exit=143
            ended b0_4 pending Reclaimed exit=143
            place a0 n1:4+n1:5+n1:6+n1:7
            wait DV-GPUS-BUSY: every GPU that would do is taken
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn without_guarantees_queues_share_by_weight() {
    check(
        "node n1 8xh100\nqueue a weight=3\nqueue b weight=1\nsubmit b0 b 1 array=0-7\nsubmit a0 a 1 array=0-7\nplan",
        expect![[r#"
            place a0_0 n1:0
            place b0_0 n1:1
            place a0_1 n1:2
            place a0_2 n1:3
            place b0_1 n1:4
            place a0_3 n1:5
            place a0_4 n1:6
            place a0_5 n1:7
            wait DV-GPUS-BUSY: every GPU that would do is taken
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn urgent_work_displaces_what_loses_least_in_its_queue() {
    check(
        "node n1 2xh100\nsubmit old default 1\nplan\npass 1h\nsubmit young default 1\nplan\npass 1m\nsubmit fix default 1 prio=urgent\nplan\nexplain fix\nend young signal=15\nend old\nplan",
        expect![[r#"
            place old n1:0
            place young n1:1
            stop young Preempted by fix
            promise fix n1:1
            later
              DV-PROMISED its devices are promised to it; the task that holds them is being stopped | wait a moment: it starts when that task has stopped
              2 in pool > 2 right model > 2 enough memory > 2 healthy > 0 free > 0 on one node
            ended young pending Preempted exit=143
            place fix n1:1
            ended old completed Exit exit=0
            place young n1:0
        "#]],
    );
}

#[test]
fn equal_priority_displaces_nobody() {
    check(
        "node n1 1xh100\nsubmit a default 1 prio=high\nplan\nsubmit b default 1 prio=high\nplan\npass 1h\nplan",
        expect![[r#"
            place a n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn nobody_is_stopped_for_a_polite_job_and_it_takes_what_is_free() {
    check(
        "node n1 2xh100\nqueue a guarantee=2\nqueue b\nsubmit b1 b 2\nplan\nsubmit polite a 1 prio=high polite\nplan\nend b1\nplan",
        expect![[r#"
            place b1 n1:0+n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
            ended b1 completed Exit exit=0
            place polite n1:0
        "#]],
    );
}

#[test]
fn urgent_jobs_need_the_leave_of_their_queue_or_of_one_above_it() {
    check(
        "node n1 4xh100\nqueue lab {\"path\": \"lab\", \"bounds\": {\"max_priority\": 1000}}\nqueue lab/a\nqueue b\nsubmit j1 lab/a 1 prio=urgent\nsubmit j2 b 1 prio=urgent\nsubmit j3 b 1 prio=999\nplan",
        expect![[r#"
            refused no-leave: queue b takes no urgent jobs, and this one has priority urgent
            place j1 n1:0
            place j3 n1:1
        "#]],
    );
    check(
        "node n1 4xh100\nsubmit j1 default 1 prio=urgent\nplan",
        expect![[r#"
        place j1 n1:0
    "#]],
    );
}

#[test]
fn before_others_go_for_it_a_job_gets_what_ends_anyway() {
    check(
        "node n1 3xh100\nsubmit a default 1\nsubmit b default 1\nsubmit x default 1\nplan\ncancel a\nplan\nsubmit c default 1 prio=high\nplan\nsubmit d default 1 prio=high\nplan\nend a signal=15\nplan",
        expect![[r#"
            place a n1:0
            place b n1:1
            place x n1:2
            stop a Cancelled
            promise c n1:0
            stop x Preempted by d
            promise d n1:2
            ended a cancelled Cancelled exit=143
            place c n1:0
        "#]],
    );
    check(
        "node n1 3xh100\nsubmit a default 1\nsubmit b default 1\nsubmit x default 1\nplan\ncancel a\nplan\nsubmit c default 2 prio=high\nplan\nend a signal=15\nplan\nend x signal=15\nplan",
        expect![[r#"
            place a n1:0
            place b n1:1
            place x n1:2
            stop a Cancelled
            stop x Preempted by c
            promise c n1:0+n1:2
            ended a cancelled Cancelled exit=143
            ended x pending Preempted exit=143
            place c n1:0+n1:2
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn who_could_take_nothing_is_promised_nothing_that_ends() {
    check(
        "node n1 1xh100\nsubmit a default 1\nplan\ncancel a\nplan\nsubmit b default 1\nplan\nsubmit c default 1 prio=low\nplan\nend a signal=15\nplan",
        expect![[r#"
            place a n1:0
            stop a Cancelled
            wait DV-GPUS-BUSY: every GPU that would do is taken
            wait DV-GPUS-BUSY: every GPU that would do is taken
            ended a cancelled Cancelled exit=143
            place b n1:0
        "#]],
    );
}

#[test]
fn who_is_within_his_guarantee_gives_nothing_for_what_his_siblings_have_too_much() {
    // Of org o together more than is guaranteed runs; it is y that has too much, though x loses less.
    check(
        "node n1 4xh100\nqueue o\nqueue o/x guarantee=1\nqueue o/y\nqueue p guarantee=1\nsubmit y0 o/y 1 array=0-2\nplan\npass 1h\nsubmit x0 o/x 1\nplan\npass 1m\nsubmit p0 p 1\nplan",
        expect![[r#"
            place y0_0 n1:0
            place y0_1 n1:1
            place y0_2 n1:2
            place x0 n1:3
            stop y0_2 Reclaimed by p0
            promise p0 n1:2
        "#]],
    );
}

#[test]
fn only_who_stays_within_his_guarantee_leaves_others_with_less_than_theirs() {
    check(
        "node n1 6xh100\nqueue a guarantee=2\nqueue b weight=3\nsubmit a0 a 4\nsubmit b0 b 2\nplan\nsubmit b1 b 1\nplan",
        expect![[r#"
            place a0 n1:0+n1:1+n1:2+n1:3
            place b0 n1:4+n1:5
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
    check(
        "node n1 6xh100\nqueue a guarantee=2\nqueue b guarantee=3 weight=3\nsubmit a0 a 4\nsubmit b0 b 2\nplan\nsubmit b1 b 1\nplan",
        expect![[r#"
            place b0 n1:0+n1:1
            place a0 n1:2+n1:3+n1:4+n1:5
            stop a0 Reclaimed by b1
            promise b1 n1:2
        "#]],
    );
}

#[test]
fn what_is_guaranteed_to_a_queue_above_comes_back_though_a_whole_job_goes() {
    check(
        "policy {share: fill, preempt: least_loss}
node n1 8xh100
queue research guarantee=4
queue research/vision
queue research/nlp
queue production guarantee=4
submit big production 8
plan
pass 1h
submit a research/vision 2
submit b research/nlp 2
plan",
        expect![[r#"
            place big n1:0+n1:1+n1:2+n1:3+n1:4+n1:5+n1:6+n1:7
            stop big Reclaimed by a
            promise a n1:0+n1:1
            promise b n1:2+n1:3
        "#]],
    );
}

#[test]
fn what_is_guaranteed_to_a_queue_above_leaves_no_sibling_below_it_short() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 8xh100
queue a guarantee=6
queue a/x weight=3
queue a/y guarantee=2
queue b guarantee=2
submit b1 b 4
submit y1 a/y 4
plan
submit x1 a/x 2
submit x2 a/x 2
plan",
        expect![[r#"
            place y1 n1:0+n1:1+n1:2+n1:3
            place b1 n1:4+n1:5+n1:6+n1:7
            stop b1 Reclaimed by x1
            promise x1 n1:4+n1:5
            promise x2 n1:6+n1:7
        "#]],
    );
}

#[test]
fn a_large_job_goes_for_a_guarantee_though_without_a_smaller_one_it_could_not() {
    for (own, above) in [(3, 3), (0, 3)] {
        check(
            &format!(
                "policy {{share: fill, preempt: least_loss}}
node n1 4xh100
node n2 2xh100
queue a guarantee={above}
queue a/x guarantee={own}
queue b guarantee=3
submit small b 1
submit large b 3
start small on=n1:0
start large on=n1:1+n1:2+n1:3
pass 1h
submit x1 a/x 3
plan"
            ),
            expect![[r#"
                stop large Reclaimed by x1
                promise x1 n1:1+n1:2+n1:3
            "#]],
        );
    }
}

#[test]
fn a_job_goes_for_what_is_due_though_after_a_smaller_one_it_could_not() {
    check(
        "policy {share: fill, preempt: least_loss}
node n1 4xh100
node n2 2xh100
queue a
queue b
submit small b 1
submit other b 2
submit large b 2
start small on=n1:0
start other on=n2:0+n2:1
start large on=n1:1+n1:2
pass 1h
submit a1 a 3
plan",
        expect![[r#"
            stop large Reclaimed by a1
            promise a1 n1:1+n1:2+n1:3
        "#]],
    );
}

#[test]
fn one_that_alone_leaves_his_queue_its_guarantee_goes_though_a_younger_one_would_lose_less() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}\nnode n1 4xh100\nqueue a guarantee=1 weight=0\nqueue b guarantee=2\nsubmit a0 a 3\nplan\npass 1h\nsubmit a1 a 1\nplan\nsubmit b0 b 3\nplan",
        expect![[r#"
            place a0 n1:0+n1:1+n1:2
            place a1 n1:3
            stop a0 Reclaimed by b0
            promise b0 n1:0+n1:1+n1:2
        "#]],
    );
}

#[test]
fn whose_devices_were_just_taken_takes_those_of_others_for_what_is_guaranteed_to_his_queue() {
    check(
        "node n1 4xh100\nnode n2 1xa100\nqueue x guarantee=2\nqueue y guarantee=4\nqueue z\nsubmit z0 z 1 model=a100\nplan\nsubmit x1 x 1\nsubmit x3 x 3\nplan\n\
        submit y0 y 4\nplan\nend x1 signal=15\nend x3 signal=15\nplan",
        expect![[r#"
            place z0 n2:0
            place x1 n1:0
            place x3 n1:1+n1:2+n1:3
            stop x1 Reclaimed by y0
            stop x3 Reclaimed by y0
            promise y0 n1:0+n1:1+n1:2+n1:3
            ended x1 pending Reclaimed exit=143
            ended x3 pending Reclaimed exit=143
            place y0 n1:0+n1:1+n1:2+n1:3
            stop z0 Reclaimed by x1
            promise x1 n2:0
            wait DV-GPUS-BUSY: no node has 3 GPUs free that would do
        "#]],
    );
}

#[test]
fn a_job_that_is_not_preemptible_stays_within_the_guarantee_and_is_no_victim() {
    check(
        "node n1 4xh100\nqueue a guarantee=2\nqueue b guarantee=2\nsubmit pin b 2 fixed\nsubmit more b 1 fixed\nsubmit lent b 2\nplan\nexplain more\nsubmit a0 a 2\nplan",
        expect![[r#"
            place pin n1:0+n1:1
            place lent n1:2+n1:3
            wait DV-OVER-QUOTA: is not preemptible, and queue b is guaranteed 2 GPUs for such jobs
            later
              DV-OVER-QUOTA is not preemptible, and queue b is guaranteed 2 GPUs for such jobs | submit it as preemptible, or raise b's guarantee of any above 2 (this job asks for 1)
              DV-GPUS-BUSY every GPU that would do is taken | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 0 free > 0 on one node
            stop lent Reclaimed by a0
            promise a0 n1:2+n1:3
        "#]],
    );
}

#[test]
fn nobody_is_stopped_unless_the_claim_gets_its_place() {
    check(
        "node n1 4xh100\nnode n2 4xh100\nqueue a guarantee=4\nqueue b guarantee=7\nsubmit b1 b 2\nsubmit b2 b 2\nsubmit b3 b 2\nsubmit b4 b 2\nplan\nsubmit a0 a 4\nplan",
        expect![[r#"
            place b1 n1:0+n1:1
            place b2 n1:2+n1:3
            place b3 n2:0+n2:1
            place b4 n2:2+n2:3
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
        "#]],
    );
}

#[test]
fn what_loses_least_and_is_smallest_goes_first() {
    check(
        "node n1 4xh100\nnode n2 4xh100\nqueue a guarantee=4\nqueue b guarantee=4\nsubmit b1 b 2\nsubmit b2 b 2\nsubmit b3 b 2\nsubmit b4 b 1\nplan\nsubmit a0 a 4\nplan",
        expect![[r#"
            place b1 n1:0+n1:1
            place b2 n1:2+n1:3
            place b3 n2:0+n2:1
            place b4 n2:2
            stop b4 Reclaimed by a0
            stop b3 Reclaimed by a0
            promise a0 n2:0+n2:1+n2:2+n2:3
        "#]],
    );
}

#[test]
fn a_gang_is_cleared_node_by_node_at_the_least_loss() {
    check(
        "node n1 4xh100\nnode n2 4xh100\nnode n3 4xh100\nsubmit o1 default 4\nplan\npass 2h\nsubmit s1 default 4\nplan\npass 1h\nsubmit s2 default 2\nsubmit s3 default 2\nplan\npass 10m\nsubmit g default 4 tasks=2 prio=high\nplan",
        expect![[r#"
            place o1 n1:0+n1:1+n1:2+n1:3
            place s1 n2:0+n2:1+n2:2+n2:3
            place s2 n3:0+n3:1
            place s3 n3:2+n3:3
            stop s3 Preempted by g
            stop s2 Preempted by g
            stop s1 Preempted by g
            promise g n2:0+n2:1+n2:2+n2:3 n3:0+n3:1+n3:2+n3:3
        "#]],
    );
}

#[test]
fn siblings_are_compared_where_the_paths_part() {
    check(
        "node n1 8xh100\nqueue x guarantee=4\nqueue x/a guarantee=2\nqueue x/b guarantee=2\nqueue y guarantee=4\nsubmit b0 x/b 1 array=0-3\nsubmit y0 y 1 array=0-3\nplan\nsubmit a0 x/a 2\nplan",
        expect![[r#"
            place b0_0 n1:0
            place y0_0 n1:1
            place b0_1 n1:2
            place y0_1 n1:3
            place b0_2 n1:4
            place y0_2 n1:5
            place b0_3 n1:6
            place y0_3 n1:7
            stop b0_3 Reclaimed by a0
            stop b0_2 Reclaimed by a0
            promise a0 n1:4+n1:6
        "#]],
    );
}

#[test]
fn what_a_queue_does_not_lend_stays_free_for_it() {
    check(
        "node n1 4xh100\nqueue a guarantee=3 lend=1\nqueue b guarantee=1\nsubmit b0 b 1 array=0-3\nplan\nexplain b0\nsubmit a0 a 2\nplan",
        expect![[r#"
            place b0_0 n1:0
            place b0_1 n1:1
            wait DV-NOT-LENT: queue b would have to borrow, and the others lend 0 more GPUs
            later
              DV-NOT-LENT queue b would have to borrow, and the others lend 0 more GPUs | wait for jobs that borrow to end, have other queues lend more GPUs, or raise b's guarantee (this job asks for 1)
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 2 free > 2 on one node
            place a0 n1:2+n1:3
        "#]],
    );
}

#[test]
fn what_was_lent_before_counts_in_later_cycles_too() {
    check(
        "node n1 8xh100\nqueue a guarantee=4 lend=0\nqueue b\nqueue b/c guarantee=1\nsubmit a0 a 1\nsubmit c0 b/c 1\nplan\nsubmit c1 b/c 4\nplan\nsubmit c2 b/c 3\nplan",
        expect![[r#"
            place a0 n1:0
            place c0 n1:1
            wait DV-NOT-LENT: queue b/c would have to borrow, and the others lend 3 more GPUs
            place c2 n1:2+n1:3+n1:4
        "#]],
    );
}

#[test]
fn a_queue_borrows_no_more_than_it_may_even_where_more_is_free() {
    check(
        "node n1 4xh100\nqueue a guarantee=3\nqueue b guarantee=1 borrow=1\nsubmit b0 b 1 array=0-3\nsubmit b1 b 3\nplan\nexplain b1",
        expect![[r#"
            place b0_0 n1:0
            place b0_1 n1:1
            wait DV-BORROW-LIMIT: queue b would borrow more than the 1 GPU that it may
            wait DV-BORROW-LIMIT: queue b would borrow more than the 1 GPU that it may
            no_fit
              DV-BORROW-LIMIT queue b would borrow more than the 1 GPU that it may | wait for jobs of b to end, or let it borrow more GPUs than 1 (this job asks for 3)
              DV-GPUS-BUSY no node has 3 GPUs free that would do | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 2 free > 0 on one node
        "#]],
    );
}

#[test]
fn what_is_kept_within_a_part_of_the_tree_is_no_loan_to_another_part() {
    check(
        "node n1 8xh100\nqueue x guarantee=4\nqueue x/a guarantee=3 lend=0\nqueue x/b guarantee=1\nqueue y guarantee=4\nsubmit y0 y 1 array=0-7\nplan\nsubmit a0 x/a 3\nplan\nsubmit b0 x/b 1\nplan",
        expect![[r#"
            place y0_0 n1:0
            place y0_1 n1:1
            place y0_2 n1:2
            place y0_3 n1:3
            place y0_4 n1:4
            wait DV-NOT-LENT: queue y would have to borrow, and the others lend 0 more GPUs
            place a0 n1:5+n1:6+n1:7
            stop y0_4 Reclaimed by b0
            promise b0 n1:4
        "#]],
    );
}

#[test]
fn a_queue_that_may_not_evict_while_it_borrows_waits_beyond_its_guarantee() {
    for (setting, expected) in [
        (
            "true",
            expect![[r#"
                place b0_0 n1:0
                place b0_1 n1:1
                place b0_2 n1:2
                place b0_3 n1:3
                stop b0_3 Reclaimed by a0
                stop b0_2 Reclaimed by a0
                promise a0 n1:2+n1:3
            "#]],
        ),
        (
            "false",
            expect![[r#"
                place b0_0 n1:0
                place b0_1 n1:1
                place b0_2 n1:2
                place b0_3 n1:3
                wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            "#]],
        ),
    ] {
        let scenario = format!(
            "policy {{share: fill, preempt: least_loss, borrow_evicts: {setting}}}\nnode n1 4xh100\nqueue a guarantee=1\nqueue b guarantee=1\nsubmit b0 b 1 array=0-3\nplan\nsubmit a0 a 2\nplan"
        );
        expected.assert_eq(&run(&scenario).unwrap_or_else(|bad| bad.to_string()));
    }
}

#[test]
fn by_the_dominant_part_a_queue_of_many_cores_gets_as_much_of_them_as_another_of_devices() {
    let scenario = "policy {share: dominant, preempt: off}\nnode n1 8xh100 cpu=80 mem=512\n\
        queue a {\"path\": \"a\", \"limit\": {}, \"guarantee\": {\"cpu\": {\"finite\": 0}}, \"weight\": 1}\nqueue b weight=1\n\
        submit a0 a 1 cpu=20 array=0-7\nsubmit b0 b 2 cpu=5 array=0-7\nplan";
    match run(scenario) {
        Ok(printed) => expect![[r#"
            place a0_0 n1:0
            place b0_0 n1:1+n1:2
            place a0_1 n1:3
            place b0_1 n1:4+n1:5
            place a0_2 n1:6
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            wait DV-HOST-BUSY: no node has 20 cores left
        "#]]
        .assert_eq(&printed),
        Err(bad) => expect![[""]].assert_eq(&bad.to_string()),
    }
}

#[test]
fn queues_whose_jobs_are_larger_than_their_due_take_turns() {
    check(
        "node n1 8xh100\nqueue a\nqueue b\nsubmit b0 b 8\nplan\nsubmit a0 a 8\nplan\npass 1m\nplan\npass 30m\nplan\npass 31m\nplan\nend b0 signal=15\nplan\npass 3h\nplan",
        expect![[r#"
            place b0 n1:0+n1:1+n1:2+n1:3+n1:4+n1:5+n1:6+n1:7
            wait DV-GPUS-BUSY: no node has 8 GPUs free that would do
            stop b0 Reclaimed by a0
            promise a0 n1:0+n1:1+n1:2+n1:3+n1:4+n1:5+n1:6+n1:7
            ended b0 pending Reclaimed exit=143
            place a0 n1:0+n1:1+n1:2+n1:3+n1:4+n1:5+n1:6+n1:7
            wait DV-GPUS-BUSY: no node has 8 GPUs free that would do
            stop a0 Reclaimed by b0
            promise b0 n1:0+n1:1+n1:2+n1:3+n1:4+n1:5+n1:6+n1:7
        "#]],
    );
}

#[test]
fn a_queue_that_wants_nothing_earns_nothing() {
    check(
        "node n1 4xh100\nqueue a\nqueue b\nsubmit b0 b 2 array=0-3\nplan\npass 1m\nplan\npass 8d\nplan\nsubmit a0 a 4\nplan\npass 1m\nplan",
        expect![[r#"
            place b0_0 n1:0+n1:1
            place b0_1 n1:2+n1:3
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
        "#]],
    );
}

#[test]
fn a_queue_says_what_its_jobs_may_ask_for() {
    check(
        "node n1 4xh100\nqueue a {\"path\": \"a\", \"bounds\": {\"max_priority\": 100, \"max_jobs\": 3}}\nqueue a/b {\"path\": \"a/b\", \"bounds\": {\"max_time\": 3600000}}\nsubmit j1 a 1 prio=urgent\nsubmit j2 a/b 1 prio=urgent\nsubmit j3 a/b 1 limit=2h\nsubmit j4 a/b 1 limit=1h array=0-3\nsubmit j5 a/b 1 array=0-2\nsubmit j6 a 1\nplan\npass 1h\nplan",
        expect![[r#"
            refused beyond-queue: queue a takes jobs with a priority of at most high, and this one has urgent
            refused beyond-queue: queue a takes jobs with a priority of at most high, and this one has urgent
            refused beyond-queue: queue a/b takes jobs with a time limit of at most 1h, and this one has 2h
            refused beyond-queue: queue a takes at most 3 jobs at a time, and this array has 4 members
            refused queue-full: queue a takes 3 jobs at once, and 3 wait or run
            place j5_0 n1:0
            place j5_1 n1:1
            place j5_2 n1:2
            stop j5_0 TimeLimit
            stop j5_1 TimeLimit
            stop j5_2 TimeLimit
        "#]],
    );
}

#[test]
fn where_others_use_all_that_they_keep_a_wide_job_waits_for_room_and_has_it_kept() {
    check(
        "policy {half_life: none}\nnode n1 6xh100\nqueue a guarantee=2 lend=0\nqueue b\nsubmit a0 a 2\nsubmit b0 b 1 array=0-3 limit=1h\nplan\npass 10m\nsubmit wide b 4\nplan\nend b0_0\nsubmit small b 1 limit=2h\nplan\nexplain small",
        expect![[r#"
            place a0 n1:0+n1:1
            place b0_0 n1:2
            place b0_1 n1:3
            place b0_2 n1:4
            place b0_3 n1:5
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
            ended b0_0 completed Exit exit=0
            wait DV-RESERVED: what is free is kept for job 3, which is before it in line
            later
              DV-RESERVED what is free is kept for job 3, which is before it in line | give it a time limit (-t) that ends before job 3 can start: divvy explain 3 says when
              6 in pool > 6 right model > 6 enough memory > 6 healthy > 1 free > 1 on one node
        "#]],
    );
}

#[test]
fn a_wide_job_that_would_borrow_is_not_passed_by_those_that_would_borrow_longer() {
    check(
        "policy {half_life: none}\nnode n1 8xh100\nqueue prod guarantee=3 lend=0\nqueue b\nqueue c\nsubmit b0 b 1 array=0-2 limit=1h\nplan\npass 10m\nsubmit wide b 4\nplan\nsubmit small b 1 limit=2h\nsubmit other c 1 limit=2h\nsubmit short b 1 limit=20m\nsubmit p prod 3\nplan\nexplain wide\nend b0_0\nplan\nend other\nend short\nplan\nend b0_1\nplan",
        expect![[r#"
            place b0_0 n1:0
            place b0_1 n1:1
            place b0_2 n1:2
            wait DV-NOT-LENT: queue b would have to borrow, and the others lend 2 more GPUs
            place p n1:3+n1:4+n1:5
            place other n1:6
            place short n1:7
            wait DV-RESERVED: what is free is kept for job 2, which is before it in line
            later
              DV-GPUS-BUSY no node has 4 GPUs free that would do | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              8 in pool > 8 right model > 8 enough memory > 8 healthy > 0 free > 0 on one node
              room from 1h
            ended b0_0 completed Exit exit=0
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
            ended other completed Exit exit=0
            ended short completed Exit exit=0
            place small n1:0
            ended b0_1 completed Exit exit=0
        "#]],
    );
}

#[test]
fn what_becomes_free_is_collected_for_a_loan_but_for_none_larger_than_there_is_to_borrow() {
    let scenario = |wide: u32| {
        format!(
            "policy {{half_life: none, collect_after: 1h}}\nnode n1 8xh100\nqueue prod guarantee=3 lend=0\nqueue b\nsubmit b0 b 4\nplan\nsubmit wide b {wide}\nplan\npass 2h\nsubmit small b 1\nplan"
        )
    };
    check(
        &scenario(5),
        expect![[r#"
        place b0 n1:0+n1:1+n1:2+n1:3
        wait DV-NOT-LENT: queue b would have to borrow, and the others lend 1 more GPU
        wait DV-RESERVED: what is free is kept for job 2, which is before it in line
    "#]],
    );
    check(
        &scenario(6),
        expect![[r#"
        place b0 n1:0+n1:1+n1:2+n1:3
        wait DV-NOT-LENT: queue b would have to borrow, and the others lend 1 more GPU
        place small n1:4
    "#]],
    );
}

#[test]
fn nobody_gives_way_while_it_is_only_being_found_out_who_wants_something_of_another_pool() {
    check(
        "node n1 8xh100\nqueue a {\"path\": \"a\", \"priority\": 10}\nqueue b limit=2\nqueue c\nsubmit c1 c 3 mem=1\nsubmit c2 c 2 mem=1\nsubmit a1 a 3 mem=1\nplan\nsubmit a2 a 1 mem=1\nplan\nsubmit hopeless b 3 mem=1 wait\nplan\nrestart\nplan\nprioritise hopeless low\nplan",
        expect![[r#"
            place a1 n1:0+n1:1+n1:2
            place c1 n1:3+n1:4+n1:5
            place c2 n1:6+n1:7
            wait DV-GPUS-BUSY: every GPU that would do is taken
            wait DV-QUEUE-LIMIT: queue b has a limit of 2 GPUs, and it asks for 3
            wait DV-QUEUE-LIMIT: queue b has a limit of 2 GPUs, and it asks for 3
        "#]],
    );
}

#[test]
fn by_the_dominant_part_idle_devices_go_along_with_guaranteed_cores() {
    check(
        "policy {share: dominant}\nnode n1 8xh100 cpu=64 mem=512\n\
         queue a {\"path\": \"a\", \"guarantee\": {\"cpu\": {\"finite\": 32000}}}\nqueue b\n\
         submit b1 b 0 array=0-7 cpu=8 mem=4\nplan\npass 5m\nsubmit a1 a 1 array=0-7 cpu=8 mem=4\nplan",
        expect![[r#"
            place b1_0 n1
            place b1_1 n1
            place b1_2 n1
            place b1_3 n1
            place b1_4 n1
            place b1_5 n1
            place b1_6 n1
            place b1_7 n1
            stop b1_7 Reclaimed by a1_0
            stop b1_6 Reclaimed by a1_1
            stop b1_5 Reclaimed by a1_2
            stop b1_4 Reclaimed by a1_3
            stop b1_3 Reclaimed by a1_4
            promise a1_0 n1:0
            promise a1_1 n1:1
            promise a1_2 n1:2
            promise a1_3 n1:3
            promise a1_4 n1:4
            wait DV-HOST-BUSY: no node has 8 cores left
        "#]],
    );
}

#[test]
fn what_the_line_gives_is_taken_back_for_guarantees_alone() {
    check(
        "policy {surplus: line}\nnode n1 4xh100\nqueue a guarantee=1 weight=3\nqueue b\n\
         submit a1 a 1 array=0-3\nsubmit b1 b 1 array=0-3 prio=high\nplan\npass 5m\nplan\nend a1_0\nplan\npass 5m\nplan",
        expect![[r#"
            place a1_0 n1:0
            place b1_0 n1:1
            place b1_1 n1:2
            place b1_2 n1:3
            wait DV-GPUS-BUSY: every GPU that would do is taken
            wait DV-GPUS-BUSY: every GPU that would do is taken
            ended a1_0 completed Exit exit=0
            place a1_1 n1:0
        "#]],
    );
}

#[test]
fn of_queues_that_hold_nothing_the_one_that_is_guaranteed_more_goes_first() {
    check(
        "node n1 1xh100\nqueue a guarantee=1\nqueue b guarantee=2\nsubmit a a 1\nsubmit b b 1\nplan",
        expect![[r#"
            place b n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn who_waits_beside_a_job_that_gets_what_a_newcomer_makes_due_keeps_its_reason() {
    check(
        "node n0 8xh100\nqueue a\nqueue b\nsubmit j1 a 4 array=0-3\nplan\nsubmit j3 b 1 prio=high\nsubmit j4 b 1 prio=high\nplan\n\
        submit j5 b 2 prio=low\nplan\nplan",
        expect![[r#"
            place j1_0 n0:0+n0:1+n0:2+n0:3
            place j1_1 n0:4+n0:5+n0:6+n0:7
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop j1_1 Reclaimed by j3
            promise j3 n0:4
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
        "#]],
    );
}

#[test]
fn what_becomes_due_by_a_job_that_comes_goes_first_to_who_stands_before_it() {
    check(
        "node n0 4xh100\nqueue a\nqueue b\nsubmit j1 a 2 array=0-3\nplan\nsubmit j3 b 1 prio=high\nplan\nsubmit j5 b 2 prio=low\nplan",
        expect![[r#"
            place j1_0 n0:0+n0:1
            place j1_1 n0:2+n0:3
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop j1_1 Reclaimed by j3
            promise j3 n0:2
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
        "#]],
    );
}
