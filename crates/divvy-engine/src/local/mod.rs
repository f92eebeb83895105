//! Tasks as processes of the submitting users on this machine.
//!
//! Start at [`LocalEngine`], which takes actions and gives observations through a thread of its own (`worker`). It makes a
//! record directory per allocation (`records`) and starts a small supervisor for it (`spawn`, `supervisor`), which
//! becomes the parent of the task (`child`), watches it (`watch`) and writes down how it ended. Supervisors outlive the
//! daemon; the next one adopts them (`adopt`). Beside that, `telemetry` looks at the devices each second.
//!
//! **Invariant:** the holder of a record directory's lock is in charge of the task. Nobody starts or ends
//! anything of it without the lock. A pid is only used together with something that shows whose it is.

mod adopt;
mod cgroup;
mod child;
mod clock;
mod devices;
mod discovery;
mod engine;
mod environment;
mod guise;
mod orders;
mod outbox;
pub mod output;
mod processes;
mod pty;
mod records;
mod settings;
mod signal;
mod slim;
mod spawn;
mod supervisor;
mod telemetry;
pub mod terminal;
#[cfg(test)]
mod testing;
mod tree;
mod usage;
mod watch;
mod worker;

pub use engine::LocalEngine;
pub use environment::JobEnvironment;
pub use output::kept_output;
pub use processes::Processes;
pub use settings::{OpenError, Settings, last_term};
pub use signal::number as signal_number;
pub use supervisor::supervisor_main;
pub use telemetry::{Latest, Telemetry};
