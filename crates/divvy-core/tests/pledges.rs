//! Scenarios of guarantees in GPU-hours.
#![allow(clippy::unwrap_used, reason = "what a test's own functions can't set up has failed the test")]

use divvy_core::decide::guaranteed_beyond;
use divvy_core::model::queue::{Queue, parse};
use divvy_core::scenario::{Scenario, run};
use divvy_core::snapshot::Snapshot;
use expect_test::{Expect, expect};

/// Eight GPUs; `a` has four of them pledged all day and nothing else is due to it, `b` has no bounds.
const POOL: &str = r#"policy {share: fill, preempt: least_loss, half_life: none}
node n1 8xh100
queue a {"path": "a", "weight": 0, "pledge": {"milli_gpu_hours": 96000, "every": "day"}}
queue b {"path": "b"}
"#;

fn check(scenario: &str, expected: Expect) {
    match run(&format!("{POOL}{scenario}")) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

#[test]
fn who_is_behind_his_pace_takes_back_what_makes_it_up_and_no_more() {
    check(
        "submit b b 1 array=0-7\nplan\nsubmit a a 1 array=0-7\nplan",
        expect![[r#"
        place b_0 n1:0
        place b_1 n1:1
        place b_2 n1:2
        place b_3 n1:3
        place b_4 n1:4
        place b_5 n1:5
        place b_6 n1:6
        place b_7 n1:7
        stop b_7 Reclaimed by a_0
        stop b_6 Reclaimed by a_1
        stop b_5 Reclaimed by a_2
        stop b_4 Reclaimed by a_3
        promise a_0 n1:7
        promise a_1 n1:6
        promise a_2 n1:5
        promise a_3 n1:4
        wait DV-GPUS-BUSY: every GPU that would do is taken
    "#]],
    );
}

#[test]
fn who_has_used_nothing_for_half_of_the_period_gets_twice_his_pace() {
    check(
        "submit b b 1 array=0-7\nplan\npass 12h\nsubmit a a 1 array=0-7\nplan",
        expect![[r#"
        place b_0 n1:0
        place b_1 n1:1
        place b_2 n1:2
        place b_3 n1:3
        place b_4 n1:4
        place b_5 n1:5
        place b_6 n1:6
        place b_7 n1:7
        stop b_7 Reclaimed by a_0
        stop b_6 Reclaimed by a_1
        stop b_5 Reclaimed by a_2
        stop b_4 Reclaimed by a_3
        stop b_3 Reclaimed by a_4
        stop b_2 Reclaimed by a_5
        stop b_1 Reclaimed by a_6
        stop b_0 Reclaimed by a_7
        promise a_0 n1:7
        promise a_1 n1:6
        promise a_2 n1:5
        promise a_3 n1:4
        promise a_4 n1:3
        promise a_5 n1:2
        promise a_6 n1:1
        promise a_7 n1:0
    "#]],
    );
}

#[test]
fn who_is_ahead_of_his_pace_is_guaranteed_nothing_until_he_is_behind_again() {
    check(
        "submit a a 1 array=0-7\nplan\npass 4h\nsubmit b b 1 array=0-7\nplan\nend a_0\nend a_1\nend a_2\nend a_3\nend a_4\nend a_5\nend a_6\nend a_7\nplan\npass 3h\nplan\npass 2h\nplan",
        expect![[r#"
            place a_0 n1:0
            place a_1 n1:1
            place a_2 n1:2
            place a_3 n1:3
            place a_4 n1:4
            place a_5 n1:5
            place a_6 n1:6
            place a_7 n1:7
            stop a_7 Reclaimed by b_0
            stop a_6 Reclaimed by b_1
            stop a_5 Reclaimed by b_2
            stop a_4 Reclaimed by b_3
            stop a_3 Reclaimed by b_4
            stop a_2 Reclaimed by b_5
            stop a_1 Reclaimed by b_6
            stop a_0 Reclaimed by b_7
            promise b_0 n1:7
            promise b_1 n1:6
            promise b_2 n1:5
            promise b_3 n1:4
            promise b_4 n1:3
            promise b_5 n1:2
            promise b_6 n1:1
            promise b_7 n1:0
            ended a_0 pending Reclaimed exit=0
            place b_7 n1:0
            ended a_1 pending Reclaimed exit=0
            place b_6 n1:1
            ended a_2 pending Reclaimed exit=0
            place b_5 n1:2
            ended a_3 pending Reclaimed exit=0
            place b_4 n1:3
            ended a_4 pending Reclaimed exit=0
            place b_3 n1:4
            ended a_5 pending Reclaimed exit=0
            place b_2 n1:5
            ended a_6 pending Reclaimed exit=0
            place b_1 n1:6
            ended a_7 pending Reclaimed exit=0
            place b_0 n1:7
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop b_7 Reclaimed by a_0
            stop b_6 Reclaimed by a_1
            stop b_5 Reclaimed by a_2
            stop b_4 Reclaimed by a_3
            stop b_3 Reclaimed by a_4
            promise a_0 n1:0
            promise a_1 n1:1
            promise a_2 n1:2
            promise a_3 n1:3
            promise a_4 n1:4
        "#]],
    );
}

#[test]
fn a_period_begins_anew_whatever_was_used_in_the_last_one() {
    check(
        "submit a a 1 array=0-7\nplan\npass 4h\nsubmit b b 1 array=0-7\nplan\nend a_0\nend a_1\nend a_2\nend a_3\nend a_4\nend a_5\nend a_6\nend a_7\nplan\npass 1h\nplan\npass 19h\nplan",
        expect![[r#"
            place a_0 n1:0
            place a_1 n1:1
            place a_2 n1:2
            place a_3 n1:3
            place a_4 n1:4
            place a_5 n1:5
            place a_6 n1:6
            place a_7 n1:7
            stop a_7 Reclaimed by b_0
            stop a_6 Reclaimed by b_1
            stop a_5 Reclaimed by b_2
            stop a_4 Reclaimed by b_3
            stop a_3 Reclaimed by b_4
            stop a_2 Reclaimed by b_5
            stop a_1 Reclaimed by b_6
            stop a_0 Reclaimed by b_7
            promise b_0 n1:7
            promise b_1 n1:6
            promise b_2 n1:5
            promise b_3 n1:4
            promise b_4 n1:3
            promise b_5 n1:2
            promise b_6 n1:1
            promise b_7 n1:0
            ended a_0 pending Reclaimed exit=0
            place b_7 n1:0
            ended a_1 pending Reclaimed exit=0
            place b_6 n1:1
            ended a_2 pending Reclaimed exit=0
            place b_5 n1:2
            ended a_3 pending Reclaimed exit=0
            place b_4 n1:3
            ended a_4 pending Reclaimed exit=0
            place b_3 n1:4
            ended a_5 pending Reclaimed exit=0
            place b_2 n1:5
            ended a_6 pending Reclaimed exit=0
            place b_1 n1:6
            ended a_7 pending Reclaimed exit=0
            place b_0 n1:7
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop b_7 Reclaimed by a_0
            stop b_6 Reclaimed by a_1
            stop b_5 Reclaimed by a_2
            stop b_4 Reclaimed by a_3
            promise a_0 n1:0
            promise a_1 n1:1
            promise a_2 n1:2
            promise a_3 n1:3
        "#]],
    );
}

#[test]
fn what_the_planner_sees_of_pledges_is_what_it_would_see_anew() {
    let mut scenario = Scenario::new();
    for line in POOL.lines().chain(["submit b b 1 array=0-7", "plan", "submit a a 1 array=0-9", "plan"]) {
        scenario.line(line).unwrap();
    }
    for _ in 0..30 {
        scenario.line("pass 37m").unwrap();
        scenario.line("plan").unwrap();
        let controller = scenario.controller();
        assert!(controller.snapshot().same_as(&Snapshot::new(controller.state())));
    }
}

/// One GPU that two queues want all day, of which half a day is pledged to each: they take turns of four hours. This is the fifth.
const TURNS: &str = r#"policy {share: fill, preempt: least_loss, half_life: none, cool_down: none}
node n1 1xh100
queue a {"path": "a", "pledge": {"milli_gpu_hours": 12000, "every": "day"}}
queue b {"path": "b", "pledge": {"milli_gpu_hours": 12000, "every": "day"}}
queue c guarantee=1
submit a a 1 SAVES
plan
submit b b 1 SAVES
plan
pass 2h
plan
end a signal=15
plan
pass 4h
plan
end b signal=15
plan
pass 4h
plan
end a signal=15
plan
pass 4h
plan
end b signal=15
plan
"#;

/// Runs the fifth turn, and looks at what happens in it.
fn in_the_fifth_turn(saves: &str, scenario: &str, expected: Expect) {
    let before = run(&TURNS.replace("SAVES", saves)).unwrap();
    let printed = run(&format!("{}{scenario}", TURNS.replace("SAVES", saves))).unwrap();
    expected.assert_eq(printed.strip_prefix(&before).unwrap_or(&printed));
}

#[test]
fn a_job_that_saves_nothing_is_left_alone_until_it_has_done_again_what_it_lost_in_turns_before() {
    in_the_fifth_turn(
        "",
        "pass 4h\nplan\npass 119m\nplan\nexplain b\npass 1m\nplan",
        expect![[r#"
            later
              DV-GPUS-BUSY every GPU that would do is taken | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              1 in pool > 1 right model > 1 enough memory > 1 healthy > 0 free > 0 on one node
              room as it becomes free
            stop a Reclaimed by b
            promise b n1:0
        "#]],
    );
}

#[test]
fn a_job_that_goes_on_where_it_was_gives_way_at_the_end_of_each_turn() {
    in_the_fifth_turn(
        "resumable",
        "pass 4h\nplan",
        expect![[r#"
            stop a Reclaimed by b
            promise b n1:0
        "#]],
    );
}

#[test]
fn what_was_lost_in_turns_is_done_again_only_as_long_as_no_gpus_that_are_guaranteed_as_such_are_wanted() {
    in_the_fifth_turn(
        "",
        "pass 5h\nplan\nsubmit c c 1\nplan",
        expect![[r#"
            stop a Reclaimed by c
            promise c n1:0
        "#]],
    );
}

#[test]
fn many_small_pledges_are_added_up_exactly_before_they_are_compared_with_the_pool() {
    let mut pool = Scenario::new();
    pool.line("node n1 8xh100").unwrap();
    let beyond = |count: u32, hours: u32| {
        let queue = |number| format!("  q{number}: {{guarantee: {{gpu_hours: {hours}, every: week}}}}\n");
        let text: String = (0..count).map(queue).collect();
        let queues: Vec<Queue> = parse(&format!("queues:\n{text}")).unwrap().queues;
        guaranteed_beyond(pool.state(), &queues).map(|beyond| beyond.what)
    };
    assert_eq!(beyond(9, 1), None);
    assert_eq!(beyond(16, 84), None);
    let what = beyond(17, 84).unwrap();
    assert!(what.starts_with("8.5 of any are guaranteed in all (q0 0.5, "), "{what}");
}
