//! `cargo xtask bench kube`: how fast pods get nodes on a real API server, by a loop that decides nothing, by kube-scheduler and by
//! this scheduler, each on a cluster of its own, one after the other in the same run.

mod load;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use super::{process, report};
use crate::cargo;
use crate::kube::Cluster;
use load::Load;

/// What to measure.
#[derive(Args)]
pub(super) struct Kube {
    /// How many nodes of 8 GPUs
    #[arg(long, default_value_t = 500)]
    nodes: usize,
    /// How many pods of one GPU, all there before the contender starts
    #[arg(long, default_value_t = 4000)]
    pods: usize,
    /// Instead: one gang of so many pods, made while the contender runs
    #[arg(long, value_name = "PODS")]
    gang: Option<usize>,
    /// Beside them, so many pods that can never fit, made before
    #[arg(long, default_value_t = 0, value_name = "PODS")]
    hopeless: usize,
    /// How often each contender is measured
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Who takes part
    #[arg(long, value_enum, value_delimiter = ',', default_value = "bind,kube-scheduler,divvy")]
    contenders: Vec<Contender>,
    /// etcd waits for the disk, as it does outside of tests
    #[arg(long)]
    fsync: bool,
    /// Measures this program rather than a release build of the checkout
    #[arg(long, value_name = "DIVVY")]
    pub(super) program: Option<PathBuf>,
}

/// Who gives pods their nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Contender {
    /// A loop that sends bindings, 32 at once, and thinks of nothing
    Bind,
    /// What every cluster has
    KubeScheduler,
    /// This scheduler
    Divvy,
}

/// What one run has shown.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    /// Seconds from the start (for a gang: from its creation) to the first pod that has a node, and to the last.
    first_s: f64,
    all_s: f64,
    /// Pods per second between the first and the last.
    rate: f64,
    /// CPU milliseconds per pod: the contender's own, and those of etcd, API server, controller manager and fake kubelets.
    own_ms: f64,
    others_ms: f64,
    /// The contender's memory at the end.
    rss_mib: f64,
}

/// Measures, and prints a table.
pub(super) fn run(kube: &Kube, target: &Path) -> Result<()> {
    let program = kube.program.clone().unwrap_or_else(|| target.join("release/divvy"));
    let pods = kube.gang.unwrap_or(kube.pods);
    let hopeless =
        if kube.hopeless > 0 { format!(", {} that never fit", kube.hopeless) } else { String::new() };
    println!("{} nodes, {pods} pods{hopeless}{}", kube.nodes, if kube.fsync { ", fsync" } else { "" });
    let mut runs: Vec<(Contender, Vec<Run>)> =
        kube.contenders.iter().map(|contender| (*contender, Vec::new())).collect();
    for number in 1..=kube.runs {
        for (contender, done) in &mut runs {
            let run = kube.measure(*contender, (&program, target))?;
            super::say(&format!("run {number}, {contender:?}: {run:.2?}"));
            done.push(run);
        }
    }
    print!("{}", table(&runs));
    Ok(())
}

impl Kube {
    /// One contender on a fresh cluster.
    fn measure(&self, contender: Contender, (program, target): (&Path, &Path)) -> Result<Run> {
        let state = target.join("bench/kube");
        let _ = fs::remove_dir_all(&state);
        let cluster = Cluster::start(&state, self.fsync)?;
        let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let done = threads.block_on(self.on(&cluster, contender, program));
        cluster.end()?;
        done
    }

    async fn on(&self, cluster: &Cluster, contender: Contender, program: &Path) -> Result<Run> {
        let load = Load::connect(&cluster.kubeconfig()).await?;
        let scheduler = if contender == Contender::KubeScheduler { "default-scheduler" } else { "divvy" };
        load.nodes(self.nodes).await?;
        let mut own = None;
        load.pods(self.hopeless, scheduler, ("never", load::GPUS + 1)).await?;
        match self.gang {
            None => load.pods(self.pods, scheduler, ("pod", 1)).await?,
            Some(_) => own = start(cluster, contender, program)?,
        }
        tokio::time::sleep(SETTLE).await;
        let pods = self.gang.unwrap_or(self.pods);
        let ready = Arc::new(tokio::sync::Notify::new());
        let watch = tokio::spawn(load.clone().watch(pods, Arc::clone(&ready)));
        ready.notified().await;
        let before = (cluster.cpu_s(process::spent_s)?, own_cpu_s(contender, own.as_ref())?);
        let started = Instant::now();
        match self.gang {
            Some(pods) => load.gang(pods, scheduler).await?,
            None => own = start(cluster, contender, program)?,
        }
        if contender == Contender::Bind {
            load.bind().await?;
        }
        let seen = watch.await??;
        let after = (cluster.cpu_s(process::spent_s)?, own_cpu_s(contender, own.as_ref())?);
        let kube_scheduler = cluster.pid("kube-scheduler").filter(|_| contender == Contender::KubeScheduler);
        let rss_mib = match own.as_ref().map(Child::id).or(kube_scheduler) {
            Some(pid) => process::memory_mib(pid, "VmRSS")?,
            None => 0.0,
        };
        if let Some(mut own) = own {
            own.kill()?;
            own.wait()?;
        }
        Ok(of_run((started, &seen), (before, after), rss_mib))
    }
}

/// How long a cluster is left alone before it is measured.
const SETTLE: Duration = Duration::from_secs(3);

/// Starts a contender; returns its process if that is a child of this program.
fn start(cluster: &Cluster, contender: Contender, program: &Path) -> Result<Option<Child>> {
    match contender {
        Contender::Bind => Ok(None),
        Contender::KubeScheduler => cluster.start_scheduler().map(|()| None),
        Contender::Divvy => {
            let manifests = cargo::output(Command::new(program).args(["kube", "manifests"]))?;
            cluster.apply(&manifests)?;
            let log = File::create(cluster.log("divvy"))?;
            let mut command = Command::new(program);
            command.args(["kube", "run", "--kubeconfig"]).arg(cluster.kubeconfig());
            command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
            Ok(Some(command.spawn().with_context(|| format!("starting {}", program.display()))?))
        }
    }
}

/// The CPU time of whatever gives nodes, in seconds. The loop that decides nothing lives in this program, beside the watch: it has
/// no figure of its own. That of kube-scheduler is counted with its cluster.
fn own_cpu_s(contender: Contender, own: Option<&Child>) -> Result<f64> {
    match (contender, own) {
        (Contender::Divvy, Some(own)) => process::spent_s(own.id()),
        _ => Ok(0.0),
    }
}

/// What the parts of the cluster and the contender have spent.
type Spent = (Vec<(String, f64)>, f64);

fn of_run((started, seen): (Instant, &[Instant]), (before, after): (Spent, Spent), rss_mib: f64) -> Run {
    let pods = seen.len() as f64;
    let (Some(first), Some(last)) = (seen.first(), seen.last()) else { return Run::default() };
    let between_s = last.duration_since(*first).as_secs_f64();
    let spent = |of_scheduler: bool| -> f64 {
        let is_it = |(name, _): &&(String, f64)| (name == "kube-scheduler") == of_scheduler;
        let sum = |parts: &[(String, f64)]| parts.iter().filter(is_it).map(|(_, cpu_s)| cpu_s).sum::<f64>();
        sum(&after.0) - sum(&before.0)
    };
    Run {
        first_s: first.duration_since(started).as_secs_f64(),
        all_s: last.duration_since(started).as_secs_f64(),
        rate: pods / between_s.max(0.001),
        own_ms: 1000.0 * (spent(true) + after.1 - before.1) / pods,
        others_ms: 1000.0 * spent(false) / pods,
        rss_mib,
    }
}

/// Medians, and rates relative to the first contender.
fn table(runs: &[(Contender, Vec<Run>)]) -> String {
    let median = |runs: &[Run], of: fn(&Run) -> f64| {
        let mut values: Vec<f64> = runs.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    };
    let bound = runs.first().map_or(0.0, |(_, runs)| median(runs, |run| run.rate));
    let head = [
        "who",
        "pods/s",
        "of the first",
        "first s",
        "all s",
        "own CPU ms/pod",
        "others' CPU ms/pod",
        "RSS MiB",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (contender, runs) in runs {
        let number = |of: fn(&Run) -> f64, digits: usize| format!("{:.*}", digits, median(runs, of));
        let name = contender.to_possible_value().map(|it| it.get_name().to_owned()).unwrap_or_default();
        rows.push(vec![
            name,
            number(|run| run.rate, 0),
            format!("{:.2}", median(runs, |run| run.rate) / bound),
            number(|run| run.first_s, 1),
            number(|run| run.all_s, 1),
            number(|run| run.own_ms, 2),
            number(|run| run.others_ms, 2),
            number(|run| run.rss_mib, 0),
        ]);
    }
    report::aligned(rows)
}
