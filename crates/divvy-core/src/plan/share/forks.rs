//! Part of phase 1, share: how what is due to a queue is divided among its children. Children with nodes of
//! their own are set apart: what these nodes have is theirs, and no part of what the others divide.

use std::sync::Arc;

use super::{ANY, Amounts, QueueShare, Shares, quantum};
use crate::amount::Resource;
use crate::plan::divide::{Claim, fill};
use crate::plan::dominant::{self, Demand};

impl Shares {
    /// Divides what is due to a queue among its children, all resources together.
    pub(super) fn divide_dominant(&mut self, queue: usize) {
        let children = Arc::clone(&self.queues[queue].children);
        let mut whole = self.queues[queue].due.clone();
        for (resource, whole) in whole.iter_mut().enumerate() {
            *whole = whole.saturating_sub(self.apart((queue, &children), resource));
        }
        let demand = |place: &usize| {
            let child = &self.queues[*place];
            let wanted: Amounts = (0..whole.len()).map(|resource| self.wanted_of(*place, resource)).collect();
            let guaranteed =
                (0..whole.len()).map(|it| self.usable(*place, it).min(wanted[it]).min(whole[it]));
            let (weight, priority) = (child.weight, child.priority);
            Demand { guaranteed: guaranteed.collect(), wanted, weight, priority }
        };
        let demands: Vec<Demand> = children.iter().map(demand).collect();
        let quanta: Amounts = self.resources.iter().map(quantum).collect();
        for (child, part) in children.iter().zip(dominant::fill(&whole, &demands, &quanta)) {
            let due =
                part.into_iter().enumerate().map(|(resource, part)| match self.is_apart(*child, resource) {
                    true => self.own_part(*child, resource),
                    false => part,
                });
            self.queues[*child].due = due.collect();
        }
    }

    /// Divides what is due to a queue among its children, each resource by itself.
    pub(super) fn divide(&mut self, queue: usize) {
        if self.queues[queue].children.is_empty() {
            return;
        }
        for resource in 0..self.resources.len() {
            let whole = self.queues[queue].due[resource];
            let parts = self.parts((queue, resource), whole, quantum(&self.resources[resource]));
            for (child, part) in Arc::clone(&self.queues[queue].children).iter().zip(parts) {
                self.queues[*child].due[resource] = part;
            }
        }
        self.pass_down(queue);
    }

    /// The parts of a queue's children in what is due to it.
    pub(in crate::plan) fn parts(
        &self,
        (queue, resource): (usize, usize),
        whole: i64,
        quantum: i64,
    ) -> Vec<i64> {
        let children = &self.queues[queue].children;
        let whole = whole.saturating_sub(self.apart((queue, children), resource));
        let claim = |place: &usize| {
            let child = &self.queues[*place];
            let wanted = self.wanted_of(*place, resource);
            // There is no more to guarantee than the whole.
            let guaranteed = self.usable(*place, resource).min(wanted).min(whole);
            Claim { guaranteed, wanted, weight: child.weight, priority: child.priority }
        };
        let mut claims: Vec<Claim> = children.iter().map(claim).collect();
        if resource == ANY {
            self.narrow((queue, whole), &mut claims, quantum);
        } else if self.guarantees && matches!(self.resources[resource], Resource::Model(_)) {
            self.widen((queue, whole), &mut claims, quantum);
        }
        let mut parts = fill(whole, &claims, quantum);
        for (child, part) in children.iter().zip(&mut parts) {
            if self.is_apart(*child, resource) {
                *part = self.own_part(*child, resource);
            }
        }
        parts
    }

    /// What is guaranteed to children of any device is guaranteed of a model, too, as far as others leave more than is guaranteed
    /// to them of it by name.
    fn widen(&self, (queue, whole): (usize, i64), claims: &mut [Claim], quantum: i64) {
        let with_any = |(child, claim): (&usize, &Claim)| {
            let more = if self.queues[*child].has_nodes { 0 } else { self.unnamed(&self.queues[*child]) };
            Claim { wanted: claim.guaranteed.saturating_add(more).min(claim.wanted), ..*claim }
        };
        let children = &self.queues[queue].children;
        if claims.iter().all(|claim| claim.guaranteed >= claim.wanted) {
            return;
        }
        let by_any: Vec<Claim> = children.iter().zip(claims.iter()).map(with_any).collect();
        let parts = fill(whole, &by_any, quantum);
        claims.iter_mut().zip(parts).for_each(|(claim, part)| claim.guaranteed = claim.guaranteed.max(part));
    }

    /// What is guaranteed to a child, but for what is kept in it for those who do not want it: no other gets that.
    fn usable(&self, child: usize, resource: usize) -> i64 {
        let QueueShare { guarantee, unwanted, .. } = &self.queues[child];
        guarantee[resource].saturating_sub(unwanted[resource])
    }

    /// What a child wants of what it shares with its siblings.
    fn wanted_of(&self, child: usize, resource: usize) -> i64 {
        if self.is_apart(child, resource) { 0 } else { self.queues[child].wanted[resource] }
    }
}
