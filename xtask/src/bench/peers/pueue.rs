//! pueue from crates.io: a queue for one user's commands, with as many at a time as there would be GPUs.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::super::Bench;
use super::super::first::Moment;
use super::super::process::{dies_with_us, output, until, version_of};
use super::super::start::Start;
use super::{Peer, home};
use crate::cargo;

/// The version that is installed; its configuration file below is of this one.
const VERSION: &str = "4.0.4";

/// How long it may take to start, and a job to begin.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running pueued.
pub(super) struct Pueue {
    programs: PathBuf,
    run: PathBuf,
    daemon: Option<Child>,
}

impl Peer for Pueue {
    const NAME: &'static str = "pueue";
    const HOW: &'static str = "pueue add";

    fn install(bench: &Bench) -> Result<String> {
        let home = home(bench, "pueue");
        let program = home.join("bin/pueue");
        if !program.exists() {
            let mut install = cargo::cargo();
            install.args(["install", "--locked", "--quiet", "--root"]).arg(&home);
            cargo::run(install.arg(format!("pueue@{VERSION}")).stdout(Stdio::null()))?;
        }
        version_of(&program)
    }

    fn start(bench: &Bench, gpus: u32) -> Result<Self> {
        let home = home(bench, "pueue");
        let mut pueue = Self { programs: home.join("bin"), run: home.join("run"), daemon: None };
        let _ = fs::remove_dir_all(&pueue.run);
        fs::create_dir_all(pueue.run.join("state"))?;
        let run = pueue.run.display();
        let shared = format!(
            "client: {{}}\ndaemon: {{}}\nshared:\n  pueue_directory: {run}/state\n  runtime_directory: {run}/state\n  \
             use_unix_socket: true\n  unix_socket_path: {run}/socket\n"
        );
        fs::write(pueue.run.join("pueue.yml"), shared)?;
        let log = fs::File::create(pueue.run.join("pueued.log"))?;
        let mut pueued = pueue.program("pueued");
        pueued.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        pueue.daemon = Some(dies_with_us(&mut pueued).spawn().context("starting pueued")?);
        until("pueued", PATIENCE, || output(pueue.program("pueue").arg("status")).ok())?;
        output(pueue.program("pueue").args(["parallel", &gpus.to_string()]))?;
        Ok(pueue)
    }

    fn one(&mut self, job: &str) -> Result<Start> {
        let file = self.run.join("began");
        let _ = fs::remove_file(&file);
        let begun = Moment::now();
        output(self.program("pueue").args(["add", "--", &format!("{job} > {}", file.display())]))?;
        let written =
            until("a job of pueue", PATIENCE, || fs::read(&file).ok().filter(|bytes| bytes.len() == 16))?;
        Ok(Start { first_ms: Moment::read(&written)?.ms_since(begun), whole_ms: None })
    }

    fn many(&mut self, jobs: usize) -> Result<f64> {
        output(self.program("pueue").arg("clean"))?;
        let begun = Instant::now();
        for _ in 0..jobs {
            output(self.program("pueue").args(["add", "--", "true"]))?;
        }
        output(self.program("pueue").args(["wait", "--quiet", "--all"]))?;
        Ok(begun.elapsed().as_secs_f64())
    }
}

impl Pueue {
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command.arg("--config").arg(self.run.join("pueue.yml"));
        command
    }
}

impl Drop for Pueue {
    fn drop(&mut self) {
        let _ = output(self.program("pueue").arg("shutdown"));
        if let Some(daemon) = &mut self.daemon
            && until("pueued's end", PATIENCE, || daemon.try_wait().ok().flatten()).is_err()
        {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        let _ = fs::remove_dir_all(&self.run);
    }
}
