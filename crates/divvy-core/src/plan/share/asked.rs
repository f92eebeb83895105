//! Part of phase 1, share: what jobs ask for of what is divided.

use super::{Amounts, Shares};
use crate::amount::Resource;
use crate::model::ask::Alternative;
use crate::model::gang::Role;
use crate::model::job::JobSpec;

impl Shares {
    /// What a job asks for, by its first alternatives. Where several models would do, it asks for none of them by name. A task that
    /// wants its node for itself asks for all of the largest that would do: which one it gets is known only once it has a place.
    pub(crate) fn asked(&self, spec: &JobSpec) -> Amounts {
        self.asked_by(spec, 0)
    }

    /// What a job asks for by alternatives of this number; by the last where a role has fewer.
    pub(in crate::plan) fn asked_by(&self, spec: &JobSpec, number: usize) -> Amounts {
        self.asked_of((&spec.gang.required_roles(), spec.exclusive), |role| role.minimum, number)
    }

    /// The most that a job could use, with all tasks that it may have.
    pub(crate) fn asked_at_most(&self, spec: &JobSpec) -> Amounts {
        self.asked_of((&spec.gang.roles(), spec.exclusive), |role| role.maximum, 0)
    }

    /// What this many tasks of each role ask for by alternatives of this number.
    pub(super) fn asked_of(
        &self,
        (roles, exclusive): (&[&Role], bool),
        tasks: fn(&Role) -> u32,
        number: usize,
    ) -> Amounts {
        let of = |resource: &Resource| {
            let each = roles.iter().map(|role| {
                let alternative = role.ask.alternatives.get(number).or(role.ask.alternatives.last());
                let amount = alternative.map_or(0, |it| self.asked_by_task((it, exclusive), resource));
                amount.saturating_mul(i64::from(tasks(role)))
            });
            each.fold(0, i64::saturating_add)
        };
        self.resources.iter().map(of).collect()
    }

    fn asked_by_task(&self, (alternative, exclusive): (&Alternative, bool), resource: &Resource) -> i64 {
        let devices = alternative.devices.as_ref();
        let milli = devices.map_or(0, |ask| i64::from(ask.count) * i64::from(ask.milli()));
        let stated = match resource {
            Resource::Any => milli,
            Resource::Model(model) if devices.is_some_and(|ask| ask.class.names_only(model)) => milli,
            Resource::Model(_) => 0,
            Resource::Cpu => alternative.cpu_milli.unwrap_or(0),
            Resource::Memory => alternative.memory_bytes.unwrap_or(0),
            Resource::Storage | Resource::Extended(_) => alternative.extras.of(resource),
            Resource::Pods => 0,
        };
        if exclusive { stated.max(self.sizes.most(alternative, resource)) } else { stated }
    }

    /// Thousandths of devices that a task asks for.
    pub(crate) fn milli_of_task(&self, (alternative, exclusive): (&Alternative, bool)) -> i64 {
        self.asked_by_task((alternative, exclusive), &Resource::Any)
    }
}
