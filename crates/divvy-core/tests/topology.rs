//! Gangs that ask to lie within one domain, as golden tests: one behaviour each, in words.

use divvy_core::scenario::run;
use expect_test::{Expect, expect};

fn check(scenario: &str, expected: Expect) {
    match run(scenario) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

/// Two racks of two nodes with two GPUs each.
const RACKS: &str = "node n1 2xh100 zone=z1 rack=r1\nnode n2 2xh100 zone=z1 rack=r1\n\
    node n3 2xh100 zone=z1 rack=r2\nnode n4 2xh100 zone=z1 rack=r2\n";

fn racks(lines: &str, expected: Expect) {
    check(&format!("{RACKS}{lines}"), expected);
}

#[test]
fn a_gang_that_must_lie_in_one_rack_goes_to_the_one_that_has_room_for_all() {
    racks(
        "submit a default 1\nplan\nsubmit g default 2 tasks=2 within=rack\nplan",
        expect![[r#"
        place a n1:0
        place g n3:0+n3:1 n4:0+n4:1
    "#]],
    );
}

#[test]
fn of_racks_with_room_the_fullest_is_taken() {
    racks(
        "submit a default 1 model=h100\nplan\nsubmit g default 1 tasks=3 within=rack\nplan",
        expect![[r#"
        place a n1:0
        place g n2:0 n2:1 n1:1
    "#]],
    );
}

#[test]
fn a_gang_waits_while_no_rack_has_room_for_all_of_it_although_the_pool_has() {
    racks(
        "submit a default 1\nstart a on=n1:0\nsubmit b default 1\nstart b on=n3:0\nsubmit g default 1 tasks=4 within=rack\nplan\n\
        explain g\nend b\nplan",
        expect![[r#"
            wait DV-TOPOLOGY: no rack has room for 4 tasks that must lie within one
            later
              DV-TOPOLOGY no rack has room for 4 tasks that must lie within one | wait for running jobs to end, or only prefer one rack instead of requiring it
              8 in pool > 8 right model > 8 enough memory > 8 healthy > 6 free > 6 on one node
            ended b completed Exit exit=0
            place g n3:0 n3:1 n4:0 n4:1
        "#]],
    );
}

#[test]
fn the_domain_binds_under_scores_of_single_tasks_too() {
    racks(
        "policy {score: best_fit}\nsubmit a default 1\nplan\nsubmit g default 2 tasks=2 within=rack\nplan",
        expect![[r#"
        place a n1:0
        place g n3:0+n3:1 n4:0+n4:1
    "#]],
    );
}

#[test]
fn a_gang_larger_than_any_rack_is_refused_unless_it_waits_for_capacity() {
    racks(
        "submit g default 2 tasks=3 within=rack\nsubmit w default 2 tasks=3 within=rack wait\nsubmit m default 1 within=moon\nplan\nexplain w",
        expect![[r#"
            refused cannot-fit: this pool can never run it: 3 tasks must lie within one rack; none holds more than 2. The pool has 8 h100 (80GB) on 4 nodes, at most 2 on one.
            refused cannot-fit: this pool can never run it: 1 task must lie within one moon; none holds more than 0. The pool has 8 h100 (80GB) on 4 nodes, at most 2 on one.
            wait DV-TOPOLOGY: 3 tasks must lie within one rack; none holds more than 2
            no_fit
              DV-TOPOLOGY 3 tasks must lie within one rack; none holds more than 2 | ask for at most 2 tasks within one rack, or only prefer one rack
              8 in pool > 8 right model > 8 enough memory > 8 healthy > 8 free > 8 on one node
        "#]],
    );
}

#[test]
fn a_preferred_rack_gives_way_to_several_with_as_few_as_possible() {
    racks(
        "submit g default 1 tasks=4 near=rack\nplan",
        expect![[r#"
        place g n1:0 n1:1 n2:0 n2:1
    "#]],
    );
    racks(
        "submit g default 2 tasks=3 near=rack\nplan",
        expect![[r#"
        place g n1:0+n1:1 n2:0+n2:1 n3:0+n3:1
    "#]],
    );
}

#[test]
fn a_narrower_level_is_preferred_within_a_required_one() {
    racks(
        "submit a default 1\nplan\nsubmit g default 1 tasks=2 within=zone near=node\nsubmit h default 1 tasks=3 within=zone near=node\nplan",
        expect![[r#"
            place a n1:0
            place g n2:0 n2:1
            place h n3:0 n3:1 n4:0
        "#]],
    );
}

#[test]
fn a_node_is_a_domain_by_itself_whether_it_says_so_or_not() {
    check(
        "node n1 2xh100\nnode n2 4xh100\nsubmit g default 1 tasks=3 within=node\nsubmit x default 1 tasks=5 within=node\nplan",
        expect![[r#"
            refused cannot-fit: this pool can never run it: 5 tasks must lie within one node; none holds more than 4. The pool has 6 h100 (80GB) on 2 nodes, at most 4 on one.
            place g n2:0 n2:1 n2:2
        "#]],
    );
}

#[test]
fn a_node_that_names_no_rack_is_in_none() {
    check(
        "node n1 8xh100\nnode n2 2xh100 rack=r1\nsubmit g default 1 tasks=2 within=rack\nsubmit h default 1 tasks=3 near=rack\nplan",
        expect![[r#"
            place g n2:0 n2:1
            place h n1:0 n1:1 n1:2
        "#]],
    );
}

#[test]
fn blocks_of_a_gang_lie_in_a_domain_each() {
    racks(
        "submit g default 1 tasks=6 within=zone slice=3:rack\nplan",
        expect![[r#"
        place g n1:0 n1:1 n2:0 n3:0 n3:1 n4:0
    "#]],
    );
    racks(
        "submit a default 1\nplan\nsubmit g default 1 tasks=6 within=zone slice=2:node\nplan",
        expect![[r#"
            place a n1:0
            place g n2:0 n2:1 n3:0 n3:1 n4:0 n4:1
        "#]],
    );
    racks(
        "submit g default 1 tasks=4 within=zone slice=3:rack",
        expect![[r#"
        refused bad-spec: topology: slices must divide the tasks of the role, and each the one before it
    "#]],
    );
}

/// A gang of two pairs in JSON: each pair within one of a level, both within one of another.
fn pairs(inner: &str, outer: &str) -> String {
    let ask = |level: &str| format!(r#"{{"topology": "default", "within": "{level}", "required": true}}"#);
    let task = r#"{"alternatives": [{"devices": {"class": {}, "count": 2, "draw": "whole"}, "speed_percent": 100}]}"#;
    let role = |name: &str| {
        format!(
            r#"{{"role": {{"name": "{name}", "minimum": 2, "maximum": 2, "ask": {task}, "work": {{"external": ["pod"]}}, "topology": {}}}}}"#,
            ask(inner)
        )
    };
    let groups = format!("{}, {}", role("a"), role("b"));
    format!(
        r#"{{"name": "g", "queue": "default", "gang": {{"branch": {{"name": "all", "minimum": 2, "groups": [{groups}], "topology": {}}}}}}}"#,
        ask(outer)
    )
}

#[test]
fn inner_groups_lie_in_a_domain_each_within_that_of_the_outer_one() {
    let nodes = "node n1 2xh100 zone=z1 rack=r1\nnode n2 2xh100 zone=z1 rack=r1\nnode n3 2xh100 zone=z1 rack=r2\n\
        node n4 2xh100 zone=z2 rack=r3\nnode n5 2xh100 zone=z2 rack=r3\nnode n6 2xh100 zone=z2 rack=r4\nnode n7 2xh100 zone=z2 rack=r4\n";
    let submit = format!("submit g default {}\n", pairs("rack", "zone"));
    check(
        &format!("{nodes}{submit}plan"),
        expect![[r#"
            place g n4:0+n4:1 n5:0+n5:1 n6:0+n6:1 n7:0+n7:1
        "#]],
    );
    check(
        &format!("{nodes}submit s default 1\nstart s on=n4:0\n{submit}plan"),
        expect![[r#"
            wait DV-TOPOLOGY: no zone has room for 4 tasks that must lie within one
        "#]],
    );
}

#[test]
fn the_larger_tasks_of_a_group_go_first_where_it_would_not_fit_otherwise() {
    let task = |cpu: u32| {
        format!(
            r#"{{"alternatives": [{{"devices": null, "cpu_milli": {cpu}, "memory_bytes": 0, "speed_percent": 100}}]}}"#
        )
    };
    let role = |name: &str, tasks: u32, cpu: u32| {
        let ask = task(cpu);
        format!(
            r#"{{"role": {{"name": "{name}", "minimum": {tasks}, "maximum": {tasks}, "ask": {ask}, "work": {{"external": ["pod"]}}}}}}"#
        )
    };
    let groups = format!("{}, {}", role("leader", 1, 1000), role("workers", 4, 2000));
    let ask = r#"{"topology": "default", "within": "rack", "required": true}"#;
    let job = format!(
        r#"{{"name": "g", "queue": "default", "gang": {{"branch": {{"name": "all", "minimum": 2, "groups": [{groups}], "topology": {ask}}}}}}}"#
    );
    check(
        &format!(
            "node n1 cpu=2 rack=r1\nnode n2 cpu=4 rack=r1\nnode n3 cpu=3 rack=r1\nsubmit g default {job}\nplan"
        ),
        expect![[r#"
            place g n3 n1 n3 n2 n2
        "#]],
    );
}

/// A gang of roles of one task with one GPU each, of the models that will do.
fn unlike(roles: &[&str]) -> String {
    let role = |(place, models): (usize, &&str)| {
        let models: Vec<String> = models.split_whitespace().map(|model| format!("{model:?}")).collect();
        let ask =
            format!(r#"{{"class": {{"models": [{}]}}, "count": 1, "draw": "whole"}}"#, models.join(", "));
        format!(
            r#"{{"role": {{"name": "r{place}", "minimum": 1, "maximum": 1, "work": {{"external": ["pod"]}}, "ask": {{"alternatives": [{{"devices": {ask}, "speed_percent": 100}}]}}}}}}"#
        )
    };
    let groups: Vec<String> = roles.iter().enumerate().map(role).collect();
    format!(
        r#"{{"name": "g", "queue": "default", "gang": {{"branch": {{"name": "all", "minimum": {}, "groups": [{}]}}}}}}"#,
        groups.len(),
        groups.join(", ")
    )
}

#[test]
fn a_role_that_could_go_anywhere_leaves_another_the_only_model_that_will_do() {
    let gang = unlike(&["", "a100"]);
    check(
        &format!("node n1 1xa100\nnode n2 1xh100\nsubmit g default {gang}\nplan"),
        expect![[r#"
            place g n2:0 n1:0
        "#]],
    );
}

#[test]
fn each_role_that_has_no_place_goes_before_those_in_its_way_until_all_fit() {
    // Alone in its way on n1 is the first for the second, and the second for the third.
    let gang = unlike(&["", "a100 l4", "l4"]);
    check(
        &format!("node n1 1xl4\nnode n2 1xa100\nnode n3 1xh100\nsubmit g default {gang}\nplan"),
        expect![[r#"
            place g n3:0 n2:0 n1:0
        "#]],
    );
}

#[test]
fn a_gang_of_unlike_roles_that_fits_in_no_order_waits_for_what_it_lacked_in_its_own() {
    let gang = unlike(&["", "a100", "a100"]);
    check(
        &format!(
            "node n1 2xa100\nnode n2 1xh100\nsubmit x default 1 model=a100\nplan\nsubmit g default {gang}\nplan\nend x\nplan"
        ),
        expect![[r#"
            place x n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            ended x completed Exit exit=0
            place g n2:0 n1:0 n1:1
        "#]],
    );
}

#[test]
fn devices_are_taken_back_for_a_gang_where_they_lie_together() {
    racks(
        "policy {preempt: least_loss}\nsubmit a default 2 prio=low\nsubmit b default 2 prio=low\nsubmit c default 2 prio=low\nplan\n\
        submit g default 2 tasks=2 within=rack prio=high\nplan",
        expect![[r#"
            place a n1:0+n1:1
            place b n2:0+n2:1
            place c n3:0+n3:1
            stop c Preempted by g
            promise g n3:0+n3:1 n4:0+n4:1
        "#]],
    );
}

#[test]
fn a_gang_that_grows_in_its_rack_does_not_bind_those_for_whom_room_is_kept() {
    check(
        "policy {elastic: true, reserve: 2, preempt: off}
        queue q\nqueue r guarantee=2
        node n1 3xh100 rack=r1\nnode n2 1xh100 rack=r2\n\
        submit a q 1 limit=1h\nstart a on=n2:0
        submit b q 1\nstart b on=n1:0
        submit g q 1 tasks=1..2 within=rack
        start g on=n1:1
        submit w r 1 tasks=2
        plan
        explain w",
        expect![[r#"
            wait DV-GANG: not all of its 2 tasks fit at once
            later
              DV-GANG not all of its 2 tasks fit at once | wait for running jobs to end, or ask for fewer tasks
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 1 free > 1 on one node
              room from 1h
        "#]],
    );
}

#[test]
fn a_narrower_wish_leads_to_no_node_outside_the_required_level() {
    check(
        "node n1 2xh100\nnode n2 1xh100 rack=r1\nnode n3 2xh100 rack=r2\nsubmit j default 2 within=rack near=node\nplan",
        expect![[r#"
            place j n3:0+n3:1
        "#]],
    );
}

#[test]
fn levels_are_those_of_all_nodes_whichever_comes_first() {
    check(
        "node n1 1xh100 zone=z1\nnode n2 2xh100 zone=z1 rack=r1\nsubmit j default 2 within=rack\nplan",
        expect![[r#"
            place j n2:0+n2:1
        "#]],
    );
    check(
        "node n1 2xh100 zone=z1\nnode n2 2xh100 zone=z2 rack=r1\nnode n3 2xh100 zone=z2 rack=r1\n\
         submit j default 2 tasks=2 within=zone slice=2:rack\nplan\nend j\nsubmit k default 1 tasks=4 within=rack\nplan",
        expect![[r#"
            place j n2:0+n2:1 n3:0+n3:1
            ended j completed Exit exit=0
            place k n2:0 n2:1 n3:0 n3:1
        "#]],
    );
    check(
        "node n1 2xh100 zone=z1\nnode n2 1xh100 zone=z1 rack=r1\nnode n3 1xh100 zone=z1 rack=r1\nsubmit j default 1 tasks=2 near=rack\nplan",
        expect![[r#"
            place j n2:0 n3:0
        "#]],
    );
}

#[test]
fn what_would_keep_blocks_back_anywhere_is_told_first() {
    check(
        "node n1 2xh100 rack=r1\nsubmit f default 2\nplan\nsubmit j default 1 tasks=2 within=rack slice=2:node\nplan",
        expect![[r#"
            place f n1:0+n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}
