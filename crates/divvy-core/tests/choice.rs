//! The choice of nodes by labels and taints, and how many tasks a node takes, as golden tests.

use divvy_core::scenario::run;
use expect_test::{Expect, expect};

fn check(scenario: &str, expected: Expect) {
    match run(scenario) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

#[test]
fn a_task_lies_on_a_node_that_has_the_labels_that_it_asks_for() {
    check(
        "node n1 4xh100\nnode n2 4xh100 labels=disk:ssd,pool:a\nsubmit a default 1 nodes=disk:ssd,pool:a\nsubmit b default 4 nodes=disk:ssd\nplan",
        expect![[r#"
            place a n2:0
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
        "#]],
    );
}

#[test]
fn what_no_node_is_called_is_refused_or_waits_for_one_that_is() {
    check(
        "node n1 4xh100 labels=disk:hdd\nsubmit a default 1 nodes=disk:ssd\nsubmit b default 1 nodes=disk:ssd wait\nplan\nexplain b # DV-NO-NODE-CHOSEN\n\
        node n2 1xh100 labels=disk:ssd\nplan",
        expect![[r#"
            refused cannot-fit: this pool can never run it: of 1 node none has the labels that it asks for and only taints that it puts up with. The pool has 4 h100 (80GB).
            wait DV-NO-NODE-CHOSEN: of 1 node none has the labels that it asks for and only taints that it puts up with
            no_fit
              DV-NO-NODE-CHOSEN of 1 node none has the labels that it asks for and only taints that it puts up with | ask for labels that nodes have, and put up with their taints
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 4 free > 4 on one node
            place b n2:0
        "#]],
    );
}

#[test]
fn a_taint_keeps_off_whom_does_not_put_up_with_it() {
    check(
        "node n1 2xh100 taints=spot:yes\nnode n2 2xh100\nsubmit a default 1\nsubmit b default 2\nsubmit c default 2 tolerates=spot\nplan\nend a\nplan",
        expect![[r#"
            place a n2:0
            place c n1:0+n1:1
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            ended a completed Exit exit=0
            place b n2:0+n2:1
        "#]],
    );
}

#[test]
fn a_gang_in_one_rack_chooses_among_the_nodes_of_each() {
    check(
        "node n1 2xh100 rack=r1 labels=new:yes\nnode n2 2xh100 rack=r1\nnode n3 2xh100 rack=r2 labels=new:yes\nnode n4 2xh100 rack=r2 labels=new:yes\n\
        submit g default 2 tasks=2 within=rack nodes=new:yes\nplan",
        expect![[r#"
            place g n3:0+n3:1 n4:0+n4:1
        "#]],
    );
}

#[test]
fn whoever_gives_way_does_so_on_a_node_that_was_chosen() {
    check(
        "node n1 2xh100\nnode n2 2xh100 labels=disk:ssd\nsubmit a default 2 prio=low\nsubmit b default 2 prio=low\nplan\n\
        submit h default 1 prio=high nodes=disk:ssd\nplan",
        expect![[r#"
            place a n1:0+n1:1
            place b n2:0+n2:1
            stop b Preempted by h
            promise h n2:0
        "#]],
    );
}

#[test]
fn a_node_takes_no_more_tasks_than_it_may() {
    check(
        "node n1 4xh100 tasks=2\nnode n2 4xh100 tasks=1\nsubmit a default 1 array=0-3\nplan\nexplain a_3 # DV-HOST-BUSY\nend a_0\nplan\n\
        submit g default 1 tasks=4",
        expect![[r#"
            place a_0 n1:0
            place a_1 n1:1
            place a_2 n2:0
            wait DV-HOST-BUSY: no node has 1 of pods left
            later
              DV-HOST-BUSY no node has 1 of pods left | ask for less than 1 of pods
              8 in pool > 8 right model > 8 enough memory > 8 healthy > 5 free > 5 on one node
            ended a_0 completed Exit exit=0
            place a_3 n1:0
            refused cannot-fit: this pool can never run it: asks for 4 tasks at once; the empty pool holds 3. The pool has 8 h100 (80GB) on 2 nodes, at most 4 on one.
        "#]],
    );
}
