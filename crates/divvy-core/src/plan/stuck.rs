//! Verdicts of which a look tells that they still stand, though something has become free. A verdict about the pool alone
//! stands until the pool changes, whatever ends in it: the snapshot notes which classes have one. It also notes which wait
//! for free devices: as long as the pool is the same, a look at the shelves tells whether any node has enough.

use super::trial::Trial;
use crate::id::ClassId;
use crate::model::ask::{Alternative, DrawAsk};
use crate::model::gang::{Group, Role};
use crate::model::job::JobSpec;
use crate::reason::Reason;

/// Whether a reason is about what nodes have and which of it can be given out, and nothing else.
fn is_of_the_pool(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::NoNode
            | Reason::NoSuchModel(_)
            | Reason::NoSuchMemory(_)
            | Reason::TooManyDevices(..)
            | Reason::TooMuchHost(..)
            | Reason::NodesDraining(_)
            | Reason::DevicesDown(_)
            | Reason::DevicesForeign(_)
            | Reason::DevicesDraining(_)
            | Reason::NodesAbsent(_)
    ) || matches!(reason, Reason::NoIsland(_, asked, most) if most < asked)
}

/// Notes why a class has just been found to wait; that devices are busy counts only if the reason was asked for.
pub(super) fn note(trial: &mut Trial, class: ClassId, (reason, asked): (&Reason, bool)) {
    if is_of_the_pool(reason) || asked && matches!(reason, Reason::DevicesBusy(_)) {
        trial.stuck.insert(class);
    }
}

/// Whether a class still waits for the same reason as long as no job gives way: the limit of its queue, which is
/// looked at first, is still exceeded; or the pool is the same, and no limit keeps a job of the class back now.
pub(super) fn is_stuck(trial: &Trial, class: ClassId, reason: &Reason, spec: &JobSpec) -> bool {
    // What a job gets that wants nodes to itself, and so what limits it exceeds, depends on the nodes.
    if trial.state.draining || spec.exclusive {
        return false;
    }
    if let Reason::QueueLimit(..) | Reason::UserLimit(..) = reason {
        // By other alternatives it might take what jobs that give way have.
        return !spec.gang.has_alternatives()
            && trial.still_exceeds(spec.stand(), spec.milli_asked(), reason);
    }
    let is_known = is_of_the_pool(reason) || matches!(reason, Reason::DevicesBusy(_));
    if !is_known || !trial.stuck.contains(&class) {
        return false;
    }
    let Some((role, alternative)) = only_way(trial, spec) else { return false };
    if let Reason::DevicesBusy(count) = reason
        && !lacks_devices(trial, alternative, *count)
    {
        return false;
    }
    trial.exceeded(spec.stand(), spec.milli_asked()).is_none()
        && trial.what_closes(spec, (alternative, role.minimum), true).is_none()
}

/// Whether a task asks for so many whole devices, and no node has as many free ones.
fn lacks_devices(trial: &Trial, alternative: &Alternative, count: u32) -> bool {
    let whole = |draw: &DrawAsk| *draw == DrawAsk::Whole;
    let ask = alternative.devices.as_ref().filter(|ask| whole(&ask.draw) && ask.count == count);
    ask.is_some_and(|ask| trial.capacity().shelves().of(Some(ask)).lack(count))
}

/// The one role of a job and the one way to serve it, where no tasks near or apart and no domains play a part.
fn only_way<'s>(trial: &Trial, spec: &'s JobSpec) -> Option<(&'s Role, &'s Alternative)> {
    let Group::Role(role) = &*spec.gang else { return None };
    let [alternative] = &role.ask.alternatives[..] else { return None };
    let plain = role.topology.is_none() && role.spread.is_unsaid() && !trial.around.are_told();
    plain.then_some((role, alternative))
}
