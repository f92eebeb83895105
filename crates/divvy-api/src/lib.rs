//! Wire types of Divvy's REST API and the client for it.
//!
//! Start at [`paths`] (what can be asked), go on to [`types`] (what is sent and answered) and [`client`] (how a
//! program asks). Clients tolerate unknown keys and states: a daemon one minor version ahead adds some.

pub mod attach;
pub mod client;
pub mod paths;
pub mod read;
pub mod types;

pub use client::{Client, ClientError, Sockets};
pub use types::*;
