//! Whether any job might give way, before it is asked which: seen without a look at each running job.

use std::collections::BTreeMap;

use super::rules::Rules;
use super::{Claim, Reach, clear, strangers};
use crate::id::{JobId, NodeId};
use crate::model::ask::{Alternative, DrawAsk};
use crate::model::device::WHOLE_MILLI;
use crate::model::gang::Group;
use crate::model::job::JobSpec;
use crate::model::policy::{Policy, Preempt, Reclaim, WithinQueue};
use crate::plan::fair::Fair;
use crate::plan::order::Head;
use crate::plan::share::{ANY, Amounts};
use crate::snapshot::order::displaces;
use crate::snapshot::{OrderKey, RunView, Spot};

/// Whether any job might give way for the claim: seen without a look at the jobs of queues that have none to give.
pub(in crate::plan) fn might_take(fair: &Fair, claim: &Claim) -> bool {
    let rules = Rules::of(fair, claim.queue);
    let reach = || Reach::of(&fair.shares, claim, rules.borrow_evicts);
    let junior = rules.juniors_up_to(claim.spec.priority);
    let own = || fair.lowest_priority(claim.queue, claim.spec);
    // What the claim may take by its right is asked only where any other has too much.
    let lends = || fair.shares.anyone_lends(claim.queue, &claim.asked, |_, _| true);
    lends() && others_lend(fair, claim, (&rules, reach()))
        || !strangers::of(fair, claim).is_empty()
        || junior.is_some_and(|most| own().is_some_and(|lowest| lowest <= most))
        || claim
            .place
            .is_some_and(|place| might_displace(fair, (claim.spec, &rules), (place, claim.asked[ANY]), true))
}

/// Whether jobs of its own queue might give way for the claim.
pub(in crate::plan) fn might_take_own(fair: &Fair, claim: &Claim) -> bool {
    let junior = Rules::of(fair, claim.queue).juniors_up_to(claim.spec.priority);
    let lowest = || fair.lowest_priority(claim.queue, claim.spec);
    junior.is_some_and(|most| lowest().is_some_and(|lowest| lowest <= most))
        || claim.place.is_some_and(|place| anyone_behind(fair, claim.spec, place))
}

/// Whether a running job may give way to one that waits in its queue.
pub(in crate::plan) fn may_take_of_own(fair: &Fair, waits: Head, run: (JobId, &RunView)) -> bool {
    let (state, spec) = (fair.trial.state, &*waits.view.example);
    let place = displaces(&state.policy).then_some(waits.place);
    let claim = Claim::of(JobId::single(waits.key.number), spec, (waits.view.queue, Amounts::new()));
    may_take_any(&state.policy, spec)
        && Rules::of(fair, waits.view.queue).within(&Claim { place, ..claim }, run, (&state.policy, fair.now))
}

/// Whether running jobs of lower priority in its queue give way to a job.
pub(in crate::plan) fn may_take_juniors(rules: &Rules, policy: &Policy, spec: &JobSpec) -> bool {
    may_take_any(policy, spec) && rules.within_queue != WithinQueue::Never
}

fn may_take_any(policy: &Policy, spec: &JobSpec) -> bool {
    policy.preempt == Preempt::LeastLoss && spec.may_preempt()
}

/// Whether jobs of other queues might give way for the claim.
pub(super) fn others_lend(fair: &Fair, claim: &Claim, (rules, reach): (&Rules, Reach)) -> bool {
    let may = |right, level| reach.has(right, level);
    rules.reclaim != Reclaim::Never && fair.shares.anyone_lends(claim.queue, &claim.asked, may)
}

/// Whether any job of its own queue may stand behind a job's place in the order.
pub(super) fn anyone_behind(fair: &Fair, spec: &JobSpec, place: OrderKey) -> bool {
    let at = (&fair.trial.state.policy, fair.now);
    fair.running.has_behind(spec.stand(), ((spec.priority, place), 0), at)
}

/// Whether as many devices as a job asks for might become free through jobs of its own queue alone that stand behind
/// its place in the order. `moves`: further jobs may be moved for it, too, if the cycle has moves left.
pub(in crate::plan) fn might_displace(
    fair: &Fair,
    (spec, rules): (&JobSpec, &Rules),
    (place, milli): (OrderKey, i64),
    moves: bool,
) -> bool {
    let state = fair.trial.state;
    if !spec.may_preempt() || rules.within_queue == WithinQueue::Never {
        return false;
    }
    let free_milli = fair.trial.capacity().shelves().free() as i64 * i64::from(WHOLE_MILLI);
    let place = (spec.priority, place);
    let wanted = (place, milli.saturating_sub(free_milli));
    // Where others may be moved, too, the job may lie on nodes that those behind it do not clear.
    let moves = moves && fair.budget.has_any();
    fair.running.has_behind(spec.stand(), wanted, (&state.policy, fair.now))
        && (moves || has_slots(fair, (spec, rules), place))
}

/// Whether nodes would have enough devices for its tasks if all jobs of its own queue went that stand behind
/// it or are of lower priority and so may go. Not checked where tasks are unlike, or something ends anyway.
fn has_slots(fair: &Fair, (spec, rules): (&JobSpec, &Rules), place: (i32, OrderKey)) -> bool {
    let Group::Role(role) = &*spec.gang else { return true };
    let [Alternative { devices: Some(ask), .. }] = &role.ask.alternatives[..] else { return true };
    let state = fair.trial.state;
    let newer_go = rules.within_queue == WithinQueue::LowerOrNewer;
    if ask.draw != DrawAsk::Whole || newer_go || !fair.leaving.is_nothing() {
        return true;
    }
    let (capacity, each, tasks) = (fair.trial.capacity(), ask.count.max(1), role.minimum);
    let mut slots = capacity.shelves().of(Some(ask)).slots(each);
    let mut given: BTreeMap<NodeId, u32> = BTreeMap::new();
    let mut behind = fair.running.behind_in(spec.stand(), place, (&state.policy, fair.now));
    while slots < tasks {
        let Some(view) = behind.next() else { return false };
        for Spot { node, devices, .. } in &view.spots {
            let on = capacity.node_place(*node).map(|place| &capacity.nodes[place]);
            let Some(on) = on.filter(|on| on.takes_tasks && clear::room(on, (ask, None)).is_some()) else {
                continue;
            };
            let before = given.entry(*node).or_default();
            slots += (on.free + *before + devices) / each - (on.free + *before) / each;
            *before += devices;
        }
    }
    true
}
