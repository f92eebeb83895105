//! Packing: tasks arrive one by one and never leave; what fits nowhere is dropped. How much of the pool ends up allocated?
//! The experiment of Weng et al., "Beware of Fragmentation" (USENIX ATC 2023), section 6, with the core as the scheduler.

mod curve;
mod typical;

use std::sync::Arc;

use divvy_core::check;
use divvy_core::controller::{Broken, Controller};
use divvy_core::decide::{Command, Person, Rejection, Submit};
use divvy_core::event::{Event, Stamped};
use divvy_core::id::{DeviceId, JobId, NodeId, Term};
use divvy_core::model::allocation::Placement;
use divvy_core::model::ask::{Alternative, Ask, DeviceAsk, DeviceClass, DrawAsk};
use divvy_core::model::device::DeviceSpec;
use divvy_core::model::gang::{Group, Role};
use divvy_core::model::job::{JobSpec, Kind, Lifetime, Owner, Requeue, StopOrder, Work};
use divvy_core::model::newer::Newer;
use divvy_core::model::node::{NodeSpec, NodeState};
use divvy_core::model::policy::Policy;
use divvy_core::model::score::{Score, Typical};
use divvy_core::plan::Fragmentation;
use divvy_core::state::{Misfit, State, fingerprint};
use divvy_core::time::Time;
use serde::Serialize;

use crate::trace::openb::{Node, Pod, Workload};
use curve::Curve;

/// A policy by its name on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// The fragmentation gradient; knows the whole trace beforehand.
    Fgd,
    /// The node with the least left.
    BestFit,
    /// The node whose rest is least like the task.
    DotProduct,
    /// Open devices before free ones before idle nodes.
    GpuPacking,
    /// Nodes with tasks of the same number of devices.
    GpuClustering,
    /// Any node.
    Random {
        /// The seed of the choice.
        seed: u64,
    },
    /// Divvy's own default.
    Divvy,
}

impl Packing {
    /// Returns all policies, with this seed for the random one.
    pub fn all(seed: u64) -> [Packing; 7] {
        [
            Packing::Fgd,
            Packing::BestFit,
            Packing::DotProduct,
            Packing::GpuPacking,
            Packing::GpuClustering,
            Packing::Random { seed },
            Packing::Divvy,
        ]
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Packing::Fgd => "fgd",
            Packing::BestFit => "best-fit",
            Packing::DotProduct => "dot-product",
            Packing::GpuPacking => "gpu-packing",
            Packing::GpuClustering => "gpu-clustering",
            Packing::Random { .. } => "random",
            Packing::Divvy => "divvy",
        }
    }

    /// Returns the policy of a name, with this seed if it is the random one.
    pub fn named(name: &str, seed: u64) -> Result<Packing, NoSuchPacking> {
        let known = Packing::all(seed);
        known
            .into_iter()
            .find(|packing| packing.name() == name)
            .ok_or_else(|| NoSuchPacking { name: name.into() })
    }

    /// What it knows: `oracle` where it knows tasks before they arrive, else `online`.
    pub fn knowledge(self) -> &'static str {
        if self == Packing::Fgd { "oracle" } else { "online" }
    }

    fn score(self, typical: &Arc<Typical>) -> Score {
        match self {
            Packing::Fgd => Score::Fgd { typical: Arc::clone(typical) },
            Packing::BestFit => Score::BestFit,
            Packing::DotProduct => Score::DotProduct,
            Packing::GpuPacking => Score::GpuPacking,
            Packing::GpuClustering => Score::GpuClustering,
            Packing::Random { seed } => Score::Random { seed },
            Packing::Divvy => Score::LeastWaste,
        }
    }
}

/// A name that no policy has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no policy {name:?}; there are: {}", Packing::all(0).map(Packing::name).join(", "))]
pub struct NoSuchPacking {
    name: String,
}

/// Tasks that were placed, by the GPUs of each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PlacedByClass {
    /// Without a GPU.
    pub none: u64,
    /// A share of one.
    pub share: u64,
    /// One.
    #[serde(rename = "1")]
    pub one: u64,
    /// Two, or three.
    #[serde(rename = "2")]
    pub two: u64,
    /// Four to seven.
    #[serde(rename = "4")]
    pub four: u64,
    /// Eight and more.
    #[serde(rename = "8")]
    pub eight: u64,
}

impl PlacedByClass {
    fn count(&mut self, pod: &Pod) {
        let class = match (pod.gpus, pod.gpu_milli) {
            (0, _) => &mut self.none,
            (1, milli) if milli < 1000 => &mut self.share,
            (1, _) => &mut self.one,
            (2..=3, _) => &mut self.two,
            (4..=7, _) => &mut self.four,
            _ => &mut self.eight,
        };
        *class += 1;
    }
}

/// The result of an experiment. The arrays hold one value per percent of the capacity that has arrived, 0 to 130: the mean over
/// the arrivals that round to that percentage; `None` where there were none.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Packed {
    /// Which policy.
    pub policy: String,
    /// What it knew: `oracle` or `online`.
    pub knowledge: String,
    /// Tasks that arrived.
    pub arrived: u64,
    /// Tasks that were placed.
    pub placed: u64,
    /// Tasks that no node could take even if it were idle.
    pub never_fit: u64,
    /// The placed ones, by class.
    pub placed_by_class: PlacedByClass,
    /// The hash of all decisions.
    pub digest: String,
    /// 0 to 130.
    pub arrived_percent: Vec<u32>,
    /// Allocated, in percent of the capacity.
    pub allocated_percent: Vec<Option<f64>>,
    /// Fragmented, in percent of what is idle.
    pub frag_of_idle: Vec<Option<f64>>,
    /// Fragmented, in percent of the capacity.
    pub frag_of_capacity: Vec<Option<f64>>,
}

/// Why an experiment cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// The core found a law broken.
    #[error("placing task {task}: {broken}")]
    Broken {
        /// Which arrival, from 0.
        task: usize,
        /// What it found.
        broken: Broken,
    },
    /// The core refused a task.
    #[error("submitting task {task}: {rejection}")]
    Refused {
        /// Which arrival, from 0.
        task: usize,
        /// Why.
        rejection: Box<Rejection>,
    },
    /// The pool makes no sense.
    #[error("setting up the pool: {0}")]
    Pool(#[from] Misfit),
    /// There is no GPU.
    #[error("the nodes have no GPU: there is nothing to allocate")]
    NoGpu,
}

/// Runs one experiment; `progress` is told how many tasks have arrived.
pub fn run(
    workload: &Workload,
    packing: Packing,
    mut progress: impl FnMut(usize),
) -> Result<Packed, PackError> {
    let typical = Arc::new(typical::typical(&workload.pods));
    let policy = Policy { score: packing.score(&typical), shares: true, ..Policy::one_line() };
    let mut pool = Pool::open(workload, policy)?;
    let mut curve = Curve::new(workload.nodes.iter().map(|node| i64::from(node.gpus) * 1000).sum());
    if curve.capacity_milli == 0 {
        return Err(PackError::NoGpu);
    }
    let mut watch = Watch::new(&typical, &pool);
    let (mut classes, mut digest, mut placed) = (PlacedByClass::default(), 0, 0);
    for (task, place) in workload.arrivals.iter().enumerate() {
        let pod = &workload.pods[*place];
        let placement = pool.arrive(task, *place)?;
        digest = fingerprint(&(digest, task, &placement));
        curve.arrive(pod.milli());
        if let Some(placement) = &placement {
            classes.count(pod);
            placed += 1;
            curve.allocate(placement.milli());
            watch.look_again(&pool, placement.node);
        }
        curve.note(&watch);
        progress(task + 1);
    }
    pool.check()?;
    let never_fit =
        workload.arrivals.iter().filter(|place| !fits_any(&workload.nodes, &workload.pods[**place]));
    Ok(Packed {
        policy: packing.name().into(),
        knowledge: packing.knowledge().into(),
        arrived: workload.arrivals.len() as u64,
        placed,
        never_fit: never_fit.count() as u64,
        placed_by_class: classes,
        digest: format!("{digest:016x}"),
        arrived_percent: (0..curve::BINS as u32).collect(),
        allocated_percent: curve.allocated.means(),
        frag_of_idle: curve.of_idle.means(),
        frag_of_capacity: curve.of_capacity.means(),
    })
}

/// Whether some node, idle, could take a task.
fn fits_any(nodes: &[Node], pod: &Pod) -> bool {
    let models = pod.models();
    nodes.iter().any(|node| {
        let host = pod.cpu_milli <= node.cpu_milli && pod.memory_mib <= node.memory_mib;
        host && pod.gpus <= node.gpus && (pod.gpus == 0 || models.is_empty() || models.contains(&node.model))
    })
}

/// The core with the pool of an experiment.
struct Pool {
    controller: Controller,
    specs: Vec<Arc<JobSpec>>,
    owner: Arc<Owner>,
}

impl Pool {
    fn open(workload: &Workload, policy: Policy) -> Result<Self, PackError> {
        let mut state = State::default();
        for event in beginning(&workload.nodes, policy) {
            state.apply(&Stamped { at: Time(0), event })?;
        }
        let specs = workload.pods.iter().map(|pod| Arc::new(spec(pod))).collect();
        let owner = Arc::new(Owner { name: "trace".into(), ..Owner::default() });
        let mut controller = Controller::open(state);
        // Laws are checked only at the end: each check costs as much as all that is placed.
        controller.check_every(0);
        Ok(Self { controller, specs, owner })
    }

    /// Whether all laws hold.
    fn check(&self) -> Result<(), PackError> {
        let violations = check::check(self.controller.state());
        let task = self.controller.state().next_job as usize;
        if violations.is_empty() {
            Ok(())
        } else {
            Err(PackError::Broken { task, broken: Broken::Laws(violations) })
        }
    }

    /// Lets a task arrive: it is placed at once, or dropped.
    fn arrive(&mut self, task: usize, place: usize) -> Result<Option<Placement>, PackError> {
        let broken = |broken| PackError::Broken { task, broken };
        let now = Time(task as i64 * 1000);
        let submit = Submit {
            owner: Arc::clone(&self.owner),
            spec: Arc::clone(&self.specs[place]),
            requeue_said: true,
            array: None,
            token: None,
            held: false,
            history: Default::default(),
        };
        let answer = self.controller.take(&Command::Submit(Box::new(submit)), now).map_err(broken)?;
        let answer = answer.map_err(refused(task))?;
        self.controller.cycle(now).map_err(broken)?;
        let events = self.controller.drain().map(|batch| batch.commit.events).unwrap_or_default();
        let placed = events.into_iter().find_map(|stamped| match stamped.event {
            Event::Placed { placements, .. } => placements.into_iter().next(),
            _ => None,
        });
        if placed.is_none()
            && let Some(number) = answer.job
        {
            let by = Person::user(&self.owner.name);
            let cancelled =
                self.controller.take(&Command::Cancel(JobId::single(number), by), now).map_err(broken)?;
            cancelled.map_err(refused(task))?;
            self.controller.drain();
        }
        Ok(placed)
    }
}

fn refused(task: usize) -> impl FnOnce(Rejection) -> PackError {
    move |rejection| PackError::Refused { task, rejection: Box::new(rejection) }
}

/// The events that make the pool: one node per row, so that a node's place is its rank.
fn beginning(nodes: &[Node], policy: Policy) -> Vec<Event> {
    let mut events = vec![
        Event::TermBegan { term: Term(1), boot_id: String::new(), version: String::new() },
        Event::PolicySet { policy: Box::new(policy), by: "trace".into(), note: None },
    ];
    let mut device = 0;
    for (rank, node) in nodes.iter().enumerate() {
        let id = NodeId(rank as u32);
        let spec = NodeSpec {
            name: node.name.clone(),
            cpu_milli: node.cpu_milli,
            memory_bytes: node.memory_mib << 20,
            ..NodeSpec::default()
        };
        events.push(Event::NodeSeen { node: id, spec: Box::new(spec), state: NodeState::Ready });
        for index in 0..node.gpus {
            let spec = DeviceSpec {
                uuid: format!("{}:{index}", node.name),
                index,
                model: node.model.clone(),
                product: node.model.clone(),
                ..DeviceSpec::default()
            };
            events.push(Event::DeviceSeen { device: DeviceId(device), node: id, spec: spec.into() });
            device += 1;
        }
    }
    events
}

/// A task as a job that waits for capacity, so that the pool does not refuse it outright.
fn spec(pod: &Pod) -> JobSpec {
    let draw = match pod.gpu_milli {
        1000 => DrawAsk::Whole,
        milli => DrawAsk::Share { milli, memory_mib: None },
    };
    let class = DeviceClass { models: pod.models(), ..DeviceClass::default() };
    let alternative = Alternative {
        devices: (pod.gpus > 0).then_some(DeviceAsk::of(class, pod.gpus, draw)),
        cpu_milli: Some(pod.cpu_milli),
        memory_bytes: Some(pod.memory_mib << 20),
        speed_percent: 100,
        ..Alternative::default()
    };
    let role = Role {
        name: "main".into(),
        minimum: 1,
        maximum: 1,
        ask: Ask::of(vec![alternative]),
        work: Work::External(Vec::new()),
        topology: None,
        spread: Newer::default(),
    };
    JobSpec {
        name: pod.name.clone(),
        queue: "default".into(),
        project: None,
        kind: Kind::Train,
        labels: Default::default(),
        priority: 0,
        preemptible: true,
        resumable: false,
        lifetime: Lifetime::Service,
        gang: Group::Role(role).into(),
        time_limit: None,
        estimate: None,
        requeue: Requeue::Never,
        most_restarts: 0,
        after: Vec::new(),
        start_after: None,
        deadline: Newer::default(),
        preempts: Newer::default(),
        stop: StopOrder::default(),
        checkpoint: None,
        wait_for_capacity: true,
        exclusive: false,
        seat: Newer::default(),
        kept_to: Newer::default(),
    }
}

/// What is idle, and how much of it is fragmented, over all nodes.
struct Watch {
    measure: Fragmentation,
    nodes: Vec<(i64, i64)>,
    idle_milli: i64,
    fragmented_micro: i64,
}

impl Watch {
    fn new(typical: &Arc<Typical>, pool: &Pool) -> Self {
        let count = pool.controller.snapshot().capacity.nodes.len();
        let measure = Fragmentation::new(typical);
        let mut watch = Self { measure, nodes: vec![(0, 0); count], idle_milli: 0, fragmented_micro: 0 };
        (0..count).for_each(|place| watch.measure(pool, place));
        watch
    }

    fn look_again(&mut self, pool: &Pool, node: NodeId) {
        if let Some(place) = pool.controller.snapshot().capacity.node_place(node) {
            self.measure(pool, place);
        }
    }

    fn measure(&mut self, pool: &Pool, place: usize) {
        let node = &pool.controller.snapshot().capacity.nodes[place];
        let idle = node.devices.iter().map(|device| i64::from(device.free_milli)).sum();
        let fragmented = self.measure.micro(node);
        let before = std::mem::replace(&mut self.nodes[place], (idle, fragmented));
        self.idle_milli += idle - before.0;
        self.fragmented_micro += fragmented - before.1;
    }
}
