//! `divvy down`: ends the daemon; jobs run on unless it is told otherwise.

use std::io::Write;
use std::time::Duration;

use divvy_api::client::Ask;
use divvy_api::{Shutdown, ShutdownBegun, ShutdownMode, paths};
use rustix::process::{Pid, PidfdFlags};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::count;
use crate::pool::{self, Place};

const EXAMPLES: &str = "\
Examples:
  divvy down            the daemon ends, jobs run on; the next `divvy up` takes them over
  divvy down --drain    nothing new starts; the daemon ends when the last job has
  divvy down --kill     jobs are stopped first";

/// End the daemon; jobs run on, unless told otherwise
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Down {
    /// Start nothing new, and end when the last job has ended
    #[arg(long, conflicts_with = "kill")]
    drain: bool,
    /// Stop all running jobs first
    #[arg(long)]
    kill: bool,
}

impl Down {
    pub(crate) fn run(&self, place: &Place) -> Result<Exit, Failure> {
        let mode = match (self.drain, self.kill) {
            (true, _) => ShutdownMode::Drain,
            (_, true) => ShutdownMode::Kill,
            _ => ShutdownMode::Leave,
        };
        let begun = pool::with_client(place, async |mut client| {
            let ask = Ask::post(paths::SHUTDOWN, &Shutdown { mode }).within(Duration::from_secs(60));
            Ok(client.ask::<ShutdownBegun>(&ask).await?)
        })?;
        if let Some(said) = while_it_ends(mode, &begun) {
            writeln!(std::io::stdout(), "{said}")?;
        }
        await_end(begun.pid)?;
        writeln!(std::io::stdout(), "{}", at_the_end(mode, &begun))?;
        Ok(Exit::Success)
    }
}

fn while_it_ends(mode: ShutdownMode, begun: &ShutdownBegun) -> Option<String> {
    let jobs = count(begun.running, "running job");
    match mode {
        _ if begun.running == 0 => None,
        ShutdownMode::Leave => None,
        ShutdownMode::Drain => Some(format!("waiting for {jobs} to end; nothing new starts")),
        ShutdownMode::Kill => Some(format!("stopping {jobs}")),
    }
}

fn at_the_end(mode: ShutdownMode, begun: &ShutdownBegun) -> String {
    let mut text = String::from("the daemon has ended");
    if mode == ShutdownMode::Leave && begun.running > 0 {
        let verb = if begun.running == 1 { "runs" } else { "run" };
        text += &format!("; {} {verb} on, and the next `divvy up` takes over", count(begun.running, "job"));
    }
    if begun.waiting > 0 {
        let verb = if begun.waiting == 1 { "keeps its place" } else { "keep their places" };
        text += &format!("; {} {verb}", count(begun.waiting, "waiting job"));
    }
    text
}

/// Waits for the daemon's process to end, without polling.
fn await_end(pid: u32) -> Result<(), Failure> {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
    let pidfd = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        // It has ended already, or lives in another pid namespace, where its end cannot be seen.
        Err(_) => return Ok(()),
    };
    let mut ended = [rustix::event::PollFd::new(&pidfd, rustix::event::PollFlags::IN)];
    loop {
        match rustix::event::poll(&mut ended, None) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(std::io::Error::from(error).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_of_the_jobs_is_said() {
        let begun = ShutdownBegun { pid: 1, running: 2, waiting: 1 };
        assert_eq!(
            at_the_end(ShutdownMode::Leave, &begun),
            "the daemon has ended; 2 jobs run on, and the next `divvy up` takes over; 1 waiting job keeps its place"
        );
        assert_eq!(at_the_end(ShutdownMode::Kill, &ShutdownBegun::default()), "the daemon has ended");
        assert_eq!(while_it_ends(ShutdownMode::Kill, &begun).as_deref(), Some("stopping 2 running jobs"));
    }
}
