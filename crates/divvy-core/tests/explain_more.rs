//! What is told of jobs whose reasons are easily taken for others.

#![allow(clippy::unwrap_used, reason = "only tests live here")]

use divvy_core::explain::{self, Advice};
use divvy_core::id::JobId;
use divvy_core::model::job::JobSpec;
use divvy_core::scenario::Scenario;
use expect_test::{Expect, expect};

/// The advice on a job, in lines: each blocker's code with its ways, then the remedy.
fn told(advice: &Advice) -> String {
    let mut text = String::new();
    for blocker in &advice.blockers {
        text += &format!("{} {}\n", blocker.reason.code(), blocker.reason);
        blocker.ways.iter().for_each(|way| text += &format!("    {way}\n"));
        blocker.lifted_by.iter().for_each(|way| text += &format!("    lifted by: {way}\n"));
    }
    let remedy = advice.remedy.as_ref().map_or("nothing".to_owned(), ToString::to_string);
    text + &format!("=> {remedy}\n")
}

/// A pool after these lines, and one of its jobs.
fn pool(scenario: &str, job: &str) -> (Scenario, JobId) {
    let mut pool = Scenario::new();
    for line in scenario.lines() {
        assert_eq!(pool.line(line), Ok(()), "{line}");
    }
    let (name, member) =
        job.split_once('_').map_or((job, None), |(name, member)| (name, member.parse().ok()));
    let number = pool.jobs().find(|(known, _)| *known == name).map_or(0, |(_, number)| number);
    (pool, JobId { number, member })
}

fn check(scenario: &str, job: &str, expected: Expect) {
    let (pool, id) = pool(scenario, job);
    let advice = explain::advise(pool.state(), pool.snapshot(), id);
    expected.assert_eq(&advice.map_or("it does not wait".to_owned(), |advice| told(&advice)));
}

#[test]
fn where_devices_are_missing_what_others_keep_idle_is_not_said_to_be_lent() {
    check(
        "node n1 4xh100\nnode n2 4xh100\nqueue a guarantee=4\nqueue c guarantee=4 lend=0\ndrain on n2\nsubmit j a 1\nplan",
        "j",
        expect![[r#"
            DV-SCARCE the pool now has too few GPUs for all guarantees, and other queues keep them from queue a
                n2 takes jobs again: divvy gpus undrain n2
                1 more GPU of what is lent for c (to 1)
            => n2 takes jobs again: divvy gpus undrain n2
        "#]],
    );
}

#[test]
fn where_nothing_is_missing_what_the_queue_above_holds_itself_is_lent() {
    check(
        "node n1 8xh100\nqueue a guarantee=4\nqueue a/x guarantee=2\nqueue b guarantee=4 lend=0\nsubmit own a 4 fixed\nplan\n\
         submit j a/x 2\nplan",
        "j",
        expect![[r#"
            DV-LENT-OUT what is guaranteed to queue a/x is lent to others, who are safe for now
                wait for job 1 to end
                2 more GPUs of what is lent for b (to 2)
            => wait for job 1 to end
        "#]],
    );
}

#[test]
fn nor_is_it_where_what_others_borrow_would_not_be_enough() {
    check(
        "node n1 4xh100\nnode n2 4xh100\nqueue a guarantee=4\nqueue c guarantee=4 lend=0\nsubmit x default 1 fixed wait\nstart x on=n1:0\ndrain on n2\nsubmit j a 2\nplan",
        "j",
        expect![[r#"
            DV-SCARCE the pool now has too few GPUs for all guarantees, and other queues keep them from queue a
                n2 takes jobs again: divvy gpus undrain n2
                3 more GPUs of what is lent for c (to 3)
            => n2 takes jobs again: divvy gpus undrain n2
        "#]],
    );
}

#[test]
fn a_job_with_a_promise_is_told_to_wait_for_those_who_leave() {
    check(
        "node n1 4xh100\nqueue a guarantee=2\nqueue b guarantee=2\nsubmit x b 2\nsubmit y b 1\nsubmit z b 1\nplan\nsubmit j a 2\nplan",
        "j",
        expect![[r#"
            DV-PROMISED its devices are promised to it; the task that holds them is being stopped
                wait until the task of job 1 has stopped
            => wait until the task of job 1 has stopped
        "#]],
    );
}

#[test]
fn and_what_it_may_ask_for_instead_is_named_if_it_starts_with_that_at_once() {
    check(
        "node n1 8xh100\nnode n2 2xa100\nsubmit x default 8\nplan\nsubmit j default 2 model=h100 prio=10\nplan",
        "j",
        expect![[r#"
            DV-PROMISED its devices are promised to it; the task that holds them is being stopped
                wait until the task of job 1 has stopped
                accept a100, too
            => wait until the task of job 1 has stopped
        "#]],
    );
}

#[test]
fn so_is_a_member_of_an_array() {
    check(
        "node n1 2xh100\nqueue a guarantee=2\nqueue b\nsubmit x b 1\nsubmit y b 1\nplan\nsubmit j a 1 array=0-3\nplan",
        "j_0",
        expect![[r#"
            DV-PROMISED its devices are promised to it; the task that holds them is being stopped
                wait until the task of job 2 has stopped
            => wait until the task of job 2 has stopped
        "#]],
    );
}

#[test]
fn where_a_gang_gives_up_tasks_these_are_waited_for_and_not_its_end() {
    check(
        "policy {elastic: true, half_life: none}\nnode n1 4xh100\nqueue a guarantee=2\nqueue b\nsubmit x b 1 tasks=1..4\nplan\nplan\nsubmit j a 2\nplan",
        "j",
        expect![[r#"
            DV-PROMISED its devices are promised to it; 2 tasks that hold them are being stopped
                wait until 2 tasks of job 1 have stopped
            => wait until 2 tasks of job 1 have stopped
        "#]],
    );
}

#[test]
fn where_promised_devices_break_those_are_waited_for_who_leave_others() {
    check(
        "node n1 4xh100\nnode n2 1xh100\nqueue a guarantee=2\nqueue b\nsubmit x b 4\nplan\nsubmit j a 2\nplan\ndevice n1:0 down\ndevice n1:1 down",
        "j",
        expect![[r#"
            DV-PROMISED its devices are promised to it; the task that holds them is being stopped
                wait until the task of job 1 has stopped
                ask for 1 GPU per task instead of 2
            => wait until the task of job 1 has stopped
        "#]],
    );
}

#[test]
fn fewer_devices_and_a_time_limit_are_named_together_where_it_takes_both() {
    check(
        "node n1 4xh100\nsubmit a default 2 limit=1h\nplan\nsubmit b default 4\nsubmit j default 3\nplan",
        "j",
        expect![[r#"
            DV-GPUS-BUSY no node has 3 GPUs free that would do
                ask for 2 GPUs per task instead of 3 and say a time limit of at most 59m (-t 59m)
                priority 1 for it
            => ask for 2 GPUs per task instead of 3 and say a time limit of at most 59m (-t 59m)
        "#]],
    );
}

fn funnel(scenario: &str, job: &str) -> String {
    let (pool, id) = pool(scenario, job);
    let explained = explain::explain(pool.state(), pool.snapshot(), id).unwrap();
    let steps = explained.funnel.0.iter().map(|(step, devices, _)| format!("{devices} {}", step.name()));
    steps.collect::<Vec<_>>().join(", ")
}

#[test]
fn what_is_reserved_for_others_does_not_count_as_free() {
    let scenario = "node n1 4xh100\nnode n2 4xh100\nqueue a\nqueue b\nsubmit x b 1\nstart x on=n2:0\nreserve n1 queue=a for=2h\nsubmit j b 4 wait\nsubmit own a 4\nplan";
    expect!["8 in pool, 8 right model, 8 enough memory, 8 healthy, 4 not reserved, 3 free, 0 on one node"]
        .assert_eq(&funnel(scenario, "j"));
}

#[test]
fn of_several_ways_the_one_that_waits_is_told_and_not_one_that_the_pool_cannot_hold() {
    check(
        "node n1 8xl4\nqueue a borrow=4\nsubmit x a 2\nplan\nsubmit j a 2 model=b200 or=l4:4\nplan",
        "j",
        expect![[r#"
            DV-BORROW-LIMIT queue a would borrow more than the 4 GPUs that it may
                ask for 2 GPUs per task instead of 4
                wait for job 1 to end
                2 more GPUs of what may be borrowed for a (to 6)
            => ask for 2 GPUs per task instead of 4
        "#]],
    );
}

#[test]
fn the_wait_of_an_array_for_what_is_promised_to_its_members_ends_with_their_start() {
    let scenario = "node n1 2xh100\nqueue q\nsubmit r q 2\nplan\nsubmit j q 1 prio=high array=0-1 wait\nplan";
    let (pool, array) = pool(scenario, "j");
    let advice = explain::advise(pool.state(), pool.snapshot(), array).unwrap();
    assert_eq!(advice.blockers[0].reason.code(), "DV-PROMISED");
    let wait = advice.remedy.unwrap().changes;
    assert!(explain::starts_after(pool.state(), pool.snapshot(), array, &wait), "{wait:?}");
}

#[test]
fn a_job_without_gpus_never_starts_in_a_queue_whose_limits_are_below_what_it_gets_unasked() {
    let scenario = "node n1 1xh100 cpu=8 mem=64\nqueue q\n\
        queue c {\"path\": \"c\", \"limit\": {\"cpu\": {\"finite\": 500}}}\n\
        queue m {\"path\": \"m\", \"limit\": {\"memory\": {\"finite\": 1000000}}}\nsubmit j q 0 wait\nplan";
    let (pool, job) = pool(scenario, "j");
    let never = |queue: &str| {
        let spec = JobSpec { queue: queue.to_owned(), ..(*pool.state().jobs[&job.number].spec).clone() };
        let found = explain::as_set(pool.state(), pool.snapshot(), &spec);
        found.iter().map(|reason| reason.code()).collect::<Vec<_>>()
    };
    assert_eq!(
        (never("q"), never("c"), never("m")),
        (vec![], vec!["DV-QUEUE-LIMIT"], vec!["DV-QUEUE-LIMIT"])
    );
}

#[test]
fn a_queue_of_weight_0_is_told_that_a_weight_would_do() {
    check(
        "node n1 2xh100\nqueue q\nqueue none weight=0\nsubmit x q 1\nsubmit y q 1\nplan\nsubmit j none 1\nplan",
        "j",
        expect![[r#"
            DV-GPUS-BUSY every GPU that would do is taken
                wait for job 1 to end
                a weight of 1 for none (it has 0)
            => wait for job 1 to end
        "#]],
    );
}

#[test]
fn a_user_of_weight_0_is_told_that_a_weight_would_do() {
    check(
        "node n1 2xh100\nqueue q {\"path\": \"q\", \"users\": {\"weight\": {\"ana\": 0}}}\nsubmit x q 1 user=bo\nsubmit y q 1 user=bo\nplan\nsubmit j q 1 user=ana\nplan",
        "j",
        expect![[r#"
            DV-GPUS-BUSY every GPU that would do is taken
                wait for job 1 to end
                a weight of 1 for ana among the users of q (it is 0)
            => wait for job 1 to end
        "#]],
    );
}

#[test]
fn a_new_node_gives_a_task_the_memory_that_goes_with_its_gpus_in_this_pool() {
    check(
        "node n1 2xh100 cpu=16 mem=64\nqueue q memory=64Gi\nqueue r guarantee=2\nsubmit x r 1 fixed\nsubmit y r 1 fixed\nplan\nsubmit j q 2 wait\nplan",
        "j",
        expect![[r#"
            DV-GPUS-BUSY no node has 2 GPUs free that would do
                ask for 1 GPU per task instead of 2 and wait for job 1 to end
                wait for jobs 1, 2 to end
                a node with 2 more h100
            => ask for 1 GPU per task instead of 2 and wait for job 1 to end
        "#]],
    );
}

#[test]
fn a_limit_is_raised_by_what_others_behind_it_take_first() {
    // What queue a may hold goes to the guarantee of a/b.
    check(
        "node n1 4xh100\nqueue a limit=0\nqueue a/b guarantee=2\nsubmit first a/b 1\nsubmit next a/b 1\nsubmit j a 1\nplan",
        "j",
        expect![[r#"
            DV-QUEUE-LIMIT queue a has a limit of 0 GPUs, and it asks for 1
                3 more GPUs of limit for a (to 3)
            => 3 more GPUs of limit for a (to 3)
        "#]],
    );
}

#[test]
fn a_limit_is_raised_by_the_whole_node_that_a_job_wants_for_itself() {
    check(
        "node n1 4xh100\nqueue x limit=3\nsubmit j x 1 exclusive wait\nplan",
        "j",
        expect![[r#"
            DV-QUEUE-LIMIT queue x has a limit of 3 GPUs, and it asks for 4
                submit it without --exclusive
                1 more GPU of limit for x (to 4)
            => submit it without --exclusive
        "#]],
    );
}
