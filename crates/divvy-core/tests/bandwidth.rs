//! Tasks that must have fast memory, as golden tests: one behaviour each, in words.

use divvy_core::scenario::{Scenario, run, write};
use expect_test::{Expect, expect};

fn check(scenario: &str, expected: Expect) {
    match run(scenario) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

/// Modules, cards with slower memory under the same name, and devices of which nobody knows.
const THREE: &str = "node n1 2xh100 bandwidth=2039\nnode n2 2xh100 bandwidth=3350\nnode n3 2xnext\n";

fn three(lines: &str, expected: Expect) {
    check(&format!("{THREE}{lines}"), expected);
}

#[test]
fn only_devices_that_are_fast_enough_will_do() {
    three(
        "submit a default 1 bandwidth=3000\nsubmit b default 1 bandwidth=3000\nsubmit c default 1 bandwidth=3000\nplan",
        expect![[r#"
            place a n2:0
            place b n2:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn a_device_of_which_nobody_knows_is_not_fast_enough() {
    three(
        "submit a default 1 model=next bandwidth=1 wait\nplan",
        expect![[r#"
        wait DV-NO-SUCH-MEMORY: no GPU of that model has such memory: next with at least 1 GB/s
    "#]],
    );
}

#[test]
fn a_node_may_have_both_kinds_and_a_task_gets_those_that_will_do() {
    check(
        r#"node n1 {"spec":{"name":"n1","cpu_milli":64000,"memory_bytes":1099511627776,"domains":[],"numa":[]},"devices":[{"uuid":"n1:0","index":0,"model":"h100","product":"","memory_mib":81559,"bandwidth_gb_s":2039},{"uuid":"n1:1","index":1,"model":"h100","product":"","memory_mib":81559,"bandwidth_gb_s":3350}]}
submit a default 1 bandwidth=3000
plan
submit b default 1 bandwidth=3000
plan
submit c default 1 bandwidth=2000
plan
explain b"#,
        expect![[r#"
            place a n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
            place c n1:0
            later
              DV-GPUS-BUSY every GPU that would do is taken | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              2 in pool > 2 right model > 1 enough memory > 1 healthy > 0 free > 0 on one node
        "#]],
    );
}

#[test]
fn who_asks_for_more_than_any_has_is_told_so_with_what_would_do() {
    three(
        "submit a default 1 bandwidth=4800 wait\nplan\nexplain a",
        expect![[r#"
            wait DV-NO-SUCH-MEMORY: no GPU of that model has such memory: any GPU with at least 4800 GB/s
            no_fit
              DV-NO-SUCH-MEMORY no GPU of that model has such memory: any GPU with at least 4800 GB/s | ask for GPUs that the pool has: divvy gpus -o wide
              6 in pool > 6 right model > 0 enough memory > 0 healthy > 0 free > 0 on one node
        "#]],
    );
    three(
        "submit a default 1 gb=40 bandwidth=4800\n",
        expect![[r#"
        refused cannot-fit: this pool can never run it: no GPU of that model has such memory: 40GB.. with at least 4800 GB/s. The pool has 4 h100 (80GB) on 2 nodes, at most 2 on one, 2 next (80GB).
    "#]],
    );
}

#[test]
fn whoever_is_due_a_fast_device_takes_it_from_who_borrows_it() {
    check(
        "node n1 2xh100 bandwidth=2039\nnode n2 2xh100 bandwidth=3350\nqueue a guarantee=2\nqueue b guarantee=2\nsubmit x a 2\nsubmit y a 2\nplan\nsubmit z b 1 bandwidth=3000\nplan\nexplain z",
        expect![[r#"
            place x n1:0+n1:1
            place y n2:0+n2:1
            stop y Reclaimed by z
            promise z n2:0
            later
              DV-PROMISED its devices are promised to it; the task that holds them is being stopped | wait a moment: it starts when that task has stopped
              4 in pool > 4 right model > 2 enough memory > 2 healthy > 0 free > 0 on one node
        "#]],
    );
}

#[test]
fn what_is_asked_and_what_is_there_can_be_written_and_read() {
    let mut scenario = Scenario::new();
    scenario.line("node a 2xh100 bandwidth=3350").unwrap();
    scenario.line("submit b default 1 bandwidth=3000 wait").unwrap();
    scenario.line("plan").unwrap();
    let written = write(scenario.state());
    let has = |word: &str| written.text.split_whitespace().any(|known| known == word);
    assert!(has("bandwidth=3350") && has("bandwidth=3000") && written.differences.is_empty(), "{written:?}");
}

#[test]
fn who_may_stay_after_all_leaves_a_task_the_device_that_is_fast_enough() {
    let slow = r#"{"spec":{"name":"n1","cpu_milli":64000,"memory_bytes":549755813888},"devices":[{"uuid":"n1:0","index":0,"model":"h100","product":"x","memory_mib":81559,"bandwidth_gb_s":3350},{"uuid":"n1:1","index":1,"model":"h100","product":"x","memory_mib":81559}]}"#;
    check(
        &format!(
            "policy {{reserve: 0}}\nnode n1 {slow}\nsubmit l default 1 prio=low\nstart l on=n1:0\nsubmit f default 1 prio=-50 bandwidth=3000\nplan\nsubmit h default 1 prio=high bandwidth=3000\nplan"
        ),
        expect![[r#"
            stop l Preempted by f
            promise f n1:0
            promise l n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}
