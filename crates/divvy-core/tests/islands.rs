//! Joined devices, and tasks that must have such, as golden tests: one behaviour each, in words.

use divvy_core::scenario::{Scenario, run, write};
use expect_test::{Expect, expect};

fn check(scenario: &str, expected: Expect) {
    match run(scenario) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

/// A node whose devices are bridged in pairs.
const PAIRS: &str = "node n1 4xh100 linked=2\n";

/// A hybrid cube mesh, as machines with eight V100 have it: links of one and of two lanes.
const MESH: &str = "node n1 8xv100 linked=0+1:1,0+2:1,0+3:2,0+4:2,1+2:2,1+3:1,1+5:2,2+3:2,2+6:1,3+7:1,4+5:1,4+6:1,4+7:2,5+6:2,5+7:1,6+7:2\n";

fn pairs(lines: &str, expected: Expect) {
    check(&format!("{PAIRS}{lines}"), expected);
}

fn mesh(lines: &str, expected: Expect) {
    check(&format!("{MESH}{lines}"), expected);
}

#[test]
fn a_task_of_two_gets_a_pair_that_is_bridged() {
    pairs(
        "submit a default 1\nplan\nsubmit b default 2\nplan",
        expect![[r#"
        place a n1:0
        place b n1:2+n1:3
    "#]],
    );
}

#[test]
fn a_single_device_is_taken_from_a_pair_that_is_broken_already() {
    pairs(
        "submit a default 1\nplan\nsubmit b default 1\nplan\nsubmit c default 2\nplan",
        expect![[r#"
        place a n1:0
        place b n1:1
        place c n1:2+n1:3
    "#]],
    );
}

#[test]
fn a_task_that_must_have_its_devices_in_one_island_waits_until_one_is_free_although_others_are() {
    pairs(
        "submit a default 2\nplan\nsubmit x default 1\nplan\nend a\nsubmit y default 1\nstart y on=n1:0\nsubmit b default 2 within=nvlink\nplan\nexplain b\nend y\nplan",
        expect![[r#"
            place a n1:0+n1:1
            place x n1:2
            ended a completed Exit exit=0
            wait DV-ISLAND: no NVLink island has 2 GPUs free that would do, and a task's must lie within one
            later
              DV-ISLAND no NVLink island has 2 GPUs free that would do, and a task's must lie within one | wait for running jobs to end, or only prefer nvlink instead of requiring it
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 2 free > 2 on one node > 0 in one island
            ended y completed Exit exit=0
            place b n1:0+n1:1
        "#]],
    );
}

#[test]
fn without_it_the_task_takes_what_there_is() {
    pairs(
        "submit x default 1\nstart x on=n1:0\nsubmit y default 1\nstart y on=n1:2\nsubmit b default 2 near=nvlink\nplan",
        expect![[r#"
            place b n1:1+n1:3
        "#]],
    );
}

#[test]
fn a_preferred_island_is_worth_another_node() {
    check(
        "node n1 2xh100\nnode n2 4xh100 linked=2\nsubmit a default 2 near=nvlink\nplan\nsubmit b default 2\nplan",
        expect![[r#"
            place a n2:0+n2:1
            place b n1:0+n1:1
        "#]],
    );
}

#[test]
fn more_than_any_island_has_is_refused_unless_it_waits_for_capacity() {
    pairs(
        "submit a default 3 within=nvlink\nsubmit b default 4 within=nvlink wait\nplan\nexplain b\nnode n2 4xh100 linked\nplan",
        expect![[r#"
            refused cannot-fit: this pool can never run it: 3 GPUs of a task must lie within one NVLink island; none has more than 2 that would do. The pool has 4 h100 (80GB).
            wait DV-ISLAND: 4 GPUs of a task must lie within one NVLink island; none has more than 2 that would do
            no_fit
              DV-ISLAND 4 GPUs of a task must lie within one NVLink island; none has more than 2 that would do | ask for at most 2 GPUs per task, or only prefer nvlink
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 4 free > 4 on one node > 0 in one island
            place b n2:0+n2:1+n2:2+n2:3
        "#]],
    );
    check(
        "node n1 4xh100\nsubmit a default 2 within=nvlink\nsubmit b default 1 within=nvlink\nplan",
        expect![[r#"
            refused cannot-fit: this pool can never run it: 2 GPUs of a task must lie within one NVLink island; none has more than 1 that would do. The pool has 4 h100 (80GB).
            place b n1:0
        "#]],
    );
}

#[test]
fn tasks_of_a_gang_lie_in_an_island_each_and_no_more_start_than_islands_hold() {
    check(
        "node n1 6xh100 linked=3\nsubmit g default 2 tasks=2 within=nvlink\nsubmit h default 2 tasks=3 within=nvlink\nplan",
        expect![[r#"
            refused cannot-fit: this pool can never run it: asks for 3 tasks at once; the empty pool holds 2. The pool has 6 h100 (80GB).
            place g n1:0+n1:1 n1:3+n1:4
        "#]],
    );
}

#[test]
fn a_level_within_the_node_goes_with_one_of_the_pool() {
    check(
        "node n1 4xh100 linked=2 rack=r1\nnode n2 4xh100 linked=2 rack=r2\nnode n3 4xh100 rack=r2\nsubmit x default 1\nstart x on=n1:0\n\
        submit g default 2 tasks=2 within=rack,nvlink\nplan\nsubmit h default 2 tasks=2 within=rack,nvlink\nplan",
        expect![[r#"
            place g n2:0+n2:1 n2:2+n2:3
            wait DV-GANG: not all of its 2 tasks fit at once
        "#]],
    );
    pairs(
        "submit a default 2 within=nvlink,numa\nplan",
        expect!["line 2: within=nvlink,numa: name one level of the pool and one within a node at most"],
    );
}

#[test]
fn devices_of_one_numa_node_are_asked_for_alike() {
    check(
        "node n1 4xl4 numa=16:64,16:64\nsubmit x default 1\nplan\nsubmit y default 1\nstart y on=n1:2\nsubmit a default 2 within=numa\nplan\nend x\nplan\nsubmit b default 3 within=numa",
        expect![[r#"
            place x n1:0
            wait DV-ISLAND: no NUMA node has 2 GPUs free that would do, and a task's must lie within one
            ended x completed Exit exit=0
            place a n1:0+n1:1
            refused cannot-fit: this pool can never run it: 3 GPUs of a task must lie within one NUMA node; none has more than 2 that would do. The pool has 4 l4 (80GB).
        "#]],
    );
    // One NUMA node is that of all devices; of several it must be said which.
    check(
        "node n1 2xl4 numa=16:64\nsubmit a default 2 within=numa\nplan",
        expect![[r#"
        place a n1:0+n1:1
    "#]],
    );
    check(
        "node n1 2xl4\nsubmit a default 2 within=numa\nplan",
        expect![[r#"
        refused cannot-fit: this pool can never run it: 2 GPUs of a task must lie within one NUMA node; none has more than 1 that would do. The pool has 2 l4 (80GB).
    "#]],
    );
}

#[test]
fn a_broken_device_takes_its_island_out() {
    pairs(
        "device n1:0 down\ndevice n1:2 down\nsubmit a default 2 within=nvlink\nplan\nexplain a\ndevice n1:2 ok\nplan",
        expect![[r#"
            wait DV-GPUS-DOWN: 2 GPUs that would do are down
            later
              DV-GPUS-DOWN 2 GPUs that would do are down | have them repaired: divvy gpus shows what is wrong
              4 in pool > 4 right model > 4 enough memory > 2 healthy > 2 free > 2 on one node > 0 in one island
            place a n1:2+n1:3
        "#]],
    );
}

#[test]
fn who_gives_way_frees_an_island_and_not_merely_as_many_devices() {
    pairs(
        "policy {preempt: least_loss}\nsubmit a default 1 prio=low\nstart a on=n1:0\nsubmit b default 1\nstart b on=n1:1\n\
        submit c default 1 prio=low\nstart c on=n1:2\nsubmit d default 1 prio=low\nstart d on=n1:3\npass 1m\n\
        submit e default 2 prio=high within=nvlink\nsubmit f default 2\nplan",
        expect![[r#"
            stop d Preempted by e
            stop c Preempted by e
            promise e n1:2+n1:3
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
        "#]],
    );
    pairs(
        "policy {preempt: least_loss}\nsubmit a default 1 prio=low\nstart a on=n1:0\nsubmit b default 1 prio=urgent\nstart b on=n1:1\n\
        submit c default 1 prio=low\nstart c on=n1:2\nsubmit d default 1 prio=urgent\nstart d on=n1:3\n\
        submit e default 2 prio=high within=nvlink\nplan",
        expect![[r#"
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
        "#]],
    );
}

#[test]
fn moves_free_an_island() {
    pairs(
        "submit a default 1 resumable\nstart a on=n1:0\nsubmit b default 1 resumable\nstart b on=n1:2\npass 10m\n\
        submit e default 2 within=nvlink\npass 10m\nplan",
        expect![[r#"
            stop b Moved by e
            promise b n1:1
            promise e n1:2+n1:3
        "#]],
    );
}

#[test]
fn in_a_mesh_two_get_the_widest_link_and_four_the_best_joined() {
    mesh(
        "submit a default 2\nplan\nsubmit b default 4\nplan\nsubmit c default 2\nplan",
        expect![[r#"
        place a n1:0+n1:3
        place b n1:4+n1:5+n1:6+n1:7
        place c n1:1+n1:2
    "#]],
    );
    mesh(
        "submit a default 4\nplan\nsubmit b default 4\nplan",
        expect![[r#"
        place a n1:0+n1:1+n1:2+n1:3
        place b n1:4+n1:5+n1:6+n1:7
    "#]],
    );
    mesh(
        "submit a default 1\nplan\nsubmit b default 1\nplan\nsubmit c default 4\nplan",
        expect![[r#"
        place a n1:0
        place b n1:3
        place c n1:4+n1:5+n1:6+n1:7
    "#]],
    );
}

#[test]
fn in_a_mesh_two_single_devices_leave_the_others_joined() {
    mesh(
        "submit a default 1\nsubmit b default 1\nplan\nsubmit c default 2\nsubmit d default 2\nsubmit e default 2\nplan",
        expect![[r#"
            place a n1:0
            place b n1:3
            place c n1:1+n1:2
            place d n1:4+n1:7
            place e n1:5+n1:6
        "#]],
    );
}

#[test]
fn where_all_are_joined_alike_the_lowest_index_is_taken() {
    check(
        "node n1 8xh100 linked\nsubmit a default 3\nsubmit b default 1\nsubmit c default 4\nplan",
        expect![[r#"
            place a n1:0+n1:1+n1:2
            place b n1:3
            place c n1:4+n1:5+n1:6+n1:7
        "#]],
    );
}

#[test]
fn other_scores_keep_to_an_island_too() {
    for score in ["best_fit", "least_waste", "gpu_packing", "random"] {
        let score = if score == "random" { "{random: {seed: 3}}" } else { score };
        let text = format!(
            "{PAIRS}policy {{score: {score}}}\nsubmit x default 1\nstart x on=n1:0\nsubmit b default 2 within=nvlink\nplan"
        );
        assert_eq!(run(&text), Ok("place b n1:2+n1:3\n".to_owned()), "{score}");
    }
}

#[test]
fn the_levels_within_a_node_are_no_levels_for_tasks() {
    pairs(
        "submit g default 2 within=device\nsubmit h default 1 tasks=2 within=node slice=1:nvlink",
        expect![[r#"
            refused cannot-fit: this pool can never run it: no engine of this pool runs tasks that lie together within a node's nvlink, numa or device. The pool has 4 h100 (80GB).
            refused cannot-fit: this pool can never run it: no engine of this pool runs tasks that lie together within a node's nvlink, numa or device. The pool has 4 h100 (80GB).
        "#]],
    );
}

#[test]
fn links_that_make_no_sense_are_told() {
    for linked in ["0", "x", "0+4:1", "0+0", "0+1:0", "1:2"] {
        let bad = run(&format!("node n1 4xh100 linked={linked}")).unwrap_err().to_string();
        let told = "write how many devices each are joined (2), or which, by how many lanes (0+1:2)";
        assert_eq!(bad, format!("line 1: linked={linked}: {told}"));
    }
}

#[test]
fn who_may_stay_after_all_moves_nobody_out_of_his_island() {
    let with = |within: &str| {
        format!(
            "node n1 4xh100 linked=2 cpu=4\npolicy {{preempt: least_loss}}\nsubmit c default 1 prio=low cpu=3\nstart c on=n1:2 cpu=3\npass 1h\n\
            submit a default 1 prio=low cpu=1\nstart a on=n1:0 cpu=1\npass 1m\nsubmit e default 2 cpu=3 prio=high {within}\nplan"
        )
    };
    check(
        &with("within=nvlink"),
        expect![[r#"
            stop c Preempted by e
            promise e n1:2+n1:3
        "#]],
    );
    check(
        &with(""),
        expect![[r#"
        stop c Preempted by e
        promise e n1:2+n1:1
    "#]],
    );
}

#[test]
fn how_devices_are_joined_and_what_jobs_want_of_it_is_written_as_it_was_read() {
    for (linked, within) in
        [("linked", "within=nvlink"), ("linked=2", "near=numa"), ("linked=0+1:2,1+2:1,2+3:2", "within=numa")]
    {
        let mut scenario = Scenario::new();
        scenario.line(&format!("node a 4xh100 {linked}")).unwrap();
        scenario.line(&format!("submit b default 2 {within} wait")).unwrap();
        scenario.line("plan").unwrap();
        let written = write(scenario.state());
        let has = |word: &str| written.text.split_whitespace().any(|known| known == word);
        assert!(has(linked) && has(within) && written.differences.is_empty(), "{written:?}");
    }
}
