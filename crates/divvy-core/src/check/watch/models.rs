//! Which jobs may take what where guarantees name models, and by what right where nothing is guaranteed (L9).

use super::*;
use crate::check::reckon::{guaranteed_of, kept_milli, kept_of, models_guaranteed};
use crate::model::ask::Alternative;
use crate::model::borrowing::BorrowEvicts;
use crate::model::gang::Role;
use crate::model::node::NodeSpec;
use crate::state::Job;

impl Watch {
    /// The models asked for by a job of which one of these queues stays within its guarantee with it, by its smallest alternative.
    pub(super) fn entitled_to(
        &self,
        state: &State,
        (claimant, grows): (&Job, bool),
        queues: Option<&[&str]>,
    ) -> Vec<Resource> {
        let milli = giving::least_asked(state, claimant, grows);
        let has_seat = stand(state, claimant) != claimant.spec.queue;
        let is_asked = |model: &Resource| {
            let roles = claimant.spec.gang.roles();
            let ways = roles.iter().flat_map(|role| &role.ask.alternatives);
            let mut classes = ways.filter_map(|way| way.devices.as_ref()).map(|devices| &devices.class);
            matches!(model, Resource::Model(name) if classes.any(|class| class.models.contains(name)))
        };
        let stays = |model: &Resource| {
            queues.is_none_or(|queues| {
                queues.iter().any(|path| {
                    let (guarantee, (held, leaves)) =
                        (guaranteed_of(state, path, model), self.held_of(path, model));
                    let is_of_seat = has_seat && *path == claimant.spec.queue;
                    guarantee > 0 && (is_of_seat || held - leaves + milli <= guarantee)
                })
            })
        };
        let models = models_guaranteed(state).into_iter().filter(|_| milli > 0);
        models.filter(|model| is_asked(model) && stays(model)).collect()
    }

    /// Whether a job that asks for no devices stays, with the cores or memory that it asks for, within its queue's guarantee of these.
    pub(super) fn is_entitled_to_hosts(&self, state: &State, claimant: &Job) -> bool {
        let spec = &claimant.spec;
        let sum = |of: fn(&Alternative) -> Option<i64>| {
            let each = |role: &Role| role.ask.alternatives.first().and_then(of).unwrap_or(0);
            let roles = spec.gang.required_roles();
            let of_roles = roles.iter().map(|role| each(role).saturating_mul(i64::from(role.minimum)));
            of_roles.fold(0, i64::saturating_add)
        };
        // A job that wants nodes to itself wants all that the largest of them have.
        let largest = |of: fn(&NodeSpec) -> i64| {
            let most = state.nodes.values().map(|node| of(&node.spec)).max().unwrap_or(0);
            most.saturating_mul(i64::from(spec.gang.tasks()))
        };
        let asked = match spec.exclusive {
            true => [
                (Resource::Cpu, largest(|node| node.cpu_milli)),
                (Resource::Memory, largest(|node| node.memory_bytes)),
            ],
            false => {
                [(Resource::Cpu, sum(|way| way.cpu_milli)), (Resource::Memory, sum(|way| way.memory_bytes))]
            }
        };
        let has_seat = stand(state, claimant) != spec.queue;
        let stays = |(resource, asked): &(Resource, i64)| {
            let (guarantee, (held, leaves)) =
                (guaranteed_of(state, &spec.queue, resource), self.held_of(&spec.queue, resource));
            *asked > 0 && guarantee > 0 && (has_seat || held - leaves + asked <= guarantee)
        };
        spec.milli_asked() == 0 && asked.iter().any(stays)
    }

    /// Whether a job gives back a model of which a queue holds more than is guaranteed to it of that model, or of any.
    pub(super) fn exceeds(&self, state: &State, (job, path): (JobId, &str), model: &Resource) -> bool {
        let live = state.run(job).map(|run| run.live.as_slice()).unwrap_or_default();
        let mut counted = live.iter().filter_map(|id| self.holds.get(id)).flat_map(|hold| &hold.counted);
        let gives = counted.any(|(resource, amount)| resource == model && *amount > 0);
        // What is kept there for those who do not use it counts as taken.
        let has = |resource: &Resource| match resource {
            Resource::Any => self.takes(state, path, (resource, &kept_milli)),
            model => self.takes(state, path, (model, &|state, path| kept_of(state, path, model))),
        };
        let each: Vec<(i64, i64)> = models_guaranteed(state)
            .iter()
            .map(|model| (has(model), guaranteed_of(state, path, model)))
            .collect();
        let covered: i64 = each.iter().map(|(has, guarantee)| has.min(guarantee)).sum();
        let named = each.iter().fold(0i64, |sum, (_, guarantee)| sum.saturating_add(*guarantee));
        let unnamed = guaranteed_milli(state, path).saturating_sub(named).max(0);
        gives && has(model) > guaranteed_of(state, path, model) && has(&Resource::Any) - covered > unnamed
    }

    /// What is not guaranteed to a queue, its jobs take from others only by a right that is set: by what is due, or by priority alone. By
    /// what is due they do not take from a job that could take it back by priority.
    pub(super) fn borrowing(
        &self,
        state: &State,
        (claimant, victim): (&Job, &Job),
        job: JobId,
        wrong: &mut Found,
    ) {
        let right = |of: &Job| -> BorrowEvicts {
            let said = state.queues.get(&of.spec.queue).and_then(|queue| queue.borrow_evicts);
            let said = said.unwrap_or(state.policy.borrow_evicts);
            // By the line, nothing is due to queues beyond what is guaranteed to them.
            BorrowEvicts { due: said.due && !state.policy.lends_in_line(), ..said }
        };
        let by_priority = |one: &Job, other: &Job| {
            let most = right(one).lower;
            most.is_some_and(|most| other.spec.priority <= most && other.spec.priority < one.spec.priority)
        };
        let live = state.run(job).map(|run| run.live.as_slice()).unwrap_or_default();
        let held: i64 =
            live.iter().filter_map(|id| self.holds.get(id)).map(|hold| hold.placement.milli()).sum();
        // Where no devices are asked for, or given, something else is divided.
        if held == 0 || claimant.spec.milli_asked() == 0 || by_priority(claimant, victim) {
            return;
        }
        if !right(claimant).due || by_priority(victim, claimant) {
            let (of, by) = (&victim.spec.queue, &claimant.spec.queue);
            let text = format!(
                "job {job} of {of} is reclaimed by {} of {by}, to which it is not guaranteed",
                claimant.number
            );
            wrong.push(found("L9", text));
        }
    }
}
