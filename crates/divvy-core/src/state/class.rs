//! Which jobs are alike: the planner judges one of them for all.

use std::collections::BTreeSet;
use std::ops::Range;

use super::State;
use super::apply::Wrong;
use super::digest::fingerprint;
use crate::id::ClassId;
use crate::model::ask::Alike;
use crate::model::gang::{Branch, Group, Role};
use crate::model::job::JobSpec;
use crate::model::topology::Spread;

/// The class of jobs that are alike in all that the planner looks at. Of their labels, only those count by which some job selects others.
pub(super) fn class_of(spec: &JobSpec, heeded: &BTreeSet<String>) -> ClassId {
    let shape = spread_so(shape_of((&spec.queue, spec.priority, spec.preemptible), spec), spec);
    let shape = if spec.may_preempt() { shape } else { ClassId(fingerprint(&(shape, "polite"))) };
    let shape = spec.seat.said().map_or(shape, |seat| ClassId(fingerprint(&(shape, seat))));
    let shape = labelled_so(shape, (spec, heeded));
    // A job that ends sooner may run where one that ends later may not.
    spec.known_length().map_or(shape, |length| ClassId(fingerprint(&(shape, length))))
}

/// A hash shared by jobs that find room in the same places, whichever queues they are in.
pub(crate) fn shape(spec: &JobSpec, heeded: &BTreeSet<String>) -> u64 {
    let shape = labelled_so(spread_so(shape_of(("", 0, true), spec), spec), (spec, heeded)).0;
    spec.kept_to.said().map_or(shape, |queue| fingerprint(&(shape, "kept", queue)))
}

fn spread_so(shape: ClassId, spec: &JobSpec) -> ClassId {
    let spreads = spec.gang.spreads();
    let spreads: Vec<(Range<u32>, &Spread)> =
        spreads.into_iter().map(|(ranks, spread, _)| (ranks, spread)).collect();
    if spreads.is_empty() { shape } else { ClassId(fingerprint(&(shape, "spread", spreads))) }
}

fn labelled_so(shape: ClassId, (spec, heeded): (&JobSpec, &BTreeSet<String>)) -> ClassId {
    let told_by = told_by(spec, heeded);
    let is_told = told_by.iter().any(|of_role| !of_role.is_empty());
    if is_told { ClassId(fingerprint(&(shape, "labels", told_by))) } else { shape }
}

/// The labels by which other jobs select the tasks of each role; empty if no job selects by labels.
fn told_by(spec: &JobSpec, heeded: &BTreeSet<String>) -> Vec<Vec<(String, String)>> {
    if heeded.is_empty() {
        return Vec::new();
    }
    let of_role = |role: &&Role| {
        let labels = spec.labels_of(role.ask.affinity()).into_owned();
        labels.into_iter().filter(|(key, _)| heeded.contains(key)).collect()
    };
    spec.gang.roles().iter().map(of_role).collect()
}

/// The class of jobs that are alike in all but their labels, how they are spread and how long they may run.
fn shape_of((queue, priority, preemptible): (&str, i32, bool), spec: &JobSpec) -> ClassId {
    let roles = spec.gang.roles();
    let shapes: Vec<_> = roles.iter().map(|role| (role.minimum, Alike(&role.ask), &role.topology)).collect();
    let of_job = (queue, priority, preemptible, spec.exclusive, shapes);
    let branches = spec.gang.branches();
    if spec.gang.is_elastic() {
        let of_branch = |branch: &&Branch| (branch.minimum, branch.groups.len());
        let sizes: Vec<_> = branches.iter().map(of_branch).collect();
        let most: Vec<u32> = roles.iter().map(|role| role.maximum).collect();
        let topologies: Vec<_> = branches.iter().map(|branch| &branch.topology).collect();
        return ClassId(fingerprint(&(of_job, sizes, most, topologies)));
    }
    if branches.iter().all(|branch| branch.topology.is_none()) {
        return ClassId(fingerprint(&of_job));
    }
    let shape = |branch: &&Branch| {
        let size = |group: &Group| (group.roles().len(), group.branches().len());
        (branch.topology.clone(), branch.groups.iter().map(size).collect::<Vec<_>>())
    };
    ClassId(fingerprint(&(of_job, branches.iter().map(shape).collect::<Vec<_>>())))
}

impl State {
    /// Gives a job another priority, and with it another class.
    pub(super) fn prioritise(&mut self, number: u64, priority: i32) -> Result<(), Wrong> {
        let job = self.jobs.get(&number).ok_or_else(|| Wrong::Unknown(format!("job {number}")))?;
        let spec = JobSpec { priority, ..(*job.spec).clone() };
        let class = self.classify(number, &spec)?;
        self.change_job(number, |job| (job.spec, job.class) = (spec.into(), class))
    }

    /// The class of a new job. Jobs that differ only in labels that no job looked at before may have different classes from now on.
    pub(super) fn classify(&mut self, number: u64, spec: &JobSpec) -> Result<ClassId, Wrong> {
        self.note_seeker(number, spec);
        let keys = spec.heeded_labels().into_iter().filter(|key| !self.heeded.contains(*key));
        let new: Vec<String> = keys.map(str::to_owned).collect();
        if new.is_empty() {
            return Ok(class_of(spec, &self.heeded));
        }
        self.heeded.extend(new.iter().cloned());
        let has = |spec: &JobSpec, key: &String| {
            let of_role = |role: &&Role| role.ask.affinity().labels.contains_key(key);
            spec.labels.contains_key(key) || spec.gang.roles().iter().any(of_role)
        };
        let differs = self.jobs.values().filter(|job| new.iter().any(|key| has(&job.spec, key)));
        let classes: Vec<_> = differs.map(|job| (job.number, class_of(&job.spec, &self.heeded))).collect();
        for (number, class) in classes {
            self.change_job(number, |job| job.class = class)?;
        }
        Ok(class_of(spec, &self.heeded))
    }
}
