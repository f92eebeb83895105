//! Static pools: nodes that are kept for one queue, whose jobs are kept to them.

use divvy_core::plan::entitlements;
use divvy_core::scenario::{Scenario, run};
use expect_test::{Expect, expect};
use proptest::prelude::*;

/// Runs a scenario.
fn check(scenario: &str, expected: Expect) {
    match run(scenario) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

/// Two nodes of two GPUs, of which one is kept for a queue.
const POOL: &str = "node n1 2xh100\nnode n2 2xh100 labels=pool:prod\nqueue prod nodes=pool:prod\n";

#[test]
fn others_stay_out_though_it_is_idle() {
    check(
        &format!("{POOL}submit a default 2\nsubmit b default 1\nsubmit c default 0\nplan\nexplain b"),
        expect![[r#"
            place a n1:0+n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
            wait DV-HOST-BUSY: no node has 1Gi of memory left
            later
              DV-GPUS-BUSY every GPU that would do is taken | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              4 in pool > 2 for its queue > 2 right model > 2 enough memory > 2 healthy > 0 free > 0 on one node
        "#]],
    );
}

#[test]
fn its_own_stay_in_though_others_are_idle() {
    check(
        &format!("{POOL}queue prod/web\nsubmit a prod/web 2\nsubmit b prod 1\nplan\nexplain a"),
        expect![[r#"
            place b n2:0
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            later
              DV-GPUS-BUSY no node has 2 GPUs free that would do | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              4 in pool > 2 for its queue > 2 right model > 2 enough memory > 2 healthy > 1 free > 0 on one node
        "#]],
    );
}

#[test]
fn what_its_nodes_never_have_is_refused_whatever_others_have() {
    check(
        "node n1 4xa100\nnode n2 2xh100\nqueue prod nodes=n2\nsubmit a prod 4\nsubmit b prod 1 model=a100\nsubmit c default 1 model=h100\nsubmit d prod 1 tasks=3\nsubmit e default 1 model=h100 wait\nplan\nexplain e",
        expect![[r#"
            refused cannot-fit: this pool can never run it: no node of queue prod would do, and it may use no others. The pool has 4 a100 (40GB), 2 h100 (80GB).
            refused cannot-fit: this pool can never run it: no node of queue prod would do, and it may use no others. The pool has 4 a100 (40GB), 2 h100 (80GB).
            refused cannot-fit: this pool can never run it: the nodes that would do are kept for queue prod. The pool has 4 a100 (40GB), 2 h100 (80GB).
            refused cannot-fit: this pool can never run it: no node of queue prod would do, and it may use no others. The pool has 4 a100 (40GB), 2 h100 (80GB).
            wait DV-OTHER-NODES: the nodes that would do are kept for queue prod
            no_fit
              DV-OTHER-NODES the nodes that would do are kept for queue prod | submit it to queue prod, or have nodes that would do taken out of that queue's
              6 in pool > 4 for its queue > 0 right model > 0 enough memory > 0 healthy > 0 free > 0 on one node
        "#]],
    );
}

#[test]
fn nodes_that_are_not_there_yet_are_waited_for_and_join_by_their_labels() {
    check(
        "node n1 2xh100\nqueue prod nodes=pool:prod\nsubmit a prod 1\nsubmit f prod 1 fixed\nplan\nexplain a\nnode n2 2xh100 labels=pool:prod,zone:z\nsubmit b default 2\nsubmit c default 1\nplan",
        expect![[r#"
            wait DV-NODES-ABSENT: none of the nodes is there that are kept for queue prod
            wait DV-NODES-ABSENT: none of the nodes is there that are kept for queue prod
            no_fit
              DV-NODES-ABSENT none of the nodes is there that are kept for queue prod | wait for them, or have other nodes kept for prod: divvy queues prod shows which are meant
              2 in pool > 0 for its queue > 0 right model > 0 enough memory > 0 healthy > 0 free > 0 on one node
            place a n2:0
            place f n2:1
            place b n1:0+n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn what_others_run_there_is_taken_back_when_the_queue_wants_it_and_its_own_runs_on_elsewhere() {
    check(
        "node n1 2xh100\nnode n2 2xh100\nqueue prod\nqueue lab guarantee=2\nsubmit p prod 1\nsubmit q prod 1\nsubmit a lab 1\nsubmit b lab 1\nplan\nqueue prod nodes=n1\nplan\nsubmit c prod 1\nplan\nend b\nplan\nsubmit d lab 1\nend p\nplan",
        expect![[r#"
            place a n1:0
            place b n1:1
            place p n2:0
            place q n2:1
            stop b Reclaimed by c
            promise c n1:1
            ended b pending Reclaimed exit=0
            place c n1:1
            stop q Reclaimed by b
            promise b n2:1
            ended p completed Exit exit=0
            place b n2:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn room_is_kept_on_its_nodes_for_the_first_that_waits_there_and_others_run_elsewhere() {
    check(
        &format!(
            "{POOL}submit a prod 1 limit=1h\nplan\nsubmit b prod 2\nsubmit c prod 1\nsubmit d default 1\nsubmit e prod 1 limit=30m\nplan\nexplain c"
        ),
        expect![[r#"
            place a n2:0
            place d n1:0
            place e n2:1
            wait DV-RESERVED: what is free is kept for job 2, which is before it in line
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            later
              DV-RESERVED what is free is kept for job 2, which is before it in line | give it a time limit (-t) that ends before job 2 can start: divvy explain 2 says when
              DV-GPUS-BUSY every GPU that would do is taken | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              4 in pool > 2 for its queue > 2 right model > 2 enough memory > 2 healthy > 0 free > 0 on one node
        "#]],
    );
}

#[test]
fn what_a_queue_in_it_keeps_for_itself_its_siblings_do_not_get() {
    check(
        &format!(
            "{POOL}queue prod/urgent guarantee=1 lend=0\nqueue prod/web\nsubmit a prod/web 1\nsubmit b prod/web 1\nsubmit c prod/urgent 1\nsubmit d default 1\nplan"
        ),
        expect![[r#"
            place c n2:0
            place a n2:1
            place d n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn gangs_that_grow_do_so_on_the_nodes_of_their_queue() {
    check(
        &format!("{POOL}submit a prod 1 tasks=1..4\nsubmit b default 1 tasks=1..4\nplan"),
        expect![[r#"
        place a n2:0
        place b n1:0
        grow a n2:1
        grow b n1:1
    "#]],
    );
}

#[test]
fn within_it_queues_have_their_guarantees_as_below_any_queue() {
    check(
        &format!(
            "{POOL}queue prod/a guarantee=1\nqueue prod/b\nsubmit b1 prod/b 1\nsubmit b2 prod/b 1\nplan\npass 1h\nsubmit a1 prod/a 1\nplan\n"
        ),
        expect![[r#"
            place b1 n2:0
            place b2 n2:1
            stop b2 Reclaimed by a1
            promise a1 n2:1
        "#]],
    );
}

#[test]
fn who_names_a_node_goes_before_who_describes_it() {
    check(
        "node n1 1xh100 labels=pool:a\nnode n2 1xh100 labels=pool:a\nqueue a nodes=pool:a\nqueue b nodes=n1\nsubmit i a 1\nsubmit j b 1\nsubmit k a 1\nplan",
        expect![[r#"
            place i n2:0
            place j n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn a_node_that_goes_over_to_another_queue_takes_what_was_promised_there_back() {
    check(
        "node n1 1xh100\nnode n2 1xh100\nqueue lab\nqueue prod\nsubmit a lab 1\nsubmit b lab 1\nplan\nsubmit c lab 1 prio=high\nplan\nqueue prod nodes=n1,n2\nplan",
        expect![[r#"
            place a n1:0
            place b n2:0
            stop b Preempted by c
            promise c n2:0
            wait DV-OTHER-NODES: the nodes that would do are kept for queue prod
        "#]],
    );
}

/// A job by its queue, GPUs, tasks, cores and priority.
type Asked = (usize, u32, u32, u32, &'static str);

const QUEUES: [&str; 4] = ["default", "lab", "prod", "prod/web"];

fn asked() -> impl Strategy<Value = Asked> {
    let priority = prop_oneof![Just("low"), Just("normal"), Just("high")];
    (0..QUEUES.len(), 0..5u32, 1..4u32, prop_oneof![Just(0u32), Just(8)], priority)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn in_no_pool_does_anything_lie_or_is_anything_due_where_it_may_not(
        nodes in proptest::collection::vec((0..5u32, any::<bool>()), 1..5),
        jobs in proptest::collection::vec(asked(), 1..14),
        share in prop_oneof![Just("fill"), Just("dominant")],
        (guarantee, loans) in (0..4u32, prop_oneof![Just(""), Just(" lend=1 borrow=2")]),
    ) {
        let mut scenario = Scenario::new();
        let mut line = |text: &str| scenario.line(text).map_err(TestCaseError::fail);
        line(&format!("policy {{share: {share}, half_life: none}}"))?;
        for (place, (devices, is_kept)) in nodes.iter().enumerate() {
            let pool = if *is_kept { "prod" } else { "all" };
            let devices = if *devices > 0 { format!("{devices}xh100") } else { String::new() };
            line(&format!("node n{place} {devices} cpu=32 labels=pool:{pool}"))?;
        }
        line("queue prod nodes=pool:prod")?;
        line("queue prod/web weight=2")?;
        line(&format!("queue lab guarantee={guarantee}{loans}"))?;
        for (place, (queue, devices, tasks, cpu, priority)) in jobs.iter().enumerate() {
            let (queue, cpu) = (QUEUES[*queue], if *cpu > 0 { format!(" cpu={cpu}") } else { String::new() });
            line(&format!("submit j{place} {queue} {devices} tasks={tasks} prio={priority} wait{cpu}"))?;
            if place % 3 == 2 {
                line("plan")?;
            }
        }
        line("plan")?;
        let state = scenario.state();
        for held in state.allocations.values() {
            let queue = &state.jobs.get(&held.job.number).unwrap().spec.queue;
            let node = &state.nodes[&held.placement.node].spec;
            prop_assert_eq!(queue.starts_with("prod"), node.face.labels["pool"] == "prod", "{} on {}", queue, node.name);
        }
        let entitled = entitlements(state, scenario.snapshot());
        let kept: i64 = nodes.iter().filter(|(_, is_kept)| *is_kept).map(|(devices, _)| i64::from(*devices) * 1000).sum();
        let all: i64 = nodes.iter().map(|(devices, _)| i64::from(*devices) * 1000).sum();
        let others: i64 = ["default", "lab"].iter().map(|queue| entitled[*queue].due_milli).sum();
        prop_assert_eq!(entitled["prod"].guarantee_milli, kept);
        prop_assert!(entitled["prod"].due_milli <= kept && others <= all - kept, "{:?}", entitled);
    }
}
