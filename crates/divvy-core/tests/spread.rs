//! Gangs whose tasks are spread over the domains of a level, as golden tests: one behaviour each, in words.

mod checker;

use divvy_core::scenario::run;
use expect_test::{Expect, expect};

fn check(scenario: &str, expected: Expect) {
    match run(scenario) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

/// Three racks in two zones, of one node with four GPUs each; and a node of which nobody knows where it is.
const RACKS: &str = "node n1 4xh100 zone=z1 rack=r1\nnode n2 4xh100 zone=z1 rack=r2\n\
    node n3 4xh100 zone=z2 rack=r3\nnode n4 4xh100\n";

fn racks(lines: &str, expected: Expect) {
    check(&format!("{RACKS}{lines}"), expected);
}

#[test]
fn no_more_tasks_lie_in_one_rack_than_may() {
    racks(
        "submit g default 1 tasks=5 spread=2:rack\nplan",
        expect![[r#"
        place g n1:0 n1:1 n2:0 n2:1 n3:0
    "#]],
    );
}

#[test]
fn a_node_that_names_no_rack_is_not_used_where_the_spread_is_required() {
    racks(
        "submit a default 4 tasks=2\nstart a on=n1:0+n1:1+n1:2+n1:3,n2:0+n2:1+n2:2+n2:3
        submit g default 1 tasks=2 spread=1:rack
        plan
        explain g
        end a/0
        end a/1
        plan",
        expect![[r#"
            wait DV-NOT-SPREAD: of 2 tasks no more than 1 may lie in one rack; there is no room for all of them so
            later
              DV-NOT-SPREAD of 2 tasks no more than 1 may lie in one rack; there is no room for all of them so | wait for running jobs to end, let more than 1 lie in one rack, or do not require it
              16 in pool > 16 right model > 16 enough memory > 16 healthy > 8 free > 8 on one node
            ended a completed Exit exit=0
            place g n1:0 n2:0
        "#]],
    );
}

#[test]
fn what_the_racks_cannot_hold_so_is_refused_with_what_they_hold() {
    racks(
        "submit g default 1 tasks=7 spread=2:rack
        submit h default 1 tasks=7 spread=2:rack wait
        submit m default 1 tasks=2 spread=1:row
        submit w default 1 tasks=2 spread=1:row:wish
        plan",
        expect![[r#"
            refused cannot-fit: this pool can never run it: of 7 tasks no more than 2 may lie in one rack; the empty pool holds 6 so. The pool has 16 h100 (80GB) on 4 nodes, at most 4 on one.
            refused cannot-fit: this pool can never run it: of 2 tasks no more than 1 may lie in one row; the empty pool holds 0 so. The pool has 16 h100 (80GB) on 4 nodes, at most 4 on one.
            place w n1:0 n1:1
            wait DV-NOT-SPREAD: of 7 tasks no more than 2 may lie in one rack; the empty pool holds 6 so
        "#]],
    );
}

#[test]
fn over_nodes_each_counts_by_itself_whether_or_not_it_says_where_it_is() {
    racks(
        "submit g default 1 tasks=4 spread=1:node\nplan",
        expect![[r#"
        place g n1:0 n2:0 n3:0 n4:0
    "#]],
    );
}

#[test]
fn a_wish_is_kept_where_there_is_room_and_given_up_where_not() {
    racks(
        "submit a default 1 tasks=3 spread=1:rack:wish
        plan
        submit b default 3 tasks=2 spread=1:rack:wish
        plan
        submit c default 1 tasks=5 spread=1:rack:wish
        plan",
        expect![[r#"
            place a n1:0 n2:0 n3:0
            place b n1:1+n1:2+n1:3 n2:1+n2:2+n2:3
            place c n4:0 n4:1 n4:2 n4:3 n3:1
        "#]],
    );
}

#[test]
fn without_a_bound_tasks_lie_as_evenly_as_there_is_room() {
    racks(
        "submit a default 1 tasks=5 spread=rack
        plan
        submit b default 1 tasks=9 spread=rack
        plan",
        expect![[r#"
            place a n1:0 n2:0 n3:0 n1:1 n2:1
            place b n3:1 n1:2 n2:2 n3:2 n1:3 n2:3 n3:3 n4:0 n4:1
        "#]],
    );
}

#[test]
fn a_gang_lies_in_one_zone_and_there_in_several_racks() {
    check(
        "node n1 4xh100 zone=z1 rack=r1\nnode n2 4xh100 zone=z2 rack=r2\nnode n3 2xh100 zone=z2 rack=r3\n\
        submit g default 1 tasks=4 within=zone spread=2:rack
        plan",
        expect![[r#"
            place g n2:0 n2:1 n3:0 n3:1
        "#]],
    );
}

#[test]
fn tasks_that_are_packed_by_zone_are_spread_in_it() {
    check(
        "node n1 4xh100 zone=z1 rack=r1\nnode n2 4xh100 zone=z2 rack=r2\nnode n3 4xh100 zone=z2 rack=r3\n\
        submit g default 1 tasks=3 near=zone spread=2:rack
        plan
        submit h default 1 tasks=5 near=zone spread=rack
        plan",
        expect![[r#"
            place g n2:0 n2:1 n3:0
            place h n3:1 n2:2 n3:2 n2:3 n3:3
        "#]],
    );
}

#[test]
fn what_contradicts_itself_is_refused() {
    racks(
        "submit a default 1 tasks=2 spread=0:rack
        submit b default 1 tasks=4 within=rack spread=2:rack
        submit c default 1 tasks=4 within=rack spread=2:zone
        submit d default 1 tasks=4 within=zone slice=2:node spread=1:rack
        submit e default 1 tasks=4 spread=1:nvlink
        submit f default 1 tasks=2 within=rack spread=2:rack
        plan",
        expect![[r#"
            refused bad-spec: spread: nothing can start with none in a rack: at least one may lie in each, most: 1
            refused bad-spec: spread: 4 tasks must lie within one rack, and no more than 2 of them may lie in one rack
            refused bad-spec: spread: 4 tasks must lie within one rack, and no more than 2 of them may lie in one zone
            refused bad-spec: spread: 2 tasks must lie within one node, and no more than 1 of them may lie in one rack
            refused cannot-fit: this pool can never run it: no engine of this pool runs tasks that are spread within a node. The pool has 16 h100 (80GB) on 4 nodes, at most 4 on one.
            place f n1:0 n1:1
        "#]],
    );
}

/// A role of tasks with one GPU each, and what it says of their spread.
fn role(name: &str, tasks: u32, spread: &str) -> String {
    let ask = r#"{"alternatives":[{"devices":{"class":{},"count":1,"draw":"whole"},"speed_percent":100}]}"#;
    format!(
        r#"{{"role":{{"name":"{name}","minimum":{tasks},"maximum":{tasks},"ask":{ask},"work":{{"external":[]}}{spread}}}}}"#
    )
}

/// A job of a gang, in braces.
fn job(gang: &str) -> String {
    format!(r#"{{"name":"x","queue":"default","gang":{gang}}}"#)
}

#[test]
fn a_spread_that_is_required_says_how_many_may_lie_together_and_each_names_a_level() {
    let says = |spread: &str| job(&role("main", 2, &format!(r#","spread":{spread}"#)));
    let (boundless, nowhere) =
        (says(r#"{"over":"rack","required":true}"#), says(r#"{"over":"","most":1,"required":true}"#));
    racks(
        &format!("submit a default {boundless}\nsubmit b default {nowhere}"),
        expect![[r#"
        refused bad-spec: spread: say how many may lie in one rack at most (most: 2), or leave out `required`
        refused bad-spec: spread: name the level over which tasks are spread, like rack or node
    "#]],
    );
}

#[test]
fn a_role_is_spread_for_itself_and_a_job_over_all_its_roles() {
    let one = r#","spread":{"over":"rack","most":1,"required":true}"#;
    let all = |spread: &str, groups: &[String]| {
        let groups = groups.join(",");
        job(&format!(r#"{{"branch":{{"name":"job","minimum":2,"groups":[{groups}]{spread}}}}}"#))
    };
    let by_role = all("", &[role("a", 3, one), role("b", 2, "")]);
    let by_job = all(one, &[role("a", 1, ""), role("b", 2, "")]);
    let too_many = all(one, &[role("a", 2, ""), role("b", 2, "")]);
    racks(
        &format!(
            "submit x default {by_role}\nplan\nsubmit y default {by_job}\nplan\nsubmit z default {too_many}"
        ),
        expect![[r#"
            place x n1:0 n2:0 n3:0 n1:1 n1:2
            place y n1:3 n2:1 n3:1
            refused cannot-fit: this pool can never run it: of 4 tasks no more than 1 may lie in one rack; the empty pool holds 3 so. The pool has 16 h100 (80GB) on 4 nodes, at most 4 on one.
        "#]],
    );
}

#[test]
fn of_several_bounds_the_one_is_named_that_keeps_it_back() {
    let spread =
        |over: &str, most: u32| format!(r#","spread":{{"over":"{over}","most":{most},"required":true}}"#);
    let groups = [role("a", 2, &spread("rack", 1)), role("b", 1, "")].join(",");
    let of_all = spread("zone", 3);
    let gang = job(&format!(r#"{{"branch":{{"name":"job","minimum":2,"groups":[{groups}]{of_all}}}}}"#));
    racks(
        &format!(
            "submit s default 4 tasks=2\nstart s on=n2:0+n2:1+n2:2+n2:3,n3:0+n3:1+n3:2+n3:3\nsubmit x default {gang}\nplan
            end s/1\nplan"
        ),
        expect![[r#"
            wait DV-NOT-SPREAD: of 2 tasks no more than 1 may lie in one rack; there is no room for all of them so
            place x n1:0 n3:0 n1:1
        "#]],
    );
}

#[test]
fn tasks_that_come_later_count_those_that_run() {
    check(
        "policy {elastic: true}
        node n1 4xh100 rack=r1\nnode n2 4xh100 rack=r2\n\
        submit g default 1 tasks=2..6 spread=2:rack
        plan
        plan
        node n3 4xh100 rack=r3
        plan",
        expect![[r#"
            place g n1:0 n1:1
            grow g n2:0 n2:1
            grow g n3:0 n3:1
        "#]],
    );
}

#[test]
fn room_is_made_where_tasks_may_lie() {
    check(
        "policy {preempt: least_loss}
        queue a guarantee=2
        queue b
        node n1 2xh100 rack=r1\nnode n2 2xh100 rack=r1\nnode n3 2xh100 rack=r2\n\
        submit b1 b 2\nstart b1 on=n1:0+n1:1
        pass 1h
        submit b2 b 2\nstart b2 on=n2:0+n2:1
        submit b3 b 2\nstart b3 on=n3:0+n3:1
        pass 1m
        submit g a 1 tasks=2 spread=1:rack
        plan",
        expect![[r#"
            stop b3 Reclaimed by g
            stop b2 Reclaimed by g
            promise g n2:0 n3:0
        "#]],
    );
}

#[test]
fn explain_names_how_many_tasks_to_let_lie_in_one_rack() {
    racks(
        "submit a default 4 tasks=2\nstart a on=n2:0+n2:1+n2:2+n2:3,n4:0+n4:1+n4:2+n4:3
        submit g default 1 tasks=6 spread=2:rack
        plan
        explain g",
        expect![[r#"
            wait DV-NOT-SPREAD: of 6 tasks no more than 2 may lie in one rack; there is no room for all of them so
            later
              DV-NOT-SPREAD of 6 tasks no more than 2 may lie in one rack; there is no room for all of them so | wait for running jobs to end, let more than 2 lie in one rack, or do not require it
              16 in pool > 16 right model > 16 enough memory > 16 healthy > 8 free > 8 on one node
        "#]],
    );
}

#[test]
fn jobs_that_are_spread_otherwise_have_verdicts_of_their_own() {
    racks(
        "submit a default 4 tasks=2\nstart a on=n1:0+n1:1+n1:2+n1:3,n2:0+n2:1+n2:2+n2:3
        submit g default 1 tasks=2 spread=1:rack
        submit h default 1 tasks=2 spread=2:rack
        plan",
        expect![[r#"
            place h n3:0 n3:1
            wait DV-NOT-SPREAD: of 2 tasks no more than 1 may lie in one rack; there is no room for all of them so
        "#]],
    );
}

#[test]
fn a_group_that_joins_later_counts_with_those_that_run() {
    let one = r#","spread":{"over":"rack","most":1,"required":true}"#;
    let groups = [role("a", 1, ""), role("b", 1, ""), role("c", 2, "")].join(",");
    let gang = job(&format!(r#"{{"branch":{{"name":"job","minimum":1,"groups":[{groups}]{one}}}}}"#));
    racks(
        &format!("policy {{elastic: true}}\nsubmit x default {gang}\nplan\nnode n5 1xh100 rack=r4\nplan"),
        expect![[r#"
        place x n1:0
        grow x n2:0
        grow x n3:0 n5:0
    "#]],
    );
}

#[test]
fn who_is_moved_is_spread_where_it_goes() {
    check(
        "policy {preempt: least_loss, moves: {per_job: 1, every: 1h, per_queue: 4}}
        node n1 4xh100 rack=r1\nnode n2 4xh100 rack=r2\nnode n3 4xh100 rack=r3\n\
        submit a default 1 tasks=2 spread=1:rack resumable
        start a on=n1:0,n2:0
        submit b default 1 tasks=2 fixed
        start b on=n3:0,n3:1
        pass 10m
        submit c default 4
        pass 1h
        plan",
        expect![[r#"
            stop a Moved by c
            promise a n3:2 n2:0
            promise c n1:0+n1:1+n1:2+n1:3
        "#]],
    );
}

#[test]
fn room_is_kept_where_a_gang_is_spread_and_others_run_around_it() {
    check(
        "policy {reserve: 1, preempt: off}
        node n1 2xh100 rack=r1\nnode n2 2xh100 rack=r2\n\
        submit a default 2 limit=1h\nstart a on=n1:0+n1:1
        submit g default 1 tasks=2 spread=1:rack
        submit s default 1 limit=2h
        submit t default 1 limit=2h
        plan",
        expect![[r#"
            place s n2:1
            wait DV-NOT-SPREAD: of 2 tasks no more than 1 may lie in one rack; there is no room for all of them so
            wait DV-RESERVED: what is free is kept for job 2, which is before it in line
        "#]],
    );
}

#[test]
fn a_gang_that_grows_does_not_bind_those_for_whom_room_is_kept() {
    // Counted with the task that runs, two more would be too many in the rack; but they are another job's.
    check(
        "policy {elastic: true, reserve: 2, preempt: off}
        queue q\nqueue r guarantee=2
        node n1 3xh100 rack=r1\n\
        submit a q 1 limit=1h\nstart a on=n1:0
        submit g q 1 tasks=1..2 spread=2:rack
        start g on=n1:1
        submit w r 1 tasks=2
        plan
        explain w",
        expect![[r#"
            wait DV-GANG: not all of its 2 tasks fit at once
            later
              DV-GANG not all of its 2 tasks fit at once | wait for running jobs to end, or ask for fewer tasks
              3 in pool > 3 right model > 3 enough memory > 3 healthy > 1 free > 1 on one node
              room from 1h
        "#]],
    );
}

/// What the checker finds in the log of a pool after these lines.
fn found(lines: &str) -> Vec<String> {
    checker::found(&format!("{RACKS}{lines}"))
}

#[test]
fn the_checker_finds_tasks_that_are_not_spread_as_they_must_be() {
    let start = |spread: &str, on: &str| {
        found(&format!("submit g default 1 tasks=2 spread={spread}\nstart g on={on}"))
    };
    let none: [&str; 0] = [];
    assert_eq!(start("1:rack", "n1:0,n2:0"), none);
    assert_eq!(start("1:rack:wish", "n1:0,n1:1"), none);
    let wrong = ["spread: a task of job 1 lies outside every rack, or in one with more than 1"];
    assert_eq!(start("1:rack", "n1:0,n1:1"), wrong);
    assert_eq!(start("1:rack", "n1:0,n4:0"), wrong);
}
