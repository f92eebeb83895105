//! What is sent and answered. Times are milliseconds since 1970, null when not yet; `id` and `job` are strings.

mod event;
mod explain;
mod gpu;
mod history;
mod job;
mod job_file;
mod open;
mod pool;
mod problem;
mod queue;
mod reservation;
mod submit;

pub use event::*;
pub use explain::*;
pub use gpu::*;
pub use history::*;
pub use job::*;
pub use job_file::*;
pub use pool::*;
pub use problem::*;
pub use queue::*;
pub use reservation::*;
pub use submit::*;
