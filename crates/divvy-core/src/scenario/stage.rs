//! Putting a pool into a state: what runs where, what is on its way out, what is promised, without a plan that says so.

use std::collections::{BTreeMap, BTreeSet};

use super::books::Books;
use super::words::Words;
use super::{Done, Scenario};
use crate::controller::Broken;
use crate::engine::{Observation, TaskStart};
use crate::event::Event;
use crate::id::{AllocationId, DeviceId, JobId};
use crate::model::allocation::Placement;
use crate::model::ask::{Alternative, DrawAsk};
use crate::model::device::{Draw, WHOLE_MILLI};
use crate::model::job::{Cause, JobSpec, StopOrder};
use crate::model::promise::Promise;

impl Scenario {
    /// Logs events as they are. No plan led to them: the checker takes their result as it is.
    fn put(&mut self, events: Vec<Event>) -> Done {
        let told = |broken: Broken| broken.to_string();
        events.into_iter().try_for_each(|event| self.controller.put(event, self.now)).map_err(told)?;
        self.keep();
        self.books = self.books.take().map(|_| Books::open(self.controller.state()));
        Ok(())
    }

    /// `start j1 on=n1:0+n1:1,n2:0 [cpu=4,8] [mem=8] [alt=1] [slowly]`: the job has got these; its tasks run unless they start slowly.
    /// A task that an elastic gang does not have is a `-`.
    pub(super) fn start(&mut self, words: &Words) -> Done {
        words.only(2, "slowly", "on cpu mem alt")?;
        let job = self.job(words.at(1, "the job")?)?;
        let placements = self.placements(job, words)?;
        self.nobody_else_has(&placements)?;
        let placed: Vec<AllocationId> = placements.iter().map(|placement| placement.allocation).collect();
        self.put(vec![Event::Placed { job, placements, port: 0 }])?;
        if words.has("slowly") {
            return Ok(());
        }
        let start = TaskStart { at: self.now, pid: 1, ..TaskStart::default() };
        placed.into_iter().try_for_each(|id| self.see(&Observation::Started(id, start.clone())))
    }

    /// `promise j1 on=n1:0`: the job gets these devices once the tasks that hold them have ended.
    pub(super) fn promise(&mut self, words: &Words) -> Done {
        words.only(2, "", "on cpu mem alt")?;
        let job = self.job(words.at(1, "the job")?)?;
        let placements = self.placements(job, words)?;
        let drawn: Vec<DeviceId> =
            placements.iter().flat_map(|placement| &placement.devices).map(|(device, _)| *device).collect();
        let holds = |held: &Placement| held.devices.iter().any(|(device, _)| drawn.contains(device));
        let allocations = self.state().allocations.iter();
        let waits_for = allocations.filter(|(_, held)| holds(&held.placement)).map(|(id, _)| *id).collect();
        let grows = self.state().run(job).is_some_and(|run| run.is_active() && run.stopping.is_none());
        self.put(vec![Event::Promised(Box::new(Promise { job, placements, port: 0, waits_for, grows }))])
    }

    /// `stop j1`: the job was told to stop, and goes back into its queue.
    pub(super) fn stop(&mut self, words: &Words) -> Done {
        words.only(2, "", "")?;
        let job = self.job(words.at(1, "the job")?)?;
        let order = StopOrder::default();
        self.put(vec![Event::Stopping { job, cause: Cause::Preempted, by: None, order, requeue: true }])
    }

    /// What the tasks get, by rank.
    fn placements(&self, job: JobId, words: &Words) -> Result<Vec<Placement>, String> {
        let spec = &self.state().jobs.get(&job.number).ok_or("the job has ended")?.spec;
        let places: Vec<&str> =
            words.named.get("on").ok_or("on= is missing: write on=n1:0+n1:1,n2:0")?.split(',').collect();
        let (least, tasks) = (spec.gang.tasks() as usize, spec.gang.most_tasks() as usize);
        let said = if spec.gang.is_elastic() { 1..=tasks } else { least..=tasks };
        if !said.contains(&places.len()) {
            return Err(format!("on= names places for {} tasks, and the job has {tasks}", places.len()));
        }
        let index = words.count("alt", 0)?;
        let host = |name: &'static str| -> Result<Vec<Option<i64>>, String> {
            let each = words.named.get(name).map_or(Vec::new(), |text| text.split(',').collect());
            let read =
                |rank: usize| each.get(rank).or(each.first()).map(|text| host_amount(name, text)).transpose();
            (0..tasks).map(read).collect()
        };
        let (cpu, memory) = (host("cpu")?, host("mem")?);
        let first = self.state().next_allocation.0;
        let placement = |(rank, place): (usize, &&str)| {
            let alternative = alternative(spec, rank, index)?;
            let (node, devices) = self.seat(place, (alternative, spec.exclusive))?;
            Ok(Placement {
                allocation: AllocationId(first + rank as u64),
                rank: rank as u32,
                node,
                devices,
                cpu_milli: cpu[rank].or(alternative.cpu_milli).unwrap_or(0),
                memory_bytes: memory[rank].or(alternative.memory_bytes).unwrap_or(0),
                extras: alternative.extras.clone(),
                alternative: index,
            })
        };
        places.iter().enumerate().filter(|(_, place)| **place != "-").map(placement).collect()
    }

    /// Refuses to give what others have, or the same thing twice: no pool could get into that state.
    fn nobody_else_has(&self, placements: &[Placement]) -> Done {
        let held = self.state().allocations.values().map(|held| &held.placement);
        let mut drawn: BTreeMap<DeviceId, u32> = BTreeMap::new();
        for (device, draw) in held.chain(placements).flat_map(|placement| &placement.devices) {
            *drawn.entry(*device).or_default() += draw.milli;
        }
        let wanted = placements.iter().flat_map(|placement| &placement.devices);
        let beyond = wanted.map(|(device, _)| device).find(|device| drawn[device] > WHOLE_MILLI);
        match beyond.and_then(|device| self.state().devices.get(device)) {
            Some(device) => Err(format!(
                "{} is not free: others have it, or on= names it for two tasks; expected devices that nobody has",
                device.spec.uuid
            )),
            None => Ok(()),
        }
    }

    /// The node, and what is drawn of each device: `n1:0+n1:1`, or `n1` for a task without any.
    fn seat(
        &self,
        place: &str,
        (alternative, exclusive): (&Alternative, bool),
    ) -> Result<(crate::id::NodeId, Vec<(DeviceId, Draw)>), String> {
        let asked = alternative.devices.as_ref().map_or(0, |ask| ask.count);
        let wants = |named: usize| {
            format!(
                "{place} names {named} devices for a task that asks for {asked}: write n1:0+n1:1 for two, n1 for none"
            )
        };
        if let Some(node) = self.state().node_by_name(place) {
            return if asked == 0 { Ok((node, Vec::new())) } else { Err(wants(0)) };
        }
        let device = |uuid: &str| {
            let found = self.state().device_by_uuid(uuid);
            let found = found.and_then(|id| Some((id, self.state().devices.get(&id)?)));
            found.ok_or_else(|| self.no_device(uuid))
        };
        let devices = place.split('+').map(device).collect::<Result<Vec<_>, String>>()?;
        let node = devices.first().map(|(_, device)| device.node).ok_or_else(|| self.no_device(place))?;
        let different: BTreeSet<DeviceId> = devices.iter().map(|(id, _)| *id).collect();
        if different.len() < devices.len() {
            return Err(format!("{place} names a device twice: expected {asked} different ones"));
        }
        if devices.iter().any(|(_, device)| device.node != node) {
            return Err(format!("{place} names devices of two nodes: expected those of a task on one"));
        }
        // A task that wants its node for itself gets more than it asks for.
        let least = asked as usize;
        if devices.len() < least || devices.len() > least && !exclusive {
            return Err(wants(devices.len()));
        }
        let whole = Alternative::default();
        let by = if exclusive { &whole } else { alternative };
        let draws = devices.into_iter().map(|(id, device)| (id, draw(by, device.spec.memory_mib)));
        Ok((node, draws.collect()))
    }
}

impl Scenario {
    /// Says what there is, where a line names a device that does not exist.
    fn no_device(&self, uuid: &str) -> String {
        let node = uuid.split_once(':').and_then(|(node, _)| self.state().node_by_name(node));
        let own = self.state().devices.values().filter(|device| Some(device.node) == node);
        let own: Vec<&str> = own.map(|device| device.spec.uuid.as_str()).collect();
        match own[..] {
            [] => format!("{uuid:?} is no node and no devices: write n1 or n1:0+n1:1"),
            [only] => format!("there is no device {uuid}: its node has {only}"),
            [first, .., last] => format!("there is no device {uuid}: its node has {first} to {last}"),
        }
    }
}

fn host_amount(name: &str, text: &str) -> Result<i64, String> {
    let line = format!("start {name}={text}");
    let words = Words::of(&line);
    let amount = if name == "cpu" { words.cores(name)? } else { words.memory(name)? };
    amount.ok_or_else(|| format!("{name}={text} is no amount"))
}

fn alternative(spec: &JobSpec, rank: usize, index: u32) -> Result<&Alternative, String> {
    let role = u32::try_from(rank).ok().and_then(|rank| spec.gang.role_of(rank));
    let asked = role.and_then(|(role, _)| role.ask.alternatives.get(index as usize));
    asked.ok_or_else(|| format!("the job has no alternative {index}"))
}

/// What a task draws of a device that it has.
fn draw(alternative: &Alternative, whole_mib: u64) -> Draw {
    let (milli, memory_mib) = match alternative.devices.as_ref().map(|ask| &ask.draw) {
        Some(DrawAsk::Share { milli, memory_mib }) => {
            (*milli, memory_mib.unwrap_or(whole_mib * u64::from(*milli) / u64::from(WHOLE_MILLI)))
        }
        _ => (WHOLE_MILLI, whole_mib),
    };
    Draw { milli, memory_mib, partition: None }
}
