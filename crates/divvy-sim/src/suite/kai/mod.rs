//! Cases in the form of the `kai` suite: nodes, a tree of queues, jobs of named tasks, and the phases that are asked about.

mod broken;
mod form;
mod words;

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};

use super::answer::{Answer, JobFate, Obstacle, Until, in_places_of_others, play, with_leavers_gone};
use super::measure::{domains, paths};
use super::stage::{Actor, Host, NOW, Running, Seat, Task, devices, plain_spec, plain_work, set};
use broken::{Part, Parts};
use divvy_core::amount::{Amount, Resource};
use divvy_core::model::affinity::{Affinity, Others};
use divvy_core::model::ask::{Alternative, Ask, DeviceAsk, DeviceClass, DrawAsk};
use divvy_core::model::choice::{Condition, Face, Is, NodeChoice};
use divvy_core::model::gang::{Branch, Group, Role};
use divvy_core::model::node::NodeSpec;
use divvy_core::model::policy::{Policy, Preempt, Reclaim, WithinQueue};
use divvy_core::model::queue::Queue;
use divvy_core::model::topology::TopologyAsk;
use divvy_core::time::Span;
use form::{Entitlement, Job, Node, PodAffinity, QueueText, Request, State, TaskText, Tree, Within};

pub(super) use form::Asked;

/// The memory of a device whose case does not state it: a MiB then means a hundredth of the device.
const UNSAID_DEVICE_MIB: u64 = 100;
/// Every running task of these cases has run for a minute.
const RUNS_SINCE: Span = Span(60_000);

/// Puts a case before the core.
pub(super) fn answer(asked: &Asked, policy: Policy) -> Result<Answer, Obstacle> {
    let missing = words::missing(asked);
    if !missing.is_empty() {
        return Err(Obstacle::NoWord(missing));
    }
    let paths = paths_by_age(asked);
    let queues = asked.queues.iter().map(|text| queue(asked, text, &paths)).collect();
    let actors = asked.jobs.iter().map(|job| actors(asked, job, &paths)).collect::<Result<Vec<_>, _>>()?;
    let actors = actors.into_iter().flatten().collect();
    let hosts = asked.nodes.iter().map(|node| host(asked, node)).collect();
    let stage = set(of_phases(policy, asked), hosts, queues, actors)?;
    // A case of one phase asks what is done within a cycle; one of all phases, how the pool comes to rest.
    if asked.config.rounds_until.is_some() {
        return play(stage, Until::Rest).map(in_one);
    }
    let answer = play(stage.clone(), Until::Cycles(1))?;
    let answer = with_leavers_gone(&stage, answer)?;
    match asked.config.phases.as_slice() {
        [only] if only == "reclaim" || only == "preempt" => in_places_of_others(&stage, answer).map(in_one),
        _ => Ok(in_one(answer)),
    }
}

/// Tells of a job whose parts stand beside each other as of one.
fn in_one(answer: Answer) -> Answer {
    let Answer::Fates { jobs, settled } = answer else { return answer };
    let mut joined: Vec<JobFate> = Vec::new();
    for job in jobs {
        match joined.last_mut().filter(|before| before.name == job.name) {
            Some(before) => before.tasks.extend(job.tasks),
            None => joined.push(job),
        }
    }
    Answer::Fates { jobs: joined, settled }
}

/// The paths of the queues. Between queues that are alike in all else the path decides; here the older queue's comes first.
fn paths_by_age(asked: &Asked) -> BTreeMap<String, String> {
    let aged = |text: &QueueText| (text.name.clone(), format!("{:010}-{}", text.order, text.name));
    let aged: BTreeMap<String, String> = asked.queues.iter().map(aged).collect();
    let of = asked.queues.iter().filter_map(|text| {
        let above = text.parent.as_ref().and_then(|above| aged.get(above));
        Some((aged.get(&text.name)?.as_str(), above.map(String::as_str)))
    });
    let paths = paths(of);
    aged.iter().filter_map(|(name, aged)| Some((name.clone(), paths.get(aged)?.clone()))).collect()
}

/// Switches off the phases that are not asked about, where there is a switch.
fn of_phases(policy: Policy, asked: &Asked) -> Policy {
    let phases = &asked.config.phases;
    let has = |name: &str| phases.iter().any(|phase| phase == name);
    let evicts = phases.iter().any(|phase| phase != "allocate");
    // Moves are a phase of their own, and a part of the phases that evict.
    let most_moves = asked.config.max_moved_jobs.unwrap_or(policy.most_moves);
    Policy {
        most_moves: if evicts { most_moves } else { 0 },
        preempt: if evicts { policy.preempt } else { Preempt::Off },
        within_queue: if has("preempt") { policy.within_queue } else { WithinQueue::Never },
        reclaim: if has("reclaim") { policy.reclaim } else { Reclaim::Never },
        ..policy
    }
}

fn host(asked: &Asked, node: &Node) -> Host {
    let levels = asked.topologies.iter().map(|topology| topology.levels.as_slice());
    let spec = NodeSpec {
        name: node.name.clone(),
        cpu_milli: node.cpu_milli,
        memory_bytes: node.memory_bytes,
        domains: levels.flat_map(|levels| domains(levels, &node.labels)).collect(),
        face: face(node),
        most_tasks: node.max_pods,
        ..NodeSpec::default()
    };
    let count = node.gpus_allocatable.unwrap_or(node.gpus);
    let model = model(asked, device_mib(node));
    let devices = devices(&node.name, 0, count, &model, device_mib(node));
    (spec, devices)
}

/// The model of devices of this memory: where device sizes differ, each size is a model.
fn model(asked: &Asked, mib: u64) -> String {
    if sizes_mib(asked).len() > 1 { format!("gpu-{mib}") } else { "gpu".into() }
}

/// The memory of the devices of a case.
fn sizes_mib(asked: &Asked) -> BTreeSet<u64> {
    let with_devices = asked.nodes.iter().filter(|node| node.gpus > 0);
    with_devices.map(device_mib).collect()
}

/// The label by which tasks name nodes, or kinds of node.
const NODE_LABEL: &str = "kai.scheduler/type";

/// A node's labels. A node that does not state its kind is a kind of its own.
fn face(node: &Node) -> Face {
    let mut labels = node.labels.clone();
    labels.entry(NODE_LABEL.to_owned()).or_insert_with(|| node.name.clone());
    Face { labels, taints: Vec::new() }
}

/// The nodes that a task may lie on.
fn choice(task: &TaskText) -> NodeChoice {
    let named =
        |names: &Vec<String>| vec![Condition { label: NODE_LABEL.to_owned(), is: Is::In(names.clone()) }];
    NodeChoice { any_of: task.allowed_nodes.iter().map(named).collect(), tolerates: Vec::new() }
}

/// Near which tasks a task wants to lie, and apart from which: in both cases those with its own labels.
fn affinity(task: &TaskText) -> Affinity {
    let Some(PodAffinity { labels, same_domain_key, different_domain_key }) = &task.pod_affinity else {
        return Affinity::default();
    };
    let has = |(label, value): (&String, &String)| Condition {
        label: label.clone(),
        is: Is::In(vec![value.clone()]),
    };
    let alike = |key: &String| Others { who: labels.iter().map(has).collect(), within: key.clone() };
    Affinity {
        labels: labels.clone(),
        near: same_domain_key.iter().map(alike).collect(),
        apart: different_domain_key.iter().map(alike).collect(),
    }
}

/// A device's memory as these cases count it: in hundreds, rounded down.
fn device_mib(node: &Node) -> u64 {
    node.gpu_memory_mib.map_or(UNSAID_DEVICE_MIB, |mib| mib / 100 * 100).max(UNSAID_DEVICE_MIB)
}

/// A queue. Cores are divided only where some queue of the case is entitled to part of them, and so is memory.
fn queue(asked: &Asked, text: &QueueText, paths: &BTreeMap<String, String>) -> Queue {
    let mut queue = Queue::named(&paths[&text.name]);
    let lines: [(Resource, Line, f64); 3] = [
        (Resource::Any, |text| Some(&text.gpu), 1000.0),
        (Resource::Cpu, |text| text.cpu_milli.as_ref(), 1.0),
        (Resource::Memory, |text| text.memory_bytes.as_ref(), 1.0),
    ];
    let is_divided = |line: Line| asked.queues.iter().any(|text| line(text).is_some());
    for (resource, line, scale) in lines.into_iter().filter(|(_, line, _)| is_divided(*line)) {
        let amount = |amount: f64| Amount::Finite((amount * scale).round() as i64);
        let deserved = deserved(asked, text, line);
        queue.guarantee.insert(resource.clone(), deserved.map_or(Amount::Unlimited, amount));
        let limit = line(text).and_then(|line| line.limit);
        queue.limit.extend(limit.map(|limit| (resource, amount(limit))));
    }
    // Hundredths: weights are whole numbers, and only their proportion counts. Without GPUs the others of a queue's weights count.
    let has_gpus = asked.nodes.iter().any(|node| node.gpus > 0);
    let hosts = text.cpu_milli.as_ref().or(text.memory_bytes.as_ref());
    let line = hosts.filter(|_| !has_gpus).unwrap_or(&text.gpu);
    let weight = line.over_quota_weight.unwrap_or(1.0);
    queue.weight = if weight < 0.0 { 100 } else { (weight * 100.0).round() as u32 };
    queue.priority = text.priority.unwrap_or(100);
    queue
}

/// What a queue says of a resource.
type Line = fn(&QueueText) -> Option<&Entitlement>;

/// What a queue deserves: at most what each queue above it does that has others beside it, since those are compared where the paths
/// part.
fn deserved(asked: &Asked, text: &QueueText, line: Line) -> Option<f64> {
    let parent = |text: &&QueueText| {
        let above = text.parent.as_ref()?;
        asked.queues.iter().find(|other| other.name == *above)
    };
    // This ends even if parents go round in a circle.
    let upwards = std::iter::successors(Some(text), parent).take(asked.queues.len());
    let has_siblings = |text: &&QueueText| {
        asked.queues.iter().any(|other| other.parent == text.parent && other.name != text.name)
    };
    let bounds = upwards.enumerate().filter(|(above, text)| *above == 0 || has_siblings(text));
    bounds.filter_map(|(_, text)| line(text)?.deserved).reduce(f64::min)
}

/// The job; or, if it is a gang that runs with fewer tasks than it needs, what runs of it, and what it lacks.
fn actors(asked: &Asked, job: &Job, paths: &BTreeMap<String, String>) -> Result<Vec<Actor>, Obstacle> {
    let path = paths
        .get(&job.queue)
        .ok_or_else(|| Obstacle::Broken(format!("the case has no queue {:?}", job.queue)))?;
    let (mut gang, ranks) = gang(asked, job)?;
    let seated = seated(job, &ranks, &gang);
    if seated.is_empty() || gang.is_whole(&seated) {
        return Ok(vec![actor(asked, (job, path), gang, &ranks)?]);
    }
    let of_part = |(gang, numbers): Part| {
        let ranks: Vec<usize> = numbers.iter().map(|number| ranks[*number as usize]).collect();
        actor(asked, (job, path), gang, &ranks)
    };
    match broken::parts(&gang, 0, &seated) {
        Some(Parts { runs, lacks }) => [runs, lacks].into_iter().flatten().map(of_part).collect(),
        None => {
            broken::as_it_runs(&mut gang, 0, &seated);
            Ok(vec![actor(asked, (job, path), gang, &ranks)?])
        }
    }
}

/// The ranks of a gang that run. Those that are being stopped do not count where all have run and too few stay: they are a job of
/// their own then, which leaves, beside one that needs no more than stay.
fn seated(job: &Job, ranks: &[usize], gang: &Group) -> BTreeSet<u32> {
    let ranked = |is: fn(&TaskText) -> bool| -> BTreeSet<u32> {
        let ranked = ranks.iter().zip(0u32..).filter(|(index, _)| is(&job.tasks[**index]));
        ranked.map(|(_, rank)| rank).collect()
    };
    let (all, stay) = (ranked(TaskText::is_seated), ranked(|task| task.is_seated() && !task.leaves()));
    let breaks = all.len() == ranks.len() && !stay.is_empty() && !gang.is_whole(&stay);
    if breaks { stay } else { all }
}

/// A part of a job, whose tasks these are.
fn actor(asked: &Asked, (job, path): (&Job, &str), gang: Group, ranks: &[usize]) -> Result<Actor, Obstacle> {
    let mut spec = plain_spec(&job.name, path, gang);
    (spec.priority, spec.preemptible) = (job.priority, job.preemptible);
    let tasks = || ranks.iter().map(|index| &job.tasks[*index]);
    let of_state = |state| {
        let ranked = tasks().enumerate().filter(move |(_, task)| task.state == state);
        ranked.map(|(rank, _)| rank as u32).collect::<Vec<u32>>()
    };
    let runs = tasks().any(TaskText::is_seated);
    let since = NOW - RUNS_SINCE;
    let seats = tasks().map(|task| seat(asked, task)).collect::<Result<Vec<_>, _>>()?;
    let (mut releasing, stuck) = (of_state(State::Releasing), of_state(State::StuckReleasing));
    releasing.extend(&stuck);
    let leaving = tasks().all(|task| task.leaves() || task.state == State::Succeeded);
    let lingers = job.deleted_during_test || !stuck.is_empty();
    let running = Running {
        since,
        seats,
        over: of_state(State::Succeeded),
        leaving: if leaving { Vec::new() } else { releasing.clone() },
        stuck,
    };
    let age = Span((job.age_min * 60_000.0).round() as i64).max(if runs { RUNS_SINCE } else { Span(0) });
    Ok(Actor {
        name: job.name.clone(),
        spec,
        submitted_at: NOW - age,
        running: runs.then_some(running),
        leaving: leaving && !releasing.is_empty(),
        lingers,
        tasks: tasks().map(|task| Task { id: task.id.clone(), group: task.group.clone() }).collect(),
    })
}

/// Where a task runs, if it does.
fn seat(asked: &Asked, task: &TaskText) -> Result<Option<Seat>, Obstacle> {
    match (&task.node, task.state) {
        (_, State::Pending) => Ok(None),
        (Some(node), _) => {
            let host = asked.nodes.iter().find(|host| host.name == *node);
            let size_mib = host.map(device_mib);
            let ways = task.request.gpu_memory_mib.map(|mib| by_memory(asked, mib)).unwrap_or_default();
            let alternative = ways.iter().position(|(mib, _)| Some(*mib) == size_mib).unwrap_or(0) as u32;
            Ok(Some(Seat { node: node.clone(), alternative, labels: task.gpu_groups.clone() }))
        }
        (None, _) => Err(Obstacle::no_word("a task that ran nobody knows where")),
    }
}

/// The gang of a job, and which of its tasks has each rank.
fn gang(asked: &Asked, job: &Job) -> Result<(Group, Vec<usize>), Obstacle> {
    let mut ranks = Vec::new();
    let all: Vec<usize> = (0..job.tasks.len()).collect();
    let mut group = match &job.gang {
        Some(tree) => branch(asked, job, tree, &mut ranks)?,
        None => leaf(asked, job, ("main", job.min_members), all, &mut ranks)?,
    };
    if let Some(within) = &job.topology {
        match &mut group {
            Group::Role(role) => role.topology = Some(within.ask()),
            Group::Branch(branch) => branch.topology = Some(within.ask()),
        }
    }
    Ok((group, ranks))
}

fn branch(asked: &Asked, job: &Job, tree: &Tree, ranks: &mut Vec<usize>) -> Result<Group, Obstacle> {
    let mut group = if tree.groups.is_empty() {
        let of = |(_, task): &(usize, &TaskText)| task.group.as_deref() == Some(tree.name.as_str());
        let tasks = job.tasks.iter().enumerate().filter(of).map(|(index, _)| index).collect();
        leaf(asked, job, (&tree.name, tree.min_members), tasks, ranks)?
    } else {
        let groups =
            tree.groups.iter().map(|tree| branch(asked, job, tree, ranks)).collect::<Result<Vec<_>, _>>()?;
        let minimum = tree.min_groups.unwrap_or(groups.len() as u32);
        Group::Branch(Branch {
            name: tree.name.clone(),
            minimum,
            groups,
            topology: None,
            spread: Default::default(),
        })
    };
    let topology = tree.topology.as_ref().map(Within::ask);
    match &mut group {
        Group::Role(role) => role.topology = topology,
        Group::Branch(branch) => branch.topology = topology,
    }
    Ok(group)
}

/// What a task asks for, and where.
type Kind<'a> = (&'a Request, NodeChoice, Affinity);

/// Tasks that start together, the running ones first, then by priority: one role for each kind of request among them.
fn leaf(
    asked: &Asked,
    job: &Job,
    (name, minimum): (&str, Option<u32>),
    mut tasks: Vec<usize>,
    ranks: &mut Vec<usize>,
) -> Result<Group, Obstacle> {
    tasks.sort_by_key(|index| {
        let task = &job.tasks[*index];
        (task.state == State::Pending, Reverse(task.task_priority.unwrap_or(0)))
    });
    let all = tasks.len() as u32;
    let minimum = minimum.unwrap_or(all);
    // Tasks whose part depends on the device have a role each.
    let apart = |request: &Request| request.gpu_memory_mib.is_some() && sizes_mib(asked).len() > 1;
    let mut kinds: Vec<(Kind, Vec<usize>)> = Vec::new();
    for index in tasks {
        let task = &job.tasks[index];
        let request = (&task.request, choice(task), affinity(task));
        match kinds.iter_mut().find(|(kind, _)| *kind == request && minimum == all) {
            Some((_, same)) if !apart(&task.request) => same.push(index),
            _ => kinds.push((request, vec![index])),
        }
    }
    let alike = |(kind, _): &(Kind, _)| {
        Some(kind) == kinds.first().map(|(first, _)| first) && !(all > 1 && apart(kind.0))
    };
    let alike = kinds.iter().all(alike);
    let role = |name: String, (minimum, maximum): (u32, u32), (request, nodes, affinity): &Kind| {
        let alternatives = alternatives(asked, request);
        let ask = Ask { alternatives, nodes: nodes.clone(), affinity: affinity.clone().into_said() };
        let work = plain_work();
        Group::Role(Role { name, minimum, maximum, ask, work, topology: None, spread: Default::default() })
    };
    ranks.extend(kinds.iter().flat_map(|(_, same)| same));
    match (minimum.cmp(&all), kinds.first()) {
        (Ordering::Greater, _) => Err(Obstacle::no_word("a gang with fewer tasks than its minimum")),
        (_, None) => Err(Obstacle::no_word("a group without tasks")),
        (_, Some((request, _))) if alike => Ok(role(name.to_owned(), (minimum, all), request)),
        (order, _) => {
            // If only some of unlike tasks are needed, each kind is a group of its own.
            let of = |(number, (request, same)): (usize, &(Kind, Vec<usize>))| {
                let count = same.len() as u32;
                role(format!("{name}-{number}"), (count, count), request)
            };
            let groups: Vec<Group> = kinds.iter().enumerate().map(of).collect();
            let needed = if order == Ordering::Less { minimum } else { groups.len() as u32 };
            Ok(Group::Branch(Branch {
                name: name.to_owned(),
                minimum: needed,
                groups,
                topology: None,
                spread: Default::default(),
            }))
        }
    }
}

impl Within {
    fn ask(&self) -> TopologyAsk {
        let level = self.required_level.as_ref().or(self.preferred_level.as_ref());
        TopologyAsk {
            topology: self.topology.clone(),
            within: level.cloned().unwrap_or_default(),
            required: self.required_level.is_some(),
            near: self.preferred_level.clone().filter(|_| self.required_level.is_some()),
            slices: Vec::new(),
        }
    }
}

/// What a task takes: an amount of memory is a different part of each size of device.
fn alternatives(asked: &Asked, request: &Request) -> Vec<Alternative> {
    let alternative = |devices: Option<DeviceAsk>| Alternative {
        devices,
        cpu_milli: Some(request.cpu_milli),
        memory_bytes: Some(request.memory_bytes),
        speed_percent: 100,
        ..Alternative::default()
    };
    let devices = request.gpu_devices.unwrap_or(1);
    let shared =
        |class, milli, memory_mib| Some(DeviceAsk::of(class, devices, DrawAsk::Share { milli, memory_mib }));
    if let Some(gpus) = request.gpus.filter(|gpus| *gpus > 0) {
        return vec![alternative(Some(DeviceAsk::of(DeviceClass::default(), gpus, DrawAsk::Whole)))];
    }
    if let Some(fraction) = request.gpu_fraction {
        let milli = (fraction * 1000.0).round() as u32;
        return vec![alternative(shared(DeviceClass::default(), milli, None))];
    }
    let Some(mib) = request.gpu_memory_mib else { return vec![alternative(None)] };
    let ways = by_memory(asked, mib);
    let class = |size_mib: u64| match ways.len() {
        1 => DeviceClass::default(),
        _ => DeviceClass { models: vec![model(asked, size_mib)], ..DeviceClass::default() },
    };
    let way = |(size_mib, milli): &(u64, u32)| alternative(shared(class(*size_mib), *milli, Some(mib)));
    ways.iter().map(way).collect()
}

/// Which part of a device this much memory is, for each size that has it, in thousandths: in hundredths, rounded up. The smallest
/// size comes first, by which the task is counted before it has a place; if no size has it, the largest stands alone.
fn by_memory(asked: &Asked, mib: u64) -> Vec<(u64, u32)> {
    let sizes = sizes_mib(asked);
    let largest = sizes.last().copied().unwrap_or(UNSAID_DEVICE_MIB);
    let part = |size: u64| (size, mib.saturating_mul(100).div_ceil(size).min(100_000) as u32 * 10);
    let fits: Vec<(u64, u32)> = sizes.into_iter().filter(|size| mib <= *size).map(part).collect();
    if fits.is_empty() { vec![part(largest)] } else { fits }
}
