//! Gangs that grow and shrink while they run, as golden tests: one behaviour each, in words.

#![allow(clippy::unwrap_used, reason = "only tests live here")]

use divvy_core::engine::{EndedHow, Observation, TaskEnd, TaskStart};
use divvy_core::id::AllocationId;
use divvy_core::scenario::{Scenario, run};
use expect_test::{Expect, expect};

fn check(scenario: &str, expected: Expect) {
    let text = match scenario.starts_with("policy") {
        true => scenario.to_owned(),
        false => format!("policy {{elastic: true}}\n{scenario}"),
    };
    match run(&text) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

#[test]
fn a_gang_starts_with_its_minimum_and_grows_into_what_nobody_else_starts_on() {
    check(
        "node n1 4xh100\nsubmit e default 1 tasks=1..8\nsubmit r default 1\nplan\nend r\nplan",
        expect![[r#"
            place e n1:0
            place r n1:1
            grow e n1:2 n1:3
            ended r completed Exit exit=0
            grow e n1:1
        "#]],
    );
}

#[test]
fn gangs_of_one_queue_grow_in_turns() {
    check(
        "node n1 5xh100\nsubmit a default 1 tasks=1..4\nsubmit b default 1 tasks=1..4\nplan",
        expect![[r#"
            place a n1:0
            place b n1:1
            grow a n1:2 n1:4
            grow b n1:3
        "#]],
    );
}

#[test]
fn surplus_tasks_give_way_first_and_the_gang_runs_on() {
    check(
        "node n1 4xh100\nsubmit e default 1 tasks=1..4 prio=low\nsubmit r default 1 prio=low\nplan\nsubmit h default 2 prio=high\nplan\n\
        end e/2 signal=15\nend e/1 signal=15\nplan\nend h\nplan",
        expect![[r#"
            place e n1:0
            place r n1:1
            grow e n1:2 n1:3
            shrink e by n1:3 Preempted by h
            shrink e by n1:2 Preempted by h
            promise h n1:2+n1:3
            place h n1:2+n1:3
            ended h completed Exit exit=0
            grow e n1:2 n1:3
        "#]],
    );
}

#[test]
fn a_gang_whose_minimum_is_taken_goes_as_a_whole() {
    check(
        "node n1 4xh100\nsubmit e default 1 tasks=2..4 prio=low\nplan\nsubmit h default 3 prio=high\nplan",
        expect![[r#"
            place e n1:0 n1:1
            grow e n1:2 n1:3
            shrink e by n1:3 Preempted by h
            shrink e by n1:2 Preempted by h
            stop e Preempted by h
            promise h n1:3+n1:1+n1:2
        "#]],
    );
}

#[test]
fn a_queue_takes_back_surplus_for_the_growth_that_is_due_to_it() {
    check(
        "node n1 3xh100\nqueue a guarantee=1 weight=0\nqueue b guarantee=2\nsubmit r a 1 tasks=1..2\nplan\nsubmit p b 1 tasks=1..3\n\
        plan\nend r/1 signal=15\nplan",
        expect![[r#"
            place r n1:0
            grow r n1:1
            shrink r by n1:1 Reclaimed by p
            place p n1:2
            promise p to grow n1:1
            grow p n1:1
        "#]],
    );
}

#[test]
fn a_gang_that_loses_a_task_by_bad_luck_runs_on_if_it_has_its_minimum() {
    check(
        "node n1 3xh100\nsubmit e default 1 tasks=2..3\nplan\nend e/1 reboot\nplan\nend e/0 lost\nend e/2 lost\nplan",
        expect![[r#"
            place e n1:0 n1:1
            grow e n1:2
            shrink e by a task NodeReboot
            grow e n1:1
            shrink e by a task SupervisorLost
            stop e BrokenGang
        "#]],
    );
}

#[test]
fn a_gang_that_must_lie_in_one_rack_grows_there_alone() {
    check(
        "node n1 1xh100 rack=r1\nnode n2 1xh100 rack=r1\nnode n3 1xh100 rack=r2\nsubmit e default 1 tasks=1..3 within=rack\nplan",
        expect![[r#"
            place e n3:0
        "#]],
    );
}

#[test]
fn what_was_promised_to_a_gang_for_its_growth_goes_when_the_gang_does() {
    check(
        "node n1 3xh100\nqueue a guarantee=1 weight=0\nqueue b guarantee=2\nsubmit r a 1 tasks=1..2\nplan\nsubmit p b 1 tasks=1..3\n\
        plan\ncancel p\nend p signal=15\nend r/1 signal=15\nplan",
        expect![[r#"
            place r n1:0
            grow r n1:1
            shrink r by n1:1 Reclaimed by p
            place p n1:2
            promise p to grow n1:1
            stop p Cancelled
            ended p cancelled Cancelled exit=143
            grow r n1:1
        "#]],
    );
}

#[test]
fn where_gangs_may_not_grow_they_run_with_the_least_and_those_that_have_more_give_it_up_as_ever() {
    check(
        "policy {elastic: false}\nnode n1 4xh100\nsubmit e default 1 tasks=1..4\nplan\npass 10m\nplan\n\
        policy {elastic: true}\nplan\npolicy {elastic: false}\nsubmit f default 2 prio=5\nplan",
        expect![[r#"
            place e n1:0
            grow e n1:1 n1:2 n1:3
            shrink e by n1:3 Preempted by f
            shrink e by n1:2 Preempted by f
            promise f n1:2+n1:3
        "#]],
    );
}

#[test]
fn jobs_move_to_free_a_block_for_a_waiting_gang_and_nobody_loses_a_place() {
    check(
        "policy {most_moves: 4}\nnode n1 4xh100\nnode n2 4xh100\nsubmit a default 2 resumable\nstart a on=n1:0+n1:1\nsubmit b default 1 resumable\nstart b on=n2:0\n\
        pass 1h\nsubmit g default 4\npass 1m\nplan\nend b signal=15\nplan",
        expect![[r#"
            stop b Moved by g
            promise b n1:2
            promise g n2:0+n2:1+n2:2+n2:3
            ended b pending Moved exit=143
            place b n1:2
            place g n2:0+n2:1+n2:2+n2:3
        "#]],
    );
}

#[test]
fn parts_of_a_gang_that_move_together_go_on_by_ranks_of_their_own() {
    check(
        "policy {most_moves: 4}\nnode n1 1xh100\nnode n2 1xh100\nnode n3 2xh100\nsubmit e default 1 tasks=1..4 resumable\nplan\n\
        policy {most_moves: 4, elastic: false}\nend e/1 lost\nplan\nsubmit f default 1 fixed\nsubmit h default 2\nplan\n\
        pass 1h\nnode n4 1xh100\nnode n5 1xh100\nplan\nend e/2 signal=15\nend e/3 signal=15\nplan",
        expect![[r#"
            place e n1:0
            grow e n2:0 n3:0 n3:1
            shrink e by a task SupervisorLost
            place f n2:0
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            shrink e by n3:0 Moved by h
            shrink e by n3:1 Moved by h
            promise h n3:0+n3:1
            promise e to grow n4:0 n5:0
            grow e n4:0 n5:0
            place h n3:0+n3:1
        "#]],
    );
}

#[test]
fn a_job_is_not_moved_if_that_loses_more_than_the_claim_has_waited() {
    check(
        "policy {most_moves: 4}\nnode n1 4xh100\nnode n2 4xh100\nsubmit a default 2\nstart a on=n1:0+n1:1\nsubmit b default 1\nstart b on=n2:0\n\
        pass 10h\nsubmit g default 4\nplan\npass 3h\nsubmit other default 1\nplan\nend other\nplan",
        expect![[r#"
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
            place other n1:2
            ended other completed Exit exit=0
        "#]],
    );
}

#[test]
fn no_more_jobs_move_in_a_cycle_than_may() {
    check(
        "policy {most_moves: 1}\nnode n1 2xh100\nnode n2 2xh100\nnode n3 2xh100\nnode n4 2xh100\n\
        submit j default 1 array=0-3 resumable\nstart j_0 on=n1:0\nstart j_1 on=n2:0\nstart j_2 on=n3:0\nstart j_3 on=n4:0\n\
        submit g default 2 tasks=2\npass 1h\nplan\npolicy {most_moves: 2}\nplan",
        expect![[r#"
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            stop j_1 Moved by g
            stop j_0 Moved by g
            promise j_1 n3:1
            promise j_0 n4:1
            promise g n1:0+n1:1 n2:0+n2:1
        "#]],
    );
}

#[test]
fn what_is_guaranteed_is_taken_back_with_moves_rather_than_below_another_guarantee() {
    check(
        "policy {most_moves: 4}\nnode n1 4xh100\nnode n2 4xh100\nqueue a guarantee=4 weight=0\nqueue b guarantee=4 weight=0\n\
        submit a1 a 2 resumable\nstart a1 on=n1:0+n1:1\nsubmit a2 a 2 resumable\nstart a2 on=n2:0+n2:1\nsubmit a3 a 1\nstart a3 on=n2:2\n\
        submit b1 b 4\npass 1m\nplan",
        expect![[r#"
            stop a3 Reclaimed by b1
            stop a1 Moved by b1
            promise a1 n2:2+n2:3
            promise b1 n1:0+n1:1+n1:2+n1:3
        "#]],
    );
}

#[test]
fn while_the_pool_drains_no_gang_grows() {
    check(
        "node n1 2xh100\nsubmit e default 1 tasks=1..2\nsubmit r default 1\nplan\ndrain on\nend r\nplan",
        expect![[r#"
            place e n1:0
            place r n1:1
            ended r completed Exit exit=0
        "#]],
    );
}

#[test]
fn a_gang_does_not_grow_into_what_one_before_it_would_take_from_it() {
    check(
        "policy {half_life: none, reclaim: never, reserve: 0, elastic: true, order: attained, attained: {levels: [1h], head_start: none}}\n\
        node n1 8xh100\nnode n2 8xh100\nqueue a\nqueue b\nsubmit y b 7\nsubmit x b 8\nplan\nsubmit g a 1 tasks=1..8 resumable\nplan\n\
        pass 2h\nsubmit w a 8 resumable\nsubmit z b 8 tasks=2\nplan\nend x\nplan\npass 1s\nplan",
        expect![[r#"
            place y n1:0+n1:1+n1:2+n1:3+n1:4+n1:5+n1:6
            place x n2:0+n2:1+n2:2+n2:3+n2:4+n2:5+n2:6+n2:7
            place g n1:7
            wait DV-GPUS-BUSY: no node has 8 GPUs free that would do
            wait DV-GPUS-BUSY: no node has 8 GPUs free that would do
            ended x completed Exit exit=0
            place w n2:0+n2:1+n2:2+n2:3+n2:4+n2:5+n2:6+n2:7
        "#]],
    );
}

#[test]
fn a_gang_whose_last_task_to_start_leaves_runs_from_then_on_and_has_its_time_limit() {
    check(
        "node n1 2xh100\nsubmit g default 1 tasks=1..2 limit=1h\nstart g on=n1:0 slowly\nplan\nsubmit h default 1 prio=high\nend g/0 lost\nplan\n\
        pass 2h\nplan",
        expect![[r#"
            grow g n1:1
            shrink g by a task SupervisorLost
            place h n1:0
            stop g TimeLimit
        "#]],
    );
    check(
        "node n1 2xh100\nsubmit g default 1 tasks=1..2 limit=1h\nstart g on=n1:0 slowly\nplan\nend g/0\npass 2h\nplan",
        expect![[r#"
            grow g n1:1
            stop g TimeLimit
        "#]],
    );
}

#[test]
fn history_has_all_tasks_that_a_gang_had_in_the_end_and_where_their_output_is() {
    let mut pool = Scenario::new();
    for line in ["node n1 4xh100", "submit g default 1 tasks=1..4", "start g on=n1:0,n1:1,n1:2 slowly"] {
        pool.line(line).unwrap();
    }
    let (tasks, now): (Vec<AllocationId>, _) =
        (pool.state().allocations.keys().copied().collect(), pool.now());
    let controller = pool.controller();
    for task in &tasks {
        let start = TaskStart { output: Some(task.to_string()), ..TaskStart::default() };
        controller.see(&Observation::Started(*task, start), now).unwrap();
    }
    for task in &tasks {
        let end = TaskEnd { at: now, how: EndedHow::Exited(0), ..TaskEnd::default() };
        controller.see(&Observation::Ended(*task, end), now).unwrap();
    }
    let attempt = &controller.drain().unwrap().attempts[0];
    assert_eq!((attempt.tasks, attempt.gpus, attempt.gpu_milli), (3, 3, 3000));
    let outputs: Vec<Option<String>> = tasks.iter().map(|task| Some(task.to_string())).collect();
    assert_eq!(attempt.outputs, outputs);
}

#[test]
fn a_gang_that_grew_loses_no_more_than_its_tasks_held() {
    let mut pool = Scenario::new();
    let lines = "policy {elastic: true, half_life: none}\nnode n1 3xh100\nsubmit o default 2\nplan\nsubmit e default 1 tasks=1..3\nplan\n\
        pass 10h\nend o\nplan\npass 2h\nstop e";
    lines.lines().for_each(|line| pool.line(line).unwrap());
    let (live, now) = (pool.state().allocations.keys().copied().collect::<Vec<_>>(), pool.now());
    for id in live {
        let end = TaskEnd { at: now, how: EndedHow::Signalled(15), ..TaskEnd::default() };
        pool.controller().see(&Observation::Ended(id, end), now).unwrap();
    }
    let attempts = pool.controller().drain().unwrap().attempts;
    let hours: Vec<i64> = attempts.iter().map(|it| it.lost_milli_ms / 3_600_000_000).collect();
    assert_eq!(hours, [16]);
}

#[test]
fn what_begins_on_the_calendar_stops_surplus_tasks_that_lie_there_and_the_gang_runs_on() {
    check(
        "node n1 2xh100\nnode n2 2xh100\nqueue a\nqueue b\nsubmit e a 1 tasks=1..4\nplan\npass 10h\nreserve n2 queue=b for=1h\nplan\nplan\nend e/2 signal=15\nend e/3 signal=15\nsubmit f b 2\nplan\nend f\npass 1h\nplan",
        expect![[r#"
            place e n1:0
            grow e n1:1 n2:0 n2:1
            reservation 1 begins
            shrink e by n2:0 n2:1 Drain
            place f n2:0+n2:1
            ended f completed Exit exit=0
            reservation 1 is over
            grow e n2:0 n2:1
        "#]],
    );
}

#[test]
fn what_begins_on_the_calendar_stops_a_gang_of_which_the_core_lies_there() {
    check(
        "node n1 1xh100\nnode n2 2xh100\nqueue a\nqueue b\nsubmit e a 1 tasks=2..3\nplan\npass 10h\nreserve n2 queue=b for=1h\nplan",
        expect![[r#"
            place e n2:0 n2:1
            grow e n1:0
            reservation 1 begins
            stop e Drain
        "#]],
    );
}

#[test]
fn who_is_guaranteed_something_takes_it_from_what_is_left_of_a_gang_that_gave_tasks_up_for_a_drain() {
    check(
        "policy {elastic: true, half_life: none}\nnode n1 2xh100\nnode n2 2xh100\nqueue a\nqueue b guarantee=1\nsubmit e a 1 tasks=1..4\nplan\npass 10h\ndrain on n2 evict for=1h\nsubmit f b 1\nplan\nend e/2 signal=15\nend e/3 signal=15\nplan",
        expect![[r#"
            place e n1:0
            grow e n1:1 n2:0 n2:1
            reservation 1 begins
            shrink e by n2:0 n2:1 Drain
            wait DV-GPUS-BUSY: every GPU that would do is taken
            shrink e by n1:1 Reclaimed by f
            promise f n1:1
        "#]],
    );
}

/// A gang with these roles or branches, each with its least and greatest number.
fn gang_of(groups: &str) -> String {
    format!(
        r#"{{"name": "g", "queue": "default", "gang": {{"branch": {{"name": "all", "minimum": 2, "groups": [{groups}]}}}}}}"#
    )
}

/// A role whose tasks take a GPU each.
fn role(name: &str, minimum: u32, maximum: u32) -> String {
    format!(
        r#"{{"role": {{"name": "{name}", "minimum": {minimum}, "maximum": {maximum}, "work": {{"external": ["pod"]}}, "ask": {{"alternatives": [{{"devices": {{"class": {{}}, "count": 1, "draw": "whole"}}, "speed_percent": 100}}]}}}}}}"#
    )
}

#[test]
fn the_roles_of_a_gang_grow_in_proportion_to_what_it_needs_of_each() {
    let gang = gang_of(&[role("few", 1, 8), role("many", 4, 8)].join(", "));
    check(
        &format!("node n1 8xh100\nsubmit g default {gang}\nplan"),
        expect![[r#"
        place g n1:0 n1:1 n1:2 n1:3 n1:4
        grow g n1:5 n1:6 n1:7
    "#]],
    );
}

#[test]
fn a_group_that_did_not_start_comes_before_further_tasks_of_those_that_did() {
    let stage = |name: &str| {
        let roles = [role("left", 1, 2), role("right", 1, 1)].join(", ");
        format!(r#"{{"branch": {{"name": "{name}", "minimum": 2, "groups": [{roles}]}}}}"#)
    };
    let gang = gang_of(&["a", "b", "c"].map(stage).join(", "));
    check(
        &format!("node n1 7xh100\nsubmit g default {gang}\nplan"),
        expect![[r#"
        place g n1:0 n1:1 n1:2 n1:3
        grow g n1:6 n1:4 n1:5
    "#]],
    );
}

#[test]
fn a_gang_takes_the_surplus_of_one_of_lower_priority_in_its_queue_and_nothing_else() {
    let runs = "node n1 4xh100\nsubmit low default 1 tasks=1..3 prio=low\nsubmit alone default 1 prio=low\nplan\n\
        submit high default 1 tasks=1..4 prio=high\n";
    check(
        &format!("{runs}plan\nend low/2 signal=15\nplan\nend low/1 signal=15\nplan"),
        expect![[r#"
        place low n1:0
        place alone n1:1
        grow low n1:2 n1:3
        shrink low by n1:3 Preempted by high
        promise high n1:3
        place high n1:3
        shrink low by n1:2 Preempted by high
        promise high to grow n1:2
        grow high n1:2
    "#]],
    );
    // Of another queue it takes nothing beyond what is due to its own.
    check(
        &format!(
            "queue other\n{}plan\nend low/2 signal=15\nplan",
            runs.replace("high default", "high other")
        ),
        expect![[r#"
            place low n1:0
            place alone n1:1
            grow low n1:2 n1:3
            shrink low by n1:3 Reclaimed by high
            promise high n1:3
            place high n1:3
            shrink low by n1:2 Reclaimed by high
            promise high to grow n1:2
        "#]],
    );
}

#[test]
fn at_the_limit_of_its_queue_a_gang_grows_by_what_its_juniors_give() {
    check(
        "node n1 4xh100\nqueue q limit=3\nsubmit low q 1 tasks=1..4 prio=low\nplan\nsubmit high q 1 tasks=1..3 prio=high\n\
        plan\nend low/2 signal=15\nplan\nend low/1 signal=15\nplan",
        expect![[r#"
            place low n1:0
            grow low n1:1 n1:2
            shrink low by n1:2 Preempted by high
            promise high n1:3
            place high n1:3
            shrink low by n1:1 Preempted by high
            promise high to grow n1:2
            grow high n1:2
        "#]],
    );
}

#[test]
fn a_gang_that_starts_beside_its_juniors_grows_by_their_surplus_at_once() {
    check(
        "node n0 6xh100\nsubmit j0 default 1 tasks=2..4\nplan\nsubmit j2 default 1 tasks=2..4 prio=5\nplan",
        expect![[r#"
            place j0 n0:0 n0:1
            grow j0 n0:2 n0:3
            shrink j0 by n0:3 Preempted by j2
            shrink j0 by n0:2 Preempted by j2
            place j2 n0:4 n0:5
            promise j2 to grow n0:3 n0:2
        "#]],
    );
}
