//! Slurm as Debian packages it: munged, slurmctld and slurmd as plain processes, with a configuration of our own that
//! leaves out everything optional that costs time.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use super::super::Bench;
use super::super::process::{dies_with_us, first_line, output, until};
use super::super::start::{Start, attached};
use super::{Peer, home};

/// A Slurm of one node.
pub(super) struct Slurm {
    place: Place,
    /// In the order in which they end.
    daemons: Vec<Child>,
}

/// Where it is installed.
struct Place {
    /// The unpacked packages.
    root: PathBuf,
    /// Configuration, state, sockets, logs and device files of one start.
    run: PathBuf,
}

/// The name of the node; its address is this machine's own.
const NODE: &str = "n0";

/// How long daemons may take to be ready or to end.
const PATIENCE: Duration = Duration::from_secs(30);

impl Peer for Slurm {
    const NAME: &'static str = "slurm";
    const HOW: &'static str = "srun --gres=gpu:1";

    fn install(bench: &Bench) -> Result<String> {
        if !rustix::process::geteuid().is_root() {
            bail!("its daemons and device files need root");
        }
        let place = Place::of(bench);
        if !place.root.join("usr/sbin/slurmctld").exists() {
            unpack(bench, &place)?;
        }
        // The tools want a configuration even for this.
        first_line(place.program("usr/sbin", "slurmctld").arg("-V"))
    }

    fn start(bench: &Bench, gpus: u32) -> Result<Self> {
        let place = Place::of(bench);
        place.prepare(gpus)?;
        let mut slurm = Self { place, daemons: Vec::new() };
        let socket = slurm.place.run.join("munge/socket");
        slurm.daemon("munged", &munged_arguments(&slurm.place.run))?;
        until("munge's socket", PATIENCE, || socket.exists().then_some(()))?;
        slurm.daemon("slurmctld", &["-D", "-c"].map(String::from))?;
        let stepd = slurm.place.root.join("usr/sbin/slurmstepd").display().to_string();
        slurm.daemon("slurmd", &["-D", "-N", NODE, "-d", &stepd].map(String::from))?;
        until("Slurm's node", PATIENCE, || slurm.is_idle().then_some(()))?;
        Ok(slurm)
    }

    fn one(&mut self, job: &str) -> Result<Start> {
        attached(self.place.tool("srun").args(["--quiet", "--gres=gpu:1", job]))
    }

    fn many(&mut self, jobs: usize) -> Result<f64> {
        let begun = Instant::now();
        let mut sbatch = self.place.tool("sbatch");
        sbatch.args(["--parsable", "--gres=gpu:1", "--output=/dev/null", "--wrap", "true"]);
        output(sbatch.arg(format!("--array=0-{}", jobs - 1)))?;
        // Polling four times a second costs the controller some 5 % of a processor; `sbatch --wait` asks at growing
        // intervals of seconds, which would count against Slurm.
        while !first_line(self.place.tool("squeue").args(["--noheader", "--states=PD,R,CG,CF"]))?.is_empty() {
            std::thread::sleep(Duration::from_millis(250));
        }
        Ok(begun.elapsed().as_secs_f64())
    }
}

impl Slurm {
    fn daemon(&mut self, name: &str, arguments: &[String]) -> Result<()> {
        let mut command = self.place.program("usr/sbin", name);
        let log = fs::File::create(self.place.run.join(format!("{name}.log")))?;
        command.args(arguments).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let daemon = dies_with_us(&mut command).spawn().with_context(|| format!("starting {name}"))?;
        self.daemons.insert(0, daemon);
        Ok(())
    }

    fn is_idle(&self) -> bool {
        let state = first_line(self.place.tool("sinfo").args(["--noheader", "--format=%T"]));
        state.is_ok_and(|state| state == "idle")
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let pid = rustix::process::Pid::from_child(daemon);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            if until("the end of a daemon", PATIENCE, || daemon.try_wait().ok().flatten()).is_err() {
                let _ = daemon.kill();
                let _ = daemon.wait();
            }
        }
        let _ = fs::remove_dir_all(&self.place.run);
    }
}

impl Place {
    fn of(bench: &Bench) -> Self {
        let home = home(bench, "slurm");
        Self { root: home.join("root"), run: home.join("run") }
    }

    /// A program of the packages, with their libraries and our configuration.
    fn program(&self, directory: &str, name: &str) -> Command {
        let mut command = Command::new(self.root.join(directory).join(name));
        let libraries = self.libraries();
        let library_path = format!("{}:{}", parent(&libraries).display(), libraries.display());
        command.env("LD_LIBRARY_PATH", library_path).env("SLURM_CONF", self.run.join("slurm.conf"));
        command
    }

    fn tool(&self, name: &str) -> Command {
        self.program("usr/bin", name)
    }

    /// Slurm's own libraries and plugins.
    fn libraries(&self) -> PathBuf {
        let machine = format!("{}-linux-gnu", std::env::consts::ARCH);
        self.root.join("usr/lib").join(machine).join("slurm-wlm")
    }

    /// Writes everything that the daemons read.
    fn prepare(&self, gpus: u32) -> Result<()> {
        let _ = fs::remove_dir_all(&self.run);
        for directory in ["munge", "state", "spool", "dev"] {
            fs::create_dir_all(self.run.join(directory))?;
        }
        fs::set_permissions(self.run.join("munge"), fs::Permissions::from_mode(0o711))?;
        let mut key = vec![0; 1024];
        std::io::Read::read_exact(&mut fs::File::open("/dev/urandom")?, &mut key)?;
        fs::write(self.run.join("munge/key"), key)?;
        fs::set_permissions(self.run.join("munge/key"), fs::Permissions::from_mode(0o400))?;
        for gpu in 0..gpus {
            // Nodes like /dev/null: character devices that hurt nobody.
            let file = self.run.join(format!("dev/gpu{gpu}"));
            mknodat(CWD, &file, FileType::CharacterDevice, Mode::from_raw_mode(0o666), makedev(1, 3))
                .with_context(|| format!("making {}", file.display()))?;
        }
        let devices = self.run.join(format!("dev/gpu[0-{}]", gpus - 1));
        fs::write(
            self.run.join("gres.conf"),
            format!("NodeName={NODE} Name=gpu File={}\n", devices.display()),
        )?;
        fs::write(self.run.join("slurm.conf"), self.configuration(gpus))?;
        Ok(())
    }

    /// slurm.conf: no accounting, no job completion log, no task or process tracking beyond process groups, as many
    /// CPUs as GPUs, and a scheduler that looks again at once, at every end, and at everything.
    fn configuration(&self, gpus: u32) -> String {
        let (run, plugins) = (self.run.display(), self.libraries());
        let plugins = plugins.display();
        let (controller_port, node_port) = (26_817, 26_818);
        format!(
            "ClusterName=bench\nSlurmctldHost=localhost(127.0.0.1)\nSlurmUser=root\nSlurmdUser=root\n\
             SlurmctldPort={controller_port}\nSlurmdPort={node_port}\nPluginDir={plugins}\n\
             AuthType=auth/munge\nAuthInfo=socket={run}/munge/socket\nCredType=cred/munge\n\
             StateSaveLocation={run}/state\nSlurmdSpoolDir={run}/spool\n\
             SlurmctldPidFile={run}/slurmctld.pid\nSlurmdPidFile={run}/slurmd.pid\n\
             SlurmctldDebug=error\nSlurmdDebug=error\nMailProg=/bin/true\n\
             ProctrackType=proctrack/pgid\nTaskPlugin=task/none\nSwitchType=switch/none\nMpiDefault=none\n\
             JobAcctGatherType=jobacct_gather/none\nAccountingStorageType=accounting_storage/none\n\
             JobCompType=jobcomp/none\nSelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\n\
             SchedulerType=sched/backfill\nSchedulerParameters={SCHEDULER}\nPriorityType=priority/basic\n\
             GresTypes=gpu\nMaxArraySize=100002\nMaxJobCount=200000\nCompleteWait=0\nEpilogMsgTime=0\nKillWait=1\n\
             ReturnToService=2\nSlurmdParameters=config_overrides\n\
             NodeName={NODE} NodeHostname=localhost NodeAddr=127.0.0.1 CPUs={gpus} Gres=gpu:{gpus} State=UNKNOWN\n\
             PartitionName=all Nodes={NODE} Default=YES State=UP\n"
        )
    }
}

/// From the manual of slurm.conf: both schedulers look again as soon as they may, at all that waits. Of the settings tried
/// this is the fastest (7.8 jobs/s over 8 GPUs; builtin 6.9 to 7.4, backfill as it comes 2.9): completions are answered
/// about once a second whatever is set. An interval of 0 is refused in the log.
const SCHEDULER: &str = "batch_sched_delay=0,sched_min_interval=1,sched_interval=1,bf_interval=1,bf_continue,\
                         default_queue_depth=10000";

fn munged_arguments(run: &Path) -> Vec<String> {
    let file = |flag: &str, name: &str| format!("--{flag}={}", run.join("munge").join(name).display());
    let files = [
        ("key-file", "key"),
        ("socket", "socket"),
        ("pid-file", "pid"),
        ("log-file", "log"),
        ("seed-file", "seed"),
    ];
    let flags = ["--foreground", "--force"].map(String::from).into_iter();
    flags.chain(files.map(|(flag, name)| file(flag, name))).collect()
}

/// Downloads Debian's packages, and those that they need and this machine lacks, and unpacks them; nothing is installed.
fn unpack(bench: &Bench, place: &Place) -> Result<()> {
    let packages = home(bench, "slurm").join("debs");
    fs::create_dir_all(packages.join("partial"))?;
    fs::create_dir_all(&place.root)?;
    let mut apt = Command::new("apt-get");
    apt.args(["install", "--yes", "--quiet", "--download-only", "--no-install-recommends"]);
    apt.arg("--option").arg(format!("Dir::Cache::archives={}", packages.display()));
    output(apt.args(["slurm-wlm", "munge"]))?;
    for package in fs::read_dir(&packages)? {
        let package = package?.path();
        if package.extension().is_some_and(|extension| extension == "deb") {
            output(Command::new("dpkg").arg("--extract").arg(&package).arg(&place.root))?;
        }
    }
    let programs = place.root.join("usr/sbin");
    for name in ["slurmctld", "slurmd", "slurmstepd"] {
        // Debian installs them under these names as alternatives, and they read Gres= only when called by them.
        symlink(format!("{name}-wlm"), programs.join(name)).with_context(|| format!("naming {name}"))?;
    }
    if !programs.join("munged").exists() || !programs.join("slurmd-wlm").exists() {
        bail!(
            "Debian's packages munge and slurm-wlm are installed on this machine already; remove them to measure"
        );
    }
    Ok(())
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}
