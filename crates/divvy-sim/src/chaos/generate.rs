//! Lives from seeds: a pool, its queues and settings, a load that it just about bears, and faults in between.

use std::collections::BTreeMap;

use divvy_core::amount::Amount;
use divvy_core::model::borrowing::BorrowEvicts;
use divvy_core::model::job::{DependsOn, Requeue, priority};
use divvy_core::model::newer::Newer;
use divvy_core::model::policy::{
    Attained, Foreseen, Length, Order, Policy, Preempt, Reclaim, Share, Shortest, Straddling, Within,
    WithinQueue,
};
use divvy_core::model::prices::{Price, Prices};
use divvy_core::model::queue::{Budget, Period, Pledge, Queue, Users};
use divvy_core::time::Span;

use super::calendar::Kept;
use super::company::{Company, name_racks, spread};
use super::islands;
use super::life::{Blow, Crash, JobLine, Life, NodeLine, Step, What, node_name, user_name};
use super::pools;
use crate::dice::Dice;

/// How many events a step causes on average: a job has about seven, a cycle one or two.
const EVENTS_PER_STEP: u64 = 5;

/// Returns a life of about this many events.
pub fn life(seed: u64, events: u64) -> Life {
    // Consecutive seeds should have nothing in common.
    let mut dice = Dice::new(seed.wrapping_mul(0xd134_2543_de82_ef95) ^ 0x0064_6976_7679);
    let mut nodes = nodes(&mut dice);
    let says_more = seed % 8 >= 6;
    // Loans have dice of their own, so that the lives before them stay what they were.
    let mut loans = (seed % 8 == 5).then(|| Dice::new(seed));
    // Likewise what jobs want of each other.
    let mut company = (seed % 8 == 4).then(|| Dice::new(seed));
    company.iter_mut().for_each(|dice| name_racks(dice, &mut nodes));
    // And of how many devices of which models they would rather have: in lives of every kind.
    let ways = (seed % 5 == 3).then(|| Dice::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    // Likewise how devices are joined, and which of these jobs want: in lives of every kind, too.
    let mut islands = (seed % 7 == 6).then(|| Dice::new(seed.wrapping_mul(0xa076_1d64_78bd_642f)));
    islands.iter_mut().for_each(|dice| islands::join(dice, &mut nodes));
    // And of how they are spread.
    let mut spreads = (seed % 7 == 6).then(|| Dice::new(seed.wrapping_mul(0xbf58_476d_1ce4_e5b9)));
    let unnamed = spreads.iter_mut().filter(|_| company.is_none());
    unnamed.for_each(|dice| name_racks(dice, &mut nodes));
    // And which queues have nodes of their own.
    let mut pools = pools::dice(seed);
    let mut queues = queues(&mut dice, says_more, &mut loans);
    pools.iter_mut().for_each(|dice| pools::keep(dice, &mut queues, nodes.len() as u32));
    let mut maker = Maker {
        queues,
        says_more,
        loans,
        priorities: (seed % 8 == 4).then(|| Dice::new(!seed)),
        pools,
        company,
        ways,
        islands,
        spreads,
        policy: policy(&mut dice, says_more),
        devices: nodes.iter().map(|node| i64::from(node.devices)).sum::<i64>().max(1),
        load_percent: dice.between(60, 130),
        trouble_percent: *dice.one_of(&[0, 5, 15, 30]),
        nodes,
        dice,
        now_ms: 0,
        lines: 0,
        steps: Vec::new(),
    };
    let (policy, queues) = (maker.policy.clone(), maker.queues.clone());
    while (maker.steps.len() as u64) < (events / EVENTS_PER_STEP).max(1) {
        maker.step();
    }
    let mut steps = maker.steps;
    steps.sort_by_key(|step| step.at_ms);
    // In some of all kinds of life the daemon is slow now and then.
    let mut busy = Dice::new(seed.wrapping_mul(0xe703_7ed1_a0b4_28db));
    let busy_percent = if matches!(seed % 9, 0 | 6) { *busy.one_of(&[20, 50, 80]) } else { 0 };
    Life { seed, story: String::new(), nodes: maker.nodes, policy, queues, busy_percent, steps }
}

fn nodes(dice: &mut Dice) -> Vec<NodeLine> {
    let count = *dice.one_of(&[1, 1, 2, 3, 4, 6]);
    let node = |dice: &mut Dice| NodeLine {
        devices: *dice.one_of(&[0, 1, 2, 4, 8, 8, 8]),
        model: (*dice.one_of(&["h100", "h100", "a100"])).to_owned(),
        cores: *dice.one_of(&[8, 32, 64]),
        memory_gib: *dice.one_of(&[64, 256, 512]),
        rack: None,
        joined: None,
    };
    (0..count).map(|_| node(dice)).collect()
}

fn queues(dice: &mut Dice, says_more: bool, loans: &mut Option<Dice>) -> Vec<Queue> {
    let trees = ["default", "default a b", "default a a/x a/y b", "default t t/a t/a/x t/b"];
    let paths = *dice.one_of(&trees);
    let mut queues: Vec<Queue> = paths.split(' ').map(|path| queue(dice, path, says_more)).collect();
    loans.iter_mut().for_each(|dice| lend(dice, &mut queues));
    queues
}

/// Lets queues say what they lend and borrow, and whose devices their jobs may take.
fn lend(dice: &mut Dice, queues: &mut [Queue]) {
    for queue in queues {
        let resource = *dice.one_of(&["any", "any", "any", "h100", "cpu"]);
        let most = if resource == "cpu" { 64 } else { 8 };
        if dice.percent(60) {
            queue.lend.insert(resource.into(), Amount::Finite(dice.between(0, most) * 1000));
        }
        if dice.percent(60) {
            queue.borrow.insert(resource.into(), Amount::Finite(dice.between(0, most) * 1000));
        }
        if dice.percent(30) {
            queue.guarantee.insert(resource.into(), Amount::Finite(dice.between(0, most) * 1000));
        }
        queue.within_queue = *dice.one_of(&[None, Some(WithinQueue::Never), Some(WithinQueue::LowerOrNewer)]);
        queue.reclaim = *dice.one_of(&[None, None, Some(Reclaim::Any), Some(Reclaim::Never)]);
        let by_priority = BorrowEvicts::lower(*dice.one_of(&[None, Some(priority::NORMAL)]));
        let or_due = BorrowEvicts { due: true, ..by_priority };
        let rights = [BorrowEvicts::DUE, BorrowEvicts::NEVER, by_priority, or_due].map(Some);
        queue.borrow_evicts = if dice.percent(30) { None } else { *dice.one_of(&rights) };
    }
}

fn queue(dice: &mut Dice, path: &str, says_more: bool) -> Queue {
    let mut queue = Queue::named(path);
    if path != "default" && dice.percent(60) {
        queue.limit.insert("any".into(), Amount::Finite(dice.between(1, 12) * 1000));
    }
    if dice.percent(10) {
        queue.limit.insert("cpu".into(), Amount::Finite(dice.between(4, 64) * 1000));
    }
    if dice.percent(10) {
        queue.limit.insert("h100".into(), Amount::Finite(dice.between(0, 8) * 1000));
    }
    if dice.percent(10) {
        queue.limit.insert("memory".into(), Amount::Finite(dice.between(16, 512) << 30));
    }
    if dice.percent(40) {
        queue.guarantee.insert("any".into(), Amount::Finite(dice.between(1, 8) * 1000));
    }
    // In queue `b` no job may be urgent.
    queue.bounds.max_priority = (path != "b").then_some(priority::URGENT);
    queue.requeue = *dice.one_of(&[Requeue::Lost, Requeue::Lost, Requeue::Never, Requeue::Failure]);
    if says_more {
        say_more(dice, &mut queue);
    }
    queue
}

/// Settings that came later: only some lives have them, so that the others stay what they were.
fn say_more(dice: &mut Dice, queue: &mut Queue) {
    if dice.percent(60) {
        let mut users = Users::default();
        users.weight.insert(user_name(0), dice.below(4) as u32);
        if dice.percent(50) {
            users.limit.insert("any".into(), Amount::Finite(dice.between(1, 6) * 1000));
        }
        queue.users = Newer(Some(users));
    }
    if dice.percent(40) {
        let every = *dice.one_of(&[Period::Span(Span::seconds(3600)), Period::Day]);
        let carry_milli = *dice.one_of(&[Some(0), Some(500), None]);
        queue.budget = Newer(Some(Budget { milli_gpu_hours: dice.between(0, 8000), every, carry_milli }));
    }
    // Without the dice, so that everything else stays what it was.
    if queue.requeue != Requeue::Lost {
        let milli_gpu_hours = 2000 * (1 + queue.path.len() as i64);
        queue.pledge = Newer(Some(Pledge { milli_gpu_hours, every: Period::Span(Span::seconds(3600)) }));
    }
}

fn policy(dice: &mut Dice, says_more: bool) -> Policy {
    let mut policy = first_policy(dice);
    if says_more && policy.preempt != Preempt::Off && dice.percent(60) {
        let after_ms = *dice.one_of(&[600_000, 3_600_000]);
        policy.starve_after_ms = Newer(Some(after_ms));
        policy.quantum_ms = Newer(*dice.one_of(&[None, Some(300_000)]));
    }
    if says_more && dice.percent(40) {
        policy.cool_down_ms = Newer(*dice.one_of(&[None, Some(60_000), Some(1_800_000)]));
        policy.most_restarts = Newer(*dice.one_of(&[None, Some(0), Some(2)]));
    }
    // Without the dice, too.
    if says_more && policy.reserve.is_multiple_of(2) {
        let prices =
            [("h100", 2_900), ("a100", 1_100)].map(|(model, milli)| (model.to_owned(), Price(milli)));
        policy.prices = Newer(Some(Prices(prices.into())));
    }
    if says_more && policy.step_ms == 60_000 {
        policy.straddling = Newer(Some(Straddling::Due));
    }
    policy
}

/// The settings that policies had at first.
fn first_policy(dice: &mut Dice) -> Policy {
    // The usage history ticks by the minute, and a life lasts for days: not all lives keep one.
    let usual = Policy { half_life_ms: 0, ..Policy::default() };
    if dice.percent(40) {
        return usual;
    }
    let mut policy = Policy {
        order: *dice.one_of(&[Order::Arrival, Order::Shortest, Order::Attained]),
        shortest: Shortest {
            of: *dice.one_of(&[Length::Whole, Length::Remaining]),
            by_devices: dice.percent(50),
        },
        attained: Attained {
            levels_device_ms: dice.one_of(&[vec![], vec![60_000], vec![60_000, 600_000, 6_000_000]]).clone(),
            head_start_ms: *dice.one_of(&[0, 60_000]),
            within: *dice.one_of(&[Within::Submit, Within::Turn, Within::AgePerDevice]),
            hold_ms: *dice.one_of(&[0, 0, 300_000]),
            // Jobs with an estimate from their user have an outlook, the others none: both stand in one line.
            foreseen: Foreseen { levels_device_ms: vec![60_000, 600_000, 6_000_000], hold_ms: 300_000 },
        },
        strict: dice.percent(20),
        share: *dice.one_of(&[Share::None, Share::Fill, Share::Fill, Share::Dominant]),
        preempt: *dice.one_of(&[Preempt::Off, Preempt::Walk, Preempt::Walk, Preempt::LeastLoss]),
        within_queue: *dice.one_of(&[WithinQueue::Lower, WithinQueue::Lower, WithinQueue::Never]),
        reclaim: *dice.one_of(&[Reclaim::Any, Reclaim::Any, Reclaim::Lower, Reclaim::Never]),
        min_runtime_ms: *dice.one_of(&[0, 0, 600_000]),
        guarantees_first: dice.percent(30),
        borrowers_run_on: dice.percent(50),
        ageing_ms_per_point: *dice.one_of(&[usual.ageing_ms_per_point, 0, 1000]),
        step_ms: *dice.one_of(&[1000, 60_000]),
        shares: dice.percent(30),
        elastic: true,
        most_moves: *dice.one_of(&[0, 1, 4]),
        speedup_percent: *dice.one_of(&[0, 30, 30]),
        ..usual
    };
    if policy.preempt == Preempt::LeastLoss {
        policy.half_life_ms = 3_600_000;
    }
    policy
}

/// How fast a job is on the models that there are.
fn speed(dice: &mut Dice) -> BTreeMap<String, u32> {
    let mut speed = |model: &str| (model.to_owned(), *dice.one_of(&[20, 50, 90, 100]));
    [speed("h100"), speed("a100")].into()
}

/// Models in order of preference, and how many of each: for some jobs.
fn ways(dice: &mut Dice) -> Vec<(String, u32)> {
    let models = *dice.one_of(&["", "", "h100 a100", "a100 h100", "h100 b200 a100"]);
    let mut way = |model: &str| (model.to_owned(), *dice.one_of(&[1, 1, 2, 3, 4, 8]));
    models.split_whitespace().map(&mut way).collect()
}

/// Makes step after step.
struct Maker {
    dice: Dice,
    nodes: Vec<NodeLine>,
    queues: Vec<Queue>,
    /// Decides what queues lend, if they do in this life.
    loans: Option<Dice>,
    /// Decides other priorities for jobs, if lives have them.
    priorities: Option<Dice>,
    /// Decides which queues have nodes of their own, if any do in this life.
    pools: Option<Dice>,
    /// Decides what jobs want of each other, if they do in this life.
    company: Option<Dice>,
    /// Decides how many devices of which models jobs prefer, if they do in this life.
    ways: Option<Dice>,
    /// Decides in which islands of a node jobs want to lie, if they do in this life.
    islands: Option<Dice>,
    /// Decides how jobs are spread, if they are in this life.
    spreads: Option<Dice>,
    /// Whether its queues have the settings that came later, too.
    says_more: bool,
    policy: Policy,
    devices: i64,
    load_percent: i64,
    trouble_percent: u64,
    now_ms: i64,
    lines: u32,
    steps: Vec<Step>,
}

impl Maker {
    fn step(&mut self) {
        if self.dice.percent(self.trouble_percent) {
            return self.trouble();
        }
        match self.dice.below(100) {
            0..70 => self.submit(),
            70..80 => self.change(),
            80..82 => self.settings(),
            82..84 if self.dice.percent(40) => self.keep(),
            82..84 => {
                let (after, on) = (self.dice.between(1000, 600_000), self.dice.percent(20));
                let node = self.node();
                let drain = |on| if node == 0 { What::Drain(on) } else { What::DrainNode(node - 1, on) };
                self.push(0, drain(true));
                // Sometimes it is taken back only the second time.
                self.push(after, drain(on));
                self.push(after * 2, drain(false));
            }
            _ => {
                let after = self.dice.between(0, 120_000);
                self.now_ms += after;
                self.push(0, What::Nothing);
            }
        }
    }

    /// Keeps something on the calendar: for maintenance, or for a queue.
    fn keep(&mut self) {
        let node = self.node();
        let name = if node == 0 { 0 } else { node - 1 };
        let dice = &mut self.dice;
        let queue = if dice.percent(50) { Some(dice.one_of(&self.queues).path.clone()) } else { None };
        let target = match dice.below(3) {
            0 if queue.is_some() => None,
            0 | 1 => Some(node_name(name)),
            _ => Some(format!("{}:{}", node_name(name), dice.below(4))),
        };
        let after_ms = if dice.percent(40) { 0 } else { dice.between(1000, 1_800_000) };
        let for_ms = if dice.percent(80) { Some(dice.between(1000, 3_600_000)) } else { None };
        let (devices, evicts) = (dice.between(1, 6) as u32, queue.is_some() || dice.percent(60));
        let kept = Kept { queue, target, devices, after_ms, for_ms, evicts };
        self.push(0, What::Keep(Box::new(kept)));
    }

    fn push(&mut self, after_ms: i64, what: What) {
        self.steps.push(Step { at_ms: self.now_ms + after_ms, what });
    }

    /// Submits a job, and waits for the next: about as long as the pool takes for it.
    fn submit(&mut self) {
        let job = self.job();
        let members = match job.array.as_deref() {
            Some(text) => {
                text.parse().map_or(1, |array| divvy_core::model::members::Members::of(&array).len() as i64)
            }
            None => 1,
        };
        let device_ms = job.work_ms * i64::from(job.gpus.max(1) * job.tasks) * members;
        let pause = device_ms * 100 / self.devices / self.load_percent;
        self.push(0, What::Submit(Box::new(job)));
        // Bursts now and then.
        if !self.dice.percent(20) {
            self.now_ms += self.dice.between(0, 2 * pause);
        }
    }

    fn job(&mut self) -> JobLine {
        self.lines += 1;
        let company = self.company.as_mut().and_then(Company::of);
        let ways = self.ways.as_mut().map(ways).unwrap_or_default();
        let island = self.islands.as_mut().and_then(islands::wish);
        let spread = self.spreads.as_mut().and_then(spread);
        let dice = &mut self.dice;
        let percent = |dice: &mut Dice, percent| dice.percent(percent);
        let work_ms = match dice.below(10) {
            0 => 0,
            1..5 => dice.between(1000, 60_000),
            5..9 => dice.between(60_000, 1_200_000),
            _ => dice.between(1_200_000, 7_200_000),
        };
        let array = percent(dice, 8).then(|| {
            let last = dice.between(0, 12);
            let most = if dice.percent(60) { format!("%{}", dice.between(1, 4)) } else { String::new() };
            format!("0-{last}{most}")
        });
        let after = (self.lines > 1 && percent(dice, 8)).then(|| {
            let back = dice.between(1, i64::from(self.lines - 1).min(10));
            let line = self.lines - u32::try_from(back).unwrap_or(1);
            (line, *dice.one_of(&[DependsOn::Ok, DependsOn::Ok, DependsOn::Fail, DependsOn::Any]))
        });
        let token = percent(dice, 3).then(|| format!("t{}", dice.below(4)));
        let line = JobLine {
            line: self.lines,
            user: dice.below(4) as u32,
            queue: dice.one_of(&self.queues).path.clone(),
            gpus: *dice.one_of(&[0, 1, 1, 1, 1, 2, 2, 4, 8]),
            tasks: *dice.one_of(&[1, 1, 1, 1, 1, 1, 2, 3, 8]),
            work_ms,
            exit_code: if percent(dice, 12) { 1 } else { 0 },
            milli: if percent(dice, 8) { *dice.one_of(&[100, 250, 500, 700]) } else { 0 },
            model: percent(dice, 20).then(|| (*dice.one_of(&["h100", "a100", "b200"])).to_owned()),
            cores: percent(dice, 15).then(|| dice.between(1, 40)),
            memory_gib: percent(dice, 15).then(|| dice.between(1, 128)),
            priority: *dice.one_of(&[0, 0, 0, 0, 100, -100, 1000]),
            array,
            limit_ms: percent(dice, 15).then(|| dice.between(1000, 1_800_000)),
            requeue: percent(dice, 30)
                .then(|| *dice.one_of(&[Requeue::Never, Requeue::Lost, Requeue::Failure])),
            after,
            start_in_ms: percent(dice, 5).then(|| dice.between(0, 1_200_000)),
            estimate_ms: percent(dice, 50).then(|| dice.between(1, work_ms.max(1) * 2)),
            token,
            resumes: percent(dice, 50),
            held: percent(dice, 4),
            waits: percent(dice, 20),
            exclusive: percent(dice, 4),
            stays: percent(dice, 20),
            more_tasks: if percent(dice, 20) { *dice.one_of(&[1, 2, 4]) } else { 0 },
            speed: if percent(dice, 20) { speed(dice) } else { BTreeMap::new() },
            company,
            ways,
            island,
            spread: None,
        };
        match spread {
            Some((tasks, spread)) => JobLine { tasks, spread: Some(spread), ..line },
            None => line,
        }
    }

    /// A user cancels, holds or releases one of the latest jobs.
    fn change(&mut self) {
        if self.lines == 0 {
            return;
        }
        let dice = &mut self.dice;
        let back = dice.between(0, i64::from(self.lines - 1).min(30));
        let line = self.lines - u32::try_from(back).unwrap_or(0);
        let member = dice.percent(20).then(|| dice.below(6) as u32);
        let admin = dice.percent(70);
        let what = match dice.below(4) {
            0 | 1 => What::Cancel(line, member, admin),
            2 => What::Hold(line, member, admin),
            _ => What::Release(line, member, admin),
        };
        self.push(0, what);
        if let Some(dice) = &mut self.priorities
            && dice.percent(60)
        {
            let line = self.lines - (dice.between(0, i64::from(self.lines - 1).min(30)) as u32);
            let to =
                [priority::LOW, priority::NORMAL, priority::HIGH, priority::URGENT][dice.below(4) as usize];
            let what = What::Prioritise(line, to, dice.percent(50));
            self.push(0, what);
        }
    }

    fn settings(&mut self) {
        if self.dice.percent(50) {
            self.policy = policy(&mut self.dice, self.says_more);
            let policy = Box::new(self.policy.clone());
            return self.push(0, What::Policy(policy));
        }
        let paths: Vec<String> = self.queues.iter().map(|queue| queue.path.clone()).collect();
        self.queues = paths.iter().map(|path| queue(&mut self.dice, path, self.says_more)).collect();
        self.loans.iter_mut().for_each(|dice| lend(dice, &mut self.queues));
        let nodes = self.nodes.len() as u32;
        self.pools.iter_mut().for_each(|dice| pools::keep(dice, &mut self.queues, nodes));
        let queues = self.queues.clone();
        self.push(0, What::Queues(queues));
    }

    fn node(&mut self) -> u32 {
        self.dice.below(self.nodes.len() as u64) as u32
    }

    fn trouble(&mut self) {
        let node = self.node();
        let place = self.dice.below(8) as u32;
        let later = self.dice.between(1000, 1_200_000);
        let few = self.dice.between(1, 6) as u32;
        match self.dice.below(14) {
            0 => self.push(0, What::Crash(Crash::BeforeCommit)),
            1 => self.push(0, What::Crash(Crash::AfterActions(few - 1))),
            2 => self.push(0, What::DiskFull),
            3 => {
                self.push(0, What::NodeDies(node));
                self.push(later, What::NodeReturns(node));
            }
            4 => {
                self.push(0, What::DeviceDies(node, place));
                self.push(later, What::DeviceHeals(node, place));
            }
            5 => {
                self.push(0, What::DeviceVanishes(node, place));
                self.push(later, What::DeviceHeals(node, place));
            }
            6 => {
                self.push(0, What::DeviceTaken(node, place));
                self.push(later, What::DeviceHeals(node, place));
            }
            7 => self.push(0, What::LaunchesFail(few)),
            8 => {
                self.push(0, What::AnswersLost(few));
                self.push(later, What::Crash(Crash::BeforeCommit));
            }
            9 => self.push(0, What::AnswersDoubled(few)),
            10 => self.push(0, What::AnswersLate(few, later)),
            11 => {
                let nth = self.dice.any();
                self.push(0, What::Struck(nth, Blow::Exit(few as i32)));
            }
            12 => {
                let (nth, signal) = (self.dice.any(), *self.dice.one_of(&[9, 11, 15]));
                self.push(0, What::Struck(nth, Blow::Signal(signal)));
            }
            _ => {
                let nth = self.dice.any();
                let blow = *self.dice.one_of(&[Blow::OutOfMemory, Blow::SupervisorLost]);
                self.push(0, What::Struck(nth, blow));
            }
        }
    }
}
