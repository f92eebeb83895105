//! The typical tasks of a trace: its most frequent kinds, until they cover most of it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use divvy_core::model::score::{Typical, TypicalTask};

use crate::trace::openb::Pod;

/// Percent of all tasks that the kinds have to cover, as in the paper.
const COVERED_PERCENT: u64 = 95;

/// The kinds of the whole trace by frequency; ties by cores, share, number and models, all descending.
pub(super) fn typical(pods: &[Pod]) -> Typical {
    let mut counts: BTreeMap<(i64, u32, u32, &str), u64> = BTreeMap::new();
    for pod in pods {
        *counts.entry((pod.cpu_milli, pod.gpu_milli, pod.gpus, &pod.gpu_spec)).or_default() += 1;
    }
    let mut kinds: Vec<_> = counts.into_iter().map(|(kind, count)| (count, kind)).collect();
    kinds.sort_by_key(|kind| Reverse(*kind));
    let (of, mut covered, mut tasks) = (pods.len() as u64, 0, Vec::new());
    for (seen, (cpu_milli, milli, count, spec)) in kinds {
        if covered * 100 >= COVERED_PERCENT * of {
            break;
        }
        covered += seen;
        let models = spec.split('|').filter(|model| !model.is_empty()).map(String::from).collect();
        tasks.push(TypicalTask { cpu_milli, milli, count, models, seen });
    }
    Typical::new(tasks, of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_listed_by_count_until_95_percent_are_covered() {
        let pod = |cpu_milli| Pod {
            name: String::new(),
            cpu_milli,
            memory_mib: 0,
            gpus: 1,
            gpu_milli: 1000,
            gpu_spec: String::new(),
        };
        let pods: Vec<Pod> = [vec![pod(1); 90], vec![pod(2); 3], vec![pod(3); 3], vec![pod(4); 4]].concat();
        let typical = typical(&pods);
        let listed: Vec<(i64, u64)> =
            typical.tasks().iter().map(|task| (task.cpu_milli, task.seen)).collect();
        assert_eq!((listed, typical.of()), (vec![(1, 90), (4, 4), (3, 3)], 100));
    }
}
