//! Faults for the simulated engine: nodes and devices die, launches fail, tasks are struck down, answers are lost, doubled or late.
//! Apart from that the engine keeps its contract: after a restart it reports again whatever is not forgotten.

use std::collections::{BTreeMap, BTreeSet};

use divvy_core::action::{Action, Launch};
use divvy_core::engine::{Abilities, EndedHow, Engine, LaunchFailure, Observation};
use divvy_core::id::{AllocationId, Term};
use divvy_core::model::device::{DeviceSpec, Health, Occupant};
use divvy_core::model::node::NodeSpec;
use divvy_core::time::{Span, Time};

use crate::engine::SimulatedEngine;

/// What happens to the next answers of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// How many are lost; a restart tells them again.
    pub lost: u32,
    /// How many come twice.
    pub doubled: u32,
    /// How many come late, and by how many milliseconds.
    pub late: (u32, i64),
}

/// A simulated engine with faults, and the hardware below it.
#[derive(Debug)]
pub struct FaultyEngine {
    inner: SimulatedEngine,
    now: Time,
    nodes: Vec<Host>,
    answers: Answers,
    /// How many of the next launches fail.
    launches_fail: u32,
    late: BTreeMap<(Time, u64), Observation>,
    count: u64,
    told: Vec<Observation>,
    tasks: BTreeMap<AllocationId, Running>,
    xids: BTreeMap<AllocationId, u64>,
    /// Things that must not happen, and did: a device given to two tasks at once.
    wrongs: Vec<String>,
}

/// A node as it really is, whatever the pool knows of it.
#[derive(Clone, Debug)]
struct Host {
    spec: NodeSpec,
    devices: Vec<DeviceSpec>,
    up: bool,
    /// Devices that are not seen, by place.
    missing: BTreeSet<usize>,
    /// Devices that do not work, or that someone else uses, by place.
    unwell: BTreeMap<usize, (Health, Option<Occupant>)>,
}

/// A task that was launched: where, and on what.
#[derive(Clone, Debug)]
struct Running {
    node: String,
    devices: Vec<(String, u32)>,
}

impl FaultyEngine {
    /// Returns an engine that runs on these nodes; it reports them at once.
    pub fn new(inner: SimulatedEngine, now: Time, nodes: Vec<(NodeSpec, Vec<DeviceSpec>)>) -> Self {
        let host = |(spec, devices)| Host {
            spec,
            devices,
            up: true,
            missing: BTreeSet::new(),
            unwell: BTreeMap::new(),
        };
        let mut engine = Self {
            inner,
            now,
            nodes: nodes.into_iter().map(host).collect(),
            answers: Answers::default(),
            launches_fail: 0,
            late: BTreeMap::new(),
            count: 0,
            told: Vec::new(),
            tasks: BTreeMap::new(),
            xids: BTreeMap::new(),
            wrongs: Vec::new(),
        };
        (0..engine.nodes.len()).for_each(|node| engine.tell_node(node));
        engine
    }

    /// The engine without faults.
    pub fn inner(&mut self) -> &mut SimulatedEngine {
        &mut self.inner
    }

    /// Returns when something next happens by itself.
    pub fn next_due(&self) -> Option<Time> {
        let late = self.late.keys().next().map(|(at, _)| *at);
        [late, self.inner.next_due()].into_iter().flatten().min()
    }

    /// Lets time pass.
    pub fn advance_to(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.inner.advance_to(self.now);
    }

    /// Restarts the daemon: what was on its way to the old one is lost, and everything known is reported again.
    pub fn restart(&mut self, term: Term) {
        self.late.clear();
        self.told.clear();
        let _ = self.inner.observe();
        for node in 0..self.nodes.len() {
            self.tell_node(node);
            (0..self.nodes[node].devices.len()).for_each(|place| self.tell_device(node, place));
        }
        self.inner.restart(term);
    }

    /// Sets what happens to the next answers.
    pub fn set_answers(&mut self, answers: Answers) {
        self.answers = answers;
    }

    /// Makes this many of the next launches fail.
    pub fn fail_launches(&mut self, count: u32) {
        self.launches_fail = count;
    }

    /// Takes a node down, with all that runs on it.
    pub fn kill_node(&mut self, node: usize) {
        let Some(host) = self.nodes.get_mut(node).filter(|host| host.up) else { return };
        host.up = false;
        let name = host.spec.name.clone();
        let struck = self.running(|task| task.node == name);
        struck.into_iter().for_each(|id| self.inner.strike(id, EndedHow::NodeReboot));
        self.tell_node(node);
    }

    /// Brings a node back, started anew.
    pub fn raise_node(&mut self, node: usize) {
        let Some(host) = self.nodes.get_mut(node).filter(|host| !host.up) else { return };
        host.up = true;
        host.spec.boot_id.push('\'');
        self.tell_node(node);
    }

    /// Breaks a device; what runs on it ends with an error of the device.
    pub fn break_device(&mut self, node: usize, place: usize) {
        let Some(uuid) = self.uuid(node, place) else { return };
        for id in self.running(|task| task.devices.iter().any(|(device, _)| *device == uuid)) {
            self.xids.insert(id, 79);
            self.inner.strike(id, EndedHow::Signalled(9));
        }
        self.set_device(node, place, (Health::Down("Xid 79: fallen off the bus".into()), None));
    }

    /// Has someone outside the pool use a device.
    pub fn occupy_device(&mut self, node: usize, place: usize) {
        let (user, command) = ("eve".to_owned(), "python".to_owned());
        let occupant = Occupant::Process { pid: 7, user, command, memory_mib: 900 };
        self.set_device(node, place, (Health::Ok, Some(occupant)));
    }

    /// Makes a device work again, for the pool alone.
    pub fn heal_device(&mut self, node: usize, place: usize) {
        if let Some(host) = self.nodes.get_mut(node)
            && host.missing.remove(&place)
        {
            self.tell_node(node);
        }
        self.set_device(node, place, (Health::Ok, None));
    }

    /// Makes a device disappear.
    pub fn lose_device(&mut self, node: usize, place: usize) {
        let Some(uuid) = self.uuid(node, place) else { return };
        for id in self.running(|task| task.devices.iter().any(|(device, _)| *device == uuid)) {
            self.inner.strike(id, EndedHow::Signalled(9));
        }
        if let Some(host) = self.nodes.get_mut(node) {
            host.missing.insert(place);
        }
        self.tell_node(node);
    }

    /// Ends all faults: every node and device is there and works.
    pub fn heal_all(&mut self) {
        self.answers = Answers::default();
        self.launches_fail = 0;
        for node in 0..self.nodes.len() {
            self.raise_node(node);
            (0..self.nodes[node].devices.len()).for_each(|place| self.heal_device(node, place));
        }
    }

    /// Ends one of the running tasks from outside: the n-th, counting round and round.
    pub fn strike(&mut self, nth: u64, how: EndedHow) {
        let running = self.running(|_| true);
        let count = running.len() as u64;
        if let Some(id) = running.get(usize::try_from(nth.checked_rem(count).unwrap_or(0)).unwrap_or(0)) {
            self.inner.strike(*id, how);
        }
    }

    /// Returns the things that must not happen, and did since the last call.
    pub fn take_wrongs(&mut self) -> Vec<String> {
        std::mem::take(&mut self.wrongs)
    }

    /// The tasks that run.
    pub fn live(&self) -> Vec<AllocationId> {
        self.inner.live().collect()
    }

    fn uuid(&self, node: usize, place: usize) -> Option<String> {
        Some(self.nodes.get(node)?.devices.get(place)?.uuid.clone())
    }

    fn running(&self, of: impl Fn(&Running) -> bool) -> Vec<AllocationId> {
        self.inner.live().filter(|id| self.tasks.get(id).is_some_and(&of)).collect()
    }

    /// Reports a node; one that is down shows no device.
    fn tell_node(&mut self, node: usize) {
        let host = &self.nodes[node];
        let there = |(place, _): &(usize, &DeviceSpec)| host.up && !host.missing.contains(place);
        let devices = host.devices.iter().enumerate().filter(there).map(|(_, device)| device.clone());
        let seen = Observation::Node(host.spec.clone(), devices.collect());
        self.told.push(seen);
    }

    fn set_device(&mut self, node: usize, place: usize, how: (Health, Option<Occupant>)) {
        if let Some(host) = self.nodes.get_mut(node) {
            host.unwell.insert(place, how);
            self.tell_device(node, place);
        }
    }

    /// Reports a device, unless it is missing or its node is down.
    fn tell_device(&mut self, node: usize, place: usize) {
        let Some(host) = self.nodes.get(node).filter(|host| host.up && !host.missing.contains(&place)) else {
            return;
        };
        let Some(device) = host.devices.get(place) else { return };
        let (health, occupant) = host.unwell.get(&place).cloned().unwrap_or((Health::Ok, None));
        self.told.push(Observation::Device { uuid: device.uuid.clone(), health, occupant });
    }

    fn launch(&mut self, id: AllocationId, launch: &Launch) {
        let known = self.inner.live().any(|live| live == id);
        let up = self.nodes.iter().any(|host| host.up && host.spec.name == launch.node);
        if known && !self.tasks.contains_key(&id) {
            let devices =
                launch.devices.iter().map(|device| (device.uuid.clone(), device.draw.milli)).collect();
            let task = Running { node: launch.node.clone(), devices };
            self.no_device_twice(id, &task);
            self.tasks.insert(id, task);
            if !up {
                self.fail(id, "the node does not answer");
            } else if self.launches_fail > 0 {
                self.launches_fail -= 1;
                self.fail(id, "out of luck");
            }
        }
    }

    fn fail(&mut self, id: AllocationId, why: &str) {
        self.inner.strike(id, EndedHow::LaunchFailed(LaunchFailure::Other(why.into())));
    }

    fn no_device_twice(&mut self, id: AllocationId, task: &Running) {
        for (uuid, milli) in &task.devices {
            let drawn = |running: &Running| {
                running.devices.iter().find(|(other, _)| other == uuid).map(|(_, milli)| *milli)
            };
            let others: u32 = self
                .inner
                .live()
                .filter(|live| *live != id)
                .filter_map(|live| drawn(self.tasks.get(&live)?))
                .sum();
            if others + milli > 1000 {
                self.wrongs.push(format!(
                    "allocation {id} was launched on device {uuid}, of which {others} milli are in use"
                ));
            }
        }
    }

    /// Passes an answer on, or loses, delays or doubles it.
    fn answer(&mut self, observation: Observation, out: &mut Vec<Observation>) {
        let mut observation = observation;
        if let Observation::Ended(id, end) = &mut observation {
            end.usage.xid = self.xids.get(id).copied();
        }
        if !matches!(observation, Observation::Started(..) | Observation::Ended(..)) {
            return out.push(observation);
        }
        if self.answers.lost > 0 {
            self.answers.lost -= 1;
        } else if self.answers.late.0 > 0 {
            self.answers.late.0 -= 1;
            self.count += 1;
            self.late.insert((self.now + Span(self.answers.late.1), self.count), observation);
        } else {
            if self.answers.doubled > 0 {
                self.answers.doubled -= 1;
                out.push(observation.clone());
            }
            out.push(observation);
        }
    }
}

impl Engine for FaultyEngine {
    fn submit(&mut self, actions: &[Action]) {
        for action in actions {
            self.inner.submit(std::slice::from_ref(action));
            match action {
                Action::Launch(fence, launch) => self.launch(fence.allocation, launch),
                Action::Forget(fence) => {
                    self.tasks.remove(&fence.allocation);
                    self.xids.remove(&fence.allocation);
                }
                Action::Bind(..) | Action::Stop(..) => {}
            }
        }
    }

    fn observe(&mut self) -> Vec<Observation> {
        let mut out = std::mem::take(&mut self.told);
        for observation in self.inner.observe() {
            self.answer(observation, &mut out);
        }
        while let Some(entry) = self.late.first_entry().filter(|entry| entry.key().0 <= self.now) {
            out.push(entry.remove());
        }
        out
    }

    fn abilities(&self) -> Abilities {
        self.inner.abilities()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Costs, Course};
    use divvy_core::contract::{Begin, Harness};
    use divvy_core::id::JobId;
    use divvy_core::model::job::{Owner, Process};

    /// Drives the engine in virtual time.
    struct Virtual {
        engine: Counting,
    }

    /// Counts what begins: an answer that is repeated after a restart does not count.
    struct Counting {
        inner: FaultyEngine,
        again: Vec<Observation>,
        begun: BTreeMap<AllocationId, usize>,
    }

    impl Engine for Counting {
        fn submit(&mut self, actions: &[Action]) {
            self.inner.submit(actions);
        }

        fn observe(&mut self) -> Vec<Observation> {
            let mut seen = std::mem::take(&mut self.again);
            let news = self.inner.observe();
            for observation in &news {
                if let Observation::Started(id, _) = observation {
                    *self.begun.entry(*id).or_default() += 1;
                }
            }
            seen.extend(news);
            seen
        }

        fn abilities(&self) -> Abilities {
            self.inner.abilities()
        }
    }

    impl Virtual {
        fn new() -> Self {
            let inner = SimulatedEngine::new(Time(0), Costs { start_ms: 5, restart_ms: 9 }, BTreeMap::new());
            let node = NodeSpec { name: "n0".into(), ..NodeSpec::default() };
            let inner = FaultyEngine::new(inner, Time(0), vec![(node, Vec::new())]);
            Self { engine: Counting { inner, again: Vec::new(), begun: BTreeMap::new() } }
        }

        fn launch(&mut self, allocation: AllocationId, course: Course) -> Launch {
            self.engine.inner.inner().set_course(allocation.0, course);
            Launch {
                job: JobId::single(allocation.0),
                name: "x".into(),
                attempt: 1,
                restart: 0,
                rank: 0,
                world_size: 1,
                is_elastic: false,
                role: "main".into(),
                role_rank: (0, 1),
                local_rank: (0, 1),
                node: "n0".into(),
                devices: Vec::new(),
                cpu_milli: 1000,
                cpu_is_ceiling: false,
                memory_bytes: 0,
                owner: Owner::default(),
                queue: "default".into(),
                process: Process::default(),
                rendezvous: ("127.0.0.1".into(), 0),
            }
        }
    }

    impl Harness for Virtual {
        fn engine(&mut self) -> &mut dyn Engine {
            &mut self.engine
        }

        fn restart(&mut self, term: Term) -> Term {
            self.engine.inner.restart(term);
            self.engine.again = self.engine.inner.observe();
            term
        }

        fn wait(&mut self) {
            let due = self.engine.inner.next_due().expect("nothing is going to happen");
            self.engine.inner.advance_to(due);
        }

        fn patient(&mut self, allocation: AllocationId) -> Begin {
            Begin::Launch(Box::new(self.launch(allocation, Course::of_length(1 << 40))))
        }

        fn brief(&mut self, allocation: AllocationId, code: i32) -> Begin {
            let course = Course { exit_code: code, ..Course::of_length(10) };
            Begin::Launch(Box::new(self.launch(allocation, course)))
        }

        fn stubborn(&mut self, allocation: AllocationId) -> Begin {
            self.patient(allocation)
        }

        fn processes(&mut self, allocation: AllocationId) -> (usize, usize) {
            let begun = self.engine.begun.get(&allocation).copied().unwrap_or(0);
            (begun, self.engine.inner.live().iter().filter(|id| **id == allocation).count())
        }
    }

    #[test]
    fn the_contract_of_engines_holds_in_virtual_time() {
        divvy_core::contract::engine(&mut Virtual::new());
    }

    #[test]
    fn a_lost_answer_is_told_again_after_a_restart() {
        let mut harness = Virtual::new();
        harness.restart(Term(1));
        let id = AllocationId(7);
        let launch = Box::new(harness.launch(id, Course { exit_code: 3, ..Course::of_length(10) }));
        let fence = divvy_core::action::Fence { term: Term(1), allocation: id, seq: 1 };
        harness.engine.inner.set_answers(Answers { lost: 2, ..Answers::default() });
        harness.engine.submit(&[Action::Launch(fence, launch)]);
        harness.wait();
        harness.wait();
        let ended = |seen: &[Observation]| seen.iter().any(|seen| matches!(seen, Observation::Ended(..)));
        assert!(!ended(&harness.engine.observe()));
        harness.restart(Term(2));
        assert!(ended(&harness.engine.observe()));
    }
}
