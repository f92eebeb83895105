//! Queues: what they may have and have, and what a new queues.yaml changes.

use std::collections::BTreeMap;

use divvy_api as api;
use divvy_core::amount::{Amount, Limits, Resource};
use divvy_core::model::job::{JobState, Owner};
use divvy_core::model::queue::Queue;
use divvy_core::reason::shown;
use divvy_core::snapshot::Snapshot;
use divvy_core::state::{Job, Runs, State};

use super::detail::requeue;

/// All queues, by path.
pub(crate) fn all(state: &State, snapshot: &Snapshot, asker: &Owner) -> Vec<api::Queue> {
    let mut rows: BTreeMap<&str, api::Queue> =
        state.queues.iter().map(|(path, queue)| (path.as_str(), one(queue, snapshot, asker))).collect();
    for job in state.jobs.values() {
        if let Some(row) = rows.get_mut(job.spec.queue.as_str()) {
            count(row, job, state);
        }
    }
    rows.into_values().collect()
}

fn one(queue: &Queue, snapshot: &Snapshot, asker: &Owner) -> api::Queue {
    let held = snapshot.held.get(&queue.path);
    let of = |resource: Resource| held.map_or(0, |held| held.of(&resource));
    api::Queue {
        queue: queue.path.clone(),
        limit: limits(&queue.limit),
        guarantee: limits(&queue.guarantee),
        requeue: Some(requeue(queue.requeue).to_owned()),
        submit: queue.submit.iter().map(ToString::to_string).collect(),
        may_submit: queue.takes(asker),
        gpu_milli: u64::try_from(of(Resource::Any)).unwrap_or(0),
        cpu_milli: of(Resource::Cpu),
        memory_bytes: of(Resource::Memory),
        ..api::Queue::default()
    }
}

fn count(row: &mut api::Queue, job: &Job, state: &State) {
    let (mut waiting, mut held, mut running) = (0u64, 0u64, 0u64);
    let mut sort = |state: JobState| match state {
        JobState::Pending => waiting += 1,
        JobState::Held => held += 1,
        _ => running += 1,
    };
    match &job.runs {
        Runs::Single(run) => sort(run.state),
        Runs::Array(array) => {
            array.touched.values().for_each(|run| sort(run.state));
            let fresh = array.fresh.len();
            if array.held.is_some() { held += fresh } else { waiting += fresh }
        }
    }
    row.running += running;
    row.waiting += waiting;
    row.held += held;
    row.gpu_milli_waiting += waiting * u64::try_from(job.spec.milli_asked()).unwrap_or(0);
    if waiting > 0 {
        let waited = state.now.since(job.submitted_at).0;
        row.longest_wait_ms = Some(row.longest_wait_ms.unwrap_or(0).max(waited));
    }
}

fn limits(limits: &Limits) -> BTreeMap<String, String> {
    limits.iter().map(|(resource, amount)| (resource.to_string(), amount_text(resource, *amount))).collect()
}

fn amount_text(resource: &Resource, amount: Amount) -> String {
    match amount {
        Amount::Unlimited => "unlimited".into(),
        Amount::Finite(finite) => shown(resource, finite),
    }
}

/// One line per difference between the queues in force and others.
pub(crate) fn diff(now: &BTreeMap<String, Queue>, wanted: &[Queue]) -> Vec<String> {
    let mut lines = Vec::new();
    for queue in wanted {
        match now.get(&queue.path) {
            None => lines.push(format!("+ {}{}", queue.path, summary(queue))),
            Some(before) => lines.extend(changes(before, queue)),
        }
    }
    let gone = now.keys().filter(|path| !wanted.iter().any(|queue| queue.path == **path));
    lines.extend(gone.map(|path| format!("- {path}")));
    lines
}

fn summary(queue: &Queue) -> String {
    let mut parts: Vec<String> = limits(&queue.limit)
        .into_iter()
        .map(|(resource, amount)| format!(" limit {resource}={amount}"))
        .collect();
    if queue.requeue != Default::default() {
        parts.push(format!(" requeue {}", requeue(queue.requeue)));
    }
    if !queue.submit.is_empty() {
        parts.push(format!(" submit {}", members(queue)));
    }
    parts.concat()
}

fn changes(before: &Queue, after: &Queue) -> Vec<String> {
    let path = &after.path;
    let (old, new) = (limits(&before.limit), limits(&after.limit));
    let resources: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let unlimited = String::from("unlimited");
    let changed = resources.into_iter().filter(|resource| old.get(*resource) != new.get(*resource));
    let mut lines: Vec<String> = changed
        .map(|resource| {
            let (from, to) =
                (old.get(resource).unwrap_or(&unlimited), new.get(resource).unwrap_or(&unlimited));
            format!("~ {path} limit {resource}: {from} → {to}")
        })
        .collect();
    if before.requeue != after.requeue {
        lines.push(format!("~ {path} requeue: {} → {}", requeue(before.requeue), requeue(after.requeue)));
    }
    if before.submit != after.submit {
        lines.push(format!("~ {path} submit: {} → {}", members(before), members(after)));
    }
    lines
}

fn members(queue: &Queue) -> String {
    match queue.submit.len() {
        0 => "everyone".into(),
        _ => queue.submit.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
    }
}

/// What a person should know about limits that running jobs exceed already.
pub(crate) fn notices(wanted: &[Queue], snapshot: &Snapshot) -> Vec<String> {
    let over = |queue: &Queue| {
        let held = snapshot.held.get(&queue.path)?;
        let over = queue.limit.iter().find(|(resource, limit)| !limit.allows(held.of(resource)))?;
        let (resource, limit) = over;
        Some(format!(
            "{} holds {} {resource}, more than its new limit of {}: what runs, runs on; nothing more starts until it is below",
            queue.path,
            shown(resource, held.of(resource)),
            amount_text(resource, *limit)
        ))
    };
    wanted.iter().filter_map(over).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_told_in_one_line_each() {
        let parse = |text| divvy_core::model::queue::parse(text).unwrap();
        let now: BTreeMap<String, Queue> = parse("queues:\n  default: {limit: 8}\n  old:\n")
            .into_iter()
            .map(|queue| (queue.path.clone(), queue))
            .collect();
        let wanted = parse(
            "queues:\n  default: {limit: 4, requeue: failure}\n  vision: {limit: {h100: 2}, submit: [user:ana]}\n",
        );
        let expected = [
            "~ default limit any: 8 → 4",
            "~ default requeue: lost → failure",
            "+ vision limit h100=2 submit user:ana",
            "- old",
        ];
        assert_eq!(diff(&now, &wanted), expected);
    }
}
