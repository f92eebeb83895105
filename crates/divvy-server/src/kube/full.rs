//! Pods that a queue refused by its `max_jobs`: when a job ends, those at the head of the line are submitted again.

use std::collections::BTreeMap;

use divvy_core::time::Time;
use divvy_engine::kubernetes::Waiting;

/// How many jobs of a line are tried at once: each try looks at all jobs.
const FEW: usize = 64;
/// How often they are tried.
const EVERY_MS: i64 = 1_000;

/// Pods that wait for room in their queues, by queue name and namespace: each of these may have a bound of its own.
#[derive(Debug, Default)]
pub(super) struct Full {
    lines: BTreeMap<(Option<String>, String), Line>,
    tried: Option<Time>,
}

#[derive(Debug, Default)]
struct Line {
    /// The pods of each job, by the creation time and the name of its first pod.
    jobs: BTreeMap<(String, String), Vec<String>>,
    /// Whether there may be room.
    is_open: bool,
}

impl Full {
    /// Adds pods that would be one job and were refused.
    pub(super) fn refused(&mut self, pods: &[Waiting]) {
        let Some(first) = pods.first() else { return };
        let line = self.lines.entry((first.queue.clone(), first.namespace.clone())).or_default();
        line.is_open = false;
        let uids = pods.iter().map(|pod| pod.uid.clone()).collect();
        line.jobs.insert((first.created.clone(), first.name.clone()), uids);
    }

    /// Notes that a job has ended: there may be room.
    pub(super) fn open(&mut self) {
        self.lines.values_mut().for_each(|line| line.is_open = true);
    }

    /// Forgets all pods: they are submitted anew.
    pub(super) fn clear(&mut self) {
        self.lines.clear();
    }

    /// Returns the pods to submit again now.
    pub(super) fn next(&mut self, now: Time) -> Vec<String> {
        if self.tried.is_some_and(|tried| now.since(tried).0 < EVERY_MS) {
            return Vec::new();
        }
        let mut next = Vec::new();
        for line in self.lines.values_mut().filter(|line| line.is_open) {
            let later = line.jobs.keys().nth(FEW).cloned();
            let later = later.map_or_else(BTreeMap::new, |later| line.jobs.split_off(&later));
            next.extend(std::mem::replace(&mut line.jobs, later).into_values().flatten());
        }
        self.lines.retain(|_, line| !line.jobs.is_empty());
        if !next.is_empty() {
            self.tried = Some(now);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(namespace: &str, number: usize) -> Waiting {
        let name = format!("{namespace}-{number:03}");
        Waiting {
            uid: name.clone(),
            namespace: namespace.into(),
            created: format!("{number:03}"),
            name,
            queue: None,
            priority: 0,
            preemptible: false,
            preempts: true,
            gang: None,
            grace_ms: 0,
            time_limit: None,
            ask: Err("nothing".into()),
            scheduled: None,
            subject: Default::default(),
        }
    }

    #[test]
    fn the_first_of_each_namespace_are_tried_when_a_job_has_ended() {
        let mut full = Full::default();
        (0..2 * FEW).for_each(|number| full.refused(&[pod("a", number)]));
        full.refused(&[pod("b", 999)]);
        assert!(full.next(Time(0)).is_empty());
        full.open();
        let next = full.next(Time(0));
        assert_eq!((next.len(), next[0].as_str(), next[FEW].as_str()), (FEW + 1, "a-000", "b-999"));
        full.refused(&[pod("a", 0)]);
        assert!(full.next(Time(EVERY_MS)).is_empty());
    }
}
