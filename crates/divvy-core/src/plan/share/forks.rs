//! Part of phase 1, share: how what is due to a queue is divided among its children. Children with nodes of
//! their own are set apart: what these nodes have is theirs, and no part of what the others divide.

use super::{Amounts, Shares, quantum};
use crate::plan::divide::{Claim, fill};
use crate::plan::dominant::{self, Demand};

impl Shares {
    /// Divides what is due to a queue among its children, all resources together.
    pub(super) fn divide_dominant(&mut self, queue: usize) {
        let children = std::mem::take(&mut self.queues[queue].children);
        let mut whole = self.queues[queue].due.clone();
        for (resource, whole) in whole.iter_mut().enumerate() {
            *whole = whole.saturating_sub(self.apart(&children, resource));
        }
        let demand = |place: &usize| {
            let child = &self.queues[*place];
            let wanted: Amounts = (0..whole.len()).map(|resource| self.wanted_of(*place, resource)).collect();
            let guaranteed = child.guarantee.iter().zip(&wanted).zip(&whole);
            let guaranteed = guaranteed.map(|((guarantee, wanted), whole)| *guarantee.min(wanted).min(whole));
            let (weight, priority) = (child.weight, child.priority);
            Demand { guaranteed: guaranteed.collect(), wanted, weight, priority }
        };
        let demands: Vec<Demand> = children.iter().map(demand).collect();
        let quanta: Amounts = self.resources.iter().map(quantum).collect();
        for (resource, whole) in whole.iter_mut().enumerate() {
            let idle = children.iter().zip(&demands);
            let idle = idle.map(|(child, demand)| self.idle(*child, resource, demand.guaranteed[resource]));
            *whole = whole.saturating_sub(idle.fold(0, i64::saturating_add));
        }
        for (child, part) in children.iter().zip(dominant::fill(&whole, &demands, &quanta)) {
            let due =
                part.into_iter().enumerate().map(|(resource, part)| match self.is_apart(*child, resource) {
                    true => self.own_part(*child, resource),
                    false => part,
                });
            self.queues[*child].due = due.collect();
        }
        self.queues[queue].children = children;
    }

    /// Divides what is due to a queue among its children, each resource by itself.
    pub(super) fn divide(&mut self, queue: usize) {
        if self.queues[queue].children.is_empty() {
            return;
        }
        for resource in 0..self.resources.len() {
            let whole = self.queues[queue].due[resource];
            let parts = self.parts((queue, resource), whole, quantum(&self.resources[resource]));
            for (child, part) in self.queues[queue].children.clone().into_iter().zip(parts) {
                self.queues[child].due[resource] = part;
            }
        }
    }

    /// The parts of a queue's children in what is due to it.
    pub(in crate::plan) fn parts(
        &self,
        (queue, resource): (usize, usize),
        whole: i64,
        quantum: i64,
    ) -> Vec<i64> {
        let children = &self.queues[queue].children;
        let whole = whole.saturating_sub(self.apart(children, resource));
        let claim = |place: &usize| {
            let child = &self.queues[*place];
            let wanted = self.wanted_of(*place, resource);
            // There is no more to guarantee than the whole.
            let guaranteed = child.guarantee[resource].min(wanted).min(whole);
            Claim { guaranteed, wanted, weight: child.weight, priority: child.priority }
        };
        let claims: Vec<Claim> = children.iter().map(claim).collect();
        let idle = children.iter().zip(&claims);
        let idle = idle.map(|(child, claim)| self.idle(*child, resource, claim.guaranteed));
        let idle = idle.fold(0, i64::saturating_add);
        let mut parts = fill(whole.saturating_sub(idle), &claims, quantum);
        for (child, part) in children.iter().zip(&mut parts) {
            if self.is_apart(*child, resource) {
                *part = self.own_part(*child, resource);
            }
        }
        parts
    }

    /// What a child keeps for itself and does not use: no other gets it, whether this one wants it or not.
    fn idle(&self, child: usize, resource: usize, guaranteed: i64) -> i64 {
        if self.is_apart(child, resource) {
            return 0;
        }
        let kept = self.loans.as_ref().map_or(0, |loans| loans.kept_below(child)[resource]);
        kept.saturating_sub(guaranteed).max(0)
    }

    /// What a child wants of what it shares with its siblings.
    fn wanted_of(&self, child: usize, resource: usize) -> i64 {
        if self.is_apart(child, resource) { 0 } else { self.queues[child].wanted[resource] }
    }
}
