//! Diagnosis: why a gang does not fit. First what the pool can never give, then what it cannot give now.

use std::collections::{BTreeMap, BTreeSet};

use super::calendar;
use super::filter::{self, Funnel, Step, Tally};
use super::islands;
use super::place::{UNSAID_CPU_MILLI, UNSAID_MEMORY_BYTES, draw_of, place_spec, place_task};
use super::score::{Asked, Pick};
use super::spread;
use super::trial::Trial;
use crate::amount::Resource;
use crate::id::DeviceId;
use crate::model::ask::{Alternative, DeviceAsk};
use crate::model::choice::NodeChoice;
use crate::model::device::WHOLE_MILLI;
use crate::model::extras::Extras;
use crate::model::gang::Role;
use crate::model::job::JobSpec;
use crate::reason::{Reason, Verdict};
use crate::snapshot::{Capacity, DeviceView, NodeView, Snapshot};
use crate::state::State;

/// What a diagnosis looks at: the nodes that may be used, and no others.
type Nodes<'a> = [&'a NodeView];

/// The nodes of the pool that a choice leaves, whichever queues may use them.
fn chosen<'a>(capacity: &'a Capacity, choice: &NodeChoice) -> Vec<&'a NodeView> {
    let all = choice.is_any() && !capacity.is_tainted;
    capacity.nodes.iter().filter(|node| all || choice.takes(&node.face)).collect()
}

/// Of these nodes, those that the queue of a job may use.
fn open<'a>(chosen: &[&'a NodeView], spec: &JobSpec) -> Vec<&'a NodeView> {
    chosen.iter().copied().filter(|node| node.is_open_to(spec)).collect()
}

/// Whether nodes that are not for a job's queue would do, and for which queue they are kept: those kept for none come first.
pub(super) fn elsewhere(
    chosen: &[&NodeView],
    spec: &JobSpec,
    would_do: impl Fn(&[&NodeView]) -> bool,
) -> Option<Reason> {
    let others: BTreeSet<Option<&str>> =
        chosen.iter().filter(|node| !node.is_open_to(spec)).map(|node| node.kept_for.as_deref()).collect();
    let of = |keeper: &Option<&str>| -> Vec<&NodeView> {
        chosen.iter().copied().filter(|node| node.kept_for.as_deref() == *keeper).collect()
    };
    let keeper = others.into_iter().find(|keeper| would_do(&of(keeper)))?;
    let own = spec.kept_to.said().map(|queue| queue.to_string());
    Some(Reason::OtherNodes(own, keeper.map(str::to_owned)))
}

/// Why so many tasks of this alternative do not fit on the nodes that a choice leaves.
pub(super) fn diagnose(
    (capacity, choice): (&Capacity, &NodeChoice),
    spec: &JobSpec,
    alternative: &Alternative,
    tasks: u32,
) -> Reason {
    let chosen = chosen(capacity, choice);
    if !capacity.keeps_nodes {
        return of_nodes(&chosen, spec, alternative, tasks);
    }
    let own = of_nodes(&open(&chosen, spec), spec, alternative, tasks);
    // Whatever is free there: a reason that stands until the pool changes must not change before.
    let would_do = |nodes: &[&NodeView]| could(nodes, spec, alternative, tasks);
    // Other nodes may have what its own never have.
    let others = if own.verdict() == Verdict::NoFit { elsewhere(&chosen, spec, would_do) } else { None };
    others.unwrap_or(own)
}

/// Why so many tasks of this alternative do not fit on these nodes.
fn of_nodes(nodes: &Nodes, spec: &JobSpec, alternative: &Alternative, tasks: u32) -> Reason {
    let ask = alternative.devices.as_ref();
    let tally = ask.map(|ask| filter::tally(nodes.iter().copied(), ask)).unwrap_or_default();
    let for_one = never(nodes, alternative, &tally).or_else(|| not_now(nodes, spec, (alternative, &tally)));
    for_one.unwrap_or_else(|| match most_at_once(nodes, spec, alternative) {
        most if most < tasks => Reason::TooManyTasks(tasks, most),
        _ => Reason::GangIncomplete(spec.gang.tasks()),
    })
}

/// Whether so many tasks of this alternative fit on these nodes when they are idle.
fn could(nodes: &Nodes, spec: &JobSpec, alternative: &Alternative, tasks: u32) -> bool {
    let ask = alternative.devices.as_ref();
    let tally = ask.map(|ask| filter::tally(nodes.iter().copied(), ask)).unwrap_or_default();
    never(nodes, alternative, &tally).is_none() && most_at_once(nodes, spec, alternative) >= tasks
}

/// How many tasks of a job these nodes hold at once when they are idle.
fn most_at_once(nodes: &Nodes, spec: &JobSpec, alternative: &Alternative) -> u32 {
    let holds = |node: &&&NodeView| most_tasks([**node], alternative) > 0;
    match spec.exclusive {
        // Each of them has a node to itself.
        true => nodes.iter().filter(holds).count() as u32,
        false => most_tasks(nodes.iter().copied(), alternative),
    }
}

/// How many tasks of an alternative these nodes hold at once when they are idle.
pub(super) fn most_tasks<'a>(
    nodes: impl IntoIterator<Item = &'a NodeView>,
    alternative: &Alternative,
) -> u32 {
    let alone = alternative.devices.is_none();
    let times = |total: i64, each: Option<i64>| match each {
        Some(each) if each > 0 => u32::try_from(total / each).unwrap_or(u32::MAX),
        _ => u32::MAX,
    };
    let on = |node: &NodeView| {
        let by_devices = alternative.devices.as_ref().map_or(u32::MAX, |ask| tasks_by_devices(node, ask));
        let cpu = alternative.cpu_milli.or(alone.then_some(UNSAID_CPU_MILLI.min(node.cpu_milli.0)));
        let memory =
            alternative.memory_bytes.or(alone.then_some(UNSAID_MEMORY_BYTES.min(node.memory_bytes.0)));
        let most = u32::try_from(node.most_tasks.0).unwrap_or(u32::MAX);
        let by_host = times(node.cpu_milli.0, cpu).min(times(node.memory_bytes.0, memory));
        let by_extras = u32::try_from(alternative.extras.times_in(&node.extras.0)).unwrap_or(u32::MAX);
        by_devices.min(by_host).min(by_extras).min(most)
    };
    nodes.into_iter().fold(0, |sum: u32, node| sum.saturating_add(on(node)))
}

/// The devices of a node that would do for one task, were they free: the most that it could choose from.
fn would_do(node: &NodeView, ask: &DeviceAsk) -> u32 {
    if node.uniform && ask.required_island().is_none() {
        let all = node.devices.len() as u32;
        return if node.devices.first().is_some_and(|first| is_good(first, ask)) { all } else { 0 };
    }
    islands::most(node, ask, |device| is_good(device, ask))
}

/// Whether a device is of the right class.
fn is_good(device: &DeviceView, ask: &DeviceAsk) -> bool {
    ask.class.takes(&device.spec)
}

/// How many tasks the devices of a node allow, were they free.
fn tasks_by_devices(node: &NodeView, ask: &DeviceAsk) -> u32 {
    let draws = WHOLE_MILLI / ask.milli().max(1);
    if ask.required_island().is_none() {
        return would_do(node, ask).saturating_mul(draws) / ask.count.max(1);
    }
    let on = |device: &DeviceView| if is_good(device, ask) { u64::from(draws) } else { 0 };
    u32::try_from(islands::tasks(node, ask, on)).unwrap_or(u32::MAX)
}

/// The most devices of one island, of any of these nodes, for which `counts` holds.
fn most_in_an_island(nodes: &Nodes, ask: &DeviceAsk, counts: impl Fn(&NodeView, &DeviceView) -> bool) -> u32 {
    let on =
        |node: &&NodeView| islands::most(node, ask, |device| is_good(device, ask) && counts(node, device));
    nodes.iter().map(on).max().unwrap_or(0)
}

/// What no node of the pool could ever give one task of this alternative.
fn never(nodes: &Nodes, alternative: &Alternative, tally: &Tally) -> Option<Reason> {
    if nodes.is_empty() {
        return Some(Reason::NoNode);
    }
    let ask = alternative.devices.as_ref();
    if let Some(ask) = ask {
        if tally.right_model == 0 {
            return Some(Reason::NoSuchModel(ask.class.clone()));
        }
        if tally.enough_memory == 0 {
            return Some(Reason::NoSuchMemory(ask.class.clone()));
        }
        if tally.most_on_a_node < ask.count {
            return Some(Reason::TooManyDevices(ask.count, tally.most_on_a_node));
        }
        if let Some(level) = ask.required_island() {
            let most = most_in_an_island(nodes, ask, |_, _| true);
            if most < ask.count {
                return Some(Reason::NoIsland(level, ask.count, most));
            }
        }
    }
    let host = [(Resource::Cpu, alternative.cpu_milli), (Resource::Memory, alternative.memory_bytes)];
    let host = host.into_iter().filter_map(|(resource, asked)| Some((resource, asked?)));
    let extras = alternative.extras.iter().map(|(resource, asked)| (resource.clone(), asked));
    host.chain(extras).find_map(|(resource, asked)| {
        let most = most_on_able(nodes, ask, &resource);
        (asked > most).then_some(Reason::TooMuchHost(resource, asked, most))
    })
}

/// The most of a host resource that any of these nodes has, of those with the devices for a task.
fn most_on_able(nodes: &Nodes, ask: Option<&DeviceAsk>, resource: &Resource) -> i64 {
    let able = nodes.iter().filter(|node| ask.is_none_or(|ask| would_do(node, ask) >= ask.count));
    let has = |node: &&NodeView| match resource {
        Resource::Cpu => node.cpu_milli.0,
        Resource::Memory => node.memory_bytes.0,
        other => node.extras.0.of(other),
    };
    able.map(has).max().unwrap_or(0)
}

/// What no node can give one task of this alternative at the moment.
fn not_now(nodes: &Nodes, spec: &JobSpec, (alternative, tally): (&Alternative, &Tally)) -> Option<Reason> {
    let draining = nodes.iter().filter(|node| !node.takes_tasks).count();
    if draining == nodes.len() {
        return Some(Reason::NodesDraining(draining as u32));
    }
    if let Some(ask) = &alternative.devices {
        let level = ask.required_island();
        let most_usable = level.map_or(tally.most_usable, |_| {
            most_in_an_island(nodes, ask, |node, device| node.takes_tasks && device.unusable.is_none())
        });
        if most_usable < ask.count {
            if let drained @ 1.. = drained_for(nodes, ask) {
                return Some(Reason::NodesDraining(drained));
            }
            return Some(match (tally.down, tally.foreign, tally.draining) {
                (down, foreign, draining) if draining > down.max(foreign) => {
                    Reason::DevicesDraining(draining)
                }
                (down, foreign, _) if down >= foreign => Reason::DevicesDown(down),
                (_, foreign, _) => Reason::DevicesForeign(foreign),
            });
        }
        if tally.most_free < ask.count {
            return Some(Reason::DevicesBusy(ask.count));
        }
        if let Some(level) = level
            && most_in_an_island(nodes, ask, |node, it| node.takes_tasks && filter::fits(it, ask)) < ask.count
        {
            return Some(Reason::NoIsland(level, ask.count, most_in_an_island(nodes, ask, |_, _| true)));
        }
    }
    host_busy(nodes, spec, alternative)
}

/// How many nodes that take no tasks would do once they are idle.
fn drained_for(nodes: &Nodes, ask: &DeviceAsk) -> u32 {
    let is_usable = |device: &DeviceView| is_good(device, ask) && device.unusable.is_none();
    let drained = nodes.iter().filter(|node| !node.takes_tasks);
    drained.filter(|node| islands::most(node, ask, is_usable) >= ask.count).count() as u32
}

/// What the hosts lack beside devices, if one task does not fit anywhere.
fn host_busy(nodes: &Nodes, spec: &JobSpec, alternative: &Alternative) -> Option<Reason> {
    let fits = |spec: &JobSpec, alternative: &Alternative| {
        let asked = Asked { spec, alternative, closed: &[] };
        nodes.iter().any(|node| node.takes_tasks && draw_of(node, &asked, Pick::Near).is_some())
    };
    if fits(spec, alternative) {
        return None;
    }
    let sharing = match spec.exclusive {
        true => &JobSpec { exclusive: false, ..spec.clone() },
        false => spec,
    };
    if spec.exclusive && fits(sharing, alternative) {
        return Some(Reason::NoIdleNode);
    }
    let is_full = |node: &NodeView| node.most_tasks.1 <= 0;
    let takes_one_more = |node: &NodeView| {
        let mut open = node.clone();
        open.most_tasks.1 = 1;
        let asked = Asked { spec, alternative, closed: &[] };
        draw_of(&open, &asked, Pick::Near).is_some()
    };
    let mut full = nodes.iter().filter(|node| node.takes_tasks && is_full(node));
    if full.any(|node| takes_one_more(node)) || nodes.iter().all(|node| is_full(node)) {
        return Some(Reason::HostBusy(Resource::Pods, 1));
    }
    if fits(sharing, &Alternative { cpu_milli: Some(0), ..alternative.clone() }) {
        return Some(Reason::HostBusy(Resource::Cpu, alternative.cpu_milli.unwrap_or(UNSAID_CPU_MILLI)));
    }
    let plain = Alternative { extras: Extras::default(), ..alternative.clone() };
    if !alternative.extras.is_empty() && fits(sharing, &plain) {
        let lacks = |(resource, asked): &(&Resource, i64)| {
            nodes.iter().all(|node| node.extras.1.of(resource) < *asked)
        };
        let scarce = alternative.extras.iter().find(lacks).or_else(|| alternative.extras.iter().next());
        return scarce.map(|(resource, asked)| Reason::HostBusy(resource.clone(), asked));
    }
    let memory = alternative.memory_bytes.unwrap_or_else(|| unsaid_memory(nodes, alternative));
    Some(Reason::HostBusy(Resource::Memory, memory))
}

/// The most memory that a task gets when it states none.
fn unsaid_memory(nodes: &Nodes, alternative: &Alternative) -> i64 {
    let Some(ask) = &alternative.devices else { return UNSAID_MEMORY_BYTES };
    let shares = nodes.iter().flat_map(|node| &node.devices).map(|device| device.host_share.1);
    shares.max().unwrap_or(0) * i64::from(ask.count)
}

/// Whether a job fits the emptied pool, or why it never will.
pub(super) fn fits_empty(empty: &Snapshot, spec: &JobSpec) -> Result<(), Reason> {
    let (no_limits, mut scratch) = (State::default(), empty.clone());
    scratch.neighbours.heed(&no_limits, spec);
    let mut trial = Trial::new(&no_limits, &mut scratch);
    trial.around.expect_others();
    spread::place_gang(&mut trial, spec).map_err(|reason| match reason {
        // What no domain of the empty pool holds at once is more than any of them ever does.
        Reason::NoDomain(level, tasks, most) => {
            Reason::NoDomain(level, tasks, most.min(tasks.saturating_sub(1)))
        }
        Reason::NotSpread(level, most, tasks, held) => {
            Reason::NotSpread(level, most, tasks, held.min(tasks.saturating_sub(1)))
        }
        reason if reason.verdict() == Verdict::NoFit || matches!(reason, Reason::NotNear(..)) => reason,
        _ => Reason::TooManyTasks(spec.gang.tasks(), fitting_tasks(empty, spec)),
    })
}

/// How many tasks of the gang, in order, the emptied pool holds at once.
fn fitting_tasks(empty: &Snapshot, spec: &JobSpec) -> u32 {
    let (no_limits, mut scratch) = (State::default(), empty.clone());
    scratch.neighbours.heed(&no_limits, spec);
    let mut trial = Trial::new(&no_limits, &mut scratch);
    trial.around.expect_others();
    let mut placed = 0;
    for role in spec.gang.roles() {
        for _ in 0..role.minimum {
            let fits = |(index, alternative)| {
                place_task(&mut trial, spec, (index, alternative), (placed, 1)).is_ok()
            };
            if !(0..).zip(&role.ask.alternatives).any(fits) {
                return placed;
            }
            placed += 1;
        }
    }
    placed
}

/// All that keeps a job of this shape from starting now, by limits and by capacity, each by itself; and its funnel.
pub(super) fn blockers(state: &State, snapshot: &Snapshot, spec: &JobSpec) -> (Vec<Reason>, Funnel) {
    let mut scratch = snapshot.scratch();
    scratch.neighbours.heed(state, spec);
    let mut trial = Trial::new(state, &mut scratch);
    let draining = state.draining.then_some(Reason::PoolDraining);
    let mut blockers: Vec<Reason> = draining.into_iter().chain(trial.spent(spec).cloned()).collect();
    blockers.extend(trial.all_beyond(spec));
    blockers.extend(super::allows(state, snapshot, spec).err());
    blockers.extend(super::closed(state, snapshot, spec).err());
    // Without limits what is left is capacity alone.
    let by_capacity = place_spec(&mut trial, &spec.without_limits()).err();
    trial.roll_back_to(0);
    if by_capacity.is_none() && blockers.is_empty() {
        blockers.extend(place_spec(&mut trial, spec).err());
    }
    blockers.extend(by_capacity);
    (blockers, funnel((state, snapshot), spec))
}

/// The funnel of these nodes for a task that takes any of these asks: each device counts as far as it gets for one of them.
fn by_any(nodes: &Nodes, ways: &[&DeviceAsk], kept: &BTreeSet<DeviceId>) -> Funnel {
    let [first, others @ ..] = ways else { return Funnel::default() };
    if others.is_empty() {
        return filter::funnel(nodes.iter().copied(), first, kept);
    }
    let Funnel(mut steps) = filter::funnel([], first, kept);
    for node in nodes {
        let here = passed_by_any(node, ways, kept);
        for (step, devices, nodes) in &mut steps {
            let passed = here.get(step).copied().unwrap_or(0);
            *devices += passed;
            *nodes += u32::from(passed > 0);
        }
    }
    Funnel(steps)
}

/// How many devices of a node reach each step by any of these ways. Ways that share no suitable device of the
/// node add up; of others, the one by which most get there counts.
fn passed_by_any(node: &NodeView, ways: &[&DeviceAsk], kept: &BTreeSet<DeviceId>) -> BTreeMap<Step, u32> {
    let takes = |ask: &DeviceAsk, device: &DeviceView| ask.class.takes_model(&device.spec);
    let mut passed: BTreeMap<Step, u32> = BTreeMap::new();
    for (index, way) in ways.iter().enumerate() {
        let before = |device: &DeviceView| ways[..index].iter().any(|other| takes(other, device));
        let is_apart = !node.devices.iter().any(|device| takes(way, device) && before(device));
        let Funnel(steps) = filter::funnel([node], way, kept);
        for (step, devices, _) in steps {
            let known = passed.entry(step).or_default();
            let adds = is_apart && step != Step::InPool;
            *known = if adds { *known + devices } else { devices.max(*known) };
        }
    }
    passed
}

/// The funnel of the first devices that a job asks for, on the nodes that it may use, by all ways in which it may be served.
pub(super) fn funnel((state, snapshot): (&State, &Snapshot), spec: &JobSpec) -> Funnel {
    let asks = |role: &&Role| role.ask.alternatives.iter().any(|way| way.devices.is_some());
    let Some(role) = spec.gang.roles().into_iter().find(asks) else { return Funnel::default() };
    let ways: Vec<&DeviceAsk> = role.ask.alternatives.iter().filter_map(|way| way.devices.as_ref()).collect();
    let kept = calendar::kept_from(state, &snapshot.capacity, spec);
    let mut nodes = chosen(&snapshot.capacity, &role.ask.nodes);
    // Where it may use none, the funnel of all nodes still tells what there is.
    if nodes.is_empty() {
        nodes = snapshot.capacity.nodes.iter().collect();
    }
    if !snapshot.capacity.keeps_nodes {
        return by_any(&nodes, &ways, &kept);
    }
    let Funnel(all) = by_any(&nodes, &ways, &kept);
    let Funnel(mut steps) = by_any(&open(&nodes, spec), &ways, &kept);
    let Some((step, devices, nodes)) = steps.first_mut() else { return Funnel::default() };
    // The first step counts all nodes of the pool; from there the funnel goes on with those that its queue may use.
    let own = (Step::OfItsQueue, *devices, *nodes);
    (*devices, *nodes) = all.iter().find(|(other, ..)| other == step).map_or((0, 0), |it| (it.1, it.2));
    steps.insert(1, own);
    Funnel(steps)
}
