//! The cycle where the pool is divided between queues, or jobs give way by least loss. In turns, each job is
//! placed where it fits, or else in the places of the jobs that lose least; or else it waits with its reason.

mod claims;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use super::borrowers::{self, Borrowers};
use super::consolidate::{self, Budget};
use super::leaving::{self, Leaving};
use super::reclaim::{self, Party, Rules, Strangers};
use super::resize::Growth;
use super::settle::{self, Leaver};
use super::share::Shares;
use super::sooner::Sooner;
use super::trial::{Others, Trial};
use super::turns::{Turn, Turns};
use super::{Place, Plan, Report, Verdicts, place, quicken, starve, stuck};
use crate::id::{AllocationId, ClassId, JobId};
use crate::model::allocation::AllocationState;
use crate::model::job::{Cause, JobSpec};
use crate::model::policy::Preempt;
use crate::reason::Reason;
use crate::snapshot::order::{self as waiting_order, displaces};
use crate::snapshot::{ClassView, OrderKey, Running};
use crate::state::State;
use crate::time::Time;

/// What a cycle works with.
pub(super) struct Fair<'a, 'b> {
    pub(super) trial: &'b mut Trial<'a>,
    pub(super) shares: Shares,
    pub(super) running: &'a Running,
    pub(super) now: Time,
    /// The jobs that give way, in this order.
    pub(super) victims: Vec<Victim<'a>>,
    /// Gangs that run with fewer tasks than they may have.
    pub(super) growing: &'a BTreeSet<JobId>,
    /// Whether there is any such gang, or one that this cycle starts.
    pub(super) may_grow: bool,
    /// Further tasks of gangs: of those that run, and of those that this cycle starts.
    pub(super) grown: Vec<Place>,
    /// Jobs that end in this cycle for another cause.
    pub(super) ending: BTreeSet<JobId>,
    /// Turns of this cycle in which the verdict of the class stood, though others might give way for it.
    stood: Vec<Turn<'a>>,
    /// The classes of those whose only jobs got the places of others after all.
    risen: Vec<ClassId>,
    /// What ends anyway.
    pub(super) leaving: Leaving,
    /// Jobs that might give way, computed when first asked for.
    pub(super) parties: OnceCell<Vec<Party<'a>>>,
    /// By queue: the lowest priority of any job that runs in it, likewise.
    lowest: Vec<OnceCell<Option<i32>>>,
    /// Jobs on nodes that are kept for others, likewise.
    pub(super) strangers: OnceCell<Strangers>,
    pub(super) places: Vec<Place>,
    /// How many places were given before jobs were told to make room for growth: these places do not wait for those jobs.
    pub(super) early: Option<usize>,
    /// How many more jobs may move.
    pub(super) budget: Budget,
    /// Jobs that wait for a loan.
    pub(super) borrowers: Borrowers,
}

/// Of how many classes that stand before one in its queue it is looked whether others give way for them, too.
const MOST_SENIORS: usize = 4;

/// Why it is a job's turn to have others stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// It is the next that has not been tried since something became free.
    Turn,
    /// Others of its queue have fallen behind it in the order: only these may go.
    Order,
    /// It has not run for so long that it goes before all others.
    Starving,
}

/// A job that gives way, or a part of one, and for whom.
pub(super) struct Victim<'a> {
    pub(super) job: JobId,
    pub(super) queue: &'a str,
    /// What goes.
    pub(super) live: Vec<AllocationId>,
    /// Whether the job ends with it.
    pub(super) whole: bool,
    pub(super) by: JobId,
    /// Whether that job grows by it, instead of starting.
    pub(super) grows: bool,
    pub(super) cause: Cause,
}

impl Victim<'_> {
    fn leaver(&self) -> Leaver<'_> {
        let (job, queue, live) = (self.job, self.queue, self.live.as_slice());
        // Some jobs move for their own sake.
        let by = (self.by != self.job).then_some(self.by);
        let (whole, cause, grows) = (self.whole, self.cause, self.grows);
        Leaver { job, queue, live, whole, cause, by, grows }
    }
}

/// Plans in turns.
pub(super) fn in_turns<'a>(
    trial: &mut Trial<'a>,
    (others, mut shares): (Others<'a>, Shares),
    now: Time,
    (plan, report): (&mut Plan, &mut Report),
    verdicts: &mut Verdicts,
) {
    let state = trial.state;
    let waiting = others.waiting;
    let told = plan.told(state);
    told.iter().for_each(|(job, live)| count_ending(state, &mut shares, (*job, live)));
    let mut fair = Fair::begin(trial, (others, shares), told, now);
    let relieved = starve::relieve(&mut fair, waiting, plan);
    let parties = (state, waiting, fair.running);
    let mut turns = Turns::new(parties, now, &fair.shares, &|view| fair.has_behind(view));
    report.skipped = turns.left_out;
    let mut growth = Growth::new();
    let mut sooner = Sooner::new(&fair);
    loop {
        sooner.before_turn(&mut fair, &turns, &mut plan.ends);
        if sooner.has_started() {
            break;
        }
        growth.before_turn(&mut fair, &mut turns);
        // All jobs that are left still wait, and room is kept for others.
        if turns.all_stand() && !fair.trial.reserve.heeds(state) && !fair.trial.reserve.is_later() {
            report.skipped += turns.left();
            break;
        }
        let Some(turn) = turns.take(&fair.shares) else { break };
        growth.after_turn(turn.queue);
        if relieved.is_some_and(|job| fair.has_got(turn, job, &mut turns)) {
            turns.refresh(turn.queue, &fair.shares);
            continue;
        }
        let judged = state.verdicts.get(&turn.class).filter(|reason| reason.lasts());
        let stands = fair.opens((turn, judged), &mut turns, report);
        let victims = fair.victims.len();
        match fair.take_turn(turn, (judged, stands), turns.is_alone()) {
            Ok(next) => {
                verdicts.insert(turn.class, None);
                turns.go_on(turn, next);
            }
            Err(reason) => {
                if !stands {
                    turns.leave();
                }
                sooner.waits(turn);
                fair.judge(turn, (judged, reason), verdicts);
            }
        }
        verdicts.extend(fair.risen.drain(..).map(|class| (class, None)));
        if state.policy.strict && fair.blocks(turn, verdicts) {
            verdicts.extend(turns.close(turn.queue).map(|class| (class, Some(Reason::InLine))));
        }
        fair.refresh((turn, victims), &mut turns);
    }
    if fair.trial.reserve.is_asked() {
        borrowers::look(&mut fair);
    }
    relieved.into_iter().for_each(|job| starve::forget_reason(fair.trial, waiting, job, verdicts));
    fair.after_turns((sooner, growth), (plan, report));
    fair.settle(plan);
}

/// Counts what ends in this cycle for another cause as no longer held by its queue: it is no reason to take what else the queue has (L9).
fn count_ending(state: &State, shares: &mut Shares, (id, live): (JobId, &[AllocationId])) {
    let Some(job) = state.jobs.get(&id.number) else { return };
    let held = live.iter().filter_map(|id| state.allocations.get(id));
    let stays = held.filter(|held| held.state != AllocationState::Stopping);
    let drawn = shares.counted(state, stays.map(|held| &held.placement));
    shares.stop(shares.place(job.spec.stand()), &drawn, 1);
}

impl<'a, 'b> Fair<'a, 'b> {
    /// Nothing is planned yet.
    fn begin(
        trial: &'b mut Trial<'a>,
        (others, shares): (Others<'a>, Shares),
        told: BTreeMap<JobId, Vec<AllocationId>>,
        now: Time,
    ) -> Self {
        let state = trial.state;
        let Others { waiting, running, growing, .. } = others;
        Self {
            leaving: Leaving::new(state, trial.leavers, told.values().flatten().copied()),
            budget: Budget::new(&state.policy),
            borrowers: Borrowers::of(state, waiting, &shares),
            victims: Vec::new(),
            may_grow: !growing.is_empty(),
            grown: Vec::new(),
            places: Vec::new(),
            parties: OnceCell::new(),
            lowest: vec![OnceCell::new(); shares.queues.len()],
            strangers: OnceCell::new(),
            early: None,
            trial,
            shares,
            running,
            now,
            growing,
            ending: told.into_keys().collect(),
            stood: Vec::new(),
            risen: Vec::new(),
        }
    }
}

impl<'a> Fair<'a, '_> {
    /// Gives what no turn took. Where a job has started before its victims have stopped, all of that is for the next plan of the cycle.
    fn after_turns(
        &mut self,
        (mut sooner, growth): (Sooner<'a>, Growth),
        (plan, report): (&mut Plan, &mut Report),
    ) {
        sooner.at_last(self, &mut plan.ends);
        if sooner.has_started() {
            report.moves_at = self.budget.again;
            return;
        }
        growth.end(self);
        report.moves_at = self.budget.again;
        consolidate::resettle(self);
        self.quicken();
    }

    /// Whether this is the turn of a run that got its place before all turns. It keeps back no job, and its
    /// job stands where its next run does.
    fn has_got<'t>(&self, turn: Turn<'t>, relieved: JobId, turns: &mut Turns<'t>) -> bool {
        let job = self.trial.state.jobs.get(&relieved.number).filter(|job| job.number == turn.key.number);
        let Some(job) = job else { return false };
        let next = place::next_start(self.trial, job);
        let stands = next.is_some_and(|next| turns.stands_at(turn, next));
        if !stands {
            turns.go_on(turn, next);
        }
        !stands
    }

    /// The lowest priority of any job that runs where a job stands.
    pub(super) fn lowest_priority(&self, place: usize, spec: &JobSpec) -> Option<i32> {
        *self.lowest[place].get_or_init(|| self.running.lowest_priority(spec.stand()))
    }

    /// Whether a class waits for room that may be later by now.
    fn is_open(&self, judged: Option<&Reason>) -> bool {
        judged.is_some_and(|reason| self.trial.reserve.reopens(reason))
    }

    /// Gives a turn what it may have; nothing, and no new reason, where the verdict of its class stands.
    fn take_turn(
        &mut self,
        turn: Turn,
        (judged, stands): (Option<&Reason>, bool),
        alone: bool,
    ) -> Result<Option<OrderKey>, Option<Reason>> {
        if stands {
            return Err(None);
        }
        let (freed, is_open) = (self.trial.state.freed, self.is_open(judged));
        let tried = match judged.filter(|_| !freed && !is_open) {
            Some(reason) if turn.has_behind => self.displace(turn, reason),
            Some(_) => self.start(turn, (alone, false)),
            None => self.start(turn, (alone, freed || !is_open)),
        };
        tried.map_err(Some)
    }

    /// Counts a turn as tried or skipped; returns whether the verdict of its class stands.
    fn opens(
        &mut self,
        (turn, judged): (Turn<'a>, Option<&Reason>),
        turns: &mut Turns<'a>,
        report: &mut Report,
    ) -> bool {
        let stands = judged.is_some_and(|reason| self.stands(turn, reason));
        report.skipped += usize::from(stands);
        report.tried += usize::from(!stands);
        if judged.is_some() && !stands && !turn.has_behind {
            turns.reopen();
        }
        if stands && !self.trial.state.freed && judged.is_some_and(Reason::may_be_taken_for) {
            self.stood.push(turn);
        }
        stands
    }

    /// Lets queues stand where they do now that a turn is over: its own, and those of the jobs that give way from this one on.
    fn refresh(&self, (turn, first): (Turn, usize), turns: &mut Turns<'a>) {
        turns.refresh(turn.queue, &self.shares);
        for victim in &self.victims[first..] {
            turns.refresh(self.shares.place(victim.queue), &self.shares);
        }
    }

    /// Whether the verdict of a class stands without a trial.
    fn stands(&mut self, turn: Turn, judged: &Reason) -> bool {
        match self.trial.state.freed {
            // A job that would keep others from a loan is told so, whatever else keeps it back.
            true => {
                self.is_hopeless(turn, judged)
                    && borrowers::before_whom(self, turn, &turn.view.example).is_none()
            }
            false => !turn.has_behind && !self.trial.reserve.reopens(judged) && !self.leaves_more(judged),
        }
    }

    /// Whether a class that waits for devices might get what victims of this cycle leave beside what they go for: those that come
    /// after it in line, and were not judged yet, would.
    fn leaves_more(&self, judged: &Reason) -> bool {
        !self.victims.is_empty() && judged.may_be_taken_for()
    }

    /// Notes why a class waits: its earlier verdict, where that stands (then no reason is given) or nothing has become free (L10).
    fn judge(
        &mut self,
        turn: Turn,
        (judged, reason): (Option<&Reason>, Option<Reason>),
        verdicts: &mut Verdicts,
    ) {
        let lasts = judged.filter(|_| reason.is_none() || !self.trial.state.freed);
        if let Some(reason) = lasts.or(reason.as_ref()) {
            self.keep_room(turn, reason);
        }
        match (lasts, reason) {
            // Some of the class have started; what kept it back before keeps back the rest.
            (Some(_), _) => drop(verdicts.remove(&turn.class)),
            (None, Some(reason)) => {
                stuck::note(self.trial, turn.class, (&reason, true));
                match judged == Some(&reason) {
                    true => drop(verdicts.remove(&turn.class)),
                    false => drop(verdicts.insert(turn.class, Some(reason))),
                }
            }
            (None, None) => {}
        }
    }

    /// Whether a look suffices to say that a class still waits: there are too few free devices, and no job could give way.
    fn is_hopeless(&self, turn: Turn, reason: &Reason) -> bool {
        let spec = &*turn.view.example;
        if !place::is_still_busy(self.trial, reason, spec) && !self.is_stuck(turn, reason, spec) {
            return false;
        }
        let gives_way = self.trial.state.policy.preempt == Preempt::LeastLoss && spec.may_preempt();
        if !gives_way || !reason.may_be_taken_for() {
            return true;
        }
        let asked = turn.view.asked.clone();
        !self.may_claim((turn.queue, By::Turn), (turn.job(), spec), (asked, 0))
    }

    /// Whether a class still waits for what is not in the pool, and its queue may have it.
    fn is_stuck(&self, turn: Turn, reason: &Reason, spec: &JobSpec) -> bool {
        stuck::is_stuck(self.trial, turn.class, reason, spec)
            && self.shares.allows(turn.queue, &turn.view.asked, spec).is_ok()
            && self.shares.closed(turn.queue, spec).is_ok()
    }

    /// Whether jobs of its queue might give way to the first of a class since they stand behind it in the
    /// order by now: nothing has become free, but they have run on, or another job stands first.
    fn has_behind(&self, view: &ClassView) -> bool {
        let (state, spec) = (self.trial.state, &view.example);
        // A job that was displaced in one cycle makes no other displace jobs in the next, as long as nothing else happens (L10).
        let is_news = state.is_news(self.now);
        let least_milli = if spec.gang.has_alternatives() { 0 } else { view.milli };
        let first = view.jobs.first().filter(|_| is_news && displaces(&state.policy));
        first.is_some_and(|key| {
            let place = waiting_order::place(&state.policy, *key, spec.most_milli(), self.now);
            let rules = Rules::of(self, view.queue);
            reclaim::might_displace(self, (spec, &rules), (place, least_milli), false)
        })
    }

    /// Gives the next run of a job the places of jobs behind it; returns where the run after it stands, if it may start.
    fn displace(&mut self, turn: Turn, judged: &Reason) -> Result<Option<OrderKey>, Reason> {
        let state = self.trial.state;
        let Some(job) = state.jobs.get(&turn.key.number) else { return Ok(None) };
        // A job that had to leave room for one before it does not get that room from a job that may use it until then.
        if matches!(judged, Reason::Reserved(_)) {
            return Err(judged.clone());
        }
        self.shares.allows(turn.queue, &turn.view.asked, &job.spec)?;
        self.trial.not_lent = self.shares.closed(turn.queue, &job.spec)?;
        let (mark, told) = (self.trial.mark(), self.trial.name_reasons(false));
        let fits = place::place_spec(self.trial, &job.spec).is_ok();
        self.trial.name_reasons(told);
        // It is not kept back by jobs that stand behind it: it waits until something becomes free.
        if fits {
            self.trial.roll_back_to(mark);
            return Err(judged.clone());
        }
        self.take_back((turn, By::Order), job, judged)?;
        Ok(place::next_start(self.trial, job))
    }

    /// Keeps room for a job that waits for it. Where the past counts, only what its queue is to hold is collected: a
    /// queue that is to hold more later takes it back then, and nothing has to stand idle until then.
    fn keep_room(&mut self, turn: Turn, reason: &Reason) {
        let state = self.trial.state;
        if self.trial.reserve.heeds(state) {
            let owed = self.shares.owes(turn.queue, &turn.view.asked);
            self.trial.reserve.note(state, (turn.job(), owed, !self.places.is_empty()), reason);
        }
        borrowers::note(self, turn, reason);
    }

    /// Whether a job keeps back those behind it in a strict order.
    fn blocks(&self, turn: Turn, verdicts: &Verdicts) -> bool {
        let judged = verdicts.get(&turn.class).cloned();
        let reason = judged.unwrap_or_else(|| self.trial.state.verdicts.get(&turn.class).cloned());
        reason.is_some_and(|reason| reason.keeps_back())
    }

    /// Starts a job or, if no other queue is in line, as many members as may start and stand in one place;
    /// returns where the next one that may start stands. If `claims`, others may give way for it.
    fn start(&mut self, turn: Turn, (alone, claims): (bool, bool)) -> Result<Option<OrderKey>, Reason> {
        let state = self.trial.state;
        let Some(job) = state.jobs.get(&turn.key.number) else { return Ok(None) };
        self.shares.allows(turn.queue, &turn.view.asked, &job.spec)?;
        match self.shares.closed(turn.queue, &job.spec) {
            Ok(closed) => self.trial.not_lent = closed,
            Err(reason) if claims => {
                self.let_seniors_claim(turn.queue);
                self.take_back((turn, By::Turn), job, &reason)?;
                return Ok(place::next_start(self.trial, job));
            }
            Err(reason) => return Err(reason),
        }
        if let Some(owner) = borrowers::before_whom(self, turn, &job.spec) {
            let own = place::refused_for_good(self.trial, &job.spec);
            return Err(own.unwrap_or(Reason::Reserved(owner)));
        }
        // Gangs that may grow stand in no line, and what is due to them goes before what is due to no queue.
        let alone = alone && !self.may_grow && !leaving::is_any(self);
        let most = if alone && self.shares.is_unbound() { usize::MAX } else { 1 };
        let before = self.places.len();
        let placed = match leaving::place_beside(self, job) {
            Some(next) => Ok(next),
            None => place::place_equals(self.trial, (job, turn.view.shape), most, &mut self.places),
        };
        let started = self.places.len() - before;
        if started > 0 {
            self.may_grow |= job.spec.gang.is_elastic();
            let placements = self.places[before..].iter().flat_map(|place| &place.placements);
            let taken = self.shares.counted(state, placements);
            self.shares.charge(turn.queue, &taken, (1, !job.spec.preemptible));
        }
        match placed {
            Ok(next) => Ok(next),
            // Some members have started: what keeps the next one back is asked in its own turn.
            Err(_) if started > 0 => Ok(place::next_start(self.trial, job)),
            Err(reason) if claims => {
                self.let_seniors_claim(turn.queue);
                self.trial.not_lent = self.shares.closed(turn.queue, &job.spec)?;
                self.take_back((turn, By::Turn), job, &reason)?;
                Ok(place::next_start(self.trial, job))
            }
            Err(reason) => Err(reason),
        }
    }

    /// More is due to a queue for a job that has just come. If others give way for that, they do for those that stand before it first,
    /// though nothing has become free: a few of them are asked, once each.
    fn let_seniors_claim(&mut self, queue: usize) {
        let state = self.trial.state;
        let (of_queue, others): (Vec<Turn>, Vec<Turn>) =
            std::mem::take(&mut self.stood).into_iter().partition(|stood| stood.queue == queue);
        self.stood = others;
        for senior in of_queue.into_iter().take(MOST_SENIORS) {
            let known = state.jobs.get(&senior.key.number).zip(state.verdicts.get(&senior.class));
            let Some((job, reason)) = known else { continue };
            let Ok(closed) = self.shares.closed(senior.queue, &job.spec) else { continue };
            self.trial.not_lent = closed;
            let may = self.shares.allows(senior.queue, &senior.view.asked, &job.spec).is_ok();
            let rises = may && self.take_back((senior, By::Turn), job, reason).is_ok();
            // What kept it back keeps back the rest of its class.
            if rises && senior.view.runs <= 1 {
                self.risen.push(senior.class);
            }
        }
    }

    /// Lets running jobs go on on faster devices. What is kept for others may be less by now, since an estimate was wrong; that by itself
    /// is no news (L10).
    fn quicken(&mut self) {
        let state = self.trial.state;
        if !self.running.may_quicken(state) || !state.freed && !state.is_news(self.now) {
            return;
        }
        let mut stays = self.spent();
        stays.extend(self.places.iter().map(|place| place.job));
        let shares = &self.shares;
        let closed = |spec: &JobSpec| shares.closed(shares.place(spec.stand()), spec).ok();
        for moved in quicken::quicken(self.trial, self.running, self.now, &stays, &closed) {
            let quicken::Move { job, view, placements, cause, by } = moved;
            let (queue, live, by) = (&*view.queue, view.live.clone(), by.unwrap_or(job));
            self.victims.push(Victim { job, queue, live, whole: true, by, grows: false, cause });
            self.places.push(Place::new(job, placements));
        }
    }

    fn settle(self, plan: &mut Plan) {
        let Self { trial, victims, leaving, mut places, mut grown, early, .. } = self;
        let early = early.unwrap_or(places.len());
        let all = places.iter_mut().chain(&mut grown).flat_map(|place| &mut place.placements);
        all.for_each(|placement| trial.refresh(placement));
        let leavers: Vec<Leaver> = victims.iter().map(Victim::leaver).collect();
        let anyway: Vec<Leaver> = leaving.leavers(trial.state).collect();
        settle::settle(trial, (&leavers, &anyway), (places, early, grown), plan);
    }

    /// The jobs that end or give way already, and those that grow: what they have is what they have just been given.
    pub(super) fn spent(&self) -> BTreeSet<JobId> {
        let whole = self.victims.iter().filter(|victim| victim.whole).map(|victim| victim.job);
        let grown = self.grown.iter().map(|place| place.job);
        whole.chain(grown).chain(self.ending.iter().copied()).collect()
    }

    /// Whether this cycle moves a job, or places it anew.
    pub(super) fn moves(&self, job: JobId) -> bool {
        self.places.iter().any(|place| place.job == job)
    }

    /// What this cycle takes from a job that runs on.
    pub(super) fn taken_of(&self, job: JobId) -> Vec<AllocationId> {
        let of_job = self.victims.iter().filter(|victim| victim.job == job);
        of_job.flat_map(|victim| victim.live.iter().copied()).collect()
    }
}
