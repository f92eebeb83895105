//! Phase 3, place: finds nodes and devices for the minimum of a gang, all of it or nothing (L8).

use std::cmp::Reverse;

use super::Place;
use super::calendar;
use super::diagnose;
use super::filter;
use super::islands;
use super::near;
use super::reserve;
use super::score::{self, Asked, NodeTask, Pick, Rule};
use super::spread;
use super::topology;
use super::trial::{Scope, Trial};
use crate::id::JobId;
use crate::model::allocation::Placement;
use crate::model::ask::{Alternative, Ask, DeviceAsk, DrawAsk};
use crate::model::device::{Draw, WHOLE_MILLI};
use crate::model::gang::{Group, Role};
use crate::model::job::JobSpec;
use crate::model::score::Score;
use crate::reason::{Reason, Verdict};
use crate::snapshot::{DeviceView, NodeView, OrderKey, order};
use crate::state::Job;

/// What a task without devices gets when it does not say: one core and one GiB.
pub(crate) const UNSAID_CPU_MILLI: i64 = 1000;
/// See [`UNSAID_CPU_MILLI`].
pub(crate) const UNSAID_MEMORY_BYTES: i64 = 1 << 30;

/// Places as many members of a job as may and can start, up to `most`; the error is why the next one waits.
pub(super) fn place_members(
    trial: &mut Trial,
    (job, shape): (&Job, u64),
    most: usize,
    places: &mut Vec<Place>,
) -> Result<(), Reason> {
    let state = trial.state;
    if state.draining {
        return Err(Reason::PoolDraining);
    }
    // The members that this cycle has placed still wait as far as the state knows: they are the first to start.
    let placed = trial.members_placed(job.number);
    let most = most.min((job.members_left().unwrap_or(u32::MAX) as usize).saturating_sub(placed));
    for member in order::members(&state.policy, job).skip(placed).take(most) {
        place_member(trial, (job, member, shape), places)?;
    }
    Ok(())
}

/// Likewise only those that stand in one place of the order; returns where the next one that may start stands.
pub(super) fn place_equals(
    trial: &mut Trial,
    (job, shape): (&Job, u64),
    most: usize,
    places: &mut Vec<Place>,
) -> Result<Option<OrderKey>, Reason> {
    if trial.state.draining {
        return Err(Reason::PoolDraining);
    }
    let mut starts = starts(trial, job).peekable();
    let first = starts.peek().map(|(place, _)| *place);
    for _ in 0..most {
        let Some((_, member)) = starts.next_if(|(place, _)| Some(*place) == first) else { break };
        place_member(trial, (job, member, shape), places)?;
    }
    Ok(starts.next().map(|(place, _)| place))
}

fn place_member(
    trial: &mut Trial,
    (job, member, shape): (&Job, Option<u32>, u64),
    places: &mut Vec<Place>,
) -> Result<(), Reason> {
    let placements = place_of_shape(trial, (&job.spec, shape))?;
    let id = JobId { number: job.number, member };
    trial.note_member(id);
    places.push(Place::new(id, placements));
    Ok(())
}

/// The runs of a job that wait, may start and were not placed in this cycle, each with its place in the order.
fn starts<'j>(trial: &Trial, job: &'j Job) -> impl Iterator<Item = (OrderKey, Option<u32>)> + use<'j> {
    let placed = trial.members_placed(job.number);
    let left = job.members_left().map_or(usize::MAX, |left| (left as usize).saturating_sub(placed));
    order::starts(&trial.state.policy, job).skip(placed).take(left)
}

/// Where the next of these runs stands.
pub(super) fn next_start(trial: &Trial, job: &Job) -> Option<OrderKey> {
    starts(trial, job).next().map(|(place, _)| place)
}

/// Whether a look at the shelves suffices to say that there are still too few free devices: the common case
/// in a busy pool in which nothing is broken.
pub(super) fn is_still_busy(trial: &Trial, reason: &Reason, spec: &JobSpec) -> bool {
    let (Reason::DevicesBusy(count), false) = (reason, trial.state.policy.shares) else { return false };
    let shelves = trial.capacity().shelves();
    let is_busy = |alternative: &Alternative| {
        let asks = alternative.devices.as_ref();
        asks.is_some_and(|ask| shelves.of(Some(ask)).all_lack(ask.count))
    };
    let asks_so = |ask: &Ask| {
        let mut counts = ask.alternatives.iter().filter_map(|it| Some(it.devices.as_ref()?.count));
        counts.any(|asked| asked == *count) && ask.alternatives.iter().all(is_busy)
    };
    match &*spec.gang {
        Group::Role(role) => asks_so(&role.ask),
        // Where only some of the groups are needed, others may fit.
        group if group.is_elastic() => false,
        group => group.roles().iter().any(|role| asks_so(&role.ask)),
    }
}

/// The next run of a job that waits, may start and was not placed in this cycle.
pub(super) fn next_member(trial: &Trial, job: &Job) -> Option<JobId> {
    let placed = trial.members_placed(job.number);
    if job.members_left().is_some_and(|left| left as usize <= placed) {
        return None;
    }
    let member = order::members(&trial.state.policy, job).nth(placed)?;
    Some(JobId { number: job.number, member })
}

/// Places one gang where it pushes back no job before it, or leaves the trial as it was. There is no try if
/// one of its shape has just been found not to fit.
pub(super) fn place_of_shape(
    trial: &mut Trial,
    (spec, shape): (&JobSpec, u64),
) -> Result<Vec<Placement>, Reason> {
    if let Some(known) = trial.refusal((spec, shape)) {
        return Err(trial.beyond(spec).unwrap_or_else(|| known.clone()));
    }
    let placed = place_spec(trial, spec);
    if let Err(reason) = &placed {
        trial.note_refusal((spec, shape), reason);
    }
    placed
}

/// Places one gang where it pushes back no job before it, or leaves the trial as it was.
pub(super) fn place_spec(trial: &mut Trial, spec: &JobSpec) -> Result<Vec<Placement>, Reason> {
    let mark = trial.mark();
    let mut placements = place_now(trial, spec)?;
    if trial.reserve.has_owners() || !trial.state.reservations.is_empty() {
        trial.roll_back_to(mark);
        if let Some(keeps) = put_aside(trial, spec) {
            let beside = place_now(trial, spec);
            trial.roll_back_to(mark);
            placements = beside.or_else(|_| instead(trial, spec).ok_or(keeps))?;
        }
        take_again(trial, spec, &mut placements);
    }
    let stop = calendar::stop_of(trial.state, spec, &placements);
    trial.reserve.started(spec, &placements, stop);
    Ok(placements)
}

/// Takes placements that a roll-back gave back, and leaves them in the order of their ranks.
pub(super) fn take_again(trial: &mut Trial, spec: &JobSpec, placements: &mut [Placement]) {
    placements.sort_unstable_by_key(|placement| placement.allocation);
    placements.iter().for_each(|placement| trial.take(placement.clone(), spec));
    placements.sort_by_key(|placement| placement.rank);
    let stop = calendar::stop_of(trial.state, spec, placements);
    trial.reserve.started(spec, placements, stop);
}

/// Why a job could not start even in an idle pool, if it could not: a job that also waits for others is told this.
pub(super) fn refused_for_good(trial: &mut Trial, spec: &JobSpec) -> Option<Reason> {
    let mark = trial.mark();
    let placed = place_now(trial, spec);
    trial.roll_back_to(mark);
    placed.err().filter(Reason::is_for_good)
}

/// Where a job for which no other goes fits if the jobs for which room is kept have it elsewhere.
fn instead(trial: &mut Trial, spec: &JobSpec) -> Option<Vec<Placement>> {
    if !trial.reserve.may_make_way() {
        return None;
    }
    let mark = trial.mark();
    calendar::put_aside(trial, spec);
    let placed = place_now(trial, spec);
    trial.roll_back_to(mark);
    placed.ok().filter(|placements| reserve::makes_way(trial, spec, placements))
}

/// Puts aside what is kept from a job, for those before it and by the calendar; returns why, if anything is.
fn put_aside(trial: &mut Trial, spec: &JobSpec) -> Option<Reason> {
    // The calendar may keep things from this job that it does not keep from those before it.
    reserve::reserve(trial);
    let booked = calendar::put_aside(trial, spec).map(Reason::Booked);
    let owned = if trial.reserve.has_owners() { reserve::put_aside(trial, spec) } else { None };
    owned.map(Reason::Reserved).or(booked)
}

/// Places one gang, whichever jobs wait, or leaves the trial as it was.
pub(super) fn place_now(trial: &mut Trial, spec: &JobSpec) -> Result<Vec<Placement>, Reason> {
    if let Some(over) = trial.beyond(spec) {
        return Err(over);
    }
    let mark = trial.mark();
    if let Err(reason) = spread::place_gang(trial, spec) {
        trial.roll_back_to(mark);
        return Err(reason);
    }
    if let Some(over) = trial.exceeded_since(mark, spec.stand()) {
        trial.roll_back_to(mark);
        return Err(over);
    }
    let mut placements = trial.since(mark);
    placements.sort_by_key(|placement| placement.rank);
    Ok(placements)
}

/// Places all tasks of a role, on nodes that it chooses.
pub(super) fn place_role(
    trial: &mut Trial,
    spec: &JobSpec,
    role: &Role,
    rank: &mut u32,
) -> Result<(), Reason> {
    let Some(chosen) = trial.chosen(spec, &role.ask.nodes) else {
        return place_by_first(trial, spec, role, rank);
    };
    if chosen.is_empty() {
        return Err(none_chosen(trial, spec, role));
    }
    let wider = trial.keep_to(Some(chosen));
    let placed = place_by_first(trial, spec, role, rank);
    trial.keep_to(wider);
    placed
}

/// Why none of the nodes that may be used will do for a role, whatever they have.
fn none_chosen(trial: &Trial, spec: &JobSpec, role: &Role) -> Reason {
    let nodes = &trial.capacity().nodes;
    let (chosen, own) = (&role.ask.nodes, spec.kept_to.said());
    match (own, nodes.iter().any(|node| node.is_open_to(spec))) {
        _ if nodes.iter().any(|node| node.takes(spec, chosen)) => Reason::GangIncomplete(spec.gang.tasks()),
        (Some(queue), false) => Reason::NodesAbsent(queue.to_string()),
        _ => {
            let others: Vec<&NodeView> = nodes.iter().filter(|node| chosen.takes(&node.face)).collect();
            diagnose::elsewhere(&others, spec, |_| true).unwrap_or(Reason::NoNodeChosen(nodes.len() as u32))
        }
    }
}

/// Places all tasks of a role by its first alternative that fits. The error is why the first that the pool could hold does not fit.
fn place_by_first(trial: &mut Trial, spec: &JobSpec, role: &Role, rank: &mut u32) -> Result<(), Reason> {
    let mark = trial.mark();
    let mut first_reason: Option<Reason> = None;
    let alternatives = &role.ask.alternatives;
    let homes = near::homes(trial, spec, (role, *rank)).unwrap_or_default();
    for (index, alternative) in alternatives.iter().enumerate() {
        if trial.not_lent.closes((*rank, index), alternatives.len(), trial.gang_tasks()) {
            continue;
        }
        let placed = place_at_home(trial, spec, (role, index), (*rank, &homes));
        // Another alternative may not need what the queue may not have.
        let over = match placed {
            Ok(()) if alternatives.len() > 1 => trial.exceeded_since(mark, spec.stand()),
            _ => None,
        };
        if placed.is_ok() && over.is_none() {
            *rank += role.maximum;
            return Ok(());
        }
        trial.roll_back_to(mark);
        let may_fit = |reason: &Reason| reason.verdict() != Verdict::NoFit;
        if first_reason.as_ref().is_some_and(may_fit) {
            continue;
        }
        let reason = over.or_else(|| Some(why_not(trial, spec, (role, alternative, *rank), placed.err()?)));
        first_reason = match first_reason {
            Some(first) if !reason.as_ref().is_some_and(may_fit) => Some(first),
            _ => reason,
        };
    }
    Err(first_reason.unwrap_or(Reason::NotPlanned))
}

/// Places all tasks of a role by one of its alternatives: in one of the domains of which they have to choose one, if there are any.
fn place_at_home(
    trial: &mut Trial,
    spec: &JobSpec,
    (role, index): (&Role, usize),
    (rank, homes): (u32, &[Scope]),
) -> Result<(), Reason> {
    let mark = trial.mark();
    for home in homes {
        let (wider, told) = (trial.keep_to(Some(Scope::clone(home))), trial.name_reasons(false));
        let placed = topology::place_tasks(trial, spec, (role, index), rank);
        trial.keep_to(wider);
        trial.name_reasons(told);
        if placed.is_ok() {
            return placed;
        }
        trial.roll_back_to(mark);
    }
    topology::place_tasks(trial, spec, (role, index), rank)
}

/// Why a role has no place by an alternative, where it is known that it has none.
fn why_not(
    trial: &mut Trial,
    spec: &JobSpec,
    (role, alternative, rank): (&Role, &Alternative, u32),
    why: Reason,
) -> Reason {
    let by_these = (alternative, role.minimum);
    if let Some(closes) = trial.what_closes(spec, by_these, true) {
        return closes;
    }
    if why.verdict() == Verdict::NoFit || matches!(why, Reason::NoDomain(..)) || why.is_of_neighbours() {
        return why;
    }
    match trial.diagnose(spec, (&role.ask, alternative), role.minimum) {
        // There is room, but not where other tasks leave it any.
        Some(fits @ Reason::GangIncomplete(_)) => {
            let closes = || trial.what_closes(spec, by_these, false);
            near::why(trial, spec, rank).or_else(closes).unwrap_or(fits)
        }
        diagnosed => diagnosed.unwrap_or(why),
    }
}

/// Places one task out of `remaining`, by one alternative, where other tasks leave it room.
pub(super) fn place_task(
    trial: &mut Trial,
    spec: &JobSpec,
    alternative: (u32, &Alternative),
    (rank, remaining): (u32, u32),
) -> Result<(), Reason> {
    let Some(left) = near::left(trial, spec, rank)? else {
        return spread::place_task(trial, spec, alternative, (rank, remaining));
    };
    let wider = trial.keep_to(Some(left));
    let placed = spread::place_task(trial, spec, alternative, (rank, remaining));
    trial.keep_to(wider);
    placed
}

/// Places one task out of `remaining` on the best of the nodes that tasks are kept to.
pub(super) fn place_one(
    trial: &mut Trial,
    spec: &JobSpec,
    (index, alternative): (u32, &Alternative),
    (rank, remaining): (u32, u32),
) -> Result<(), Reason> {
    let strict = islands::strict(alternative);
    let best_within = strict.and_then(|strict| best_node(trial, spec, &strict, (rank, remaining)));
    let best = best_within.or_else(|| best_node(trial, spec, alternative, (rank, remaining)));
    let Some((place, draw)) = best else {
        return Err(Reason::DevicesBusy(alternative.devices.as_ref().map_or(0, |devices| devices.count)));
    };
    let placement = Placement {
        allocation: trial.next_id(),
        rank,
        node: trial.capacity().nodes[place].id,
        devices: draw.devices,
        cpu_milli: draw.cpu_milli,
        memory_bytes: draw.memory_bytes,
        extras: alternative.extras.clone(),
        alternative: index,
    };
    trial.take(placement, spec);
    Ok(())
}

/// The best node for one task out of `remaining`, and what it draws there.
fn best_node(
    trial: &mut Trial,
    spec: &JobSpec,
    alternative: &Alternative,
    (rank, remaining): (u32, u32),
) -> Option<(usize, NodeDraw)> {
    let more = trial.more_of((alternative, 1), spec.exclusive);
    let mut closed = trial.closed_models(spec.stand(), &more);
    closed.extend(trial.models_not_lent(&more));
    let asked = Asked { spec, alternative, closed: &closed };
    match &trial.state.policy.score {
        // Tasks of a gang belong together, whatever each of them would leave.
        Score::LeastWaste if rank > 0 || remaining > 1 => keeping_whole(trial, &asked, remaining),
        Score::KeepWhole => keeping_whole(trial, &asked, remaining),
        score => by_score(trial, score, &asked),
    }
}

/// The best node by the default score, and what is drawn of it. Scores are cheap and draws are not: only nodes that score better
/// than the best so far are asked what they would give. Whole devices are looked for on one shelf after the other, in the order of
/// the score, so that nodes which have too few free ones are never looked at.
fn keeping_whole(trial: &Trial, asked: &Asked, remaining: u32) -> Option<(usize, NodeDraw)> {
    let ask = asked.alternative.devices.as_ref();
    let capacity = trial.capacity();
    let gang_nodes = trial.gang_nodes();
    let best_of = |places: &mut dyn Iterator<Item = usize>| {
        let mut best: Option<(score::NodeScore, NodeDraw)> = None;
        for place in places {
            let node = &capacity.nodes[place];
            let task = NodeTask { ask, remaining, has_gang: gang_nodes.contains(&node.id) };
            let scored = score::node((place, node), task);
            if best.as_ref().is_none_or(|(best, _)| scored < *best)
                && let Some(draw) = draw_of(node, asked, Pick::Near)
            {
                best = Some((scored, draw));
            }
        }
        best.map(|((.., place), draw)| (place, draw))
    };
    let count = ask.filter(|ask| ask.draw == DrawAsk::Whole).map_or(0, |ask| ask.count);
    let may_do = |place: &usize| capacity.nodes[*place].takes_tasks && capacity.nodes[*place].free >= count;
    if let Some(scope) = trial.scope() {
        return best_of(&mut scope.iter().copied().filter(may_do));
    }
    let shelves = capacity.shelves().of(ask);
    let most = shelves.most_free()?;
    if ask.is_some_and(|ask| ask.draw != DrawAsk::Whole) {
        return best_of(&mut (0..=most).flat_map(|free| shelves.with_free(free)));
    }
    let with_gang = gang_nodes.iter().filter_map(|node| capacity.node_place(*node));
    let holds_all = count.saturating_mul(remaining);
    let by_shelf = (holds_all..=most).chain((count..holds_all.min(most + 1)).rev());
    best_of(&mut with_gang.filter(may_do))
        .or_else(|| by_shelf.into_iter().find_map(|free| best_of(&mut shelves.with_free(free))))
}

/// The best node by a score that looks at one task alone, and what is drawn of it.
fn by_score(trial: &mut Trial, score: &Score, asked: &Asked) -> Option<(usize, NodeDraw)> {
    let turn = trial.next_id().0;
    let rule = Rule { score, outlook: trial.state.mix.outlook(), asked };
    let (capacity, scores, scope) = trial.scoring();
    let mut skip = Vec::new();
    loop {
        let (place, pick) = scores.best(capacity, rule, turn, (&skip, scope))?;
        if let Some(draw) = draw_of(&capacity.nodes[place], asked, pick) {
            return Some((place, draw));
        }
        skip.push(place);
    }
}

/// What a task would draw of a node.
pub(super) struct NodeDraw {
    devices: Vec<(crate::id::DeviceId, Draw)>,
    cpu_milli: i64,
    memory_bytes: i64,
}

/// What a task would draw of this node, if it fits there now without devices of the closed models. Cores that were not asked for
/// are no claim: a GPU is not left idle for want of a core. Memory is one, since it does not yield. An exclusive task wants an
/// idle node, and draws all of it: the devices that can be given out, all cores and all memory. So its queue is charged for all that
/// others cannot have.
pub(super) fn draw_of(node: &NodeView, asked: &Asked, pick: Pick) -> Option<NodeDraw> {
    let Asked { spec, alternative, closed } = *asked;
    // What is stated is compared first: it costs nothing.
    let (asked_cpu, asked_memory) = (alternative.cpu_milli, alternative.memory_bytes);
    // Others may hold more than there is: a task that wants none of it is not concerned.
    let (free_cpu_milli, free_memory_bytes) = (node.cpu_milli.1.max(0), node.memory_bytes.1.max(0));
    if asked_cpu > Some(free_cpu_milli) || asked_memory > Some(free_memory_bytes) {
        return None;
    }
    if alternative.extras.beyond(&node.extras.1).is_some() {
        return None;
    }
    let ask = alternative.devices.as_ref();
    let chosen = ask.map_or(Some(Vec::new()), |ask| choose(node, ask, closed, pick))?;
    let alone = chosen.is_empty();
    let cpu_milli = asked_cpu.unwrap_or(if alone { UNSAID_CPU_MILLI.min(node.cpu_milli.0) } else { 0 });
    let memory_bytes = asked_memory.unwrap_or_else(|| match alone {
        true => UNSAID_MEMORY_BYTES.min(node.memory_bytes.0),
        false => chosen.iter().map(|device| share_of(device.host_share.1, ask)).sum(),
    });
    let fits = cpu_milli <= free_cpu_milli && memory_bytes <= free_memory_bytes && node.most_tasks.1 > 0;
    if !fits {
        return None;
    }
    if spec.exclusive {
        return all_of(node, &chosen, closed);
    }
    let draw = |device: &&DeviceView| Some((device.id, filter::draw(device, ask?)));
    Some(NodeDraw { devices: chosen.iter().filter_map(draw).collect(), cpu_milli, memory_bytes })
}

/// All of a node, if it is idle and has no usable devices of the closed models. Those that were chosen come first: a program that uses
/// no more than it asked for uses these.
fn all_of(node: &NodeView, chosen: &[&DeviceView], closed: &[String]) -> Option<NodeDraw> {
    let usable = || node.devices.iter().filter(|device| device.is_free());
    if !node.is_idle() || usable().any(|device| closed.contains(&device.spec.model)) {
        return None;
    }
    let whole = |device: &DeviceView| {
        let memory_mib = device.spec.memory_mib;
        (device.id, Draw { milli: WHOLE_MILLI, memory_mib, partition: None })
    };
    let others = usable().filter(|device| !chosen.iter().any(|first| first.id == device.id));
    let devices = chosen.iter().copied().chain(others).map(whole).collect();
    Some(NodeDraw { devices, cpu_milli: node.cpu_milli.0, memory_bytes: node.memory_bytes.0 })
}

/// The part of a device's host memory that goes with what is asked of the device.
fn share_of(whole_bytes: i64, ask: Option<&DeviceAsk>) -> i64 {
    let milli = ask.map_or(WHOLE_MILLI, DeviceAsk::milli);
    if milli == WHOLE_MILLI { whole_bytes } else { whole_bytes / i64::from(WHOLE_MILLI) * i64::from(milli) }
}

/// Whether a device is of the right class and of no closed model.
pub(super) fn is_right(device: &DeviceView, ask: &DeviceAsk, closed: &[String]) -> bool {
    ask.class.takes(&device.spec) && !closed.contains(&device.spec.model)
}

/// Whether a task can have what it asks of a device, and no limit is against it.
pub(super) fn open(device: &DeviceView, ask: &DeviceAsk, closed: &[String]) -> bool {
    filter::fits(device, ask) && !closed.contains(&device.spec.model)
}

fn choose<'a>(
    node: &'a NodeView,
    ask: &DeviceAsk,
    closed: &[String],
    pick: Pick,
) -> Option<Vec<&'a DeviceView>> {
    let count = ask.count as usize;
    if let Pick::This(index) = pick {
        return node
            .devices
            .get(index)
            .filter(|device| count == 1 && open(device, ask, closed))
            .map(|one| vec![one]);
    }
    if ask.draw == DrawAsk::Whole && (node.free as usize) < count {
        return None;
    }
    let fitting: Vec<_> = node.devices.iter().filter(|device| open(device, ask, closed)).collect();
    if fitting.len() < count {
        return None;
    }
    let Some(level) = ask.required_island() else { return Some(choose_of(node, fitting, ask, pick)) };
    let islands = islands::of(level, fitting).into_iter().filter(|island| island.len() >= count);
    let sets = islands.map(|island| (island.len(), choose_of(node, island, ask, pick)));
    let best = sets.min_by_key(|(size, set)| (*size, Reverse(score::lanes_among(node, set))));
    best.map(|(_, set)| set)
}

/// Chooses among devices that fit and are enough.
fn choose_of<'a>(
    node: &NodeView,
    mut fitting: Vec<&'a DeviceView>,
    ask: &DeviceAsk,
    pick: Pick,
) -> Vec<&'a DeviceView> {
    let count = ask.count as usize;
    match ask.draw {
        DrawAsk::Whole if pick == Pick::Near => score::devices(node, &fitting, count),
        _ => {
            // Devices stand by their index; a stable sort keeps that among those with as much left.
            fitting.sort_by_key(|device| device.free_milli);
            fitting.truncate(count);
            fitting
        }
    }
}
