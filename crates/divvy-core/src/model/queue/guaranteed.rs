//! What a tree of queues guarantees in total.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::pledge::{LONGEST_MONTH, paced};
use super::{Period, Queue, lineage};
use crate::amount::{Amount, Resource};
use crate::time::Span;

/// Amounts by resource.
pub type Promised = BTreeMap<Resource, i64>;

/// What is guaranteed to each queue together with the queues below it, by path: its own guarantee, or the sum of its children's, whichever
/// is more. Of devices of any model, at least as many as of the named models together.
pub fn guaranteed(queues: &[Queue]) -> BTreeMap<&str, Promised> {
    let mut all: BTreeMap<&str, Promised> = queues.iter().map(|queue| (&*queue.path, own(queue))).collect();
    let mut below: BTreeMap<&str, Promised> = BTreeMap::new();
    let mut paths: Vec<&str> = all.keys().copied().collect();
    paths.sort_by_key(|path| Reverse(lineage(path).count()));
    for path in paths {
        let mut promised = all.remove(path).unwrap_or_default();
        for (resource, amount) in below.remove(path).unwrap_or_default() {
            let said = promised.entry(resource).or_default();
            *said = amount.max(*said);
        }
        let above = lineage(path).skip(1).find(|above| all.contains_key(above));
        if let Some(above) = above {
            let sums = below.entry(above).or_default();
            for (resource, amount) in &promised {
                let sum = sums.entry(resource.clone()).or_default();
                *sum = sum.saturating_add(*amount);
            }
        }
        all.insert(path, promised);
    }
    all
}

/// The queues that guarantee a resource, with how much: those whose own guarantee is all that is guaranteed to them and the queues below
/// them, and that have no such queue above them.
pub fn sayers<'a>(queues: &'a [Queue], resource: &Resource) -> Vec<(&'a str, i64)> {
    let promised = guaranteed(queues);
    let all_of = |path: &str| promised.get(path).and_then(|all| all.get(resource)).copied().unwrap_or(0);
    let say = |queue: &'a Queue| {
        let said = own(queue).get(resource).copied().unwrap_or(0);
        (said > 0 && said == all_of(&queue.path)).then_some((&*queue.path, said))
    };
    let say: BTreeMap<&str, i64> = queues.iter().filter_map(say).collect();
    let is_first = |(path, _): &(&str, i64)| !lineage(path).skip(1).any(|above| say.contains_key(above));
    say.iter().map(|(path, said)| (*path, *said)).filter(is_first).collect()
}

/// What a queue's own guarantee says.
pub fn own(queue: &Queue) -> Promised {
    let finite = |(resource, amount): (&Resource, &Amount)| match amount {
        Amount::Finite(amount) => Some((resource.clone(), *amount)),
        Amount::Unlimited => None,
    };
    let mut own: Promised = queue.guarantee.iter().filter_map(finite).collect();
    let named = own.iter().filter(|(resource, _)| matches!(resource, Resource::Model(_)));
    let named = named.map(|(_, amount)| *amount).fold(0, i64::saturating_add);
    if named > 0 {
        let any = own.entry(Resource::Any).or_default();
        *any = named.max(*any);
    }
    own
}

/// The first queue whose limit is below what is guaranteed to it and the queues below it as GPUs or other amounts, and the
/// resource.
pub fn beyond_limit(queues: &[Queue]) -> Option<(&str, Resource)> {
    let promised = guaranteed(queues);
    queues.iter().find_map(|queue| {
        let is_beyond = |(resource, promised): &(&Resource, &i64)| {
            matches!(queue.limit.get(*resource), Some(Amount::Finite(limit)) if limit < *promised)
        };
        let (resource, _) = promised.get(&*queue.path)?.iter().find(is_beyond)?;
        Some((&*queue.path, resource.clone()))
    })
}

/// The queues, where GPU-hours count as a guarantee of at least the GPUs that make them up in the longest of their periods.
fn with_least_paces(queues: &[Queue]) -> Vec<Queue> {
    let with_pace = |queue: &Queue| {
        let pace = queue.pledge.said().map_or(0, |pledge| pledge.least_pace_milli());
        let mut queue = queue.clone();
        if pace > own(&queue).get(&Resource::Any).copied().unwrap_or(0) {
            queue.guarantee.insert(Resource::Any, Amount::Finite(pace));
        }
        queue
    };
    queues.iter().map(with_pace).collect()
}

/// The first queue whose budget is below the GPU-hours that are guaranteed to it and the queues below it.
fn beyond_budget(queues: &[Queue]) -> Option<&str> {
    let rates: Vec<Queue> = queues.iter().map(in_rates).collect();
    let promised = guaranteed(&rates);
    let is_below = |queue: &&Queue| {
        let asked = promised.get(&*queue.path).and_then(|all| all.get(&Resource::Any));
        let (Some(budget), Some(asked)) = (queue.budget.said(), asked) else { return false };
        let is_of_it = |other: &&Queue| lineage(&other.path).any(|path| path == queue.path);
        let mut others =
            queues.iter().filter(|other| other.pledge.said().is_some_and(|it| it.every != budget.every));
        // Of months of unequal lengths the one that allows most is compared with the one that asks for least.
        let month = match budget.every {
            Period::Month if others.any(|other| is_of_it(&other)) => SHORTEST_MONTH,
            _ => LONGEST_MONTH,
        };
        *asked > rate(budget.milli_ms(), budget.every, month)
    };
    queues.iter().find(is_below).map(|queue| &*queue.path)
}

/// A queue that is guaranteed the rate of its GPU-hours, and nothing else.
fn in_rates(queue: &Queue) -> Queue {
    let rate = queue.pledge.said().map(|pledge| rate(pledge.milli_ms(), pledge.every, LONGEST_MONTH));
    let guarantee = rate.map(|rate| (Resource::Any, Amount::Finite(rate))).into_iter().collect();
    Queue { guarantee, ..Queue::named(&queue.path) }
}

const SHORTEST_MONTH: Span = Span(28 * 86_400_000);

/// How much device time that is at a time, in millionths of thousandths of devices.
fn rate(milli_ms: i128, every: Period, month: Span) -> i64 {
    paced(milli_ms.saturating_mul(1_000_000), every.length().unwrap_or(month))
}

/// The first queue that cannot be given what is guaranteed to it since its limit or its budget is below that, and what to do.
pub fn unkeepable(queues: &[Queue]) -> Option<(&str, String)> {
    let paced = with_least_paces(queues);
    if let Some((path, resource)) = beyond_limit(&paced) {
        let queue = queues.iter().find(|queue| queue.path == path)?;
        return Some((&queue.path, below_guarantee(path, &resource)));
    }
    let path = beyond_budget(queues)?;
    let what = format!(
        "the budget of {path} is below the GPU-hours guaranteed to it, or to the queues below it: raise the one or lower the other"
    );
    Some((path, what))
}

/// The message for such a queue.
pub fn below_guarantee(path: &str, resource: &Resource) -> String {
    format!(
        "the limit of {resource} of {path} is below its guarantee, or that of the queues below it: raise the one or lower the other"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::queue::parse;

    fn queue(path: &str, guarantee: &[(Resource, i64)]) -> Queue {
        let guarantee = guarantee.iter().map(|(it, amount)| (it.clone(), Amount::Finite(*amount))).collect();
        Queue { guarantee, ..Queue::named(path) }
    }

    #[test]
    fn a_queue_is_guaranteed_what_it_says_or_what_its_children_have_whichever_is_more() {
        let h100 = || Resource::Model("h100".into());
        let queues = [
            queue("a", &[(Resource::Any, 10)]),
            queue("a/b", &[(Resource::Any, 6)]),
            queue("a/c", &[(h100(), 8), (Resource::Any, 3)]),
            queue("a/c/d", &[(Resource::Cpu, 5)]),
            queue("e/f", &[(Resource::Any, 1)]),
        ];
        let all = guaranteed(&queues);
        let of = |path: &str, resource| all[path].get(&resource).copied();
        assert_eq!((of("a/c", Resource::Any), of("a", Resource::Any)), (Some(8), Some(14)));
        assert_eq!((of("a", h100()), of("a", Resource::Cpu)), (Some(8), Some(5)));
        assert_eq!((of("a/b", Resource::Any), of("e/f", Resource::Any)), (Some(6), Some(1)));
    }
    #[test]
    fn a_limit_or_a_budget_below_the_gpu_hours_of_a_queue_and_those_below_it_is_refused() {
        let what = |text: &str| {
            let read = parse(&format!("queues:\n  a: {text}\n"));
            read.err().map(|bad| bad.what.split(" is below").next().unwrap_or_default().to_owned())
        };
        let hours = "guarantee: {gpu_hours: 800, every: week}";
        let b =
            |hours: u32, every: &str| format!("  a/b: {{guarantee: {{gpu_hours: {hours}, every: {every}}}}}");
        let limit = Some("the limit of any of a".to_owned());
        let budget = Some("the budget of a".to_owned());
        let of = |hours: u32, every: &str, below: String| {
            format!("{{budget: {{gpu_hours: {hours}, every: {every}}}}}\n{below}")
        };
        for (text, refused) in [
            (format!("{{{hours}, limit: 2}}"), limit.clone()),
            (format!("{{{hours}, limit: 5}}"), None),
            (format!("{{limit: 4}}\n{}", b(800, "week")), limit.clone()),
            (format!("{{limit: 5}}\n{}\n  a/c: {{guarantee: 1}}", b(800, "week")), limit),
            (format!("{{{hours}, budget: {{gpu_hours: 799, every: week}}}}"), budget.clone()),
            (of(800, "week", b(800, "week")), None),
            (of(800, "month", b(801, "month")), budget.clone()),
            (of(800, "month", b(800, "month")), None),
            (of(3000, "month", b(800, "week")), budget.clone()),
            (of(3300, "month", b(800, "week")), None),
            (of(100, "day", b(800, "week")), budget),
            (of(115, "day", b(800, "week")), None),
        ] {
            assert_eq!(what(&text), refused, "{text}");
        }
    }
}
