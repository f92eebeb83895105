//! Devices, as `divvy gpus` lists them: from the state, and from the last telemetry samples.

use divvy_api as api;
use divvy_core::id::DeviceId;
use divvy_core::model::device::{Health, Link, Occupant, WHOLE_MILLI};
use divvy_core::model::node::NodeState;
use divvy_core::model::queue::utc;
use divvy_core::model::reservation::{Purpose, Reservation};
use divvy_core::state::{Allocation, Device, State};
use divvy_engine::local::Latest;
use divvy_gpu::MigMode;

use super::detail::task_started;

/// Returns all devices of present nodes, by node and index.
pub(crate) fn all(state: &State, latest: &Latest) -> Vec<api::Gpu> {
    let here =
        |device: &Device| state.nodes.get(&device.node).is_some_and(|node| node.state != NodeState::Gone);
    let devices = state.devices.iter().filter(|(_, device)| here(device));
    let mut rows: Vec<api::Gpu> = devices.map(|(id, device)| one(state, *id, device, latest)).collect();
    rows.sort_by(|a, b| (&a.node, a.index).cmp(&(&b.node, b.index)));
    rows
}

fn one(state: &State, id: DeviceId, device: &Device, latest: &Latest) -> api::Gpu {
    let spec = &device.spec;
    let sample = latest.samples.iter().find(|sample| sample.uuid == spec.uuid);
    let seen = latest
        .machine
        .as_ref()
        .and_then(|machine| machine.devices.iter().find(|seen| seen.uuid == spec.uuid));
    let held: Vec<&Allocation> = state.draws_on(id).map(|(allocation, _)| allocation).collect();
    let drawn: u32 = state.draws_on(id).map(|(_, draw)| draw.milli).sum();
    api::Gpu {
        node: state.nodes.get(&device.node).map(|node| node.spec.name.clone()).unwrap_or_default(),
        index: spec.index,
        uuid: spec.uuid.clone(),
        model: spec.model.clone(),
        memory_mib: spec.memory_mib,
        memory_used_mib: sample.and_then(|sample| sample.memory_used_mib),
        utilization_percent: sample.and_then(|sample| sample.utilization_percent),
        temperature_c: sample
            .and_then(|sample| sample.temperature_c)
            .and_then(|celsius| i32::try_from(celsius).ok()),
        power_w: sample.and_then(|sample| sample.power_w),
        state: word(state, id, device, drawn),
        free_milli: WHOLE_MILLI.saturating_sub(drawn),
        allocations: held.into_iter().map(|allocation| held_by(state, id, allocation)).collect(),
        source: latest.source.to_string(),
        product: spec.product.clone(),
        reason: reason(state, id, device),
        foreign: device.occupant.as_ref().map(foreign),
        pci_bus_id: seen.and_then(|seen| seen.pci_bus_id.clone()),
        memory_bandwidth_gb_s: spec.bandwidth_gb_s.0,
        numa_node: spec.numa,
        compute_capability: seen
            .and_then(|seen| seen.compute_capability)
            .map(|capability| capability.to_string()),
        mig_mode: seen.and_then(|seen| mig(seen.mig_mode)).map(str::to_owned),
        nvlinks: spec.links.iter().map(|link| link_of(state, link)).collect(),
        driver_version: latest.machine.as_ref().and_then(|machine| machine.driver_version.clone()),
        cuda_version: latest.machine.as_ref().and_then(|machine| machine.cuda_version.clone()),
    }
}

fn link_of(state: &State, link: &Link) -> api::GpuLink {
    let other = state.device_by_uuid(&link.uuid).and_then(|id| state.devices.get(&id));
    api::GpuLink { uuid: link.uuid.clone(), lanes: link.lanes, index: other.map(|other| other.spec.index) }
}

fn word(state: &State, id: DeviceId, device: &Device, drawn: u32) -> api::GpuState {
    let promised = state
        .promises
        .values()
        .flat_map(|promise| &promise.placements)
        .flat_map(|placement| &placement.devices);
    let drained = !state.takes_tasks(device.node) || state.is_drained(id);
    let reserved = || state.reservations_of(id, device).iter().any(|kept| kept.began);
    if device.health != Health::Ok {
        api::GpuState::Down
    } else if drawn >= WHOLE_MILLI {
        api::GpuState::Allocated
    } else if drawn > 0 {
        api::GpuState::Shared
    } else if device.occupant.is_some() {
        api::GpuState::Foreign
    } else if promised.into_iter().any(|(promised, _)| *promised == id) {
        api::GpuState::Promised
    } else if drained || state.draining {
        api::GpuState::Draining
    } else if reserved() {
        api::GpuState::Reserved
    } else {
        api::GpuState::Free
    }
}

fn held_by(state: &State, id: DeviceId, allocation: &Allocation) -> api::GpuAllocation {
    let job = state.jobs.get(&allocation.job.number);
    let run = state.run(allocation.job);
    let draw = allocation.placement.devices.iter().find(|(device, _)| *device == id).map(|(_, draw)| draw);
    api::GpuAllocation {
        job: allocation.job.to_string(),
        task: allocation.placement.rank,
        milli: draw.map_or(0, |draw| draw.milli),
        memory_mib: draw.map_or(0, |draw| draw.memory_mib),
        user: job.map(|job| job.owner.name.clone()).unwrap_or_default(),
        name: job.map(|job| job.spec.name.clone()).unwrap_or_default(),
        started_ms: job.zip(run).and_then(|(job, run)| task_started(job, run, allocation)).map(|at| at.0),
    }
}

fn reason(state: &State, id: DeviceId, device: &Device) -> Option<String> {
    if let Health::Down(what) = &device.health {
        return Some(what.clone());
    }
    let overdue = |(held, _): (&Allocation, _)| {
        Some((held.job, held.stops_by?)).filter(|_| !held.overdue_since.is_unsaid())
    };
    if let Some((job, by)) = state.draws_on(id).find_map(overdue) {
        return Some(format!("{job} was told to stop, and should have ended by {}", utc(by)));
    }
    let kept = || state.reservations_of(id, device).first().map(|kept| reserved(kept));
    occupied(device).or_else(kept)
}

/// Says for what a device is kept, from when, until when and by whom.
fn reserved(kept: &Reservation) -> String {
    let what = match &kept.purpose {
        Purpose::Maintenance => "drained".to_owned(),
        Purpose::Queue(queue) => format!("kept for {queue}"),
    };
    let from = if kept.began { String::new() } else { format!(" from {}", utc(kept.from)) };
    let until = kept.until.map(|until| format!(" until {}", utc(until))).unwrap_or_default();
    let note = kept.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
    format!("{what}{from}{until} by {}{note}", kept.by)
}

fn occupied(device: &Device) -> Option<String> {
    device.occupant.as_ref().map(|occupant| match occupant {
        Occupant::Process { pid, user, command, memory_mib } => {
            format!("used by {command} of {user} (pid {pid}, {memory_mib} MiB) outside the pool; free again when it ends")
        }
        Occupant::Pool { user, state } => format!("held by the pool of {user} ({state}); free again when its job ends"),
        Occupant::Others => "used by a task of another scheduler; free again when it ends".into(),
        Occupant::Unknown { memory_mib, remedy } => {
            format!("{memory_mib} MiB are in use by no process that can be seen; {remedy}")
        }
    })
}

fn foreign(occupant: &Occupant) -> api::Foreign {
    match occupant {
        Occupant::Process { pid, user, command, memory_mib } => api::Foreign {
            pid: Some(*pid),
            user: Some(user.clone()),
            command: Some(command.clone()),
            memory_mib: Some(*memory_mib),
            pool: None,
        },
        Occupant::Pool { user, state } => {
            api::Foreign { user: Some(user.clone()), pool: Some(state.clone()), ..api::Foreign::default() }
        }
        Occupant::Others => api::Foreign::default(),
        Occupant::Unknown { memory_mib, .. } => {
            api::Foreign { memory_mib: Some(*memory_mib), ..api::Foreign::default() }
        }
    }
}

fn mig(mode: MigMode) -> Option<&'static str> {
    match mode {
        MigMode::Unsupported => None,
        MigMode::Disabled => Some("disabled"),
        MigMode::Enabled => Some("enabled"),
    }
}
