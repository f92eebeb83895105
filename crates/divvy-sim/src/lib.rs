//! Divvy on paper: the very core that runs a pool, in virtual time. It replays traces, answers what-if, and looks for broken laws.
//!
//! Nothing here decides: every decision is the core's [`divvy_core::controller::Controller`]'s.

pub mod import;
pub mod metrics;
pub mod pack;
pub mod testdata;
pub mod trace;
pub mod verify;
