//! Jobs that run faster on some models than on others, as golden tests: one behaviour each, in words.

use divvy_core::scenario::run;
use expect_test::{Expect, expect};

fn check(scenario: &str, expected: Expect) {
    match run(scenario) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

#[test]
fn a_job_starts_on_the_slower_model_and_goes_on_on_the_faster_once_that_is_free() {
    check(
        "node n1 1xh100\nnode n2 1xa100\nsubmit a default 1 model=h100\nsubmit b default 1 speed=h100:100,a100:50 resumable\n\
        plan\npass 1h\nplan\nend a\nplan\nend b signal=15\nplan",
        expect![[r#"
            place a n1:0
            place b n2:0
            ended a completed Exit exit=0
            stop b Faster
            promise b n1:0
            ended b pending Faster exit=143
            place b n1:0
        "#]],
    );
}

#[test]
fn a_job_that_has_just_started_stays_until_a_restart_pays_and_then_no_event_is_needed() {
    check(
        "node n1 1xh100\nnode n2 1xa100\nsubmit a default 1 model=h100\nsubmit b default 1 speed=h100:100,a100:50 resumable\n\
        plan\npass 1m\nend a\nplan\npass 59s\nplan\npass 1s\nplan",
        expect![[r#"
            place a n1:0
            place b n2:0
            ended a completed Exit exit=0
            stop b Faster
            promise b n1:0
        "#]],
    );
}

#[test]
fn a_minute_after_its_start_it_stays() {
    check(
        "node n1 1xh100\nnode n2 1xa100\nsubmit a default 1 model=h100\nsubmit b default 1 speed=h100:100,a100:50 resumable\n\
        plan\npass 1m\nend a\nplan\npass 59s\nplan",
        expect![[r#"
            place a n1:0
            place b n2:0
            ended a completed Exit exit=0
        "#]],
    );
}

#[test]
fn who_waits_for_the_faster_model_gets_it_before_one_that_runs_elsewhere() {
    check(
        "node n1 1xh100\nnode n2 1xa100\nsubmit a default 1 model=h100\nsubmit b default 1 speed=h100:100,a100:50 resumable\n\
        plan\npass 1h\nsubmit c default 1 model=h100\nplan\nend a\nplan",
        expect![[r#"
            place a n1:0
            place b n2:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            ended a completed Exit exit=0
            place c n1:0
        "#]],
    );
}

#[test]
fn two_jobs_change_places_where_together_they_do_more() {
    check(
        "node n1 1xh100\nnode n2 1xa100\nsubmit a default 1 speed=h100:100,a100:90 resumable\nsubmit b default 1 speed=h100:100,a100:20 resumable\n\
        plan\npass 1h\nplan\nend a signal=15\nend b signal=15\nplan",
        expect![[r#"
            place a n1:0
            place b n2:0
            stop b Faster
            stop a Moved by b
            promise b n1:0
            promise a n2:0
            ended a pending Moved exit=143
            ended b pending Faster exit=143
            place a n2:0
            place b n1:0
        "#]],
    );
}

#[test]
fn nobody_is_slowed_for_another_queue_or_a_lower_priority() {
    check(
        "node n1 2xh100\nnode n2 2xa100\nqueue x\nqueue y\nsubmit a x 1 speed=h100:100,a100:90 resumable\nsubmit b y 1 speed=h100:100,a100:90 resumable prio=high\n\
        plan\nsubmit c y 1 speed=h100:100,a100:20 resumable\nplan\npass 1h\nplan",
        expect![[r#"
            place b n1:0
            place a n1:1
            place c n2:0
        "#]],
    );
}

#[test]
fn a_job_stays_where_it_gains_too_little_or_would_lose_its_work_or_must_not_be_stopped() {
    check(
        "node n1 3xh100\nnode n2 3xa100\nsubmit r default 3 model=h100\nplan\nsubmit a default 1 speed=h100:100,a100:80 resumable\n\
        submit b default 1 speed=h100:100,a100:20\nsubmit c default 1 speed=h100:100,a100:20 resumable fixed\nplan\npass 1h\nend r\nplan",
        expect![[r#"
            place r n1:0+n1:1+n1:2
            place a n2:0
            place b n2:1
            place c n2:2
            ended r completed Exit exit=0
        "#]],
    );
}

#[test]
fn the_policy_may_leave_all_where_they_are() {
    check(
        "policy {speedup_percent: 0}\nnode n1 1xh100\nnode n2 1xa100\nsubmit a default 1 model=h100\n\
        submit b default 1 speed=h100:100,a100:50 resumable\nplan\npass 1h\nend a\nplan",
        expect![[r#"
            place a n1:0
            place b n2:0
            ended a completed Exit exit=0
        "#]],
    );
}

#[test]
fn where_jobs_are_walked_in_order_they_go_on_on_faster_devices_too() {
    check(
        "policy {preempt: walk, order: attained}\nnode n1 1xh100\nnode n2 1xa100\nsubmit a default 1 model=h100\n\
        submit b default 1 speed=h100:100,a100:50 resumable\nplan\npass 1h\nplan\nend a\nplan\nend b signal=15\nplan",
        expect![[r#"
            place a n1:0
            place b n2:0
            ended a completed Exit exit=0
            stop b Faster
            promise b n1:0
            ended b pending Faster exit=143
            place b n1:0
        "#]],
    );
}

#[test]
fn a_gang_goes_on_faster_as_a_whole_or_stays() {
    check(
        "node n1 2xh100\nnode n2 4xa100\nsubmit a default 2 model=h100\nsubmit g default 1 tasks=3 speed=h100:100,a100:50 resumable\n\
        plan\npass 1h\nend a\nplan\nnode n3 1xh100\nplan",
        expect![[r#"
            place a n1:0+n1:1
            place g n2:0 n2:1 n2:2
            ended a completed Exit exit=0
            stop g Faster
            promise g n1:0 n1:1 n3:0
        "#]],
    );
}

#[test]
fn a_speed_that_cannot_be_read_is_refused() {
    check(
        "node n1 1xh100\nsubmit a default 1 speed=h100",
        expect!["line 2: speed=h100 is not model:percent,model:percent"],
    );
    check(
        "node n1 1xh100\nsubmit a default 1 speed=h100:0",
        expect!["line 2: speed=h100:0 is not model:percent,model:percent"],
    );
    check(
        "node n1 1xh100\nsubmit a default 1 model=h100 speed=h100:1",
        expect!["line 2: speed names the models of GPUs: no model= beside it"],
    );
}

#[test]
fn while_the_pool_drains_nobody_moves() {
    check(
        "node n1 1xh100\nnode n2 1xa100\nsubmit a default 1 model=h100\nsubmit b default 1 speed=h100:100,a100:50 resumable\n\
        plan\npass 1h\ndrain on\nplan\nend a\nplan",
        expect![[r#"
            place a n1:0
            place b n2:0
            ended a completed Exit exit=0
        "#]],
    );
}

#[test]
fn what_the_queue_may_not_have_of_one_host_is_no_reason_to_wait_where_the_other_needs_less() {
    check(
        "node n1 2xh100 mem=512\nnode n2 2xa100 mem=64\nqueue a memory=100Gi\n\
        submit j a 2 speed=h100:100,a100:50\nplan",
        expect![[r#"
            place j n2:0+n2:1
        "#]],
    );
}
