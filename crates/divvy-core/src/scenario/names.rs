//! Other names for all that a state names: users u1…, queues q1…, jobs j1…, nodes n1…, and nothing of what people wrote.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::read::{Hardware, plain_work, saving};
use crate::id::{DeviceId, JobId, NodeId};
use crate::model::allocation::Placement;
use crate::model::choice::NodeChoice;
use crate::model::device::{DeviceSpec, Link};
use crate::model::gang::Group;
use crate::model::job::{Dependency, JobSpec, Kind, StopOrder};
use crate::model::newer::Newer;
use crate::model::node::NodeSpec;
use crate::model::queue::{DEFAULT, Nodes, Queue, lineage, seat, user_at};
use crate::reason::Reason;
use crate::state::{Dependable, Job, Node, State};
use crate::time::{Span, Time};

/// The other names.
pub(super) struct Names<'a> {
    state: &'a State,
    users: BTreeMap<&'a str, String>,
    queues: BTreeMap<&'a str, String>,
    pub(super) nodes: BTreeMap<NodeId, String>,
    devices: BTreeMap<DeviceId, (String, u32)>,
    /// The numbers that the jobs get when they are submitted one by one.
    jobs: BTreeMap<u64, u64>,
    /// When the scenario begins.
    pub(super) begin: Time,
}

impl<'a> Names<'a> {
    pub(super) fn of(state: &'a State) -> Self {
        let mut names = Self {
            state,
            users: BTreeMap::new(),
            queues: BTreeMap::new(),
            nodes: (1..).zip(state.nodes.keys()).map(|(count, id)| (*id, format!("n{count}"))).collect(),
            devices: BTreeMap::new(),
            jobs: (1..).zip(state.jobs.keys()).map(|(count, number)| (*number, count)).collect(),
            begin: state.jobs.values().map(|job| job.submitted_at).min().unwrap_or(state.now),
        };
        for job in state.jobs.values() {
            let next = format!("u{}", names.users.len() + 1);
            names.users.entry(&job.owner.name).or_insert(next);
        }
        let of_jobs = state.jobs.values().map(|job| job.spec.queue.as_str());
        state.queues.keys().map(String::as_str).chain(of_jobs).for_each(|path| names.name_queue(path));
        let mut places: BTreeMap<NodeId, u32> = BTreeMap::new();
        for (id, device) in &state.devices {
            let place = places.entry(device.node).or_default();
            names.devices.insert(*id, (format!("{}:{place}", names.node(device.node)), *place));
            *place += 1;
        }
        names
    }

    /// Names a queue. It stays below the same queues as before.
    fn name_queue(&mut self, path: &'a str) {
        let mut line: Vec<&str> = lineage(path).collect();
        line.reverse();
        let mut above = String::new();
        for path in line {
            let count = self.queues.keys().filter(|known| **known != DEFAULT).count();
            let next = if path == DEFAULT { path.to_owned() } else { format!("{above}q{}", count + 1) };
            above = self.queues.entry(path).or_insert(next).clone() + "/";
        }
    }

    pub(super) fn user(&self, name: &str) -> String {
        self.users.get(name).cloned().unwrap_or_else(|| "root".into())
    }

    pub(super) fn queue(&self, path: &str) -> String {
        self.queues.get(path).cloned().unwrap_or_else(|| path.to_owned())
    }

    pub(super) fn node(&self, id: NodeId) -> String {
        self.nodes.get(&id).cloned().unwrap_or_default()
    }

    pub(super) fn device(&self, id: DeviceId) -> String {
        self.devices.get(&id).map(|(name, _)| name.clone()).unwrap_or_default()
    }

    pub(super) fn job(&self, id: JobId) -> String {
        let number = self.id(id).number;
        id.member.map_or(format!("j{number}"), |member| format!("j{number}_{member}"))
    }

    /// The job's id in the scenario.
    pub(super) fn id(&self, id: JobId) -> JobId {
        JobId { number: self.jobs.get(&id.number).copied().unwrap_or(0), ..id }
    }

    /// What the tasks have: `n1:0+n1:1,n2:0`.
    pub(super) fn places(&self, placements: &[Placement]) -> String {
        let task = |placement: &Placement| match placement.devices.is_empty() {
            true => self.node(placement.node),
            false => {
                let names: Vec<_> = placement.devices.iter().map(|(id, _)| self.device(*id)).collect();
                names.join("+")
            }
        };
        placements.iter().map(task).collect::<Vec<_>>().join(",")
    }

    /// The moment by the scenario's clock.
    pub(super) fn time(&self, at: Time) -> Time {
        Time(at.since(self.begin).0)
    }

    /// Another name for a domain. Domains keep the order of their names, which decides between equals.
    fn domain(&self, name: &str) -> String {
        let specs = self.state.nodes.values().flat_map(|node| &node.spec.domains);
        let names: std::collections::BTreeSet<&str> = specs.map(|(_, domain)| domain.as_str()).collect();
        format!("d{:05}", names.range(..=name).count())
    }

    /// What the planner sees of a node.
    pub(super) fn hardware(&self, id: NodeId, spec: &NodeSpec) -> Hardware {
        let devices = self.state.devices.iter().filter(|(_, device)| device.node == id);
        let spec = NodeSpec {
            name: self.node(id),
            cpu_milli: spec.cpu_milli,
            memory_bytes: spec.memory_bytes,
            numa: spec.numa.clone(),
            domains: spec
                .domains
                .iter()
                .map(|(level, domain)| (level.clone(), self.domain(domain)))
                .collect(),
            most_tasks: spec.most_tasks,
            ..NodeSpec::default()
        };
        let mut devices: Vec<DeviceSpec> =
            devices.map(|(id, device)| self.device_spec(*id, &device.spec)).collect();
        // Where all are joined by the same number of lanes, that number makes no difference.
        let links = || devices.iter().flat_map(|device| &device.links);
        let first = links().next().map(|link| link.lanes);
        if links().all(|link| Some(link.lanes) == first) {
            devices.iter_mut().flat_map(|device| &mut device.links).for_each(|link| link.lanes = 1);
        }
        Hardware { spec, devices }
    }

    fn device_spec(&self, id: DeviceId, spec: &DeviceSpec) -> DeviceSpec {
        let link = |link: &Link| {
            let uuid = self.device(self.state.device_by_uuid(&link.uuid)?);
            Some(Link { uuid, lanes: link.lanes })
        };
        let (uuid, index) = self.devices.get(&id).cloned().unwrap_or_default();
        DeviceSpec {
            uuid,
            index,
            product: String::new(),
            minor: None,
            links: spec.links.iter().filter_map(link).collect(),
            ..spec.clone()
        }
    }

    /// A queue without its members, whatever they may do there.
    pub(super) fn renamed_queue(&self, queue: &Queue) -> Queue {
        // Destructured without `..`, so that no new field gets out unseen.
        let Queue {
            path,
            limit: _,
            guarantee: _,
            borrow: _,
            lend: _,
            weight: _,
            priority: _,
            within_queue: _,
            reclaim: _,
            borrow_evicts: _,
            requeue: _,
            bounds: _,
            submit: _,
            users,
            budget: _,
            pledge: _,
            admins: _,
            default_for: _,
            nodes,
        } = queue;
        let mut users = users.clone();
        if let Some(users) = &mut users.0 {
            let known =
                |(user, weight): (&String, &u32)| Some((self.users.get(user.as_str())?.clone(), *weight));
            users.weight = users.weight.iter().filter_map(known).collect();
        }
        let nodes = Newer(nodes.said().map(|_| self.kept_nodes(path)));
        let (admins, default_for) = (Newer::default(), Newer::default());
        let path = self.queue(path);
        Queue { path, submit: Vec::new(), users, admins, default_for, nodes, ..queue.clone() }
    }

    /// The nodes that are kept for a queue, by name: labels are left out.
    fn kept_nodes(&self, queue: &str) -> Nodes {
        let is_kept = |node: &Node| self.state.keeper_of(node) == Some(queue);
        let kept = self.state.nodes.iter().filter(|(_, node)| is_kept(node));
        let named = kept.map(|(id, _)| self.node(*id)).filter(|name| !name.is_empty());
        let mut names: std::collections::BTreeSet<String> = named.collect();
        if names.is_empty() {
            names.insert("none".into());
        }
        Nodes::Named(names)
    }

    /// What the planner sees of a job, with only those dependencies that are still open.
    pub(super) fn renamed_spec(&self, job: &Job) -> JobSpec {
        let spec = &job.spec;
        let open = |dependency: &&Dependency| {
            self.state.dependency(dependency.job, dependency.on) != Dependable::Met
                && self.jobs.contains_key(&dependency.job.number)
        };
        let after = spec.after.iter().filter(open);
        let mut renamed = JobSpec {
            name: format!("j{}", self.id(job.id()).number),
            queue: self.queue(&spec.queue),
            project: None,
            kind: Kind::default(),
            labels: BTreeMap::new(),
            after: after.map(|other| Dependency { job: self.id(other.job), on: other.on }).collect(),
            start_after: spec.start_after.filter(|at| *at > self.state.now).map(|at| self.time(at)),
            stop: StopOrder::default(),
            checkpoint: spec.saves_every_ms().map(|every| saving(Span(every))),
            seat: Newer::default(),
            kept_to: Newer::default(),
            ..JobSpec::clone(spec)
        };
        plain(Arc::make_mut(&mut renamed.gang), &mut 0);
        if let Group::Role(role) = Arc::make_mut(&mut renamed.gang) {
            role.name = "main".into();
        }
        renamed
    }

    /// A job's reason by these names; a user who holds another user's job becomes an administrator.
    pub(super) fn reason(&self, job: &Job, reason: &Reason) -> Reason {
        match reason {
            Reason::Held(by) if *by != job.owner.name => Reason::Held("root".into()),
            Reason::Held(by) => Reason::Held(self.user(by)),
            Reason::Dependency(job, on) => Reason::Dependency(self.id(*job), *on),
            Reason::StartAfter(at) => Reason::StartAfter(self.time(*at)),
            Reason::QueueLimit(queue, resource, limit, asked) => {
                Reason::QueueLimit(self.queue(queue), resource.clone(), *limit, *asked)
            }
            Reason::UserLimit(at, resource, limit, asked) => {
                let (queue, user) = user_at(at).unwrap_or((at, ""));
                let at = seat(&self.queue(queue), &self.user(user));
                Reason::UserLimit(at, resource.clone(), *limit, *asked)
            }
            Reason::OverBudget(queue, budget, until) => {
                Reason::OverBudget(self.queue(queue), *budget, self.time(*until))
            }
            Reason::BeyondGuarantee(queue, resource, guarantee, asked) => {
                Reason::BeyondGuarantee(self.queue(queue), resource.clone(), *guarantee, *asked)
            }
            other => other.clone(),
        }
    }
}

/// Leaves out what the tasks do and what roles and groups are called, of which so many have been renamed: that is private.
fn plain(group: &mut Group, renamed: &mut u32) {
    match group {
        Group::Role(role) => {
            role.work = plain_work();
            role.name = format!("role{renamed}");
            *renamed += 1;
            // Labels are names, too.
            (role.ask.nodes, role.ask.affinity) = (NodeChoice::default(), Newer::default());
        }
        Group::Branch(branch) => {
            branch.name = format!("group{renamed}");
            *renamed += 1;
            branch.groups.iter_mut().for_each(|group| plain(group, renamed));
        }
    }
}
