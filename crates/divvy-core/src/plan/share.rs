//! Phase 1, share: what each queue is entitled to now, of each resource. Guarantees first, then the surplus by weight, up to
//! what each can use, from the top of the tree down. Integers only; the parts of a whole sum to it.

use std::collections::{BTreeMap, BTreeSet};

use super::Entitlement;
use super::settle::held_by;
use crate::amount::{Amount, Limits, Resource};
use crate::id::{AllocationId, DeviceId};
use crate::model::allocation::Placement;
use crate::model::device::WHOLE_MILLI;
use crate::model::job::JobSpec;
use crate::model::policy::{Policy, Preempt, Share};
use crate::model::queue::{Queue, lineage};
use crate::reason::Reason;
use crate::snapshot::{Capacity, DeviceView, NodeView, Snapshot};
use crate::state::{State, counted};

/// Amounts of the resources that are divided, in their order.
pub(crate) type Amounts = Vec<i64>;

/// The queues with what is due to each. The first is the pool itself; parents come before their children.
pub(crate) struct Shares {
    resources: Vec<Resource>,
    pub(crate) queues: Vec<QueueShare>,
    by_path: BTreeMap<String, usize>,
    /// Whether any queue has a guarantee.
    pub(crate) guarantees: bool,
}

/// A queue and what is due to it.
pub(crate) struct QueueShare {
    pub(crate) parent: usize,
    pub(crate) children: Vec<usize>,
    pub(crate) weight: u32,
    pub(crate) priority: i32,
    pub(crate) guarantee: Amounts,
    limit: Amounts,
    /// What it and those below it hold or are promised; what is being stopped does not count.
    pub(crate) held: Amounts,
    /// What of it running jobs hold.
    pub(crate) running: Amounts,
    /// What of it jobs hold that are not preemptible.
    pub(crate) pinned: Amounts,
    /// What it and those below it hold or wait for, within its limit.
    pub(crate) wanted: Amounts,
    pub(crate) due: Amounts,
}

/// Whether queues have anything of their own under a policy: a part of the pool, or a claim to take back.
pub(crate) fn is_shared(policy: &Policy) -> bool {
    policy.share != Share::None || policy.preempt == Preempt::LeastLoss
}

/// Where the pool itself stands among the queues.
pub(crate) const POOL: usize = 0;

impl Shares {
    /// Divides the pool.
    pub(crate) fn of(state: &State, snapshot: &Snapshot) -> Self {
        let mut shares = Self::tree(state);
        shares.note_held(snapshot);
        shares.note_promises(state);
        shares.note_wanted(state, snapshot);
        shares.queues[POOL].due = shares.resources.iter().map(|it| total(&snapshot.capacity, it)).collect();
        for queue in 0..shares.queues.len() {
            shares.divide(queue);
        }
        shares
    }

    fn tree(state: &State) -> Self {
        let named = state.queues.values().flat_map(|queue| queue.guarantee.keys());
        let named: BTreeSet<Resource> = named.filter(|it| **it != Resource::Any).cloned().collect();
        let resources: Vec<Resource> = std::iter::once(Resource::Any).chain(named).collect();
        let guarantees = state.queues.values().any(|queue| !queue.guarantee.is_empty());
        let mut shares = Self { resources, queues: Vec::new(), by_path: BTreeMap::new(), guarantees };
        shares.add(&Queue::named(""), POOL);
        // A path sorts after those that it begins with.
        for queue in state.queues.values() {
            let parent = lineage(&queue.path).skip(1).find_map(|path| shares.by_path.get(path).copied());
            shares.add(queue, parent.unwrap_or(POOL));
        }
        for queue in (1..shares.queues.len()).rev() {
            shares.guarantee_children(queue);
        }
        shares
    }

    fn add(&mut self, queue: &Queue, parent: usize) {
        let place = self.queues.len();
        let of =
            |limits: &Limits, unsaid| self.resources.iter().map(|it| amount(limits, it, unsaid)).collect();
        let mut guarantee: Amounts = of(&queue.guarantee, 0);
        // A guarantee of any is the total: at least what the named models sum to.
        let models = queue.guarantee.iter().filter(|(it, _)| matches!(it, Resource::Model(_)));
        let named = models.fold(0i64, |sum, (_, amount)| sum.saturating_add(finite(*amount)));
        guarantee[0] = guarantee[0].max(named);
        let zero = vec![0; self.resources.len()];
        self.queues.push(QueueShare {
            parent,
            children: Vec::new(),
            weight: queue.weight,
            priority: queue.priority,
            guarantee,
            limit: of(&queue.limit, i64::MAX),
            held: zero.clone(),
            running: zero.clone(),
            pinned: zero.clone(),
            wanted: zero.clone(),
            due: zero,
        });
        if place != POOL {
            self.queues[parent].children.push(place);
        }
        self.by_path.insert(queue.path.clone(), place);
    }

    /// What is guaranteed to those below a queue is guaranteed to it.
    fn guarantee_children(&mut self, queue: usize) {
        for resource in 0..self.resources.len() {
            let of = |child: &usize| self.queues[*child].guarantee[resource];
            let sum = self.queues[queue].children.iter().map(of).fold(0, i64::saturating_add);
            let own = &mut self.queues[queue].guarantee[resource];
            *own = (*own).max(sum);
        }
    }

    fn note_held(&mut self, snapshot: &Snapshot) {
        let of = |map: &BTreeMap<String, crate::amount::Holdings>, path: &str, resource: &Resource| {
            map.get(path).map_or(0, |held| held.of(resource))
        };
        for (path, place) in &self.by_path {
            for (index, resource) in self.resources.iter().enumerate() {
                let queue = &mut self.queues[*place];
                queue.held[index] =
                    of(&snapshot.held, path, resource) - of(&snapshot.leaving, path, resource);
                queue.running[index] = queue.held[index];
                queue.pinned[index] = of(&snapshot.pinned, path, resource);
                queue.wanted[index] = of(&snapshot.held, path, resource);
            }
        }
    }

    /// Takes what is promised off what runs.
    fn note_promises(&mut self, state: &State) {
        for promise in state.promises.values() {
            let Some(job) = state.jobs.get(&promise.job.number) else { continue };
            let amounts = self.counted(state, promise.placements.iter());
            let queues: Vec<usize> = self.upwards(self.place(&job.spec.queue)).collect();
            for place in queues {
                let running = self.queues[place].running.iter_mut();
                running.zip(&amounts).for_each(|(running, amount)| *running -= amount);
            }
        }
    }

    /// Adds what waits, from the leaves up: a parent wants what its children want, each within its limit.
    fn note_wanted(&mut self, state: &State, snapshot: &Snapshot) {
        let mut waiting: Vec<Amounts> = vec![vec![0; self.resources.len()]; self.queues.len()];
        for view in snapshot.waiting.classes.values() {
            let Some(job) = view.jobs.first().and_then(|key| state.jobs.get(&key.number)) else { continue };
            let place = self.place(&job.spec.queue);
            for (sum, asked) in waiting[place].iter_mut().zip(self.asked(&job.spec)) {
                *sum = sum.saturating_add(asked.saturating_mul(view.runs));
            }
        }
        for place in (0..self.queues.len()).rev() {
            let wait = std::mem::take(&mut waiting[place]);
            let queue = &mut self.queues[place];
            for (resource, wait) in wait.into_iter().enumerate() {
                let (held, limit) = (queue.wanted[resource], queue.limit[resource]);
                let more = wait.min(limit.saturating_sub(held).max(0));
                queue.wanted[resource] = held.saturating_add(more);
                if place != POOL {
                    let parent = &mut waiting[queue.parent][resource];
                    *parent = parent.saturating_add(more);
                }
            }
        }
    }

    /// Divides what is due to a queue among its children.
    fn divide(&mut self, queue: usize) {
        let children = std::mem::take(&mut self.queues[queue].children);
        for resource in 0..self.resources.len() {
            let claim = |child: &usize| {
                let child = &self.queues[*child];
                let wanted = child.wanted[resource];
                let guaranteed = child.guarantee[resource].min(wanted);
                Claim { guaranteed, wanted, weight: child.weight, priority: child.priority }
            };
            let claims: Vec<Claim> = children.iter().map(claim).collect();
            let quantum = quantum(&self.resources[resource]);
            let parts = fill(self.queues[queue].due[resource], &claims, quantum);
            for (child, part) in children.iter().zip(parts) {
                self.queues[*child].due[resource] = part;
            }
        }
        self.queues[queue].children = children;
    }

    /// What each queue is entitled to, of devices of any model.
    pub(crate) fn entitlements(&self) -> impl Iterator<Item = (String, Entitlement)> + use<'_> {
        let of = |place: usize| {
            let queue = &self.queues[place];
            Entitlement {
                guarantee_milli: queue.guarantee[0],
                due_milli: queue.due[0],
                wanted_milli: queue.wanted[0],
            }
        };
        let queues = self.by_path.iter().filter(|(_, place)| **place != POOL);
        queues.map(move |(path, place)| (path.clone(), of(*place)))
    }

    /// The place of a queue, or of the nearest one above it.
    pub(crate) fn place(&self, path: &str) -> usize {
        lineage(path).find_map(|path| self.by_path.get(path).copied()).unwrap_or(POOL)
    }

    /// A queue and those above it, but for the pool.
    pub(crate) fn upwards(&self, place: usize) -> impl Iterator<Item = usize> + use<'_> {
        std::iter::successors(Some(place), |place| Some(self.queues[*place].parent))
            .take_while(|place| *place != POOL)
    }

    /// What a job asks for, by its first alternatives; of several models that would do, the first stands for them.
    pub(crate) fn asked(&self, spec: &JobSpec) -> Amounts {
        let roles = spec.gang.roles();
        let of = |resource: &Resource| {
            let each = roles.iter().map(|role| {
                let alternative = role.ask.alternatives.first();
                let devices = alternative.and_then(|it| it.devices.as_ref());
                let milli = devices.map_or(0, |ask| i64::from(ask.count) * i64::from(ask.milli()));
                let amount = match resource {
                    Resource::Any => milli,
                    Resource::Model(model) => {
                        let is_it = devices.is_some_and(|ask| ask.class.models.first() == Some(model));
                        if is_it { milli } else { 0 }
                    }
                    Resource::Cpu => alternative.and_then(|it| it.cpu_milli).unwrap_or(0),
                    Resource::Memory => alternative.and_then(|it| it.memory_bytes).unwrap_or(0),
                    Resource::Storage | Resource::Pods => 0,
                };
                amount.saturating_mul(i64::from(role.minimum))
            });
            each.fold(0, i64::saturating_add)
        };
        self.resources.iter().map(of).collect()
    }

    /// Counts what a queue takes (or, with the sign −1, gives back).
    pub(crate) fn charge(&mut self, place: usize, amounts: &Amounts, (sign, pins): (i64, bool)) {
        let above: Vec<usize> = self.upwards(place).collect();
        for place in above {
            let queue = &mut self.queues[place];
            for (index, amount) in amounts.iter().enumerate() {
                queue.held[index] += sign * amount;
                queue.pinned[index] += if pins { sign * amount } else { 0 };
            }
        }
    }

    /// What allocations draw of what is divided.
    pub(crate) fn drawn(&self, state: &State, live: &[AllocationId]) -> Amounts {
        self.counted(state, held_by(state, live))
    }

    fn counted<'p>(&self, state: &State, placements: impl Iterator<Item = &'p Placement>) -> Amounts {
        let mut sum = vec![0i64; self.resources.len()];
        for placement in placements {
            // Devices of every model are what nearly all pools divide: that needs no look at each.
            if self.resources.len() == 1 {
                sum[0] += placement.milli();
                continue;
            }
            let model = |id: DeviceId| state.devices.get(&id).map(|device| device.spec.model.as_str());
            let drawn = counted(placement, model);
            for (sum, resource) in sum.iter_mut().zip(&self.resources) {
                *sum = sum.saturating_add(drawn.of(resource));
            }
        }
        sum
    }

    /// Whether a queue's side, where its path parts from another's, holds more of anything than is guaranteed to it.
    pub(crate) fn may_lend(&self, to: usize, from: usize) -> bool {
        let Some((_, from)) = self.part(to, from) else { return false };
        let from = &self.queues[from];
        from.running.iter().zip(&from.guarantee).any(|(running, guarantee)| running > guarantee)
    }

    /// Counts a running job as stopped (or, with the sign −1, as running on).
    pub(crate) fn stop(&mut self, place: usize, amounts: &Amounts, sign: i64) {
        self.charge(place, amounts, (-sign, false));
        let queues: Vec<usize> = self.upwards(place).collect();
        for place in queues {
            let running = self.queues[place].running.iter_mut();
            running.zip(amounts).for_each(|(running, amount)| *running -= sign * amount);
        }
    }

    /// The queues at which the paths of two part: siblings, one above (or at) each. `None` if one is above the other.
    pub(crate) fn part(&self, one: usize, other: usize) -> Option<(usize, usize)> {
        let path = |place| {
            let mut path: Vec<usize> = self.upwards(place).collect();
            path.reverse();
            path
        };
        path(one).into_iter().zip(path(other)).find(|(one, other)| one != other)
    }

    /// Whether nothing but limits and capacity bounds what a queue may take.
    pub(crate) fn is_unbound(&self) -> bool {
        !self.guarantees
    }

    /// Whether a queue may take so much for a job, whatever is free: jobs that are not preemptible stay within the guarantee,
    /// its own and those above.
    pub(crate) fn allows(&self, place: usize, asked: &Amounts, spec: &JobSpec) -> Result<(), Reason> {
        if spec.preemptible || !self.guarantees {
            return Ok(());
        }
        for place in self.upwards(place) {
            let queue = &self.queues[place];
            let over = |index: &usize| {
                let pinned = queue.pinned[*index].saturating_add(asked[*index]);
                asked[*index] > 0 && pinned > queue.guarantee[*index]
            };
            if let Some(index) = (0..asked.len()).find(over) {
                let resource = self.resources[index].clone();
                let path = self.path(place).to_owned();
                return Err(Reason::BeyondGuarantee(path, resource, queue.guarantee[index], asked[index]));
            }
        }
        Ok(())
    }

    fn path(&self, place: usize) -> &str {
        self.by_path.iter().find(|(_, other)| **other == place).map_or("", |(path, _)| path)
    }
}

/// Amounts that are said, where the resource is limited.
fn amount(limits: &Limits, resource: &Resource, unsaid: i64) -> i64 {
    limits.get(resource).map_or(unsaid, |amount| finite(*amount))
}

fn finite(amount: Amount) -> i64 {
    match amount {
        Amount::Finite(amount) => amount,
        Amount::Unlimited => i64::MAX,
    }
}

/// What the pool has of a resource: devices that can be given out, or are held; hosts as they are.
fn total(capacity: &Capacity, resource: &Resource) -> i64 {
    let nodes = capacity.nodes.iter();
    let devices = |model: Option<&String>| {
        let counts = |node: &NodeView| match (node.uniform, node.devices.first()) {
            (true, Some(first)) if model.is_none_or(|model| *model == first.spec.model) => {
                i64::from(node.usable)
            }
            (true, _) => 0,
            (false, _) => {
                let is_it = |device: &&DeviceView| {
                    device.unusable.is_none() && model.is_none_or(|model| *model == device.spec.model)
                };
                node.devices.iter().filter(is_it).count() as i64
            }
        };
        capacity.nodes.iter().map(counts).sum::<i64>() * i64::from(WHOLE_MILLI)
    };
    match resource {
        Resource::Any => devices(None),
        Resource::Model(model) => devices(Some(model)),
        Resource::Cpu => nodes.map(|node| node.cpu_milli.0).fold(0, i64::saturating_add),
        Resource::Memory => nodes.map(|node| node.memory_bytes.0).fold(0, i64::saturating_add),
        Resource::Storage | Resource::Pods => i64::MAX,
    }
}

/// What is not cut into smaller parts when it is divided.
fn quantum(resource: &Resource) -> i64 {
    match resource {
        Resource::Any | Resource::Model(_) => i64::from(WHOLE_MILLI),
        _ => 1,
    }
}

/// What one asks of what is divided.
#[derive(Clone, Copy, Debug)]
struct Claim {
    /// What it gets in any case.
    guaranteed: i64,
    /// What it can use.
    wanted: i64,
    weight: u32,
    priority: i32,
}

/// Divides a whole: to each what is guaranteed to it, then the rest by weight, higher priorities first, to none more than it can
/// use, and in whole quanta where it is cut short. What the quanta leave goes to the largest remainders, then the first.
fn fill(whole: i64, claims: &[Claim], quantum: i64) -> Vec<i64> {
    let mut parts: Vec<i64> = claims.iter().map(|claim| claim.guaranteed).collect();
    let mut left = parts.iter().fold(whole, |left, part| left.saturating_sub(*part));
    let priorities: BTreeSet<i32> = claims.iter().map(|claim| claim.priority).collect();
    for priority in priorities.into_iter().rev() {
        while left > 0 {
            let open = |index: &usize| {
                let claim = &claims[*index];
                claim.priority == priority && claim.weight > 0 && parts[*index] < claim.wanted
            };
            let open: Vec<usize> = (0..claims.len()).filter(open).collect();
            let weights: i128 = open.iter().map(|index| i128::from(claims[*index].weight)).sum();
            let need = |index: usize| claims[index].wanted - parts[index];
            let content = |index: &usize| {
                i128::from(need(*index)) * weights <= i128::from(left) * i128::from(claims[*index].weight)
            };
            let full: Vec<usize> = open.iter().copied().filter(content).collect();
            if full.is_empty() {
                left = cut(left, (claims, &open), quantum, &mut parts);
                break;
            }
            for index in full {
                left -= claims[index].wanted - parts[index];
                parts[index] = claims[index].wanted;
            }
        }
    }
    parts
}

/// Divides among those of whom nobody gets all that it can use; returns what is left.
fn cut(mut left: i64, (claims, open): (&[Claim], &[usize]), quantum: i64, parts: &mut [i64]) -> i64 {
    let weights: i128 = open.iter().map(|index| i128::from(claims[*index].weight)).sum();
    if weights == 0 {
        return left;
    }
    let whole = i128::from(left);
    let mut remainders = Vec::new();
    for index in open {
        let product = whole * i128::from(claims[*index].weight);
        let unit = i128::from(quantum) * weights;
        let quanta = i64::try_from(product / unit).unwrap_or(i64::MAX);
        parts[*index] += quanta * quantum;
        left -= quanta * quantum;
        remainders.push((-(product % unit), *index));
    }
    remainders.sort_unstable();
    for (_, index) in remainders {
        let more = quantum.min(left).min(claims[index].wanted - parts[index]).max(0);
        parts[index] += more;
        left -= more;
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claim(guaranteed: i64, wanted: i64, weight: u32) -> Claim {
        Claim { guaranteed: guaranteed.min(wanted), wanted, weight, priority: 0 }
    }

    #[test]
    fn what_one_cannot_use_goes_to_the_others_by_weight() {
        let claims = [claim(2, 3, 1), claim(0, 100, 1), claim(0, 100, 3)];
        assert_eq!(fill(11, &claims, 1), [3, 2, 6]);
    }

    #[test]
    fn devices_are_divided_whole_and_the_largest_remainder_gets_the_last() {
        let claims = [claim(0, 9000, 2), claim(0, 9000, 1)];
        assert_eq!(fill(4000, &claims, 1000), [3000, 1000]);
    }

    #[test]
    fn guarantees_beyond_the_whole_leave_nothing_to_divide() {
        assert_eq!(fill(4, &[claim(3, 9, 1), claim(3, 9, 1)], 1), [3, 3]);
    }

    #[test]
    fn higher_priorities_are_served_first_and_a_weight_of_zero_gets_nothing_beyond_its_guarantee() {
        let first = Claim { priority: 1, ..claim(0, 3, 1) };
        assert_eq!(fill(4, &[claim(0, 9, 1), first, claim(1, 9, 0)], 1), [0, 3, 1]);
    }

    proptest! {
        #[test]
        fn the_parts_sum_to_the_whole_or_to_all_that_can_be_used(
            whole in 0i64..1000,
            claims in proptest::collection::vec((0i64..300, 0i64..300, 1u32..9, -2i32..3), 1..9),
        ) {
            let claims: Vec<Claim> = claims
                .into_iter()
                .map(|(guaranteed, wanted, weight, priority)| Claim { priority, ..claim(guaranteed, wanted, weight) })
                .collect();
            let parts = fill(whole, &claims, 1);
            for (part, claim) in parts.iter().zip(&claims) {
                prop_assert!((claim.guaranteed..=claim.wanted).contains(part));
            }
            let guaranteed: i64 = claims.iter().map(|claim| claim.guaranteed).sum();
            let wanted: i64 = claims.iter().map(|claim| claim.wanted).sum();
            prop_assert_eq!(parts.iter().sum::<i64>(), whole.clamp(guaranteed.min(wanted), wanted));
        }
    }
}
