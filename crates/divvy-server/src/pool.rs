//! The pool as all threads see it.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use divvy_core::controller::Controller;
use divvy_core::id::Position;
use divvy_core::model::job::Owner;
use divvy_core::time::Time;
use divvy_engine::local::Telemetry;
use tokio::sync::{RwLock, watch};

use crate::control::Requests;
use crate::expected::Expectations;
use crate::growth::Growth;
use crate::http::Places;
use crate::people::{People, User};
use crate::store::Reader;
use crate::watchers::Watchers;

/// What is settled when the daemon starts.
#[derive(Clone, Debug)]
pub(crate) struct Settled {
    /// The state directory, canonical.
    pub(crate) state: PathBuf,
    pub(crate) socket: PathBuf,
    /// The user whose pool it is; `None` for root's pool, which serves everybody.
    pub(crate) only: Option<Owner>,
    pub(crate) node: String,
    /// `nvml`, `pretend` or `none`.
    pub(crate) source: String,
    pub(crate) started_at: Time,
    /// Warnings to show for as long as the daemon runs.
    pub(crate) warnings: Vec<String>,
}

/// Everything that requests need.
pub(crate) struct Pool {
    pub(crate) settings: Settled,
    /// A fair lock: readers and the control thread cannot starve each other.
    pub(crate) controller: RwLock<Controller>,
    pub(crate) requests: Requests,
    pub(crate) reader: Reader,
    pub(crate) watchers: Watchers,
    /// The last durable position of the log.
    pub(crate) position: watch::Sender<Position>,
    pub(crate) people: People,
    pub(crate) growth: Growth,
    pub(crate) telemetry: Telemetry,
    /// Places in the line, for listings.
    pub(crate) places: Places,
    /// When waiting jobs will start.
    pub(crate) expectations: Expectations,
    /// Held while the queues are read to be changed: one change at a time.
    pub(crate) changing: tokio::sync::Mutex<()>,
    condition: Mutex<Condition>,
}

/// What may keep the pool from taking jobs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Condition {
    /// Why the log cannot be written.
    pub(crate) full: Option<String>,
    /// The daemon is ending.
    pub(crate) ending: bool,
}

/// The parts of a pool that are made elsewhere.
pub(crate) struct Parts {
    pub(crate) settings: Settled,
    pub(crate) controller: Controller,
    pub(crate) requests: Requests,
    pub(crate) telemetry: Telemetry,
}

impl Pool {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { settings, controller, requests, telemetry } = parts;
        let reader = Reader::new(&settings.state);
        let position = watch::channel(controller.position()).0;
        Self {
            settings,
            controller: RwLock::new(controller),
            requests,
            reader,
            watchers: Watchers::default(),
            position,
            people: People::default(),
            growth: Growth::default(),
            telemetry,
            places: Places::default(),
            expectations: Expectations::default(),
            changing: tokio::sync::Mutex::default(),
            condition: Mutex::default(),
        }
    }

    /// Returns what may keep the pool from taking jobs now.
    pub(crate) fn condition(&self) -> Condition {
        self.condition.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_full(&self, why: Option<String>) {
        self.condition.lock().unwrap_or_else(PoisonError::into_inner).full = why;
    }

    pub(crate) fn set_ending(&self) {
        self.condition.lock().unwrap_or_else(PoisonError::into_inner).ending = true;
    }

    /// Returns whether the user may change everything: an administrator, or the user whose pool it is.
    pub(crate) fn rules(&self, user: &User) -> bool {
        match &self.settings.only {
            Some(only) => only.uid == user.owner.uid,
            None => user.admin,
        }
    }

    /// Returns whether the user may see everything about the jobs of this uid.
    pub(crate) fn may_see(&self, user: &User, uid: u32) -> bool {
        user.owner.uid == uid || self.rules(user)
    }

    /// Runs blocking work (disk, name service) away from the threads that serve requests.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        tokio::task::spawn_blocking(work).await.ok()
    }
}
