//! A view of a cluster from outside. It uses the same lists, the same adoption and the same planner, but writes nothing. It shows
//! what waits, what runs and why, as a pool on one machine shows it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use divvy_api as api;
use divvy_core::controller::Controller;
use divvy_core::explain::{self as reasons, Advice};
use divvy_core::id::{JobId, Term};
use divvy_core::model::choice::{Condition, Is, NodeChoice};
use divvy_core::model::gang::Group;
use divvy_core::model::job::{JobSpec, Owner};
use divvy_core::reason::Reason;
use divvy_core::snapshot::Snapshot;
use divvy_core::state::{Job, State};
use divvy_core::time::{Span, Time};
use divvy_engine::kubernetes::{KubernetesEngine, NODE_NAME, PodNews, Site, Waiting};

use super::submission::NOBODY;
use super::words as cluster_words;
use super::{KubeError, Policy, Shell};
use crate::clock;
use crate::wire::{explain as words, queue, row};

/// A cluster as it was at a moment.
pub struct Looked {
    /// The state before planning: what is so now.
    state: State,
    snapshot: Snapshot,
    /// The state after planning: what the planner thinks of the waiting jobs.
    planned: Controller,
    jobs: Vec<Known>,
    /// Pods that are in no job.
    loose: Vec<api::Job>,
}

/// Pods that are one job.
#[derive(Debug)]
struct Known {
    number: u64,
    /// Its name: namespace and name of its pod, or of the owner of its gang.
    id: String,
    pods: Vec<Waiting>,
    /// Whether its pods were told to go.
    leaves: bool,
}

/// The log filter: only what goes wrong is shown.
const QUIET_LOG: &str = "error,divvy_engine::kubernetes=warn,kube_client=off";
/// Gangs that lack pods are told so after a while: here that time has passed.
const LATER: Span = Span::seconds(60);

impl Looked {
    /// Lists a cluster and looks at it as a scheduler with this policy would at its start.
    pub fn at(site: &Site, policy: &Policy) -> Result<Self, KubeError> {
        super::log_to_standard_error(QUIET_LOG);
        let mut shell = Shell::new(KubernetesEngine::look(site)?, policy);
        shell.await_lists(&AtomicBool::new(false))?;
        let now = clock::now();
        let news = shell.take_over(Term(1), now)?;
        let pods = Pods::of(&news);
        shell.take_pods(news.clone(), now)?;
        let _ = shell.jobs.said(&shell.controller, now + LATER);
        let jobs = shell.jobs.of_jobs().filter_map(|(number, uids)| pods.known(number, uids)).collect();
        let loose = shell.jobs.in_none().map(|(pod, why)| of_none(pod, why)).collect();
        let (state, snapshot) = (shell.controller.state().clone(), shell.controller.snapshot().clone());
        shell.controller.cycle(now)?;
        Ok(Self { state, snapshot, planned: shell.controller, jobs, loose })
    }

    /// Returns what waits and what runs.
    pub fn jobs(&self) -> Vec<api::Job> {
        let mut rows: Vec<api::Job> = self.jobs.iter().filter_map(|known| self.row(known)).collect();
        rows.extend(self.loose.iter().cloned());
        rows.sort_by(|a, b| (a.submitted_ms, &a.id).cmp(&(b.submitted_ms, &b.id)));
        rows
    }

    /// Returns the queues, with what is due to them and what they hold.
    pub fn queues(&self) -> Vec<api::Queue> {
        let nobody = Owner { name: String::new(), uid: NOBODY, gid: NOBODY, groups: Vec::new() };
        queue::all((&self.state, self.state.now), &self.snapshot, &nobody)
    }

    /// Explains why a pod, or its gang, waits or runs where it runs. `name` is `namespace/name`, or a name that only one has.
    /// `None` if nothing has that name.
    pub fn explain(&self, name: &str) -> Option<api::Explain> {
        let Some((known, job)) = self.find(name) else {
            let row = self.loose.iter().find(|row| is_called(&row.id, name))?;
            return Some(words::refused(&self.state, row));
        };
        let run = job.run(None)?;
        let id = job.id();
        let explained = if run.is_active() {
            words::placed(&self.state, &self.snapshot, job, (id, &run))
        } else {
            let found = reasons::explain(&self.state, &self.snapshot, id)?;
            let advice = reasons::advise(&self.state, &self.snapshot, id);
            let said = words::waiting(&self.state, job, (id, &run), (&found, advice.as_ref()));
            match &advice {
                Some(advice) => self.with_names(said, advice),
                None => said,
            }
        };
        let (job, submitted_ms) = (known.id.clone(), Some(known.created().0));
        Some(api::Explain { job, submitted_ms, ..explained })
    }

    /// Returns the nodes on which a pod could start now if no other pod were before it.
    pub fn nodes_for(&mut self, name: &str) -> BTreeSet<String> {
        let Some((_, job)) = self.find(name) else { return BTreeSet::new() };
        let spec = Arc::clone(&job.spec);
        let nodes: Vec<String> = self.state.nodes.values().map(|node| node.spec.name.clone()).collect();
        let (state, snapshot) = (&self.state, &mut self.snapshot);
        let takes =
            |node: &String| divvy_core::plan::would_place(state, snapshot, &on_the_node(&spec, node)).is_ok();
        let mut takes = takes;
        nodes.into_iter().filter(|node| takes(node)).collect()
    }

    /// Puts names of pods in the place of the pool's job numbers.
    fn with_names(&self, mut said: api::Explain, advice: &Advice) -> api::Explain {
        for (blocker, known) in said.blockers.iter_mut().zip(&advice.blockers) {
            blocker.text = cluster_words::said(&known.reason, &self.state);
            for (way, fix) in blocker.ways.iter_mut().zip(&known.ways) {
                way.text = cluster_words::way(fix, &self.state);
            }
            if let Some(way) = blocker.ways.first() {
                blocker.fix.clone_from(&way.text);
            } else if let Some(fix) = &known.lifted_by {
                blocker.fix = words::also(cluster_words::way(fix, &self.state));
            }
        }
        if let (Some(remedy), Some(fix)) = (&mut said.remedy, &advice.remedy) {
            remedy.text = cluster_words::way(fix, &self.state);
        }
        said
    }

    fn find(&self, name: &str) -> Option<(&Known, &Job)> {
        let is_it = |known: &&Known| {
            let of_pod = |pod: &Waiting| is_called(&called(&pod.namespace, &pod.name), name);
            is_called(&known.id, name) || known.pods.iter().any(of_pod)
        };
        let known = self.jobs.iter().find(is_it)?;
        Some((known, self.state.jobs.get(&known.number)?))
    }

    fn row(&self, known: &Known) -> Option<api::Job> {
        let job = self.state.jobs.get(&known.number)?;
        let run = job.run(None)?;
        let position = if run.is_active() { None } else { reasons::position(&self.snapshot, job) };
        let place = position.map(|before| before as u64 + 1);
        let (reason, state) = match (run.is_active(), known.leaves) {
            (true, true) => (None, api::JobState::Stopping),
            (true, false) => (None, row::job_state(run.state)),
            (false, _) => (Some(self.why(known.number)), api::JobState::Pending),
        };
        let (id, submitted_ms) = (known.id.clone(), known.created().0);
        let name = known.pods.first().map(|pod| pod.name.clone()).unwrap_or_default();
        let row = row::open(&self.state, job, (JobId::single(known.number), &run), place, false);
        // Devices have no names here.
        Some(api::Job { id, name, submitted_ms, state, reason, devices: Vec::new(), ..row })
    }

    /// Returns why a job waits, as the planner sees it.
    fn why(&self, number: u64) -> api::Reason {
        let state = self.planned.state();
        let job = state.jobs.get(&number);
        let reason = job.and_then(|job| reasons::reason(state, job, (job.id(), &job.run(None)?)));
        let reason = reason.unwrap_or(Reason::NotPlanned);
        api::Reason { code: reason.code().to_owned(), text: cluster_words::said(&reason, state) }
    }
}

impl Known {
    /// Returns when the first of its pods was created.
    fn created(&self) -> Time {
        self.pods.iter().map(|pod| moment(&pod.created)).min().unwrap_or_default()
    }
}

/// The pods that were listed.
struct Pods<'a>(HashMap<&'a str, (&'a Waiting, bool)>);

impl<'a> Pods<'a> {
    fn of(news: &'a [PodNews]) -> Self {
        let pod = |news: &'a PodNews| match news {
            PodNews::Waits(pod) => Some((pod.uid.as_str(), (&**pod, false))),
            PodNews::Runs(running) => Some((running.pod.uid.as_str(), (&running.pod, running.leaves))),
            PodNews::Gone(_) | PodNews::Group(..) => None,
        };
        Self(news.iter().filter_map(pod).collect())
    }

    fn known(&self, number: u64, uids: &[String]) -> Option<Known> {
        let pods: Vec<&(&Waiting, bool)> = uids.iter().filter_map(|uid| self.0.get(uid.as_str())).collect();
        let (first, leaves) = (pods.first()?.0, pods.iter().any(|(_, leaves)| *leaves));
        let id = match &first.gang {
            // Its owner made it, and is what people know.
            Some(gang) if gang.of == first.subject.uid => called(&first.namespace, &first.subject.name),
            _ => called(&first.namespace, &first.name),
        };
        Some(Known { number, id, pods: pods.into_iter().map(|(pod, _)| (*pod).clone()).collect(), leaves })
    }
}

fn called(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// Returns whether a name means this id, with its namespace or without.
fn is_called(id: &str, name: &str) -> bool {
    id == name || id.split_once('/').is_some_and(|(_, own)| own == name)
}

fn moment(text: &str) -> Time {
    text.parse::<jiff::Timestamp>().map_or(Time(0), |at| Time(at.as_millisecond()))
}

/// Returns the row for a pod that is in no job.
fn of_none(pod: &Waiting, why: Option<&divvy_engine::kubernetes::objects::Condition>) -> api::Job {
    let asked = pod.ask.as_ref().ok().and_then(|ask| ask.alternatives.first()?.devices.as_ref());
    let gpus = asked.map_or(0, |devices| u64::from(devices.count));
    let reason = why.map(|why| api::Reason { code: why.reason.clone(), text: why.message.clone() });
    api::Job {
        id: called(&pod.namespace, &pod.name),
        name: pod.name.clone(),
        user: pod.namespace.clone(),
        queue: pod.queue.clone().unwrap_or_else(|| divvy_core::model::queue::DEFAULT.to_owned()),
        project: None,
        labels: std::collections::BTreeMap::new(),
        priority: pod.priority,
        state: api::JobState::Pending,
        gpus,
        gpu_milli: gpus * 1000,
        devices: Vec::new(),
        nodes: Vec::new(),
        tasks: 1,
        attempt: 0,
        position: None,
        submitted_ms: moment(&pod.created).0,
        started_ms: None,
        ended_ms: None,
        time_limit_ms: None,
        exit_code: None,
        last_end: None,
        reason,
        kind: String::new(),
        command: None,
        start: api::ExpectedStart::default(),
    }
}

/// Restricts a job to one node.
fn on_the_node(spec: &JobSpec, node: &str) -> JobSpec {
    let here = Condition { label: NODE_NAME.to_owned(), is: Is::In(vec![node.to_owned()]) };
    let mut spec = spec.clone();
    narrow(Arc::make_mut(&mut spec.gang), &here);
    spec
}

fn narrow(group: &mut Group, to: &Condition) {
    match group {
        Group::Branch(branch) => branch.groups.iter_mut().for_each(|group| narrow(group, to)),
        Group::Role(role) => {
            let NodeChoice { any_of, .. } = &mut role.ask.nodes;
            if any_of.is_empty() {
                any_of.push(Vec::new());
            }
            any_of.iter_mut().for_each(|set| set.push(to.clone()));
        }
    }
}
