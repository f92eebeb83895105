//! Implementations of Divvy's Engine: processes on this machine.

#[cfg(feature = "local")]
pub mod local;
