//! The proof that what is said to start a waiting job does start it: in pools made from seeds, every waiting job is
//! explained, and what was said is tried with the same commands and the same planner.

mod generate;

use std::collections::BTreeMap;

use divvy_core::explain::{self, Advice, Change, Cost, Fix, Menu};
use divvy_core::id::JobId;
use divvy_core::scenario::Scenario;
use divvy_core::state::{Job, Runs};

pub use generate::lines;

/// What was tried, and what came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Proof {
    /// Pools that were made.
    pub pools: u64,
    /// Waiting jobs (arrays count once) that were explained.
    pub jobs: u64,
    /// Of these, those with a fix.
    pub with_fix: u64,
    /// Those that start in the next cycle once the fix is made.
    pub start: u64,
    /// Those that start once everything that keeps them back is lifted, each blocker in its own way.
    pub start_when_all_are_lifted: u64,
    /// For jobs with several blockers: sets of all ways but one.
    pub all_but_one: u64,
    /// Of these sets, those with which the job starts anyway.
    pub start_without_one: u64,
    /// Jobs, in pools of at most eight devices, for which all small sets cheaper than the fix were tried.
    pub searched: u64,
    /// Sets that were tried for these jobs.
    pub sets: u64,
    /// Jobs that start with one of these sets.
    pub cheaper: u64,
    /// How often each reason was met.
    pub reasons: BTreeMap<&'static str, u64>,
    /// What went wrong: the pool's seed, the job and what was said.
    pub failures: Vec<String>,
}

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Whether pools are kept to eight devices.
    pub small: bool,
    /// Sets of up to this many changes are searched for a cheaper fix; 0 for none.
    pub set_size: usize,
}

impl Proof {
    /// Adds the results of another proof.
    pub fn add(&mut self, other: Proof) {
        self.pools += other.pools;
        self.jobs += other.jobs;
        self.with_fix += other.with_fix;
        self.start += other.start;
        self.start_when_all_are_lifted += other.start_when_all_are_lifted;
        self.all_but_one += other.all_but_one;
        self.start_without_one += other.start_without_one;
        self.searched += other.searched;
        self.sets += other.sets;
        self.cheaper += other.cheaper;
        other.reasons.into_iter().for_each(|(code, count)| *self.reasons.entry(code).or_default() += count);
        self.failures.extend(other.failures);
    }

    /// Tries everything that is said about the waiting jobs of one pool.
    pub fn of_pool(seed: u64, effort: Effort) -> Self {
        let mut pool = Scenario::unchecked();
        for line in lines(seed, effort.small) {
            // A line that the pool refuses does nothing.
            let _ = pool.line(&line).is_err();
        }
        let mut proof = Self { pools: 1, ..Self::default() };
        let waiting: Vec<JobId> = pool.state().jobs.values().filter(|job| waits(job)).map(Job::id).collect();
        for job in waiting {
            Judge { pool: &pool, job, seed }.judge(effort, &mut proof);
        }
        proof
    }
}

fn waits(job: &Job) -> bool {
    let idle = |member| job.run(member).is_some_and(|run| !run.is_active());
    match &job.runs {
        Runs::Single(_) => idle(None),
        Runs::Array(_) => job.open_members().any(idle),
    }
}

/// Whether a job is told to wait for what is promised to it, whatever it could ask for instead.
fn is_promised(advice: &Advice) -> bool {
    matches!(&advice.blockers[..], [only] if only.reason.code() == "DV-PROMISED")
}

/// A job whose advice is tried.
struct Judge<'a> {
    pool: &'a Scenario,
    job: JobId,
    seed: u64,
}

impl Judge<'_> {
    fn starts(&self, changes: &[Change]) -> bool {
        explain::starts_after(self.pool.state(), self.pool.snapshot(), self.job, changes)
    }

    fn judge(&self, effort: Effort, proof: &mut Proof) {
        let Some(advice) = explain::advise(self.pool.state(), self.pool.snapshot(), self.job) else { return };
        if advice.blockers.is_empty() && self.starts(&[]) {
            // It waits for nothing but the next cycle.
            return;
        }
        proof.jobs += 1;
        for blocker in &advice.blockers {
            *proof.reasons.entry(blocker.reason.code()).or_default() += 1;
        }
        proof.with_fix += u64::from(advice.remedy.is_some());
        let remedied = advice.remedy.as_ref().is_some_and(|fix| self.starts(&fix.changes));
        proof.start += u64::from(remedied);
        if !remedied {
            self.fail("the fix does not start it", &advice, proof);
        }
        self.lift(&advice, proof);
        if effort.set_size > 0
            && self.pool.state().devices.len() <= 8
            && !is_promised(&advice)
            && let Some(fix) = &advice.remedy
        {
            self.search(fix, effort.set_size, proof);
        }
    }

    /// Lifts all blockers, and then all but one.
    fn lift(&self, advice: &Advice, proof: &mut Proof) {
        let ways: Vec<&Fix> = advice.blockers.iter().filter_map(|blocker| blocker.ways.first()).collect();
        let all = |without: Option<usize>| -> Vec<Change> {
            let others = ways.iter().enumerate().filter(|(place, _)| Some(*place) != without);
            others.flat_map(|(_, way)| way.changes.clone()).collect()
        };
        let starts = !ways.is_empty() && self.starts(&all(None));
        proof.start_when_all_are_lifted += u64::from(starts);
        if !starts {
            self.fail("it waits though all is lifted", advice, proof);
        }
        for place in (0..ways.len()).filter(|_| ways.len() > 1) {
            proof.all_but_one += 1;
            if self.starts(&all(Some(place))) {
                proof.start_without_one += 1;
                self.fail(&format!("it starts without way {place}"), advice, proof);
            }
        }
    }

    /// Tries all sets of up to `size` changes that cost less, with and without waiving its own conditions.
    fn search(&self, fix: &Fix, size: usize, proof: &mut Proof) {
        let menu = explain::menu(self.pool.state(), self.pool.snapshot(), self.job);
        let Menu { waivers, edits, ends, grants, .. } = menu;
        let all: Vec<Change> = [waivers.clone(), edits, ends, grants].concat();
        let costs: Vec<Cost> = all.iter().map(|change| self.cost(change)).collect();
        proof.searched += 1;
        let mut space = Space { judge: self, all: &all, costs: &costs, below: fix.cost, sets: 0 };
        let waived = waivers.iter().map(|change| self.cost(change)).fold(Cost::default(), Cost::with);
        let mut chosen = Vec::new();
        let mut found = space.find(&mut chosen, (0, size), Cost::default());
        if !found && !waivers.is_empty() {
            chosen = waivers;
            found = space.find(&mut chosen, (0, size), waived);
        }
        proof.sets += space.sets;
        if found {
            proof.cheaper += 1;
            let (seed, job) = (self.seed, self.job);
            proof.failures.push(format!("seed {seed}, job {job}: cheaper than {fix}: {chosen:?}"));
        }
    }

    fn cost(&self, change: &Change) -> Cost {
        let state = self.pool.state();
        state
            .jobs
            .get(&self.job.number)
            .map(|job| explain::cost(state, &job.spec, change))
            .unwrap_or_default()
    }

    fn fail(&self, what: &str, advice: &Advice, proof: &mut Proof) {
        let told = advice.blockers.iter().map(|blocker| {
            let ways: Vec<String> = blocker.ways.iter().map(ToString::to_string).collect();
            format!("{} [{}]", blocker.reason.code(), ways.join(" | "))
        });
        let told: Vec<String> = told.collect();
        let remedy = advice.remedy.as_ref().map_or("nothing".to_owned(), ToString::to_string);
        let (seed, job) = (self.seed, self.job);
        proof.failures.push(format!("seed {seed}, job {job}: {what}: {}; fix: {remedy}", told.join(", ")));
    }
}

/// All sets of changes below a cost.
struct Space<'a> {
    judge: &'a Judge<'a>,
    all: &'a [Change],
    costs: &'a [Cost],
    below: Cost,
    sets: u64,
}

impl Space<'_> {
    /// Whether the job starts with the chosen changes and up to `left` more, taken from a place on.
    fn find(&mut self, chosen: &mut Vec<Change>, (from, left): (usize, usize), cost: Cost) -> bool {
        if left == 0 {
            return false;
        }
        for place in from..self.all.len() {
            let (change, cost) = (&self.all[place], cost.with(self.costs[place]));
            if cost >= self.below || !chosen.iter().all(|other| change.goes_with(other)) {
                continue;
            }
            chosen.push(change.clone());
            self.sets += 1;
            let found = self.judge.starts(chosen) || self.find(chosen, (place + 1, left - 1), cost);
            if found {
                return true;
            }
            chosen.pop();
        }
        false
    }
}
