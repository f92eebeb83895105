//! Deciding on a submission: what makes no sense or can never run is refused, with what there is.

use std::sync::Arc;

use super::{Rejection, Submit};
use crate::event::Event;
use crate::model::ask::{DeviceAsk, DrawAsk};
use crate::model::device::WHOLE_MILLI;
use crate::model::gang::{Branch, Group, Role};
use crate::model::job::{Dependency, DependsOn, JobSpec, Owner, Submission, Work};
use crate::model::queue::{Queue, default_of, submitters, takes};
use crate::model::topology::{INSIDE_A_NODE, TopologyAsk};
use crate::plan;
use crate::reason::Reason;
use crate::snapshot::Snapshot;
use crate::state::{Dependable, Outcome, State};

/// The most tasks of one gang: more than the largest runs in the literature use processes.
const MOST_TASKS: u32 = 100_000;
/// The longest command line, in bytes over all arguments; the kernel's own limit is about as large.
const LONGEST_COMMAND_BYTES: usize = 1 << 20;

pub(super) fn submit(state: &State, submit: &Submit) -> Result<Vec<Event>, Rejection> {
    if let Some(number) = submit.token.as_ref().and_then(|token| state.tokens.of(&submit.owner.name, token)) {
        return Err(Rejection::Repeated(number));
    }
    let mut spec = Arc::clone(&submit.spec);
    queue(state, submit, &mut spec)?;
    super::bounds::keep(state, submit, &mut spec)?;
    sense(&spec)?;
    super::spread::sense(state, &spec)?;
    supported(state, &spec)?;
    dependencies(state, submit)?;
    if !spec.wait_for_capacity {
        capacity(state, &spec)?;
    }
    let is_over = |dependency: &Dependency| submit.history.contains_key(&dependency.job);
    if spec.after.iter().any(is_over) {
        Arc::make_mut(&mut spec).after.retain(|dependency| !is_over(dependency));
    }
    Ok(vec![submitted(state, submit, spec)])
}

/// Submits what already runs: whether it could be submitted now no longer matters.
pub(super) fn taken_over(state: &State, submit: &Submit) -> Result<Vec<Event>, Rejection> {
    let queue = &submit.spec.queue;
    if !state.queues.contains_key(queue) {
        let known = state.queues.keys().cloned().collect();
        return Err(Rejection::UnknownQueue { queue: queue.clone(), known });
    }
    sense(&submit.spec)?;
    super::spread::sense(state, &submit.spec)?;
    supported(state, &submit.spec)?;
    Ok(vec![submitted(state, submit, Arc::clone(&submit.spec))])
}

fn submitted(state: &State, submit: &Submit, spec: Arc<JobSpec>) -> Event {
    Event::Submitted(Box::new(Submission {
        number: state.next_job,
        owner: Arc::clone(&submit.owner),
        spec,
        array: submit.array.clone(),
        token: submit.token.clone(),
        held: submit.held,
    }))
}

/// Fills in what the queue says where the submission says nothing.
fn queue(state: &State, submit: &Submit, spec: &mut Arc<JobSpec>) -> Result<(), Rejection> {
    if spec.queue.is_empty() {
        Arc::make_mut(spec).queue = default_of(state.queues.values(), &submit.owner).to_owned();
    }
    let queue = open_queue(state, &spec.queue, &submit.owner)?;
    if !submit.requeue_said && spec.requeue != queue.requeue {
        Arc::make_mut(spec).requeue = queue.requeue;
    }
    Ok(())
}

/// The queue of this path, if it is there and takes jobs of the user.
pub fn open_queue<'a>(state: &'a State, path: &str, owner: &Owner) -> Result<&'a Queue, Rejection> {
    let known = || state.queues.keys().cloned().collect();
    let unknown = || Rejection::UnknownQueue { queue: path.to_owned(), known: known() };
    let queue = state.queues.get(path).ok_or_else(unknown)?;
    if takes(&state.queues, path, owner) {
        return Ok(queue);
    }
    let takes = submitters(&state.queues, path).iter().map(ToString::to_string).collect();
    Err(Rejection::NotAMember { user: owner.name.clone(), queue: path.to_owned(), takes })
}

fn sense(spec: &JobSpec) -> Result<(), Rejection> {
    let bad = |field, what: &str| Err(Rejection::BadSpec { field, what: what.to_owned() });
    if spec.name.is_empty() || spec.name.len() > 200 {
        return bad("name", "write 1 to 200 bytes");
    }
    if spec.time_limit.is_some_and(|limit| limit.0 <= 0) {
        return bad("time_limit", "must be longer than nothing");
    }
    if spec.stop.grace_ms < 0 || spec.stop.grace_ms > 86_400_000 {
        return bad("grace", "write a time from 0s to 1d");
    }
    let roles = spec.gang.roles();
    let tasks: u64 = roles.iter().map(|role| u64::from(role.minimum.max(role.maximum))).sum();
    if tasks == 0 || tasks > u64::from(MOST_TASKS) {
        return bad("tasks", "write 1 to 100000 tasks");
    }
    let needs = |branch: &&Branch| branch.minimum == 0 || branch.minimum as usize > branch.groups.len();
    if spec.gang.is_elastic()
        && (roles.iter().any(|role| role.minimum == 0) || spec.gang.branches().iter().any(needs))
    {
        return bad("tasks", "each role and group needs a minimum of at least 1, and no more than it has");
    }
    if asks_of(&spec.gang).iter().flat_map(|ask| ask.levels()).any(str::is_empty) {
        return bad("topology", "name the level within which tasks must lie, like rack or node");
    }
    for role in spec.gang.roles() {
        if !slices_divide(role) {
            return bad("topology", "slices must divide the tasks of the role, and each the one before it");
        }
        if role.minimum > role.maximum {
            return bad("tasks", "the minimum is above the maximum");
        }
        if let Some(what) = role.ask.wrong_ways() {
            return bad("gpus", what);
        }
        if let Work::Process(process) = &role.work {
            let bytes: usize = process.argv.iter().map(String::len).sum();
            if process.argv.first().is_none_or(String::is_empty) || bytes > LONGEST_COMMAND_BYTES {
                return bad("command", "write a program and its arguments, at most 1 MiB");
            }
            if process.argv.iter().any(|word| word.contains('\0')) {
                return bad("command", "no argument may hold a NUL byte");
            }
        }
    }
    Ok(())
}

/// Whether a role consists of whole blocks of tasks, and each of these of whole blocks of the next kind.
fn slices_divide(role: &Role) -> bool {
    let slices = role.topology.iter().flat_map(|ask| &ask.slices);
    let sizes: Vec<u32> = std::iter::once(role.minimum).chain(slices.map(|slice| slice.tasks)).collect();
    sizes.windows(2).all(|pair| pair[1] > 0 && pair[0] % pair[1] == 0)
}

/// What the model offers but no engine of this pool can run yet is refused by name, never ignored.
fn supported(state: &State, spec: &JobSpec) -> Result<(), Rejection> {
    match unsupported(spec, state.policy.shares) {
        None => Ok(()),
        Some(what) => Err(Rejection::CannotFit {
            reason: Reason::Unsupported(what.to_owned()),
            there: what_there_is(state),
        }),
    }
}

fn unsupported(spec: &JobSpec, shares: bool) -> Option<&'static str> {
    let roles = spec.gang.roles();
    let in_slices = |role: &&Role| role.topology.as_ref().is_some_and(|ask| !ask.slices.is_empty());
    if roles.iter().any(|role| role.minimum < role.maximum && in_slices(role)) {
        return Some("blocks of tasks in a role that grows and shrinks");
    }
    let asks = || asks_of(&spec.gang);
    if asks().iter().flat_map(|ask| ask.levels()).any(|level| INSIDE_A_NODE.contains(&level)) {
        return Some("tasks that lie together within a node's nvlink, numa or device");
    }
    let spreads = spec.gang.spreads();
    if spreads.iter().any(|(_, spread, _)| INSIDE_A_NODE.contains(&spread.over.as_str())) {
        return Some("tasks that are spread within a node");
    }
    let devices = roles
        .iter()
        .flat_map(|role| &role.ask.alternatives)
        .filter_map(|alternative| alternative.devices.as_ref());
    let draws = |ask: &DeviceAsk| match ask.draw {
        DrawAsk::Whole => true,
        DrawAsk::Share { milli, .. } => shares && (1..=WHOLE_MILLI).contains(&milli),
        DrawAsk::Partition(_) => false,
    };
    let other = |ask: &&DeviceAsk| !draws(ask) || ask.class.claim.is_some();
    devices.into_iter().find(other).map(|_| "shares, partitions and claims: ask for whole GPUs")
}

/// What the groups of a gang want of a topology.
fn asks_of(gang: &Group) -> Vec<&TopologyAsk> {
    let branches = gang.branches().into_iter().filter_map(|branch| branch.topology.as_ref());
    branches.chain(gang.roles().into_iter().filter_map(|role| role.topology.as_ref())).collect()
}

fn dependencies(state: &State, submit: &Submit) -> Result<(), Rejection> {
    for dependency in &submit.spec.after {
        let job = dependency.job;
        if let Some(outcome) = submit.history.get(&job) {
            let met = match dependency.on {
                DependsOn::Any => true,
                DependsOn::Ok => *outcome == Outcome::Ok,
                DependsOn::Fail => *outcome == Outcome::Fail,
            };
            if !met {
                return Err(Rejection::HopelessDependency(job));
            }
            continue;
        }
        let there = match state.jobs.get(&job.number) {
            Some(other) => match (&other.runs, job.member) {
                (_, None) => true,
                (crate::state::Runs::Array(array), Some(member)) => {
                    other.run(Some(member)).is_some()
                        || array.ended.values().any(|ended| ended.contains(member))
                }
                _ => false,
            },
            None => job.member.is_none() && state.outcomes.of(job.number).is_some(),
        };
        if !there {
            return Err(Rejection::UnknownDependency(job));
        }
        if state.dependency(job, dependency.on) == Dependable::Never {
            return Err(Rejection::HopelessDependency(job));
        }
    }
    Ok(())
}

fn capacity(state: &State, spec: &JobSpec) -> Result<(), Rejection> {
    let (empty, spec) = (Snapshot::emptied(state), &*state.at_home(spec));
    let fits = plan::fits_empty(&empty, spec).and_then(|()| plan::allows(state, &empty, spec));
    match fits {
        // Nodes that are kept for its queue may come.
        Ok(()) | Err(Reason::NodesAbsent(_)) => Ok(()),
        Err(reason) => Err(Rejection::CannotFit { reason, there: what_there_is(state) }),
    }
}

/// What the pool has, in one sentence: `There are 8 h100 (80GB) on 1 node, at most 8 on one.`
pub fn what_there_is(state: &State) -> String {
    use std::collections::BTreeMap;
    let mut kinds: BTreeMap<(String, u32), BTreeMap<crate::id::NodeId, u32>> = BTreeMap::new();
    for device in state.devices.values().filter(|device| {
        state.nodes.get(&device.node).is_some_and(|node| node.state != crate::model::node::NodeState::Gone)
    }) {
        *kinds
            .entry((device.spec.model.clone(), device.spec.size_gb()))
            .or_default()
            .entry(device.node)
            .or_default() += 1;
    }
    if kinds.is_empty() {
        return "The pool has no GPU.".into();
    }
    let kind = |((model, gb), nodes): ((String, u32), BTreeMap<_, u32>)| {
        let (total, most) = (nodes.values().sum::<u32>(), nodes.values().max().copied().unwrap_or(0));
        match nodes.len() {
            1 => format!("{total} {model} ({gb}GB)"),
            count => format!("{total} {model} ({gb}GB) on {count} nodes, at most {most} on one"),
        }
    };
    format!("The pool has {}.", kinds.into_iter().map(kind).collect::<Vec<_>>().join(", "))
}
