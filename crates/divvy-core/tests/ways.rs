//! Jobs that may be served in several ways, in order of preference and with counts of their own, as golden tests: one behaviour
//! each, in words.

use divvy_core::scenario::run;
use expect_test::{Expect, expect};

fn check(scenario: &str, expected: Expect) {
    match run(scenario) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

#[test]
fn of_several_ways_the_first_that_fits_now_is_taken_whatever_packs_better() {
    check(
        "node n1 8xh100\nnode n2 4xl4\nsubmit a default 2 model=h100 or=l4:4\nsubmit b default 4 model=l4 or=h100:2\nplan",
        expect![[r#"
            place a n1:0+n1:1
            place b n2:0+n2:1+n2:2+n2:3
        "#]],
    );
}

#[test]
fn a_later_way_is_taken_where_the_earlier_ones_do_not_fit_now_and_with_its_own_count() {
    check(
        "node n1 2xh100\nnode n2 4xl4\nnode n3 8xa100\nsubmit a default 1 model=h100\nsubmit b default 2 model=h100 or=l4:4,a100:1\n\
        submit c default 2 model=h100 or=l4:4,a100:1\nplan",
        expect![[r#"
            place a n1:0
            place b n2:0+n2:1+n2:2+n2:3
            place c n3:0
        "#]],
    );
}

#[test]
fn who_has_a_later_way_stays_there_when_the_first_becomes_free() {
    check(
        "node n1 2xh100\nnode n2 4xl4\nsubmit a default 1 model=h100\nsubmit b default 2 model=h100 or=l4:4 resumable\nplan\npass 1h\n\
        end a\nplan\npass 1h\nplan",
        expect![[r#"
            place a n1:0
            place b n2:0+n2:1+n2:2+n2:3
            ended a completed Exit exit=0
        "#]],
    );
}

#[test]
fn where_speeds_are_said_the_fastest_goes_first_whatever_is_named_first_and_it_goes_on_there() {
    check(
        "node n1 2xh100\nnode n2 4xl4\nsubmit a default 2 model=h100\nsubmit b default 4 model=l4 or=h100:2 speed=h100:100,l4:40 resumable\n\
        plan\npass 1h\nend a\nplan\nend b signal=15\nplan",
        expect![[r#"
            place a n1:0+n1:1
            place b n2:0+n2:1+n2:2+n2:3
            ended a completed Exit exit=0
            stop b Faster
            promise b n1:0+n1:1
            ended b pending Faster exit=143
            place b n1:0+n1:1
        "#]],
    );
}

#[test]
fn all_tasks_of_a_gang_get_one_way() {
    check(
        "node n1 3xh100\nnode n2 4xl4\nnode n3 4xl4\nsubmit a default 2 tasks=2 model=h100 or=l4:4\nplan",
        expect![[r#"
            place a n2:0+n2:1+n2:2+n2:3 n3:0+n3:1+n3:2+n3:3
        "#]],
    );
}

#[test]
fn in_one_domain_goes_the_way_that_is_preferred_where_any_domain_has_room_for_it() {
    check(
        "node n1 4xl4 rack=r1\nnode n2 4xl4 rack=r1\nnode n3 2xh100 rack=r2\nnode n4 2xh100 rack=r2\nnode n5 2xh100 rack=r3\n\
        submit a default 2 tasks=2 model=h100 or=l4:4 within=rack\nplan\nsubmit b default 2 tasks=2 model=h100 or=l4:4 within=rack\nplan",
        expect![[r#"
            place a n3:0+n3:1 n4:0+n4:1
            place b n1:0+n1:1+n1:2+n1:3 n2:0+n2:1+n2:2+n2:3
        "#]],
    );
}

#[test]
fn near_its_like_goes_the_way_that_is_preferred_where_any_place_has_room_for_it() {
    check(
        "node n1 4xl4\nnode n2 8xh100\nsubmit a default 2 tasks=2 model=h100 or=l4:1 labels=app:a near=app:a@node\nplan",
        expect![[r#"
            place a n2:0+n2:1 n2:2+n2:3
        "#]],
    );
}

#[test]
fn a_limit_of_the_queue_is_kept_by_what_each_way_takes() {
    check(
        "node n1 8xh100\nnode n2 8xl4\nqueue x limit=3\nqueue y h100=1\nsubmit a x 4 model=l4 or=h100:2\nsubmit b x 2 model=h100 or=l4:1\n\
        submit c x 2 model=l4 or=h100:4\nsubmit d y 2 model=h100 or=l4:4\nplan\nexplain c",
        expect![[r#"
            place d n2:0+n2:1+n2:2+n2:3
            place a n1:0+n1:1
            place b n2:4
            wait DV-QUEUE-LIMIT: queue x is at its limit of 3 GPUs
            later
              DV-QUEUE-LIMIT queue x is at its limit of 3 GPUs | wait for jobs of x to end, or raise its limit of any above 3 (this job asks for 2)
              16 in pool > 16 right model > 16 enough memory > 16 healthy > 9 free > 9 on one node
        "#]],
    );
}

#[test]
fn a_budget_that_is_used_up_keeps_all_ways_back() {
    check(
        "node n1 2xh100\nnode n2 4xl4\nqueue x {\"path\": \"x\", \"budget\": {\"milli_gpu_hours\": 1000, \"every\": \"day\"}}\nsubmit a x 2 model=h100\nplan\npass 40m\nplan\nend a\nsubmit b x 2 model=h100 or=l4:4\nplan",
        expect![[r#"
            place a n1:0+n1:1
            ended a completed Exit exit=0
            wait DV-OVER-BUDGET: queue x has used its budget of 1 GPU-hour; it has more from 1970-01-02 00:00 UTC on
        "#]],
    );
}

#[test]
fn who_is_not_preemptible_has_the_way_that_is_guaranteed_to_its_queue() {
    check(
        "node n1 8xh100\nnode n2 8xl4\nqueue x guarantee=2\nqueue y guarantee=8\nsubmit a x 4 model=l4 or=h100:2 fixed\nsubmit b x 4 model=l4 or=h100:2 fixed\nplan",
        expect![[r#"
            place a n1:0+n1:1
            wait DV-OVER-QUOTA: is not preemptible, and queue x is guaranteed 2 GPUs for such jobs
        "#]],
    );
}

#[test]
fn a_queue_takes_back_by_the_way_that_is_due_to_it() {
    check(
        "node n1 2xh100\nnode n2 4xl4\nqueue x guarantee=4\nqueue y guarantee=2\nsubmit l y 4 model=l4\nsubmit h y 2 model=h100\nplan\n\
        pass 1h\nsubmit a x 8 model=h100 or=l4:4\nplan",
        expect![[r#"
            place l n2:0+n2:1+n2:2+n2:3
            place h n1:0+n1:1
            stop l Reclaimed by a
            promise a n2:0+n2:1+n2:2+n2:3
        "#]],
    );
}

#[test]
fn others_give_way_for_the_first_way_for_which_they_may() {
    check(
        "node n1 2xh100\nnode n2 4xl4\nsubmit h default 2 model=h100 prio=high\nsubmit l default 4 model=l4\nplan\n\
        pass 1h\nsubmit a default 2 model=h100 or=l4:4 prio=high\nplan",
        expect![[r#"
            place h n1:0+n1:1
            place l n2:0+n2:1+n2:2+n2:3
            stop l Preempted by a
            promise a n2:0+n2:1+n2:2+n2:3
        "#]],
    );
}

/// A gang of roles of one task each that take as many of the one model or of the other, in this order.
fn choosy(name: &str, queue: &str, counts: &[u32], preemptible: bool) -> String {
    let way = |model: &str, count: u32| {
        format!(
            r#"{{"devices": {{"class": {{"models": ["{model}"]}}, "count": {count}, "draw": "whole"}}, "speed_percent": 100}}"#
        )
    };
    let role = |(place, count): (usize, &u32)| {
        let ways = format!("{}, {}", way("h100", *count), way("l4", *count));
        format!(
            r#"{{"role": {{"name": "r{place}", "minimum": 1, "maximum": 1, "work": {{"external": ["pod"]}}, "ask": {{"alternatives": [{ways}]}}}}}}"#
        )
    };
    let groups: Vec<String> = counts.iter().enumerate().map(role).collect();
    format!(
        r#"submit {name} {queue} {{"name": "{name}", "queue": "{queue}", "preemptible": {preemptible}, "gang": {{"branch": {{"name": "all", "minimum": {}, "groups": [{}]}}}}}}"#,
        groups.len(),
        groups.join(", ")
    )
}

/// A queue that may have two devices of one model and four of another, and one that lends it nothing.
const APART: &str = "policy {half_life: none}\nnode n1 4xh100\nnode n2 4xl4\n\
    queue a {\"path\": \"a\", \"guarantee\": {\"h100\": {\"finite\": 2000}, \"l4\": {\"finite\": 4000}}, \"lend\": {\"h100\": {\"finite\": 0}}}\n\
    queue b {\"path\": \"b\", \"guarantee\": {\"h100\": {\"finite\": 2000}}, \"lend\": {\"h100\": {\"finite\": 0}}}\n";

#[test]
fn roles_of_a_gang_are_served_in_different_ways_where_their_queue_may_not_have_all_in_one() {
    check(
        &format!("{APART}{}\nplan", choosy("g", "a", &[2, 4], true)),
        expect![[r#"
        place g n1:0+n1:1 n2:0+n2:1+n2:2+n2:3
    "#]],
    );
    // The first goes without what it prefers, since the second has no place by its other way.
    check(
        &format!("{APART}submit x b 3 model=l4\nplan\n{}\nplan", choosy("g", "a", &[1, 2], true)),
        expect![[r#"
            place x n2:0+n2:1+n2:2
            place g n2:3 n1:0+n1:1
        "#]],
    );
    check(
        &format!("{APART}{}\nplan", choosy("g", "a", &[4, 4], true)),
        expect![[r#"
        wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
    "#]],
    );
}

#[test]
fn who_is_not_preemptible_has_its_roles_by_different_ways_that_are_guaranteed_together() {
    check(
        &format!(
            "{APART}{}\nplan\n{}\nplan",
            choosy("g", "a", &[2, 4], false),
            choosy("h", "a", &[1, 1], false)
        ),
        expect![[r#"
            place g n1:0+n1:1 n2:0+n2:1+n2:2+n2:3
            wait DV-OVER-QUOTA: is not preemptible, and queue a is guaranteed 6 GPUs for such jobs
        "#]],
    );
}

#[test]
fn others_give_way_for_roles_that_are_served_in_different_ways() {
    check(
        &format!("{APART}submit x b 3 model=l4\nplan\npass 1h\n{}\nplan", choosy("g", "a", &[2, 4], true)),
        expect![[r#"
            place x n2:0+n2:1+n2:2
            stop x Reclaimed by g
            promise g n1:0+n1:1 n2:0+n2:1+n2:2+n2:3
        "#]],
    );
}

#[test]
fn jobs_with_other_counts_are_no_class_of_their_own_likes() {
    check(
        "node n1 2xh100\nnode n2 4xl4\nsubmit h default 2 model=h100\nsubmit l default 1 model=l4\nplan\n\
        submit a default 2 model=h100 or=l4:4\nsubmit b default 2 model=h100 or=l4:3\nplan\nexplain a",
        expect![[r#"
            place h n1:0+n1:1
            place l n2:0
            place b n2:1+n2:2+n2:3
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            later
              DV-GPUS-BUSY no node has 2 GPUs free that would do | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              6 in pool > 6 right model > 6 enough memory > 6 healthy > 0 free > 0 on one node
        "#]],
    );
}

#[test]
fn room_is_kept_for_the_way_that_is_free_first() {
    check(
        "policy {reserve: 1}\nnode n1 2xh100\nnode n2 4xl4\nsubmit h default 2 model=h100 limit=3h\nsubmit l default 2 model=l4 limit=1h\nplan\n\
        submit a default 2 model=h100 or=l4:4\nsubmit b default 2 model=l4 limit=2h\nsubmit c default 2 model=l4 limit=30m\nplan\npass 1h\nend l\nend c\nplan",
        expect![[r#"
            place h n1:0+n1:1
            place l n2:0+n2:1
            place c n2:2+n2:3
            wait DV-RESERVED: what is free is kept for job 3, which is before it in line
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            ended l completed Exit exit=0
            ended c completed Exit exit=0
            place a n2:0+n2:1+n2:2+n2:3
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
        "#]],
    );
}

#[test]
fn what_no_way_could_ever_have_is_refused_and_what_one_could_is_not() {
    check(
        "node n1 2xh100\nnode n2 2xl4\nsubmit a default 4 model=h100 or=l4:4\nsubmit b default 4 model=h100 or=l4:2\nplan",
        expect![[r#"
            refused cannot-fit: this pool can never run it: asks for 4 GPUs on one node; the largest node has 2 of them. The pool has 2 h100 (80GB), 2 l4 (80GB).
            place b n2:0+n2:1
        "#]],
    );
}

#[test]
fn in_a_strict_order_nobody_waits_for_one_whose_ways_are_beyond_the_pool_or_the_limit_of_its_queue() {
    check(
        "policy {strict: true}\nnode n1 3xh100\nnode n2 4xa100\nnode n3 4xa100\nqueue x limit=5\nqueue y\n\
        submit a x 2 tasks=2 model=h100 or=a100:3 prio=high\nsubmit b y 1\nplan",
        expect![[r#"
            place b n1:0
            wait DV-QUEUE-LIMIT: queue x has a limit of 5 GPUs, and it asks for 6
        "#]],
    );
}

#[test]
fn by_the_walk_two_jobs_that_hold_more_than_they_asked_for_first_do_not_take_each_others_places() {
    check(
        "policy {preempt: walk, share: none, cool_down: none}\nnode n1 4xa100\nsubmit x default 2 model=h100 prio=high wait\n\
        submit a default 2 model=h100 or=a100:3\nsubmit b default 2 model=h100 or=a100:3\nplan\npass 1h\nplan\npass 1h\nplan",
        expect![[r#"
            place a n1:0+n1:1+n1:2
            wait DV-NO-SUCH-MODEL: the pool has no GPU like h100
            wait DV-GPUS-BUSY: no node has 3 GPUs free that would do
        "#]],
    );
}

#[test]
fn a_gang_grows_by_the_way_that_it_has() {
    check(
        "policy {elastic: true}\nnode n1 2xh100\nnode n2 8xl4\nsubmit h default 2 model=h100\nsubmit a default 2 model=h100 or=l4:4 tasks=1..2\nplan",
        expect![[r#"
            place h n1:0+n1:1
            place a n2:0+n2:1+n2:2+n2:3
            grow a n2:4+n2:5+n2:6+n2:7
        "#]],
    );
}

#[test]
fn ways_that_say_nothing_sensible_are_refused_with_what_is_wrong() {
    for (words, wrong) in [
        ("2 model=h100 or=h100:1", "the same GPUs could serve"),
        ("2 model=h100 or=4", "the same GPUs could serve"),
        ("2 model=h100 or=l4:0", "0 GPUs per task cannot be"),
        ("2 model=h100 or=l4:x", "out of place"),
        ("1 milli=500 model=h100 or=l4:4", "whole GPUs"),
        ("0 or=l4:4", "whole GPUs"),
        ("2 model=h100 or=l4:4 speed=h100:100", "how fast l4 is"),
    ] {
        let told = run(&format!("node n1 1xh100\nsubmit a default {words}")).unwrap_err().to_string();
        assert!(told.contains(wrong), "{words}: {told}");
    }
}
