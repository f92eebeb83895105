//! Phase 1, share: what each queue is entitled to now, of each resource. Guarantees first, then the surplus by weight, up to
//! what each can use, from the top of the tree down. Integers only; the parts of a whole sum to it.

mod asked;
mod closed;
mod forks;
mod guaranteed;
mod held;
mod kept;
mod lent;
mod mixed;
mod named;
mod nodes;
mod paths;
mod same;
mod scarce;
mod seats;
mod spent;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

pub(crate) use closed::Closed;
pub(crate) use held::{ANY, at_stake};
pub(super) use mixed::Mix;
use scarce::Scarce;

use super::Entitlement;
use super::calendar;
use super::loans::Loans;
use super::past::{self, Missed};
use super::reclaim::Stated;
use super::settle::held_by;
use crate::amount::{Amount, Limits, Resource};
use crate::id::{AllocationId, DeviceId};
use crate::model::allocation::Placement;
use crate::model::device::WHOLE_MILLI;
use crate::model::models::ByModels;
use crate::model::policy::Share;
use crate::model::queue::{Queue, lineage};
use crate::reason::Reason;
use crate::snapshot::{Capacity, NodeView, RunView, Sizes, Snapshot};
use crate::state::{State, counted};
use crate::time::Time;

/// Amounts of the resources that are divided, in their order; nearly all pools divide only a few.
pub(crate) type Amounts = SmallVec<[i64; 3]>;

/// The queues with what is due to each. The first is the pool itself; parents come before their children. The
/// snapshot keeps a tree with what is held, so that a cycle adds what is wanted and divides.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares {
    resources: Arc<[Resource]>,
    pub(crate) queues: Vec<QueueShare>,
    by_path: Arc<BTreeMap<String, usize>>,
    /// By place: what of devices the queue by itself holds, or is promised, by tasks that can run on some models only, in thousandths.
    bound: Arc<Vec<ByModels<i64>>>,
    /// Whether any queue has a guarantee.
    pub(crate) guarantees: bool,
    /// Whether any queue states a guarantee as an amount, on whichever nodes: then jobs that are not preemptible
    /// stay within theirs. What is reserved for a queue for a time only keeps others off its devices.
    binds_fixed: bool,
    /// Whether nodes are kept for any queue.
    keeps_nodes: bool,
    /// Whether what queues used in the past counts.
    pub(super) remembers: bool,
    /// What queues keep for themselves, and how much each may borrow; `None` where all is lent without bounds.
    loans: Option<Loans>,
    /// The models of which jobs that can run on no other want more than there is; `None` where there are none.
    scarce: Option<Scarce>,
    /// How large the largest nodes are.
    pub(crate) sizes: Arc<Sizes>,
    /// What queues missed, as far as that is known.
    pub(super) missed: Missed,
}

/// A queue and what is due to it.
#[derive(Debug, PartialEq)]
pub(crate) struct QueueShare {
    pub(crate) parent: usize,
    pub(crate) children: Arc<Vec<usize>>,
    /// Whether it is a user's seat in the queue above it.
    is_seat: bool,
    /// Whether nodes are kept for it: what these have is its guarantee and its limit, and it lends nothing.
    pub(super) has_nodes: bool,
    /// Whether its budget, or that of one above it, is used up: its jobs that wait want no devices.
    pub(super) is_spent: bool,
    pub(crate) weight: u32,
    pub(crate) priority: i32,
    /// Whose devices its jobs may take.
    pub(super) stated: Stated,
    pub(crate) guarantee: Amounts,
    /// What of its guarantee of devices stands whatever it has used, in thousandths: all but what pledges of device time add.
    steady_milli: i64,
    /// The guarantee that the queue itself states; without bound where it states none.
    said: Amounts,
    limit: Amounts,
    /// What it and those below it hold or are promised; what is being stopped does not count.
    pub(crate) held: Amounts,
    /// The part of it that running jobs hold.
    pub(crate) running: Amounts,
    /// The part of it that jobs hold that are not preemptible.
    pub(crate) pinned: Amounts,
    /// What is kept in it and below it for those who do not hold it: no other has it.
    pub(crate) vacant: Amounts,
    /// What is kept in it and below it for those who do not want it: it is due to nobody.
    unwanted: Amounts,
    /// What it and those below it hold or wait for, within its limit.
    pub(crate) wanted: Amounts,
    /// Likewise of devices, whatever its limit.
    asked_milli: i64,
    pub(crate) due: Amounts,
    /// What it is to hold: what is due now, and what it missed; at least its guarantee as far as it is due.
    pub(super) target: Amounts,
    /// What is left to it by claims that go by what is due.
    pub(super) keeps: Amounts,
    /// The smallest amount of devices, in thousandths, that a job in it or below it gives back when it gives
    /// way; without bound where none does.
    pub(super) least_milli: i64,
    /// The smallest amount of devices, in thousandths, that a job in it or below it waits for; without bound where none does.
    least_wanted_milli: i64,
    /// What its children leave of what they are to hold, since each job that waits there asks for more.
    left_by_children: Amounts,
    /// Per resource: how many of its children run more than is guaranteed to them, and how many more than is due as well.
    lenders: SmallVec<[Lenders; 3]>,
}

/// Copies amounts as they lie in memory: every cycle copies all queues.
impl Clone for QueueShare {
    fn clone(&self) -> Self {
        let copy = |amounts: &Amounts| Amounts::from_slice(amounts);
        Self {
            children: Arc::clone(&self.children),
            guarantee: copy(&self.guarantee),
            said: copy(&self.said),
            limit: copy(&self.limit),
            held: copy(&self.held),
            running: copy(&self.running),
            pinned: copy(&self.pinned),
            vacant: copy(&self.vacant),
            unwanted: copy(&self.unwanted),
            wanted: copy(&self.wanted),
            due: copy(&self.due),
            target: copy(&self.target),
            keeps: copy(&self.keeps),
            left_by_children: copy(&self.left_by_children),
            lenders: SmallVec::from_slice(&self.lenders),
            ..*self
        }
    }
}

/// How many queues have more than is guaranteed to them, and how many of these more than is due.
type Lenders = (u32, u32);

/// Where the pool itself stands among the queues.
pub(crate) const POOL: usize = 0;

impl Shares {
    /// Divides the pool as of the last event.
    pub(crate) fn of(state: &State, snapshot: &Snapshot) -> Self {
        Self::at(state, snapshot, state.now)
    }

    /// Divides the pool.
    pub(crate) fn at(state: &State, snapshot: &Snapshot, now: Time) -> Self {
        let mut shares = snapshot.shares.clone();
        if shares.queues.is_empty() {
            shares = Self::tree(state, &snapshot.capacity);
        }
        shares.note_nodes(&snapshot.capacity);
        shares.note_promises(state);
        shares.note_spent(state, now);
        shares.note_wanted(state, snapshot);
        shares.guarantee_seats(state, snapshot);
        let whole: Amounts = shares.resources.iter().map(|it| snapshot.capacity.total(it)).collect();
        shares.loans = shares.loans.take().map(|loans| loans.noted(&shares.queues, &whole));
        shares.note_kept();
        shares.note_scarce(state, snapshot);
        shares.queues[POOL].due = whole;
        for queue in 0..shares.queues.len() {
            match state.policy.share {
                Share::Dominant => shares.divide_dominant(queue),
                Share::Fill | Share::None => shares.divide(queue),
            }
        }
        shares.remembers = state.remembers();
        past::aim(state, &mut shares);
        shares.note_least(&snapshot.running);
        for queue in 1..shares.queues.len() {
            shares.count_lender(queue, 1);
            shares.count_left(queue, 1);
        }
        shares
    }

    /// The queues, before anything is held.
    pub(crate) fn tree(state: &State, capacity: &Capacity) -> Self {
        let named = state
            .queues
            .values()
            .flat_map(|queue| queue.guarantee.keys().chain(queue.borrow.keys()).chain(queue.lend.keys()));
        let named: BTreeSet<Resource> = named.filter(|it| **it != Resource::Any).cloned().collect();
        let resources = std::iter::once(Resource::Any).chain(named).collect();
        let are_said = state.queues.values().any(|queue| !queue.guarantee.is_empty());
        let binds_fixed = are_said || !state.pledges.is_empty();
        let are_for_a_time = || state.reserved_now().next().is_some();
        let mut shares = Self {
            resources,
            queues: Vec::new(),
            by_path: Arc::default(),
            bound: Arc::default(),
            guarantees: binds_fixed || state.keeps_nodes() || are_for_a_time(),
            binds_fixed,
            keeps_nodes: state.keeps_nodes(),
            remembers: false,
            loans: None,
            scarce: None,
            sizes: Arc::clone(capacity.sizes()),
            missed: Missed::default(),
        };
        let mut by_path: BTreeMap<String, usize> = BTreeMap::new();
        shares.add(&Queue::named(""), POOL);
        by_path.insert(String::new(), POOL);
        // A path sorts after those that it begins with.
        for queue in state.queues.values() {
            let queue = &*calendar::with_reserved(state, queue);
            let parent = lineage(&queue.path).skip(1).find_map(|path| by_path.get(path).copied());
            let place = shares.add(queue, parent.unwrap_or(POOL));
            let guaranteed = &mut shares.queues[place].guarantee[0];
            *guaranteed = (*guaranteed).max(state.floor_milli(&queue.path));
            by_path.insert(queue.path.clone(), place);
            shares.add_seats(state, (queue, place), &mut by_path);
        }
        shares.by_path = Arc::new(by_path);
        for queue in (1..shares.queues.len()).rev() {
            shares.guarantee_children(queue);
        }
        if state.queues.values().any(Queue::has_loans) {
            let places: Vec<(usize, &Queue)> = state
                .queues
                .values()
                .filter_map(|queue| Some((*shares.by_path.get(&queue.path)?, queue)))
                .collect();
            shares.loans = Some(Loans::of(&shares.queues, &places, &shares.resources));
        }
        shares
    }

    fn add(&mut self, queue: &Queue, parent: usize) -> usize {
        let place = self.queues.len();
        let of =
            |limits: &Limits, unsaid| self.resources.iter().map(|it| amount(limits, it, unsaid)).collect();
        let mut guarantee: Amounts = of(&queue.guarantee, 0);
        // A guarantee of any is the total: at least what the named models sum to.
        let models = queue.guarantee.iter().filter(|(it, _)| matches!(it, Resource::Model(_)));
        let named = models.fold(0i64, |sum, (_, amount)| sum.saturating_add(finite(*amount)));
        guarantee[0] = guarantee[0].max(named);
        let mut said: Amounts = of(&queue.guarantee, i64::MAX);
        if named > 0 {
            said[0] = guarantee[0];
        }
        let zero: Amounts = smallvec![0; self.resources.len()];
        self.queues.push(QueueShare {
            parent,
            children: Arc::default(),
            is_seat: false,
            has_nodes: !queue.nodes.is_unsaid(),
            is_spent: false,
            weight: queue.weight,
            priority: queue.priority,
            stated: Stated::by(queue),
            steady_milli: guarantee[0],
            guarantee,
            said,
            limit: of(&queue.limit, i64::MAX),
            held: zero.clone(),
            running: zero.clone(),
            pinned: zero.clone(),
            vacant: zero.clone(),
            unwanted: zero.clone(),
            wanted: zero.clone(),
            asked_milli: 0,
            due: zero.clone(),
            target: zero.clone(),
            keeps: zero.clone(),
            left_by_children: zero,
            least_milli: i64::MAX,
            least_wanted_milli: i64::MAX,
            lenders: smallvec![(0, 0); self.resources.len()],
        });
        if place != POOL {
            Arc::make_mut(&mut self.queues[parent].children).push(place);
        }
        place
    }

    /// What is guaranteed to those below a queue is guaranteed to it.
    fn guarantee_children(&mut self, queue: usize) {
        // Its nodes have what they have, whatever its children are guaranteed of it.
        if self.queues[queue].has_nodes {
            return;
        }
        for resource in 0..self.resources.len() {
            let of = |child: &usize| self.queues[*child].guarantee[resource];
            let sum = self.queues[queue].children.iter().map(of).fold(0, i64::saturating_add);
            let own = &mut self.queues[queue].guarantee[resource];
            *own = (*own).max(sum);
        }
        let steady = self.queues[queue].children.iter().map(|child| self.queues[*child].steady_milli);
        let sum = steady.fold(0, i64::saturating_add);
        self.queues[queue].steady_milli = self.queues[queue].steady_milli.max(sum);
    }

    /// Subtracts what is promised from what runs.
    fn note_promises(&mut self, state: &State) {
        for promise in state.promises.values() {
            let Some(job) = state.jobs.get(&promise.job.number) else { continue };
            let amounts = self.counted(state, promise.placements.iter());
            let queues: Vec<usize> = self.upwards(self.place(job.spec.stand())).collect();
            for place in queues {
                let running = self.queues[place].running.iter_mut();
                running.zip(&amounts).for_each(|(running, amount)| *running -= amount);
            }
        }
    }

    /// What each queue is entitled to, of devices of any model.
    pub(crate) fn entitlements(
        &self,
        snapshot: &Snapshot,
    ) -> impl Iterator<Item = (String, Entitlement)> + use<'_> {
        let lent = self.lent(&snapshot.held, snapshot.capacity.total(&Resource::Any));
        let of = move |place: usize| {
            let queue = &self.queues[place];
            Entitlement {
                guarantee_milli: queue.guarantee[0],
                due_milli: queue.due[0],
                wanted_milli: queue.wanted[0],
                lent_milli: lent[place],
            }
        };
        let queues = self.by_path.iter().filter(|(_, place)| **place != POOL);
        queues.map(move |(path, place)| (path.clone(), of(*place)))
    }

    /// A queue and those above it, but for the pool.
    pub(crate) fn upwards(&self, place: usize) -> impl Iterator<Item = usize> + use<'_> {
        std::iter::successors(Some(place), |place| Some(self.queues[*place].parent))
            .take_while(|place| *place != POOL)
    }

    /// The queue just below the pool that a queue is, or is in; the pool for the pool itself.
    pub(crate) fn top(&self, place: usize) -> usize {
        self.upwards(place).last().unwrap_or(POOL)
    }

    /// Per resource: whether the pool has less of it free than is asked, or the queue could take less by what the
    /// others lend. Devices always count as scarce: whether the free ones would do shows only in a look at nodes.
    pub(crate) fn scarce(&self, place: usize, asked: &Amounts, capacity: &Capacity) -> Vec<bool> {
        let free = |of: &dyn Fn(&NodeView) -> i64| capacity.nodes.iter().map(of).fold(0, i64::saturating_add);
        let left =
            |index| self.loans.as_ref().map_or(i64::MAX, |it| it.available(&self.queues, place, index));
        let is_scarce = |(index, (resource, asked)): (usize, (&Resource, &i64))| match resource {
            Resource::Any | Resource::Model(_) | Resource::Pods => true,
            _ if *asked == 0 => false,
            Resource::Cpu => free(&|node| node.cpu_milli.1) < *asked || left(index) < *asked,
            Resource::Memory => free(&|node| node.memory_bytes.1) < *asked || left(index) < *asked,
            _ => free(&|node| node.extras.1.of(resource)) < *asked || left(index) < *asked,
        };
        self.resources.iter().zip(asked).enumerate().map(is_scarce).collect()
    }

    /// Counts what a queue takes (or, with the sign −1, gives back).
    pub(crate) fn charge(&mut self, from: usize, amounts: &Amounts, (sign, pins): (i64, bool)) {
        let above: Vec<usize> = self.upwards(from).collect();
        for place in above {
            self.count_left(place, -1);
            let queue = &mut self.queues[place];
            for (index, amount) in amounts.iter().enumerate() {
                queue.held[index] += sign * amount;
                queue.pinned[index] += if pins { sign * amount } else { 0 };
            }
            self.count_left(place, 1);
        }
        self.charge_kept(from, (amounts, sign));
    }

    /// What allocations draw of what is divided.
    pub(crate) fn drawn(&self, state: &State, live: &[AllocationId]) -> Amounts {
        self.counted(state, held_by(state, live))
    }

    /// What a running job draws of what is divided.
    pub(crate) fn drawn_by(&self, state: &State, view: &RunView) -> Amounts {
        match self.resources.len() {
            1 => smallvec![view.spots.iter().map(|spot| spot.milli).sum()],
            _ => self.drawn(state, &view.live),
        }
    }

    /// What placements draw of what is divided.
    pub(crate) fn counted<'p>(
        &self,
        state: &State,
        placements: impl Iterator<Item = &'p Placement>,
    ) -> Amounts {
        let mut sum: Amounts = smallvec![0; self.resources.len()];
        for placement in placements {
            // Devices of every model are what nearly all pools divide: that needs no look at each.
            if self.resources.len() == 1 {
                sum[0] += placement.milli();
                continue;
            }
            let model = |id: DeviceId| state.devices.get(&id).map(|device| device.spec.model.as_str());
            let drawn = counted(placement, model);
            for (sum, resource) in sum.iter_mut().zip(self.resources.iter()) {
                *sum = sum.saturating_add(drawn.of(resource));
            }
        }
        sum
    }

    /// Returns the siblings at which the paths of two queues part, one above (or at) each; `None` if one is above the other.
    pub(crate) fn part(&self, mut one: usize, mut other: usize) -> Option<(usize, usize)> {
        let depth = |place| self.upwards(place).count();
        let (mut depth_of_one, mut depth_of_other) = (depth(one), depth(other));
        while depth_of_one > depth_of_other {
            (one, depth_of_one) = (self.queues[one].parent, depth_of_one - 1);
        }
        while depth_of_other > depth_of_one {
            (other, depth_of_other) = (self.queues[other].parent, depth_of_other - 1);
        }
        while one != other && self.queues[one].parent != self.queues[other].parent {
            (one, other) = (self.queues[one].parent, self.queues[other].parent);
        }
        (one != other).then_some((one, other))
    }

    /// Whether nothing but limits and capacity bounds what a queue may take.
    pub(crate) fn is_unbound(&self) -> bool {
        !self.guarantees && self.loans.is_none()
    }

    /// Whether a queue may have so much beside what it holds, by what the others lend and what it may borrow.
    pub(crate) fn lends(&self, place: usize, asked: &Amounts) -> Result<(), Reason> {
        let Some(loans) = &self.loans else { return Ok(()) };
        let Some(refused) = loans.refuses(&self.queues, place, asked) else { return Ok(()) };
        let (path, resource) =
            (self.path(refused.queue).to_owned(), self.resources[refused.resource].clone());
        let own = || self.path(place).to_owned();
        let is_guaranteed = self.guarantees_it(place, asked);
        let asked = asked[refused.resource];
        Err(match refused.borrow {
            Some(borrow) => Reason::BorrowLimit(path, resource, borrow, asked),
            None if is_guaranteed && refused.is_short => Reason::Scarce(own(), resource),
            None if is_guaranteed => Reason::LentOut(own(), resource),
            None => Reason::NotLent(own(), resource, refused.left, asked),
        })
    }

    /// What a queue could still take of each resource, by the guarantees, loans and holdings of the whole tree; below zero
    /// where more is held than there is.
    pub(crate) fn available(&self, place: usize) -> Vec<(Resource, i64)> {
        let of = |(index, resource): (usize, &Resource)| {
            let loans = self.loans.as_ref();
            let open = loans.map_or(i64::MAX, |loans| loans.available(&self.queues, place, index));
            let within =
                |place: usize| self.queues[place].limit[index].saturating_sub(self.queues[place].held[index]);
            (resource.clone(), self.upwards(place).map(within).fold(open, i64::min))
        };
        self.resources.iter().enumerate().map(of).collect()
    }

    /// What of a resource no queue holds.
    pub(super) fn left(&self, index: usize) -> i64 {
        let pool = &self.queues[POOL];
        let held = pool.children.iter().map(|child| self.queues[*child].held[index]);
        pool.due[index] - held.sum::<i64>()
    }

    /// What a queue uses of each resource that others lend it; nothing where queues state no loans.
    pub(crate) fn borrowed(&self, place: usize) -> Vec<(Resource, i64)> {
        let of = |index| self.loans.as_ref().map_or(0, |loans| loans.borrowed(place, index));
        self.resources.iter().enumerate().map(|(index, resource)| (resource.clone(), of(index))).collect()
    }

    /// Whether a queue may take so much for a job that is not preemptible: with what such jobs hold already,
    /// it and each queue above stay within their guarantees.
    fn pins(&self, place: usize, asked: &Amounts) -> Result<(), Reason> {
        for place in self.upwards(place).filter(|place| self.queues[*place].binds_fixed()) {
            let queue = &self.queues[place];
            let is_of_host =
                |index: usize| !matches!(self.resources[index], Resource::Any | Resource::Model(_));
            let over = |index: &usize| {
                let pinned = queue.pinned[*index].saturating_add(asked[*index]);
                let comes_with = is_of_host(*index) && queue.comes_with_devices(*index, asked);
                asked[*index] > 0 && pinned > queue.pinned_at_most(*index) && !comes_with
            };
            if let Some(index) = (0..asked.len()).find(over) {
                let resource = self.resources[index].clone();
                let path = self.path(place).to_owned();
                let most = queue.pinned_at_most(index);
                return Err(Reason::BeyondGuarantee(path, resource, most, asked[index]));
            }
        }
        Ok(())
    }
}

/// The stated amount of a resource; `unsaid` where none is stated.
pub(super) fn amount(limits: &Limits, resource: &Resource, unsaid: i64) -> i64 {
    limits.get(resource).map_or(unsaid, |amount| finite(*amount))
}

fn finite(amount: Amount) -> i64 {
    match amount {
        Amount::Finite(amount) => amount,
        Amount::Unlimited => i64::MAX,
    }
}

/// The amount of a resource that is not cut into smaller parts when it is divided.
fn quantum(resource: &Resource) -> i64 {
    match resource {
        Resource::Any | Resource::Model(_) => i64::from(WHOLE_MILLI),
        _ => 1,
    }
}
