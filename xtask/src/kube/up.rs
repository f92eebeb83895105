//! `cargo xtask kube up`: starts the parts, one after the other, each when the one before answers.

use std::fs::{self, DirBuilder};
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;

use super::parts::{Ports, Setting};
use super::{build, health, pki, process, shared_state};

/// What to start.
#[derive(Args)]
pub(crate) struct Options {
    /// Its folder, for data, keys, logs and pids; by default the one that the tests share
    state: Option<PathBuf>,
    #[command(flatten)]
    shape: Shape,
}

/// What the cluster consists of.
#[derive(Args, Clone, Debug)]
pub(super) struct Shape {
    /// Also start kube-scheduler
    #[arg(long)]
    pub(super) scheduler: bool,
    /// No fake kubelets: bound pods stay Pending, and nodes must be made with their status
    #[arg(long)]
    pub(super) without_kwok: bool,
    /// etcd waits for the disk, as it does outside of tests
    #[arg(long)]
    pub(super) fsync: bool,
    /// How long a node's lease lasts; renewed every quarter, so that 1,000 nodes write 100/s at 40
    #[arg(long, value_name = "SECONDS", default_value_t = 40)]
    pub(super) lease_s: u32,
}

impl Default for Shape {
    fn default() -> Self {
        Self { scheduler: false, without_kwok: false, fsync: false, lease_s: 40 }
    }
}

/// Starts it and prints how to use it.
pub(super) fn run(options: &Options) -> Result<()> {
    let state = options.state.clone().unwrap_or_else(shared_state);
    let started = Instant::now();
    let bin = start(&state, &options.shape)?;
    eprintln!("ready in {:.1} s", started.elapsed().as_secs_f64());
    let state = state.canonicalize()?;
    println!("export KUBECONFIG={} PATH={}:$PATH", state.join("kubeconfig").display(), bin.display());
    Ok(())
}

/// Builds what is missing, starts what is not running, and waits until it answers; returns the folder of the programs.
pub(super) fn start(state: &Path, shape: &Shape) -> Result<PathBuf> {
    let bin = build::build(None)?;
    // Keys and tokens of an administrator lie here.
    let mut private = DirBuilder::new();
    private.recursive(true).mode(0o700);
    for folder in ["pki", "log", "pid"] {
        private.create(state.join(folder)).with_context(|| format!("making {}", state.display()))?;
    }
    let state = state.canonicalize()?;
    link(&bin, &state.join("bin")).context("linking the programs into the cluster's folder")?;
    let ports = ports(&state)?;
    pki::make(&state, ports.api())?;
    let stages = build::module().join("stages.yaml");
    let setting =
        Setting { state: &state, ports, fsync: shape.fsync, lease_s: shape.lease_s, stages: &stages };
    start_parts(&bin, &setting, shape)?;
    Ok(bin)
}

fn start_parts(bin: &Path, setting: &Setting, shape: &Shape) -> Result<()> {
    let (state, ports) = (setting.state, setting.ports);
    let start = |name: &str, arguments: Vec<String>| process::start(state, &bin.join(name), &arguments);
    start("etcd", setting.etcd())?;
    health::wait_for(state, "etcd", || health::is_well(ports.etcd(), "/health"))?;
    start("kube-apiserver", setting.api_server())?;
    health::wait_for(state, "kube-apiserver", || health::kubectl(bin, state, &["get", "--raw", "/readyz"]))?;
    start("kube-controller-manager", setting.controllers())?;
    if shape.scheduler {
        start("kube-scheduler", setting.scheduler())?;
        health::wait_for(state, "kube-scheduler", || health::listens(ports.scheduler()))?;
    }
    if !shape.without_kwok {
        start("kwok", setting.kwok())?;
        health::wait_for(state, "kwok", || health::is_well(ports.kwok(), "/healthz"))?;
    }
    // Pods are refused until the controller manager has made their namespace's service account.
    let account = ["get", "serviceaccount", "default"];
    health::wait_for(state, "kube-controller-manager", || health::kubectl(bin, state, &account))
}

/// Tests find kubectl through the cluster's folder alone.
fn link(bin: &Path, link: &Path) -> std::io::Result<()> {
    if fs::read_link(link).is_ok_and(|old| old == bin) {
        return Ok(());
    }
    let _ = fs::remove_file(link);
    std::os::unix::fs::symlink(bin, link)
}

/// The ports of a cluster: those that it had before, or free ones.
fn ports(state: &Path) -> Result<Ports> {
    let file = state.join("port");
    if let Ok(text) = fs::read_to_string(&file) {
        return Ok(Ports(text.trim().parse().with_context(|| format!("reading {}", file.display()))?));
    }
    let ports = free_ports()?;
    fs::write(&file, ports.0.to_string())?;
    Ok(ports)
}

/// Six free ports in a row, below the range that the kernel gives to clients: none is taken between the check and the start.
fn free_ports() -> Result<Ports> {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    // Begins at another port than processes that search at the same time.
    let first = 20_000 + (std::process::id() % 1_600) as u16 * Ports::COUNT;
    let starts = (first..30_000).step_by(usize::from(Ports::COUNT));
    let mut free = starts.filter(|start| (*start..start + Ports::COUNT).all(is_free));
    match free.next() {
        Some(start) => Ok(Ports(start)),
        None => bail!("no {} free ports in a row from {first} to 30000", Ports::COUNT),
    }
}
