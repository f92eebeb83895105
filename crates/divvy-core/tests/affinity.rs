//! Jobs that lie near others, or apart from them, which they select by labels: as golden tests, one behaviour each, in words.

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
fn who_wants_others_near_lies_in_their_domain() {
    racks(
        "submit db default 1 labels=app:db
        start db on=n3:0
        submit a default 2 near=app:db@rack
        submit b default 1 near=app:db
        plan",
        expect![[r#"
            place a n4:0+n4:1
            place b n3:1
        "#]],
    );
}

#[test]
fn near_nobody_it_waits_until_somebody_starts_there() {
    racks(
        "submit a default 1 near=app:db@rack
        plan
        explain a
        submit db default 2 labels=app:db
        plan
        plan",
        expect![[r#"
            wait DV-NOT-NEAR: wants to lie near tasks with app=db (same rack), and has no room near any
            later
              DV-NOT-NEAR wants to lie near tasks with app=db (same rack), and has no room near any | wait until a task with app=db runs where there is room, or submit it without near
              8 in pool > 8 right model > 8 enough memory > 8 healthy > 8 free > 8 on one node
            place db n1:0+n1:1
            place a n2:0
        "#]],
    );
}

#[test]
fn where_those_are_near_whom_it_wants_to_lie_it_waits_for_room() {
    racks(
        "submit db default 1 labels=app:db
        start db on=n3:0
        submit x default 1 tasks=3
        start x on=n3:1,n4:0,n4:1
        submit a default 1 near=app:db@rack
        plan
        end x
        plan",
        expect![[r#"
            wait DV-NOT-NEAR: wants to lie near tasks with app=db (same rack), and has no room near any
            ended x completed Exit exit=0
            place a n3:1
        "#]],
    );
}

#[test]
fn who_wants_to_lie_apart_goes_elsewhere_or_waits() {
    racks(
        "submit web default 1 labels=app:web
        start web on=n1:0
        submit a default 1 apart=app:web@rack
        submit b default 1 apart=app:web@zone
        plan
        end web
        plan",
        expect![[r#"
            place a n3:0
            wait DV-NOT-APART: wants to lie apart from tasks with app=web (same zone), and they lie where it has room
            ended web completed Exit exit=0
            place b n3:1
        "#]],
    );
}

#[test]
fn those_that_lie_apart_from_others_keep_them_away_later_too() {
    check(
        "node n1 4xh100
        node n2 1xh100
        submit a default 1 apart=app:web
        plan
        submit w1 default 1 labels=app:web
        submit w2 default 1 labels=app:web
        submit x default 1 labels=app:db
        plan
        end a
        plan",
        expect![[r#"
            place a n2:0
            place w1 n1:0
            place w2 n1:1
            place x n1:2
            ended a completed Exit exit=0
        "#]],
    );
}

#[test]
fn a_gang_of_which_each_lies_apart_from_the_others_has_one_task_on_each_node() {
    racks(
        "submit a default 1 tasks=4 labels=app:a apart=app:a
        submit b default 1 tasks=2 labels=app:b apart=app:b@rack
        submit c default 1 tasks=5 labels=app:c apart=app:c
        submit d default 1 array=0-2 labels=app:d apart=app:d@rack
        plan",
        expect![[r#"
            refused cannot-fit: this pool can never run it: asks for 5 tasks at once; the empty pool holds 4. The pool has 8 h100 (80GB) on 4 nodes, at most 2 on one.
            place a n1:0 n2:0 n3:0 n4:0
            place b n1:1 n3:1
            place d_0 n2:1
            place d_1 n4:1
            wait DV-NOT-APART: wants to lie apart from tasks with app=d (same rack), and they lie where it has room
        "#]],
    );
}

#[test]
fn the_first_that_wants_its_like_near_chooses_where_and_the_others_with_it() {
    racks(
        "submit x default 1
        start x on=n1:0
        submit a default 1 array=0-2 labels=app:a near=app:a@rack
        submit g default 1 tasks=2 labels=app:g near=app:g@rack apart=app:g
        plan
        plan",
        expect![[r#"
            place a_0 n1:1
            place g n3:0 n4:0
            wait DV-NOT-NEAR: wants to lie near tasks with app=a (same rack), and has no room near any
            place a_1 n2:0
            place a_2 n2:1
        "#]],
    );
}

#[test]
fn a_node_that_does_not_say_where_it_is_is_near_nobody_and_apart_from_all() {
    check(
        "node n1 2xh100 rack=r1
        node n2 1xh100
        submit db default 1 labels=app:db
        start db on=n1:0
        submit a default 1 apart=app:db@rack
        submit b default 1 near=app:db@disk
        submit c default 1 near=app:db@rack
        plan",
        expect![[r#"
            refused cannot-fit: this pool can never run it: wants to lie near tasks with app=db (same disk), and has no room near any. The pool has 3 h100 (80GB) on 2 nodes, at most 2 on one.
            place a n2:0
            place c n1:1
        "#]],
    );
}

#[test]
fn who_takes_a_place_back_has_those_stopped_beside_whom_it_does_not_lie() {
    racks(
        "queue a guarantee=4
        queue b guarantee=4
        submit web b 1 labels=app:web
        start web on=n1:0
        submit x b 2 tasks=3
        start x on=n2:0+n2:1,n3:0+n3:1,n4:0+n4:1
        submit j a 1 labels=app:j apart=app:web@rack
        plan
        end x
        plan",
        expect![[r#"
            stop web Reclaimed by j
            promise j n1:0
            ended x completed Exit exit=0
            place j n3:0
        "#]],
    );
}

#[test]
fn what_is_promised_keeps_others_away_and_waits_for_those_that_are_in_the_way() {
    racks(
        "policy {preempt: least_loss, within_queue: lower}
        submit web default 1 labels=app:web
        start web on=n1:0
        submit x default 1 labels=app:x
        start x on=n3:0
        submit j default 1 prio=high apart=app:web@zone
        plan
        submit w2 default 1 labels=app:web
        plan
        end web
        plan",
        expect![[r#"
            stop web Preempted by j
            promise j n1:0
            wait DV-REPELLED: those that lie where it has room want no tasks with app=web near them (same zone)
            ended web pending Preempted exit=0
            place j n1:0
        "#]],
    );
}

#[test]
fn who_is_moved_lies_apart_at_its_new_place_too() {
    check(
        "policy {most_moves: 4}
        node n1 2xh100
        node n2 2xh100
        node n3 2xh100
        submit web default 1 labels=app:web
        start web on=n1:0
        submit a default 1 apart=app:web resumable
        start a on=n2:0
        submit b default 1 resumable
        start b on=n3:0
        pass 2h
        submit big default 2
        pass 10m
        plan
        end a
        end b
        plan",
        expect![[r#"
            stop a Moved by big
            promise a n3:1
            promise big n2:0+n2:1
            ended a pending Moved exit=0
            place a n3:1
            place big n2:0+n2:1
            ended b completed Exit exit=0
        "#]],
    );
}

#[test]
fn a_gang_grows_only_where_its_wishes_hold() {
    racks(
        "policy {share: fill, preempt: least_loss}
        submit web default 1 labels=app:web
        start web on=n1:0
        submit g default 1 tasks=1..6 labels=app:g apart=app:web@rack near=app:g@rack
        plan
        plan",
        expect![[r#"
            place g n3:0
            grow g n3:1 n4:0 n4:1
        "#]],
    );
}

#[test]
fn after_a_restart_all_is_seen_as_before() {
    racks(
        "submit db default 1 labels=app:db
        submit a default 1 apart=app:web@rack
        plan
        restart
        submit b default 1 near=app:db@rack
        submit w default 1 labels=app:web
        plan
        plan",
        expect![[r#"
            place db n1:0
            place a n1:1
            place b n2:0
            place w n3:0
        "#]],
    );
}

#[test]
fn jobs_that_differ_in_labels_that_others_look_at_are_judged_by_themselves() {
    check(
        "node n1 2xh100
        submit a default 1 labels=app:web
        submit b default 1 labels=app:db,run:7
        hold a
        hold b
        submit c default 1 apart=app:web
        plan
        release a
        release b
        plan
        explain a",
        expect![[r#"
            place c n1:0
            place b n1:1
            wait DV-REPELLED: those that lie where it has room want no tasks with app=web near them (same node)
            later
              DV-REPELLED those that lie where it has room want no tasks with app=web near them (same node) | wait until those end that lie apart from app=web, or submit it with other labels
              2 in pool > 2 right model > 2 enough memory > 2 healthy > 0 free > 0 on one node
        "#]],
    );
}

#[test]
fn nobody_gets_a_place_near_a_job_that_is_told_to_stop_in_the_same_cycle() {
    check(
        "node n1 4xh100\nsubmit db default 1 labels=app:db limit=1h\nplan\npass 1h\nsubmit web default 1 near=app:db\nplan\nend db\nsubmit db2 default 1 labels=app:db\nplan",
        expect![[r#"
            place db n1:0
            stop db TimeLimit
            wait DV-NOT-NEAR: wants to lie near tasks with app=db (same node), and has no room near any
            ended db timeout TimeLimit exit=0
            place db2 n1:0
        "#]],
    );
}
