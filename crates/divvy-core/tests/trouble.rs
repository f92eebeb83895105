//! What goes wrong, or makes no sense, while jobs wait and run: one behaviour each, in words.

#![allow(clippy::unwrap_used, reason = "only tests live here")]

use divvy_core::amount::{Amount, Limits, Resource};
use divvy_core::controller::Controller;
use divvy_core::decide::{Command, Person};
use divvy_core::engine::Observation;
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
fn a_checkpoint_that_outlasts_its_grace_is_cut_off_and_the_job_comes_back_with_what_it_saved_before() {
    check(
        "node n1 2xh100\nsubmit low default 2 prio=-100 saves=30m\nplan\npass 50m\nsubmit high default 2 prio=0\nplan\n\
        pass 1m\nend low signal=9\nplan\nexplain low\nend high\nplan",
        expect![[r#"
            place low n1:0+n1:1
            stop low Preempted by high
            promise high n1:0+n1:1
            ended low pending Preempted exit=137
            place high n1:0+n1:1
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            later
              DV-GPUS-BUSY no node has 2 GPUs free that would do | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              2 in pool > 2 right model > 2 enough memory > 2 healthy > 0 free > 0 on one node
            ended high completed Exit exit=0
            place low n1:0+n1:1
        "#]],
    );
}

#[test]
fn a_node_that_vanishes_while_it_is_promised_to_a_gang_takes_the_promise_with_it_and_the_gang_waits_for_it() {
    let mut pool = Scenario::new();
    let lines = |pool: &mut Scenario, lines: &[&str]| lines.iter().for_each(|line| pool.line(line).unwrap());
    lines(&mut pool, &["node n1 2xh100", "node n2 2xh100", "submit low default 2 tasks=2 prio=-100", "plan"]);
    lines(&mut pool, &["submit gang default 2 tasks=2 prio=0", "plan"]);
    let now = pool.now();
    pool.controller().see(&Observation::NodeGone("n2".into()), now).unwrap();
    lines(&mut pool, &["plan", "end low signal=15", "plan", "explain gang"]);
    // It comes back as it was: its devices are known.
    lines(&mut pool, &["node n2 2xh100", "plan"]);
    lines(&mut pool, &["end gang", "plan"]);
    expect![[r#"
        place low n1:0+n1:1 n2:0+n2:1
        stop low Preempted by gang
        promise gang n1:0+n1:1 n2:0+n2:1
        wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
        ended low pending Preempted exit=143
        wait DV-TOO-MANY-TASKS: asks for 2 tasks at once; the empty pool holds 1
        wait DV-TOO-MANY-TASKS: asks for 2 tasks at once; the empty pool holds 1
        no_fit
          DV-TOO-MANY-TASKS asks for 2 tasks at once; the empty pool holds 1 | ask for at most 1 task
          2 in pool > 2 right model > 2 enough memory > 2 healthy > 2 free > 2 on one node
        place gang n1:0+n1:1 n2:0+n2:1
        wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
        ended gang completed Exit exit=0
        place low n1:0+n1:1 n2:0+n2:1
    "#]]
    .assert_eq(pool.printed());
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
fn where_no_queue_has_any_weight_what_is_free_is_used_and_nobody_takes_it_back() {
    check(
        "node n1 4xh100\nqueue a weight=0\nqueue b weight=0\nsubmit a1 a 4\nplan\nsubmit b1 b 2\nplan\nend a1\nsubmit a2 a 2\nplan",
        expect![[r#"
            place a1 n1:0+n1:1+n1:2+n1:3
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            ended a1 completed Exit exit=0
            place b1 n1:0+n1:1
            place a2 n1:2+n1:3
        "#]],
    );
}

#[test]
fn where_all_models_cost_nothing_their_hours_count_as_they_do_without_prices() {
    check(
        "policy {prices: {h100: \"0\"}}\nnode n1 2xh100\n\
        queue a {\"path\": \"a\", \"budget\": {\"milli_gpu_hours\": 1000, \"every\": \"day\", \"carry_milli\": 0}}\nqueue b\n\
        submit a1 a 1\nsubmit a2 a 1\nplan\npass 5h\nsubmit b1 b 1\nsubmit a3 a 1\nplan\nend a2 signal=15\nplan",
        expect![[r#"
            place a1 n1:0
            place a2 n1:1
            stop a2 Reclaimed by b1
            promise b1 n1:1
            wait DV-OVER-BUDGET: queue a has used its budget of 1 GPU-hour; it has more from 1970-01-11 00:00 UTC on
            ended a2 pending Reclaimed exit=143
            place b1 n1:1
        "#]],
    );
}

#[test]
fn a_clock_that_steps_ten_years_ahead_ends_what_has_a_limit_and_loses_no_job() {
    check(
        "node n1 4xh100\nqueue a guarantee=2\n\
        queue b {\"path\": \"b\", \"budget\": {\"milli_gpu_hours\": 1000, \"every\": \"day\", \"carry_milli\": null}}\n\
        submit limited a 1 limit=1h\nsubmit endless b 3\nplan\nsubmit later a 1 start=+8760h\nsubmit waits a 2\nplan\n\
        pass 87600h\nplan\nend limited signal=15\nend endless signal=15\nplan\nrestart\nplan",
        expect![[r#"
            place limited n1:0
            place endless n1:1+n1:2+n1:3
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            first waits
            stop limited TimeLimit
            stop endless Starved by waits
            promise waits n1:2+n1:1
            promise later n1:3
            ended limited timeout TimeLimit exit=143
            ended endless pending Starved exit=143
            place later n1:3
            place waits n1:2+n1:1
            wait DV-OVER-BUDGET: queue b has used its budget of 1 GPU-hour; it has more from 1979-12-31 00:00 UTC on
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
            wait DV-QUEUE-LIMIT: queue q is at its limit of 4 h100
            ended a completed Exit exit=0
            ended b completed Exit exit=0
            place d n1:0+n1:1
        "#]],
    );
}

#[test]
fn who_waits_for_one_member_of_an_array_is_judged_by_that_member_however_the_others_end() {
    check(
        "node n1 2xh100\nsubmit a default 1 array=0-1 restarts=0\nsubmit w default 2 prio=-1\nplan\nsubmit b default 2 prio=-2 after=a_1:ok\nsubmit c default 2 prio=-3 after=a_1:fail\nsubmit d default 2 prio=-4 after=a_0:fail\nsubmit e default 1 prio=-5 after=a:fail\nend a_1\nplan\nend a_0 exit=1\nplan\nend w\nplan\nend b\nplan",
        expect![[r#"
            place a_0 n1:0
            place a_1 n1:1
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            ended a_1 completed Exit exit=0
            drop c Dependency
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            ended a_0 failed Exit exit=1
            place w n1:0+n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            ended w completed Exit exit=0
            place b n1:0+n1:1
            ended b completed Exit exit=0
            place d n1:0+n1:1
        "#]],
    );
}

#[test]
fn what_an_administrator_holds_of_an_array_its_user_cannot_release_nor_hold_himself() {
    check(
        "node n1 4xh100\nsubmit a default 1 array=0-3 user=bob\nhold a_1 by=root\nhold a by=bob\nrelease a by=bob\nplan\n\
        release a by=bob\nrelease a_1 by=root\nplan",
        expect![[r#"
            place a_0 n1:0
            place a_2 n1:1
            place a_3 n1:2
            refused held-by-admin: job a is held by an administrator, and you are none of its queue
            place a_1 n1:3
        "#]],
    );
    check(
        "node n1 4xh100\nsubmit a default 1 array=0-3 user=bob\nhold a by=root\nrelease a_1 by=root\nhold a by=bob\nrelease a by=bob\nplan\n\
        release a_1 by=bob\nplan\nrelease a by=root\nplan",
        expect![[r#"
            refused held-by-admin: job a is held by an administrator, and you are none of its queue
            place a_1 n1:0
            place a_0 n1:1
            place a_2 n1:2
            place a_3 n1:3
        "#]],
    );
}

#[test]
fn what_its_user_holds_an_administrator_holds_instead() {
    check(
        "node n1 4xh100\nsubmit s default 1 user=bob\nsubmit a default 1 array=0-1 user=bob\nhold s by=bob\nhold s by=root\nhold s by=bob\nrelease s by=bob\n\
        hold a by=bob\nhold a by=root\nrelease a by=bob\nplan\nrelease s by=root\nrelease a by=root\nplan",
        expect![[r#"
            refused held-by-admin: job s is held by an administrator, and you are none of its queue
            refused held-by-admin: job a is held by an administrator, and you are none of its queue
            place s n1:0
            place a_0 n1:1
            place a_1 n1:2
        "#]],
    );
}

#[test]
fn a_member_of_an_array_to_which_devices_are_promised_says_so() {
    check(
        "node n1 1xh100\nsubmit l default 1 prio=low\nplan\nsubmit a default 1 prio=high array=0-1%1\nplan\nexplain a_0\nexplain a_1\nexplain a",
        expect![[r#"
            place l n1:0
            stop l Preempted by a_0
            promise a_0 n1:0
            later
              DV-PROMISED its devices are promised to it; the task that holds them is being stopped | wait a moment: it starts when that task has stopped
              1 in pool > 1 right model > 1 enough memory > 1 healthy > 0 free > 0 on one node
            later
              DV-ARRAY-LIMIT 1 member of its array run, as many as may | submit the array with more than %1
              DV-GPUS-BUSY every GPU that would do is taken | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              1 in pool > 1 right model > 1 enough memory > 1 healthy > 0 free > 0 on one node
            later
              DV-ARRAY-LIMIT 1 member of its array run, as many as may | submit the array with more than %1
              DV-GPUS-BUSY every GPU that would do is taken | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              1 in pool > 1 right model > 1 enough memory > 1 healthy > 0 free > 0 on one node
        "#]],
    );
}

/// Starts a gang of three tasks, of which the engine knows only some after a restart; says what became of it.
fn told_after_restart(known: usize) -> Vec<String> {
    let mut pool = Scenario::new();
    for line in ["node n1 4xh100", "submit g default 1 tasks=3 restarts=0", "plan"] {
        pool.line(line).unwrap();
    }
    let known = pool.state().allocations.keys().copied().take(known).collect();
    let now = pool.now();
    pool.controller().see(&Observation::Inventory(known), now).unwrap();
    let batch = pool.controller().drain().unwrap();
    batch.commit.events.iter().map(|stamped| stamped.event.kind().to_owned()).collect()
}

#[test]
fn a_gang_of_which_the_engine_has_lost_several_tasks_is_told_to_stop_once_and_ends() {
    assert_eq!(told_after_restart(1), ["task_ended", "stopping", "task_ended"]);
    assert_eq!(
        told_after_restart(0),
        ["task_ended", "stopping", "task_ended", "task_ended", "attempt_ended"]
    );
}

#[test]
fn times_below_nothing_are_no_policy() {
    for text in
        ["ageing_ms_per_point: -1", "broken_gang_grace_ms: -1", "attained: {levels_device_ms: [-1, 1]}"]
    {
        let told = run(&format!("policy {{{text}}}")).unwrap_err().to_string();
        assert!(told.contains("must not be below 0"), "{text}: {told}");
    }
}
