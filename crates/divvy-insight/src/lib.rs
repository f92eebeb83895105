//! What is learned from history. Floats are welcome here: what leaves is integers, logged as estimates, and the planner never
//! asks this crate.
//!
//! [`History`] is told of each job that has ended and foresees those that have not; [`Lengths`] likewise, for those who draw
//! lots; [`Spread`] is what all count in.

mod history;
mod lengths;
mod spread;

pub use history::{History, Likeness};
pub use lengths::{BEFORE_THE_LIMIT, Lengths, Said};
pub use spread::Spread;
