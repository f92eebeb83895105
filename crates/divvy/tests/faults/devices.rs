//! Devices that others use, and devices that come and go: through NVML's interface, as with the real driver.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use divvy_gpu::testing::FakeMachine;
use serde_json::Value;

use crate::pool::Said;
use crate::site::{Site, wait_until};

const TWO: &str = "[[device]]\ncount = 2\n";

/// Starts a daemon on a fake machine, with the locks of all pools on it in one place.
fn up(site: &Site, machine: &FakeMachine, locks: &Path) {
    let said = site.up_with("nvml", |command| {
        command.env("DIVVY_NVML", machine.library()).env("DIVVY_LOCKS", locks);
    });
    assert_eq!(said.code, 0, "{said:?}");
}

fn gpus(site: &Site) -> Vec<Value> {
    site.say("gpus -o json").json().as_array().unwrap().clone()
}

#[track_caller]
fn wait_for_gpu(site: &Site, what: &str, is_so: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    wait_until(what, || {
        let gpus = gpus(site);
        if is_so(&gpus) { Ok(gpus) } else { Err(gpus) }
    })
}

#[test]
fn two_pools_on_one_machine_never_hand_out_the_same_device() {
    let machine = FakeMachine::new(TWO);
    let (one, other) = (Site::unstarted(), Site::unstarted());
    let locks = one.root().join("machine-locks");
    up(&one, &machine, &locks);
    up(&other, &machine, &locks);
    let (started, gate) = (one.gate("started"), one.gate("gate"));
    let first = one.submit("-g 1", "echo $CUDA_VISIBLE_DEVICES > device; echo > started; read x < gate");
    started.await_job();
    let seen = wait_for_gpu(&other, "the other pool sees the device as foreign", |gpus| {
        gpus.iter().any(|gpu| gpu["state"] == "foreign")
    });
    let foreign: Vec<&Value> = seen.iter().filter(|gpu| gpu["state"] == "foreign").collect();
    assert_eq!(foreign.len(), 1, "{seen:?}");
    let device = std::fs::read_to_string(one.work().join("device")).unwrap();
    assert_eq!(foreign[0]["uuid"], device.trim());
    let reason = foreign[0]["reason"].as_str().unwrap();
    let user = one.job(&first)["user"].as_str().unwrap().to_owned();
    assert!(reason.contains(&format!("pool of {user}")), "{reason}");

    // For one GPU, it gets the other one; for both, it waits until the first pool's job has ended.
    let said = other.divvy(["run", "-g", "1", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]);
    assert!(said.code == 0 && said.ok() != device.trim(), "{said:?}");
    let both = other.submit("-g 2", "exit 4");
    let waiting = other.job(&both);
    assert_eq!(waiting["state"], "pending", "{waiting}");
    let explained = other.divvy(["explain", &both]);
    assert!(explained.out.contains("outside the pool"), "{explained:?}");
    gate.open();
    assert_eq!(other.divvy(["wait", &both]).code, 4);
    one.assert_lawful();
    other.assert_lawful();
}

#[test]
fn two_pools_that_want_the_same_device_at_the_same_moment_run_one_after_the_other() {
    let machine = FakeMachine::new("[[device]]\n");
    let (one, other) = (Site::unstarted(), Site::unstarted());
    let locks = one.root().join("machine-locks");
    up(&one, &machine, &locks);
    up(&other, &machine, &locks);
    let shared = one.root().join("in-use");
    let script = format!("mkdir {0} || exit 9; sleep 0.05; rmdir {0}", shared.display());
    let jobs: Vec<(&Site, String)> = (0..12)
        .map(|at| if at % 2 == 0 { &one } else { &other })
        .map(|site| (site, site.submit("-g 1 --requeue=never", &script)))
        .collect();
    for (site, id) in &jobs {
        let said: Said = site.divvy(["wait", id]);
        assert_eq!(said.code, 0, "{said:?}: {}", site.shown(id));
    }
    one.assert_lawful();
    other.assert_lawful();
}

#[test]
fn a_device_that_falls_off_the_bus_is_down_and_comes_back() {
    let machine = FakeMachine::new(TWO);
    let site = Site::unstarted();
    up(&site, &machine, &site.root().join("locks"));
    machine.describe("[[device]]\n[[device]]\nfault = \"lost\"\n");
    let seen =
        wait_for_gpu(&site, "the lost device is down", |gpus| gpus.iter().any(|gpu| gpu["state"] == "down"));
    let down: Vec<&Value> = seen.iter().filter(|gpu| gpu["state"] == "down").collect();
    assert!(down.len() == 1 && !down[0]["reason"].as_str().unwrap().is_empty(), "{seen:?}");
    let id = site.submit("-g 2", "exit 3");
    assert_eq!(site.job(&id)["state"], "pending");
    assert_eq!(site.divvy(["run", "-g", "1", "--", "true"]).code, 0);
    machine.describe(TWO);
    assert_eq!(site.divvy(["wait", &id]).code, 3);
    wait_for_gpu(&site, "both are free", |gpus| gpus.iter().all(|gpu| gpu["state"] == "free"));

    machine.describe("[[device]]\n[[device]]\nfault = \"absent\"\n");
    wait_for_gpu(&site, "the absent device is down", |gpus| gpus.iter().any(|gpu| gpu["state"] == "down"));
    machine.describe(TWO);
    wait_for_gpu(&site, "both are free again", |gpus| gpus.iter().all(|gpu| gpu["state"] == "free"));
    assert_eq!(site.divvy(["run", "-g", "2", "--", "true"]).code, 0);
    site.assert_lawful();
}

#[test]
fn a_device_that_falls_off_the_bus_under_a_job_is_not_given_to_the_next_one() {
    let machine = FakeMachine::new("[[device]]\n");
    let site = Site::unstarted();
    up(&site, &machine, &site.root().join("locks"));
    let (started, gate) = (site.gate("started"), site.gate("gate"));
    let id = site.submit("-g 1", "echo > started; read x < gate; exit 5");
    started.await_job();
    machine.describe("[[device]]\nfault = \"lost\"\n");
    wait_for_gpu(&site, "the lost device is down", |gpus| gpus[0]["state"] == "down");
    site.assert_lawful();
    gate.open();
    assert_eq!(site.divvy(["wait", &id]).code, 5);
    let next = site.submit("-g 1", "exit 6");
    assert_eq!(site.job(&next)["state"], "pending");
    site.kill_daemon();
    up(&site, &machine, &site.root().join("locks"));
    assert_eq!(site.job(&next)["state"], "pending");
    machine.describe("[[device]]\n");
    assert_eq!(site.divvy(["wait", &next]).code, 6);
    site.assert_lawful();
}

/// A process of somebody else.
struct Stranger(Child);

impl Stranger {
    fn start() -> Self {
        Self(Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_free_device_that_a_foreign_process_uses_is_not_handed_out() {
    let stranger = Stranger::start();
    let used =
        format!("[[device]]\nprocesses = [{{ pid = {}, used_mib = 5000 }}]\n[[device]]\n", stranger.0.id());
    let machine = FakeMachine::new(&used);
    let site = Site::unstarted();
    up(&site, &machine, &site.root().join("locks"));
    let seen = wait_for_gpu(&site, "the used device is foreign", |gpus| gpus[0]["state"] == "foreign");
    assert_eq!(seen[1]["state"], "free", "{seen:?}");
    assert_eq!(seen[0]["foreign"]["pid"], stranger.0.id(), "{seen:?}");
    let id = site.submit("-g 2", "exit 3");
    assert_eq!(site.job(&id)["state"], "pending");
    let explained = site.divvy(["explain", &id]);
    assert!(explained.out.contains("outside the pool"), "{explained:?}");
    assert!(site.say("gpus").out.contains("sleep"), "it says who has it");
    machine.describe(TWO);
    assert_eq!(site.divvy(["wait", &id]).code, 3);

    // With `--ignore-foreign` it is handed out all the same.
    site.say("down").ok();
    machine.describe(&used);
    let said = site.up_with("nvml", |command| {
        command.arg("--ignore-foreign").env("DIVVY_NVML", machine.library());
    });
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(site.divvy(["run", "-g", "2", "--", "true"]).code, 0);
    site.assert_lawful();
}
