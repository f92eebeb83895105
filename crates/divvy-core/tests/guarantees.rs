//! Scenarios of guarantees in a tree of queues: no job waits for what is guaranteed to it longer than it takes to stop others.

#![allow(clippy::unwrap_used, reason = "what a test's own functions can't set up has failed the test")]

use divvy_core::id::JobId;
use divvy_core::scenario::{Scenario, run};
use expect_test::{Expect, expect};
use proptest::prelude::*;

/// Two labs of a tree, each with its own part, and another tree beside them.
const TREE: &str = r#"policy {share: fill, preempt: least_loss, cool_down: none}
queue o guarantee=5
queue o/lab guarantee=3
queue o/lab/a guarantee=1
queue o/lab/b guarantee=2
queue o/other guarantee=2
queue p guarantee=3
"#;

fn check(scenario: &str, expected: Expect) {
    check_alone(&format!("{TREE}{scenario}"), expected);
}

fn check_alone(scenario: &str, expected: Expect) {
    match run(scenario) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

#[test]
fn a_small_job_with_room_in_the_guarantee_goes_before_the_larger_one_of_a_sibling_that_nobody_owes_anything()
{
    check(
        "node n1 8xh100\nsubmit fill p 1 array=0-2\nplan\nsubmit large o/lab/b 4\nsubmit beyond o/lab/a 5\nsubmit owed o/lab/b 2\nplan",
        expect![[r#"
            place fill_0 n1:0
            place fill_1 n1:1
            place fill_2 n1:2
            place owed n1:3+n1:4
            wait DV-GPUS-BUSY: no node has 5 GPUs free that would do
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
        "#]],
    );
}

#[test]
fn a_sibling_that_has_too_much_gives_back_first_and_then_those_beyond_it_do() {
    check(
        "policy {share: fill, preempt: least_loss, cool_down: none, most_moves: 0}\nqueue o/lab guarantee=3 weight=0\nnode n1 2xh100\nnode n2 2xh100\nnode n3 2xh100\n\
        submit c1 o/other 1\nsubmit a1 o/lab/a 1\nplan\nsubmit c2 o/other 1\nplan\nsubmit a2 o/lab/a 1\nplan\n\
        submit c3 o/other 1\nplan\nsubmit a3 o/lab/a 1\nplan\npass 1h\nsubmit b0 o/lab/b 2\nplan",
        expect![[r#"
            place a1 n1:0
            place c1 n1:1
            place c2 n2:0
            place a2 n2:1
            place c3 n3:0
            place a3 n3:1
            stop a1 Reclaimed by b0
            stop a2 Reclaimed by b0
            stop c2 Reclaimed by b0
            promise b0 n2:0+n2:1
        "#]],
    );
}

#[test]
fn for_what_is_guaranteed_another_moves_at_once() {
    check(
        "node n1 2xh100\nnode n2 2xh100\nsubmit x0 p 1 array=0-3\nplan\nend x0_0\nend x0_2\nsubmit b0 o/lab/b 2\nplan",
        expect![[r#"
            place x0_0 n1:0
            place x0_1 n1:1
            place x0_2 n2:0
            place x0_3 n2:1
            ended x0_0 completed Exit exit=0
            ended x0_2 completed Exit exit=0
            stop x0_1 Moved by b0
            promise x0_1 n2:0
            promise b0 n1:0+n1:1
        "#]],
    );
}

#[test]
fn who_stands_first_is_passed_by_nobody_where_what_is_guaranteed_has_room_for_one_of_his_alternatives() {
    check(
        "policy {share: fill, preempt: least_loss, order: shortest, reserve: 0, most_moves: 0, starve_after: none, cool_down: none}
node n1 2xh100
node n2 8xa100
queue a guarantee=2
queue b guarantee=8
submit b b 4 array=0-3 model=a100
plan
submit first a 8 model=a100 or=h100:2 estimate=1h
submit second a 2 model=h100 estimate=2h
plan
pass 1m
plan",
        expect![[r#"
            place b_0 n2:0+n2:1+n2:2+n2:3
            place b_1 n2:4+n2:5+n2:6+n2:7
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
            place first n1:0+n1:1
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
        "#]],
    );
}

#[test]
fn what_a_queue_keeps_for_itself_counts_as_taken_in_the_queue_above_it() {
    // What lab/y runs on is guaranteed to prod: the part of lab is kept for lab/urgent.
    checked(
        "node n1 8xh100\nqueue lab\nqueue lab/urgent guarantee=4 lend=0\nqueue lab/y\nqueue prod guarantee=4\nsubmit y lab/y 1 array=0-9\nplan\nsubmit p prod 1 array=0-3\nplan\nend y_0\nend y_1\nend y_2\nend y_3\nplan\nsubmit u lab/urgent 1 array=0-9\nplan",
        expect![[r#"
            place y_0 n1:0
            place y_1 n1:1
            place y_2 n1:2
            place y_3 n1:3
            wait DV-NOT-LENT: queue lab/y would have to borrow, and the others lend 0 more GPUs
            stop y_3 Reclaimed by p_0
            stop y_2 Reclaimed by p_1
            stop y_1 Reclaimed by p_2
            stop y_0 Reclaimed by p_3
            promise p_0 n1:4
            promise p_1 n1:3
            promise p_2 n1:2
            promise p_3 n1:1
            ended y_0 pending Reclaimed exit=0
            ended y_1 pending Reclaimed exit=0
            place p_3 n1:1
            ended y_2 pending Reclaimed exit=0
            place p_2 n1:2
            ended y_3 pending Reclaimed exit=0
            place p_0 n1:4
            place p_1 n1:3
            place u_0 n1:0
            place u_1 n1:5
            place u_2 n1:6
            place u_3 n1:7
            wait DV-GPUS-BUSY: every GPU that would do is taken
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn nothing_of_what_is_kept_in_a_queue_is_due_to_its_other_queues() {
    checked(
        "node n1 8xh100\nqueue lab\nqueue lab/x guarantee=4 lend=0\nqueue lab/y guarantee=2\nqueue c\nsubmit x lab/x 1\nsubmit y lab/y 1 array=0-9\nplan\nsubmit c c 1 array=0-9\nplan",
        expect![[r#"
            place x n1:0
            place y_0 n1:1
            place y_1 n1:2
            place y_2 n1:3
            place y_3 n1:4
            wait DV-NOT-LENT: queue lab/y would have to borrow, and the others lend 0 more GPUs
            stop y_3 Reclaimed by c_0
            promise c_0 n1:5
            wait DV-NOT-LENT: queue c would have to borrow, and the others lend 0 more GPUs
        "#]],
    );
}

#[test]
fn nodes_that_are_kept_for_a_queue_count_as_taken_in_the_queue_above_it() {
    checked(
        "node n1 8xh100\nnode n2 8xh100 labels=tier:lab\nqueue lab\nqueue lab/x nodes=tier:lab\nqueue lab/y\nqueue c guarantee=6\nsubmit y lab/y 1 array=0-9\nplan\nsubmit c c 1 array=0-9\nplan",
        expect![[r#"
            place y_0 n1:0
            place y_1 n1:1
            place y_2 n1:2
            place y_3 n1:3
            place y_4 n1:4
            place y_5 n1:5
            place y_6 n1:6
            place y_7 n1:7
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop y_7 Reclaimed by c_0
            stop y_6 Reclaimed by c_1
            stop y_5 Reclaimed by c_2
            stop y_4 Reclaimed by c_3
            stop y_3 Reclaimed by c_4
            stop y_2 Reclaimed by c_5
            stop y_1 Reclaimed by c_6
            promise c_0 n1:7
            promise c_1 n1:6
            promise c_2 n1:5
            promise c_3 n1:4
            promise c_4 n1:3
            promise c_5 n1:2
            promise c_6 n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

/// Without the tree.
fn checked(scenario: &str, expected: Expect) {
    match run(&format!("policy {{share: fill, preempt: least_loss, cool_down: none}}\n{scenario}")) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

/// A queue of a random tree: its place, what is guaranteed to it, what it lends of that if it says so, its weight, and how many jobs of one
/// GPU are submitted to it.
type Asks = (&'static str, i64, Option<i64>, u32, u32);

fn queues() -> impl Strategy<Value = Vec<Asks>> {
    let of = |path: &'static str| (Just(path), 0i64..4, proptest::option::of(0i64..3), 0u32..3, 0u32..7);
    (of("a/x"), of("a/y"), of("b"), of("c/x"), of("d")).prop_map(|(a, b, c, d, e)| vec![a, b, c, d, e])
}

/// Submits the jobs, queue by queue, each time until the pool is at rest.
fn at_rest(pool: &mut Scenario, queues: &[Asks]) {
    for (number, (path, _, _, _, jobs)) in queues.iter().enumerate() {
        (0..*jobs).for_each(|job| pool.line(&format!("submit j{number}-{job} {path} 1")).unwrap());
        settle(pool);
    }
}

/// Lets all that are told to stop end, until the pool is at rest.
fn settle(pool: &mut Scenario) {
    pool.line("plan").unwrap();
    for _ in 0..20 {
        let stops = |number: &u64| {
            let run = pool.state().run(JobId::single(*number));
            run.is_some_and(|run| run.stopping.is_some())
        };
        let stopping: Vec<String> =
            pool.jobs().filter(|(_, number)| stops(number)).map(|(name, _)| name.to_owned()).collect();
        if stopping.is_empty() {
            break;
        }
        stopping.iter().for_each(|name| pool.line(&format!("end {name}")).unwrap());
        pool.line("plan").unwrap();
    }
}

proptest! {
    #[test]
    fn every_queue_has_what_is_guaranteed_to_it_whatever_others_keep(queues in queues(), above: bool) {
        let guaranteed: i64 = queues.iter().map(|(_, guarantee, ..)| guarantee).sum();
        let mut pool = Scenario::new();
        pool.line("policy {share: fill, preempt: least_loss, cool_down: none, half_life: none}").unwrap();
        pool.line(&format!("node n1 {}xh100", guaranteed.max(8))).unwrap();
        if above {
            pool.line("queue a").unwrap();
            pool.line("queue c weight=2").unwrap();
        }
        for (path, guarantee, lend, weight, _) in &queues {
            let lend = lend.map(|lend| format!(" lend={}", lend.min(*guarantee))).unwrap_or_default();
            pool.line(&format!("queue {path} guarantee={guarantee} weight={weight}{lend}")).unwrap();
        }
        at_rest(&mut pool, &queues);
        for (number, (path, guarantee, _, _, jobs)) in queues.iter().enumerate() {
            let own = format!("j{number}-");
            let runs = |number: u64| pool.state().run(JobId::single(number)).is_some_and(|run| run.is_active());
            let running = pool.jobs().filter(|(name, number)| name.starts_with(&own) && runs(*number)).count();
            prop_assert!(running as i64 >= (*guarantee).min(i64::from(*jobs)), "{path}: {running}\n{}", pool.printed());
        }
    }
}

/// A pool of eight GPUs that a borrower has, and what is submitted by others then.
fn borrowed(queues: &str, jobs: &str) -> String {
    format!(
        "{queues}\nqueue x\nnode n1 8xh100\nsubmit x x 8 resumable\nplan\n{jobs}\npass 1h\nplan\nend x signal=15\nplan"
    )
}

#[test]
fn a_guarantee_whose_parts_are_smaller_than_the_jobs_below_it_is_had_by_the_first_of_them() {
    let queues = "queue r guarantee=8\nqueue r/v guarantee=4\nqueue r/n guarantee=4";
    check_alone(
        &borrowed(queues, "submit a r/v 8\nsubmit b r/n 8"),
        expect![[r#"
        place x n1:0+n1:1+n1:2+n1:3+n1:4+n1:5+n1:6+n1:7
        stop x Reclaimed by a
        promise a n1:0+n1:1+n1:2+n1:3+n1:4+n1:5+n1:6+n1:7
        wait DV-GPUS-BUSY: no node has 8 GPUs free that would do
        ended x pending Reclaimed exit=143
        place a n1:0+n1:1+n1:2+n1:3+n1:4+n1:5+n1:6+n1:7
        wait DV-GPUS-BUSY: no node has 8 GPUs free that would do
    "#]],
    );
    let users = r#"queue r {"path": "r", "guarantee": {"any": {"finite": 8000}}, "users": {}}"#;
    check_alone(
        &borrowed(users, "submit a r 8 user=ana\nsubmit b r 8 user=bob"),
        expect![[r#"
        place x n1:0+n1:1+n1:2+n1:3+n1:4+n1:5+n1:6+n1:7
        stop x Reclaimed by a
        promise a n1:0+n1:1+n1:2+n1:3+n1:4+n1:5+n1:6+n1:7
        wait DV-GPUS-BUSY: no node has 8 GPUs free that would do
        ended x pending Reclaimed exit=143
        place a n1:0+n1:1+n1:2+n1:3+n1:4+n1:5+n1:6+n1:7
        wait DV-GPUS-BUSY: no node has 8 GPUs free that would do
    "#]],
    );
}

#[test]
fn what_is_due_to_a_queue_whose_parts_are_smaller_than_the_jobs_below_it_is_had_by_the_first_of_them() {
    let queues = "policy {half_life: none}\nqueue r\nqueue r/v\nqueue r/n\nqueue x\nnode n1 8xh100\nsubmit x x 1 resumable array=0-7\nplan";
    check_alone(
        &format!("{queues}\nsubmit a r/v 4\nsubmit b r/n 4\npass 1h\nplan"),
        expect![[r#"
            place x_0 n1:0
            place x_1 n1:1
            place x_2 n1:2
            place x_3 n1:3
            place x_4 n1:4
            place x_5 n1:5
            place x_6 n1:6
            place x_7 n1:7
            stop x_7 Reclaimed by a
            stop x_6 Reclaimed by a
            stop x_5 Reclaimed by a
            stop x_4 Reclaimed by a
            promise a n1:4+n1:5+n1:6+n1:7
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
        "#]],
    );
}

#[test]
fn siblings_have_what_one_leaves_of_a_guarantee_until_it_can_have_its_part() {
    let queues = "queue r guarantee=8\nqueue r/v\nqueue r/n\nqueue x\nnode n1 8xh100\nsubmit x x 1 resumable array=0-7\nplan";
    check_alone(
        &format!(
            "{queues}\nsubmit b r/n 8\nsubmit a r/v 1 array=0-5 resumable\npass 1h\nplan\nend x_2 signal=15\nend x_3 signal=15\n\
            end x_4 signal=15\nend x_5 signal=15\nend x_6 signal=15\nend x_7 signal=15\nplan\npass 1h\nsubmit c r/n 1 array=0-3\nplan"
        ),
        expect![[r#"
            place x_0 n1:0
            place x_1 n1:1
            place x_2 n1:2
            place x_3 n1:3
            place x_4 n1:4
            place x_5 n1:5
            place x_6 n1:6
            place x_7 n1:7
            stop x_7 Reclaimed by a_0
            stop x_6 Reclaimed by a_1
            stop x_5 Reclaimed by a_2
            stop x_4 Reclaimed by a_3
            stop x_3 Reclaimed by a_4
            stop x_2 Reclaimed by a_5
            promise a_0 n1:7
            promise a_1 n1:6
            promise a_2 n1:5
            promise a_3 n1:4
            promise a_4 n1:3
            promise a_5 n1:2
            wait DV-GPUS-BUSY: no node has 8 GPUs free that would do
            ended x_2 pending Reclaimed exit=143
            place a_5 n1:2
            ended x_3 pending Reclaimed exit=143
            place a_4 n1:3
            ended x_4 pending Reclaimed exit=143
            place a_3 n1:4
            ended x_5 pending Reclaimed exit=143
            place a_2 n1:5
            ended x_6 pending Reclaimed exit=143
            place a_1 n1:6
            ended x_7 pending Reclaimed exit=143
            place a_0 n1:7
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop a_5 Reclaimed by c_0
            stop a_4 Reclaimed by c_1
            stop a_3 Reclaimed by c_2
            stop a_2 Reclaimed by c_3
            promise c_0 n1:2
            promise c_1 n1:3
            promise c_2 n1:4
            promise c_3 n1:5
        "#]],
    );
}

proptest! {
    #[test]
    fn no_job_waits_that_has_room_in_what_is_guaranteed_above_it(
        guarantee in 1..9i64,
        sizes in prop::collection::vec((0..3usize, 1..6i64), 1..8),
        by_users: bool,
    ) {
        let mut pool = Scenario::new();
        pool.line("policy {share: fill, preempt: least_loss, cool_down: none, half_life: none}").unwrap();
        let milli = guarantee * 1000;
        let queue = match by_users {
            true => format!(r#"queue r {{"path": "r", "guarantee": {{"any": {{"finite": {milli}}}}}, "users": {{}}}}"#),
            false => format!("queue r guarantee={guarantee}\nqueue r/a\nqueue r/b\nqueue r/c"),
        };
        queue.lines().chain(["queue x", "node n1 8xh100"]).for_each(|line| pool.line(line).unwrap());
        (0..8).for_each(|number| pool.line(&format!("submit x{number} x 1")).unwrap());
        pool.line("plan").unwrap();
        for (number, (below, size)) in sizes.iter().enumerate() {
            let whose = ["a", "b", "c"][*below];
            let queue = if by_users { format!("r {size} user={whose}") } else { format!("r/{whose} {size}") };
            pool.line(&format!("submit j{number} {queue}")).unwrap();
        }
        settle(&mut pool);
        let milli_of = |name: &str, number: u64| {
            let run = pool.state().run(JobId::single(number))?;
            let size = sizes.get(name.strip_prefix('j')?.parse::<usize>().ok()?)?.1;
            Some((run.is_active(), size))
        };
        let all: Vec<(bool, i64)> = pool.jobs().filter_map(|(name, number)| milli_of(name, number)).collect();
        let held: i64 = all.iter().filter(|(runs, _)| *runs).map(|(_, size)| size).sum();
        let waits = all.iter().filter(|(runs, _)| !runs).map(|(_, size)| *size).min();
        prop_assert!(waits.is_none_or(|least| held + least > guarantee), "{held} of {guarantee}\n{}", pool.printed());
    }
}

/// Of ten GPUs two are guaranteed to each of `a` and `b`, and four and six are due: `big`, with eight, holds what is due to both.
#[test]
fn a_job_that_straddles_a_guarantee_goes_for_what_is_due_only_where_the_policy_says_so() {
    let jobs = "node n1 10xh100\nqueue a guarantee=2\nqueue b guarantee=2 weight=2\nsubmit big a 8\nplan\npass 1h\n\
        submit wide b 6\nplan\nend big signal=15\nplan\nplan";
    check(
        &format!("policy {{half_life: none, reserve: 0}}\n{jobs}"),
        expect![[r#"
        place big n1:0+n1:1+n1:2+n1:3+n1:4+n1:5+n1:6+n1:7
        wait DV-GPUS-BUSY: no node has 6 GPUs free that would do
        ended big failed Signal exit=143
        place wide n1:0+n1:1+n1:2+n1:3+n1:4+n1:5
    "#]],
    );
    check(
        &format!("policy {{half_life: none, reserve: 0, straddling: due}}\n{jobs}"),
        expect![[r#"
        place big n1:0+n1:1+n1:2+n1:3+n1:4+n1:5+n1:6+n1:7
        stop big Reclaimed by wide
        promise wide n1:0+n1:1+n1:2+n1:3+n1:4+n1:5
        ended big pending Reclaimed exit=143
        place wide n1:0+n1:1+n1:2+n1:3+n1:4+n1:5
        wait DV-GPUS-BUSY: no node has 8 GPUs free that would do
    "#]],
    );
}
