//! Divvy on paper: the core that runs a pool, in virtual time. It replays traces, answers what-if, and looks for broken laws.
//!
//! Nothing here decides: every decision is made by the core's [`divvy_core::controller::Controller`].

pub mod chaos;
mod dice;
pub mod engine;
pub mod estimate;
pub mod faults;
pub mod forecast;
pub mod generate;
pub mod import;
pub mod metrics;
pub mod pack;
#[cfg(feature = "plot")]
pub mod plot;
pub mod policy;
pub mod pool;
pub mod pools;
pub mod proof;
pub mod ranks;
pub mod reference;
pub mod refused;
pub mod replay;
pub mod scenario;
pub mod suite;
pub mod testdata;
pub mod timeline;
pub mod trace;
pub mod verify;
pub mod whatif;
