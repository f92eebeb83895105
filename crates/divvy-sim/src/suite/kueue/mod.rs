//! Cases in the form of the `kueue` suite: flavors of capacity, a tree of quotas, jobs of podsets, and one question about them.

mod form;
mod nodes;
mod quota;
mod shares;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use super::answer::{Answer, Available, JobFate, Obstacle, Outcome, PodsetFate, TaskFate, Until, play};
use super::measure::{domains, paths};
use super::stage::{Actor, Host, NOW, Running, Seat, Stage, Task, devices, plain_spec, plain_work, set};
use divvy_core::amount::Resource;
use divvy_core::controller::Controller;
use divvy_core::model::ask::{Alternative, Ask};
use divvy_core::model::choice::{NodeChoice, Taint, Toleration};
use divvy_core::model::gang::{Branch, Group, Role};
use divvy_core::model::job::JobSpec;
use divvy_core::model::newer::Newer;
use divvy_core::model::node::NodeSpec;
use divvy_core::model::policy::{Policy, Surplus};
use divvy_core::model::queue::Queue;
use divvy_core::model::topology::{Slice, TopologyAsk};
use divvy_core::time::{Span, Time};
use form::{
    Assigned, Domain, Flavor, ForeignPod, Job, Kind, Node, Placement, Podset, State, TopologyText, Usage,
};
use quota::Quotas;

pub(super) use form::Asked;

/// The one node of a case in which quota alone decides.
const POOL: &str = "pool";
/// The domain of a flavor's nodes, where a case has no nodes and its podsets are to share a flavor.
const FLAVOR: &str = "flavor";
/// The queue of what runs outside the system, and of jobs without a queue.
const OUTSIDE: &str = "outside-of-all-queues";
/// When a job starts that never does.
const NEVER: Time = Time(i64::MAX / 2);
/// The node of running jobs that lie on none of the nodes of their case: they hold their quotas.
const ELSEWHERE: &str = "elsewhere";
/// The priority of what is in use where a case lists no jobs: below all others.
const LOWEST: i32 = -1_000_000;

/// Puts a case before the core.
pub(super) fn answer(asked: &Asked, policy: Policy) -> Result<Answer, Obstacle> {
    let missing = words::missing(asked);
    if !missing.is_empty() {
        return Err(Obstacle::NoWord(missing));
    }
    let paths = paths(asked.queues.iter().map(|queue| (queue.name.as_str(), queue.parent.as_deref())));
    let quotas = Quotas::of(asked)?;
    let mut queues = quotas.queues(asked, &paths);
    queues.push(Queue::named(OUTSIDE));
    let scene = Scene { asked, paths: &paths, quotas: &quotas };
    // Without fair sharing, jobs that borrow go by priority and age alone.
    let surplus = Newer((!asked.config.fair_sharing).then_some(Surplus::Line));
    let policy = Policy { strict: policy.strict || words::strict(asked)?, surplus, ..policy };
    if asked.kind == Kind::Available {
        return scene.amounts(&policy, &queues);
    }
    if asked.kind == Kind::Shares {
        let empty = set(policy.clone(), scene.hosts()?, queues.clone(), Vec::new())?;
        let used = set(policy, scene.hosts()?, queues, scene.actors()?)?;
        return Ok(Answer::Shares(scene.shares(empty, used)));
    }
    let stage = set(policy, scene.hosts()?, queues, scene.actors()?)?;
    match asked.kind {
        Kind::FlavorChoice => choice(stage),
        Kind::Placement => scene.placements(play(stage, Until::Cycles(1))?),
        _ => scene.fates(play(stage, Until::Cycles(asked.config.cycles.unwrap_or(1)))?),
    }
}

/// Whether the one waiting job would start now, or after evictions: then it is promised what others hold.
fn choice(stage: Stage) -> Result<Answer, Obstacle> {
    let waiting = stage.cast.iter().find(|(_, actor)| actor.running.is_none());
    let Some((_, actor)) = waiting else { return Err(Obstacle::Broken("no job of the case waits".into())) };
    let name = actor.name.clone();
    let fits = Controller::open(stage.state.clone()).dry_run(&actor.spec).is_ok();
    if fits {
        return Ok(Answer::Choice { fits, needs_eviction: false });
    }
    let Answer::Fates { jobs, .. } = play(stage, Until::Cycles(1))? else {
        return Err(Obstacle::Broken("no job was placed".into()));
    };
    let fate = jobs.into_iter().find(|job| job.name == name);
    let promised = |fate: JobFate| fate.tasks.iter().all(|task| task.outcome == Outcome::StartLater);
    Ok(Answer::Choice { fits, needs_eviction: fate.is_some_and(promised) })
}

/// A case, with what follows from its quotas.
struct Scene<'a> {
    asked: &'a Asked,
    paths: &'a BTreeMap<String, String>,
    quotas: &'a Quotas,
}

impl Scene<'_> {
    /// What each queue could still take of each flavor, with nothing held and as things stand. If one tree holds more than it may,
    /// that does not concern the others: each tree is asked as if it alone held anything.
    fn amounts(&self, policy: &Policy, queues: &[Queue]) -> Result<Answer, Obstacle> {
        let top = |path: &str| path.split('/').next().unwrap_or_default().to_owned();
        let tops: BTreeSet<String> = self.paths.values().map(|path| top(path)).collect();
        let mut amounts = BTreeSet::new();
        for tree in &tops {
            let is_in_it = |path: &str| top(path) == *tree;
            let mut held = self.actors()?;
            held.retain(|actor| is_in_it(&actor.spec.queue));
            for (actors, when_empty) in [(Vec::new(), true), (held, false)] {
                let stage = set(policy.clone(), self.hosts()?, queues.to_vec(), actors)?;
                amounts.extend(self.available(stage, &is_in_it, when_empty));
            }
        }
        Ok(Answer::Amounts(amounts))
    }

    /// What each of these queues could still take of each flavor.
    fn available(
        &self,
        stage: Stage,
        is_asked: &dyn Fn(&str) -> bool,
        when_empty: bool,
    ) -> BTreeSet<Available> {
        let controller = Controller::open(stage.state);
        let mut amounts = BTreeSet::new();
        for text in self.asked.queues.iter().filter(|text| is_asked(&self.paths[&text.name])) {
            let of_queue = controller.available(&self.paths[&text.name]);
            for (flavor, resource) in self.quotas.lines(self.asked) {
                let (counted, unit) = self.quotas.counted(&(flavor.clone(), resource.clone()));
                // Nothing is left if more is held than there is.
                let amount = of_queue.get(&counted).map_or(0, |amount| unit.of(*amount).max(0));
                let queue = text.name.clone();
                amounts.insert(Available { queue, flavor, resource, when_empty, amount });
            }
        }
        amounts
    }

    fn hosts(&self) -> Result<Vec<Host>, Obstacle> {
        if self.asked.nodes.is_empty() {
            return Ok(self.pools(self.quotas.capacity(self.asked)?));
        }
        let mut hosts = Vec::new();
        for node in self.asked.nodes.iter().filter(|node| nodes::is_offered(self.asked, node)) {
            let flavors = nodes::flavors(self.asked, node);
            // If flavors are not told apart, all nodes belong to the first.
            let flavors = flavors.take(if self.quotas.by_flavor { usize::MAX } else { 1 });
            let levels = self.asked.topologies.iter().map(|topology| topology.levels.as_slice());
            let places = levels.flat_map(|levels| domains(levels, &node.labels)).collect();
            let amounts = || node.allocatable.iter().filter(|(resource, _)| self.quotas.counts(resource));
            let of = |flavor: &Flavor| {
                let line =
                    |(resource, amount): (&String, &i64)| ((flavor.name.clone(), resource.clone()), *amount);
                amounts().map(line).collect::<Vec<_>>()
            };
            let (mut spec, devices) = self.host(&node.name, places, &flavors.flat_map(of).collect());
            if self.quotas.by_amount {
                fill(&mut spec, &node.allocatable);
            }
            spec.face = nodes::face(&node.labels, &node.taints);
            spec.most_tasks = node.allocatable.get("pods").and_then(|most| u32::try_from(*most).ok());
            hosts.push((spec, devices));
        }
        hosts.extend(self.elsewhere());
        nodes::make_room(&mut hosts, &self.actors()?);
        Ok(hosts)
    }

    /// The one node of a case in which quota alone decides; one for each flavor, if podsets are to share one.
    fn pools(&self, capacity: BTreeMap<(String, String), i64>) -> Vec<Host> {
        let mut by_flavor: BTreeMap<String, BTreeMap<(String, String), i64>> = BTreeMap::new();
        for (line, amount) in capacity {
            by_flavor.entry(self.pool(&line.0)).or_default().insert(line, amount);
        }
        by_flavor.entry(self.pool("")).or_default();
        let domains = |name: &str| vec![(FLAVOR.to_owned(), name.to_owned())];
        by_flavor.iter().map(|(name, amounts)| self.host(name, domains(name), amounts)).collect()
    }

    /// The name of that node.
    fn pool(&self, flavor: &str) -> String {
        let podsets = || self.asked.jobs.iter().flat_map(|job| &job.podsets);
        // Where all that a task takes comes from one flavor, it may be an amount of that flavor's node.
        let groups = || self.asked.queues.iter().flat_map(|queue| &queue.quotas).map(|quota| quota.group);
        let of_one = || groups().max() == groups().min();
        let apart = self.quotas.by_flavor && (!self.quotas.by_amount || of_one());
        let apart = apart && podsets().any(|podset| podset.shared_group().is_some());
        if apart && !flavor.is_empty() { format!("{POOL} of {flavor}") } else { POOL.to_owned() }
    }

    fn host(
        &self,
        name: &str,
        domains: Vec<(String, String)>,
        amounts: &BTreeMap<(String, String), i64>,
    ) -> Host {
        let mut spec = NodeSpec { name: name.to_owned(), domains, ..NodeSpec::default() };
        let mut all = Vec::new();
        for ((flavor, resource), amount) in amounts {
            match self.quotas.device(flavor, resource) {
                None if self.quotas.by_amount => {
                    add(&mut spec, self.quotas.counted(&(flavor.clone(), resource.clone())).0, *amount);
                }
                None if resource == "cpu" => spec.cpu_milli = spec.cpu_milli.saturating_add(*amount),
                None => spec.memory_bytes = spec.memory_bytes.saturating_add(*amount),
                Some((model, unit)) => {
                    let count = u32::try_from(amount / unit).unwrap_or(u32::MAX).min(super::MOST_DEVICES);
                    all.extend(devices(name, all.len() as u32, count, &model, 0));
                }
            }
        }
        (spec, all)
    }

    fn actors(&self) -> Result<Vec<Actor>, Obstacle> {
        let jobs = self.asked.jobs.iter().map(|job| self.actor(job));
        let foreign = self.asked.foreign_pods.iter().filter(|pod| !pod.is_over());
        let foreign = foreign.filter_map(|pod| self.foreign(pod));
        let usage = self.asked.usage.iter().map(|usage| self.usage(usage));
        jobs.chain(foreign).chain(usage).collect()
    }

    fn actor(&self, job: &Job) -> Result<Actor, Obstacle> {
        let path = job.queue.as_ref().and_then(|queue| self.paths.get(queue));
        let queue = path.map_or(OUTSIDE, String::as_str);
        let runs = matches!(job.state, State::Admitted | State::Evicting);
        let podsets = job.podsets.iter().filter(|podset| podset.count > 0);
        let groups = podsets.map(|podset| self.podset(job, podset, runs)).collect::<Result<Vec<_>, _>>()?;
        let task = |role: &Role, number| Task {
            id: format!("{}-{number}", role.name),
            group: Some(role.name.clone()),
        };
        let tasks = groups
            .iter()
            .flat_map(|(role, _)| (0..role.maximum).map(move |number| task(role, number)))
            .collect();
        let seats = groups.iter().flat_map(|(_, seats)| seats.iter().cloned().map(Some)).collect();
        let mut spec = plain_spec(
            &job.name,
            queue,
            gang(self.asked, job, groups.into_iter().map(|(role, _)| role).collect())?,
        );
        (spec.priority, spec.preempts) = (job.priority, Newer(quota::may_borrow_by_stops(self.asked, job)));
        // In a queue that is not there, or with blocks of no size, it never starts.
        let is_lost = job.queue.is_some() && path.is_none();
        let apart = job.podsets.iter().filter(|podset| podset.shared_group().is_none());
        let mut topologies = apart.filter_map(|podset| podset.topology.as_ref());
        if !runs && (is_lost || topologies.any(TopologyText::lacks_size)) {
            spec.start_after = Some(NEVER);
        }
        let since = NOW - ms(job.reserved_age_s.unwrap_or(0.0));
        // The present is when the youngest was submitted, if its age is below zero.
        let youngest = self.asked.jobs.iter().filter_map(|job| job.age_s).fold(0.0, f64::min);
        let submitted_at = NOW - ms(job.age_s.unwrap_or(0.0) - youngest);
        Ok(Actor {
            name: job.name.clone(),
            spec,
            submitted_at: if runs { submitted_at.min(since) } else { submitted_at },
            running: runs.then_some(Running { since, seats, ..Running::default() }),
            leaving: job.state == State::Evicting,
            lingers: false,
            tasks,
        })
    }

    /// A podset as a role, and where its pods run.
    fn podset(&self, job: &Job, podset: &Podset, runs: bool) -> Result<(Role, Vec<Seat>), Obstacle> {
        let assigned = job.assigned.iter().find(|assigned| assigned.podset == podset.name).filter(|_| runs);
        let count = assigned.map_or(podset.count, Assigned::pods).max(1);
        let (count, alternatives) = match assigned {
            None => (count, self.quotas.alternatives(self.asked, job, podset)?),
            // It holds what it uses, whatever it asks for. One pod holds usage that does not divide evenly.
            Some(assigned) => {
                let divides = assigned.usage.values().all(|usage| usage % i64::from(count) == 0);
                let count = if divides { count } else { 1 };
                let each = assigned
                    .usage
                    .iter()
                    .map(|(resource, usage)| (resource.clone(), usage / i64::from(count)));
                (count, vec![self.quotas.alternative(self.asked, &assigned.flavors, &each.collect())?])
            }
        };
        let nodes = match runs || self.asked.nodes.is_empty() {
            true => anywhere(),
            false => nodes::choice(podset, &self.asked.flavors)?,
        };
        let in_part = self.asked.config.peer_gates.get("PartialAdmission") != Some(&false);
        let role = Role {
            name: podset.name.clone(),
            // What was admitted stays as it is.
            minimum: podset.min_count.filter(|_| !runs && in_part).unwrap_or(count).min(count),
            maximum: count,
            // A running podset stays where it is.
            ask: Ask { nodes, ..Ask::of(alternatives) },
            work: plain_work(),
            topology: podset.topology.as_ref().filter(|_| !runs).and_then(|text| self.topology(text)),
            spread: Default::default(),
        };
        let seats = if runs { self.seats(assigned, count)? } else { Vec::new() };
        Ok((role, seats))
    }

    fn topology(&self, text: &TopologyText) -> Option<TopologyAsk> {
        let level = text.required_level.as_ref().or(text.preferred_level.as_ref())?;
        let topology = self.asked.topologies.iter().find(|topology| topology.levels.contains(level));
        Some(TopologyAsk {
            topology: topology.map(|topology| topology.name.clone()).unwrap_or_default(),
            within: level.clone(),
            required: text.required_level.is_some(),
            near: text.preferred_level.clone().filter(|_| text.required_level.is_some()),
            slices: text.slices(),
        })
    }

    /// The nodes of a domain in which pods run.
    fn of_domain<'s>(
        &'s self,
        placement: &'s Placement,
        domain: &'s Domain,
    ) -> impl Iterator<Item = &'s Node> {
        let is_in = |node: &Node, (level, value): (&String, &String)| {
            node.labels.get(level) == Some(value) || node.name == *value
        };
        let there = move |node: &&Node| placement.levels.iter().zip(&domain.values).all(|of| is_in(node, of));
        self.asked.nodes.iter().filter(there)
    }

    /// A node with what running jobs hold that lie on none of the nodes of the case, if there are any. No other job may lie there.
    fn elsewhere(&self) -> Option<Host> {
        let runs = |job: &&Job| matches!(job.state, State::Admitted | State::Evicting);
        let lies_elsewhere = |assigned: &&Assigned| {
            assigned.placement.as_ref().is_none_or(|placement| {
                let mut domains = placement.domains.iter();
                domains.any(|domain| self.of_domain(placement, domain).next().is_none())
            })
        };
        let assigned = self.asked.jobs.iter().filter(runs).flat_map(|job| &job.assigned);
        let (mut lines, mut amounts) = (BTreeMap::new(), BTreeMap::new());
        for assigned in assigned.filter(lies_elsewhere) {
            for (resource, usage) in
                assigned.usage.iter().filter(|(resource, _)| self.quotas.counts(resource))
            {
                let flavor = assigned.flavors.get(resource).cloned().unwrap_or_default();
                *lines.entry((flavor, resource.clone())).or_insert(0) += usage;
                *amounts.entry(resource.clone()).or_insert(0) += usage;
            }
        }
        let (mut spec, devices) = (!lines.is_empty()).then(|| self.host(ELSEWHERE, Vec::new(), &lines))?;
        if self.quotas.by_amount {
            fill(&mut spec, &amounts);
        }
        let (value, effect) = (String::new(), String::new());
        spec.face.taints.push(Taint { key: ELSEWHERE.to_owned(), value, effect });
        Some((spec, devices))
    }

    fn seats(&self, assigned: Option<&Assigned>, count: u32) -> Result<Vec<Seat>, Obstacle> {
        let seat = |node: &str| Seat { node: node.to_owned(), ..Seat::default() };
        if self.asked.nodes.is_empty() {
            let flavor = assigned.and_then(|assigned| assigned.flavors.values().next());
            return Ok(vec![seat(&self.pool(flavor.map_or("", String::as_str))); count as usize]);
        }
        let Some(placement) = assigned.and_then(|assigned| assigned.placement.as_ref()) else {
            return Ok(vec![seat(ELSEWHERE); count as usize]);
        };
        let mut seats = Vec::new();
        for domain in &placement.domains {
            let mut nodes = self.of_domain(placement, domain);
            let node = match (nodes.next(), nodes.next()) {
                (Some(node), None) => &node.name,
                (None, _) => ELSEWHERE,
                _ => return Err(Obstacle::no_word("a running job whose nodes are not said")),
            };
            seats.extend(vec![seat(node); domain.count as usize]);
        }
        // Usage that cannot be divided evenly is held by one pod.
        seats.truncate(count as usize);
        Ok(seats)
    }

    /// What runs outside the system holds amounts of its node, of the node's flavor. It is left out on a node that is not offered.
    fn foreign(&self, pod: &ForeignPod) -> Option<Result<Actor, Obstacle>> {
        let node = self.asked.nodes.iter().find(|node| pod.node.as_ref() == Some(&node.name))?;
        let flavor =
            nodes::flavors(self.asked, node).next().filter(|_| nodes::is_offered(self.asked, node))?;
        let seat = Seat { node: node.name.clone(), ..Seat::default() };
        // Where flavors are amounts, it holds amounts of the node alone, and none of any quota.
        let counted = pod.request.keys().filter(|_| !self.quotas.by_amount);
        let flavors = counted.map(|resource| (resource.clone(), flavor.name.clone())).collect();
        let alternative = self.quotas.alternative(self.asked, &flavors, &pod.request);
        Some(alternative.map(|alternative| resident(&pod.name, OUTSIDE, alternative, seat)))
    }

    fn usage(&self, usage: &Usage) -> Result<Actor, Obstacle> {
        let flavors = BTreeMap::from([(usage.resource.clone(), usage.flavor.clone())]);
        let amounts = BTreeMap::from([(usage.resource.clone(), usage.amount)]);
        let path = self.paths.get(&usage.queue).map_or(OUTSIDE, String::as_str);
        let seat = Seat { node: self.pool(&usage.flavor), ..Seat::default() };
        let name = format!("usage of {}", usage.queue);
        let mut actor = resident(&name, path, self.quotas.alternative(self.asked, &flavors, &amounts)?, seat);
        // Whether a flavor could be had by evictions is asked as if all of its use could be evicted.
        if self.asked.kind == Kind::FlavorChoice {
            (actor.spec.preemptible, actor.spec.priority) = (true, LOWEST);
        }
        Ok(actor)
    }

    /// The fates of the case's own jobs, each as one fate: a job's podsets start and end together.
    fn fates(&self, answer: Answer) -> Result<Answer, Obstacle> {
        let Answer::Fates { jobs, settled } = answer else { return Ok(answer) };
        let own = jobs.into_iter().take(self.asked.jobs.len()).zip(&self.asked.jobs);
        let jobs = own.map(|(fate, job)| self.as_one(fate, job)).collect();
        Ok(Answer::Fates { jobs, settled })
    }

    fn as_one(&self, fate: JobFate, job: &Job) -> JobFate {
        let podsets = job.podsets.iter().map(|podset| {
            let tasks: Vec<&TaskFate> =
                fate.tasks.iter().filter(|task| task.group.as_ref() == Some(&podset.name)).collect();
            let alternative = tasks.first().and_then(|task| task.alternative);
            let ways = self.quotas.ways(self.asked, job, podset).unwrap_or_default();
            let flavor = |index: u32| ways.get(index as usize)?.values().next().cloned();
            PodsetFate {
                podset: podset.name.clone(),
                fits: alternative.is_some(),
                flavor: alternative.and_then(flavor),
                nodes: tasks.iter().filter_map(|task| task.node.clone()).collect(),
            }
        });
        let podsets = podsets.collect();
        // A job that is already on its way out is not told to go again.
        let outcome = |outcome| match (outcome, self.asked.kind) {
            (Outcome::Leaving, Kind::Victims) => Outcome::Keep,
            (outcome, _) => outcome,
        };
        let one = |task: TaskFate| TaskFate { group: None, outcome: outcome(task.outcome), ..task };
        let tasks = fate.tasks.into_iter().take(1).map(one).collect();
        JobFate { tasks, podsets, ..fate }
    }

    fn placements(&self, answer: Answer) -> Result<Answer, Obstacle> {
        let Answer::Fates { jobs, .. } = self.fates(answer)? else {
            return Err(Obstacle::Broken("no job was placed".into()));
        };
        let podsets = jobs.into_iter().flat_map(|job| job.podsets).collect();
        let labels = self.asked.nodes.iter().map(|node| (node.name.clone(), node.labels.clone())).collect();
        Ok(Answer::Placements { podsets, labels })
    }
}

/// What a node has besides amounts of flavors.
fn fill(spec: &mut NodeSpec, allocatable: &BTreeMap<String, i64>) {
    for (resource, amount) in allocatable {
        match resource.as_str() {
            "cpu" => spec.cpu_milli = *amount,
            "memory" => spec.memory_bytes = *amount,
            "pods" => {}
            resource => add(spec, quota::of_node(resource), *amount),
        }
    }
}

fn add(spec: &mut NodeSpec, resource: Resource, amount: i64) {
    let known = spec.extras.iter().map(|(known, amount)| (known.clone(), amount));
    spec.extras = known.chain([(resource, amount)]).collect();
}

/// An actor that runs, and that nothing is asked about.
fn resident(name: &str, queue: &str, alternative: Alternative, seat: Seat) -> Actor {
    let role = Role {
        name: "main".into(),
        minimum: 1,
        maximum: 1,
        ask: Ask::of(vec![alternative]),
        work: plain_work(),
        topology: None,
        spread: Default::default(),
    };
    let spec = JobSpec { preemptible: false, ..plain_spec(name, queue, Group::Role(role)) };
    Actor {
        name: name.to_owned(),
        spec,
        submitted_at: NOW - ms(1.0),
        running: Some(Running { since: NOW, seats: vec![Some(seat)], ..Running::default() }),
        leaving: false,
        lingers: false,
        tasks: vec![Task { id: name.to_owned(), group: None }],
    }
}

/// Any node, whatever its taints.
fn anywhere() -> NodeChoice {
    NodeChoice { any_of: Vec::new(), tolerates: vec![Toleration::default()] }
}

fn ms(seconds: f64) -> Span {
    Span((seconds * 1000.0).round() as i64)
}

/// The gang of the podsets. Podsets that are to share a domain are a branch with one ask.
fn gang(asked: &Asked, job: &Job, roles: Vec<Role>) -> Result<Group, Obstacle> {
    let podsets = job.podsets.iter().filter(|podset| podset.count > 0);
    let mut parts: Vec<(Option<&String>, Vec<Role>)> = Vec::new();
    for (podset, role) in podsets.zip(roles) {
        let group = podset.shared_group();
        let known = parts.iter().position(|(known, _)| group.is_some() && *known == group);
        match known {
            Some(place) if place + 1 == parts.len() => parts[place].1.push(role),
            Some(_) => return Err(Obstacle::no_word("a shared domain for podsets with others between them")),
            None => parts.push((group, vec![role])),
        }
    }
    let parts = parts.into_iter().map(|(group, roles)| match group {
        Some(_) => together(asked, roles),
        None => Ok(roles.into_iter().map(Group::Role).collect()),
    });
    let mut groups: Vec<Group> =
        parts.collect::<Result<Vec<Vec<Group>>, _>>()?.into_iter().flatten().collect();
    if groups.len() == 1 {
        return Ok(groups.remove(0));
    }
    // Where only places are asked for, each podset that does not share a domain is asked about by itself.
    let minimum = if asked.kind == Kind::Placement { 1 } else { groups.len() as u32 };
    Ok(Group::Branch(Branch {
        name: "main".into(),
        minimum,
        groups,
        topology: None,
        spread: Default::default(),
    }))
}

/// Podsets that are to share a domain or, where there are no nodes, a flavor.
fn together(asked: &Asked, mut roles: Vec<Role>) -> Result<Vec<Group>, Obstacle> {
    let topology = match (asked.topologies.is_empty(), asked.nodes.is_empty()) {
        (false, _) => {
            let ask = roles.first().and_then(|role| role.topology.as_ref());
            ask.map(|ask| TopologyAsk { slices: Vec::new(), ..ask.clone() })
        }
        (true, true) => {
            let (topology, within) = (String::new(), FLAVOR.to_owned());
            Some(TopologyAsk { topology, within, required: true, near: None, slices: Vec::new() })
        }
        (true, false) => return Err(Obstacle::no_word("a shared domain of nodes that lie in none")),
    };
    // Of what each podset asks for by itself, only its blocks are left.
    let in_blocks = |ask: &TopologyAsk| !ask.slices.is_empty();
    roles.iter_mut().for_each(|role| role.topology = role.topology.take().filter(in_blocks));
    let minimum = roles.len() as u32;
    let groups = roles.into_iter().map(Group::Role).collect();
    Ok(vec![Group::Branch(Branch {
        name: "main".into(),
        minimum,
        groups,
        topology,
        spread: Default::default(),
    })])
}

impl Assigned {
    /// How many pods hold it: as many as are placed, if the case says so.
    pub(super) fn pods(&self) -> u32 {
        let sum = |placement: &Placement| {
            placement.domains.iter().map(|domain| domain.count).fold(0, u32::saturating_add)
        };
        let placed = self.placement.as_ref().map(sum);
        placed.or(self.count).unwrap_or(1)
    }

    /// What each pod holds, if the usage divides evenly.
    pub(super) fn per_pod(&self) -> Vec<(&str, i64)> {
        let count = i64::from(self.pods().max(1));
        let divides = self.usage.values().all(|usage| usage % count == 0);
        let each = self.usage.iter().map(|(resource, usage)| (resource.as_str(), usage / count));
        if divides { each.collect() } else { Vec::new() }
    }
}

impl TopologyText {
    /// Whether it names a level for blocks, but not how large these are.
    fn lacks_size(&self) -> bool {
        self.slice_required_level.is_some() && self.slice_size.is_none() && self.slice_constraints.is_empty()
    }

    fn slices(&self) -> Vec<Slice> {
        let one = self.slice_size.zip(self.slice_required_level.clone());
        let one = one.map(|(tasks, within)| Slice { tasks, within });
        let nested = self.slice_constraints.iter();
        let nested = nested.map(|text| Slice { tasks: text.size, within: text.level.clone() });
        one.into_iter().chain(nested).collect()
    }
}

impl Podset {
    fn shared_group(&self) -> Option<&String> {
        self.group.as_ref().or(self.topology.as_ref().and_then(|topology| topology.group.as_ref()))
    }
}
