//! How much of its guarantee each queue lends, and that what is lent is what others have borrowed of it.
#![allow(clippy::unwrap_used, reason = "what a test's own functions can't set up has failed the test")]

mod checker;

use std::collections::BTreeMap;

use divvy_core::amount::{Holdings, Resource};
use divvy_core::plan::{Entitlement, entitlements};
use divvy_core::scenario::Scenario;
use proptest::prelude::*;

const NOTHING_GIVES_WAY: &str = "policy {share: fill, preempt: off, starve_after: none, half_life: none}";

fn scene(lines: &[String]) -> Result<Scenario, String> {
    let mut scenario = Scenario::new();
    scenario.line(NOTHING_GIVES_WAY)?;
    lines.iter().try_for_each(|line| scenario.line(line))?;
    Ok(scenario)
}

/// What queues lend, those that lend anything: `a 4, b 2`; or what is wrong with the scenario.
fn lent(lines: &str) -> String {
    let scenario = match scene(&lines.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>()) {
        Ok(scenario) => scenario,
        Err(bad) => return bad,
    };
    let entitled = entitlements(scenario.state(), scenario.snapshot());
    let lends = entitled.iter().filter(|(_, entitled)| entitled.lent_milli != 0);
    let text = lends.map(|(queue, entitled)| format!("{queue} {}", entitled.lent_milli / 1000));
    text.collect::<Vec<_>>().join(", ")
}

#[test]
fn a_queue_lends_what_others_hold_of_what_is_guaranteed_to_it() {
    let pool = "node n1 8xh100\nqueue a guarantee=4\nqueue b guarantee=4";
    assert_eq!(lent(&format!("{pool}\nsubmit j b 3\nplan")), "");
    assert_eq!(lent(&format!("{pool}\nsubmit j b 6\nplan")), "a 2");
    assert_eq!(lent(&format!("{pool}\nsubmit i a 1\nsubmit j b 7\nplan")), "a 3");
}

#[test]
fn what_is_guaranteed_to_nobody_is_used_before_anything_is_lent() {
    let pool = "node n1 8xh100\nqueue a guarantee=2\nqueue b guarantee=2";
    assert_eq!(lent(&format!("{pool}\nsubmit j b 6\nplan")), "");
    assert_eq!(lent(&format!("{pool}\nsubmit j b 7\nplan")), "a 1");
}

#[test]
fn those_who_lend_together_lend_by_what_they_have_idle() {
    let pool = "node n1 8xh100\nqueue a guarantee=4\nqueue b guarantee=2\nqueue c";
    assert_eq!(lent(&format!("{pool}\nsubmit j c 5\nplan")), "a 2, b 1");
    assert_eq!(lent(&format!("{pool}\nsubmit j c 8\nplan")), "a 4, b 2");
}

#[test]
fn inside_a_queue_siblings_lend_to_each_other_and_to_those_outside() {
    let pool = "node n1 8xh100\nqueue lab guarantee=6\nqueue lab/v guarantee=3\nqueue lab/s guarantee=2\nqueue other guarantee=2";
    // One of lab's own is nobody's below it, and the first to go.
    assert_eq!(lent(&format!("{pool}\nsubmit j lab/s 3\nplan")), "");
    assert_eq!(lent(&format!("{pool}\nsubmit j lab/s 4\nplan")), "lab/v 1");
    assert_eq!(lent(&format!("{pool}\nsubmit i lab/s 3\nsubmit j other 4\nplan")), "lab 2, lab/v 2");
    assert_eq!(lent(&format!("{pool}\nsubmit j lab/s 8\nplan")), "lab/v 3, other 2");
}

#[test]
fn who_keeps_its_guarantee_for_itself_lends_nothing() {
    let pool = "node n1 8xh100\nqueue a guarantee=4 lend=0\nqueue b guarantee=2\nqueue c";
    assert_eq!(lent(&format!("{pool}\nsubmit j c 4\nplan")), "b 2");
    // What others held already when it began to keep it, it lends as long as they do.
    let before = "node n1 8xh100\nqueue a guarantee=4\nqueue b guarantee=2\nqueue c";
    assert_eq!(lent(&format!("{before}\nsubmit j c 8\nplan\nqueue a guarantee=4 lend=0")), "a 4, b 2");
}

#[test]
fn without_guarantees_nothing_is_lent() {
    assert_eq!(lent("node n1 8xh100\nqueue a\nqueue b\nsubmit j b 8\nplan"), "");
}

/// The queues of a tree with two levels, and jobs that start in some order.
fn pool() -> impl Strategy<Value = Vec<String>> {
    let queues = prop::collection::vec((0i64..5, 0i64..3, 0i64..3), 2..5);
    let jobs = prop::collection::vec((0usize..4, 0usize..3, 1u32..4), 0..12);
    (queues, jobs).prop_map(|(queues, jobs)| {
        let total: i64 = queues.iter().map(|(own, left, right)| (*own).max(left + right)).sum();
        let mut lines = vec![format!("node n0 {}xh100", total.max(1) + 3)];
        for (number, (own, left, right)) in queues.iter().enumerate() {
            lines.push(format!("queue q{number} guarantee={}", (*own).max(left + right)));
            lines.push(format!("queue q{number}/l guarantee={left}"));
            lines.push(format!("queue q{number}/r guarantee={right}"));
        }
        for (number, (queue, below, gpus)) in jobs.into_iter().enumerate() {
            let below = ["", "/l", "/r"][below];
            lines.push(format!("submit j{number} q{}{below} {gpus}", queue % queues.len()));
        }
        lines.push("plan".into());
        lines
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn what_is_lent_is_what_is_borrowed_beyond_that_which_is_guaranteed_to_nobody(lines in pool()) {
        let scenario = scene(&lines).map_err(TestCaseError::fail)?;
        let (state, snapshot) = (scenario.state(), scenario.snapshot());
        let entitled: BTreeMap<String, Entitlement> = entitlements(state, snapshot);
        let held = |queue: &str| snapshot.held.get(queue).map_or(0, |held| held.of(&Resource::Any));
        let tops: Vec<&String> = entitled.keys().filter(|queue| !queue.contains('/')).collect();
        let idle = |queue: &str| (entitled[queue].guarantee_milli - held(queue)).max(0);
        let borrowed = |queue: &str| (held(queue) - entitled[queue].guarantee_milli).max(0);
        for (queue, of) in &entitled {
            prop_assert!((0..=idle(queue)).contains(&of.lent_milli), "{queue} lends {} of {}", of.lent_milli, idle(queue));
        }
        let lent: i64 = tops.iter().map(|queue| entitled[*queue].lent_milli).sum();
        let guaranteed: i64 = tops.iter().map(|queue| entitled[*queue].guarantee_milli).sum();
        let nobodys = snapshot.capacity.total(&Resource::Any) - guaranteed;
        let taken: i64 = tops.iter().map(|queue| borrowed(queue)).sum();
        prop_assert_eq!(lent, (taken - nobodys).max(0));
        for top in tops {
            let children = [format!("{top}/l"), format!("{top}/r")];
            let sum = |of: &dyn Fn(&str) -> i64| children.iter().filter(|it| entitled.contains_key(*it)).map(|it| of(it)).sum::<i64>();
            let (own, own_held) = (
                entitled[top].guarantee_milli - sum(&|it| entitled[it].guarantee_milli),
                held(top) - sum(&|it| held(it)),
            );
            // What children have beyond their guarantees comes from outside, from what is nobody's below, or from each other.
            let used = entitled[top].lent_milli + sum(&borrowed) + (own_held - own).max(0) - borrowed(top);
            prop_assert_eq!(sum(&|it| entitled[it].lent_milli), (used - (own - own_held).max(0)).max(0));
        }
    }
}

/// What the checker finds in the log of a pool of eight GPUs, four of which are kept for `a`, after these lines.
fn found(lines: &str) -> Vec<String> {
    checker::found(&format!(
        "{NOTHING_GIVES_WAY}\nnode n1 8xh100\nqueue a guarantee=4 lend=0\nqueue b\n{lines}"
    ))
}

#[test]
fn the_checker_finds_what_was_taken_of_what_a_queue_keeps() {
    let first = "submit x b 3\nplan\nsubmit y b 2\n";
    let none: [&str; 0] = [];
    assert_eq!(found(&format!("{first}plan")), none);
    let wrong =
        ["lend: job 2 was placed: of 8000 milli 9000 are held, or kept by queues that do not lend them"];
    assert_eq!(found(&format!("{first}start y on=n1:3+n1:4")), wrong);
    assert_eq!(found("submit x a 4\nplan\nsubmit y b 4\nstart y on=n1:4+n1:5+n1:6+n1:7"), none);
}

/// Queues that lend some of their guarantees, and jobs that come and go, with a plan after each.
fn lives() -> impl Strategy<Value = (Vec<(i64, i64)>, Vec<String>)> {
    let queues = prop::collection::vec((0i64..5, 0i64..4), 2..5);
    let steps = prop::collection::vec((0usize..5, 0usize..3, 1u32..5, prop::option::of(0usize..8)), 1..12);
    (queues, steps).prop_map(|(queues, steps)| {
        let pool = 2 + queues.iter().map(|(guarantee, _)| guarantee).sum::<i64>();
        let mut lines = vec![format!("node n0 {pool}xh100")];
        for (number, (guarantee, lend)) in queues.iter().enumerate() {
            lines.push(format!("queue q{number} guarantee={guarantee} lend={lend}"));
            lines.push(format!("queue q{number}/l"));
            lines.push(format!("queue q{number}/r guarantee={}", guarantee / 2));
        }
        for (number, (queue, below, gpus, goes)) in steps.into_iter().enumerate() {
            let below = ["", "/l", "/r"][below];
            lines.push(format!("submit j{number} q{}{below} {gpus} wait", queue % queues.len()));
            lines.push("plan".into());
            lines.extend(goes.filter(|gone| *gone <= number).map(|gone| format!("cancel j{gone}")));
        }
        lines.push("plan".into());
        (queues, lines)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn what_queues_keep_is_free_for_them_however_many_cycles_it_was_idle((queues, lines) in lives()) {
        let scenario = scene(&lines).map_err(TestCaseError::fail)?;
        let snapshot = scenario.snapshot();
        // What is being stopped is given back: it counts for nobody.
        let of = |books: &BTreeMap<String, Holdings>, queue: usize| {
            books.get(&format!("q{queue}")).map_or(0, |held| held.of(&Resource::Any))
        };
        let held = |queue: usize| of(&snapshot.held, queue) - of(&snapshot.leaving, queue);
        let used_or_kept = |(queue, (guarantee, lend)): (usize, &(i64, i64))| held(queue).max((guarantee - lend) * 1000);
        let taken: i64 = queues.iter().enumerate().map(used_or_kept).sum();
        let pool = snapshot.capacity.total(&Resource::Any);
        prop_assert!(taken <= pool, "{taken} of {pool}: {lines:#?}");
    }
}
