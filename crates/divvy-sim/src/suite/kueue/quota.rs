//! Quotas of flavors as the core's limits and guarantees. Where a case has several flavors, a flavor's amounts become devices
//! of a model of its own: a flavor is a kind of capacity, and so is a model in the core.

use std::collections::{BTreeMap, BTreeSet};

use divvy_core::amount::{Amount, Resource};
use divvy_core::model::ask::{Alternative, DeviceAsk, DeviceClass, DrawAsk};
use divvy_core::model::borrowing::BorrowEvicts;
use divvy_core::model::policy::{Reclaim, WithinQueue};
use divvy_core::model::queue::Queue;

use crate::suite::MOST_DEVICES;
use crate::suite::answer::Obstacle;

use super::form::{Asked, Job, Kind, Podset, QueueKind, QueueText, Quota};
use super::nodes;
use super::words;

/// The names of a flavor and of a resource.
type Line = (String, String);

/// How the core's amount of a resource converts to the case's.
pub(super) enum Unit {
    /// They are equal.
    Same,
    /// Each device, a thousand in the core, stands for this much.
    Whole(i64),
}

impl Unit {
    /// Converts the core's amount to the case's.
    pub(super) fn of(&self, amount: i64) -> i64 {
        match self {
            Unit::Same => amount,
            Unit::Whole(unit) => (amount / 1000).saturating_mul(*unit),
        }
    }
}

/// How the amounts of a case are counted.
pub(super) struct Quotas {
    /// Whether flavors are told apart: there are several.
    pub(super) by_flavor: bool,
    /// Whether flavors are amounts of resources of their own that nodes count, instead of devices: if a task draws on several at
    /// once, or several share a node.
    pub(super) by_amount: bool,
    /// Whether tasks are counted: if someone has a quota of them that could matter.
    counts_tasks: bool,
    /// For each resource, the largest amount that divides all its amounts: one device.
    units: BTreeMap<String, i64>,
}

/// The weight of a queue that has one of 1.
const WEIGHT_OF_ONE: f64 = 100_000.0;
/// What a quota of tasks is called.
const PODS: &str = "pods";
/// The flavor of what nobody has a quota for.
const NONE: &str = "none";

impl Quotas {
    pub(super) fn of(asked: &Asked) -> Result<Self, Obstacle> {
        let quotas = || asked.queues.iter().flat_map(|queue| &queue.quotas);
        let flavors: BTreeSet<&String> = quotas().map(|quota| &quota.flavor).collect();
        let by_flavor = flavors.len() > 1;
        let mut units: BTreeMap<String, i64> = BTreeMap::new();
        for (resource, amount) in amounts(asked) {
            let unit = units.entry(resource.to_owned()).or_default();
            *unit = divisor(*unit, amount);
        }
        let counts_tasks = words::pods_bound(asked);
        let mut quotas = Self { by_flavor, by_amount: false, counts_tasks, units };
        // Queues that share fairly are compared by their sums over flavors; podsets that are to share a flavor lie in its domain.
        let in_one = || asked.jobs.iter().flat_map(|job| &job.podsets).any(|it| it.shared_group().is_some());
        let apart = !asked.config.fair_sharing && !in_one();
        let by_flavor = by_flavor && (nodes::are_shared(asked) || apart);
        let by_amount = counts_tasks || quotas.has_several(asked) || by_flavor;
        quotas.by_amount = by_amount || quotas.is_too_fine(asked);
        Ok(quotas)
    }

    /// Whether a task draws on several kinds of capacity of which some would be devices.
    fn has_several(&self, asked: &Asked) -> bool {
        let several = |request: &BTreeMap<String, i64>| {
            let draws = || request.iter().filter(|(resource, amount)| *resource != PODS && **amount > 0);
            draws().count() > 1 && draws().any(|(resource, _)| self.is_device(resource))
        };
        let jobs = || asked.jobs.iter();
        jobs().flat_map(|job| &job.podsets).any(|podset| several(&podset.request))
            || jobs().flat_map(|job| &job.assigned).any(|assigned| several(&assigned.usage))
            || asked.foreign_pods.iter().any(|pod| several(&pod.request))
    }

    /// Whether a node would have more devices than it may: something odd is asked for or held.
    fn is_too_fine(&self, asked: &Asked) -> bool {
        let mut of_nodes = asked.nodes.iter().flat_map(|node| &node.allocatable);
        of_nodes.any(|(resource, amount)| {
            let device = self.device(NONE, resource).filter(|_| self.counts(resource));
            device.is_some_and(|(_, unit)| amount / unit > i64::from(MOST_DEVICES))
        })
    }

    /// Whether a resource is counted at all.
    pub(super) fn counts(&self, resource: &str) -> bool {
        resource != PODS || self.counts_tasks
    }

    fn is_device(&self, resource: &str) -> bool {
        self.by_flavor || !matches!(resource, "cpu" | "memory")
    }

    /// The model and the unit of what is counted in devices; `None` for cores and memory of hosts.
    pub(super) fn device(&self, flavor: &str, resource: &str) -> Option<(String, i64)> {
        if self.by_amount || !self.is_device(resource) {
            return None;
        }
        let model = if self.by_flavor { format!("{flavor}:{resource}") } else { resource.to_owned() };
        Some((model, self.units.get(resource).copied().unwrap_or(1).max(1)))
    }

    /// One flavor's amount as a limit of the core.
    fn limit(&self, line: &Line, amount: i64) -> (Resource, Amount) {
        match self.counted(line) {
            (resource, Unit::Whole(unit)) => (resource, Amount::Finite((amount / unit).saturating_mul(1000))),
            (resource, Unit::Same) => (resource, Amount::Finite(amount)),
        }
    }

    /// How the core counts a flavor's resource.
    pub(super) fn counted(&self, (flavor, resource): &Line) -> (Resource, Unit) {
        if self.by_amount {
            return (Resource::Extended(format!("{flavor}/{resource}")), Unit::Same);
        }
        match (self.device(flavor, resource), resource.as_str()) {
            (Some((model, unit)), _) => (Resource::Model(model), Unit::Whole(unit)),
            (None, "cpu") => (Resource::Cpu, Unit::Same),
            (None, _) => (Resource::Memory, Unit::Same),
        }
    }

    /// All flavors and resources that someone has a quota of.
    pub(super) fn lines(&self, asked: &Asked) -> BTreeSet<Line> {
        Tree { asked }.lines()
    }

    /// The ways in which a job's queue may serve one of its podsets, in order of preference: the flavor of each resource. Resources of
    /// one group come from one flavor; what is chosen already comes from that.
    pub(super) fn ways(
        &self,
        asked: &Asked,
        job: &Job,
        podset: &Podset,
    ) -> Result<Vec<BTreeMap<String, String>>, Obstacle> {
        let choice = nodes::choice(podset, &asked.flavors)?;
        let may_have = |name: &str| {
            match asked.flavors.iter().find(|flavor| flavor.name == *name) {
                Some(flavor) => nodes::may_have(&choice, flavor) && nodes::has_level(asked, flavor, podset),
                // Where flavors are listed, nobody has one that is not.
                None => asked.flavors.is_empty(),
            }
        };
        let queue = job.queue.as_deref();
        let request = self.request(asked, queue, podset);
        let wanted = |resource: &String| request.get(resource).is_some_and(|amount| *amount > 0);
        let chosen = job.wanted_flavors.iter().find(|wanted| wanted.podset == podset.name);
        let is_chosen = |quota: &Quota, resource: &String| {
            let chosen = chosen.and_then(|wanted| wanted.flavors.get(resource));
            chosen.is_none_or(|flavor| quota.flavor == *flavor)
        };
        let quotas = asked
            .queues
            .iter()
            .filter(|text| Some(text.name.as_str()) == queue)
            .flat_map(|text| &text.quotas)
            .flat_map(|quota| {
                // A flavor that is named without a resource may serve all.
                let named = request.keys().filter(|_| quota.resource.is_none());
                let resources = quota.resource.iter().chain(named).filter(|it| wanted(it));
                resources.map(move |resource| (quota, resource))
            });
        let mut groups: BTreeMap<u32, (Vec<&str>, BTreeSet<&String>)> = BTreeMap::new();
        let mut group_of: BTreeMap<&String, u32> = BTreeMap::new();
        for (quota, resource) in quotas {
            // A resource of several groups is served by the first of them.
            if *group_of.entry(resource).or_insert(quota.group) != quota.group {
                continue;
            }
            let (flavors, resources) = groups.entry(quota.group).or_default();
            resources.insert(resource);
            if !flavors.contains(&quota.flavor.as_str())
                && may_have(&quota.flavor)
                && is_chosen(quota, resource)
            {
                flavors.push(&quota.flavor);
            }
        }
        // What was chosen without a quota of the queue's own is borrowed.
        for (resource, flavor) in chosen.iter().flat_map(|wanted| &wanted.flavors) {
            if wanted(resource) && !group_of.contains_key(resource) {
                let group = u32::MAX - groups.len() as u32;
                groups.insert(group, (vec![flavor], [resource].into()));
            }
        }
        // Where flavors are devices, there is one resource and so one group.
        let mut ways = vec![BTreeMap::new()];
        for (flavors, resources) in groups.values() {
            let with = |way: &BTreeMap<String, String>, flavor: &str| {
                let more = resources.iter().map(|resource| ((*resource).clone(), flavor.to_owned()));
                way.clone().into_iter().chain(more).collect()
            };
            ways = ways.iter().flat_map(|way| flavors.iter().map(move |flavor| with(way, flavor))).collect();
        }
        ways.retain(|way| !way.is_empty());
        Ok(ways)
    }

    /// What a task of a podset wants, including the task itself, if its queue counts tasks.
    fn request(&self, asked: &Asked, queue: Option<&str>, podset: &Podset) -> BTreeMap<String, i64> {
        let mut request = podset.request.clone();
        let mut quotas = asked
            .queues
            .iter()
            .filter(|text| Some(text.name.as_str()) == queue)
            .flat_map(|text| &text.quotas);
        if self.counts_tasks && quotas.any(|quota| quota.resource.as_deref() == Some(PODS)) {
            request.insert(PODS.to_owned(), 1);
        }
        request
    }

    /// The ways to serve a request; where the queue has no quota for it, one that nothing serves.
    pub(super) fn alternatives(
        &self,
        asked: &Asked,
        job: &Job,
        podset: &Podset,
    ) -> Result<Vec<Alternative>, Obstacle> {
        let request = self.request(asked, job.queue.as_deref(), podset);
        let from =
            |flavor: &str| request.keys().map(|resource| (resource.clone(), flavor.to_owned())).collect();
        if job.queue.is_none() {
            // Without a queue there is no quota: only nodes bound the request, of whatever flavor.
            let flavors = asked.flavors.iter().filter(|_| self.by_flavor && !self.by_amount);
            let mut ways: Vec<BTreeMap<String, String>> = flavors.map(|flavor| from(&flavor.name)).collect();
            if ways.is_empty() {
                ways.push(BTreeMap::new());
            }
            return ways.iter().map(|way| self.alternative(asked, way, &request)).collect();
        }
        let mut ways = self.ways(asked, job, podset)?;
        if ways.is_empty() || !self.by_flavor && !self.by_amount {
            ways = vec![from(NONE)];
        }
        // What the queue has no quota for comes from no flavor.
        ways.iter_mut().for_each(|way| {
            for resource in request.keys() {
                way.entry(resource.clone()).or_insert_with(|| NONE.to_owned());
            }
        });
        ways.iter().map(|way| self.alternative(asked, way, &request)).collect()
    }

    /// The way to serve a request from given flavors.
    pub(super) fn alternative(
        &self,
        asked: &Asked,
        flavors: &BTreeMap<String, String>,
        request: &BTreeMap<String, i64>,
    ) -> Result<Alternative, Obstacle> {
        if self.by_amount {
            return Ok(self.amounts(asked, flavors, request));
        }
        let mut alternative = Alternative {
            cpu_milli: Some(0),
            memory_bytes: Some(0),
            speed_percent: 100,
            ..Alternative::default()
        };
        for (resource, amount) in
            request.iter().filter(|(resource, amount)| *resource != PODS && **amount > 0)
        {
            let flavor = flavors.get(resource).map_or(NONE, String::as_str);
            match (self.device(flavor, resource), resource.as_str()) {
                (Some(_), _) if alternative.devices.is_some() => {
                    return Err(Obstacle::no_word("a task of several kinds of device"));
                }
                (Some((model, unit)), _) => {
                    let class = DeviceClass { models: vec![model], ..DeviceClass::default() };
                    let count = u32::try_from(amount / unit).unwrap_or(u32::MAX);
                    alternative.devices = Some(DeviceAsk::of(class, count, DrawAsk::Whole));
                }
                (None, "cpu") => alternative.cpu_milli = Some(*amount),
                (None, _) => alternative.memory_bytes = Some(*amount),
            }
        }
        Ok(alternative)
    }

    /// The way to serve a request where flavors are amounts: from what nodes have, and from flavors.
    fn amounts(
        &self,
        asked: &Asked,
        flavors: &BTreeMap<String, String>,
        request: &BTreeMap<String, i64>,
    ) -> Alternative {
        let of_nodes = |resource: &str| {
            let amount = request.get(resource).copied().unwrap_or(0);
            if asked.nodes.is_empty() { 0 } else { amount }
        };
        let of_flavors = request.iter().filter_map(|(resource, amount)| {
            let line = (flavors.get(resource)?.clone(), resource.clone());
            (resource != PODS || self.counts_tasks).then(|| (self.counted(&line).0, *amount))
        });
        let others = request.keys().filter(|resource| !matches!(resource.as_str(), "cpu" | "memory" | PODS));
        let others = others.map(|resource| (of_node(resource), of_nodes(resource)));
        Alternative {
            cpu_milli: Some(of_nodes("cpu")),
            memory_bytes: Some(of_nodes("memory")),
            extras: of_flavors.chain(others).collect(),
            speed_percent: 100,
            ..Alternative::default()
        }
    }

    /// The total capacity of a case without nodes: what is granted, or what is held if that is more.
    pub(super) fn capacity(&self, asked: &Asked) -> Result<BTreeMap<Line, i64>, Obstacle> {
        let tree = Tree { asked };
        // For each tree by itself: one that holds more than it is granted takes nothing from the others.
        let mut by_tree: BTreeMap<(&str, Line), (i64, i64)> = BTreeMap::new();
        let mut note = |queue: &str, line: Line, (granted, held): (i64, i64)| {
            let all = by_tree.entry((tree.top(queue), line)).or_default();
            *all = (all.0.saturating_add(granted), all.1.saturating_add(held));
        };
        for (text, quota) in asked.queues.iter().flat_map(|text| text.quotas.iter().map(move |it| (text, it)))
        {
            if let Some(resource) = quota.resource.as_ref().filter(|resource| self.counts(resource)) {
                note(&text.name, (quota.flavor.clone(), resource.clone()), (quota.nominal.max(0), 0));
            }
        }
        for (job, assigned) in asked.jobs.iter().flat_map(|job| job.assigned.iter().map(move |it| (job, it)))
        {
            for (resource, usage) in assigned.usage.iter().filter(|(resource, _)| self.counts(resource)) {
                let flavor = assigned.flavors.get(resource).cloned().unwrap_or_default();
                note(job.queue.as_deref().unwrap_or_default(), (flavor, resource.clone()), (0, *usage));
            }
        }
        for usage in &asked.usage {
            note(&usage.queue, (usage.flavor.clone(), usage.resource.clone()), (0, usage.amount));
        }
        let mut granted: BTreeMap<Line, i64> = BTreeMap::new();
        for ((_, line), (quota, held)) in by_tree {
            let all = granted.entry(line).or_default();
            *all = all.saturating_add(held.max(quota));
        }
        let too_many = |((flavor, resource), amount): (&Line, &i64)| {
            self.device(flavor, resource).is_some_and(|(_, unit)| amount / unit > i64::from(MOST_DEVICES))
        };
        if granted.iter().any(too_many) {
            Err(Obstacle::no_word("so many devices of one node"))
        } else {
            Ok(granted)
        }
    }

    /// The tree of queues.
    pub(super) fn queues(&self, asked: &Asked, paths: &BTreeMap<String, String>) -> Vec<Queue> {
        let tree = Tree { asked };
        asked.queues.iter().map(|text| self.queue(&tree, text, &paths[&text.name])).collect()
    }

    fn queue(&self, tree: &Tree, text: &QueueText, path: &str) -> Queue {
        let asked = tree.asked;
        let mut queue = Queue::named(path);
        let top = tree.parent(text).is_none();
        for line in tree.lines() {
            let own = quota_of(text, &line);
            // At the top there is nobody to borrow from or to lend to: what one tree uses beyond its own leaves the others theirs.
            let borrows = if top { Some(0) } else { own.and_then(|quota| quota.borrow_limit) };
            let lends = if top { Some(0) } else { own.and_then(|quota| quota.lend_limit) };
            // A leaf without a quota for something cannot have it, unless its flavor is named without one.
            let is_named = text.quotas.iter().any(|quota| quota.flavor == line.0 && quota.resource.is_none());
            let is_chosen = || {
                let own = asked.jobs.iter().filter(|job| job.queue.as_ref() == Some(&text.name));
                let mut chosen = own.flat_map(|job| &job.wanted_flavors).flat_map(|wanted| &wanted.flavors);
                chosen.any(|(resource, flavor)| (flavor, resource) == (&line.0, &line.1))
            };
            let none = own.is_none() && text.kind == QueueKind::Queue && !is_named && !is_chosen();
            queue.limit.extend(none.then(|| self.limit(&line, 0)));
            queue.guarantee.extend([self.limit(&line, tree.total(text, &line))]);
            queue.borrow.extend(borrows.map(|borrows| self.limit(&line, borrows)));
            queue.lend.extend(lends.map(|lends| self.limit(&line, lends)));
        }
        knobs(&mut queue, asked, text);
        // Weights are whole numbers, and only their proportion counts. Who has none goes after all others, and gets what these leave.
        queue.weight = (text.fair_weight.unwrap_or(1.0) * WEIGHT_OF_ONE).round().max(1.0) as u32;
        queue
    }
}

/// What nodes have besides cores and memory, where flavors are amounts.
pub(super) fn of_node(resource: &str) -> Resource {
    Resource::Extended(format!("node/{resource}"))
}

/// Which jobs a queue's jobs may stop.
fn knobs(queue: &mut Queue, asked: &Asked, text: &QueueText) {
    let Some(knobs) = &text.preemption else { return };
    // A case about the choice of a flavor asks what evictions could give at all.
    let asks_what_could = asked.kind == Kind::FlavorChoice;
    queue.within_queue = knobs.within_queue.as_deref().map(|knob| match knob {
        "Never" => WithinQueue::Never,
        "LowerPriority" => WithinQueue::Lower,
        _ => WithinQueue::LowerOrNewer,
    });
    queue.reclaim = knobs.reclaim_within_cohort.as_deref().map(|knob| match knob {
        "Never" => Reclaim::Never,
        "LowerPriority" => Reclaim::Lower,
        _ => Reclaim::Any,
    });
    if asks_what_could {
        (queue.within_queue, queue.reclaim) = (None, None);
    }
    // Where the surplus is shared fairly, a queue below its share may take from one above, borrowing or not.
    queue.borrow_evicts = Some(match knobs.borrow_within_cohort.as_deref() {
        _ if asked.config.fair_sharing => BorrowEvicts::DUE,
        None | Some("Never") => BorrowEvicts::NEVER,
        Some(_) => BorrowEvicts::lower(knobs.borrow_max_victim_priority),
    });
}

/// `Some(false)` for a job that asks for more than its queue's quota, where none of the queue's jobs evicts others while it borrows: it
/// waits for what is free. The tops of deeper trees may have room of their own, so that is not said there.
pub(super) fn may_borrow_by_stops(asked: &Asked, job: &Job) -> Option<bool> {
    let tree = Tree { asked };
    let text = asked.queues.iter().find(|text| job.queue.as_ref() == Some(&text.name))?;
    let knobs = text.preemption.as_ref()?;
    let may = asked.kind != Kind::Cycle
        || asked.config.fair_sharing
        || knobs.borrow_within_cohort.as_deref().is_some_and(|knob| knob != "Never")
        || tree.parent(text).is_none_or(|top| top.parent.is_some());
    let exceeds = |resource: &String| {
        let each = job
            .podsets
            .iter()
            .filter_map(|podset| Some(podset.request.get(resource)?.saturating_mul(i64::from(podset.count))));
        let quotas = text.quotas.iter().filter(|quota| quota.resource.as_ref() == Some(resource));
        quotas.map(|quota| quota.nominal).max().is_some_and(|most| each.sum::<i64>() > most)
    };
    let mut resources = job.podsets.iter().flat_map(|podset| podset.request.keys());
    (!may && resources.any(exceeds)).then_some(false)
}

/// The tree of quotas.
struct Tree<'a> {
    asked: &'a Asked,
}

impl Tree<'_> {
    fn parent(&self, text: &QueueText) -> Option<&QueueText> {
        let parent = text.parent.as_ref()?;
        self.asked.queues.iter().find(|other| other.name == *parent)
    }

    /// The name of the top of a queue's tree; the queue's own if it has no parent.
    fn top(&self, queue: &str) -> &str {
        let named = |name: &str| self.asked.queues.iter().find(|text| text.name == *name);
        let mut top = named(queue);
        // This ends even if parents go round in a circle.
        for _ in &self.asked.queues {
            top = top.map(|text| self.parent(text).unwrap_or(text));
        }
        top.map_or("", |text| &text.name)
    }

    fn children(&self, text: &QueueText) -> impl Iterator<Item = &QueueText> {
        let name = text.name.clone();
        self.asked.queues.iter().filter(move |other| other.parent.as_ref() == Some(&name))
    }

    /// All flavors and resources that someone has a quota for.
    fn lines(&self) -> BTreeSet<Line> {
        let quotas = self.asked.queues.iter().flat_map(|queue| &queue.quotas);
        quotas
            .filter_map(|quota| Some((quota.flavor.clone(), quota.resource.clone()?)))
            .filter(|(_, resource)| resource != PODS || words::pods_bound(self.asked))
            .collect()
    }

    /// What is granted to a node of the tree and to those below it, kept parts included.
    fn total(&self, text: &QueueText, line: &Line) -> i64 {
        self.sum(text, line, self.asked.queues.len())
    }

    /// A node's own quota plus its children's sums. The tree is no deeper than it has nodes, so this ends even if parents go
    /// round in a circle.
    fn sum(&self, text: &QueueText, line: &Line, depth: usize) -> i64 {
        let own = quota_of(text, line).map_or(0, |quota| quota.nominal);
        if depth == 0 {
            return own;
        }
        self.children(text).map(|child| self.sum(child, line, depth - 1)).fold(own, i64::saturating_add)
    }
}

fn quota_of<'a>(text: &'a QueueText, line: &Line) -> Option<&'a Quota> {
    text.quotas.iter().find(|quota| quota.flavor == line.0 && quota.resource.as_ref() == Some(&line.1))
}

/// Every amount of a case, by resource.
fn amounts(asked: &Asked) -> Vec<(&str, i64)> {
    let mut amounts: Vec<(&str, i64)> = Vec::new();
    for quota in asked.queues.iter().flat_map(|queue| &queue.quotas) {
        let Some(resource) = &quota.resource else { continue };
        let all = [Some(quota.nominal), quota.borrow_limit, quota.lend_limit];
        amounts.extend(all.into_iter().flatten().map(|amount| (resource.as_str(), amount)));
    }
    for job in &asked.jobs {
        let requests = job.podsets.iter().flat_map(|podset| &podset.request);
        let usage = job.assigned.iter().flat_map(|assigned| &assigned.usage);
        amounts.extend(requests.chain(usage).map(|(resource, amount)| (resource.as_str(), *amount)));
        // What each pod of an assignment holds counts, too.
        amounts.extend(job.assigned.iter().flat_map(super::form::Assigned::per_pod));
    }
    amounts.extend(asked.usage.iter().map(|usage| (usage.resource.as_str(), usage.amount)));
    let nodes = asked.nodes.iter().flat_map(|node| &node.allocatable);
    let foreign = asked.foreign_pods.iter().flat_map(|pod| &pod.request);
    amounts.extend(nodes.chain(foreign).map(|(resource, amount)| (resource.as_str(), *amount)));
    amounts
}

fn divisor(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.saturating_abs(), b.saturating_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Asked {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_child_lends_no_more_than_it_may_and_borrows_no_more_than_that() {
        let asked = asked(
            r#"{"kind": "cycle", "config": {}, "jobs": [], "queues": [
                {"name": "top", "kind": "cohort", "parent": null, "quotas": [{"flavor": "f", "resource": "cpu", "nominal": 1000}]},
                {"name": "a", "kind": "queue", "parent": "top", "quotas": [{"flavor": "f", "resource": "cpu", "nominal": 5000, "lend_limit": 2000, "borrow_limit": 500}]},
                {"name": "b", "kind": "queue", "parent": "top", "quotas": []}]}"#,
        );
        let quotas = Quotas::of(&asked).unwrap();
        let paths = crate::suite::measure::paths(
            asked.queues.iter().map(|queue| (queue.name.as_str(), queue.parent.as_deref())),
        );
        let queues = quotas.queues(&asked, &paths);
        let cpu = |amount| Some(&Amount::Finite(amount)).copied();
        let of = |limits: &divvy_core::amount::Limits| limits.get(&Resource::Cpu).copied();
        assert_eq!((of(&queues[0].guarantee), of(&queues[0].borrow)), (cpu(6000), cpu(0)));
        assert_eq!((of(&queues[1].guarantee), of(&queues[1].limit)), (cpu(5000), None));
        assert_eq!((of(&queues[1].lend), of(&queues[1].borrow)), (cpu(2000), cpu(500)));
        assert_eq!(of(&queues[2].limit), cpu(0));
    }
}
