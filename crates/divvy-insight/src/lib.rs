//! What is learned from history. Floats are welcome here: what leaves is integers, logged as estimates, and the planner never
//! asks this crate.
//!
//! [`History`] is told of each job that has ended and foresees those that have not; [`Spread`] is what both count in.

mod history;
mod spread;

pub use history::{History, Likeness};
pub use spread::Spread;
