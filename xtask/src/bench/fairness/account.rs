//! What each queue had of the pool over time, compared with what it was due; and for how long a guarantee was not kept.

use std::collections::BTreeMap;

use divvy_sim::replay::Replayed;

use super::water;
use super::whole::{self, Sizes};
use super::world::World;

/// What one queue had and was due, in GPUs, averaged over the measured time.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    pub(super) held: f64,
    pub(super) wanted: f64,
    /// The mean of the water-filling at each moment: a queue that had less at one moment is owed nothing at another.
    pub(super) due: f64,
    /// Likewise for what whole jobs could hold at each moment: see [`whole::usable`].
    pub(super) due_whole: f64,
    /// The water-filling over all of that time at once: as much as its work needs, whenever it gets it.
    pub(super) due_at_once: f64,
    /// The longest time that a job waited although the guarantee had room for it.
    pub(super) longest_denial_s: i64,
    /// How many such times lasted longer than the grace.
    pub(super) violations: u64,
    /// How long these lasted in total.
    pub(super) violated_s: i64,
}

/// GPUs of the whole pool, on average.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pool {
    /// What whole jobs could have held.
    pub(super) usable: f64,
    /// What stood idle while a waiting job asked for no more than that.
    pub(super) in_vain: f64,
}

/// Which time is measured, and how long a reclaim may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    pub(super) from_s: i64,
    pub(super) to_s: i64,
    pub(super) grace_s: i64,
}

/// Computes the account of each leaf, and of the pool.
pub(super) fn accounts(world: &World, replayed: &Replayed, measured: Measured) -> (Vec<Account>, Pool) {
    let mut sweep = Sweep::new(world, measured);
    let mut before_s = measured.from_s;
    for (at_s, changes) in by_second(world, replayed) {
        sweep.pass(before_s, at_s);
        before_s = before_s.max(at_s);
        changes.iter().for_each(|change| sweep.change(change));
        sweep.look(at_s);
    }
    sweep.pass(before_s, measured.to_s);
    let (mut accounts, pool) = sweep.end();
    let due = water::fill(&world.vessels, world.gpus().into(), &offered(world, replayed, measured));
    for (account, (_, vessel)) in accounts.iter_mut().zip(&world.leaves) {
        account.due_at_once = due[*vessel];
    }
    (accounts, pool)
}

/// The GPUs that each vessel's work would have kept busy: all work that was submitted before the end of the measured time
/// and not done at its beginning.
fn offered(world: &World, replayed: &Replayed, measured: Measured) -> Vec<f64> {
    let leaf_of = leaves(world);
    let vessel =
        |row: usize| leaf_of.get(world.jobs[row].arrival.queue.as_str()).map(|leaf| world.leaves[*leaf].1);
    let mut work_s = vec![0.0; world.vessels.len()];
    let mut add = |row: usize, seconds: i64| {
        if let Some(vessel) = vessel(row) {
            work_s[vessel] += seconds as f64 * f64::from(world.jobs[row].arrival.gpus);
        }
    };
    for job in replayed.finished.iter().filter(|job| job.submit_s < measured.to_s) {
        add(job.row, job.duration_s);
    }
    for stretch in &replayed.stretches {
        add(stretch.row, -(stretch.to_s.min(measured.from_s) - stretch.from_s).max(0));
    }
    let seconds = (measured.to_s - measured.from_s) as f64;
    work_s.into_iter().map(|work_s| (work_s / seconds).max(0.0)).collect()
}

/// The index of each leaf by its path.
fn leaves(world: &World) -> BTreeMap<&str, usize> {
    world.leaves.iter().enumerate().map(|(at, (path, _))| (path.as_str(), at)).collect()
}

/// One job starts or stops waiting or holding.
struct Change {
    leaf: usize,
    gpus: u32,
    /// One more or one fewer open job.
    open: i64,
    /// One more or one fewer waiting job.
    waiting: i64,
    /// One more or one fewer job that holds GPUs.
    holding: i64,
}

/// All changes, by second; those of one second count as one.
fn by_second(world: &World, replayed: &Replayed) -> BTreeMap<i64, Vec<Change>> {
    let leaf_of = leaves(world);
    let mut all: BTreeMap<i64, Vec<Change>> = BTreeMap::new();
    let mut note = |row: usize, at_s: i64, (open, waiting, holding): (i64, i64, i64)| {
        let arrival = &world.jobs[row].arrival;
        let Some(leaf) = leaf_of.get(arrival.queue.as_str()) else { return };
        let change = Change { leaf: *leaf, gpus: arrival.gpus, open, waiting, holding };
        all.entry(at_s).or_default().push(change);
    };
    for job in &replayed.finished {
        note(job.row, job.submit_s, (1, 1, 0));
        note(job.row, job.finish_s, (-1, -1, 0));
    }
    // A job that stops holding waits again, unless it has ended: then the end takes that back.
    for stretch in &replayed.stretches {
        note(stretch.row, stretch.from_s, (0, -1, 1));
        note(stretch.row, stretch.to_s, (0, 1, -1));
    }
    all
}

/// A walk through time.
struct Sweep<'a> {
    world: &'a World,
    measured: Measured,
    /// Of each leaf: GPUs held, GPUs waited for, jobs that wait by size.
    held: Vec<i64>,
    waited_for: Vec<i64>,
    sizes: Vec<Sizes>,
    /// Of each leaf: open jobs, waiting or not, by size.
    open: Vec<Sizes>,
    pool: Pool,
    /// Of each leaf: since when a job waits although the guarantee has room for it.
    denied_since_s: Vec<Option<i64>>,
    accounts: Vec<Account>,
}

impl<'a> Sweep<'a> {
    fn new(world: &'a World, measured: Measured) -> Self {
        let count = world.leaves.len();
        Self {
            world,
            measured,
            held: vec![0; count],
            waited_for: vec![0; count],
            sizes: vec![Sizes::new(); count],
            open: vec![Sizes::new(); count],
            pool: Pool::default(),
            denied_since_s: vec![None; count],
            accounts: vec![Account::default(); count],
        }
    }

    fn change(&mut self, change: &Change) {
        let gpus = i64::from(change.gpus);
        self.held[change.leaf] += gpus * change.holding;
        self.waited_for[change.leaf] += gpus * change.waiting;
        count(&mut self.sizes[change.leaf], change.gpus, change.waiting);
        count(&mut self.open[change.leaf], change.gpus, change.open);
    }

    /// Adds the state between two seconds to the accounts.
    fn pass(&mut self, from_s: i64, to_s: i64) {
        let Measured { from_s: first_s, to_s: last_s, .. } = self.measured;
        let seconds = to_s.min(last_s) - from_s.max(first_s);
        if seconds <= 0 {
            return;
        }
        let wanted: Vec<i64> =
            self.held.iter().zip(&self.waited_for).map(|(held, waited_for)| held + waited_for).collect();
        let wanted = whole::in_vessels(self.world, &wanted);
        let due = water::fill(&self.world.vessels, self.world.gpus().into(), &wanted);
        let usable = whole::usable(self.world, &self.open);
        let due_whole = water::fill(&self.world.vessels, usable.gpus, &usable.wanted);
        let part = seconds as f64 / (last_s - first_s) as f64;
        self.pool.usable += usable.gpus * part;
        self.pool.in_vain += self.idle_in_vain() as f64 * part;
        for (leaf, (_, vessel)) in self.world.leaves.iter().enumerate() {
            let account = &mut self.accounts[leaf];
            account.held += self.held[leaf] as f64 * part;
            account.wanted += wanted[*vessel] * part;
            account.due += due[*vessel] * part;
            account.due_whole += due_whole[*vessel] * part;
        }
    }

    /// The idle GPUs, if a waiting job asks for no more.
    fn idle_in_vain(&self) -> i64 {
        let idle = i64::from(self.world.gpus()) - self.held.iter().sum::<i64>();
        let smallest =
            self.sizes.iter().filter_map(|sizes| sizes.first_key_value()).map(|(gpus, _)| *gpus).min();
        if smallest.is_some_and(|gpus| i64::from(gpus) <= idle) { idle } else { 0 }
    }

    /// Checks whose guarantee has room for a waiting job.
    fn look(&mut self, at_s: i64) {
        for (leaf, (_, vessel)) in self.world.leaves.iter().enumerate() {
            let room = self.world.vessels[*vessel].guarantee as i64 - self.held[leaf];
            let smallest = self.sizes[leaf].first_key_value().map(|(gpus, _)| i64::from(*gpus));
            if smallest.is_some_and(|gpus| gpus <= room) {
                self.denied_since_s[leaf].get_or_insert(at_s);
            } else {
                self.close(leaf, at_s);
            }
        }
    }

    /// A denial is over: the part of it within what is measured counts.
    fn close(&mut self, leaf: usize, at_s: i64) {
        let Some(since_s) = self.denied_since_s[leaf].take() else { return };
        let lasted_s = at_s.min(self.measured.to_s) - since_s.max(self.measured.from_s);
        let account = &mut self.accounts[leaf];
        account.longest_denial_s = account.longest_denial_s.max(lasted_s);
        if lasted_s > self.measured.grace_s {
            account.violations += 1;
            account.violated_s += lasted_s;
        }
    }

    fn end(mut self) -> (Vec<Account>, Pool) {
        (0..self.accounts.len()).for_each(|leaf| self.close(leaf, self.measured.to_s));
        (self.accounts, self.pool)
    }
}

/// Adds so many jobs of a size, or removes them.
fn count(sizes: &mut Sizes, gpus: u32, more: i64) {
    let count = sizes.entry(gpus).or_default();
    *count += more;
    if *count == 0 {
        sizes.remove(&gpus);
    }
}
