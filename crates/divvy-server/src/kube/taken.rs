//! What is taken back from pods, and for whom: why a pod has to go, and which node another pod gets then.

use std::collections::{BTreeMap, HashMap};

use divvy_core::action::Action;
use divvy_core::controller::Batch;
use divvy_core::event::Event;
use divvy_core::id::{AllocationId, JobId};
use divvy_core::model::job::Cause;
use divvy_core::state::State;
use divvy_engine::kubernetes::{CROWDED, KubernetesEngine, PREEMPTED, STOPPED, TIMED_OUT};

use super::jobs::Jobs;

/// Pods that were told which node they will get.
#[derive(Debug, Default)]
pub(super) struct Nominated(BTreeMap<JobId, Vec<String>>);

impl Nominated {
    /// Tells pods which nodes a batch promises to them, and tells pods whose promise is gone.
    pub(super) fn follow(&mut self, state: &State, batch: &Batch, to: (&Jobs, &mut KubernetesEngine)) {
        let (jobs, engine) = to;
        for stamped in &batch.commit.events {
            let Event::Promised(promise) = &stamped.event else { continue };
            let mut pods = Vec::new();
            for placement in &promise.placements {
                let node = state.nodes.get(&placement.node).map(|node| node.spec.name.clone());
                let Some(uid) = jobs.pod(promise.job, placement.rank) else { continue };
                engine.nominate(uid, node);
                pods.push(uid.to_owned());
            }
            self.0.insert(promise.job, pods);
        }
        let is_over = |job: &&JobId| !state.promises.contains_key(*job);
        let over: Vec<JobId> = self.0.keys().filter(is_over).copied().collect();
        for job in over {
            let pods = self.0.remove(&job).unwrap_or_default();
            // When a pod is bound, the server removes the nomination by itself.
            if state.run(job).is_none_or(|run| !run.is_active()) {
                let waiting: Vec<String> = pods.into_iter().filter(|uid| engine.still_waits(uid)).collect();
                waiting.iter().for_each(|uid| engine.nominate(uid, None));
            }
        }
    }
}

/// Returns why the tasks that a batch stops have to go, as a word and a sentence.
pub(super) fn causes(state: &State, batch: &Batch) -> Vec<(AllocationId, &'static str, String)> {
    let (mut why, mut for_whom) = (HashMap::new(), HashMap::new());
    for stamped in &batch.commit.events {
        match &stamped.event {
            Event::Stopping { job, cause, .. } => drop(why.insert(*job, *cause)),
            Event::Promised(promise) => {
                for_whom.extend(promise.waits_for.iter().map(|allocation| (*allocation, promise.job)));
            }
            _ => {}
        }
    }
    let stopped = batch.actions.iter().filter(|action| matches!(action, Action::Stop(..)));
    let cause = |action: &Action| {
        let id = action.fence().allocation;
        let cause = why.get(&state.allocations.get(&id)?.job)?;
        let claimant = for_whom.get(&id).and_then(|job| state.jobs.get(&job.number)).map(|job| &job.spec);
        let (name, queue) = claimant.map_or(("another", "another"), |spec| (&spec.name, &spec.queue));
        let (word, text) = match cause {
            Cause::Preempted => {
                (PREEMPTED, format!("its place goes to {name}, of higher priority in its queue"))
            }
            Cause::Reclaimed => {
                (PREEMPTED, format!("its place goes back to queue {queue}, to which it is due, for {name}"))
            }
            Cause::Crowded => {
                (CROWDED, "other schedulers have put more on its node than was left".to_owned())
            }
            Cause::TimeLimit => {
                (TIMED_OUT, "it has run for as long as it may: see its time limit".to_owned())
            }
            Cause::BrokenGang => (STOPPED, "another pod of its gang has failed or is gone".to_owned()),
            _ => (STOPPED, "its job is stopped".to_owned()),
        };
        Some((id, word, text))
    };
    stopped.filter_map(cause).collect()
}
