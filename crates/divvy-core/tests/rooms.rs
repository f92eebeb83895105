//! Scenarios of room that is kept for waiting jobs: from when on, and what is said when that changes.

use divvy_core::scenario::run;
use expect_test::{Expect, expect};

fn check(scenario: &str, expected: Expect) {
    match run(scenario) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

/// A gang that waits for two jobs, and small ones behind it that make the planner look at the room that is kept for it.
const POOL: &str = "policy {half_life: none}\nnode n1 4xh100\nsubmit a default 2 estimate=1h\nsubmit b default 1 estimate=2h\nplan\n\
    submit wide default 4\nsubmit small default 1 limit=30m\nplan\nexplain wide\n";

#[test]
fn a_job_for_which_room_is_kept_is_told_from_when_on() {
    check(
        POOL,
        expect![[r#"
        place a n1:0+n1:1
        place b n1:2
        place small n1:3
        wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
        later
          DV-GPUS-BUSY no node has 4 GPUs free that would do | wait for running jobs to end, or ask for fewer GPUs or for other models, too
          4 in pool > 4 right model > 4 enough memory > 4 healthy > 0 free > 0 on one node
          room from 2h
    "#]],
    );
}

#[test]
fn when_the_last_job_that_is_waited_for_outruns_its_estimate_room_is_collected_and_who_runs_on_is_said() {
    check(
        &format!("{POOL}pass 2h\nend small\nend a\nsubmit c default 2 limit=3h\nplan\nexplain wide"),
        expect![[r#"
            place a n1:0+n1:1
            place b n1:2
            place small n1:3
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
            later
              DV-GPUS-BUSY no node has 4 GPUs free that would do | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 0 free > 0 on one node
              room from 2h
            ended small completed Exit exit=0
            ended a completed Exit exit=0
            wait DV-RESERVED: what is free is kept for job 3, which is before it in line
            later
              DV-GPUS-BUSY no node has 4 GPUs free that would do | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 3 free > 0 on one node
              room as it becomes free, not from 2h: b runs on
        "#]],
    );
}

#[test]
fn when_a_job_ends_sooner_room_is_kept_from_an_earlier_moment() {
    check(
        &format!("{POOL}pass 10m\nend b\nsubmit more default 1 limit=10m\nplan\nexplain wide"),
        expect![[r#"
            place a n1:0+n1:1
            place b n1:2
            place small n1:3
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
            later
              DV-GPUS-BUSY no node has 4 GPUs free that would do | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 0 free > 0 on one node
              room from 2h
            ended b completed Exit exit=0
            place more n1:2
            later
              DV-GPUS-BUSY no node has 4 GPUs free that would do | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 0 free > 0 on one node
              room from 1h, not from 2h
        "#]],
    );
}

#[test]
fn when_a_job_outruns_its_estimate_room_is_kept_from_a_later_end_on_and_who_runs_on_is_said() {
    check(
        "policy {half_life: none}\nnode n1 4xh100\nsubmit a default 2 estimate=1h\nsubmit b default 1 estimate=3h\nplan\n\
        submit wide default 2\nsubmit small default 1 limit=30m\nplan\npass 70m\nend small\nsubmit tiny default 1 limit=10m\nplan\n\
        explain wide\nrestart\nplan\nexplain wide",
        expect![[r#"
            place a n1:0+n1:1
            place b n1:2
            place small n1:3
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            ended small completed Exit exit=0
            place tiny n1:3
            later
              DV-GPUS-BUSY no node has 2 GPUs free that would do | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 0 free > 0 on one node
              room from 3h, not from 1h: a runs on
            later
              DV-GPUS-BUSY no node has 2 GPUs free that would do | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 0 free > 0 on one node
              room from 3h
        "#]],
    );
}

/// A gang of three waits for one GPU beside two that are free; on the other node there are four, which end at a moment of their own.
fn two_nodes(other: &str) -> String {
    format!(
        "policy {{half_life: none}}\nnode n0 3xh100\nnode n1 4xh100\nsubmit one default 1 limit=2h\nsubmit four default 4 limit={other}\nplan\n\
         submit gang default 1 tasks=3\nplan\nsubmit two default 2 limit=5h\nplan\nexplain gang"
    )
}

#[test]
fn room_is_kept_elsewhere_where_it_is_there_as_soon() {
    check(
        &two_nodes("2h"),
        expect![[r#"
        place one n0:0
        place four n1:0+n1:1+n1:2+n1:3
        wait DV-GANG: not all of its 3 tasks fit at once
        place two n0:1+n0:2
        later
          DV-GPUS-BUSY every GPU that would do is taken | wait for running jobs to end, or ask for fewer GPUs or for other models, too
          7 in pool > 7 right model > 7 enough memory > 7 healthy > 0 free > 0 on one node
          room from 2h
    "#]],
    );
    check(
        &two_nodes("3h"),
        expect![[r#"
        place one n0:0
        place four n1:0+n1:1+n1:2+n1:3
        wait DV-GANG: not all of its 3 tasks fit at once
        wait DV-RESERVED: what is free is kept for job 3, which is before it in line
        later
          DV-GANG not all of its 3 tasks fit at once | wait for running jobs to end, or ask for fewer tasks
          7 in pool > 7 right model > 7 enough memory > 7 healthy > 2 free > 2 on one node
          room from 2h
    "#]],
    );
}

#[test]
fn room_that_is_kept_elsewhere_is_kept_there_from_the_next() {
    check(
        &format!("{}\nsubmit late default 2 limit=5h\nend four\nplan", two_nodes("2h")),
        expect![[r#"
        place one n0:0
        place four n1:0+n1:1+n1:2+n1:3
        wait DV-GANG: not all of its 3 tasks fit at once
        place two n0:1+n0:2
        later
          DV-GPUS-BUSY every GPU that would do is taken | wait for running jobs to end, or ask for fewer GPUs or for other models, too
          7 in pool > 7 right model > 7 enough memory > 7 healthy > 0 free > 0 on one node
          room from 2h
        ended four completed Exit exit=0
        place gang n1:0 n1:1 n1:2
        wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
    "#]],
    );
}

#[test]
fn a_move_that_moves_nobody_does_not_take_the_room_that_is_kept_for_another() {
    check(
        "policy {}\nnode n1 4xh100\nsubmit d default 1 resumable mem=1\nsubmit a default 1 limit=1h mem=1\nsubmit e default 2 mem=1\nplan\nsubmit g default 3 mem=1\nsubmit s default 1 mem=1\nplan\npass 1m\nend e\nplan\nexplain g\npass 59m\nplan\nend a\nplan",
        expect![[r#"
            place d n1:0
            place a n1:1
            place e n1:2+n1:3
            wait DV-GPUS-BUSY: every GPU that would do is taken
            wait DV-GPUS-BUSY: no node has 3 GPUs free that would do
            ended e completed Exit exit=0
            wait DV-RESERVED: what is free is kept for job 4, which is before it in line
            later
              DV-GPUS-BUSY no node has 3 GPUs free that would do | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 2 free > 0 on one node
              room from 1h
            stop a TimeLimit
            ended a timeout TimeLimit exit=0
            place g n1:1+n1:2+n1:3
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn a_job_without_gpus_of_another_queue_leaves_the_room_that_is_kept() {
    check(
        "policy {}\nnode n0 4xh100\nqueue b guarantee=4\nqueue c\nsubmit j0 b 1 limit=30m\nplan\nsubmit j2 b 4\nplan\nsubmit t c 0 mem=300\nplan\npass 30m\nplan\nend j0\nplan",
        expect![[r#"
            place j0 n0:0
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
            wait DV-RESERVED: what is free is kept for job 2, which is before it in line
            stop j0 TimeLimit
            ended j0 timeout TimeLimit exit=0
            place j2 n0:0+n0:1+n0:2+n0:3
            wait DV-HOST-BUSY: no node has 300Gi of memory left
        "#]],
    );
}

#[test]
fn what_is_being_stopped_ends_next() {
    check(
        "policy {half_life: none}\nnode n0 2xh100\nnode n1 2xh100\nnode n2 2xh100\nsubmit x default 2 limit=30m mem=1\nsubmit y default 1 limit=35m mem=1\nsubmit z default 2 limit=60m mem=1\nplan\nsubmit g default 2 tasks=2 limit=30m mem=1\nplan\nexplain g\npass 30m\nplan\nsubmit b default 1 limit=25m mem=1\nplan\nend x\nplan\nexplain g",
        expect![[r#"
            place x n0:0+n0:1
            place y n1:0
            place z n2:0+n2:1
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            later
              DV-GPUS-BUSY no node has 2 GPUs free that would do | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              6 in pool > 6 right model > 6 enough memory > 6 healthy > 1 free > 0 on one node
              room from 35m
            stop x TimeLimit
            wait DV-RESERVED: what is free is kept for job 4, which is before it in line
            ended x timeout TimeLimit exit=0
            wait DV-GANG: not all of its 2 tasks fit at once
            later
              DV-GANG not all of its 2 tasks fit at once | wait for running jobs to end, or ask for fewer tasks
              6 in pool > 6 right model > 6 enough memory > 6 healthy > 3 free > 2 on one node
              room from 35m
        "#]],
    );
}

#[test]
fn who_waited_for_room_that_is_kept_for_later_now_has_it() {
    let text = "node n1 2xh100\nnode n2 2xh100\nsubmit j2 default 1 prio=5 limit=20m\nsubmit j3 default 1 prio=-5 limit=30m\n\
        submit j4 default 2 tasks=2 limit=30m\nplan\npass 10m\nsubmit j5 default 1 prio=5 limit=40m\nplan";
    check(
        text,
        expect![[r#"
        place j2 n1:0
        wait DV-GANG: not all of its 2 tasks fit at once
        wait DV-RESERVED: what is free is kept for job 3, which is before it in line
        place j5 n1:1
        place j3 n2:0
    "#]],
    );
    // Whichever way the pool is divided.
    check(
        &format!("policy {{share: none, preempt: off, half_life: none, starve_after: none}}\n{text}"),
        expect![[r#"
        place j2 n1:0
        wait DV-GANG: not all of its 2 tasks fit at once
        wait DV-RESERVED: what is free is kept for job 3, which is before it in line
        place j5 n1:1
        place j3 n2:0
    "#]],
    );
}

#[test]
fn a_job_that_gave_way_has_waited_since_then_and_not_since_it_was_submitted() {
    check(
        "node n1 2xh100\nsubmit big default 2\nplan\npass 2h\nsubmit h default 1 prio=high\nplan\nend big signal=15\nplan\n\
        submit s default 1\nplan",
        expect![[r#"
            place big n1:0+n1:1
            stop big Preempted by h
            promise h n1:0
            ended big pending Preempted exit=143
            place h n1:0
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            place s n1:1
        "#]],
    );
}
