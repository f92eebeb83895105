//! Scores: among the nodes that can take a task, which is best; among a node's devices, which it gets.
//!
//! [`keep_whole`] looks at a gang and is computed anew for each task. The others look at one task alone, so that what they say of
//! a node stands until the node changes: [`cache`] remembers it. Floats stay inside; what leaves is an integer.

mod cache;
mod facts;
mod fgd;
mod joined;
mod keep_whole;
mod simple;
mod waste;

pub use cache::Scores;
pub(super) use cache::{Asked, Pick, Rule};
pub use fgd::Fragmentation;
pub(super) use joined::{devices, lanes_among};
pub(super) use keep_whole::{NodeScore, NodeTask, node};
