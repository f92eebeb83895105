//! A large pool under load: nodes, queues, running and waiting jobs, made from a seed.

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow};
use divvy_core::amount::{Amount, Resource};
use divvy_core::controller::{Batch, Controller};
use divvy_core::decide::{Command, Person, Submit};
use divvy_core::engine::{EndedHow, Observation, TaskEnd, TaskStart};
use divvy_core::event::Event;
use divvy_core::id::{AllocationId, JobId, Term};
use divvy_core::model::ask::{Alternative, Ask, DeviceAsk, DeviceClass, DrawAsk};
use divvy_core::model::device::DeviceSpec;
use divvy_core::model::gang::{Group, Role};
use divvy_core::model::job::{
    JobSpec, Kind, Lifetime, Owner, Process, Requeue, StopOrder, Work, usual_restarts,
};
use divvy_core::model::newer::Newer;
use divvy_core::model::node::NodeSpec;
use divvy_core::model::policy::Policy;
use divvy_core::model::queue::Queue;
use divvy_core::state::State;
use divvy_core::time::Time;

/// Devices of every node.
const DEVICES: u32 = 8;
/// The model that all waiting jobs ask for.
const BUSY: &str = "h100";
/// The model of one node in a hundred: some of it is always free.
const SPARE: &str = "l4";

/// A queue that holds nothing, and devices that are guaranteed to it: a job there takes them from the others.
const GUARANTEED: &str = "guaranteed";
/// How many devices are guaranteed to it.
pub(super) const GUARANTEED_DEVICES: u32 = 512;

/// How large a pool.
#[derive(Clone, Copy)]
pub(in crate::bench) struct Size {
    pub(in crate::bench) nodes: u32,
    pub(in crate::bench) running: u32,
    pub(in crate::bench) waiting: u32,
    pub(in crate::bench) queues: u32,
}

impl Size {
    /// So many nodes, with as many jobs on each as in the largest pool.
    pub(in crate::bench) fn of(nodes: u32) -> Self {
        Self { nodes, running: 6 * nodes, waiting: 10 * nodes, queues: (nodes / 10).clamp(1, 1000) }
    }
}

/// The pool, and what a shell would keep of it.
pub(in crate::bench) struct Site {
    pub(in crate::bench) controller: Controller,
    pub(super) dice: Dice,
    size: Size,
    now: Time,
    /// What runs, by allocation.
    running: Vec<AllocationId>,
    submitted: u64,
}

/// A series of numbers from a seed (Steele et al., "Fast splittable pseudorandom number generators", 2014: SplitMix64).
pub(in crate::bench) struct Dice(pub(in crate::bench) u64);

impl Dice {
    pub(in crate::bench) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound.max(1) as u64) as usize
    }
}

/// How many devices a waiting job asks for: each number as often as it stands here.
const ASKS: [u32; 20] = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 4, 4, 8, 8, 16];

impl Site {
    /// Makes a pool with all its nodes and queues, and nothing in them.
    fn empty(size: Size, policy: Policy) -> Result<Self> {
        let mut controller = Controller::open(State::default());
        controller.check_every(0);
        controller.keep_history(false);
        let now = Time(1_000_000);
        let mut site = Self { controller, dice: Dice(1), size, now, running: Vec::new(), submitted: 0 };
        site.command(&Command::Begin { term: Term(1), boot_id: "bench".into(), version: "bench".into() })?;
        site.command(&Command::SetPolicy(Box::new(policy), root()))?;
        let guarantee = Amount::Finite(i64::from(GUARANTEED_DEVICES) * 1000);
        let guaranteed = Queue { guarantee: [(Resource::Any, guarantee)].into(), ..Queue::named(GUARANTEED) };
        let queues =
            (0..size.queues).map(|number| Queue::named(&queue(number))).chain([guaranteed]).collect();
        site.command(&Command::SetQueues(queues, root()))?;
        for number in 0..size.nodes {
            let (node, devices) = node(number);
            site.controller.see(&Observation::Node(node, devices), now)?;
            site.controller.drain();
        }
        Ok(site)
    }

    /// Makes a pool whose devices of the busy model are all held, with jobs waiting for more of them.
    pub(in crate::bench) fn full(size: Size, policy: Policy) -> Result<Self> {
        let mut site = Self::empty(size, policy)?;
        for devices in sizes(size) {
            site.submit(devices, BUSY)?;
        }
        let spare = size.nodes.div_ceil(100);
        for _ in 0..spare {
            site.submit(DEVICES / 2, SPARE)?;
        }
        site.rest()?;
        for _ in 0..size.waiting {
            let devices = ASKS[site.dice.below(ASKS.len())];
            site.submit(devices, BUSY)?;
        }
        site.rest()?;
        Ok(site)
    }

    pub(in crate::bench) fn running(&self) -> usize {
        self.running.len()
    }

    pub(in crate::bench) fn state(&self) -> &State {
        self.controller.state()
    }

    /// Submits a job to some queue.
    pub(super) fn submit(&mut self, devices: u32, model: &str) -> Result<u64> {
        let queue = queue(self.dice.below(self.size.queues as usize) as u32);
        self.submit_to(queue, devices, model)
    }

    /// Submits a gang to which as many devices are guaranteed as it asks for.
    pub(super) fn submit_guaranteed(&mut self) -> Result<u64> {
        self.submit_to(GUARANTEED.to_owned(), GUARANTEED_DEVICES, BUSY)
    }

    fn submit_to(&mut self, queue: String, devices: u32, model: &str) -> Result<u64> {
        self.submitted += 1;
        let submit = Submit {
            owner: Owner { name: format!("user{}", self.submitted % 100), ..Owner::default() }.into(),
            spec: spec(format!("job-{}", self.submitted), queue, (devices, model)).into(),
            requeue_said: true,
            array: None,
            token: None,
            held: false,
            history: BTreeMap::new(),
        };
        let job = self.command(&Command::Submit(Box::new(submit)))?;
        job.context("a submission without a number")
    }

    /// Submits a job that asks for a spare device: it fits at once.
    pub(super) fn submit_spare(&mut self) -> Result<u64> {
        self.submit(1, SPARE)
    }

    /// Submits a job that has to wait.
    pub(super) fn submit_one_more(&mut self) -> Result<u64> {
        let devices = ASKS[self.dice.below(ASKS.len())];
        self.submit(devices, BUSY)
    }

    /// Ends the tasks of a running job chosen at random.
    pub(super) fn end_one(&mut self) -> Result<()> {
        let chosen = self.dice.below(self.running.len());
        let held = self.state().allocations.get(&self.running[chosen]).context("nothing runs")?;
        let job = held.job;
        self.end(job)
    }

    pub(super) fn end(&mut self, job: JobId) -> Result<()> {
        let live = self.state().run(job).map(|run| run.live.clone()).unwrap_or_default();
        let end = TaskEnd { at: self.now, how: EndedHow::Exited(0), ..TaskEnd::default() };
        for allocation in live {
            self.controller.see(&Observation::Ended(allocation, end.clone()), self.now)?;
            if let Some(place) = self.running.iter().position(|running| *running == allocation) {
                self.running.swap_remove(place);
            }
        }
        Ok(())
    }

    /// Cancels a job.
    pub(super) fn cancel(&mut self, job: u64) -> Result<()> {
        self.command(&Command::Cancel(JobId::single(job), root())).map(drop)
    }

    fn command(&mut self, command: &Command) -> Result<Option<u64>> {
        let answer = self.controller.take(command, self.now)?;
        Ok(answer.map_err(|rejection| anyhow!("{rejection}"))?.job)
    }

    /// Lets a second pass; returns whether something is due then.
    pub(super) fn pass_a_second(&mut self) -> bool {
        self.now = Time(self.now.0 + 1000);
        self.controller.due().is_some_and(|due| due <= self.now)
    }

    /// Plans: this is measured for each event.
    pub(super) fn cycle(&mut self) -> Result<Option<Batch>> {
        self.controller.cycle(self.now)?;
        Ok(self.controller.drain())
    }

    /// Carries out the plan and reports it as an engine would: what was placed runs, what was told to stop ends.
    pub(super) fn settle(&mut self, batch: Option<Batch>) -> Result<()> {
        let mut batch = batch;
        while let Some(Batch { commit, .. }) = batch {
            for stamped in commit.events {
                match stamped.event {
                    Event::Placed { placements, .. } => {
                        placements.iter().try_for_each(|placement| self.start(placement.allocation))?;
                    }
                    Event::Stopping { job, .. } => self.end(job)?,
                    _ => {}
                }
            }
            batch = self.controller.drain();
        }
        Ok(())
    }

    fn start(&mut self, allocation: AllocationId) -> Result<()> {
        let start = TaskStart { at: self.now, ..TaskStart::default() };
        self.controller.see(&Observation::Started(allocation, start), self.now)?;
        self.running.push(allocation);
        Ok(())
    }

    /// Plans and carries out the plans, until nothing more follows.
    pub(super) fn rest(&mut self) -> Result<()> {
        while let Some(batch) = self.cycle()? {
            self.settle(Some(batch))?;
            self.pass_a_second();
        }
        Ok(())
    }
}

fn root() -> Person {
    Person::administrator("root")
}

fn queue(number: u32) -> String {
    format!("department{}/team{}", number / 25, number % 25)
}

fn node(number: u32) -> (NodeSpec, Vec<DeviceSpec>) {
    let model = if number.is_multiple_of(100) { SPARE } else { BUSY };
    let device = |index| DeviceSpec {
        uuid: format!("GPU-{number}-{index}"),
        index,
        model: model.into(),
        product: model.to_uppercase(),
        memory_mib: 81_559,
        nominal_gb: Some(80),
        numa: Some(index / 4),
        ..DeviceSpec::default()
    };
    let spec = NodeSpec {
        name: format!("node-{number:05}"),
        cpu_milli: 192_000,
        memory_bytes: 2 << 40,
        ..NodeSpec::default()
    };
    (spec, (0..DEVICES).map(device).collect())
}

/// What the running jobs hold: the large ones first, so that together they fill the pool exactly.
fn sizes(size: Size) -> Vec<u32> {
    let devices = (size.nodes - size.nodes.div_ceil(100)) * DEVICES;
    let mut left = devices;
    let mut jobs = size.running;
    let mut sizes = Vec::new();
    for (each, part) in [(8, 60), (4, 30), (2, 9)] {
        for _ in 0..size.running / part {
            if left < each + jobs {
                break;
            }
            sizes.push(each);
            (left, jobs) = (left - each, jobs - 1);
        }
    }
    // As many twos and ones as come out even.
    let twos = left.saturating_sub(jobs);
    sizes.extend((0..twos).map(|_| 2));
    sizes.extend((0..left - 2 * twos).map(|_| 1));
    sizes
}

fn spec(name: String, queue: String, (devices, model): (u32, &str)) -> JobSpec {
    let (tasks, each) = if devices > DEVICES { (devices / DEVICES, DEVICES) } else { (1, devices) };
    let class = DeviceClass { models: [model.to_owned()].into_iter().collect(), ..DeviceClass::default() };
    let devices = Some(DeviceAsk { class, count: each, draw: DrawAsk::Whole, island: Default::default() });
    let ask = Alternative { devices, speed_percent: 100, ..Alternative::default() };
    let process = Process { argv: vec!["python".into(), "train.py".into()], ..Process::default() };
    JobSpec {
        name,
        queue,
        project: None,
        kind: Kind::Train,
        labels: BTreeMap::new(),
        priority: 0,
        preemptible: true,
        resumable: true,
        lifetime: Lifetime::Batch,
        gang: Group::Role(Role {
            name: "main".into(),
            minimum: tasks,
            maximum: tasks,
            ask: Ask::of(vec![ask]),
            work: Work::Process(process),
            topology: None,
            spread: Newer::default(),
        })
        .into(),
        time_limit: None,
        estimate: None,
        requeue: Requeue::Lost,
        most_restarts: usual_restarts(),
        after: Vec::new(),
        start_after: None,
        stop: StopOrder::default(),
        checkpoint: None,
        wait_for_capacity: true,
        exclusive: false,
        seat: Newer::default(),
        kept_to: Newer::default(),
        deadline: Newer::default(),
        preempts: Newer::default(),
    }
}
