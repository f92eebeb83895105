//! What a user is told about a job that was taken: above all what it gets without having asked for it.

use divvy_core::amount::{Bytes, Resource};
use divvy_core::model::ask::{Alternative, DeviceAsk};
use divvy_core::model::job::JobSpec;
use divvy_core::plan;
use divvy_core::reason::{Reason, shown};
use divvy_core::snapshot::Snapshot;
use divvy_core::state::State;

/// Gangs with more tasks are not placed on paper just for a notice.
const MOST_TASKS: u32 = 1000;

/// Tells what tasks get where cores or memory are not given, and what comes with a node of one's own.
pub(crate) fn shares(spec: &JobSpec, state: &State) -> Vec<String> {
    if spec.exclusive {
        return whole(spec, state).into_iter().collect();
    }
    let roles = spec.gang.roles();
    let asks = || roles.iter().filter_map(|role| role.ask.alternatives.first().map(|ask| (role, ask)));
    if spec.gang.tasks() > MOST_TASKS
        || asks().all(|(_, ask)| ask.cpu_milli.is_some() && ask.memory_bytes.is_some())
    {
        return Vec::new();
    }
    let mut emptied = Snapshot::emptied(state);
    let placed = plan::would_place(state, &mut emptied, spec).unwrap_or_default();
    let mut first_rank = 0;
    let mut told = Vec::new();
    for (role, first) in asks() {
        let placement = placed.iter().find(|placement| placement.rank == first_rank);
        first_rank += role.maximum;
        let Some(placement) = placement else { continue };
        let ask = role.ask.alternatives.get(placement.alternative as usize).unwrap_or(first);
        let usual_cores =
            ask.devices.as_ref().map_or(Some(placement.cpu_milli), |devices| cores_of(devices, &emptied));
        let text = usual_cores.and_then(|cores| share(ask, cores, placement.memory_bytes));
        told.extend(
            text.map(|text| if roles.len() > 1 { format!("a task of {} {text}", role.name) } else { text }),
        );
    }
    told
}

/// Tells how much a task gets that gets all of a node: it may be more than what it asks for.
fn whole(spec: &JobSpec, state: &State) -> Option<String> {
    if spec.gang.tasks() > MOST_TASKS {
        return None;
    }
    let placed = plan::would_place(state, &mut Snapshot::emptied(state), spec).ok()?;
    let most = placed.iter().max_by_key(|placement| placement.devices.len())?;
    let gpus = match most.devices.len() {
        1 => "1 GPU".to_owned(),
        count => format!("{count} GPUs"),
    };
    let (cores, memory) = (shown(&Resource::Cpu, most.cpu_milli), Bytes(most.memory_bytes));
    let whose =
        if spec.gang.most_tasks() > 1 { "each task gets all of its node" } else { "gets all of its node" };
    Some(format!(
        "{whose}, such as {gpus}, {cores} cores and {memory}; queue {} is charged for it",
        spec.queue
    ))
}

/// Tells which settings a job exceeds by itself: as things are set it never starts, whatever else ends.
pub(crate) fn never(spec: &JobSpec, state: &State, snapshot: &Snapshot) -> Vec<String> {
    let beyond = divvy_core::explain::as_set(state, snapshot, spec);
    let told =
        |reason: &Reason| format!("as things are set it never starts: {reason}; {}", reason.lasting_fix());
    beyond.iter().map(told).collect()
}

/// Returns the cores that go with devices, in milli: a share that yields to others' asks, so no placement names
/// it.
fn cores_of(devices: &DeviceAsk, snapshot: &Snapshot) -> Option<i64> {
    let mut all = snapshot.capacity.nodes.iter().flat_map(|node| &node.devices);
    let device = all.find(|device| devices.class.takes(&device.spec))?;
    Some(device.host_share.0 * i64::from(devices.count))
}

fn share(ask: &Alternative, cpu_milli: i64, memory_bytes: i64) -> Option<String> {
    let cores =
        format!("{} core{}", shown(&Resource::Cpu, cpu_milli), if cpu_milli == 1000 { "" } else { "s" });
    let (gets, say) = match (ask.cpu_milli, ask.memory_bytes) {
        (Some(_), Some(_)) => return None,
        (None, Some(_)) => (cores, "-c"),
        (Some(_), None) => (Bytes(memory_bytes).to_string(), "--mem"),
        (None, None) => (format!("{cores} and {}", Bytes(memory_bytes)), "-c and --mem"),
    };
    let share = match ask.devices.as_ref().map(|devices| devices.count) {
        None => String::new(),
        Some(1) => ": its share of the node for 1 GPU".into(),
        Some(count) => format!(": its share of the node for {count} GPUs"),
    };
    Some(format!("gets {gets}{share}; say {say} to choose"))
}
