//! Scenarios of queues that are divided among their users.
#![allow(clippy::unwrap_used, reason = "what a test's own functions can't set up has failed the test")]

use divvy_core::plan;
use divvy_core::scenario::{Scenario, run};
use divvy_core::snapshot::Snapshot;
use expect_test::{Expect, expect};

/// Runs a scenario in which queues share the pool and jobs give way by least loss.
fn check(scenario: &str, expected: Expect) {
    let text = format!("policy {{share: fill, preempt: least_loss, half_life: none}}\n{scenario}");
    match run(&text) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

#[test]
fn a_user_takes_back_what_is_due_to_him_of_his_queue_and_no_more() {
    check(
        "node n1 6xh100\nqueue q {\"path\": \"q\", \"users\": {\"weight\": {\"ana\": 2}}}\nsubmit b q 1 user=bob array=0-5\nplan\npass 1h\nsubmit a q 1 user=ana array=0-7\nplan",
        expect![[r#"
            place b_0 n1:0
            place b_1 n1:1
            place b_2 n1:2
            place b_3 n1:3
            place b_4 n1:4
            place b_5 n1:5
            stop b_5 Reclaimed by a_0
            stop b_4 Reclaimed by a_1
            stop b_3 Reclaimed by a_2
            stop b_2 Reclaimed by a_3
            promise a_0 n1:5
            promise a_1 n1:4
            promise a_2 n1:3
            promise a_3 n1:2
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn users_start_by_turns_whoever_has_submitted_more() {
    check(
        "node n1 4xh100\nqueue q {\"path\": \"q\", \"users\": {}}\nsubmit b q 1 user=bob array=0-9\nsubmit a q 1 user=ana array=0-9\nplan",
        expect![[r#"
            place b_0 n1:0
            place a_0 n1:1
            place b_1 n1:2
            place a_1 n1:3
            wait DV-GPUS-BUSY: every GPU that would do is taken
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn what_is_guaranteed_to_a_queue_its_users_take_back_from_others() {
    check(
        "node n1 4xh100\nqueue a {\"path\": \"a\", \"guarantee\": {\"any\": {\"finite\": 2000}}, \"borrow_evicts\": false, \"users\": {}}\nqueue b\nsubmit b0 b 1 array=0-3\nplan\nsubmit a0 a 1 user=ana\nsubmit a1 a 1 user=eva\nsubmit a2 a 1 user=eva\nplan",
        expect![[r#"
            place b0_0 n1:0
            place b0_1 n1:1
            place b0_2 n1:2
            place b0_3 n1:3
            stop b0_3 Reclaimed by a0
            stop b0_2 Reclaimed by a1
            promise a0 n1:3
            promise a1 n1:2
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn a_user_is_kept_to_his_limit_and_told_so() {
    check(
        "node n1 4xh100\nqueue q {\"path\": \"q\", \"users\": {\"limit\": {\"any\": {\"finite\": 2000}}}}\nsubmit b q 1 user=bob array=0-2\nsubmit a q 3 user=ana\nsubmit c q 1 user=ana\nplan\nexplain b",
        expect![[r#"
            place b_0 n1:0
            place b_1 n1:1
            place c n1:2
            wait DV-USER-LIMIT: a user has a limit of 2 GPUs in queue q, and this job of ana asks for 3
            wait DV-USER-LIMIT: bob is at the limit of 2 GPUs that a user has in queue q
            later
              DV-USER-LIMIT bob is at the limit of 2 GPUs that a user has in queue q | wait for your jobs in q to end, or have its users' limit of any raised above 2 (this job asks for 1)
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 1 free > 1 on one node
        "#]],
    );
}

#[test]
fn a_queue_says_what_each_of_its_users_may_ask_for() {
    check(
        "node n1 4xh100\nqueue q {\"path\": \"q\", \"users\": {\"bounds\": {\"max_priority\": 100, \"max_time\": 3600000, \"max_jobs\": 2}}}\nsubmit j1 q 1 user=ana prio=urgent\nsubmit j2 q 1 user=ana limit=2h\nsubmit j3 q 1 user=ana array=0-2\nsubmit j4 q 1 user=ana array=0-1\nsubmit j5 q 1 user=ana\nsubmit j6 q 1 user=bob\nplan\npass 1h\nplan",
        expect![[r#"
            refused beyond-queue: queue q, of each user, takes jobs with a priority of at most high, and this one has urgent
            refused beyond-queue: queue q, of each user, takes jobs with a time limit of at most 1h, and this one has 2h
            refused beyond-queue: queue q, of each user, takes at most 2 jobs at a time, and this array has 3 members
            refused queue-full: queue q, of each user, takes 2 jobs at once, and 2 wait or run
            place j4_0 n1:0
            place j6 n1:1
            place j4_1 n1:2
            stop j4_0 TimeLimit
            stop j4_1 TimeLimit
            stop j6 TimeLimit
        "#]],
    );
}

#[test]
fn a_queue_is_divided_among_those_who_run_and_wait_in_it_already() {
    check(
        "node n1 4xh100\nqueue q\nsubmit b q 1 user=bob array=0-3\nsubmit a q 1 user=ana array=0-3\nplan\nqueue q {\"path\": \"q\", \"users\": {}}\nplan\nend b_2 signal=15\nend b_3 signal=15\nplan\nqueue q\nplan",
        expect![[r#"
            place b_0 n1:0
            place b_1 n1:1
            place b_2 n1:2
            place b_3 n1:3
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop b_3 Reclaimed by a_0
            stop b_2 Reclaimed by a_1
            promise a_0 n1:3
            promise a_1 n1:2
            wait DV-GPUS-BUSY: every GPU that would do is taken
            ended b_2 pending Reclaimed exit=143
            place a_1 n1:2
            ended b_3 pending Reclaimed exit=143
            place a_0 n1:3
            wait DV-GPUS-BUSY: every GPU that would do is taken
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn a_user_of_weight_zero_gets_what_nobody_else_wants() {
    check(
        "node n1 2xh100\nqueue q {\"path\": \"q\", \"users\": {\"weight\": {\"bob\": 0}}}\nsubmit b q 1 user=bob array=0-3\nplan\nsubmit a q 1 user=ana array=0-3\nplan",
        expect![[r#"
            place b_0 n1:0
            place b_1 n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop b_1 Reclaimed by a_0
            stop b_0 Reclaimed by a_1
            promise a_0 n1:1
            promise a_1 n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn who_is_new_to_a_queue_gets_a_seat_as_if_he_had_always_been_there() {
    let mut scenario = Scenario::new();
    let mut lines = vec!["policy {half_life: none}".to_owned(), "node n1 8xh100".to_owned()];
    for queue in ["a", "a/b", "c"] {
        lines.push(format!(
            "queue {queue} {{\"path\": \"{queue}\", \"users\": {{\"weight\": {{\"eva\": 2}}}}}}"
        ));
    }
    for (job, user) in ["eva", "bob", "zoe", "ana", "dan"].into_iter().enumerate() {
        for queue in ["a/b", "c", "a"] {
            lines.push(format!("submit j{job}{} {queue} 1 user={user} array=0-2", &queue[queue.len() - 1..]));
        }
        lines.push("plan".to_owned());
    }
    for line in lines {
        scenario.line(&line).unwrap();
        let anew = Snapshot::new(scenario.state());
        assert!(scenario.snapshot().same_as(&anew), "{line}");
        let (state, now) = (scenario.state(), scenario.now());
        let (kept, anew) = (&mut scenario.snapshot().clone(), &mut anew.clone());
        assert_eq!(plan::plan(state, kept, now).0, plan::plan(state, anew, now).0, "{line}");
    }
}

#[test]
fn jobs_of_a_queue_with_queues_below_it_have_their_part_beside_these() {
    check(
        "node n1 4xh100\nqueue d\nqueue d/e guarantee=2\nsubmit own d 1 array=0-5\nplan\npass 10m\nsubmit e d/e 1 array=0-1\nplan",
        expect![[r#"
            place own_0 n1:0
            place own_1 n1:1
            place own_2 n1:2
            place own_3 n1:3
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop own_3 Reclaimed by e_0
            stop own_2 Reclaimed by e_1
            promise e_0 n1:3
            promise e_1 n1:2
        "#]],
    );
}

#[test]
fn what_is_guaranteed_to_a_queue_and_to_none_below_it_is_its_own_jobs() {
    check(
        "node n1 4xh100\nqueue d guarantee=3\nqueue d/e guarantee=1\nqueue o\nsubmit below d/e 1 array=0-2\nsubmit other o 1\nplan\n\
        pass 10m\nsubmit own d 2\nplan",
        expect![[r#"
            place below_0 n1:0
            place below_1 n1:1
            place below_2 n1:2
            place other n1:3
            stop below_2 Reclaimed by own
            stop below_1 Reclaimed by own
            promise own n1:1+n1:2
        "#]],
    );
}

#[test]
fn jobs_of_a_queue_move_to_a_place_of_their_own_when_queues_come_below_it_and_back() {
    check(
        "node n1 2xh100\nqueue d\nsubmit own d 1 array=0-1\nplan\npass 10m\nqueue d/e guarantee=1\nsubmit e d/e 1\nplan\n\
        cancel e\nplan\nremove d/e\nplan",
        expect![[r#"
            place own_0 n1:0
            place own_1 n1:1
            stop own_1 Reclaimed by e
            promise e n1:1
            drop e Cancelled
        "#]],
    );
}

#[test]
fn models_are_guaranteed_to_the_users_whose_jobs_can_run_on_them() {
    check(
        "node n1 2xh100\nnode n2 2xa100\nqueue q {\"path\": \"q\", \"guarantee\": {\"h100\": {\"finite\": 2000}}, \"users\": {}}\n\
        queue r guarantee=2\nsubmit a q 1 user=ana array=0-1 model=a100\nsubmit b q 1 user=bob array=0-1 model=h100\nplan\npass 1h\n\
        submit r r 2 model=a100\nplan",
        expect![[r#"
            place b_0 n1:0
            place b_1 n1:1
            place a_0 n2:0
            place a_1 n2:1
            stop a_1 Reclaimed by r
            stop a_0 Reclaimed by r
            promise r n2:0+n2:1
        "#]],
    );
}

#[test]
fn a_model_is_divided_among_users_who_ask_for_it_and_those_who_take_any() {
    check(
        "node n1 8xh100\nqueue q {\"path\": \"q\", \"guarantee\": {\"h100\": {\"finite\": 8000}}, \"users\": {}}\n\
        submit a q 1 user=ana array=0-7\nsubmit b q 1 user=bob array=0-7 model=h100\nplan",
        expect![[r#"
            place a_0 n1:0
            place b_0 n1:1
            place b_1 n1:2
            place b_2 n1:3
            place b_3 n1:4
            place a_1 n1:5
            place a_2 n1:6
            place a_3 n1:7
            wait DV-GPUS-BUSY: every GPU that would do is taken
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}
