//! Phase 3, place: finds nodes and devices for the minimum of a gang, all of it or nothing (L8).

use super::Place;
use super::filter::{self, Funnel};
use super::score;
use super::trial::Trial;
use crate::amount::Resource;
use crate::id::JobId;
use crate::model::allocation::Placement;
use crate::model::ask::{Alternative, DeviceAsk, DrawAsk};
use crate::model::device::{Draw, WHOLE_MILLI};
use crate::model::gang::Role;
use crate::model::job::JobSpec;
use crate::reason::{Reason, Verdict};
use crate::snapshot::{Capacity, NodeView, Snapshot};
use crate::state::State;

/// What a task without devices gets when it does not say: one core and one GiB.
const UNSAID_CPU_MILLI: i64 = 1000;
/// See [`UNSAID_CPU_MILLI`].
const UNSAID_MEMORY_BYTES: i64 = 1 << 30;

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
    if let Some(over) = trial.exceeded(&spec.queue, 0) {
        trial.roll_back_to(mark);
        return Err(with_asked(over, spec));
    }
    Ok(trial.since(mark))
}

/// A limit that is exceeded only now says what the job asks for.
fn with_asked(over: Reason, spec: &JobSpec) -> Reason {
    match over {
        Reason::QueueLimit(queue, resource, limit, _) => {
            Reason::QueueLimit(queue, resource, limit, spec.milli_asked())
        }
        other => other,
    }
}

/// Places all tasks of a role by its first alternative that fits.
fn place_role(trial: &mut Trial, spec: &JobSpec, role: &Role, rank: &mut u32) -> Result<(), Reason> {
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
            None => diagnose(trial.capacity(), alternative, spec.gang.tasks(), tasks),
        };
        first_reason.get_or_insert(reason);
    }
    Err(first_reason.unwrap_or(Reason::NotPlanned))
}

fn place_task(
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
        let draw = draw_of(node, alternative, &closed)?;
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
struct NodeDraw {
    devices: Vec<(crate::id::DeviceId, Draw)>,
    cpu_milli: i64,
    memory_bytes: i64,
}

/// What a task would draw of this node, if it fits there now without devices of the closed models. Cores that were not asked for
/// are no claim: a GPU is not left idle for want of a core. Memory is one, since it does not yield.
fn draw_of(node: &NodeView, alternative: &Alternative, closed: &[String]) -> Option<NodeDraw> {
    let chosen = match &alternative.devices {
        None => Vec::new(),
        Some(ask) => choose(node, ask, closed)?,
    };
    let alone = chosen.is_empty();
    let cpu_milli =
        alternative.cpu_milli.unwrap_or(if alone { UNSAID_CPU_MILLI.min(node.cpu_milli.0) } else { 0 });
    let memory_bytes = alternative.memory_bytes.unwrap_or_else(|| match alone {
        true => UNSAID_MEMORY_BYTES.min(node.memory_bytes.0),
        false => chosen.iter().map(|device| device.host_share.1).sum(),
    });
    let whole = |device: &&crate::snapshot::DeviceView| {
        (device.id, Draw { milli: WHOLE_MILLI, memory_mib: device.spec.memory_mib, partition: None })
    };
    let fits = cpu_milli <= node.cpu_milli.1 && memory_bytes <= node.memory_bytes.1;
    fits.then(|| NodeDraw { devices: chosen.iter().map(whole).collect(), cpu_milli, memory_bytes })
}

fn choose<'a>(
    node: &'a NodeView,
    ask: &DeviceAsk,
    closed: &[String],
) -> Option<Vec<&'a crate::snapshot::DeviceView>> {
    if ask.draw != DrawAsk::Whole {
        return None;
    }
    let open = |device: &&crate::snapshot::DeviceView| {
        filter::takes(device, &ask.class) && !closed.contains(&device.spec.model)
    };
    let fitting: Vec<_> = node.devices.iter().filter(open).collect();
    let count = ask.count as usize;
    (fitting.len() >= count).then(|| score::devices(&fitting, count))
}

/// Why tasks of this alternative do not fit: first what the pool can never give, then what it cannot give now.
fn diagnose(capacity: &Capacity, alternative: &Alternative, gang: u32, tasks: u32) -> Reason {
    let never = never(capacity, alternative);
    never.or_else(|| not_now(capacity, alternative)).unwrap_or(match holds(capacity, alternative, tasks) {
        Some(most) if most < tasks => Reason::TooManyTasks(tasks, most),
        _ => Reason::GangIncomplete(gang),
    })
}

/// How many tasks of an alternative the pool would hold if all of it were idle; counts no further than asked.
fn holds(capacity: &Capacity, alternative: &Alternative, tasks: u32) -> Option<u32> {
    let ask = alternative.devices.as_ref();
    let on = |node: &NodeView| {
        let by_devices = ask.map_or(u32::MAX, |ask| would_do(node, ask) / ask.count.max(1));
        let by = |total: i64, each: Option<i64>| {
            each.filter(|each| *each > 0)
                .map_or(u32::MAX, |each| u32::try_from(total / each).unwrap_or(u32::MAX))
        };
        let unsaid = |asked: Option<i64>, default: i64| asked.or(ask.is_none().then_some(default));
        let by_cpu =
            by(node.cpu_milli.0, unsaid(alternative.cpu_milli, UNSAID_CPU_MILLI.min(node.cpu_milli.0)));
        let by_memory = by(
            node.memory_bytes.0,
            unsaid(alternative.memory_bytes, UNSAID_MEMORY_BYTES.min(node.memory_bytes.0)),
        );
        by_devices.min(by_cpu).min(by_memory)
    };
    Some(capacity.nodes.iter().fold(0u32, |sum, node| sum.saturating_add(on(node))).min(tasks))
}

fn would_do(node: &NodeView, ask: &DeviceAsk) -> u32 {
    let good = |device: &&crate::snapshot::DeviceView| {
        ask.class.takes_model(&device.spec) && ask.class.takes_memory(&device.spec)
    };
    node.devices.iter().filter(good).count() as u32
}

/// What no node of the pool could ever give one task of this alternative.
fn never(capacity: &Capacity, alternative: &Alternative) -> Option<Reason> {
    if capacity.nodes.is_empty() {
        return Some(Reason::NoNode);
    }
    if let Some(ask) = &alternative.devices {
        let tally = filter::tally(capacity, &ask.class);
        if tally.right_model == 0 {
            return Some(Reason::NoSuchModel(ask.class.clone()));
        }
        if tally.enough_memory == 0 {
            return Some(Reason::NoSuchMemory(ask.class.clone()));
        }
        if tally.most_on_a_node < ask.count {
            return Some(Reason::TooManyDevices(ask.count, tally.most_on_a_node));
        }
    }
    let able =
        |node: &&NodeView| alternative.devices.as_ref().is_none_or(|ask| would_do(node, ask) >= ask.count);
    let most = |part: fn(&NodeView) -> i64| capacity.nodes.iter().filter(able).map(part).max().unwrap_or(0);
    let host = [
        (Resource::Cpu, alternative.cpu_milli, most(|node| node.cpu_milli.0)),
        (Resource::Memory, alternative.memory_bytes, most(|node| node.memory_bytes.0)),
    ];
    host.into_iter().find_map(|(resource, asked, most)| {
        asked.filter(|asked| *asked > most).map(|asked| Reason::TooMuchHost(resource, asked, most))
    })
}

/// What no node can give one task of this alternative at the moment.
fn not_now(capacity: &Capacity, alternative: &Alternative) -> Option<Reason> {
    let draining = capacity.nodes.iter().filter(|node| !node.takes_tasks).count() as u32;
    if draining as usize == capacity.nodes.len() {
        return Some(Reason::NodesDraining(draining));
    }
    if let Some(ask) = &alternative.devices {
        let tally = filter::tally(capacity, &ask.class);
        if tally.most_usable < ask.count {
            return Some(if tally.down >= tally.foreign {
                Reason::DevicesDown(tally.down)
            } else {
                Reason::DevicesForeign(tally.foreign)
            });
        }
        if tally.most_free < ask.count {
            return Some(Reason::DevicesBusy(ask.count));
        }
    }
    let fits = |alternative: &Alternative| {
        capacity.nodes.iter().any(|node| node.takes_tasks && draw_of(node, alternative, &[]).is_some())
    };
    if fits(alternative) {
        return None;
    }
    let cpu = alternative.cpu_milli.unwrap_or(UNSAID_CPU_MILLI);
    let without_cpu = Alternative { cpu_milli: Some(0), ..alternative.clone() };
    if fits(&without_cpu) {
        return Some(Reason::HostBusy(Resource::Cpu, cpu));
    }
    Some(Reason::HostBusy(
        Resource::Memory,
        alternative.memory_bytes.unwrap_or_else(|| usual_memory(capacity, alternative)),
    ))
}

/// The memory that a task gets when it does not say.
fn usual_memory(capacity: &Capacity, alternative: &Alternative) -> i64 {
    let Some(ask) = &alternative.devices else { return UNSAID_MEMORY_BYTES };
    let shares = capacity.nodes.iter().flat_map(|node| &node.devices).map(|device| device.host_share.1);
    shares.max().unwrap_or(0) * i64::from(ask.count)
}

/// Whether a job fits the emptied pool, or why it never will.
pub(super) fn fits_empty(empty: &Snapshot, spec: &JobSpec) -> Result<(), Reason> {
    let state = State::default();
    let mut scratch = empty.clone();
    let mut trial = Trial::new(&state, &mut scratch);
    for (role, mut rank) in spec.gang.roles().into_iter().zip([0; 1].into_iter().cycle()) {
        place_role(&mut trial, spec, role, &mut rank).map_err(|reason| match reason {
            Reason::GangIncomplete(_) | Reason::DevicesBusy(_) | Reason::HostBusy(..) => {
                let most = trial.capacity().nodes.len() as u32;
                Reason::TooManyTasks(
                    spec.gang.tasks(),
                    fitting_tasks(empty, spec).max(u32::from(most > 0 && spec.gang.tasks() > 1)),
                )
            }
            other => other,
        })?;
    }
    Ok(())
}

/// How many tasks of the gang, in order, the emptied pool holds at once.
fn fitting_tasks(empty: &Snapshot, spec: &JobSpec) -> u32 {
    let state = State::default();
    let mut scratch = empty.clone();
    let mut trial = Trial::new(&state, &mut scratch);
    let mut placed = 0;
    for role in spec.gang.roles() {
        for _ in 0..role.minimum {
            let fits = role.ask.alternatives.iter().enumerate().any(|(index, alternative)| {
                place_task(&mut trial, spec, (index as u32, alternative), (placed, 1)).is_ok()
            });
            if !fits {
                return placed;
            }
            placed += 1;
        }
    }
    placed
}

/// All that keeps a job of this shape from starting now, by limits and by capacity, each by itself; and its funnel.
pub(super) fn blockers(state: &State, snapshot: &Snapshot, spec: &JobSpec) -> (Vec<Reason>, Funnel) {
    let mut scratch = snapshot.clone();
    let mut blockers = Vec::new();
    if state.draining {
        blockers.push(Reason::PoolDraining);
    }
    let mut trial = Trial::new(state, &mut scratch);
    blockers.extend(trial.exceeded(&spec.queue, spec.milli_asked()));
    let mut unlimited = spec.clone();
    unlimited.queue = String::new();
    let fits = place_spec(&mut trial, &unlimited);
    if let Err(reason) = fits {
        blockers.push(reason);
    } else if blockers.is_empty() {
        trial.roll_back_to(0);
        blockers.extend(place_spec(&mut trial, spec).err());
    }
    let first =
        spec.gang.roles().into_iter().find_map(|role| role.ask.alternatives.first()?.devices.as_ref());
    let funnel =
        first.map(|ask| filter::funnel(&snapshot.capacity, &ask.class, ask.count)).unwrap_or_default();
    (blockers, funnel)
}
