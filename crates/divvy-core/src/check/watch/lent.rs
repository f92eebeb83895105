//! What queues keep for themselves is borrowed by no job, in whichever cycle it was idle.

use std::collections::BTreeSet;

use super::{Found, Watch, found};
use crate::amount::Resource;
use crate::check::reckon::{guaranteed_milli, guaranteed_of, kept_milli, kept_of, right_below, stand};
use crate::id::JobId;
use crate::model::allocation::Placement;
use crate::model::policy::{Preempt, Share};
use crate::model::queue::lineage;
use crate::state::{Device, State};

/// What a queue keeps for itself and those below it.
type Keeps<'a> = &'a dyn Fn(&State, &str) -> i64;

impl Watch {
    /// A job that was given devices beyond what is guaranteed to the outermost of its queues left the others what they do not lend. What
    /// is being stopped counts for no queue, and broken devices count as there: so more may seem to be left than may be lent, never less.
    /// Policies by which queues have nothing of their own know no loans.
    pub(super) fn lent(&self, state: &State, (job, placements): (JobId, &[Placement]), wrong: &mut Found) {
        let lends = match state.policy.preempt {
            Preempt::LeastLoss => true,
            Preempt::Off => state.policy.share != Share::None,
            Preempt::Walk => false,
        };
        let keeps = || state.queues.values().any(|queue| !queue.lend.is_empty());
        // Which nodes are kept for which queue is another law.
        let have_nodes = || state.queues.values().any(|queue| !queue.nodes.is_unsaid());
        if !lends || !keeps() || have_nodes() || placements.iter().map(Placement::milli).sum::<i64>() == 0 {
            return;
        }
        let is_queue = |path: &&str| state.queues.contains_key(*path);
        let Some(stand) = state.jobs.get(&job.number).map(|job| stand(state, job)) else { return };
        let Some(own) = lineage(&stand).filter(is_queue).last() else { return };
        let parties = (own, &*stand);
        let devices = (&Resource::Any, guaranteed_milli, kept_milli);
        if let Some((there, taken)) = self.beyond(state, parties, devices) {
            let text = format!(
                "job {job} was placed: of {there} milli {taken} are held, or kept by queues that do not lend them"
            );
            wrong.push(found("lend", text));
        }
        let drawn = placements.iter().flat_map(|placement| &placement.devices);
        let drawn = drawn.filter_map(|(device, _)| Some(&state.devices.get(device)?.spec.model));
        let drawn: BTreeSet<&String> = drawn.collect();
        for model in drawn {
            let resource = Resource::Model(model.clone());
            let guaranteed = |state: &State, path: &str| guaranteed_of(state, path, &resource);
            let kept = |state: &State, path: &str| kept_of(state, path, &resource);
            if let Some((there, taken)) = self.beyond(state, parties, (&resource, guaranteed, kept)) {
                let text = format!(
                    "job {job} was placed: of {there} milli of {model} {taken} are held, or kept by queues that do not lend them"
                );
                wrong.push(found("lend", text));
            }
        }
    }

    /// How much of a resource there is, and how much of it is held or kept, where that is more, and a job's outermost queue takes more than
    /// is guaranteed to it.
    fn beyond(
        &self,
        state: &State,
        (own, stand): (&str, &str),
        (resource, guaranteed, kept): (&Resource, impl Fn(&State, &str) -> i64, impl Fn(&State, &str) -> i64),
    ) -> Option<(i64, i64)> {
        let takes = |path: &str| self.takes(state, path, (resource, &kept));
        // What is within what is kept for its queue, or one above it, is taken from nobody.
        let is_kept = |path: &str| state.queues.contains_key(path) && takes(path) <= kept(state, path);
        if lineage(stand).any(is_kept) {
            return None;
        }
        let is_of = |device: &&Device| match resource {
            Resource::Model(model) => device.spec.model == *model,
            _ => true,
        };
        let is_outermost =
            |path: &&String| !lineage(path).skip(1).any(|above| state.queues.contains_key(above));
        let outermost = state.queues.keys().filter(is_outermost);
        let taken = outermost.map(|path| takes(path)).fold(0, i64::saturating_add);
        let there = state.devices.values().filter(is_of).count() as i64 * 1000;
        (taken > there && takes(own) > guaranteed(state, own)).then_some((there, taken))
    }

    /// What a queue and those below it hold, and what is kept there for those who do not hold it, each with those below it: what they
    /// hold beyond what is kept for them comes from what is kept above them, and only then from others.
    pub(super) fn takes(&self, state: &State, path: &str, (resource, kept): (&Resource, Keeps)) -> i64 {
        let held = |path: &str| {
            let (held, leaving) = self.held_of(path, resource);
            held - leaving
        };
        let (mut own, mut below, mut beyond) = (held(path), 0i64, 0i64);
        for child in right_below(state, path) {
            let kept_there = kept(state, child);
            own -= held(child);
            below = below.saturating_add(kept_there);
            beyond += self.takes(state, child, (resource, kept)) - kept_there;
        }
        let kept_here = kept(state, path).saturating_sub(below);
        below.saturating_add(kept_here.max(own + beyond))
    }
}
