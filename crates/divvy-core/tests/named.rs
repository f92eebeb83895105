//! Scenarios of guarantees that name models, or cores and memory: what one queue's line says takes nothing from what another is
//! guaranteed.

use divvy_core::scenario::run;
use expect_test::{Expect, expect};

fn check(scenario: &str, expected: Expect) {
    match run(scenario) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

/// A queue that is guaranteed devices, one that is guaranteed a core, and one that holds everything.
const CORES: &str = "policy {half_life: none}\nnode n1 8xh100\nqueue vision guarantee=4\nqueue nlp\n\
    queue prod {\"path\": \"prod\", \"guarantee\": {\"cpu\": {\"finite\": 1000}}}\n";

#[test]
fn guaranteed_devices_come_back_with_cores_that_the_queue_says_nothing_of() {
    check(
        &format!("{CORES}submit all nlp 8 cpu=2 mem=1\nplan\nsubmit j vision 4 cpu=1 mem=1\nplan"),
        expect![[r#"
            place all n1:0+n1:1+n1:2+n1:3+n1:4+n1:5+n1:6+n1:7
            stop all Reclaimed by j
            promise j n1:0+n1:1+n1:2+n1:3
        "#]],
    );
}

#[test]
fn a_job_that_never_gives_way_has_its_guaranteed_devices_with_cores_that_the_queue_says_nothing_of() {
    check(
        &format!("{CORES}submit j vision 4 cpu=1 mem=1 fixed\nplan"),
        expect![[r#"
        place j n1:0+n1:1+n1:2+n1:3
    "#]],
    );
}

#[test]
fn cores_that_are_guaranteed_to_another_queue_are_not_taken_with_devices() {
    check(
        &format!(
            "{CORES}submit p prod 0 cpu=1 mem=1\nplan\nsubmit all nlp 8 cpu=1 mem=1\nplan\nsubmit j vision 4 cpu=63 mem=1\nplan"
        ),
        expect![[r#"
            place p n1
            place all n1:0+n1:1+n1:2+n1:3+n1:4+n1:5+n1:6+n1:7
            stop all Reclaimed by j
            promise j n1:0+n1:1+n1:2+n1:3
        "#]],
    );
}

/// Two models, of which one queue is guaranteed one by its name.
const MODELS: &str = "policy {half_life: none}\nnode n0 2xh100\nnode n1 2xl4\n\
    queue a {\"path\": \"a\", \"guarantee\": {\"l4\": {\"finite\": 1000}}}\nqueue b guarantee=2\nqueue c\n";

#[test]
fn a_guarantee_of_any_device_holds_for_a_job_that_names_a_model_which_another_queue_names_too() {
    check(
        &format!("{MODELS}submit c1 c 1 mem=1 array=0-1 model=l4\nplan\nsubmit j b 1 mem=1 model=l4\nplan"),
        expect![[r#"
            place c1_0 n1:0
            place c1_1 n1:1
            stop c1_1 Reclaimed by j
            promise j n1:1
        "#]],
    );
}

#[test]
fn by_a_guarantee_of_any_device_nobody_takes_what_is_guaranteed_to_another_by_name() {
    check(
        &format!(
            "{MODELS}submit a1 a 1 mem=1 model=l4\nsubmit c1 c 1 mem=1 model=l4\nplan\nsubmit j b 1 mem=1 model=l4 array=0-1\nplan\nend c1 signal=15\nplan\nsubmit k c 1 mem=1\nplan"
        ),
        expect![[r#"
            place a1 n1:0
            place c1 n1:1
            stop c1 Reclaimed by j_0
            promise j_0 n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
            ended c1 pending Reclaimed exit=143
            place j_0 n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
            place k n0:0
        "#]],
    );
}

/// For the sake of a guaranteed device of one model a queue keeps none of another that it borrowed, whatever their priorities: else the
/// guaranteed one would go, and be taken back at the next piece of news.
#[test]
fn who_has_borrowed_one_model_gives_that_back_and_keeps_the_one_that_is_guaranteed() {
    check(
        "policy {half_life: none}\nnode n1 1xh100\nnode n2 2xl4\n\
         queue a {\"path\": \"a\", \"guarantee\": {\"l4\": {\"finite\": 1000}}}\n\
         queue b {\"path\": \"b\", \"guarantee\": {\"h100\": {\"finite\": 1000}}}\n\
         submit low b 1 model=h100 prio=low\nsubmit first b 1 model=l4\nsubmit second b 1 model=l4\nplan\n\
         submit j a 1\nplan",
        expect![[r#"
            place first n2:0
            place second n2:1
            place low n1:0
            stop second Reclaimed by j
            promise j n2:1
        "#]],
    );
}

/// What a queue is guaranteed of one model, and leaves idle, covers nothing of another that it borrows.
#[test]
fn a_guaranteed_model_comes_back_from_who_has_no_more_in_all_than_is_guaranteed_to_him_of_another() {
    check(
        "policy {half_life: none}\nnode n1 2xh100\nnode n2 2xl4\n\
         queue a {\"path\": \"a\", \"guarantee\": {\"h100\": {\"finite\": 2000}}}\n\
         queue b {\"path\": \"b\", \"guarantee\": {\"l4\": {\"finite\": 2000}}}\n\
         submit x b 2 model=h100\nplan\nsubmit y a 2 model=h100\nplan",
        expect![[r#"
            place x n1:0+n1:1
            stop x Reclaimed by y
            promise y n1:0+n1:1
        "#]],
    );
}

#[test]
fn a_queue_whose_model_is_guaranteed_gives_another_model_to_whom_any_is_guaranteed() {
    check(
        "policy {half_life: none}\nnode n1 2xl4\nnode n2 1xa100\nqueue a {\"path\": \"a\", \"guarantee\": {\"a100\": {\"finite\": 1000}}}\n\
        queue b guarantee=1\nqueue c {\"path\": \"c\", \"guarantee\": {\"l4\": {\"finite\": 1000}}}\n\
        submit g default 1 model=a100\nplan\nsubmit a a 1\nsubmit c c 1 model=l4\nplan\npass 10m\nsubmit b b 1 model=l4\nplan\n\
        end a signal=15\nplan",
        expect![[r#"
            place g n2:0
            place a n1:0
            place c n1:1
            stop a Reclaimed by b
            promise b n1:0
            ended a pending Reclaimed exit=143
            place b n1:0
            stop g Reclaimed by a
            promise a n2:0
        "#]],
    );
}

#[test]
fn what_is_guaranteed_of_any_model_is_due_to_jobs_that_name_one() {
    check(
        "node n0 4xh100\nqueue p guarantee=4\nqueue p/b {\"path\": \"p/b\", \"guarantee\": {\"h100\": {\"finite\": 1000}}}\nqueue p/d\n\
        queue c weight=9\nsubmit j1 c 1 array=0-3\nplan\nsubmit j2 p/d 1 model=h100 array=0-4\nplan",
        expect![[r#"
            place j1_0 n0:0
            place j1_1 n0:1
            place j1_2 n0:2
            place j1_3 n0:3
            stop j1_3 Reclaimed by j2_0
            stop j1_2 Reclaimed by j2_1
            stop j1_1 Reclaimed by j2_2
            stop j1_0 Reclaimed by j2_3
            promise j2_0 n0:3
            promise j2_1 n0:2
            promise j2_2 n0:1
            promise j2_3 n0:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn what_a_sibling_keeps_counts_as_taken_where_models_are_guaranteed() {
    check(
        "node n0 1xh100\nnode n1 4xa100\nqueue s\n\
        queue s/a {\"path\": \"s/a\", \"guarantee\": {\"a100\": {\"finite\": 1000}}, \"lend\": {\"any\": {\"finite\": 0}}}\n\
        queue s/b {\"path\": \"s/b\", \"guarantee\": {\"h100\": {\"finite\": 1000}, \"any\": {\"finite\": 2000}}}\n\
        queue b {\"path\": \"b\", \"guarantee\": {\"a100\": {\"finite\": 2000}}}\nsubmit j0 b 1\nplan\n\
        submit j1 b 1 model=a100 tasks=2\nsubmit j2 s/b 1 array=0-1\nplan\npass 1m\nplan",
        expect![[r#"
            place j0 n0:0
            place j2_0 n1:0
            place j2_1 n1:1
            wait DV-SCARCE: the pool now has too few GPUs for all guarantees, and other queues keep them from queue b
            stop j2_1 Reclaimed by j1
            promise j1 n1:3 n1:2
        "#]],
    );
}

#[test]
fn no_job_moves_away_from_a_model_that_is_guaranteed_to_its_queue_by_name() {
    check(
        "policy {half_life: none}\nnode n0 1xh100\nnode n1 1xa100\nqueue a {\"path\": \"a\", \"guarantee\": {\"h100\": {\"finite\": 1000}}}\n\
        queue c guarantee=1\nsubmit j0 a 1\nplan\nsubmit j2 c 1 model=h100\nplan",
        expect![[r#"
            place j0 n0:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}
