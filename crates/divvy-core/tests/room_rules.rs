//! Scenarios of what is kept for others, over several cycles: by the calendar, and for those before others in the line.

use divvy_core::scenario::run;
use expect_test::{Expect, expect};

fn check(scenario: &str, expected: Expect) {
    match run(scenario) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

#[test]
fn who_has_devices_kept_for_his_queue_runs_on_there_when_that_begins() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 2xh100
queue a
submit a1 a 1
submit b1 default 1
plan
reserve n1 queue=a at=+1h for=2h
pass 1h
plan
end b1 signal=15
submit a2 a 1
submit b2 default 1
plan",
        expect![[r#"
            place a1 n1:0
            place b1 n1:1
            reservation 1 begins
            stop b1 Drain
            ended b1 pending Drain exit=143
            place a2 n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn what_is_kept_for_a_queue_is_guaranteed_to_those_above_it_too() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 4xh100
queue lab guarantee=2
queue lab/v
queue lab/s guarantee=2
submit s1 lab/s 2 fixed
plan
reserve 2 queue=lab/v
plan
submit v1 lab/v 2 fixed
plan",
        expect![[r#"
            place s1 n1:0+n1:1
            reservation 1 begins
            place v1 n1:2+n1:3
        "#]],
    );
}

#[test]
fn what_is_to_come_and_stops_nobody_keeps_nobody_away() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 2xh100
drain on n1 at=+1h for=1h
submit a default 1 fixed
plan
pass 1h
submit b default 1
plan",
        expect![[r#"
            place a n1:0
            reservation 1 begins
            wait DV-DRAINING: 1 node that would do is being drained
        "#]],
    );
}

#[test]
fn who_may_not_be_stopped_does_not_start_where_others_will_be() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 2xh100
drain on n1 evict at=+1h for=1h
submit a default 1 fixed
submit b default 1
plan",
        expect![[r#"
            place b n1:0
            wait DV-BOOKED: what is free is reserved from 1970-01-01 01:00 UTC on
        "#]],
    );
}

#[test]
fn no_exchange_moves_a_new_run_to_what_is_kept() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 3xh100
submit low default 1 prio=low limit=10m
plan
drain on n1:2 evict at=+1h for=1h
submit h default 2 prio=high limit=5h
plan",
        expect![[r#"
            place low n1:0
            stop low Preempted by h
            promise h n1:0+n1:1
            promise low n1:2
        "#]],
    );
}

#[test]
fn what_is_due_to_others_is_not_collected_for_who_is_to_hold_less() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: 1d, starve_after: none, collect_after: 5m, most_moves: 0, reclaim: never}
node n1 4xh100
queue a
queue b
submit b1 b 1 array=0-9
plan
submit big a 4
plan
pass 6m
plan
end b1_0
plan
pass 6h
plan
end b1_1
plan",
        expect![[r#"
            place b1_0 n1:0
            place b1_1 n1:1
            place b1_2 n1:2
            place b1_3 n1:3
            wait DV-GPUS-BUSY: every GPU that would do is taken
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
            ended b1_0 completed Exit exit=0
            place b1_4 n1:0
            ended b1_1 completed Exit exit=0
            wait DV-RESERVED: what is free is kept for job 2, which is before it in line
        "#]],
    );
}

#[test]
fn nothing_is_collected_for_who_asks_for_more_than_may_be() {
    check(
        "policy {share: none, preempt: off, half_life: none, starve_after: none, collect_after: 5m, collect_devices: 2, speedup_percent: 0}
node n1 4xh100
submit b1 default 1 array=0-3
plan
submit big default 3
plan
pass 6m
submit s default 1 array=0-7
end b1_0
plan",
        expect![[r#"
            place b1_0 n1:0
            place b1_1 n1:1
            place b1_2 n1:2
            place b1_3 n1:3
            wait DV-GPUS-BUSY: no node has 3 GPUs free that would do
            ended b1_0 completed Exit exit=0
            place s_0 n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn one_collects_at_a_time() {
    check(
        "policy {share: none, preempt: off, half_life: none, starve_after: none, collect_after: 5m, speedup_percent: 0}
node n1 2xh100
node n2 2xh100
submit b1 default 1 array=0-3
plan
submit c1 default 2
submit c2 default 2 cpu=1
plan
pass 6m
submit s default 1 array=0-1
end b1_0
end b1_2
plan",
        expect![[r#"
            place b1_0 n1:0
            place b1_1 n1:1
            place b1_2 n2:0
            place b1_3 n2:1
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            ended b1_0 completed Exit exit=0
            ended b1_2 completed Exit exit=0
            place s_0 n2:0
            wait DV-RESERVED: what is free is kept for job 2, which is before it in line
        "#]],
    );
}

#[test]
fn who_ends_just_when_the_room_is_needed_may_have_it_until_then() {
    check(
        "policy {share: none, preempt: off, half_life: none, starve_after: none, speedup_percent: 0}
node n1 2xh100
submit r default 1 limit=1h
plan
submit big default 2
plan
submit s default 1 limit=61m
submit t default 1 limit=1h
plan",
        expect![[r#"
            place r n1:0
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            place t n1:1
            wait DV-RESERVED: what is free is kept for job 2, which is before it in line
        "#]],
    );
}

#[test]
fn room_that_a_run_leaves_is_kept_though_it_never_gives_way() {
    check(
        "policy {half_life: none, starve_after: none}
node n1 4xh100
submit r default 3 fixed estimate=1h
plan
submit big default 4 polite
plan
submit small default 1 limit=2h polite
submit short default 1 limit=1h polite
plan
pass 1h
end r
end short
plan",
        expect![[r#"
            place r n1:0+n1:1+n1:2
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
            place short n1:3
            wait DV-RESERVED: what is free is kept for job 2, which is before it in line
            ended r completed Exit exit=0
            ended short completed Exit exit=0
            place big n1:0+n1:1+n1:2+n1:3
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn room_that_a_run_leaves_is_kept_where_nobody_gives_way() {
    check(
        "policy {half_life: none, starve_after: none, preempt: off}
node n1 4xh100
submit r default 3 estimate=1h
plan
submit big default 4 polite
plan
submit small default 1 limit=2h polite
submit short default 1 limit=1h polite
plan
pass 1h
end r
end short
plan",
        expect![[r#"
            place r n1:0+n1:1+n1:2
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
            place short n1:3
            wait DV-RESERVED: what is free is kept for job 2, which is before it in line
            ended r completed Exit exit=0
            ended short completed Exit exit=0
            place big n1:0+n1:1+n1:2+n1:3
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn who_saves_nothing_runs_as_long_as_was_estimated_once_more() {
    check(
        "policy {preempt: off, reserve: 1}
node n1 2xh100
submit x default 1 estimate=2h
plan
pass 1h
end x reboot
plan
submit wide default 2
plan
explain wide",
        expect![[r#"
            place x n1:0
            ended x pending NodeReboot exit=137
            place x n1:0
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            later
              DV-GPUS-BUSY no node has 2 GPUs free that would do | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              2 in pool > 2 right model > 2 enough memory > 2 healthy > 1 free > 0 on one node
              room from 3h
        "#]],
    );
}

#[test]
fn who_goes_on_where_it_was_runs_for_the_rest_of_what_was_estimated() {
    check(
        "policy {preempt: off, reserve: 1}
node n1 2xh100
submit x default 1 estimate=2h resumable
plan
pass 1h
end x reboot
plan
submit wide default 2
plan
explain wide",
        expect![[r#"
            place x n1:0
            ended x pending NodeReboot exit=137
            place x n1:0
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            later
              DV-GPUS-BUSY no node has 2 GPUs free that would do | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              2 in pool > 2 right model > 2 enough memory > 2 healthy > 1 free > 0 on one node
              room from 2h
        "#]],
    );
}

#[test]
fn room_is_not_foretold_where_a_drain_will_have_begun() {
    check(
        "node n1 4xh100
submit r default 2 limit=1h
plan
drain on n1 evict at=+1h for=5h
submit w default 4 limit=30m
plan
explain w
pass 1h
end r
plan
pass 5h
plan",
        expect![[r#"
            place r n1:0+n1:1
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
            later
              DV-GPUS-BUSY no node has 4 GPUs free that would do | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 2 free > 0 on one node
              room from 6h
            ended r completed Exit exit=0
            reservation 1 begins
            wait DV-DRAINING: 1 node that would do is being drained
            reservation 1 is over
            place w n1:0+n1:1+n1:2+n1:3
        "#]],
    );
}

#[test]
fn no_room_is_kept_where_a_job_would_run_into_a_drain() {
    check(
        "node n1 4xh100
node n2 4xh100
submit r1 default 2 limit=1h
submit r2 default 4 limit=8h
plan
drain on n1 evict at=+2h for=10h
drain on n2 evict at=+2h for=10h
submit w default 4 limit=90m
submit s default 2 limit=110m
plan
explain w",
        expect![[r#"
            place r1 n1:0+n1:1
            place r2 n2:0+n2:1+n2:2+n2:3
            place s n1:2+n1:3
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
            later
              DV-GPUS-BUSY no node has 4 GPUs free that would do | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              8 in pool > 8 right model > 8 enough memory > 8 healthy > 0 free > 0 on one node
              room from 12h
        "#]],
    );
}

#[test]
fn room_is_kept_before_a_drain_for_who_ends_just_when_it_begins() {
    check(
        "node n1 4xh100
submit r default 2 limit=1h
plan
drain on n1 evict at=+2h for=10h
submit w default 4 limit=1h
submit s default 2 limit=90m
plan
explain w
pass 1h
end r
plan",
        expect![[r#"
            place r n1:0+n1:1
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
            wait DV-RESERVED: what is free is kept for job 2, which is before it in line
            later
              DV-GPUS-BUSY no node has 4 GPUs free that would do | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 2 free > 0 on one node
              room from 1h
            ended r completed Exit exit=0
            place w n1:0+n1:1+n1:2+n1:3
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
        "#]],
    );
}

#[test]
fn room_is_foretold_from_the_end_of_what_is_kept_for_another_queue() {
    check(
        "node n1 4xh100
queue a
submit r default 2 limit=1h
plan
reserve n1 queue=a at=+30m for=3h
submit w default 4 limit=2h
plan
explain w",
        expect![[r#"
            place r n1:0+n1:1
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
            later
              DV-GPUS-BUSY no node has 4 GPUs free that would do | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 0 not reserved > 0 free > 0 on one node
              room from 3h30m
        "#]],
    );
}

#[test]
fn who_will_be_stopped_for_a_drain_is_not_kept_from_room_that_begins_after_it() {
    check(
        "node n1 4xh100
submit r default 1 limit=1h
plan
drain on n1 evict at=+2h for=10h
submit w default 4 limit=90m
submit s default 1
submit t default 1 fixed limit=3h
plan
explain w",
        expect![[r#"
            place r n1:0
            place s n1:1
            wait DV-BOOKED: what is free is reserved from 1970-01-01 02:00 UTC on
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
            later
              DV-GPUS-BUSY no node has 4 GPUs free that would do | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 2 free > 0 on one node
              room from 12h
        "#]],
    );
}

#[test]
fn room_is_kept_for_who_needs_a_node_whose_drain_ends() {
    check(
        "node n1 4xh100
node n2 4xh100
drain on n1 for=2h
submit w default 4 tasks=2
submit s default 4 limit=10h
submit t default 4 limit=2h
plan
explain w
pass 2h
end t
plan",
        expect![[r#"
            reservation 1 begins
            place t n2:0+n2:1+n2:2+n2:3
            wait DV-GANG: not all of its 2 tasks fit at once
            wait DV-RESERVED: what is free is kept for job 1, which is before it in line
            later
              DV-GPUS-BUSY no node has 4 GPUs free that would do | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              8 in pool > 8 right model > 8 enough memory > 8 healthy > 0 free > 0 on one node
              room from 2h
            ended t completed Exit exit=0
            reservation 1 is over
            place w n1:0+n1:1+n1:2+n1:3 n2:0+n2:1+n2:2+n2:3
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
        "#]],
    );
}

#[test]
fn room_is_kept_for_who_waits_for_the_end_of_a_drain_alone() {
    check(
        "node n1 2xh100
node n2 1xh100
drain on n1:0 for=2h
drain on n1:1 for=3h
submit w default 2
submit s default 1
plan
explain w
pass 3h
plan",
        expect![[r#"
            reservation 1 begins
            reservation 2 begins
            place s n2:0
            wait DV-GPU-DRAINING: 2 GPUs that would do are being drained
            later
              DV-GPU-DRAINING 2 GPUs that would do are being drained | wait for the drain to end: divvy reserve lists what is drained, and until when
              3 in pool > 3 right model > 3 enough memory > 1 healthy > 0 free > 0 on one node
              room from 3h
            reservation 1 is over
            reservation 2 is over
            place w n1:0+n1:1
        "#]],
    );
}

#[test]
fn room_is_kept_for_who_waits_for_the_end_of_a_reservation() {
    check(
        "node n1 2xh100
queue a
reserve n1:0 queue=a for=2h
submit w default 2
submit s default 1 limit=3h
submit t default 1 limit=2h
plan
explain w
pass 2h
end t
plan",
        expect![[r#"
            reservation 1 begins
            place t n1:1
            wait DV-BOOKED: what is free is reserved from 1970-01-01 00:00 UTC on
            wait DV-RESERVED: what is free is kept for job 1, which is before it in line
            later
              DV-GPUS-BUSY no node has 2 GPUs free that would do | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              2 in pool > 2 right model > 2 enough memory > 2 healthy > 1 not reserved > 0 free > 0 on one node
              room from 2h
            ended t completed Exit exit=0
            reservation 1 is over
            place w n1:0+n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn where_nothing_on_the_calendar_ends_nobody_owns_room_for_it() {
    check(
        "policy reserve: 1
node n1 2xh100
node n2 2xh100
submit r default 1 limit=1h
plan
drain on n2
submit v default 2 limit=1h
submit w default 2
submit s default 1
plan
explain v
explain w",
        expect![[r#"
            place r n1:0
            reservation 1 begins
            wait DV-RESERVED: what is free is kept for job 2, which is before it in line
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            later
              DV-GPUS-BUSY no node has 2 GPUs free that would do | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 1 free > 0 on one node
              room from 1h
            later
              DV-GPUS-BUSY no node has 2 GPUs free that would do | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 1 free > 0 on one node
        "#]],
    );
}
