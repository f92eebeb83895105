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
                let amount = alternative.map_or(0, |it| self.sizes.asked((it, exclusive), resource));
                amount.saturating_mul(i64::from(tasks(role)))
            });
            each.fold(0, i64::saturating_add)
        };
        self.resources.iter().map(of).collect()
    }

    /// Thousandths of devices that a task asks for.
    pub(crate) fn milli_of_task(&self, task: (&Alternative, bool)) -> i64 {
        self.sizes.asked(task, &Resource::Any)
    }
}
