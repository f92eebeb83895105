//! What a replay reads: jobs, nodes and speeds, from comma-separated files that may be gzipped and larger than memory.
//!
//! Types decide who may know what: an order of jobs is given an [`jobs::Arrival`], and a duration only when a job
//! ends. Its [`jobs::Fate`] is for the engine that plays the job, and for oracles.

pub mod cluster;
pub mod decimal;
mod error;
pub mod interval;
pub mod jobs;
pub mod openb;
pub mod source;
pub mod speeds;
mod table;
mod text;

pub use divvy_core::time::Span;
pub use error::TraceError;
pub(crate) use error::quoted;
pub(crate) use table::{Column, Table};
pub(crate) use text::{LONGEST_RECORD, open_unbounded};

/// The last second that a trace may contain, ten thousand years after its first: later ones are mistakes, and
/// the core's milliseconds are still far from overflow.
pub const LAST_SECOND: i64 = 10_000 * 366 * 86_400;

/// The longest duration that a trace may give a job: a hundred years. Sums over a large trace stay below the end of
/// virtual time.
pub const LONGEST_S: i64 = 100 * 366 * 86_400;

/// The most GPUs that one job may have. A job's seconds times its GPUs stay within 64 bits.
pub const MOST_GPUS: u32 = 1_000_000;

/// The most GPUs that one node may have: more than any machine has is a mistake, and planning looks at each GPU of a
/// node beside the others.
pub const MOST_GPUS_OF_NODE: u32 = 1024;

#[cfg(test)]
mod tests;
