//! The jobs that might give way, the cheapest first.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

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
            return Self::in_order(all);
        }
        let entry = |(place, it): (usize, &Candidate)| Reverse((it.cost, Reverse(it.job), place));
        let rest: Vec<_> = all.iter().enumerate().map(entry).collect();
        Self { all, rest: rest.into(), order: Vec::new(), taken: 0 }
    }

    /// For candidates that are in order already.
    pub(in crate::plan) fn in_order(all: Vec<Candidate<'a>>) -> Self {
        let order = (0..all.len()).collect();
        Self { all, rest: BinaryHeap::new(), order, taken: 0 }
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

    /// Puts the candidates up to this index in order; returns whether there are so many.
    pub(super) fn reach(&mut self, index: usize) -> bool {
        while self.order.len() <= index {
            let Some(Reverse((.., place))) = self.rest.pop() else { return false };
            self.order.push(place);
        }
        true
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

    /// The cost of the one that is taken next.
    pub(super) fn next_cost(&self) -> Option<Cost> {
        match self.order.get(self.taken) {
            Some(place) => Some(self.all[*place].cost),
            None => self.rest.peek().map(|Reverse((cost, ..))| *cost),
        }
    }
}

/// A queue in which jobs run that might give way, and these jobs: the same for all claims of a cycle.
pub(in crate::plan) struct Party<'a> {
    pub(super) queue: &'a str,
    pub(super) place: usize,
    runs: OnceCell<Vec<Runs<'a>>>,
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
        let party = |queue: &'a str| Self { queue, place: fair.shares.place(queue), runs: OnceCell::new() };
        fair.running.queues().map(party).collect()
    }

    /// The party of one queue alone, if it has one. Parties are in the order of their queues.
    pub(super) fn of<'p>(queue: &str, parties: &'p [Self]) -> &'p [Self] {
        let place = parties.binary_search_by(|party| party.queue.cmp(queue));
        place.map_or(&[], |place| &parties[place..=place])
    }

    /// Its jobs, the lowest priority first.
    pub(super) fn runs(&self, fair: &Fair<'a, '_>) -> &[Runs<'a>] {
        let run = |(job, view): (&JobId, &'a RunView)| Runs { job: *job, view, draws: OnceCell::new() };
        self.runs.get_or_init(|| fair.running.of_queue(self.queue).map(run).collect())
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
