//! Phase 3, place: finds nodes and devices for the minimum of a gang, all of it or nothing (L8).

use super::Place;
use super::diagnose;
use super::filter;
use super::score;
use super::trial::Trial;
use crate::id::JobId;
use crate::model::allocation::Placement;
use crate::model::ask::{Alternative, DeviceAsk, DrawAsk};
use crate::model::device::{Draw, WHOLE_MILLI};
use crate::model::gang::Role;
use crate::model::job::JobSpec;
use crate::reason::{Reason, Verdict};
use crate::snapshot::{DeviceView, NodeView};

/// What a task without devices gets when it does not say: one core and one GiB.
pub(super) const UNSAID_CPU_MILLI: i64 = 1000;
/// See [`UNSAID_CPU_MILLI`].
pub(super) const UNSAID_MEMORY_BYTES: i64 = 1 << 30;

/// Ports for the rendezvous of gangs: a range that Linux hands out to nobody by itself.
const FIRST_PORT: u16 = 20_000;
/// See [`FIRST_PORT`]; allocation ids follow each other, so gangs that run together get different ports.
const PORTS: u64 = 8_000;

/// Places as many members of a job as may and can start; an error is why the next one waits.
pub(super) fn place_members(trial: &mut Trial, number: u64, places: &mut Vec<Place>) -> Result<(), Reason> {
    let state = trial.state;
    let Some(job) = state.jobs.get(&number) else { return Ok(()) };
    if state.draining {
        return Err(Reason::PoolDraining);
    }
    let most = job.members_left().unwrap_or(u32::MAX) as usize;
    for member in job.waiting_members().take(most) {
        let placements = place_spec(trial, &job.spec)?;
        let port = placements.first().map_or(0, |first| FIRST_PORT + (first.allocation.0 % PORTS) as u16);
        places.push(Place { job: JobId { number, member }, placements, port });
    }
    Ok(())
}

/// Places one gang, or leaves the trial as it was.
pub(super) fn place_spec(trial: &mut Trial, spec: &JobSpec) -> Result<Vec<Placement>, Reason> {
    if let Some(over) = trial.exceeded(&spec.queue, spec.milli_asked()) {
        return Err(over);
    }
    let mark = trial.mark();
    let mut rank = 0;
    for role in spec.gang.roles() {
        if let Err(reason) = place_role(trial, spec, role, &mut rank) {
            trial.roll_back_to(mark);
            return Err(reason);
        }
    }
    if let Some(over) = trial.exceeded_since(mark, &spec.queue) {
        trial.roll_back_to(mark);
        return Err(over);
    }
    Ok(trial.since(mark))
}

/// Places all tasks of a role by its first alternative that fits.
pub(super) fn place_role(
    trial: &mut Trial,
    spec: &JobSpec,
    role: &Role,
    rank: &mut u32,
) -> Result<(), Reason> {
    let mark = trial.mark();
    let mut first_reason = None;
    for (index, alternative) in role.ask.alternatives.iter().enumerate() {
        let tasks = role.minimum;
        let failed = (0..tasks).find_map(|task| {
            place_task(trial, spec, (index as u32, alternative), (*rank + task, tasks - task)).err()
        });
        let Some(reason) = failed else {
            *rank += tasks;
            return Ok(());
        };
        trial.roll_back_to(mark);
        let reason = match trial.model_limit(&spec.queue, alternative, tasks) {
            Some(limit) => limit,
            None if reason.verdict() == Verdict::NoFit => reason,
            None => diagnose::diagnose(trial.capacity(), spec, alternative, tasks),
        };
        first_reason.get_or_insert(reason);
    }
    Err(first_reason.unwrap_or(Reason::NotPlanned))
}

/// Places one task of so many that remain, by one alternative.
pub(super) fn place_task(
    trial: &mut Trial,
    spec: &JobSpec,
    (index, alternative): (u32, &Alternative),
    (rank, remaining): (u32, u32),
) -> Result<(), Reason> {
    let count = alternative.devices.as_ref().map_or(0, |devices| devices.count);
    let closed = trial.closed_models(&spec.queue, i64::from(count) * i64::from(WHOLE_MILLI));
    let gang_nodes = trial.last_nodes(rank as usize);
    let capacity = trial.capacity();
    let fits = |(place, node): (usize, &NodeView)| {
        let draw = draw_of(node, spec, alternative, &closed)?;
        Some((score::node((place, node), count, remaining, gang_nodes.contains(&node.id)), place, draw))
    };
    let usable = capacity.nodes.iter().enumerate().filter(|(_, node)| node.takes_tasks && node.free >= count);
    let Some((_, place, draw)) = usable.filter_map(fits).min_by_key(|(score, ..)| *score) else {
        return Err(Reason::DevicesBusy(count));
    };
    let placement = Placement {
        allocation: trial.next_id(),
        rank,
        node: capacity.nodes[place].id,
        devices: draw.devices,
        cpu_milli: draw.cpu_milli,
        memory_bytes: draw.memory_bytes,
        alternative: index,
    };
    trial.take(placement, &spec.queue);
    Ok(())
}

/// What a task would draw of a node.
pub(super) struct NodeDraw {
    devices: Vec<(crate::id::DeviceId, Draw)>,
    cpu_milli: i64,
    memory_bytes: i64,
}

/// What a task would draw of this node, if it fits there now without devices of the closed models. Cores that were not asked for
/// are no claim: a GPU is not left idle for want of a core. Memory is one, since it does not yield. An exclusive task wants an
/// idle node, and draws all cores and memory of it, so that nothing else fits.
pub(super) fn draw_of(
    node: &NodeView,
    spec: &JobSpec,
    alternative: &Alternative,
    closed: &[String],
) -> Option<NodeDraw> {
    let chosen = match &alternative.devices {
        None => Vec::new(),
        Some(ask) => choose(node, ask, closed)?,
    };
    let alone = chosen.is_empty();
    let mut cpu_milli =
        alternative.cpu_milli.unwrap_or(if alone { UNSAID_CPU_MILLI.min(node.cpu_milli.0) } else { 0 });
    let mut memory_bytes = alternative.memory_bytes.unwrap_or_else(|| match alone {
        true => UNSAID_MEMORY_BYTES.min(node.memory_bytes.0),
        false => chosen.iter().map(|device| device.host_share.1).sum(),
    });
    let fits = cpu_milli <= node.cpu_milli.1 && memory_bytes <= node.memory_bytes.1;
    if !fits || spec.exclusive && !node.is_idle() {
        return None;
    }
    if spec.exclusive {
        (cpu_milli, memory_bytes) = (node.cpu_milli.0, node.memory_bytes.0);
    }
    let whole = |device: &&DeviceView| {
        (device.id, Draw { milli: WHOLE_MILLI, memory_mib: device.spec.memory_mib, partition: None })
    };
    Some(NodeDraw { devices: chosen.iter().map(whole).collect(), cpu_milli, memory_bytes })
}

fn choose<'a>(node: &'a NodeView, ask: &DeviceAsk, closed: &[String]) -> Option<Vec<&'a DeviceView>> {
    if ask.draw != DrawAsk::Whole {
        return None;
    }
    let open =
        |device: &&DeviceView| filter::takes(device, &ask.class) && !closed.contains(&device.spec.model);
    let fitting: Vec<_> = node.devices.iter().filter(open).collect();
    let count = ask.count as usize;
    (fitting.len() >= count).then(|| score::devices(&fitting, count))
}
