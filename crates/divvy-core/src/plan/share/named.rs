//! Part of phase 1, share: what is guaranteed to a queue of a model is its own, whatever it holds of others.

use super::{Amounts, QueueShare, Shares};
use crate::amount::Resource;
use crate::plan::share::ANY;

impl Shares {
    /// The positions of models among the resources.
    pub(super) fn models(&self) -> impl Iterator<Item = usize> + use<'_> {
        let is_model = |(_, resource): &(usize, &Resource)| matches!(resource, Resource::Model(_));
        self.resources.iter().enumerate().filter(is_model).map(|(index, _)| index)
    }

    /// Whether some of what is asked, or held, is of a model that queues speak of.
    pub(crate) fn has_model(&self, has: impl Fn(usize) -> bool) -> bool {
        self.models().any(has)
    }

    /// Whether all devices that are asked for are of models of which so much is guaranteed to a queue.
    pub(in crate::plan) fn guarantees_models(&self, (from, level): (usize, usize), asked: &Amounts) -> bool {
        let queue = &self.queues[level];
        let named = self.models().map(|model| asked[model]).fold(0, i64::saturating_add);
        let stays = |(index, asked): (usize, &i64)| {
            let taken = || queue.held[index].saturating_add(self.kept_beside((from, level), index));
            *asked == 0 || index == ANY || taken().saturating_add(*asked) <= queue.guarantee[index]
        };
        !queue.has_nodes && asked[ANY] > 0 && named == asked[ANY] && asked.iter().enumerate().all(stays)
    }

    /// Whether a queue with so much more stays within its guarantee of everything that is asked. The part that names no model covers any
    /// model. Of hosts, a queue that states nothing has what its devices need. A job that asks for nothing that is divided has no claim.
    pub(in crate::plan) fn stays_guaranteed(&self, (from, level): (usize, usize), asked: &Amounts) -> bool {
        let queue = &self.queues[level];
        let stays = |index: usize| {
            let taken = queue.held[index].saturating_add(self.kept_beside((from, level), index));
            taken.saturating_add(asked[index]) <= queue.guarantee[index]
        };
        let mut asks = (0..asked.len()).filter(|index| asked[*index] > 0).peekable();
        asks.peek().is_some()
            && asks.all(|index| match &self.resources[index] {
                Resource::Model(_) => stays(index) || self.covers_by_any(queue, asked),
                Resource::Any => stays(index),
                _ => stays(index) || queue.comes_with_devices(index, asked),
            })
    }

    /// Whether what a queue would hold beyond its guarantees of models is within the part of its guarantee that names no model.
    fn covers_by_any(&self, queue: &QueueShare, asked: &Amounts) -> bool {
        let beyond =
            |model: usize| (queue.held[model].saturating_add(asked[model]) - queue.guarantee[model]).max(0);
        !queue.has_nodes && self.models().map(beyond).fold(0, i64::saturating_add) <= self.unnamed(queue)
    }

    /// Whether only a queue's guarantee of any device covers what is asked of a model: that is no reason to
    /// leave others with less of that model than is guaranteed to them.
    pub(in crate::plan) fn guarantees_by_any(&self, place: usize, asked: &Amounts) -> bool {
        let queue = &self.queues[place];
        let stays = |model: usize| queue.held[model].saturating_add(asked[model]) <= queue.guarantee[model];
        self.models().any(|model| asked[model] > 0 && !stays(model))
    }

    /// What of its guarantee a queue may have of any model, beside what is guaranteed to it of each.
    pub(super) fn unnamed(&self, queue: &QueueShare) -> i64 {
        let named = self.models().map(|model| queue.guarantee[model]).fold(0, i64::saturating_add);
        queue.guarantee[ANY].saturating_sub(named).max(0)
    }

    /// What a queue runs beyond what is guaranteed to it of each model, once `gone` is given up.
    fn beyond_models(&self, queue: &QueueShare, gone: impl Fn(usize) -> i64) -> i64 {
        let covered =
            self.models().map(|model| (queue.takes(model) - gone(model)).min(queue.guarantee[model]));
        (queue.takes(ANY) - gone(ANY)).saturating_sub(covered.fold(0, i64::saturating_add))
    }

    /// Whether a queue runs more than is guaranteed to it, where what is guaranteed of one model covers nothing of another.
    pub(crate) fn exceeds_models(&self, place: usize) -> bool {
        let queue = &self.queues[place];
        self.beyond_models(queue, |_| 0) > self.unnamed(queue)
    }

    /// Whether a queue is left with less than what is guaranteed to it of any model once it has given up so much.
    pub(crate) fn falls_short_of_any(&self, place: usize, draws: &Amounts) -> bool {
        let queue = &self.queues[place];
        self.beyond_models(queue, |index| draws[index]) < self.unnamed(queue)
    }

    /// The first model of which a queue is left with less than is guaranteed to it once it has given up so much.
    pub(crate) fn falls_short(&self, place: usize, draws: &Amounts) -> Option<usize> {
        let queue = &self.queues[place];
        let falls =
            |model: usize| draws[model] > 0 && queue.takes(model) - draws[model] < queue.guarantee[model];
        self.models().find(|model| falls(*model))
    }
}
