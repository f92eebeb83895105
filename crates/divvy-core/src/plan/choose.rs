//! The choice of the walk: which of all jobs, running and waiting, would run if only counts mattered.

use std::collections::{BTreeMap, BTreeSet};

use super::order::{self, Head, Line};
use crate::amount::{Amount, Resource};
use crate::id::{ClassId, JobId};
use crate::model::device::WHOLE_MILLI;
use crate::model::policy::Policy;
use crate::snapshot::{Capacity, ClassView, OrderKey, RunView, Running, Waiting, order as waiting_order};
use crate::state::State;
use crate::time::Time;

/// A running job that may have to give way.
#[derive(Clone, Copy)]
pub(super) struct Runner<'a> {
    pub(super) place: OrderKey,
    pub(super) job: JobId,
    pub(super) view: &'a RunView,
}

/// What the choice says of a job.
pub(super) enum Choice<'a> {
    /// It waits and is to run: so many of its members at most.
    Starts(Head<'a>, usize),
    /// It runs and is not to run on.
    GivesWay(Runner<'a>),
}

impl<'a> Choice<'a> {
    /// The job that gives way, if that is what is said.
    pub(super) fn gives_way(&self) -> Option<Runner<'a>> {
        match self {
            Self::Starts(..) => None,
            Self::GivesWay(runner) => Some(*runner),
        }
    }
}

/// What the choice says, in the order of the walk.
pub(super) struct Chosen<'a> {
    pub(super) choices: Vec<Choice<'a>>,
    now: Time,
}

impl<'a> Chosen<'a> {
    /// Gives up a running job that is not chosen. A job that was placed at this very moment stays: a job that
    /// was chosen by count and did not fit would take its places, and leave them to it, for ever.
    fn give_up(&mut self, runner: Runner<'a>) {
        if runner.view.placed_at < self.now && !runner.view.is_cooling(self.now) {
            self.choices.push(Choice::GivesWay(runner));
        }
    }
}

/// A job of the merged line.
enum Next<'a> {
    Waits(Head<'a>),
    Runs(Runner<'a>),
}

/// Chooses in the order of the policy, by count alone, while the pool's devices last.
pub(super) fn choose<'a>(
    state: &'a State,
    capacity: &Capacity,
    (waiting, running): (&'a Waiting, &'a Running),
    (now, ending): (Time, &BTreeSet<JobId>),
) -> Chosen<'a> {
    let policy = &state.policy;
    let runner = |(job, view): (&JobId, &'a RunView)| Runner {
        place: order::of_running(policy, *job, view, now),
        job: *job,
        view,
    };
    let all = || running.jobs.iter().filter(|(job, _)| !ending.contains(job)).map(runner);
    let mut line = Line::new(waiting, policy, now);
    let free = i64::try_from(capacity.shelves().free()).unwrap_or(i64::MAX / i64::from(WHOLE_MILLI));
    let mut budget = Budget { left_milli: free * i64::from(WHOLE_MILLI) };
    let mut runners: Vec<Runner> = match policy.guarantees_first {
        true => all().collect(),
        false => behind(running, line.first(), (policy, now), (ending, all())),
    };
    runners.sort_unstable_by_key(|runner| (runner.place, runner.job));
    budget.left_milli += runners.iter().map(|runner| runner.view.milli).sum::<i64>();
    let mut chosen = Chosen { choices: Vec::new(), now };
    let mut first = BTreeSet::new();
    if policy.guarantees_first {
        first = within_guarantees(state, (waiting, &runners), now, &mut budget, &mut chosen);
        runners.retain(|runner| !first.contains(&runner.job.number));
    }
    if policy.guarantees_first && policy.borrowers_run_on {
        take(
            &mut Merged { line: &mut Line::empty(waiting, policy, now), runners: &runners },
            state,
            &first,
            &mut budget,
            &mut chosen,
        );
        runners.clear();
    }
    take(&mut Merged { line: &mut line, runners: &runners }, state, &first, &mut budget, &mut chosen);
    chosen
}

/// The running jobs that stand behind the first that waits. Until its turn comes all that run keep what they
/// have: their order need not be known, and in most cycles these are nearly all of them.
fn behind<'a>(
    running: &'a Running,
    first: Option<OrderKey>,
    (policy, now): (&Policy, Time),
    (ending, all): (&BTreeSet<JobId>, impl Iterator<Item = Runner<'a>>),
) -> Vec<Runner<'a>> {
    let Some(first) = first else { return Vec::new() };
    let Some(behind) = running.behind(first, (policy, now)) else {
        return all.filter(|runner| first < runner.place).collect();
    };
    let behind = behind.filter(|(_, job, _)| !ending.contains(job));
    let behind = behind.map(|(place, job, view)| Runner { place, job: *job, view }).collect::<Vec<_>>();
    debug_assert!(is_as_looked_at_each(&behind, all.filter(|runner| first < runner.place)));
    behind
}

/// Whether the line gives the same jobs, with the same places, as a look at each running job.
fn is_as_looked_at_each<'a>(behind: &[Runner<'a>], found: impl Iterator<Item = Runner<'a>>) -> bool {
    let mut found: Vec<_> = found.map(|runner| (runner.place, runner.job)).collect();
    found.sort_unstable();
    behind.iter().map(|runner| (runner.place, runner.job)).eq(found)
}

/// What the walk has not given out yet.
struct Budget {
    left_milli: i64,
}

/// Waiting and running jobs as one line.
struct Merged<'a, 'b> {
    line: &'b mut Line<'a>,
    runners: &'b [Runner<'a>],
}

impl<'a> Merged<'a, '_> {
    fn next(&mut self) -> Option<Next<'a>> {
        let waits = self.line.first();
        match self.runners.split_first() {
            Some((runner, rest)) if waits.is_none_or(|first| runner.place <= first) => {
                self.runners = rest;
                Some(Next::Runs(*runner))
            }
            _ => self.line.take().map(Next::Waits),
        }
    }
}

/// Goes through the line; those in `done` have been chosen before.
fn take<'a>(
    merged: &mut Merged<'a, '_>,
    state: &State,
    done: &BTreeSet<u64>,
    budget: &mut Budget,
    chosen: &mut Chosen<'a>,
) {
    // How many members were chosen of the arrays that still stand in the line.
    let mut before: BTreeMap<u64, usize> = BTreeMap::new();
    while let Some(next) = merged.next() {
        match next {
            Next::Runs(runner) if runner.view.milli <= budget.left_milli => {
                budget.left_milli -= runner.view.milli
            }
            Next::Runs(runner) => chosen.give_up(runner),
            Next::Waits(Head { class, key, .. }) if done.contains(&key.number) => {
                merged.line.admit_next(class, key);
            }
            Next::Waits(head) => {
                let Head { class, key, view: &ClassView { milli, .. }, .. } = head;
                // All jobs of a class ask for as much: if the first is too large, all are.
                if milli > budget.left_milli {
                    continue;
                }
                let chosen_before = before.get(&key.number).copied();
                let placed = chosen_before.unwrap_or(0);
                let (members, next) = members(state, (key.number, placed), milli, budget.left_milli);
                budget.left_milli -= milli * members as i64;
                chosen.choices.push(Choice::Starts(head, members));
                if let Some(next) = next {
                    before.insert(key.number, placed + members);
                    merged.line.stand_again(head, next);
                }
                if chosen_before.is_none() {
                    merged.line.admit_next(class, key);
                }
            }
        }
    }
}

/// How many members of a job may start, by what it may and by what is left, behind those that were chosen
/// before: as many as stand in one place; and where the next one stands.
fn members(
    state: &State,
    (number, before): (u64, usize),
    milli: i64,
    left_milli: i64,
) -> (usize, Option<OrderKey>) {
    let Some(job) = state.jobs.get(&number) else { return (0, None) };
    let most = job.members_left().map_or(usize::MAX, |left| (left as usize).saturating_sub(before));
    let fit = if milli > 0 { usize::try_from(left_milli / milli).unwrap_or(usize::MAX) } else { usize::MAX };
    let mut starts = waiting_order::starts(&state.policy, job).map(|(key, _)| key).skip(before);
    let Some(first) = starts.next().filter(|_| most.min(fit) > 0) else { return (0, None) };
    let mut count = 1;
    while count < most.min(fit) {
        match starts.next() {
            Some(key) if key == first => count += 1,
            next => return (count, next),
        }
    }
    (count, None)
}

/// Chooses, queue by queue, the jobs that the queue's guarantee covers: what earlier jobs leave of it must be
/// as much as a job asks for. These jobs go before all others, in one order over the queues.
fn within_guarantees<'a>(
    state: &'a State,
    (waiting, runners): (&'a Waiting, &[Runner<'a>]),
    now: Time,
    budget: &mut Budget,
    chosen: &mut Chosen<'a>,
) -> BTreeSet<u64> {
    let mut covered: Vec<(OrderKey, Next)> = Vec::new();
    for (queue, classes) in classes_by_queue(state, waiting, runners) {
        let guarantee = state.queues.get(queue).and_then(|queue| queue.guarantee.get(&Resource::Any));
        let mut left = match guarantee {
            None => continue,
            Some(Amount::Unlimited) => i64::MAX,
            Some(Amount::Finite(milli)) => *milli,
        };
        let own: Vec<Runner> =
            runners.iter().filter(|runner| runner.view.queue.path() == queue).copied().collect();
        let mut line = Line::of(waiting, &state.policy, now, classes);
        let mut merged = Merged { line: &mut line, runners: &own };
        while left > 0 {
            match merged.next() {
                None => break,
                Some(Next::Runs(runner)) if runner.view.milli <= left => {
                    left -= runner.view.milli;
                    covered.push((runner.place, Next::Runs(runner)));
                }
                Some(Next::Runs(_)) => {}
                Some(Next::Waits(head)) if head.view.milli <= left => {
                    left -= head.view.milli;
                    covered.push((head.place, Next::Waits(head)));
                    merged.line.admit_next(head.class, head.key);
                }
                Some(Next::Waits(..)) => {}
            }
        }
    }
    covered.sort_unstable_by_key(|(place, _)| *place);
    let mut done = BTreeSet::new();
    for (_, next) in covered {
        match next {
            Next::Runs(runner) => {
                done.insert(runner.job.number);
                match runner.view.milli <= budget.left_milli {
                    true => budget.left_milli -= runner.view.milli,
                    false => chosen.give_up(runner),
                }
            }
            Next::Waits(head) => {
                if head.view.milli <= budget.left_milli {
                    done.insert(head.key.number);
                    budget.left_milli -= head.view.milli;
                    chosen.choices.push(Choice::Starts(head, 1));
                }
            }
        }
    }
    done
}

/// The queues that have jobs, each with the classes of those that wait.
fn classes_by_queue<'a>(
    state: &'a State,
    waiting: &'a Waiting,
    runners: &[Runner<'a>],
) -> BTreeMap<&'a str, Vec<(ClassId, &'a ClassView)>> {
    let mut queues: BTreeMap<&str, Vec<(ClassId, &ClassView)>> = BTreeMap::new();
    for runner in runners {
        queues.entry(runner.view.queue.path()).or_default();
    }
    for (class, view) in &waiting.classes {
        let first = view.jobs.first().and_then(|key| state.jobs.get(&key.number));
        if let Some(job) = first {
            queues.entry(&job.spec.queue).or_default().push((*class, view));
        }
    }
    queues
}
