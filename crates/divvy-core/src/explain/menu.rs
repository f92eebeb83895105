//! The menu: the changes that a fix is made of, the cheapest first. It is the whole space of the search: what is called the cheapest
//! is the cheapest of these.

use std::collections::{BTreeMap, BTreeSet};

use super::change::{Change, Raise};
use super::edit::{unsaid_memory, with_model};
use super::ends;
use super::fix::cost;
use super::world::World;
use crate::amount::{Amount, Holdings, Resource};
use crate::decide::highest_priority;
use crate::id::NodeId;
use crate::model::ask::{Alternative, DeviceAsk, DeviceClass};
use crate::model::choice::NodeChoice;
use crate::model::device::Health;
use crate::model::gang::{Group, Role};
use crate::model::job::{JobSpec, JobState};
use crate::model::node::NodeState;
use crate::model::queue::{self, Budget, Nodes, Queue, lineage, milli_gpu_hours};
use crate::plan;
use crate::snapshot::{ClassView, NodeView, Snapshot};
use crate::state::{Dependable, Job, Runs, State};
use crate::time::Time;

/// All that can be changed for a job, by who can change it; each part is in the order of its cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Menu {
    /// Conditions of its own that it can give up. They are given up together.
    pub waivers: Vec<Change>,
    /// What its user can ask for instead.
    pub edits: Vec<Change>,
    /// Whether that includes time limits that suit the room kept for others once other changes are made.
    pub in_time: bool,
    /// What can be waited for, the first to come first.
    pub ends: Vec<Change>,
    /// What an administrator can grant.
    pub grants: Vec<Change>,
}

/// Up to this number, all smaller ones are on the menu; beyond it, those that halve what is asked for.
const FEW: u32 = 16;

/// The menu of a job in a pool in which capacity is kept for others from these moments on.
pub(crate) fn menu(world: &World, kept_from: &[Time]) -> Menu {
    let Some(job) = world.job() else { return Menu::default() };
    let (state, snapshot) = (world.state(), world.snapshot());
    let by_cost = |mut changes: Vec<Change>| {
        changes.sort_by_cached_key(|change| cost(state, &job.spec, change));
        changes
    };
    let ends = ends::in_order(state).into_iter().map(|job| Change::End { job });
    let start = job.spec.start_after.filter(|at| *at > state.now).map(|until| Change::Wait { until });
    Menu {
        waivers: waivers(world, job),
        in_time: true,
        edits: by_cost([edits(state, snapshot, &job.spec), shorter(state, kept_from, &job.spec)].concat()),
        ends: by_cost(start.into_iter().chain(moments(world, &job.spec)).chain(ends).collect()),
        grants: by_cost(grants(state, snapshot, &job.spec)),
    }
}

/// So many moments of one kind are on the menu at most.
const MOST_MOMENTS: usize = 4;

/// Moments at which time alone may let it start.
fn moments(world: &World, spec: &JobSpec) -> Vec<Change> {
    let state = world.state();
    let turns = state.reservations.iter().filter_map(|kept| {
        let at = if kept.is_for(spec) { Some(kept.from) } else { kept.until };
        at.filter(|at| *at > state.now).map(|until| Change::AwaitCalendar { id: kept.id, until })
    });
    let mut turns: Vec<Change> = turns.collect();
    turns.sort_by_key(|change| cost(state, spec, change).until_ms);
    let mut seen = BTreeSet::new();
    turns.retain(|change| seen.insert(cost(state, spec, change).until_ms));
    let after = |at: &Time| world.snapshot().running.next_cooled(*at);
    let cooled = std::iter::successors(after(&state.now), after).filter(|until| until.0 < i64::MAX);
    let cooled = cooled.map(|until| Change::AwaitSafety { until });
    let renewals = renewals(state, spec).into_iter();
    renewals.chain(turns.into_iter().take(MOST_MOMENTS)).chain(cooled.take(MOST_MOMENTS)).collect()
}

/// What lets a job into the line at all.
fn waivers(world: &World, job: &Job) -> Vec<Change> {
    let state = world.state();
    let held = match (&job.runs, world.target().member) {
        (Runs::Array(array), None) => array.held.is_some(),
        (_, member) => job.run(member).is_some_and(|run| run.state == JobState::Held),
    };
    let open = job.spec.after.iter().filter(|on| state.dependency(on.job, on.on) != Dependable::Met);
    let mut waivers: Vec<Change> = held.then_some(Change::Release).into_iter().collect();
    waivers.extend(open.map(|on| Change::DropDependency { job: on.job }));
    waivers.extend(job.spec.start_after.filter(|at| *at > state.now).map(|_| Change::StartNow));
    if let (Some(0), Runs::Array(array)) = (job.members_left(), &job.runs) {
        waivers
            .push(Change::ArrayBound { to: array.array.at_most.unwrap_or(0).max(job.active_members()) + 1 });
    }
    waivers
}

/// What its user can ask for instead.
fn edits(state: &State, snapshot: &Snapshot, spec: &JobSpec) -> Vec<Change> {
    let mut edits: Vec<Change> = Vec::new();
    edits.extend((!spec.preemptible).then_some(Change::Preemptible));
    edits.extend(spec.exclusive.then_some(Change::ShareNodes));
    edits.extend(has_topology(&spec.gang).then_some(Change::AnyPlace));
    let roles = spec.gang.roles();
    let insists = |role: &&Role| role.ask.island().is_some_and(|island| island.required);
    edits.extend(roles.iter().any(insists).then_some(Change::AnyIsland));
    let chooses = roles.iter().any(|role| role.ask.nodes != NodeChoice::default());
    edits.extend(chooses.then_some(Change::AnyNode));
    edits.extend(spec.has_affinity().then_some(Change::AnyNeighbours));
    edits.extend(spreads(&spec.gang));
    let asks = || roles.iter().flat_map(|role| &role.ask.alternatives).filter_map(|it| it.devices.as_ref());
    let names = asks().any(|ask| !ask.class.models.is_empty());
    if names {
        let is_other = |model: &String| roles.iter().any(|role| with_model(role, model).is_some());
        edits
            .extend(models(snapshot).into_iter().filter(is_other).map(|model| Change::AcceptModel { model }));
    }
    let bounded = |ask: &DeviceAsk| {
        let class = &ask.class;
        class.least_gb.is_some() || class.most_gb.is_some() || class.least_memory_mib.is_some()
    };
    edits.extend(asks().any(bounded).then_some(Change::AcceptSizes));
    let is_fast = |ask: &DeviceAsk| !ask.class.least_gb_s.is_unsaid();
    edits.extend(asks().any(is_fast).then_some(Change::AcceptSlower));
    for role in roles {
        edits.extend(fewer(role));
        edits.extend(less_host(state, snapshot, spec, role));
    }
    edits
}

/// Margin for the time that it takes to read the advice and submit the job.
const MARGIN_MS: i64 = 10_000;

/// Time limits, in whole minutes, the shortest first, with which a job is over before others need what is kept for them.
pub(crate) fn shorter(state: &State, kept_from: &[Time], spec: &JobSpec) -> Vec<Change> {
    let until = |from: &Time| (from.since(state.now).0 - MARGIN_MS) / 60_000 * 60_000;
    let from_ms = spec.time_limit.map(|limit| limit.0);
    let is_shorter = |to_ms: &i64| *to_ms > 0 && from_ms.is_none_or(|from_ms| *to_ms < from_ms);
    let limits: BTreeSet<i64> = kept_from.iter().map(until).filter(is_shorter).collect();
    limits.into_iter().map(|to_ms| Change::TimeLimit { from_ms, to_ms }).collect()
}

fn has_topology(group: &Group) -> bool {
    let below = |branch: &crate::model::gang::Branch| branch.groups.iter().any(has_topology);
    group.topology().is_some() || matches!(group, Group::Branch(branch) if below(branch))
}

/// More tasks in one domain, where their number there is bounded: the fewest first, at last as many as there are.
fn spreads(gang: &Group) -> Vec<Change> {
    let spreads = gang.spreads();
    let bounds =
        || spreads.iter().filter_map(|(_, spread, group)| Some((spread, spread.bound()?, group.tasks())));
    let mut found: Vec<Change> = Vec::new();
    for (spread, from, tasks) in bounds() {
        let more = tasks.saturating_sub(from);
        let steps = below(more).chain((more > 0).then_some(more));
        let mut to: Vec<u32> = steps.map(|more| from + more).collect();
        to.sort_unstable();
        let level = || spread.over.clone();
        found.extend(to.into_iter().map(|to| Change::MoreInOne { level: level(), from, to }));
    }
    found.extend(bounds().next().map(|_| Change::AnySpread));
    found
}

/// The models of the pool.
fn models(snapshot: &Snapshot) -> BTreeSet<String> {
    let devices = snapshot.capacity.nodes.iter().flat_map(|node| &node.devices);
    let mut models = BTreeSet::new();
    for device in devices {
        if !models.contains(&device.spec.model) {
            models.insert(device.spec.model.clone());
        }
    }
    models
}

/// Fewer devices for each task, or fewer tasks.
fn fewer(role: &Role) -> Vec<Change> {
    let name = || role.name.clone();
    // None of several alternatives is to take more.
    let devices = role.ask.most_devices();
    let counts = below(devices).map(|to| Change::FewerDevices { role: name(), from: devices, to });
    let tasks = below(role.minimum).map(|to| Change::FewerTasks { role: name(), from: role.minimum, to });
    counts.chain(tasks).collect()
}

/// Smaller numbers, but not 0.
fn below(number: u32) -> impl Iterator<Item = u32> {
    let halves = std::iter::successors(Some(number / 2), |half| Some(half / 2)).take_while(|half| *half > 0);
    let all: Vec<u32> = if number <= FEW { (1..number).collect() } else { halves.collect() };
    all.into_iter()
}

/// Fewer cores or less memory: as much as nodes have left, or as the limits of its queues leave.
fn less_host(state: &State, snapshot: &Snapshot, spec: &JobSpec, role: &Role) -> Vec<Change> {
    let Some(first) = role.ask.alternatives.first() else { return Vec::new() };
    let memory = first.memory_bytes.unwrap_or_else(|| unsaid_memory(snapshot, first));
    let asked = [(Resource::Cpu, first.cpu_milli.unwrap_or(0)), (Resource::Memory, memory)];
    let mut changes = Vec::new();
    for (resource, from) in asked {
        let left = |node: &NodeView| match resource {
            Resource::Cpu => node.cpu_milli.1,
            _ => node.memory_bytes.1,
        };
        let within = |path: &str| {
            let Amount::Finite(limit) = state.limit_at(path)?.get(&resource)? else { return None };
            let held = snapshot.held.get(path).map_or(0, |held| held.of(&resource));
            Some((limit - held) / i64::from(role.minimum.max(1)))
        };
        let by_nodes = snapshot.capacity.nodes.iter().filter(|node| node.takes_tasks).map(left);
        let values: BTreeSet<i64> = by_nodes.chain(lineage(spec.stand()).filter_map(within)).collect();
        let values = values.into_iter().rev().filter(|to| *to < from && *to > 0).take(FEW as usize);
        let role = || role.name.clone();
        changes.extend(values.map(|to| Change::LessHost {
            role: role(),
            resource: resource.clone(),
            from,
            to,
        }));
    }
    changes
}

/// What an administrator can grant.
fn grants(state: &State, snapshot: &Snapshot, spec: &JobSpec) -> Vec<Change> {
    let mut grants = Vec::new();
    grants.extend(state.draining.then_some(Change::EndDrain));
    grants.extend(state.policy.strict.then_some(Change::AnyOrder));
    grants.extend(priorities(state, spec));
    grants.extend(kept_for_others(state, spec));
    let unusable = unusable(state);
    for (id, node) in state.nodes.iter().filter(|(_, node)| node.state != NodeState::Gone) {
        let name = || node.spec.name.clone();
        grants.extend((node.state == NodeState::Draining).then(|| Change::Undrain { node: name() }));
        let (down, foreign) = unusable.get(id).copied().unwrap_or_default();
        grants.extend((down > 0).then(|| Change::Repair { node: name(), devices: down }));
        grants.extend((foreign > 0).then(|| Change::Vacate { node: name(), devices: foreign }));
    }
    let ways = drawn(snapshot, spec);
    for path in lineage(&spec.queue) {
        let queue = || state.queues.get(path).into_iter();
        grants.extend(ways.iter().flat_map(|drawn| queue().flat_map(|queue| raises(snapshot, queue, drawn))));
    }
    grants.extend(weights(state, spec));
    grants.extend(budget_raises(state, spec));
    grants.extend(ways.iter().flat_map(|drawn| user_raises(state, snapshot, spec, drawn)));
    let is_own = |path: &String| lineage(&spec.queue).any(|own| own == path);
    // A queue cannot lend nodes that are kept for it.
    let lends = |queue: &&Queue| !queue.lend.is_empty() && queue.nodes.is_unsaid();
    let others = state.queues.values().filter(|queue| !is_own(&queue.path)).filter(lends);
    let others: Vec<&Queue> = others.collect();
    let left =
        if others.is_empty() { BTreeMap::new() } else { plan::available(state, snapshot, spec.stand()) };
    let lent = |drawn| others.iter().flat_map(|queue| lent(state, queue, drawn, &left)).collect::<Vec<_>>();
    grants.extend(ways.iter().flat_map(lent));
    grants.extend(room(state, snapshot, spec));
    if ways.len() <= 1 {
        return grants;
    }
    let mut unlike: Vec<Change> = Vec::new();
    for grant in grants {
        if !unlike.contains(&grant) {
            unlike.push(grant);
        }
    }
    unlike
}

/// At most so many priorities are on the menu; in pools of more than `MANY_JOBS` jobs, only the highest of them: each costs a try.
const MOST_PRIORITIES: usize = 6;
const MANY_JOBS: usize = 2000;

/// Priorities just above those of other jobs, up to the highest that it may have: the lowest first. To be just above theirs is
/// all it takes to pass waiting jobs, or to have running jobs give way.
fn priorities(state: &State, spec: &JobSpec) -> Vec<Change> {
    let highest = highest_priority(state, spec);
    let others: BTreeSet<i32> = state.jobs.values().map(|job| job.spec.priority).collect();
    let above = others.into_iter().map(|other| other.saturating_add(1));
    let mut found: BTreeSet<i32> = above.filter(|to| *to < highest).collect();
    if state.jobs.len() > MANY_JOBS {
        found = found.split_off(&found.last().copied().unwrap_or_default());
    }
    found.insert(highest);
    let mut found: Vec<i32> = found.into_iter().filter(|to| *to > spec.priority).collect();
    if found.len() > MOST_PRIORITIES {
        found.drain(MOST_PRIORITIES / 2..found.len() - MOST_PRIORITIES / 2);
    }
    found.into_iter().map(|to| Change::Prioritise { to }).collect()
}

/// Reservations for others; for a node or device that was drained several times, one that stands for all.
fn kept_for_others(state: &State, spec: &JobSpec) -> Vec<Change> {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let keeps = state.reservations.iter().filter(|kept| !kept.is_for(spec));
    let ends = keeps.map(|kept| (kept.id, state.drained_by(kept)));
    let first = ends.filter(|(_, drained)| drained.as_ref().is_none_or(|target| seen.insert(target.clone())));
    first.map(|(id, drained)| Change::EndReservation { id, drained }).collect()
}

/// How many devices of each node are broken, and how many more are used from outside the pool, where any are.
fn unusable(state: &State) -> BTreeMap<NodeId, (u32, u32)> {
    let mut unusable: BTreeMap<NodeId, (u32, u32)> = BTreeMap::new();
    for device in state.devices.values() {
        match (&device.health, &device.occupant) {
            (Health::Ok, None) => {}
            (Health::Ok, Some(_)) => unusable.entry(device.node).or_default().1 += 1,
            _ => unusable.entry(device.node).or_default().0 += 1,
        }
    }
    unusable
}

/// What a job would draw at most of each resource, by each of its alternatives.
fn drawn(snapshot: &Snapshot, spec: &JobSpec) -> Vec<Holdings> {
    let roles = spec.gang.roles();
    let most = roles.iter().map(|role| role.ask.alternatives.len()).max().unwrap_or(0);
    let by = |number: usize| {
        let mut drawn = Holdings::default();
        for role in &roles {
            let alternatives = &role.ask.alternatives;
            let Some(one) = alternatives.get(number).or(alternatives.last()) else { continue };
            for (resource, amount) in drawn_by(snapshot, (one, spec.exclusive)) {
                // A sum beyond all integers is more than any queue has.
                let _ = drawn.change(&resource, amount.saturating_mul(i64::from(role.minimum)));
            }
        }
        drawn
    };
    (0..most).map(by).collect()
}

/// What one task draws at most; one that wants its node for itself draws all of it.
fn drawn_by(snapshot: &Snapshot, (alternative, exclusive): (&Alternative, bool)) -> Vec<(Resource, i64)> {
    let ask = alternative.devices.as_ref();
    // Any of the models that would do may be the one that it gets.
    let named = ask.map(|ask| ask.class.models.iter().cloned().collect::<BTreeSet<_>>()).unwrap_or_default();
    let gets_any = ask.is_some() || exclusive;
    let models = if named.is_empty() && gets_any { models(snapshot) } else { named };
    let unsaid = |stated: Option<i64>, unsaid: i64| if stated.is_none() { unsaid } else { 0 };
    let unsaid_cpu = unsaid(alternative.cpu_milli, if ask.is_none() { 1000 } else { 0 });
    let unsaid_memory = unsaid(alternative.memory_bytes, unsaid_memory(snapshot, alternative));
    let (sizes, task) = (snapshot.capacity.sizes(), (alternative, exclusive));
    let host = [(Resource::Any, 0), (Resource::Cpu, unsaid_cpu), (Resource::Memory, unsaid_memory)];
    let host = host.into_iter().map(|(resource, least)| {
        let drawn = sizes.asked(task, &resource).max(least);
        (resource, drawn)
    });
    let models = models.into_iter().map(|model| {
        let drawn = sizes.drawn_of_model(task, &model).max(alternative.milli());
        (Resource::Model(model), drawn)
    });
    host.chain(models).collect()
}

/// How much of a resource all waiting jobs of a queue, and of those below it, draw at most.
pub(super) fn asked_below(snapshot: &Snapshot, path: &str, resource: &Resource) -> i64 {
    let is_below = |queue: &str| lineage(queue).any(|above| above == path);
    let classes = snapshot.waiting.classes.values().filter(|class| is_below(&class.example.queue));
    let of_class = |class: &ClassView| {
        let ways = drawn(snapshot, &class.example);
        let each = ways.iter().map(|drawn| drawn.of(resource)).max().unwrap_or(0);
        each.saturating_mul(class.runs)
    };
    classes.map(of_class).fold(0, i64::saturating_add)
}

/// Raises of a queue on the job's own path: as much as the job needs beside what is held.
fn raises(snapshot: &Snapshot, queue: &Queue, drawn: &Holdings) -> Vec<Change> {
    let of = |books: &std::collections::BTreeMap<String, Holdings>, resource: &Resource| {
        books.get(&queue.path).map_or(0, |held| held.of(resource))
    };
    let mut raises = Vec::new();
    for (resource, asked) in drawn.iter() {
        let raise = |from: i64, to: i64| {
            let raise = Raise { queue: queue.path.clone(), resource: resource.clone(), from, to };
            (to > from).then_some(raise)
        };
        let said = |limits: &crate::amount::Limits| match limits.get(resource) {
            Some(Amount::Finite(amount)) => Some(*amount),
            _ => None,
        };
        let held = of(&snapshot.held, resource).saturating_add(asked);
        raises.extend(said(&queue.limit).and_then(|from| raise(from, held)).map(Change::RaiseLimit));
        raises.extend(
            said(&queue.borrow)
                .and_then(|from| raise(from, from.saturating_add(asked)))
                .map(Change::RaiseBorrow),
        );
        if queue.nodes.is_unsaid() && matches!(resource, Resource::Any | Resource::Model(_)) {
            let from = said(&queue.guarantee).unwrap_or(0);
            let pinned = of(&snapshot.pinned, resource).saturating_add(asked);
            let wanted: BTreeSet<i64> = [pinned, held].into_iter().collect();
            raises.extend(wanted.into_iter().filter_map(|to| raise(from, to)).map(Change::RaiseGuarantee));
        }
    }
    raises
}

/// Weights for what has none on the job's own path: its user, its queue, those above it.
fn weights<'a>(state: &'a State, spec: &'a JobSpec) -> impl Iterator<Item = Change> + use<'a> {
    let divided = state.policy.divides();
    let of_user = spec.seat.said().and_then(|seat| queue::user_at(seat)).filter(|(path, user)| {
        let users = state.queues.get(*path).and_then(|queue| queue.users.0.as_ref());
        users.is_some_and(|users| users.weight_of(user) == 0)
    });
    let weigh = |queue: &str, user: Option<&str>| Change::Weigh {
        queue: queue.to_owned(),
        user: user.map(str::to_owned),
    };
    let queues = lineage(&spec.queue).filter(|path| state.queues.get(*path).is_some_and(|it| it.weight == 0));
    let user = of_user.map(|(path, user)| weigh(path, Some(user)));
    user.into_iter().chain(queues.map(move |path| weigh(path, None))).filter(move |_| divided)
}

/// Raises of what each user of the job's queue may hold.
fn user_raises<'a>(
    state: &'a State,
    snapshot: &'a Snapshot,
    spec: &'a JobSpec,
    drawn: &'a Holdings,
) -> impl Iterator<Item = Change> + use<'a> {
    let limits = spec.seat.said().and_then(|seat| state.limit_at(seat)).into_iter().flatten();
    let held = snapshot.held.get(spec.stand());
    limits.filter_map(move |(resource, limit)| {
        let Amount::Finite(from) = *limit else { return None };
        let to = held.map_or(0, |held| held.of(resource)).saturating_add(drawn.of(resource));
        let (queue, resource) = (spec.queue.clone(), resource.clone());
        (to > from).then_some(Change::RaiseUserLimit(Raise { queue, resource, from, to }))
    })
}

/// When budgets renew that the job's queue, or those above it, have used up.
fn renewals(state: &State, spec: &JobSpec) -> Vec<Change> {
    let spent = state.spent_out(state.now);
    let own = lineage(&spec.queue).filter_map(|path| Some((path, spent.get(path)?)));
    own.map(|(path, (_, until))| Change::AwaitBudget { queue: path.to_owned(), until: *until }).collect()
}

/// Raises of budgets that are used up: so that some GPU-hours are left.
fn budget_raises(state: &State, spec: &JobSpec) -> Vec<Change> {
    let spent = state.spent_out(state.now);
    let own = lineage(&spec.queue).filter_map(|path| Some((path, spent.get(path)?)));
    let raise = |(path, (budget, _)): (&str, &(&Budget, Time))| {
        let owed = milli_gpu_hours(-state.budget_left(path, state.now).unwrap_or(0));
        let from = budget.milli_gpu_hours;
        // Whole hours, or for small budgets a tenth of their leading digit: the next after what is used, and one to begin with.
        let unit = [1000, 100, 10].into_iter().find(|unit| unit * 10 <= from).unwrap_or(1);
        let to = (from + owed).div_euclid(unit).saturating_add(2).saturating_mul(unit);
        Change::RaiseBudget { queue: path.to_owned(), from, to }
    };
    own.map(raise).collect()
}

/// How much more another queue could lend of what it is guaranteed: what the job asks for, and what is missing already where more is
/// kept than there is.
fn lent(state: &State, queue: &Queue, drawn: &Holdings, left: &BTreeMap<Resource, i64>) -> Vec<Change> {
    let own = |resource: &Resource| own(state, queue, resource).unwrap_or(i64::MAX);
    let raise = |(resource, amount): (&Resource, &Amount)| {
        let Amount::Finite(from) = *amount else { return None };
        let asked = Some(drawn.of(resource)).filter(|asked| *asked > 0)?;
        let missing = left.get(resource).map_or(0, |left| left.saturating_neg().max(0));
        let to = from.saturating_add(asked).saturating_add(missing).min(own(resource));
        if to <= from {
            return None;
        }
        let (queue, resource) = (queue.path.clone(), resource.clone());
        Some(Change::RaiseLend(Raise { queue, resource, from, to }))
    };
    queue.lend.iter().filter_map(raise).collect()
}

/// How much of a resource is guaranteed to a queue by its own word, over all models where it names those; `None` where that may come
/// from the queues below it.
fn own(state: &State, queue: &Queue, resource: &Resource) -> Option<i64> {
    let above = format!("{}/", queue.path);
    let is_above_others = || {
        let next = state.queues.range(above.clone()..).next();
        next.is_some_and(|(path, _)| path.starts_with(&above))
    };
    let is_finite = || queue.guarantee.values().all(|amount| matches!(amount, Amount::Finite(_)));
    match queue.guarantee.get(resource) {
        Some(Amount::Finite(amount)) => Some(*amount),
        None if *resource == Resource::Any && is_finite() && !is_above_others() => {
            queue::own(queue).get(resource).copied()
        }
        Some(Amount::Unlimited) | None => None,
    }
}

/// New nodes with room for some or all of its tasks.
fn room(state: &State, snapshot: &Snapshot, spec: &JobSpec) -> Vec<Change> {
    let (roles, all) = (spec.gang.roles(), spec.gang.tasks());
    let asks = roles.iter().filter_map(|role| role.ask.alternatives.first()?.devices.as_ref());
    let add = |tasks, devices, model, class| {
        let kept = joining(state, spec, nodes_for(spec, tasks))?;
        Some(Change::AddRoom { tasks, devices, model, kept, class })
    };
    let Some(ask) = asks.max_by_key(|ask| ask.count) else {
        return add(all, 0, String::new(), None).into_iter().collect();
    };
    let known = || models(snapshot).into_iter().next();
    let model = ask.class.models.first().cloned().or_else(known).unwrap_or_else(|| "generic".into());
    let class = bounds_unknown(snapshot, &ask.class, &model);
    below(all).chain([all]).filter_map(|tasks| add(tasks, ask.count, model.clone(), class.clone())).collect()
}

/// What a device of a model has to be like, where the job asks for bounds and the pool has no such device to tell whether it fits.
fn bounds_unknown(snapshot: &Snapshot, class: &DeviceClass, model: &str) -> Option<DeviceClass> {
    let class = DeviceClass { models: vec![model.to_owned()], ..class.clone() };
    let is_bounded = class != DeviceClass { models: class.models.clone(), ..DeviceClass::default() };
    (is_bounded && !models(snapshot).contains(model)).then_some(class)
}

/// How many nodes it takes to add room for so many tasks: one, where they may share it.
pub(super) fn nodes_for(spec: &JobSpec, tasks: u32) -> u32 {
    let is_spread = spec.gang.spreads().iter().any(|(_, spread, _)| spread.bound().is_some());
    if spec.exclusive || is_spread { tasks } else { 1 }
}

/// What so many new nodes need so that the job may lie there: the labels of its queue's own nodes, or names of own nodes that are
/// not there. `None` where too few of these are missing.
#[expect(clippy::option_option, reason = "most jobs may lie on any new node")]
fn joining(state: &State, spec: &JobSpec, count: u32) -> Option<Option<Nodes>> {
    let own = spec.kept_to.said().and_then(|queue| state.queues.get(&**queue)?.nodes.said());
    let Some(Nodes::Named(names)) = own else { return Some(own.cloned()) };
    let is_gone = |id: &NodeId| state.nodes.get(id).is_none_or(|node| node.state == NodeState::Gone);
    let is_missing = |name: &&String| state.node_by_name(name).as_ref().is_none_or(is_gone);
    let missing: BTreeSet<String> = names.iter().filter(is_missing).take(count as usize).cloned().collect();
    (missing.len() == count as usize).then_some(Some(Nodes::Named(missing)))
}

/// Whether the job could start with these settings and asks if no other job were there: what no end can bring is not waited for. What
/// the calendar keeps from it comes back with time.
pub(crate) fn fits_alone(world: &World, spec: &JobSpec) -> bool {
    let state = world.state();
    let mut alone = Snapshot::unused(state);
    let refused = plan::would_place(state, &mut alone, spec).err();
    !state.draining && refused.is_none_or(|reason| reason.is_of_calendar())
}
