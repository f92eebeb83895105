//! The shell around Divvy's core: log store, control loop, HTTP.
//!
//! Start at [`run`]: it opens the store and the engine, starts the control thread and serves the API.

pub mod store;
