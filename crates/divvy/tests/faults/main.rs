//! Faults and bad input, each with the real daemon: what breaks, breaks here first.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where something is wrong"
)]

#[path = "../pool/mod.rs"]
mod pool;

mod site;
mod wire;

mod calendar;
mod clients;
mod devices;
mod disk;
mod ends;
mod kill;
mod log;
mod processes;
mod refusals;
mod supervisors;
mod users;
mod versions;
