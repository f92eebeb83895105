//! A device as the planner sees it: what of it is left, and whether that can be given out.

use std::sync::Arc;

use super::sites::Site;
use crate::id::DeviceId;
use crate::model::device::{DeviceSpec, Health, WHOLE_MILLI};
use crate::state::{Device, State};

/// A device as the planner sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceView {
    /// Its id.
    pub id: DeviceId,
    /// Its place among its node's devices, by the driver.
    pub index: u32,
    /// Where it lies on its node.
    pub(crate) site: Site,
    /// What it is.
    pub spec: Arc<DeviceSpec>,
    /// Why it cannot be given out, if it cannot.
    pub unusable: Option<Unusable>,
    /// Thousandths left; below zero where what a job holds is also promised to another.
    pub free_milli: i32,
    /// MiB left, likewise.
    pub free_memory_mib: i64,
    /// Its share of the host: milli-cores and bytes of its NUMA node, divided by the devices there.
    pub host_share: (i64, i64),
    /// The place of its model among those of the pool.
    pub(crate) model: usize,
    /// Whether it counts among those that can be given out.
    pub(crate) is_counted: bool,
}

/// Why a device cannot be given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unusable {
    /// It is broken or gone.
    Down,
    /// Someone outside the pool uses it.
    Foreign,
    /// It is being drained.
    Draining,
}

impl DeviceView {
    /// Whether it is a part of what is divided. A device that is drained, by itself or with its whole node (which then takes no
    /// tasks), is one while a job still holds it, though no other job gets it.
    pub(super) fn counts(&self, takes_tasks: bool) -> bool {
        match self.unusable {
            None if takes_tasks => true,
            None | Some(Unusable::Draining) => self.free_milli < WHOLE_MILLI as i32,
            Some(_) => false,
        }
    }

    /// A device of which nothing is taken.
    pub(super) fn idle(id: DeviceId, device: &Device, (model, unusable): (usize, Option<Unusable>)) -> Self {
        Self {
            id,
            index: device.spec.index,
            site: Site::default(),
            spec: device.spec.clone(),
            unusable,
            free_milli: WHOLE_MILLI as i32,
            free_memory_mib: device.spec.memory_mib as i64,
            host_share: (0, 0),
            model,
            is_counted: false,
        }
    }

    /// Whether all of it is free to be given out.
    pub fn is_free(&self) -> bool {
        self.unusable.is_none() && self.free_milli == WHOLE_MILLI as i32
    }
}

/// Why a device cannot be given out, if it cannot.
pub(super) fn unusable(state: &State, id: DeviceId, device: &Device) -> Option<Unusable> {
    if device.health != Health::Ok {
        Some(Unusable::Down)
    } else if device.occupant.is_some() {
        Some(Unusable::Foreign)
    } else {
        state.is_drained(id).then_some(Unusable::Draining)
    }
}
