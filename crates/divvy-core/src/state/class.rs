//! Which jobs are alike: the planner judges one of them for all.

use super::digest::fingerprint;
use crate::id::ClassId;

/// Jobs alike in all that the planner looks at have the same class.
pub(super) fn class_of(spec: &crate::model::job::JobSpec) -> ClassId {
    let shape = shape_of(spec);
    let shape = if spec.may_preempt() { shape } else { ClassId(fingerprint(&(shape, "polite"))) };
    let shape = spec.seat.said().map_or(shape, |seat| ClassId(fingerprint(&(shape, seat))));
    // Who ends sooner may run where who ends later may not.
    spec.known_length().map_or(shape, |length| ClassId(fingerprint(&(shape, length))))
}

/// Jobs alike in all but how long they may run.
fn shape_of(spec: &crate::model::job::JobSpec) -> ClassId {
    let roles = spec.gang.roles();
    let shapes: Vec<_> = roles.iter().map(|role| (role.minimum, &role.ask, &role.topology)).collect();
    let of_job = (&spec.queue, spec.priority, spec.preemptible, spec.exclusive, shapes);
    let branches = spec.gang.branches();
    if spec.gang.is_elastic() {
        let of_branch = |branch: &&crate::model::gang::Branch| (branch.minimum, branch.groups.len());
        let sizes: Vec<_> = branches.iter().map(of_branch).collect();
        let most: Vec<u32> = roles.iter().map(|role| role.maximum).collect();
        let topologies: Vec<_> = branches.iter().map(|branch| &branch.topology).collect();
        return ClassId(fingerprint(&(of_job, sizes, most, topologies)));
    }
    if branches.iter().all(|branch| branch.topology.is_none()) {
        return ClassId(fingerprint(&of_job));
    }
    let shape = |branch: &&crate::model::gang::Branch| {
        let size = |group: &crate::model::gang::Group| (group.roles().len(), group.branches().len());
        (branch.topology.clone(), branch.groups.iter().map(size).collect::<Vec<_>>())
    };
    ClassId(fingerprint(&(of_job, branches.iter().map(shape).collect::<Vec<_>>())))
}
