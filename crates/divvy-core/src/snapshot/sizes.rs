//! How large the nodes are: a task that wants its node for itself gets all of it, and how much that is is known only once it has
//! a place.

use std::sync::Arc;

use super::Snapshot;
use crate::amount::Resource;
use crate::model::ask::{Alternative, DeviceClass};
use crate::model::device::{DeviceSpec, WHOLE_MILLI};
use crate::state::State;

/// The largest nodes of the pool: each has more of something than any other. What can be given out of them now does not matter.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sizes {
    /// A device of each kind, by the kind's place.
    kinds: Vec<DeviceSpec>,
    /// In their order, so that it does not matter which was seen first.
    largest: Vec<Size>,
}

/// What a node has.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Size {
    pub(super) cpu_milli: i64,
    pub(super) memory_bytes: i64,
    /// Devices by the place of their kind, in that order.
    pub(super) devices: Vec<(usize, u32)>,
}

impl Size {
    /// Whether it has no less of anything.
    fn covers(&self, other: &Self) -> bool {
        let has =
            |(kind, count): &(usize, u32)| self.devices.iter().any(|(own, has)| own == kind && has >= count);
        self.cpu_milli >= other.cpu_milli
            && self.memory_bytes >= other.memory_bytes
            && other.devices.iter().all(has)
    }
}

impl Sizes {
    /// Notes a node; `kinds` are devices of the kinds that are known, by their places. Nothing is copied for a node that is no larger
    /// than those that are known.
    pub(super) fn note(sizes: &mut Arc<Self>, size: Size, kinds: impl Iterator<Item = DeviceSpec>) {
        if sizes.largest.iter().any(|known| known.covers(&size)) {
            return;
        }
        let Self { kinds: known, largest } = Arc::make_mut(sizes);
        known.extend(kinds.skip(known.len()));
        largest.retain(|known| !size.covers(known));
        let place = largest.partition_point(|known| *known < size);
        largest.insert(place, size);
    }

    /// The most milli-cores, and the most devices, of any node.
    pub(crate) fn span(&self) -> (i64, i64) {
        let devices = |size: &Size| size.devices.iter().map(|(_, count)| i64::from(*count)).sum::<i64>();
        let most_cores = self.largest.iter().map(|size| size.cpu_milli).max();
        let most_devices = self.largest.iter().map(devices).max();
        (most_cores.unwrap_or(0), most_devices.unwrap_or(0))
    }

    /// How much of a resource a task asks for by an alternative; one that wants its node for itself (`exclusive`) asks for all of the
    /// largest that would do. Where several models would do, it asks for none of them by name.
    pub(crate) fn asked(&self, (alternative, exclusive): (&Alternative, bool), resource: &Resource) -> i64 {
        let stated = alternative.amount(resource);
        let goes_by_name = match resource {
            Resource::Model(model) => alternative.names_only(model),
            _ => true,
        };
        if !exclusive || !goes_by_name {
            return stated;
        }
        stated.max(self.largest(alternative, |size| self.amount(size, resource)))
    }

    /// How many devices of a model, in thousandths, such a task may draw, whether it asks for that model by name or not.
    pub(crate) fn drawn_of_model(&self, (alternative, exclusive): (&Alternative, bool), model: &str) -> i64 {
        if !exclusive {
            return alternative.milli();
        }
        self.largest(alternative, |size| self.milli(size, |spec| spec.model == model))
    }

    /// The most that a node has of something, of those that would do.
    fn largest(&self, alternative: &Alternative, of: impl Fn(&Size) -> i64) -> i64 {
        self.largest.iter().filter(|size| self.has_room(size, alternative)).map(of).max().unwrap_or(0)
    }

    /// Whether a node of this size, if idle, has what is asked for.
    fn has_room(&self, size: &Size, alternative: &Alternative) -> bool {
        let has = |class: &DeviceClass| self.milli(size, |spec| class.takes(spec));
        let whole = |count: u32| i64::from(count) * i64::from(WHOLE_MILLI);
        let has_devices = alternative.devices.as_ref().is_none_or(|ask| has(&ask.class) >= whole(ask.count));
        has_devices
            && alternative.cpu_milli <= Some(size.cpu_milli)
            && alternative.memory_bytes <= Some(size.memory_bytes)
    }

    /// Thousandths of devices of the kinds that count.
    fn milli(&self, size: &Size, counts: impl Fn(&DeviceSpec) -> bool) -> i64 {
        let of_kind = size.devices.iter().filter(|(kind, _)| self.kinds.get(*kind).is_some_and(&counts));
        of_kind.map(|(_, count)| i64::from(*count)).sum::<i64>() * i64::from(WHOLE_MILLI)
    }

    fn amount(&self, size: &Size, resource: &Resource) -> i64 {
        match resource {
            Resource::Any => self.milli(size, |_| true),
            Resource::Model(model) => self.milli(size, |spec| spec.model == *model),
            Resource::Cpu => size.cpu_milli,
            Resource::Memory => size.memory_bytes,
            // Not counted by node here: such a task gets what it asks for.
            Resource::Storage | Resource::Extended(_) | Resource::Pods => 0,
        }
    }
}

impl Snapshot {
    /// Follows a change of what nodes have: what jobs ask for that want nodes to themselves depends on it.
    pub(super) fn size_anew(&mut self, state: &State) {
        let sizes = self.capacity.sizes();
        if Arc::ptr_eq(&self.shares.sizes, sizes) {
            return;
        }
        let differs = self.shares.sizes != *sizes;
        self.shares.sizes = Arc::clone(sizes);
        if differs && self.waiting.classes.values().any(|class| class.example.exclusive) {
            self.waiting.rebuild(state, &self.shares);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(cpu_milli: i64, devices: &[(usize, u32)]) -> Size {
        Size { cpu_milli, memory_bytes: 1, devices: devices.to_vec() }
    }

    fn sizes(of: &[Size]) -> Sizes {
        let kinds = ["a", "b"].map(|model| DeviceSpec { model: model.to_owned(), ..DeviceSpec::default() });
        let mut sizes = Arc::default();
        of.iter().for_each(|size| Sizes::note(&mut sizes, size.clone(), kinds.iter().cloned()));
        Arc::unwrap_or_clone(sizes)
    }

    #[test]
    fn only_nodes_that_have_more_of_something_are_kept_whichever_came_first() {
        let all = [size(1, &[(0, 8)]), size(1, &[(0, 4)]), size(4, &[(0, 4)]), size(1, &[(1, 2)])];
        let back: Vec<Size> = all.iter().rev().cloned().collect();
        assert_eq!(sizes(&all), sizes(&back));
        assert_eq!(sizes(&all).largest.len(), 3);
        assert_eq!(sizes(&all).span(), (4, 8));
    }

    #[test]
    fn a_task_gets_at_most_the_largest_node_that_will_do() {
        use crate::model::ask::{DeviceAsk, DrawAsk};
        let sizes = sizes(&[size(1, &[(0, 8)]), size(4, &[(1, 4)])]);
        let of_model = |model: &str, count| Alternative {
            devices: Some(DeviceAsk::of(
                DeviceClass { models: vec![model.to_owned()], ..DeviceClass::default() },
                count,
                DrawAsk::Whole,
            )),
            ..Alternative::default()
        };
        let asked = |one: &Alternative, resource: Resource| sizes.asked((one, true), &resource);
        assert_eq!(asked(&of_model("b", 1), Resource::Any), 4000);
        assert_eq!(asked(&of_model("b", 1), Resource::Model("b".into())), 4000);
        assert_eq!(asked(&of_model("b", 1), Resource::Model("a".into())), 0);
        assert_eq!(asked(&of_model("b", 5), Resource::Any), 5000);
        assert_eq!(asked(&Alternative::default(), Resource::Any), 8000);
        assert_eq!(asked(&Alternative::default(), Resource::Cpu), 4);
    }
}
