//! Scenarios of the calendar: drains, and what is kept for a queue.
#![allow(clippy::unwrap_used, reason = "what a test's own functions can't set up has failed the test")]

use divvy_core::decide::kept_beyond_limit;
use divvy_core::scenario::{Scenario, run};
use expect_test::{Expect, expect};

/// Runs a scenario.
fn check(scenario: &str, expected: Expect) {
    match run(scenario) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

#[test]
fn a_drained_device_keeps_its_job_and_takes_no_new_one() {
    check(
        "node n1 2xh100\nsubmit a default 1\nplan\ndrain on n1:0\nsubmit b default 1\nsubmit c default 1\nplan\nend a\nplan\nexplain c\ndrain off n1:0\nplan",
        expect![[r#"
            place a n1:0
            reservation 1 begins
            place b n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
            ended a completed Exit exit=0
            later
              DV-GPUS-BUSY every GPU that would do is taken | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              2 in pool > 2 right model > 2 enough memory > 1 healthy > 0 free > 0 on one node
            reservation 1 is over
            place c n1:0
        "#]],
    );
}

#[test]
fn a_drained_node_takes_nothing_and_another_does() {
    check(
        "node n1 2xh100\nnode n2 2xh100\ndrain on n1\nsubmit a default 2\nsubmit b default 0\nsubmit c default 2\nplan\nexplain c\ndrain off n1\nplan",
        expect![[r#"
            reservation 1 begins
            place a n2:0+n2:1
            wait DV-HOST-BUSY: no node has 1Gi of memory left
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            later
              DV-GPUS-BUSY no node has 2 GPUs free that would do | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 0 free > 0 on one node
            reservation 1 is over
            place b n1
            wait DV-HOST-BUSY: no node has 512Gi of memory left
        "#]],
    );
}

#[test]
fn a_drain_that_evicts_has_jobs_go_back_into_their_queue_and_is_over_in_time() {
    check(
        "node n1 2xh100\nnode n2 1xh100\nsubmit a default 2\nsubmit b default 1\nplan\ndrain on n1 evict at=+1h for=2h\nplan\npass 1h\nplan\nend a\nplan\npass 2h\nplan",
        expect![[r#"
            place a n1:0+n1:1
            place b n2:0
            reservation 1 begins
            stop a Drain
            ended a pending Drain exit=0
            wait DV-DRAINING: 1 node that would do is being drained
            reservation 1 is over
            place a n1:0+n1:1
        "#]],
    );
}

#[test]
fn before_a_drain_that_evicts_only_those_start_that_end_in_time_or_may_be_stopped() {
    check(
        "node n1 8xh100\ndrain on n1 evict at=+1h\nsubmit a default 1 limit=2h\nsubmit b default 1 limit=30m\nsubmit d default 1\nsubmit e default 1 fixed\nplan\nexplain a",
        expect![[r#"
            place b n1:0
            place d n1:1
            wait DV-BOOKED: what is free is reserved from 1970-01-01 01:00 UTC on
            wait DV-BOOKED: what is free is reserved from 1970-01-01 01:00 UTC on
            later
              DV-BOOKED what is free is reserved from 1970-01-01 01:00 UTC on | wait, or give it a time limit (-t) that ends before that: divvy reserve lists what is kept
              8 in pool > 8 right model > 8 enough memory > 8 healthy > 0 not reserved > 0 free > 0 on one node
        "#]],
    );
}

#[test]
fn what_is_kept_for_a_queue_is_free_for_it_when_its_time_comes() {
    check(
        "policy {share: fill, preempt: least_loss}\nnode n1 4xh100\nqueue a\nqueue b\nsubmit x a 2\nsubmit y a 2\nplan\nreserve 2 queue=b at=+1h for=1h\npass 1h\nplan\nend x\nend y\nplan\nsubmit z b 2\nsubmit w a 1\nplan\nexplain w\npass 1h\nend z\nplan",
        expect![[r#"
            place x n1:0+n1:1
            place y n1:2+n1:3
            reservation 1 begins
            stop x Drain
            ended x pending Drain exit=0
            ended y completed Exit exit=0
            place x n1:2+n1:3
            place z n1:0+n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
            later
              DV-GPUS-BUSY every GPU that would do is taken | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 2 not reserved > 0 free > 0 on one node
            ended z completed Exit exit=0
            reservation 1 is over
            place w n1:0
        "#]],
    );
}

#[test]
fn what_is_kept_is_not_kept_twice() {
    check(
        "node n1 4xh100\nqueue a\nreserve 3 queue=a at=+1h for=1h\nreserve 2 queue=a at=+90m for=1h\nreserve 2 queue=a at=+2h for=1h\nreserve 1 queue=x\ndrain on n1:9\ndrain off n1",
        expect![[r#"
            refused bad-spec: gpus: 1 GPU can be reserved for that time; others are kept on the calendar by 1, the first of them from 1970-01-01 01:00 UTC on: take one back (divvy reserve --cancel)
            refused unknown-queue: there is no queue "x"; there are: a, default
            refused bad-spec: target: there is no node or GPU "n1:9": `divvy gpus` lists them (node, node:index, index or UUID)
            refused bad-spec: target: n1 is not drained
        "#]],
    );
}

#[test]
fn a_promise_on_what_is_drained_is_taken_back() {
    check(
        "policy {preempt: least_loss}\nnode n1 2xh100\nsubmit a default 2 resumable\nplan\nsubmit b default 2 prio=high\nplan\ndrain on n1\nplan\nend a\nplan\ndrain off n1\nplan",
        expect![[r#"
            place a n1:0+n1:1
            stop a Preempted by b
            promise b n1:0+n1:1
            reservation 1 begins
            wait DV-DRAINING: 1 node that would do is being drained
            ended a pending Preempted exit=0
            wait DV-DRAINING: 1 node that would do is being drained
            reservation 1 is over
            place b n1:0+n1:1
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
        "#]],
    );
}

#[test]
fn a_model_that_the_pool_has_not_is_told_apart_from_one_that_is_kept() {
    let pool = "node n1 2xh100\nnode n2 2xl4\nqueue b\ndrain on n1:0\n";
    let refused = |line: &str| run(&format!("{pool}{line}")).unwrap_or_else(|bad| bad.to_string());
    assert!(refused("reserve 1 queue=b model=a100").contains("the pool has no a100; it has h100, l4"));
    // Nothing that is taken back makes three of two.
    let few = refused("reserve 3 queue=b model=l4");
    assert!(few.contains("2 l4 GPUs can be reserved") && !few.contains("take one back"), "{few}");
    let kept = refused("reserve 2 queue=b model=h100");
    assert!(kept.contains("1 h100 GPU can be reserved") && kept.contains("take one back"), "{kept}");
}

#[test]
fn what_is_reserved_for_one_queue_does_not_bind_jobs_of_others_that_are_not_preemptible() {
    check(
        "node n1 2xh100\nnode n2 1xh100\nqueue a\nqueue b\nreserve n1:0 queue=a for=1h\nplan\nsubmit x b 1 fixed\nsubmit y b 1 fixed\nsubmit z b 1 fixed\nplan\nexplain z\nsubmit w a 1 fixed\nplan",
        expect![[r#"
            reservation 1 begins
            place x n1:1
            place y n2:0
            wait DV-BOOKED: what is free is reserved from 1970-01-01 00:00 UTC on
            later
              DV-BOOKED what is free is reserved from 1970-01-01 00:00 UTC on | wait, or give it a time limit (-t) that ends before that: divvy reserve lists what is kept
              3 in pool > 3 right model > 3 enough memory > 3 healthy > 2 not reserved > 0 free > 0 on one node
              room from 1h
            place w n1:0
        "#]],
    );
}

#[test]
fn where_queues_say_guarantees_what_is_reserved_counts_for_jobs_that_are_not_preemptible() {
    check(
        "node n1 4xh100\nqueue a guarantee=1\nqueue b guarantee=1\nreserve n1:0 queue=a for=1h\nplan\nsubmit x a 2 fixed\nsubmit y b 2 fixed\nplan",
        expect![[r#"
            reservation 1 begins
            refused cannot-fit: this pool can never run it: is not preemptible, and queue b is guaranteed 1 GPU for such jobs. The pool has 4 h100 (80GB).
            place x n1:0+n1:1
        "#]],
    );
}

#[test]
fn who_would_fit_on_a_drained_node_alone_is_told_of_the_drain_not_of_running_jobs() {
    check(
        "node n1 2xh100\nnode n2 1xh100\nsubmit w default 1\nplan\ndrain on n1\nsubmit x default 2\nsubmit y default 1\nplan\nexplain x\nexplain y\ndrain off n1\nplan",
        expect![[r#"
            place w n2:0
            reservation 1 begins
            wait DV-GPUS-BUSY: every GPU that would do is taken
            wait DV-DRAINING: 1 node that would do is being drained
            later
              DV-DRAINING 1 node that would do is being drained | wait for the drain to end: divvy reserve lists what is drained, and until when
              3 in pool > 3 right model > 3 enough memory > 3 healthy > 0 free > 0 on one node
            later
              DV-GPUS-BUSY every GPU that would do is taken | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              3 in pool > 3 right model > 3 enough memory > 3 healthy > 0 free > 0 on one node
            reservation 1 is over
            place x n1:0+n1:1
        "#]],
    );
}

#[test]
fn a_queue_for_which_something_is_kept_is_not_removed() {
    check(
        "node n1 2xh100\nqueue a\nqueue b\nreserve n1 queue=a at=+1h for=2h\nremove a\nremove b\npass 3h\nplan\nremove a",
        expect![[r#"
            refused queue-reserved: for queue a capacity is kept by reservation 1: take that back (divvy reserve --cancel 1), or let it end, before the queue is removed
            reservation 1 is over
        "#]],
    );
}

#[test]
fn an_idle_node_that_is_drained_is_no_part_of_what_is_divided() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 4xh100
node n2 4xh100
queue a
queue b
submit a1 a 1
submit a2 a 1
submit a3 a 1
submit a4 a 1
plan
drain on n2
submit b1 b 2
plan",
        expect![[r#"
            place a1 n1:0
            place a2 n1:1
            place a3 n1:2
            place a4 n1:3
            reservation 1 begins
            stop a4 Reclaimed by b1
            stop a3 Reclaimed by b1
            promise b1 n1:2+n1:3
        "#]],
    );
}

#[test]
fn the_drain_of_another_device_of_its_node_is_none_of_a_device() {
    check(
        "node n1 4xh100\ndrain on n1:0\ndrain off n1:1",
        expect![[r#"
        refused bad-spec: target: n1:1 is not drained
    "#]],
    );
}

#[test]
fn what_a_queue_may_not_hold_is_not_kept_for_it() {
    let beyond = |limits: &str, reserve: &str| {
        let mut pool = Scenario::new();
        for line in ["node n1 8xh100", "node n2 2xl4"].into_iter().chain(limits.lines()).chain([reserve]) {
            pool.line(line).unwrap();
        }
        let state = pool.state();
        state.reservations.iter().find_map(|kept| kept_beyond_limit(state, kept))
    };
    let idle = |there: &str, path: &str, most: &str| {
        Some(format!(
            "{there} would be kept for b, and the limit of {path} is {most}: the rest would stand idle; reserve no more, or raise the limit"
        ))
    };
    assert_eq!(beyond("queue b limit=2", "reserve 8 queue=b model=h100 for=1h"), idle("8 of any", "b", "2"));
    assert_eq!(beyond("queue b limit=2", "reserve n2 queue=b for=1h"), None);
    assert_eq!(beyond("queue b h100=4", "reserve n1 queue=b for=1h"), idle("8 of h100", "b", "4"));
    assert_eq!(beyond("queue b h100=4", "reserve n2 queue=b for=1h"), None);
    assert_eq!(beyond("queue b limit=2", "drain on n1"), None);
}
