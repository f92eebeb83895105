//! Who might give way for a claim, gathered queue by queue, those first in which jobs might cost least: most claims need few of them.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::line::{Least, Runs};
use super::rules::Rules;
use super::{
    Candidate, Candidates, Claim, Cost, Goes, Next, Party, Reach, Step, Steps, lost_by_stopping, may_stop,
    might, others_lend, strangers,
};
use crate::id::JobId;
use crate::model::policy::{Policy, WithinQueue};
use crate::plan::fair::Fair;
use crate::plan::order;
use crate::plan::past::{Short, Worst};
use crate::plan::share::{self, ANY, Amounts};
use crate::plan::starve;
use crate::plan::victims;
use crate::snapshot::RunView;
use crate::time::Time;

/// The queues whose jobs have not been looked at yet.
#[derive(Default)]
pub(super) struct Unseen {
    queues: BinaryHeap<Reverse<Hidden>>,
    terms: Option<Terms>,
    /// How many were looked at the last time; the next time it is twice as many.
    batch: usize,
}

/// A queue that has not been looked at.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Hidden {
    /// The least that any of its jobs costs, and the job that might.
    least: (Cost, Reverse<JobId>),
    /// Its number among the parties.
    number: usize,
    /// The priority up to which its jobs might go.
    most: i32,
}

/// What decides who might give way, as things stood before any job was counted as gone.
struct Terms {
    rules: Rules,
    reach: Reach,
    /// Jobs that this cycle has ended, or changed, already.
    spent: BTreeSet<JobId>,
}

impl Unseen {
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// The least that any job there costs, and the job that might.
    pub(super) fn least(&self) -> Option<(Cost, Reverse<JobId>)> {
        self.queues.peek().map(|Reverse(hidden)| hidden.least)
    }
}

/// The jobs, and parts of jobs, that might give way; `None` if there are none. Of the claim's own queue they are all, of the others those
/// that are asked for later.
pub(super) fn candidates<'a>(fair: &mut Fair<'a, '_>, claim: &Claim) -> Option<Candidates<'a>> {
    let mut candidates = first_candidates(fair, claim);
    while candidates.is_empty() {
        if !look_further(fair, claim, &mut candidates, &[]) {
            return None;
        }
    }
    Some(candidates)
}

/// Those that are looked at first.
fn first_candidates<'a>(fair: &Fair<'a, '_>, claim: &Claim) -> Candidates<'a> {
    let rules = Rules::of(fair, claim.queue);
    let reach = Reach::of(&fair.shares, claim, rules.borrow_evicts);
    let reach = claim
        .siblings_first
        .map_or(reach, |right| reach.at_last(right, fair.shares.upwards(claim.queue).count()));
    let all = claim.starves || claim.strangers || claim.siblings_first.is_some();
    let own_alone = claim.own_alone || !all && !others_lend(fair, claim, (&rules, reach));
    let terms = Terms { rules, reach, spent: fair.spent() };
    let parties = fair.parties.get_or_init(|| Party::all(fair));
    let stand = claim.spec.stand();
    let numbers = if own_alone { Party::number_of(stand, parties) } else { 0..parties.len() };
    let may = |number: usize| {
        let party = &parties[number];
        let up_to = || up_to(fair, claim, (&terms.rules, reach), (party.queue, party.place));
        let most = if claim.strangers { Some(i32::MAX) } else { up_to() };
        Some((number, most?))
    };
    let may: Vec<(usize, i32)> = numbers.filter_map(may).collect();
    // Parts of gangs are put in order among all candidates; and for hosts a queue's part in its due is not known before its jobs are.
    let at_once = claim.starves
        || claim.strangers
        || claim.asked[ANY] == 0
        || may.iter().any(|(number, _)| parties[*number].is_elastic(fair));
    let (mut found, mut queues) = (Vec::new(), Vec::new());
    for (number, most) in may {
        let party = &parties[number];
        if at_once || party.queue == stand {
            found.extend(of_party(fair, claim, (&terms, party, most)));
        } else if let Some(least) = least(fair, claim, party).filter(|(cost, _)| cost.priority <= most) {
            queues.push(Reverse(Hidden { least, number, most }));
        }
    }
    Candidates::new(found).with(Unseen { queues: queues.into(), terms: Some(terms), batch: 0 })
}

/// The next step, once as many queues have been looked at as that takes.
pub(super) fn next_step<'a>(
    fair: &mut Fair<'a, '_>,
    claim: &Claim,
    candidates: &mut Candidates<'a>,
    (steps, released): (&mut Steps, &[usize]),
) -> Option<Step> {
    loop {
        match steps.next(fair.trial, candidates) {
            Next::Step(step) => return Some(step),
            Next::End => return None,
            Next::LookFurther => drop(look_further(fair, claim, candidates, released)),
        }
    }
}

/// Looks at further queues, as things stood before the `released` were counted as gone. Returns whether there were any.
pub(super) fn look_further<'a>(
    fair: &mut Fair<'a, '_>,
    claim: &Claim,
    candidates: &mut Candidates<'a>,
    released: &[usize],
) -> bool {
    let mut unseen = candidates.take_unseen();
    let any = !unseen.is_empty();
    unseen.batch = (unseen.batch * 2).max(1);
    let stop = |fair: &mut Fair, candidates: &Candidates, sign| {
        let goes = released.iter().map(|index| candidates.get(*index));
        goes.for_each(|candidate| fair.shares.stop(candidate.queue, &candidate.draws, sign));
    };
    stop(fair, candidates, -1);
    let mut found = Vec::new();
    if let Some((terms, parties)) = unseen.terms.as_ref().zip(fair.parties.get()) {
        for _ in 0..unseen.batch {
            let Some(Reverse(Hidden { number, most, .. })) = unseen.queues.pop() else { break };
            found.extend(of_party(fair, claim, (terms, &parties[number], most)));
        }
    }
    stop(fair, candidates, 1);
    candidates.add(found, unseen);
    any
}

/// What each job of another queue costs at least, by what is known of the queue; `None` if none of them may go.
fn least<'a>(fair: &Fair<'a, '_>, claim: &Claim, party: &Party<'a>) -> Option<(Cost, Reverse<JobId>)> {
    let Least { priority, in_peace, lost_milli_ms, milli, drawn_milli, job } = party.least(fair)?;
    let (_, other) = fair.shares.part(claim.queue, party.place)?;
    let mut draws = Amounts::from_elem(0, claim.asked.len());
    draws[ANY] = fair.shares.queues[party.place].least(ANY)?;
    let right = Rules::of(fair, party.place).borrow_evicts;
    let short = || fair.shares.short((party.place, other), (&draws, &claim.asked));
    let cost = Cost {
        later: false,
        own: false,
        queue_priority: fair.shares.queues[other].priority,
        short: if right.due { short() } else { Short::default() },
        priority,
        goes: Goes::Job,
        in_peace,
        stands: Reverse(i64::MAX),
        seniority: 0,
        lost_milli_ms,
        milli,
        // Other resources come on top.
        drawn: drawn_milli,
        jobs: 1,
    };
    Some((cost, job))
}

/// The jobs, and parts of jobs, of one queue that might give way.
fn of_party<'a>(
    fair: &Fair<'a, '_>,
    claim: &Claim,
    (terms, party, most): (&Terms, &Party<'a>, i32),
) -> Vec<Candidate<'a>> {
    let (state, now) = (fair.trial.state, fair.now);
    let Terms { rules, reach, spent } = terms;
    let own = party.queue == claim.spec.stand();
    let may = |job: JobId, view: &RunView| match own {
        _ if claim.strangers && !strangers::of(fair, claim).contains(&job) => false,
        _ if claim.starves => starve::may_take(state, job),
        true => claim.own && rules.within(claim, (job, view), (&state.policy, now)),
        false => !claim.own_alone && rules.across(claim, view) && !view.is_young(now),
    };
    // The priority of the sibling in whose subtree it runs.
    let sibling = fair.shares.part(claim.queue, party.place);
    let queue_priority = sibling.map_or(0, |(_, other)| fair.shares.queues[other].priority);
    let right = Rules::of(fair, party.place).borrow_evicts;
    let runs = party.runs(fair).iter().take_while(|run| run.view.priority <= most);
    let is_safe =
        |run: &Runs| claim.leaves_in_peace((own, run.view), (state, now)) || spent.contains(&run.job);
    let (mut found, mut worst) = (Vec::new(), Worst::default());
    let is_whole = |run: &Runs| claim.surplus_alone && !run.view.elastic;
    for run in runs.filter(|run| may(run.job, run.view) && !is_safe(run) && !is_whole(run)) {
        let (live, draws) = run.left(fair);
        let mut short = |draws: &Amounts| {
            // A queue that takes nothing by what is due would not come back for it.
            let sibling = sibling.filter(|_| right.due);
            let short =
                sibling.map(|(_, other)| fair.shares.short((party.place, other), (draws, &claim.asked)));
            worst.with(run.view.priority, short.unwrap_or_default())
        };
        let cost = Cost {
            later: claim.goes_later(run.job),
            // A job that starves takes from its own queue first: others keep what they have if that will do.
            own: own != claim.starves,
            queue_priority,
            short: short(&draws),
            priority: run.view.priority,
            goes: Goes::Job,
            in_peace: run.view.is_cooling(now),
            stands: stands(claim, (own, run), (&state.policy, now)),
            seniority: 0,
            lost_milli_ms: lost_by_stopping(run.view, now),
            milli: run.view.milli,
            drawn: draws.iter().fold(0, |sum, amount| sum.saturating_add(*amount)),
            jobs: 1,
        };
        let (job, view, queue) = (run.job, run.view, party.place);
        let goes_before = !own && right.goes_before(run.view.priority, claim.spec.priority);
        let (within, needs) = (None, Vec::new());
        let whole = Candidate { job, view, queue, live, draws, cost, within, needs, goes_before };
        let may_stop = |candidate: &Candidate| may_stop(&fair.shares, claim, candidate, *reach);
        match view.elastic {
            true => {
                let parts = victims::parts_of(fair, whole, short, may_stop);
                found.extend(parts.into_iter().filter(|part| !claim.surplus_alone || part.within.is_some()));
            }
            false => found.extend(Some(whole).filter(may_stop)),
        }
    }
    found
}

/// Returns the priority up to which jobs of a queue might give way for the claim.
fn up_to(
    fair: &Fair,
    claim: &Claim,
    (rules, reach): (&Rules, Reach),
    (queue, place): (&str, usize),
) -> Option<i32> {
    if claim.starves && queue == claim.spec.stand() {
        return Some(i32::MAX);
    }
    if queue != claim.spec.stand() {
        let (own, other) = fair.shares.part(claim.queue, place)?;
        let queue = &fair.shares.queues[place];
        let lends_to = |reach: Reach, index: usize| {
            let Some(least) = queue.least(index) else { return false };
            victims::lends(&fair.shares, (claim.queue, place), (own, other, index), (reach, least, true))
        };
        // Where each job of the queue has devices, none goes unless it may go for devices.
        let is_of_devices = claim.asked[ANY] > 0 && queue.least(ANY).is_some_and(|least| least > 0);
        let lends = |reach: Reach| match is_of_devices {
            true => lends_to(reach, ANY),
            false => share::at_stake(&claim.asked).any(|index| lends_to(reach, index)),
        };
        let anyone = lends(reach.without_priority()).then_some(i32::MAX);
        return anyone.or_else(|| reach.lower.filter(|_| lends(reach)));
    }
    let may = rules.within_queue != WithinQueue::Never;
    match claim.place.filter(|_| may) {
        Some(place) if might::anyone_behind(fair, claim.spec, place) => Some(claim.spec.priority),
        _ => rules.juniors_up_to(claim.spec.priority),
    }
}

/// What the order compares first of a job that goes by it: its level, say. No other job is last by it.
fn stands(claim: &Claim, (own, run): (bool, &Runs), (policy, now): (&Policy, Time)) -> Reverse<i64> {
    let by_order = own && claim.place.is_some() && run.view.priority == claim.spec.priority;
    Reverse(if by_order { order::of_runner(policy, run.job, run.view, now).first } else { i64::MAX })
}
