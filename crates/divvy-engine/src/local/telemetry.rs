//! Looks at the devices every second: for people, for the health that planning needs, and for what tasks use.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use divvy_core::engine::Observation;
use divvy_core::model::device::DeviceSpec;
use divvy_core::time::Time;
use divvy_gpu::{Device, DeviceSample, Locks, Machine, Source, SourceError, SourceKind, occupancy};

use super::clock::{monotonic_ms, wall};
use super::discovery::{self, Said};
use super::outbox::{Outbox, lock};
use super::processes::Processes;
use super::settings::OpenError;

/// The devices at the last look.
#[derive(Clone, Debug)]
pub struct Latest {
    /// Where they come from.
    pub source: SourceKind,
    /// Why there are none although they were not declined.
    pub note: Option<String>,
    /// The machine; absent if the engine was opened without a source.
    pub machine: Option<Machine>,
    /// A sample of each device, lost ones included.
    pub samples: Vec<DeviceSample>,
    /// When they were sampled.
    pub at: Time,
}

/// Gives access to the latest samples. Clones share them; all may be used from any thread.
#[derive(Clone, Debug)]
pub struct Telemetry {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    latest: Mutex<Arc<Latest>>,
    orders: Mutex<Orders>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct Orders {
    stop: bool,
    forgive: Vec<String>,
}

/// What is watched, and how.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(crate) node: String,
    pub(crate) state: PathBuf,
    pub(crate) foreign: bool,
    pub(crate) sample_every: Duration,
}

impl Telemetry {
    /// Returns what was seen last.
    pub fn latest(&self) -> Arc<Latest> {
        lock(&self.shared.latest).clone()
    }

    /// Forgets the fault for which a device counts as unhealthy, after somebody has serviced it.
    pub fn forgive(&self, uuid: &str) {
        lock(&self.shared.orders).forgive.push(uuid.to_owned());
        self.shared.bell.notify_all();
    }

    /// Finds out what there is, reports it, and starts to watch. Without devices nothing has to be watched.
    pub(crate) fn start(
        source: Option<Source>,
        watched: Watched,
        outbox: Outbox,
        processes: Processes,
    ) -> Result<Self, OpenError> {
        let (kind, note) =
            source.as_ref().map_or((SourceKind::None, None), |source| (source.kind(), source.note()));
        let note = note.map(str::to_owned);
        let latest = Latest { source: kind, note, machine: None, samples: Vec::new(), at: wall() };
        let shared =
            Shared { latest: Mutex::new(Arc::new(latest)), orders: Mutex::default(), bell: Condvar::new() };
        let telemetry = Self { shared: Arc::new(shared) };
        let Some(source) = source else { return Ok(telemetry) };
        let mut watcher = Watcher {
            telemetry: telemetry.clone(),
            source,
            devices: BTreeMap::new(),
            said: Said::default(),
            own_state: watched.state.to_string_lossy().into_owned(),
            locks: Locks::from_env(),
            sampled_ms: monotonic_ms(),
            watched,
            outbox,
            processes,
        };
        watcher.discover()?;
        if kind != SourceKind::None {
            watcher.look();
            let thread = std::thread::Builder::new().name("divvy-telemetry".into());
            thread.spawn(move || watcher.run()).map_err(OpenError::System)?;
        }
        Ok(telemetry)
    }

    /// Ends the thread, without waiting for a slow driver.
    pub(crate) fn stop(&self) {
        lock(&self.shared.orders).stop = true;
        self.shared.bell.notify_all();
    }

    /// Waits for the next look; `None` when there is none.
    fn await_next(&self, pause: Duration) -> Option<Vec<String>> {
        let orders = lock(&self.shared.orders);
        let is_idle = |orders: &mut Orders| !orders.stop && orders.forgive.is_empty();
        let (mut orders, _) = self
            .shared
            .bell
            .wait_timeout_while(orders, pause, is_idle)
            .unwrap_or_else(PoisonError::into_inner);
        (!orders.stop).then(|| std::mem::take(&mut orders.forgive))
    }

    fn publish(&self, change: impl FnOnce(&mut Latest)) {
        let mut latest = lock(&self.shared.latest);
        change(Arc::make_mut(&mut latest));
    }
}

/// The thread that looks.
struct Watcher {
    telemetry: Telemetry,
    source: Source,
    watched: Watched,
    outbox: Outbox,
    processes: Processes,
    /// The devices that have been reported, by uuid.
    devices: BTreeMap<String, Device>,
    said: Said,
    own_state: String,
    locks: Locks,
    sampled_ms: i64,
}

impl Watcher {
    fn run(mut self) {
        while let Some(forgiven) = self.telemetry.clone().await_next(self.watched.sample_every) {
            for uuid in forgiven {
                self.source.forgive(&uuid);
            }
            self.look();
        }
    }

    /// Finds out what the machine has now, and reports it.
    fn discover(&mut self) -> Result<(), SourceError> {
        let machine = self.source.discover()?;
        let mut devices: BTreeMap<String, Device> =
            machine.devices.iter().map(|device| (device.uuid.clone(), device.clone())).collect();
        // A device that fell off the bus still belongs to the node, as unhealthy: it may come back.
        for lost in machine.lost.iter().filter_map(|lost| lost.uuid.as_ref()) {
            if let Some(known) = self.devices.get(lost) {
                devices.entry(lost.clone()).or_insert_with(|| known.clone());
            }
        }
        self.devices = devices;
        self.said.retain(|uuid| self.devices.contains_key(uuid));
        let mut specs: Vec<DeviceSpec> = self.devices.values().map(discovery::device).collect();
        specs.sort_by(|a, b| (a.index, &a.uuid).cmp(&(b.index, &b.uuid)));
        self.outbox.put([Observation::Node(discovery::node(&self.watched.node, &machine), specs)]);
        self.telemetry.publish(|latest| latest.machine = Some(machine));
        Ok(())
    }

    /// Samples all devices; reports news, and adds up what tasks use.
    fn look(&mut self) {
        let mut samples = self.source.sample();
        if self.has_changed(&samples) {
            match self.discover() {
                Ok(()) => samples = self.source.sample(),
                Err(error) => tracing::warn!("{error}"),
            }
        }
        let now_ms = monotonic_ms();
        let passed_ms = now_ms - std::mem::replace(&mut self.sampled_ms, now_ms);
        let held = self.meter(&samples, passed_ms);
        let doubted = self.processes.take_doubted();
        self.said.retain(|uuid| !doubted.contains(uuid));
        let news: Vec<Observation> =
            samples.iter().filter_map(|sample| self.news(sample, held.contains(&sample.uuid))).collect();
        self.outbox.put(news);
        self.telemetry.publish(|latest| (latest.samples, latest.at) = (samples, wall()));
    }

    /// Returns whether a device has appeared, or a known one is not even reported as lost.
    fn has_changed(&self, samples: &[DeviceSample]) -> bool {
        let sampled: BTreeSet<&str> = samples.iter().map(|sample| sample.uuid.as_str()).collect();
        let new =
            samples.iter().any(|sample| sample.health.is_ok() && !self.devices.contains_key(&sample.uuid));
        new || self.devices.keys().any(|uuid| !sampled.contains(uuid.as_str()))
    }

    /// Adds the samples to what the tasks used; returns the devices that tasks hold.
    fn meter(&self, samples: &[DeviceSample], passed_ms: i64) -> BTreeSet<String> {
        let owners: Vec<_> = samples.iter().map(|sample| self.own_processes(sample)).collect();
        let mut tasks = self.processes.held();
        let mut held = BTreeSet::new();
        for (allocation, task) in tasks.iter_mut() {
            for (sample, owners) in
                samples.iter().zip(&owners).filter(|(s, _)| task.devices.contains(&s.uuid))
            {
                let own =
                    owners.iter().filter(|(_, owner)| *owner == allocation).map(|(pid, _)| *pid).collect();
                task.meter.add(sample, &own, passed_ms);
                held.insert(sample.uuid.clone());
            }
        }
        held
    }

    fn own_processes(&self, sample: &DeviceSample) -> BTreeMap<u32, divvy_core::id::AllocationId> {
        let pids = sample.processes.iter().map(|process| process.pid);
        pids.filter_map(|pid| Some((pid, self.processes.allocation_of(pid)?))).collect()
    }

    fn news(&mut self, sample: &DeviceSample, is_held: bool) -> Option<Observation> {
        let health = discovery::health(self.devices.get(&sample.uuid), &sample.health);
        let occupant = (self.watched.foreign && !is_held).then(|| {
            let ours = self.own_processes(sample).into_keys().collect();
            let lock = self.locks.query(&sample.uuid).ok().flatten();
            discovery::occupant(&self.own_state, lock, occupancy(sample, &ours))
        });
        self.said.news(&sample.uuid, health, occupant.flatten())
    }
}
