//! The shell around Divvy's core: log store, control loop, HTTP.
//!
//! Start at [`run`]: it opens the [`store`] and the engine, starts the control thread (`control`, the only one that changes
//! anything) and serves the API (`http`). `wire` translates between the words of the API and those of the core.

#![allow(
    clippy::result_large_err,
    reason = "a Problem is an answer to a person: its size is nothing beside the request that it answers"
)]

mod alike;
mod clock;
mod control;
mod environments;
mod expected;
mod growth;
mod guise;
mod http;
#[cfg(feature = "kubernetes")]
pub mod kube;
mod people;
mod place;
mod pool;
mod start;
pub mod store;
mod watchers;
mod wire;

pub use control::ControlError;
pub use people::user_name;
pub use place::{SocketError, usual_state};
pub use start::{Kind, RunError, Settings, Started, Stopped, run};
pub use store::doctor;
pub use wire::models::memory_mib_of;
