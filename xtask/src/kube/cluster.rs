//! A separate cluster for measurements.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::{down, parts, process, up};

/// A cluster that runs.
pub(crate) struct Cluster {
    state: PathBuf,
    bin: PathBuf,
    shape: up::Shape,
}

impl Cluster {
    /// Starts one, with leases so long that renewing them is no load.
    pub(crate) fn start(state: &Path, fsync: bool) -> Result<Self> {
        let shape = up::Shape { fsync, lease_s: 600, ..up::Shape::default() };
        let bin = up::start(state, &shape)?;
        Ok(Self { state: state.canonicalize()?, bin, shape })
    }

    /// The kubeconfig that reaches it.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.state.join("kubeconfig")
    }

    /// The log file for a program beside it.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        process::log_file(&self.state, name)
    }

    /// Starts kube-scheduler, too.
    pub(crate) fn start_scheduler(&self) -> Result<()> {
        up::start(&self.state, &up::Shape { scheduler: true, ..self.shape.clone() })?;
        Ok(())
    }

    /// Applies manifests.
    pub(crate) fn apply(&self, manifests: &[u8]) -> Result<()> {
        let mut command = Command::new(self.bin.join("kubectl"));
        command.arg("--kubeconfig").arg(self.kubeconfig()).args(["apply", "-f", "-"]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().context("starting kubectl")?;
        child.stdin.take().context("kubectl takes no input")?.write_all(manifests)?;
        let status = child.wait()?;
        if !status.success() {
            bail!("kubectl apply failed ({status})");
        }
        Ok(())
    }

    /// The process of a part, if it runs.
    pub(crate) fn pid(&self, name: &str) -> Option<u32> {
        let pid = process::running(&self.state, name)?;
        u32::try_from(pid.as_raw_nonzero().get()).ok()
    }

    /// The parts that run, each with the CPU time of its process in seconds, as `spent_s` says.
    pub(crate) fn cpu_s(&self, spent_s: fn(u32) -> Result<f64>) -> Result<Vec<(String, f64)>> {
        let running = parts::STARTED.iter().filter_map(|name| Some((name, self.pid(name)?)));
        running.map(|(name, pid)| Ok(((*name).to_owned(), spent_s(pid)?))).collect()
    }

    /// Ends it.
    pub(crate) fn end(&self) -> Result<()> {
        down(&self.state)
    }
}
