//! Conversions between the API's types and the core's, both ways: small functions without side effects.

mod affinity;
pub(crate) mod detail;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod explain;
mod gpus;
pub(crate) mod incoming;
mod lengths;
pub(crate) mod models;
pub(crate) mod notice;
pub(crate) mod queue;
pub(crate) mod reasons;
pub(crate) mod refusal;
pub(crate) mod reservation;
pub(crate) mod row;
mod safe;
mod speed;
mod topology;
pub(crate) mod usage;
mod users;
