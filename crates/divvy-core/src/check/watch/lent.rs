//! What queues keep for themselves is borrowed by no job, in whichever cycle it was idle.

use super::{Found, Watch, found};
use crate::check::reckon::{guaranteed_milli, kept_milli, stand};
use crate::id::JobId;
use crate::model::allocation::Placement;
use crate::model::policy::{Preempt, Share};
use crate::model::queue::lineage;
use crate::state::State;

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
        let held = |path: &str| {
            let (held, leaving) = self.held_milli(path);
            held - leaving
        };
        if held(own) <= guaranteed_milli(state, own) {
            return;
        }
        let outermost =
            state.queues.keys().filter(|path| !lineage(path).skip(1).any(|above| is_queue(&above)));
        let taken =
            outermost.map(|path| held(path).max(kept_milli(state, path))).fold(0, i64::saturating_add);
        let there = state.devices.len() as i64 * 1000;
        if taken > there {
            let text = format!(
                "job {job} was placed: of {there} milli {taken} are held, or kept by queues that do not lend them"
            );
            wrong.push(found("lend", text));
        }
    }
}
