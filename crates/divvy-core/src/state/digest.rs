//! The state's digest: a wrapping sum of per-entity hashes, kept by `apply`, so that it costs what changes.

use std::hash::{Hash, Hasher};

use twox_hash::XxHash3_64;

use super::{Allocation, Job, Relief, Run, Runs, State};
use crate::id::{AllocationId, JobId};

/// A hash that is the same on every machine, build and run: XXH3 (64 bits) over the parts of a value in the order of its
/// fields, numbers as little-endian bytes of their width (`usize` and `isize` as eight).
pub fn fingerprint<T: Hash + ?Sized>(value: &T) -> u64 {
    let mut hasher = Blocks { block: [0; BLOCK_BYTES], filled: CARRY_BYTES };
    value.hash(&mut hasher);
    hasher.finish()
}

/// Values consist of many parts of a few bytes. These are gathered into blocks, each of which is hashed at once, after the hash of the
/// blocks before it: hashing part by part would take several times as long.
struct Blocks {
    block: [u8; BLOCK_BYTES],
    filled: usize,
}

/// The longest input for which XXH3 keeps no state.
const BLOCK_BYTES: usize = 240;
/// The bytes at the start of a block that hold the hash of the blocks before it.
const CARRY_BYTES: usize = 8;

impl Blocks {
    #[inline(never)]
    fn close_block(&mut self) {
        let carry = XxHash3_64::oneshot(&self.block);
        self.block[..CARRY_BYTES].copy_from_slice(&carry.to_le_bytes());
        self.filled = CARRY_BYTES;
    }

    /// Writes bytes that do not fit into the rest of the block.
    #[inline(never)]
    fn write_across(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.filled == BLOCK_BYTES {
                self.close_block();
            }
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK_BYTES - self.filled));
            self.block[self.filled..self.filled + now.len()].copy_from_slice(now);
            self.filled += now.len();
            bytes = later;
        }
    }
}

impl Hasher for Blocks {
    fn finish(&self) -> u64 {
        XxHash3_64::oneshot(&self.block[..self.filled])
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        match self.block.get_mut(self.filled..self.filled + bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.filled += bytes.len();
            }
            None => self.write_across(bytes),
        }
    }

    #[inline]
    fn write_u8(&mut self, number: u8) {
        self.write(&[number]);
    }

    #[inline]
    fn write_u16(&mut self, number: u16) {
        self.write(&number.to_le_bytes());
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write(&number.to_le_bytes());
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.write(&number.to_le_bytes());
    }

    #[inline]
    fn write_u128(&mut self, number: u128) {
        self.write(&number.to_le_bytes());
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    #[inline]
    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }
}

/// A cached digest. Caching it in only one of two states does not make them different.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Remembered(pub(super) Option<u64>);

impl PartialEq for Remembered {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Remembered {}

/// Kinds of entities, so that equal contents of different kinds differ.
#[derive(Hash)]
pub(super) enum Entity<'a> {
    Node(u32, &'a super::Node),
    Device(u32, &'a super::Device),
    Queue(&'a crate::model::queue::Queue),
    Job(u64, u64),
    Run(JobId, &'a Run),
    Fresh(u64, &'a Option<String>, &'a crate::model::members::Members),
    Allocation(u64, &'a super::Allocation),
    Verdict(u64, &'a crate::reason::Reason),
    Promise(&'a crate::model::promise::Promise),
    Reservation(&'a crate::model::reservation::Reservation),
}

impl State {
    pub(super) fn plus(&mut self, hash: u64) {
        self.entities = self.entities.wrapping_add(hash);
    }

    pub(super) fn minus(&mut self, hash: u64) {
        self.entities = self.entities.wrapping_sub(hash);
    }

    /// The digest of the whole state.
    pub fn digest(&self) -> u64 {
        let digest = fingerprint(&(
            self.entities,
            (self.next_job, self.news),
            self.next_allocation,
            self.term,
            self.ledger.digest(),
            self.mix.digest(),
            self.policy_digest(),
        ));
        let digest = self.worth.as_ref().map_or(digest, |worth| fingerprint(&(digest, worth.digest())));
        let digest = self.past.digest().map_or(digest, |past| fingerprint(&(digest, past)));
        let digest = if self.spending.is_empty() { digest } else { fingerprint(&(digest, &self.spending)) };
        let digest = if self.pledges.is_empty() { digest } else { fingerprint(&(digest, &self.pledges)) };
        let digest =
            if self.relief == Relief::default() { digest } else { fingerprint(&(digest, self.relief)) };
        match self.next_reservation {
            0 => digest,
            next => fingerprint(&(digest, next)),
        }
    }

    /// The digest of the planner's settings and of the queues.
    pub fn policy_digest(&self) -> u64 {
        self.settings.0.unwrap_or_else(|| self.settings_anew())
    }

    fn settings_anew(&self) -> u64 {
        fingerprint(&(&self.policy, &self.queues))
    }

    /// Computes the digest of policy and queues once until they change, since every cycle asks for it.
    pub(crate) fn remember_settings(&mut self) {
        self.settings = Remembered(Some(self.settings_anew()));
    }

    /// The sum that `apply` keeps, computed anew from all entities.
    pub fn entities_anew(&self) -> u64 {
        let anew = |id, run: &Run| fingerprint(&Entity::Run(id, run));
        let nodes = self.nodes.iter().map(|(id, node)| fingerprint(&Entity::Node(id.0, node)));
        let devices = self.devices.iter().map(|(id, device)| fingerprint(&Entity::Device(id.0, device)));
        let queues = self.queues.values().map(|queue| fingerprint(&Entity::Queue(queue)));
        let jobs = self.jobs.values().map(|job| job_hashes_by(job, job_hash(job), anew));
        let allocations =
            self.allocations.iter().map(|(id, held)| fingerprint(&Entity::Allocation(id.0, held)));
        let verdicts = self.verdicts.iter().map(|(id, reason)| fingerprint(&Entity::Verdict(id.0, reason)));
        let promises = self.promises.values().map(|promise| fingerprint(&Entity::Promise(promise)));
        let kept = self.reservations.iter().map(|kept| fingerprint(&Entity::Reservation(kept)));
        let held = allocations.chain(promises).chain(kept);
        let all = nodes.chain(devices).chain(queues).chain(jobs).chain(held).chain(verdicts);
        all.fold(0, u64::wrapping_add)
    }

    /// The sum that `apply` keeps.
    pub fn entities(&self) -> u64 {
        self.entities
    }
}

/// The hash of a job without its runs.
pub(super) fn job_hash(job: &Job) -> u64 {
    let of_job = fingerprint(&(&job.owner, &*job.spec, job.submitted_at, &job.estimate));
    // Added later: a job that nobody released hashes as before.
    let released = |at| fingerprint(&(of_job, at));
    fingerprint(&Entity::Job(job.number, job.released_at.map_or(of_job, released)))
}

/// The hash of a run: cached since its last change, or computed anew.
pub(super) fn run_hash(id: JobId, run: &Run) -> u64 {
    run.hash.0.unwrap_or_else(|| fingerprint(&Entity::Run(id, run)))
}

/// The hash of an allocation: cached since its last change, or computed anew.
pub(super) fn allocation_hash(id: AllocationId, held: &Allocation) -> u64 {
    held.hash.0.unwrap_or_else(|| fingerprint(&Entity::Allocation(id.0, held)))
}

impl Allocation {
    /// Computes its hash and caches it until the next change.
    pub(super) fn hash_anew(&mut self, id: AllocationId) -> u64 {
        let hash = fingerprint(&Entity::Allocation(id.0, self));
        self.hash = Remembered(Some(hash));
        hash
    }
}

impl Hash for Allocation {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        // Destructured without `..`, so that a new field is not forgotten here.
        let Self { job, placement, state, since, seq, worth, stops_by: _, overdue_since, hash: _ } = self;
        (job, placement, state, since, seq, worth, overdue_since).hash(hasher);
    }
}

/// Hashes only the ids of its placements: an id is never reused, and what it stands for never changes.
impl Hash for Run {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        // Destructured without `..`, so that a new field is not forgotten here.
        let Self {
            state,
            held_by,
            attempt,
            restarts,
            placed_at,
            started_at,
            checkpointed_at,
            live,
            over,
            placements,
            outputs,
            isolation,
            port,
            held_milli_ms,
            stopping,
            last_end,
            attained_ms,
            back_since,
            promised,
            taken_at,
            gave_way,
            moved,
            // For people only: no decision depends on it, and digests of older logs lack it.
            gave_up: _,
            hash: _,
        } = self;
        (state, held_by, attempt, restarts, placed_at, started_at, checkpointed_at, live, over).hash(hasher);
        (outputs, isolation, port, held_milli_ms, stopping).hash(hasher);
        (last_end, attained_ms, back_since, promised, taken_at, placements.len()).hash(hasher);
        placements.iter().for_each(|placement| placement.allocation.hash(hasher));
        // Added later: a run that never gave way hashes as before.
        if *gave_way > 0 {
            gave_way.hash(hasher);
        }
        moved.hash(hasher);
    }
}

/// The hashes of a job and all its runs.
pub(super) fn job_hashes(job: &Job) -> u64 {
    job_hashes_by(job, job.hash.0.unwrap_or_else(|| job_hash(job)), run_hash)
}

fn job_hashes_by(job: &Job, own: u64, run_hash: impl Fn(JobId, &Run) -> u64) -> u64 {
    let runs = match &job.runs {
        Runs::Single(run) => run_hash(job.id(), run),
        Runs::Array(array) => {
            let fresh = fingerprint(&Entity::Fresh(job.number, &array.held, &array.fresh));
            let touched = array.touched.iter();
            let hash = |(member, run): (&u32, &Run)| run_hash(JobId::member(job.number, *member), run);
            touched.map(hash).fold(fresh, u64::wrapping_add)
        }
    };
    own.wrapping_add(runs)
}

impl Job {
    /// To be called after any change that may have touched its runs.
    pub(super) fn forget_run_hashes(&mut self) {
        match &mut self.runs {
            Runs::Single(run) => run.hash = Remembered::default(),
            Runs::Array(array) => array.touched.values_mut().for_each(|run| run.hash = Remembered::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_the_same_everywhere_and_ever() {
        assert_eq!(fingerprint(&(1u32, "divvy", [2u64; 3], Some(-4i64), 5usize)), 8_129_605_837_532_260_854);
        assert_eq!(fingerprint("x".repeat(1000).as_str()), 15_814_189_598_018_654_140);
    }

    #[test]
    fn however_it_is_cut_the_same_bytes_have_the_same_hash() {
        let bytes: Vec<u8> = (0..2000u32).map(|number| (number % 251) as u8).collect();
        let hash = |cut: usize| {
            let mut hasher = Blocks { block: [0; BLOCK_BYTES], filled: CARRY_BYTES };
            bytes.chunks(cut).for_each(|part| hasher.write(part));
            hasher.finish()
        };
        let whole = hash(2000);
        assert!((1..600).all(|cut| hash(cut) == whole));
    }

    #[test]
    fn one_other_byte_is_another_hash_wherever_it_is() {
        let mut bytes = vec![0u8; 700];
        let mut seen = std::collections::BTreeSet::from([fingerprint(&bytes)]);
        for at in 0..700 {
            bytes[at] = 1;
            assert!(seen.insert(fingerprint(&bytes)), "{at}");
            bytes[at] = 0;
        }
    }
}
