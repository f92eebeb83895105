//! The jobs that might give way, the cheapest first.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use super::gather::Unseen;
use super::{Candidate, Cost};
use crate::id::{AllocationId, JobId};
use crate::plan::fair::Fair;
use crate::plan::share::Amounts;
use crate::plan::victims;
use crate::snapshot::RunView;

/// All candidates, put in order only as far as is asked for, since most claims need few of them.
pub(in crate::plan) struct Candidates<'a> {
    all: Vec<Candidate<'a>>,
    /// Those that are not in order yet.
    rest: BinaryHeap<Reverse<Rank>>,
    /// The others, in order.
    order: Vec<usize>,
    /// How many of these were taken one after the other.
    taken: usize,
    /// Queues of which none of the jobs is among them yet.
    unseen: Unseen,
    /// Whether they are in the order of their costs.
    by_cost: bool,
    /// Whether parts of jobs are among them, some of which go before others.
    has_parts: bool,
}

/// Of equals the job submitted last goes first; then by index.
type Rank = (Cost, Reverse<JobId>, usize);

impl<'a> Candidates<'a> {
    pub(super) fn new(mut all: Vec<Candidate<'a>>) -> Self {
        if all.iter().any(|candidate| candidate.view.elastic) {
            // Of the tasks of one gang the last goes first. Which of them go before others is noted by their places in the order.
            let rank = |candidate: &Candidate| candidate.within.as_ref().map(|within| within.start);
            all.sort_by_key(|it| (it.cost, Reverse(it.job), Reverse(rank(it))));
            victims::tie(&mut all);
            return Self { by_cost: true, has_parts: true, ..Self::in_order(all) };
        }
        let entry = |(place, it): (usize, &Candidate)| Reverse((it.cost, Reverse(it.job), place));
        let rest: Vec<_> = all.iter().enumerate().map(entry).collect();
        Self { by_cost: true, rest: rest.into(), order: Vec::new(), ..Self::in_order(all) }
    }

    /// Further jobs may come from these queues.
    pub(super) fn with(self, unseen: Unseen) -> Self {
        Self { unseen, ..self }
    }

    /// Takes the queues that have not been looked at.
    pub(super) fn take_unseen(&mut self) -> Unseen {
        std::mem::take(&mut self.unseen)
    }

    /// Adds candidates none of which goes before those that are in order already; these queues are left.
    pub(super) fn add(&mut self, found: Vec<Candidate<'a>>, unseen: Unseen) {
        let first = self.all.len();
        let entry = |(place, it): (usize, &Candidate)| Reverse((it.cost, Reverse(it.job), first + place));
        self.rest.extend(found.iter().enumerate().map(entry));
        self.all.extend(found);
        self.unseen = unseen;
    }

    /// Whether a queue must be looked at before it is known which candidate has this number in the order, or that there is none.
    pub(super) fn is_open(&self, index: usize) -> bool {
        let known = self.rest.peek().map(|Reverse((cost, job, _))| (*cost, *job));
        let least = self.unseen.least();
        self.order.len() <= index && least.is_some_and(|least| known.is_none_or(|known| least < known))
    }

    /// For candidates that are in order already.
    pub(in crate::plan) fn in_order(all: Vec<Candidate<'a>>) -> Self {
        let order = (0..all.len()).collect();
        let (rest, unseen) = (BinaryHeap::new(), Unseen::default());
        Self { all, rest, order, taken: 0, unseen, by_cost: false, has_parts: false }
    }

    /// Likewise, where parts of gangs may be among them.
    pub(in crate::plan) fn in_parts(mut all: Vec<Candidate<'a>>) -> Self {
        let has_parts = all.iter().any(|candidate| candidate.within.is_some());
        if has_parts {
            victims::tie(&mut all);
        }
        Self { has_parts, ..Self::in_order(all) }
    }

    pub(in crate::plan) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// All of them, in no order.
    pub(in crate::plan) fn all(&self) -> impl Iterator<Item = &Candidate<'a>> {
        self.all.iter()
    }

    /// The candidate of this number in the order, as far as that is known.
    pub(in crate::plan) fn get(&self, index: usize) -> &Candidate<'a> {
        &self.all[self.order[index]]
    }

    /// Puts the candidates up to this index in order, as far as they are known; returns whether so many are.
    pub(super) fn reach(&mut self, index: usize) -> bool {
        while self.order.len() <= index && !self.is_open(index) {
            let Some(Reverse((.., place))) = self.rest.pop() else { return false };
            self.order.push(place);
        }
        self.order.len() > index
    }

    /// Starts taking from the first one again.
    pub(super) fn begin_again(&mut self) {
        self.taken = 0;
    }

    /// Takes the next one; returns its number.
    pub(super) fn take(&mut self) -> Option<usize> {
        self.reach(self.taken).then(|| {
            self.taken += 1;
            self.taken - 1
        })
    }

    /// Whether they are in the order of their costs.
    pub(super) fn by_cost(&self) -> bool {
        self.by_cost
    }

    /// Whether parts of jobs are among them, some of which go before others.
    pub(super) fn has_parts(&self) -> bool {
        self.has_parts
    }

    /// Whether there are queues that have not been looked at.
    pub(super) fn has_unseen(&self) -> bool {
        !self.unseen.is_empty()
    }

    /// Whether a queue must be looked at before the next one is taken.
    pub(super) fn is_next_open(&self) -> bool {
        self.is_open(self.taken)
    }

    /// What the one that is taken next costs at least: where no queue must be looked at before, just that.
    pub(super) fn next_cost(&self) -> Option<Cost> {
        if let Some(place) = self.order.get(self.taken) {
            return Some(self.all[*place].cost);
        }
        let known = self.rest.peek().map(|Reverse((cost, ..))| *cost);
        known.into_iter().chain(self.unseen.least().map(|(cost, _)| cost)).min()
    }
}

/// A queue in which jobs run that might give way, and these jobs: the same for all claims of a cycle.
pub(in crate::plan) struct Party<'a> {
    pub(super) queue: &'a str,
    pub(super) place: usize,
    runs: OnceCell<Vec<Runs<'a>>>,
    is_elastic: OnceCell<bool>,
    least: OnceCell<Option<Least>>,
}

/// What is the least, in this order, that a job of a queue costs a claim of another queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Least {
    pub(super) priority: i32,
    pub(super) in_peace: bool,
    pub(super) lost_milli_ms: i64,
    pub(super) milli: i64,
    pub(super) drawn_milli: i64,
    /// Of equals the job submitted last goes first.
    pub(super) job: Reverse<JobId>,
}

/// A running job, and what it draws.
pub(super) struct Runs<'a> {
    pub(super) job: JobId,
    pub(super) view: &'a RunView,
    /// Computed when first asked for.
    draws: OnceCell<Amounts>,
}

impl<'a> Party<'a> {
    pub(super) fn all(fair: &Fair<'a, '_>) -> Vec<Self> {
        let party = |queue: &'a str| Self {
            queue,
            place: fair.shares.place(queue),
            runs: OnceCell::new(),
            is_elastic: OnceCell::new(),
            least: OnceCell::new(),
        };
        fair.running.queues().map(party).collect()
    }

    /// The number of the party of one queue alone, if it has one. Parties are in the order of their queues.
    pub(super) fn number_of(queue: &str, parties: &[Self]) -> Range<usize> {
        let number = parties.binary_search_by(|party| party.queue.cmp(queue));
        number.map_or(0..0, |number| number..number + 1)
    }

    /// Its jobs, the lowest priority first.
    pub(super) fn runs(&self, fair: &Fair<'a, '_>) -> &[Runs<'a>] {
        let run = |(job, view): (&JobId, &'a RunView)| Runs { job: *job, view, draws: OnceCell::new() };
        self.runs.get_or_init(|| fair.running.of_queue(self.queue).map(run).collect())
    }

    /// Whether any of them may go in parts.
    pub(super) fn is_elastic(&self, fair: &Fair<'a, '_>) -> bool {
        *self.is_elastic.get_or_init(|| self.runs(fair).iter().any(|run| run.view.elastic))
    }

    /// The least that one of them costs another queue; `None` if others take none of them yet.
    pub(super) fn least(&self, fair: &Fair<'a, '_>) -> Option<Least> {
        let of = |Runs { job, view, .. }: &Runs| Least {
            priority: view.priority,
            in_peace: view.is_cooling(fair.now),
            lost_milli_ms: super::lost_by_stopping(view, fair.now),
            milli: view.milli,
            drawn_milli: view.spots.iter().map(|spot| spot.milli).sum(),
            job: Reverse(*job),
        };
        *self
            .least
            .get_or_init(|| self.runs(fair).iter().filter(|run| !run.view.is_young(fair.now)).map(of).min())
    }
}

impl<'a> Runs<'a> {
    /// What this cycle has left of the job, and what that draws.
    pub(super) fn left(&self, fair: &Fair<'a, '_>) -> (Cow<'a, [AllocationId]>, Amounts) {
        let live = victims::left_of(fair, (self.job, self.view));
        let draws = match live {
            Cow::Borrowed(_) => {
                self.draws.get_or_init(|| fair.shares.drawn_by(fair.trial.state, self.view)).clone()
            }
            Cow::Owned(_) => fair.shares.drawn(fair.trial.state, &live),
        };
        (live, draws)
    }
}
