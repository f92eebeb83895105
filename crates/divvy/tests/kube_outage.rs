//! The API server and its database are killed and come back, while pods are made and placed. A program of its own: the other
//! tests share the cluster, and run before or after it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "only tests live here")]

#[allow(dead_code, reason = "the other tests use the rest")]
#[path = "kube/history.rs"]
mod history;
#[allow(dead_code, reason = "the other tests use the rest")]
#[path = "kube/site.rs"]
mod site;

use std::cell::RefCell;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use history::History;
use serde_json::json;
use site::{Site, kubectl_of};

/// A part of the control plane: how it was started.
struct Part {
    pid_file: PathBuf,
    log_file: PathBuf,
    program: PathBuf,
    arguments: Vec<String>,
}

impl Part {
    fn find(site: &Site, name: &str) -> Self {
        let pid_file = site.state.join("pid").join(name);
        let pid = fs::read_to_string(&pid_file).unwrap();
        let process = PathBuf::from("/proc").join(pid.trim());
        let line = String::from_utf8(fs::read(process.join("cmdline")).unwrap()).unwrap();
        let arguments = line.split('\0').skip(1).filter(|word| !word.is_empty()).map(str::to_owned);
        let program = fs::read_link(process.join("exe")).unwrap();
        let log_file = site.state.join("log").join(name);
        Self { pid_file, log_file, program, arguments: arguments.collect() }
    }

    /// Kills it, and returns a check for whether it is gone.
    fn kill(&self) -> impl Fn() -> bool {
        let pid = fs::read_to_string(&self.pid_file).unwrap();
        assert!(Command::new("kill").args(["-s", "KILL", pid.trim()]).status().unwrap().success());
        let process = PathBuf::from("/proc").join(pid.trim());
        // An ended process is a zombie until its parent reaps it; its threads may outlive it by a moment.
        move || {
            let is_zombie = |stat: String| stat.contains(") Z ");
            let threads = fs::read_dir(process.join("task")).map_or(0, Iterator::count);
            threads <= 1 && fs::read_to_string(process.join("stat")).map_or(true, is_zombie)
        }
    }

    fn start(&self) -> Child {
        let log = File::options().create(true).append(true).open(&self.log_file).unwrap();
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.process_group(0).spawn().unwrap();
        fs::write(&self.pid_file, child.id().to_string()).unwrap();
        child
    }

    /// Starts it, again whenever it ends because its port is taken, until the server answers.
    #[allow(clippy::zombie_processes, reason = "it outlives the test: whoever ends the cluster ends it")]
    fn come_back(&self, site: &Site) {
        let child = RefCell::new(self.start());
        site.wait_until("the server to answer", || {
            let mut child = child.borrow_mut();
            if child.try_wait().unwrap().is_some() {
                *child = self.start();
            }
            answers(site)
        });
    }
}

fn answers(site: &Site) -> bool {
    let asked = kubectl_of(&site.state).args(["get", "--raw", "/readyz"]).output();
    asked.is_ok_and(|answer| answer.status.success())
}

#[test]
fn the_api_server_and_its_database_are_killed_under_load_and_nothing_is_lost_or_given_twice() {
    let Some(mut site) = Site::new("outage", 4) else { return };
    // Long enough for the leader to keep its lease until the server is back.
    site.lease_s = 60;
    let history = History::begin(&site);
    site.schedule();
    for (round, name) in ["kube-apiserver", "etcd", "kube-apiserver"].into_iter().enumerate() {
        let part = Part::find(&site, name);
        // Only the scheduler has to find the server again: a controller that makes pods would take its time for that.
        let pods: Vec<_> = (0..10).map(|number| site.pod(&format!("load-{round}-{number}"), 1)).collect();
        site.create(&json!({"apiVersion": "v1", "kind": "List", "items": pods}));
        site.wait_until("some of the pods to be placed", || site.placed() > 10 * round + 2);
        let is_gone = part.kill();
        site.wait_until("the part to be gone", is_gone);
        part.come_back(&site);
    }
    site.create(&site.pod("last", 2));
    site.wait_until("all pods to be placed", || site.placed() == 31);
    history.end();
}
