//! The checker (L12): the laws as far as a state can show them. It shares nothing with the planner and reckons from scratch.

mod gang;
mod reckon;
mod watch;

pub use watch::Watch;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::id::{AllocationId, DeviceId, JobId, NodeId};
use crate::model::allocation::{AllocationState, Placement};
use crate::model::device::WHOLE_MILLI;
use crate::model::extras::Extras;
use crate::model::gang::Group;
use crate::model::job::JobState;
use crate::state::{Run, Runs, State};

/// A law that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which: `L7`.
    pub law: &'static str,
    /// What was found.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.law, self.text)
    }
}

/// All violations in a state; empty when it is lawful.
pub fn check(state: &State) -> Vec<Violation> {
    let mut found = Vec::new();
    no_device_is_promised_twice(state, &mut found);
    no_device_is_promised_beyond_what_it_is(state, &mut found);
    no_host_is_overcommitted(state, &mut found);
    allocations_and_runs_agree(state, &mut found);
    gangs_are_whole(state, &mut found);
    the_ledger_equals_what_is_held(state, &mut found);
    worth_equals_what_is_held(state, &mut found);
    arrays_are_whole(state, &mut found);
    the_digest_is_that_of_the_content(state, &mut found);
    found
}

/// The jobs that wait without any reason: after a cycle there are none (L6).
pub fn waiting_without_reason(state: &State) -> Vec<JobId> {
    let unreasoned = |job: &&crate::state::Job| {
        job.waiting_members().next().is_some()
            && job.own_blockers(state, state.now).is_empty()
            && job.members_left() != Some(0)
            && !state.verdicts.contains_key(&job.class)
    };
    state.jobs.values().filter(unreasoned).map(crate::state::Job::id).collect()
}

fn no_device_is_promised_twice(state: &State, found: &mut Vec<Violation>) {
    let mut drawn: BTreeMap<DeviceId, (u64, u64)> = BTreeMap::new();
    for held in state.allocations.values() {
        for (device, draw) in &held.placement.devices {
            let sum = drawn.entry(*device).or_default();
            *sum = (sum.0 + u64::from(draw.milli), sum.1 + draw.memory_mib);
        }
    }
    for (device, (milli, memory_mib)) in drawn {
        let Some(known) = state.devices.get(&device) else {
            found.push(Violation { law: "L7", text: format!("device {device} is held and does not exist") });
            continue;
        };
        // The holders are looked up only where it matters: that goes through all allocations.
        let too_much = || memory_mib > known.spec.memory_mib && memory_mib > memory_of_holders(state, device);
        if milli > u64::from(WHOLE_MILLI) || too_much() {
            found.push(Violation {
                law: "L7",
                text: format!("device {device}: {milli} milli and {memory_mib} MiB are held"),
            });
        }
    }
}

/// What is promised is reckoned apart from what is held: the promise begins when the hold ends.
fn no_device_is_promised_beyond_what_it_is(state: &State, found: &mut Vec<Violation>) {
    let mut promised: BTreeMap<DeviceId, u64> = BTreeMap::new();
    for (job, promise) in &state.promises {
        for (device, draw) in promise.placements.iter().flat_map(|placement| &placement.devices) {
            *promised.entry(*device).or_default() += u64::from(draw.milli);
        }
        if !state.jobs.contains_key(&job.number) {
            found.push(Violation {
                law: "L7",
                text: format!("something is promised to job {job}, which is not there"),
            });
        }
    }
    let over = promised.into_iter().filter(|(_, milli)| *milli > u64::from(WHOLE_MILLI));
    found.extend(over.map(|(device, milli)| Violation {
        law: "L7",
        text: format!("device {device}: {milli} milli are promised"),
    }));
}

/// The memory that the one whole holder of a device was given: a device that came back smaller keeps that.
fn memory_of_holders(state: &State, device: DeviceId) -> u64 {
    let holders: Vec<u64> = state.draws_on(device).map(|(_, draw)| draw.memory_mib).collect();
    if holders.len() == 1 { holders[0] } else { 0 }
}

fn no_host_is_overcommitted(state: &State, found: &mut Vec<Violation>) {
    let mut drawn: BTreeMap<NodeId, (i64, i64, Extras)> = BTreeMap::new();
    for held in state.allocations.values() {
        let sum = drawn.entry(held.placement.node).or_default();
        (sum.0, sum.1) = (sum.0 + held.placement.cpu_milli, sum.1 + held.placement.memory_bytes);
        sum.2.add(&held.placement.extras, 1);
    }
    for (node, (cpu, memory, extras)) in drawn {
        let Some(known) = state.nodes.get(&node) else {
            found.push(Violation { law: "L7", text: format!("node {node} is used and does not exist") });
            continue;
        };
        if cpu > known.spec.cpu_milli || memory > known.spec.memory_bytes {
            found.push(Violation {
                law: "L7",
                text: format!("node {node}: {cpu} milli-cores and {memory} bytes are held"),
            });
        }
        found.extend(extras.beyond(&known.spec.extras).map(|(resource, amount)| Violation {
            law: "L7",
            text: format!("node {node}: {amount} of {resource} are held"),
        }));
    }
}

/// All runs that the state keeps, with their ids and gangs.
fn runs(state: &State) -> Vec<(JobId, &Run, &Group)> {
    let mut runs = Vec::new();
    for job in state.jobs.values() {
        let gang = &*job.spec.gang;
        match &job.runs {
            Runs::Single(run) => runs.push((job.id(), run, gang)),
            Runs::Array(array) => {
                let touched = array.touched.iter();
                runs.extend(touched.map(|(member, run)| (JobId::member(job.number, *member), run, gang)));
            }
        }
    }
    runs
}

fn allocations_and_runs_agree(state: &State, found: &mut Vec<Violation>) {
    let mut owners: BTreeMap<AllocationId, JobId> = BTreeMap::new();
    for (id, run, _) in runs(state) {
        for live in &run.live {
            if owners.insert(*live, id).is_some()
                || state.allocations.get(live).is_none_or(|held| held.job != id)
            {
                found.push(Violation {
                    law: "L7",
                    text: format!("job {id} and allocation {live} do not agree"),
                });
            }
        }
        let waits = matches!(run.state, JobState::Pending | JobState::Held);
        if run.state.is_ended()
            || waits != run.live.is_empty() && (waits || run.over.len() < run.placements.len())
        {
            found.push(Violation {
                law: "L6",
                text: format!("job {id} is {} with {} allocations", run.state.name(), run.live.len()),
            });
        }
    }
    for id in state.allocations.keys().filter(|id| !owners.contains_key(id)) {
        found.push(Violation { law: "L7", text: format!("allocation {id} belongs to no job") });
    }
    if let Some(last) = state.allocations.keys().next_back().filter(|last| **last >= state.next_allocation) {
        found.push(Violation { law: "L5", text: format!("allocation {last} would be given again") });
    }
}

fn gangs_are_whole(state: &State, found: &mut Vec<Violation>) {
    for (id, run, gang) in runs(state) {
        let in_state = |placement: &Placement, wanted| {
            state.allocations.get(&placement.allocation).is_some_and(|held| held.state == wanted)
        };
        // Tasks that were told to stop while the gang runs on are no part of it any more.
        let goes =
            |placement: &Placement| run.stopping.is_none() && in_state(placement, AllocationState::Stopping);
        let ranks: BTreeSet<u32> =
            run.placements.iter().filter(|placement| !goes(placement)).map(|it| it.rank).collect();
        if !ranks.is_empty() && !gang::may_run(gang, &ranks) {
            let text = format!("job {id}: {} tasks were placed, {}", ranks.len(), gang::words(gang));
            found.push(Violation { law: "L8", text });
        }
        let starting = run.placements.iter().any(|placement| in_state(placement, AllocationState::Starting));
        if run.state == JobState::Running && starting && gang::is_rigid(gang) {
            found.push(Violation { law: "L8", text: format!("job {id} runs, but not all of its tasks do") });
        }
    }
}

/// What is worth something is charged at its worth, and nothing else is.
fn worth_equals_what_is_held(state: &State, found: &mut Vec<Violation>) {
    let Some(worth) = &state.worth else { return };
    let mut rates: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    for held in state.allocations.values() {
        let Some(job) = state.jobs.get(&held.job.number) else { continue };
        *rates.entry((&job.spec.queue, &job.owner.name)).or_default() +=
            held.worth.said().unwrap_or(&i64::MIN);
    }
    for (queue, user, account) in worth.accounts() {
        let held = rates.remove(&(queue, user)).unwrap_or(0);
        if account.rate_milli != held {
            let text =
                format!("{user} in {queue} is charged a worth of {} and holds {held}", account.rate_milli);
            found.push(Violation { law: "L11", text });
        }
    }
    let rest = rates.into_iter().filter(|(_, rate)| *rate != 0);
    found.extend(rest.map(|((queue, user), rate)| Violation {
        law: "L11",
        text: format!("{user} in {queue} holds a worth of {rate} that is not charged"),
    }));
}

fn the_ledger_equals_what_is_held(state: &State, found: &mut Vec<Violation>) {
    let mut rates: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    let mut open: i128 = 0;
    for held in state.allocations.values() {
        let Some(job) = state.jobs.get(&held.job.number) else { continue };
        *rates.entry((&job.spec.queue, &job.owner.name)).or_default() += held.placement.milli();
        open += i128::from(held.placement.milli()) * i128::from(state.now.since(held.since).0);
    }
    let mut charged: i128 = 0;
    for (queue, user, account) in state.ledger.accounts() {
        let held = rates.remove(&(queue, user)).unwrap_or(0);
        if account.rate_milli != held {
            let text = format!("{user} in {queue} is charged {} milli and holds {held}", account.rate_milli);
            found.push(Violation { law: "L11", text });
        }
        charged += account.charged_at(state.now);
    }
    if rates.values().any(|rate| *rate != 0) || charged != open + state.ledger.closed_milli_ms() {
        let text =
            format!("charged {charged}, held {open} + {} milli-GPU·ms", state.ledger.closed_milli_ms());
        found.push(Violation { law: "L11", text });
    }
}

fn arrays_are_whole(state: &State, found: &mut Vec<Violation>) {
    for job in state.jobs.values() {
        let Runs::Array(array) = &job.runs else { continue };
        let ended: u64 = array.ended.values().map(crate::model::members::Members::len).sum();
        let open = array.fresh.len() + array.touched.len() as u64;
        let all = crate::model::members::Members::of(&array.array).len();
        if ended + open != all || array.touched.keys().any(|member| array.fresh.contains(*member)) {
            found.push(Violation {
                law: "L12",
                text: format!("array {}: {open} open and {ended} ended of {all}", job.number),
            });
        }
        if array.array.at_most.is_some_and(|most| job.active_members() > most) {
            found.push(Violation {
                law: "L12",
                text: format!("array {} runs more members than it may", job.number),
            });
        }
    }
}

fn the_digest_is_that_of_the_content(state: &State, found: &mut Vec<Violation>) {
    if state.entities() != state.entities_anew() {
        found.push(Violation {
            law: "L3",
            text: "the digest kept by apply is not that of the content".into(),
        });
    }
}
