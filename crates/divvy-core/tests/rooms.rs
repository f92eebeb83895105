//! Scenarios of room that is kept for those who wait: from when on, and what is said when that changes.

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
