//! What a tree of queues guarantees in total.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{Queue, lineage};
use crate::amount::{Amount, Resource};

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

/// The first queue whose limit is below what is guaranteed to it and the queues below it, and the resource.
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

/// The message for such a queue.
pub fn below_guarantee(path: &str, resource: &Resource) -> String {
    format!(
        "the limit of {resource} of {path} is below its guarantee, or that of the queues below it: raise the one or lower the other"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
