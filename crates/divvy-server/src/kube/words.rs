//! The conditions of waiting pods, in words.

use divvy_core::explain::{Change, Fix};
use divvy_core::id::JobId;
use divvy_core::plan::Funnel;
use divvy_core::reason::Reason;
use divvy_core::state::State;
use divvy_engine::kubernetes::PREEMPTIBLE;
use divvy_engine::kubernetes::objects::Condition;

/// The word on which autoscalers add nodes: used only where a further node would help.
const UNSCHEDULABLE: &str = "Unschedulable";

/// What is left of the nodes and GPUs for a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// The nodes that it may use.
    pub(super) chosen: usize,
    /// All nodes that are there.
    pub(super) all: usize,
    /// How many GPUs of the usable nodes pass each step.
    pub(super) funnel: Funnel,
}

/// Returns the condition that says why a pod waits, with what would start it, if known.
pub(super) fn waits((reason, state): (&Reason, &State), choice: &Choice, known: Option<&str>) -> Condition {
    let helps = reason.is_of_capacity();
    let word = if helps { UNSCHEDULABLE.to_owned() } else { word(reason.code()) };
    let where_from = if helps { choice.said() } else { String::new() };
    let fix = known.map_or_else(|| fix(reason), str::to_owned);
    not_scheduled(&word, format!("{where_from}{}; {fix}", said(reason, state)))
}

/// Returns a reason in words, with names in the place of the pool's job numbers.
pub(super) fn said(reason: &Reason, state: &State) -> String {
    match reason {
        Reason::Reserved(owner) => {
            reason.to_string().replace(&format!("job {owner}"), &format!("pod {}", name(*owner, state)))
        }
        other => other.to_string(),
    }
}

/// Returns the name of a job's pod, or of the first pod of its gang.
fn name(job: JobId, state: &State) -> String {
    state.jobs.get(&job.number).map_or_else(|| job.to_string(), |job| job.spec.name.clone())
}

/// Returns what to do, in the terms of a cluster.
pub(super) fn way(fix: &Fix, state: &State) -> String {
    let one = |change: &Change| match change {
        Change::Preemptible => format!("annotate it {PREEMPTIBLE}: \"true\""),
        Change::Undrain { node } => format!("uncordon {node}"),
        other => other.to_string(),
    };
    let is_end = |change: &&Change| matches!(change, Change::End { .. } | Change::AwaitStop { .. });
    let mut parts: Vec<String> = fix.changes.iter().filter(|change| !is_end(change)).map(one).collect();
    let mut wait_for = |jobs: Vec<JobId>, to: &str| {
        let names: Vec<String> = jobs.into_iter().map(|job| name(job, state)).collect();
        match names.len() {
            0 => {}
            1..=MOST_NAMED => parts.push(format!("wait for {} to {to}", names.join(", "))),
            all => parts.push(format!(
                "wait for {} and {} more to {to}",
                names[..MOST_NAMED].join(", "),
                all - MOST_NAMED
            )),
        }
    };
    wait_for(fix.ends().collect(), "end");
    for change in &fix.changes {
        if let Change::AwaitStop { jobs, .. } = change {
            wait_for(jobs.clone(), "stop");
        }
    }
    parts.join(" and ")
}

/// How many pods are named before the rest is only counted.
const MOST_NAMED: usize = 4;

impl Choice {
    /// `3 of 12 nodes may be used; GPUs: 24 in pool, 8 right model, 2 free: `, or the parts that say
    /// anything.
    fn said(&self) -> String {
        let mut parts = Vec::new();
        if self.chosen < self.all && self.chosen > 0 {
            parts.push(format!("{} of {} nodes may be used", self.chosen, self.all));
        }
        let counts = self.funnel.0.iter().map(|(_, devices, _)| *devices);
        let before = std::iter::once(u32::MAX).chain(counts);
        let fewer = self.funnel.0.iter().zip(before).filter(|((_, devices, _), before)| devices < before);
        let steps: Vec<String> =
            fewer.map(|((step, devices, _), _)| format!("{devices} {}", step.name())).collect();
        // Where every step passes all, the pod does not wait for GPUs.
        if steps.len() > 1 {
            parts.push(format!("GPUs: {}", steps.join(", ")));
        }
        if parts.is_empty() { String::new() } else { format!("{}: ", parts.join("; ")) }
    }
}

/// Returns what would help, in the terms of a cluster where the pool's text is about a single machine.
fn fix(reason: &Reason) -> String {
    match reason {
        Reason::NoNode => "add a node that takes pods".into(),
        Reason::NoSuchModel(_) | Reason::NoSuchMemory(_) => {
            "ask for a model that a node has (its label nvidia.com/gpu.product)".into()
        }
        Reason::DevicesDown(_) | Reason::DevicesForeign(_) => "wait until they are free again".into(),
        Reason::NodesDraining(_) => "wait, or uncordon a node".into(),
        Reason::BeyondGuarantee(queue, resource, ..) => format!(
            "annotate it {PREEMPTIBLE}: \"true\", or raise the guarantee of {resource} of queue {queue}"
        ),
        Reason::Reserved(_) => "wait until the pods before it in line have started".into(),
        other => other.fix(),
    }
}

/// A pod that cannot be accepted at all.
pub(super) fn refused(why: &str) -> Condition {
    not_scheduled("Refused", why.to_owned())
}

/// A pod whose gang lacks pods.
pub(super) fn gang_incomplete(there: usize, minimum: u32) -> Condition {
    let message = format!("{there} of the {minimum} pods that start together are there; make the others");
    not_scheduled("GangIncomplete", message)
}

/// A pod of a gang that already has as many pods as it needs.
pub(super) fn beyond_the_gang(minimum: u32) -> Condition {
    let message = format!("the {minimum} pods that start together are others; it joins them when they run");
    not_scheduled("BeyondGang", message)
}

/// A pod whose group does not exist.
pub(super) fn group_missing(group: &str) -> Condition {
    not_scheduled("GroupMissing", format!("its pod group {group} is not there: make it"))
}

fn not_scheduled(reason: &str, message: String) -> Condition {
    Condition { kind: "PodScheduled".into(), status: "False".into(), reason: reason.into(), message }
}

/// Turns `DV-QUEUE-LIMIT` into the API's form of a reason: `QueueLimit`.
fn word(code: &str) -> String {
    let parts = code.trim_start_matches("DV-").split('-');
    let capital = |part: &str| {
        let (first, rest) = part.split_at(part.len().min(1));
        format!("{first}{}", rest.to_lowercase())
    };
    parts.map(capital).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use divvy_core::amount::Resource;
    use divvy_core::plan::Step;

    #[test]
    fn autoscalers_hear_of_pods_that_a_node_would_help_and_of_no_others() {
        let (choice, state) = (Choice::default(), State::default());
        assert_eq!(waits((&Reason::DevicesBusy(2), &state), &choice, None).reason, "Unschedulable");
        let quota = Reason::QueueLimit("vision".into(), Resource::Any, 8000, 1000);
        let quota = waits((&quota, &state), &choice, None);
        assert_eq!(quota.reason, "QueueLimit");
        assert!(quota.message.contains("vision"), "{}", quota.message);
    }

    #[test]
    fn the_way_of_the_gpus_is_told_as_far_as_they_get_fewer() {
        let steps =
            [(Step::InPool, 24, 3), (Step::RightModel, 24, 3), (Step::Free, 2, 1), (Step::OnOneNode, 0, 0)];
        let choice = Choice { chosen: 3, all: 12, funnel: Funnel(steps.to_vec()) };
        let said = waits((&Reason::DevicesBusy(4), &State::default()), &choice, Some("do this")).message;
        let begin = "3 of 12 nodes may be used; GPUs: 24 in pool, 2 free, 0 on one node: no node has 4 GPUs";
        assert!(said.starts_with(begin) && said.ends_with("; do this"), "{said}");
    }
}
