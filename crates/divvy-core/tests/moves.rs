//! Scenarios of how much jobs and queues may be moved so that others have room in one piece.

mod checker;

use divvy_core::event::Event;
use divvy_core::model::job::Cause;
use divvy_core::scenario::run;
use expect_test::{Expect, expect};

fn check(scenario: &str, expected: Expect) {
    match run(scenario) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

/// Job `a` is moved for `w`; when that has ended, only `a` lies in the way of `v`, which waits for room in one piece.
const AGAIN: &str = "submit a default 1 resumable\nstart a on=n1:0\nsubmit b default 1 resumable\nstart b on=n2:0\n\
    submit w default 2\npass 1h\nplan\nend a signal=15\nplan\nend w\nend b\nsubmit c default 1 fixed\nstart c on=n1:0\n\
    submit z default 0 array=0-1\nsubmit v default 2\npass 30m\nplan\npass 25m\nend z_0\nplan\npass 2h\nend z_1\nplan";

#[test]
fn a_job_is_moved_once_an_hour() {
    check(
        &format!("policy {{half_life: none}}\nnode n1 2xh100\nnode n2 2xh100\n{AGAIN}"),
        expect![[r#"
            stop a Moved by w
            promise a n2:1
            promise w n1:0+n1:1
            ended a pending Moved exit=143
            place a n2:1
            place w n1:0+n1:1
            ended w completed Exit exit=0
            ended b completed Exit exit=0
            place z_0 n1
            place z_1 n1
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            ended z_0 completed Exit exit=0
            ended z_1 completed Exit exit=0
            stop a Moved by v
            promise a n1:1
            promise v n2:0+n2:1
        "#]],
    );
}

#[test]
fn a_job_is_moved_as_often_in_a_period_as_the_policy_says() {
    let policy = "policy {half_life: none, moves: {per_job: 2, every: 3h}}";
    check(
        &format!("{policy}\nnode n1 2xh100\nnode n2 2xh100\n{AGAIN}"),
        expect![[r#"
            stop a Moved by w
            promise a n2:1
            promise w n1:0+n1:1
            ended a pending Moved exit=143
            place a n2:1
            place w n1:0+n1:1
            ended w completed Exit exit=0
            ended b completed Exit exit=0
            stop a Moved by v
            promise a n1:1
            promise v n2:0+n2:1
            place z_0 n1
            place z_1 n1
            ended z_0 completed Exit exit=0
            overdue a/0
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            ended z_1 completed Exit exit=0
        "#]],
    );
    let policy = "policy {half_life: none, moves: {per_job: 1, every: 3h}}";
    check(
        &format!("{policy}\nnode n1 2xh100\nnode n2 2xh100\n{AGAIN}"),
        expect![[r#"
            stop a Moved by w
            promise a n2:1
            promise w n1:0+n1:1
            ended a pending Moved exit=143
            place a n2:1
            place w n1:0+n1:1
            ended w completed Exit exit=0
            ended b completed Exit exit=0
            place z_0 n1
            place z_1 n1
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            ended z_0 completed Exit exit=0
            ended z_1 completed Exit exit=0
        "#]],
    );
    let policy = "policy {half_life: none, moves: {per_job: 0}}";
    check(
        &format!("{policy}\nnode n1 2xh100\nnode n2 2xh100\n{AGAIN}"),
        expect![[r#"
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            ended a failed Signal exit=143
            place w n1:0+n1:1
            ended w completed Exit exit=0
            ended b completed Exit exit=0
            place z_0 n1
            place z_1 n1
            place v n2:0+n2:1
            ended z_0 completed Exit exit=0
            ended z_1 completed Exit exit=0
        "#]],
    );
}

#[test]
fn a_queue_bears_so_many_moves_in_a_cycle_and_others_are_moved_beside_its_jobs() {
    let pool = "node n1 2xh100\nnode n2 2xh100\nnode n3 2xh100\nnode n4 2xh100\nqueue a\nqueue b\n\
        submit j a 1 array=0-1 resumable\nstart j_0 on=n1:0\nstart j_1 on=n2:0\n\
        submit k b 1 array=0-1 resumable\nstart k_0 on=n3:0\nstart k_1 on=n4:0\n\
        submit g default 2 tasks=2\npass 1h\nplan";
    check(
        &format!("policy {{half_life: none}}\n{pool}"),
        expect![[r#"
        stop j_1 Moved by g
        stop j_0 Moved by g
        promise j_1 n3:1
        promise j_0 n4:1
        promise g n1:0+n1:1 n2:0+n2:1
    "#]],
    );
    check(
        &format!("policy {{half_life: none, moves: {{per_queue: 1}}}}\n{pool}"),
        expect![[r#"
            stop k_0 Moved by g
            stop j_0 Moved by g
            promise k_0 n2:1
            promise j_0 n4:1
            promise g n1:0+n1:1 n3:0+n3:1
        "#]],
    );
    check(
        &format!("policy {{half_life: none, moves: {{per_queue: 0}}}}\n{pool}"),
        expect![[r#"
        wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
    "#]],
    );
}

#[test]
fn who_has_no_place_elsewhere_gets_that_of_another_who_has() {
    // Neither node has room beside those who lie there: `b` goes where `a` is, and `a` where `b` was.
    let pool = "node n1 4xh100\nnode n2 2xh100\nsubmit a default 1 resumable\nstart a on=n2:0\n\
        submit b default 2 resumable\nstart b on=n1:0+n1:1\nsubmit w default 3\npass 1h\nplan\n\
        end a signal=15\nend b signal=15\nplan";
    check(
        &format!("policy {{half_life: none}}\n{pool}"),
        expect![[r#"
        stop b Moved by w
        stop a Moved by w
        promise b n2:0+n2:1
        promise a n1:3
        promise w n1:0+n1:1+n1:2
        ended a pending Moved exit=143
        place a n1:3
        ended b pending Moved exit=143
        place b n2:0+n2:1
        place w n1:0+n1:1+n1:2
    "#]],
    );
    check(
        &format!("policy {{half_life: none, most_moves: 1}}\n{pool}"),
        expect![[r#"
        wait DV-GPUS-BUSY: no node has 3 GPUs free that would do
        ended a failed Signal exit=143
        ended b failed Signal exit=143
        place w n1:0+n1:1+n1:2
    "#]],
    );
}

#[test]
fn a_gang_that_may_have_less_is_moved_with_all_that_it_has_or_not_at_all() {
    let pool = "policy {half_life: none}\nnode n1 3xh100\nnode n2 3xh100\nnode n3 2xh100\n\
        submit a default 2 resumable\nstart a on=n1:0+n1:1\nsubmit b default 2 resumable\nstart b on=n2:0+n2:1\n\
        submit e default 1 tasks=1..2 resumable\nstart e on=n3:0,n2:2\n";
    check(
        &format!("{pool}submit w default 2\npass 1h\nplan"),
        expect![[r#"
        stop e Moved by w
        promise e n1:2 n2:2
        promise w n3:0+n3:1
    "#]],
    );
    // Here it could go on with one alone.
    check(
        "policy {half_life: none}\nnode n1 3xh100\nnode n2 3xh100\nnode n3 1xh100\nsubmit e default 2 tasks=1..2 resumable\n\
         start e on=n1:0+n1:1,n2:0+n2:1\nsubmit w default 3\npass 1h\nplan",
        expect![[r#"
            wait DV-GPUS-BUSY: no node has 3 GPUs free that would do
        "#]],
    );
}

#[test]
fn a_shared_gpu_is_free_when_all_have_left_it() {
    check(
        "policy {half_life: none, shares: true}\nnode n1 2xh100\nnode n2 2xh100\nnode n3 2xh100\n\
         submit a default 1 milli=500 resumable\nstart a on=n1:0\nsubmit b default 1 milli=500 resumable\nstart b on=n1:0\n\
         submit c default 1 resumable\nstart c on=n1:1\nsubmit d default 1 array=0-1 fixed\nstart d_0 on=n2:0\nstart d_1 on=n3:0\n\
         submit w default 2\npass 1h\nplan",
        expect![[r#"
            stop c Moved by w
            stop a Moved by w
            stop b Moved by w
            promise c n2:1
            promise a n3:1
            promise b n3:1
            promise w n1:0+n1:1
        "#]],
    );
}

#[test]
fn once_a_job_has_waited_long_enough_another_is_moved_for_it_though_nothing_else_happens() {
    let wait = "node n1 2xh100\nnode n2 2xh100\nsubmit a default 1 resumable\nstart a on=n1:0\n\
        submit b default 1 saves=1h\nstart b on=n2:0\nplan\nsubmit w default 2\nplan";
    check(
        &format!("{wait}\npass 29s\nplan\npass 2s\nplan"),
        expect![[r#"
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            stop a Moved by w
            promise a n2:1
            promise w n1:0+n1:1
        "#]],
    );
    // What stands in the way has run for ten minutes when the other one comes: by then it loses more than that one has waited.
    let runs = "node n1 2xh100\nnode n2 2xh100\nsubmit a default 1\nstart a on=n1:0\nsubmit b default 1\nstart b on=n2:0\npass 10m";
    check(
        &format!("{runs}\nsubmit w default 2\nplan\npass 9m\nplan\npass 2m\nplan"),
        expect![[r#"
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            stop a Moved by w
            promise a n2:1
            promise w n1:0+n1:1
        "#]],
    );
}

#[test]
fn what_one_of_lower_priority_leaves_is_promised_where_nobody_is_moved() {
    check(
        "policy {half_life: none, most_moves: 0}\nnode n1 2xh100\nsubmit l default 2 prio=low\nplan\ncancel l\n\
         submit p default 2\nplan",
        expect![[r#"
            place l n1:0+n1:1
            stop l Cancelled
            promise p n1:0+n1:1
        "#]],
    );
}

/// A gang of a task that takes one device, and one that takes three.
const UNEVEN: &str = r#"submit g default {"name": "g", "queue": "default", "gang": {"branch": {"name": "all", "minimum": 2, "groups": [
    {"role": {"name": "a", "minimum": 1, "maximum": 1, "work": {"external": ["pod"]}, "ask": {"alternatives": [{"devices": {"class": {}, "count": 1, "draw": "whole"}, "speed_percent": 100}]}}},
    {"role": {"name": "b", "minimum": 1, "maximum": 1, "work": {"external": ["pod"]}, "ask": {"alternatives": [{"devices": {"class": {}, "count": 3, "draw": "whole"}, "speed_percent": 100}]}}}]}}}"#;

#[test]
fn for_a_gang_of_unlike_tasks_one_node_is_cleared_where_that_leaves_the_other_to_who_lay_there() {
    let gang = UNEVEN.replace('\n', " ");
    check(
        &format!(
            "policy {{half_life: none}}\nnode n1 4xh100\nnode n2 4xh100\nnode n3 2xh100\nsubmit a default 2 resumable\nstart a on=n1:0+n1:1\n\
            submit b default 2 resumable\nstart b on=n2:0+n2:1\nsubmit c default 2 resumable\nstart c on=n3:0+n3:1\n{gang}\npass 1h\nplan"
        ),
        expect![[r#"
            stop a Moved by g
            promise a n2:2+n2:3
            promise g n1:0 n1:1+n1:2+n1:3
        "#]],
    );
}

#[test]
fn a_job_that_lies_in_the_way_of_two_nodes_moves_alone() {
    check(
        "policy {half_life: none}\nnode n1 4xh100\nnode n2 4xh100\nnode n3 4xh100\nsubmit a default 2 resumable\nstart a on=n1:0+n1:1\n\
         submit b default 1 tasks=2 resumable\nstart b on=n2:0,n3:0\nsubmit w default 4 tasks=2\npass 1h\nplan",
        expect![[r#"
            stop b Moved by w
            promise b n1:2 n1:3
            promise w n2:0+n2:1+n2:2+n2:3 n3:0+n3:1+n3:2+n3:3
        "#]],
    );
}

#[test]
fn for_what_is_guaranteed_a_job_moves_to_idle_devices_of_another_model() {
    let pool = "policy {half_life: none}\nnode n1 6xa100\nnode n2 2xl4\nqueue a guarantee=5\n";
    let runs = "submit f a 1 array=0-1 resumable\nstart f_0 on=n2:0\nstart f_1 on=n2:1\npass 1h\nsubmit b b 1 model=l4\nplan";
    check(
        &format!("{pool}queue b guarantee=1\n{runs}"),
        expect![[r#"
        stop f_1 Moved by b
        promise f_1 n1:0
        promise b n2:1
    "#]],
    );
    // What is merely due is no reason.
    check(
        &format!("{pool}queue b\n{runs}"),
        expect![[r#"
        wait DV-GPUS-BUSY: every GPU that would do is taken
    "#]],
    );
}

#[test]
fn of_a_gang_only_the_task_beyond_its_minimum_that_lies_in_the_way_moves() {
    let pool = "policy {half_life: none, elastic: true}\nnode n1 4xh100\nnode n2 3xh100\n";
    check(
        &format!(
            "{pool}submit e default 2 tasks=1..2 resumable\nstart e on=n1:0+n1:1,n2:0+n2:1\nsubmit w default 3\npass 1h\nplan\n\
            end e/1 signal=15\nplan\npass 1h\nplan"
        ),
        expect![[r#"
            shrink e by n2:0+n2:1 Moved by w
            promise w n2:0+n2:1+n2:2
            promise e to grow n1:2+n1:3
            grow e n1:2+n1:3
            place w n2:0+n2:1+n2:2
        "#]],
    );
    // What the gang needs moves with all of it.
    check(
        &format!(
            "{}submit e default 2 tasks=1..2 resumable\nstart e on=n2:0+n2:1,n1:0+n1:1\nsubmit w default 3 nodes=only:b\npass 1h\nplan",
            pool.replace("3xh100", "3xh100 labels=only:b")
        ),
        expect![[r#"
            stop e Moved by w
            promise e n1:0+n1:1 n1:2+n1:3
            promise w n2:0+n2:1+n2:2
        "#]],
    );
}

/// Of gang `g` the task beyond its minimum moves for `w`; three hours later, all of it would have to move for `z`.
const IN_PART: &str = "node n1 2xh100\nnode n2 2xh100\nnode n3 1xh100\nsubmit g default 1 tasks=1..2 resumable\nstart g on=n1:0,n2:0\n\
    submit f default 1 fixed\nstart f on=n1:1\nsubmit w default 2\npass 1h\nplan\nend g/1 signal=15\nplan\nend w\nend f\nplan\n\
    submit y default 1 fixed\nstart y on=n2:0\nsubmit z default 2\npass 3h\nplan\npass 21h\nplan";

#[test]
fn a_part_of_a_gang_that_moves_counts_as_a_move_of_the_gang() {
    check(
        &format!("policy {{half_life: none, moves: {{per_job: 1, every: 1d}}}}\n{IN_PART}"),
        expect![[r#"
            shrink g by n2:0 Moved by w
            promise w n2:0+n2:1
            promise g to grow n3:0
            grow g n3:0
            place w n2:0+n2:1
            ended w completed Exit exit=0
            ended f completed Exit exit=0
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            stop g Moved by z
            promise g n2:1 n3:0
            promise z n1:0+n1:1
        "#]],
    );
    check(
        &format!("policy {{half_life: none, moves: {{per_job: 2, every: 1d}}}}\n{IN_PART}"),
        expect![[r#"
            shrink g by n2:0 Moved by w
            promise w n2:0+n2:1
            promise g to grow n3:0
            grow g n3:0
            place w n2:0+n2:1
            ended w completed Exit exit=0
            ended f completed Exit exit=0
            stop g Moved by z
            promise g n2:1 n3:0
            promise z n1:0+n1:1
            overdue g/0
            overdue g/1
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
        "#]],
    );
}

#[test]
fn a_gang_of_which_a_part_moved_stays_for_an_hour() {
    let early = IN_PART.replace("pass 3h", "pass 30m").replace("pass 21h", "pass 30m");
    check(
        &format!("policy {{half_life: none}}\n{early}"),
        expect![[r#"
        shrink g by n2:0 Moved by w
        promise w n2:0+n2:1
        promise g to grow n3:0
        grow g n3:0
        place w n2:0+n2:1
        ended w completed Exit exit=0
        ended f completed Exit exit=0
        wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
        stop g Moved by z
        promise g n2:1 n3:0
        promise z n1:0+n1:1
    "#]],
    );
}

/// Two jobs lie in the way of `w`: the newer one is larger, and so it would lose more.
#[test]
fn the_job_that_loses_least_moves_or_the_newest_where_the_policy_says_so() {
    let jobs = "node n1 4xh100\nnode n2 4xh100\nsubmit old default 1 resumable\nstart old on=n1:0\n\
        submit new default 2 resumable\nstart new on=n2:0+n2:1\nsubmit w default 4\npass 1h\nplan";
    check(
        &format!("policy {{half_life: none}}\n{jobs}"),
        expect![[r#"
        stop old Moved by w
        promise old n2:2
        promise w n1:0+n1:1+n1:2+n1:3
    "#]],
    );
    check(
        &format!("policy {{half_life: none, moves: {{first: newest}}}}\n{jobs}"),
        expect![[r#"
        stop new Moved by w
        promise new n1:1+n1:2
        promise w n2:0+n2:1+n2:2+n2:3
    "#]],
    );
}

#[test]
fn for_a_gang_that_grows_what_another_has_beyond_its_need_moves_and_nothing_else() {
    let runs = |least: &str, polite: &str| {
        format!(
            "policy {{half_life: none, elastic: true}}\nnode n1 4xh100\nnode n2 6xh100\n\
            submit e default 1 tasks={least} resumable\nstart e on=n1:0,n2:0\nsubmit x default 2\nstart x on=n1:1+n1:2\n\
            submit g default 3 tasks=1..2{polite}\nstart g on=n2:1+n2:2+n2:3\nsubmit y default 1\nstart y on=n2:4\n\
            pass 1h\nend y\nplan\n"
        )
    };
    check(
        &format!("{}end e/1 signal=15\nplan", runs("1..2", "")),
        expect![[r#"
            ended y completed Exit exit=0
            shrink e by n2:0 Moved by g
            promise e to grow n1:3
            promise g to grow n2:0+n2:4+n2:5
            grow e n1:3
            grow g n2:0+n2:4+n2:5
        "#]],
    );
    // What the other needs stays where it is, and so does all of it where nobody is to move for the gang that grows.
    for (least, polite) in [("2", ""), ("1..2", " polite")] {
        check(
            &runs(least, polite),
            expect![[r#"
            ended y completed Exit exit=0
        "#]],
        );
    }
}

#[test]
fn the_checker_finds_a_part_of_a_gang_that_moves_to_nowhere() {
    let lines = "policy {half_life: none, elastic: true}\nnode n1 3xh100\nsubmit e default 1 tasks=1..3 prio=low\nplan\n\
        submit h default 1 prio=high\nplan";
    let none: [&str; 0] = [];
    assert_eq!(checker::found(lines), none);
    let moves = |event: &mut Event| {
        if let Event::Shrinking { cause, .. } = event {
            *cause = Cause::Moved;
        }
    };
    assert_eq!(checker::found_with(lines, moves), ["L8: job 1 has to move, and has no place to go"]);
}
