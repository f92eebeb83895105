//! What is learned from history. Floats are allowed here: only integers leave this crate, logged as estimates, and the
//! planner never asks it.
//!
//! [`History`] is told of each job that has ended and estimates those that have not; [`Lengths`] does the same for forecasts
//! by lot; both count in [`Spread`]s.

mod history;
mod lengths;
mod spread;

pub use history::{History, Likeness};
pub use lengths::{BEFORE_THE_LIMIT, Lengths, Said};
pub use spread::Spread;
