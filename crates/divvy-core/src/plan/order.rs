//! Phase 2, order: the jobs of all classes as one line, by their keys; ties end on the submit number.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::Bound;

use crate::id::{ClassId, JobId};
use crate::model::policy::{Order, Policy};
use crate::snapshot::order::{self, Standing};
use crate::snapshot::{ClassView, OrderKey, RunView, Waiting};
use crate::state::{Job, Run};
use crate::time::Time;

/// The heads of all classes, merged: a line from which the first is taken. A class whose head cannot start does not come back.
pub(super) struct Line<'a> {
    heads: BinaryHeap<Reverse<Head<'a>>>,
    /// How many heads have come into the line so far.
    entered: u64,
    /// Classes with a job whose next run stands further behind.
    again: BTreeMap<ClassId, Again>,
    waiting: &'a Waiting,
    policy: &'a Policy,
    now: Time,
}

/// The job of a class that stands in line.
#[derive(Clone, Copy)]
pub(super) struct Head<'a> {
    /// Where it stands.
    pub(super) place: OrderKey,
    pub(super) class: ClassId,
    /// Its key in the class.
    pub(super) key: OrderKey,
    pub(super) view: &'a ClassView,
}

impl Head<'_> {
    fn stands(&self) -> (OrderKey, ClassId, OrderKey) {
        (self.place, self.class, self.key)
    }
}

impl Ord for Head<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.stands().cmp(&other.stands())
    }
}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head<'_> {}

/// The jobs of a class that are to be let into the line again.
struct Again {
    /// The last of its jobs that was let in for the first time.
    last: OrderKey,
    /// Where the next runs of the others stand, each with the key of its job in the class.
    runs: BTreeSet<(OrderKey, OrderKey)>,
}

impl<'a> Line<'a> {
    pub(super) fn new(waiting: &'a Waiting, policy: &'a Policy, now: Time) -> Self {
        let heads = BinaryHeap::with_capacity(waiting.classes.len());
        let mut line = Self { heads, ..Self::empty(waiting, policy, now) };
        for (class, view) in &waiting.classes {
            line.admit(*class, view, view.jobs.first());
        }
        line
    }

    /// An empty line.
    pub(super) fn empty(waiting: &'a Waiting, policy: &'a Policy, now: Time) -> Self {
        Self { heads: BinaryHeap::new(), entered: 0, again: BTreeMap::new(), waiting, policy, now }
    }

    /// A line of some classes only.
    pub(super) fn of(
        waiting: &'a Waiting,
        policy: &'a Policy,
        now: Time,
        classes: Vec<(ClassId, &'a ClassView)>,
    ) -> Self {
        let mut line = Self::empty(waiting, policy, now);
        classes.into_iter().for_each(|(class, view)| line.admit(class, view, view.jobs.first()));
        line
    }

    /// Takes the next job and its class out of the line.
    pub(super) fn take(&mut self) -> Option<Head<'a>> {
        self.heads.pop().map(|Reverse(head)| head)
    }

    /// How many heads have come into the line so far: as long as that is the same, no job stands in it that did not before.
    pub(super) fn entered(&self) -> u64 {
        self.entered
    }

    /// The classes that have a job in the line, in no order.
    pub(super) fn classes(&self) -> impl Iterator<Item = ClassId> {
        self.heads.iter().map(|Reverse(head)| head.class)
    }

    /// The place of the next job.
    pub(super) fn first(&self) -> Option<OrderKey> {
        self.next().map(|head| head.place)
    }

    /// The next job.
    pub(super) fn next(&self) -> Option<Head<'a>> {
        self.heads.peek().map(|Reverse(head)| *head)
    }

    /// The first job of the classes that pass a test. The test costs more than to see which of two stands first.
    pub(super) fn next_of(&self, passes: impl Fn(&ClassView) -> bool) -> Option<Head<'a>> {
        let heads = self.heads.iter().map(|Reverse(head)| *head);
        heads.fold(None, |first, head| match first.is_none_or(|first| head < first) && passes(head.view) {
            true => Some(head),
            false => first,
        })
    }

    /// Takes the job of a class out of the line, wherever it stands.
    pub(super) fn take_of(&mut self, class: ClassId) -> Option<Head<'a>> {
        if self.next().is_some_and(|next| next.class == class) {
            return self.take();
        }
        let head = self.heads.iter().find(|Reverse(head)| head.class == class).map(|Reverse(head)| *head);
        self.heads.retain(|Reverse(head)| head.class != class);
        head
    }

    /// Puts a job back that was taken.
    pub(super) fn put_back(&mut self, head: Head<'a>) {
        self.entered += 1;
        self.heads.push(Reverse(head));
    }

    /// Puts a job back that was taken, for a run of it that stands elsewhere.
    pub(super) fn stand_again(&mut self, head: Head<'a>, next: OrderKey) {
        let place = self.place_of(head.view, next);
        self.put_back(Head { place, ..head });
    }

    /// The place in the line of a run of this class.
    pub(super) fn place_of(&self, class: &ClassView, run: OrderKey) -> OrderKey {
        order::place(self.policy, run, class.milli, self.now)
    }

    /// Lets a job that was taken into the line again with its next run, or the job of its class that stands before that.
    pub(super) fn fall_back(&mut self, class: ClassId, key: OrderKey, next: OrderKey) {
        let again = self.again.entry(class).or_insert_with(|| Again { last: key, runs: BTreeSet::new() });
        again.runs.insert((next, key));
        self.admit_next(class, key);
    }

    /// Lets the job behind this one in its class into the line, or one that stands there again; returns whether there is one.
    pub(super) fn admit_next(&mut self, class: ClassId, behind: OrderKey) -> bool {
        let Some(view) = self.waiting.classes.get(&class) else { return false };
        let again = self.again.get_mut(&class);
        let last = again.as_ref().map_or(behind, |again| again.last);
        let next = view.jobs.range((Bound::Excluded(last), Bound::Unbounded)).next();
        let Some(again) = again else {
            self.admit(class, view, next);
            return next.is_some();
        };
        let returns = again.runs.first().is_some_and(|(run, _)| next.is_none_or(|next| run < next));
        let head = match returns {
            true => again.runs.pop_first(),
            false => next.map(|next| (*next, *next)),
        };
        again.last = next.filter(|_| !returns).copied().unwrap_or(last);
        if let Some((run, key)) = head {
            let place = self.place_of(view, run);
            self.put_back(Head { place, class, key, view });
        }
        head.is_some()
    }

    fn admit(&mut self, class: ClassId, view: &'a ClassView, head: Option<&OrderKey>) {
        if let Some(key) = head {
            self.put_back(Head { place: self.place_of(view, *key), class, key: *key, view });
        }
    }
}

/// The place of a running job in the line.
pub(super) fn of_running(policy: &Policy, id: JobId, view: &RunView, now: Time) -> OrderKey {
    let fell = view.level(policy, now).fell;
    let turn = fell.map_or(view.placed_at, |fell| fell.max(view.placed_at));
    // A job that falls at this very moment counts as waiting.
    let key = key_of(policy, (id, view), now, (turn, fell == Some(now)));
    let key = if order::stands_fast(policy, view) { order::fast(key) } else { key };
    let is_held = order::held_until(policy, view).is_some_and(|until| until > now);
    if is_held { OrderKey { rank: i64::MIN, ..key } } else { key }
}

/// The place in the line of a run that waits.
pub(super) fn of_waiting(policy: &Policy, (job, run): (&Job, Option<&Run>), now: Time) -> OrderKey {
    order::place(policy, order::of_waiting(policy, job, run), job.spec.most_milli(), now)
}

/// The place of a running job as seen by waiting jobs that may take its devices since they stand before it. By length, what
/// is left of it counts, and never more than will count once it waits, or it could take the devices back. Once it has outrun
/// its estimate that grows in steps, or each second of running would put it further behind an equal that waits.
pub(super) fn of_runner(policy: &Policy, id: JobId, view: &RunView, now: Time) -> OrderKey {
    let place = of_running(policy, id, view, now);
    match policy.order {
        Order::Shortest => {
            let progress_ms = view.stepped_ms(policy, now);
            let standing =
                Standing { progress_ms, ..standing(policy, (id, view), now, (view.placed_at, false)) };
            OrderKey { first: order::left(policy, &standing).min(place.first), ..place }
        }
        Order::Arrival | Order::Attained => place,
    }
}

/// The place of a running job once it has been stopped.
pub(super) fn of_stopped(policy: &Policy, id: JobId, view: &RunView, now: Time) -> OrderKey {
    key_of(policy, (id, view), now, (now, true))
}

fn key_of(
    policy: &Policy,
    (id, view): (JobId, &RunView),
    now: Time,
    (turn, waits): (Time, bool),
) -> OrderKey {
    let key = order::key(policy, &standing(policy, (id, view), now, (turn, waits)));
    order::place(policy, key, view.order_milli(), now)
}

fn standing<'a>(
    policy: &Policy,
    (id, view): (JobId, &'a RunView),
    now: Time,
    (turn, waits): (Time, bool),
) -> Standing<'a> {
    Standing {
        priority: view.priority,
        submitted_at: view.submitted_at,
        number: id.number,
        milli: view.order_milli(),
        progress_ms: view.progress_ms(now),
        estimate: view.estimate.as_deref(),
        level: view.level(policy, now).number,
        turn,
        waits,
    }
}
