//! The test cluster beside other work: it is built while the Rust code is, and runs while the tests do.

use std::env;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

use super::{build, down, shared_state, up};

/// The build of the test cluster's programs, under way: the first one takes a quarter of an hour of one core.
pub(crate) enum Building {
    /// A process of its own, and what it writes.
    Started(Child, PathBuf),
    /// They are there.
    Done,
    /// Why they cannot be built here.
    Impossible(String),
}

impl Building {
    /// Begins to build what is missing. Without Go there is no cluster: tests that need one say that they were skipped, and where
    /// everything must be tested (`CI` is set) that is an error.
    pub(crate) fn start() -> Result<Self> {
        if build::is_done()? {
            return Ok(Self::Done);
        }
        if let Some(missing) = build::needs_go() {
            if env::var_os("CI").is_some() {
                bail!("{missing}");
            }
            return Ok(Self::Impossible(missing));
        }
        let log = shared_state().with_extension("log");
        fs::create_dir_all(log.parent().unwrap_or(&log))?;
        let file = File::create(&log).with_context(|| format!("making {}", log.display()))?;
        let mut command = Command::new(env::current_exe()?);
        command.args(["kube", "build"]).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.process_group(0).spawn().context("starting the build of the test cluster")?;
        println!("building the test cluster meanwhile: see {}", log.display());
        Ok(Self::Started(child, log))
    }

    /// Waits for the build, then does something while the cluster that all tests share runs.
    pub(crate) fn beside(&mut self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        match self {
            Self::Impossible(missing) => {
                println!("tests on Kubernetes are skipped: {missing}");
                return work();
            }
            Self::Started(child, log) => {
                let ended = child.wait()?;
                if !ended.success() {
                    let said = fs::read_to_string(log).unwrap_or_default();
                    bail!("building the test cluster failed ({ended}):\n{said}");
                }
                *self = Self::Done;
            }
            Self::Done => {}
        }
        let state = shared_state();
        up::start(&state, &up::Shape::default())?;
        let done = work();
        done.and(down(&state))
    }
}

impl Drop for Building {
    /// If earlier steps have failed, nobody waits for the build any more; what was compiled stays in Go's cache.
    fn drop(&mut self) {
        if let Self::Started(child, _) = self
            && let Some(group) = Pid::from_raw(child.id().cast_signed())
        {
            let _ = kill_process_group(group, Signal::TERM);
            let _ = child.wait();
        }
    }
}
