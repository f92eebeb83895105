//! What is known of the cluster: its nodes, and what pods hold of them. Pods that the pool placed are its own. All other pods,
//! whoever placed them, reduce what a node has to give.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use divvy_core::engine::{EndedHow, LaunchFailure, Observation, TaskEnd, TaskStart};
use divvy_core::id::AllocationId;
use divvy_core::model::node::OthersHold;
use divvy_core::time::Time;

use super::demand::Demand;
use super::nodes;
use super::objects::{Node, Pod};
use super::shrunk::{self, Seen};
use super::waiting::{PodNews, Running, Waiting};
use super::watch::Change;

/// What is known of the cluster.
#[derive(Debug, Default)]
pub(super) struct World {
    /// The scheduler name that the pool's pods have.
    scheduler: String,
    nodes: BTreeMap<String, KnownNode>,
    pods: HashMap<String, KnownPod>,
    by_allocation: HashMap<AllocationId, String>,
    /// Nodes of which others hold more or less than was last reported.
    touched: BTreeSet<String>,
    /// Observations for the core.
    observed: Vec<Observation>,
    /// News about waiting pods for the shell.
    news: Vec<PodNews>,
    /// Whether nodes and pods have been listed.
    listed: (bool, bool),
}

#[derive(Debug, Default)]
struct KnownNode {
    /// The node as it was last reported; `None` while only pods mention it.
    is: Option<Seen>,
    is_gone: bool,
    others: OthersHold,
    /// What the pool's own pods hold.
    own: OthersHold,
    /// What the node had when those pods came, and no longer has.
    missing: OthersHold,
}

impl KnownNode {
    fn is_there(&self) -> bool {
        self.is.is_some() && !self.is_gone
    }

    /// Returns what others hold, and what is missing.
    fn taken(&self) -> OthersHold {
        match self.is.as_ref().filter(|_| !self.missing.is_nothing()) {
            Some(is) => shrunk::with_missing(is, (&self.others, &self.own), &self.missing),
            None => self.others.clone(),
        }
    }
}

#[derive(Debug)]
struct KnownPod {
    namespace: String,
    name: String,
    node: Option<String>,
    demand: Demand,
    is_over: bool,
    /// Whether the shell was told that the pod waits.
    waits: bool,
    held: Held,
}

/// Who holds a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Held {
    /// Nobody here: on a node, it counts among the others.
    Nobody,
    /// It was there when the term began, and is neither adopted nor left to others yet.
    Found,
    /// An allocation, on this node.
    Here(AllocationId, String, Told),
}

/// What the core has been told about a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    Nothing,
    Started,
    Ended,
}

/// The identity of a pod on the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
}

impl World {
    /// Nothing is known yet.
    pub(super) fn new(scheduler: &str) -> Self {
        Self { scheduler: scheduler.to_owned(), ..Self::default() }
    }

    /// Returns whether nodes and pods have been listed.
    pub(super) fn is_listed(&self) -> bool {
        self.listed == (true, true)
    }

    /// Returns what to tell the core since the last call: nodes before what is on them.
    pub(super) fn observations(&mut self) -> Vec<Observation> {
        let mut observed = std::mem::take(&mut self.observed);
        for name in std::mem::take(&mut self.touched) {
            let Some(node) = self.nodes.get(&name).filter(|node| node.is_there()) else { continue };
            observed.push(Observation::Others(name, node.taken()));
        }
        observed
    }

    /// Returns what to tell the shell.
    pub(super) fn pod_news(&mut self) -> Vec<PodNews> {
        std::mem::take(&mut self.news)
    }

    pub(super) fn see_nodes(&mut self, change: Change<Node>) {
        match change {
            Change::Is(node) => self.see_node(&node),
            Change::Gone(node) => self.lose_node(&node.metadata.name),
            Change::All(nodes) => {
                self.listed.0 = true;
                let there: HashSet<&str> = nodes.iter().map(|node| node.metadata.name.as_str()).collect();
                let known = self.nodes.iter().filter(|(_, node)| node.is_there());
                let gone = known.filter(|(name, _)| !there.contains(name.as_str()));
                let gone: Vec<String> = gone.map(|(name, _)| name.clone()).collect();
                gone.iter().for_each(|name| self.lose_node(name));
                nodes.iter().for_each(|node| self.see_node(node));
            }
        }
    }

    fn see_node(&mut self, node: &Node) {
        let now = nodes::read(node);
        let known = self.nodes.entry(node.metadata.name.clone()).or_default();
        let (is, missing) = match known.is.as_ref().filter(|_| !known.own.is_nothing()) {
            Some(before) => shrunk::kept(before, now),
            None => (now, OthersHold::default()),
        };
        if known.is.as_ref() != Some(&is) || known.is_gone {
            self.observed.push(Observation::Node(is.0.clone(), is.1.clone()));
            (known.is, known.is_gone) = (Some(is), false);
            self.touched.insert(node.metadata.name.clone());
        }
        if known.missing != missing {
            known.missing = missing;
            self.touched.insert(node.metadata.name.clone());
        }
    }

    fn lose_node(&mut self, name: &str) {
        if let Some(known) = self.nodes.get_mut(name)
            && known.is_there()
        {
            known.is_gone = true;
            self.observed.push(Observation::NodeGone(name.to_owned()));
        }
    }

    pub(super) fn see_pods(&mut self, change: Change<Pod>, now: Time) {
        match change {
            Change::Is(pod) => self.see_pod(&pod, now),
            Change::Gone(pod) => self.lose_pod(&pod.metadata.uid, now),
            Change::All(pods) => {
                let there: HashSet<&str> = pods.iter().map(|pod| pod.metadata.uid.as_str()).collect();
                let gone = self.pods.keys().filter(|uid| !there.contains(uid.as_str()));
                let gone: Vec<String> = gone.cloned().collect();
                gone.iter().for_each(|uid| self.lose_pod(uid, now));
                pods.iter().for_each(|pod| self.see_pod(pod, now));
                self.listed.1 = true;
            }
        }
    }

    fn see_pod(&mut self, pod: &Pod, now: Time) {
        let uid = &pod.metadata.uid;
        let before = self.pods.remove(uid);
        if let Some(before) = &before {
            self.count(before, -1);
        }
        let is_ours = pod.spec.scheduler_name == self.scheduler;
        let is_new = before.is_none();
        let mut known = KnownPod::new(pod, before);
        // A pod bound before the first list is complete was bound in an earlier term.
        if is_ours && is_new && !self.listed.1 && known.node.is_some() && !known.is_over {
            known.held = Held::Found;
            self.news.push(PodNews::Runs(Box::new(Running::new(pod))));
        }
        self.tell_core(&mut known, pod, now);
        if is_ours && known.held == Held::Nobody {
            self.tell_shell(&mut known, pod);
        }
        self.count(&known, 1);
        self.pods.insert(uid.clone(), known);
    }

    /// Tells the core about a task's start and end.
    fn tell_core(&mut self, known: &mut KnownPod, pod: &Pod, now: Time) {
        let Held::Here(id, node, told) = &mut known.held else { return };
        let elsewhere = known.node.as_ref().filter(|there| there.as_str() != node.as_str());
        if let Some(there) = elsewhere.filter(|_| *told < Told::Ended) {
            let text = format!("somebody else has put the pod on node {there}");
            self.observed.push(ended(*id, EndedHow::LaunchFailed(LaunchFailure::Other(text)), now));
            *told = Told::Ended;
            return;
        }
        let runs = pod.status.phase == "Running" || known.is_over;
        if runs && *told < Told::Started {
            self.observed.push(Observation::Started(*id, TaskStart { at: now, ..TaskStart::default() }));
            *told = Told::Started;
        }
        if known.is_over && *told < Told::Ended {
            self.observed.push(ended(*id, EndedHow::Exited(exit_code(pod)), now));
            *told = Told::Ended;
        }
    }

    /// Tells the shell whether a pod waits for a node from this scheduler.
    fn tell_shell(&mut self, known: &mut KnownPod, pod: &Pod) {
        let goes = pod.metadata.deletion_timestamp.is_some() || known.is_over;
        let waits = known.node.is_none() && !goes && pod.spec.scheduling_gates.is_empty();
        if waits && !known.waits {
            self.news.push(PodNews::Waits(Box::new(Waiting::new(pod))));
        } else if !waits && known.waits {
            self.news.push(PodNews::Gone(pod.metadata.uid.clone()));
        }
        known.waits = waits;
    }

    fn lose_pod(&mut self, uid: &str, now: Time) {
        let Some(known) = self.pods.remove(uid) else { return };
        self.count(&known, -1);
        match &known.held {
            Held::Here(id, _, told) if *told < Told::Ended => {
                self.observed.push(ended(*id, EndedHow::Signalled(TERM), now));
            }
            _ => {}
        }
        self.news.push(PodNews::Gone(uid.to_owned()));
    }

    /// Adds a pod to what the pool or others hold of its node, or removes it.
    fn count(&mut self, pod: &KnownPod, times: i64) {
        let (name, is_own) = match (&pod.held, &pod.node) {
            _ if pod.is_over => return,
            (Held::Here(_, planned, _), None) => (planned, true),
            (Held::Here(_, planned, _), Some(node)) => (node, planned == node),
            (Held::Found, Some(node)) => (node, true),
            (Held::Nobody, Some(node)) => (node, false),
            (_, None) => return,
        };
        let node = self.nodes.entry(name.clone()).or_default();
        pod.demand.add_to(if is_own { &mut node.own } else { &mut node.others }, times);
        if !is_own || !node.missing.is_nothing() {
            self.touched.insert(name.clone());
        }
    }

    /// Sets who holds a pod from now on.
    fn hold(&mut self, uid: &str, held: Held) -> bool {
        let Some(mut pod) = self.pods.remove(uid) else { return false };
        self.count(&pod, -1);
        pod.held = held;
        self.count(&pod, 1);
        self.pods.insert(uid.to_owned(), pod);
        true
    }

    /// Gives a pod to an allocation on a node; returns its address.
    pub(super) fn give(&mut self, uid: &str, id: AllocationId, node: &str) -> Option<Address> {
        let told = match &self.pods.get(uid)?.held {
            Held::Here(before, _, told) if *before == id => *told,
            _ => Told::Nothing,
        };
        self.hold(uid, Held::Here(id, node.to_owned(), told));
        self.by_allocation.insert(id, uid.to_owned());
        self.address(uid)
    }

    /// Gives a pod that was found running to an allocation.
    pub(super) fn adopt(&mut self, uid: &str, id: AllocationId) {
        let Some(node) = self.pods.get(uid).and_then(|pod| pod.node.clone()) else { return };
        self.hold(uid, Held::Here(id, node, Told::Started));
        self.by_allocation.insert(id, uid.to_owned());
    }

    /// Counts a pod that was found running among the others from now on.
    pub(super) fn leave(&mut self, uid: &str) -> Option<Address> {
        self.hold(uid, Held::Nobody);
        self.address(uid)
    }

    /// Returns the pod of an allocation.
    pub(super) fn pod_of(&self, id: AllocationId) -> Option<Address> {
        self.address(self.uid_of(id)?)
    }

    /// Returns its uid, even when it is gone.
    pub(super) fn uid_of(&self, id: AllocationId) -> Option<&str> {
        self.by_allocation.get(&id).map(String::as_str)
    }

    /// Returns whether a pod is there and has no node.
    pub(super) fn still_waits(&self, uid: &str) -> bool {
        self.pods.get(uid).is_some_and(|pod| pod.waits && pod.node.is_none())
    }

    /// Returns the address of a pod.
    pub(super) fn address(&self, uid: &str) -> Option<Address> {
        let pod = self.pods.get(uid)?;
        Some(Address { namespace: pod.namespace.clone(), name: pod.name.clone(), uid: uid.to_owned() })
    }

    /// Ends a task that could not be bound, or that is known to be over otherwise.
    pub(super) fn end(&mut self, id: AllocationId, how: EndedHow, now: Time) {
        let pod = self.by_allocation.get(&id).and_then(|uid| self.pods.get_mut(uid));
        if let Some(KnownPod { held: Held::Here(held, _, told), .. }) = pod
            && *held == id
        {
            if *told == Told::Ended {
                return;
            }
            *told = Told::Ended;
        }
        self.observed.push(ended(id, how, now));
    }

    /// Forgets a task whose end is known: its pod, if it still exists, belongs to nobody.
    pub(super) fn forget(&mut self, id: AllocationId) {
        let Some(uid) = self.by_allocation.remove(&id) else { return };
        let is_held = |pod: &KnownPod| matches!(&pod.held, Held::Here(held, ..) if *held == id);
        if !self.pods.get(&uid).is_some_and(is_held) {
            return;
        }
        self.hold(&uid, Held::Nobody);
        if let Some(pod) = self.pods.get_mut(&uid)
            && pod.waits
            && (pod.node.is_some() || pod.is_over)
        {
            pod.waits = false;
            self.news.push(PodNews::Gone(uid));
        }
    }
}

impl KnownPod {
    fn new(pod: &Pod, before: Option<Self>) -> Self {
        let (held, waits) = before.map_or((Held::Nobody, false), |before| (before.held, before.waits));
        Self {
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            node: pod.spec.node_name.clone().filter(|node| !node.is_empty()),
            // The server never admits a request that cannot be read.
            demand: Demand::of(pod).unwrap_or_default(),
            is_over: is_over(pod),
            waits,
            held,
        }
    }
}

/// The signal that ends a deleted pod.
const TERM: i32 = 15;

fn ended(id: AllocationId, how: EndedHow, at: Time) -> Observation {
    Observation::Ended(id, TaskEnd { at, how, ..TaskEnd::default() })
}

fn is_over(pod: &Pod) -> bool {
    ["Succeeded", "Failed"].contains(&pod.status.phase.as_str())
}

/// Returns the exit code of the first container that failed; 1 for a pod that failed otherwise.
fn exit_code(pod: &Pod) -> i32 {
    let codes = pod.status.container_statuses.iter().filter_map(|status| status.state.terminated.as_ref());
    let failed = codes.map(|terminated| terminated.exit_code).find(|code| *code != 0);
    failed.unwrap_or(i32::from(pod.status.phase == "Failed"))
}
