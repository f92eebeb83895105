//! What goes wrong, or makes no sense, while jobs wait and run: one behaviour each, in words.

#![allow(clippy::unwrap_used, reason = "only tests live here")]

use divvy_core::amount::{Amount, Limits, Resource};
use divvy_core::controller::Controller;
use divvy_core::decide::{Command, Person};
use divvy_core::id::Term;
use divvy_core::model::queue::Queue;
use divvy_core::scenario::{Scenario, run};
use divvy_core::state::State;
use divvy_core::time::Time;
use expect_test::{Expect, expect};

fn check(scenario: &str, expected: Expect) {
    match run(scenario) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

#[test]
fn a_queue_whose_limit_is_lowered_keeps_what_runs_and_starts_nothing_until_there_is_room() {
    check(
        "node n1 8xh100\nqueue a limit=6\nsubmit j1 a 2\nsubmit j2 a 2\nsubmit j3 a 2\nsubmit j4 a 1\nplan\n\
        queue a limit=3\nplan\nend j1\nplan\nend j2\nplan",
        expect![[r#"
            place j1 n1:0+n1:1
            place j2 n1:2+n1:3
            place j3 n1:4+n1:5
            wait DV-QUEUE-LIMIT: queue a is at its limit of 6 GPUs
            wait DV-QUEUE-LIMIT: queue a is at its limit of 3 GPUs
            ended j1 completed Exit exit=0
            ended j2 completed Exit exit=0
            place j4 n1:0
        "#]],
    );
}

// Whoever exits with 0 on a signal has not said that he was done.
#[test]
fn one_that_ends_while_it_is_being_stopped_goes_back_whatever_its_exit_code_and_who_was_promised_starts() {
    check(
        "node n1 2xh100\nsubmit low default 2 prio=-100\nplan\nsubmit high default 2 prio=0\nplan\nend low\nplan\nend high\nplan",
        expect![[r#"
            place low n1:0+n1:1
            stop low Preempted by high
            promise high n1:0+n1:1
            ended low pending Preempted exit=0
            place high n1:0+n1:1
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            ended high completed Exit exit=0
            place low n1:0+n1:1
        "#]],
    );
}

#[test]
fn a_promise_on_a_device_that_breaks_is_revoked_and_the_gang_waits_for_another() {
    check(
        "node n1 2xh100\nnode n2 2xh100\nsubmit low default 2 tasks=2 prio=-100\nplan\n\
        submit gang default 2 tasks=2 prio=0\nplan\ndevice n2:0 down\nplan\nend low signal=15\nplan\ndevice n2:0 ok\nplan",
        expect![[r#"
            place low n1:0+n1:1 n2:0+n2:1
            stop low Preempted by gang
            promise gang n1:0+n1:1 n2:0+n2:1
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            ended low pending Preempted exit=143
            wait DV-GANG: not all of its 2 tasks fit at once
            wait DV-GANG: not all of its 2 tasks fit at once
            place gang n1:0+n1:1 n2:0+n2:1
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
        "#]],
    );
}

#[test]
fn who_says_that_it_takes_a_second_or_ten_years_is_believed_for_as_long_as_it_can_be_so() {
    check(
        "node n1 4xh100\nsubmit short default 2 estimate=1s\nsubmit long default 1 estimate=87600h\nplan\n\
        submit wide default 4\nsubmit next default 1 limit=1h\nplan\npass 2h\nsubmit late default 1 limit=1h\nplan\nend short\nend long\nplan",
        expect![[r#"
            place short n1:0+n1:1
            place long n1:2
            place next n1:3
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
            stop next TimeLimit
            wait DV-GPUS-BUSY: every GPU that would do is taken
            ended short completed Exit exit=0
            ended long completed Exit exit=0
            wait DV-RESERVED: what is free is kept for job 3, which is before it in line
        "#]],
    );
}

#[test]
fn a_queue_of_weight_zero_gets_what_the_others_leave_and_gives_it_back() {
    check(
        "node n1 4xh100\nqueue spare weight=0\nqueue a\nsubmit s1 spare 2\nsubmit s2 spare 2\nplan\n\
        submit a1 a 2\nplan\nend s2 signal=15\nplan",
        expect![[r#"
            place s1 n1:0+n1:1
            place s2 n1:2+n1:3
            stop s2 Reclaimed by a1
            promise a1 n1:2+n1:3
            ended s2 pending Reclaimed exit=143
            place a1 n1:2+n1:3
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
        "#]],
    );
}

#[test]
fn a_model_that_costs_nothing_uses_up_no_budget() {
    check(
        "policy {prices: {h100: \"2\", l4: \"0\"}}\nnode n1 1xh100\nnode n2 1xl4\n\
        queue a {\"path\": \"a\", \"budget\": {\"milli_gpu_hours\": 1000, \"every\": \"day\", \"carry_milli\": 0}}\n\
        submit free a 1 model=l4\nplan\npass 5h\nsubmit more a 1 model=h100\nplan",
        expect![[r#"
            place free n2:0
            place more n1:0
        "#]],
    );
}

#[test]
fn a_clock_that_steps_back_stands_still_in_the_pool_and_goes_on_where_it_was() {
    let mut controller = Controller::open(State::default());
    controller.check_every(1);
    let begin = |term| Command::Begin { term: Term(term), boot_id: String::new(), version: "test".into() };
    controller.take(&begin(1), Time(1_000_000)).unwrap().unwrap();
    for (clock, pool) in [(400_000, 1_000_000), (999_999, 1_000_000), (1_000_001, 1_000_001)] {
        controller.take(&begin(clock as u64), Time(clock)).unwrap().unwrap();
        controller.cycle(Time(clock)).unwrap();
        assert_eq!(controller.state().now, Time(pool));
    }
    let stamps = controller.drain().unwrap().commit.events;
    assert!(stamps.windows(2).all(|pair| pair[0].at <= pair[1].at), "{stamps:?}");
}

/// A hundred groups of a hundred teams; to two teams far apart half of eight GPUs each is guaranteed.
fn ten_thousand_queues() -> Vec<Queue> {
    let guaranteed = |path: String, gpus: i64| Queue {
        guarantee: Limits::from([(Resource::Any, Amount::Finite(gpus * 1000))]),
        ..Queue::named(&path)
    };
    let queue = |path: String| match path.as_str() {
        "g0/t0" | "g99/t99" => guaranteed(path, 4),
        _ => Queue::named(&path),
    };
    let teams = |group: usize| (0..100).map(move |team| format!("g{group}/t{team}"));
    (0..100).flat_map(|group| std::iter::once(format!("g{group}")).chain(teams(group))).map(queue).collect()
}

#[test]
fn among_ten_thousand_queues_each_has_what_is_guaranteed_to_it_and_none_loses_a_job_by_a_change() {
    let mut pool = Scenario::new();
    let lines = |pool: &mut Scenario, lines: &[&str]| lines.iter().for_each(|line| pool.line(line).unwrap());
    let set = |pool: &mut Scenario, queues: Vec<Queue>| {
        let now = pool.now();
        let set = Command::SetQueues(queues, Person::administrator("root"));
        pool.controller().take(&set, now).unwrap().unwrap();
    };
    lines(&mut pool, &["policy {share: fill, preempt: least_loss}", "node n1 8xh100"]);
    set(&mut pool, ten_thousand_queues());
    lines(&mut pool, &["submit a g0/t0 2 array=0-3", "plan", "submit b g99/t99 4", "plan"]);
    let mut fewer = ten_thousand_queues();
    fewer.retain(|queue| !queue.path.starts_with("g50"));
    set(&mut pool, fewer);
    lines(&mut pool, &["plan", "end a_3 signal=15", "end a_2 signal=15", "plan"]);
    expect![[r#"
        place a_0 n1:0+n1:1
        place a_1 n1:2+n1:3
        place a_2 n1:4+n1:5
        place a_3 n1:6+n1:7
        stop a_3 Reclaimed by b
        stop a_2 Reclaimed by b
        promise b n1:4+n1:5+n1:6+n1:7
        ended a_3 pending Reclaimed exit=143
        ended a_2 pending Reclaimed exit=143
        place b n1:4+n1:5+n1:6+n1:7
        wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
    "#]]
    .assert_eq(pool.printed());
    assert_eq!((pool.state().jobs.len(), pool.state().queues.len()), (2, 9_999));
}

#[test]
fn who_waits_in_a_pool_with_a_broken_gpu_is_told_once_and_anew_when_others_break() {
    check(
        "node n1 4xh100\ndevice n1:3 down\nsubmit a default 2\nsubmit b default 1\nplan\nsubmit c default 2\nplan\n\
        end b\nplan\nsubmit d default 1\nplan\nend d\nplan\ndevice n1:2 down\ndevice n1:1 down\nend a\nplan",
        expect![[r#"
            place a n1:0+n1:1
            place b n1:2
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            ended b completed Exit exit=0
            place d n1:2
            ended d completed Exit exit=0
            ended a completed Exit exit=0
            wait DV-GPUS-DOWN: 3 GPUs that would do are down
        "#]],
    );
}

#[test]
fn who_waits_in_a_pool_with_shared_gpus_starts_once_enough_whole_ones_are_free_on_a_node() {
    check(
        "policy {shares: true}\nnode n1 4xh100\nqueue q h100=4\nsubmit a q 1\nsubmit b q 1\nsubmit c q 2\nplan\n\
        submit d q 2\nplan\nend a\nplan\nend b\nplan",
        expect![[r#"
            place a n1:0
            place b n1:1
            place c n1:2+n1:3
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            ended a completed Exit exit=0
            ended b completed Exit exit=0
            place d n1:0+n1:1
        "#]],
    );
}
