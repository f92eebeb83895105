//! Scenarios of the core as golden tests: one behaviour each, in words.

use divvy_core::scenario::run;
use expect_test::{Expect, expect};

fn check(scenario: &str, expected: Expect) {
    match run(scenario) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

#[test]
fn jobs_start_in_the_order_of_their_arrival_while_there_are_gpus() {
    check(
        "node n1 2xh100\nsubmit a default 1\nsubmit b default 1\nsubmit c default 1\nplan\nend a\nplan",
        expect![[r#"
        place a n1:0
        place b n1:1
        wait DV-GPUS-BUSY: every GPU that would do is taken
        ended a completed Exit exit=0
        place c n1:0
    "#]],
    );
}

#[test]
fn a_higher_priority_goes_first_and_an_old_job_passes_it_after_a_week_for_a_hundred_points() {
    check(
        "node n1 1xh100\nsubmit r default 1\nplan\nsubmit a default 1\nsubmit b default 1 prio=high\nend r\nplan",
        expect![[r#"
        place r n1:0
        ended r completed Exit exit=0
        place b n1:0
        wait DV-GPUS-BUSY: every GPU that would do is taken
    "#]],
    );
    check(
        "policy {starve_after: none}\nnode n1 1xh100\nsubmit r default 1\nplan\nsubmit a default 1\npass 8d\nsubmit b default 1 prio=high\nend r\nplan",
        expect![[r#"
        place r n1:0
        ended r completed Exit exit=0
        place a n1:0
        wait DV-GPUS-BUSY: every GPU that would do is taken
    "#]],
    );
}

#[test]
fn a_gang_starts_whole_or_not_at_all() {
    check(
        "node n1 4xh100\nsubmit a default 1\nplan\nsubmit g default 2 tasks=2\nplan\nend a\nplan",
        expect![[r#"
        place a n1:0
        wait DV-GANG: not all of its 2 tasks fit at once
        ended a completed Exit exit=0
        place g n1:0+n1:1 n1:2+n1:3
    "#]],
    );
}

#[test]
fn a_gang_over_nodes_takes_as_few_nodes_as_it_can() {
    check(
        "node n1 4xh100\nnode n2 8xh100\nsubmit g default 2 tasks=4\nplan",
        expect![[r#"
            place g n2:0+n2:1 n2:2+n2:3 n2:4+n2:5 n2:6+n2:7
        "#]],
    );
}

#[test]
fn a_small_job_goes_to_the_fullest_node_so_that_whole_nodes_stay_whole() {
    check(
        "node n1 8xh100\nnode n2 8xh100\nsubmit a default 4\nplan\nsubmit b default 2\nplan\nsubmit c default 8\nplan",
        expect![[r#"
        place a n1:0+n1:1+n1:2+n1:3
        place b n1:4+n1:5
        place c n2:0+n2:1+n2:2+n2:3+n2:4+n2:5+n2:6+n2:7
    "#]],
    );
}

#[test]
fn a_broken_gang_is_stopped_and_fails_with_the_first_exit_code() {
    check(
        "node n1 4xh100\nsubmit g default 1 tasks=3\nplan\nend g/1 exit=3\nend g signal=15",
        expect![[r#"
        place g n1:0 n1:1 n1:2
        stop g BrokenGang
        ended g failed Exit exit=3
    "#]],
    );
}

#[test]
fn a_queue_at_its_limit_waits_and_others_go_on() {
    check(
        "node n1 8xh100\nqueue a limit=2\nqueue b\nsubmit a1 a 2\nsubmit a2 a 1\nsubmit b1 b 4\nplan\nexplain a2\nend a1\nplan",
        expect![[r#"
        place a1 n1:0+n1:1
        place b1 n1:2+n1:3+n1:4+n1:5
        wait DV-QUEUE-LIMIT: queue a is at its limit of 2 GPUs
        later
          DV-QUEUE-LIMIT queue a is at its limit of 2 GPUs | wait for jobs of a to end, or raise its limit of any above 2 (this job asks for 1)
          8 in pool > 8 right model > 8 enough memory > 8 healthy > 2 free > 2 on one node
        ended a1 completed Exit exit=0
        place a2 n1:0
    "#]],
    );
}

#[test]
fn a_limit_of_a_parent_queue_binds_its_children_together() {
    check(
        "node n1 8xh100\nqueue r limit=3\nqueue r/a\nqueue r/b\nsubmit a r/a 2\nsubmit b r/b 2\nplan\nexplain b",
        expect![[r#"
        place a n1:0+n1:1
        wait DV-QUEUE-LIMIT: queue r is at its limit of 3 GPUs
        later
          DV-QUEUE-LIMIT queue r is at its limit of 3 GPUs | wait for jobs of r to end, or raise its limit of any above 3 (this job asks for 2)
          8 in pool > 8 right model > 8 enough memory > 8 healthy > 6 free > 6 on one node
    "#]],
    );
}

#[test]
fn an_array_runs_no_more_members_at_once_than_it_may() {
    check(
        "node n1 8xh100\nsubmit a default 1 array=0-4%2\nplan\nend a_0\nplan\ncancel a\nplan",
        expect![[r#"
            place a_0 n1:0
            place a_1 n1:1
            ended a_0 completed Exit exit=0
            place a_2 n1:0
            stop a_1 Cancelled
            stop a_2 Cancelled
            drop a Cancelled
        "#]],
    );
}

#[test]
fn a_dependency_waits_and_what_can_never_happen_is_dropped() {
    check(
        "node n1 8xh100\nsubmit a default 1\nsubmit b default 1 after=a:ok\nsubmit c default 1 after=a:fail\nsubmit d default 1 after=c:any\nplan\nexplain b\nend a\nplan",
        expect![[r#"
            place a n1:0
            later
              DV-DEPENDENCY waits for job 1 to complete | wait for job 1: divvy show 1
              8 in pool > 8 right model > 8 enough memory > 8 healthy > 7 free > 7 on one node
            ended a completed Exit exit=0
            drop c Dependency
            place b n1:0
            place d n1:1
        "#]],
    );
}

#[test]
fn a_held_job_waits_until_it_is_released_by_its_user() {
    check(
        "node n1 8xh100\nsubmit a default 1 held\nplan\nexplain a\nrelease a by=eve\nrelease a\nplan\nhold a",
        expect![[r#"
            later
              DV-HELD held by ana | release it: divvy release JOB
              8 in pool > 8 right model > 8 enough memory > 8 healthy > 8 free > 8 on one node
            refused not-yours: job a is not yours
            place a n1:0
            refused wrong-state: job a is running: only a waiting job can be held; cancel ends it
        "#]],
    );
}

#[test]
fn what_an_administrator_holds_its_user_cannot_release() {
    check(
        "node n1 1xh100\nsubmit a default 1\nhold a by=root\nrelease a\nrelease a by=root\nplan",
        expect![[r#"
            refused held-by-admin: job a is held by an administrator, and you are none of its queue
            place a n1:0
        "#]],
    );
}

#[test]
fn a_time_limit_stops_the_job_and_says_so() {
    check(
        "node n1 8xh100\nsubmit a default 1 limit=2h\nplan\npass 1h\nplan\npass 1h\nplan\nend a signal=15",
        expect![[r#"
        place a n1:0
        stop a TimeLimit
        ended a timeout TimeLimit exit=143
    "#]],
    );
}

#[test]
fn a_start_time_is_waited_for() {
    check(
        "node n1 8xh100\nsubmit a default 1 start=+1h\nplan\npass 1h\nplan",
        expect![[r#"
        place a n1:0
    "#]],
    );
}

#[test]
fn what_the_pool_can_never_run_is_refused_with_what_there_is() {
    check(
        "submit z default 1\nnode n1 4xh100\nsubmit a default 8\nsubmit b default 1 model=b200\nsubmit c default 3 tasks=2\nsubmit d default 1 cpu=100\nsubmit e nowhere 1\nsubmit f default 8 wait\nplan\nnode n2 8xh100\nplan",
        expect![[r#"
            refused cannot-fit: this pool can never run it: the pool has no node that takes tasks. The pool has no GPU.
            refused cannot-fit: this pool can never run it: asks for 8 GPUs on one node; the largest node has 4 of them. The pool has 4 h100 (80GB).
            refused cannot-fit: this pool can never run it: the pool has no GPU like b200. The pool has 4 h100 (80GB).
            refused cannot-fit: this pool can never run it: asks for 2 tasks at once; the empty pool holds 1. The pool has 4 h100 (80GB).
            refused cannot-fit: this pool can never run it: asks for 100 cores; the largest node has 64. The pool has 4 h100 (80GB).
            refused unknown-queue: there is no queue "nowhere"; there are: default
            wait DV-TOO-MANY-GPUS: asks for 8 GPUs on one node; the largest node has 4 of them
            place f n2:0+n2:1+n2:2+n2:3+n2:4+n2:5+n2:6+n2:7
        "#]],
    );
}

#[test]
fn a_device_that_is_down_or_used_from_outside_is_not_given_out() {
    check(
        "node n1 2xh100\ndevice n1:0 down\nsubmit a default 1\nplan\nsubmit b default 2\nplan\nexplain b\ndevice n1:0 foreign\nplan\nexplain b\ndevice n1:0 ok\nend a\nplan",
        expect![[r#"
            place a n1:1
            wait DV-GPUS-DOWN: 1 GPU that would do is down
            later
              DV-GPUS-DOWN 1 GPU that would do is down | have them repaired: divvy gpus shows what is wrong
              2 in pool > 2 right model > 2 enough memory > 1 healthy > 0 free > 0 on one node
            wait DV-GPUS-FOREIGN: 1 GPU that would do is used from outside the pool
            later
              DV-GPUS-FOREIGN 1 GPU that would do is used from outside the pool | end what uses them from outside: divvy gpus shows whose it is
              2 in pool > 2 right model > 2 enough memory > 1 healthy > 0 free > 0 on one node
            ended a completed Exit exit=0
            place b n1:0+n1:1
        "#]],
    );
}

#[test]
fn a_lost_job_goes_back_into_its_queue_and_a_failed_one_does_not() {
    check(
        "node n1 2xh100\nqueue default requeue=lost\nsubmit a default 1\nsubmit b default 1\nsubmit c default 1 requeue=never\nplan\nend a lost\nend b exit=1\nplan\nend c lost",
        expect![[r#"
            place a n1:0
            place b n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
            ended a pending SupervisorLost exit=137
            ended b failed Exit exit=1
            place a n1:0
            place c n1:1
            ended c lost SupervisorLost exit=137
        "#]],
    );
}

#[test]
fn a_job_that_kills_its_node_goes_back_three_times_and_no_more() {
    check(
        "node n1 1xh100\nsubmit a default 1\nplan\nend a lost\nplan\nend a lost\nplan\nend a lost\nplan\nend a lost\nplan",
        expect![[r#"
        place a n1:0
        ended a pending SupervisorLost exit=137
        place a n1:0
        ended a pending SupervisorLost exit=137
        place a n1:0
        ended a pending SupervisorLost exit=137
        place a n1:0
        ended a lost SupervisorLost exit=137
    "#]],
    );
}

#[test]
fn a_restart_changes_nothing() {
    check(
        "node n1 2xh100\nsubmit a default 1\nsubmit b default 2\nplan\nrestart\nplan\nend a\nplan",
        expect![[r#"
        place a n1:0
        wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
        ended a completed Exit exit=0
        place b n1:0+n1:1
    "#]],
    );
}

#[test]
fn a_draining_pool_starts_nothing_new() {
    check(
        "node n1 2xh100\nsubmit a default 1\nplan\ndrain on\nsubmit b default 1\nplan\nexplain b\ndrain off\nplan",
        expect![[r#"
        place a n1:0
        wait DV-POOL-DRAINING: the pool is being taken down and starts nothing new
        later
          DV-POOL-DRAINING the pool is being taken down and starts nothing new | start the pool again: divvy up
          2 in pool > 2 right model > 2 enough memory > 2 healthy > 1 free > 1 on one node
        place b n1:1
    "#]],
    );
}

#[test]
fn cores_that_were_asked_for_are_counted_and_others_yield() {
    check(
        "node n1 4xh100 cpu=8\nsubmit a default 1 cpu=7\nsubmit b default 1\nsubmit c default 1 cpu=2\nsubmit d default 0\nplan\nexplain c\nend a\nplan",
        expect![[r#"
            place a n1:0
            place b n1:1
            place d n1
            wait DV-HOST-BUSY: no node has 2 cores left
            later
              DV-HOST-BUSY no node has 2 cores left | ask for fewer than 2 cores
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 2 free > 2 on one node
            ended a completed Exit exit=0
            place c n1:0
        "#]],
    );
}

#[test]
fn a_removed_queue_with_jobs_is_refused() {
    check(
        "node n1 1xh100\nqueue a\nsubmit a1 a 1\nremove a\nplan\nend a1\nremove a\nsubmit a2 a 1",
        expect![[r#"
            refused queue-in-use: queue a has jobs that wait or run, 1 in all: cancel them or let them end before it is removed
            place a1 n1:0
            ended a1 completed Exit exit=0
            refused unknown-queue: there is no queue "a"; there are: default
        "#]],
    );
}

#[test]
fn a_repeated_key_submits_once() {
    check(
        "node n1 2xh100\nsubmit a default 1 token=k\nsubmit b default 1 token=k\nsubmit c default 1 token=k user=bob\nplan",
        expect![[r#"
            refused repeated: this request was already carried out: it submitted job a
            place a n1:0
            place c n1:1
        "#]],
    );
}

/// The scenarios for readers: each file is lines, `----`, and what they print.
#[test]
#[allow(clippy::disallowed_methods, reason = "a test may read the files that it checks")]
fn the_scenarios_that_are_shown_print_what_they_say() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let scenarios: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "dvy")).collect();
    assert!(!scenarios.is_empty(), "no scenario in {folder}");
    for path in scenarios {
        let text = std::fs::read_to_string(&path).unwrap();
        let (lines, expected) = text.split_once("\n----\n").unwrap();
        assert_eq!(run(lines).unwrap(), expected, "{}", path.display());
    }
}

/// The manual's own examples.
#[test]
#[allow(clippy::disallowed_methods, reason = "a test may read the files that it checks")]
fn the_scenarios_of_the_manual_print_what_it_says() {
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/scenarios.md");
    let text = std::fs::read_to_string(manual).unwrap();
    let examples: Vec<&str> =
        text.split("```dvy\n").skip(1).map(|part| part.split_once("```").unwrap().0).collect();
    assert!(!examples.is_empty(), "no example in {manual}");
    for example in examples {
        let (lines, expected) = example.split_once("----\n").unwrap();
        assert_eq!(run(lines).unwrap(), expected);
    }
}

#[test]
fn a_line_that_makes_no_sense_is_named() {
    let told = |text: &str| run(text).unwrap_err().to_string();
    let verb = told("node n1 2xh100\nfrobnicate");
    assert!(
        verb.starts_with("line 2: no verb is \"frobnicate\": a line begins with one of node queue"),
        "{verb}"
    );
    for (line, expected) in [
        ("node n1 2xh100 gb=80 gb=90", "gb= stands twice: write it once"),
        ("submit a default 1 exclusiv", "submit does not know \"exclusiv\"; it knows: held wait exclusive"),
        ("submit a default", "the number of GPUs is missing"),
        ("submit a default 1 mem=much", "mem=much is no amount of memory: write 8 (GiB) or 512Mi"),
        ("node n1 8xh100 numa=32", "numa=32 are no cores with memory: write 32:256,32:256Gi"),
        ("submit a default {", "what stands in braces is no job"),
        ("node n2 1025xh100", "a node has at most 1024 devices, not 1025"),
        ("cancel x", "there is no job x; the first of those that there are: j"),
        ("start j on=n1", "on= names places for 1 tasks, and the job has 2"),
        ("start j on=n1:7,n1:0", "there is no device n1:7: its node has n1:0 to n1:1"),
        ("start j on=x:7,n1:0", "\"x:7\" is no node and no devices"),
        ("device n1:7 down", "there is no device \"n1:7\""),
        ("drain n1", "drain \"n1\": write on or off"),
        ("pass 5", "has no unit"),
    ] {
        let bad = told(&format!("node n1 2xh100\nsubmit j default 1 tasks=2\n{line}"));
        assert!(bad.starts_with("line 3: ") && bad.contains(expected), "{line}: {bad}");
    }
}

#[test]
fn a_name_that_is_given_twice_is_named_with_both_lines() {
    let told = |text: &str| run(text).unwrap_err().to_string();
    let submits = "node n1 2xh100\nsubmit a default 1\nplan\nend a\nsubmit a default 2";
    assert_eq!(told(submits), "line 5: there is a job a already, from line 2: give this one another name");
    let nodes = "node n1 2xh100\n\nnode n1 4xh100";
    assert_eq!(told(nodes), "line 3: there is a node n1 already, from line 1: give this one another name");
    let again = "node n1 2xh100\nsubmit a default 1 token=x\nsubmit a default 1 token=x\nplan";
    assert!(run(again).unwrap().ends_with("\nplace a n1:0\n"));
    let refused = "node n1 2xh100\nsubmit a nowhere 1\nsubmit a default 1\nplan";
    assert!(run(refused).unwrap().ends_with("place a n1:0\n"));
}

#[test]
fn what_the_pool_never_has_is_named_to_jobs_that_wait_for_capacity() {
    check(
        "node n1 4xa100\nsubmit a default 1 model=b200 wait\nplan\nexplain a # DV-NO-SUCH-MODEL",
        expect![[r#"
            wait DV-NO-SUCH-MODEL: the pool has no GPU like b200
            no_fit
              DV-NO-SUCH-MODEL the pool has no GPU like b200 | ask for GPUs that the pool has: divvy gpus
              4 in pool > 0 right model > 0 enough memory > 0 healthy > 0 free > 0 on one node
        "#]],
    );
    check(
        "node n1 4xa100\nsubmit a default 1 gb=80 wait\nplan\nexplain a # DV-NO-SUCH-MEMORY",
        expect![[r#"
            wait DV-NO-SUCH-MEMORY: no GPU of that model has such memory: 80GB..
            no_fit
              DV-NO-SUCH-MEMORY no GPU of that model has such memory: 80GB.. | ask for GPUs that the pool has: divvy gpus
              4 in pool > 4 right model > 0 enough memory > 0 healthy > 0 free > 0 on one node
        "#]],
    );
    check(
        "node n1 4xa100\nsubmit a default 1 cpu=999 wait\nplan\nexplain a # DV-TOO-MUCH-HOST",
        expect![[r#"
            wait DV-TOO-MUCH-HOST: asks for 999 cores; the largest node has 64
            no_fit
              DV-TOO-MUCH-HOST asks for 999 cores; the largest node has 64 | ask for at most 64 cores
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 4 free > 4 on one node
        "#]],
    );
    check(
        "node n1 4xa100\nsubmit a default 3 tasks=2 wait\nplan\nexplain a # DV-TOO-MANY-TASKS",
        expect![[r#"
            wait DV-TOO-MANY-TASKS: asks for 2 tasks at once; the empty pool holds 1
            no_fit
              DV-TOO-MANY-TASKS asks for 2 tasks at once; the empty pool holds 1 | ask for at most 1 task
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 4 free > 4 on one node
        "#]],
    );
    check(
        "submit a default 1 wait\nplan\nexplain a # DV-NO-NODE",
        expect![[r#"
        wait DV-NO-NODE: the pool has no node that takes tasks
        no_fit
          DV-NO-NODE the pool has no node that takes tasks | start the pool on a machine that takes tasks
          0 in pool > 0 right model > 0 enough memory > 0 healthy > 0 free > 0 on one node
    "#]],
    );
}

#[test]
fn what_may_change_by_itself_or_by_someone_is_named_as_such() {
    check(
        "node n1 4xa100\ndrain on n1\nsubmit a default 1\nplan\nexplain a\ndrain off n1\nplan # DV-DRAINING",
        expect![[r#"
            reservation 1 begins
            wait DV-DRAINING: 1 node that would do is being drained
            later
              DV-DRAINING 1 node that would do is being drained | wait for the drain to end: divvy reserve lists what is drained, and until when
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 0 free > 0 on one node
            reservation 1 is over
            place a n1:0
        "#]],
    );
    check(
        "node n1 4xa100\nsubmit a default 1 array=0-3%1\nplan\nexplain a_1 # DV-ARRAY-LIMIT",
        expect![[r#"
            place a_0 n1:0
            later
              DV-ARRAY-LIMIT 1 member of its array run, as many as may | submit the array with more than %1
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 3 free > 3 on one node
        "#]],
    );
    check(
        "node n1 4xa100\nsubmit a default 1 start=+2h\nexplain a # DV-START-AFTER",
        expect![[r#"
        later
          DV-START-AFTER its start time has not come | wait, or submit it again without a start time
          4 in pool > 4 right model > 4 enough memory > 4 healthy > 4 free > 4 on one node
    "#]],
    );
    check(
        "node n1 4xa100\nsubmit a default 1 milli=500 # DV-UNSUPPORTED",
        expect![[r#"
            refused cannot-fit: this pool can never run it: no engine of this pool runs shares, partitions and claims: ask for whole GPUs. The pool has 4 a100 (40GB).
        "#]],
    );
}

#[test]
fn a_job_that_was_not_looked_at_yet_says_that_it_is_new() {
    let mut scenario = divvy_core::scenario::Scenario::new();
    scenario.line("node n1 4xa100").unwrap();
    scenario.line("submit a default 1").unwrap();
    let job = &scenario.state().jobs[&1];
    let run = job.run(None).unwrap();
    let reason = divvy_core::explain::reason(scenario.state(), job, (job.id(), &run)).unwrap();
    assert_eq!(reason.code(), "DV-NEW");
}

#[test]
fn a_limit_of_one_model_leaves_the_others_open() {
    check(
        "node n1 2xh100\nnode n2 2xa100\nqueue a h100=1\nsubmit a1 a 1 model=h100\nsubmit a2 a 1\nsubmit a3 a 1 model=h100\nplan\nexplain a3",
        expect![[r#"
            place a1 n1:0
            place a2 n2:0
            wait DV-QUEUE-LIMIT: queue a is at its limit of 1 h100
            later
              DV-QUEUE-LIMIT queue a is at its limit of 1 h100 | wait for jobs of a to end, or raise its limit of h100 above 1 (this job asks for 1)
              4 in pool > 2 right model > 2 enough memory > 2 healthy > 1 free > 1 on one node
        "#]],
    );
}

#[test]
fn an_exclusive_job_wants_an_idle_node_and_keeps_others_off_it() {
    check(
        "node n1 4xh100\nnode n2 4xh100\nsubmit a default 1\nplan\nsubmit b default 1 exclusive\nsubmit c default 1 exclusive\nsubmit d default 4\nplan\nexplain c # DV-NO-IDLE-NODE\nend a\nend b\nplan",
        expect![[r#"
            place a n1:0
            place b n2:0+n2:1+n2:2+n2:3
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
            wait DV-NO-IDLE-NODE: wants its nodes for itself, and none is idle
            later
              DV-NO-IDLE-NODE wants its nodes for itself, and none is idle | wait for a node to become idle, or submit it without --exclusive
              8 in pool > 8 right model > 8 enough memory > 8 healthy > 3 free > 3 on one node
            ended a completed Exit exit=0
            ended b completed Exit exit=0
            place c n1:0+n1:1+n1:2+n1:3
            place d n2:0+n2:1+n2:2+n2:3
        "#]],
    );
}

#[test]
fn in_a_strict_order_nobody_passes_the_first_by_the_passing_of_time() {
    check(
        "node n1 2xh100\npolicy {strict: true, order: attained}\nsubmit r default 1\nplan\nsubmit a default 2\nsubmit b default 1\nplan\npass 1h\nsubmit c default 1\nplan",
        expect![[r#"
            place r n1:0
            wait DV-IN-LINE: jobs start strictly in order, and one before it does not fit yet
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
        "#]],
    );
}

#[test]
fn in_a_strict_order_nothing_passes_a_job_that_does_not_fit() {
    check(
        "node n1 2xh100\npolicy strict: true\nsubmit r default 1\nplan\nsubmit a default 2\nsubmit b default 1\nplan\nexplain b",
        expect![[r#"
            place r n1:0
            wait DV-IN-LINE: jobs start strictly in order, and one before it does not fit yet
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            later
              DV-IN-LINE jobs start strictly in order, and one before it does not fit yet | wait for the jobs before it, or have the pool's order made less strict
              2 in pool > 2 right model > 2 enough memory > 2 healthy > 1 free > 1 on one node
        "#]],
    );
}

#[test]
fn a_job_to_which_devices_are_promised_waits_for_those_that_give_way() {
    check(
        "node n1 1xh100\npolicy {order: attained, preempt: walk}\nsubmit r default 1 resumable\nplan\npass 2h\nsubmit a default 1\nplan\nexplain a\nend r signal=15\nplan",
        expect![[r#"
            place r n1:0
            stop r Order by a
            promise a n1:0
            later
              DV-PROMISED its devices are promised to it; the task that holds them is being stopped | wait a moment: it starts when that task has stopped
              1 in pool > 1 right model > 1 enough memory > 1 healthy > 0 free > 0 on one node
            ended r pending Order exit=143
            place a n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}
