//! The pure core of Divvy: model, events, state, planner and checker.
//!
//! Nothing here reads a clock, a file, an environment or a random number: `decide` turns a command or an observation
//! into events, [`state::State::apply`] folds them, [`plan::plan`] turns a snapshot into a plan, and
//! [`check::check`], which shares nothing with the planner, says whether a law was broken. The `mod` lines below are in reading order.

pub mod action;
pub mod amount;
pub mod check;
#[cfg(feature = "contract")]
#[allow(clippy::panic, reason = "a suite of checks: it fails by panicking, as tests do")]
pub mod contract;
pub mod controller;
pub mod decide;
pub mod engine;
pub mod event;
pub mod explain;
pub mod id;
pub mod ledger;
pub mod log;
pub mod model;
pub mod plan;
pub mod reason;
pub mod scenario;
pub mod snapshot;
pub mod state;
pub mod time;
