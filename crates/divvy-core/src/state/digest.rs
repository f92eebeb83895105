//! The state's digest: a wrapping sum of per-entity hashes, kept by `apply`, so that it costs what changes.

use std::hash::{Hash, Hasher};

use siphasher::sip::SipHasher13;

use super::{Job, Run, Runs, State};
use crate::id::JobId;

/// A hash that is the same on every machine, build and run.
pub fn fingerprint<T: Hash + ?Sized>(value: &T) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(0x6469_7676_7921, 1);
    value.hash(&mut hasher);
    hasher.finish()
}

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
        fingerprint(&(
            self.entities,
            self.next_job,
            self.next_allocation,
            self.term,
            self.ledger.digest(),
            self.policy_digest(),
        ))
    }

    /// The digest of the planner's settings and of the queues.
    pub fn policy_digest(&self) -> u64 {
        fingerprint(&(&self.policy, &self.queues))
    }

    /// The sum that `apply` keeps, reckoned anew from everything that is there.
    pub fn entities_anew(&self) -> u64 {
        let nodes = self.nodes.iter().map(|(id, node)| fingerprint(&Entity::Node(id.0, node)));
        let devices = self.devices.iter().map(|(id, device)| fingerprint(&Entity::Device(id.0, device)));
        let queues = self.queues.values().map(|queue| fingerprint(&Entity::Queue(queue)));
        let jobs = self.jobs.values().map(job_hashes);
        let allocations =
            self.allocations.iter().map(|(id, held)| fingerprint(&Entity::Allocation(id.0, held)));
        let verdicts = self.verdicts.iter().map(|(id, reason)| fingerprint(&Entity::Verdict(id.0, reason)));
        let promises = self.promises.values().map(|promise| fingerprint(&Entity::Promise(promise)));
        let held = allocations.chain(promises);
        let all = nodes.chain(devices).chain(queues).chain(jobs).chain(held).chain(verdicts);
        all.fold(0, u64::wrapping_add)
    }

    /// The sum that `apply` keeps.
    pub fn entities(&self) -> u64 {
        self.entities
    }
}

/// The hash of a job's unchanging part.
pub(super) fn job_hash(job: &Job) -> u64 {
    fingerprint(&Entity::Job(
        job.number,
        fingerprint(&(&job.owner, &*job.spec, job.submitted_at, &job.estimate)),
    ))
}

/// The hashes of a job and all its runs.
pub(super) fn job_hashes(job: &Job) -> u64 {
    let runs = match &job.runs {
        Runs::Single(run) => fingerprint(&Entity::Run(job.id(), run)),
        Runs::Array(array) => {
            let fresh = fingerprint(&Entity::Fresh(job.number, &array.held, &array.fresh));
            let touched = array.touched.iter();
            let hash = |(member, run): (&u32, &Run)| {
                fingerprint(&Entity::Run(JobId::member(job.number, *member), run))
            };
            touched.map(hash).fold(fresh, u64::wrapping_add)
        }
    };
    job_hash(job).wrapping_add(runs)
}
