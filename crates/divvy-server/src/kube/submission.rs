//! Turns pods into a submission.

use std::collections::BTreeMap;
use std::sync::Arc;

use divvy_core::controller::Controller;
use divvy_core::decide::Submit;
use divvy_core::model::ask::Ask;
use divvy_core::model::gang::{Branch, Group, Role};
use divvy_core::model::job::{JobSpec, Kind, Lifetime, Owner, Requeue, StopOrder, Work};
use divvy_core::model::newer::Newer;
use divvy_core::model::queue::default_of;
use divvy_core::time::Span;
use divvy_engine::kubernetes::Waiting;

/// Returns the submission for pods that form one job.
pub(super) fn submission(controller: &Controller, pods: &[Waiting]) -> Result<Submit, String> {
    let Some(first) = pods.first() else { return Err("there are no pods".into()) };
    let owner = Owner { name: first.namespace.clone(), uid: NOBODY, gid: NOBODY, groups: Vec::new() };
    let queue = queue(controller, first, &owner)?;
    let spec = JobSpec {
        name: format!("{}/{}", first.namespace, first.name).chars().take(200).collect(),
        queue,
        project: None,
        kind: Kind::default(),
        labels: BTreeMap::new(),
        priority: first.priority,
        preemptible: pods.iter().all(|pod| pod.preemptible),
        resumable: false,
        lifetime: Lifetime::default(),
        gang: group(pods)?.into(),
        time_limit: time_limit(pods),
        estimate: None,
        requeue: Requeue::Lost,
        // A binding that the server refuses is retried for as long as the pod waits.
        most_restarts: u32::MAX,
        after: Vec::new(),
        start_after: None,
        deadline: Newer::default(),
        preempts: Newer(pods.iter().any(|pod| !pod.preempts).then_some(false)),
        // Each pod is deleted with its own grace; none of them is overdue before the longest is over.
        stop: StopOrder {
            signal: "TERM".into(),
            grace_ms: pods.iter().map(|pod| pod.grace_ms).max().unwrap_or(first.grace_ms),
        },
        checkpoint: None,
        wait_for_capacity: true,
        exclusive: false,
        seat: Newer::default(),
        kept_to: Newer::default(),
    };
    Ok(Submit {
        owner: owner.into(),
        spec: Arc::new(spec),
        requeue_said: true,
        array: None,
        token: None,
        held: false,
        history: BTreeMap::new(),
    })
}

/// Returns the queue of a pod: the one that it names, or the default of its namespace.
fn queue(controller: &Controller, pod: &Waiting, owner: &Owner) -> Result<String, String> {
    let queues = &controller.state().queues;
    let Some(wanted) = pod.queue.as_deref() else { return Ok(default_of(queues.values(), owner).to_owned()) };
    // A pod names the queue's object: the last part of its path.
    let is_it = |path: &&String| path.rsplit('/').next() == Some(wanted);
    let there = queues.keys().find(is_it).cloned();
    there.ok_or_else(|| format!("there is no queue {wanted:?}: make it, or name another"))
}

/// Returns the time limit of pods that start together: the longest one, if each pod has one.
fn time_limit(pods: &[Waiting]) -> Option<Span> {
    let limits: Option<Vec<Span>> = pods.iter().map(|pod| pod.time_limit).collect();
    limits?.into_iter().max()
}

/// The user and group id of namespaces, which are no users of a machine.
pub(super) const NOBODY: u32 = u32::MAX;

/// Labels with which controllers number the pods that they create.
const NUMBERING: [&str; 8] = [
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
    "jobset.sigs.k8s.io/job-global-index",
    "jobset.sigs.k8s.io/job-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "statefulset.kubernetes.io/pod-name",
    "training.kubeflow.org/replica-index",
    "volcano.sh/task-index",
];

/// Returns what a pod asks for. Of a gang's pod, labels that only number it are left out: each would make a role of its own.
fn ask_of(pod: &Waiting, is_alone: bool) -> Result<Ask, String> {
    let ask = pod.ask.as_ref().map_err(|why| format!("no part of the scheduler here takes {why}"))?;
    let mut ask = ask.clone();
    if !is_alone && ask.affinity().labels.keys().any(|label| NUMBERING.contains(&label.as_str())) {
        let mut affinity = ask.affinity().clone();
        affinity.labels.retain(|label, _| !NUMBERING.contains(&label.as_str()));
        ask.affinity = affinity.into_said();
    }
    Ok(ask)
}

/// Returns the gang of the pods: one role for each run of pods with the same ask.
fn group(pods: &[Waiting]) -> Result<Group, String> {
    let mut roles: Vec<(Ask, Vec<String>)> = Vec::new();
    for pod in pods {
        let ask = ask_of(pod, pods.len() == 1)?;
        match roles.last_mut().filter(|(last, _)| *last == ask) {
            Some((_, uids)) => uids.push(pod.uid.clone()),
            None => roles.push((ask, vec![pod.uid.clone()])),
        }
    }
    let role = |(number, (ask, uids)): (usize, (Ask, Vec<String>))| {
        let tasks = uids.len() as u32;
        let name = if number == 0 { "main".to_owned() } else { format!("main-{number}") };
        Role {
            name,
            minimum: tasks,
            maximum: tasks,
            ask,
            work: Work::External(uids),
            topology: None,
            spread: Newer::default(),
        }
    };
    let mut roles: Vec<Group> = roles.into_iter().enumerate().map(role).map(Group::Role).collect();
    if roles.len() == 1 {
        return Ok(roles.remove(0));
    }
    let minimum = roles.len() as u32;
    Ok(Group::Branch(Branch {
        name: "gang".into(),
        minimum,
        groups: roles,
        topology: None,
        spread: Newer::default(),
    }))
}
