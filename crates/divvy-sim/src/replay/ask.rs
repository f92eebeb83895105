//! What a row of a trace asks of the core, and what a row of a cluster offers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use divvy_core::model::ask::{Alternative, Ask, DeviceAsk, DeviceClass, DrawAsk};
use divvy_core::model::device::DeviceSpec;
use divvy_core::model::gang::{Branch, Group, Role};
use divvy_core::model::job::{
    JobSpec, Kind, Lifetime, Owner, Process, Requeue, StopOrder, Work, usual_restarts,
};
use divvy_core::model::newer::Newer;
use divvy_core::model::node::NodeSpec;

use super::Replay;
use crate::trace::cluster::ClusterNode;
use crate::trace::decimal::Ratio;
use crate::trace::jobs::Arrival;
use crate::trace::speeds::Speeds;

/// The most GPUs of a task: a larger job is a gang of such tasks and one for the rest.
pub(crate) const GPUS_OF_A_TASK: u32 = 8;

pub(crate) fn node(row: &ClusterNode) -> (NodeSpec, Vec<DeviceSpec>) {
    let device = |index: u32| DeviceSpec {
        uuid: uuid(row, index),
        index,
        model: row.model.clone(),
        memory_mib: 80 << 10,
        ..DeviceSpec::default()
    };
    let spec = NodeSpec {
        name: row.node.clone(),
        cpu_milli: row.cpu_milli,
        memory_bytes: row.memory_mib << 20,
        ..NodeSpec::default()
    };
    (spec, (0..row.gpus).map(device).collect())
}

/// The model of each device, where jobs run faster on one than on another.
pub(super) fn models(setup: &Replay<'_>) -> BTreeMap<String, String> {
    let nodes = setup.nodes.iter().filter(|_| setup.speeds.is_some());
    let devices = nodes.flat_map(|row| (0..row.gpus).map(|index| (uuid(row, index), row.model.clone())));
    devices.collect()
}

fn uuid(row: &ClusterNode, index: u32) -> String {
    format!("{}:{index}", row.node)
}

/// A model that a job can run on (any, if there is no name), and how fast.
struct KindOfDevice {
    model: Option<String>,
    speed: (u64, u64),
}

/// What a job can run on, the fastest first. Empty for a kind of job that the speeds do not know.
fn kinds(job: &Arrival, speeds: Option<&Speeds>) -> Vec<KindOfDevice> {
    let Some(speeds) = speeds else { return vec![KindOfDevice { model: None, speed: (1, 1) }] };
    let kind = |(model, ratio): (&str, Ratio)| KindOfDevice {
        model: Some(model.to_owned()),
        speed: (ratio.over(), ratio.under()),
    };
    let mut kinds: Vec<_> = speeds.models(&job.name, job.gpus).map(kind).collect();
    // Cross-multiplied, so exact. Equals go by name.
    let product =
        |one: &KindOfDevice, other: &KindOfDevice| u128::from(one.speed.0) * u128::from(other.speed.1);
    kinds.sort_by(|a, b| product(b, a).cmp(&product(a, b)));
    kinds
}

/// One way to run a task: on devices of one model, or of any.
fn alternative(kind: &KindOfDevice, fastest: &KindOfDevice, gpus: u32) -> Alternative {
    let class = DeviceClass { models: kind.model.iter().cloned().collect(), ..DeviceClass::default() };
    let devices = (gpus > 0).then_some(DeviceAsk::of(class, gpus, DrawAsk::Whole));
    let over = 100 * u128::from(kind.speed.0) * u128::from(fastest.speed.1);
    let under = u128::from(kind.speed.1) * u128::from(fastest.speed.0);
    let speed_percent = u32::try_from((over / under).max(1)).unwrap_or(100);
    // Traces of GPU jobs say nothing of cores and memory.
    Alternative {
        devices,
        cpu_milli: Some(0),
        memory_bytes: Some(0),
        speed_percent,
        ..Alternative::default()
    }
}

fn role(name: &str, tasks: u32, gpus: u32, kinds: &[KindOfDevice]) -> Role {
    Role {
        name: name.into(),
        minimum: tasks,
        maximum: tasks,
        ask: Ask::of(kinds.iter().map(|kind| alternative(kind, &kinds[0], gpus)).collect()),
        work: Work::Process(Process { argv: vec!["simulated".into()], ..Process::default() }),
        topology: None,
        spread: Newer::default(),
    }
}

/// The tasks of a job with this many GPUs.
fn gang(gpus: u32, kinds: &[KindOfDevice]) -> Group {
    let (whole, rest) = (gpus / GPUS_OF_A_TASK, gpus % GPUS_OF_A_TASK);
    match (whole, rest) {
        (0, rest) => Group::Role(role("main", 1, rest, kinds)),
        (whole, 0) => Group::Role(role("main", whole, GPUS_OF_A_TASK, kinds)),
        (whole, rest) => Group::Branch(Branch {
            name: "all".into(),
            minimum: 2,
            groups: vec![
                Group::Role(role("main", whole, GPUS_OF_A_TASK, kinds)),
                Group::Role(role("rest", 1, rest, kinds)),
            ],
            topology: None,
            spread: Newer::default(),
        }),
    }
}

/// What jobs of as many GPUs ask for, of one kind where speeds tell kinds apart: made once for all of them.
pub(super) struct Shape {
    /// Everything but whose job it is.
    spec: JobSpec,
    /// How fast they work on each model.
    pub(super) speeds: BTreeMap<String, (u64, u64)>,
    /// The queues in which the empty pool was found to hold such a job. Each is checked once: the pool does not change.
    fitting: BTreeSet<String>,
}

impl Shape {
    fn of(job: &Arrival, speeds: Option<&Speeds>) -> Self {
        let kinds = kinds(job, speeds);
        let spec = unnamed(gang(job.gpus, &kinds));
        let speeds = kinds.into_iter().filter_map(|kind| Some((kind.model?, kind.speed))).collect();
        Self { spec, speeds, fitting: BTreeSet::new() }
    }

    /// What a job of this shape asks of the core.
    pub(super) fn spec(&self, job: &Arrival) -> JobSpec {
        JobSpec {
            name: named(&job.id).to_owned(),
            queue: job.queue.clone(),
            wait_for_capacity: self.fitting.contains(&job.queue),
            ..self.spec.clone()
        }
    }

    /// Notes that the pool holds such a job in a queue.
    pub(super) fn fits(&mut self, queue: &str) {
        if !self.fitting.contains(queue) {
            self.fitting.insert(queue.to_owned());
        }
    }
}

/// All shapes so far, by kind and GPUs.
#[derive(Default)]
pub(super) struct Shapes(BTreeMap<String, BTreeMap<u32, Shape>>);

impl Shapes {
    /// The shape of a job.
    pub(super) fn of(&mut self, job: &Arrival, speeds: Option<&Speeds>) -> &mut Shape {
        let kind = if speeds.is_some() { job.name.as_str() } else { "" };
        let of_kind = self.0.entry(kind.to_owned()).or_default();
        of_kind.entry(job.gpus).or_insert_with(|| Shape::of(job, speeds))
    }
}

/// The owners of jobs so far.
#[derive(Default)]
pub(super) struct Owners(BTreeMap<String, Arc<Owner>>);

impl Owners {
    /// The owner of a job.
    pub(super) fn of(&mut self, job: &Arrival) -> Arc<Owner> {
        let name = named(&job.user);
        let known = self.0.get(name).map(Arc::clone);
        known.unwrap_or_else(|| {
            let owner = Arc::new(Owner { name: name.to_owned(), ..Owner::default() });
            self.0.insert(name.to_owned(), Arc::clone(&owner));
            owner
        })
    }
}

/// The name, which a trace may leave out.
fn named(name: &str) -> &str {
    if name.is_empty() { "-" } else { name }
}

fn unnamed(gang: Group) -> JobSpec {
    JobSpec {
        name: String::new(),
        queue: String::new(),
        project: None,
        kind: Kind::Train,
        labels: BTreeMap::new(),
        priority: 0,
        preemptible: true,
        resumable: true,
        lifetime: Lifetime::Batch,
        gang: gang.into(),
        time_limit: None,
        estimate: None,
        requeue: Requeue::Never,
        most_restarts: usual_restarts(),
        after: Vec::new(),
        start_after: None,
        deadline: Newer::default(),
        preempts: Newer::default(),
        stop: StopOrder::default(),
        checkpoint: None,
        wait_for_capacity: false,
        exclusive: false,
        seat: Newer::default(),
        kept_to: Newer::default(),
    }
}
